//! Real release tars: `v01/*.tar`, `v02/*.tar` and so on in one folder.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::{Sink, Versions};

/// See the module header.
pub(super) struct Tars {
    /// The files of each version that is still to come, the last first.
    versions: Vec<Vec<PathBuf>>,
}

fn sorted(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

impl Tars {
    pub(super) fn open(folder: &Path) -> anyhow::Result<Self> {
        let folders = sorted(folder)?.into_iter().filter(|path| path.is_dir());
        let mut versions = folders.map(|folder| sorted(&folder)).collect::<anyhow::Result<Vec<_>>>()?;
        anyhow::ensure!(versions.len() > 1, "{} holds no versions", folder.display());
        versions.reverse();
        Ok(Self { versions })
    }
}

impl Versions for Tars {
    fn next(&mut self, sink: &mut Sink<'_>) -> anyhow::Result<bool> {
        let Some(paths) = self.versions.pop() else { return Ok(false) };
        for path in paths {
            let mut file = File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
            sink(&mut file)?;
        }
        Ok(true)
    }
}
