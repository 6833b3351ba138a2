//! What hides segments from an exact collection and from its proof: rows of recipes that a key for
//! backups alone made up about segments and nodes of others, and wrong workers beside them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use larder_chunking::Fingerprinter;
use larder_format::compress::Compression;
use larder_format::content::ContentRoots;
use larder_format::ids::{ContainerKind, JobId};
use larder_format::index_tables::ChunkKey;
use larder_format::key_file::{KeyFields, Unlock};
use larder_format::manifest::Manifest;
use larder_format::names;
use larder_format::recipe::{NodeRef, SegmentRef};
use larder_format::roles::Roles;
use larder_gnode::pass::{self, PassError, PassOptions, PassReport};
use larder_gnode::reclaim::Exact;
use larder_job::{Cancel, JobContext};
use larder_reader::{MarkError, Marked, MetaChunks, RecipeReader, References, ShareMarks, SharedMarks, TakeMarks};
use larder_rewrite::chunk_copier::{ShareCopies, SharedCopying};
use larder_store::catalog::Version;
use larder_store::{Repository, RepositoryError};
use larder_writer::{Destination, MetaSink, NodeWriter, Packer, Pool, Uploads, container_table, holdings};

use crate::pass_workers::{Part, run_of, sharing};
use crate::reclaim_at_once::scene;
use crate::support::*;

fn version(scene: &Scene, id: JobId) -> Version {
    scene.versions().into_iter().find(|version| version.id() == id).unwrap()
}

/// An old version with data of its own, and a newest one.
fn with_old() -> (Scene, JobId) {
    let scene = Scene::new();
    // By a client with a key for backups.
    let client = thief(&scene);
    let alone = |file: &str, seed, len| {
        scene.fill("a", &[(file, seed, len)]);
        backup_alone(&client, &scene.source("a"), "a").version.unwrap().id
    };
    let old = alone("kept", 1, 90_000);
    alone("new", 2, 30_000);
    no_reclaim(&scene);
    (scene, old)
}

fn no_reclaim(scene: &Scene) {
    scene.pass_with(&PassOptions { reclaim: None, ..pass_options() }).unwrap();
}

/// Who has a key for backups alone.
fn thief(scene: &Scene) -> JobContext {
    let fields = KeyFields { roles: Roles::BACKUP, domain: "laptop".to_owned(), ..KeyFields::for_tests() };
    let all = scene.repository(scene.memory.store());
    let opened = scene.runtime.block_on(async {
        if scene.memory.paths().await.iter().filter(|path| path.starts_with(names::KEYS)).count() < 2 {
            all.add_key(Unlock::Password(b"backup"), fields).await.unwrap();
        }
        Repository::open(store_over(scene.memory.store()), b"backup", Arc::new(larder_testkit::entropy())).await
    });
    scene.context_of(opened.unwrap())
}

/// Commits generation 0 of a new version, which is the oldest of its series: a key for backups can.
fn plant(scene: &Scene, change: impl FnOnce(&JobContext, &mut Manifest)) {
    let context = thief(scene);
    let newest = scene.versions().into_iter().rfind(|version| version.summary.series == "a").unwrap();
    scene
        .runtime
        .block_on(async { context.repository.manifest(&newest).await })
        .map(|mut manifest| {
            manifest.summary.id = JobId::new(1, [1; 10]);
            change(&context, &mut manifest);
            manifest.summary.roots = ContentRoots::of(&manifest.data, &manifest.metadata);
            let _ = scene.runtime.block_on(context.repository.commit(newest.series, &manifest)).unwrap();
        })
        .unwrap();
    no_reclaim(scene);
}

fn manifest_of(scene: &Scene, id: JobId) -> Manifest {
    let context = scene.context();
    scene.runtime.block_on(context.repository.manifest(&version(scene, id))).unwrap()
}

/// Says that a node of the old version has no segments.
fn plant_empty_node(scene: &Scene, old: JobId) {
    let nodes = manifest_of(scene, old).data.nodes;
    plant(scene, |_, manifest| {
        let empty = nodes.into_iter().map(|node| NodeRef { bytes: 0, chunks: 0, segments: 0, cover: None, ..node });
        drop(manifest.data.nodes.splice(0..0, empty));
    });
}

