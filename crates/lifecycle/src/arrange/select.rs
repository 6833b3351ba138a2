//! Which containers are worth retiring.

use std::collections::HashSet;

use larder_format::ids::ContainerId;
use larder_index::{IndexError, IndexPass};
use larder_store::cold_containers::ColdContainers;

use super::ContainerRetention;
use super::Unarranged;
use super::container_values::{ContainerValues, spilled};
use super::places::{Content, Place, Places};

/// Of the memory of the pass for tables, one part in this number holds the names of those.
const SELECTED_ONE_IN: usize = 16;

/// What decides about a container.
pub(super) struct Selecting<'a> {
    pub(super) unarranged: &'a Unarranged,
    /// Volumes get a storage class of their own. Then those that the newest version has left as a
    /// whole go too, because they were stored in the class of the bucket.
    pub(super) has_class: bool,
    pub(super) retention: &'a dyn ContainerRetention,
    pub(super) unreadable: &'a HashSet<ContainerId>,
    /// None of these goes.
    pub(super) cold: &'a ColdContainers,
}

impl Selecting<'_> {
    /// Whether a container has too many bytes that are useless, or needed by other versions than
    /// the rest. Readers of the rest read these bytes in vain.
    pub(super) fn selects(&self, place: &Place) -> Result<bool, IndexError> {
        let (Some(known), Some(content)) = (place.known, place.content) else { return Ok(false) };
        let may_go = |id: &ContainerId| {
            self.retention.is_free(id) && !self.retention.is_held(id) && !self.unreadable.contains(id)
        };
        let is_worth_it = is_worth_it(known.bytes, &content, self.unarranged.holes_percent);
        let is_selected =
            !known.is_apart && may_go(&place.id) && (is_worth_it || self.has_class && is_finished(&content));
        Ok(is_selected && self.cold.find(&place.id).map_err(spilled)?.is_none())
    }

    /// Those of all containers that are worth retiring, each with the bytes of its object.
    pub(super) fn all(&self, pass: &IndexPass, mut places: Places) -> Result<ContainerValues, IndexError> {
        let mut selected = ContainerValues::new(pass, pass.memory / SELECTED_ONE_IN);
        while let Some(place) = places.next()? {
            if self.selects(&place)?
                && let Some(known) = place.known
            {
                selected.push(place.id, known.object_bytes)?;
            }
        }
        selected.settle()?;
        Ok(selected)
    }
}

fn is_worth_it(bytes: u64, content: &Content, holes_percent: f64) -> bool {
    let share = |part: u64| part as f64 * 100.0 / bytes.max(1) as f64;
    let (unneeded, stray) = (bytes.saturating_sub(content.needed), content.needed - content.at_last);
    share(unneeded) > holes_percent / 2.0 || (stray > 0 && share(unneeded + stray) > holes_percent)
}

/// Whether no later version needs any of it, and it is still where versions stored it.
fn is_finished(content: &Content) -> bool {
    content.is_as_stored && content.last.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_and_strays_count_together_and_what_nobody_needs_twice() {
        let content = |needed, at_last| Content { needed, first: 1, last: None, at_last, is_as_stored: true };
        assert!(!is_worth_it(100, &content(100, 80), 20.0));
        assert!(is_worth_it(100, &content(100, 79), 20.0));
        assert!(!is_worth_it(100, &content(95, 80), 20.0));
        assert!(is_worth_it(100, &content(95, 79), 20.0));
        assert!(!is_worth_it(100, &content(90, 90), 20.0));
        assert!(is_worth_it(100, &content(89, 89), 20.0));
        assert!(!is_worth_it(100, &content(100, 100), 0.0));
        assert!(is_worth_it(100, &content(99, 99), 0.0) && is_worth_it(100, &content(100, 99), 0.0));
        let left = Content { last: Some(3), ..content(100, 100) };
        assert!(is_finished(&left) && !is_finished(&content(100, 100)));
        assert!(!is_finished(&Content { is_as_stored: false, ..left }), "it is in its volume");
    }
}
