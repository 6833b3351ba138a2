//! Two passes of one machine at the same time: what one of them publishes and deletes is no
//! roll-back for the other.

use std::path::Path;

use larder_gnode::forget::pin_of;
use larder_gnode::pass::{self, PassError, PassReport};
use larder_job::JobContext;
use larder_state::{Machine, StateFolder};

use crate::support::{Scene, at_every_operation, pass_options};

/// A pass of the machine with this state.
fn pass_of_machine(scene: &Scene, context: JobContext, state: &Path) -> Result<PassReport, PassError> {
    let folder = StateFolder::create(state, context.repository.config().repository).expect("its own");
    let context = JobContext { machine: Machine::with_state(folder), ..context };
    scene.runtime.block_on(pass::run(&context, &pass_options()))
}

#[test]
fn a_pass_beside_another_of_its_machine_sees_no_roll_back() {
    let scene = Scene::new();
    scene.version("s", 1);
    scene.pass().expect("a first index");
    let forgotten = scene.version("s", 2);
    let version = scene.versions().into_iter().find(|version| version.id() == forgotten).expect("there");
    scene.version("s", 3);
    scene.forget(forgotten);
    let memory = tempfile::tempdir().expect("temporary folder");
    let state = memory.path().to_owned();
    let other = state.clone();
    let other_pass = move |scene: &Scene| drop(pass_of_machine(scene, scene.context(), &other));
    at_every_operation(
        &scene,
        other_pass,
        |scene, between| {
            let id = scene.context().repository.config().repository;
            let _ = std::fs::remove_dir_all(state.join(id.to_string()));
            let folder = StateFolder::create(&state, id).expect("its own");
            // As if the machine had made the version and forgotten it elsewhere.
            Machine::with_state(folder).note_version(pin_of(&version));
            pass_of_machine(scene, scene.context_at(between), &state)
        },
        |_, result, when| {
            let is_fine = matches!(result, Ok(_) | Err(PassError::Overtaken));
            assert!(is_fine, "{when}: {:?}", result.map(drop));
        },
    );
}
