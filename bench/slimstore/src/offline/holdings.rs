//! What is in the store: every copy of every chunk, and since which version.

use std::collections::{HashMap, HashSet};

use larder_format::container::ChunkEntry;
use larder_format::ids::{ContainerId, ContainerKind};
use larder_format::{ChunkRef, Fingerprint};
use larder_index::{Containers, IndexIo, IndexSnapshot, LookupOptions, TableView};

use super::Node;

/// A data container.
#[derive(Default)]
struct Container {
    chunks: Vec<ChunkRef>,
    bytes: u64,
    /// The version with which its contents came.
    since: usize,
}

impl Container {
    fn holds(&self, fingerprint: &Fingerprint) -> bool {
        self.chunks.iter().any(|chunk| chunk.fingerprint == *fingerprint)
    }
}

/// Who wrote what is new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writer {
    /// A backup, or a compaction: it came with the version.
    Version(usize),
    /// A pass, which writes again what is left of older containers.
    Pass,
}

/// The data containers of a repository, as they were when last looked at.
#[derive(Default)]
pub(crate) struct Holdings {
    containers: HashMap<ContainerId, Container>,
    /// Bytes of chunks that the index does not lead to any more, in containers that are still there.
    pub(crate) given_up: u64,
    /// Bytes of all objects, of any kind.
    pub(crate) objects: u64,
}

impl Holdings {
    /// Looks again, after somebody wrote. A container is read once.
    pub(crate) fn look(&mut self, node: &Node, writer: Writer) -> anyhow::Result<()> {
        let repository = &node.context.repository;
        let listed = node.runtime.block_on(repository.list_containers())?;
        let there = listed.iter().map(|listed| listed.id).filter(|id| id.kind == ContainerKind::Data);
        let mut before = std::mem::take(&mut self.containers);
        let mut fresh = Vec::new();
        for id in there {
            match before.get_mut(&id) {
                Some(known) => drop(self.containers.insert(id, std::mem::take(known))),
                None => fresh.push(id),
            }
        }
        for id in fresh {
            let index = node.runtime.block_on(repository.read_container_index(id))?;
            let mut offset = 0;
            let place = |entry: &ChunkEntry| {
                let chunk = ChunkRef { fingerprint: entry.fingerprint, container: id, offset, size: entry.size };
                offset += entry.size;
                chunk
            };
            let chunks: Vec<ChunkRef> = index.chunks.iter().map(place).collect();
            let since = match (writer, chunks.first()) {
                (Writer::Version(version), _) => version,
                (Writer::Pass, first) => {
                    let known = before.values().chain(self.containers.values());
                    let of = known.filter(|known| first.is_some_and(|first| known.holds(&first.fingerprint)));
                    of.map(|known| known.since).min().unwrap_or(0)
                }
            };
            self.containers.insert(id, Container { chunks, bytes: u64::from(index.payload_len), since });
        }
        self.given_up = given_up(node)?;
        let objects = node.runtime.block_on(repository.store().list(""))?;
        self.objects = objects.iter().map(|object| object.size).sum();
        Ok(())
    }

    /// Bytes of all chunks in all containers.
    pub(crate) fn bytes(&self) -> u64 {
        self.containers.values().map(|container| container.bytes).sum()
    }

    /// Bytes of containers whose contents came with a version.
    pub(crate) fn bytes_since(&self, version: usize) -> u64 {
        self.containers.values().filter(|container| container.since == version).map(|container| container.bytes).sum()
    }

    /// Everything in the containers that a recipe uses.
    pub(crate) fn catalogue(&self, recipe: &[ChunkRef]) -> Vec<ChunkRef> {
        let used: HashSet<ContainerId> = recipe.iter().map(|chunk| chunk.container).collect();
        let used = used.iter().filter_map(|id| self.containers.get(id));
        used.flat_map(|container| container.chunks.iter().copied()).collect()
    }
}

/// What the index says was given up.
fn given_up(node: &Node) -> anyhow::Result<u64> {
    let repository = node.context.repository.clone();
    let index = node.runtime.block_on(IndexSnapshot::newest(&repository))?.base()?;
    let io = IndexIo { repository, runtime: node.runtime.handle().clone().into() };
    let table = TableView::<Containers>::new(io, &index.manifest.runs, LookupOptions::default());
    let mut bytes = 0;
    for record in table.scan(0..=u64::MAX, 1 << 20) {
        if let (_, Some(facts)) = record?
            && facts.id.kind == ContainerKind::Data
        {
            bytes += facts.given_up_bytes;
        }
    }
    Ok(bytes)
}
