//! Version manifests: the object that makes a version exist, and the mark that an unfinished job
//! will never have one.
//!
//! `versions/<series>/<job>/0` is the job's commit register, created once if absent. It is either
//! the job's manifest (magic `LMAN`) or the mark that it was aborted (magic `LABT`, an empty part).
//! Later generations hold the same content in other containers. Both are sealed objects
//! (`seal.rs`).
//!
//! A manifest has two parts, so that a listing reads only the first few hundred bytes of each:
//!
//! | part | content                                                                                                |
//! |-----:|--------------------------------------------------------------------------------------------------------|
//! |    0 | CBOR map, [`Summary`]                                                                                  |
//! |    1 | version (1 byte: 2), places (`places.rs`), data recipe, metadata recipe (`recipe.rs`), container table |
//!
//! Container table: varint count, then per container varint container, varint chunks used, varint
//! bytes used, varint chunks held, varint bytes held, varint object bytes. "Used" counts references
//! of this version, at most the size of the container.

use minicbor::{Decode, Encode};

use crate::cbor;
use crate::content::ContentRoots;
use crate::ids::{ContainerId, DomainId, JobId, RepositoryId, SeriesKey};
use crate::keys::Keys;
use crate::layout::Layout;
use crate::mark::MARK_MAX;
use crate::names;
use crate::places::{Places, PlacesWriter};
use crate::recipe::Recipe;
use crate::seal::{
    ObjectType, Opened, Pad, RANDOM_LEN, Realm, Signing, first_part_end, first_part_len, magic, only_zeros,
    open_object, seal_empty, seal_object,
};
use crate::sketch::Sketch;
use crate::wire::{DecodeError, EncodeError, Put, Reader};
use crate::witness::Witness;

/// Most bytes of a manifest: room for the containers of some 200 TB.
pub const MANIFEST_MAX: u64 = 1 << 30;
/// Most bytes of a manifest's header and summary. A writer that records more paths than fit must
/// shorten its list.
pub const HEAD_MAX: u64 = 8 << 20;

const MANIFEST: ObjectType = ObjectType {
    magic: *b"LMAN",
    version: 2,
    what: "version manifest",
    max_len: MANIFEST_MAX,
    realm: Realm::Domain,
    signing: Signing::IfAble,
    pad: Pad::Manifest,
};
const ABORTED: ObjectType = ObjectType {
    magic: *b"LABT",
    version: 2,
    what: "mark of an aborted job",
    max_len: MARK_MAX,
    realm: Realm::Domain,
    signing: Signing::Required,
    pad: Pad::Small,
};
const PARTS: usize = 2;

/// Bytes to read of a manifest to have its [`Summary`] in most cases.
pub const HEAD_GUESS: u64 = 4096;

/// The source of a version's streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum SourceKind {
    /// A file tree: a metadata stream of entries and their contents in order.
    #[n(0)]
    Tree,
    /// One stream of bytes (standard input, a command, a device): a tree with a single file.
    #[n(1)]
    Stream,
}

/// Counters of a backup.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Statistics {
    /// Files that the base did not have.
    #[n(0)]
    pub files_new: u64,
    /// Files that the base had otherwise.
    #[n(1)]
    pub files_changed: u64,
    /// Files taken over from the base.
    #[n(2)]
    pub files_unmodified: u64,
    /// Directories that the base did not have.
    #[n(3)]
    pub dirs_new: u64,
    /// Directories that the base had otherwise.
    #[n(4)]
    pub dirs_changed: u64,
    /// Directories as the base had them.
    #[n(5)]
    pub dirs_unmodified: u64,
    /// Links, devices, FIFOs.
    #[n(6)]
    pub others: u64,
    /// Logical bytes of all files, holes included.
    #[n(7)]
    pub logical_bytes: u64,
    /// Bytes of the data stream.
    #[n(8)]
    pub stream_bytes: u64,
    /// Bytes of the data stream that were read to make this version.
    #[n(9)]
    pub read_bytes: u64,
    /// Chunks of the data stream.
    #[n(10)]
    pub chunks: u64,
    /// Chunks that this version was the first to store.
    #[n(11)]
    pub new_chunks: u64,
    /// Uncompressed bytes of the new chunks, data and metadata.
    #[n(12)]
    pub added_bytes: u64,
    /// Bytes of the containers that this version wrote.
    #[n(13)]
    pub stored_bytes: u64,
    /// Files and folders that could not be read, or changed while they were.
    #[n(14)]
    pub errors: u64,
    /// Chunks that the base predicted and that came: those of segments and superchunks proved by
    /// their MAC, and single ones.
    #[n(15)]
    #[cbor(default)]
    pub predictions_right: u64,
    /// Chunks of predicted segments that did not come.
    #[n(16)]
    #[cbor(default)]
    pub predictions_wrong: u64,
    /// Bytes of the chunks that came as predicted: read, and not looked for.
    #[n(17)]
    #[cbor(default)]
    pub predicted_bytes: u64,
    /// Of a thousand bytes of the data stream that the base lacks, the number that are in the
    /// version before the base (skip duplicates), by samples. Only in the layout `lifecycle`, and
    /// where there is such a version.
    #[n(18)]
    pub skip_permille: Option<u32>,
}

