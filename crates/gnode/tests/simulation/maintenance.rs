//! What G-nodes do in the simulation: real passes, rebuilds, compactions, conversions and forgetting, in turns with everything else.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use larder_format::compress::Compression;
use larder_format::ids::JobId;
use larder_format::layout::Layout;
use larder_format::mark::Forgotten;
use larder_gnode::defragment::{Budget, DefragmentOptions, Defragmented, Defragmenter, plans};
use larder_gnode::forget::create_marks;
use larder_gnode::index_check::IndexFinding;
use larder_gnode::pass::{Listing, Outcome, PassError, PassOptions};
use larder_gnode::reclaim::{Exact, ReclaimOptions, ReclaimReport, SharePass, Unused};
use larder_gnode::repair::{compare, rebuild as real_rebuild};
use larder_index::{Executor, IndexSnapshot};
use larder_job::{Cancel, Clock, Identity, JobContext, Machine, NoProgress};
use larder_lifecycle::arrange::{ArrangeOptions, Arranged};
use larder_lifecycle::convert_layout::{ConvertError, convert as real_convert};
use larder_store::RepositoryError;
use larder_store::catalog::Version;
use larder_store::forget_marks::OwnedVersion;
use larder_store::jobs::RENEW_EVERY;
use larder_store::survey::SeenLease;
use larder_testkit::data::Rng;
use parking_lot::Mutex;

use crate::backup::SERIES;
use crate::moved::is_rebuilt;
use crate::node::{MEMORY, Node, Stop, Ticking};
use crate::situation::PATIENT;

/// How a pass finds out that a job is dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Death {
    /// By a clock that may be wrong: any job may be taken for dead.
    Guessed,
    /// All jobs are.
    Certain,
}

/// Time is over now and then, at any look at it.
struct Dice(Mutex<Rng>);

impl Clock for Dice {
    fn now_ms(&self) -> u64 {
        u64::from(self.0.lock().one_in(300))
    }
}

/// What passes are given.
fn context(node: &Node, death: Death) -> JobContext {
    let dice = Dice(Mutex::new(Rng::new(node.rng().next_u64())));
    JobContext {
        repository: node.repository.clone(),
        executor: Executor::stepped(),
        clock: Arc::new(Ticking(AtomicU64::new(node.now_ms()))),
        threads: NonZeroUsize::MIN,
        memory: MEMORY,
        renew_every: RENEW_EVERY,
        // A pass may be interrupted wherever it asks.
        cancel: match death {
            Death::Guessed => Cancel::default().with_deadline(Arc::new(dice), 1),
            Death::Certain => Cancel::default(),
        },
        progress: Arc::new(NoProgress),
        identity: Identity { host: "collector".to_owned(), program: "simulation".to_owned(), process: 1 },
        machine: Machine::for_tests(node.repository.config().repository),
    }
}

/// Whether the index says of containers and versions what is so.
pub async fn index_agrees(node: &Node) -> Result<(), String> {
    let context = context(node, Death::Certain);
    let (number, check) = compare(&context).await.map_err(|error| error.to_string())?;
    // What a rebuild does not find whole it does not call retired, also where nobody but a lease needs what is lost of it. Whether
    // versions restore is asked by others.
    let is_rebuilt = is_rebuilt(&node.repository).await.map_err(|error| error.to_string())?;
    let is_told = |found: &IndexFinding| is_rebuilt && matches!(found, IndexFinding::ContainerUnreadable { .. });
    match check.disagreements.iter().all(is_told) && check.disagreements.len() as u64 == check.count {
        true => Ok(()),
        false => Err(format!("index {number}: {:?}", check.disagreements)),
    }
}

/// Jobs of passes that died before they published and whose number nobody else has taken yet: what they wrote goes then.
pub async fn claimants(node: &Node) -> Result<BTreeSet<JobId>, Stop> {
    let newest = IndexSnapshot::newest(&node.repository).await?.snapshot.number;
    let mut claimants = BTreeSet::new();
    for (job, listed) in node.repository.list_jobs().await? {
        if let SeenLease::Open(lease) = node.repository.see_lease(job, &listed.renewals).await?
            && lease.claims.is_some_and(|number| number > newest)
        {
            claimants.insert(job);
        }
    }
    Ok(claimants)
}

