//! A collecting pass as `docs/concurrency.md` has it, and nothing more: list, fence, list, decide, publish, delete.

use std::collections::{BTreeMap, BTreeSet};

use larder_format::ids::{JobId, SeriesKey};
use larder_format::lease::{JobKind, Lease, Pin};
use larder_format::manifest::{MANIFEST_MAX, Manifest, Register, encode_aborted};
use larder_format::mark::Forgotten;
use larder_format::names::{self, LeaseObject};
use larder_store::repository::random;
use larder_store::{Store, StoreErrorKind};

use crate::ledger::Broken;
use crate::node::{Node, Stop};
use crate::reading::pin_of;

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

/// What listings showed.
#[derive(Debug, Default)]
struct Listed {
    jobs: BTreeMap<JobId, Leases>,
    registers: BTreeSet<(SeriesKey, JobId)>,
    marks: BTreeSet<(SeriesKey, JobId)>,
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
}

/// One pass from begin to end.
pub async fn pass(node: &Node, death: Death) -> Result<(), Stop> {
    let store = node.repository.store().without_cache();
    let newest = newest_index(&store).await?;

    let mut before =
        Listed { marks: marks(&store).await?, registers: registers(&store).await?, jobs: leases(&store).await? };
    let mut taken_for_dead = BTreeSet::new();
    fence(node, &store, death, &mut before, &mut taken_for_dead).await?;
    let mut containers = Vec::new();
    for folder in [names::DATA, names::META] {
        containers.extend(store.list(folder).await?.into_iter().map(|object| object.name));
    }
    // Everything above was seen before the leases below.
    let jobs = leases(&store).await?;
    let live = live(node, &store, death, &before, &jobs, &taken_for_dead).await?;
    if node.broken == Broken::MarksAfterLeases {
        before.marks = marks(&store).await?;
    }
    let registers = match node.broken {
        Broken::VersionsBeforeLeases => before.registers.clone(),
        _ => registers(&store).await?,
    };
    let decision = decide(node, &store, &before, &jobs, &registers, &live, &taken_for_dead, containers).await?;

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
    carry_out(node, &store, decision).await
}

async fn newest_index(store: &Store) -> Result<u64, Stop> {
    let numbers = store.list(INDEX).await?;
    let numbers = numbers.iter().filter_map(|object| object.name.strip_prefix(INDEX)?.parse().ok());
    Ok(numbers.max().unwrap_or(0))
}

async fn registers(store: &Store) -> Result<BTreeSet<(SeriesKey, JobId)>, Stop> {
    let listed = store.list(names::VERSIONS).await?;
    let parsed = listed.iter().filter_map(|object| names::parse_version(&object.name));
    Ok(parsed.map(|(series, job, _)| (series, job)).collect())
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
    before.registers.iter().any(|(_, decided)| *decided == job) || before.jobs.get(&job).is_some_and(|job| job.done)
}

/// Creates `aborted` in the registers of backups that are thought dead.
async fn fence(
    node: &Node,
    store: &Store,
    death: Death,
    before: &mut Listed,
    taken_for_dead: &mut BTreeSet<JobId>,
) -> Result<(), Stop> {
    let open: Vec<_> = before.jobs.iter().map(|(job, leases)| (*job, leases.clone())).collect();
    for (job, leases) in open {
        let dies = death == Death::Certain || node.one_in(3);
        if is_settled(before, job) || !dies {
            continue;
        }
        let lease = read_lease(node, store, job, &leases).await?;
        if lease.kind == JobKind::Read {
            continue;
        }
        let series = node.repository.keys().series_key(&lease.series);
        if node.broken == Broken::NoFence {
            taken_for_dead.insert(job);
            continue;
        }
        let aborted = encode_aborted(node.repository.keys(), series, job, 0, random(node.repository.entropy())?);
        match store.create(&names::version(series, job, 0), aborted.into()).await {
            Ok(_) => node.ledger.count("fences"),
            Err(error) if error.kind == StoreErrorKind::AlreadyExists => {}
            Err(error) => return Err(error.into()),
        }
        before.registers.insert((series, job));
    }
    Ok(())
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
    registers: &BTreeSet<(SeriesKey, JobId)>,
    live: &BTreeMap<JobId, Lease>,
    taken_for_dead: &BTreeSet<JobId>,
    containers: Vec<String>,
) -> Result<Decision, Stop> {
    let pinned: BTreeSet<(SeriesKey, JobId)> =
        live.values().flat_map(|lease| &lease.pins).map(|pin| (pin.series, pin.job)).collect();
    let adopted: BTreeSet<JobId> = live.values().flat_map(|lease| &lease.adopts).map(|pin| pin.job).collect();

    let (mut referenced, mut retained) = (BTreeSet::new(), BTreeSet::new());
    for (series, job) in registers {
        let pinned = pinned.contains(&(*series, *job)) && node.broken != Broken::PinsIgnored;
        if before.marks.contains(&(*series, *job)) && !pinned {
            continue;
        }
        let bytes = store.get_up_to(&names::version(*series, *job, 0), MANIFEST_MAX).await?;
        match Manifest::decode(node.repository.keys(), *series, *job, 0, &bytes)? {
            Register::Committed(manifest) => {
                retained.insert(*job);
                referenced.extend(manifest.containers.iter().map(|usage| names::container(usage.container)));
            }
            Register::Aborted => {}
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
        let known = before.registers.iter().chain(registers).chain(&before.marks).find(|(_, other)| *other == job);
        known.map(|(series, _)| *series)
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
        if !jobs.contains_key(job) && !registers.contains(&(*series, *job)) {
            decision.marks.push((*series, *job));
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
        }
        store.delete(&names::lease_done(job)).await?;
        if let Some(series) = series {
            store.delete(&names::forgotten(series, job)).await?;
            node.ledger.count("jobs removed");
        }
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

/// Forgets some version.
pub async fn forget(node: &Node) -> Result<(), Stop> {
    let catalog = node.repository.catalog().await?;
    if catalog.versions.len() < 3 {
        return Ok(());
    }
    // What somebody is about to use is the more interesting.
    let unfinished = if node.one_in(2) { node.repository.unfinished_jobs().await? } else { Vec::new() };
    let named: Vec<Pin> = unfinished.into_iter().flat_map(|job| job.lease.pins).collect();
    let named: Vec<Pin> = named.into_iter().filter(|pin| catalog.versions.iter().any(|v| v.id() == pin.job)).collect();
    let version = match named.is_empty() {
        true => pin_of(&catalog.versions[node.below(catalog.versions.len())]),
        false => named[node.below(named.len())],
    };
    node.ledger.begins_to_forget(version.job);
    let mark = Forgotten { time_ms: node.now_ms(), host: "node".to_owned(), reason: "simulated".to_owned() };
    node.repository.forget(version, &mark).await?;
    node.ledger.count("forgotten");
    Ok(())
}
