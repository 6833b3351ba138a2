//! [`Machine`]: what jobs and passes ask of this machine's memory.

use std::io;
use std::sync::Arc;

use larder_format::ids::{DomainId, JobId, RepositoryId, SeriesKey};
use larder_format::keys::Secret;
use larder_format::lease::Pin;
use larder_format::manifest::Summary;
use larder_format::witness::Witness;
use larder_format::witness_key::WitnessKey;

use crate::folder::{StateError, StateFolder};
use crate::seen::{Seen, SeenIndex};

/// What this machine knows of a repository by itself. The default knows nothing.
#[derive(Debug, Clone, Default)]
pub struct Machine {
    witness: Option<WitnessKey>,
    folder: Option<Arc<StateFolder>>,
    /// Whether it notes nothing.
    only_looks: bool,
}

impl Machine {
    /// A machine with a witness that anybody can guess. For tests and benchmarks only.
    pub fn for_tests(repository: RepositoryId) -> Self {
        Self { witness: Some(WitnessKey::new(&Secret([0; 32]), repository)), folder: None, only_looks: false }
    }

    /// A machine with this witness and without a state folder.
    pub fn with_witness(witness: WitnessKey) -> Self {
        Self { witness: Some(witness), ..Self::default() }
    }

    /// A machine that notes what it sees, and has no witness.
    pub fn with_state(folder: StateFolder) -> Self {
        Self { folder: Some(Arc::new(folder)), ..Self::default() }
    }

    /// The same machine, which remembers and notes nothing: for rehearsals.
    #[must_use]
    pub fn only_looking(self) -> Self {
        Self { only_looks: true, ..self }
    }

    /// The state that may change.
    fn noting(&self) -> Option<&StateFolder> {
        self.folder.as_deref().filter(|_| !self.only_looks)
    }

    /// The same machine with a witness: the secret of its key, else that of its state folder.
    /// `draw` fills a new one with random bytes.
    pub fn witnessing(
        self,
        of_key: Option<&Secret>,
        repository: RepositoryId,
        draw: impl FnOnce(&mut [u8]) -> io::Result<()>,
    ) -> Result<Self, StateError> {
        let secret = match (of_key, &self.folder) {
            (Some(secret), _) => Some(secret.clone()),
            (None, Some(folder)) => Some(folder.secret(draw)?),
            (None, None) => None,
        };
        Ok(Self { witness: secret.map(|secret| WitnessKey::new(&secret, repository)), ..self })
    }

    /// Whether it can recognise its own versions.
    pub fn has_witness(&self) -> bool {
        self.witness.is_some()
    }

    /// The witness for a version that this machine makes now.
    pub fn witness(&self, summary: &Summary) -> Option<Witness> {
        self.witness.as_ref().map(|key| key.witness(summary))
    }

    /// Whether this machine made the version (`WitnessedOnly`).
    pub fn made(&self, summary: &Summary) -> bool {
        self.witness.as_ref().is_some_and(|key| key.made(summary))
    }

    /// What it made and saw; nothing without a readable state.
    pub fn seen(&self) -> Seen {
        let seen = self.folder.as_ref().map(|folder| folder.seen());
        seen.and_then(|seen| seen.inspect_err(warn).ok()).unwrap_or_default()
    }

    /// Changes what it made and saw. A failure costs only the memory.
    pub fn change(&self, change: impl FnOnce(&mut Seen)) {
        if let Some(folder) = self.noting() {
            let _ = folder.change(change).inspect_err(warn);
        }
    }

    /// Adds to what it saw. Nothing waits for it, because a backup would wait for a disk.
    fn note(&self, add: impl FnOnce(&mut Seen)) {
        if let Some(folder) = self.noting() {
            let _ = folder.note(add).inspect_err(warn);
        }
    }

    /// Notes a version that this machine has committed.
    pub fn note_version(&self, version: Pin) {
        self.note(|seen| seen.add(version));
    }

    /// Notes that a version is gone which this machine made. Passes stop for it until people say
    /// otherwise.
    pub fn note_missed(&self, version: Pin) {
        self.change(|seen| seen.miss(version));
    }

    /// Notes an index, if it is newer than the one seen last.
    pub fn note_index(&self, index: SeenIndex) {
        self.note(|seen| {
            let is_new = |known: SeenIndex| known.number < index.number || (known.is(&index) && index.is_own);
            if seen.index.is_none_or(is_new) {
                seen.index = Some(index);
            }
        });
    }

    /// Notes closed domains.
    pub fn note_closed(&self, domains: impl IntoIterator<Item = DomainId>) {
        let mut domains = domains.into_iter().peekable();
        if domains.peek().is_some() {
            self.note(|seen| domains.for_each(|domain| seen.add_closed(domain)));
        }
    }

    /// Drops closed domains that are open now, as people say.
    pub fn forget_closed(&self, domains: Vec<DomainId>) {
        if !domains.is_empty() {
            self.change(|seen| domains.into_iter().for_each(|domain| seen.remove_closed(domain)));
        }
    }

    /// Drops all versions of the series of these. The others may be gone as well.
    pub fn forget_series(&self, versions: Vec<Pin>) {
        if !versions.is_empty() {
            self.change(|seen| versions.iter().for_each(|version| seen.remove_series(version.series)));
        }
    }

    /// Drops versions that are about to be gone, or that were forgotten.
    pub fn forget_versions(&self, versions: impl IntoIterator<Item = Pin>) {
        let mut versions = versions.into_iter().peekable();
        if versions.peek().is_some() {
            self.change(|seen| versions.for_each(|version| seen.remove(version)));
        }
    }

    /// The newest version of a series that this machine made.
    pub fn newest_of(&self, series: SeriesKey) -> Option<JobId> {
        self.seen().of_series(series).first().copied()
    }
}

fn warn(error: &StateError) {
    tracing::warn!(%error, "the state of this machine cannot be used");
}
