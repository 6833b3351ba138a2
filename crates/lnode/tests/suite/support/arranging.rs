//! Arranges versions of the layout `lifecycle` by hand: a model of what the G-node does, for tests of readers.

use std::collections::{BTreeMap, BTreeSet};

use larder_format::ChunkRef;
use larder_format::compress::Compression;
use larder_format::extents::{Extent, Extents};
use larder_format::ids::{ContainerId, ContainerKind, JobId};
use larder_format::names;
use larder_index::{ContainerExtents, Current, Draft, IndexIo, IndexPass, PassRuns, Published, publish};
use larder_job::JobContext;
use larder_reader::{References, VersionReader};
use larder_rewrite::chunk_copier::ChunkCopier;
use larder_store::RepositoryError;
use larder_store::catalog::Version;

/// A chunk as recipes name it.
pub type Name = (ContainerId, u32);

/// What is known of a chunk.
#[derive(Debug, Clone, Copy)]
pub struct Known {
    /// As it is named.
    pub chunk: ChunkRef,
    /// Where it is.
    pub now: ChunkRef,
    /// The first version that uses it, and the last.
    pub first: usize,
    pub last: usize,
}

/// Where everything is. One for all passes over a repository.
#[derive(Debug, Default)]
pub struct Arranger {
    pub chunks: BTreeMap<Name, Known>,
    passes: u8,
}

impl Arranger {
    /// Takes in what versions use; they come in order.
    pub fn take_in(&mut self, context: &JobContext, versions: &[Version]) {
        for known in self.chunks.values_mut() {
            known.first = usize::MAX;
        }
        for (number, version) in versions.iter().enumerate() {
            let manifest = VersionReader::open(context, version).unwrap().manifest().clone();
            let seen = References::new(context).visit::<RepositoryError>(&manifest.data, |chunk| {
                let name = (chunk.container, chunk.offset);
                let known = Known { chunk: *chunk, now: *chunk, first: number, last: number };
                let known = self.chunks.entry(name).or_insert(known);
                (known.first, known.last) = (known.first.min(number), number);
                Ok(())
            });
            seen.unwrap();
        }
        self.chunks.retain(|_, known| known.first != usize::MAX);
    }

    /// Copies the chunks that are in `moves` to containers of their volume, in order of category and name, publishes an index that says
    /// so, and deletes the containers in which nothing is left.
    pub fn pass(&mut self, context: &JobContext, newest: usize, moves: impl Fn(&Known) -> bool) -> Vec<ContainerId> {
        self.passes += 1;
        let before: BTreeSet<ContainerId> = self.chunks.values().map(|known| known.now.container).collect();
        let volumes: BTreeSet<usize> = self.chunks.values().map(|known| known.last).collect();
        let mut written = Vec::new();
        for volume in volumes {
            let mut wanted: Vec<Known> =
                self.chunks.values().filter(|known| known.last == volume && moves(known)).copied().collect();
            wanted.sort_by_key(|known| (known.first, known.chunk.container, known.chunk.offset));
            let mut random = [self.passes; 10];
            random[0] = volume as u8;
            let job = JobId::new(context.clock.now_ms(), random);
            let mut copier = ChunkCopier::new(context, job, Compression::DEFAULT).unwrap();
            let places: Vec<ChunkRef> = wanted.iter().map(|known| known.now).collect();
            let copies = copier.copy(&places).unwrap();
            written.extend(copier.finish().unwrap().containers.into_keys());
            for (known, copy) in wanted.iter().zip(copies) {
                let name = (known.chunk.container, known.chunk.offset);
                self.chunks.get_mut(&name).unwrap().now = copy;
            }
        }
        self.publish(context, newest, |_| true);
        let after: BTreeSet<ContainerId> = self.chunks.values().map(|known| known.now.container).collect();
        for id in before.difference(&after) {
            context.executor.block_on(context.repository.store().delete(&names::container(*id))).unwrap();
        }
        written
    }

    /// Publishes the records of extents that say where everything is, of those chunks that the index is to have.
    pub fn publish(&self, context: &JobContext, newest: usize, has: impl Fn(&Known) -> bool) {
        let folder = tempfile::tempdir().unwrap();
        let io = IndexIo { repository: context.repository.clone(), executor: (&context.executor).into() };
        let found = context.executor.block_on(Current::settle(&context.repository)).unwrap();
        let (turn, job) = (found.turn().unwrap(), JobId::new(context.clock.now_ms(), [9; 10]));
        let pass = IndexPass::new(io, PassRuns::new(job), context.threads, 1 << 20, folder.path().to_owned());
        let mut draft = Draft::new(&pass, &found.base().unwrap());
        let mut records: BTreeMap<ContainerId, (Extents, bool)> = BTreeMap::new();
        for ((container, offset), known) in &self.chunks {
            let (extents, is_touched) = records.entry(*container).or_default();
            let to = ((known.now.container, known.now.offset) != (*container, *offset))
                .then_some((known.now.container, known.now.offset));
            let last = (known.last < newest).then_some(known.last as u32);
            *is_touched |= to.is_some() || last.is_some() || !has(known);
            if has(known) {
                extents.push(Extent { from: *offset, length: known.chunk.size, last, to });
            }
        }
        let mut changes = pass.changes::<ContainerExtents>().unwrap();
        for (container, (extents, _)) in records.iter().filter(|(_, (_, is_touched))| *is_touched) {
            changes.put(container, extents).unwrap();
        }
        draft.apply(changes).unwrap();
        draft.manifest.head.pass = job;
        let published = context.executor.block_on(publish(&context.repository, &turn, draft.manifest)).unwrap();
        assert!(matches!(published, Published::Won { .. }));
    }
}

/// The data containers that there are.
pub fn data_containers(context: &JobContext) -> BTreeSet<ContainerId> {
    let listed = context.executor.block_on(context.repository.store().list(names::DATA)).unwrap();
    let ids = listed.iter().filter_map(|object| names::parse_container(&object.name));
    ids.filter(|id| id.kind == ContainerKind::Data).collect()
}
