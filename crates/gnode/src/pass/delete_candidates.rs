//! The containers that were listed, and those among them that may go unless a version turns out to
//! need them. When everything is listed these are all containers. So they are rows of
//! [`larder_spill::KeyedPages`], in memory as far as the limit allows.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use larder_format::ids::{ContainerId, ContainerKind, JobId};
use larder_spill::{KeyedPages, KeyedRow, Row, RowReader, RowWriter};
use larder_store::survey::ListedContainer;

use crate::error::PassError;
use crate::spilled::spilled;

/// Rows of one read of a scan.
const SCANNED: u64 = 256;

/// The container may go.
const CANDIDATE: u8 = 1;
/// It was listed, and not added later.
const LISTED: u8 = 2;
/// A version needs it, or it is spared.
const NEEDED: u8 = 4;
/// The index had it when the pass began.
const RECORDED: u8 = 8;
/// It is of a backup that is not settled.
const UPLOAD: u8 = 16;
/// A retained version uses it.
const KEPT: u8 = 32;
/// It is to be deleted.
const GOES: u8 = 64;

/// A container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Listed {
    id: ContainerId,
    bytes: u64,
    /// The time until which it is too young to go, in milliseconds; 0: it is not.
    until_ms: u64,
    marks: u8,
}

impl Listed {
    fn is(&self, marks: u8) -> bool {
        self.marks & marks == marks
    }

    fn is_unneeded(&self) -> bool {
        self.is(CANDIDATE) && !self.is(NEEDED)
    }

    fn container(&self) -> ListedContainer {
        ListedContainer { id: self.id, bytes: self.bytes }
    }
}

impl Row for Listed {
    const BYTES: usize = 38;

    fn encode(&self, row: &mut RowWriter<'_>) {
        row.bytes(&[u8::from(self.id.kind == ContainerKind::Meta), self.marks]);
        row.bytes(&self.id.job.0);
        row.u32(self.id.seq);
        row.u64(self.bytes);
        row.u64(self.until_ms);
    }

    fn decode(row: &mut RowReader<'_>) -> Self {
        let [kind, marks] = row.bytes();
        let kind = if kind == 0 { ContainerKind::Data } else { ContainerKind::Meta };
        let id = ContainerId { kind, job: JobId(row.bytes()), seq: row.u32() };
        Self { id, bytes: row.u64(), until_ms: row.u64(), marks }
    }
}

impl KeyedRow for Listed {
    type Key = ContainerId;

    fn key(&self) -> ContainerId {
        self.id
    }
}

/// The containers that were listed.
#[derive(Debug)]
pub(super) struct ContainerListing(KeyedPages<Listed>);

impl ContainerListing {
    /// None. They take about `memory` bytes of memory at most; files are in `folder`.
    pub(super) fn new(folder: &Path, memory: usize) -> Self {
        Self(KeyedPages::new(folder, memory))
    }

    /// Adds a container. `until_ms`: until when it is too young to go.
    pub(super) fn push(&mut self, container: ListedContainer, until_ms: Option<u64>) -> Result<(), PassError> {
        let ListedContainer { id, bytes } = container;
        // 0 would be old enough.
        let until_ms = until_ms.map_or(0, |until_ms| until_ms.max(1));
        Ok(self.0.push(Listed { id, bytes, until_ms, marks: LISTED }).map_err(spilled)?)
    }
}

impl Default for ContainerListing {
    fn default() -> Self {
        Self::new(&std::env::temp_dir(), 0)
    }
}

/// An unneeded container that the index never had, and the time until which it is too young to go.
pub(super) type Unrecorded = (ListedContainer, Option<u64>);

/// See the module header.
#[derive(Debug)]
pub(super) struct DeleteCandidates(KeyedPages<Listed>);