/// The version that another one was made of.
///
/// It says what the maker claims. A copy holds the contents of its origin, cut in another way. A
/// rewritten or saved version holds a part of its origin, or all of it with other facts for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Origin {
    /// The repository of that version.
    #[n(0)]
    pub repository: RepositoryId,
    /// Its id.
    #[n(1)]
    pub version: JobId,
    /// Its content roots.
    #[n(2)]
    pub roots: ContentRoots,
    /// The first version of a chain of origins; left out if it is `version`.
    #[n(3)]
    pub first: Option<JobId>,
}

impl Origin {
    /// The origin of a version that is made of this one.
    pub fn of(repository: RepositoryId, summary: &Summary) -> Self {
        let first = summary.origin.map(|origin| origin.first.unwrap_or(origin.version));
        Self { repository, version: summary.id, roots: summary.roots, first }
    }
}

/// The part of a version for people, without its recipes.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Summary {
    /// The job that made it, which is its id.
    #[n(0)]
    pub id: JobId,
    /// Name of its series.
    #[n(1)]
    pub series: String,
    /// The version it was deduplicated against first.
    #[n(2)]
    pub base: Option<JobId>,
    /// Time of the version, milliseconds since the epoch: its start, or the value of `--time`.
    #[n(3)]
    pub time_ms: u64,
    /// When the backup began.
    #[n(4)]
    pub started_ms: u64,
    /// When the backup committed.
    #[n(5)]
    pub ended_ms: u64,
    /// Host on which it was made, or the value of `--host`.
    #[n(6)]
    pub host: String,
    /// User who made it.
    #[n(7)]
    pub user: String,
    /// Tags, sorted.
    #[n(8)]
    pub tags: Vec<String>,
    /// The paths of the backup, as the user named them, made absolute.
    #[n(9)]
    #[cbor(with = "paths")]
    pub paths: Vec<Vec<u8>>,
    /// Name and version of the program.
    #[n(10)]
    pub program: String,
    /// Tree or stream.
    #[n(11)]
    pub source: SourceKind,
    /// Counters.
    #[n(12)]
    pub statistics: Statistics,
    /// Drawn at random for each attempt to commit, so that a writer whose create timed out can see
    /// whether it won.
    #[n(13)]
    #[cbor(with = "minicbor::bytes")]
    pub attempt: [u8; 16],
    /// Samples of the head of the data stream (`sketch.rs`); left out when there are none.
    #[n(14)]
    pub sketch: Sketch,
    /// The layout of its series; left out when it is the standard layout.
    #[n(15)]
    pub layout: Layout,
    /// Further versions that it was deduplicated against, after `base`; left out when there are
    /// none.
    #[n(16)]
    #[cbor(default, skip_if = "Vec::is_empty")]
    pub more_bases: Vec<JobId>,
    /// What the version holds: the digests of both streams (`content.rs`).
    #[n(17)]
    pub roots: ContentRoots,
    /// Proves to the machine that made the version that it did (`witness.rs`); left out when the
    /// machine has no secret of its own.
    #[n(18)]
    pub witness: Option<Witness>,
    /// Name of its domain, for people; left out for the default domain.
    #[n(19)]
    #[cbor(default, skip_if = "String::is_empty")]
    pub domain_name: String,
    /// How often domains of this name were closed before (`closed_domain.rs`); left out at 0.
    #[n(20)]
    #[cbor(default, skip_if = "cbor::is_zero")]
    pub domain_epoch: u32,
    /// The version that this one was made of by a copy, a rewrite or a repair; left out for
    /// backups.
    #[n(21)]
    pub origin: Option<Origin>,
    /// The domain of the job: in the header, not among the fields.
    #[cbor(skip)]
    pub domain: DomainId,
    /// Whether an operator signed it: in the header, not among the fields.
    #[cbor(skip)]
    pub is_signed: bool,
}

/// Lists of byte strings.
mod paths {
    use minicbor::bytes::ByteVec;
    use minicbor::decode::{Decoder, Error};
    use minicbor::encode::{self, Encoder, Write};

