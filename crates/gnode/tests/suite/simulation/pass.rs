//! A collecting pass as `docs/concurrency.md` has it, and nothing more: list, fence, list, decide, publish, delete.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use larder_format::compress::Compression;
use larder_format::ids::{JobId, SeriesKey};
use larder_format::lease::{JobKind, Lease, Pin};
use larder_format::manifest::{MANIFEST_MAX, Manifest, Register, encode_aborted};
use larder_format::mark::Forgotten;
use larder_format::names::{self, LeaseObject};
use larder_gnode::arranging::{ArrangeOptions, Arranged};
use larder_gnode::giving_up::{Exact, GiveUpOptions, GivenUp, Unused};
use larder_gnode::pass::{Executor, Listing, Outcome, PassError, PassOptions, Surroundings};
use larder_gnode::repair::compare;
use larder_store::repository::random;
use larder_store::{Store, StoreErrorKind};
use larder_testkit::data::Rng;
use parking_lot::Mutex;

use crate::simulation::ledger::Broken;
use crate::simulation::node::{Node, Stop};

const INDEX: &str = "index/";

/// How a pass finds out that a job is dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Death {
    /// By a clock that may be wrong: any job may be taken for dead.
    Guessed,
    /// All jobs are.
    Certain,
}

#[derive(Debug, Default, Clone)]
struct Leases {
    renewals: BTreeSet<u32>,
    done: bool,
}

/// Every generation of every version.
type Registers = BTreeSet<(SeriesKey, JobId, u32)>;

/// What listings showed.
#[derive(Debug, Default)]
struct Listed {
    jobs: BTreeMap<JobId, Leases>,
    registers: Registers,
    marks: BTreeSet<(SeriesKey, JobId)>,
    /// Compactions whose generation is there.
    settled_tasks: BTreeSet<JobId>,
    /// The newest generation of each version that has several.
    newest: BTreeMap<(SeriesKey, JobId), u32>,
}

/// What is to be deleted.
#[derive(Debug, Default)]
struct Decision {
    containers: Vec<String>,
    /// Of these jobs everything goes: leases, register, `done`, mark.
    jobs: Vec<(JobId, Leases, Option<SeriesKey>)>,
    /// Of these only the leases.
    leases: Vec<(JobId, Leases)>,
    marks: Vec<(SeriesKey, JobId)>,
    /// Generations of versions that are gone.
    generations: Vec<(SeriesKey, JobId, u32)>,
    /// Later generations of versions, which go with them.
    later: BTreeMap<JobId, BTreeSet<u32>>,
}

/// One pass from begin to end.
pub async fn pass(node: &Node, death: Death) -> Result<(), Stop> {
    let store = node.repository.store().without_cache();
    let newest = newest_index(&store).await?;

    let mut before = Listed {
        marks: marks(&store).await?,
        registers: registers(&store).await?,
        jobs: leases(&store).await?,
        ..Listed::default()
    };
    let mut taken_for_dead = BTreeSet::new();
    fence(node, &store, death, &mut before, &mut taken_for_dead).await?;
    before.newest = newest_generations(node, &store, &before.registers).await?;
    let mut containers = Vec::new();
    for folder in [names::DATA, names::META] {
        containers.extend(store.list(folder).await?.into_iter().map(|object| object.name));
    }
    // Everything above was seen before the leases below.
    node.linger().await;
    let jobs = leases(&store).await?;
    let live = live(node, &store, death, &before, &jobs, &taken_for_dead).await?;
    node.linger().await;
    if node.broken == Broken::MarksAfterLeases {
        before.marks = marks(&store).await?;
    }
    let registers = match node.broken {
        Broken::VersionsBeforeLeases => before.registers.clone(),
        _ => registers(&store).await?,
    };
    let decision = decide(node, &store, &before, &jobs, &registers, &live, &taken_for_dead, containers).await?;

    node.linger().await;
    let next = newest + 1;
    store.create(&format!("{INDEX}{next}"), random::<16>(node.repository.entropy())?.to_vec().into()).await?;
    if newest_index(&store).await? != next {
        return Ok(());
    }
    node.ledger.count("passes");
    for old in 1..next {
        if node.one_in(2) {
            store.delete(&format!("{INDEX}{old}")).await?;
        }
    }
    node.linger().await;
    carry_out(node, &store, decision).await
}

