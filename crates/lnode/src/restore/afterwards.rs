//! The end of a restore: removes entries that the version does not have, and verifies everything.

use larder_format::entry::{Entry, EntryKind};
use larder_job::ItemFate;
use larder_reader::Reach;

use super::run::{Restore, is_below};
use super::{DeleteRefusal, RestoreError};

impl Restore<'_> {
    /// Why nothing may be removed, if that is so.
    pub(super) fn delete_refusal(&self) -> Option<DeleteRefusal> {
        let unread = self.reader.manifest().summary.statistics.errors;
        if self.has_gaps {
            return Some(DeleteRefusal::Hidden);
        }
        (unread > 0 && !self.options.delete_incomplete).then_some(DeleteRefusal::Unread(unread))
    }

    /// Removes entries that the version does not have. They are removed from every directory that
    /// the selection reaches, if the selection wants them.
    ///
    /// The rule is restic's. The selection reaches a directory that it wants, or that contains a
    /// wanted entry of the version at any depth. There, each name that the version does not have is
    /// removed if the selection wants it. The selection judges it as a file, and a folder is
    /// removed with all its contents. The rule is narrower than restic's: it holds only where the
    /// version has the whole directory. Folders above the backed-up paths contain other entries.
    pub(super) fn delete(&self) -> Result<u64, RestoreError> {
        let root = &self.root.subpath;
        let mut open = vec![OpenDir {
            path: Vec::new(),
            version_path: root.clone(),
            whole: self.root.is_directory() && self.is_whole(root),
            reached: self.options.selection.is_none(),
            is_mounted_over: false,
            names: Vec::new(),
        }];
        let mut deleted = 0;
        for placed in self.reader.placed_below(root) {
            let entry = placed?.entry;
            let wanted = self.wants(&entry);
            let Some(path) = self.root.path(&entry.path) else { continue };
            while let Some(last) = open.pop_if(|dir| !is_below(&path, &dir.path)) {
                deleted += self.close(&last, &mut open)?;
            }
            let (parent, name) = match path.iter().rposition(|byte| *byte == b'/') {
                Some(slash) => (&path[..slash], &path[slash + 1..]),
                None => (&b""[..], &path[..]),
            };
            if let Some(dir) = open.last_mut().filter(|dir| dir.path == parent) {
                dir.names.push(name.to_vec());
                dir.reached |= wanted;
            }
            if entry.kind == EntryKind::Directory {
                let whole = self.is_whole(&entry.path);
                let is_mounted_over = open.last().is_some_and(|above| above.is_mounted_over)
                    || whole && self.target.is_mounted_over(&path, entry.inode)?;
                open.push(OpenDir {
                    path,
                    version_path: entry.path,
                    whole,
                    reached: wanted,
                    is_mounted_over,
                    names: Vec::new(),
                });
            }
        }
        while let Some(last) = open.pop() {
            deleted += self.close(&last, &mut open)?;
        }
        Ok(deleted)
    }

    /// Deletes in a directory whose names are all known; `above`: the open directories, the parent
    /// last.
    fn close(&self, dir: &OpenDir, above: &mut [OpenDir]) -> Result<u64, RestoreError> {
        if let Some(parent) = above.last_mut() {
            parent.reached |= dir.reached;
        }
        if !dir.whole || !dir.reached {
            return Ok(0);
        }
        if dir.is_mounted_over {
            self.target.spare_extra(&dir.path, &dir.names)?;
            return Ok(0);
        }
        let is_selected = |name: &[u8]| {
            let Some(selection) = &self.options.selection else { return true };
            let path = match dir.version_path.as_slice() {
                b"" => name.to_vec(),
                above => [above, b"/", name].concat(),
            };
            selection.wants(&path, false)
        };
        let report = |path: &[u8]| self.context.progress.item(path, ItemFate::Deleted, 0);
        Ok(self.target.delete_extra_of(&dir.path, &dir.names, is_selected, report)?)
    }

    /// Whether a directory of the version is in the backed-up paths, not above them.
    fn is_whole(&self, path: &[u8]) -> bool {
        let summary = &self.reader.manifest().summary;
        summary.paths.iter().filter_map(|root| root.strip_prefix(b"/")).any(|root| path == root || is_below(path, root))
    }

    /// Reads the version and the target once more and compares everything.
    pub(super) fn verify(&self) -> Result<u64, RestoreError> {
        if self.has_gaps {
            self.execution().problem(b"", "nothing is verified: damaged metadata hides what the version has");
            return Ok(0);
        }
        let mut mismatches = 0;
        let reach = match self.options.selection {
            None => Reach::Range(self.reader.data_range(&self.root.subpath)?),
            Some(_) => Reach::Files,
        };
        let restores = |name: &[u8]| self.restores_name(name);
        self.reader.visit_readers(&self.root.subpath, reach, restores, |entry, content| {
            if self.context.cancel.is_cancelled() {
                return Err(RestoreError::Interrupted);
            }
            if !self.wants(entry) {
                return Ok(());
            }
            let Some(path) = self.root.path(&entry.path) else { return Ok(()) };
            let mut here = Entry { path, ..entry.clone() };
            if let EntryKind::HardLink { target } = &mut here.kind
                && let Some(path) = self.root.path(target)
            {
                *target = path;
            }
            let mut verification = self.target.verify(&here)?;
            content.skip_holes();
            if verification.content.is_some()
                && let Err(error) = verification.compare_content(&here, content)
            {
                self.execution().problem(&here.path, &format!("cannot be verified: {error}"));
            }
            if !verification.differences.is_empty() {
                mismatches += 1;
                let differences: Vec<_> = verification.differences.iter().map(ToString::to_string).collect();
                self.execution().problem(&here.path, &format!("differs from the snapshot: {}", differences.join(", ")));
            }
            Ok(())
        })?;
        Ok(mismatches)
    }
}

/// A directory whose names are being collected.
struct OpenDir {
    /// Its path in the target.
    path: Vec<u8>,
    /// Its path in the version.
    version_path: Vec<u8>,
    /// Whether the version has all of its entries.
    whole: bool,
    /// Whether the selection wants it, or any entry of the version in it.
    reached: bool,
    /// It is in a file system that the version does not know. The version may have files that were
    /// in the folder before something was mounted on it.
    is_mounted_over: bool,
    names: Vec<Vec<u8>>,
}
