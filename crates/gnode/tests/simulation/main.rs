//! Whole L-nodes, passes, forgets and restores over a faulty store in virtual time, one seed a run (`larder_testkit::sim`).
//!
//! The promise: whatever the store does, whoever crashes, however wrong the clocks are, at every moment every version that
//! nobody forgot restores byte for byte from what is in the store, no fenced job has a version, nothing removed comes back, and
//! in the end a pass leaves no garbage.
//!
//! Everything that is under test is real: backups, restores, dumps, forgetting, passes with all their tasks, compactions,
//! conversions and rebuilds of the index. They run in turns (`Executor::stepped`): each waits only for its requests, and the scheduler
//! decides from the seed what becomes of them. So one seed is one run. What versions must hold is looked up by a small reader of its
//! own (`reading`, `moved`), which takes nothing for granted that the real one does.
//!
//! Containers are small here, and chunks are blocks of one size, so that few bytes make many containers.
//!
//! A failing run tells its seed; `LARDER_SIM_SEED=<seed>` runs that one alone, with its whole trace; `LARDER_SIM_AIM=<aim>` makes all
//! seeds be about one thing (`situation`). `LARDER_SIM_SEEDS=<n>` sets how many there are (`cargo test -p larder-gnode --test simulation`; the soak: `-- --ignored soak`).

#![allow(clippy::unwrap_used, missing_docs, unreachable_pub, reason = "a test that cannot go on fails here")]
#![allow(clippy::print_stdout, reason = "what a run found is for people")]

mod accidents;
mod backup;
mod checks;
mod fleet;
mod ledger;
mod maintenance;
mod moved;
mod node;
mod pass_workers;
mod reading;
mod rules;
mod situation;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use futures::FutureExt;
use larder_format::names;
use larder_store::rules::Rule;
use larder_testkit::sim::{Life, Sim, Trace, World};
use parking_lot::Mutex;

use crate::accidents::Accidents;
use crate::checks::Checks;
use crate::ledger::Ledger;
use crate::maintenance::Death;
use crate::node::{Node, Stop, init};
use crate::situation::{Aim, Habits, Role, Situation, hesitation};

/// Steps of one run: about as many requests.
const STEPS: u64 = 3000;
/// Seeds of the normal test run.
const SEEDS: u64 = 60;

/// How a run ended well.
struct Ran {
    trace: Trace,
    counts: BTreeMap<&'static str, u64>,
}

/// One process: it does its work again and again until something goes wrong, and is then started again.
async fn live(role: Role, life: Life, ledger: Ledger, habits: Habits, broken: Vec<Rule>) -> Result<(), Stop> {
    let node = Node::start(life, &ledger, habits, &broken).await?;
    loop {
        node.pause().await;
        match role {
            Role::Backs => backup::backup(&node).await?,
            Role::Reads => reading::read(&node).await?,
            Role::Forgets => maintenance::forget(&node).await?,
            Role::Collects => maintenance::collect(&node, Death::Guessed, true).await?,
            Role::Tidies => maintenance::collect(&node, Death::Guessed, false).await?,
            Role::Shares => pass_workers::share(&node).await?,
            Role::Helps => pass_workers::help(&node).await?,
            Role::Compacts => maintenance::compact(&node).await?,
            Role::Converts => maintenance::convert(&node).await?,
            Role::Rebuilds => maintenance::rebuild(&node, Death::Guessed).await?,
        }
    }
}

/// Runs one seed.
fn run(seed: u64, aim: Aim, broken: &[Rule]) -> Result<Ran, String> {
    run_in(seed, Situation::draw(seed, aim), broken, |_| {})
}

