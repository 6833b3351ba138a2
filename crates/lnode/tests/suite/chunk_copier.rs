//! Versions rewritten: the same content over other containers, as later generations of their manifests.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;

use crate::support::scene::Scene;
use crate::support::*;
use bytes::Bytes;
use larder_format::compress::{Compression, Compressor, Decompressor};
use larder_format::container::{ContainerBuilder, ContainerSealer, seal_frame};
use larder_format::ids::{ContainerId, ContainerKind, JobId};
use larder_format::{ChunkRef, names};
use larder_job::JobContext;
use larder_reader::VersionReader;
use larder_rewrite::CheckOptions;
use larder_rewrite::check::ReadData;
use larder_rewrite::chunk_copier::{ChunkCopier, RewriteError, Unreadable};
use larder_store::catalog::Version;
use larder_store::chunk_reader::ChunkReader;
use larder_testkit::{Fault, OpKind, Times, When};

/// A folder whose versions change in places, so that later versions use little of early containers.
fn write(folder: &Path, version: u64) {
    fs::create_dir_all(folder).unwrap();
    for file in 0..6u64 {
        let mut bytes = pseudo_random(3 << 20, file);
        // Each version replaces all but a seventh of each file.
        for block in 0..48 {
            if block % 7 != 0 && version > 0 {
                let at = block << 16;
                bytes[at..at + (1 << 16)]
                    .copy_from_slice(&pseudo_random(1 << 16, version * 1000 + file * 50 + block as u64));
            }
        }
        fs::write(folder.join(format!("file{file}")), bytes).unwrap();
    }
    fs::write(folder.join("small"), version.to_string()).unwrap();
}

/// Data containers of which the version uses less than `percent`.
fn sparse(context: &JobContext, version: &Version, percent: u64) -> HashSet<ContainerId> {
    let reader = VersionReader::open(context, version).unwrap();
    let data = reader.manifest().containers.iter().filter(|usage| usage.container.kind == ContainerKind::Data);
    data.filter(|usage| usage.bytes_used * 100 < usage.bytes_held * percent).map(|usage| usage.container).collect()
}

fn rewrite(context: &JobContext, version: &Version, retires: &HashSet<ContainerId>) -> (u64, usize) {
    let job = JobId::new(context.clock.now_ms(), [9; 10]);
    let old = VersionReader::open(context, version).unwrap().manifest().clone();
    // Another job that copies the same, and remembers less of it.
    let forgetful = ChunkCopier::new(context, JobId([8; 16]), Compression::DEFAULT).unwrap();
    let few = forgetful.remembering(7).rewrite(&old, |container| retires.contains(container)).unwrap();
    let mut copier = ChunkCopier::new(context, job, Compression::DEFAULT).unwrap();
    let rewritten = copier.rewrite(&old, |container| retires.contains(container)).unwrap();
    let (bytes, moves) = (rewritten.moved_bytes, rewritten.moves.len());
    assert_eq!([few.moved_chunks, rewritten.moved_chunks], [moves as u64; 2]);
    assert!(few.moves.iter().map(|moved| moved.from).eq(rewritten.moves[..7].iter().map(|moved| moved.from)));
    let written = copier.finish().unwrap();
    let new = rewritten.manifest(&old, &written, [1; 16]).unwrap();
    assert_eq!(new.data.bytes(), old.data.bytes());
    assert_eq!(new.metadata, old.metadata);
    assert!(new.containers.iter().all(|usage| !retires.contains(&usage.container)));
    let generation = version.generation + 1;
    context
        .executor
        .block_on(context.repository.commit_generation(version.series, &new, generation, version.generation))
        .unwrap();
    (bytes, moves)
}

fn check(context: &JobContext) {
    let options = CheckOptions { read_data: ReadData::All, ..CheckOptions::default() };
    let report = larder_rewrite::check(context, &options).unwrap();
    assert!(report.damages.is_empty(), "{report:?}");
}

