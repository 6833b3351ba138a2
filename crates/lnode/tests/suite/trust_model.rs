//! What those cannot do who have a stolen key and may create objects, model-checked ("Rules of trust" of `docs/concurrency.md`).
//!
//! A client has a version of one file in its domain, and makes another backup. Its operator may forget either. A G-node rewrites the
//! first version, restarts, and makes passes, which prove generations or wait, and move contents or not. A thief has the client's key
//! for backups without its witness. He creates objects under free names: a version in its series, a generation, marks, an index, and
//! a container whose name became free. Somebody with the operator's signature puts a generation above the first version that does not
//! have the file where it says. Whatever they create, and whenever, restores give the client what it had, and so do those of its
//! later backups. Nothing is hidden that the operator did not forget, and no version depends on what another domain has.
//!
//! Steps of the protocol are one here: a pass sees, decides and deletes at once, and so does a backup that begins. `protocol_model.rs`
//! takes them apart. Below, each rule is taken away once, and the checker finds what comes of it. The last tests show what the rules
//! leave open.

mod honest;
mod state;
mod thief;

use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::trust_model::honest::{Restored, Tasks};
use crate::trust_model::state::{Bytes, Container, Domain, FIRST, Job, Maker, Mark, SECOND, State};
use crate::trust_model::thief::Plant;

/// A rule of `docs/concurrency.md` ("Rules of trust").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// A generation supersedes lower ones only when a pass has proved it, or this process wrote it.
    ProvedBeforeRetired,
    /// If this process wrote it, it did so from one that is proved.
    RewrittenFromProved,
    /// A proof reads every chunk that is not where the highest proved generation has it.
    ReadWhereMoved,
    /// Marks, indexes and later generations count only with the operator's signature.
    SignedOnly,
    /// Files are taken for unchanged only as in a version with the client's own witness.
    WitnessedOnly,
    /// A version has metadata in containers of its own domain only.
    MetaInDomain,
    /// A reader takes bytes with another fingerprint for an object that is not there.
    WrongIsAbsent,
}

/// What somebody may create who should not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Has {
    /// Objects with these names, unsigned. A key of any domain for backups is enough.
    Marks,
    Indexes,
    Generations,
    Containers,
    /// Versions in the client's series. It takes a key of its domain.
    Versions,
    /// Containers whose tables are not true, for these versions.
    LyingTables,
    /// Closing marks of the client's job. It takes a key of its domain.
    Settling,
    /// What was removed, from copies.
    OldVersions,
    /// Generations with the operator's signature.
    Signature,
}

/// A key of some domain for backups.
const FOREIGN_KEY: &[Has] = &[Has::Marks, Has::Indexes, Has::Generations, Has::Containers];
/// That of the client's domain.
const STOLEN_KEY: &[Has] = &[Has::Marks, Has::Indexes, Has::Generations, Has::Containers, Has::Versions];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Plant(Plant),
    /// A backup begins. The file looks changed, or not.
    Begin(bool),
    /// One of another series begins, which resembles what the other domain has.
    BeginBeside,
    Commit,
    Forget(usize),
    /// The G-node makes a generation, and copies the file for it or not.
    Rewrite(bool),
    /// The G-node forgets what it wrote.
    Restart,
    Pass(Tasks),
    /// Whatever the other domain has is lost.
    LoseOther,
}

/// The model of one scenario.
#[derive(Debug, Clone)]
pub(crate) struct Trust {
    without: Option<Rule>,
    /// What the adversaries may create.
    has: Vec<Has>,
    /// The client makes another backup.
    backs_up: bool,
    /// There is a version of another domain.
    pub(crate) has_neighbour: bool,
    /// A backup builds on no generation that no pass has proved. The code does not keep this.
    pub(crate) waits_for_proofs: bool,
}

impl Trust {
    fn new(without: Option<Rule>, has: &[Has]) -> Self {
        Self { without, has: has.to_vec(), backs_up: true, has_neighbour: false, waits_for_proofs: false }
    }

    /// A thief of the client's key for backups.
    fn stolen(without: Option<Rule>) -> Self {
        Self::new(without, STOLEN_KEY)
    }

    /// The same beside somebody with the operator's signature. The client makes no backup.
    fn signed(without: Option<Rule>) -> Self {
        Self { backs_up: false, ..Self::stolen(without).with(Has::Signature) }
    }

    /// A thief of a key of another domain, whose versions resemble the client's.
    fn neighbour(without: Option<Rule>) -> Self {
        Self { has_neighbour: true, ..Self::new(without, FOREIGN_KEY) }
    }

    fn with(mut self, has: Has) -> Self {
        self.has.push(has);
        self
    }

    pub(crate) fn has(&self, has: Has) -> bool {
        self.has.contains(&has)
    }

