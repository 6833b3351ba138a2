//! Finds the further names of files that have several.
//!
//! Only inodes with names still to come are kept, so memory follows the number of unfinished hard-link groups, not of files.

use std::collections::HashMap;

use crate::stat::{InodeId, Stat};

/// Inodes of which some names have been met and others not.
#[derive(Debug, Default)]
pub(crate) struct LinkTable {
    open: HashMap<InodeId, Group>,
}

#[derive(Debug)]
struct Group {
    first: Box<[u8]>,
    /// Names not met yet, as far as the link count said when the first was met.
    missing: u32,
}

impl LinkTable {
    /// Path of the first name of this inode, or `None` when this is the first (which is then remembered).
    pub(crate) fn meet(&mut self, stat: &Stat, path: &[u8]) -> Option<Vec<u8>> {
        if stat.links < 2 {
            return None;
        }
        if let Some(group) = self.open.get_mut(&stat.id) {
            let first = group.first.to_vec();
            group.missing -= 1;
            if group.missing == 0 {
                self.open.remove(&stat.id);
            }
            return Some(first);
        }
        self.open.insert(stat.id, Group { first: path.into(), missing: stat.links - 1 });
        None
    }
}
