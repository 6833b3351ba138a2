//! The plan of arranging, as far as it is known in advance. Changes nothing.
//!
//! A dry run reads an index without the new versions. Some of their own containers would be
//! rewritten because the next version does not use all of their bytes. These are unknown before the
//! versions are ingested. For all other containers the recipes of the new versions are read, as in
//! arranging itself.

use std::collections::HashSet;

use larder_format::ids::ByteCount;
use larder_index::{Draft, IndexError, IndexPass};

use super::ArrangeError;
use super::classify::{Numbers, extents_of};
use super::places::{PlaceSorter, Places};
use super::references::{References, Uses, references};
use super::select::Selecting;
use super::series::Series;
use super::{Unarranged, Work};

/// The plan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ArrangePlan {
    /// Versions that would be arranged. It is unknown how much of the containers that only these
    /// have would move.
    pub versions: u64,
    /// Containers that would be retired, of those that the index knows.
    pub containers: u64,
    /// Their bytes, as stored.
    pub container_bytes: ByteCount,
    /// Bytes of these that would be copied, uncompressed.
    pub moved_bytes: ByteCount,
    /// Series with an unreadable recipe: their plan is unknown.
    pub damaged_series: u64,
}

impl ArrangePlan {
    /// Whether there would be nothing to do.
    pub fn is_empty(&self) -> bool {
        self.versions == 0 && self.containers == 0
    }
}

/// The plan.
pub fn plan(pass: &IndexPass, draft: &Draft<'_>, work: &Work) -> Result<ArrangePlan, ArrangeError> {
    let mut plan = ArrangePlan::default();
    for unarranged in &work.series {
        let mut series = Series::read(pass, draft, unarranged.series, &*work.retention)?;
        if series.needs_rebuild {
            continue;
        }
        let new = unarranged.new_numbers();
        if !unarranged.retires() {
            plan.versions += new.len() as u64;
            continue;
        }
        let content = match references(pass, work, unarranged)? {
            References::All(mut uses) => content_after(pass, draft, work, unarranged, &mut series, &mut uses)?,
            References::Overtaken => continue,
            References::Damaged => None,
        };
        let Some(mut places) = content else {
            plan.damaged_series += 1;
            continue;
        };
        plan.versions += new.len() as u64;
        let has_class = pass.io.repository.store().has_data_class();
        let (retention, unreadable) = (&*work.retention, HashSet::new());
        let selecting = Selecting { unarranged, has_class, retention, unreadable: &unreadable, cold: &work.cold };
        while let Some(place) = places.next()? {
            if selecting.selects(&place)? {
                plan.containers += 1;
                plan.container_bytes.0 += place.known.map_or(0, |known| known.object_bytes);
                plan.moved_bytes.0 += place.content.map_or(0, |content| content.needed);
            }
        }
    }
    Ok(plan)
}

/// The needed content of every container that the index knows, after arranging. `None` when
/// versions use missing bytes.
fn content_after(
    pass: &IndexPass,
    draft: &Draft<'_>,
    work: &Work,
    unarranged: &Unarranged,
    series: &mut Series,
    uses: &mut Uses,
) -> Result<Option<Places>, ArrangeError> {
    let (new, retained) = (unarranged.new_numbers(), unarranged.retained());
    let numbers = Numbers { new: &new, retained: &retained };
    let mut places = PlaceSorter::new(pass)?;
    let mut is_whole = true;
    series.extents(pass, draft, |known, before| {
        let container = known.facts.id;
        let used = uses.of(&container)?;
        let is_held = work.retention.is_held(&container) || known.is_apart;
        let may_drop = work.retention.is_free(&container) && !is_held;
        match extents_of(&before, &used, known.first(), numbers, may_drop) {
            Some(after) => places.push(&known, &after)?,
            None => is_whole = false,
        }
        Ok::<_, IndexError>(())
    })?;
    Ok(if is_whole { Some(places.finish()?) } else { None })
}
