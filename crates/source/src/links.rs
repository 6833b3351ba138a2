//! Finds the further names of files that have several.
//!
//! Only inodes with names still to come are kept, so memory follows the number of unfinished
//! hard-link groups, not of files.

use std::collections::HashMap;

use crate::stat::{InodeId, Stat};

/// Inodes with some names that the walk has met and others that it has not.
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
    /// Path of the first name of this inode, or `None` when this is the first (which is then
    /// remembered).
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stat::Follow;
    use larder_format::entry::Timestamp;

    /// Facts of some file, made those of inode `inode` with `links` names, born at `born`.
    fn stat(inode: u64, links: u32, born: i64) -> Stat {
        let mut stat = Stat::at(rustix::fs::CWD, c"/", Follow::No).expect("there is a root");
        stat.id.inode = inode;
        stat.id.born = Some(Timestamp { seconds: born, nanos: 0 });
        stat.links = links;
        stat
    }

    #[test]
    fn later_names_point_to_the_first_and_finished_groups_are_forgotten() {
        let mut table = LinkTable::default();
        assert_eq!(table.meet(&stat(1, 1, 0), b"single"), None);
        assert!(table.open.is_empty());
        assert_eq!(table.meet(&stat(1, 3, 0), b"a"), None);
        assert_eq!(table.meet(&stat(2, 2, 0), b"b"), None);
        assert_eq!(table.meet(&stat(1, 3, 0), b"c"), Some(b"a".to_vec()));
        assert_eq!(table.meet(&stat(2, 2, 0), b"d"), Some(b"b".to_vec()));
        assert_eq!(table.open.len(), 1);
        assert_eq!(table.meet(&stat(1, 3, 0), b"e"), Some(b"a".to_vec()));
        assert!(table.open.is_empty());
    }

    /// File systems reuse the number of a removed file; contents of the old file must not count as
    /// those of the new one.
    #[test]
    fn the_same_number_born_at_another_time_is_another_file() {
        let mut table = LinkTable::default();
        assert_eq!(table.meet(&stat(1, 2, 100), b"removed meanwhile"), None);
        assert_eq!(table.meet(&stat(1, 2, 101), b"new"), None);
        assert_eq!(table.meet(&stat(1, 2, 101), b"new again"), Some(b"new".to_vec()));
    }
}
