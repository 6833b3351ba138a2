//! The front half of a backup of an image: finds its base, reads what may have changed, cuts it,
//! and tells what the data stream is made of. Stores nothing.
//!
//! The feeder is that of a backup, so cuts, proofs and maps are too. What the base has at the same
//! place is named by numbers of its segments and records. These are the same in every generation
//! of the base. Everything else is asked for by fingerprint.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use crossbeam_channel::{Receiver, bounded, unbounded};
use larder_chunking::RunMac;
use larder_dedup::Segmenter;
use larder_format::compress::Compression;
use larder_format::entry::{Entry, Timestamp};
use larder_format::fleet::{ChunkRun, ScanItem, ScannedSegment};
use larder_format::ids::{ContainerId, ContainerKind, JobId};
use larder_format::layout::Layout;
use larder_format::manifest::{Manifest, SourceKind};
use larder_format::recipe::Proof;
use larder_format::segment::ChunkRecord;
use larder_format::{ChunkRef, Fingerprint};
use larder_job::JobContext;
use larder_reader::{MetaChunks, RecipeReader};
use larder_store::catalog::Version;
use larder_writer::{Chunks, Cutter, Cutting, Pool, tail_of};

use super::candidates::{Bases, Candidate, find_bases};
use super::feed::{FeedItem, Feeder, Feeding};
use super::image::{ImageInput, MapReport};
use super::prediction::{PositionHints, Predictor};
use super::sequence::wait;
use super::similar::{Sampled, SampledImage};
use super::stream_supply::StreamReader;
use super::unchanged_parts::{ImageBase, untouched};
use super::{BackupError, BackupOptions, Input, in_flight};
use crate::assemble::open_version;

/// The result of a scan, beside its items.
#[derive(Debug)]
pub struct ImageScan {
    /// The version that items name segments and records of; `None`: they name none.
    pub base: Option<Version>,
    /// The layout of the series.
    pub layout: Layout,
    /// The file of the version.
    pub entry: Entry,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Bytes of the data stream.
    pub stream_bytes: u64,
    /// The use of the map of its changes; `None` without one.
    pub map: Option<MapReport>,
}

/// Scans an image of the series in `options`, and hands over the items in order. The caller has
/// announced that it reads the newest version of that series.
///
/// # Errors
/// Those of `take`; else the image or the repository cannot be read, or the job is to stop.
pub fn scan_image<E: From<BackupError>>(
    context: &JobContext,
    input: ImageInput,
    options: &BackupOptions,
    mut take: impl FnMut(ScanItem) -> Result<(), E>,
) -> Result<ImageScan, E> {
    let prepared = Prepared::new(context, input, options)?;
    let Prepared { base, layout, mut image, chunks, cutting, since_full, started_ms } = prepared;
    let pool = Pool::new(context, Compression::DEFAULT).map_err(|_| BackupError::NoThreads)?;
    let handle = pool.handle().ok_or(BackupError::WorkerDied)?;
    let (version, base) = base.unzip();
    let recipe = base.as_ref().map(|base| (Arc::new(base.data.clone()), Arc::new(base.metadata.clone())));
    let reader = || recipe.as_ref().map(|(data, _)| RecipeReader::new(data.clone(), chunks.clone()));
    let (parts, map) = {
        let base = base.as_ref().zip(recipe.as_ref()).map(|(base, (data, metadata))| ImageBase {
            summary: &base.summary,
            is_trusted: true,
            is_followed: true,
            data,
            metadata,
        });
        untouched(context, &mut image, base, &chunks, &cutting, since_full, options.read.window)?
    };
    let (spare, spares) = unbounded::<Chunks>();
    let (out, fed) = if context.executor.is_in_turns() { unbounded() } else { bounded(in_flight(context)) };
    let predictor = reader()
        .zip(cutting.run_mac.clone())
        .map(|(base, run_mac)| Predictor::new(base, run_mac, PositionHints::default()));
    // A version that is one stream is the predecessor as a whole, under any name.
    let known = base.as_ref().filter(|base| base.summary.source == SourceKind::Stream).map(|base| 0..base.data.bytes());
    let feeder = Feeder {
        pool: handle,
        read: options.read,
        cutting: cutting.clone(),
        out,
        cancel: context.cancel.clone(),
        predictor,
        spare: spares,
        remarks: None,
    };
    let SampledImage { path, image, .. } = image;
    let now = Timestamp { seconds: (started_ms / 1000) as i64, nanos: (started_ms % 1000) as u32 * 1_000_000 };
    let feeding = Feeding::begin(context, move || {
        feeder.stream(path, StreamReader::Image(image), now, known.as_ref(), parts);
    })?;
    let mut scanner = Scanner::new(reader(), cutting);
    let scanned = scanner.run(context, &fed, &spare, &mut take);
    drop(fed);
    feeding.end()?;
    let entry = scanned?;
    let checked = map.as_ref().map_or(0, |map: &MapReport| map.checked_bytes);
    Ok(ImageScan {
        layout,
        entry,
        read_bytes: scanner.read_bytes + checked,
        stream_bytes: scanner.stream_bytes,
        map,
        base: version,
    })
}

