//! What a run is about: who lives in it, in what weather, and where they are stopped. All of it is drawn from the seed.
//!
//! Half of the seeds draw anything. The others have an aim: a situation in which one rule of the protocol matters, which takes too
//! many coincidences to come about by itself. The same aims show that a broken rule is found.

use std::time::Duration;

use larder_store::rules::Rule;
use larder_testkit::data::Rng;
use larder_testkit::sim::{Ambush, Wake, Weather};

use crate::accidents::Accident;
use crate::backup::SERIES;

/// Who does what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Backs,
    Reads,
    Forgets,
    Collects,
    /// The same, and moves nothing.
    Tidies,
    /// The same as `Collects`, and shares the copying with those who help.
    Shares,
    Helps,
    Compacts,
    Converts,
    Rebuilds,
}

/// What a run is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aim {
    Anything,
    /// A job sleeps before its lease, and its base goes.
    Lease,
    /// A job sleeps before its commit, and what it names is forgotten, superseded or retired.
    Commit,
    /// The same with the layout `lifecycle`.
    Arranging,
    /// The same, and the index is rebuilt.
    Rebuilding,
    /// A pass sleeps before it lists marks.
    LateMarks,
    /// A pass sleeps before it lists versions, and compactions overtake it.
    LateGenerations,
    /// A job finds its base before a compaction, and its lease comes after a pass that saw that.
    OldGeneration,
    /// The same, and the newest generation is answered wrongly.
    UnreadableGeneration,
    /// Tasks sleep before their generation, and are aborted.
    Aborted,
    /// Jobs end by themselves and are adopted.
    Adopted,
    /// Jobs are adopted that are aborted meanwhile.
    AdoptedAborted,
    /// Jobs are adopted that commit meanwhile.
    AdoptedCommitted,
    /// Jobs are adopted that a pass aborts after it listed the leases.
    AdoptedLate,
    /// Jobs are adopted that are cleaned up meanwhile.
    AdoptedGone,
    /// Containers of running jobs are used by others and retired.
    AdoptedRetired,
    /// Deletions of retired containers take long, and the index is rebuilt.
    Copies,
    /// A pass sleeps before it publishes, until its number is free again.
    OldNumber,
    /// The newest index is lost.
    LostIndex,
    /// The newest index rots before it is marked.
    SpoiltIndex,
    /// A register is lost before a pass saw it.
    LostRegister,
    /// The same, and the job dies before its closing mark.
    LostYoung,
    /// What retired containers forward to is lost.
    LostForward,
    /// One answer is wrong.
    WrongAnswer,
    /// The store ignores that a create is conditional.
    Overwriting,
}

impl Aim {
    const ALL: &[Self] = &[
        Self::Lease,
        Self::Commit,
        Self::Arranging,
        Self::Rebuilding,
        Self::LateMarks,
        Self::LateGenerations,
        Self::OldGeneration,
        Self::UnreadableGeneration,
        Self::Aborted,
        Self::Adopted,
        Self::AdoptedAborted,
        Self::AdoptedCommitted,
        Self::AdoptedLate,
        Self::AdoptedGone,
        Self::AdoptedRetired,
        Self::Copies,
        Self::OldNumber,
        Self::LostIndex,
        Self::SpoiltIndex,
        Self::LostRegister,
        Self::LostYoung,
        Self::LostForward,
        Self::WrongAnswer,
        Self::Overwriting,
    ];

    /// What a seed is about.
    pub fn of_seed(seed: u64) -> Self {
        let mut dice = Rng::new(seed ^ 0xa1a1);
        if dice.one_in(2) { Self::Anything } else { *dice.pick(Self::ALL) }
    }