/// Runs one seed in this situation. `between` may do something after each step.
fn run_in(seed: u64, situation: Situation, broken: &[Rule], mut between: impl FnMut(&World)) -> Result<Ran, String> {
    let Situation { aim, weather, careful, roles, ambushes, habits, accident, arranged, echoes } = situation;
    let mut sim = Sim::new(seed, weather);
    let world = sim.world();
    world.set_hesitation(move |request| careful * hesitation(request));
    init(&world);
    world.set_ambushes(ambushes);
    echoes.into_iter().for_each(|(begin, percent)| world.set_echoes(begin, percent));
    let ledger = Ledger::default();
    arranged.iter().for_each(|series| ledger.arranges(series));
    for (name, role) in roles {
        let (ledger, broken) = (ledger.clone(), broken.to_vec());
        sim.actor(name, move |life| {
            let (ledger, broken) = (ledger.clone(), broken.clone());
            let machine = life.machine.clone();
            async move {
                if let Err(stop) = live(role, life, ledger, habits, broken).await {
                    machine.note(&format!("{name}: stops: {stop}"));
                }
            }
            .boxed_local()
        });
    }

    let keeper = Sim::alone(Node::start(world.outside(seed), &ledger, habits, &[])).map_err(|stop| stop.to_string())?;
    let accidents = Accidents::new(accident, seed, &world);
    let mut checks = Checks::new(keeper.repository.clone(), ledger.clone(), accidents);
    let failed = |what: String, trace: &Trace| {
        let told = if std::env::var_os("LARDER_SIM_SEED").is_some() { trace.to_string() } else { String::new() };
        format!("{told}seed {seed} ({aim:?}): {what}")
    };
    let trace = sim
        .run(STEPS, |world, step| {
            between(world);
            checks.step(world, step)
        })
        .map_err(|error| failed(format!("step {}: {}", error.step, error.what), &error.trace))?;

    // All are dead now, and it is quiet.
    world.set_overwrites(false);
    Sim::alone(async { checks.end(&world) }).map_err(|what| failed(what, &trace))?;
    if checks.is_version_lost() {
        return Ok(Ran { trace, counts: ledger.counts() });
    }
    let is_rebuilt = ledger.counts().contains_key("rebuilt") || ledger.counts().contains_key("rebuilt by passes");
    if is_rebuilt || checks.is_index_lost() {
        // What it led to may have gone since. Now nothing goes any more.
        Sim::alone(maintenance::rebuild(&keeper, Death::Certain))
            .map_err(|stop| failed(format!("quiet rebuild: {stop}"), &trace))?;
    }
    for _ in 0..2 {
        let quiet = maintenance::collect(&keeper, Death::Certain, true);
        Sim::alone(quiet).map_err(|stop| failed(format!("quiet pass: {stop}"), &trace))?;
        Sim::alone(async { checks.end(&world) })
            .map_err(|what| failed(format!("after a quiet pass: {what}"), &trace))?;
        Sim::alone(maintenance::index_agrees(&keeper)).map_err(|what| failed(what, &trace))?;
    }
    let (there, referenced) = Sim::alone(async { checks.containers(&world) }).map_err(|what| failed(what, &trace))?;
    let claimants = Sim::alone(maintenance::claimants(&keeper)).map_err(|stop| failed(stop.to_string(), &trace))?;
    let is_claimed = |name: &&String| names::parse_container(name).is_some_and(|id| claimants.contains(&id.job));
    let garbage: Vec<_> = there.difference(&referenced).filter(|name| !is_claimed(name)).collect();
    if !garbage.is_empty() {
        return Err(failed(format!("garbage that no pass collects: {garbage:?}"), &trace));
    }
    if let Some(lost) = referenced.difference(&there).next() {
        return Err(failed(format!("{lost} is referenced, and it is gone"), &trace));
    }
    Ok(Ran { trace, counts: ledger.counts() })
}

/// What a seed is about, if it is not said.
fn aim(seed: u64) -> Aim {
    let asked = std::env::var("LARDER_SIM_AIM").ok().and_then(|name| Aim::named(&name));
    asked.unwrap_or_else(|| Aim::of_seed(seed))
}

/// The seeds that are asked for, or these.
fn seeds(variable: &str, default: u64) -> Vec<u64> {
    let asked = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match asked("LARDER_SIM_SEED") {
        Some(seed) => vec![seed],
        None => {
            let first = asked("LARDER_SIM_FIRST").unwrap_or(0);
            (first..first + asked(variable).unwrap_or(default)).collect()
        }
    }
}

/// Runs these seeds, several at a time.
fn run_all(seeds: Vec<u64>) -> BTreeMap<&'static str, u64> {
    run_some(seeds, |seed| {
        let ran = run(seed, aim(seed), &[])?;
        if std::env::var_os("LARDER_SIM_SEED").is_some() {
            println!("{}", ran.trace);
        }
        Ok(ran.counts)
    })
}

/// Runs seeds of any kind, several at a time. Returns the sums of what they counted.
fn run_some(
    seeds: Vec<u64>,
    run: impl Fn(u64) -> Result<BTreeMap<&'static str, u64>, String> + Sync,
) -> BTreeMap<&'static str, u64> {
    let next = AtomicUsize::new(0);
    let (counts, failures) = (Mutex::new(BTreeMap::new()), Mutex::new(Vec::new()));
    let work = || {
        while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
            match run(*seed) {
                Ok(ran) => {
                    let mut counts = counts.lock();
                    ran.into_iter().for_each(|(what, count)| *counts.entry(what).or_default() += count);
                }
                Err(failed) => failures.lock().push(failed),
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get).min(seeds.len());
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let failures = failures.into_inner();
    assert!(failures.is_empty(), "{} of {} seeds fail:\n{}", failures.len(), seeds.len(), failures.join("\n"));
    counts.into_inner()
}