/// What is known before the image is read.
struct Prepared {
    base: Option<(Version, Manifest)>,
    layout: Layout,
    image: SampledImage,
    chunks: MetaChunks,
    cutting: Arc<Cutting>,
    since_full: usize,
    started_ms: u64,
}

impl Prepared {
    fn new(context: &JobContext, input: ImageInput, options: &BackupOptions) -> Result<Self, BackupError> {
        let repository = &context.repository;
        let started_ms = context.clock.now_ms();
        let job = options.job_or_new(repository, started_ms)?;
        let cutting = Cutting::new(repository.config(), repository.keys()).ok_or(BackupError::WorkerDied)?;
        // Similar versions of other series are found by the index.
        let options = BackupOptions { find_similar: false, ..options.clone() };
        let found = find_bases(context, &options, job, Input::Image(input), &cutting)?;
        let Bases { candidates, policy, input, since_full, .. } = found;
        let Sampled::Image(image) = input else { return Err(BackupError::WorkerDied) };
        let base = followed(context, candidates)?;
        let chunks = MetaChunks::new(context);
        Ok(Self { base, layout: policy.layout(), image, chunks, cutting, since_full, started_ms })
    }
}

/// The first candidate, if it may be followed: this machine made it, and it lacks nothing.
fn followed(context: &JobContext, candidates: Vec<Candidate>) -> Result<Option<(Version, Manifest)>, BackupError> {
    let Some(Candidate { version, .. }) = candidates.into_iter().next().filter(|first| first.is_trusted) else {
        return Ok(None);
    };
    let open = open_version(context, &version)?;
    let whole = open.filter(|open| open.is_whole() && !open.missing.is_unknown);
    Ok(whole.map(|open| (version, open.manifest)))
}

/// The MAC over the open segment.
struct Proving {
    cutter: Cutter,
    max: u32,
    mac: RunMac,
    /// Whether it has seen all of the segment.
    is_whole: bool,
}

/// Turns what the feeder sends into items.
struct Scanner {
    reader: Option<RecipeReader>,
    cutting: Arc<Cutting>,
    segmenter: Segmenter,
    /// The chunks of the open segment.
    runs: Vec<ChunkRun>,
    proving: Option<Proving>,
    /// Whole segments of the base that are being kept: first, count, bytes.
    kept: Option<(u32, u32, u64)>,
    /// The range of the base that is being reused.
    reused: Option<Range<u64>>,
    last_asked: Option<Fingerprinted>,
    near: Near,
    read_bytes: u64,
    stream_bytes: u64,
}

/// A fingerprint and a size.
type Fingerprinted = (Fingerprint, u32);

/// Segments of the base around the present place. Where an image changed in place, most chunks of a
/// changed segment are there.
#[derive(Default)]
struct Near {
    /// Numbers of the segments, the one that was read first at the front.
    order: VecDeque<u32>,
    /// Their chunks, with segment and number of the record.
    places: HashMap<Fingerprinted, (u32, u32)>,
}

/// Segments that are remembered: of some hundred chunks each.
const NEAR_SEGMENTS: usize = 4;

impl Near {
    fn load(&mut self, reader: &mut RecipeReader, segment: u32) -> Result<(), BackupError> {
        if self.order.contains(&segment) || segment >= reader.segments() {
            return Ok(());
        }
        while self.order.len() >= NEAR_SEGMENTS
            && let Some(oldest) = self.order.pop_front()
        {
            self.places.retain(|_, (of, _)| *of != oldest);
        }
        for (place, record) in reader.segment(segment)?.iter().enumerate() {
            let key = (record.chunk.fingerprint, record.chunk.size);
            self.places.entry(key).or_insert((segment, place as u32));
        }
        self.order.push_back(segment);
        Ok(())
    }

    fn find(&self, fingerprint: Fingerprint, size: u32) -> Option<(u32, u32)> {
        self.places.get(&(fingerprint, size)).copied()
    }
}

impl Scanner {
    fn new(reader: Option<RecipeReader>, cutting: Arc<Cutting>) -> Self {
        Self {
            reader,
            cutting,
            segmenter: Segmenter::new(),
            runs: Vec::new(),
            proving: None,
            kept: None,
            reused: None,
            last_asked: None,
            near: Near::default(),
            read_bytes: 0,
            stream_bytes: 0,
        }
    }

