//! The neighbour index: every fingerprint of a version, exactly. In memory while they fit, else sorted in a file.
//!
//! [`crate::SampledIndex`] forgets when it is full and counts on streams that repeat themselves in order. What comes back one by one,
//! in any order, is found by this only. Entries of 12 bytes are collected, sorted run by run, and merged into one file at the first
//! question; then a look-up is a search among the first samples of its pages, which are in memory, and one read of a page.
//!
//! Files are given by whoever builds it, and are expected to go away by themselves. Where none can be had, or written, entries stay in
//! memory, more than was asked for. One that cannot be read back costs duplicates, not the job: after that nothing more is found.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;

use crate::sampled_index::NoteGroups;

/// Bytes of an entry in a file: sample and group.
const ENTRY_BYTES: usize = 12;
/// Entries that are read for a look-up: nearly 4 KiB.
pub(crate) const PAGE_ENTRIES: usize = 340;
/// Entries of each run that are read at once while runs are merged.
const MERGE_ENTRIES: usize = 4 * PAGE_ENTRIES;

pub(crate) type Entry = (u64, u32);

/// Gives empty files for reading and writing.
pub type NewFile = Box<dyn FnMut() -> io::Result<File> + Send>;

/// See the module header.
pub struct NeighbourIndex {
    new_file: NewFile,
    buffer_max: usize,
    state: State,
}

enum State {
    /// Entries come. Those in the file are runs, each sorted; the numbers say where each ends.
    Filling { buffer: Vec<Entry>, file: Option<(File, Vec<u64>)>, stays: bool },
    /// Sorted, all in memory.
    Memory(Vec<Entry>),
    /// Sorted, in a file; the first sample of every page.
    Sorted { file: File, entries: u64, fences: Vec<u64> },
    /// A file has failed.
    Lost,
}

impl std::fmt::Debug for NeighbourIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = match &self.state {
            State::Filling { .. } => "filling",
            State::Memory(_) => "in memory",
            State::Sorted { .. } => "in a file",
            State::Lost => "lost",
        };
        f.debug_struct("NeighbourIndex").field("state", &state).finish_non_exhaustive()
    }
}

impl NeighbourIndex {
    /// An index that takes about `budget` bytes of memory, and files from `new_file` for what does not fit: two, one after the
    /// other, of 12 bytes a chunk.
    pub fn new(budget: usize, new_file: NewFile) -> Self {
        let buffer_max = (budget / size_of::<Entry>()).max(PAGE_ENTRIES);
        Self { new_file, buffer_max, state: State::Filling { buffer: Vec::new(), file: None, stays: false } }
    }

    /// Entries and fences in memory.
    pub fn in_memory(&self) -> usize {
        match &self.state {
            State::Filling { buffer, .. } | State::Memory(buffer) => buffer.len(),
            State::Sorted { fences, .. } => fences.len(),
            State::Lost => 0,
        }
    }

    /// The first group that a chunk was noted in.
    pub fn get(&mut self, sample: u64) -> Option<u32> {
        if let State::Filling { .. } = self.state {
            self.finish();
        }
        match &self.state {
            State::Memory(entries) => first_of(entries, sample),
            State::Sorted { file, entries, fences } => {
                // A run of equal samples may begin on the page before.
                let page = fences.partition_point(|first| *first < sample).saturating_sub(1);
                match read_entries(file, (page * PAGE_ENTRIES) as u64, *entries, PAGE_ENTRIES + 1) {
                    Ok(read) => first_of(&read, sample),
                    Err(_) => {
                        self.state = State::Lost;
                        None
                    }
                }
            }
            State::Filling { .. } | State::Lost => None,
        }
    }

    /// Sorts all.
    fn finish(&mut self) {
        let State::Filling { mut buffer, file, .. } = std::mem::replace(&mut self.state, State::Lost) else { return };
        buffer.sort_unstable();
        let Some((runs, mut ends)) = file else {
            buffer.dedup_by_key(|entry| entry.0);
            self.state = State::Memory(buffer);
            return;
        };
        let begins = ends.len();
        let merged = append_run(&runs, &mut ends, &buffer).and_then(|()| merge(&runs, &ends, (self.new_file)()?));
        self.state = match merged {
            Ok((file, entries, fences)) => State::Sorted { file, entries, fences },
            // There may be no room for a second file: what the first one has is read back.
            Err(_) => match read_back(&runs, &ends[..begins], buffer) {
                Ok(entries) => State::Memory(entries),
                Err(_) => State::Lost,
            },
        };
    }

    /// No file can be had, or it cannot be written: from now on there is none.
    fn keep_in_memory(&mut self) {
        if let State::Filling { stays, .. } = &mut self.state {
            *stays = true;
        }
    }

    fn spill(&mut self) -> io::Result<()> {
        let State::Filling { buffer, file, .. } = &mut self.state else { return Ok(()) };
        let (file, ends) = match file {
            Some(file) => file,
            none => none.insert(((self.new_file)()?, Vec::new())),
        };
        buffer.sort_unstable();
        append_run(file, ends, buffer)?;
        buffer.clear();
        Ok(())
    }
}

impl NoteGroups for NeighbourIndex {
    fn capacity(&self) -> u64 {
        u64::MAX
    }

    fn note(&mut self, sample: u64, group: u32) {
        let State::Filling { buffer, stays, .. } = &mut self.state else { return };
        buffer.push((sample, group));
        if buffer.len() >= self.buffer_max && !*stays && self.spill().is_err() {
            self.keep_in_memory();
        }
    }
}

pub(crate) fn first_of(entries: &[Entry], sample: u64) -> Option<u32> {
    let (found, group) = *entries.get(entries.partition_point(|entry| entry.0 < sample))?;
    (found == sample).then_some(group)
}

