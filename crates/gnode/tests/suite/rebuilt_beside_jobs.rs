//! The promise: an index that is rebuilt while jobs run loses nothing that only their leases retain, and what a rebuild did not search for is
//! never taken for lost (`RebuildAsksLeases`, `MissingStops`). No single wrong answer of a store leads to a deletion.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use crate::support::*;
use larder_format::ids::{ContainerId, JobId};
use larder_format::names;
use larder_gnode::index_check::IndexFinding;
use larder_gnode::pass::{Listing, PassError, PassOptions, PassReport, run};
use larder_gnode::reclaim::Exact;
use larder_gnode::repair::rebuild;
use larder_job::JobContext;
use larder_reader::{Reading, VersionReader};
use larder_store::rules::Rule;
use larder_testkit::{Failure, Fault, OpKind, Times, When};

/// A pass that moves nothing and lists everything.
fn collects() -> PassOptions {
    PassOptions { reclaim: None, listing: Listing::Whole, ..pass_options() }
}

fn collect_without(scene: &Scene, rule: Option<Rule>) -> PassReport {
    let repository = scene.repository(scene.memory.store());
    let repository = rule.map_or(repository.clone(), |rule| repository.without_rule(rule));
    scene.runtime.block_on(run(&scene.context_of(repository), &collects())).unwrap()
}

/// Chunks of the first version are in the container of the second, which is also returned, and its own is gone.
fn led() -> (Scene, JobId, JobId, ContainerId) {
    let (scene, first, second) = twins();
    scene.optimize(Exact::Never);
    let moved_to: Vec<ContainerId> = scene.reclaimed().into_values().flatten().collect();
    let target = *scene.data_of(second).first().unwrap();
    assert!(moved_to.contains(&target), "{moved_to:?}");
    (scene, first, second, target)
}

/// A version of these files that knows of nothing that is there, made at another store.
fn alone_at(scene: &Scene, context: &JobContext, series: &str, files: &[(&str, u64, usize)]) -> JobId {
    scene.fill(series, files);
    backup_alone(context, &scene.source(series), series).version.unwrap().id
}

/// Somebody who begins to read a version.
fn announce(scene: &Scene, id: JobId) -> Reading {
    let version = scene.versions().into_iter().find(|version| version.id() == id).unwrap();
    VersionReader::announce(&scene.context(), &version).unwrap().1
}

/// A restore runs on a version whose chunks were moved; both versions are forgotten, and the index is rebuilt.
#[test]
fn what_only_a_lease_retains_is_searched() {
    let (scene, first, second, target) = led();
    let reading = announce(&scene, first);
    scene.forget(first);
    scene.forget(second);
    let rebuilt = scene.rebuild();
    assert_eq!((rebuilt.reclaimed, rebuilt.lost_chunks), (1, 0), "{rebuilt:?}");
    for _ in 0..2 {
        assert_eq!(collect_without(&scene, None).missing_containers, 0);
        assert!(scene.is_there(target));
    }
    // When it is over, nothing of that is needed.
    reading.end();
    for _ in 0..2 {
        collect_without(&scene, None);
    }
    assert!(!scene.is_there(target));
    scene.is_clean("in the end");
}

/// Each of the two rules alone prevents the loss; without both there is one.
#[test]
fn without_both_rules_a_reader_loses_its_version() {
    for (asks_leases, stops) in [(true, false), (false, true), (false, false)] {
        let (scene, first, second, target) = led();
        let _reading = announce(&scene, first);
        scene.forget(first);
        scene.forget(second);
        let repository = scene.repository(scene.memory.store());
        let repository = match asks_leases {
            true => repository,
            false => repository.without_rule(Rule::RebuildAsksLeases),
        };
        scene.runtime.block_on(rebuild(&scene.context_of(repository))).unwrap();
        let without = (!stops).then_some(Rule::MissingStops);
        for _ in 0..2 {
            assert_eq!(collect_without(&scene, without).missing_containers > 0, !asks_leases);
        }
        assert_eq!(scene.is_there(target), asks_leases || stops, "{asks_leases} {stops}");
    }
}

