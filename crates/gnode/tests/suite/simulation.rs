//! Whole L-nodes, passes, forgets and restores over a faulty store in virtual time, one seed a run (`larder_testkit::sim`).
//!
//! The promise: whatever the store does, whoever crashes, however wrong the clocks are, at every moment every version that
//! nobody forgot restores byte for byte from what is in the store, no fenced job has a version, nothing removed comes back, and
//! in the end a pass leaves no garbage.
//!
//! Leases, looks, adoption, commit and closing are the real code of `larder_store`, formats are the real ones. In two of three runs
//! passes are the real ones, with their index, in turns with everything else (`Executor::Turns`), and give containers up; in the others
//! a small pass follows the same protocol, because it can break its rules on request. In three of four runs with the real passes one
//! series or both are of the layout `lifecycle`: passes arrange them, and what they name is looked for where the newest index says. In half of
//! the runs with the real passes somebody converts series to and fro.
//! Real backups use threads, which no seed decides
//! about; so the L-node here packs its few chunks itself. Where chunks went that were given up, it looks up by itself as well.
//!
//! A failing run tells its seed; `LARDER_SIM_SEED=<seed>` runs that one alone, with its whole trace. `LARDER_SIM_SEEDS=<n>`
//! sets how many the soak test runs (`cargo test --test suite simulation -- --ignored`).

#![allow(clippy::unwrap_used, missing_docs, unreachable_pub, reason = "a test that cannot go on fails here")]
#![allow(clippy::print_stdout, reason = "what a run found is for people")]

mod backup;
mod checks;
mod compaction;
mod converting;
mod ledger;
mod moved;
mod node;
mod pass;
mod reading;

use std::collections::BTreeMap;

use futures::FutureExt;
use larder_testkit::data::Rng;
use larder_testkit::sim::{Life, Sim, Trace, Weather};

use crate::simulation::checks::Checks;
use crate::simulation::ledger::{Broken, Ledger};
use crate::simulation::node::{Node, Stop, init};
use crate::simulation::pass::Death;

/// Steps of one run: about as many requests.
const STEPS: u64 = 3000;
/// Seeds of the normal test run.
const SEEDS: u64 = 60;

#[derive(Debug, Clone, Copy)]
enum Role {
    Backs,
    Reads,
    Forgets,
    Collects,
    /// With the small pass of this simulation, which breaks rules on request.
    CollectsSmall,
    Compacts,
    Converts,
}

/// How a run ended well.
struct Ran {
    trace: Trace,
    counts: BTreeMap<&'static str, u64>,
}

/// One process: it does its work again and again until something goes wrong, and is then started anew.
async fn live(role: Role, life: Life, ledger: Ledger, broken: Broken) -> Result<(), Stop> {
    let node = Node::start(life, &ledger, broken).await?;
    loop {
        node.pause().await;
        match role {
            Role::Backs => backup::backup(&node).await?,
            Role::Reads => reading::read(&node).await?,
            Role::Forgets => pass::forget(&node).await?,
            Role::Collects => pass::real_pass(&node, Death::Guessed).await?,
            Role::CollectsSmall => pass::pass(&node, Death::Guessed).await?,
            Role::Compacts => compaction::compact(&node).await?,
            Role::Converts => converting::convert(&node).await?,
        }
    }
}

