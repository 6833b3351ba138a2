//! What a version misses, and the two ways to find out, of which its layout takes one.

use std::collections::{BTreeSet, HashSet};

use larder_format::ids::ContainerId;
use larder_store::RepositoryError;

/// What is missing of a version.
#[derive(Debug, Default)]
pub struct Missing {
    /// Containers as the manifest names them, of which some chunk that the version needs is nowhere.
    pub named: HashSet<ContainerId>,
    /// The objects that are absent: those that are named, or those to which passes moved their chunks.
    pub absent: BTreeSet<ContainerId>,
    /// Some containers are absent, and the index that says whether they are retired cannot be read: nothing is called missing for that.
    pub is_unknown: bool,
}

impl Missing {
    /// Of containers that are where the manifest names them.
    pub(crate) fn of(absent: BTreeSet<ContainerId>) -> Self {
        Self { named: absent.iter().copied().collect(), absent, is_unknown: false }
    }
}

/// Looks for what a version misses.
pub(crate) trait Look {
    /// When recipes record the places of chunks.
    fn recorded(&self) -> Result<Missing, RepositoryError>;

    /// When recipes name chunks, and extents say where they are.
    fn by_extents(&self) -> Result<Missing, RepositoryError>;
}