fn options(node: &Node, death: Death, seconds: u64) -> PassOptions {
    if death == Death::Certain {
        // In the end nothing is left over, so that what nobody needs can be told from what some need.
        let arrange = ArrangeOptions {
            holes_percent: Some(0.0),
            every: Some(node.pick(&[1, 1, 2, 3, 5])),
            all: true,
            compression: Compression::Off,
        };
        let unused = Unused::OfContainer(node.pick(&[1, 20, 60]));
        let exact = node.pick(&[Exact::Never, Exact::WhenWorth, Exact::Always]);
        let reclaim = ReclaimOptions { unused, exact, max_rewrite: None, compression: Compression::Off };
        // What arrived late is found only by listing everything.
        let dead_after = Duration::from_secs(seconds);
        let (listing, arrange, reclaim) = (Listing::Whole, Some(arrange), Some(reclaim));
        return PassOptions {
            dead_after,
            listing,
            reclaim,
            arrange,
            min_age: Duration::ZERO,
            ..PassOptions::default()
        };
    }
    let mut rng = node.rng();
    let reclaim = ReclaimOptions {
        unused: Unused::OfContainer(*rng.pick(&[1, 20, 60])),
        exact: *rng.pick(&[Exact::Never, Exact::WhenWorth, Exact::Always]),
        max_rewrite: *rng.pick(&[None, None, None, Some(20_000)]),
        compression: Compression::Off,
    };
    let arrange = ArrangeOptions {
        holes_percent: Some(*rng.pick(&[0.0, 20.0, 60.0])),
        every: Some(*rng.pick(&[1, 1, 2, 3, 5])),
        all: rng.one_in(4),
        compression: Compression::Off,
    };
    PassOptions {
        dead_after: Duration::from_secs(seconds),
        listing: *rng.pick(&[Listing::New, Listing::New, Listing::Auto]),
        reclaim: Some(reclaim),
        arrange: (!rng.one_in(4)).then_some(arrange),
        max_duration: rng.pick(&[None, None, None, Some(5), Some(30)]).map(Duration::from_secs),
        min_age: node.habits.min_age,
        ..PassOptions::default()
    }
}

/// One pass, which may move chunks or not.
pub async fn collect(node: &Node, death: Death, moves: bool) -> Result<(), Stop> {
    collect_with(node, death, moves, None).await
}

/// The same, and others may take part in it.
pub async fn collect_with(
    node: &Node,
    death: Death,
    moves: bool,
    sharing: Option<Arc<dyn SharePass>>,
) -> Result<(), Stop> {
    let context = context(node, death);
    let seconds = match death {
        Death::Certain => 0,
        Death::Guessed => node.pick(node.habits.dead_after),
    };
    let mut options = PassOptions { sharing, ..options(node, death, seconds) };
    if !moves {
        (options.reclaim, options.arrange) = (None, None);
    }
    let _impatient = (seconds < PATIENT).then(|| node.ledger.impatient());
    let report = match larder_gnode::pass::run(&context, &options).await {
        Ok(report) => report,
        // Nothing is damaged here, so an object that does not open was never whole. The store may answer too slowly for a pass to read one.
        Err(
            error @ (PassError::UnreadableManifest { source: RepositoryError::Damaged { .. }, .. }
            | PassError::UnreadableLease { source: RepositoryError::Damaged { .. }, .. }),
        ) => {
            node.ledger.is_wrong(format!("a pass: {error}"));
            return Err(error.into());
        }
        Err(error) => return Err(error.into()),
    };
    let ReclaimReport {
        plan, redirected_chunks, copied_chunks, dropped_chunks, unreadable, was_stopped: is_part, ..
    } = &report.reclaimed;
    let Arranged { versions, moved_chunks, reclaimed, unreadable: unarranged, was_stopped, .. } = &report.arranged;
    if death == Death::Certain && !(unreadable.is_empty() && unarranged.is_empty()) {
        node.ledger.is_wrong(format!("a quiet pass cannot read {unreadable:?} {unarranged:?}"));
    }
    node.ledger.add("fences", report.plan.fenced.len() as u64);
    node.ledger.add("kept for a lease", report.kept.len() as u64);
    if !matches!(report.outcome, Outcome::Published(_)) {
        return Ok(());
    }
    let happened = [
        ("passes", 1),
        ("containers collected", report.done.containers),
        ("entries removed", report.done.entries),
        ("retired in part", u64::from(*is_part && plan.containers > 0)),
        ("containers retired", plan.containers),
        ("chunks led", *redirected_chunks),
        ("chunks copied", *copied_chunks),
        ("chunks dropped", *dropped_chunks),
        ("versions arranged", *versions),
        ("chunks moved", *moved_chunks),
        ("containers arranged", *reclaimed),
        ("arranging stopped", u64::from(*was_stopped)),
        ("rebuilt by passes", u64::from(report.rebuilt.is_some())),
    ];
    happened.into_iter().for_each(|(what, times)| node.ledger.add(what, times));
    Ok(())
}

