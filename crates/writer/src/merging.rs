//! Merging: runs of records that have stayed duplicate for many versions become superchunks
//! (SlimStore section IV-C).
//!
//! A superchunk is a view over chunks in their places. Only a MAC is stored for it, and when it
//! breaks, its chunks are still known one by one. So merging costs no ratio, and early merging no
//! space. It is worth its MAC where a large file changes in places, because the stretches between
//! are then proved in runs instead of fingerprinted chunk by chunk.

use larder_chunking::RunMac;
use larder_format::ids::JobId;
use larder_format::segment::{ChunkRecord, Superchunk};

/// A run with fewer records is not worth a row of its own.
const RECORDS_MIN: usize = 4;
/// A run ends here (bytes): a broken run is compared chunk by chunk. Longer ones break too often
/// (measured, `bench/slimstore`).
const BYTES_MAX: u64 = 128 << 10;

#[derive(Debug)]
struct Run {
    first: usize,
    records: usize,
    bytes: u64,
    mac: RunMac,
}

/// Finds the superchunks of a segment while its records come, with their content.
#[derive(Debug)]
pub(crate) struct Merging {
    /// Records of chunks born before this version are merged.
    born_before: JobId,
    empty: RunMac,
    run: Option<Run>,
    found: Vec<Superchunk>,
    next: usize,
}

impl Merging {
    pub(crate) fn new(born_before: JobId, empty: RunMac) -> Self {
        Self { born_before, empty, run: None, found: Vec::new(), next: 0 }
    }

    /// The next record of the segment, and its content if that is at hand.
    pub(crate) fn push(&mut self, record: &ChunkRecord, content: Option<&[u8]>) {
        let number = self.next;
        self.next += 1;
        let Some(content) = content.filter(|_| record.born < self.born_before) else {
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
    }

    fn end_run(&mut self) {
        if let Some(run) = self.run.take().filter(|run| run.records >= RECORDS_MIN) {
            self.found.push(Superchunk { first: run.first, records: run.records, mac: run.mac.finish() });
        }
    }

    /// The superchunks of the segment that ends here.
    pub(crate) fn take(&mut self) -> Vec<Superchunk> {
        self.end_run();
        self.next = 0;
        std::mem::take(&mut self.found)
    }
}