/// A backup on a version whose chunks were moved: before each of its operations both versions are forgotten, the index is rebuilt, by
/// itself or by a pass that misses it, and passes collect.
#[test]
fn a_backup_whose_base_is_forgotten_beside_a_rebuild_is_whole() {
    for loses in [false, true] {
        let (scene, first, second, _) = led();
        let series = |id| scene.versions().into_iter().find(|version| version.id() == id).unwrap().summary.series;
        let series = series(first);
        // The version with the moved chunks is the newest of its series.
        let newer: Vec<JobId> = scene.versions().iter().map(|version| version.id()).collect();
        newer.into_iter().filter(|id| *id != first && *id != second).for_each(|id| scene.forget(id));
        scene.fill(&series, &[("one", 1, 90_000), ("two", 2, 60_000), ("extra", 9, 20_000)]);
        let expected = {
            let fork = scene.fork();
            let id = fork.backup(&fork.context(), &series).unwrap().version.unwrap().id;
            fork.contents().remove(&id).unwrap()
        };
        let name = series.clone();
        at_every_operation(
            &scene,
            move |scene| {
                scene.forget(first);
                scene.forget(second);
                match loses {
                    true => scene.lose_index(),
                    false => drop(scene.rebuild()),
                }
                for _ in 0..2 {
                    collect_without(scene, None);
                }
            },
            |scene, store| scene.backup(&scene.context_at(store), &name),
            |scene, result, at| {
                let id = result.unwrap_or_else(|error| panic!("{at}: {error}")).version.unwrap().id;
                assert!(scene.contents()[&id] == expected, "{at}");
                for _ in 0..2 {
                    collect_without(scene, None);
                }
                assert_eq!(scene.rebuild().lost_chunks, 0, "{at}");
                assert!(scene.contents()[&id] == expected, "{at}");
            },
        );
    }
}

/// What a rebuild searched for in vain stops nobody for ever; what is missing since then does.
#[test]
fn searched_covers_what_the_rebuild_missed_and_nothing_else() {
    let scene = Scene::new();
    let ids: Vec<JobId> = (0..6).map(|n| scene.alone("a", &[("file", n, 60_000)])).collect();
    scene.pass_with(&collects()).unwrap();
    let container = |at: usize| *scene.data_of(ids[at]).first().unwrap();
    let (damaged, lost_later, garbage, kept) = (container(0), container(1), container(2), container(3));
    let goes = container(4);
    scene.runtime.block_on(scene.memory.remove(&names::container(damaged)));
    let rebuilt = scene.rebuild();
    assert!(rebuilt.lost_chunks > 0);
    scene.forget(ids[2]);
    for _ in 0..2 {
        assert_eq!(collect_without(&scene, None).missing_containers, 1);
    }
    assert!(!scene.is_there(garbage), "the damage was searched");
    scene.runtime.block_on(scene.memory.remove(&names::container(lost_later)));
    scene.forget(ids[3]);
    for listing in [Listing::Whole, Listing::New, Listing::New] {
        let report = scene.pass_with(&PassOptions { listing, ..collects() }).unwrap();
        assert_eq!(report.missing_containers, 2, "{listing:?}");
        assert!(scene.is_there(kept), "nobody searched for the second one: {listing:?}");
    }
    // Until somebody does.
    scene.rebuild();
    scene.forget(ids[4]);
    for _ in 0..2 {
        collect_without(&scene, None);
    }
    assert!(!scene.is_there(goes));
}

/// One listing of containers lacks all of them: nothing counts as gone that is there.
#[test]
fn a_listing_that_lacks_containers_is_refused() {
    for below in [names::DATA, names::META] {
        let scene = Scene::new();
        let (context, faults) = scene.faulty(&scene.memory);
        for n in 0..3 {
            alone_at(&scene, &context, "a", &[("file", n, 60_000)]);
        }
        scene.pass_with(&collects()).unwrap();
        let contents = scene.contents();
        let lie = || {
            faults.add(When::kind(OpKind::List).path(below.trim_end_matches('/')), Fault::Stale(1000), Times::First(1))
        };
        lie();
        let rebuilt = scene.runtime.block_on(rebuild(&context));
        match below == names::DATA {
            true => assert!(matches!(rebuilt, Err(PassError::WrongListing { .. })), "{rebuilt:?}"),
            // Metadata is moved nowhere, so a rebuild does not ask for it.
            false => assert!(rebuilt.is_ok()),
        }
        lie();
        let pass = scene.runtime.block_on(run(&context, &collects()));
        assert!(matches!(pass, Err(PassError::WrongListing { .. })), "{below}: {pass:?}");
        for _ in 0..3 {
            assert_eq!(collect_without(&scene, None).missing_containers, 0);
        }
        assert!(scene.contents() == contents);
        assert_eq!(scene.rebuild().lost_chunks, 0);
    }
}

