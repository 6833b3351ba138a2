//! Whether the repository is older than this machine remembers it.
//!
//! A storage may show an earlier state of the repository, and everything in that state is genuine.
//! Only a memory that the storage cannot reach tells the difference. The newest version of each
//! series that this machine made is asked for. Older ones may be gone: after a pass has collected a
//! version, nothing tells that it existed.

use larder_format::lease::Pin;
use larder_store::{Repository, RepositoryError};

use crate::JobContext;

/// Which of these versions are neither there nor marked as forgotten: asked of the store, never of
/// a cache.
async fn lost_versions(
    repository: &Repository,
    versions: impl IntoIterator<Item = Pin>,
) -> Result<Vec<Pin>, RepositoryError> {
    let mut lost = Vec::new();
    for version in versions {
        let is_marked = match repository.forgotten(version).await {
            Ok(mark) => mark.is_some(),
            // Anybody could have planted it.
            Err(error) if error.is_of_object() || error.is_foreign() => false,
            Err(error) => return Err(error),
        };
        if !is_marked && !repository.has_register(version, 0).await? {
            lost.push(version);
        }
    }
    Ok(lost)
}

impl JobContext {
    /// The newest versions that this machine made and that are gone. `is_there` says what a listing
    /// of versions and marks has; only others are asked for.
    pub async fn lost_versions(&self, is_there: impl Fn(&Pin) -> bool) -> Result<Vec<Pin>, RepositoryError> {
        let seen = self.machine.seen();
        self.lost_among(seen.newest().filter(|version| !is_there(version))).await
    }

    /// Which of these versions, which this machine remembers, are gone. Another process of the
    /// machine may collect a forgotten one meanwhile. It drops the version from the memory before
    /// it deletes, so a version that is gone is looked up there once more.
    pub async fn lost_among(&self, versions: impl IntoIterator<Item = Pin>) -> Result<Vec<Pin>, RepositoryError> {
        let mut lost = lost_versions(&self.repository, versions).await?;
        if !lost.is_empty() {
            let seen = self.machine.seen();
            lost.retain(|version| seen.expects(*version));
        }
        Ok(lost)
    }
}