    pub(crate) fn keeps(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    /// Whether a version of the client is given back. If it is not, because the operator's signature is on something untrue above
    /// it, it is enough that it would be given back without that.
    fn gives_truth(&self, state: &State, version: usize) -> bool {
        let is_signed_over = version == FIRST && has_generation_of(state, Maker::Signer);
        let mut below = state.clone();
        below.generations = [None; 2];
        let is_true = |state: &State| self.restore(state, version) == Restored::Bytes(Bytes::True);
        is_true(state) || (is_signed_over && is_true(&below))
    }
}

fn has_generation_of(state: &State, maker: Maker) -> bool {
    state.generations.iter().flatten().any(|generation| generation.by == maker)
}

/// Versions that the client committed and nobody forgot who may.
fn owed(state: &State) -> impl Iterator<Item = usize> {
    [FIRST, SECOND].into_iter().filter(|version| state.committed[*version] && !state.forgotten[*version])
}

impl Model for Trust {
    type State = State;
    type Action = Act;

    fn init_states(&self) -> Vec<State> {
        vec![State::new()]
    }

    fn actions(&self, state: &State, acts: &mut Vec<Act>) {
        acts.extend(self.plants(state).into_iter().map(Act::Plant));
        match state.job {
            Job::Begins if self.backs_up => {
                acts.extend([Act::Begin(false), Act::Begin(true)]);
                acts.extend(self.has_neighbour.then_some(Act::BeginBeside));
            }
            Job::Runs { .. } => acts.push(Act::Commit),
            _ => {}
        }
        let has_name = |version: &usize| state.versions[*version].is_some() && state.marks[*version] == Mark::Absent;
        acts.extend([FIRST, SECOND].into_iter().filter(has_name).map(Act::Forget));
        acts.extend([Act::Rewrite(false), Act::Rewrite(true), Act::Restart]);
        for (proves, moves) in [(false, false), (true, false), (true, true)] {
            acts.push(Act::Pass(Tasks { proves, moves }));
        }
        if self.has_neighbour {
            acts.push(Act::LoseOther);
        }
    }