    /// One by its name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().chain(&[Self::Anything]).find(|aim| format!("{aim:?}") == name).copied()
    }

    /// The situation in which a rule matters.
    pub fn of_rule(rule: Rule) -> Self {
        match rule {
            Rule::LeaseFirst => Self::Lease,
            Rule::NamedVersionsRetained | Rule::NamedGenerationsRetained => Self::Commit,
            Rule::UnsettledLeft => Self::Arranging,
            Rule::RebuildAsksLeases | Rule::MissingStops => Self::Rebuilding,
            Rule::MarksBeforeLeases => Self::LateMarks,
            Rule::SupersededBeforeLeases => Self::LateGenerations,
            Rule::BaseChecked | Rule::GenerationAfterLease => Self::OldGeneration,
            Rule::NewestOrNothing => Self::UnreadableGeneration,
            Rule::AbortedGenerationStays => Self::Aborted,
            Rule::AdoptedKept => Self::Adopted,
            Rule::AdoptedChecked => Self::AdoptedAborted,
            Rule::SettledBeforeLeases => Self::AdoptedLate,
            Rule::CommittedNotAdopted => Self::AdoptedCommitted,
            Rule::AdoptedLeased | Rule::LeaseReadLast | Rule::LeaseRemovedFirst => Self::AdoptedGone,
            Rule::RetireSettled | Rule::RetireNotAdopted => Self::AdoptedRetired,
            Rule::RebuiltKeepsCopies => Self::Copies,
            Rule::HighestAfterWin => Self::OldNumber,
            Rule::MarkedBeforeRemoval | Rule::RebuiltFirst => Self::LostIndex,
            Rule::VoidOrMarked => Self::SpoiltIndex,
            Rule::CommittedAccounted => Self::LostRegister,
            Rule::OldEnough => Self::LostYoung,
            Rule::ForwardsThere => Self::LostForward,
            Rule::AskedTwice => Self::WrongAnswer,
            Rule::ProbedFirst => Self::Overwriting,
            _ => Self::Anything,
        }
    }
}

/// Seconds for which no process of a simulation lives.
pub const PATIENT: u64 = 1_000_000;

/// How those who live in a run behave.
#[derive(Debug, Clone, Copy)]
pub struct Habits {
    /// How many series there are.
    pub series: usize,
    /// Seconds after which a pass takes a job for dead: one of these.
    pub dead_after: &'static [u64],
    pub min_age: Duration,
    /// Whoever forgets leaves so many versions, and mostly takes the newest.
    pub leaves: usize,
    pub takes_newest: bool,
    /// One backup in so many is interrupted.
    pub interrupts: u64,
    /// Whether a backup that was not committed is tried once more with the same contents.
    pub tries_again: bool,
    /// Seconds between two things that a process does, at most.
    pub rest: u64,
    /// Blocks of a version, at most.
    pub blocks: u64,
    /// One backup in so many builds on any version.
    pub wanders: u64,
}

impl Habits {
    const USUAL: Self = Self {
        series: SERIES.len(),
        dead_after: &[0, 20, 100, 400, PATIENT, PATIENT, PATIENT],
        min_age: Duration::ZERO,
        leaves: 3,
        takes_newest: false,
        interrupts: 8,
        tries_again: false,
        rest: 60,
        blocks: 6,
        wanders: 5,
    };
    const PATIENT: Self = Self { dead_after: &[PATIENT], ..Self::USUAL };

    /// Of batches: passes are patient more often, because a batch takes long.
    pub fn of_fleets() -> Self {
        Self { dead_after: &[0, 100, 400, PATIENT, PATIENT, PATIENT, PATIENT, PATIENT], ..Self::USUAL }
    }
}

/// See the module header.
#[derive(Debug, Clone)]
pub struct Situation {
    pub aim: Aim,
    pub weather: Weather,
    /// By how much actors are slower where it hurts.
    pub careful: u64,
    pub roles: Vec<(&'static str, Role)>,
    pub ambushes: Vec<Ambush>,
    pub habits: Habits,
    pub accident: Option<Accident>,
    /// The series that are of the layout `lifecycle`.
    pub arranged: &'static [&'static str],
    /// Creates of such names are under way twice, so often out of 100.
    pub echoes: Option<(&'static str, u64)>,
}

impl Situation {
    /// What a seed draws.
    pub fn draw(seed: u64, aim: Aim) -> Self {
        let mut dice = Rng::new(seed ^ 0x5eed);
        let weather = weather(&mut dice);
        let careful = *Rng::new(seed ^ 0x4e51).pick(&[0, 1, 1, 3]);
        let arranged: &[&str] = match Rng::new(seed ^ 0xa44a).below(3) {
            0 => &[],
            1 => &SERIES,
            _ => &SERIES[1..],
        };
        let roles = anybody(seed, &mut dice);
        let any = Self {
            aim,
            weather,
            careful,
            roles,
            ambushes: Vec::new(),
            habits: Habits::USUAL,
            accident: None,
            arranged,
            echoes: None,
        };
        if aim == Aim::Anything { any } else { any.aimed(&mut dice) }
    }