impl DeleteCandidates {
    /// The listed containers. Says which may go, and which jobs are backups that are not settled.
    pub(super) fn new(
        listing: ContainerListing,
        may_go: impl Fn(&ContainerId) -> bool,
        is_open: impl Fn(&JobId) -> bool,
    ) -> Result<Self, PassError> {
        let mut all = Self(listing.0);
        all.scan(|row| {
            let candidate = if may_go(&row.id) { CANDIDATE } else { 0 };
            let upload = if is_open(&row.id.job) { UPLOAD } else { 0 };
            row.marks |= candidate | upload;
            Ok(())
        })?;
        Ok(all)
    }

    /// Shows each row to `each`, which may change its marks.
    fn scan(&mut self, mut each: impl FnMut(&mut Listed) -> Result<(), PassError>) -> Result<(), PassError> {
        self.0.merge().map_err(spilled)?;
        let mut next = 0;
        loop {
            let rows = self.0.read(next..next + SCANNED).map_err(spilled)?;
            if rows.is_empty() {
                return Ok(());
            }
            for row in rows {
                let mut changed = row;
                each(&mut changed)?;
                if changed != row {
                    self.0.replace(next, changed).map_err(spilled)?;
                }
                next += 1;
            }
        }
    }

    /// Marks a container, and returns its marks before.
    fn mark(&mut self, id: &ContainerId, marks: u8) -> Result<Option<u8>, PassError> {
        let mut before = None;
        let change = |row: &mut Listed| {
            before = Some(row.marks);
            row.marks |= marks;
        };
        self.0.change(*id, change).map_err(spilled)?;
        Ok(before)
    }

    /// Notes which of the listed containers the index has.
    pub(super) fn note_recorded(
        &mut self,
        has_record: impl Fn(&ContainerId) -> Result<bool, PassError>,
    ) -> Result<(), PassError> {
        self.scan(|row| {
            if row.marks & (CANDIDATE | UPLOAD) != 0 && has_record(&row.id)? {
                row.marks |= RECORDED;
            }
            Ok(())
        })
    }

    /// Unneeded containers that were listed and that the index never had.
    pub(super) fn unrecorded(&mut self) -> Result<Vec<Unrecorded>, PassError> {
        let mut unrecorded = Vec::new();
        self.scan(|row| {
            if row.is_unneeded() && row.is(LISTED) && !row.is(RECORDED) {
                unrecorded.push((row.container(), Some(row.until_ms).filter(|until_ms| *until_ms > 0)));
            }
            Ok(())
        })?;
        Ok(unrecorded)
    }

    /// These may go too. Needed ones stay needed.
    pub(super) fn extend(&mut self, containers: Vec<ListedContainer>) -> Result<(), PassError> {
        let mut new = Vec::new();
        for container in containers {
            if self.mark(&container.id, CANDIDATE)?.is_none() {
                new.push(container);
            }
        }
        for ListedContainer { id, bytes } in new {
            let row = Listed { id, bytes, until_ms: 0, marks: CANDIDATE | RECORDED };
            self.0.push(row).map_err(spilled)?;
        }
        self.0.settle();
        Ok(())
    }

    /// Marks a container as needed. Returns whether it was a candidate.
    pub(super) fn strike(&mut self, id: &ContainerId) -> Result<bool, PassError> {
        Ok(self.mark(id, NEEDED)?.is_some_and(|marks| marks & CANDIDATE != 0))
    }

    /// The same for a container that a retained version uses.
    pub(super) fn keep(&mut self, id: &ContainerId) -> Result<bool, PassError> {
        Ok(self.mark(id, NEEDED | KEPT)?.is_some_and(|marks| marks & CANDIDATE != 0))
    }

    /// Shows those that are not needed so far.
    pub(super) fn each_unneeded(
        &mut self,
        mut each: impl FnMut(ListedContainer) -> Result<(), PassError>,
    ) -> Result<(), PassError> {
        self.scan(|row| if row.is_unneeded() { each(row.container()) } else { Ok(()) })
    }

    /// Decides that the unneeded ones go, except those that may not.
    pub(super) fn decide(&mut self, may_go: impl Fn(&ContainerId) -> bool) -> Result<(), PassError> {
        self.scan(|row| {
            if row.is_unneeded() && may_go(&row.id) {
                row.marks |= GOES;
            }
            Ok(())
        })
    }

