//! Merging: runs of records become superchunks (SlimStore section IV-C).
//!
//! A superchunk is a view over chunks in their places. Only a MAC is stored for it, and when it
//! breaks, its chunks are still known one by one. So merging costs no ratio. Where a large file
//! changes in places, the stretches between are then proved in runs, and not fingerprinted chunk by
//! chunk. The paper merges what has stayed duplicate for many versions. Here, runs are short, and
//! made at once (`docs/decisions/0051-runs-from-the-first-version-on.md`).

use larder_chunking::RunMac;
use larder_format::ids::JobId;
use larder_format::segment::{ChunkRecord, Superchunk};

/// The records that become superchunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Merge {
    /// All.
    All,
    /// Those of chunks that a version before this one had first.
    BornBefore(JobId),
}

/// A run with fewer records is not worth a row of its own.
const RECORDS_MIN: usize = 2;
/// A run ends after this number of records. With 15 % of changed pages, half of the others are in
/// unchanged runs of four.
const RECORDS_MAX: usize = 4;
/// A run ends here (bytes): large chunks gain less.
const BYTES_MAX: u64 = 128 << 10;
/// A run also ends behind one record of this number, by its fingerprint. So runs behind an
/// insertion soon begin at the same records as before.
const ALIGNED_ONE_IN: u8 = 16;

#[derive(Debug)]
struct Run {
    first: usize,
    records: usize,
    bytes: u64,
    mac: RunMac,
}

/// A superchunk of the base whose records come next.
#[derive(Debug)]
struct Known {
    superchunk: Superchunk,
    /// Records of it that have not come yet.
    left: usize,
}

/// Finds the superchunks of a segment while its records come, with their content. Superchunks of
/// the base stay as they are, so a change moves no others.
#[derive(Debug)]
pub(crate) struct Merging {
    merge: Merge,
    empty: RunMac,
    run: Option<Run>,
    known: Option<Known>,
    found: Vec<Superchunk>,
    next: usize,
}

impl Merging {
    pub(crate) fn new(merge: Merge, empty: RunMac) -> Self {
        Self { merge, empty, run: None, known: None, found: Vec::new(), next: 0 }
    }

    /// The next records of the segment are those of a superchunk with this MAC.
    pub(crate) fn keep(&mut self, records: usize, mac: [u8; 16]) {
        self.end_run();
        self.known = Some(Known { superchunk: Superchunk { first: self.next, records, mac }, left: records });
    }

    /// The next record of the segment, and its content if that is at hand.
    pub(crate) fn push(&mut self, record: &ChunkRecord, content: Option<&[u8]>) {
        let number = self.next;
        self.next += 1;
        if let Some(known) = &mut self.known {
            known.left -= 1;
            if known.left == 0 {
                self.found.push(known.superchunk);
                self.known = None;
            }
            return;
        }
        let is_old = match self.merge {
            Merge::All => true,
            Merge::BornBefore(job) => record.born < job,
        };
        let Some(content) = content.filter(|_| is_old) else {
            self.end_run();
            return;
        };
        let bytes = content.len() as u64;
        let goes_on = self.run.as_ref().is_some_and(|run| run.bytes + bytes <= BYTES_MAX);
        if !goes_on {
            self.end_run();
        }
        let empty = &self.empty;
        let new = || Run { first: number, records: 0, bytes: 0, mac: empty.clone() };
        let run = self.run.get_or_insert_with(new);
        run.records += 1;
        run.bytes += bytes;
        run.mac.update(content);
        let [.., last] = record.chunk.fingerprint.0;
        if run.records == RECORDS_MAX || last % ALIGNED_ONE_IN == 0 {
            self.end_run();
        }
    }

    fn end_run(&mut self) {
        if let Some(run) = self.run.take().filter(|run| run.records >= RECORDS_MIN) {
            self.found.push(Superchunk { first: run.first, records: run.records, mac: run.mac.finish() });
        }
    }

