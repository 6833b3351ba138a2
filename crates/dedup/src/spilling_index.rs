//! The spilling index: every fingerprint, exactly, in memory while they fit and else in sorted runs
//! of a file.
//!
//! [`crate::SampledIndex`] forgets when it is full, and needs streams that repeat themselves in
//! order. This index finds single chunks in any order too. It has two policies ([`Asked`]):
//!
//! * For a version that exists, all is noted before the first look-up. Entries are collected in a
//!   list, and the first look-up merges all runs into one, so that a look-up is one read.
//! * For a version that is being made, notes and look-ups alternate. Entries are collected in a
//!   table, and a look-up is one read for each run. A [`crate::Bloom`] should come first when most
//!   look-ups find nothing. Runs are merged when there are more than [`RUNS_MAX`].
//!
//! The caller gives the files, and they should go away by themselves. If no file can be had or
//! written, entries stay in memory, beyond the budget. If one cannot be read, its entries are not
//! found any more, which costs duplicates and not the job.

use std::fs::File;
use std::io;

use larder_spill::{KeyedRow, Row, RowReader, RowWriter, SortedRuns};

use crate::sampled_index::{NoteGroups, SampleMap};

/// Bytes of memory for an entry of a table that has just grown.
const TABLE_ENTRY: usize = 2 * (size_of::<Entry>() + 1) + 8;
/// Runs that a look-up may have to read.
const RUNS_MAX: usize = 8;
/// Entries for which there is memory in any case: those of a page.
const ENTRIES_MIN: usize = SortedRuns::<Entry>::PAGE_ROWS;

/// Gives empty files for reading and writing.
pub type NewFile = Box<dyn FnMut() -> io::Result<File> + Send>;

/// When an index is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// After all was noted. Later notes are not found.
    Afterwards,
    /// At any time.
    Meanwhile,
}

/// A sample of a fingerprint, and a group that has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    sample: u64,
    group: u32,
}

impl Row for Entry {
    const BYTES: usize = 12;

    fn encode(&self, row: &mut RowWriter<'_>) {
        row.u64(self.sample);
        row.u32(self.group);
    }

    fn decode(row: &mut RowReader<'_>) -> Self {
        Self { sample: row.u64(), group: row.u32() }
    }
}

impl KeyedRow for Entry {
    type Key = u64;

    fn key(&self) -> u64 {
        self.sample
    }
}

/// See the module header.
pub struct SpillingIndex {
    new_file: NewFile,
    newest: Newest,
    /// Entries that it may have before they are written.
    newest_max: usize,
    runs: Option<SortedRuns<Entry>>,
    /// No file can be had.
    stays: bool,
}

/// Entries in memory.
enum Newest {
    /// As they came.
    List(Vec<Entry>),
    /// For look-ups between notes.
    Table(SampleMap<u32>),
    /// By rising sample. Nothing is noted any more.
    Sorted(Vec<Entry>),
}

impl std::fmt::Debug for SpillingIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SpillingIndex").field("in_memory", &self.in_memory()).finish_non_exhaustive()
    }
}

impl SpillingIndex {
    /// An index that takes about `budget` bytes of memory, and files from `new_file` for the rest:
    /// two, one after the other, of 12 bytes a chunk.
    pub fn new(budget: usize, new_file: NewFile, asked: Asked) -> Self {
        let (newest, entry) = match asked {
            Asked::Afterwards => (Newest::List(Vec::new()), size_of::<Entry>()),
            Asked::Meanwhile => (Newest::Table(SampleMap::default()), TABLE_ENTRY),
        };
        Self { new_file, newest, newest_max: (budget / entry).max(ENTRIES_MIN), runs: None, stays: false }
    }

    /// Entries in memory, and first samples of pages.
    pub fn in_memory(&self) -> usize {
        self.newest.len() + self.runs.as_ref().map_or(0, SortedRuns::in_memory)
    }

