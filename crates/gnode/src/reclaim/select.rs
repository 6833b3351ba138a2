//! How much of each container is useless, and which of them are retired.
//!
//! Counted in chunks: the bytes of single chunks are in the containers, and these are read when
//! they are retired.

use std::collections::{BTreeMap, BTreeSet};

use larder_format::ids::ByteCount;
use larder_index::{Draft, IndexError, IndexPass, Sorted, Sorter};
use larder_spill::{Pages, RowReader, RowWriter};
use larder_store::cold_containers::{ColdContainers, ColdLeft};

use super::copies::{Group, Marks, all, duplicates};
use super::eligibility::{Candidate, Eligibility};
use super::mark::{KEYS, Marked};
use super::{ReclaimOptions, ReclaimPlan, Remains, Unused};
use crate::spilled::spilled;

/// One chunk in this number is much, if left because containers cannot go for now.
const MUCH_ONE_IN: u64 = 50;

/// With [`Unused::WhenMuch`], one useless byte in this number is worth copying.
const WORTH_ONE_IN: u64 = 10;

/// The containers to retire.
#[derive(Debug, Default)]
pub(super) struct Selection {
    pub(super) containers: BTreeMap<u32, Candidate>,
    /// Those that were to go too, until there was no time for them: they stay, and nothing is
    /// redirected to them.
    pub(super) put_off: BTreeSet<u32>,
    pub(super) plan: ReclaimPlan,
    pub(super) remains: Remains,
    /// Keys of listed chunks that no version needs, when that is known.
    pub(super) unneeded: Option<Sorted>,
    /// Whether workers had a part in that.
    pub(super) is_told: bool,
    /// Useless chunks of all candidates.
    counts: Option<Counts>,
}

/// Chooses. `needed` has the keys of all chunks that are needed, when that is known.
pub(super) fn select(
    pass: &IndexPass,
    draft: &Draft<'_>,
    options: &ReclaimOptions,
    eligibility: &mut Eligibility,
    needed: Option<Marked>,
) -> Result<Selection, IndexError> {
    let mut unused = Counts::new(pass, eligibility.next_container)?;
    let (mut unneeded, mut is_told) = (None, false);
    // Unneeded chunks in containers that cannot go for now.
    let mut left_chunks = 0;
    match needed {
        None => duplicates(pass, draft, |group| count(&group, eligibility, &mut unused))?,
        Some(Marked { keys: mut needed, is_told: told }) => {
            is_told = told;
            let mut keys = Sorter::new(&pass.io.repository, KEYS, pass.memory / 8, &pass.folder)?;
            all(pass, draft, Marks::Needed(&mut needed), |group| {
                count(&group, eligibility, &mut unused)?;
                if group.is_needed {
                    return Ok(());
                }
                left_chunks +=
                    group.places().filter(|place| eligibility.in_use.contains(place.container)).count() as u64;
                keys.push(&group.key.0, Some(&[]))
            })?;
            unneeded = Some(keys.finish()?);
        }
    }
    // Only as many of the worst as fit into the memory go in one pass.
    let is_one = |row: &Row| match options.unused {
        Unused::OfContainer(percent) | Unused::WhenMuch { container: percent } => {
            row.share * 100.0 >= f64::from(percent)
        }
        Unused::OfRepository(_) => true,
    };
    let mut worst = Worst::new(pass.memory / 8);
    let mut left = 0;
    eligibility.candidates.each(|number, candidate| {
        if let Some(row) = Row::of(number, candidate, &mut unused)? {
            left += row.unused_bytes;
            worst.extend(Some(row).filter(is_one));
        }
        Ok(())
    })?;
    let (rows, mut is_cut) = worst.rows();
    let mut selection = Selection { unneeded, is_told, counts: Some(unused), ..Selection::default() };
    selection.plan.is_exact = selection.unneeded.is_some();
    selection.plan.unused_bytes = ByteCount(left);
    selection.plan.data_bytes = ByteCount(eligibility.data_bytes);
    // Chunks that no version needs any more go in any case.
    selection.plan.waits = matches!(options.unused, Unused::WhenMuch { .. })
        && !selection.plan.is_exact
        && left.saturating_mul(WORTH_ONE_IN) < eligibility.data_bytes;
    let is_too_much_unused = |left: u64| match options.unused {
        Unused::OfContainer(_) | Unused::WhenMuch { .. } => true,
        Unused::OfRepository(percent) => left as f64 * 100.0 > eligibility.data_bytes as f64 * percent,
    };
    let (waits, mut is_stopped) = (selection.plan.waits, false);
    for row in rows {
        let is_worth_it = !waits && is_too_much_unused(left);
        let copied_bytes = selection.plan.copied_bytes.0 + (row.candidate.bytes - row.unused_bytes);
        let is_too_much = options.max_rewrite.is_some_and(|most| copied_bytes > most);
        is_stopped |= is_worth_it && is_too_much;
        if !is_worth_it || is_too_much {
            continue;
        }
        left -= row.unused_bytes;
        selection.plan.containers += 1;
        selection.plan.container_bytes.0 += row.candidate.object_bytes;
        selection.plan.copied_bytes.0 = copied_bytes;
        selection.containers.insert(row.number, row.candidate);
    }
    is_cut = is_cut && !waits && is_too_much_unused(left) || is_stopped;
    let is_much = left_chunks > 0 && left_chunks.saturating_mul(MUCH_ONE_IN) >= eligibility.data_chunks;
    selection.remains = match (is_cut, is_much) {
        (true, _) if !selection.containers.is_empty() => Remains::Unfinished,
        // If nothing fits, another pass would do no better.
        (true, _) | (false, true) => Remains::Much,
        (false, false) => Remains::Few,
    };
    Ok(selection)
}

