//! Until when each stretch of a container is needed.

use std::collections::{BTreeMap, BTreeSet};

use larder_format::extents::{Extent, Extents};
use larder_format::{DecodeError, names};
use larder_index::{ContainerExtents, Draft, IndexError, IndexPass};
use larder_store::RepositoryError;

use super::references::{Use, Uses};
use super::series::Series;
use super::{Unarranged, Work};
use crate::giving_up::GiveUpError;

/// What is to be known of versions to say until when something is needed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbers<'a> {
    /// Versions that are arranged now, rising. All that were arranged before have lower numbers.
    pub(super) new: &'a [u32],
    /// All versions that are retained, the new ones with them.
    pub(super) retained: &'a BTreeSet<u32>,
}

impl Numbers<'_> {
    /// Whether a retained version may need what versions from `first` to `last` used.
    fn need(&self, first: u32, last: Option<u32>) -> bool {
        let last = last.unwrap_or(u32::MAX);
        first <= last && self.retained.range(first..=last).next().is_some()
    }
}

/// Writes the records anew of all containers of which something was used no more, or again. Says whether that could be done: references
/// to what is not there are damage, and nothing of such a series is changed.
pub(super) fn classify(
    pass: &IndexPass,
    draft: &mut Draft<'_>,
    work: &Work,
    unarranged: &Unarranged,
    series: &Series,
    uses: &mut Uses,
) -> Result<bool, GiveUpError> {
    let (new, retained) = (unarranged.new_numbers(), unarranged.retained());
    let numbers = Numbers { new: &new, retained: &retained };
    let mut changes = pass.changes::<ContainerExtents>()?;
    let mut lost = None;
    Series::extents(pass, draft, &series.by_name(), |known, before| {
        let container = known.facts.id;
        lost = lost.or(uses.container().filter(|next| *next < container));
        let used = uses.of(&container)?;
        // A job that runs may adopt it and use what nobody else does.
        let may_drop = work.rights.is_free(&container) && !work.rights.held.contains(&container);
        match extents_of(&before, &used, known.first(), numbers, may_drop) {
            Some(after) if after != before => changes.put(&container, &after),
            Some(_) => Ok(()),
            None => {
                lost.get_or_insert(container);
                Ok::<_, IndexError>(())
            }
        }
    })?;
    if let Some(container) = lost.or(uses.container()) {
        let why = "it uses bytes of a container that are needed by nobody";
        let source = DecodeError::Invalid { what: "recipe", why };
        let error = RepositoryError::Damaged { name: names::container(container), source };
        tracing::warn!(%error, "a series is not arranged");
        return Ok(false);
    }
    draft.apply(changes)?;
    Ok(true)
}

/// The extents of one name after versions were arranged that use it like this; `None` when they use what is in none of its extents.
pub(super) fn extents_of(
    before: &Extents,
    uses: &[Use],
    first: u32,
    numbers: Numbers<'_>,
    may_drop: bool,
) -> Option<Extents> {
    let stretches = newest_of(uses);
    let mut after = Extents::default();
    let mut push = |extent: &Extent, from: u32, end: u32, newest: Option<u32>| {
        let last = match (newest, extent.last) {
            (Some(newest), _) if numbers.new.last() == Some(&newest) => None,
            (Some(newest), Some(last)) => Some(newest.max(last)),
            (Some(newest), None) => Some(newest),
            // The newest that was arranged before used it; between that one and the first new one there is none of this series.
            (None, None) => numbers.new.first().map(|first| first.saturating_sub(1)),
            (None, last) => last,
        };
        if !may_drop || numbers.need(first, last) {
            let to = extent.to.map(|(container, offset)| (container, offset + (from - extent.from)));
            after.push(Extent { from, length: end - from, last, to });
        }
    };
    let mut stretches = stretches.into_iter().peekable();
    let mut covered = 0;
    for extent in &before.0 {
        let mut at = extent.from;
        while at < extent.end() {
            // What is used and lies before it is in no extent.
            let Some(next) = stretches.peek_mut().filter(|next| next.from < extent.end()) else {
                push(extent, at, extent.end(), None);
                break;
            };
            if next.from < at {
                return None;
            }
            if at < next.from {
                push(extent, at, next.from, None);
            }
            let end = next.end.min(extent.end());
            push(extent, next.from, end, Some(next.version));
            covered = covered.max(end);
            (at, next.from) = (end, end);
            if next.from == next.end {
                stretches.next();
            }
        }
    }
    if stretches.peek().is_some() { None } else { Some(after) }
}

/// A stretch and the newest version that uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stretch {
    from: u32,
    end: u32,
    version: u32,
}

/// Stretches apart from one another, in order, of uses that may overlap.
fn newest_of(uses: &[Use]) -> Vec<Stretch> {
    // Where uses begin and end, and of which version.
    let mut borders: Vec<(u32, bool, u32)> = Vec::with_capacity(uses.len() * 2);
    for used in uses.iter().filter(|used| used.length > 0) {
        borders.push((used.from, true, used.version));
        borders.push((used.from.saturating_add(used.length), false, used.version));
    }
    borders.sort_unstable();
    let mut under_way: BTreeMap<u32, u32> = BTreeMap::new();
    let mut stretches: Vec<Stretch> = Vec::new();
    let mut at = 0;
    for (place, begins, version) in borders {
        if let Some((newest, _)) = under_way.last_key_value().filter(|_| at < place) {
            match stretches.last_mut() {
                Some(before) if before.end == at && before.version == *newest => before.end = place,
                _ => stretches.push(Stretch { from: at, end: place, version: *newest }),
            }
        }
        at = place;
        let count = under_way.entry(version).or_default();
        if begins {
            *count += 1;
        } else {
            *count -= 1;
            if *count == 0 {
                under_way.remove(&version);
            }
        }
    }
    stretches
}
