//! `dump --target`: a file that is either complete or absent, or a device.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// Where a dump is written.
pub(super) struct DumpTarget {
    file: File,
    path: PathBuf,
    /// The file's name while it is not complete.
    partial: Option<PathBuf>,
    /// Why a write failed.
    error: Option<io::Error>,
}

impl DumpTarget {
    /// Opens a device or FIFO as it is; anything else is written beside its place first.
    pub(super) fn create(path: &Path) -> Result<Self, Failure> {
        let failed = |error: io::Error| cannot_write(path, &error);
        let is_special = std::fs::metadata(path).is_ok_and(|found| !found.is_file());
        if is_special {
            let file = OpenOptions::new().write(true).open(path).map_err(failed)?;
            return Ok(Self { file, path: path.to_owned(), partial: None, error: None });
        }
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.partial", std::process::id()));
        let partial = path.with_file_name(name);
        let file = OpenOptions::new().write(true).create_new(true).open(&partial).map_err(failed)?;
        Ok(Self { file, path: path.to_owned(), partial: Some(partial), error: None })
    }

    /// The failure of a write, if one failed: writers of archives only know of an output.
    pub(super) fn failure(&self) -> Option<Failure> {
        self.error.as_ref().map(|error| cannot_write(&self.path, error))
    }

    /// The dump is complete: puts the file into its place.
    pub(super) fn finish(mut self) -> Result<(), Failure> {
        let failed = |error: io::Error| cannot_write(&self.path, &error);
        let Some(partial) = &self.partial else {
            // Pipes cannot be synced, and need not be.
            drop(self.file.sync_all());
            return Ok(());
        };
        self.file.sync_all().and_then(|()| std::fs::rename(partial, &self.path)).map_err(failed)?;
        self.partial = None;
        Ok(())
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::of_file(error).while_doing(&format!("cannot write to {}", path.display()))
}

impl Write for DumpTarget {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes).inspect_err(|error| {
            self.error = Some(error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error));
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for DumpTarget {
    fn drop(&mut self) {
        if let Some(partial) = &self.partial {
            // It is incomplete and must not pass for the file. If this fails, its name tells.
            drop(std::fs::remove_file(partial));
        }
    }
}