struct Setup {
    runtime: tokio::runtime::Runtime,
    dir: tempfile::TempDir,
}

impl Setup {
    fn new() -> Self {
        Self { runtime: runtime(), dir: tempfile::tempdir().unwrap() }
    }

    fn folder(&self) -> std::path::PathBuf {
        self.dir.path().join("source")
    }

    fn context(&self) -> JobContext {
        fs::create_dir(self.dir.path().join("repository")).unwrap();
        context(&self.runtime, init(&self.runtime, local(&self.dir.path().join("repository"))))
    }

    fn restores(&self, context: &JobContext, version: &Version) -> BTreeMap<String, Vec<u8>> {
        let target = tempfile::tempdir_in(self.dir.path()).unwrap();
        restore(context, version, &self.folder(), target.path()).unwrap();
        let files = fs::read_dir(target.path()).unwrap().map(|entry| entry.unwrap());
        files.map(|file| (file.file_name().into_string().unwrap(), fs::read(file.path()).unwrap())).collect()
    }
}

#[test]
fn a_version_laid_out_anew_is_the_same_over_other_containers() {
    let setup = Setup::new();
    let context = setup.context();
    for version in 0..3 {
        write(&setup.folder(), version);
        backup(&context, &setup.folder()).unwrap();
    }
    let newest = versions(&context).pop().unwrap();
    let before = setup.restores(&context, &newest);
    let retires = sparse(&context, &newest, 30);
    assert!(!retires.is_empty(), "the data are such that some containers are sparse");

    let (bytes, moves) = rewrite(&context, &newest, &retires);
    assert!(bytes > 1 << 20 && moves > 100, "{bytes} {moves}");
    let all = versions(&context);
    assert_eq!(all.len(), 3, "a generation is no version of its own");
    let newest = all.last().unwrap();
    assert_eq!(newest.generation, 1);
    assert!(sparse(&context, newest, 30).is_empty());
    assert!(setup.restores(&context, newest) == before);
    check(&context);

    // What the newest generation has retired is not read for it any more.
    for container in &retires {
        let name = names::container(*container);
        setup.runtime.block_on(context.repository.store().delete(&name)).unwrap();
    }
    assert!(setup.restores(&context, newest) == before);

    // The next version is built on the new generation: nothing is stored twice, and nothing retired comes back.
    let report = backup(&context, &setup.folder()).unwrap();
    assert_eq!(report.statistics.new_chunks, 0);
    let next = versions(&context).pop().unwrap();
    let manifest = VersionReader::open(&context, &next).unwrap().manifest().clone();
    assert!(manifest.containers.iter().all(|usage| !retires.contains(&usage.container)));
    assert!(setup.restores(&context, &next) == before);
}

#[test]
fn reclaim_everything_in_small_batches_moves_every_chunk_once() {
    let setup = Setup::new();
    let mut context = setup.context();
    context.memory = 1 << 20;
    write(&setup.folder(), 0);
    // The same again: chunks that are used twice.
    fs::copy(setup.folder().join("file0"), setup.folder().join("copy")).unwrap();
    backup(&context, &setup.folder()).unwrap();
    let newest = versions(&context).pop().unwrap();
    let before = setup.restores(&context, &newest);
    let (bytes, _) = rewrite(&context, &newest, &sparse(&context, &newest, 101));
    assert!((18 << 20..19 << 20).contains(&bytes), "the copy is not moved twice: {bytes}");
    let newest = versions(&context).pop().unwrap();
    assert!(setup.restores(&context, &newest) == before);
    check(&context);
}