    fn run<E: From<BackupError>>(
        &mut self,
        context: &JobContext,
        fed: &Receiver<FeedItem>,
        spare: &crossbeam_channel::Sender<Chunks>,
        take: &mut impl FnMut(ScanItem) -> Result<(), E>,
    ) -> Result<Entry, E> {
        for item in fed {
            if context.cancel.is_cancelled() {
                return Err(BackupError::Interrupted.into());
            }
            match item {
                FeedItem::Begin(cutter) => {
                    self.border(take)?;
                    let max = self.cutting.chunker(cutter).params().max;
                    self.proving = self.cutting.run_mac.clone().map(|mac| Proving { cutter, max, mac, is_whole: true });
                }
                FeedItem::Block(promise) => {
                    self.flush_reused(take)?;
                    let chunks = wait(&promise)?;
                    context.progress.done(0, self.block(&chunks, take)?);
                    let _ = spare.send(chunks);
                }
                FeedItem::Repeat { offset, bytes, .. } => {
                    self.read_bytes += bytes;
                    context.progress.done(0, bytes);
                    self.reuse(offset, bytes, take)?;
                }
                FeedItem::TakeOver { offset, bytes } => {
                    context.progress.done(0, bytes);
                    self.reuse(offset, bytes, take)?;
                }
                FeedItem::Mispredicted(_) => {}
                FeedItem::End(ended) => {
                    self.flush_reused(take)?;
                    self.border(take)?;
                    self.flush_kept(take)?;
                    return Ok(ended.entry);
                }
                FeedItem::InputFailed { path, source } => return Err(BackupError::Input { path, source }.into()),
                FeedItem::SourceFailed(error) => return Err(BackupError::Source(error).into()),
                FeedItem::Batch(_) | FeedItem::Lost { .. } => return Err(BackupError::WorkerDied.into()),
            }
        }
        let interrupted = context.cancel.is_cancelled();
        Err(if interrupted { BackupError::Interrupted } else { BackupError::WorkerDied }.into())
    }

    /// Takes chunks that were read; returns their bytes.
    fn block<E: From<BackupError>>(
        &mut self,
        chunks: &Chunks,
        take: &mut impl FnMut(ScanItem) -> Result<(), E>,
    ) -> Result<u64, E> {
        let mut offset = 0;
        for (number, length) in chunks.lengths.iter().enumerate() {
            let content = &chunks.bytes[offset..offset + *length as usize];
            offset += *length as usize;
            let fingerprint = chunks.fingerprints[number];
            self.stream_bytes += u64::from(*length);
            match chunks.known_at(number) {
                Some((run, place)) => self.of_base(run.segment, place as u32, *length),
                None => match self.near(fingerprint, *length)? {
                    Some((segment, place)) => self.of_base(segment, place, *length),
                    None => self.ask(fingerprint, *length),
                },
            }
            self.saw(Some(content));
            self.ends(fingerprint, *length, take)?;
        }
        self.read_bytes += offset as u64;
        Ok(offset as u64)
    }

    /// The record of the base near this place of the stream that has the chunk: segment, and number
    /// in it.
    fn near(&mut self, fingerprint: Fingerprint, size: u32) -> Result<Option<(u32, u32)>, BackupError> {
        let Some(reader) = &mut self.reader else { return Ok(None) };
        let Some((here, _)) = reader.segment_at(self.stream_bytes - u64::from(size))? else { return Ok(None) };
        for segment in here.saturating_sub(1)..=here.saturating_add(1) {
            self.near.load(reader, segment)?;
        }
        Ok(self.near.find(fingerprint, size))
    }

    fn ask(&mut self, fingerprint: Fingerprint, size: u32) {
        if self.last_asked == Some((fingerprint, size)) {
            match self.runs.last_mut() {
                Some(ChunkRun::Repeated(count)) => *count += 1,
                _ => self.runs.push(ChunkRun::Repeated(1)),
            }
            return;
        }
        self.last_asked = Some((fingerprint, size));
        match self.runs.last_mut() {
            Some(ChunkRun::Asked(chunks)) => chunks.push((size, fingerprint)),
            _ => self.runs.push(ChunkRun::Asked(vec![(size, fingerprint)])),
        }
    }

    fn of_base(&mut self, segment: u32, place: u32, size: u32) {
        match self.runs.last_mut() {
            Some(ChunkRun::Base { segment: last, first, count, bytes })
                if *last == segment && *first + *count == place =>
            {
                *count += 1;
                *bytes += u64::from(size);
            }
            _ => self.runs.push(ChunkRun::Base { segment, first: place, count: 1, bytes: u64::from(size) }),
        }
    }