    /// The containers that go.
    pub(super) fn going(mut self) -> Result<GoingContainers, PassError> {
        let mut going = GoingContainers::default();
        self.scan(|row| {
            if row.is(GOES) {
                going.count(&row.container());
            }
            Ok(())
        })?;
        Ok(GoingContainers { rows: self.0, ..going })
    }

    /// Uploads of backups that are not settled, as far as they are not known to be needed:
    /// containers and bytes of each job.
    pub(super) fn uploads(&mut self) -> Result<BTreeMap<JobId, (u64, u64)>, PassError> {
        let mut of_jobs: BTreeMap<JobId, (u64, u64)> = BTreeMap::new();
        self.scan(|row| {
            if row.is(UPLOAD) && !row.is(RECORDED) && !row.is(KEPT) {
                let (containers, bytes) = of_jobs.entry(row.id.job).or_default();
                (*containers, *bytes) = (*containers + 1, *bytes + row.bytes);
            }
            Ok(())
        })?;
        Ok(of_jobs)
    }

    /// Which of these jobs have a listed container that stays without a record. To be called when
    /// it is decided which go.
    pub(super) fn jobs_left(
        &mut self,
        is_asked: impl Fn(&JobId) -> bool,
        has_record: impl Fn(&ContainerId) -> Result<bool, PassError>,
    ) -> Result<HashSet<JobId>, PassError> {
        let mut left: HashSet<JobId> = HashSet::new();
        self.scan(|row| {
            let job = row.id.job;
            if row.is(LISTED) && is_asked(&job) && !left.contains(&job) && !row.is(GOES) && !has_record(&row.id)? {
                left.insert(job);
            }
            Ok(())
        })?;
        Ok(left)
    }
}

/// Containers that are to be deleted, by their names. They are rows of the candidates.
#[derive(Debug)]
pub(super) struct GoingContainers {
    rows: KeyedPages<Listed>,
    pub(super) data: u64,
    pub(super) metadata: u64,
    pub(super) bytes: u64,
}

impl Default for GoingContainers {
    fn default() -> Self {
        Self { rows: KeyedPages::new(&std::env::temp_dir(), 0), data: 0, metadata: 0, bytes: 0 }
    }
}

impl GoingContainers {
    fn count(&mut self, container: &ListedContainer) {
        match container.id.kind {
            ContainerKind::Data => self.data += 1,
            ContainerKind::Meta => self.metadata += 1,
        }
        self.bytes += container.bytes;
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.data + self.metadata == 0
    }

    /// Leaves about this number of bytes in memory at most. Returns how many there are.
    pub(super) fn shrink_to(&mut self, memory: usize) -> Result<usize, PassError> {
        self.rows.shrink_to(memory).map_err(spilled)?;
        Ok(self.rows.bytes_in_memory())
    }

    /// These go too. A bounded number at a time.
    pub(super) fn extend(&mut self, containers: impl IntoIterator<Item = ListedContainer>) -> Result<(), PassError> {
        let mut new = Vec::new();
        for container in containers {
            let mut went = false;
            let change = |row: &mut Listed| {
                went = row.is(GOES);
                (row.marks, row.bytes) = (row.marks | GOES, container.bytes);
            };
            if !self.rows.change(container.id, change).map_err(spilled)? {
                new.push(container);
            }
            if !went {
                self.count(&container);
            }
        }
        for ListedContainer { id, bytes } in new {
            self.rows.push(Listed { id, bytes, until_ms: 0, marks: GOES }).map_err(spilled)?;
        }
        self.rows.settle();
        Ok(())
    }

    /// Those from a row on, of a bounded number of rows, and the next row; `None`: there is none.
    fn batch(&mut self, from: u64) -> Result<Option<(Vec<ListedContainer>, u64)>, PassError> {
        let rows = self.rows.read(from..from + SCANNED).map_err(spilled)?;
        let next = from + rows.len() as u64;
        let going = rows.iter().filter(|row| row.is(GOES)).map(Listed::container).collect();
        Ok((next > from).then_some((going, next)))
    }

