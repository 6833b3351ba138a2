//! The order of entries between blocks, and the covers that segments and nodes state for the blocks
//! below them.
//!
//! Within a block the decoder checks the order. Restores rely on it everywhere: a folder comes
//! before its contents, and no path comes twice. A search for one path relies on the stated
//! beginnings of segments and nodes.
//!
//! The ends of every node and segment are kept, as two paths. So shared parts are checked once, and
//! every pair of neighbours is still compared in every version.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use larder_format::Fingerprint;
use larder_format::entry::{Entry, path_order};
use larder_format::recipe::Cover;

/// The known facts of a stretch of metadata. Entries in damaged blocks are missing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Stretch {
    first: Option<Arc<[u8]>>,
    last: Option<Arc<[u8]>>,
    data_bytes: Option<u64>,
}

/// Stretches by the fingerprint of their node or segment.
#[derive(Debug, Default)]
pub(super) struct Stretches(HashMap<Fingerprint, Stretch>);

impl Stretches {
    pub(super) fn insert(&mut self, fingerprint: Fingerprint, stretch: Stretch) {
        self.0.insert(fingerprint, stretch);
    }

    /// The known facts; none for an unreadable stretch.
    pub(super) fn get(&self, fingerprint: &Fingerprint) -> Stretch {
        self.0.get(fingerprint).cloned().unwrap_or_default()
    }
}

impl Stretch {
    /// The facts of one block.
    pub(super) fn of(entries: &[Entry]) -> Self {
        let path = |entry: Option<&Entry>| entry.map(|entry| Arc::from(&*entry.path));
        Self {
            first: path(entries.first()),
            last: path(entries.last()),
            data_bytes: Some(entries.iter().map(Entry::stored_bytes).fold(0, u64::saturating_add)),
        }
    }

    /// This one and its successor.
    pub(super) fn and(self, next: Self) -> Self {
        let data_bytes = self.data_bytes.zip(next.data_bytes).map(|(a, b)| a.saturating_add(b));
        Self { first: self.first, last: next.last, data_bytes }
    }

    /// The error of its position behind another stretch, if any.
    pub(super) fn wrong_behind(&self, before: &Self) -> Option<&'static str> {
        let (last, first) = before.last.as_ref().zip(self.first.as_ref())?;
        let is_behind = path_order(last, first) == Ordering::Less;
        (!is_behind).then_some("its first path does not come after the last of what is before it")
    }

    /// The error in its cover, if any.
    pub(super) fn wrong_cover(&self, cover: Option<&Cover>) -> Option<&'static str> {
        let Some(cover) = cover else { return Some("nothing says where in the tree its metadata lie") };
        if self.first.as_ref().is_some_and(|first| **first != *cover.first_path) {
            return Some("its metadata begin elsewhere than the recipe says");
        }
        let bytes = self.data_bytes.is_some_and(|bytes| bytes != cover.data_bytes);
        bytes.then_some("its entries have other bytes than the recipe says")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stretch(first: &str, last: &str, bytes: u64) -> Stretch {
        Stretch { first: Some(first.as_bytes().into()), last: Some(last.as_bytes().into()), data_bytes: Some(bytes) }
    }

    #[test]
    fn neighbours_are_in_order_or_not_known() {
        let (a, b) = (stretch("a", "c", 1), stretch("d", "e", 2));
        assert_eq!(b.wrong_behind(&a), None);
        assert!(a.wrong_behind(&b).is_some());
        // Equal paths come twice.
        assert!(stretch("c", "d", 0).wrong_behind(&a).is_some());
        // The order is that of paths, not of bytes.
        assert_eq!(stretch("a-", "b", 0).wrong_behind(&stretch("a", "a/b", 0)), None);
        let unknown = Stretch::default();
        assert_eq!((unknown.wrong_behind(&b), a.wrong_behind(&unknown)), (None, None));
        let together = a.clone().and(unknown.clone()).and(b.clone());
        assert_eq!(together, Stretch { data_bytes: None, ..stretch("a", "e", 0) });
        assert_eq!(a.and(unknown).last, None);
    }

    #[test]
    fn covers_say_what_is_below_them() {
        let cover = |path: &str, data_bytes| Cover { first_path: path.as_bytes().to_vec(), data_bytes };
        let a = stretch("a", "c", 5);
        assert_eq!(a.wrong_cover(Some(&cover("a", 5))), None);
        assert!(a.wrong_cover(Some(&cover("b", 5))).is_some());
        assert!(a.wrong_cover(Some(&cover("a", 4))).is_some());
        assert!(a.wrong_cover(None).is_some());
        assert_eq!(Stretch::default().wrong_cover(Some(&cover("x", 9))), None);
    }
}
