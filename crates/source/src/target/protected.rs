//! Folders below the target that are never removed, and of which some are not restored into either.
//!
//! A backup leaves out its own repository, so a restore with deletion would take it for something
//! that the version does not have. A mount may show such a folder at a second path (`mounts`).

use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::error::TargetError;
use super::mounts::Mounts;

/// Paths of such folders, relative to the target.
#[derive(Debug, Default)]
pub(super) struct Protected(Vec<Vec<u8>>);

impl Protected {
    /// Those of `folders` that are below `root`. Folders that do not exist need nothing. An error
    /// if the root is one of them, or in one: see [`TargetOptions::protected`]. The root need not
    /// exist.
    ///
    /// [`TargetOptions::protected`]: super::TargetOptions::protected
    pub(super) fn below(root: &Path, folders: &[PathBuf]) -> Result<Self, TargetError> {
        Self::below_with(root, folders, &Mounts::of_this_process())
    }

    fn below_with(root: &Path, folders: &[PathBuf], mounts: &Mounts) -> Result<Self, TargetError> {
        let Some(real_root) = canonical(root) else { return Ok(Self::default()) };
        let mut paths = Vec::new();
        for folder in folders.iter().filter_map(|folder| folder.canonicalize().ok()) {
            for seen in mounts.paths_of(&folder) {
                if real_root.starts_with(&seen) {
                    return Err(TargetError::Protected { root: root.into(), folder });
                }
                if let Ok(path) = seen.strip_prefix(&real_root) {
                    paths.push(path.to_path_buf().into_os_string().into_vec());
                }
            }
        }
        Ok(Self(paths))
    }

    /// Whether a path is one of the folders, or in one.
    pub(super) fn contains(&self, path: &[u8]) -> bool {
        self.0.iter().any(|folder| is_in(path, folder))
    }

    /// Whether removing a path would remove any of the folders, or something in one.
    pub(super) fn touches(&self, path: &[u8]) -> bool {
        self.0.iter().any(|folder| is_in(path, folder) || is_in(folder, path))
    }
}

/// The path without links; of a folder that does not exist, that of the nearest one above it with
/// the rest.
fn canonical(path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    path.ancestors().find_map(|above| {
        let real = above.canonicalize().ok()?;
        let rest = path.strip_prefix(above).ok()?;
        Some(if rest.as_os_str().is_empty() { real } else { real.join(rest) })
    })
}

/// Whether `path` is `folder`, or below it.
fn is_in(path: &[u8], folder: &[u8]) -> bool {
    Path::new(std::ffi::OsStr::from_bytes(path)).starts_with(std::ffi::OsStr::from_bytes(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_protect_themselves_and_what_is_above() {
        let root = tempfile::tempdir().expect("a folder");
        let repository = root.path().join("srv/repo");
        std::fs::create_dir_all(&repository).expect("made");
        let absent = root.path().join("absent");
        let protected = Protected::below(root.path(), &[repository.clone(), absent]).expect("below");
        assert!(protected.contains(b"srv/repo") && protected.contains(b"srv/repo/config"));
        assert!(!protected.contains(b"srv") && !protected.contains(b"srv/repo2"));
        assert!(protected.touches(b"srv") && protected.touches(b"srv/repo") && protected.touches(b"srv/repo/data"));
        assert!(!protected.touches(b"srv/repo2") && !protected.touches(b"sr") && !protected.touches(b"absent"));
        for inside in [repository.clone(), repository.join("data")] {
            std::fs::create_dir_all(&inside).expect("made");
            let error = Protected::below(&inside, std::slice::from_ref(&repository)).expect_err("in it").to_string();
            assert!(error.contains("srv/repo"), "{error}");
        }
        let link = root.path().join("link");
        std::os::unix::fs::symlink(&repository, &link).expect("made");
        assert!(Protected::below(&link, &[repository]).is_err());
    }

    #[test]
    fn a_root_that_is_not_there_yet_is_known_to_be_in_a_repository() {
        let root = tempfile::tempdir().expect("a folder");
        let new = root.path().join("new/below");
        assert!(Protected::below(&new, &[root.path().to_owned()]).is_err());
        assert!(!new.exists());
        assert!(Protected::below(&new, &[root.path().join("new")]).is_ok(), "there is no such repository");
    }
}
