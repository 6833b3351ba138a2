//! What must always be true, and what must be reachable so that the model is not true for want of anything happening.

use stateright::Property;

use crate::protocol_model::collector::Phase;
use crate::protocol_model::job::Outcome;
use crate::protocol_model::model::Protocol;
use crate::protocol_model::scenario::{Kind, Plan};
use crate::protocol_model::sets::{CONTAINERS_PER_JOB, Containers};
use crate::protocol_model::state::{Register, State, resolves};

/// Nothing committed is lost: what the protocol is there for.
pub(crate) const WHOLE: &str = "every visible version has all its containers";
/// The same one step earlier: a job that may still commit, or a reader that no G-node aborted, misses nothing.
pub(crate) const PINNED: &str = "what a running job relies on exists";
/// A reader that no G-node aborted finds everything.
pub(crate) const FOUND: &str = "nothing is reported as lost that is there";
/// A job that was told its version is committed finds it there until somebody forgets it.
pub(crate) const STAYS: &str = "a committed version stays until it is forgotten";
/// Fencing is final.
pub(crate) const FENCED: &str = "an aborted job never becomes visible";
/// Removal is final.
pub(crate) const REMOVED: &str = "a removed version never comes back";
/// Garbage can be collected, whatever happened before.
pub(crate) const NO_LEAK: &str = "one quiet pass leaves exactly what visible versions reference";

/// A rebuild finds it, if the index does not.
pub(crate) const KEPT: &str = "every chunk that a visible version needs is in some container";

/// The invariants, and the examples that `model` asks for.
pub(crate) fn of(model: &Protocol) -> Vec<Property<Protocol>> {
    let mut properties = vec![
        Property::always(WHOLE, |model: &Protocol, state: &State| {
            let wanted = model.referenced(state).minus(model.in_unread(state));
            resolves(wanted, &state.bucket.index.forwards, state.bucket.containers)
        }),
        Property::always(KEPT, |model: &Protocol, state: &State| {
            let has = |at: usize| Containers::at(at).within(state.bucket.containers);
            let equal = |at: usize| {
                let pairs = model.scenario.equal.iter();
                pairs.filter(move |pair| pair.0 == at || pair.1 == at).any(|pair| has(pair.0) || has(pair.1))
            };
            // By the index where it knows more: also what was rewritten.
            let wanted = model.referenced(state).iter();
            let known = |at: usize| resolves(Containers::at(at), &state.bucket.index.forwards, state.bucket.containers);
            wanted.into_iter().all(|at| has(at) || equal(at) || known(at))
        }),
        Property::always(PINNED, |model: &Protocol, state: &State| {
            let relying = (0..state.jobs.len()).filter(|job| model.relies(state, *job));
            let taken = relying.fold(Containers::default(), |all, job| all.union(state.jobs[job].taken));
            resolves(taken.minus(model.in_unread(state)), &state.bucket.index.forwards, state.bucket.containers)
        }),
        Property::always(FOUND, |_: &Protocol, state: &State| {
            state.history.alarmed.minus(state.history.expired_readers).is_empty()
        }),
        Property::always(STAYS, |model: &Protocol, state: &State| {
            let mut told = (0..state.jobs.len()).filter(|job| state.jobs[*job].outcome == Outcome::Committed);
            told.all(|job| match model.scenario.jobs[job].kind {
                // Nobody looks for the index of a certain number.
                Kind::Reader | Kind::Rewriting => true,
                Kind::Compaction => model.compacts(job).is_none_or(|version| {
                    !model.visible(state, version) || model.newest_generation(state, version) >= job
                }),
                Kind::Backup => state.history.forgotten.has(job) || state.bucket.registers[job] == Register::Manifest,
            })
        }),
        Property::always(FENCED, |model: &Protocol, state: &State| {
            // A fence that comes after a version was forgotten and removed fences nobody.
            let mut fenced = state.history.aborted.minus(state.history.forgotten).iter();
            fenced.all(|job| !comes_back(model, state, job))
        }),
        Property::always(REMOVED, |model: &Protocol, state: &State| {
            state.history.removed.iter().all(|job| !comes_back(model, state, job))
        }),
    ];
    if model.look_for_leaks {
        properties.push(Property::always(NO_LEAK, leaves_no_garbage));
    }
    properties.extend(model.witnesses.iter().cloned());
    properties
}