impl Selection {
    /// What is left in cold storage, if candidates there have useless bytes.
    pub(super) fn left_cold(
        &mut self,
        cold: &ColdContainers,
        eligibility: &mut Eligibility,
    ) -> Result<Option<ColdLeft>, IndexError> {
        let (mut left, mut has_unused) = (ColdLeft::default(), false);
        let Some(counts) = &mut self.counts else { return Ok(None) };
        eligibility.candidates.each(|number, candidate| {
            if let Some(cold) = cold.find(&candidate.id).map_err(spilled)?
                && let Some(row) = Row::of(number, candidate, counts)?
            {
                left.add_unused(&cold, row.unused_bytes);
                has_unused = true;
            }
            Ok(())
        })?;
        Ok(has_unused.then(|| left.of(cold)))
    }

    /// Only these go.
    pub(super) fn keep_to(&mut self, evacuated: impl Fn(&u32) -> bool) {
        let (going, put_off): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(&mut self.containers).into_iter().partition(|(number, _)| evacuated(number));
        self.put_off = put_off.into_keys().collect();
        self.plan.containers = going.len() as u64;
        self.plan.container_bytes = ByteCount(going.values().map(|candidate| candidate.object_bytes).sum());
        self.containers = going;
        self.remains = Remains::Unfinished;
    }
}

struct Row {
    number: u32,
    candidate: Candidate,
    share: f64,
    unused_bytes: u64,
}

impl Row {
    fn of(number: u32, candidate: &Candidate, unused: &mut Counts) -> Result<Option<Self>, IndexError> {
        let unused = unused.of(number)?;
        if unused == 0 {
            return Ok(None);
        }
        let share = (f64::from(unused) / f64::from(candidate.chunks)).min(1.0);
        let unused_bytes = ((candidate.bytes as f64 * share) as u64).min(candidate.bytes);
        Ok(Some(Self { number, candidate: *candidate, share, unused_bytes }))
    }
}

/// The rows with the largest shares, as many as fit into the memory.
struct Worst {
    rows: Vec<Row>,
    most: usize,
    is_cut: bool,
}

impl Worst {
    fn new(memory: usize) -> Self {
        // Twice as many are collected.
        Self { rows: Vec::new(), most: (memory / (2 * size_of::<Row>())).max(1), is_cut: false }
    }

