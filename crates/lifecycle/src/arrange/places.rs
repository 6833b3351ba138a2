//! The needed content of each container of a series, in the order of their names: sums of extents,
//! sorted within a share of the memory of the pass.

use std::collections::BTreeMap;

use larder_format::DecodeError;
use larder_format::extents::{Extent, Extents, decode_key, encode_key};
use larder_format::ids::ContainerId;
use larder_format::index_manifest::Table;
use larder_format::run::{RecordLayout, ValueWidth};
use larder_index::{Cursor, Draft, IndexError, IndexPass, Sorted, Sorter};

use super::series::{Known, Series, place_of, rank};

/// Of the memory of the pass for tables, one part in this number holds the sums.
const PLACES_ONE_IN: usize = 8;

/// Place, name; the sum of the extents of this name in this place.
const PLACES: RecordLayout = RecordLayout { key_len: 42, value: ValueWidth::Fixed(VALUE_BYTES as u16) };
const VALUE_BYTES: usize = 45;

/// The place is a container of the series.
const KNOWN: u8 = 1;
/// See [`Known::is_apart`].
const APART: u8 = 2;
/// There are extents.
const NEEDED: u8 = 4;
/// The newest version needs some of them.
const OPEN: u8 = 8;
/// See [`Content::is_as_stored`].
const AS_STORED: u8 = 16;

/// The needed content of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Content {
    /// Bytes that any version needs.
    pub(super) needed: u64,
    /// The first version of any of its extents.
    pub(super) first: u32,
    /// The last version of any of them; `None`: the newest uses some.
    pub(super) last: Option<u32>,
    /// Bytes of the extents with that last version.
    pub(super) at_last: u64,
    /// Whether any of them is where a version stored it, and arranging did not.
    pub(super) is_as_stored: bool,
}

impl Content {
    /// One extent of a name that `first` used first.
    fn of(first: u32, extent: &Extent) -> Self {
        let needed = u64::from(extent.length);
        Self { needed, first, last: extent.last, at_last: needed, is_as_stored: extent.to.is_none() }
    }

    /// Both.
    fn and(self, other: Self) -> Self {
        let (later, earlier) = if rank(self.last) < rank(other.last) { (other, self) } else { (self, other) };
        let at_last = if later.last == earlier.last { earlier.at_last } else { 0 };
        Self {
            needed: self.needed + other.needed,
            first: self.first.min(other.first),
            last: later.last,
            at_last: later.at_last + at_last,
            is_as_stored: self.is_as_stored || other.is_as_stored,
        }
    }
}

fn sum(content: Option<Content>, other: Content) -> Content {
    content.map_or(other, |content| content.and(other))
}

/// What the index says of a container of the series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KnownPlace {
    pub(super) number: u32,
    pub(super) bytes: u64,
    pub(super) object_bytes: u64,
    /// See [`Known::is_apart`].
    pub(super) is_apart: bool,
}

/// A container with its needed content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) id: ContainerId,
    /// `None`: it was written in this pass.
    pub(super) known: Option<KnownPlace>,
    pub(super) content: Option<Content>,
}

/// Takes the extents of names.
pub(super) struct PlaceSorter(Sorter);

impl PlaceSorter {
    pub(super) fn new(pass: &IndexPass) -> Result<Self, IndexError> {
        let memory = pass.memory / PLACES_ONE_IN;
        Ok(Self(Sorter::new(&pass.io.repository, PLACES, memory, &pass.folder)?))
    }

