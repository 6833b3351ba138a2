//! The promise: whoever may create objects and read them, and nothing else, can back up, restore, check, forget and pin. Only a
//! pass deletes, and where it may not, it says so and nothing is lost.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use crate::support::*;
use larder_gnode::forget::pin_of;
use larder_gnode::pass::{self, PassError, PassOptions};
use larder_reader::VersionReader;
use larder_rewrite::check::ReadData;
use larder_rewrite::{CheckOptions, check};
use larder_store::{RepositoryError, StoreErrorKind, StoreOp};
use larder_testkit::{Failure, Fault, FaultStore, OpKind, Times, When};
use object_store::path::Path;
use object_store::{Error, ObjectStore, PutMode, PutOptions};

/// The store refuses what the policy of `docs/guide/storage.md` refuses to clients: to delete, and to put without `If-None-Match: *`, be there an
/// object or not.
#[test]
fn a_client_that_may_only_create_does_everything_but_a_pass() {
    let scene = Scene::new();
    let (store, faults) = FaultStore::new(scene.memory.store());
    for kind in [OpKind::Delete, OpKind::Overwrite] {
        faults.add(When::kind(kind), Fault::FailBefore(Failure::Status(403)), Times::Always);
    }
    let context = scene.context_at(store.clone());
    for edition in 0..4 {
        scene.write("a", edition);
        scene.backup(&context, "a").unwrap();
    }
    let all = contents(&context);
    let listed = versions(&context);
    let (_, reading) = VersionReader::announce(&context, &listed[0]).unwrap();
    reading.end();
    let options = CheckOptions { read_data: ReadData::All, ..CheckOptions::default() };
    assert_eq!(check(&context, &options).unwrap().damages, []);
    scene.runtime.block_on(async {
        context.repository.pin(pin_of(&listed[3]), 0, "host", "test").await.unwrap();
        for version in &listed[..3] {
            forget(&context.repository, version.id()).await;
        }
    });
    assert!(faults.log().iter().all(|op| ![OpKind::Delete, OpKind::Overwrite].contains(&op.kind)));
    // Whoever has taken the client over replaces nothing, and creates nothing where there is something.
    let all_paths = scene.runtime.block_on(scene.memory.paths());
    let container = all_paths.into_iter().find(|path| path.starts_with("data/")).unwrap();
    for options in [PutOptions::default(), PutOptions::from(PutMode::Create)] {
        let path = Path::from(container.as_str());
        let refused = scene.runtime.block_on(store.put_opts(&path, "garbage".into(), options)).unwrap_err();
        assert!(matches!(refused, Error::PermissionDenied { .. } | Error::AlreadyExists { .. }), "{refused}");
    }
    let refused = scene
        .runtime
        .block_on(pass::run(&context, &PassOptions { min_age: std::time::Duration::ZERO, ..PassOptions::default() }));
    match refused.unwrap_err() {
        PassError::Repository(RepositoryError::Store(error)) => {
            assert_eq!((error.op, error.kind), (StoreOp::Delete, StoreErrorKind::PermissionDenied));
        }
        other => panic!("{other}"),
    }
    let left = scene.contents();
    assert_eq!(left.len(), 1);
    assert!(left.iter().all(|(id, contents)| all[id] == *contents));
    // A G-node elsewhere, with other credentials, does what is to be done, and the client goes on.
    scene.pass().unwrap();
    scene.write("a", 4);
    scene.backup(&context, "a").unwrap();
    assert_eq!(scene.contents().len(), 2);
}

/// No object is ever sent where another may be overwritten: `Between` refuses every other way to put.
#[test]
fn nothing_is_ever_overwritten() {
    let scene = Scene::new();
    let between = Between::new(scene.memory.store(), || async {});
    let context = scene.context_at(between.clone());
    for edition in 0..3 {
        scene.write("a", edition);
        scene.backup(&context, "a").unwrap();
    }
    let first = versions(&context)[0].id();
    scene.runtime.block_on(async {
        forget(&context.repository, first).await;
        pass::run(&context, &PassOptions { min_age: std::time::Duration::ZERO, ..PassOptions::default() })
            .await
            .unwrap();
    });
    assert!(between.count() > 50);
    scene.is_clean("after the pass");
}
