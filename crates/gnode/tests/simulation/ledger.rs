//! What has been promised to whom: the memory of the simulation itself, which no process reads to decide anything.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use larder_format::ids::JobId;
use larder_format::layout::Layout;
use larder_format::manifest::{Manifest, Summary};
use larder_testkit::data::{self, Rng};

/// What a version holds: blocks, each of which is one chunk.
pub type Content = Rc<Vec<Vec<u8>>>;

/// Number of a backup, which its version has for the name of its user.
pub type Token = usize;

/// Bytes of a block: all chunks are of this size.
pub const BLOCK: u32 = 128;

#[derive(Debug, Default)]
struct Memory {
    /// What each backup means to commit, by its token.
    contents: Vec<Content>,
    /// The newest content of each series.
    series: BTreeMap<&'static str, Content>,
    /// The content of the last backup of each series, until it is committed.
    tried: BTreeMap<&'static str, Content>,
    /// Series of the layout `lifecycle`.
    arranged: BTreeSet<&'static str>,
    committed: BTreeSet<JobId>,
    /// Jobs that versions could take containers from.
    adopts: BTreeMap<JobId, Vec<JobId>>,
    /// Tokens of backups that were told.
    fenced: BTreeSet<Token>,
    forgotten: BTreeSet<JobId>,
    readers: u64,
    /// Passes under way that may take any reader for dead.
    impatient: u32,
    expired_readers: BTreeSet<u64>,
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
    pub fn edited(&self, series: &'static str, most: u64, rng: &mut Rng) -> Content {
        let mut blocks = match self.0.borrow().series.get(series) {
            Some(content) => content.as_ref().clone(),
            None => (0..most - 2).map(|_| block(rng)).collect(),
        };
        for _ in 0..rng.within(1..most / 2) {
            let at = rng.below(blocks.len() as u64) as usize;
            match rng.below(4) {
                0 if (blocks.len() as u64) < most => blocks.insert(at, block(rng)),
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

    /// What the last backup of a series meant to commit, if it was not told that it did.
    pub fn tried(&self, series: &str) -> Option<Content> {
        self.0.borrow().tried.get(series).cloned()
    }

    pub fn means_to_commit(&self, series: &'static str, content: Content) -> Token {
        let mut memory = self.0.borrow_mut();
        memory.tried.insert(series, content.clone());
        memory.contents.push(content);
        memory.contents.len() - 1
    }

    /// What a version must hold.
    pub fn content(&self, version: &Summary) -> Option<Content> {
        self.0.borrow().contents.get(version.user.parse::<Token>().ok()?).cloned()
    }

    pub fn told_committed(&self, job: JobId, token: Token, series: &'static str) {
        let mut memory = self.0.borrow_mut();
        memory.committed.insert(job);
        let content = memory.contents.get(token).cloned().unwrap_or_default();
        memory.series.insert(series, content);
        memory.tried.remove(series);
    }

    pub fn could_adopt(&self, job: JobId, adopts: Vec<JobId>) {
        self.0.borrow_mut().adopts.insert(job, adopts);
    }

    /// Whether a version has containers of a job that it adopted.
    pub fn has_adopted(&self, manifest: &Manifest) -> bool {
        let memory = self.0.borrow();
        let adopts = memory.adopts.get(&manifest.summary.id).map_or(&[][..], Vec::as_slice);
        manifest.containers.iter().any(|usage| adopts.contains(&usage.container.job))
    }

    pub fn told_fenced(&self, token: Token) {
        self.0.borrow_mut().fenced.insert(token);
    }

    pub fn begins_to_forget(&self, job: JobId) {
        self.0.borrow_mut().forgotten.insert(job);
    }

    /// A reader begins, and gets a number.
    pub fn begins_to_read(&self) -> u64 {
        let mut memory = self.0.borrow_mut();
        memory.readers += 1;
        let reader = memory.readers;
        if memory.impatient > 0 {
            memory.expired_readers.insert(reader);
        }
        reader
    }

    /// A pass begins that is so impatient that it may take any reader for dead, until the guard is dropped.
    pub fn impatient(&self) -> Impatient {
        let mut memory = self.0.borrow_mut();
        let readers = memory.readers;
        memory.expired_readers.extend(1..=readers);
        memory.impatient += 1;
        Impatient(self.clone())
    }

    /// A reader could not read what its lease should have kept.
    pub fn could_not_read(&self, reader: u64, what: String) {
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
        self.add(what, 1);
    }

    /// So many times more.
    pub fn add(&self, what: &'static str, times: u64) {
        if times > 0 {
            *self.0.borrow_mut().counts.entry(what).or_default() += times;
        }
    }

    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.0.borrow().counts.clone()
    }

    /// What readers missed.
    pub fn lost(&self) -> Vec<String> {
        self.0.borrow().lost.clone()
    }

    pub fn is_forgotten(&self, job: &JobId) -> bool {
        self.0.borrow().forgotten.contains(job)
    }

    /// Jobs that were told their version is committed, and that nobody began to forget.
    pub fn must_be_there(&self) -> Vec<JobId> {
        let memory = self.0.borrow();
        memory.committed.difference(&memory.forgotten).copied().collect()
    }

    pub fn is_fenced(&self, version: &Summary) -> bool {
        version.user.parse::<Token>().is_ok_and(|token| self.0.borrow().fenced.contains(&token))
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
    data::random(number, BLOCK as usize)
}