#[test]
fn nothing_is_lost_whatever_happens() {
    let counts = run_all(seeds("LARDER_SIM_SEEDS", SEEDS));
    println!("{counts:?}");
    if ["LARDER_SIM_SEED", "LARDER_SIM_AIM"].iter().all(|name| std::env::var_os(name).is_none()) {
        let witnesses = [
            "committed",
            "sharing",
            "on a base",
            "on a base of another series",
            "adopted",
            "interrupted",
            "fenced",
            "fences",
            "forgotten",
            "passes",
            "compacted",
            "compaction overtaken",
            "containers collected",
            "containers retired",
            "chunks led",
            "chunks copied",
            "chunks dropped",
            "entries removed",
            "kept for a lease",
            "versions arranged",
            "chunks moved",
            "containers arranged",
            "arranging stopped",
            "converted",
            "converted back",
            "shared while converting",
            "rebuilt",
            "led by a rebuild",
            "restored",
        ];
        let missing: Vec<_> = witnesses.iter().filter(|what| !counts.contains_key(*what)).collect();
        assert!(missing.is_empty(), "never happened: {missing:?}");
    }
}

#[test]
#[ignore = "hours; LARDER_SIM_SEEDS says how many seeds"]
fn soak() {
    println!("{:?}", run_all(seeds("LARDER_SIM_SEEDS", 100_000)));
}

#[test]
fn one_seed_is_one_run() {
    for seed in [3, 4, 5] {
        let [one, other] = [(); 2].map(|()| run(seed, aim(seed), &[]).unwrap_or_else(|failed| panic!("{failed}")));
        assert_eq!(one.trace.hash(), other.trace.hash(), "seed {seed}");
        assert_eq!(one.trace, other.trace, "seed {seed}");
    }
    let [one, other] = [6, 7].map(|seed| run(seed, aim(seed), &[]).unwrap_or_else(|failed| panic!("{failed}")));
    assert_ne!(one.trace.hash(), other.trace.hash());
}

/// In which of the first seeds a broken rule is found: several at a time, until it was found `times` times. The seed that found it
/// last is the first of them.
fn hunt(rule: Rule, within: u64, times: usize) -> (u64, Vec<(u64, String)>) {
    let (twin, last) = (rules::twin(rule), rules::last_seed(rule));
    let all: Vec<Rule> = [rule].into_iter().chain(twin).collect();
    let (next, found) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    let work = || {
        while found.lock().len() < times {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= within {
                return;
            }
            // The last time's seed, and then all others in order.
            let seed = match number {
                0 => last,
                number if number <= last => number - 1,
                number => number,
            };
            let aim = Aim::of_rule(rule);
            if let Err(what) = run(seed, aim, &all) {
                // It is the rule that was missed, and nothing else.
                if let Err(what) = run(seed, aim, &[]) {
                    panic!("with all rules: {what}");
                }
                if twin.is_none_or(|twin| run(seed, aim, &[twin]).is_ok()) {
                    found.lock().push((seed, what));
                }
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let mut found = found.into_inner();
    found.sort();
    (next.into_inner().min(within), found)
}

#[test]
#[ignore = "minutes"]
fn every_broken_rule_is_found() {
    let times = std::env::var("LARDER_SIM_TIMES").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let within = std::env::var("LARDER_SIM_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(rules::SEEDS);
    let mut missed = Vec::new();
    for rule in rules::asked() {
        let (tried, found) = hunt(rule, within, times);
        let first = found.first().map(|(_, what)| what.as_str()).unwrap_or("not found");
        let seed = found.first().map_or_else(String::new, |(seed, _)| format!(", seed {seed}"));
        println!("{rule:?}{seed}: {} of {tried}: {first}", found.len());
        if found.is_empty() {
            missed.push(rule);
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn no_rule_is_in_two_lists() {
    let mut all: Vec<_> =
        rules::RULES.iter().chain(rules::UNSEEN).chain(rules::WITHOUT_SWITCH).map(|rule| format!("{rule:?}")).collect();
    all.sort();
    let count = all.len();
    all.dedup();
    assert_eq!(all.len(), count);
}

/// Those of them that nearly every run shows.
#[test]
fn broken_rules_are_found() {
    for rule in [Rule::DurableFirst, Rule::Fence, Rule::UnsettledKept, Rule::MarkRemovedLast] {
        let (tried, found) = hunt(rule, SEEDS, 1);
        assert!(!found.is_empty(), "{rule:?} is not found in {tried} seeds");
    }
}
