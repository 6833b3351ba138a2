//! Cutting with history: if a chunk was seen before, its followers then are expected now.
//!
//! After a duplicate, the record behind it predicts the length and the fingerprint of the next
//! chunk. [`HistoryCutter`] jumps there, checks whether a cut is possible at that place, and
//! hashes. If the fingerprint is the expected one, the chunk is cut and found without a scan and
//! without a look-up (SlimStore section IV-B). Whole runs are predicted and hashed at once, so that
//! the lanes of the fingerprinter stay full. When a prediction fails, ordinary cutting goes on
//! **from that chunk's start**.
//!
//! Invariant: the cuts are those that the chunker makes alone, for every stream and every history
//! of chunks that the same chunker has cut. It holds because a cut depends on nothing before its
//! chunk; the tests compare.

use larder_chunking::{Chunker, Fingerprint, Fingerprinter, StreamEnd};
use larder_format::segment::ChunkRecord;

use crate::group_filter::{GroupFilter, LoadGroup};

/// The data that a stream may repeat.
pub trait History {
    /// The errors of reading.
    type Error;

    /// Puts the records that are expected next into `run`, at most `most`. None when nothing is
    /// expected.
    fn expect(&mut self, most: usize, run: &mut Vec<ChunkRecord>) -> Result<(), Self::Error>;

    /// The first `count` of them have come, or something in their place.
    fn pass(&mut self, count: usize);

    /// Looks for a chunk. When it is found, its followers are expected next.
    fn find(&mut self, fingerprint: &Fingerprint, size: u32) -> Result<Option<ChunkRecord>, Self::Error>;
}

impl<L: LoadGroup> History for GroupFilter<L> {
    type Error = L::Error;

    fn expect(&mut self, most: usize, run: &mut Vec<ChunkRecord>) -> Result<(), L::Error> {
        run.extend_from_slice(self.following(most)?);
        Ok(())
    }

    fn pass(&mut self, count: usize) {
        self.skip(count);
    }

    fn find(&mut self, fingerprint: &Fingerprint, size: u32) -> Result<Option<ChunkRecord>, L::Error> {
        GroupFilter::find(self, fingerprint, size)
    }
}

/// A chunk that was cut and named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// Its length in bytes.
    pub length: u32,
    /// Its name.
    pub fingerprint: Fingerprint,
    /// Its record in the history, if it is there.
    pub known: Option<ChunkRecord>,
}

/// Results of prediction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Skips {
    /// Chunks that were as predicted.
    pub hits: u64,
    /// Chunks that were not.
    pub misses: u64,
    /// Bytes that no chunker has scanned.
    pub skipped_bytes: u64,
    /// Bytes that were cut in the ordinary way.
    pub scanned_bytes: u64,
}

/// The shortest run that is predicted at once: as many as the fingerprinter has lanes.
const RUN_MIN: usize = 16;
/// The longest: beyond, nothing is gained, and a miss wastes more.
const RUN_MAX: usize = 256;
/// Chunks cut in the ordinary way before the history is asked again: few at first, since most
/// changes are small.
const PLAIN_MIN: usize = 2;
/// The same when nothing was found for a while.
const PLAIN_MAX: usize = 16;

/// See the module header. Holds buffers and counts only; the place in the history is the history's.
#[derive(Debug)]
pub struct HistoryCutter {
    run: usize,
    plain: usize,
    expected: Vec<ChunkRecord>,
    lengths: Vec<u32>,
    fingerprints: Vec<Fingerprint>,
    skips: Skips,
}

impl Default for HistoryCutter {
    fn default() -> Self {
        Self {
            run: RUN_MIN,
            plain: PLAIN_MIN,
            expected: Vec::new(),
            lengths: Vec::new(),
            fingerprints: Vec::new(),
            skips: Skips::default(),
        }
    }
}

/// A cutter and a namer for [`HistoryCutter::cut`].
#[derive(Clone, Copy)]
pub struct Tools<'a> {
    /// Cuts.
    pub chunker: &'a dyn Chunker,
    /// Names.
    pub fingerprinter: &'a Fingerprinter,
}

impl std::fmt::Debug for Tools<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tools").field("chunker", &self.chunker.params()).finish_non_exhaustive()
    }
}

/// The bytes still to cut.
#[derive(Clone, Copy)]
struct Rest<'a> {
    data: &'a [u8],
    /// With this number of bytes, a cut is decided.
    decided: usize,
    /// No chunk begins here or behind.
    stop: usize,
}

impl HistoryCutter {
    /// Nothing cut yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Results of prediction so far.
    #[must_use]
    pub fn skips(&self) -> Skips {
        self.skips
    }