async fn newest_index(store: &Store) -> Result<u64, Stop> {
    let numbers = store.list(INDEX).await?;
    let numbers = numbers.iter().filter_map(|object| object.name.strip_prefix(INDEX)?.parse().ok());
    Ok(numbers.max().unwrap_or(0))
}

async fn registers(store: &Store) -> Result<Registers, Stop> {
    let listed = store.list(names::VERSIONS).await?;
    Ok(listed.iter().filter_map(|object| names::parse_version(&object.name)).collect())
}

async fn marks(store: &Store) -> Result<BTreeSet<(SeriesKey, JobId)>, Stop> {
    let listed = store.list(names::FORGOTTEN).await?;
    Ok(listed.iter().filter_map(|object| names::parse_forgotten(&object.name)).collect())
}

async fn leases(store: &Store) -> Result<BTreeMap<JobId, Leases>, Stop> {
    let mut jobs: BTreeMap<JobId, Leases> = BTreeMap::new();
    for object in store.list(names::JOBS).await? {
        match names::parse_lease(&object.name) {
            Some((job, LeaseObject::Done)) => jobs.entry(job).or_default().done = true,
            Some((job, LeaseObject::Renewal(number))) => drop(jobs.entry(job).or_default().renewals.insert(number)),
            None => {}
        }
    }
    Ok(jobs)
}

async fn read_lease(node: &Node, store: &Store, job: JobId, leases: &Leases) -> Result<Lease, Stop> {
    let renewal = *leases.renewals.last().ok_or("a job without any renewal")?;
    let bytes = store.get(&names::lease(job, renewal)).await?;
    Ok(Lease::decode(node.repository.keys(), job, renewal, &bytes)?)
}

fn is_settled(before: &Listed, job: JobId) -> bool {
    let is_version = before.registers.iter().any(|(_, decided, generation)| *decided == job && *generation == 0);
    is_version || before.settled_tasks.contains(&job) || before.jobs.get(&job).is_some_and(|job| job.done)
}

/// Creates `aborted` in the registers of jobs that are thought dead.
async fn fence(
    node: &Node,
    store: &Store,
    death: Death,
    before: &mut Listed,
    taken_for_dead: &mut BTreeSet<JobId>,
) -> Result<(), Stop> {
    let open: Vec<_> = before.jobs.iter().map(|(job, leases)| (*job, leases.clone())).collect();
    for (job, leases) in open {
        if is_settled(before, job) {
            continue;
        }
        let dies = death == Death::Certain || node.one_in(3);
        let lease = read_lease(node, store, job, &leases).await?;
        let (series, of, generation) = match (lease.kind, lease.pins.first(), lease.generation) {
            (JobKind::Backup, _, _) => (node.repository.keys().series_key(&lease.series), job, 0),
            (JobKind::Task, Some(pin), Some(generation)) => (pin.series, pin.job, generation),
            _ => continue,
        };
        if !before.registers.contains(&(series, of, generation)) {
            if !dies {
                continue;
            }
            let unfenced = match lease.kind {
                JobKind::Task => Broken::NoFenceOfTasks,
                _ => Broken::NoFence,
            };
            if node.broken == unfenced {
                taken_for_dead.insert(job);
                continue;
            }
            let salt = random(node.repository.entropy())?;
            let aborted = encode_aborted(node.repository.keys(), series, of, generation, salt);
            match store.create(&names::version(series, of, generation), aborted.into()).await {
                Ok(_) => node.ledger.count("fences"),
                Err(error) if error.kind == StoreErrorKind::AlreadyExists => {}
                Err(error) => return Err(error.into()),
            }
            before.registers.insert((series, of, generation));
        }
        if lease.kind == JobKind::Task {
            before.settled_tasks.insert(job);
        }
    }
    Ok(())
}

/// The highest generation of each version that holds a manifest.
async fn newest_generations(
    node: &Node,
    store: &Store,
    registers: &Registers,
) -> Result<BTreeMap<(SeriesKey, JobId), u32>, Stop> {
    let mut newest: BTreeMap<_, u32> = BTreeMap::new();
    for (series, job, generation) in registers.iter().filter(|register| register.2 > 0) {
        let register = read_register(node, store, *series, *job, *generation).await?;
        if let Register::Committed(_) = register {
            let highest = newest.entry((*series, *job)).or_default();
            *highest = (*highest).max(*generation);
        }
    }
    Ok(newest)
}

