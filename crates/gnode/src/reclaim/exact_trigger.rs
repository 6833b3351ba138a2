//! When a pass searches for unneeded chunks. Pure.
//!
//! The search reads all recipes, so it runs when many versions were forgotten since the last one.
//! Unneeded chunks in containers of newest versions stay. If there are many, another search will
//! find more. Defragmentation makes newest versions leave containers of which they use little, and
//! others replace the newest versions. So the search is repeated once after new versions were
//! ingested. Without that limit, a repository with permanent leftovers would have all recipes read
//! by every pass.

use larder_format::index_manifest::IndexHead;

use super::{Exact, Remains};

/// The search runs when one version in this number was forgotten since the last time.
const ONE_IN: u64 = 4;

/// The facts that decide whether it is time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Search {
    /// Versions that were dropped since the last time.
    pub(crate) dropped: u64,
    /// The number that the next version had when many unneeded chunks were left.
    pub(crate) left: Option<u32>,
    /// Versions that there are.
    pub(crate) versions: u64,
    /// The number that the next version gets.
    pub(crate) next_version: u32,
}

impl Search {
    /// Notes for the next index that there was no search.
    pub(crate) fn keep(&self, head: &mut IndexHead) {
        self.note(Exact::Never, None, head);
    }

    fn is_worth_it(&self) -> bool {
        self.dropped > 0 && self.dropped.saturating_mul(ONE_IN) >= self.versions
    }

    fn is_due(&self) -> bool {
        self.is_worth_it() || self.left.is_some_and(|left| self.next_version > left)
    }

    /// Whether the search runs now.
    pub(crate) fn is_wanted(&self, exact: Exact) -> bool {
        match exact {
            Exact::Never => false,
            Exact::WhenWorth => self.is_due(),
            Exact::Always => true,
        }
    }

    /// Notes for the next index. `found` is how much of the searched chunks was left; `None`
    /// without a search.
    pub(super) fn note(&self, exact: Exact, found: Option<Remains>, head: &mut IndexHead) {
        let dropped = Some(self.dropped).filter(|dropped| *dropped > 0);
        (head.dropped, head.left) = match found {
            // The reason for the search remains.
            None | Some(Remains::Unfinished) => (dropped, self.left),
            Some(Remains::Few) => (None, None),
            Some(Remains::Much) if self.is_worth_it() || exact == Exact::Always => (None, Some(self.next_version)),
            Some(Remains::Much) => (None, None),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_index::IndexSnapshot;

    const SEARCH: Search = Search { dropped: 2, left: None, versions: 8, next_version: 20 };

    fn noted(search: Search, exact: Exact, found: Option<Remains>) -> (Option<u64>, Option<u32>) {
        let mut head = IndexSnapshot::empty().manifest.head.clone();
        search.note(exact, found, &mut head);
        (head.dropped, head.left)
    }

    #[test]
    fn a_quarter_of_the_versions_asks_for_it() {
        assert!(SEARCH.is_wanted(Exact::WhenWorth) && !SEARCH.is_wanted(Exact::Never));
        for fewer in [Search { dropped: 1, ..SEARCH }, Search { dropped: 0, versions: 0, ..SEARCH }] {
            assert!(!fewer.is_wanted(Exact::WhenWorth) && fewer.is_wanted(Exact::Always));
        }
    }

    #[test]
    fn what_was_left_is_looked_for_once_more_when_versions_have_come() {
        assert_eq!(noted(SEARCH, Exact::WhenWorth, Some(Remains::Few)), (None, None));
        assert_eq!(noted(SEARCH, Exact::WhenWorth, Some(Remains::Much)), (None, Some(20)));
        let after = Search { dropped: 0, left: Some(20), ..SEARCH };
        assert!(!after.is_wanted(Exact::WhenWorth));
        let later = Search { next_version: 21, ..after };
        assert!(later.is_wanted(Exact::WhenWorth));
        assert_eq!(noted(later, Exact::WhenWorth, Some(Remains::Much)), (None, None), "this was once more");
        assert_eq!(
            noted(later, Exact::Always, Some(Remains::Much)),
            (None, Some(21)),
            "who is told to look did not use it up"
        );
    }

    #[test]
    fn what_was_not_done_is_still_asked_for() {
        for found in [None, Some(Remains::Unfinished)] {
            assert_eq!(noted(SEARCH, Exact::WhenWorth, found), (Some(2), None));
            let later = Search { dropped: 0, left: Some(19), ..SEARCH };
            assert_eq!(noted(later, Exact::WhenWorth, found), (None, Some(19)));
        }
    }
}