    /// Cuts as many whole chunks as `data` decides, as [`Chunker::cut_until`] does, and looks each
    /// up in `history`. Appends to `cuts`; returns the bytes they cover.
    pub fn cut<H: History>(
        &mut self,
        tools: Tools<'_>,
        history: &mut H,
        data: &[u8],
        end: StreamEnd,
        stop: usize,
        cuts: &mut Vec<Cut>,
    ) -> Result<usize, H::Error> {
        let decided = match end {
            StreamEnd::Open => tools.chunker.params().max as usize,
            StreamEnd::Reached => 1,
        };
        let mut at = 0;
        while at < stop && data.len() - at >= decided {
            self.expected.clear();
            history.expect(self.run, &mut self.expected)?;
            let rest = Rest { data: &data[at..], decided, stop: stop - at };
            at += match self.predict(tools, rest) {
                0 => self.plain(tools, history, rest, cuts)?,
                bytes => self.compare(tools, history, &rest.data[..bytes], rest.data, cuts)?,
            };
        }
        Ok(at)
    }

    /// Fills `lengths` with the expected lengths that are possible here; returns the bytes they
    /// cover.
    fn predict(&mut self, tools: Tools<'_>, rest: Rest<'_>) -> usize {
        self.lengths.clear();
        let mut at = 0;
        for record in &self.expected {
            let length = record.chunk.size as usize;
            let data = &rest.data[at..];
            if at >= rest.stop || data.len() < rest.decided || length == 0 || length > data.len() {
                break;
            }
            if !tools.chunker.confirms(data, length) {
                break;
            }
            self.lengths.push(record.chunk.size);
            at += length;
        }
        at
    }

    /// Names the predicted run and compares. Ends behind the first chunk that is cut elsewhere than
    /// predicted.
    fn compare<H: History>(
        &mut self,
        tools: Tools<'_>,
        history: &mut H,
        run: &[u8],
        data: &[u8],
        cuts: &mut Vec<Cut>,
    ) -> Result<usize, H::Error> {
        self.fingerprints.clear();
        tools.fingerprinter.many(run, &self.lengths, &mut self.fingerprints);
        let mut at = 0;
        for ((record, &length), &fingerprint) in self.expected.iter().zip(&self.lengths).zip(&self.fingerprints) {
            if record.chunk.fingerprint == fingerprint {
                history.pass(1);
                cuts.push(Cut { length, fingerprint, known: Some(*record) });
                self.skips.hits += 1;
                self.plain = PLAIN_MIN;
                self.skips.skipped_bytes += u64::from(length);
                at += length as usize;
                continue;
            }
            self.skips.misses += 1;
            self.run = RUN_MIN;
            let cut = tools.chunker.next_cut(&data[at..]);
            self.skips.scanned_bytes += cut as u64;
            let in_place = cut == length as usize;
            let fingerprint = if in_place { fingerprint } else { tools.fingerprinter.one(&data[at..at + cut]) };
            let known = history.find(&fingerprint, cut as u32)?;
            cuts.push(Cut { length: cut as u32, fingerprint, known });
            at += cut;
            if in_place && known.is_none() {
                // Changed in place: the following data may well be unchanged, and is fingerprinted
                // already.
                history.pass(1);
                continue;
            }
            return Ok(at);
        }
        self.run = (self.run * 2).min(RUN_MAX);
        Ok(at)
    }

    /// Nothing is predicted: cuts a few chunks in the ordinary way and looks for them.
    fn plain<H: History>(
        &mut self,
        tools: Tools<'_>,
        history: &mut H,
        rest: Rest<'_>,
        cuts: &mut Vec<Cut>,
    ) -> Result<usize, H::Error> {
        let Rest { data, decided, stop } = rest;
        // An expected record that is impossible here was a miss, found out for nearly nothing.
        self.skips.misses += u64::from(!self.expected.is_empty());
        self.run = RUN_MIN;
        self.lengths.clear();
        let mut at = 0;
        while self.lengths.len() < self.plain && at < stop && data.len() - at >= decided {
            let cut = tools.chunker.next_cut(&data[at..]);
            self.lengths.push(cut as u32);
            at += cut;
        }
        self.skips.scanned_bytes += at as u64;
        self.fingerprints.clear();
        tools.fingerprinter.many(&data[..at], &self.lengths, &mut self.fingerprints);
        let mut found = false;
        for (&length, &fingerprint) in self.lengths.iter().zip(&self.fingerprints) {
            let known = history.find(&fingerprint, length)?;
            found |= known.is_some();
            cuts.push(Cut { length, fingerprint, known });
        }
        self.plain = if found { PLAIN_MIN } else { (self.plain * 2).min(PLAIN_MAX) };
        Ok(at)
    }
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
