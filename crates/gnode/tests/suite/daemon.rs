//! The daemon: rounds for changes by others and after failures, and no others.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::support::*;
use larder_gnode::daemon::{self, DaemonOptions};
use larder_gnode::maintenance::{MaintenanceError, MaintenanceOptions, MaintenanceReport};
use larder_gnode::pass::{Outcome, PassError};
use larder_job::{Cancel, Clock, JobContext};

const POLL: Duration = Duration::from_millis(1);
const EVERY: Duration = Duration::from_secs(3600);

/// Many polls.
const A_WHILE: Duration = Duration::from_millis(500);

/// Longer than any test takes.
const HANGS: Duration = Duration::from_secs(60);

/// Stands still until it is set.
#[derive(Debug, Clone, Default)]
struct Set(Arc<AtomicU64>);

impl Set {
    fn advance(&self, time: Duration) {
        self.0.fetch_add(time.as_millis() as u64, Ordering::SeqCst);
    }
}

impl Clock for Set {
    fn now_ms(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// Cancels in a while, so that a daemon that waits in vain fails its test.
fn cancel_after(cancel: &Cancel, time: Duration) {
    let cancel = cancel.clone();
    std::thread::spawn(move || {
        std::thread::sleep(time);
        cancel.cancel();
    });
}

type Round = Result<MaintenanceReport, MaintenanceError>;

/// Runs a daemon until it is cancelled. Its clock stands still unless a round moves it.
fn run<E>(scene: &Scene, mut on_round: impl FnMut(&Set, &Cancel, Round) -> Result<(), E>) -> Result<(), E> {
    let clock = Set(Arc::new(AtomicU64::new(4_000_000_000_000)));
    let context = JobContext { clock: Arc::new(clock.clone()), ..scene.context() };
    let maintenance = MaintenanceOptions { pass: pass_options(), ..MaintenanceOptions::default() };
    let options = DaemonOptions { every: EVERY, poll: POLL, maintenance };
    cancel_after(&context.cancel, HANGS);
    daemon::run(&context, &options, &|_, _| (), |round| on_round(&clock, &context.cancel, round))
}

#[test]
fn rounds_run_at_first_and_for_changes_by_others_and_not_for_its_own() {
    let scene = Scene::new();
    // Duplicates: the first round rewrites one of them, which adds a generation and deletes
    // another.
    for (series, own) in [("a", 10), ("b", 20)] {
        scene.alone(series, &[("common", 1, 300_000), ("own", own, 60_000)]);
    }
    let forgotten = scene.versions()[0].id();
    let mut rounds = Vec::new();
    run(&scene, |_, cancel, round| {
        let round = round.unwrap();
        rounds.push((round.defragmented.versions, round.pass.plan.versions));
        match rounds.len() {
            1 => scene.forget(forgotten),
            _ => cancel_after(cancel, A_WHILE),
        }
        Ok::<_, ()>(())
    })
    .unwrap();
    assert_eq!(rounds, [(1, 0), (0, 1)]);
}

#[test]
fn rounds_run_now_and_then() {
    let scene = Scene::new();
    scene.version("a", 0);
    let (mut outcomes, mut requests) = (Vec::new(), Vec::new());
    run(&scene, |clock, cancel, round| {
        let round = round.unwrap();
        requests.push(round.requests.requests());
        outcomes.push(round.pass.outcome);
        match outcomes.len() {
            3 => cancel_after(cancel, A_WHILE),
            _ => clock.advance(EVERY),
        }
        Ok::<_, ()>(())
    })
    .unwrap();
    assert!(matches!(outcomes[..], [Outcome::Published(_), Outcome::Nothing, Outcome::Nothing]), "{outcomes:?}");
    // Each round has its own count. The polls between two rounds are few: the clock moves at once.
    assert!(requests[0] > requests[1] && requests[1] > 0, "{requests:?}");
    assert!(requests[2] < 2 * requests[1], "{requests:?}");
}

#[test]
fn a_failed_round_is_told_and_repeated_before_the_next_regular_one() {
    let scene = Scene::new();
    let id = scene.version("a", 0);
    let version = scene.versions().pop().unwrap();
    let name = larder_format::names::version(version.series, id, version.generation);
    let whole = scene.runtime.block_on(scene.memory.get(&name)).unwrap();
    assert!(scene.runtime.block_on(scene.memory.change(&name, |bytes| *bytes.last_mut().unwrap() ^= 1)));
    let mut rounds = Vec::new();
    run(&scene, |clock, cancel, round| {
        match &round {
            Err(MaintenanceError::Pass(PassError::UnreadableManifest { .. })) => {
                scene.runtime.block_on(scene.memory.remove(&name));
                scene.runtime.block_on(scene.memory.put(&name, whole.clone()));
                clock.advance(POLL);
            }
            Ok(report) => {
                assert_eq!(report.pass.plan.versions_ingested, 1);
                cancel.cancel();
            }
            Err(error) => panic!("{error}"),
        }
        rounds.push(round.is_ok());
        Ok::<_, ()>(())
    })
    .unwrap();
    assert_eq!(rounds, [false, true]);
}

#[test]
fn an_error_of_the_listener_ends_the_daemon() {
    let scene = Scene::new();
    assert_eq!(run(&scene, |_, _, _| Err("the output is closed")), Err("the output is closed"));
}
