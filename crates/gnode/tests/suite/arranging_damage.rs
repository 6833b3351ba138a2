//! The promise: what cannot be read is left as it is and told, and everything else is arranged; when it can be read again, nothing was
//! lost. A pass that is told to stop has lost nothing either, and the next one goes on.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::support::*;
use larder_format::compress::{Compression, Compressor};
use larder_format::container::{ContainerBuilder, ContainerSealer, seal_frame};
use larder_format::ids::{ContainerId, ContainerKind, JobId};
use larder_format::names;
use larder_gnode::pass::{self, Outcome, PassError, PassOptions, PassReport};
use larder_job::{Clock, JobContext};

fn every(of: u64, every: usize, shift: usize, mut before: [u64; 60]) -> [u64; 60] {
    (0..60).filter(|place| (place + shift).is_multiple_of(every)).for_each(|place| before[place] = of);
    before
}

/// Three versions of a series, none of them arranged, and what they hold. Of what the first two wrote the later ones replace a part.
fn three(scene: &Scene, series: &str) -> [JobId; 3] {
    let mut now = [0; 60];
    [(1, 60, 0), (2, 3, 1), (3, 4, 2)].map(|(of, step, shift)| {
        now = every(of, step, shift, now);
        scene.lifecycle(series, &pieces(&now))
    })
}

/// The only container that a version of [`three`] wrote.
fn written_by(scene: &Scene, job: JobId) -> ContainerId {
    let context = scene.context();
    let listed = scene.runtime.block_on(context.repository.list_containers()).unwrap();
    let mut own = listed.iter().filter(|container| container.id.job == job && container.id.kind == ContainerKind::Data);
    let id = own.next().unwrap().id;
    assert!(own.next().is_none());
    id
}

#[derive(Debug, Clone, Copy)]
enum Damage {
    /// Of a frame.
    Byte,
    /// All is authentic, but the bytes are of others than the table says: a writer that was wrong.
    OtherBytes,
    /// Of the tables.
    Tables,
    Gone,
}

fn damage(scene: &Scene, id: ContainerId, damage: Damage) {
    let (name, memory) = (names::container(id), &scene.memory);
    let keys = scene.context().repository;
    scene.runtime.block_on(async {
        match damage {
            Damage::Byte => drop(memory.change(&name, |bytes| bytes[1000] ^= 1).await),
            Damage::Tables => drop(memory.change(&name, |bytes| *bytes.last_mut().unwrap() ^= 1).await),
            Damage::Gone => memory.remove(&name).await,
            Damage::OtherBytes => {
                let index = keys.read_container_index(id).await.unwrap();
                let bytes = larder_testkit::data::random(99, index.payload_len as usize);
                let sealer = ContainerSealer::new(keys.keys(), id, index.domain, [5; 32]).unwrap();
                let mut off = Compressor::new(Compression::Off);
                let frame = seal_frame(&sealer, 0, &bytes, &index.chunks, &mut off).unwrap();
                let mut builder = ContainerBuilder::new();
                builder.push_frame(&frame);
                memory.put(&name, builder.finish(&sealer, &index.chunks, keys.config().padding()).unwrap()).await;
            }
        }
    });
}

/// Nothing is left to do, and what is there is what is needed.
#[track_caller]
fn is_exact(scene: &Scene, at: &str) {
    for _ in 0..2 {
        scene.pass_with(&PassOptions { dead_after: Duration::ZERO, ..thoroughly() }).unwrap();
    }
    scene.names_lead_to_chunks(at);
    let (stored, named) = scene.stored_and_named();
    assert_eq!(stored, named, "{at}");
    assert_eq!(scene.disagreements(), [], "{at}");
}

#[test]
fn a_container_that_cannot_be_read_is_left_and_all_others_are_arranged() {
    for how in [Damage::Byte, Damage::OtherBytes, Damage::Tables, Damage::Gone] {
        for which in [0, 1] {
            let at = format!("{how:?} of the container of version {which}");
            let scene = Scene::new();
            let ids = three(&scene, "db");
            let expected = scene.contents();
            // The index has it all before anything is damaged.
            scene.pass_with(&PassOptions { arrange: None, ..arranging(0.0) }).unwrap();
            let (bad, good) = (written_by(&scene, ids[which]), written_by(&scene, ids[1 - which]));
            let whole = scene.runtime.block_on(scene.memory.get(&names::container(bad))).unwrap();
            damage(&scene, bad, how);
            let report = scene.arrange(0.0);
            assert_eq!((report.arranged.unreadable.clone(), report.arranged.versions), (vec![bad], 3), "{at}");
            assert_eq!((report.arranged.reclaimed, report.arranged.was_stopped), (1, false), "{at}: {report:?}");
            let extents = scene.extents();
            assert!(extents[&bad].0.iter().all(|extent| extent.to.is_none()), "{at}: {:?}", extents[&bad]);
            assert!(extents[&good].0.iter().all(|extent| extent.to.is_some()), "{at}: {:?}", extents[&good]);
            let is_there = |id| scene.runtime.block_on(scene.memory.get(&names::container(id))).is_some();
            assert!(!is_there(good) && (is_there(bad) || matches!(how, Damage::Gone)), "{at}");
            // It waits, however often it is tried.
            let again = scene.pass_with(&thoroughly()).unwrap();
            assert_eq!(
                (again.arranged.unreadable.clone(), again.arranged.reclaimed),
                (vec![bad], 0),
                "{at}: {again:?}"
            );
            scene.runtime.block_on(scene.memory.put(&names::container(bad), whole));
            assert!(scene.contents() == expected, "{at}");
            is_exact(&scene, &at);
            assert!(scene.contents() == expected, "{at}");
        }
    }
}

