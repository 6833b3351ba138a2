//! Copies a version into another repository, with other keys and other cuts.
//!
//! The version is read like by a restore: under a lease, and every chunk is verified. Its entries
//! feed an ordinary backup, which cuts and fingerprints again. The copy keeps everything that the
//! version says of its files and of itself, and names it as its origin.
//!
//! If an earlier version of the source was copied before, that copy is the base. Files, and parts
//! of large files, whose chunks are the same in both versions of the source are taken over from it
//! unread. This needs two things. The recipes of both versions in the source, which the roots of
//! their summaries prove, name equal fingerprints. And the base has the contents of the earlier
//! version, because this machine made it: its witness covers the origin with the roots of that
//! version. A copy that another machine made is only searched for duplicates, as in a backup.
//!
//! Copies are no backups of this machine. The next backup of a series does not take files over from
//! them (`backup::candidates`).
//!
//! * `selection`: which versions are copied. `version_source`: a version as the input of a backup.

pub mod selection;
mod version_source;

use std::path::PathBuf;

use larder_format::ErrorKind;
use larder_format::compress::Compression;
use larder_format::ids::JobId;
use larder_format::layout::Layout;
use larder_format::manifest::Origin;
use larder_job::JobContext;
use larder_reader::{ReadError, VersionReader, is_missing};
use larder_store::catalog::Version;

use crate::backup::{BackupError, BackupOptions, BackupReport, CopyOf, EntrySource, Input, backup};
use version_source::{Known, VersionSource};

/// Options of a copy.
#[derive(Debug, Clone)]
pub struct CopyOptions {
    /// Name and version of the program, to record.
    pub program: String,
    /// How new data is compressed.
    pub compression: Compression,
    /// The layout of a new series; `None`: the one of its settings.
    pub layout: Option<Layout>,
    /// Bytes of memory for finding duplicates.
    pub index_memory: usize,
    /// Folder for data that exceeds this memory.
    pub scratch: Option<PathBuf>,
}

/// A version that was not copied.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// It cannot be read any more.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The copy was not made.
    #[error(transparent)]
    Backup(#[from] BackupError),
}

impl CopyError {
    /// How a caller can react to it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Read(error) => error.kind(),
            Self::Backup(error) => error.kind(),
        }
    }
}

/// A version of the source that was copied before, and its copy, which this machine made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopiedBefore {
    /// The version of the source.
    pub version: Version,
    /// Its copy.
    pub copy: JobId,
}

/// Copies `version` of the repository of `source` into that of `destination`. Its summary has its
/// present tags, which the copy gets.
pub fn copy(
    source: &JobContext,
    version: &Version,
    destination: &JobContext,
    before: Option<&CopiedBefore>,
    options: &CopyOptions,
) -> Result<BackupReport, CopyError> {
    let (reader, reading) = VersionReader::announce(source, version)?;
    let known = before.and_then(|before| Known::open(source, before, &reader));
    let summary = &version.summary;
    let from = source.repository.config().repository;
    // The origin is as the store has it, without later tags.
    let origin = Origin::of(from, &reader.manifest().summary);
    // A stated time in the future would count up to the start of this job, which is later.
    let (time_ms, _) = version.rank();
    let facts = Facts {
        series: summary.series.clone(),
        host: summary.host.clone(),
        user: summary.user.clone(),
        tags: summary.tags.clone(),
        paths: summary.paths.clone(),
        time_ms,
        copy_of: CopyOf { origin, started_ms: summary.started_ms, errors: summary.statistics.errors },
    };
    let entries = Box::new(VersionSource::new(reader, known));
    let result = match write_copy(destination, entries, facts, options) {
        // An object that a pass deleted, because somebody forgot the version, is no damage.
        Err(BackupError::Source(error)) if is_missing(&error) => match reading.expect_there() {
            Ok(()) => Err(BackupError::Source(error).into()),
            Err(forgotten) => Err(forgotten.into()),
        },
        result => result.map_err(CopyError::from),
    };
    reading.end();
    result
}

/// What a copy says of itself, as its original does.
#[derive(Debug, Clone)]
pub struct Facts {
    /// The series it belongs to.
    pub series: String,
    /// Host to record.
    pub host: String,
    /// User to record.
    pub user: String,
    /// Tags to record.
    pub tags: Vec<String>,
    /// The paths of the original, for people: absolute.
    pub paths: Vec<Vec<u8>>,
    /// Its time, milliseconds since the epoch.
    pub time_ms: u64,
    /// The original.
    pub copy_of: CopyOf,
}

/// Makes a version of the entries of an original. The base is that of the source.
///
/// # Errors
/// The source cannot be read, or the repository fails. No version was made then.
pub fn write_copy(
    destination: &JobContext,
    source: Box<dyn EntrySource>,
    facts: Facts,
    options: &CopyOptions,
) -> Result<BackupReport, BackupError> {
    let Facts { series, host, user, tags, paths, time_ms, copy_of } = facts;
    let options = BackupOptions {
        host,
        user,
        tags,
        paths,
        time_ms: Some(time_ms),
        program: options.program.clone(),
        compression: options.compression,
        base: source.base(),
        index_memory: options.index_memory,
        layout: options.layout.unwrap_or(Layout::Standard),
        layout_of_settings: options.layout.is_none(),
        scratch: options.scratch.clone(),
        copy_of: Some(copy_of),
        ..BackupOptions::new(series)
    };
    backup(destination, Input::Entries(source), &options)
}