    pub(super) fn encode<C, W: Write>(
        paths: &[Vec<u8>],
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        e.array(paths.len() as u64)?;
        for path in paths {
            e.bytes(path)?;
        }
        Ok(())
    }

    pub(super) fn decode<C>(d: &mut Decoder<'_>, _: &mut C) -> Result<Vec<Vec<u8>>, Error> {
        Ok(d.decode::<Vec<ByteVec>>()?.into_iter().map(Vec::from).collect())
    }
}

/// One row of the container table: how much of a container a version uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContainerUsage {
    /// The container.
    pub container: ContainerId,
    /// Chunk references of this version into it, at most `chunks_held`.
    pub chunks_used: u32,
    /// Their bytes, at most `bytes_held`.
    pub bytes_used: u64,
    /// Chunks it holds.
    pub chunks_held: u32,
    /// Their bytes, uncompressed.
    pub bytes_held: u64,
    /// Bytes of the object.
    pub object_bytes: u64,
}

impl ContainerUsage {
    fn check(&self) -> Result<(), DecodeError> {
        if self.chunks_used > self.chunks_held || self.bytes_used > self.bytes_held {
            return Err(DecodeError::invalid(MANIFEST.what, "it uses more of a container than that holds"));
        }
        Ok(())
    }
}

/// A whole version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// The part for people.
    pub summary: Summary,
    /// Contents of files, in the order of the entries.
    pub data: Recipe,
    /// Entries, see `metadata.rs`.
    pub metadata: Recipe,
    /// Every container that this version references, metadata containers included.
    pub containers: Vec<ContainerUsage>,
}

/// The content of a commit register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Register<T> {
    /// The version was committed.
    Committed(T),
    /// The job was aborted and can never commit.
    Aborted,
}

impl Manifest {
    /// Seals the manifest as generation `generation`. `random` must be fresh random bytes.
    pub fn encode(
        &self,
        keys: &Keys,
        series: SeriesKey,
        generation: u32,
        random: [u8; RANDOM_LEN],
    ) -> Result<Vec<u8>, EncodeError> {
        let summary = cbor::encode(&self.summary);
        self.summary.check(keys, series, self.summary.id)?;
        if first_part_len(summary.len()) as u64 > HEAD_MAX {
            return Err(EncodeError::new(MANIFEST.what, "its summary is longer than a reader accepts"));
        }
        self.check_roots()?;
        let mut places = PlacesWriter::default();
        let mut rows = Vec::new();
        self.data.encode(&mut places, &mut rows)?;
        self.metadata.encode(&mut places, &mut rows)?;
        rows.put_varint(self.containers.len() as u64);
        for usage in &self.containers {
            usage.check()?;
            rows.put_varint(places.container(usage.container));
            rows.put_varint(u64::from(usage.chunks_used));
            rows.put_varint(usage.bytes_used);
            rows.put_varint(u64::from(usage.chunks_held));
            rows.put_varint(usage.bytes_held);
            rows.put_varint(usage.object_bytes);
        }
        let mut body = vec![2];
        places.encode(&mut body);
        body.extend_from_slice(&rows);
        let name = names::version(series, self.summary.id, generation);
        seal_object(keys, self.summary.domain, &name, kind(generation), random, &[&summary, &body])
    }

    /// Opens a manifest or an abort mark.
    pub fn decode(
        keys: &Keys,
        series: SeriesKey,
        job: JobId,
        generation: u32,
        bytes: &[u8],
    ) -> Result<Register<Self>, DecodeError> {
        let name = names::version(series, job, generation);
        if magic(bytes, MANIFEST.what)? == ABORTED.magic {
            let opened = open_object(keys, &name, ABORTED, bytes, 1, 1)?;
            only_zeros(&opened.parts[0], ABORTED.what)?;
            return Ok(Register::Aborted);
        }
        let opened = open_object(keys, &name, kind(generation), bytes, PARTS, PARTS)?;
        let summary = decode_summary(keys, series, &opened, job)?;
        let mut reader = Reader::new(&opened.parts[1], MANIFEST.what);
        reader.version(2)?;
        let places = Places::decode(&mut reader)?;
        let data = Recipe::decode(&places, &mut reader)?;
        let metadata = Recipe::decode(&places, &mut reader)?;
        let count = reader.count(6)?;
        let mut containers = Vec::with_capacity(count);
        for _ in 0..count {
            let usage = ContainerUsage {
                container: places.container(&mut reader)?,
                chunks_used: reader.varint_u32()?,
                bytes_used: reader.varint()?,
                chunks_held: reader.varint_u32()?,
                bytes_held: reader.varint()?,
                object_bytes: reader.varint()?,
            };
            usage.check()?;
            containers.push(usage);
        }
        only_zeros(reader.rest(), MANIFEST.what)?;
        let manifest = Self { summary, data, metadata, containers };
        manifest.check_roots()?;
        Ok(Register::Committed(manifest))
    }