/// Of a series of which a recipe cannot be read nothing is known to be unused.
#[test]
fn a_series_with_a_damaged_recipe_stays_as_it_is_and_others_are_arranged() {
    for newest in [false, true] {
        for is_gone in [false, true] {
            let at = format!("newest {newest}, gone {is_gone}");
            let scene = Scene::new();
            let ids = three(&scene, "db");
            three(&scene, "other");
            let expected = scene.contents();
            scene.pass_with(&PassOptions { arrange: None, ..arranging(0.0) }).unwrap();
            let before = scene.extents();
            let of_db: Vec<ContainerId> = ids.iter().map(|id| written_by(&scene, *id)).collect();
            let id = ids[if newest { 2 } else { 0 }];
            let version = scene.versions().into_iter().find(|version| version.id() == id).unwrap();
            let manifest = scene.runtime.block_on(scene.context().repository.manifest(&version)).unwrap();
            let recipe = names::container(manifest.data.nodes[0].chunk.container);
            let whole = scene.runtime.block_on(scene.memory.get(&recipe)).unwrap();
            match is_gone {
                true => scene.runtime.block_on(scene.memory.remove(&recipe)),
                false => drop(scene.runtime.block_on(scene.memory.change(&recipe, |bytes| bytes[20] ^= 1))),
            }
            for _ in 0..2 {
                let report = scene.pass_with(&arranging(0.0)).unwrap();
                assert!([3, 0].contains(&report.arranged.versions), "{at}: {report:?}");
                let extents = scene.extents();
                assert!(of_db.iter().all(|id| extents.get(id) == before.get(id)), "{at}");
                assert!(extents.len() > before.len(), "{at}: the other was arranged");
            }
            scene.runtime.block_on(scene.memory.put(&recipe, whole));
            assert!(scene.contents() == expected, "{at}");
            // Without being asked to look at all series.
            assert_eq!(scene.arrange(0.0).arranged.versions, 3, "{at}");
            assert!(scene.contents() == expected, "{at}");
            is_exact(&scene, &at);
        }
    }
}

const START_MS: u64 = 4_100_000_000_000;

/// Moves by a millisecond at every look.
struct Counts(Arc<AtomicU64>);

impl Clock for Counts {
    fn now_ms(&self) -> u64 {
        START_MS + self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// Told to stop when it asks for the n-th time; 0: never. Says how often it asked.
fn stopped(scene: &Scene, at: u64, late: bool) -> (Result<PassReport, PassError>, u64) {
    let asked = Arc::new(AtomicU64::new(0));
    let counter = asked.clone();
    let (base, counts) = (scene.context(), Arc::new(Counts(counter)));
    let at_ms = if at > 0 { at } else { START_MS };
    let (context, options) = match late {
        // Its time is over at its n-th look at the clock.
        true => {
            let options = PassOptions { max_duration: Some(Duration::from_millis(at_ms)), ..arranging(0.0) };
            (JobContext { clock: counts, ..base }, options)
        }
        false => {
            let cancel = base.cancel.with_deadline(counts, START_MS + at_ms - 1);
            (JobContext { cancel, ..base }, arranging(0.0))
        }
    };
    let result = scene.runtime.block_on(pass::run(&context, &options));
    (result, asked.load(Ordering::Relaxed))
}

#[test]
fn a_pass_that_is_told_to_stop_loses_nothing_and_the_next_one_goes_on() {
    let scene = Scene::new();
    three(&scene, "db");
    scene.arrange(0.0);
    let mut now = [7; 60];
    for of in 0..2 {
        now = every(of, 3, of as usize, now);
        scene.lifecycle("db", &pieces(&now));
    }
    let expected = scene.contents();
    let mut outcomes: BTreeMap<&str, u64> = BTreeMap::new();
    for late in [false, true] {
        let undisturbed = scene.fork();
        let (result, asks) = stopped(&undisturbed, 0, late);
        assert_eq!(result.unwrap().arranged.versions, 2);
        let in_the_end = undisturbed.stored_and_named();
        // For recipes it asks at each chunk, and then at each container.
        let all = (1..=asks).filter(|n| n.is_multiple_of(asks / 20 + 1) || n + 40 > asks || *n < 8);
        for n in all {
            let at = format!("stopped when it asked for the {n}th of {asks} times, late {late}");
            let cut = scene.fork();
            let (result, _) = stopped(&cut, n, late);
            let outcome = match &result {
                Ok(PassReport { arranged, .. }) if arranged.was_stopped => match arranged.versions {
                    0 => "stopped while it read recipes",
                    _ => "stopped while it copied",
                },
                Ok(report) if matches!(report.outcome, Outcome::Published(_)) => "published",
                Ok(_) => "nothing",
                Err(PassError::Interrupted) => "interrupted",
                Err(error) => panic!("{at}: {error}"),
            };
            *outcomes.entry(outcome).or_default() += 1;
            cut.names_lead_to_chunks(&at);
            assert!(cut.contents() == expected, "{at}");
            // Without being asked to look at all series; the second one deletes what the first one retired.
            cut.arrange(0.0);
            cut.names_lead_to_chunks(&at);
            cut.pass_with(&PassOptions { dead_after: Duration::ZERO, ..arranging(0.0) }).unwrap();
            assert!(cut.contents() == expected, "{at}");
            assert_eq!(cut.stored_and_named(), in_the_end, "{at}: {outcome}");
            assert_eq!(cut.disagreements(), [], "{at}");
            // Who looks at all series finds nothing that was left.
            let rest = cut.pass_with(&thoroughly()).unwrap().arranged;
            assert_eq!((rest.moved_chunks, rest.reclaimed), (0, 0), "{at}: {outcome}");
        }
    }
    assert!(outcomes.len() >= 4, "{outcomes:?}");
}
