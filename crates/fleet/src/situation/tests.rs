//! Tests of which tasks are due.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use larder_format::fleet::{PlannedHost, PlannedImage};
use larder_format::ids::{AttemptId, DomainId, JobId};

use super::*;

/// Images 0 and 2 are of host 0, image 1 is of host 1.
fn plan() -> FleetPlan {
    let image = |name: &str, host| PlannedImage {
        name: name.to_owned(),
        series: name.to_owned(),
        host,
        job: JobId([1; 16]),
        source: String::new(),
    };
    let host = |name: &str| PlannedHost { name: name.to_owned(), store: JobId([2; 16]), is_any: None, round: None };
    FleetPlan {
        images: vec![image("a", 0), image("b", 1), image("c", 0)],
        hosts: vec![host("x"), host("y")],
        partitions: 2,
        index: 0,
        time_ms: 0,
        program: String::new(),
        shared: None,
    }
}

fn record(is_done: bool) -> TaskRecord {
    TaskRecord {
        attempt: is_done.then_some(AttemptId([3; 8])),
        why: None,
        ..TaskRecord::aborted(String::new(), DomainId::DEFAULT)
    }
}

/// The same with hosts 2 and 3 of a second round: image 3 is of host 2, image 4 of host 3.
fn rounds() -> FleetPlan {
    let mut plan = plan();
    for (name, host) in [("d", 2), ("e", 3)] {
        plan.images.push(PlannedImage { name: name.to_owned(), host, ..plan.images[0].clone() });
    }
    for name in ["x", "y"] {
        plan.hosts.push(PlannedHost { name: name.to_owned(), round: Some(1), ..plan.hosts[0].clone() });
    }
    plan
}

struct Batch(Registers, FleetPlan);

impl Default for Batch {
    fn default() -> Self {
        Self(Registers::new(), plan())
    }
}

impl Batch {
    fn put(&mut self, stage: Stage, round: u8, number: u32, record: TaskRecord) {
        let task = TaskId { stage, round, number };
        self.0.insert(task, Decided::by_others(task, record));
    }

    fn done(&mut self, stage: Stage, round: u8, numbers: &[u32]) {
        numbers.iter().for_each(|number| self.put(stage, round, *number, record(true)));
    }

    fn sent(&mut self, host: u32, live: &[u32]) {
        self.put(Stage::Send, 0, host, TaskRecord { live: Some(live.to_vec()), ..record(true) });
    }

    fn stored(&mut self, round: u8, number: u32, waits: bool) {
        self.put(Stage::Store, round, number, TaskRecord { waits: Some(waits), ..record(true) });
    }

    #[track_caller]
    fn due(&self, stage: Stage, round: u8, numbers: &[u32]) {
        let expected = numbers.iter().map(|number| TaskId { stage, round, number: *number }).collect();
        assert_eq!(Known { plan: &self.1, registers: &self.0 }.situation(), Situation::Due(expected));
    }

    #[track_caller]
    fn over(&self) {
        assert_eq!(Known { plan: &self.1, registers: &self.0 }.situation(), Situation::Over);
    }
}

#[test]
fn stages_follow_one_another() {
    let mut batch = Batch::default();
    batch.due(Stage::Send, 0, &[0, 1]);
    batch.sent(1, &[1]);
    batch.due(Stage::Send, 0, &[0]);
    batch.sent(0, &[0, 2]);
    batch.due(Stage::Join, 0, &[0, 1]);
    batch.done(Stage::Join, 0, &[0, 1]);
    batch.due(Stage::Store, 0, &[0, 1, 2]);
    batch.stored(0, 0, false);
    batch.stored(0, 1, true);
    batch.due(Stage::Store, 0, &[2]);
    batch.stored(0, 2, false);
    batch.due(Stage::Place, 0, &[0, 1]);
    batch.done(Stage::Place, 0, &[0, 1]);
    batch.due(Stage::Resolve, 0, &[0, 1]);
    batch.done(Stage::Resolve, 0, &[0, 1]);
    batch.due(Stage::Store, 1, &[1]);
    batch.stored(1, 1, false);
    batch.due(Stage::Finish, 0, &[0, 1, 2]);
    batch.done(Stage::Finish, 0, &[0, 1, 2]);
    batch.over();
}

