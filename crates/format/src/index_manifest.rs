//! Manifests of the global index: its versions, the runs of its tables, and its deletion queue.
//!
//! `index/<n>` is a sealed object (`seal.rs`), magic `LIDX`, created once if absent. The highest
//! number is current. Number 0 has no object and is the empty index. A pass of the G-node counts if
//! and only if the manifest under the number that it contested names its job. `docs/concurrency.md`
//! says why (`PublishFirst`).
//!
//! | part | content                                                                                          |
//! |-----:|--------------------------------------------------------------------------------------------------|
//! |    0 | CBOR map, [`IndexHead`]                                                                          |
//! |    1 | version (1 byte: 2), places (`places.rs`), series, versions, runs, queue; each a count and rows  |
//!
//! | row     | fields |
//! |---------|--------|
//! | series  | 16 bytes of key, in order of first use |
//! | version | varint number less the one before it, varint series, varint job, varint generation, 1 byte state, plus 8 when its job was seen to be over, plus 16 in the layout `lifecycle`, plus 32 when arranged, plus 64 when carried, plus 128 when proved; u64 when it was first seen |
//! | run     | 1 byte table, varint age, varint job, varint seq, u64 first, u64 last; varints: records, tombstones, bytes of object, tail, filter |
//! | queue   | 1 byte what, its fields (`queue.rs`), 1 byte why, varint index number with which it was decided |
//!
//! Versions are in order of their numbers; runs in order of table, age and first key.

mod container_list;
mod queue;

use std::collections::HashMap;

use minicbor::{Decode, Encode};

pub use container_list::{ContainerList, LIST_MAX};
pub use queue::{Queued, QueuedObject, Reason};

use crate::cbor;
use crate::ids::{DomainId, JobId, RunId, SeriesKey};
use crate::keys::Keys;
use crate::layout::Layout;
use crate::names;
use crate::places::{Places, PlacesWriter};
use crate::seal::{
    ObjectType, Opened, Pad, RANDOM_LEN, Realm, Signing, first_part_end, first_part_len, open_object, seal_object,
};
use crate::wire::{DecodeError, EncodeError, Put, Reader};

/// Most bytes of a manifest of the index: room for some six million versions.
pub const INDEX_MAX: u64 = 1 << 28;
/// Most bytes of its header and head.
pub const INDEX_HEAD_MAX: u64 = 1 << 20;
/// Bytes to read of it to have its [`IndexHead`] in most cases.
pub const INDEX_HEAD_GUESS: u64 = 4096;

const INDEX: ObjectType = ObjectType {
    magic: *b"LIDX",
    version: 2,
    what: "index manifest",
    max_len: INDEX_MAX,
    realm: Realm::Index,
    signing: Signing::Required,
    pad: Pad::Nothing,
};
const PARTS: usize = 2;
/// Of the byte of a version's state.
const SETTLED: u8 = 8;
const LIFECYCLE: u8 = 16;
const ARRANGED: u8 = 32;
const CARRIED: u8 = 64;
const PROVED: u8 = 128;

/// Counters of a pass. All of it is for people.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct PassStatistics {
    /// Chunks that the index knows.
    #[n(0)]
    #[cbor(default)]
    pub chunks: u64,
    /// Containers that the index knows.
    #[n(1)]
    #[cbor(default)]
    pub containers: u64,
    /// Versions that this pass ingested.
    #[n(2)]
    #[cbor(default)]
    pub versions_ingested: u64,
    /// Containers that it ingested.
    #[n(3)]
    #[cbor(default)]
    pub containers_ingested: u64,
    /// Chunks that it ingested.
    #[n(4)]
    #[cbor(default)]
    pub chunks_ingested: u64,
    /// Chunks whose entry it moved to another container.
    #[n(5)]
    #[cbor(default)]
    pub chunks_moved: u64,
    /// Containers that it wrote.
    #[n(6)]
    #[cbor(default)]
    pub containers_written: u64,
    /// Bytes of them.
    #[n(7)]
    #[cbor(default)]
    pub bytes_written: u64,
    /// Containers that it queued for deletion.
    #[n(8)]
    #[cbor(default)]
    pub containers_queued: u64,
    /// Bytes of them.
    #[n(9)]
    #[cbor(default)]
    pub bytes_queued: u64,
}