    fn cut(&mut self) {
        self.rows.sort_by(|a, b| b.share.total_cmp(&a.share).then(a.number.cmp(&b.number)));
        self.is_cut |= self.rows.len() > self.most;
        self.rows.truncate(self.most);
    }

    fn extend(&mut self, row: Option<Row>) {
        self.rows.extend(row);
        if self.rows.len() >= 2 * self.most {
            self.cut();
        }
    }

    /// The rows, those with the largest shares first, and whether there are others.
    fn rows(mut self) -> (Vec<Row>, bool) {
        self.cut();
        (self.rows, self.is_cut)
    }
}

/// A number of chunks for each container, in pages.
#[derive(Debug)]
struct Counts(Pages<Count>);

#[derive(Debug, Clone, Copy)]
struct Count(u32);

impl larder_spill::Row for Count {
    const BYTES: usize = 4;

    fn encode(&self, row: &mut RowWriter<'_>) {
        row.u32(self.0);
    }

    fn decode(row: &mut RowReader<'_>) -> Self {
        Self(row.u32())
    }
}

impl Counts {
    /// Zeros for the containers with numbers below this one.
    fn new(pass: &IndexPass, next_container: u32) -> Result<Self, IndexError> {
        let mut counts = Pages::new(&pass.folder, pass.memory / 16);
        for _ in 0..next_container {
            counts.push(&Count(0)).map_err(spilled)?;
        }
        Ok(Self(counts))
    }

    fn of(&mut self, container: u32) -> Result<u32, IndexError> {
        if u64::from(container) >= self.0.len() {
            return Ok(0);
        }
        Ok(self.0.get(u64::from(container)).map_err(spilled)?.0)
    }

    fn add(&mut self, container: u32) -> Result<(), IndexError> {
        let count = Count(self.of(container)?.saturating_add(1));
        if u64::from(container) < self.0.len() {
            self.0.set(u64::from(container), &count).map_err(spilled)?;
        }
        Ok(())
    }
}

/// Counts the copies of a chunk that could go: all copies of an unneeded one, all but one of any
/// other.
fn count(group: &Group<'_>, eligibility: &Eligibility, unused: &mut Counts) -> Result<(), IndexError> {
    let is_candidate = |container: u32| eligibility.candidates.contains_key(&container);
    let keeper = || {
        let relied_on = group.places().filter(|place| eligibility.redirect_targets.contains(place.container));
        relied_on.max_by_key(|place| (!is_candidate(place.container), place.container))
    };
    let keeper = if group.is_needed { keeper() } else { None };
    if group.is_needed && keeper.is_none() {
        return Ok(());
    }
    for place in group.places().filter(|place| is_candidate(place.container) && Some(*place) != keeper) {
        unused.add(place.container)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use larder_format::ids::{ContainerId, ContainerKind, JobId};
    use proptest::prelude::*;

    use super::*;

    fn row(number: u32, share: u8) -> Row {
        let id = ContainerId { kind: ContainerKind::Data, job: JobId([0; 16]), seq: number };
        let candidate = Candidate { id, chunks: 100, bytes: 100, object_bytes: 100 };
        Row { number, candidate, share: f64::from(share) / 100.0, unused_bytes: u64::from(share) }
    }

    proptest! {
        /// The oracle sorts all of them.
        #[test]
        fn the_worst_are_kept_and_it_is_known_whether_there_are_others(
            shares in proptest::collection::vec(1u8..100, 0..60),
            most in 1usize..20,
        ) {
            let mut worst = Worst { rows: Vec::new(), most, is_cut: false };
            (0..).zip(&shares).for_each(|(number, share)| worst.extend(Some(row(number, *share))));
            worst.extend(None);
            let (rows, is_cut) = worst.rows();
            let mut expected: Vec<(u32, u8)> = (0..).zip(shares.iter().copied()).collect();
            expected.sort_by_key(|(number, share)| (std::cmp::Reverse(*share), *number));
            prop_assert_eq!(is_cut, expected.len() > most);
            expected.truncate(most);
            let kept: Vec<(u32, u8)> = rows.iter().map(|row| (row.number, row.unused_bytes as u8)).collect();
            prop_assert_eq!(kept, expected);
        }
    }
}
