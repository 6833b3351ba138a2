//! What this machine remembers of the repository: where it lies, and what happens without it.

use std::io;

use larder_job::Machine;
use larder_state::{StateError, StateFolder};
use larder_store::Repository;
use larder_store::repository::{Entropy, SystemEntropy};

use crate::app::App;
use crate::environment;

/// For backups: a machine that recognises what it made, and notes what it makes. Without a usable
/// state and without a key file, it recognises nothing.
pub(crate) fn witness(app: &App, repository: &Repository) -> Machine {
    let (id, of_key) = (repository.config().repository, &repository.keys().secrets().witness);
    let machine = noting(app, repository);
    let draw = |bytes: &mut [u8]| SystemEntropy.fill(bytes).map_err(io::Error::other);
    match machine.clone().witnessing(of_key.as_ref(), id, draw) {
        Ok(machine) => machine,
        Err(error) => {
            warn(app, &error);
            machine
        }
    }
}

/// For passes: a machine that notes what it sees.
pub(crate) fn noting(app: &App, repository: &Repository) -> Machine {
    let base = environment::state_dir(&app.global);
    let folder = base.map(|base| StateFolder::create(&base, repository.config().repository));
    with(app, folder.transpose())
}

/// For looks at the repository: a machine that remembers, and leaves no trace where there is none.
pub(crate) fn remembering(app: &App, repository: &Repository) -> Machine {
    let base = environment::state_dir(&app.global);
    let folder = base.map(|base| StateFolder::open(&base, repository.config().repository));
    with(app, folder.transpose().map(Option::flatten))
}

fn with(app: &App, folder: Result<Option<StateFolder>, StateError>) -> Machine {
    match folder {
        Ok(folder) => folder.map(Machine::with_state).unwrap_or_default(),
        Err(error) => {
            warn(app, &error);
            Machine::default()
        }
    }
}

fn warn(app: &App, error: &StateError) {
    app.out.warn(&format!(
        "the state of this machine cannot be used: {error}. Name another folder with --state, or go without by --no-state"
    ));
}