/// `repair index`.
pub async fn rebuild(node: &Node, death: Death) -> Result<(), Stop> {
    let rebuilt = real_rebuild(&context(node, death)).await?;
    // It also looks for what leases of dead jobs name, which may be gone: whether versions are whole is asked by others.
    node.ledger.add("chunks that a rebuild misses", rebuilt.lost_chunks);
    node.ledger.add("rebuilt", u64::from(rebuilt.number.is_some()));
    node.ledger.add("led by a rebuild", rebuilt.reclaimed);
    Ok(())
}

/// Lays out again what is worth it, which is nearly everything.
pub async fn compact(node: &Node) -> Result<(), Stop> {
    compact_with(node, None).await
}

/// The same, and others may copy for it.
pub async fn compact_with(node: &Node, sharing: Option<Arc<dyn SharePass>>) -> Result<(), Stop> {
    let options = DefragmentOptions {
        held_percent: 120,
        cheap_percent: 115,
        sparse_percent: node.pick(&[60, 90, 100]),
        small_bytes: node.pick(&[0, 200, 1000]),
        budget: Budget::of_version(node.pick(&[20, 60, 100])),
        duplicate_percent: node.pick(&[20, 20, 101]),
        dense_percent: node.pick(&[30, 80]),
        excess_percent: f64::from(node.pick(&[0u8, 1, 100])),
        manifest_least: 1 << 20,
        unused_percent: None,
        compression: Compression::Off,
    };
    let (context, most) = (node.context(), 1 + node.below(3));
    let work = move |context: &JobContext| {
        let found = plans(context, &options)?.plans;
        let mut compactor = Defragmenter::new(context, &options).shared_with(sharing);
        found.iter().take(most).map(|plan| compactor.compact(plan)).collect::<Result<Vec<_>, _>>()
    };
    let compacted = Executor::stepped().run(&node.repository, move |io| work(&context.on(&io.executor))).await?;
    for compacted in compacted {
        match compacted {
            Defragmented::Done { shared_chunks, .. } => {
                node.ledger.count("compacted");
                node.ledger.add("shared by compaction", u64::from(shared_chunks > 0));
            }
            _ => node.ledger.count("compaction overtaken"),
        }
    }
    Ok(())
}

/// Converts some series.
pub async fn convert(node: &Node) -> Result<(), Stop> {
    let series = SERIES[node.below(SERIES.len())];
    let layout = node.pick(&[Layout::Standard, Layout::Lifecycle]);
    let context = node.context();
    let done = Executor::stepped()
        .run(&node.repository, move |io| {
            real_convert(&context.on(&io.executor), series, layout, Compression::Off, None)
        })
        .await;
    match done {
        Ok(done) => {
            let what = if layout == Layout::Lifecycle { "converted" } else { "converted back" };
            node.ledger.add(what, done.versions);
            node.ledger.add("shared while converting", u64::from(done.shared_bytes > 0));
            node.ledger.add("conversion overtaken", done.overtaken);
            Ok(())
        }
        Err(ConvertError::NoSuchSeries { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Forgets some versions.
pub async fn forget(node: &Node) -> Result<(), Stop> {
    let mut versions = node.repository.catalog().await?.versions;
    if versions.len() <= node.habits.leaves {
        return Ok(());
    }
    // The newest is what a job is about to use, and so the more interesting.
    versions.sort_by_key(Version::id);
    let mut chosen = Vec::new();
    let most = if node.one_in(4) { 2 } else { 1 };
    for _ in 0..most.min(versions.len()) {
        let takes_newest = if node.habits.takes_newest { !node.one_in(4) } else { node.one_in(2) };
        let at = match takes_newest {
            true => versions.len() - 1 - node.below(2.min(versions.len())),
            false => node.below(versions.len()),
        };
        let version = versions.remove(at);
        node.ledger.begins_to_forget(version.id());
        let mark = Forgotten { time_ms: node.now_ms(), host: "node".to_owned(), reason: "simulated".to_owned() };
        chosen.push((OwnedVersion::from(&version), mark));
    }
    let forgot = create_marks(&node.repository, chosen).await;
    node.ledger.add("forgotten", forgot.done.len() as u64);
    Ok(())
}