#[test]
fn damage_is_not_copied() {
    let setup = Setup::new();
    let context = setup.context();
    write(&setup.folder(), 0);
    backup(&context, &setup.folder()).unwrap();
    let newest = versions(&context).pop().unwrap();
    let all = sparse(&context, &newest, 101);
    let victim = setup.dir.path().join("repository").join(names::container(*all.iter().next().unwrap()));
    let mut bytes = fs::read(&victim).unwrap();
    bytes[1000] ^= 1;
    fs::remove_file(&victim).unwrap();
    fs::write(&victim, bytes).unwrap();
    let old = VersionReader::open(&context, &newest).unwrap().manifest().clone();
    let mut copier = ChunkCopier::new(&context, JobId([3; 16]), Compression::DEFAULT).unwrap();
    let error = copier.rewrite(&old, |container| all.contains(container)).unwrap_err();
    assert!(matches!(error, RewriteError::Repository(error) if error.is_damage()));
}

/// All chunks of a data container, in its order.
fn chunks_of(context: &JobContext, container: ContainerId) -> Vec<ChunkRef> {
    context.executor.block_on(context.repository.read_container_index(container)).unwrap().chunk_refs().collect()
}

/// Copies that compress nothing: what is small all the same was copied as it was compressed.
#[test]
fn frames_of_which_everything_is_wanted_are_copied_as_they_are() {
    let setup = Setup::new();
    let context = setup.context();
    fs::create_dir_all(setup.folder()).unwrap();
    // Each block of it shrinks to a quarter.
    let text: Vec<u8> = pseudo_random(2 << 20, 7).chunks(64).flat_map(|part| part.repeat(4)).collect();
    fs::write(setup.folder().join("text"), &text).unwrap();
    backup(&context, &setup.folder()).unwrap();
    let newest = versions(&context).pop().unwrap();
    let before = setup.restores(&context, &newest);
    let all = sparse(&context, &newest, 101);
    let old = VersionReader::open(&context, &newest).unwrap().manifest().clone();
    let stored: u64 =
        old.containers.iter().filter(|usage| all.contains(&usage.container)).map(|usage| usage.object_bytes).sum();

    let mut copier = ChunkCopier::new(&context, JobId([4; 16]), Compression::Off).unwrap();
    let rewritten = copier.rewrite(&old, |container| all.contains(container)).unwrap();
    let (whole, moved) = (copier.whole_bytes(), rewritten.moved_bytes);
    assert!(whole * 10 > moved * 8, "{whole} of {moved}");
    let written = copier.finish().unwrap();
    assert!(written.stored_bytes * 10 < stored * 18, "{} for {stored}", written.stored_bytes);
    let new = rewritten.manifest(&old, &written, [1; 16]).unwrap();
    context.executor.block_on(context.repository.commit_generation(newest.series, &new, 1, 0)).unwrap();
    assert!(setup.restores(&context, &versions(&context).pop().unwrap()) == before);
    check(&context);

    // In another order, or with something left out, they are not whole; what was a moment ago may be no more.
    let mut chunks: Vec<ChunkRef> = all.iter().flat_map(|container| chunks_of(&context, *container)).collect();
    for wanted in [chunks.iter().rev().copied().collect::<Vec<_>>(), chunks.iter().step_by(2).copied().collect()] {
        let mut copier = ChunkCopier::new(&context, JobId([wanted.len() as u8; 16]), Compression::DEFAULT).unwrap();
        let copies = copier.copy(&wanted).unwrap();
        assert_eq!(copier.whole_bytes(), 0);
        copier.finish().unwrap();
        assert_eq!(read_all(&context, &copies), read_all(&context, &wanted));
    }
    // Between others they are.
    chunks.insert(0, chunks[chunks.len() / 2]);
    let mut copier = ChunkCopier::new(&context, JobId([5; 16]), Compression::DEFAULT).unwrap();
    let copies = copier.copy(&chunks).unwrap();
    assert!(copier.whole_bytes() > 0);
    copier.finish().unwrap();
    assert_eq!(read_all(&context, &copies), read_all(&context, &chunks));
}