/// The part of an index for people, and for passes that need nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct IndexHead {
    /// The number in its name.
    #[n(0)]
    pub number: u64,
    /// The pass that made it.
    #[n(1)]
    pub pass: JobId,
    /// Drawn at random for each attempt to publish, so that a pass whose create got no answer can
    /// see whether it won.
    #[n(2)]
    #[cbor(with = "minicbor::bytes")]
    pub attempt: [u8; 16],
    /// When, milliseconds since the epoch by the writer's clock. Nothing safe depends on it.
    #[n(3)]
    pub time_ms: u64,
    /// On which host.
    #[n(4)]
    pub host: String,
    /// Name and version of the program.
    #[n(5)]
    pub program: String,
    /// The number that the next version to be ingested gets. Numbers are never used again.
    #[n(6)]
    pub next_version: u32,
    /// The number that the next container to be ingested gets. Numbers are never used again.
    #[n(7)]
    pub next_container: u32,
    /// The age that the next run gets. Ages are never used again, not even after a merge.
    #[n(8)]
    pub next_age: u64,
    /// Counters.
    #[n(9)]
    pub statistics: PassStatistics,
    /// Set by a rebuild. Containers with lower numbers may have been retired before, so no chunk is
    /// ever redirected to one of them (`RebuiltKeepsCopies`).
    #[n(10)]
    pub rebuilt: Option<u32>,
    /// Versions that were dropped since the last search for single chunks that no version needs;
    /// `None`: none.
    #[n(11)]
    pub dropped: Option<u64>,
    /// Number of missing containers that versions need and for whose chunks no index has a place;
    /// `None`: none known. While there are any, containers that no version names are not collected:
    /// they may have the chunks.
    #[n(12)]
    pub missing: Option<u64>,
    /// The number of the next version at the last search for unneeded chunks, if many were left
    /// because newest versions use their containers. After versions were ingested, another search
    /// may pay. `None`: few were left.
    #[n(13)]
    pub left: Option<u32>,
    /// Missing containers whose chunks the rebuild searched in every container. Chunks that it did
    /// not find are lost for good, and need not stop passes. It covers no others (`MissingStops`).
    /// `None`: there is none, or not everything was searched.
    #[n(14)]
    pub searched: Option<ContainerList>,
    /// Containers that could not be read when they were ingested, so their chunks are not listed.
    /// The next pass tries again. `None`: there is none.
    #[n(15)]
    pub unlisted: Option<ContainerList>,
    /// Containers that no version names and that the rebuild could not read. They may have moved
    /// chunks, so they stay until another rebuild has read them (`UnreadKept`). `None`: there is
    /// none.
    #[n(16)]
    pub unread: Option<ContainerList>,
}

/// The state of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VersionState {
    /// It is to be restorable.
    Retained,
    /// A mark says it is forgotten; its containers are not collected yet.
    Forgotten,
    /// Nothing is kept for it any more. Its row may be left out as soon as nothing in the tables
    /// names its number.
    Collected,
}

/// A version that the index knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexedVersion {
    /// Its place in the order of ingestion, which is the order of versions everywhere in the index.
    pub number: u32,
    /// Its series.
    pub series: SeriesKey,
    /// Its job, which is its id.
    pub job: JobId,
    /// The generation of its manifest that was ingested.
    pub generation: u32,
    /// Its state.
    pub state: VersionState,
    /// The layout of its series.
    pub layout: Layout,
    /// Whether the extents of the layout `lifecycle` include its uses.
    pub is_arranged: bool,
    /// Whether the pass that arranged it also moved the data that had left its containers by then.
    /// False if that was postponed to a later pass. If such a pass was interrupted, false for all
    /// of its series.
    pub is_carried: bool,
    /// Whether a pass proved this generation, so that it supersedes lower ones. Generation 0 needs
    /// no proof.
    pub is_proved: bool,
    /// Whether a pass saw that the job with this id closed, or that its own lease names this
    /// register. Nobody else may have taken the id of a running job for it.
    pub is_settled: bool,
    /// When the store first had its generation 0, as far as passes saw: milliseconds since the
    /// epoch by the store's clock, the earliest that any pass saw. 0: unknown. Retention compares
    /// the time that the version claims with it.
    pub seen_ms: u64,
}