async fn read_register(
    node: &Node,
    store: &Store,
    series: SeriesKey,
    job: JobId,
    generation: u32,
) -> Result<Register<Manifest>, Stop> {
    let bytes = store.get_up_to(&names::version(series, job, generation), MANIFEST_MAX).await?;
    Ok(Manifest::decode(node.repository.keys(), series, job, generation, &bytes)?)
}

/// The leases that count.
async fn live(
    node: &Node,
    store: &Store,
    death: Death,
    before: &Listed,
    jobs: &BTreeMap<JobId, Leases>,
    taken_for_dead: &BTreeSet<JobId>,
) -> Result<BTreeMap<JobId, Lease>, Stop> {
    let mut live = BTreeMap::new();
    for (job, leases) in jobs {
        if leases.done || is_settled(before, *job) || taken_for_dead.contains(job) {
            continue;
        }
        let lease = read_lease(node, store, *job, leases).await?;
        if lease.kind == JobKind::Read && (death == Death::Certain || node.one_in(6)) {
            node.ledger.takes_reader_for_expired(*job);
            continue;
        }
        live.insert(*job, lease);
    }
    Ok(live)
}

#[expect(clippy::too_many_arguments, reason = "each is one of the listings of the protocol")]
async fn decide(
    node: &Node,
    store: &Store,
    before: &Listed,
    jobs: &BTreeMap<JobId, Leases>,
    registers: &Registers,
    live: &BTreeMap<JobId, Lease>,
    taken_for_dead: &BTreeSet<JobId>,
    containers: Vec<String>,
) -> Result<Decision, Stop> {
    let pinned: BTreeSet<(SeriesKey, JobId)> =
        live.values().flat_map(|lease| &lease.pins).map(|pin| (pin.series, pin.job)).collect();
    let adopted: BTreeSet<JobId> = live.values().flat_map(|lease| &lease.adopts).map(|pin| pin.job).collect();

    let (mut referenced, mut retained) = (BTreeSet::new(), BTreeSet::new());
    for (series, job, generation) in registers {
        let named = pinned.contains(&(*series, *job));
        let pinned = named && node.broken != Broken::PinsIgnored;
        // A generation of a version that is gone is garbage.
        let is_version = registers.contains(&(*series, *job, 0));
        if !is_version || before.marks.contains(&(*series, *job)) && !pinned {
            continue;
        }
        let newest = before.newest.get(&(*series, *job)).copied().unwrap_or(0);
        if let Register::Committed(manifest) = read_register(node, store, *series, *job, *generation).await? {
            retained.insert(*job);
            if *generation < newest && !named {
                node.ledger.count("superseded");
                continue;
            }
            referenced.extend(manifest.containers.iter().map(|usage| names::container(usage.container)));
        }
    }

    let settled = |job: JobId| is_settled(before, job) || taken_for_dead.contains(&job);
    let mut decision = Decision::default();
    for name in containers {
        let Some(id) = names::parse_container(&name) else { continue };
        let free = settled(id.job) || !jobs.contains_key(&id.job);
        let kept = adopted.contains(&id.job) && node.broken != Broken::AdoptionIgnored;
        if free && !kept && !referenced.contains(&name) {
            decision.containers.push(name);
        }
    }
    let series_of = |job: JobId| {
        let versions = before.registers.iter().chain(registers).map(|(series, job, _)| (*series, *job));
        let mut known = versions.chain(before.marks.iter().copied());
        known.find(|(_, other)| *other == job).map(|(series, _)| series)
    };
    for (job, leases) in jobs {
        let expired_reader = !leases.done && !settled(*job) && !live.contains_key(job);
        if settled(*job) && leases.done && !retained.contains(job) {
            decision.jobs.push((*job, leases.clone(), series_of(*job)));
        } else if settled(*job) || expired_reader {
            decision.leases.push((*job, leases.clone()));
        }
    }
    for (series, job) in &before.marks {
        if !jobs.contains_key(job) && !registers.contains(&(*series, *job, 0)) {
            decision.marks.push((*series, *job));
        }
    }
    for (series, job, generation) in registers.iter().filter(|register| register.2 > 0) {
        // Generation 0 is gone for good: it was there when the task looked.
        if !before.registers.contains(&(*series, *job, 0)) && before.registers.contains(&(*series, *job, *generation)) {
            decision.generations.push((*series, *job, *generation));
        } else {
            decision.later.entry(*job).or_default().insert(*generation);
        }
    }
    Ok(decision)
}