pub(crate) fn append_run(file: &File, ends: &mut Vec<u64>, run: &[Entry]) -> io::Result<()> {
    let begin = ends.last().copied().unwrap_or(0);
    let mut at = begin * ENTRY_BYTES as u64;
    let mut bytes = Vec::with_capacity(MERGE_ENTRIES * ENTRY_BYTES);
    for part in run.chunks(MERGE_ENTRIES) {
        bytes.clear();
        part.iter().for_each(|entry| bytes.extend_from_slice(&encode(*entry)));
        file.write_all_at(&bytes, at)?;
        at += bytes.len() as u64;
    }
    ends.push(begin + run.len() as u64);
    Ok(())
}

/// The entries of all runs and of the buffer, sorted.
fn read_back(runs: &File, ends: &[u64], mut buffer: Vec<Entry>) -> io::Result<Vec<Entry>> {
    let end = ends.last().copied().unwrap_or(0);
    let mut from = 0;
    while from < end {
        let read = read_entries(runs, from, end, MERGE_ENTRIES)?;
        from += read.len() as u64;
        buffer.extend(read);
    }
    buffer.sort_unstable();
    buffer.dedup_by_key(|entry| entry.0);
    Ok(buffer)
}

fn encode((sample, group): Entry) -> [u8; ENTRY_BYTES] {
    let mut bytes = [0; ENTRY_BYTES];
    bytes[..8].copy_from_slice(&sample.to_le_bytes());
    bytes[8..].copy_from_slice(&group.to_le_bytes());
    bytes
}

/// Up to `most` entries from number `from` on, of a run that ends at `end`.
pub(crate) fn read_entries(file: &File, from: u64, end: u64, most: usize) -> io::Result<Vec<Entry>> {
    let count = usize::try_from(end.saturating_sub(from)).unwrap_or(most).min(most);
    let mut bytes = vec![0; count * ENTRY_BYTES];
    file.read_exact_at(&mut bytes, from * ENTRY_BYTES as u64)?;
    let entry = |bytes: &[u8]| {
        let field = |bytes: &[u8]| bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        (field(&bytes[..8]), field(&bytes[8..]) as u32)
    };
    Ok(bytes.chunks_exact(ENTRY_BYTES).map(entry).collect())
}

/// Merges runs into a file; of equal samples the first group stays. Gives the file, its entries, and the first sample of every page.
pub(crate) fn merge(runs: &File, ends: &[u64], into: File) -> io::Result<(File, u64, Vec<u64>)> {
    struct Run {
        next: u64,
        end: u64,
        read: std::vec::IntoIter<Entry>,
    }
    impl Run {
        fn next(&mut self, file: &File) -> io::Result<Option<Entry>> {
            if self.read.len() == 0 && self.next < self.end {
                let read = read_entries(file, self.next, self.end, MERGE_ENTRIES)?;
                self.next += read.len() as u64;
                self.read = read.into_iter();
            }
            Ok(self.read.next())
        }
    }
    let begins = std::iter::once(0).chain(ends.iter().copied());
    let mut sources: Vec<Run> =
        begins.zip(ends).map(|(next, end)| Run { next, end: *end, read: Vec::new().into_iter() }).collect();
    let mut heap = BinaryHeap::new();
    for (number, run) in sources.iter_mut().enumerate() {
        heap.extend(run.next(runs)?.map(|entry| Reverse((entry, number))));
    }
    let mut out = BufWriter::with_capacity(MERGE_ENTRIES * ENTRY_BYTES, &into);
    let (mut entries, mut fences, mut last) = (0_u64, Vec::new(), None);
    while let Some(Reverse((entry, number))) = heap.pop() {
        heap.extend(sources[number].next(runs)?.map(|entry| Reverse((entry, number))));
        if last.replace(entry.0) == Some(entry.0) {
            continue;
        }
        if entries.is_multiple_of(PAGE_ENTRIES as u64) {
            fences.push(entry.0);
        }
        entries += 1;
        out.write_all(&encode(entry))?;
    }
    out.flush()?;
    drop(out);
    Ok((into, entries, fences))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn files() -> NewFile {
        Box::new(tempfile::tempfile)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        /// Against a map, in memory and in files.
        #[test]
        fn it_finds_everything_and_nothing_else(
            notes in prop::collection::vec((prop_oneof![0u64..3000, any::<u64>()], 0u32..1000), 0..4000),
            budget in prop_oneof![0usize..40_000, Just(1 << 20)],
            others in prop::collection::vec(prop_oneof![0u64..4000, any::<u64>()], 0..100),
        ) {
            let mut index = NeighbourIndex::new(budget, files());
            let mut oracle: HashMap<u64, u32> = HashMap::new();
            for (sample, group) in &notes {
                index.note(*sample, *group);
                let first = oracle.entry(*sample).or_insert(*group);
                *first = (*first).min(*group);
            }
            for sample in oracle.keys().chain(&others) {
                prop_assert_eq!(index.get(*sample), oracle.get(sample).copied());
            }
            prop_assert!(index.in_memory() * size_of::<Entry>() <= budget.max(PAGE_ENTRIES * size_of::<Entry>()));
        }
    }

    /// There are so many files and no more.
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
            let mut index = NeighbourIndex::new(0, some);
            (0..3000).for_each(|n| index.note(n * 7919 % 3000, (n / 100) as u32));
            assert_eq!(index.get(3000), None);
            assert_eq!(index.in_memory() < 3000, files == 2);
            (0..3000).for_each(|n| assert_eq!(index.get(n * 7919 % 3000), Some((n / 100) as u32)));
        }
    }
}
