//! Passes that share recipes and the copying of chunks with workers, beside backups, forgetting and other passes. The promise is that of all
//! passes (`main`): every version restores at every moment, and in the end there is no garbage.
//!
//! Workers stand still before they write or say anything, until the pass that they work for is over, and other passes have deleted
//! its containers. Passes stand still before they publish, until others take them for dead.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use larder_fleet::{Copied, OpenedImage, SharedPass, SharedPassOptions, Sources, Takes, WorkEvent, WorkOptions, work};
use larder_format::ids::JobId;
use larder_format::names::{self, FleetObject};
use larder_index::Executor;
use larder_testkit::data::Rng;
use larder_testkit::sim::{Ambush, Wake, Weather, World};
use parking_lot::Mutex;

use crate::maintenance::{Death, collect_with, compact_with};
use crate::node::{Node, Stop};
use crate::situation::{Aim, Habits, Role, Situation};
use crate::{Ran, run_in, run_some, seeds};

/// Seeds of the normal test run.
const SEEDS: u64 = 30;

/// A pass that gives chunks to others.
pub async fn share(node: &Node) -> Result<(), Stop> {
    let shared = SharedPass::new(SharedPassOptions {
        workers: node.pick(&[1, 2, 3]).try_into()?,
        claim: Duration::from_secs(node.pick(&[5, 20, 60])),
        poll: Duration::from_secs(2),
        // Mostly, each container is a batch.
        batch_bytes: node.pick(&[1, 1, 4000]),
    });
    let sharing = Arc::new(shared.clone());
    // As in a round: first newest versions are rewritten.
    let rewrites = node.pick(&[true, true, false]);
    let rewritten = if rewrites { compact_with(node, Some(sharing.clone())).await } else { Ok(()) };
    let of_rewrites = shared.report();
    node.ledger.add("tasks of rewrites", of_rewrites.tasks);
    node.ledger.add("chunks of workers in rewrites", of_rewrites.chunks_of_others);
    let result = match rewritten {
        Ok(()) => collect_with(node, Death::Guessed, true, Some(sharing)).await,
        Err(error) => Err(error),
    };
    let report = shared.report();
    // A pass that others took for dead does not find what its workers wrote.
    node.ledger.add("workers that were not believed", u64::from(report.worker_was_wrong));
    node.ledger.add("tasks", report.tasks);
    node.ledger.add("tasks of workers", report.tasks_of_others);
    node.ledger.add("segments of workers", report.segments_of_others);
    node.ledger.add("chunks of workers", report.chunks_of_others);
    result
}

struct Nothing;

impl Sources for Nothing {
    fn open(&mut self, _number: usize, _job: JobId) -> Result<OpenedImage, String> {
        Err("there are no images".to_owned())
    }

    fn remark(&mut self, _number: usize, _remark: &str) {}
}

/// A worker, for one pass.
pub async fn help(node: &Node) -> Result<(), Stop> {
    let (context, scratch) = (node.context(), tempfile::tempdir()?);
    let takes = Takes { batches: false, checks: false, passes: true };
    let poll = Duration::from_secs(node.pick(&[1, 4, 10]));
    let options = WorkOptions { takes, poll, ..crate::fleet::options("helper", scratch.path()) };
    let all = Arc::new(Mutex::new(Copied::default()));
    let seen = all.clone();
    let mut watch = move |event: WorkEvent<'_>| {
        if let WorkEvent::Copied(_, copied) = event {
            let mut all = seen.lock();
            all.tasks += copied.tasks;
            all.failed += copied.failed;
        }
    };
    let result = Executor::stepped()
        .run(&node.repository, move |io| work(&context.on(&io.executor), &[], &mut Nothing, &options, true, &mut watch))
        .await;
    node.ledger.add("tasks that helpers did", all.lock().tasks);
    node.ledger.add("tasks that helpers could not do", all.lock().failed);
    Ok(result?)
}