async fn carry_out(node: &Node, store: &Store, decision: Decision) -> Result<(), Stop> {
    for name in node.shuffled(decision.containers) {
        store.delete(&name).await?;
        node.ledger.count("containers collected");
    }
    for (job, leases) in decision.leases {
        remove_leases(store, job, &leases).await?;
    }
    for (job, leases, series) in node.shuffled(decision.jobs) {
        if let (Some(series), Broken::MarkRemovedFirst) = (series, node.broken) {
            store.delete(&names::forgotten(series, job)).await?;
        }
        remove_leases(store, job, &leases).await?;
        if let Some(series) = series {
            store.delete(&names::version(series, job, 0)).await?;
            for generation in decision.later.get(&job).into_iter().flatten() {
                store.delete(&names::version(series, job, *generation)).await?;
            }
        }
        store.delete(&names::lease_done(job)).await?;
        if let Some(series) = series {
            store.delete(&names::forgotten(series, job)).await?;
            node.ledger.count("jobs removed");
        }
    }
    for (series, job, generation) in decision.generations {
        store.delete(&names::version(series, job, generation)).await?;
    }
    for (series, job) in decision.marks {
        store.delete(&names::forgotten(series, job)).await?;
    }
    Ok(())
}

/// `jobs/<job>/0` first: it is what adopters look at last.
async fn remove_leases(store: &Store, job: JobId, leases: &Leases) -> Result<(), Stop> {
    store.delete(&names::lease(job, 0)).await?;
    for renewal in &leases.renewals {
        store.delete(&names::lease(job, *renewal)).await?;
    }
    Ok(())
}

/// Seconds for which no process of a simulation lives.
const PATIENT: u64 = 1_000_000;

fn surroundings(node: &Node, death: Death) -> Surroundings {
    let dice = Mutex::new(Rng::new(node.rng().next_u64()));
    let clock = AtomicU64::new(node.now_ms());
    Surroundings {
        repository: node.repository.clone(),
        now_ms: Arc::new(move || clock.fetch_add(1000, Ordering::Relaxed)),
        // Interrupted now and then, at any place where it asks.
        stop: Arc::new(move || death == Death::Guessed && dice.lock().one_in(300)),
        host: "collector".to_owned(),
        program: "simulation".to_owned(),
        process: 1,
        executor: Executor::Turns,
    }
}

/// Whether the index says of containers and versions what is so.
pub async fn index_agrees(node: &Node) -> Result<(), String> {
    let surroundings = surroundings(node, Death::Certain);
    let (number, agreement) = compare(&surroundings).await.map_err(|error| error.to_string())?;
    match agreement.count {
        0 => Ok(()),
        _ => Err(format!("index {number}: {:?}", agreement.disagreements)),
    }
}