/// The store answers the request for the last container when copies of the first ones arrive. That never happens in a process that
/// reads everything before it writes.
#[test]
fn copies_are_uploaded_while_later_chunks_are_read() {
    let mut scene = Scene::of(&[("file", &pseudo_random(20_000_000, 1))]);
    // All is one batch.
    scene.context.memory = 256 << 20;
    let context = &scene.context;
    let newest = versions(context).pop().unwrap();
    let all: BTreeSet<ContainerId> = sparse(context, &newest, 101).into_iter().collect();
    let chunks: Vec<ChunkRef> = all.iter().flat_map(|container| chunks_of(context, *container)).collect();
    let (last, job) = (names::container(*all.last().unwrap()), JobId([6; 16]));
    let copies = names::containers_of(ContainerKind::Data, job).leak();
    scene.faults.add(When::kind(OpKind::Get).path(&last), Fault::Until(copies, 1), Times::Always);
    let mut copier = ChunkCopier::new(context, job, Compression::DEFAULT).unwrap();
    let copies = copier.copy(&chunks).unwrap();
    copier.finish().unwrap();
    assert_eq!(read_all(context, &copies), read_all(context, &chunks));
}

/// What readers find at these places.
fn read_all(context: &JobContext, chunks: &[ChunkRef]) -> Vec<Bytes> {
    let bytes = NonZeroUsize::new(64 << 20).unwrap();
    let reader = ChunkReader::new(context.repository.clone(), bytes, bytes);
    chunks.iter().map(|chunk| context.executor.block_on(reader.read(chunk)).unwrap()).collect()
}

/// A frame that opens and decompresses, with other bytes in it than its table says: it would get a good seal for nothing.
#[test]
fn a_frame_is_copied_only_when_every_chunk_in_it_is_right() {
    let setup = Setup::new();
    let context = setup.context();
    write(&setup.folder(), 0);
    backup(&context, &setup.folder()).unwrap();
    let newest = versions(&context).pop().unwrap();
    let victim = *sparse(&context, &newest, 101).iter().min().unwrap();
    let (repository, keys) = (&context.repository, context.repository.keys());
    let container = context.executor.block_on(repository.read_container(victim)).unwrap();
    let sealer = ContainerSealer::new(keys, victim, keys.domain(), [5; 32]).unwrap();
    let mut forged = ContainerBuilder::new();
    let (mut compressor, mut decompressor) = (Compressor::new(Compression::DEFAULT), Decompressor::new());
    for frame in container.index.frames() {
        let (mut scratch, mut raw) = (Vec::new(), Vec::new());
        container.open_frame(repository, frame, &mut scratch, &mut raw, &mut decompressor).unwrap();
        // The last byte of the first frame.
        if frame.number == 0 {
            *raw.last_mut().unwrap() ^= 1;
        }
        forged.push_frame(&seal_frame(&sealer, frame.number, &raw, &[], &mut compressor).unwrap());
    }
    let forged = forged.finish(&sealer, &container.index.chunks, repository.config().padding()).unwrap();
    context.executor.block_on(async {
        repository.store().delete(&names::container(victim)).await.unwrap();
        repository.store().create(&names::container(victim), forged.into()).await.unwrap();
    });
    let chunks = chunks_of(&context, victim);
    let mut copier = ChunkCopier::new(&context, JobId([6; 16]), Compression::DEFAULT).unwrap();
    let error = copier.copy(&chunks).unwrap_err();
    assert!(matches!(error, RewriteError::Repository(error) if error.is_damage()));
    assert_eq!(
        copier.unreadable_among(&chunks).unwrap().into_iter().collect::<Vec<_>>(),
        [(victim, Unreadable::Damaged)]
    );
    let first = container.index.frames()[0].payload_range();
    let others: Vec<_> = chunks.into_iter().filter(|chunk| chunk.offset >= first.end).collect();
    assert_eq!(copier.copy(&others).unwrap().len(), others.len());
}