/// Whether what `job` made is there. A generation of a version that is gone is nothing.
fn comes_back(model: &Protocol, state: &State, job: usize) -> bool {
    match model.compacts(job) {
        Some(_) => model.is_current(state, job),
        None => state.bucket.registers[job] == Register::Manifest,
    }
}

/// A quiet pass leaves the containers that visible versions reference and no others; of a job that closed its lease and
/// has no visible version it leaves nothing at all, and of a lease that nobody closed nothing either.
fn leaves_no_garbage(model: &Protocol, state: &State) -> bool {
    let left = model.quiet_pass(state);
    let barring = model.barring(&left);
    let forgettable = |job: &usize| state.bucket.leases[*job].done && !model.visible(&left, *job) && !barring.has(*job);
    let no_entries = (0..state.jobs.len()).filter(forgettable).all(|job| {
        let bucket = &left.bucket;
        bucket.registers[job] == Register::Absent && bucket.leases[job].absent() && !bucket.forgotten.has(job)
    });
    let no_leases = left.bucket.leases.iter().all(|lease| !lease.open());
    // What was retired may lie there still; it goes when somebody carries that out.
    let reclaimed = left.bucket.index.reclaimed;
    let needed = left.bucket.index.closure(model.referenced(&left)).minus(reclaimed);
    left.bucket.containers.minus(reclaimed) == needed && no_entries && no_leases
}

/// Some backup for which `test` holds.
fn some_job(model: &Protocol, state: &State, test: impl Fn(usize, &Plan) -> bool) -> bool {
    let mut plans = model.scenario.jobs.iter().enumerate();
    plans.any(|(job, plan)| state.history.committed.has(job) && test(job, plan))
}

/// A version is gone to its last object.
pub(crate) fn collected() -> Property<Protocol> {
    Property::sometimes("a forgotten version is gone with all it had", |model: &Protocol, state: &State| {
        some_job(model, state, |job, _| {
            let bucket = &state.bucket;
            let objects = bucket.registers[job] != Register::Absent || bucket.forgotten.has(job);
            let containers = !bucket.containers.and(Containers::of_job(job)).is_empty();
            !objects && !containers && bucket.leases[job].absent()
        })
    })
}

/// A base is forgotten and removed while the version built on it lives.
pub(crate) fn outlives_base() -> Property<Protocol> {
    Property::sometimes("a version lives on when its base is gone", |model: &Protocol, state: &State| {
        some_job(model, state, |job, plan| {
            let base = plan.base.filter(|base| state.history.removed.has(*base));
            model.visible(state, job)
                && base.is_some_and(|base| !state.manifest(job).and(state.manifest(base)).is_empty())
        })
    })
}

/// A job looks too late, and does without its base.
pub(crate) fn does_without_base() -> Property<Protocol> {
    Property::sometimes("a job does without a base that was forgotten", |model: &Protocol, state: &State| {
        some_job(model, state, |job, plan| {
            plan.base.is_some_and(|base| state.manifest(job).and(Containers::of_job(base)).is_empty())
        })
    })
}

/// What a fenced job uploaded is part of a version.
pub(crate) fn adopted_from_the_dead() -> Property<Protocol> {
    Property::sometimes("containers of an aborted job live on in a version", |model: &Protocol, state: &State| {
        some_job(model, state, |job, plan| {
            let dead = plan.adopts.and(state.history.aborted);
            model.visible(state, job) && !state.manifest(job).and(Containers::of_jobs(dead)).is_empty()
        })
    })
}

/// An adopted job was only slow.
pub(crate) fn adopted_from_the_slow() -> Property<Protocol> {
    Property::sometimes("an adopted job and its adopter both commit", |model: &Protocol, state: &State| {
        some_job(model, state, |job, plan| {
            let slow = plan.adopts.and(state.history.committed);
            model.visible(state, job) && !state.manifest(job).and(Containers::of_jobs(slow)).is_empty()
        })
    })
}

/// A running job is fenced.
pub(crate) fn notices_fence() -> Property<Protocol> {
    Property::sometimes("a job finds itself fenced when it commits", |_: &Protocol, state: &State| {
        state.jobs.iter().any(|job| job.outcome == Outcome::Fenced)
    })
}

