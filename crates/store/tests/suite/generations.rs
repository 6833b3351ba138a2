//! Generation 0 says what a version is. A later generation counts only if it agrees, so nobody who
//! may create objects changes an existing version.

use larder_format::content::ContentRoots;
use larder_format::ids::{ContainerId, ContainerKind, ContentDigest, JobId};
use larder_format::layout::Layout;
use larder_format::lease::Pin;
use larder_format::manifest::{Manifest, Summary};
use larder_format::recipe::{NodeRef, Recipe};
use larder_format::sketch::Sketch;
use larder_format::{ChunkRef, Fingerprint, names};
use larder_store::catalog::{Catalog, Version};
use larder_store::generations::NOT_A_GENERATION;
use larder_store::{Repository, RepositoryError, Store, StoreOptions};
use larder_testkit::{Fault, FaultStore, Memory, OpKind, Times, When};

use crate::planted::manifest;
use crate::support::repository;

struct Play {
    memory: Memory,
    repository: Repository,
}

impl Play {
    async fn new() -> Self {
        let memory = Memory::new();
        let store = Store::from_object_store(memory.store(), "", &StoreOptions::default()).expect("opens");
        let play = Self { memory, repository: repository(store).await };
        play.create(&genuine(), 0).await;
        play
    }

    async fn create(&self, manifest: &Manifest, generation: u32) {
        let series = self.repository.keys().series_key(&manifest.summary.series);
        self.repository.commit_generation(series, manifest, generation, 0).await.expect("commits");
    }

    fn register(&self, generation: u32) -> String {
        names::version(self.repository.keys().series_key(&genuine().summary.series), JobId([1; 16]), generation)
    }

    async fn catalog(&self) -> Catalog {
        self.repository.catalog().await.expect("lists")
    }

    /// The only version that is listed, and the objects that do not count.
    async fn listed(&self) -> (Version, Vec<String>) {
        let mut catalog = self.catalog().await;
        assert!(catalog.damaged.is_empty() && catalog.versions.len() == 1, "{catalog:?}");
        let faulty = catalog.faulty.into_iter().map(|object| object.name).collect();
        (catalog.versions.remove(0), faulty)
    }
}

fn genuine() -> Manifest {
    let sketch = Sketch::new(vec![64]);
    Manifest { summary: Summary { sketch, ..manifest(1).summary }, ..manifest(1) }
}

fn with_summary(change: impl FnOnce(&mut Summary)) -> Manifest {
    let mut manifest = genuine();
    manifest.summary.attempt = [77; 16];
    change(&mut manifest.summary);
    manifest
}

/// Another content, with the roots that it has.
fn with_other_content() -> Manifest {
    let mut manifest = genuine();
    let chunk = ChunkRef {
        fingerprint: Fingerprint([1; 32]),
        container: ContainerId { kind: ContainerKind::Meta, job: JobId([1; 16]), seq: 0 },
        offset: 0,
        size: 1,
    };
    let node = NodeRef { chunk, content: ContentDigest([2; 32]), bytes: 3, chunks: 1, segments: 1, cover: None };
    manifest.data = Recipe { nodes: vec![node] };
    manifest.summary.roots = ContentRoots::of(&manifest.data, &manifest.metadata);
    manifest
}

#[tokio::test]
async fn a_generation_may_differ_in_its_attempt_layout_and_program_and_leave_out_the_sketch() {
    let changes: [fn(&mut Summary); 4] = [
        |_| {},
        |summary| summary.layout = Layout::Lifecycle,
        |summary| summary.program = "another program".to_owned(),
        |summary| summary.sketch = Sketch::default(),
    ];
    for change in changes {
        let play = Play::new().await;
        let later = with_summary(change);
        play.create(&later, 1).await;
        let (version, faulty) = play.listed().await;
        assert_eq!((version.generation, faulty), (1, vec![]));
        assert_eq!(version.summary.layout, later.summary.layout);
        let built = play.repository.buildable_generation(&version).await.expect("reads").expect("one");
        assert_eq!(built.generation, 1);
        // Everything else is what generation 0 says.
        assert_eq!(version.summary.program, genuine().summary.program);
        assert_eq!(built.summary.sketch, later.summary.sketch);
        assert_eq!(play.repository.manifest(&version).await.expect("reads"), later);
    }
}