/// Runs one seed.
fn run(seed: u64, broken: Broken) -> Result<Ran, String> {
    let mut dice = Rng::new(seed ^ 0x5eed);
    // A broken rule is broken by the small pass; else the real one has most of the runs.
    let small = dice.one_in(3) || broken != Broken::Nothing;
    let rough = Weather::ROUGH;
    let weather = match dice.below(4) {
        0 => Weather { fails: 0, fails_after: 0, hangs: 0, crashes: 10, ..rough },
        1 => Weather { fails_after: 600, hangs: 300, crashes: 10, ..rough },
        2 => Weather { crashes: 150, ..rough },
        _ => rough,
    };
    let weather = Weather { late: *dice.pick(&[10, 50, 200]), freezes: *dice.pick(&[0, 300, 1000]), ..weather };
    let mut sim = Sim::new(seed, weather);
    let world = sim.world();
    init(&world);
    let ledger = Ledger::default();
    let collects = if small { Role::CollectsSmall } else { Role::Collects };
    if !small {
        // The small pass knows nothing of layouts.
        let arranged: &[&str] = match Rng::new(seed ^ 0xa44a).below(4) {
            0 => &[],
            1 => &backup::SERIES,
            _ => &backup::SERIES[1..],
        };
        arranged.iter().for_each(|series| ledger.arranges(series));
    }
    let mut roles = vec![("L1", Role::Backs), ("L2", Role::Backs), ("G1", collects), ("F", Role::Forgets)];
    // The fewer there are, the more each gets done while another is slow.
    let compacts = dice.one_in(2);
    if compacts {
        roles.push(("C1", Role::Compacts));
    }
    // The small pass knows nothing of layouts.
    if !small && Rng::new(seed ^ 0xc04f).one_in(2) {
        roles.push(("V", Role::Converts));
    }
    let mut more = vec![("L3", Role::Backs), ("G2", collects), ("R", Role::Reads)];
    more.extend(compacts.then_some(("C2", Role::Compacts)));
    let crowded = dice.one_in(2);
    roles.extend(more.into_iter().filter(|_| crowded && !dice.one_in(3)));
    for (name, role) in roles {
        let ledger = ledger.clone();
        sim.actor(name, move |life| {
            let ledger = ledger.clone();
            let machine = life.machine.clone();
            async move {
                if let Err(stop) = live(role, life, ledger, broken).await {
                    machine.note(&format!("{name}: stops: {stop}"));
                }
            }
            .boxed_local()
        });
    }

    let keeper =
        Sim::alone(Node::start(world.outside(seed), &ledger, Broken::Nothing)).map_err(|stop| stop.to_string())?;
    let mut checks = Checks::new(keeper.repository.clone(), ledger.clone());
    let failed = |what: String, trace: &Trace| {
        let told = if std::env::var_os("LARDER_SIM_SEED").is_some() { trace.to_string() } else { String::new() };
        format!("{told}seed {seed}: {what}")
    };
    let trace = sim
        .run(STEPS, |world, step| checks.step(world, step))
        .map_err(|error| failed(format!("step {}: {}", error.step, error.what), &error.trace))?;

    // All are dead now, and it is quiet.
    Sim::alone(async { checks.end(&world) }).map_err(|what| failed(what, &trace))?;
    for _ in 0..2 {
        let quiet = async {
            match collects {
                Role::CollectsSmall => pass::pass(&keeper, Death::Certain).await,
                _ => pass::real_pass(&keeper, Death::Certain).await,
            }
        };
        Sim::alone(quiet).map_err(|stop| failed(format!("quiet pass: {stop}"), &trace))?;
        Sim::alone(async { checks.end(&world) })
            .map_err(|what| failed(format!("after a quiet pass: {what}"), &trace))?;
        if !small {
            Sim::alone(pass::index_agrees(&keeper)).map_err(|what| failed(what, &trace))?;
        }
    }
    let (there, referenced) = Sim::alone(async { checks.containers(&world) }).map_err(|what| failed(what, &trace))?;
    if there != referenced {
        let garbage: Vec<_> = there.difference(&referenced).collect();
        return Err(failed(format!("garbage that no pass collects: {garbage:?}"), &trace));
    }
    Ok(Ran { trace, counts: ledger.counts() })
}

/// The seeds that are asked for, or these.
fn seeds(variable: &str, default: u64) -> Vec<u64> {
    let asked = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match asked("LARDER_SIM_SEED") {
        Some(seed) => vec![seed],
        None => (0..asked(variable).unwrap_or(default)).collect(),
    }
}

fn run_all(seeds: Vec<u64>) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    for seed in seeds {
        let ran = run(seed, Broken::Nothing).unwrap_or_else(|failed| panic!("{failed}"));
        for (what, count) in ran.counts {
            *counts.entry(what).or_default() += count;
        }
    }
    counts
}

#[test]
fn nothing_is_lost_whatever_happens() {
    let counts = run_all(seeds("", SEEDS));
    println!("{counts:?}");
    if std::env::var_os("LARDER_SIM_SEED").is_none() {
        let witnesses = [
            "committed",
            "on a base",
            "adopted",
            "fenced",
            "fences",
            "forgotten",
            "passes",
            "compacted",
            "compaction fenced",
            "superseded",
            "containers collected",
            "containers given up",
            "given up in part",
            "chunks led",
            "chunks copied",
            "chunks dropped",
            "jobs removed",
            "versions arranged",
            "chunks moved",
            "containers arranged",
            "arranging stopped",
            "on two bases",
            "converted",
            "converted back",
            "shared while converting",
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
        let [one, other] = [(); 2].map(|()| run(seed, Broken::Nothing).unwrap_or_else(|failed| panic!("{failed}")));
        assert_eq!(one.trace.hash(), other.trace.hash(), "seed {seed}");
        assert_eq!(one.trace, other.trace, "seed {seed}");
    }
    let [one, other] = [6, 7].map(|seed| run(seed, Broken::Nothing).unwrap_or_else(|failed| panic!("{failed}")));
    assert_ne!(one.trace.hash(), other.trace.hash());
}

/// Within so many seeds the simulation finds that a rule is broken.
#[track_caller]
fn is_found(broken: Broken, within: u64) {
    let found = seeds("", within).into_iter().find_map(|seed| run(seed, broken).err());
    println!("{broken:?}: {found:?}");
    assert!(found.is_some(), "{broken:?} is not found within {within} seeds");
}

#[test]
fn broken_rules_are_found() {
    is_found(Broken::CommitBeforeDurable, SEEDS);
    is_found(Broken::CloseUnanswered, SEEDS);
    is_found(Broken::NoFence, SEEDS);
    is_found(Broken::VersionsBeforeLeases, SEEDS);
    is_found(Broken::PinsIgnored, 5 * SEEDS);
    is_found(Broken::MarkRemovedFirst, SEEDS);
    is_found(Broken::NoFenceOfTasks, 5 * SEEDS);
}

/// These need several coincidences in one run: found in about one run of a hundred, or less.
#[test]
#[ignore = "minutes"]
fn rarer_losses_are_found() {
    is_found(Broken::LookBeforeLease, 3000);
    is_found(Broken::AdoptUnseen, 3000);
    is_found(Broken::MarksAfterLeases, 3000);
    is_found(Broken::AdoptionIgnored, 3000);
}