/// One pass of the real G-node.
pub async fn real_pass(node: &Node, death: Death) -> Result<(), Stop> {
    let surroundings = surroundings(node, death);
    let seconds = match death {
        Death::Certain => 0,
        Death::Guessed => *node.rng().pick(&[0, 20, 100, 400, PATIENT, PATIENT, PATIENT]),
    };
    // What arrived late is found only by listing everything.
    let listing = match death {
        Death::Certain => Listing::Whole,
        Death::Guessed => *node.rng().pick(&[Listing::New, Listing::New, Listing::Auto]),
    };
    let unused = Unused::OfContainer(*node.rng().pick(&[1, 20, 60]));
    let exact = *node.rng().pick(&[Exact::Never, Exact::WhenWorth, Exact::Always]);
    let max_rewrite = match death {
        Death::Certain => None,
        Death::Guessed => *node.rng().pick(&[None, None, None, Some(20_000)]),
    };
    let max_duration = match death {
        Death::Certain => None,
        Death::Guessed => node.rng().pick(&[None, None, None, Some(5), Some(30)]).map(Duration::from_secs),
    };
    let give_up = Some(GiveUpOptions { unused, exact, max_rewrite, compression: Compression::Off });
    let every = *node.rng().pick(&[1, 1, 2, 3, 5]);
    let arrange = ArrangeOptions {
        // In the end nothing is left over, so that what nobody needs can be told from what some need.
        holes_percent: Some(if death == Death::Certain { 0.0 } else { *node.rng().pick(&[0.0, 20.0, 60.0]) }),
        every: Some(every),
        all: death == Death::Certain || node.one_in(4),
        compression: Compression::Off,
    };
    let arrange = (death == Death::Certain || !node.one_in(4)).then_some(arrange);
    let dead_after = Duration::from_secs(seconds);
    let options = PassOptions { dead_after, listing, give_up, arrange, max_duration, ..PassOptions::default() };
    let _impatient = (seconds < PATIENT).then(|| node.ledger.impatient());
    match larder_gnode::pass::run(&surroundings, &options).await {
        Ok(report) => {
            if let Outcome::Published(_) = report.outcome {
                node.ledger.count("passes");
            }
            report.plan.fenced.iter().for_each(|_| node.ledger.count("fences"));
            (0..report.done.containers).for_each(|_| node.ledger.count("containers collected"));
            let GivenUp { plan, led_chunks, copied_chunks, dropped_chunks, unreadable, was_stopped: is_part, .. } =
                &report.given_up;
            let counts = [
                ("given up in part", u64::from(*is_part && plan.containers > 0)),
                ("containers given up", plan.containers),
                ("chunks led", *led_chunks),
                ("chunks copied", *copied_chunks),
                ("chunks dropped", *dropped_chunks),
            ];
            for (what, count) in counts.into_iter().filter(|_| matches!(report.outcome, Outcome::Published(_))) {
                (0..count).for_each(|_| node.ledger.count(what));
            }
            let Arranged { versions, moved_chunks, given_up, unreadable: unarranged, was_stopped, .. } =
                &report.arranged;
            let of_arranging = [
                ("versions arranged", *versions),
                ("chunks moved", *moved_chunks),
                ("containers arranged", *given_up),
                ("arranging stopped", u64::from(*was_stopped)),
            ];
            for (what, count) in of_arranging.into_iter().filter(|_| matches!(report.outcome, Outcome::Published(_))) {
                (0..count).for_each(|_| node.ledger.count(what));
            }
            if death == Death::Certain && !(unreadable.is_empty() && unarranged.is_empty()) {
                node.ledger.is_wrong(format!("a quiet pass cannot read {unreadable:?} {unarranged:?}"));
            }
            report.kept.iter().for_each(|_| node.ledger.count("kept for a lease"));
            Ok(())
        }
        // Nothing is damaged here, so whatever cannot be read was never whole.
        Err(error @ (PassError::UnreadableManifest { .. } | PassError::UnreadableLease { .. })) => {
            node.ledger.is_wrong(format!("a pass: {error}"));
            Err(error.into())
        }
        Err(error) => Err(error.into()),
    }
}

/// Forgets some version.
pub async fn forget(node: &Node) -> Result<(), Stop> {
    let store = node.repository.store().without_cache();
    let marked = marks(&store).await?;
    let all = registers(&store).await?;
    let versions = all.into_iter().filter(|(_, _, generation)| *generation == 0);
    let mut versions: Vec<_> = versions.map(|(series, job, _)| (series, job)).collect();
    versions.retain(|version| !marked.contains(version));
    if versions.len() < 4 {
        return Ok(());
    }
    // The newest is what a job is about to use, and so the more interesting.
    versions.sort_by_key(|(_, job)| *job);
    let (series, job) = match node.one_in(2) {
        true => versions[versions.len() - 1 - node.below(2)],
        false => versions[node.below(versions.len())],
    };
    let version = Pin { series, job };
    node.ledger.begins_to_forget(version.job);
    let mark = Forgotten { time_ms: node.now_ms(), host: "node".to_owned(), reason: "simulated".to_owned() };
    node.repository.forget(version, &mark).await?;
    node.ledger.count("forgotten");
    Ok(())
}
