//! Mirrors: which copies are forgotten because their originals are gone from the other repository.
//!
//! A mistake here loses the only good copy. So a copy stays if its original is in the listing of
//! the other repository, or is there when it is asked for by its name, or if only a part of it was
//! saved there after damage. The caller asks only if it could read and copy everything.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use larder_format::ids::JobId;
use larder_format::lease::Pin;
use larder_rewrite::repair::is_saved_from;
use larder_store::catalog::{Filter, Version};
use larder_store::pins::PinLine;
use larder_store::{Repository, RepositoryError};

use crate::forget::pin_of;

/// Everything that the decision needs to know.
#[derive(Debug)]
pub struct MirrorQuestion<'a> {
    /// The other repository.
    pub source: &'a Repository,
    /// All its versions, also those that do not count because their domain was closed.
    pub versions: &'a [Version],
    /// Those of this one in the domain of its key, with the tags that they were made with.
    pub copies: &'a [Version],
    /// The pins and later tags of this repository.
    pub lines: &'a BTreeMap<Pin, PinLine>,
    /// Copies that it does not admit stay. It goes by their present tags.
    pub filter: &'a Filter,
}

/// Why a copy stays though its original is not in the listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// It is pinned here, or may be.
    Pinned,
    /// Only a part of the original was saved there.
    OnlyWhole,
    /// The original is there, and the listing lacked it.
    StillThere,
}

/// The decision.
#[derive(Debug, Default)]
pub struct Mirrored {
    /// Copies to forget, with their present tags.
    pub gone: Vec<Version>,
    /// Others whose originals are not in the listing.
    pub kept: Vec<(JobId, Kept)>,
}

impl Mirrored {
    /// Whether the listing of the other repository lacked a version. Then nothing is forgotten.
    pub fn is_unreliable(&self) -> bool {
        self.kept.iter().any(|(_, kept)| *kept == Kept::StillThere)
    }
}

/// Decides which copies go. Changes nothing.
///
/// # Errors
/// The other repository cannot say whether a version is there.
pub async fn mirror(question: &MirrorQuestion<'_>) -> Result<Mirrored, RepositoryError> {
    let from = question.source.config().repository;
    let there: HashSet<JobId> = question.versions.iter().map(Version::id).collect();
    let mut mirrored = Mirrored::default();
    for copy in question.copies {
        let Some(origin) = copy.summary.origin.filter(|origin| origin.repository == from) else { continue };
        if there.contains(&origin.version) {
            continue;
        }
        let mut copy = copy.clone();
        let line = question.lines.get(&pin_of(&copy));
        if let Some(tags) = line.and_then(PinLine::tags) {
            copy.summary.tags = tags.to_vec();
        }
        if !question.filter.admits(&copy.summary) {
            continue;
        }
        let kept = if line.is_some_and(PinLine::forbids_forgetting) {
            Some(Kept::Pinned)
        } else if question.versions.iter().any(|version| is_saved_from(&version.summary, origin.version)) {
            Some(Kept::OnlyWhole)
        } else if is_there(question, &copy.summary.series, origin.version).await? {
            Some(Kept::StillThere)
        } else {
            None
        };
        match kept {
            Some(kept) => mirrored.kept.push((copy.id(), kept)),
            None => mirrored.gone.push(copy),
        }
    }
    Ok(mirrored)
}

/// Whether the other repository has a version that its listing lacked: it is asked for by name, in
/// every domain that has versions. One whose mark cannot be read is there.
async fn is_there(question: &MirrorQuestion<'_>, series: &str, job: JobId) -> Result<bool, RepositoryError> {
    let source = question.source;
    let of_versions = question.versions.iter().map(|version| version.summary.domain);
    let domains: BTreeSet<_> = of_versions.chain([source.keys().domain()]).collect();
    for domain in domains {
        let version = Pin { series: source.keys().series_key_in(domain, series), job };
        let is_marked = match source.forgotten(version).await {
            Ok(mark) => mark.is_some(),
            Err(error) if error.is_of_object() => false,
            Err(error) => return Err(error),
        };
        if !is_marked && source.has_register(version, 0).await? {
            return Ok(true);
        }
    }
    Ok(false)
}