    /// A group that a chunk was noted in; the first one, if the index is asked afterwards.
    pub fn get(&mut self, sample: u64) -> Option<u32> {
        if let Newest::List(_) = self.newest {
            self.finish();
        }
        if let Some(group) = self.newest.get(sample) {
            return Some(group);
        }
        match self.runs.as_mut()?.get(sample) {
            Ok(found) => found.map(|entry| entry.group),
            Err(_) => {
                (self.runs, self.stays) = (None, true);
                None
            }
        }
    }

    /// Sorts all that was noted.
    fn finish(&mut self) {
        let last = std::mem::replace(&mut self.newest, Newest::Sorted(Vec::new())).into_sorted();
        let Some(mut runs) = self.runs.take() else {
            self.newest = Newest::Sorted(last);
            return;
        };
        // There may be no room for a second file: the contents of the first one are read back.
        let merged = runs.push(&last).and_then(|()| runs.merge((self.new_file)()?));
        match merged {
            Ok(()) => self.runs = Some(runs),
            Err(_) => self.newest = Newest::Sorted(read_back(&runs, last).unwrap_or_default()),
        }
    }

    /// Makes a run of the entries in memory.
    fn spill(&mut self) -> io::Result<()> {
        let runs = match &mut self.runs {
            Some(runs) => runs,
            none => none.insert(SortedRuns::new((self.new_file)()?)),
        };
        match &mut self.newest {
            Newest::List(entries) => {
                sort(entries);
                runs.push(entries)?;
                entries.clear();
            }
            Newest::Table(table) => {
                let mut entries: Vec<_> =
                    table.iter().map(|(sample, group)| Entry { sample: *sample, group: *group }).collect();
                sort(&mut entries);
                runs.push(&entries)?;
                table.clear();
                if runs.runs() > RUNS_MAX
                    && let Ok(into) = (self.new_file)()
                {
                    // Else they stay as they are.
                    let _ = runs.merge(into);
                }
            }
            Newest::Sorted(_) => {}
        }
        Ok(())
    }
}

impl NoteGroups for SpillingIndex {
    fn capacity(&self) -> u64 {
        u64::MAX
    }

    fn note(&mut self, sample: u64, group: u32) {
        match &mut self.newest {
            Newest::List(entries) => entries.push(Entry { sample, group }),
            Newest::Table(table) => drop(table.entry(sample).or_insert(group)),
            Newest::Sorted(_) => return,
        }
        if self.newest.len() >= self.newest_max && !self.stays {
            self.stays = self.spill().is_err();
        }
    }
}

impl Newest {
    fn len(&self) -> usize {
        match self {
            Self::List(entries) | Self::Sorted(entries) => entries.len(),
            Self::Table(table) => table.len(),
        }
    }

    fn get(&self, sample: u64) -> Option<u32> {
        match self {
            Self::List(_) => None,
            Self::Table(table) => table.get(&sample).copied(),
            Self::Sorted(entries) => {
                let found = entries.binary_search_by_key(&sample, |entry| entry.sample).ok()?;
                Some(entries[found].group)
            }
        }
    }

    fn into_sorted(self) -> Vec<Entry> {
        match self {
            Self::List(mut entries) => {
                sort(&mut entries);
                entries
            }
            Self::Sorted(entries) => entries,
            Self::Table(table) => {
                let mut entries = table.into_iter().map(|(sample, group)| Entry { sample, group }).collect();
                sort(&mut entries);
                entries
            }
        }
    }
}

/// By sample; of one sample the first group stays.
fn sort(entries: &mut Vec<Entry>) {
    entries.sort_unstable();
    entries.dedup_by_key(|entry| entry.sample);
}

