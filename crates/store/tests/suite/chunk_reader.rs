//! Metadata that several versions have written is read in the order of one of them: every chunk comes back, and what does not fit into
//! memory is not read whole again and again.

use std::num::NonZeroUsize;
use std::sync::Arc;

use larder_chunking::Fingerprinter;
use larder_format::compress::{Compression, Compressor};
use larder_format::container::{ChunkEntry, ChunkKind, ChunkRef, ContainerBuilder, ContainerSealer, seal_frame};
use larder_format::ids::{ContainerId, ContainerKind, JobId};
use larder_format::names;
use larder_store::chunk_reader::ChunkReader;
use larder_store::{Repository, Store, StoreOptions};
use larder_testkit::{Fault, FaultStore, Memory, OpKind, Times, When, data};

use crate::support::repository;

const FRAME: usize = 16 << 10;
const FRAMES: u32 = 16;
const CONTAINERS: u32 = 8;

struct Chunk {
    named: ChunkRef,
    bytes: Vec<u8>,
}

/// A repository with some metadata containers, each of frames with two chunks.
async fn containers() -> (Repository, Vec<Vec<Chunk>>, u64) {
    containers_of(CONTAINERS, FRAMES, FRAME).await
}

/// The same with this many containers of this many frames, and with these bytes in each frame.
async fn containers_of(containers: u32, frames: u32, frame_bytes: usize) -> (Repository, Vec<Vec<Chunk>>, u64) {
    let store = Store::from_object_store(Memory::new().store(), "", &StoreOptions::default()).expect("opens");
    filled(store, containers, frames, frame_bytes).await
}

async fn filled(store: Store, containers: u32, frames: u32, frame_bytes: usize) -> (Repository, Vec<Vec<Chunk>>, u64) {
    let repository = repository(store).await;
    let (mut chunks, mut object_bytes) = (Vec::new(), 0);
    for number in 0..containers {
        let id = ContainerId { job: JobId([9; 16]), kind: ContainerKind::Meta, seq: number };
        let keys = repository.keys();
        let sealer = ContainerSealer::new(keys, id, keys.domain(), [5; 32]).expect("all keys");
        let (mut builder, mut entries, mut written) = (ContainerBuilder::new(), Vec::new(), Vec::new());
        for frame in 0..frames {
            let payload = data::random(u64::from(number * frames + frame), frame_bytes);
            for (half, bytes) in payload.chunks(frame_bytes / 2).enumerate() {
                let fingerprint = Fingerprinter::new(repository.keys().fingerprint()).one(bytes);
                let (size, kind) = (bytes.len() as u32, ChunkKind::Plain);
                entries.push(ChunkEntry { fingerprint, size, kind });
                let offset = frame * frame_bytes as u32 + half as u32 * size;
                let named = ChunkRef { fingerprint, container: id, offset, size };
                written.push(Chunk { named, bytes: bytes.to_vec() });
            }
            let mut off = Compressor::new(Compression::Off);
            builder.push_frame(&seal_frame(&sealer, frame, &payload, &[], &mut off).expect("sealed"));
        }
        let object = builder.finish(&sealer, &entries, repository.config().padding()).expect("built");
        object_bytes = object.len() as u64;
        repository.store().create(&names::container(id), object.into()).await.expect("created");
        chunks.push(written);
    }
    (repository, chunks, object_bytes)
}

fn bytes(n: usize) -> NonZeroUsize {
    NonZeroUsize::new(n).expect("some")
}

/// A recipe that goes from container to container, with memory for two of them and for one frame.
#[tokio::test]
async fn each_container_is_read_whole_once_however_often_they_take_turns() {
    let (repository, chunks, object_bytes) = containers().await;
    let reader = ChunkReader::new(repository.clone(), bytes(2 * object_bytes as usize), bytes(FRAME));
    let before = repository.store().stats();
    for place in 0..2 * FRAMES as usize {
        for container in &chunks {
            assert_eq!(reader.read(&container[place].named).await.expect("is there"), container[place].bytes);
        }
    }
    let after = repository.store().stats();
    let read = after.bytes_down - before.bytes_down;
    // Every container whole, and every chunk with its frame.
    let most = u64::from(CONTAINERS) * object_bytes + u64::from(CONTAINERS * FRAMES) * 2 * (FRAME as u64 + 64);
    assert!(read <= most, "{read} bytes, {most} at most");
}