/// Writes a node whose rows name the segments of the old version, and changes them.
fn plant_rows(scene: &Scene, old: JobId, change: impl Fn(&mut SegmentRef)) {
    let of_old = manifest_of(scene, old);
    plant(scene, |context, manifest| {
        let repository = &context.repository;
        let job = JobId::new(4_000_000_000_000, [9; 10]);
        let uploads = Uploads::new(repository.clone(), context.executor.clone(), context.cancel.clone());
        let pool = Pool::new(context, Compression::DEFAULT).unwrap();
        let destination = Destination::Store { pool: pool.handle().unwrap(), uploads: uploads.clone() };
        let fingerprinter = Arc::new(Fingerprinter::new(repository.keys().fingerprint()));
        let mut sink = MetaSink::new(Packer::new(destination, ContainerKind::Meta, job), fingerprinter);
        let mut reader = RecipeReader::new(Arc::new(of_old.data.clone()), MetaChunks::new(context));
        let mut nodes = NodeWriter::new(None);
        for number in 0..reader.segments() {
            let (mut row, _) = reader.segment_ref(number).unwrap().unwrap();
            change(&mut row);
            nodes.push(row, &mut sink).unwrap();
        }
        let recipe = nodes.finish(&mut sink).unwrap();
        let usage = sink.finish().unwrap().usage;
        uploads.wait().unwrap();
        let (stored, known) = (uploads.stored(), holdings(&of_old.containers));
        let table = container_table(&usage, |id| stored.get(id).or_else(|| known.get(id)).copied()).unwrap();
        let there: BTreeSet<_> = manifest.containers.iter().map(|usage| usage.container).collect();
        manifest.containers.extend(table.into_iter().filter(|usage| !there.contains(&usage.container)));
        drop(manifest.data.nodes.splice(0..0, recipe.nodes));
    });
}

#[track_caller]
fn is_there(scene: &Scene, old: JobId, at: &str) {
    let restored =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| contents_of(&scene.context(), &version(scene, old))));
    let restored = restored.unwrap_or_else(|_| panic!("{at}: the old version cannot be restored"));
    assert_eq!(restored.values().map(Vec::len).sum::<usize>(), 90_000, "{at}");
}

#[test]
fn a_node_that_is_said_to_be_empty_hides_nothing() {
    let (scene, old) = with_old();
    plant_empty_node(&scene, old);
    is_there(&scene, old, "before");
    scene.optimize(Exact::Always);
    is_there(&scene, old, "alone");
}

#[test]
fn rows_without_chunks_hide_nothing() {
    let (scene, old) = with_old();
    plant_rows(&scene, old, |row| {
        (row.chunks, row.bytes) = (0, 0);
        row.uses.clear();
    });
    is_there(&scene, old, "before");
    scene.optimize(Exact::Always);
    is_there(&scene, old, "alone");
}

/// There is not even a worker.
#[test]
fn rows_without_chunks_hide_nothing_when_recipes_are_shared() {
    let (scene, old) = with_old();
    plant_rows(&scene, old, |row| {
        (row.chunks, row.bytes) = (0, 0);
        row.uses.clear();
    });
    is_there(&scene, old, "before");
    run_of(&scene.context(), &sharing(2), Part::Marks).unwrap();
    is_there(&scene, old, "shared");
}

/// Leaves these keys out. No sample found it.
#[derive(Debug, Clone)]
struct Liar {
    leaves_out: Arc<BTreeSet<ChunkKey>>,
    /// How often it was found to be wrong.
    found: Arc<AtomicU64>,
}

impl Liar {
    fn about(leaves_out: BTreeSet<ChunkKey>) -> Self {
        Self { leaves_out: Arc::new(leaves_out), found: Arc::default() }
    }
}

impl ShareCopies for Liar {
    fn batch_bytes(&self, _: u64) -> u64 {
        1
    }

    fn begin(&self, _: &JobContext, _: JobId, _: u64, _: Compression) -> Option<Box<dyn SharedCopying>> {
        None
    }
}

impl ShareMarks for Liar {
    fn batch_chunks(&self) -> u64 {
        1
    }

    fn begin_marks(&self, _: &JobContext, _: JobId, _: u64, _: u8) -> Option<Box<dyn SharedMarks>> {
        Some(Box::new(self.clone()))
    }

    fn was_wrong(&self) {
        self.found.fetch_add(1, Ordering::SeqCst);
    }
}

impl SharedMarks for Liar {
    fn offer(&mut self, segments: Vec<SegmentRef>, own: &mut dyn TakeMarks) -> Result<Marked, MarkError> {
        for row in &segments {
            for record in &own.read(row)?.records {
                let key = ChunkKey::of(&record.chunk.fingerprint);
                if !self.leaves_out.contains(&key) {
                    own.needs(&key)?;
                }
            }
        }
        Ok(Marked::Counts)
    }

    fn finish(&mut self, _: &mut dyn TakeMarks) -> Result<Marked, MarkError> {
        Ok(Marked::Counts)
    }

    fn end(self: Box<Self>) {}
}

fn keys_of(scene: &Scene, id: JobId) -> BTreeSet<ChunkKey> {
    let mut keys = BTreeSet::new();
    let visited = References::new(&scene.context()).visit(&manifest_of(scene, id).data, |chunk| {
        keys.insert(ChunkKey::of(&chunk.fingerprint));
        Ok::<_, RepositoryError>(())
    });
    visited.unwrap();
    keys
}

fn exact_with(scene: &Scene, liar: &Liar) -> PassReport {
    let options = PassOptions { sharing: Some(Arc::new(liar.clone()) as _), ..thorough(Exact::Always) };
    scene.pass_with(&options).unwrap()
}

#[test]
fn keys_that_are_left_out_are_found() {
    let (scene, old) = with_old();
    exact_with(&scene, &Liar::about(keys_of(&scene, old)));
    is_there(&scene, old, "a lie");
}

