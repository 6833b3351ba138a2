//! What is in the store: every copy of every chunk, and since which version.

use std::collections::{HashMap, HashSet};

use larder_format::container::ChunkEntry;
use larder_format::ids::{ContainerId, ContainerKind};
use larder_format::{ChunkRef, Fingerprint};
use larder_index::{Containers, Current, IndexIo, LookupOptions, TableView};

use super::Node;

/// A data container.
#[derive(Default)]
struct Container {
    chunks: Vec<ChunkRef>,
    /// Of each chunk the version with which it came.
    since: Vec<usize>,
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
    pub(crate) reclaimed: u64,
    /// Bytes of all objects, of any kind.
    pub(crate) objects: u64,
}

impl Holdings {
    /// Looks again, after somebody wrote. A container is read once. Returns the bytes of chunks that are new here.
    pub(crate) fn look(&mut self, node: &Node, writer: Writer) -> anyhow::Result<u64> {
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
        // What is written again is as old as the oldest copy of it that was there.
        let mut oldest: HashMap<Fingerprint, usize> = HashMap::new();
        if writer == Writer::Pass && !fresh.is_empty() {
            for known in before.values().chain(self.containers.values()) {
                for (chunk, since) in known.chunks.iter().zip(&known.since) {
                    oldest.entry(chunk.fingerprint).and_modify(|oldest| *oldest = *since.min(oldest)).or_insert(*since);
                }
            }
        }
        let mut written = 0;
        for id in fresh {
            let index = node.runtime.block_on(repository.read_container_index(id))?;
            let mut offset = 0;
            let place = |entry: &ChunkEntry| {
                let chunk = ChunkRef { fingerprint: entry.fingerprint, container: id, offset, size: entry.size };
                offset += entry.size;
                chunk
            };
            let chunks: Vec<ChunkRef> = index.chunks.iter().map(place).collect();
            let since = |chunk: &ChunkRef| match writer {
                Writer::Version(version) => version,
                Writer::Pass => oldest.get(&chunk.fingerprint).copied().unwrap_or(0),
            };
            let since = chunks.iter().map(since).collect();
            written += chunks.iter().map(|chunk| u64::from(chunk.size)).sum::<u64>();
            self.containers.insert(id, Container { chunks, since });
        }
        self.reclaimed = self.reclaimed(node)?;
        let objects = node.runtime.block_on(repository.store().list(""))?;
        self.objects = objects.iter().map(|object| object.size).sum();
        Ok(written)
    }

    /// Bytes of all chunks in all containers.
    pub(crate) fn bytes(&self) -> u64 {
        self.containers.values().flat_map(|container| &container.chunks).map(|chunk| u64::from(chunk.size)).sum()
    }

    /// Bytes of chunks that came with a version.
    pub(crate) fn bytes_since(&self, version: usize) -> u64 {
        let chunks = self.containers.values().flat_map(|container| container.chunks.iter().zip(&container.since));
        chunks.filter(|(_, since)| **since == version).map(|(chunk, _)| u64::from(chunk.size)).sum()
    }

    /// Everything in the containers that a recipe uses.
    pub(crate) fn catalogue(&self, recipe: &[ChunkRef]) -> Vec<ChunkRef> {
        let used: HashSet<ContainerId> = recipe.iter().map(|chunk| chunk.container).collect();
        let used = used.iter().filter_map(|id| self.containers.get(id));
        used.flat_map(|container| container.chunks.iter().copied()).collect()
    }

    /// What the index says was retired in containers that are there.
    fn reclaimed(&self, node: &Node) -> anyhow::Result<u64> {
        let repository = node.context.repository.clone();
        let index = node.runtime.block_on(Current::look(&repository))?.base()?;
        let io = IndexIo { repository, executor: node.runtime.handle().clone().into() };
        let table = TableView::<Containers>::new(io, &index.manifest.runs, LookupOptions::default());
        let mut bytes = 0;
        for record in table.scan(0..=u64::MAX, 1 << 20) {
            if let (_, Some(facts)) = record?
                && self.containers.contains_key(&facts.id)
            {
                bytes += facts.retired_bytes;
            }
        }
        Ok(bytes)
    }
}
