//! What has been promised to whom: the memory of the simulation itself, which no process reads to decide anything.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use larder_format::ids::JobId;
use larder_format::layout::Layout;
use larder_testkit::data::{self, Rng};

/// What a version holds: blocks, each of which is one chunk.
pub type Content = Rc<Vec<Vec<u8>>>;

/// A rule that processes of a run break, to see that the simulation finds out. `docs/concurrency.md` has the losses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    Nothing,
    /// `LeaseFirst`
    LookBeforeLease,
    /// `DurableFirst`
    CommitBeforeDurable,
    /// `CloseOnlyAnswered`
    CloseUnanswered,
    /// `AdoptedChecked` and the rules after it
    AdoptUnseen,
    /// `Fence`
    NoFence,
    /// `MarksBeforeLeases`
    MarksAfterLeases,
    /// `LeasesBeforeVersions`
    VersionsBeforeLeases,
    /// `NamedVersionsRetained`
    PinsIgnored,
    /// `AdoptedKept`
    AdoptionIgnored,
    /// `MarkRemovedLast`
    MarkRemovedFirst,
    /// `Fence`, of compactions
    NoFenceOfTasks,
}

#[derive(Debug, Default)]
struct Memory {
    /// What each job means to commit.
    contents: BTreeMap<JobId, Content>,
    /// The newest content of each series.
    series: BTreeMap<&'static str, Content>,
    /// Series of the layout `lifecycle`.
    arranged: BTreeSet<&'static str>,
    committed: BTreeSet<JobId>,
    fenced: BTreeSet<JobId>,
    forgotten: BTreeSet<JobId>,
    readers: BTreeSet<JobId>,
    /// Passes under way that may take any reader for dead.
    impatient: u32,
    expired_readers: BTreeSet<JobId>,
    lost: Vec<String>,
    counts: BTreeMap<&'static str, u64>,
    clock: u64,
}

/// See the module header. Clones are the same ledger.
#[derive(Debug, Clone, Default)]
pub struct Ledger(Rc<RefCell<Memory>>);

impl Ledger {
    /// A time that moves on at every look, milliseconds since the epoch.
    pub fn tick(&self) -> u64 {
        let mut memory = self.0.borrow_mut();
        memory.clock += 1000;
        1_900_000_000_000 + memory.clock
    }

    /// What the next version of a series holds: mostly what the last one did. Blocks come from a small stock, so that
    /// different series hold the same.
    pub fn edited(&self, series: &'static str, rng: &mut Rng) -> Content {
        let mut blocks = match self.0.borrow().series.get(series) {
            Some(content) => content.as_ref().clone(),
            None => (0..4).map(|_| block(rng)).collect(),
        };
        for _ in 0..rng.within(1..3) {
            let at = rng.below(blocks.len() as u64) as usize;
            match rng.below(4) {
                0 if blocks.len() < 6 => blocks.insert(at, block(rng)),
                1 if blocks.len() > 2 => drop(blocks.remove(at)),
                _ => blocks[at] = block(rng),
            }
        }
        Rc::new(blocks)
    }

    /// A series is of the layout `lifecycle` in this run.
    pub fn arranges(&self, series: &'static str) {
        self.0.borrow_mut().arranged.insert(series);
    }

    pub fn layout(&self, series: &str) -> Layout {
        if self.0.borrow().arranged.contains(series) { Layout::Lifecycle } else { Layout::Standard }
    }

    pub fn means_to_commit(&self, job: JobId, content: Content) {
        self.0.borrow_mut().contents.insert(job, content);
    }

    pub fn content(&self, job: JobId) -> Option<Content> {
        self.0.borrow().contents.get(&job).cloned()
    }

    pub fn told_committed(&self, job: JobId, series: &'static str) {
        let mut memory = self.0.borrow_mut();
        memory.committed.insert(job);
        let content = memory.contents.get(&job).cloned().unwrap_or_default();
        memory.series.insert(series, content);
    }

    pub fn told_fenced(&self, job: JobId) {
        self.0.borrow_mut().fenced.insert(job);
    }

    pub fn begins_to_forget(&self, job: JobId) {
        self.0.borrow_mut().forgotten.insert(job);
    }

    pub fn takes_reader_for_expired(&self, job: JobId) {
        self.0.borrow_mut().expired_readers.insert(job);
    }

    pub fn begins_to_read(&self, reader: JobId) {
        let mut memory = self.0.borrow_mut();
        memory.readers.insert(reader);
        if memory.impatient > 0 {
            memory.expired_readers.insert(reader);
        }
    }

    /// A pass begins that is so impatient that it may take any reader for dead, until the guard is dropped.
    pub fn impatient(&self) -> Impatient {
        let mut memory = self.0.borrow_mut();
        let readers = memory.readers.clone();
        memory.expired_readers.extend(readers);
        memory.impatient += 1;
        Impatient(self.clone())
    }

    /// A reader could not read what its lease should have kept.
    pub fn could_not_read(&self, reader: JobId, what: String) {
        let mut memory = self.0.borrow_mut();
        if !memory.expired_readers.contains(&reader) {
            memory.lost.push(what);
        }
    }

    /// Somebody found what cannot be.
    pub fn is_wrong(&self, what: String) {
        self.0.borrow_mut().lost.push(what);
    }

    /// Something happened once more. Runs in which nothing does prove nothing.
    pub fn count(&self, what: &'static str) {
        *self.0.borrow_mut().counts.entry(what).or_default() += 1;
    }

    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.0.borrow().counts.clone()
    }

    /// What readers missed.
    pub fn lost(&self) -> Vec<String> {
        self.0.borrow().lost.clone()
    }

    /// Jobs that were told their version is committed, and that nobody began to forget.
    pub fn must_be_there(&self) -> Vec<JobId> {
        let memory = self.0.borrow();
        memory.committed.difference(&memory.forgotten).copied().collect()
    }

    pub fn is_fenced(&self, job: JobId) -> bool {
        self.0.borrow().fenced.contains(&job)
    }
}

/// A pass under way that may take any reader for dead.
#[derive(Debug)]
pub struct Impatient(Ledger);

impl Drop for Impatient {
    fn drop(&mut self) {
        self.0.0.borrow_mut().impatient -= 1;
    }
}

fn block(rng: &mut Rng) -> Vec<u8> {
    let number = rng.below(40);
    data::random(number, 40 + number as usize)
}