/// Backups, forgetting, a pass and a worker, and others of them.
fn situation(seed: u64) -> Situation {
    let any = Situation::draw(seed, Aim::Anything);
    let mut roles =
        vec![("L1", Role::Backs), ("L2", Role::Backs), ("G1", Role::Shares), ("W1", Role::Helps), ("F", Role::Forgets)];
    let mut dice = Rng::new(seed ^ 0x0a55);
    let more = [("W2", Role::Helps), ("G2", Role::Shares), ("C1", Role::Compacts), ("G3", Role::Collects)];
    roles.extend(more.into_iter().filter(|_| dice.one_in(3)));
    let late = |actor, before, until, percent| Ambush {
        actor,
        before,
        ending: "",
        with: "",
        not: "runs",
        percent,
        until,
        times: (1, 4),
        most: 600,
    };
    // Alone, it would have done everything before a worker looks.
    let waits = Ambush { most: 400, times: (3, 9), ..late("G", "list fleet/", Wake::Created("fleet/"), 60) };
    let ambushes = [
        // A worker that writes when the pass is over, or when its containers are deleted already.
        late("W", "create data/", Wake::Created("index/"), 10),
        late("W", "create data/", Wake::Deleted("data/"), 10),
        late("W", "create fleet/", Wake::Deleted("fleet/"), 4),
        late("W", "read fleet/", Wake::Deleted("fleet/"), 4),
        // A pass that others take for dead.
        late("G1", "create index/", Wake::Created("index/"), 20),
        late("G1", "read fleet/", Wake::Deleted("data/"), 4),
    ];
    let ambushes = ambushes.into_iter().filter(|_| dice.one_in(2)).chain([waits]).collect();
    // Versions of many blocks in few series, of which newer ones use less and less: they are rewritten.
    let habits = match dice.one_in(2) {
        true => Habits { series: 2, blocks: 24, leaves: 6, ..any.habits },
        false => any.habits,
    };
    let weather = *dice.pick(&[Weather::FINE, any.weather, any.weather]);
    Situation { weather, roles, ambushes, habits, ..any }
}

/// Of these, those that let workers come first.
fn waits(ambushes: &[Ambush]) -> Vec<Ambush> {
    ambushes.iter().filter(|ambush| ambush.before.starts_with("list fleet")).copied().collect()
}

fn run(seed: u64) -> Result<Ran, String> {
    run_in(seed, situation(seed), &[], |_| {})
}

#[test]
fn passes_with_workers_lose_nothing_whatever_happens() {
    let counts = run_some(seeds("LARDER_PASS_SEEDS", SEEDS), |seed| {
        let ran = run(seed)?;
        if std::env::var_os("LARDER_SIM_SEED").is_some() {
            println!("{}", ran.trace);
        }
        Ok(ran.counts)
    });
    println!("{counts:?}");
    if std::env::var_os("LARDER_SIM_SEED").is_none() {
        for what in [
            "passes",
            "tasks",
            "tasks of workers",
            "segments of workers",
            "chunks of workers",
            "tasks of rewrites",
            "chunks of workers in rewrites",
            "chunks copied",
            "fences",
            "forgotten",
        ] {
            assert!(counts.get(what).is_some_and(|count| *count > 0), "never happened: {what}");
        }
    }
}

fn is_shared(world: &World) -> bool {
    let is_task = |name: &String| matches!(names::parse_fleet(name), Some((_, FleetObject::Range(_))));
    world.names_below(names::FLEET).iter().any(is_task)
}

/// `kill -9` of a worker, and of the process that makes the pass, after each request while a pass is shared. Not each is tried,
/// unless `LARDER_FLEET_KILLS=1` says so.
#[test]
fn a_process_of_a_shared_pass_is_killed_after_each_request() {
    let every = std::env::var("LARDER_FLEET_KILLS").map_or(16, |every| every.parse().expect("a number"));
    let roles =
        [("L1", Role::Backs), ("L2", Role::Backs), ("G1", Role::Shares), ("W1", Role::Helps), ("F", Role::Forgets)];
    for victim in ["W1", "G1"] {
        let killed = AtomicU64::new(0);
        run_some((5 % every as u64..400).step_by(every).collect(), |at| {
            let seed = at % 3;
            let any = situation(seed);
            let fine =
                Situation { weather: Weather::FINE, ambushes: waits(&any.ambushes), roles: roles.to_vec(), ..any };
            let mut seen = 0;
            let ran = run_in(seed, fine, &[], |world| {
                if is_shared(world) {
                    seen += 1;
                    if seen == at + 1 {
                        world.kill(victim);
                        killed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
            ran.map(|ran| ran.counts).map_err(|error| format!("{victim}, killed after {at} requests: {error}"))
        });
        assert!(killed.into_inner() * every as u64 >= 100, "{victim} was hardly ever killed");
    }
}
