//! What a restore does when everything is written: removes what the version does not have, reads everything again.

use larder_format::entry::{Entry, EntryKind};

use super::RestoreError;
use super::run::Restore;
use crate::version::Reach;

impl Restore<'_> {
    /// Removes from every restored directory what the version does not have.
    ///
    /// Only where the version has the whole directory: folders that merely lead to what was backed up hold other things.
    pub(super) fn delete(&self) -> Result<u64, RestoreError> {
        if self.has_gaps {
            self.execution().problem(b"", "nothing is deleted: damaged metadata hides what the version has");
            return Ok(0);
        }
        let mut open = vec![OpenDir { path: Vec::new(), whole: self.is_whole(&self.root.subpath), names: Vec::new() }];
        let mut deleted = 0;
        let mut close = |dir: OpenDir| -> Result<(), RestoreError> {
            if dir.whole {
                let progress = &self.context.progress;
                let report = |path: &[u8]| progress.item(path, "deleted", 0);
                deleted += self.target.delete_extra(&dir.path, &dir.names, report)?;
            }
            Ok(())
        };
        for placed in self.reader.placed_below(&self.root.subpath) {
            let entry = placed?.entry;
            let (wanted, whole) = (self.wants(&entry), self.is_whole(&entry.path));
            let Some(path) = self.root.path(&entry.path) else { continue };
            while let Some(last) = open.pop_if(|dir| !is_below(&path, &dir.path)) {
                close(last)?;
            }
            let (parent, name) = match path.iter().rposition(|byte| *byte == b'/') {
                Some(slash) => (&path[..slash], &path[slash + 1..]),
                None => (&b""[..], &path[..]),
            };
            if let Some(dir) = open.last_mut().filter(|dir| dir.path == parent) {
                dir.names.push(name.to_vec());
            }
            if entry.kind == EntryKind::Directory {
                open.push(OpenDir { path, whole: whole && wanted, names: Vec::new() });
            }
        }
        while let Some(last) = open.pop() {
            close(last)?;
        }
        Ok(deleted)
    }

    /// Whether a directory of the version lies in what was backed up, not above it.
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
        self.reader.visit_readers(&self.root.subpath, reach, |entry, content| {
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
    path: Vec<u8>,
    whole: bool,
    names: Vec<Vec<u8>>,
}

/// Whether `path` lies below `dir`; everything lies below the empty path.
pub(super) fn is_below(path: &[u8], dir: &[u8]) -> bool {
    dir.is_empty() || (path.len() > dir.len() && path[dir.len()] == b'/' && path.starts_with(dir))
}
