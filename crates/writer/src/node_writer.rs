//! Gathers the segments of one stream into nodes, stored as chunks unless a version that is built
//! on has them already.

use std::collections::HashMap;
use std::sync::Arc;

use larder_chunking::Fingerprinter;
use larder_dedup::NodeCutter;
use larder_format::content;
use larder_format::ids::{ContainerId, DomainId};
use larder_format::recipe::{ContainerUse, NodeRef, Recipe, SegmentRef, encode_node};
use larder_format::segment::ChunkRecord;
use larder_format::{ChunkRef, Fingerprint};
use larder_store::RepositoryError;

use crate::container_totals::Usage;
use crate::packer::Packer;

/// Compares apparent duplicates of the base with the stored bytes.
pub trait CompareStored {
    /// Whether `chunk` is stored with just these bytes. An error when the store does not answer;
    /// damage is a "no".
    fn is_stored(&self, chunk: &ChunkRef, bytes: &[u8]) -> Result<bool, RepositoryError>;
}

/// Reads metadata chunks of base segments.
pub type ReadBase = Box<dyn Fn(&ChunkRef) -> Result<bytes::Bytes, RepositoryError> + Send>;

/// Stores the segments, nodes and other metadata of versions, and counts what a version uses.
pub struct MetaSink {
    packer: Packer,
    fingerprinter: Arc<Fingerprinter>,
    usage: Usage,
    added_bytes: u64,
    comparison: Option<Box<dyn CompareStored + Send>>,
    base: Option<ReadBase>,
    shared: SharedChunks,
}

/// Chunks of segments that later versions of a sink may use, by their contents.
#[derive(Debug, Default)]
struct SharedChunks {
    /// More are not remembered.
    most: usize,
    known: HashMap<Fingerprint, ChunkRef>,
}

/// Bytes of memory for a chunk that is remembered, roughly.
const SHARED_CHUNK_BYTES: usize = 200;

/// The counts of a sink.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sunk {
    /// The version's use of each container, by its recipes.
    pub usage: Usage,
    /// Uncompressed bytes of the chunks that were stored.
    pub added_bytes: u64,
}

impl std::fmt::Debug for MetaSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MetaSink").field("added_bytes", &self.added_bytes).finish_non_exhaustive()
    }
}

impl MetaSink {
    /// A sink that stores chunks with `packer`, in metadata containers. `fingerprinter` has the key
    /// of the repository.
    pub fn new(packer: Packer, fingerprinter: Arc<Fingerprinter>) -> Self {
        Self {
            packer,
            fingerprinter,
            usage: Usage::new(),
            added_bytes: 0,
            comparison: None,
            base: None,
            shared: SharedChunks::default(),
        }
    }

    /// Compares apparent duplicates of a base with the store before they are shared.
    pub fn comparing(self, comparison: Option<Box<dyn CompareStored + Send>>) -> Self {
        Self { comparison, ..self }
    }

    /// Reads segments of bases, so that changed ones become differences. Otherwise each is stored
    /// whole.
    pub fn reading(self, base: ReadBase) -> Self {
        Self { base: Some(base), ..self }
    }

    /// Remembers the segments that it stores, within this number of bytes of memory: versions with
    /// equal segments share them. All of its versions must be allowed to use its containers.
    pub fn sharing(mut self, bytes: usize) -> Self {
        self.shared.most = bytes / SHARED_CHUNK_BYTES;
        self
    }

    /// The reader of base segments.
    pub(crate) fn base_reader(&self) -> Option<&ReadBase> {
        self.base.as_ref()
    }

    /// What comes now is metadata of this domain ([`Packer::change_domain`]).
    pub fn change_domain(&mut self, domain: DomainId) -> Result<(), RepositoryError> {
        self.packer.change_domain(domain)
    }

    /// The fingerprint of a chunk.
    pub fn fingerprint(&self, bytes: &[u8]) -> Fingerprint {
        self.fingerprinter.one(bytes)
    }

    /// Stores a chunk that is new.
    pub fn push(&mut self, fingerprint: Fingerprint, bytes: &[u8]) -> Result<ChunkRef, RepositoryError> {
        self.added_bytes += bytes.len() as u64;
        self.packer.push(fingerprint, bytes)
    }

    /// Stores a segment, or its difference to others, unless an earlier version of this sink has
    /// it.
    pub(crate) fn push_shared(&mut self, fingerprint: Fingerprint, bytes: &[u8]) -> Result<ChunkRef, RepositoryError> {
        if let Some(known) = self.shared.known.get(&fingerprint)
            && self.may_share(known, bytes)?
        {
            return Ok(*known);
        }
        let chunk = self.push(fingerprint, bytes)?;
        if self.shared.known.len() < self.shared.most {
            self.shared.known.insert(fingerprint, chunk);
        }
        Ok(chunk)
    }

