//! The sources of duplicates for a backup: the streams of its base version, and the containers of
//! unfinished jobs.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use crossbeam_channel::{Receiver, TryRecvError};
use larder_dedup::{AHEAD_MAX, Group, LoadGroup, NoteGroups, sample};
use larder_format::ids::{ContainerId, ContainerKind, JobId};
use larder_format::names;
use larder_format::segment::ChunkRecord;
use larder_index::Executor;
use larder_reader::RecipeReader;
use larder_store::{Repository, RepositoryError};
use larder_writer::ContainerTotals;

/// The segments of one stream of the base. Announced ones are fetched ahead of need.
#[derive(Debug)]
pub(super) struct BaseSegments {
    pub(super) reader: RecipeReader,
    /// Segments under way, at most [`AHEAD_MAX`], or fetched lately and not requested yet; the
    /// oldest first.
    ahead: VecDeque<(u32, Receiver<()>)>,
    /// Missing containers: their chunks are not found.
    missing: Arc<HashSet<ContainerId>>,
}

impl BaseSegments {
    pub(super) fn new(reader: RecipeReader, missing: Arc<HashSet<ContainerId>>) -> Self {
        Self { reader, ahead: VecDeque::new(), missing }
    }

    /// Whether segments of this stream may be shared as they are.
    pub(super) fn is_whole(&self) -> bool {
        self.missing.is_empty()
    }

    /// The present chunks of a segment.
    fn records(&mut self, segment: u32) -> Result<Group, RepositoryError> {
        let records = self.reader.segment(segment)?;
        if self.is_whole() {
            return Ok(records);
        }
        let there = records.iter().filter(|record| !self.missing.contains(&record.chunk.container));
        Ok(Arc::new(there.copied().collect()))
    }
}

/// Remembered segments of those fetched ahead: a stream that alternates between two places does not
/// fetch them repeatedly.
const REMEMBERED: usize = 8;

impl LoadGroup for BaseSegments {
    type Error = RepositoryError;

    fn groups(&self) -> u32 {
        self.reader.segments()
    }

    fn load(&mut self, group: u32) -> Result<Group, RepositoryError> {
        if let Some(place) = self.ahead.iter().position(|(number, _)| *number == group)
            && let Some((_, promise)) = self.ahead.remove(place)
        {
            // Two requests for one container at a time would cost more than they save.
            let _ = promise.recv();
        }
        self.records(group)
    }

    fn expect(&mut self, groups: Range<u32>) {
        let is_pending = |promise: &Receiver<()>| promise.try_recv() == Err(TryRecvError::Empty);
        let pending = self.ahead.iter().filter(|(_, promise)| is_pending(promise)).count();
        let mut wanted = Vec::new();
        for group in groups.take((AHEAD_MAX as usize).saturating_sub(pending)) {
            if self.ahead.iter().any(|(number, _)| *number == group) {
                continue;
            }
            // Damage is reported when the segment is needed.
            if let Ok(Some((segment, _))) = self.reader.segment_ref(group) {
                wanted.push((group, segment));
            }
        }
        if wanted.is_empty() {
            return;
        }
        // The promise for the last chunk of each: they are read one after the other.
        let chunks = wanted.iter().flat_map(|(_, segment)| segment.chain().copied()).collect();
        let mut promises = self.reader.chunks().read_ahead(chunks).into_iter();
        for (group, segment) in wanted {
            if let Some(promise) = promises.by_ref().take(segment.chain().count()).last() {
                self.ahead.push_back((group, promise));
            }
        }
        while self.ahead.len() > REMEMBERED {
            self.ahead.pop_front();
        }
    }

