//! Snapshots of a repository below volumes: blocks that a volume does not have itself are those of
//! a file of a snapshot.
//!
//! A store keeps the ids of repository and snapshot, and the path, as a text. So the repository
//! must be named again whenever the volume is used. A lease protects the snapshot meanwhile, and
//! nothing does at other times.

use std::ops::Range;
use std::sync::Arc;

use larder_format::roles::Roles;
use larder_format::volume_manifest::{Parent, VolumeEntry};
use larder_job::{Clock, JobContext, SystemClock};
use larder_reader::{RandomReader, Reading, Stretch, VersionReader};
use larder_store::Repository;
use larder_store::catalog::Version;
use larder_volume::{Lower, Store, VolumeError};
use serde_json::{Value, json};

use crate::app::App;
use crate::args::FetchArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{absolute, safe};

/// Bytes of a sector: sizes of volumes are multiples of it.
const SECTOR: u64 = 512;
/// Stretches of a file that are looked at together.
const STRETCHES: usize = 1024;
/// The part of the memory limit for reading snapshots below volumes: one in this number.
const MEMORY_ONE_IN: usize = 4;

/// A file of a snapshot, as a store names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::commands) struct Below {
    /// Id of the repository.
    pub(in crate::commands) repository: String,
    /// Id of the snapshot.
    pub(in crate::commands) snapshot: String,
    /// The path in it.
    pub(in crate::commands) path: Vec<u8>,
}

impl Below {
    /// The text that a store keeps.
    pub(in crate::commands) fn text(&self) -> String {
        let path = data_encoding::BASE64.encode(&self.path);
        json!({"repository": self.repository, "snapshot": self.snapshot, "path_b64": path}).to_string()
    }

    /// Reads it again.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(text).ok()?;
        let field = |name: &str| value[name].as_str().map(str::to_owned);
        let path = data_encoding::BASE64.decode(field("path_b64")?.as_bytes()).ok()?;
        Some(Self { repository: field("repository")?, snapshot: field("snapshot")?, path })
    }

    /// What is below a volume, if it is outside of the store.
    pub(in crate::commands) fn of(volume: &VolumeEntry) -> Option<Result<Self, Failure>> {
        let Some(Parent::Outside(text)) = &volume.parent else { return None };
        let unknown = || Failure::new(Exit::Failed, format!("volume {} is over something unknown", volume.name));
        Some(Self::parse(text).ok_or_else(unknown))
    }

    /// As messages name it.
    pub(in crate::commands) fn shown(&self) -> String {
        let short = self.snapshot.get(self.snapshot.len().saturating_sub(8)..).unwrap_or(&self.snapshot);
        format!("{} of snapshot {short}", safe(&absolute(&self.path)))
    }
}

/// A file of a snapshot that is read, and the lease that protects it.
pub(in crate::commands) struct Opened {
    pub(in crate::commands) below: Below,
    reading: Option<Reading>,
    random: Arc<RandomReader>,
}

impl Opened {
    /// Takes the lease, and opens the file. Without a path it is the only one. The memory limit is
    /// shared by `count` such files.
    pub(in crate::commands) fn open(
        app: &App,
        repository: &Repository,
        version: &Version,
        path: Option<&[u8]>,
        fetch: &FetchArgs,
        count: usize,
    ) -> Result<Self, Failure> {
        repository.require(Roles::RESTORE, "reading a snapshot below a volume")?;
        let context = app.reading(repository.clone());
        let context = JobContext { memory: context.memory / MEMORY_ONE_IN / count.max(1), ..context };
        let (reader, reading) = VersionReader::announce(&context, version)?;
        if !reading.has_lease() {
            app.out.warn("no lease was created, so a pass may remove data of the snapshot once it is forgotten");
        }
        // From here on a failure ends the lease.
        let mut opened = Lease(Some(reading));
        let reader = reader.fetching(app.fetching(fetch)?);
        let file = reader.random_file(path)?;
        let random = Arc::new(RandomReader::open(reader, &file)?);
        // Nearly every client begins with it.
        random.prefetch(0, 1);
        let below = Below {
            repository: repository.config().repository.to_string(),
            snapshot: version.id().to_string(),
            path: file.path,
        };
        Ok(Self { below, reading: opened.0.take(), random })
    }

    /// Bytes of a volume over it: those of the file, and zeros up to a whole sector.
    pub(in crate::commands) fn volume_size(&self) -> u64 {
        self.random.size().next_multiple_of(SECTOR).max(SECTOR)
    }

    /// Stretches of the file with data, and holes, from an offset on: some of them, in order. None
    /// behind the end.
    pub(super) fn stretches(&self, from: u64) -> Vec<Stretch> {
        self.random.stretches(from..self.random.size(), STRETCHES)
    }

    /// Fills a buffer with the data at an offset.
    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Failure> {
        Ok(self.random.read_at(offset, buffer)?)
    }

    /// What a store reads.
    pub(in crate::commands) fn lower(&self) -> Arc<dyn Lower> {
        Arc::new(File { random: self.random.clone(), size: self.volume_size() })
    }

    /// An error when the lease was lost.
    pub(in crate::commands) fn expect_lease(&self) -> Result<(), Failure> {
        match &self.reading {
            Some(reading) => Ok(reading.expect_lease()?),
            None => Ok(()),
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        drop(Lease(self.reading.take()));
    }
}

/// Ends the lease of a read.
struct Lease(Option<Reading>);

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(reading) = self.0.take() {
            reading.end();
        }
    }
}

/// A file of a snapshot below a volume.
struct File {
    random: Arc<RandomReader>,
    size: u64,
}

impl Lower for File {
    fn len(&self) -> u64 {
        self.size
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        let left = self.random.size().saturating_sub(offset);
        let stored = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let (stored, behind) = buffer.split_at_mut(stored);
        behind.fill(0);
        if stored.is_empty() { Ok(()) } else { self.random.read_at(offset, stored).map_err(std::io::Error::other) }
    }

    fn is_zero(&self, range: Range<u64>) -> bool {
        let end = range.end.min(self.random.size());
        range.start >= end || matches!(&*self.random.stretches(range.start..end, 2), [only] if only.is_hole)
    }
}

/// Creates a volume over a file of a snapshot.
pub(in crate::commands) fn create_over(store: &Store, name: &str, opened: &Opened) -> Result<VolumeEntry, VolumeError> {
    store.create_over(name, opened.volume_size(), &opened.below.text(), SystemClock.now_ms())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_says_what_is_below() {
        let below = Below { repository: "ab".to_owned(), snapshot: "0123456789".to_owned(), path: b"a/\xff".to_vec() };
        assert_eq!(Below::parse(&below.text()), Some(below.clone()));
        assert_eq!(Below::parse("{}"), None);
        assert!(below.shown().ends_with("of snapshot 23456789"), "{}", below.shown());
    }
}
