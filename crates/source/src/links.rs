//! Finds the further names of files that have several.
//!
//! Only inodes with names still to come are kept. Names outside of the tree never come, so trees of
//! hard-linked copies would fill any memory: inodes beyond a budget go to a file without a name, as
//! rows in sorted runs, with the paths in a second file. There they stay until the end. If no file
//! can be had, they stay in memory: a forgotten inode would become two files.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use larder_spill::{KeyedRow, Row, RowReader, RowWriter, SortedRuns};

use crate::stat::{InodeId, Stat};

/// Bytes of an inode in memory beside its path.
const GROUP_BYTES: usize = 2 * (size_of::<InodeId>() + size_of::<Group>());
/// Runs that a look-up may have to read.
const RUNS_MAX: usize = 8;

/// Inodes with some names that the walk has met and others that it has not.
#[derive(Debug)]
pub(crate) struct LinkTable {
    open: HashMap<InodeId, Group>,
    /// Bytes that `open` takes, and those that it may take.
    bytes: usize,
    budget: usize,
    folder: PathBuf,
    spilled: Option<Spilled>,
    /// No file can be had.
    stays: bool,
}

#[derive(Debug)]
struct Group {
    first: Box<[u8]>,
    /// Names not met yet, as far as the link count said when the first was met.
    missing: u32,
}

impl Group {
    fn bytes(&self) -> usize {
        GROUP_BYTES + self.first.len()
    }
}

/// Device, number and time of birth.
type Key = (u64, u64, i64, u32);

fn key(id: &InodeId) -> Key {
    let (seconds, nanos) = id.born.map_or((i64::MIN, 0), |born| (born.seconds, born.nanos));
    (id.device, id.inode, seconds, nanos)
}

/// Where the path of an inode's first name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    key: Key,
    offset: u64,
    length: u32,
}

impl Row for Place {
    const BYTES: usize = 40;

    fn encode(&self, row: &mut RowWriter<'_>) {
        let (device, inode, seconds, nanos) = self.key;
        row.u64(device);
        row.u64(inode);
        row.bytes(&seconds.to_le_bytes());
        row.u32(nanos);
        row.u64(self.offset);
        row.u32(self.length);
    }

    fn decode(row: &mut RowReader<'_>) -> Self {
        let key = (row.u64(), row.u64(), i64::from_le_bytes(row.bytes()), row.u32());
        Self { key, offset: row.u64(), length: row.u32() }
    }
}

impl KeyedRow for Place {
    type Key = Key;

    fn key(&self) -> Key {
        self.key
    }
}

/// Inodes that did not fit.
#[derive(Debug)]
struct Spilled {
    places: SortedRuns<Place>,
    paths: File,
    paths_end: u64,
}

impl Spilled {
    fn get(&mut self, id: &InodeId) -> io::Result<Option<Vec<u8>>> {
        let Some(place) = self.places.get(key(id))? else { return Ok(None) };
        let mut path = vec![0; place.length as usize];
        self.paths.read_exact_at(&mut path, place.offset)?;
        Ok(Some(path))
    }
}

impl LinkTable {
    /// A table that takes about `budget` bytes of memory, and files in `folder` for more.
    pub(crate) fn new(budget: usize, folder: PathBuf) -> Self {
        Self { open: HashMap::new(), bytes: 0, budget, folder, spilled: None, stays: false }
    }

    /// Path of the first name of this inode, or `None` when this is the first (which is then
    /// remembered).
    pub(crate) fn meet(&mut self, stat: &Stat, path: &[u8]) -> Option<Vec<u8>> {
        if stat.links < 2 {
            return None;
        }
        if let Some(group) = self.open.get_mut(&stat.id) {
            let first = group.first.to_vec();
            group.missing -= 1;
            if group.missing == 0
                && let Some(group) = self.open.remove(&stat.id)
            {
                self.bytes -= group.bytes();
            }
            return Some(first);
        }
        // An unreadable row is that of an unknown inode: its next name becomes a file of its own.
        if let Some(spilled) = &mut self.spilled
            && let Ok(Some(first)) = spilled.get(&stat.id)
        {
            return Some(first);
        }
        let group = Group { first: path.into(), missing: stat.links - 1 };
        self.bytes += group.bytes();
        self.open.insert(stat.id, group);
        if self.bytes > self.budget && !self.stays {
            self.stays = self.spill().is_err();
        }
        None
    }

    /// Moves all inodes in memory to the files. An error leaves them in memory.
    fn spill(&mut self) -> io::Result<()> {
        let spilled = match &mut self.spilled {
            Some(spilled) => spilled,
            none => none.insert(Spilled {
                places: SortedRuns::new(larder_spill::unnamed(&self.folder)?),
                paths: larder_spill::unnamed(&self.folder)?,
                paths_end: 0,
            }),
        };
        let (mut places, mut paths) = (Vec::with_capacity(self.open.len()), Vec::new());
        for (id, group) in &self.open {
            let offset = spilled.paths_end + paths.len() as u64;
            places.push(Place { key: key(id), offset, length: group.first.len() as u32 });
            paths.extend_from_slice(&group.first);
        }
        places.sort_unstable();
        spilled.paths.write_all_at(&paths, spilled.paths_end)?;
        spilled.places.push(&places)?;
        spilled.paths_end += paths.len() as u64;
        if spilled.places.runs() > RUNS_MAX {
            spilled.places.merge(larder_spill::unnamed(&self.folder)?)?;
        }
        self.open = HashMap::new();
        self.bytes = 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stat::Follow;
    use larder_format::entry::Timestamp;

    fn table() -> LinkTable {
        LinkTable::new(1 << 20, std::env::temp_dir())
    }

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
        let mut table = table();
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
        let mut table = table();
        assert_eq!(table.meet(&stat(1, 2, 100), b"removed meanwhile"), None);
        assert_eq!(table.meet(&stat(1, 2, 101), b"new"), None);
        assert_eq!(table.meet(&stat(1, 2, 101), b"new again"), Some(b"new".to_vec()));
    }

    /// Half of the files have a second name, met in another order; the other names are elsewhere.
    #[test]
    fn what_exceeds_the_budget_is_found_in_files() {
        const FILES: u64 = 3000;
        let folder = tempfile::tempdir().expect("a folder");
        let budget = 100 * (GROUP_BYTES + 16);
        let mut table = LinkTable::new(budget, folder.path().join("scratch"));
        for inode in 0..FILES {
            assert_eq!(table.meet(&stat(inode, 2, 0), format!("first-{inode}").as_bytes()), None);
            assert!(table.bytes <= budget, "{} of {budget} bytes", table.bytes);
        }
        let spilled = table.spilled.as_ref().expect("more than the budget");
        assert!((1..=RUNS_MAX).contains(&spilled.places.runs()));
        for inode in (0..FILES).rev().step_by(2) {
            let found = table.meet(&stat(inode, 2, 0), b"second");
            assert_eq!(found, Some(format!("first-{inode}").into_bytes()));
            assert_eq!(table.meet(&stat(inode, 2, 1), b"reused"), None, "another file with this number");
        }
    }

    #[test]
    fn without_files_nothing_is_forgotten() {
        let mut table = LinkTable::new(0, "/dev/null/none".into());
        for inode in 0..10 {
            assert_eq!(table.meet(&stat(inode, 2, 0), b"first"), None);
        }
        assert_eq!(table.open.len(), 10);
        assert_eq!(table.meet(&stat(3, 2, 0), b"second"), Some(b"first".to_vec()));
    }
}
