//! The promise: no single wrong answer of a store ever costs a snapshot that nobody forgot.
//!
//! A verb runs once for each of its requests and each lie that there is about that request, on a copy of the repository each. Then
//! the store is honest again, a backup that was under way commits, and two passes run. Whatever nobody forgot must restore byte for
//! byte. A verb may fail, and a pass may stop: only what is lost counts.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

mod forgetting;
mod passes;
mod repairs;
mod stage;
mod verbs;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::support::*;
use larder_format::ids::JobId;
use larder_gnode::giving_up::Exact;
use larder_gnode::pass::PassOptions;
use larder_lnode::{Context, VersionReader};
use larder_store::Repository;
use larder_store::catalog::Version;
use larder_testkit::{LyingStore, Told};
use stage::Stage;

/// How many lies a test tells.
#[derive(Debug, Clone, Copy)]
struct Effort {
    /// One request of so many is lied about.
    stride: u64,
    /// The first of them.
    first: u64,
    /// Of so many entries of a listing each is hidden in turn.
    entries: usize,
}

/// What fits into the gate.
const SOME: Effort = Effort { stride: 1, first: 0, entries: 2 };
/// Everything.
const ALL: Effort = Effort { stride: 1, first: 0, entries: 1000 };

/// A pass that frees all it can at once, however young.
fn eager() -> PassOptions {
    let all = PassOptions { arrange: thoroughly().arrange, dead_after: Duration::ZERO, ..PassOptions::default() };
    PassOptions { give_up: thorough(Exact::Always).give_up, ..all }
}

/// Runs a verb with every lie, and finds out what each has cost.
///
/// `may_cost` says of a lie that the snapshot made under it may be lost: nothing was stored of what the store said to have stored.
fn tell_every_lie(stage: &Stage, effort: Effort, verb: impl Fn(&Scene, &Context)) {
    let (mut told, mut lost) = (0, Vec::new());
    let begin = std::time::Instant::now();
    let mut index = effort.first;
    loop {
        let mut variant = 0;
        let is_over = loop {
            let fork = stage.scene.fork();
            let (store, lies) = LyingStore::new(fork.memory.store(), &stage.before);
            let repository = fork.repository(fork.memory.store()).through(store_over(store));
            let context = fork.context_of(repository);
            lies.tell(index, variant, effort.entries);
            verb(&fork, &context);
            lies.end();
            let Some(lie) = lies.told() else { break lies.count() <= index };
            told += 1;
            lost.extend(costs(stage, &fork, &lie).into_iter().map(|cost| format!("{lie}\n        {cost}")));
            variant += 1;
        };
        if is_over {
            break;
        }
        index += effort.stride;
    }
    println!("{told} lies about {index} requests in {:.1} s", begin.elapsed().as_secs_f64());
    assert!(told > 8, "{told} lies");
    assert!(lost.is_empty(), "{} of {told} lies cost something:\n    {}", lost.len(), lost.join("\n    "));
}

/// What a lie cost, once the store is honest again.
fn costs(stage: &Stage, scene: &Scene, lie: &Told) -> Vec<String> {
    let context = scene.context();
    let mut expected = stage.whole.clone();
    expected.extend(stage.commit(scene));
    let marks = scene.runtime.block_on(context.repository.list_marks()).unwrap();
    expected.retain(|id, _| !marks.iter().any(|pin| pin.job == *id));
    let mut costs = Vec::new();
    for options in [eager(), pass_options()] {
        if let Err(error) = scene.pass_with(&options) {
            // That is to be told, and stops nothing but passes.
            tracing_free(&error, lie);
        }
        let listed: BTreeMap<JobId, Version> = versions(&context).into_iter().map(|version| (version.id(), version)).collect();
        for (id, contents) in &expected {
            match listed.get(id).map(|version| try_contents(&context, version)) {
                Some(Ok(read)) if read == *contents => {}
                Some(Ok(_)) => costs.push(format!("snapshot {id} restores to something else")),
                Some(Err(error)) => costs.push(format!("snapshot {id} is lost: {error}")),
                None => costs.push(format!("snapshot {id} is not listed")),
            }
        }
        if !costs.is_empty() {
            break;
        }
    }
    costs
}

fn tracing_free(error: &larder_gnode::pass::PassError, lie: &Told) {
    if std::env::var_os("LARDER_LIES_SHOWN").is_some() {
        println!("{lie}: the next pass ends with {error}");
    }
}

/// Reads a version from the store alone, or says why that fails.
fn try_contents(context: &Context, version: &Version) -> Result<Contents, String> {
    let reader = VersionReader::open(context, version).map_err(|error| error.to_string())?;
    let mut contents = Contents::new();
    let mut failed = None;
    let visited = reader.visit_contents::<larder_store::RepositoryError>(b"", |entry, content| {
        let mut bytes = Vec::new();
        match content.read_to_end(&mut bytes) {
            Ok(_) => drop(contents.insert(entry.path.clone(), bytes)),
            Err(error) => drop(failed.get_or_insert(error.to_string())),
        }
        Ok(())
    });
    match (visited, failed) {
        (Err(error), _) => Err(error.to_string()),
        (_, Some(error)) => Err(error),
        _ => Ok(contents),
    }
}

/// The ids of versions with a mark.
fn marked(repository: &Repository, runtime: &tokio::runtime::Runtime) -> Vec<JobId> {
    runtime.block_on(repository.list_marks()).unwrap().into_iter().map(|pin| pin.job).collect()
}

/// The store of a scene, for those that lie about nothing.
fn honest(scene: &Scene) -> Arc<dyn object_store::ObjectStore> {
    scene.memory.store()
}