    fn saw(&mut self, content: Option<&[u8]>) {
        if let Some(proving) = &mut self.proving {
            match content {
                Some(content) => proving.mac.update(content),
                None => proving.is_whole = false,
            }
        }
    }

    /// A chunk was added: does the segment end behind it?
    fn ends<E: From<BackupError>>(
        &mut self,
        fingerprint: Fingerprint,
        size: u32,
        take: &mut impl FnMut(ScanItem) -> Result<(), E>,
    ) -> Result<(), E> {
        // Borders depend on fingerprint and size alone.
        let nowhere = ContainerId { kind: ContainerKind::Data, job: JobId([0; 16]), seq: 0 };
        let chunk = ChunkRef { fingerprint, container: nowhere, offset: 0, size };
        match self.segmenter.push(ChunkRecord { chunk, born: JobId([0; 16]) }) {
            Some(records) => self.segment(&records, take),
            None => Ok(()),
        }
    }

    fn border<E: From<BackupError>>(&mut self, take: &mut impl FnMut(ScanItem) -> Result<(), E>) -> Result<(), E> {
        match self.segmenter.finish() {
            Some(records) => self.segment(&records, take),
            None => Ok(()),
        }
    }

    fn segment<E: From<BackupError>>(
        &mut self,
        records: &[ChunkRecord],
        take: &mut impl FnMut(ScanItem) -> Result<(), E>,
    ) -> Result<(), E> {
        self.flush_kept(take)?;
        let empty = self.cutting.run_mac.clone();
        let proof = self.proving.as_mut().zip(empty).and_then(|(proving, empty)| {
            let mac = std::mem::replace(&mut proving.mac, empty);
            let tail = tail_of(records.iter().map(|record| record.chunk.size), proving.max);
            let proof = Proof { mac: mac.finish(), cutter: proving.cutter as u8, tail };
            std::mem::replace(&mut proving.is_whole, true).then_some(proof)
        });
        let runs = std::mem::take(&mut self.runs);
        take(ScanItem::Segment(ScannedSegment { proof, runs }))
    }

    fn flush_kept<E>(&mut self, take: &mut impl FnMut(ScanItem) -> Result<(), E>) -> Result<(), E> {
        match self.kept.take() {
            Some((first, count, bytes)) => take(ScanItem::Keep { first, count, bytes }),
            None => Ok(()),
        }
    }

    fn reuse<E: From<BackupError>>(
        &mut self,
        offset: u64,
        bytes: u64,
        take: &mut impl FnMut(ScanItem) -> Result<(), E>,
    ) -> Result<(), E> {
        match &mut self.reused {
            Some(range) if range.end == offset => range.end += bytes,
            _ => {
                self.flush_reused(take)?;
                self.reused = Some(offset..offset + bytes);
            }
        }
        Ok(())
    }

    /// Whole segments of the reused range are kept, the others record by record.
    fn flush_reused<E: From<BackupError>>(
        &mut self,
        take: &mut impl FnMut(ScanItem) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(range) = self.reused.take() else { return Ok(()) };
        let mut reader = self.reader.take().ok_or(BackupError::WorkerDied)?;
        let mut at = range.start;
        while at < range.end {
            let found = reader.segment_at(at).map_err(BackupError::from)?;
            let (number, start) = found.ok_or(BackupError::WorkerDied)?;
            let row = reader.segment_ref(number).map_err(BackupError::from)?;
            let (segment, _) = row.ok_or(BackupError::WorkerDied)?;
            let end = start + segment.bytes;
            let is_whole = at == start && end <= range.end;
            if is_whole && (self.segmenter.is_at_start() || segment.proof.is_some()) {
                self.border(take)?;
                match &mut self.kept {
                    Some((first, count, bytes)) if *first + *count == number => {
                        *count += 1;
                        *bytes += segment.bytes;
                    }
                    _ => {
                        self.flush_kept(take)?;
                        self.kept = Some((number, 1, segment.bytes));
                    }
                }
            } else {
                let mut offset = start;
                let records = reader.segment(number).map_err(BackupError::from)?;
                for (place, record) in records.iter().enumerate() {
                    let size = record.chunk.size;
                    if offset >= at && offset < range.end {
                        self.of_base(number, place as u32, size);
                        self.saw(None);
                        self.ends(record.chunk.fingerprint, size, take)?;
                    }
                    offset += u64::from(size);
                }
            }
            at = end.min(range.end);
        }
        self.stream_bytes += range.end - range.start;
        self.reader = Some(reader);
        Ok(())
    }
}
