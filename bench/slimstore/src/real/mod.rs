//! The real programs: data in files, several processes at a time, a real S3 server, a slow link to it. What is measured here is
//! wall time, CPU time and memory of those processes, and depends on who else uses the machine.

mod minio;
mod processes;
mod slow_link;
mod tool;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

pub(crate) use minio::Minio;
pub(crate) use processes::{Used, run, run_and_read, together};
pub(crate) use slow_link::SlowLink;
pub(crate) use tool::Tool;

use crate::sdb::SDb;

/// A folder of our own that goes away with this.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(parent: &Path) -> anyhow::Result<Self> {
        let folder = parent.join(format!("larder-bench-slimstore-{}", std::process::id()));
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let folder = folder.canonicalize().with_context(|| format!("cannot find {}", folder.display()))?;
        Ok(Self(folder))
    }

    pub(crate) fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed is left lying; there is nobody to tell.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Writes the files of the current version to `folder`.
pub(crate) fn write(sdb: &SDb, folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for (number, bytes) in sdb.files().enumerate() {
        let path = folder.join(format!("table-{number}.ibd"));
        fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Compares the files of two folders, which must hold files only.
pub(crate) fn compare(folder: &Path, with: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let entry = entry?;
        let other = with.join(entry.file_name());
        let read = |path: &Path| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
        anyhow::ensure!(read(&entry.path())? == read(&other)?, "{} was not restored as it was", other.display());
    }
    Ok(())
}

pub(crate) fn remove(folder: &Path) -> anyhow::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}
