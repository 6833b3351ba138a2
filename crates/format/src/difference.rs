//! Differences: a segment stored as the changes of another segment.
//!
//! A change anywhere in a segment would store all of its records again, some 17 KB. A difference
//! has the changed records only. It may be to a segment that is a difference itself. The row of a
//! segment lists the chunks that it is built on (`recipe.rs`). So a difference names no place of
//! metadata, and copies of it stay valid.
//!
//! | field       | size        | meaning                                                            |
//! |-------------|-------------|--------------------------------------------------------------------|
//! | kind        | 1           | 0xd3, or 0xd2 if the superchunks of the base do not count; 0xd4 to 0xdf are later versions |
//! | base        | 32          | fingerprint of the chunk that it changes                           |
//! | steps       | varint      | how many                                                           |
//! | step        | a row each  | three varints: records of the base to pass over, records to take, new records behind |
//! | superchunks | varint      | how many more, then a row each: varint first record, varint records, 16 of MAC |
//! | new records | the rest    | as a segment without superchunks (`segment.rs`)                    |
//!
//! With kind 0xd3, superchunks of the base of which one step takes all records stay superchunks. So
//! a changed place costs the superchunk that it is in, and not the list of all of them.
//!
//! The fingerprint of the base is in the bytes. So the fingerprint of a difference names the whole
//! content of the segment, as that of a whole segment does. Their first bytes differ.

use crate::Fingerprint;
use crate::segment::{self, ChunkRecord, Segment, Superchunk};
use crate::wire::{DecodeError, EncodeError, Put, Reader};

const WHAT: &str = "difference";
/// All superchunks are listed. No version of a segment, so that neither is read as the other.
const KIND_ALL: u8 = 0xd2;
/// Listed are those that the base does not have.
const KIND_MORE: u8 = 0xd3;

/// How far ahead equal records are looked for, in both segments together. Longer changes make a
/// difference that is not worth it.
const AHEAD_MAX: usize = 64;

/// Records that count as new when nothing near them is equal.
const UNLIKE: usize = 16;

/// Records of a base that are passed over, records that are taken, and new ones behind them.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Step {
    passed: usize,
    taken: usize,
    new: usize,
}

/// The bytes of `segment` as a difference to `base`, stored in a chunk with the fingerprint
/// `of_base`. `None`: it has more than `new_max` records that the base does not have in this order.
pub fn encode(
    of_base: &Fingerprint,
    base: &Segment,
    segment: &Segment,
    new_max: usize,
) -> Result<Option<Vec<u8>>, EncodeError> {
    let Some((steps, new)) = steps(&base.records, &segment.records, new_max) else { return Ok(None) };
    let kept = kept_superchunks(&steps, &base.superchunks);
    let more = without(&segment.superchunks, &kept);
    let (kind, listed) = match more {
        Some(more) if !kept.is_empty() => (KIND_MORE, more),
        _ => (KIND_ALL, segment.superchunks.clone()),
    };
    let mut out = Vec::with_capacity(64 + new.len() * 36);
    out.put_u8(kind);
    out.extend_from_slice(&of_base.0);
    out.put_varint(steps.len() as u64);
    for step in steps {
        out.put_varint(step.passed as u64);
        out.put_varint(step.taken as u64);
        out.put_varint(step.new as u64);
    }
    out.put_varint(listed.len() as u64);
    for superchunk in &listed {
        out.put_varint(superchunk.first as u64);
        out.put_varint(superchunk.records as u64);
        out.extend_from_slice(&superchunk.mac);
    }
    out.extend_from_slice(&segment::encode(&new, &[])?);
    Ok(Some(out))
}

/// The superchunks of a base of which one step takes all records, at their new places.
fn kept_superchunks(steps: &[Step], of_base: &[Superchunk]) -> Vec<Superchunk> {
    let mut kept = Vec::with_capacity(of_base.len());
    let (mut from, mut to, mut next) = (0, 0, 0);
    for step in steps {
        from += step.passed;
        let end = from + step.taken;
        while let Some(superchunk) = of_base.get(next).filter(|superchunk| superchunk.first < end) {
            if superchunk.first >= from && superchunk.first + superchunk.records <= end {
                kept.push(Superchunk { first: superchunk.first - from + to, ..*superchunk });
            }
            next += 1;
        }
        (from, to) = (end, to + step.taken + step.new);
    }
    kept
}

/// The superchunks of `all` that are not in `some`; `None`: one of `some` is not in `all`. Both are
/// in order.
fn without(all: &[Superchunk], some: &[Superchunk]) -> Option<Vec<Superchunk>> {
    let mut some = some.iter().peekable();
    let mut others = Vec::new();
    for superchunk in all {
        if some.next_if_eq(&superchunk).is_none() {
            others.push(*superchunk);
        }
    }
    some.next().is_none().then_some(others)
}

