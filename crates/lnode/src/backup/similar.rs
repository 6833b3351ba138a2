//! The first version of a series: finds versions of other series that the input resembles.
//!
//! The input's head is read, cut and sampled before the backup begins. It is compared with the
//! sketches of the newest version of every series. When there are many series, the index names
//! those to compare (SlimStore section IV-A, step 1). The backup then sees the input from its
//! beginning: it gets the items of a walk and the bytes of a stream again. A wrong guess costs
//! misses, never correctness.

use std::collections::VecDeque;
use std::io::Read;

use larder_chunking::StreamEnd;
use larder_dedup::{Sketcher, choose};
use larder_format::entry::EntryKind;
use larder_format::sketch::Sketch;
use larder_job::JobContext;
use larder_source::{Found, Item, Walk};
use larder_store::RepositoryError;
use larder_store::catalog::Version;
use larder_writer::{Chunks, Cutting, HEAD_BYTES};

use super::image::{Changes, ImageReader};
use super::{Input, similar_series};

/// Bytes of the input that are sampled: held in memory for a stream, read twice for files.
const SAMPLED_BYTES: usize = 16 << 20;
/// Items of a walk that are looked at before the backup begins.
const ITEMS_MAX: usize = 4096;
/// Folders among them: each is held open.
const FOLDERS_MAX: usize = 128;
/// Most bases used: further ones cost more look-ups than they find duplicates.
const BASES_MAX: usize = 3;

/// An input whose head may have been looked at.
#[expect(clippy::large_enum_variant, reason = "one a job")]
pub(super) enum Sampled {
    /// The items taken from the walk, and the walk.
    Tree(std::iter::Chain<std::vec::IntoIter<Item>, Walk>),
    /// As in [`Input::Stream`].
    Stream { path: Vec<u8>, reader: Box<dyn Read + Send>, size: Option<u64> },
    /// As in [`Input::Image`].
    Image { path: Vec<u8>, image: ImageReader, changes: Option<Changes> },
}

impl Sampled {
    /// An input as it is.
    pub(super) fn untouched(input: Input) -> Self {
        match input {
            Input::Tree(walk) => Self::Tree(Vec::new().into_iter().chain(walk)),
            Input::Stream { path, reader, size } => Self::Stream { path, reader, size },
            Input::Image { path, image, changes } => Self::Image { path, image: ImageReader::new(image), changes },
        }
    }
}

/// The newest versions of the series that the input resembles most, best first, and the input.
pub(super) fn find_similar(
    context: &JobContext,
    input: Input,
    cutting: &Cutting,
) -> Result<(Vec<Version>, Sampled), RepositoryError> {
    let mut series = context.executor.block_on(context.repository.list_series())?;
    if series.is_empty() {
        return Ok((Vec::new(), Sampled::untouched(input)));
    }
    let (sketch, input) = match input {
        Input::Tree(walk) => sample_tree(context, walk, cutting),
        Input::Stream { path, reader, size } => {
            let (sketch, reader) = sample_stream(reader, size, cutting);
            (sketch, Sampled::Stream { path, reader, size })
        }
        Input::Image { path, image, changes } => {
            let mut image = ImageReader::new(image);
            let size = image.size();
            // An error comes again when the backup reads there.
            let (sketch, ..) = sample_head(&mut image, Some(size), cutting);
            image.rewind();
            (sketch, Sampled::Image { path, image, changes })
        }
    };
    similar_series::narrow(context, &sketch, &mut series)?;
    let mut versions = context.executor.block_on(context.repository.newest_of(series))?;
    // Metadata is not shared across domains (`MetaInDomain`): a key of one domain could not read a
    // version that is in two.
    let own = context.repository.keys().domain();
    versions.retain(|version| !version.summary.sketch.is_empty() && version.summary.domain == own);
    // Among equals the newest comes first.
    versions.sort_by_key(|version| std::cmp::Reverse(version.id()));
    let sketches: Vec<_> = versions.iter().map(|version| &version.summary.sketch).collect();
    let chosen = choose(&sketch, &sketches, BASES_MAX);
    Ok((chosen.into_iter().map(|number| versions[number].clone()).collect(), input))
}

fn sample_tree(context: &JobContext, mut walk: Walk, cutting: &Cutting) -> (Sketch, Sampled) {
    let mut sampler = Sampler::new(cutting);
    let mut items = Vec::new();
    let mut folders = 0;
    let mut folder = Vec::new();
    while items.len() < ITEMS_MAX && folders < FOLDERS_MAX && !sampler.is_full() && !context.cancel.is_cancelled() {
        let Some(mut item) = walk.next() else { break };
        if let Item::Found(found) = &mut item {
            let path = &found.entry.path;
            let parent = &path[..path.iter().rposition(|byte| *byte == b'/').unwrap_or(0)];
            if folder != parent {
                folder = parent.to_vec();
                folders += 1;
            }
            sampler.file(found);
        }
        items.push(item);
    }
    (sampler.finish(), Sampled::Tree(items.into_iter().chain(walk)))
}

