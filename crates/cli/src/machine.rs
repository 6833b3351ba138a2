//! What this machine remembers of the repository: its folder, and the behaviour without it.

use std::io;

use larder_format::ids::{KeyId, RepositoryId};
use larder_job::Machine;
use larder_state::{Seen, StateError, StateFolder};
use larder_store::Repository;
use larder_store::repository::{Entropy, SystemEntropy};

use crate::args::Global;
use crate::environment;
use crate::output::Output;

/// The state of a repository that is about to be opened, if there is one. Its folder is claimed by
/// the configuration, which nobody has verified yet, so only hints are taken from it.
pub(crate) struct Memory {
    folder: Option<StateFolder>,
    seen: Seen,
}

impl Memory {
    /// Reads it. A state that cannot be used gives no hints; the users of the state report it.
    pub(crate) fn open(global: &Global, claimed: RepositoryId) -> Self {
        let base = environment::state_dir(global);
        let folder = base.and_then(|base| StateFolder::open(&base, claimed).ok().flatten());
        let seen = folder.as_ref().and_then(|folder| folder.seen().ok()).unwrap_or_default();
        Self { folder, seen }
    }

    /// The key that opened the repository last.
    pub(crate) fn last_key(&self) -> Option<KeyId> {
        self.seen.key
    }

    /// Remembers the key that opened it now.
    pub(crate) fn note_key(&self, key: KeyId) {
        if self.seen.key != Some(key)
            && let Some(folder) = &self.folder
            && let Err(error) = folder.change(|seen| seen.key = Some(key))
        {
            tracing::debug!(%error, "the key in use is not remembered");
        }
    }
}

/// Whether this machine remembers any repository.
pub(crate) fn remembers_any(global: &Global) -> bool {
    let base = environment::state_dir(global);
    let is_of_repository =
        |entry: io::Result<std::fs::DirEntry>| entry.is_ok_and(|entry| entry.file_name() != environment::RUNS);
    base.is_some_and(|base| std::fs::read_dir(base).is_ok_and(|mut folders| folders.any(is_of_repository)))
}

/// For backups: a machine that recognises what it made, and notes what it makes. Without a usable
/// state and without a key file, it recognises nothing.
pub(crate) fn witness(global: &Global, out: &Output, repository: &Repository) -> Machine {
    let (id, of_key) = (repository.config().repository, &repository.keys().secrets().witness);
    let machine = noting(global, out, repository);
    let draw = |bytes: &mut [u8]| SystemEntropy.fill(bytes).map_err(io::Error::other);
    match machine.clone().witnessing(of_key.as_ref(), id, draw) {
        Ok(machine) => machine,
        Err(error) => {
            warn(out, &error);
            machine
        }
    }
}

/// For passes: a machine that notes what it sees.
pub(crate) fn noting(global: &Global, out: &Output, repository: &Repository) -> Machine {
    let base = environment::state_dir(global);
    let folder = base.map(|base| StateFolder::create(&base, repository.config().repository));
    with(out, folder.transpose())
}

/// For looks at the repository: a machine that remembers, and leaves no trace where there is none.
pub(crate) fn remembering(global: &Global, out: &Output, repository: &Repository) -> Machine {
    let base = environment::state_dir(global);
    let folder = base.map(|base| StateFolder::open(&base, repository.config().repository));
    with(out, folder.transpose().map(Option::flatten))
}

fn with(out: &Output, folder: Result<Option<StateFolder>, StateError>) -> Machine {
    let readable = folder.and_then(|folder| folder.map(|folder| folder.seen().map(|_| folder)).transpose());
    match readable {
        Ok(folder) => folder.map(Machine::with_state).unwrap_or_default(),
        Err(error) => {
            warn(out, &error);
            Machine::default()
        }
    }
}

fn warn(out: &Output, error: &StateError) {
    out.warn(&format!(
        "the state of this machine cannot be used: {error}. Name another folder with --state, or go without by --no-state"
    ));
}