/// The entries of all runs and these ones.
fn read_back(runs: &SortedRuns<Entry>, more: Vec<Entry>) -> io::Result<Vec<Entry>> {
    let mut entries = runs.read_all()?;
    entries.extend(more);
    sort(&mut entries);
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    /// This number of files, and then errors.
    fn some_files(mut files: usize) -> NewFile {
        Box::new(move || {
            files = files.checked_sub(1).ok_or(io::ErrorKind::StorageFull)?;
            tempfile::tempfile()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        /// Against a map, in memory and in files.
        #[test]
        fn asked_afterwards_it_finds_everything_and_nothing_else(
            notes in prop::collection::vec((prop_oneof![0u64..3000, any::<u64>()], 0u32..1000), 0..4000),
            budget in prop_oneof![0usize..40_000, Just(1 << 20)],
            others in prop::collection::vec(prop_oneof![0u64..4000, any::<u64>()], 0..100),
        ) {
            let mut index = SpillingIndex::new(budget, Box::new(tempfile::tempfile), Asked::Afterwards);
            let mut oracle: HashMap<u64, u32> = HashMap::new();
            for (sample, group) in &notes {
                index.note(*sample, *group);
                let first = oracle.entry(*sample).or_insert(*group);
                *first = (*first).min(*group);
            }
            for sample in oracle.keys().chain(&others) {
                prop_assert_eq!(index.get(*sample), oracle.get(sample).copied());
            }
            prop_assert!(index.in_memory() * size_of::<Entry>() <= budget.max(ENTRIES_MIN * size_of::<Entry>()));
        }

        /// Against a map, with questions in between, in memory and in files.
        #[test]
        fn asked_meanwhile_it_finds_everything_and_nothing_else(
            notes in prop::collection::vec((prop_oneof![0u64..9000, any::<u64>()], 0u32..1000), 0..9000),
            budget in prop_oneof![Just(0usize), 0usize..90_000, Just(1 << 20)],
            asked_every in 1usize..50,
        ) {
            let mut index = SpillingIndex::new(budget, Box::new(tempfile::tempfile), Asked::Meanwhile);
            let mut oracle: HashMap<u64, Vec<u32>> = HashMap::new();
            let is_right = |index: &mut SpillingIndex, oracle: &HashMap<u64, Vec<u32>>, sample| {
                match (index.get(sample), oracle.get(&sample)) {
                    (None, None) => true,
                    (Some(group), Some(groups)) => groups.contains(&group),
                    _ => false,
                }
            };
            for (number, (sample, group)) in notes.iter().enumerate() {
                index.note(*sample, *group);
                oracle.entry(*sample).or_default().push(*group);
                if number.is_multiple_of(asked_every) {
                    let earlier = notes[number / 2].0;
                    prop_assert!(is_right(&mut index, &oracle, earlier) && is_right(&mut index, &oracle, sample ^ 1));
                }
            }
            for (sample, _) in &notes {
                prop_assert!(is_right(&mut index, &oracle, *sample) && is_right(&mut index, &oracle, *sample ^ 1 << 20));
            }
            prop_assert!(index.newest.len() * TABLE_ENTRY <= budget.max(ENTRIES_MIN * TABLE_ENTRY));
        }
    }

    #[test]
    fn asked_afterwards_it_stays_in_memory_without_files() {
        for files in 0..3 {
            let mut index = SpillingIndex::new(0, some_files(files), Asked::Afterwards);
            (0..3000).for_each(|n| index.note(n * 7919 % 3000, (n / 100) as u32));
            assert_eq!(index.get(3000), None);
            assert_eq!(index.in_memory() < 3000, files == 2);
            (0..3000).for_each(|n| assert_eq!(index.get(n * 7919 % 3000), Some((n / 100) as u32)));
        }
    }

    #[test]
    fn asked_meanwhile_it_stays_in_memory_without_files() {
        for files in 0..3 {
            let mut index = SpillingIndex::new(0, some_files(files), Asked::Meanwhile);
            (0..9000).for_each(|n| index.note(n, 1));
            assert!((0..9000).all(|n| index.get(n) == Some(1)));
            assert_eq!(index.get(9000), None);
        }
    }
}
