//! Entries come in order from block to block, or not at all: a restore relies on it, and the decoder of a block sees only one.
//!
//! Method: a version is written by hand, with the format's own encoders, whose blocks are each in order and together are not.
//! That is what a writer with a bug would store, or somebody who has the key of one machine and wants to break another.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use crate::support::*;
use larder_chunking::Fingerprinter;
use larder_format::compress::{Compression, Compressor};
use larder_format::container::{ChunkEntry, ChunkKind, ContainerBuilder, ContainerSealer, seal_frame};
use larder_format::content::{self, ContentRoots};
use larder_format::entry::{Entry, EntryKind, Timestamp};
use larder_format::ids::{ContainerId, ContainerKind, JobId};
use larder_format::manifest::{ContainerUsage, Manifest, SourceKind, Statistics, Summary};
use larder_format::metadata::BlockBuilder;
use larder_format::recipe::{self, ContainerUse, Cover, NodeRef, Recipe, SegmentRef};
use larder_format::segment::{self, ChunkRecord};
use larder_format::{ChunkRef, names};
use larder_reader::VersionReader;
use larder_store::Repository;

const JOB: JobId = JobId([5; 16]);

fn folder(path: &str) -> Entry {
    let time = Timestamp { seconds: 5, nanos: 0 };
    Entry {
        path: path.as_bytes().to_vec(),
        kind: EntryKind::Directory,
        mode: 0o755,
        uid: 0,
        gid: 0,
        user: None,
        group: None,
        mtime: time,
        ctime: time,
        atime: None,
        inode: 1,
        xattrs: Vec::new(),
    }
}

/// One container of metadata chunks.
struct Meta<'a> {
    repository: &'a Repository,
    chunks: Vec<ChunkEntry>,
    payload: Vec<u8>,
}

impl Meta<'_> {
    const ID: ContainerId = ContainerId { kind: ContainerKind::Meta, job: JOB, seq: 0 };

    fn add(&mut self, bytes: &[u8]) -> ChunkRef {
        let fingerprint = Fingerprinter::new(self.repository.keys().fingerprint()).one(bytes);
        let (offset, size) = (self.payload.len() as u32, bytes.len() as u32);
        self.chunks.push(ChunkEntry { fingerprint, size, kind: ChunkKind::Plain });
        self.payload.extend_from_slice(bytes);
        ChunkRef { fingerprint, container: Self::ID, offset, size }
    }
}