/// The tables of the index. The crate `larder-index` defines keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// Fingerprint of a chunk to its place.
    Chunks,
    /// Number of a container to its record.
    Containers,
    /// Id of a container of the layout `lifecycle` to its extents; only of containers that the
    /// newest version does not use all of.
    Extents,
    /// Sampled fingerprints to versions.
    Streams,
    /// Fingerprint and container to the place of a copy that counts beside the one in
    /// [`Table::Chunks`].
    Copies,
}

impl Table {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Chunks, Self::Containers, Self::Extents, Self::Streams, Self::Copies];

    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Chunks => 1,
            Self::Containers => 2,
            Self::Extents => 3,
            Self::Streams => 4,
            Self::Copies => 5,
        }
    }

    pub(crate) fn of_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|table| table.code() == code)
    }
}

/// A reference to an object of a run, or to a part of it.
///
/// Of two entries with one key, that in the run of the higher age holds. Of one age there may be
/// several objects; their ranges are disjoint. A range is of *prefixes*: the first 8 bytes of keys,
/// big-endian, shorter keys padded with zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunRef {
    /// Which table it is of.
    pub table: Table,
    /// Orders the runs of a table: newer is higher.
    pub age: u64,
    /// The object.
    pub id: RunId,
    /// Lowest prefix of the keys that count. The object may hold lower ones: they were merged into
    /// other runs.
    pub first: u64,
    /// Highest prefix of the keys that count; the object may hold higher ones.
    pub last: u64,
    /// Records in the object, tombstones included.
    pub records: u64,
    /// Tombstones among them.
    pub tombstones: u64,
    /// Bytes of the object.
    pub object_bytes: u64,
    /// Bytes at its end that hold fences and trailer.
    pub tail_bytes: u32,
    /// Bytes before those that hold the filter.
    pub filter_bytes: u32,
}

/// A whole manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexManifest {
    /// The part for people.
    pub head: IndexHead,
    /// Versions, by rising number.
    pub versions: Vec<IndexedVersion>,
    /// Runs of all tables, by table, age and first prefix; see [`IndexManifest::sort`].
    pub runs: Vec<RunRef>,
    /// Objects to delete, in the order in which it was decided.
    pub queue: Vec<Queued>,
}

impl IndexManifest {
    /// Brings versions and runs into the order in which they are stored.
    pub fn sort(&mut self) {
        self.versions.sort_by_key(|version| version.number);
        self.runs.sort_by_key(|run| (run.table, run.age, run.first));
    }

    /// The runs of one table, oldest first.
    pub fn runs_of(&self, table: Table) -> &[RunRef] {
        let from = self.runs.partition_point(|run| run.table < table);
        let to = self.runs.partition_point(|run| run.table <= table);
        &self.runs[from..to]
    }

    /// Seals the manifest under its number. `random` must be fresh random bytes.
    pub fn encode(&self, keys: &Keys, random: [u8; RANDOM_LEN]) -> Result<Vec<u8>, EncodeError> {
        self.check()?;
        let head = cbor::encode(&self.head);
        if first_part_len(head.len()) as u64 > INDEX_HEAD_MAX {
            return Err(EncodeError::new(INDEX.what, "its head is longer than a reader accepts"));
        }
        let mut places = PlacesWriter::default();
        let mut series = SeriesWriter::default();
        let mut rows = Vec::new();
        rows.put_varint(self.versions.len() as u64);
        let mut before = 0;
        for version in &self.versions {
            rows.put_varint(u64::from(version.number - before));
            before = version.number;
            rows.put_varint(series.number(version.series));
            rows.put_varint(places.job(version.job));
            rows.put_varint(u64::from(version.generation));
            let state = match version.state {
                VersionState::Retained => 0,
                VersionState::Forgotten => 1,
                VersionState::Collected => 2,
            };
            let layout = if version.layout == Layout::Lifecycle { LIFECYCLE } else { 0 };
            let arranged = if version.is_arranged { ARRANGED } else { 0 };
            let carried = if version.is_carried { CARRIED } else { 0 };
            let proved = if version.is_proved { PROVED } else { 0 };
            let settled = if version.is_settled { SETTLED } else { 0 };
            rows.put_u8(state | layout | arranged | carried | proved | settled);
            rows.put_u64(version.seen_ms);
        }
        rows.put_varint(self.runs.len() as u64);
        for run in &self.runs {
            rows.put_u8(run.table.code());
            rows.put_varint(run.age);
            put_run_id(&mut rows, &mut places, run.id);
            rows.put_u64(run.first);
            rows.put_u64(run.last);
            rows.put_varint(run.records);
            rows.put_varint(run.tombstones);
            rows.put_varint(run.object_bytes);
            rows.put_varint(u64::from(run.tail_bytes));
            rows.put_varint(u64::from(run.filter_bytes));
        }
        rows.put_varint(self.queue.len() as u64);
        for queued in &self.queue {
            queued.encode(&mut rows, &mut places, &mut series);
        }
        let mut body = vec![2];
        places.encode(&mut body);
        series.encode(&mut body);
        body.extend_from_slice(&rows);
        seal_object(keys, DomainId::DEFAULT, &names::index(self.head.number), INDEX, random, &[&head, &body])
    }

