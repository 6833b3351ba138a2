//! Listing a local folder in the byte order of object names, with memory for one folder at each depth.
//!
//! What cannot be the name of an object is passed over: staging files, `lost+found`, a file manager's droppings. Links
//! are followed, as reads follow them; the depth is bounded, so a link to a folder above does not go on for ever.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use futures::StreamExt;
use futures::stream;

use crate::error::{StoreError, StoreErrorKind, StoreOp};
use crate::layer::{Listed, Listing};
use crate::name;

/// Objects looked up in one visit to a blocking thread.
const BATCH: usize = 1024;

/// Deepest folder that is looked into; names have four levels.
const DEPTH_MAX: usize = 12;

/// Lists the objects below `folder` after `after`.
pub(super) fn list(root: &Path, folder: &str, after: Option<&str>) -> Listing {
    let walk = Walk::new(root, folder, after);
    let label = folder.to_owned();
    let batches = stream::unfold(Some((walk, label)), |state| async move {
        let (mut walk, label) = state?;
        let advanced = super::blocking(move || {
            let batch = walk.batch();
            (walk, batch)
        });
        match advanced.await {
            Ok((walk, Ok(batch))) if batch.is_empty() => drop(walk),
            Ok((walk, Ok(batch))) => return Some((batch.into_iter().map(Ok).collect(), Some((walk, label)))),
            Ok((_, Err(error))) => return Some((vec![Err(StoreError::from_io(StoreOp::List, &label, error))], None)),
            Err(lost) => {
                let error = StoreError::new(StoreOp::List, &label, StoreErrorKind::Other).because(lost);
                return Some((vec![Err(error)], None));
            }
        }
        None
    });
    batches.flat_map(|batch: Vec<Result<Listed, StoreError>>| stream::iter(batch)).boxed()
}

/// A walk that can be left and taken up again.
#[derive(Debug)]
struct Walk {
    root: PathBuf,
    after: Option<String>,
    /// Entries still to visit of every folder on the way down, the deepest last; files by name, folders with a slash.
    open: Vec<VecDeque<String>>,
    /// The folder to begin with, until it has been read.
    start: Option<String>,
}

impl Walk {
    fn new(root: &Path, folder: &str, after: Option<&str>) -> Self {
        let start = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        Self { root: root.to_owned(), after: after.map(str::to_owned), open: Vec::new(), start: Some(start) }
    }

    /// The next objects; none at the end.
    fn batch(&mut self) -> io::Result<Vec<Listed>> {
        if let Some(start) = self.start.take() {
            self.enter(&start)?;
        }
        let mut found = Vec::new();
        while found.len() < BATCH {
            let Some(folder) = self.open.last_mut() else { break };
            match folder.pop_front() {
                None => drop(self.open.pop()),
                Some(below) if below.ends_with('/') => self.enter(&below)?,
                Some(name) => found.extend(self.look_up(name)?),
            }
        }
        Ok(found)
    }

    /// Reads a folder, named relative to the root and with a slash at its end.
    fn enter(&mut self, folder: &str) -> io::Result<()> {
        let entries = match fs::read_dir(self.root.join(folder)) {
            // Removed since it was seen, or never made: there is nothing in it.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(());
            }
            entries => entries?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry?;
            let file_name = entry.file_name();
            let Some(segment) = file_name.to_str().filter(|segment| name::is_valid_segment(segment)) else { continue };
            let kind = entry.file_type()?;
            let is_folder = match kind.is_symlink() {
                true => fs::metadata(entry.path()).is_ok_and(|target| target.is_dir()),
                false => kind.is_dir(),
            };
            if is_folder && self.open.len() < DEPTH_MAX {
                names.push(format!("{folder}{segment}/"));
            } else if !is_folder {
                names.push(format!("{folder}{segment}"));
            }
        }
        // With its slash a folder sorts among files as the names below it do.
        names.sort_unstable();
        if let Some(after) = &self.after {
            names.retain(|name| name > after || (name.ends_with('/') && after.starts_with(name)));
        }
        self.open.push(names.into());
        Ok(())
    }

    fn look_up(&self, name: String) -> io::Result<Option<Listed>> {
        match fs::metadata(self.root.join(&name)) {
            Ok(metadata) if metadata.is_file() => {
                let modified = metadata.modified()?.duration_since(std::time::UNIX_EPOCH);
                let modified_ms = modified.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
                Ok(Some(Listed { name, size: metadata.len(), modified_ms }))
            }
            Ok(_) => Ok(None),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