/// Rows with true numbers and digests say that they use no container. A worker leaves keys out, too.
#[test]
fn rows_that_name_no_container_hide_no_lie() {
    let (scene, old) = with_old();
    plant_rows(&scene, old, |row| row.uses.clear());
    is_there(&scene, old, "before");
    let alone = scene.fork();
    alone.optimize(Exact::Always);
    is_there(&alone, old, "alone");
    exact_with(&scene, &Liar::about(keys_of(&scene, old)));
    is_there(&scene, old, "a lie");
}

/// What happened to a container, and no pass knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Harm {
    Lost,
    FrameDamaged,
    /// Before a pass could list its chunks.
    TableDamaged,
}

/// A newest version in a container of its own, and copies of its chunks in one of another series.
/// That series needs only other chunks of it. Then the container of the version suffers harm, so
/// that the version needs the copies.
fn with_copies(harm: Harm) -> (Scene, JobId) {
    let scene = Scene::new();
    // The index leads to the first place of a chunk, which is the one that goes.
    let forgotten = scene.alone("b", &[("kept", 1, 90_000), ("other", 3, 30_000)]);
    no_reclaim(&scene);
    let id = scene.alone("a", &[("kept", 1, 90_000)]);
    scene.fill("b", &[("other", 3, 30_000)]);
    scene.backup(&scene.context(), "b").unwrap();
    scene.alone("b", &[("new", 4, 30_000)]);
    if harm != Harm::TableDamaged {
        no_reclaim(&scene);
    }
    for usage in manifest_of(&scene, id).containers {
        if usage.container.kind == ContainerKind::Data {
            do_harm(&scene, &names::container(usage.container), harm);
        }
    }
    scene.forget(forgotten);
    no_reclaim(&scene);
    (scene, id)
}

fn do_harm(scene: &Scene, name: &str, harm: Harm) {
    scene.runtime.block_on(async {
        let mut bytes = scene.memory.contents().await[name].to_vec();
        match harm {
            Harm::Lost => return scene.memory.remove(name).await,
            // A sealed frame begins behind the header.
            Harm::FrameDamaged => bytes[200] ^= 1,
            Harm::TableDamaged => *bytes.last_mut().unwrap() ^= 1,
        }
        scene.memory.put(name, bytes::Bytes::from(bytes)).await;
    });
}

/// A version needs chunks in a container that no segment of it names, because the one that it names
/// cannot be read. A worker leaves their keys out.
#[test]
fn a_lie_about_the_last_copies_of_a_lost_container_deletes_nothing() {
    for harm in [Harm::Lost, Harm::FrameDamaged, Harm::TableDamaged] {
        let (scene, id) = with_copies(harm);
        is_there(&scene, id, &format!("{harm:?}, before"));
        let honest = scene.fork();
        exact_with(&honest, &Liar::about(BTreeSet::new()));
        is_there(&honest, id, &format!("{harm:?}, no lie"));
        let liar = Liar::about(keys_of(&scene, id));
        exact_with(&scene, &liar);
        is_there(&scene, id, &format!("{harm:?}, a lie"));
        // A pass that knows of a lost container asks no worker.
        assert_eq!(liar.found.load(Ordering::SeqCst), u64::from(harm != Harm::Lost), "{harm:?}");
    }
}

/// The time of a pass is over after some operations. Once a pass of one process publishes what it
/// did, so does a shared one.
#[test]
fn a_deadline_in_the_proof_publishes_the_rest() {
    let (scene, _) = scene();
    let outcomes = |is_shared: bool| {
        let mut all: Vec<(u64, String)> = Vec::new();
        for n in (0..400).step_by(6) {
            let fork = scene.fork();
            let cancel = Cancel::default();
            let asked = cancel.clone();
            let happened = Arc::new(AtomicU64::new(0));
            let count = happened.clone();
            let between = Between::new(fork.memory.store(), move || {
                asked.cancel();
                count.fetch_add(1, Ordering::SeqCst);
                async {}
            });
            let context = JobContext { cancel, ..fork.context_at(between.clone()) };
            between.happens_after(n);
            let result: Result<PassReport, PassError> = if is_shared {
                run_of(&context, &sharing(1), Part::Marks)
            } else {
                fork.runtime.block_on(pass::run(&context, &thorough(Exact::Always)))
            };
            let said = match result {
                Ok(report) => format!("{:?} unfinished {}", report.outcome, report.is_unfinished),
                Err(error) => format!("{error:?}"),
            };
            if all.last().is_none_or(|(_, before)| *before != said) {
                all.push((n, said));
            }
            if happened.load(Ordering::SeqCst) == 0 {
                break;
            }
        }
        all
    };
    let (alone, shared) = (outcomes(false), outcomes(true));
    for (of, all) in [("alone", alone), ("shared", shared)] {
        let first = all.iter().position(|(_, said)| said.starts_with("Published")).unwrap();
        assert!(all[first..].iter().all(|(_, said)| !said.contains("Interrupted")), "{of}: {all:?}");
    }
}