    /// Opens the manifest with a number.
    pub fn decode(keys: &Keys, number: u64, bytes: &[u8]) -> Result<Self, DecodeError> {
        let Opened { parts, .. } = open_object(keys, &names::index(number), INDEX, bytes, PARTS, PARTS)?;
        let head = decode_head(&parts[0], number)?;
        let mut reader = Reader::new(&parts[1], INDEX.what);
        reader.version(2)?;
        let places = Places::decode(&mut reader)?;
        let series = decode_series(&mut reader)?;
        let count = reader.count(13)?;
        let mut versions = Vec::with_capacity(count);
        let mut before = 0u32;
        for _ in 0..count {
            let step = reader.varint_u32()?;
            let number = before.checked_add(step).ok_or(reader.invalid("a version number has more than 32 bits"))?;
            before = number;
            let series = series_of(&series, &mut reader)?;
            let job = reader.varint()?;
            let job = places.job(job, &reader)?;
            let generation = reader.varint_u32()?;
            let flags = reader.u8()?;
            let state = match flags & !(LIFECYCLE | ARRANGED | CARRIED | PROVED | SETTLED) {
                0 => VersionState::Retained,
                1 => VersionState::Forgotten,
                2 => VersionState::Collected,
                _ => return Err(reader.invalid("unknown state of a version")),
            };
            let layout = if flags & LIFECYCLE == 0 { Layout::Standard } else { Layout::Lifecycle };
            let (is_arranged, is_carried) = (flags & ARRANGED != 0, flags & CARRIED != 0);
            let (is_proved, is_settled) = (flags & PROVED != 0, flags & SETTLED != 0);
            versions.push(IndexedVersion {
                number,
                series,
                job,
                generation,
                state,
                layout,
                is_arranged,
                is_carried,
                is_proved,
                is_settled,
                seen_ms: reader.u64()?,
            });
        }
        let count = reader.count(25)?;
        let mut runs = Vec::with_capacity(count);
        for _ in 0..count {
            runs.push(RunRef {
                table: Table::of_code(reader.u8()?).ok_or(reader.invalid("unknown table"))?,
                age: reader.varint()?,
                id: run_id(&places, &mut reader)?,
                first: reader.u64()?,
                last: reader.u64()?,
                records: reader.varint()?,
                tombstones: reader.varint()?,
                object_bytes: reader.varint()?,
                tail_bytes: reader.varint_u32()?,
                filter_bytes: reader.varint_u32()?,
            });
        }
        let count = reader.count(4)?;
        let mut queue = Vec::with_capacity(count);
        for _ in 0..count {
            queue.push(Queued::decode(&places, &series, &mut reader)?);
        }
        reader.finish()?;
        let manifest = Self { head, versions, runs, queue };
        manifest.check()?;
        Ok(manifest)
    }