    /// Whether the recipes hold what the summary says.
    fn check_roots(&self) -> Result<(), DecodeError> {
        if ContentRoots::of(&self.data, &self.metadata) != self.summary.roots {
            return Err(DecodeError::invalid(MANIFEST.what, "its recipes have another content than its summary says"));
        }
        Ok(())
    }
}

fn decode_summary(keys: &Keys, series: SeriesKey, opened: &Opened, job: JobId) -> Result<Summary, DecodeError> {
    let summary: Summary = cbor::decode_padded(&opened.parts[0], MANIFEST.what)?;
    let summary = Summary { domain: opened.domain, is_signed: opened.is_signed, ..summary };
    summary.check(keys, series, job)?;
    Ok(summary)
}

/// An operator signs later generations, because readers prefer them to the first.
fn kind(generation: u32) -> ObjectType {
    match generation {
        0 => MANIFEST,
        _ => ObjectType { signing: Signing::Required, ..MANIFEST },
    }
}

/// The result of reading the head of a register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Head {
    /// The summary, or the abort mark.
    Complete(Register<Box<Summary>>),
    /// This number of bytes of the object is needed.
    Needs(u64),
}

impl Summary {
    /// Whether it was copied from another repository than this one, as its maker says.
    pub fn is_copy_in(&self, own: RepositoryId) -> bool {
        self.origin.is_some_and(|origin| origin.repository != own)
    }

    /// Opens the summary from the first bytes of a register; says how many it needs when they are
    /// too few.
    pub fn decode_head(
        keys: &Keys,
        series: SeriesKey,
        job: JobId,
        generation: u32,
        bytes: &[u8],
    ) -> Result<Head, DecodeError> {
        let name = names::version(series, job, generation);
        if magic(bytes, MANIFEST.what)? == ABORTED.magic {
            let opened = open_object(keys, &name, ABORTED, bytes, 1, 1)?;
            only_zeros(&opened.parts[0], ABORTED.what)?;
            return Ok(Head::Complete(Register::Aborted));
        }
        let needed = first_part_end(kind(generation), bytes)?;
        // Not authenticated yet, so a planted length decides how much is fetched next.
        if needed as u64 > HEAD_MAX {
            return Err(DecodeError::invalid(MANIFEST.what, "its summary is longer than a reader accepts"));
        }
        if bytes.len() < needed {
            return Ok(Head::Needs(needed as u64));
        }
        let opened = open_object(keys, &name, kind(generation), bytes, 1, PARTS)?;
        Ok(Head::Complete(Register::Committed(Box::new(decode_summary(keys, series, &opened, job)?))))
    }

    /// Whether a manifest with this summary is a later generation of the one with the summary
    /// `first`: only the attempt, the layout and the program may differ, and the sketch may be left
    /// out.
    pub fn is_generation_of(&self, first: &Self) -> bool {
        let Self { attempt, layout, program, is_signed, .. } = self.clone();
        let sketch = if self.sketch.is_empty() { Sketch::default() } else { first.sketch.clone() };
        *self == Self { attempt, layout, program, sketch, is_signed, ..first.clone() }
    }

    /// Whether it is of the version and series that the object's name says.
    fn check(&self, keys: &Keys, series: SeriesKey, job: JobId) -> Result<(), DecodeError> {
        if self.id != job {
            return Err(DecodeError::invalid(MANIFEST.what, "it is of another version than its name says"));
        }
        if keys.series_key_in(self.domain, &self.series) != series {
            return Err(DecodeError::invalid(MANIFEST.what, "it is of another series than its name says"));
        }
        // The name is for people, who would believe it.
        if !self.domain_name.is_empty() && keys.domain_id(&self.domain_name, self.domain_epoch) != self.domain {
            return Err(DecodeError::invalid(MANIFEST.what, "it names another domain than its own"));
        }
        Ok(())
    }
}

/// The mark that no program will create a generation of a version any more. For generation 0, the
/// job was aborted; for a later one, the task was. `random` must be fresh random bytes.
pub fn encode_aborted(
    keys: &Keys,
    domain: DomainId,
    series: SeriesKey,
    job: JobId,
    generation: u32,
    random: [u8; RANDOM_LEN],
) -> Result<Vec<u8>, EncodeError> {
    seal_empty(keys, domain, &names::version(series, job, generation), ABORTED, random)
}

#[cfg(test)]
mod tests;