/// Commits a version whose blocks hold these paths, each in a segment of its own or all in one; gives the paths that come back
/// before the first error, and what a check finds.
fn read_back(blocks: &[&[&str]], in_segments_of: usize) -> (Vec<String>, Option<String>, Vec<String>) {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let context = context(&runtime, init(&runtime, local(dir.path())));
    let repository = &context.repository;
    let mut meta = Meta { repository, chunks: Vec::new(), payload: Vec::new() };
    let block = |paths: &&[&str]| {
        let mut builder = BlockBuilder::new();
        assert!(paths.iter().all(|path| builder.push(&folder(path)) == Ok(None)));
        builder.finish().unwrap().bytes
    };
    let mut segments = Vec::new();
    for blocks in blocks.chunks(in_segments_of) {
        let chunks: Vec<_> = blocks.iter().map(block).map(|bytes| meta.add(&bytes)).collect();
        let records: Vec<_> = chunks.into_iter().map(|chunk| ChunkRecord { chunk, born: JOB }).collect();
        let bytes = records.iter().map(|record| u64::from(record.chunk.size)).sum();
        let chunks = records.len() as u32;
        let cover = Some(Cover { first_path: blocks[0][0].as_bytes().to_vec(), data_bytes: 0 });
        segments.push(SegmentRef {
            chunk: meta.add(&segment::encode(&records, &[]).unwrap()),
            bases: Vec::new(),
            content: content::of_segment(&records, &[], cover.as_ref(), None),
            bytes,
            chunks,
            samples: vec![1],
            uses: vec![ContainerUse { container: Meta::ID, chunks, bytes }],
            cover,
            proof: None,
        });
    }
    let metadata = Recipe {
        nodes: vec![NodeRef {
            chunk: meta.add(&recipe::encode_node(&segments).unwrap()),
            content: content::of_node(&segments),
            bytes: segments.iter().map(|segment| segment.bytes).sum(),
            chunks: segments.iter().map(|segment| u64::from(segment.chunks)).sum(),
            segments: segments.len() as u32,
            cover: segments[0].cover.clone(),
        }],
    };
    let keys = repository.keys();
    let sealer = ContainerSealer::new(keys, Meta::ID, keys.domain(), [5; 32]).unwrap();
    let mut builder = ContainerBuilder::new();
    let mut off = Compressor::new(Compression::Off);
    builder.push_frame(&seal_frame(&sealer, 0, &meta.payload, &meta.chunks, &mut off).unwrap());
    let object = builder.finish(&sealer, &meta.chunks, repository.config().padding()).unwrap();
    let (chunks_held, bytes_held) = (meta.chunks.len() as u32, meta.payload.len() as u64);
    let usage = ContainerUsage {
        container: Meta::ID,
        chunks_used: chunks_held,
        bytes_used: bytes_held,
        chunks_held,
        bytes_held,
        object_bytes: object.len() as u64,
    };
    runtime.block_on(repository.store().create(&names::container(Meta::ID), object.into())).unwrap();
    let summary = Summary {
        id: JOB,
        series: "series".to_owned(),
        base: None,
        time_ms: 0,
        started_ms: 0,
        ended_ms: 0,
        host: String::new(),
        user: String::new(),
        tags: Vec::new(),
        paths: Vec::new(),
        program: String::new(),
        source: SourceKind::Tree,
        statistics: Statistics::default(),
        attempt: [0; 16],
        sketch: larder_format::sketch::Sketch::default(),
        layout: larder_format::layout::Layout::Standard,
        more_bases: Vec::new(),
        domain: Default::default(),
        is_signed: false,
        roots: ContentRoots::of(&Recipe::default(), &metadata),
        witness: None,
        domain_name: String::new(),
        domain_epoch: 0,
        origin: None,
    };
    let manifest = Manifest { summary, data: Recipe::default(), metadata, containers: vec![usage] };
    runtime.block_on(repository.commit(repository.keys().series_key("series"), &manifest)).unwrap();
    let reader = VersionReader::open(&context, &versions(&context)[0]).unwrap();
    let (mut paths, mut problem) = (Vec::new(), None);
    for entry in reader.entries() {
        match entry {
            Ok(entry) => paths.push(String::from_utf8(entry.path).unwrap()),
            Err(error) => problem = Some(error.to_string()),
        }
    }
    let found = larder_rewrite::check(&context, &larder_rewrite::CheckOptions::default()).unwrap();
    (paths, problem, found.damages.into_iter().map(|damage| damage.why).collect())
}

#[test]
fn blocks_in_order_are_read() {
    for in_segments_of in [1, 2, 3] {
        let (paths, problem, found) = read_back(&[&["a", "a/b"], &["a/c", "b"], &["b/a"]], in_segments_of);
        assert_eq!((paths.join(" ").as_str(), problem, found), ("a a/b a/c b b/a", None, Vec::new()));
    }
}

#[test]
fn a_block_that_goes_back_ends_the_reading_and_is_found() {
    for blocks in [
        [&["a", "b"][..], &["a/c", "d"]],
        [&["a", "b"], &["b", "c"]],
        // In byte order, but not in the order of a walk.
        [&["a", "a-"], &["a/b", "c"]],
    ] {
        for in_segments_of in [1, 2] {
            let (paths, problem, found) = read_back(&blocks, in_segments_of);
            assert_eq!(paths, blocks[0]);
            assert!(problem.is_some_and(|problem| problem.contains("does not come after")), "{blocks:?}");
            assert!(found.len() == 1 && found[0].contains("does not come after"), "{blocks:?}: {found:?}");
        }
    }
}
