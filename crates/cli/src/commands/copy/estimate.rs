//! `larder copy --estimate`: bounds of what copies take from one repository and store in the other.
//!
//! Only reading tells which data the other repository lacks. So the least is to look at both, and
//! the most is that all of each snapshot is read and stored.

use std::collections::BTreeMap;

use larder_format::ids::ContainerKind;
use larder_job::JobContext;
use larder_lnode::transfer::CopiedBefore;
use larder_reader::VersionReader;
use larder_store::StoreStats;
use larder_store::catalog::Version;

use super::{Copying, files_of};
use crate::app::App;
use crate::commands::storing::Storing;
use crate::durations;
use crate::failure::Failure;
use crate::output::{Estimate, SOURCE};

/// Times that a container is fetched at most. Files that follow each other need the same ones,
/// which memory may have dropped meanwhile.
const FETCHES: u64 = 4;
/// Requests for the leases and looks of one copy, at most.
const FIXED_REQUESTS: u64 = 64;
/// Bytes of these, and of manifests.
const FIXED_BYTES: u64 = 1 << 20;
/// If a container is read in parts, each but the smallest ones has this many bytes.
const PART: u64 = 256 << 10;
/// Requests of each kind for one mark, at most.
const MARK_REQUESTS: u64 = 16;

/// What the copies take at most, in both repositories.
#[derive(Debug, Default)]
pub(super) struct Work {
    source: StoreStats,
    destination: StoreStats,
    stored: u64,
    copies: u64,
    /// Bytes of metadata of the version that was looked at last, by series.
    metadata: BTreeMap<String, Metadata>,
}

/// Containers of metadata.
#[derive(Debug, Clone, Copy, Default)]
struct Metadata {
    containers: u64,
    bytes: u64,
}

/// Requests when the looks that every run makes were made.
pub(super) struct Taken {
    pub(super) source: StoreStats,
    pub(super) destination: StoreStats,
}

impl Taken {
    pub(super) fn of(source: &JobContext, destination: &JobContext) -> Self {
        let stats = |context: &JobContext| context.repository.store().stats();
        Self { source: stats(source), destination: stats(destination) }
    }
}

impl Copying<'_> {
    /// Adds a snapshot that would be copied.
    pub(super) fn add_work(&mut self, version: &Version, taken: &Taken) -> Result<(), Failure> {
        let series = version.summary.series.clone();
        let before = match self.selection.base_of(version) {
            Some(CopiedBefore { version, .. }) => self.metadata_of(&version)?,
            // The copy of the one before it will be the base.
            None => self.work.metadata.get(&series).copied().unwrap_or_default(),
        };
        let reader = VersionReader::open(self.source, version)?;
        let usages = &reader.manifest().containers;
        let containers = usages.len() as u64;
        let bytes: u64 = usages.iter().map(|usage| usage.object_bytes).sum();
        let own = metadata(&reader);
        let read_bytes = FETCHES * (bytes + before.bytes);
        let source = StoreStats {
            reads: 2 * FETCHES * (containers + before.containers) + read_bytes / PART + FIXED_REQUESTS,
            creates: FIXED_REQUESTS,
            lists: taken.source.lists + FIXED_REQUESTS,
            deletes: FIXED_REQUESTS,
            bytes_down: read_bytes + FIXED_BYTES,
            bytes_up: FIXED_BYTES,
            ..StoreStats::default()
        };
        let statistics = &version.summary.statistics;
        let folders = statistics.dirs_new + statistics.dirs_changed + statistics.dirs_unmodified;
        let storing = Storing {
            bytes: statistics.stream_bytes,
            entries: files_of(version) + folders + statistics.others,
            versions: self.here + self.work.copies,
            base_metadata_bytes: 2 * before.bytes.max(own.bytes),
        };
        let work = &mut self.work;
        work.source = sum(&work.source, &source);
        work.destination = sum(&work.destination, &storing.most(&taken.destination));
        work.stored += storing.most_stored();
        work.copies += 1;
        work.metadata.insert(series, own);
        Ok(())
    }

    fn metadata_of(&self, version: &Version) -> Result<Metadata, Failure> {
        Ok(metadata(&VersionReader::open(self.source, version)?))
    }

    /// Shows what is read from the other repository, and what is stored in this one.
    pub(super) fn show_estimate(&self, taken: &Taken) -> Result<(), Failure> {
        let now = Taken::of(self.source, self.destination);
        let sure = if self.work.copies == 0 && self.done.forgotten.is_empty() { &now } else { taken };
        let marks = self.done.forgotten.len() as u64;
        let of_marks = StoreStats {
            creates: MARK_REQUESTS * marks,
            reads: MARK_REQUESTS * marks,
            lists: MARK_REQUESTS * marks,
            bytes_up: FIXED_BYTES.min(marks << 12),
            bytes_down: marks << 16,
            ..StoreStats::default()
        };
        let work = &self.work;
        let nothing_to_do = work.copies == 0 && marks == 0;
        let stored = match nothing_to_do {
            true => Some((0, 0)),
            false => Some((0, work.stored + of_marks.bytes_up)),
        };
        let source = Estimate {
            low: sure.source,
            high: sum(&now.source, &work.source),
            is_exact: nothing_to_do,
            ..Estimate::exactly(taken.source)
        };
        let (low, high) = (sure.destination, sum(&sum(&now.destination, &work.destination), &of_marks));
        let destination = Estimate {
            low,
            high,
            stored,
            seconds: durations::expected(self.app, &self.destination.repository, &[durations::COPY], [&low, &high]),
            is_exact: nothing_to_do,
            ..Estimate::exactly(taken.destination)
        };
        let parts: [(&str, &str, &App, Estimate); 2] = [
            (SOURCE, "the repository to copy from:", self.other, source),
            ("destination", "the repository that gets the copies:", self.app, destination),
        ];
        for (name, title, app, estimate) in parts {
            if !self.app.out.is_json() {
                self.app.out.line(title)?;
            }
            estimate.of(name).show(&self.app.out, app.prices().as_ref())?;
        }
        Ok(())
    }
}

fn metadata(reader: &VersionReader) -> Metadata {
    let usages = reader.manifest().containers.iter();
    let of_metadata = usages.filter(|usage| usage.container.kind == ContainerKind::Meta);
    of_metadata.fold(Metadata::default(), |sum, usage| Metadata {
        containers: sum.containers + 1,
        bytes: sum.bytes + usage.object_bytes,
    })
}

fn sum(one: &StoreStats, other: &StoreStats) -> StoreStats {
    StoreStats {
        creates: one.creates + other.creates,
        reads: one.reads + other.reads,
        sizes: one.sizes + other.sizes,
        lists: one.lists + other.lists,
        deletes: one.deletes + other.deletes,
        bytes_up: one.bytes_up + other.bytes_up,
        bytes_down: one.bytes_down + other.bytes_down,
        ..StoreStats::default()
    }
}
