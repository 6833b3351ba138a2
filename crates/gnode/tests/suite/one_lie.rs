//! The promise: no single wrong answer of a store ever costs a snapshot that nobody forgot.
//!
//! A verb runs once for each of its requests and each lie that there is about that request, on a copy of the repository each. The
//! gate tries every third request after the first 16. Then the store is honest again, a backup that was under way commits, and
//! passes and a rebuild run. What nobody forgot must restore byte for byte, at the latest after the next `repair index`. A verb may
//! fail, and a pass may stop: only what is lost counts.
//!
//! `LARDER_LIES_SHOWN=1` also prints which lies make a later pass stop.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on fails here; how many lies there were is printed"
)]

mod forgetting;
mod passes;
mod repairs;
mod stage;
mod verbs;

use std::collections::BTreeMap;
use std::time::Duration;

use larder_format::ids::JobId;
use larder_gnode::pass::PassOptions;
use larder_gnode::reclaim::Exact;
use larder_gnode::repair;
use larder_job::JobContext;
use larder_reader::VersionReader;
use larder_store::catalog::Version;
use larder_testkit::{Lie, LyingStore, Told, sweep};

use crate::support::*;
use stage::Stage;

/// Of so many entries of a listing each is hidden in turn. A test hides all of small listings.
const ENTRIES: usize = 24;

/// What a verb did beside what the stage knows.
#[derive(Debug, Default)]
struct Did {
    /// Versions that it says to have made, and what they have to hold.
    made: BTreeMap<JobId, Contents>,
    /// What it should not have done or said.
    wrong: Vec<String>,
}

/// A pass that frees all it can at once, however young, and takes whoever does not renew for dead.
fn eager() -> PassOptions {
    let all = PassOptions { arrange: thoroughly().arrange, dead_after: Duration::ZERO, ..PassOptions::default() };
    PassOptions { reclaim: thorough(Exact::Always).reclaim, ..all }
}

/// Runs a verb with every lie: none may cost anything.
fn tell_every_lie(stage: &Stage, verb: impl Fn(&Scene, &JobContext) -> Did) {
    let (told, lost) = lies_that_cost(stage, verb);
    assert!(lost.is_empty(), "{} of {told} lies cost something:\n    {}", lost.len(), lost.join("\n    "));
}

/// Runs a verb with every lie, and finds out what each has cost; also gives how many there were.
fn lies_that_cost(stage: &Stage, verb: impl Fn(&Scene, &JobContext) -> Did) -> (u64, Vec<String>) {
    let (mut told, mut lost) = (0, Vec::new());
    let begin = std::time::Instant::now();
    for index in (0..16).chain(sweep(16.., 7)) {
        let mut variant = 0;
        let is_over = loop {
            let fork = stage.scene.fork();
            let (store, lies) = LyingStore::new(fork.memory.store(), &stage.before);
            let repository = fork.repository(fork.memory.store()).through(store_over(store));
            let context = fork.context_of(repository);
            lies.tell(index, variant, ENTRIES);
            let did = verb(&fork, &context);
            lies.end();
            let Some(lie) = lies.told() else { break lies.count() <= index };
            told += 1;
            lost.extend(costs(stage, &fork, &lie, did).into_iter().map(|cost| format!("{lie}\n        {cost}")));
            variant += 1;
        };
        if is_over {
            println!("{told} lies about {index} requests in {:.1} s", begin.elapsed().as_secs_f64());
            break;
        }
    }
    assert!(told > 3, "{told} lies");
    (told, lost)
}

/// What a lie cost, once the store is honest again.
fn costs(stage: &Stage, scene: &Scene, lie: &Told, did: Did) -> Vec<String> {
    let context = scene.context();
    let mut expected = stage.whole.clone();
    expected.extend(stage.commit(scene));
    // Of what the store said to have stored, and had not, nobody can know but who looks: `check` tells.
    let is_of = |id: &JobId| lie.lie == Lie::NotCreated && lie.path.contains(&id.to_string());
    expected.extend(did.made.into_iter().filter(|(id, _)| !is_of(id)));
    let marks = scene.runtime.block_on(context.repository.list_marks()).unwrap();
    expected.retain(|id, _| !marks.iter().any(|pin| pin.job == *id));
    let mut costs = did.wrong;
    // The eager pass is the one that deletes most. The others take long, so only one of some lies is followed by them.
    let steps = if lie.index.is_multiple_of(4) { 3 } else { 1 };
    for healthy in 0..steps {
        let passed = match healthy {
            0 => scene.pass_with(&eager()).map(drop),
            1 => scene.pass_with(&pass_options()).map(drop),
            _ => {
                scene.rebuild_index();
                scene.pass_with(&eager()).map(drop)
            }
        };
        if let (Err(error), true) = (passed, std::env::var_os("LARDER_LIES_SHOWN").is_some()) {
            println!("{lie}: a later pass ends with {error}");
        }
        let mut lost = missing(&context, &expected);
        if !lost.is_empty() && scene.rebuild_index() {
            // Nothing is gone that the next rebuild finds: the lie cost a repair, and no data.
            lost = missing(&context, &expected);
        }
        costs.extend(lost);
        if !costs.is_empty() {
            break;
        }
    }
    costs
}

impl Scene {
    /// Rebuilds the index over an honest store, and says whether that worked.
    fn rebuild_index(&self) -> bool {
        self.runtime.block_on(repair::rebuild(&self.context())).is_ok()
    }
}

/// What is not as it has to be.
fn missing(context: &JobContext, expected: &BTreeMap<JobId, Contents>) -> Vec<String> {
    let listed: BTreeMap<JobId, Version> =
        versions(context).into_iter().map(|version| (version.id(), version)).collect();
    let missing = |(id, contents): (&JobId, &Contents)| match listed.get(id).map(|found| try_contents(context, found)) {
        Some(Ok(read)) if read == *contents => None,
        Some(Ok(_)) => Some(format!("snapshot {id} restores to something else")),
        Some(Err(error)) => Some(format!("snapshot {id} is lost: {error}")),
        None => Some(format!("snapshot {id} is not listed")),
    };
    expected.iter().filter_map(missing).collect()
}

/// Reads a version from the store alone, or says why that fails.
fn try_contents(context: &JobContext, version: &Version) -> Result<Contents, String> {
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
