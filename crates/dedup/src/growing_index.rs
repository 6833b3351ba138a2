//! Every fingerprint of what is still growing, exactly: in memory while they fit, else in sorted runs of a file.
//!
//! What [`crate::NeighbourIndex`] is for a version that is there, this is for the one that is being made: entries are noted and
//! asked for at the same time. When there are too many they become a run at the end of a file; when there are too many runs, these
//! become one in a new file. A look-up is one read for each run, so whoever asks for much that is not there puts a
//! [`crate::Bloom`] before it.
//!
//! Where no file can be had, entries stay in memory, more than was asked for. One that cannot be read back costs duplicates, not the job.

use std::fs::File;
use std::io;

use crate::neighbour_index::{Entry, NewFile, PAGE_ENTRIES, append_run, first_of, merge, read_entries};
use crate::sampled_index::{NoteGroups, SampleMap};

/// Bytes of memory for an entry, in a table that has just grown.
const ENTRY_MEMORY: usize = 2 * (size_of::<Entry>() + 1) + 8;
/// Runs that are asked one after the other before they are made one.
const RUNS_MAX: usize = 8;

/// Sorted runs, one behind the other.
struct Runs {
    file: File,
    /// Where each ends.
    ends: Vec<u64>,
    /// The first samples of the pages of each.
    fences: Vec<Vec<u64>>,
}

/// See the module header.
pub struct GrowingIndex {
    new_file: NewFile,
    newest: SampleMap<u32>,
    newest_max: usize,
    runs: Option<Runs>,
    /// No file can be had.
    stays: bool,
}

impl std::fmt::Debug for GrowingIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GrowingIndex").field("in_memory", &self.in_memory()).finish_non_exhaustive()
    }
}

impl GrowingIndex {
    /// An index that takes about `budget` bytes of memory, and files from `new_file` for what does not fit.
    pub fn new(budget: usize, new_file: NewFile) -> Self {
        let newest_max = (budget / ENTRY_MEMORY).max(PAGE_ENTRIES);
        Self { new_file, newest: SampleMap::default(), newest_max, runs: None, stays: false }
    }

    /// Entries and fences in memory.
    pub fn in_memory(&self) -> usize {
        self.newest.len() + self.runs.iter().flat_map(|runs| &runs.fences).map(Vec::len).sum::<usize>()
    }

    /// A group that a chunk was noted in.
    pub fn get(&mut self, sample: u64) -> Option<u32> {
        if let Some(group) = self.newest.get(&sample) {
            return Some(*group);
        }
        match self.runs.as_ref()?.get(sample) {
            Ok(found) => found,
            Err(_) => {
                (self.runs, self.stays) = (None, true);
                None
            }
        }
    }

    fn spill(&mut self) {
        let mut entries: Vec<Entry> = self.newest.iter().map(|(sample, group)| (*sample, *group)).collect();
        entries.sort_unstable();
        match self.append(&entries) {
            Ok(()) => self.newest.clear(),
            Err(_) => self.stays = true,
        }
    }

    fn append(&mut self, entries: &[Entry]) -> io::Result<()> {
        let runs = match &mut self.runs {
            Some(runs) => runs,
            none => none.insert(Runs { file: (self.new_file)()?, ends: Vec::new(), fences: Vec::new() }),
        };
        append_run(&runs.file, &mut runs.ends, entries)?;
        runs.fences.push(entries.iter().step_by(PAGE_ENTRIES).map(|entry| entry.0).collect());
        if runs.ends.len() > RUNS_MAX
            && let Ok((file, entries, fences)) = (self.new_file)().and_then(|into| merge(&runs.file, &runs.ends, into))
        {
            *runs = Runs { file, ends: vec![entries], fences: vec![fences] };
        }
        Ok(())
    }
}

impl Runs {
    fn get(&self, sample: u64) -> io::Result<Option<u32>> {
        let mut begin = 0;
        for (end, fences) in self.ends.iter().zip(&self.fences) {
            let page = fences.partition_point(|first| *first <= sample);
            if let Some(page) = page.checked_sub(1) {
                let read = read_entries(&self.file, begin + (page * PAGE_ENTRIES) as u64, *end, PAGE_ENTRIES)?;
                if let Some(group) = first_of(&read, sample) {
                    return Ok(Some(group));
                }
            }
            begin = *end;
        }
        Ok(None)
    }
}

impl NoteGroups for GrowingIndex {
    fn capacity(&self) -> u64 {
        u64::MAX
    }

    fn note(&mut self, sample: u64, group: u32) {
        self.newest.entry(sample).or_insert(group);
        if self.newest.len() >= self.newest_max && !self.stays {
            self.spill();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        /// Against a map, with questions in between, in memory and in files.
        #[test]
        fn it_finds_everything_and_nothing_else(
            notes in prop::collection::vec((prop_oneof![0u64..9000, any::<u64>()], 0u32..1000), 0..9000),
            budget in prop_oneof![Just(0usize), 0usize..90_000, Just(1 << 20)],
            asked_every in 1usize..50,
        ) {
            let mut index = GrowingIndex::new(budget, Box::new(tempfile::tempfile));
            let mut oracle: HashMap<u64, Vec<u32>> = HashMap::new();
            let is_right = |index: &mut GrowingIndex, oracle: &HashMap<u64, Vec<u32>>, sample| {
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
            prop_assert!(index.newest.len() * ENTRY_MEMORY <= budget.max(PAGE_ENTRIES * ENTRY_MEMORY));
        }
    }

    #[test]
    fn without_files_it_stays_in_memory() {
        for mut files in 0..3 {
            let some: NewFile = Box::new(move || match std::mem::replace(&mut files, 0) {
                0 => Err(io::ErrorKind::StorageFull.into()),
                left => {
                    files = left - 1;
                    tempfile::tempfile()
                }
            });
            let mut index = GrowingIndex::new(0, some);
            (0..9000).for_each(|n| index.note(n, 1));
            assert!((0..9000).all(|n| index.get(n) == Some(1)));
            assert_eq!(index.get(9000), None);
        }
    }
}