    /// All chunks when they fit; else the samples that the nodes keep, without reading segments.
    fn fill(&mut self, index: &mut dyn NoteGroups) -> Result<(), RepositoryError> {
        let exact = self.reader.recipe().chunks() <= index.capacity();
        let chunks = self.reader.chunks().clone();
        let nodes: Vec<_> = self.reader.recipe().nodes.iter().map(|node| node.chunk).collect();
        // Containers are read whole: the first node of each brings the others.
        let runs: Vec<_> = nodes.chunk_by(|a, b| a.container == b.container).collect();
        let mut waiting = runs.iter();
        let mut ahead = VecDeque::new();
        let (mut node, mut number) = (0, 0);
        for run in &runs {
            while ahead.len() <= CONTAINERS_AHEAD
                && let Some(next) = waiting.next()
            {
                ahead.extend(chunks.read_ahead(next[..1].to_vec()));
            }
            if let Some(promise) = ahead.pop_front() {
                let _ = promise.recv();
            }
            for _ in *run {
                number = self.fill_from(node, number, exact, index)?;
                node += 1;
            }
        }
        Ok(())
    }
}

/// Containers fetched ahead while the index is filled: they stay in the cache until their use, and
/// it holds no more than three.
const CONTAINERS_AHEAD: usize = 1;

impl BaseSegments {
    /// Fills the index from one node, whose first segment has this number; returns that of the next
    /// node.
    fn fill_from(
        &mut self,
        node: usize,
        mut number: u32,
        exact: bool,
        index: &mut dyn NoteGroups,
    ) -> Result<u32, RepositoryError> {
        for segment in &self.reader.node(node)?.segments {
            if exact {
                for record in self.records(number)?.iter() {
                    index.note(sample(&record.chunk.fingerprint), number);
                }
            } else {
                for sample in &segment.samples {
                    index.note(*sample, number);
                }
            }
            number += 1;
        }
        Ok(number)
    }
}

/// The data containers of jobs that never committed.
#[derive(Debug)]
pub(super) struct OrphanedContainers {
    repository: Repository,
    runtime: Executor,
    /// The job that adopts them: for its series their chunks are born with it.
    job: JobId,
    containers: Vec<ContainerId>,
    held: HashMap<ContainerId, ContainerTotals>,
}

impl OrphanedContainers {
    /// Lists the uploads of `jobs`.
    pub(super) fn list(
        repository: &Repository,
        runtime: &Executor,
        job: JobId,
        jobs: &[JobId],
    ) -> Result<Self, RepositoryError> {
        let mut containers = Vec::new();
        for dead in jobs {
            let prefix = names::containers_of(ContainerKind::Data, *dead);
            let listed = runtime.block_on(repository.store().list(&prefix))?;
            containers.extend(listed.iter().filter_map(|object| names::parse_container(&object.name)));
        }
        // In the order of writing, in which the stream will request them.
        containers.sort_unstable();
        let (repository, runtime) = (repository.clone(), runtime.clone());
        Ok(Self { repository, runtime, job, containers, held: HashMap::new() })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.containers.is_empty()
    }

    /// The contents of the containers read so far.
    pub(super) fn held(&self) -> &HashMap<ContainerId, ContainerTotals> {
        &self.held
    }
}

impl LoadGroup for OrphanedContainers {
    type Error = RepositoryError;

    fn groups(&self) -> u32 {
        self.containers.len() as u32
    }

    fn load(&mut self, group: u32) -> Result<Group, RepositoryError> {
        let id = self.containers[group as usize];
        let index = match self.runtime.block_on(self.repository.read_container_index(id)) {
            // Under the name of a job of this domain, another machine may have put something else.
            Ok(index) if index.domain != self.repository.keys().domain() => return Ok(Group::default()),
            Err(error) if error.is_foreign() => return Ok(Group::default()),
            Ok(index) => index,
            // Uploads of a dead job may be damaged or in cold storage, and no version needs them:
            // they are uploaded again.
            Err(error) if error.is_unreadable() => {
                tracing::warn!(container = %id, %error, "an unfinished job's container cannot be reused");
                return Ok(Group::default());
            }
            Err(error) => return Err(error),
        };
        self.held.insert(id, ContainerTotals::of_index(&index));
        Ok(Arc::new(index.chunk_refs().map(|chunk| ChunkRecord { chunk, born: self.job }).collect()))
    }

    fn fill(&mut self, index: &mut dyn NoteGroups) -> Result<(), RepositoryError> {
        for group in 0..self.groups() {
            for record in self.load(group)?.iter() {
                index.note(sample(&record.chunk.fingerprint), group);
            }
        }
        Ok(())
    }
}