    fn aimed(self, dice: &mut Rng) -> Self {
        use Role::{Backs, Collects, Compacts, Forgets, Rebuilds};
        let patient = Habits { leaves: 1, takes_newest: true, ..Habits::PATIENT };
        // Most of what goes wrong by itself would only wake the sleepers.
        let calm = *dice.pick(&[
            Weather { late: 100, ..Weather::FINE },
            Weather { fails: 50, fails_after: 50, crashes: 10, late: 100, ..Weather::FINE },
        ]);
        let (two, one) = ([("L1", Backs), ("L2", Backs), ("G1", Collects), ("F", Forgets)], ["L1", "G1", "F"]);
        let few: Vec<_> = two.iter().copied().filter(|(name, _)| one.contains(name)).collect();
        let with = |more: &[(&'static str, Role)]| [&two, more].concat();
        let before_lease = stop("L", "create jobs/", "/0");
        let before_commit = stop("L", "create versions/", "");
        let before_mark = stop("G", "create indexed/", "");
        let before_delete = stop("G1", "delete data/", "");
        let commits = Wake::Created("versions/");
        let base = Self { weather: calm, habits: patient, arranged: &[], careful: 0, ..self };
        match base.aim {
            Aim::Anything => base,
            Aim::Lease => {
                let ambushes = vec![before_lease(60, Wake::Created("index/"), 6), before_mark(60, commits, 1)];
                let habits = Habits { series: 1, rest: 20, ..patient };
                Self { roles: few, ambushes, habits, ..base }
            }
            Aim::Commit => {
                let ambushes = vec![before_commit(50, Wake::Deleted("data/"), 3)];
                Self { roles: with(&[("C1", Compacts)]), ambushes, ..base }
            }
            Aim::Arranging => {
                let ambushes = vec![before_commit(50, Wake::Created("index/"), 20)];
                Self { roles: two.to_vec(), ambushes, arranged: &SERIES, ..base }
            }
            Aim::Rebuilding => {
                let long = stop("L1", "create versions/", "")(80, Wake::Deleted("data/"), 20);
                let ambushes = vec![Ambush { most: 1500, ..long }];
                let habits = Habits { wanders: 1, takes_newest: false, leaves: 2, rest: 20, ..patient };
                Self { roles: with(&[("I", Rebuilds)]), ambushes, habits, ..base }
            }
            Aim::LateMarks => {
                let late = stop("G", "list forgotten", "")(60, Wake::Created("forgotten/"), 1);
                Self { roles: two.to_vec(), ambushes: vec![late, before_commit(50, Wake::Deleted("data/"), 2)], ..base }
            }
            Aim::LateGenerations => {
                let late = stop("G", "list versions", "")(50, commits, 3);
                let late = Ambush { most: 300, ..late };
                let slow = Ambush { most: 300, ..stop("L1", "create versions/", "")(90, Wake::Created("indexed/"), 1) };
                let roles = vec![("L1", Backs), ("L2", Backs), ("G1", Collects), ("C1", Compacts), ("C2", Compacts)];
                let habits = Habits { rest: 10, leaves: 6, blocks: 12, ..patient };
                Self { roles, ambushes: vec![late, slow], habits, ..base }
            }
            Aim::OldGeneration | Aim::UnreadableGeneration => {
                let ambushes = vec![before_lease(50, Wake::Created("index/"), 6), before_mark(60, commits, 2)];
                let accident = (base.aim == Aim::UnreadableGeneration).then_some(Accident::UnreadableGeneration);
                let habits = Habits { rest: 20, blocks: 12, leaves: 3, ..patient };
                Self { roles: with(&[("C1", Compacts), ("C2", Compacts)]), ambushes, accident, habits, ..base }
            }
            Aim::Aborted => {
                let task = stop("C", "create versions/", "")(70, Wake::Deleted("versions/"), 2);
                let habits = Habits { dead_after: &[0, 20], leaves: 3, ..patient };
                Self { roles: with(&[("C1", Compacts), ("C2", Compacts)]), ambushes: vec![task], habits, ..base }
            }
            Aim::Adopted
            | Aim::AdoptedLate
            | Aim::AdoptedAborted
            | Aim::AdoptedCommitted
            | Aim::AdoptedGone
            | Aim::AdoptedRetired => base.adopted(dice),
            Aim::Copies => {
                let ambushes = vec![before_delete(70, Wake::Deleted("data/"), 4)];
                let roles = with(&[("G2", Collects), ("I", Rebuilds), ("I2", Rebuilds)]);
                Self { roles, ambushes, habits: Habits { rest: 20, ..patient }, ..base }
            }
            Aim::OldNumber => {
                let long = stop("G1", "create index/", "")(80, Wake::Deleted("indexed/"), 5);
                let ambushes = vec![Ambush { most: 2500, not: "runs", times: (3, 5), ..long }];
                let habits = Habits { rest: 20, leaves: 8, takes_newest: false, ..patient };
                Self { roles: with(&[("G2", Role::Tidies)]), ambushes, habits, ..base }
            }
            Aim::LostIndex => {
                let ambushes = vec![before_delete(80, Wake::Created("index/"), 12)];
                let accident = Some(Accident::LostIndex);
                Self {
                    roles: with(&[("G2", Collects)]),
                    ambushes,
                    accident,
                    habits: Habits { rest: 30, ..patient },
                    ..base
                }
            }
            Aim::SpoiltIndex => {
                let ambushes = vec![stop("G1", "create indexed/", "")(80, Wake::Created("index/"), 3)];
                let ambushes =
                    [ambushes, vec![stop("G2", "create index/", "")(50, Wake::Deleted("data/"), 2)]].concat();
                let accident = Some(Accident::SpoiltIndex);
                Self {
                    roles: with(&[("G2", Collects)]),
                    ambushes,
                    accident,
                    habits: Habits { rest: 30, ..patient },
                    ..base
                }
            }
            Aim::LostRegister => Self { roles: two.to_vec(), accident: Some(Accident::LostRegister), ..base },
            Aim::LostYoung => {
                let habits = Habits { dead_after: &[0, 20, 100], min_age: Duration::from_secs(PATIENT), ..patient };
                let ambushes = vec![stop("L", "create jobs/", "/done")(70, Wake::Created("index/"), 8)];
                Self { roles: two.to_vec(), ambushes, accident: Some(Accident::LostRegister), habits, ..base }
            }
            Aim::LostForward => {
                let ambushes = vec![before_delete(90, Wake::Created("versions/"), 2)];
                let weather = Weather { crashes: 60, ..base.weather };
                Self { roles: two.to_vec(), ambushes, accident: Some(Accident::LostForward), weather, ..base }
            }
            Aim::WrongAnswer => {
                let ambushes =
                    vec![before_commit(40, Wake::Deleted("data/"), 2), before_lease(20, Wake::Created("index/"), 4)];
                Self { roles: two.to_vec(), ambushes, accident: Some(Accident::WrongAnswer), ..base }
            }
            Aim::Overwriting => {
                let habits = Habits { dead_after: &[0, 20], ..patient };
                let ambushes = vec![before_commit(60, commits, 2)];
                Self { roles: two.to_vec(), ambushes, habits, accident: Some(Accident::Overwriting), ..base }
            }
        }
    }

    /// Jobs that adopt others.
    fn adopted(self, dice: &mut Rng) -> Self {
        use Role::{Backs, Collects, Forgets};
        let before_lease = stop("L", "create jobs/", "/0");
        let before_commit = stop("L", "create versions/", "");
        let before_mark = stop("G", "create indexed/", "");
        let commits = Wake::Created("versions/");
        let habits = Habits { series: 1, interrupts: 2, tries_again: true, ..self.habits };
        let two = vec![("L1", Backs), ("L2", Backs), ("G1", Collects)];
        let and = |more: &[(&'static str, Role)]| [&two, more].concat();
        let base = Self { habits, roles: and(&[("F", Forgets)]), ..self };
        match base.aim {
            Aim::Adopted => Self { ambushes: vec![before_commit(50, Wake::Deleted("data/"), 3)], ..base },
            Aim::AdoptedAborted => {
                let ambushes = vec![
                    before_lease(60, Wake::Created("index/"), 4),
                    before_mark(90, commits, 2),
                    before_commit(50, Wake::Deleted("data/"), 3),
                ];
                let habits = Habits { rest: 20, dead_after: &[0, 20, 100], ..base.habits };
                Self { ambushes, habits, roles: and(&[("L3", Backs), ("F", Forgets)]), ..base }
            }
            Aim::AdoptedCommitted => {
                let ambushes = vec![
                    before_lease(70, Wake::Created("index/"), 12),
                    before_mark(90, commits, 2),
                    before_commit(60, Wake::Created("jobs/"), 3),
                    stop("L", "create jobs/", "/done")(90, Wake::Deleted("data/"), 2),
                ];
                let habits = Habits { rest: 20, interrupts: 8, ..base.habits };
                Self { ambushes, habits, roles: and(&[("L3", Backs), ("F", Forgets)]), ..base }
            }
            Aim::AdoptedLate => {
                let ambushes = vec![
                    stop("L1", "create versions/", "")(80, Wake::Deleted("data/"), 3),
                    stop("G", "list versions", "")(50, Wake::Created("jobs/"), 2),
                    before_mark(70, commits, 1),
                ];
                let habits = Habits { rest: 20, dead_after: &[20, 100], ..base.habits };
                Self { ambushes, habits, ..base }
            }
            Aim::AdoptedGone => {
                let gone = Wake::Deleted("versions/");
                let adopts = match dice.one_in(2) {
                    true => stop("L2", "create jobs/", "/0")(80, gone, 1),
                    false => stop("L2", "read jobs/", "/done")(80, gone, 1),
                };
                let deletes = stop("G1", "delete data/", "")(90, commits, 6);
                let ambushes = vec![
                    stop("L1", "create versions/", "")(70, commits, 1),
                    adopts,
                    Ambush { times: (3, 6), ..deletes },
                    stop("G2", "delete jobs/", "/0")(30, commits, 3),
                ];
                let habits = Habits { dead_after: &[0, 20], rest: 20, ..base.habits };
                let roles = vec![("L1", Backs), ("L2", Backs), ("G1", Collects), ("G2", Collects)];
                Self { ambushes, habits, roles, echoes: Some(("data/", 60)), ..base }
            }
            _ => {
                let long = stop("L2", "create versions/", "")(80, Wake::Deleted("data/"), 8);
                let ambushes = vec![
                    stop("L1", "create versions/", "")(60, Wake::Created("jobs/"), 3),
                    Ambush { most: 1500, ..long },
                ];
                let habits = Habits { takes_newest: false, rest: 30, ..base.habits };
                let roles = and(&[("L3", Backs), ("F", Forgets)]);
                Self { ambushes, habits, roles, ..base }
            }
        }
    }
}

/// Stops actors before requests.
fn stop(actor: &'static str, before: &'static str, ending: &'static str) -> impl Fn(u64, Wake, u64) -> Ambush + Copy {
    move |percent, until, times| Ambush {
        actor,
        before,
        ending,
        with: "",
        not: "",
        percent,
        until,
        times: (1, times),
        most: 800,
    }
}

fn weather(dice: &mut Rng) -> Weather {
    let rough = Weather::ROUGH;
    let weather = match dice.below(4) {
        0 => Weather { fails: 0, fails_after: 0, hangs: 0, crashes: 10, ..rough },
        1 => Weather { fails_after: 600, hangs: 300, crashes: 10, ..rough },
        2 => Weather { crashes: 150, ..rough },
        _ => rough,
    };
    Weather { late: *dice.pick(&[10, 50, 200]), freezes: *dice.pick(&[0, 300, 1000]), ..weather }
}

/// The fewer there are, the more each gets done while another is slow.
fn anybody(seed: u64, dice: &mut Rng) -> Vec<(&'static str, Role)> {
    let mut roles = vec![("L1", Role::Backs), ("L2", Role::Backs), ("G1", Role::Collects), ("F", Role::Forgets)];
    let compacts = dice.one_in(2);
    if compacts {
        roles.push(("C1", Role::Compacts));
    }
    if Rng::new(seed ^ 0xc04f).one_in(2) {
        roles.push(("V", Role::Converts));
    }
    if Rng::new(seed ^ 0x4eb1).one_in(3) {
        roles.push(("I", Role::Rebuilds));
    }
    let mut more = vec![("L3", Role::Backs), ("G2", Role::Collects), ("R", Role::Reads)];
    more.extend(compacts.then_some(("C2", Role::Compacts)));
    let crowded = dice.one_in(2);
    roles.extend(more.into_iter().filter(|_| crowded && !dice.one_in(3)));
    roles
}

/// How often in 10,000 an actor is slow before a request: most where what it knows is about to be old news.
pub fn hesitation(request: &str) -> u64 {
    let (operation, name) = request.split_once(' ').unwrap_or_default();
    match (operation, name.split('/').next().unwrap_or_default()) {
        ("create", "jobs" | "versions") => 1000,
        ("create", "index") if !name.starts_with("index/runs") => 1000,
        ("create", "indexed" | "forgotten") => 500,
        ("list", "jobs" | "versions" | "index") => 500,
        ("read", "forgotten" | "jobs") => 500,
        ("read", "versions") => 200,
        ("delete", _) => 100,
        _ => 0,
    }
}