#[tokio::test]
async fn any_other_difference_makes_it_no_generation() {
    let changes: [fn(&mut Summary); 8] = [
        |summary| summary.time_ms += 1,
        |summary| summary.host = "another".to_owned(),
        |summary| summary.user = "another".to_owned(),
        |summary| summary.tags.push("keep".to_owned()),
        |summary| summary.paths.push(b"/".to_vec()),
        |summary| summary.statistics.files_new += 1,
        |summary| summary.base = Some(JobId([9; 16])),
        |summary| summary.sketch = Sketch::new(vec![128]),
    ];
    let mut forged: Vec<Manifest> = changes.into_iter().map(with_summary).collect();
    forged.push(with_other_content());
    for forged in forged {
        let play = Play::new().await;
        play.create(&forged, 3).await;
        let (version, faulty) = play.listed().await;
        assert_eq!(version.generation, 0, "{:?}", forged.summary);
        assert_eq!(version.summary.time_ms, genuine().summary.time_ms);
        assert_eq!(faulty, [play.register(3)]);
        let newest = play.repository.newest_generation(&version).await.expect("reads").expect("one");
        assert_eq!(newest.generation, 0);
        assert_eq!(play.repository.buildable_generation(&version).await.expect("reads"), None);
        // A genuine one above it is read, and nobody builds on one below it.
        play.create(&with_summary(|_| {}), 4).await;
        assert_eq!(play.listed().await.0.generation, 4);
        play.memory.remove(&play.register(4)).await;
        play.create(&with_summary(|_| {}), 2).await;
        let (version, faulty) = play.listed().await;
        assert_eq!((version.generation, faulty), (2, vec![play.register(3)]));
        assert_eq!(play.repository.buildable_generation(&version).await.expect("reads"), None);
    }
}

/// A listing may lack the newest generation. Whichever of the two shows it, that one counts.
#[tokio::test]
async fn a_generation_that_one_of_two_listings_shows_is_built_on_or_stops_it() {
    for lacking in [0, 1] {
        let memory = Memory::new();
        let (store, faults) = FaultStore::new(memory.store());
        let store = Store::from_object_store(store, "", &StoreOptions::default()).expect("opens");
        let play = Play { memory, repository: repository(store).await };
        play.create(&genuine(), 0).await;
        let (version, _) = play.listed().await;
        let folder = names::generations(version.series, version.id());
        let folder = folder.trim_end_matches('/');
        let lists = || faults.log().iter().filter(|op| op.kind == OpKind::List && op.path.contains(folder)).count();
        let retained = async |lacking: usize| {
            let before = lists();
            faults.clear();
            let when = When::kind(OpKind::List).path(folder);
            if lacking == 1 {
                faults.add(when.clone(), Fault::Stale(0), Times::First(1));
            }
            faults.add(when, Fault::Stale(1), Times::First(1));
            let retained = play.repository.retained_generation(&version).await.expect("reads").expect("retained");
            assert_eq!(lists() - before, 2);
            retained
        };
        // The object that a listing lacks is the one that was created last.
        play.create(&with_summary(|_| {}), 1).await;
        assert_eq!(retained(lacking).await.expect("one").generation, 1, "{lacking}");
        // One that is not of this version: nobody builds on those below it.
        play.create(&with_summary(|summary| summary.time_ms += 1), 2).await;
        assert_eq!(retained(lacking).await, None, "{lacking}");
    }
}

#[tokio::test]
async fn where_generation_0_is_damaged_a_later_one_stands_in() {
    let play = Play::new().await;
    play.create(&with_summary(|_| {}), 1).await;
    play.memory.put(&play.register(0), b"rotten".to_vec()).await;
    let (version, faulty) = play.listed().await;
    assert_eq!((version.generation, faulty), (1, vec![play.register(0)]));
    assert_eq!(play.repository.manifest(&version).await.expect("reads").summary.attempt, [77; 16]);
    assert_eq!(play.repository.buildable_generation(&version).await.expect("reads"), None);
    assert!(!version.summary.is_signed, "a task signed it, and not the maker of the version");
}

/// The time of a version is that of its generation 0, and so is the signature: later generations
/// are the work of tasks.
#[tokio::test]
async fn a_version_is_as_old_as_generation_0() {
    let play = Play::new().await;
    // The times of the store come in milliseconds.
    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    play.create(&with_summary(|_| {}), 1).await;
    let made = play.repository.store().list(names::VERSIONS).await.expect("lists");
    let made = |generation| {
        let register = play.register(generation);
        made.iter().find(|object| object.name == register).expect("listed").made_ms()
    };
    assert!(made(0) > 0 && made(0) < made(1));
    let (version, _) = play.listed().await;
    assert_eq!((version.generation, version.made_ms, version.summary.is_signed), (1, made(0), true));
    let newest = play.repository.newest_generation(&version).await.expect("reads").expect("one");
    assert_eq!(newest.made_ms, made(0));
}

#[tokio::test]
async fn a_generation_of_a_job_that_was_aborted_is_no_version() {
    let play = Play::new().await;
    play.create(&with_summary(|_| {}), 1).await;
    play.memory.remove(&play.register(0)).await;
    let pin = Pin { series: play.repository.keys().series_key("host:/home"), job: JobId([1; 16]) };
    play.repository.fence(pin, 0).await.expect("fences");
    let catalog = play.catalog().await;
    assert!(catalog.versions.is_empty() && catalog.damaged.is_empty() && catalog.faulty.is_empty(), "{catalog:?}");
}

/// Guards against: a listing says one content, and the object that is read later has another.
#[tokio::test]
async fn a_manifest_with_other_roots_than_the_listing_is_refused() {
    let play = Play::new().await;
    let (version, _) = play.listed().await;
    let other = Version { summary: with_other_content().summary, ..version };
    let refused = play.repository.manifest(&other).await;
    assert!(
        matches!(&refused, Err(RepositoryError::Damaged { source, .. }) if *source == NOT_A_GENERATION),
        "{refused:?}"
    );
}