/// A create that was abandoned as unanswered decides the register.
pub(crate) fn late_create_wins() -> Property<Protocol> {
    Property::sometimes("an unanswered create commits the version late", |model: &Protocol, state: &State| {
        some_job(model, state, |job, _| state.jobs[job].unanswered && state.jobs[job].outcome == Outcome::Open)
    })
}

/// A reader ends well although its version was forgotten meanwhile.
pub(crate) fn reads_to_the_end() -> Property<Protocol> {
    Property::sometimes("a forgotten version is read to its end", |model: &Protocol, state: &State| {
        let mut plans = model.scenario.jobs.iter().enumerate().filter(|(_, plan)| plan.kind == Kind::Reader);
        plans.any(|(job, plan)| {
            let read = state.bucket.leases[job].done && !state.jobs[job].taken.is_empty();
            read && plan.base.is_some_and(|base| state.history.forgotten.has(base))
        })
    })
}

/// What an older generation referenced is collected, and the version is there.
pub(crate) fn lives_in_a_newer_generation() -> Property<Protocol> {
    Property::sometimes("a version lives on in a newer generation", |model: &Protocol, state: &State| {
        some_job(model, state, |job, plan| {
            let replaced = plan.replaces.and(state.bucket.containers);
            plan.kind == Kind::Compaction && model.is_current(state, job) && replaced.is_empty()
        })
    })
}

/// A version shares a container with one that is gone, and has left its own.
pub(crate) fn lives_in_what_it_shares() -> Property<Protocol> {
    Property::sometimes("a version lives on in a container that another left", |model: &Protocol, state: &State| {
        some_job(model, state, |job, plan| {
            let other = plan.shares.filter(|other| state.history.removed.has(*other));
            let shared =
                other.map_or(Containers::default(), |other| state.manifest(job).and(Containers::one(other, 0)));
            let replaced = plan.replaces.and(state.bucket.containers);
            model.is_current(state, job) && !shared.is_empty() && replaced.is_empty()
        })
    })
}

/// What a version shares was retired meanwhile, and is found where it went.
pub(crate) fn shares_what_was_retired() -> Property<Protocol> {
    Property::sometimes("a version shares a container that was retired", |model: &Protocol, state: &State| {
        some_job(model, state, |job, plan| {
            let shared = plan.shares.map_or(Containers::default(), |other| Containers::one(other, 0));
            let gone = shared.and(state.bucket.containers).is_empty();
            model.is_current(state, job) && gone && !shared.and(state.manifest(job)).is_empty()
        })
    })
}

/// A compaction does without what it meant to share, because the other version is forgotten or has left it.
pub(crate) fn does_without_sharing() -> Property<Protocol> {
    Property::sometimes("a compaction retires what it meant to share", |model: &Protocol, state: &State| {
        let mut plans = model.scenario.jobs.iter().enumerate().filter(|(_, plan)| plan.shares.is_some());
        plans.any(|(job, plan)| {
            let version_stays = plan.base.is_some_and(|version| model.visible(state, version));
            state.jobs[job].outcome == Outcome::GaveUp && version_stays
        })
    })
}

/// What a newer generation replaced is removed, although its job never said that it was over.
pub(crate) fn replaced_without_closing() -> Property<Protocol> {
    Property::sometimes("a generation is removed whose job is not closed", |model: &Protocol, state: &State| {
        let mut removed = state.history.removed.iter().filter(|job| model.compacts(*job).is_some());
        removed.any(|job| {
            let ended = model.next_step(state, job).is_none();
            let version = model.compacts(job).unwrap_or(job);
            !ended && model.visible(state, version) && model.is_superseded(state, job)
        })
    })
}

/// A slow compaction is fenced, and collected.
pub(crate) fn fenced_generation() -> Property<Protocol> {
    Property::sometimes("a compaction is fenced and its containers collected", |model: &Protocol, state: &State| {
        let mut fenced = state.history.aborted.iter().filter(|job| model.compacts(*job).is_some());
        fenced.any(|job| {
            let ended = state.jobs[job].outcome == Outcome::Fenced;
            ended && Containers::of_job(job).and(state.bucket.containers).is_empty()
        })
    })
}

