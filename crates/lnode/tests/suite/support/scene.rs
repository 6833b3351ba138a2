//! A folder that is backed up into a repository whose store fails as it is told.

use std::fs;
use std::path::{Path, PathBuf};

use larder_job::JobContext;
use larder_store::{Store, StoreOptions};
use larder_testkit::{FaultStore, Faults, Memory};

use super::{backup, context, differences, init, runtime};

/// See the module header.
pub struct Scene {
    pub dir: tempfile::TempDir,
    pub context: JobContext,
    pub faults: Faults,
    _runtime: tokio::runtime::Runtime,
}

impl Scene {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let runtime = runtime();
        let (inner, faults) = FaultStore::new(Memory::new().store());
        let store = Store::from_object_store(inner, "", &StoreOptions::default()).unwrap();
        let context = context(&runtime, init(&runtime, store));
        fs::create_dir(dir.path().join("source")).unwrap();
        Self { dir, context, faults, _runtime: runtime }
    }

    /// With one version of these files.
    pub fn of(files: &[(&str, &[u8])]) -> Self {
        let scene = Self::new();
        files.iter().for_each(|(name, content)| scene.write(name, content));
        scene.backup();
        scene
    }

    pub fn source(&self) -> PathBuf {
        self.dir.path().join("source")
    }

    pub fn write(&self, name: &str, content: &[u8]) {
        let path = self.source().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub fn backup(&self) {
        backup(&self.context, &self.source()).unwrap();
    }

    /// Where a restore puts the source.
    pub fn restored(&self) -> PathBuf {
        self.dir.path().join("target").join(self.source().strip_prefix(Path::new("/")).unwrap())
    }

    pub fn is_equal(&self) {
        assert_eq!(differences(&self.source(), &self.restored()), "");
    }
}