    fn next_state(&self, last: &State, act: Act) -> Option<State> {
        let mut state = last.clone();
        match act {
            Act::Plant(plant) => self.plant(&mut state, plant),
            Act::Begin(is_touched) => self.begin(&mut state, is_touched),
            Act::BeginBeside => self.begin_beside(&mut state),
            Act::Commit => {
                let Job::Runs { commits, .. } = state.job else { return None };
                Self::commit(&mut state, commits);
            }
            Act::Forget(version) => {
                state.marks[version] = Mark::Signed;
                state.forgotten[version] = true;
            }
            Act::Rewrite(copies) => self.rewrite(&mut state, copies)?,
            Act::Restart => state.own = 0,
            Act::Pass(tasks) => self.pass(&mut state, tasks)?,
            Act::LoseOther => state.is_other_lost = true,
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(RESTORED, |model: &Self, state: &State| {
                owed(state).all(|version| model.gives_truth(state, version))
            }),
            Property::always(KEPT, |_: &Self, state: &State| owed(state).next().is_none() || state.has_truth()),
            Property::always(NO_OTHER, |model: &Self, state: &State| {
                [FIRST, SECOND].into_iter().all(|it| model.restore(state, it) != Restored::Bytes(Bytes::Other))
            }),
            Property::always(NOT_HIDDEN, |model: &Self, state: &State| {
                owed(state).all(|version| model.restore(state, version) != Restored::Gone)
            }),
            Property::always(APART, |model: &Self, state: &State| {
                let first = model.newest(state).map(|(_, _, metadata)| metadata);
                let second = state.versions[SECOND].map(|version| version.metadata);
                first.into_iter().chain(second).all(|metadata| metadata == Domain::Own)
            }),
        ];
        if self.without.is_some() {
            return properties;
        }
        let mut sometimes = |name, condition: fn(&Self, &State) -> bool| {
            properties.push(Property::sometimes(name, condition));
        };
        sometimes("a forgotten version was removed", |_, state| {
            state.forgotten[FIRST] && state.versions[FIRST].is_none()
        });
        sometimes("a generation was proved, and what was below it is gone", |_, state| {
            state.proved == 1 && state.own == 0 && !state.there.has(Container::First)
        });
        sometimes("a planted generation stops passes", |model, state| {
            let tasks = Tasks { proves: true, moves: false };
            has_generation_of(state, Maker::Thief) && model.pass(&mut state.clone(), tasks).is_none()
        });
        if self.backs_up {
            sometimes("contents were moved, and the name of their container was taken", |_, state| {
                state.is_retired && state.is_garbage && owed(state).count() == 2
            });
        }
        if self.backs_up && self.has(Has::Versions) {
            sometimes("a backup follows the client's version beside a newer one of the thief", |_, state| {
                let second = state.versions[SECOND];
                state.stolen.is_some() && second.is_some_and(|second| second.at == Container::First)
            });
        }
        if self.has(Has::Signature) {
            sometimes("a pass that may prove relies on what is below a signed generation", |model, state| {
                let mut after = state.clone();
                let passes = model.pass(&mut after, Tasks { proves: true, moves: false });
                let is_below = after.proved == 0 && after.listed.has(Container::First);
                passes.is_some() && has_generation_of(&after, Maker::Signer) && is_below
            });
            sometimes("a generation was rewritten from one that is not true", |_, state| {
                let second = state.generation(2).filter(|second| second.by == Maker::GNode);
                second.is_some_and(|second| !state.holds_truth(second.at))
            });
        }
        if self.has_neighbour {
            sometimes("the other domain lost what it had, beside a generation of the G-node", |_, state| {
                state.is_other_lost && state.proved > 0 && state.committed[SECOND]
            });
        }
        properties
    }
}

const RESTORED: &str = "what the client committed is given back until its operator forgets it";
const KEPT: &str = "the bytes of what the client committed stay in the store until its operator forgets it";
const NO_OTHER: &str = "no restore of the client gives what somebody else wants it to give";
const NOT_HIDDEN: &str = "nothing is hidden that the operator did not forget";
const APART: &str = "a version of the client has metadata of its own domain only";

#[track_caller]
fn holds(model: Trust) {
    assert!(model.without.is_none());
    let checker = model.checker().spawn_dfs().join();
    assert!(checker.is_done(), "some states were not explored");
    checker.assert_properties();
}

/// The checker finds a way to what must not be.
#[track_caller]
fn breaks(model: Trust, property: &'static str) {
    let rule = model.without;
    let checker = model.checker().finish_when(HasDiscoveries::AllOf([property].into())).spawn_bfs().join();
    assert!(checker.discovery(property).is_some(), "{rule:?} prevents nothing");
}

#[test]
fn a_stolen_key_for_backups_changes_hides_and_destroys_nothing() {
    holds(Trust::stolen(None));
}

#[test]
fn a_signed_generation_that_is_not_true_destroys_nothing() {
    holds(Trust::signed(None));
}

#[test]
fn what_becomes_of_another_domain_harms_nobody() {
    holds(Trust::neighbour(None));
}

/// All of it at once, if backups waited for proofs.
#[test]
fn all_of_them_destroy_nothing_if_backups_wait_for_proofs() {
    holds(Trust { backs_up: true, has_neighbour: true, waits_for_proofs: true, ..Trust::signed(None) });
}

#[test]
fn generation_that_supersedes_unproved() {
    breaks(Trust::signed(Some(Rule::ProvedBeforeRetired)), KEPT);
}

#[test]
fn what_this_process_rewrote_counts_as_proved_whatever_it_was_rewritten_from() {
    breaks(Trust::signed(Some(Rule::RewrittenFromProved)), KEPT);
}

#[test]
fn proof_that_reads_nothing_in_containers_that_the_version_had() {
    breaks(Trust::signed(Some(Rule::ReadWhereMoved)), KEPT);
}

#[test]
fn unsigned_marks_that_count() {
    breaks(Trust::new(Some(Rule::SignedOnly), &[Has::Marks]), NOT_HIDDEN);
    breaks(Trust::new(Some(Rule::SignedOnly), &[Has::Marks]), KEPT);
}

#[test]
fn unsigned_index_that_counts() {
    breaks(Trust::new(Some(Rule::SignedOnly), &[Has::Indexes]), KEPT);
}

#[test]
fn unsigned_generation_that_counts() {
    breaks(Trust::new(Some(Rule::SignedOnly), &[Has::Generations]), RESTORED);
}

#[test]
fn version_without_a_witness_followed() {
    breaks(Trust::new(Some(Rule::WitnessedOnly), &[Has::Versions]), NO_OTHER);
}

#[test]
fn metadata_of_two_domains_in_one_version() {
    breaks(Trust::neighbour(Some(Rule::MetaInDomain)), APART);
    breaks(Trust::neighbour(Some(Rule::MetaInDomain)), RESTORED);
}

#[test]
fn planted_object_that_hides_where_its_name_forwards_to() {
    breaks(Trust::new(Some(Rule::WrongIsAbsent), &[Has::Containers]), RESTORED);
}

/// Known: within a domain, the table of a container is believed. A duplicate is not stored again that is not there.
#[test]
fn open_a_table_that_is_not_true() {
    breaks(Trust::new(None, &[Has::Versions, Has::LyingTables]), KEPT);
}

/// Known: a backup builds on a signed generation before a pass has proved it.
#[test]
fn open_a_backup_on_a_signed_generation() {
    breaks(Trust::new(None, &[Has::Versions, Has::Signature]), KEPT);
}

/// Known: somebody with a key of the domain closes a job that runs, and its base is forgotten. Nothing retains what the job takes over.
#[test]
fn open_a_job_that_another_settled() {
    breaks(Trust::new(None, &[Has::Settling]), KEPT);
}

/// Known: the witness of a version outlives it. Who kept the version can put it back, over containers that are something else.
#[test]
fn open_a_forgotten_version_that_was_put_back() {
    breaks(Trust::new(None, &[Has::OldVersions, Has::Containers]), KEPT);
}