/// A version whose chunks are found in a container of a version that is gone.
pub(crate) fn lives_in_what_others_left() -> Property<Protocol> {
    Property::sometimes("a version lives in containers of one that is gone", |model: &Protocol, state: &State| {
        let forwards = &state.bucket.index.forwards;
        let away: Vec<_> = model.scenario.equal.iter().filter(|pair| forwards[pair.0] == Some(pair.1 as u8)).collect();
        away.iter().any(|(old, new)| {
            let owner = new / CONTAINERS_PER_JOB;
            let gone = Containers::at(*old).and(state.bucket.containers).is_empty();
            let read_there = Containers::at(*old).within(model.referenced(state));
            gone && read_there && state.history.removed.has(owner)
        })
    })
}

/// A version was built on one whose container was gone when the index was rebuilt, and that is gone itself.
pub(crate) fn rebuilt_for_a_job() -> Property<Protocol> {
    Property::sometimes("a rebuild finds for a job what its base lost", |model: &Protocol, state: &State| {
        some_job(model, state, |job, plan| {
            let base = plan.base.filter(|base| state.history.forgotten.has(*base));
            let gone = base.map_or(Containers::default(), |base| state.manifest(base)).minus(state.bucket.containers);
            state.history.rebuilt && model.visible(state, job) && !gone.and(state.manifest(job)).is_empty()
        })
    })
}

/// A job does without a base of which the newest generation cannot be read.
pub(crate) fn does_without_the_rotten() -> Property<Protocol> {
    Property::sometimes("a job does without a base that cannot be read", |model: &Protocol, state: &State| {
        some_job(model, state, |job, plan| {
            let Some(base) = plan.base.filter(|_| plan.kind == Kind::Backup) else { return false };
            let none = state.manifest(job).and(Containers::of_job(base)).is_empty();
            none && !state.history.rotten.is_empty() && !state.history.forgotten.has(base)
        })
    })
}

/// A version is read from a container of which the index says that it was retired.
pub(crate) fn lives_in_what_was_retired() -> Property<Protocol> {
    Property::sometimes("a version lives in a container that was retired", |model: &Protocol, state: &State| {
        let reclaimed = state.bucket.index.reclaimed.and(state.bucket.containers);
        let passed = state.g_nodes.iter().any(|pass| pass.phase == Phase::Deleting);
        passed && !reclaimed.and(model.referenced(state)).is_empty()
    })
}

/// A job finds that the store overwrites.
pub(crate) fn refuses_the_store() -> Property<Protocol> {
    Property::sometimes("a job refuses a store that overwrites", |_: &Protocol, state: &State| {
        state.jobs.iter().any(|job| job.outcome == Outcome::GaveUp)
    })
}

/// What a rebuild could not read is what a visible version needs.
pub(crate) fn lives_in_what_was_unread() -> Property<Protocol> {
    Property::sometimes(
        "a version's chunk is in a container that a rebuild could not read",
        |model: &Protocol, state: &State| {
            let unread = state.bucket.index.unread.and(state.bucket.containers);
            let gone = model.referenced(state).minus(state.bucket.containers);
            !unread.is_empty() && !gone.is_empty()
        },
    )
}

/// A version whose chunks were moved to a container of a task.
pub(crate) fn lives_in_what_was_written_anew() -> Property<Protocol> {
    Property::sometimes("a version lives in a container that was rewritten", |model: &Protocol, state: &State| {
        some_job(model, state, |_, plan| {
            let gone = plan.replaces.and(state.bucket.containers).is_empty();
            plan.kind == Kind::Rewriting && gone && plan.replaces.within(model.referenced(state))
        })
    })
}

/// A rewriting loses its number, and what it wrote is collected.
pub(crate) fn void_rewriting() -> Property<Protocol> {
    Property::sometimes("a rewriting loses its number and is collected", |model: &Protocol, state: &State| {
        let mut plans = model.scenario.jobs.iter().enumerate().filter(|(_, plan)| plan.kind == Kind::Rewriting);
        plans.any(|(job, _)| {
            let ended = state.jobs[job].outcome == Outcome::Fenced;
            ended && Containers::of_job(job).and(state.bucket.containers).is_empty()
        })
    })
}