/// The steps from one sequence of records to another, and the new records.
fn steps(base: &[ChunkRecord], to: &[ChunkRecord], new_max: usize) -> Option<(Vec<Step>, Vec<ChunkRecord>)> {
    let (mut steps, mut new) = (vec![Step::default()], Vec::new());
    let (mut of_base, mut at) = (0, 0);
    while at < to.len() {
        let taken = base[of_base..].iter().zip(&to[at..]).take_while(|(a, b)| a == b).count();
        if taken > 0 {
            let last = steps.last_mut()?;
            if last.taken == 0 && last.new == 0 {
                last.taken = taken;
            } else {
                steps.push(Step { taken, ..Step::default() });
            }
            (of_base, at) = (of_base + taken, at + taken);
            continue;
        }
        // Without an equal record nearby, a few more are new: to look behind each would take long.
        let unlike = (0, (to.len() - at).min(UNLIKE));
        let (passed, inserted) = next_equal(&base[of_base..], &to[at..]).unwrap_or(unlike);
        new.extend_from_slice(&to[at..at + inserted]);
        if new.len() > new_max {
            return None;
        }
        steps.last_mut()?.new += inserted;
        if passed > 0 {
            steps.push(Step { passed, ..Step::default() });
        }
        (of_base, at) = (of_base + passed, at + inserted);
    }
    steps.retain(|step| step.taken > 0 || step.new > 0);
    Some((steps, new))
}

/// The nearest places at which the two sequences go on with the same record.
fn next_equal(base: &[ChunkRecord], to: &[ChunkRecord]) -> Option<(usize, usize)> {
    (1..=AHEAD_MAX).find_map(|distance| {
        let passed = (0..=distance).filter(|passed| *passed < base.len() && distance - passed < to.len());
        passed.map(|passed| (passed, distance - passed)).find(|(passed, inserted)| base[*passed] == to[*inserted])
    })
}

/// Decodes a difference to `base`, which was stored in a chunk with the fingerprint `of_base`.
/// Memory: that of the base and of the new records.
pub fn decode(bytes: &[u8], of_base: &Fingerprint, base: &Segment) -> Result<Segment, DecodeError> {
    let mut reader = Reader::new(bytes, WHAT);
    let kind = reader.u8()?;
    match kind {
        KIND_ALL | KIND_MORE => {}
        // A newer program may have written it.
        _ if kind & 0xf0 == KIND_MORE & 0xf0 && kind > KIND_MORE => {
            let (found, newest) = (kind & 0xf, KIND_MORE & 0xf);
            return Err(DecodeError::UnsupportedVersion { what: WHAT, found, newest });
        }
        _ => return Err(reader.invalid("it is none")),
    }
    if reader.array()? != of_base.0 {
        return Err(reader.invalid("it is a difference to another segment"));
    }
    let count = reader.count(3)?;
    let mut steps = Vec::with_capacity(count);
    let (mut of_base, mut of_new) = (0usize, 0usize);
    for _ in 0..count {
        let [passed, taken, new] = [reader.varint()?, reader.varint()?, reader.varint()?];
        let end = usize::try_from(passed.saturating_add(taken)).ok().and_then(|records| of_base.checked_add(records));
        let Some(end) = end.filter(|end| *end <= base.records.len()) else {
            return Err(reader.invalid("it takes records that its base does not have"));
        };
        let Some(all_new) = usize::try_from(new).ok().and_then(|new| of_new.checked_add(new)) else {
            return Err(reader.invalid("it has too many new records"));
        };
        if taken == 0 && new == 0 {
            return Err(reader.invalid("a step takes nothing"));
        }
        steps.push(Step { passed: passed as usize, taken: taken as usize, new: new as usize });
        (of_base, of_new) = (end, all_new);
    }
    let count = reader.count(2 + 16)?;
    let mut superchunks = Vec::with_capacity(count);
    for _ in 0..count {
        let [first, records] = [reader.varint()?, reader.varint()?].map(usize::try_from);
        let (Ok(first), Ok(records)) = (first, records) else {
            return Err(reader.invalid("a superchunk is out of bounds"));
        };
        superchunks.push(Superchunk { first, records, mac: reader.array()? });
    }
    let new = segment::decode(reader.take(reader.remaining())?)?;
    if new.records.len() != of_new || !new.superchunks.is_empty() {
        return Err(reader.invalid("its steps do not use its new records"));
    }
    if kind == KIND_MORE {
        superchunks.extend(kept_superchunks(&steps, &base.superchunks));
        superchunks.sort_by_key(|superchunk| superchunk.first);
    }
    let mut records = Vec::with_capacity(steps.iter().map(|step| step.taken + step.new).sum());
    let (mut old, mut new) = (&base.records[..], &new.records[..]);
    for step in steps {
        let (taken, rest) = old[step.passed..].split_at(step.taken);
        records.extend_from_slice(taken);
        old = rest;
        let (inserted, rest) = new.split_at(step.new);
        records.extend_from_slice(inserted);
        new = rest;
    }
    segment::check_superchunks(&superchunks, records.len()).map_err(|why| reader.invalid(why))?;
    Ok(Segment { records, superchunks })
}

#[cfg(test)]
mod tests;
