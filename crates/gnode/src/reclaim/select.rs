//! How much of each container is useless, and which of them are retired.
//!
//! Counted in chunks: the bytes of single chunks are in the containers, and these are read when
//! they are retired.

use std::collections::{BTreeMap, BTreeSet};

use larder_format::ids::ByteCount;
use larder_index::{Draft, IndexError, IndexPass, Sorted, Sorter};

use super::copies::{Group, Marks, all, duplicates};
use super::eligibility::{Candidate, Eligibility};
use super::mark::KEYS;
use super::{ReclaimOptions, ReclaimPlan, Remains, Unused};

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
}

/// Chooses. `needed` has the keys of all chunks that are needed, when that is known.
pub(super) fn select(
    pass: &IndexPass,
    draft: &Draft<'_>,
    options: &ReclaimOptions,
    eligibility: &Eligibility,
    needed: Option<Sorted>,
) -> Result<Selection, IndexError> {
    // 4 bytes a container.
    let mut unused = vec![0u32; eligibility.next_container as usize];
    let mut unneeded = None;
    // Unneeded chunks in containers that cannot go for now.
    let mut left_chunks = 0;
    match needed {
        None => duplicates(pass, draft, |group| {
            count(&group, eligibility, &mut unused);
            Ok(())
        })?,
        Some(mut needed) => {
            let mut keys = Sorter::new(&pass.io.repository, KEYS, pass.memory / 8, &pass.folder)?;
            all(pass, draft, Marks::Needed(&mut needed), |group| {
                count(&group, eligibility, &mut unused);
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
    let mut rows: Vec<Row> = eligibility.candidates.iter().filter_map(|row| Row::of(row, &unused)).collect();
    rows.sort_by(|a, b| b.share.total_cmp(&a.share).then(a.number.cmp(&b.number)));
    let mut left: u64 = rows.iter().map(|row| row.unused_bytes).sum();
    let mut selection = Selection { unneeded, ..Selection::default() };
    selection.plan.is_exact = selection.unneeded.is_some();
    selection.plan.unused_bytes = ByteCount(left);
    selection.plan.data_bytes = ByteCount(eligibility.data_bytes);
    // Chunks that no version needs any more go in any case.
    selection.plan.waits = matches!(options.unused, Unused::WhenMuch { .. })
        && !selection.plan.is_exact
        && left.saturating_mul(WORTH_ONE_IN) < eligibility.data_bytes;
    let mut is_cut = false;
    for row in rows {
        let is_worth_it = match options.unused {
            _ if selection.plan.waits => false,
            Unused::OfContainer(percent) | Unused::WhenMuch { container: percent } => {
                row.share * 100.0 >= f64::from(percent)
            }
            Unused::OfRepository(percent) => left as f64 * 100.0 > eligibility.data_bytes as f64 * percent,
        };
        let copied_bytes = selection.plan.copied_bytes.0 + (row.candidate.bytes - row.unused_bytes);
        let is_too_much = options.max_rewrite.is_some_and(|most| copied_bytes > most);
        is_cut |= is_worth_it && is_too_much;
        if !is_worth_it || is_too_much {
            continue;
        }
        left -= row.unused_bytes;
        selection.plan.containers += 1;
        selection.plan.container_bytes.0 += row.candidate.object_bytes;
        selection.plan.copied_bytes.0 = copied_bytes;
        selection.containers.insert(row.number, row.candidate);
    }
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
    fn of((number, candidate): (&u32, &Candidate), unused: &[u32]) -> Option<Self> {
        let unused = unused.get(*number as usize).copied().filter(|unused| *unused > 0)?;
        let share = (f64::from(unused) / f64::from(candidate.chunks)).min(1.0);
        let unused_bytes = ((candidate.bytes as f64 * share) as u64).min(candidate.bytes);
        Some(Self { number: *number, candidate: *candidate, share, unused_bytes })
    }
}

/// Counts the copies of a chunk that could go: all copies of an unneeded one, all but one of any
/// other.
fn count(group: &Group<'_>, eligibility: &Eligibility, unused: &mut [u32]) {
    let is_candidate = |container: u32| eligibility.candidates.contains_key(&container);
    let keeper = || {
        let relied_on = group.places().filter(|place| eligibility.redirect_targets.contains(place.container));
        relied_on.max_by_key(|place| (!is_candidate(place.container), place.container))
    };
    let keeper = if group.is_needed { keeper() } else { None };
    if group.is_needed && keeper.is_none() {
        return;
    }
    for place in group.places().filter(|place| is_candidate(place.container) && Some(*place) != keeper) {
        if let Some(unused) = unused.get_mut(place.container as usize) {
            *unused = unused.saturating_add(1);
        }
    }
}
