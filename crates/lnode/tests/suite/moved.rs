//! Versions whose containers were retired: what they need is found through the index, one hop.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use crate::support::*;
use larder_format::ChunkRef;
use larder_format::compress::Compression;
use larder_format::ids::{ContainerId, ContainerKind, JobId};
use larder_format::index_tables::{ChunkKey, ChunkPlace, ContainerFacts, ContainerState};
use larder_format::names;
use larder_index::{Chunks, Containers, Current, Draft, IndexIo, IndexPass, PassRuns, Published, publish};
use larder_job::JobContext;
use larder_lnode::RestoreOptions;
use larder_reader::VersionReader;
use larder_rewrite::check::ReadData;
use larder_rewrite::chunk_copier::ChunkCopier;
use larder_rewrite::{CheckOptions, CheckReport};
use larder_source::target::{Target, TargetOptions};
use larder_store::catalog::Version;

struct Setup {
    runtime: tokio::runtime::Runtime,
    dir: tempfile::TempDir,
}

impl Setup {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("repository")).unwrap();
        fs::create_dir(dir.path().join("source")).unwrap();
        for file in 0..5u64 {
            fs::write(dir.path().join(format!("source/large{file}")), pseudo_random(7 << 20, file)).unwrap();
            fs::write(dir.path().join(format!("source/small{file}")), pseudo_random(5000, 100 + file)).unwrap();
        }
        Self { runtime: runtime(), dir }
    }

    fn source(&self) -> PathBuf {
        self.dir.path().join("source")
    }

    fn context(&self) -> JobContext {
        let context = context(&self.runtime, init(&self.runtime, local(&self.dir.path().join("repository"))));
        backup(&context, &self.source()).unwrap();
        context
    }
}

fn files(folder: &std::path::Path) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    files.map(|file| (file.file_name().into_string().unwrap(), fs::read(file.path()).unwrap())).collect()
}

fn data_containers(context: &JobContext, version: &Version) -> Vec<ContainerId> {
    let reader = VersionReader::open(context, version).unwrap();
    let all = reader.manifest().containers.iter().map(|usage| usage.container);
    all.filter(|id| id.kind == ContainerKind::Data).collect()
}

/// Copies all chunks of these containers elsewhere, publishes an index that says where, leaving out every `forgets`-th, and deletes
/// the containers.
fn move_away(context: &JobContext, containers: &[ContainerId], forgets: Option<usize>) {
    let job = JobId::new(context.clock.now_ms(), [8; 10]);
    let read = |id: &ContainerId| context.executor.block_on(context.repository.read_container_index(*id)).unwrap();
    let chunks: Vec<ChunkRef> = containers.iter().flat_map(|id| read(id).chunk_refs().collect::<Vec<_>>()).collect();
    let mut copier = ChunkCopier::new(context, job, Compression::DEFAULT).unwrap();
    copier.copy(&chunks).unwrap();
    let written = copier.finish().unwrap();

    let folder = tempfile::tempdir().unwrap();
    let io = IndexIo { repository: context.repository.clone(), executor: context.executor.clone() };
    let current = context.executor.block_on(Current::settle(&context.repository)).unwrap();
    let turn = current.turn().unwrap();
    let threads = context.threads;
    let pass = IndexPass::new(io, PassRuns::new(job), threads, 1 << 20, folder.path().to_owned());
    let mut draft = Draft::new(&pass, &current.base().unwrap());
    let mut places = pass.changes::<Chunks>().unwrap();
    let mut facts = pass.changes::<Containers>().unwrap();
    for (id, holding) in &written.containers {
        let container = draft.manifest.head.next_container;
        draft.manifest.head.next_container += 1;
        let fact = ContainerFacts {
            id: *id,
            state: ContainerState::Live,
            layout: larder_format::layout::Layout::Standard,
            chunks: holding.chunks,
            bytes: holding.bytes,
            object_bytes: holding.object_bytes,
            retired_chunks: 0,
            retired_bytes: 0,
            users: Vec::new(),
            forwards: Vec::new(),
        };
        facts.put(&container, &fact).unwrap();
        for (chunk, place) in read(id).chunk_refs().enumerate() {
            if forgets.is_none_or(|every| !chunk.is_multiple_of(every)) {
                places.put(&ChunkKey::of(&place.fingerprint), &ChunkPlace { container, chunk: chunk as u32 }).unwrap();
            }
        }
    }
    draft.apply(places).unwrap();
    draft.apply(facts).unwrap();
    draft.manifest.head.pass = job;
    let published = context.executor.block_on(publish(&context.repository, &turn, draft.manifest)).unwrap();
    assert!(matches!(published, Published::Won { .. }));
    for id in containers {
        context.executor.block_on(context.repository.store().delete(&names::container(*id))).unwrap();
    }
}

fn check(context: &JobContext) -> CheckReport {
    larder_rewrite::check(context, &CheckOptions { read_data: ReadData::All, ..CheckOptions::default() }).unwrap()
}