    /// Hands the open container to the upload. Later chunks come into another one.
    ///
    /// # Errors
    /// An upload failed.
    pub fn close(&mut self) -> Result<(), RepositoryError> {
        self.packer.close()
    }

    /// The counts since the last call, at the end of a version. The next version begins at zero.
    pub fn take(&mut self) -> Sunk {
        Sunk { usage: std::mem::take(&mut self.usage), added_bytes: std::mem::take(&mut self.added_bytes) }
    }

    /// Hands the open container to the upload. Returns the counts.
    pub fn finish(mut self) -> Result<Sunk, RepositoryError> {
        let sunk = self.take();
        self.close()?;
        Ok(sunk)
    }

    /// Whether a chunk that has the fingerprint of `bytes` may be used in their place.
    pub(crate) fn may_share(&self, chunk: &ChunkRef, bytes: &[u8]) -> Result<bool, RepositoryError> {
        self.comparison.as_ref().map_or(Ok(true), |comparison| comparison.is_stored(chunk, bytes))
    }

    fn count(&mut self, container: ContainerId, chunks: u64, bytes: u64) {
        let used = self.usage.entry(container).or_default();
        *used = (used.0 + chunks, used.1 + bytes);
    }
}

/// See the module header.
#[derive(Debug)]
pub struct NodeWriter {
    segments: Vec<SegmentRef>,
    cutter: NodeCutter,
    nodes: Vec<NodeRef>,
    known: HashMap<Fingerprint, NodeRef>,
}

impl NodeWriter {
    /// A writer that shares as much as it can with the recipe of the base.
    pub fn new(base: Option<&Recipe>) -> Self {
        let known = base.map_or_else(HashMap::new, |recipe| {
            recipe.nodes.iter().map(|node| (node.chunk.fingerprint, node.clone())).collect()
        });
        Self { segments: Vec::new(), cutter: NodeCutter::new(), nodes: Vec::new(), known }
    }

    /// Appends a segment that is stored.
    pub fn push(&mut self, segment: SegmentRef, sink: &mut MetaSink) -> Result<(), RepositoryError> {
        for used in &segment.uses {
            sink.count(used.container, u64::from(used.chunks), used.bytes);
        }
        for chunk in segment.chain() {
            sink.count(chunk.container, 1, u64::from(chunk.size));
        }
        let ends = self.cutter.ends_behind(&segment.content);
        self.segments.push(segment);
        if ends { self.end_node(sink) } else { Ok(()) }
    }

    fn end_node(&mut self, sink: &mut MetaSink) -> Result<(), RepositoryError> {
        let segments = std::mem::take(&mut self.segments);
        if segments.is_empty() {
            return Ok(());
        }
        let bytes = encode_node(&segments)?;
        let fingerprint = sink.fingerprint(&bytes);
        let known = self.known.get(&fingerprint);
        let node = match known {
            Some(node) if sink.may_share(&node.chunk, &bytes)? => node.clone(),
            _ => NodeRef {
                chunk: sink.push(fingerprint, &bytes)?,
                content: content::of_node(&segments),
                bytes: segments.iter().map(|segment| segment.bytes).sum(),
                chunks: segments.iter().map(|segment| u64::from(segment.chunks)).sum(),
                segments: segments.len() as u32,
                cover: content::cover_of(&segments),
            },
        };
        sink.count(node.chunk.container, 1, u64::from(node.chunk.size));
        self.nodes.push(node);
        Ok(())
    }

    /// Ends the stream.
    pub fn finish(mut self, sink: &mut MetaSink) -> Result<Recipe, RepositoryError> {
        self.end_node(sink)?;
        Ok(Recipe { nodes: self.nodes })
    }
}

/// Containers of records, in the order of their first use, with the bytes in each.
pub fn uses_of(records: &[ChunkRecord]) -> Vec<ContainerUse> {
    let mut uses: Vec<ContainerUse> = Vec::new();
    for record in records {
        let bytes = u64::from(record.chunk.size);
        // Newest first: records of one container come together.
        match uses.iter_mut().rev().find(|used| used.container == record.chunk.container) {
            Some(used) => (used.chunks, used.bytes) = (used.chunks + 1, used.bytes + bytes),
            None => uses.push(ContainerUse { container: record.chunk.container, chunks: 1, bytes }),
        }
    }
    uses
}