#[test]
fn what_left_the_batch_is_due_no_more() {
    let mut batch = Batch::default();
    batch.sent(0, &[0, 2]);
    // A host that nobody reads.
    batch.put(Stage::Send, 0, 1, record(false));
    batch.done(Stage::Join, 0, &[0, 1]);
    batch.due(Stage::Store, 0, &[0, 2]);
    batch.put(Stage::Store, 0, 0, record(false));
    batch.stored(0, 2, true);
    batch.due(Stage::Place, 0, &[0]);
    batch.put(Stage::Place, 0, 0, record(false));
    batch.done(Stage::Resolve, 0, &[0, 1]);
    batch.due(Stage::Store, 1, &[2]);
    batch.put(Stage::Store, 1, 2, record(false));
    batch.over();
    // Nobody has anything.
    let mut batch = Batch::default();
    batch.sent(0, &[]);
    batch.sent(1, &[]);
    batch.over();
}

/// A register is a hint of its writer. Images of other hosts, and those that the plan does not
/// have, do not count.
#[test]
fn a_host_speaks_for_its_own_images() {
    let mut batch = Batch::default();
    batch.sent(0, &[0, 1, 2, 9]);
    batch.sent(1, &[]);
    batch.done(Stage::Join, 0, &[0, 1]);
    batch.due(Stage::Store, 0, &[0, 2]);
    let plan = plan();
    let gone = Known { plan: &plan, registers: &batch.0 }.gone(0);
    assert_eq!(gone, HashSet::from([1]));
}

/// A round begins when the one before is over, whatever became of it. The one before tells the
/// places of its chunks, though nobody of its own waits.
#[test]
fn rounds_of_a_plan_follow_one_another() {
    let mut batch = Batch(Registers::new(), rounds());
    batch.due(Stage::Send, 0, &[0, 1]);
    batch.sent(0, &[0, 2]);
    batch.sent(1, &[1]);
    batch.due(Stage::Join, 0, &[0, 1]);
    batch.done(Stage::Join, 0, &[0, 1]);
    [0, 1, 2].into_iter().for_each(|image| batch.stored(0, image, false));
    batch.due(Stage::Place, 0, &[0, 1]);
    batch.done(Stage::Place, 0, &[0, 1]);
    batch.due(Stage::Finish, 0, &[0, 1, 2]);
    batch.done(Stage::Finish, 0, &[0, 1]);
    batch.put(Stage::Finish, 0, 2, record(false));
    batch.due(Stage::Send, 0, &[2, 3]);
    batch.put(Stage::Send, 0, 2, record(false));
    batch.sent(3, &[4]);
    batch.due(Stage::Join, 0, &[2, 3]);
    batch.done(Stage::Join, 0, &[2, 3]);
    batch.stored(0, 4, true);
    batch.due(Stage::Place, 0, &[3]);
    batch.done(Stage::Place, 0, &[3]);
    batch.due(Stage::Resolve, 0, &[2, 3]);
    batch.done(Stage::Resolve, 0, &[2, 3]);
    batch.stored(1, 4, false);
    batch.due(Stage::Finish, 0, &[4]);
    let known = Known { plan: &batch.1, registers: &batch.0 };
    assert_eq!(known.placed_before(1).iter().map(|decided| decided.task.number).collect::<Vec<_>>(), [0, 1]);
    assert!(known.placed_before(0).is_empty());
    batch.done(Stage::Finish, 0, &[4]);
    batch.over();
    // Nothing of the first round could be read.
    let mut batch = Batch(Registers::new(), rounds());
    [0, 1].into_iter().for_each(|host| batch.put(Stage::Send, 0, host, record(false)));
    batch.due(Stage::Send, 0, &[2, 3]);
}
