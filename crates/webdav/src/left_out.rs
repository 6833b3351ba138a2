//! Entries that WebDAV cannot show, each counted once.

use std::collections::HashSet;

use larder_tree::{Attributes, Kind, Tree};
use parking_lot::Mutex;

/// Entries that are remembered. They take some 5 MB.
const COUNTED_MAX: usize = 100_000;

/// Entries that were left out of lists so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Links that lead out of their snapshot, nowhere, or back to a folder above.
    pub links: u64,
    /// Devices, pipes and sockets.
    pub special: u64,
}

/// See the module header.
#[derive(Debug, Default)]
pub(crate) struct Counted(Mutex<(LeftOut, HashSet<larder_tree::Within>)>);

impl Counted {
    pub(crate) fn total(&self) -> LeftOut {
        self.0.lock().0
    }

    /// Counts an entry, unless it was counted before.
    pub(crate) fn add(&self, tree: &Tree, entry: &Attributes) {
        let Some(within) = tree.within(entry.inode) else { return };
        let mut counted = self.0.lock();
        let (total, known) = &mut *counted;
        // A snapshot may appear at several paths.
        if known.len() < COUNTED_MAX && known.insert(larder_tree::Within { root: 0, ..within }) {
            match entry.kind {
                Kind::Link => total.links += 1,
                _ => total.special += 1,
            }
        }
    }
}