/// A listing that lacks what a moved chunk lies in, while its own container is gone: it is listed again before it counts as lost.
#[test]
fn a_listing_that_lacks_where_chunks_went_is_repeated() {
    let scene = Scene::new();
    let (context, faults) = scene.faulty(&scene.memory);
    let old = [("one", 1, 90_000), ("two", 2, 60_000)];
    let [a, b] = ["a", "b"].map(|series| alone_at(&scene, &context, series, &old));
    alone_at(&scene, &context, "a", &[("new", 3, 50_000)]);
    alone_at(&scene, &context, "b", &[("new", 4, 50_000)]);
    scene.optimize(Exact::Never);
    let own = |id| *scene.data_of(id).first().unwrap();
    let (first, second) = if scene.is_there(own(a)) { (b, a) } else { (a, b) };
    let target = own(second);
    let contents = scene.contents();
    scene.forget(second);
    faults.add(When::kind(OpKind::List).path("data"), Fault::Stale(1000), Times::First(1));
    // Newest versions are named and asked for, so that the listing would be refused; here nothing else is named.
    let newer: Vec<JobId> = scene.versions().iter().map(|version| version.id()).filter(|id| *id != first).collect();
    newer.into_iter().for_each(|id| scene.forget(id));
    let rebuilt = scene.runtime.block_on(rebuild(&context)).unwrap();
    assert_eq!((rebuilt.reclaimed, rebuilt.lost_chunks), (1, 0));
    for _ in 0..2 {
        collect_without(&scene, None);
    }
    assert!(scene.is_there(target) && scene.contents()[&first] == contents[&first]);
}

/// A copy of a repository has the index of one moment and the containers of another: what a retired container forwards to is not there,
/// and no listing tells. The retired one stays (`ForwardsThere`).
#[test]
fn a_retired_container_stays_while_what_it_forwards_to_is_missing() {
    for holds in [true, false] {
        let (scene, first, second) = twins();
        let contents = scene.contents();
        scene.pass_with(&collects()).unwrap();
        let own = *scene.data_of(first).first().unwrap();
        let target = *scene.data_of(second).first().unwrap();
        let before = scene.runtime.block_on(scene.memory.get(&names::container(own))).unwrap();
        scene.optimize(Exact::Never);
        scene.runtime.block_on(scene.memory.put(&names::container(own), before));
        let saved = scene.runtime.block_on(scene.memory.get(&names::container(target))).unwrap();
        scene.runtime.block_on(scene.memory.remove(&names::container(target)));
        let of_target = |found: &IndexFinding| match found {
            IndexFinding::ContainerUnreadable { container, needed_by, .. } => {
                *container == names::container(target) && needed_by.contains(&first) && needed_by.contains(&second)
            }
            _ => false,
        };
        assert!(scene.disagreements().iter().any(of_target), "who needs it is said");
        let repository = scene.repository(scene.memory.store());
        let repository = if holds { repository } else { repository.without_rule(Rule::ForwardsThere) };
        // What was taken in before is not listed, so that only the forward leads there.
        let options = PassOptions { reclaim: None, ..pass_options() };
        let reports: Vec<_> = (0..2)
            .map(|_| scene.runtime.block_on(run(&scene.context_of(repository.clone()), &options)).unwrap())
            .collect();
        assert_eq!(scene.is_there(own), holds);
        assert_eq!(reports[0].missing_containers > 0, holds);
        if holds {
            scene.runtime.block_on(scene.memory.put(&names::container(target), saved));
            for _ in 0..2 {
                collect_without(&scene, None);
            }
            assert!(scene.contents() == contents && !scene.is_there(own));
        }
    }
}

/// What a rebuild could not read may be where chunks went, although nothing is missing yet: the delete of their old container is still
/// under way. So nobody deletes it (`UnreadKept`).
#[test]
fn what_a_rebuild_could_not_read_is_kept() {
    let (scene, first, second) = twins();
    let own = *scene.data_of(first).first().unwrap();
    let target = *scene.data_of(second).first().unwrap();
    let late = scene.runtime.block_on(scene.memory.get(&names::container(own))).unwrap();
    scene.optimize(Exact::Never);
    let contents = scene.contents();
    scene.runtime.block_on(scene.memory.put(&names::container(own), late));
    scene.forget(second);
    let (context, faults) = scene.faulty(&scene.memory);
    faults.add(
        When::kind(OpKind::Get).path(&names::container(target)),
        Fault::FailBefore(Failure::Status(404)),
        Times::Always,
    );
    let rebuilt = scene.runtime.block_on(rebuild(&context)).unwrap();
    assert_eq!(rebuilt.lost_chunks, 0);
    for _ in 0..3 {
        assert_eq!(collect_without(&scene, None).missing_containers, 0);
        assert!(scene.is_there(target));
    }
    scene.runtime.block_on(scene.memory.remove(&names::container(own)));
    assert_eq!(scene.rebuild().lost_chunks, 0);
    assert!(scene.contents()[&first] == contents[&first]);
}
