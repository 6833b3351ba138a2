//! Compares the content of a version with the live file that it was made of.

use std::ffi::OsStr;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{Context, SHA256};
use data_encoding::HEXLOWER;
use larder_format::entry::{Entry, Timestamp};
use rustix::fs::OFlags;

/// Bytes compared at once.
const PIECE_BYTES: usize = 1 << 17;

/// The result of a comparison.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Both are equal.
    Equal,
    /// There is no live file of this size and time.
    NotComparable,
    /// The live file cannot be read.
    Unreadable(String),
    /// The contents differ.
    Differs {
        /// SHA-256 of the live file.
        source: String,
        /// SHA-256 of the content of the version.
        backup: String,
        /// Whether also the time of the last change of the inode is that of the version.
        same_ctime: bool,
    },
}

/// A live file that looks as it did when it was backed up.
#[derive(Debug)]
pub(crate) struct Live {
    file: File,
    before: Metadata,
}

impl Live {
    /// The live file of an entry, below `root`. `Err` is the result without one.
    pub(crate) fn open(root: &Path, entry: &Entry) -> Result<Self, Outcome> {
        let path: PathBuf = root.join(OsStr::from_bytes(&entry.path));
        let looks_same =
            |found: &Metadata| found.is_file() && found.len() == entry.size() && mtime(found) == entry.mtime;
        match std::fs::symlink_metadata(&path) {
            Ok(found) if looks_same(&found) => {}
            // It is gone, or cannot be looked at by this user: nothing says that it is the same.
            _ => return Err(Outcome::NotComparable),
        }
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
        let opened = OpenOptions::new().read(true).custom_flags(flags).open(&path);
        let opened = opened.and_then(|file| Ok((file.metadata()?, file)));
        match opened {
            Ok((before, file)) if looks_same(&before) => Ok(Self { file, before }),
            Ok(_) => Err(Outcome::NotComparable),
            Err(error) => Err(Outcome::Unreadable(error.to_string())),
        }
    }

    /// Compares it with the whole logical content of the entry. Errors are those of `content`.
    pub(crate) fn compare(self, entry: &Entry, content: &mut dyn Read) -> io::Result<Outcome> {
        let (mut expected, mut found) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
        let (mut source, mut backup) = (Context::new(&SHA256), Context::new(&SHA256));
        let (mut at, mut is_equal, mut unreadable) = (0, true, None);
        loop {
            let count = content.read(&mut expected)?;
            if count == 0 {
                break;
            }
            backup.update(&expected[..count]);
            if unreadable.is_none() {
                match self.file.read_exact_at(&mut found[..count], at) {
                    Ok(()) => {
                        source.update(&found[..count]);
                        is_equal &= found[..count] == expected[..count];
                    }
                    Err(error) => unreadable = Some(error),
                }
            }
            at += count as u64;
        }
        let after = self.file.metadata().ok();
        let facts = |found: &Metadata| (found.len(), mtime(found), ctime(found));
        if after.is_none_or(|after| facts(&after) != facts(&self.before)) {
            // Somebody writes to it now.
            return Ok(Outcome::NotComparable);
        }
        if let Some(error) = unreadable {
            return Ok(Outcome::Unreadable(error.to_string()));
        }
        if is_equal {
            return Ok(Outcome::Equal);
        }
        let [source, backup] = [source, backup].map(|context| HEXLOWER.encode(context.finish().as_ref()));
        Ok(Outcome::Differs { source, backup, same_ctime: ctime(&self.before) == entry.ctime })
    }
}

fn mtime(found: &Metadata) -> Timestamp {
    Timestamp { seconds: found.mtime(), nanos: u32::try_from(found.mtime_nsec()).unwrap_or(0) }
}

fn ctime(found: &Metadata) -> Timestamp {
    Timestamp { seconds: found.ctime(), nanos: u32::try_from(found.ctime_nsec()).unwrap_or(0) }
}
