//! What a backup finds duplicates in: the streams of its base version, and the containers that unfinished jobs left behind.

use std::collections::HashMap;
use std::sync::Arc;

use larder_dedup::{Group, LoadGroup, SampledIndex, sample};
use larder_format::ids::{ContainerId, ContainerKind, JobId};
use larder_format::names;
use larder_format::segment::ChunkRecord;
use larder_store::{Repository, RepositoryError};
use tokio::runtime::Handle;

use super::uploads::Held;
use crate::version::RecipeReader;

/// The segments of one stream of the base.
#[derive(Debug)]
pub(super) struct BaseSegments {
    pub(super) reader: RecipeReader,
}

impl BaseSegments {
    pub(super) fn new(reader: RecipeReader) -> Self {
        Self { reader }
    }
}

impl LoadGroup for BaseSegments {
    type Error = RepositoryError;

    fn groups(&self) -> u32 {
        self.reader.segments()
    }

    fn load(&mut self, group: u32) -> Result<Group, RepositoryError> {
        self.reader.segment(group)
    }

    /// All chunks when they fit; else the samples that the nodes keep, which needs no segment to be read.
    fn fill(&mut self, index: &mut SampledIndex) -> Result<(), RepositoryError> {
        let exact = self.reader.recipe().chunks() <= index.capacity() as u64;
        let mut number = 0;
        for node in 0..self.reader.recipe().nodes.len() {
            let node = self.reader.node(node)?;
            for segment in &node.segments {
                if exact {
                    for record in self.reader.segment(number)?.iter() {
                        index.insert(sample(&record.chunk.fingerprint), number);
                    }
                } else {
                    for sample in &segment.samples {
                        index.insert(*sample, number);
                    }
                }
                number += 1;
            }
        }
        Ok(())
    }
}

/// The data containers of jobs that never committed.
#[derive(Debug)]
pub(super) struct OrphanedContainers {
    repository: Repository,
    runtime: Handle,
    /// The job that takes them over: for its series their chunks are born with it.
    job: JobId,
    containers: Vec<ContainerId>,
    held: HashMap<ContainerId, Held>,
}

impl OrphanedContainers {
    /// Lists what `jobs` have uploaded.
    pub(super) fn list(
        repository: &Repository,
        runtime: &Handle,
        job: JobId,
        jobs: &[JobId],
    ) -> Result<Self, RepositoryError> {
        let mut containers = Vec::new();
        for dead in jobs {
            let prefix = names::containers_of(ContainerKind::Data, *dead);
            let listed = runtime.block_on(repository.store().list(&prefix))?;
            containers.extend(listed.iter().filter_map(|object| names::parse_container(&object.name)));
        }
        // In the order in which they were written, which is the order in which the stream will ask for them.
        containers.sort_unstable();
        let (repository, runtime) = (repository.clone(), runtime.clone());
        Ok(Self { repository, runtime, job, containers, held: HashMap::new() })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.containers.is_empty()
    }

    /// What the containers seen so far hold.
    pub(super) fn held(&self) -> &HashMap<ContainerId, Held> {
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
            Ok(index) => index,
            // Uploads of a dead job may be damaged, and nobody misses them: they are uploaded again.
            Err(error) if error.is_damage() => {
                tracing::warn!(container = %id, %error, "an unfinished job's container cannot be reused");
                return Ok(Group::default());
            }
            Err(error) => return Err(error),
        };
        let held = Held {
            chunks: index.chunks.len() as u32,
            bytes: u64::from(index.payload_len),
            object_bytes: index.object_len,
        };
        self.held.insert(id, held);
        Ok(Arc::new(index.chunk_refs().map(|chunk| ChunkRecord { chunk, born: self.job }).collect()))
    }

    fn fill(&mut self, index: &mut SampledIndex) -> Result<(), RepositoryError> {
        for group in 0..self.groups() {
            for record in self.load(group)?.iter() {
                index.insert(sample(&record.chunk.fingerprint), group);
            }
        }
        Ok(())
    }
}