    /// Checks of writers and readers.
    fn check(&self) -> Result<(), DecodeError> {
        let invalid = |why| Err(DecodeError::invalid(INDEX.what, why));
        if self.head.number == 0 {
            return invalid("its number is 0");
        }
        if !self.versions.is_sorted_by(|a, b| a.number < b.number) {
            return invalid("its versions are not in order");
        }
        if self.versions.last().is_some_and(|version| version.number >= self.head.next_version) {
            return invalid("it knows a version with a number that is not given yet");
        }
        if self.versions.iter().any(|version| version.is_arranged && version.layout != Layout::Lifecycle) {
            return invalid("a version of the standard layout is arranged");
        }
        if self.versions.iter().any(|version| version.is_carried && !version.is_arranged) {
            return invalid("what left before a version was carried away, and what it uses is not known");
        }
        let in_order = |a: &RunRef, b: &RunRef| {
            (a.table, a.age) < (b.table, b.age) || { (a.table, a.age) == (b.table, b.age) && a.last < b.first }
        };
        if !self.runs.is_sorted_by(in_order) {
            return invalid("its runs are not in order, or overlap");
        }
        if self.runs.iter().any(|run| run.age >= self.head.next_age) {
            return invalid("a run has an age that is not given yet");
        }
        let fits = |run: &RunRef| {
            run.first <= run.last
                && u64::from(run.tail_bytes) + u64::from(run.filter_bytes) <= run.object_bytes
                && run.tombstones <= run.records
        };
        if !self.runs.iter().all(fits) {
            return invalid("a run ends before it begins, or its sums are impossible");
        }
        Ok(())
    }
}

impl IndexHead {
    /// Opens the head from the first bytes of a manifest; says how many it needs when they are too
    /// few.
    pub fn decode_head(keys: &Keys, number: u64, bytes: &[u8]) -> Result<Result<Self, u64>, DecodeError> {
        let needed = first_part_end(INDEX, bytes)? as u64;
        // Not authenticated yet, so a planted length decides how much is fetched next.
        if needed > INDEX_HEAD_MAX {
            return Err(DecodeError::invalid(INDEX.what, "its head is longer than a reader accepts"));
        }
        if (bytes.len() as u64) < needed {
            return Ok(Err(needed));
        }
        let Opened { parts, .. } = open_object(keys, &names::index(number), INDEX, bytes, 1, PARTS)?;
        decode_head(&parts[0], number).map(Ok)
    }
}

fn decode_head(bytes: &[u8], number: u64) -> Result<IndexHead, DecodeError> {
    let head: IndexHead = cbor::decode(bytes, INDEX.what)?;
    if head.number != number {
        return Err(DecodeError::invalid(INDEX.what, "its number is not the one in its name"));
    }
    Ok(head)
}

/// Gives numbers to series while a manifest is encoded.
#[derive(Debug, Default)]
struct SeriesWriter {
    series: Vec<SeriesKey>,
    numbers: HashMap<SeriesKey, u64>,
}

impl SeriesWriter {
    fn number(&mut self, series: SeriesKey) -> u64 {
        *self.numbers.entry(series).or_insert_with(|| {
            self.series.push(series);
            self.series.len() as u64 - 1
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.put_varint(self.series.len() as u64);
        for series in &self.series {
            out.extend_from_slice(&series.0);
        }
    }
}

fn decode_series(reader: &mut Reader<'_>) -> Result<Vec<SeriesKey>, DecodeError> {
    let count = reader.count(16)?;
    let mut series = Vec::with_capacity(count);
    for _ in 0..count {
        series.push(SeriesKey(reader.array()?));
    }
    Ok(series)
}

fn series_of(series: &[SeriesKey], reader: &mut Reader<'_>) -> Result<SeriesKey, DecodeError> {
    let number = usize::try_from(reader.varint()?).ok();
    let series = number.and_then(|number| series.get(number));
    series.copied().ok_or_else(|| reader.invalid("it names a series it does not list"))
}

fn put_run_id(out: &mut Vec<u8>, places: &mut PlacesWriter, id: RunId) {
    out.put_varint(places.job(id.job));
    out.put_varint(u64::from(id.seq));
}

fn run_id(places: &Places, reader: &mut Reader<'_>) -> Result<RunId, DecodeError> {
    let job = reader.varint()?;
    Ok(RunId { job: places.job(job, reader)?, seq: reader.varint_u32()? })
}

#[cfg(test)]
mod tests;
