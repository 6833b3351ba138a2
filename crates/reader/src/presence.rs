//! Missing parts of a version, and the two ways to find them; the layout of the version chooses
//! one.

use std::collections::{BTreeSet, HashSet};

use larder_format::ids::ContainerId;
use larder_store::RepositoryError;

/// The missing parts of a version.
#[derive(Debug, Default)]
pub struct Missing {
    /// Containers, as the manifest names them, with a needed chunk that is nowhere.
    pub named: HashSet<ContainerId>,
    /// The absent objects: named containers, or those to which passes moved their chunks.
    pub absent: BTreeSet<ContainerId>,
    /// Some containers are absent, and the index that tells whether they are retired cannot be
    /// read. This alone makes nothing count as missing.
    pub is_unknown: bool,
}

impl Missing {
    /// For containers that are where the manifest names them.
    pub(crate) fn of(absent: BTreeSet<ContainerId>) -> Self {
        Self { named: absent.iter().copied().collect(), absent, is_unknown: false }
    }
}

/// The search for missing parts of a version.
pub(crate) trait Look {
    /// When recipes record the places of chunks.
    fn recorded(&self) -> Result<Missing, RepositoryError>;

    /// When recipes name chunks, and extents tell their places.
    fn by_extents(&self) -> Result<Missing, RepositoryError>;
}