/// With less memory than a container has, no request is for a container, and what is read in order is read once.
#[tokio::test]
async fn a_reader_in_pieces_reads_no_container_whole() {
    const PIECE: u64 = 256 << 10;
    let (repository, chunks, object_bytes) = containers_of(2, 40, 100 << 10).await;
    for memory in [1, 600 << 10] {
        let reader = ChunkReader::new(repository.clone(), bytes(memory), bytes(1)).in_pieces();
        let mut most = 0;
        let before = repository.store().stats();
        for container in &chunks {
            for chunk in container {
                let last = repository.store().stats();
                assert_eq!(reader.read(&chunk.named).await.expect("is there"), chunk.bytes);
                let now = repository.store().stats();
                most = most.max((now.bytes_down - last.bytes_down) / (now.reads - last.reads).max(1));
            }
        }
        assert!(most <= PIECE + (50 << 10), "{most} bytes by one request");
        let read = repository.store().stats().bytes_down - before.bytes_down;
        // The tables, too.
        assert!(read <= 2 * (object_bytes + PIECE), "{read} bytes, a container has {object_bytes}");
        // In any order, the same chunks come back.
        for place in (0..80).map(|place| place * 37 % 80) {
            for container in &chunks {
                assert_eq!(reader.read(&container[place].named).await.expect("is there"), container[place].bytes);
            }
        }
    }
}

/// A proxy spoils some answers: tables and pieces are read again.
#[tokio::test(start_paused = true)]
async fn a_reader_in_pieces_reads_bad_answers_again() {
    let (inner, faults) = FaultStore::new(Memory::new().store());
    let store = Store::from_object_store(inner, "", &StoreOptions::default()).expect("opens");
    let (repository, chunks, _) = filled(store, 1, 40, 100 << 10).await;
    for (number, bit) in (0..40).map(|number| (number, number * 7_654_321)) {
        let reader = ChunkReader::new(repository.clone(), bytes(1), bytes(1)).in_pieces();
        faults.add(When::kind(OpKind::Get).path("meta/"), Fault::FlipBit(bit), Times::First(1 + number as u32 % 3));
        for chunk in chunks[0].iter().skip(number as usize).step_by(25) {
            assert_eq!(reader.read(&chunk.named).await.expect("read again"), chunk.bytes, "bit {bit}");
        }
        faults.clear();
    }
}

/// Who wants what somebody reads waits for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn threads_that_want_the_same_read_it_once() {
    let (repository, chunks, object_bytes) = containers().await;
    let reader = Arc::new(ChunkReader::new(repository.clone(), bytes(64 << 20), bytes(64 << 20)));
    let before = repository.store().stats();
    let chunks = Arc::new(chunks);
    let readers = (0..8).map(|_| {
        let (reader, chunks) = (reader.clone(), chunks.clone());
        tokio::spawn(async move {
            for chunk in chunks.iter().flatten() {
                assert_eq!(reader.read(&chunk.named).await.expect("is there"), chunk.bytes);
            }
        })
    });
    for reading in readers.collect::<Vec<_>>() {
        reading.await.expect("read all");
    }
    let after = repository.store().stats();
    assert_eq!(after.reads - before.reads, u64::from(CONTAINERS));
    assert_eq!(after.bytes_down - before.bytes_down, u64::from(CONTAINERS) * object_bytes);
}

/// A record that leads elsewhere is told from what lies there.
#[tokio::test]
async fn a_record_that_is_wrong_is_damage() {
    let (repository, chunks, _) = containers().await;
    let reader = ChunkReader::new(repository, bytes(1 << 20), bytes(1 << 20));
    let right = chunks[0][1].named;
    let elsewhere = ChunkRef { offset: right.offset + 1, ..right };
    let behind = ChunkRef { offset: FRAMES * FRAME as u32, ..right };
    let across = ChunkRef { offset: FRAME as u32 - 1, ..right };
    for wrong in [elsewhere, behind, across] {
        let error = reader.read(&wrong).await.expect_err("is wrong");
        assert!(error.is_damage(), "{error}");
    }
    assert_eq!(reader.read(&right).await.expect("is there"), chunks[0][1].bytes);
}

/// In any number of pieces, a container has the frames that it has as a whole. A wrong length costs a request.
#[tokio::test]
async fn a_container_in_pieces_has_the_same_frames() {
    let (repository, chunks, object_bytes) = containers().await;
    let (id, turns) = (chunks[0][0].named.container, tokio::sync::Semaphore::new(3));
    let whole = repository.read_container(id).await.expect("is there");
    let mut known = vec![(1, object_bytes - 1), (2, object_bytes + 1)];
    // A version may say anything.
    known.extend([2 * object_bytes, 3 << 30, u64::MAX - 1, u64::MAX, 0].map(|length| (2, length)));
    // Pieces smaller than a frame, and than the tables, are among them.
    known.extend([1, 2, 3, 4, 7, 16, 17, 1000].map(|pieces| (pieces, object_bytes)));
    for (pieces, length) in known {
        let read = repository.read_container_in_pieces(id, length, pieces, &turns).await.expect("is there");
        if length == object_bytes {
            assert!(u64::from(read.requests) >= pieces.min(16), "{} requests for {pieces} pieces", read.requests);
        }
        assert_eq!(read.bytes_read, object_bytes, "{pieces} pieces");
        for frame in whole.index.frames() {
            let sealed = whole.sealed(frame).expect("has it");
            assert!(read.sealed(frame) == Some(sealed), "frame {} of {pieces} pieces", frame.number);
        }
        let (length, parts) = read.sealed_parts();
        repository.reopen_container(id, length, parts.to_vec()).expect("has its tables");
    }
}