    /// Adds the extents of a name.
    pub(super) fn push(&mut self, known: &Known, extents: &Extents) -> Result<(), IndexError> {
        let (name, first) = (known.facts.id, known.first());
        let mut of_places: BTreeMap<ContainerId, Option<Content>> = BTreeMap::from([(name, None)]);
        for extent in &extents.0 {
            let content = of_places.entry(place_of(&name, extent)).or_default();
            *content = Some(sum(*content, Content::of(first, extent)));
        }
        for (id, content) in of_places {
            let known = (id == name).then_some(KnownPlace {
                number: known.number,
                bytes: known.facts.bytes,
                object_bytes: known.facts.object_bytes,
                is_apart: known.is_apart,
            });
            let mut key = [0; 42];
            key[..21].copy_from_slice(&encode_key(&id));
            key[21..].copy_from_slice(&encode_key(&name));
            self.0.push(&key, Some(&encode(known, content)))?;
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Result<Places, IndexError> {
        Ok(Places { sums: self.0.finish()?, next: None })
    }
}

/// The containers, in the order of their names.
pub(super) struct Places {
    sums: Sorted,
    /// The first sum of the next container.
    next: Option<Place>,
}

impl Places {
    /// The needed content of every container of a series, including those without any.
    pub(super) fn read(pass: &IndexPass, draft: &Draft<'_>, series: &mut Series) -> Result<Self, IndexError> {
        let mut places = PlaceSorter::new(pass)?;
        series.extents(pass, draft, |known, extents| places.push(&known, &extents))?;
        places.finish()
    }

    /// The next container.
    pub(super) fn next(&mut self) -> Result<Option<Place>, IndexError> {
        let first = match self.next.take() {
            Some(first) => Some(first),
            None => self.sum()?,
        };
        let Some(mut place) = first else { return Ok(None) };
        while let Some(sum) = self.sum()? {
            if sum.id != place.id {
                self.next = Some(sum);
                break;
            }
            place.known = place.known.or(sum.known);
            place.content = match (place.content, sum.content) {
                (Some(content), Some(other)) => Some(content.and(other)),
                (content, other) => content.or(other),
            };
        }
        Ok(Some(place))
    }

    /// A container of the series. They are asked for in their order.
    pub(super) fn of(&mut self, id: &ContainerId) -> Result<Place, IndexError> {
        loop {
            match self.next()? {
                Some(place) if place.id == *id => return Ok(place),
                Some(place) if place.id < *id => {}
                // Each of them has a sum.
                _ => return Err(wrong(&encode_key(id), torn())),
            }
        }
    }

    /// Begins with the first one again.
    pub(super) fn rewind(&mut self) {
        self.next = None;
        self.sums.rewind();
    }

    fn sum(&mut self) -> Result<Option<Place>, IndexError> {
        if !self.sums.advance()? {
            return Ok(None);
        }
        let key = self.sums.key();
        decode(key, self.sums.value().unwrap_or_default()).map(Some).map_err(|source| wrong(key, source))
    }
}

fn wrong(key: &[u8], source: DecodeError) -> IndexError {
    IndexError::WrongRecord { table: Table::Extents, key: key.to_vec(), source }
}

fn torn() -> DecodeError {
    DecodeError::Invalid { what: "sum of extents", why: "it is missing, or has another width" }
}

fn encode(known: Option<KnownPlace>, content: Option<Content>) -> [u8; VALUE_BYTES] {
    let KnownPlace { number, bytes, object_bytes, is_apart } =
        known.unwrap_or(KnownPlace { number: 0, bytes: 0, object_bytes: 0, is_apart: false });
    let none = Content { needed: 0, first: 0, last: Some(0), at_last: 0, is_as_stored: false };
    let Content { needed, first, last, at_last, is_as_stored } = content.unwrap_or(none);
    let mark = |is_so, mark| if is_so { mark } else { 0 };
    let mut value = [0; VALUE_BYTES];
    value[0] = mark(known.is_some(), KNOWN)
        | mark(is_apart, APART)
        | mark(content.is_some(), NEEDED)
        | mark(last.is_none(), OPEN)
        | mark(is_as_stored, AS_STORED);
    for (place, field) in [number, first, last.unwrap_or(0)].into_iter().enumerate() {
        value[1 + place * 4..][..4].copy_from_slice(&field.to_le_bytes());
    }
    for (place, field) in [bytes, object_bytes, needed, at_last].into_iter().enumerate() {
        value[13 + place * 8..][..8].copy_from_slice(&field.to_le_bytes());
    }
    value
}

fn decode(key: &[u8], value: &[u8]) -> Result<Place, DecodeError> {
    let (id, _) = key.split_at_checked(21).ok_or_else(torn)?;
    let value: &[u8; VALUE_BYTES] = value.try_into().map_err(|_| torn())?;
    let bytes = |at: usize, length: usize| {
        value[at..at + length].iter().rev().fold(0, |number: u64, byte| number << 8 | u64::from(*byte))
    };
    let short = |place: usize| bytes(1 + place * 4, 4) as u32;
    let long = |place: usize| bytes(13 + place * 8, 8);
    let is = |mark: u8| value[0] & mark != 0;
    let known = KnownPlace { number: short(0), bytes: long(0), object_bytes: long(1), is_apart: is(APART) };
    let last = if is(OPEN) { None } else { Some(short(2)) };
    let content = Content { needed: long(2), first: short(1), last, at_last: long(3), is_as_stored: is(AS_STORED) };
    Ok(Place { id: decode_key(id)?, known: is(KNOWN).then_some(known), content: is(NEEDED).then_some(content) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn content() -> impl Strategy<Value = Content> {
        (1u64..9, 0u32..4, prop::option::of(0u32..4), any::<bool>()).prop_map(|(needed, first, last, is_as_stored)| {
            Content { needed, first, last, at_last: needed, is_as_stored }
        })
    }

    proptest! {
        /// The oracle looks at all of them at once.
        #[test]
        fn sums_are_the_same_in_any_order(parts in prop::collection::vec(content(), 1..6), split in 1usize..6) {
            let last = parts.iter().map(|part| rank(part.last)).max().expect("some");
            let at_last = parts.iter().filter(|part| rank(part.last) == last).map(|part| part.needed).sum();
            let expected = Content {
                needed: parts.iter().map(|part| part.needed).sum(),
                first: parts.iter().map(|part| part.first).min().expect("some"),
                last: (last != u32::MAX).then_some(last),
                at_last,
                is_as_stored: parts.iter().any(|part| part.is_as_stored),
            };
            let (one, other) = parts.split_at(split.min(parts.len()));
            let of = |parts: &[Content]| parts.iter().copied().reduce(Content::and);
            let both = [of(other), of(one)].into_iter().flatten().reduce(Content::and);
            prop_assert_eq!(both, Some(expected));
        }

        #[test]
        fn rows_come_back_as_they_were(
            content in prop::option::of(content()), numbers: (u32, u64, u64, bool), is_known: bool,
        ) {
            let (number, bytes, object_bytes, is_apart) = numbers;
            let known = is_known.then_some(KnownPlace { number, bytes, object_bytes, is_apart });
            let id = ContainerId {
                kind: larder_format::ids::ContainerKind::Data, job: larder_format::ids::JobId([7; 16]), seq: number,
            };
            let key = [encode_key(&id), encode_key(&id)].concat();
            let place = decode(&key, &encode(known, content)).expect("valid");
            prop_assert_eq!(place, Place { id, known, content });
        }
    }
}
