//! The work that a backup of files would have, from a walk that opens none.
//!
//! Files are compared with the base as a backup compares them. So the bytes that it would read are
//! known, as far as holes do not hide some. How much of that is new, only reading would tell:
//! earlier versions of the series say how it was with them.

use std::sync::Arc;

use larder_format::entry::EntryKind;
use larder_format::ids::{ContainerKind, JobId};
use larder_format::manifest::SourceKind;
use larder_job::JobContext;
use larder_reader::{Entries, MetaChunks, VersionReader};
use larder_source::{Item, Walk};
use larder_store::catalog::Version;

use super::unchanged_files::{Comparison, Known, Rules};
use super::{BackupError, BackupOptions};

/// Versions of the series that tell what to expect.
const HISTORY: usize = 3;

/// The work of an earlier version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EarlierRun {
    /// Bytes that it read.
    pub read_bytes: u64,
    /// Bytes that it stored.
    pub stored_bytes: u64,
    /// Milliseconds that it took.
    pub took_ms: u64,
}

/// The expected work of a backup.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExpectedWork {
    /// Files that were found.
    pub files: u64,
    /// Their logical bytes.
    pub bytes: u64,
    /// Files that are new, or look changed.
    pub files_to_read: u64,
    /// Their logical bytes.
    pub bytes_to_read: u64,
    /// Entries of any kind that are new or look changed.
    pub entries_to_store: u64,
    /// Entries that could not be looked at.
    pub problems: u64,
    /// The version with which files were compared.
    pub base: Option<JobId>,
    /// Bytes of the metadata containers of that version.
    pub base_metadata_bytes: u64,
    /// Versions in the repository.
    pub versions: u64,
    /// The newest versions of the series, the newest first.
    pub earlier: Vec<EarlierRun>,
}

/// Looks at all files of `walk`, and compares them with the version that a backup would follow.
/// Announces nothing.
pub fn expected_work(context: &JobContext, walk: Walk, options: &BackupOptions) -> Result<ExpectedWork, BackupError> {
    let repository = &context.repository;
    let versions = context.executor.block_on(repository.catalog())?.versions;
    let mut work = ExpectedWork { versions: versions.len() as u64, ..ExpectedWork::default() };
    let domain = repository.keys().domain();
    let is_of_series =
        |version: &&Version| version.summary.series == options.series && version.summary.domain == domain;
    let mut of_series: Vec<&Version> = versions.iter().filter(is_of_series).collect();
    of_series.sort_unstable_by_key(|version| std::cmp::Reverse(version.id()));
    let earlier = of_series.iter().take(HISTORY).map(|version| EarlierRun {
        read_bytes: version.summary.statistics.read_bytes,
        stored_bytes: version.summary.statistics.stored_bytes,
        took_ms: version.summary.ended_ms.saturating_sub(version.summary.started_ms),
    });
    work.earlier = earlier.collect();
    let own_id = repository.config().repository;
    let is_own = |version: &&&Version| {
        let summary = &version.summary;
        !summary.is_copy_in(own_id) && context.machine.made(summary)
    };
    let base = match options.base {
        Some(id) => versions.iter().find(|version| version.id() == id),
        None if options.trust_newest => of_series.first().copied(),
        None => of_series.iter().find(is_own).copied(),
    };
    let base = base.filter(|version| version.summary.source == SourceKind::Tree);
    let rules = Rules {
        force: options.force,
        ignore_ctime: options.ignore_ctime,
        ignore_inode: options.ignore_inode,
        base_started_ms: base.map_or(0, |version| version.summary.started_ms),
    };
    let mut entries = None;
    if let Some(version) = base {
        let reader = VersionReader::open(context, version)?;
        let manifest = reader.manifest();
        work.base = Some(version.id());
        let metadata = manifest.containers.iter().filter(|usage| usage.container.kind == ContainerKind::Meta);
        work.base_metadata_bytes = metadata.map(|usage| usage.object_bytes).sum();
        let chunks = MetaChunks::new(context).for_reading(manifest);
        entries = Some(Entries::new(Arc::new(manifest.metadata.clone()), chunks));
    }
    let mut comparison = Comparison::new(entries, rules);
    for item in walk {
        if context.cancel.is_cancelled() {
            return Err(BackupError::Interrupted);
        }
        let found = match item {
            Item::Found(found) => found,
            Item::Skipped { .. } => continue,
            Item::Problem(_) => {
                work.problems += 1;
                continue;
            }
        };
        let entry = &found.entry;
        let is_file = matches!(entry.kind, EntryKind::File { .. });
        work.files += u64::from(is_file);
        work.bytes += entry.size();
        if matches!(comparison.look_up(entry, || found.may_have_other_clock()), Known::Same(_)) {
            continue;
        }
        work.entries_to_store += 1;
        work.files_to_read += u64::from(is_file);
        work.bytes_to_read += entry.size();
    }
    match comparison.failure {
        Some(error) if !error.is_damage() => Err(error.into()),
        _ => Ok(work),
    }
}