    /// The superchunks of the segment that ends here.
    pub(crate) fn take(&mut self) -> Vec<Superchunk> {
        self.end_run();
        self.known = None;
        self.next = 0;
        std::mem::take(&mut self.found)
    }
}

#[cfg(test)]
mod tests {
    use larder_chunking::RunMacKey;
    use larder_format::Fingerprint;
    use larder_format::container::ChunkRef;
    use larder_format::ids::{ContainerId, ContainerKind};

    use super::*;

    const CONTENT: [u8; 100] = [7; 100];

    /// A record whose fingerprint ends with this byte.
    fn record(last: u8) -> ChunkRecord {
        let mut fingerprint = [1; 32];
        fingerprint[31] = last;
        let container = ContainerId { kind: ContainerKind::Data, job: JobId([2; 16]), seq: 0 };
        let chunk =
            ChunkRef { fingerprint: Fingerprint(fingerprint), container, offset: 0, size: CONTENT.len() as u32 };
        ChunkRecord { chunk, born: JobId([2; 16]) }
    }

    fn merging(merge: Merge) -> Merging {
        Merging::new(merge, RunMac::new(&RunMacKey([3; 16])))
    }

    /// First record and number of records of each superchunk.
    fn places(superchunks: &[Superchunk]) -> Vec<(usize, usize)> {
        superchunks.iter().map(|superchunk| (superchunk.first, superchunk.records)).collect()
    }

    #[test]
    fn runs_end_after_four_records_and_at_those_of_some_fingerprints() {
        let mut merging = merging(Merge::All);
        for last in [1, 2, 3, 4, 5, 6, 16, 7, 32, 8] {
            merging.push(&record(last), Some(&CONTENT));
        }
        // The last record is alone.
        assert_eq!(places(&merging.take()), [(0, 4), (4, 3), (7, 2)]);
        // The next segment begins at 0. A record without content is in no run.
        for content in [Some(&CONTENT[..]), None, Some(&CONTENT), Some(&CONTENT)] {
            merging.push(&record(1), content);
        }
        assert_eq!(places(&merging.take()), [(2, 2)]);
    }

    #[test]
    fn large_chunks_end_runs_early() {
        let mut merging = merging(Merge::All);
        let large = vec![0; 50 << 10];
        for _ in 0..5 {
            merging.push(&record(1), Some(&large));
        }
        assert_eq!(places(&merging.take()), [(0, 2), (2, 2)]);
    }

    #[test]
    fn superchunks_of_the_base_stay_as_they_are() {
        let mut merging = merging(Merge::All);
        merging.push(&record(1), Some(&CONTENT));
        merging.push(&record(1), Some(&CONTENT));
        merging.keep(3, [9; 16]);
        for content in [None, None, None, Some(&CONTENT[..]), Some(&CONTENT)] {
            merging.push(&record(1), content);
        }
        let found = merging.take();
        assert_eq!(places(&found), [(0, 2), (2, 3), (5, 2)]);
        assert_eq!(found[1].mac, [9; 16]);
        // The same bytes have the same MAC, wherever they are.
        assert_eq!(found[0].mac, found[2].mac);
    }

    #[test]
    fn a_superchunk_that_the_segment_cuts_is_none() {
        let mut merging = merging(Merge::All);
        merging.keep(4, [9; 16]);
        merging.push(&record(1), Some(&CONTENT));
        assert!(merging.take().is_empty());
        merging.push(&record(1), Some(&CONTENT));
        merging.push(&record(1), Some(&CONTENT));
        assert_eq!(places(&merging.take()), [(0, 2)]);
    }

    #[test]
    fn younger_chunks_wait_if_that_is_asked_for() {
        let mut merging = merging(Merge::BornBefore(JobId([2; 16])));
        let old = ChunkRecord { born: JobId([1; 16]), ..record(1) };
        for record in [old, old, record(1), record(1), old] {
            merging.push(&record, Some(&CONTENT));
        }
        assert_eq!(places(&merging.take()), [(0, 2)]);
    }
}
