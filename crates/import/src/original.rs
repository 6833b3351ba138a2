//! What is known of an original, and which versions were made of originals before.
//!
//! A version that was imported has an origin as copies have (`larder_format::manifest::Origin`),
//! with ids that are made of those of the other program:
//!
//! | field | made of |
//! |---|---|
//! | `repository` | the first 16 bytes of the id of the other repository |
//! | `version` | the first 16 bytes of the id of the original |
//! | `roots` | the id of the original, and the id of its tree if it has one |
//!
//! As with copies, an import counts if an operator signed it or this machine made it.

use larder_format::ids::{ContentDigest, JobId, RepositoryId};
use larder_format::layout::Layout;
use larder_format::manifest::Origin;
use larder_format::{content::ContentRoots, manifest::Summary};
use larder_job::JobContext;
use larder_lnode::transfer::selection::is_believed;
use larder_lnode::transfer::{CopyOptions, Facts, write_copy};
use larder_lnode::{BackupError, BackupReport, CopyOf, EntrySource};
use larder_store::catalog::Version;

/// An id of another program, 32 bytes.
pub type ForeignId = [u8; 32];

/// An original.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Original {
    /// The id of the repository that has it.
    pub repository: ForeignId,
    /// Its id.
    pub id: ForeignId,
    /// The id of its tree; zeros if it has none.
    pub tree: ForeignId,
    /// Its time, milliseconds since the epoch.
    pub time_ms: u64,
    /// The host it was made on.
    pub host: String,
    /// The user who made it.
    pub user: String,
    /// Its tags.
    pub tags: Vec<String>,
    /// The paths that it is of, absolute.
    pub paths: Vec<Vec<u8>>,
}

impl Original {
    /// The origin of a version that is made of it.
    pub fn origin(&self) -> Origin {
        Origin {
            repository: RepositoryId(head(&self.repository)),
            version: JobId(head(&self.id)),
            roots: ContentRoots { data: ContentDigest(self.id), metadata: ContentDigest(self.tree) },
            first: None,
        }
    }

    /// Makes a version of it.
    ///
    /// # Errors
    /// The original cannot be read, or the repository fails. No version was made then.
    pub fn import(
        &self,
        destination: &JobContext,
        series: &str,
        entries: Box<dyn EntrySource>,
        options: &CopyOptions,
    ) -> Result<BackupReport, BackupError> {
        let facts = Facts {
            series: series.to_owned(),
            host: self.host.clone(),
            user: self.user.clone(),
            tags: self.tags.clone(),
            paths: self.paths.clone(),
            time_ms: self.time_ms,
            copy_of: CopyOf { origin: self.origin(), started_ms: self.time_ms, errors: 0 },
        };
        write_copy(destination, entries, facts, options)
    }
}

fn head(id: &ForeignId) -> [u8; 16] {
    let (head, _) = id.split_first_chunk().unwrap_or((&[0; 16], &[]));
    *head
}

/// The versions of the repository that is imported into.
#[derive(Debug)]
pub struct ImportedBefore<'a> {
    destination: &'a JobContext,
    versions: Vec<Version>,
}

impl<'a> ImportedBefore<'a> {
    /// `here` are all versions of the destination, with the tags that they were made with.
    pub fn new(destination: &'a JobContext, here: Vec<Version>) -> Self {
        let domain = destination.repository.keys().domain();
        Self { destination, versions: here.into_iter().filter(|version| version.summary.domain == domain).collect() }
    }

    /// An original was imported.
    pub fn add(&mut self, summary: Summary) -> Version {
        let series = self.destination.repository.keys().series_key(&summary.series);
        let version = Version { summary, series, generation: 0, made_ms: 0, manifest_bytes: 0 };
        self.versions.push(version.clone());
        version
    }

    /// The version of a series that was made of this original, or of any series that was rewritten
    /// from it: contents that a rewrite left out do not come back.
    pub fn version_of(&self, original: &Original, series: &str) -> Option<&Version> {
        let origin = original.origin();
        let here = self.destination.repository.config().repository;
        self.versions.iter().find(|version| {
            let summary = &version.summary;
            let is_made = summary.series == series && summary.origin == Some(origin);
            let is_rewritten =
                || summary.origin.is_some_and(|of| of.repository == here && of.first == Some(origin.version));
            (is_made || is_rewritten()) && is_believed(&self.destination.machine, summary)
        })
    }

    /// The versions of a series that this machine made of originals of one repository, and that can
    /// be built on. The last that was made comes last.
    pub fn of_series(&self, repository: &ForeignId, series: &str) -> Vec<&Version> {
        let repository = RepositoryId(head(repository));
        let mut of_series: Vec<&Version> =
            self.versions.iter().filter(|version| version.summary.series == series).collect();
        of_series.sort_by_key(|version| version.id());
        let newest = of_series.last().map(|version| version.id());
        of_series.retain(|version| {
            let summary = &version.summary;
            // In the layout `lifecycle`, chunks of an older version may have left the series.
            let is_usable = summary.layout == Layout::Standard || newest == Some(version.id());
            let is_of_source = summary.origin.is_some_and(|origin| origin.repository == repository);
            is_usable && is_of_source && self.destination.machine.made(summary)
        });
        of_series
    }
}