fn sample_stream(
    mut reader: Box<dyn Read + Send>,
    size: Option<u64>,
    cutting: &Cutting,
) -> (Sketch, Box<dyn Read + Send>) {
    let (sketch, head, result) = sample_head(&mut reader, size, cutting);
    (sketch, Box::new(Replayed { head: head.into(), failure: result.err(), rest: reader }))
}

/// Reads and samples the head of a stream; returns it, and the error that ended it.
fn sample_head(
    reader: &mut dyn Read,
    size: Option<u64>,
    cutting: &Cutting,
) -> (Sketch, Vec<u8>, std::io::Result<usize>) {
    let mut head = Vec::new();
    let result = reader.take(SAMPLED_BYTES as u64).read_to_end(&mut head);
    let end = if head.len() < SAMPLED_BYTES { StreamEnd::Reached } else { StreamEnd::Open };
    let mut sampler = Sampler::new(cutting);
    sampler.chunks.bytes = head;
    sampler.cut_from(0, size, end);
    sampler.note();
    let head = std::mem::take(&mut sampler.chunks.bytes);
    (sampler.finish(), head, result)
}

/// A stream whose beginning was read already.
struct Replayed {
    head: VecDeque<u8>,
    /// The error that ended the reading of the head.
    failure: Option<std::io::Error>,
    rest: Box<dyn Read + Send>,
}

impl Read for Replayed {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if !self.head.is_empty() {
            let count = self.head.read(buffer)?;
            if self.head.is_empty() {
                self.head = VecDeque::new();
            }
            return Ok(count);
        }
        match self.failure.take() {
            Some(failure) => Err(failure),
            None => self.rest.read(buffer),
        }
    }
}

/// Cuts and names bytes as the backup will.
struct Sampler<'a> {
    cutting: &'a Cutting,
    sketcher: Sketcher,
    chunks: Chunks,
    read: usize,
}

impl<'a> Sampler<'a> {
    fn new(cutting: &'a Cutting) -> Self {
        Self { cutting, sketcher: Sketcher::new(), chunks: Chunks::default(), read: 0 }
    }

    fn is_full(&self) -> bool {
        self.read >= SAMPLED_BYTES
    }

    /// Samples a regular file. Its errors will recur when the file is backed up, and are reported
    /// then.
    fn file(&mut self, found: &mut Found) {
        if found.is_special_stream() || !matches!(found.entry.kind, EntryKind::File { size: 1.., .. }) {
            return;
        }
        let Ok(mut reader) = found.open() else { return };
        let total = reader.expected();
        let from = self.chunks.bytes.len();
        let wanted = total.map_or(usize::MAX, |total| total as usize).min(SAMPLED_BYTES - self.read);
        self.chunks.bytes.resize(from + wanted, 0);
        let mut got = 0;
        while got < wanted {
            match reader.read(&mut self.chunks.bytes[from + got..]) {
                Ok(count) if count > 0 => got += count,
                _ => break,
            }
        }
        self.chunks.bytes.truncate(from + got);
        self.read += got;
        let is_whole = total.is_none_or(|total| got as u64 >= total);
        let end = self.cut_from(from, total, if is_whole { StreamEnd::Reached } else { StreamEnd::Open });
        self.chunks.bytes.truncate(end);
        // A block is enough to name many chunks at once.
        if end >= 1 << 20 {
            self.note();
            self.chunks.bytes.clear();
        }
    }

    /// Cuts `bytes[from..]`, the beginning of a file or stream of `total` bytes; returns the end of
    /// its last chunk.
    fn cut_from(&mut self, from: usize, total: Option<u64>, end: StreamEnd) -> usize {
        let stream = &self.chunks.bytes[from..];
        let head = &stream[..stream.len().min(HEAD_BYTES)];
        let chunker = self.cutting.chunker(self.cutting.choose(head, total));
        from + chunker.cut_all(stream, end, &mut self.chunks.lengths)
    }

    /// Names and samples the chunks held.
    fn note(&mut self) {
        self.chunks.fingerprint(self.cutting);
        for (length, fingerprint) in self.chunks.lengths.iter().zip(&self.chunks.fingerprints) {
            self.sketcher.chunk(fingerprint, *length, None);
        }
        self.chunks.lengths.clear();
    }

    fn finish(mut self) -> Sketch {
        self.note();
        self.sketcher.finish(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Failing;

    impl Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("the source is broken"))
        }
    }

    fn replayed(head: &[u8], failure: Option<std::io::Error>, rest: impl Read + Send + 'static) -> Replayed {
        Replayed { head: head.to_vec().into(), failure, rest: Box::new(rest) }
    }

    #[test]
    fn what_was_read_comes_again_and_then_the_rest() {
        let mut all = Vec::new();
        replayed(b"head ", None, &b"and rest"[..]).read_to_end(&mut all).expect("reads");
        assert_eq!(all, b"head and rest");
    }

    #[test]
    fn a_failure_comes_where_it_was() {
        let failure = std::io::Error::other("the source is broken");
        for mut reader in [replayed(b"head", Some(failure), &b"never"[..]), replayed(b"head", None, Failing)] {
            let mut all = Vec::new();
            assert_eq!(reader.read_to_end(&mut all).expect_err("fails").to_string(), "the source is broken");
            assert_eq!(all, b"head");
        }
    }
}