/// Everything that reads contents gives what the source has.
fn assert_readable(setup: &Setup, context: &JobContext, version: &Version) {
    let target = tempfile::tempdir_in(setup.dir.path()).unwrap();
    let report = restore(context, version, &setup.source(), target.path()).unwrap();
    assert_eq!((report.errors, report.damaged), (0, 0));
    assert!(files(target.path()) == files(&setup.source()));
    // In stream order, and in pieces of one window each.
    let reader = VersionReader::open(context, version).unwrap();
    let mut seen = 0;
    let path = setup.source().to_str().unwrap().as_bytes()[1..].to_vec();
    reader
        .visit_contents(&path, |entry, content| {
            let name = String::from_utf8(entry.path.rsplit(|byte| *byte == b'/').next().unwrap().to_vec()).unwrap();
            if let Ok(expected) = fs::read(setup.source().join(&name)) {
                let mut bytes = Vec::new();
                content.read_to_end(&mut bytes).unwrap();
                assert!(bytes == expected, "{name}");
                seen += 1;
            }
            Ok::<_, larder_store::RepositoryError>(())
        })
        .unwrap();
    assert_eq!(seen, 10);
    let report = check(context);
    assert!(report.damages.is_empty(), "{:?}", report.damages);
}

#[test]
fn chunks_that_were_moved_are_found_by_every_reader() {
    let setup = Setup::new();
    let context = setup.context();
    let version = versions(&context).pop().unwrap();
    let containers = data_containers(&context, &version);
    assert!(containers.len() > 3);
    move_away(&context, &containers[1..3], None);
    assert_readable(&setup, &context, &version);
    // All of it, some of it for the second time: still one hop.
    let job = containers[1].job;
    let listed = context.executor.block_on(context.repository.store().list(names::DATA)).unwrap();
    let all: Vec<_> = listed.iter().filter_map(|object| names::parse_container(&object.name)).collect();
    assert!(all.iter().any(|id| id.job != job));
    move_away(&context, &all, None);
    assert_readable(&setup, &context, &version);

    // The next version is built on it, and rewriting it makes it whole without the index.
    fs::write(setup.source().join("small0"), b"changed").unwrap();
    let report = backup(&context, &setup.source()).unwrap();
    assert_eq!(report.statistics.new_chunks, 1);
    let newest = versions(&context).pop().unwrap();
    assert_readable(&setup, &context, &newest);
    let old = VersionReader::open(&context, &newest).unwrap().manifest().clone();
    let mut copier =
        ChunkCopier::new(&context, JobId::new(context.clock.now_ms(), [4; 10]), Compression::DEFAULT).unwrap();
    let rewritten = copier.rewrite(&old, |id| all.contains(id) || containers.contains(id)).unwrap();
    let written = copier.finish().unwrap();
    let manifest = rewritten.manifest(&old, &written, [2; 16]).unwrap();
    context.executor.block_on(context.repository.commit_generation(newest.series, &manifest, 1, 0)).unwrap();
    let newest = versions(&context).pop().unwrap();
    assert_eq!(newest.generation, 1);
    for object in context.executor.block_on(context.repository.store().list(names::INDEX)).unwrap() {
        context.executor.block_on(context.repository.store().delete(&object.name)).unwrap();
    }
    let target = tempfile::tempdir_in(setup.dir.path()).unwrap();
    restore(&context, &newest, &setup.source(), target.path()).unwrap();
    assert!(files(target.path()) == files(&setup.source()));
}

#[test]
fn what_the_index_does_not_know_either_is_lost_and_named() {
    let setup = Setup::new();
    let context = setup.context();
    let version = versions(&context).pop().unwrap();
    let containers = data_containers(&context, &version);
    move_away(&context, &containers[..1], Some(500));
    let report = check(&context);
    assert_eq!(report.damages.len(), 1, "{:?}", report.damages);
    assert_eq!(report.damages[0].object, names::container(containers[0]));
    assert!(!report.damages[0].affected.is_empty());
    let target = tempfile::tempdir_in(setup.dir.path()).unwrap();
    let subpath = setup.source().to_str().unwrap().as_bytes()[1..].to_vec();
    let options = RestoreOptions { subpath: Some(subpath), ..RestoreOptions::default() };
    let report = larder_lnode::restore(
        &context,
        &version,
        &Target::open(target.path(), TargetOptions::default()).unwrap(),
        &options,
    )
    .unwrap();
    assert!(report.damaged > 0);
    let (restored, source) = (files(target.path()), files(&setup.source()));
    let wrong = source.iter().filter(|(name, bytes)| restored.get(*name) != Some(bytes)).count();
    assert_eq!(wrong as u64, report.damaged, "what is not right was said to be damaged");
}

#[test]
fn without_an_index_what_is_missing_is_damage() {
    let setup = Setup::new();
    let context = setup.context();
    let version = versions(&context).pop().unwrap();
    let container = data_containers(&context, &version)[0];
    context.executor.block_on(context.repository.store().delete(&names::container(container))).unwrap();
    let report = check(&context);
    assert_eq!(report.damages.len(), 1);
    assert_eq!(report.damages[0].why, "it is missing");
}
