//! Passes that leave nothing twice, and what there is after them.

use std::collections::{BTreeMap, BTreeSet};

use larder_format::ids::{ContainerId, ContainerKind, JobId};
use larder_format::names;
use larder_gnode::index_check::IndexFinding;
use larder_gnode::pass::{PassOptions, PassReport};
use larder_gnode::reclaim::{Exact, ReclaimOptions, Unused};
use larder_gnode::repair;
use larder_reader::References;
use larder_store::RepositoryError;

use super::{Scene, versions};

/// Everything that is of any use goes.
pub fn thorough(exact: Exact) -> PassOptions {
    let reclaim = ReclaimOptions { unused: Unused::OfContainer(0), exact, ..ReclaimOptions::default() };
    PassOptions { reclaim: Some(reclaim), min_age: std::time::Duration::ZERO, ..PassOptions::default() }
}

impl Scene {
    pub fn optimize(&self, exact: Exact) -> PassReport {
        self.pass_with(&thorough(exact)).unwrap()
    }

    /// Removes the index, all of it.
    pub fn lose_index(&self) {
        self.runtime.block_on(async {
            for path in self.memory.paths().await {
                if path.starts_with("index/") {
                    self.memory.remove(&path).await;
                }
            }
        });
    }

    /// Removes the marks of all indexes.
    pub fn lose_marks(&self) {
        self.runtime.block_on(async {
            for path in self.memory.paths().await.into_iter().filter(|path| path.starts_with(names::INDEXED)) {
                self.memory.remove(&path).await;
            }
        });
    }

    pub fn rebuild(&self) -> repair::Rebuilt {
        self.runtime.block_on(repair::rebuild(&self.context())).unwrap()
    }

    /// How the index is wrong.
    pub fn disagreements(&self) -> Vec<IndexFinding> {
        self.runtime.block_on(repair::compare(&self.context())).unwrap().1.disagreements
    }

    #[track_caller]
    pub fn index_agrees(&self, at: &str) {
        assert_eq!(self.disagreements(), [], "{at}");
    }

    /// Uncompressed bytes of all data containers, and of the different chunks that visible versions need.
    pub fn held_and_needed(&self) -> (u64, u64) {
        let context = self.context();
        let containers = self.runtime.block_on(context.repository.list_containers()).unwrap();
        let data = containers.iter().map(|listed| listed.id).filter(|id| id.kind == ContainerKind::Data);
        let held = data.map(|id| {
            let index = self.runtime.block_on(context.repository.read_container_index(id)).unwrap();
            index.chunks.iter().map(|chunk| u64::from(chunk.size)).sum::<u64>()
        });
        let mut needed = BTreeMap::new();
        let mut references = References::new(&context);
        for version in versions(&context) {
            let manifest = self.runtime.block_on(context.repository.manifest(&version)).unwrap();
            let each = |chunk: &larder_format::ChunkRef| {
                needed.insert(chunk.fingerprint.0, u64::from(chunk.size));
                Ok::<_, RepositoryError>(())
            };
            references.visit(&manifest.data, each).unwrap();
        }
        (held.sum(), needed.values().sum())
    }

    /// The data containers of a version's newest manifest.
    pub fn data_of(&self, id: JobId) -> BTreeSet<ContainerId> {
        let context = self.context();
        let version = versions(&context).into_iter().find(|version| version.id() == id).unwrap();
        let manifest = self.runtime.block_on(context.repository.manifest(&version)).unwrap();
        let all = manifest.containers.iter().map(|usage| usage.container);
        all.filter(|id| id.kind == ContainerKind::Data).collect()
    }

    pub fn is_there(&self, container: ContainerId) -> bool {
        self.runtime.block_on(self.memory.get(&names::container(container))).is_some()
    }
}

/// Two series with the same old data, and new versions of both with other data. First comes the version whose copy is retired.
pub fn twins() -> (Scene, JobId, JobId) {
    let scene = Scene::new();
    let old = [("one", 1, 90_000), ("two", 2, 60_000)];
    let (a, b) = (scene.alone("a", &old), scene.alone("b", &old));
    scene.alone("a", &[("new", 3, 50_000)]);
    scene.alone("b", &[("new", 4, 50_000)]);
    // Which of two containers that were taken in at once has the lower number is decided by the keys of the repository.
    let cut = scene.fork();
    cut.optimize(Exact::Never);
    let is_first = !cut.is_there(*scene.data_of(a).first().unwrap());
    if is_first { (scene, a, b) } else { (scene, b, a) }
}
