//! Which containers are worth retiring.

use std::collections::HashSet;

use larder_format::ids::ContainerId;

use super::ContainerRetention;
use super::Unarranged;
use super::series::{Content, Contents, Series};

/// Those with too many bytes that are useless, or needed by other versions than the rest. Readers
/// of the rest read these bytes in vain.
///
/// `has_class`: volumes get a storage class of their own. Then those that the newest version has
/// left as a whole go too, because they were stored in the class of the bucket.
pub(super) fn select(
    series: &Series,
    contents: &Contents,
    unarranged: &Unarranged,
    has_class: bool,
    retention: &dyn ContainerRetention,
    unreadable: &HashSet<ContainerId>,
) -> HashSet<ContainerId> {
    let may_go = |id: &ContainerId| retention.is_free(id) && !retention.is_held(id) && !unreadable.contains(id);
    let is_worth_it = |(id, content): &(&ContainerId, &Option<Content>)| {
        let (Some(known), Some(content)) = (series.containers.get(id), content) else { return false };
        let is_worth_it = is_worth_it(known.facts.bytes, content, unarranged.holes_percent);
        !known.is_apart && may_go(id) && (is_worth_it || has_class && is_finished(content))
    };
    contents.iter().filter(is_worth_it).map(|(id, _)| *id).collect()
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