    /// All of them. Nothing follows an error.
    pub(super) fn iter(&mut self) -> impl Iterator<Item = Result<ListedContainer, PassError>> + '_ {
        let (mut next, mut read) = (Some(0), Vec::new().into_iter());
        std::iter::from_fn(move || {
            loop {
                if let Some(container) = read.next() {
                    return Some(Ok(container));
                }
                if next == Some(0)
                    && let Err(error) = self.rows.merge()
                {
                    next = None;
                    return Some(Err(spilled(error).into()));
                }
                match self.batch(next?) {
                    Ok(Some((going, after))) => (read, next) = (going.into_iter(), Some(after)),
                    Ok(None) => next = None,
                    Err(error) => {
                        next = None;
                        return Some(Err(error));
                    }
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::env::temp_dir;

    use proptest::prelude::*;

    use super::*;

    fn container(seq: u32) -> ListedContainer {
        let id = ContainerId { kind: ContainerKind::Data, job: JobId([(seq % 3) as u8; 16]), seq };
        ListedContainer { id, bytes: u64::from(seq) }
    }

    fn listing(seqs: impl IntoIterator<Item = u32>, memory: usize) -> ContainerListing {
        let mut listing = ContainerListing::new(&temp_dir(), memory);
        for seq in seqs {
            listing.push(container(seq), seq.is_multiple_of(5).then_some(u64::from(seq))).expect("written");
        }
        listing
    }

    fn unneeded(candidates: &mut DeleteCandidates) -> Vec<ListedContainer> {
        let mut left = Vec::new();
        candidates
            .each_unneeded(|container| {
                left.push(container);
                Ok(())
            })
            .expect("read");
        left.sort_by_key(|container| container.id.seq);
        left
    }

    proptest! {
        /// The oracle is a map.
        #[test]
        fn what_nobody_needs_goes(
            listed in proptest::collection::vec(0u32..20, 0..20),
            steps in proptest::collection::vec((any::<bool>(), 0u32..25), 0..40),
            memory in prop_oneof![Just(0), Just(1 << 20)],
        ) {
            let may_go = |id: &ContainerId| id.seq != 7;
            let mut candidates =
                DeleteCandidates::new(listing(listed.clone(), memory), may_go, |_| false).expect("written");
            let mut expected: BTreeMap<u32, bool> =
                listed.into_iter().filter(|seq| *seq != 7).map(|seq| (seq, false)).collect();
            for (is_strike, seq) in steps {
                if is_strike {
                    let there = expected.get_mut(&seq).map(|is_needed| *is_needed = true).is_some();
                    prop_assert_eq!(candidates.strike(&container(seq).id).expect("written"), there);
                } else if seq != 7 {
                    candidates.extend(vec![container(seq)]).expect("written");
                    expected.entry(seq).or_insert(false);
                }
            }
            let left = unneeded(&mut candidates);
            let expected = expected.into_iter().filter(|(_, is_needed)| !is_needed).map(|(seq, _)| container(seq));
            prop_assert_eq!(left, expected.collect::<Vec<_>>());
        }
    }

    #[test]
    fn marks_tell_uploads_unrecorded_and_left_ones_apart() {
        for memory in [0, 1 << 20] {
            // Containers of job 0 are of an open backup, and may not go.
            let (may_go, is_open) = (|id: &ContainerId| id.job.0[0] > 0, |job: &JobId| job.0[0] == 0);
            let mut candidates = DeleteCandidates::new(listing(0..12, memory), may_go, is_open).expect("written");
            candidates.note_recorded(|id| Ok(id.seq < 5)).expect("written");
            // 6 and 9 are uploads without a record; a version uses 9.
            assert!(!candidates.keep(&container(9).id).expect("written"));
            let job = |number: u8| JobId([number; 16]);
            assert_eq!(candidates.uploads().expect("read"), BTreeMap::from([(job(0), (1, 6))]));
            assert!(candidates.keep(&container(7).id).expect("written"));
            assert!(candidates.strike(&container(8).id).expect("written"));
            candidates.extend(vec![container(20)]).expect("written");
            let unrecorded: Vec<_> = candidates.unrecorded().expect("read");
            let expected = vec![(container(10), Some(10)), (container(5), None), (container(11), None)];
            let seqs = |all: &[Unrecorded]| {
                let mut all: Vec<_> = all.iter().map(|(container, until_ms)| (container.id.seq, *until_ms)).collect();
                all.sort_unstable();
                all
            };
            let young = |seq: u32| (seq.is_multiple_of(5)).then_some(u64::from(seq));
            let expected: Vec<Unrecorded> =
                expected.into_iter().map(|(container, _)| (container, young(container.id.seq))).collect();
            assert_eq!(seqs(&unrecorded), seqs(&expected));
            // Of job 1: 1 and 4 have records, 7 stays, 10 goes. Of job 2: all go or have records.
            candidates.decide(|id| id.seq != 1).expect("written");
            let left = candidates.jobs_left(|job| job.0[0] > 0, |id| Ok(id.seq < 5));
            assert_eq!(left.expect("read"), HashSet::from([job(1), job(2)]));
            let mut going = candidates.going().expect("read");
            // 9 was needed, and a task retired it. 5 goes in any case.
            going.extend([container(9), container(5), container(30)]).expect("written");
            let mut seqs: Vec<_> = going.iter().map(|container| container.expect("read").id.seq).collect();
            seqs.sort_unstable();
            assert_eq!(seqs, [2, 4, 5, 9, 10, 11, 20, 30]);
            let bytes = seqs.iter().map(|seq| u64::from(*seq)).sum();
            assert_eq!((going.data, going.metadata, going.bytes), (8, 0, bytes));
        }
    }

    /// Its memory is the limit for many times as many containers, and so is what it finds.
    #[test]
    fn with_little_memory_the_same_goes() {
        let memory = 128 << 10;
        let goes = |memory: usize| {
            let mut candidates =
                DeleteCandidates::new(listing(0..20_000, memory), |_| true, |_| false).expect("written");
            (0..20_000).step_by(3).for_each(|seq| assert!(candidates.strike(&container(seq).id).expect("written")));
            candidates.extend((30_000..31_000).map(container).collect()).expect("written");
            let left = unneeded(&mut candidates);
            (left, candidates.0.bytes_in_memory())
        };
        let (little, in_memory) = goes(memory);
        assert!(in_memory <= memory, "{in_memory}");
        assert!(little == goes(1 << 30).0 && little.len() == 13_333 + 1_000, "{}", little.len());
    }

    /// While tasks run, the pages are in a file.
    #[test]
    fn the_same_goes_when_little_of_it_stays_in_memory() {
        let memory = 96 << 10;
        let going = |is_shrunk: bool| {
            let mut candidates =
                DeleteCandidates::new(listing(0..20_000, 1 << 30), |_| true, |_| false).expect("written");
            (0..20_000).step_by(3).for_each(|seq| assert!(candidates.strike(&container(seq).id).expect("written")));
            candidates.decide(|id| id.seq != 1).expect("written");
            let mut going = candidates.going().expect("read");
            if is_shrunk {
                let held = going.shrink_to(memory).expect("written");
                assert!(held <= memory, "{held}");
            }
            // Some of them were needed, and tasks retired them.
            for from in [0, 9000, 30_000] {
                going.extend((from..from + 2000).map(container)).expect("written");
            }
            assert!(!is_shrunk || going.rows.bytes_in_memory() <= memory);
            let all: Vec<_> = going.iter().map(|container| container.expect("read")).collect();
            assert_eq!(all.len() as u64, going.data);
            (all, going.bytes)
        };
        assert!(going(true) == going(false));
    }
}
