//! Tags that a version got after it was made.
//!
//! A version never changes, so its later tags are in the entries of its pin (`pins.rs`). The last
//! entry has all of them, and they replace those of the manifest. Only operators sign entries, so a
//! key that may only back up changes the tags of no version.
//!
//! The catalog has the tags of the manifests, because a witness covers them. Listings for people,
//! and policies, call [`Repository::tagged_catalog`].

use std::collections::BTreeMap;

use futures::StreamExt;
use larder_format::lease::Pin;
use larder_format::pinning::{PinEntry, PinState};

use crate::catalog::{Catalog, Version};
use crate::forget_marks::OwnedVersion;
use crate::pins::{PinError, PinLine, TRIES};
use crate::repository::{Repository, RepositoryError};

/// Bytes of all tags that one entry holds. With the other fields it stays below the limit of marks.
const TAGS_MAX: usize = 12 << 10;

/// Versions whose tags are changed at once.
const CONCURRENT_CHANGES: usize = 16;

/// A change of the tags of a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TagChange {
    /// These take the place of all others.
    Set(Vec<String>),
    /// Some come, others go. A tag in both goes.
    AddRemove {
        /// Tags to add.
        add: Vec<String>,
        /// Tags to remove.
        remove: Vec<String>,
    },
}

impl TagChange {
    /// The tags after the change, sorted.
    pub fn apply(&self, tags: &[String]) -> Vec<String> {
        let mut changed: Vec<String> = match self {
            Self::Set(tags) => tags.clone(),
            Self::AddRemove { add, remove } => {
                tags.iter().chain(add).filter(|tag| !remove.contains(tag)).cloned().collect()
            }
        };
        changed.sort();
        changed.dedup();
        changed
    }
}

impl PinLine {
    /// The tags that replace those of the manifest, if any do.
    pub fn tags(&self) -> Option<&[String]> {
        self.last.as_ref()?.tags.as_deref()
    }
}

impl Version {
    /// Shows the version with its present tags, as its line says.
    fn with_tags_of(&mut self, lines: &BTreeMap<Pin, PinLine>) {
        let pin = Pin { series: self.series, job: self.id() };
        if let Some(tags) = lines.get(&pin).and_then(PinLine::tags) {
            self.summary.tags = tags.to_vec();
        }
    }
}

impl Repository {
    /// The catalog with the present tags of all versions, and the lines that have them. The
    /// summaries are for people and policies: no witness fits them.
    pub async fn tagged_catalog(&self) -> Result<(Catalog, BTreeMap<Pin, PinLine>), RepositoryError> {
        let (mut catalog, lines) = futures::try_join!(self.catalog(), self.pin_lines())?;
        for version in catalog.versions.iter_mut().chain(&mut catalog.refused) {
            version.with_tags_of(&lines);
        }
        Ok((catalog, lines))
    }

    /// Changes the tags of versions, several at once, as [`Self::tag`] does. A failure of one does
    /// not stop the others.
    pub async fn tag_all(
        &self,
        versions: &[Version],
        change: &TagChange,
        time_ms: u64,
        host: &str,
        reason: &str,
    ) -> Vec<Result<Option<Vec<String>>, PinError>> {
        let changes = versions.iter().map(|version| self.tag(version, change, time_ms, host, reason));
        futures::stream::iter(changes).buffered(CONCURRENT_CHANGES).collect().await
    }

    /// Changes the tags of a version, and returns them; `None` if it has them already. `version`
    /// must be as the catalog has it: with the tags of its manifest, or with its present ones.
    ///
    /// # Errors
    /// The version is forgotten, its present tags are unclear, or others change them all the time.
    pub async fn tag(
        &self,
        version: &Version,
        change: &TagChange,
        time_ms: u64,
        host: &str,
        reason: &str,
    ) -> Result<Option<Vec<String>>, PinError> {
        let owned = OwnedVersion::from(version);
        for _ in 0..TRIES {
            let PinLine { last, faulty, next, .. } = self.pin_line(owned.version).await?;
            if let Some(entry) = last.as_ref().filter(|entry| entry.state == PinState::Forgetting) {
                return Err(PinError::Forgotten { entry: entry.clone() });
            }
            // It may have pinned the version, and the new entry would count in its place.
            if let Some(object) = faulty.into_iter().next() {
                return Err(PinError::Unclear { name: object.name });
            }
            let present = last.as_ref().and_then(|entry| entry.tags.as_deref()).unwrap_or(&version.summary.tags);
            let tags = change.apply(present);
            if tags == TagChange::Set(present.to_vec()).apply(&[]) {
                return Ok(None);
            }
            if tags.iter().map(|tag| tag.len() + 4).sum::<usize>() > TAGS_MAX {
                return Err(PinError::TooManyTags);
            }
            let state = last.map_or(PinState::Unpinned, |entry| entry.state);
            let (host, reason) = (host.to_owned(), reason.to_owned());
            let entry = PinEntry { state, time_ms, host, reason, tags: Some(tags.clone()) };
            if self.create_entry(owned, next, &entry).await? {
                self.expect_there(owned.version).await?;
                return Ok(Some(tags));
            }
        }
        Err(PinError::Contended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_sorted_and_without_repetitions() {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let present = texts(&["b", "a"]);
        assert_eq!(TagChange::Set(texts(&["y", "x", "y"])).apply(&present), ["x", "y"]);
        let change = TagChange::AddRemove { add: texts(&["c", "a", "d"]), remove: texts(&["b", "d", "e"]) };
        assert_eq!(change.apply(&present), ["a", "c"]);
        assert!(TagChange::Set(Vec::new()).apply(&present).is_empty());
    }
}
