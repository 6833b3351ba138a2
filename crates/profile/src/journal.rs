//! How runs ended: one line of JSON for each step and each run, in a file of the state folder.
//!
//! The newest lines are kept. Two processes may add lines at the same time.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

/// Lines that are kept.
pub const LINES_KEPT: usize = 10_000;
/// A file of more bytes than this is looked at for old lines.
const BYTES_CHECKED: u64 = 2 << 20;
/// The command of a line about a whole run.
pub const RUN: &str = "run";

/// One line: a step, or a whole run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// When it began, in milliseconds since 1970.
    pub start_ms: u64,
    /// Seconds that it took.
    pub seconds: f64,
    /// The profile; a step of a repository alone has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// The repository; a run has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// The verb, or [`RUN`].
    pub command: String,
    /// The repository that snapshots were copied from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The exit code.
    pub exit_code: i32,
    /// The snapshot that a backup made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_id: Option<String>,
    /// Numbers of the step, for metrics.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub numbers: serde_json::Map<String, serde_json::Value>,
}

impl Line {
    /// When it ended, in milliseconds since 1970.
    pub fn end_ms(&self) -> u64 {
        // Negative and endless numbers of a damaged file become zero and the maximum.
        self.start_ms.saturating_add((self.seconds * 1000.0) as u64)
    }

    /// Whether it did what it should: exit code 0, or 3 for a snapshot that lacks some files.
    pub fn is_success(&self) -> bool {
        matches!(self.exit_code, 0 | 3)
    }
}

/// The file.
#[derive(Debug, Clone)]
pub struct Journal {
    path: PathBuf,
}

impl Journal {
    /// The journal in a folder, which must exist before lines are added.
    pub fn new(folder: &Path) -> Self {
        Self { path: folder.join("runs.jsonl") }
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("."))
    }

    /// All lines, in the order in which they were added. Lines that cannot be read are left out.
    /// Without a file there are none.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(&self) -> io::Result<Vec<Line>> {
        let file = match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            file => file?,
        };
        let mut lines = Vec::new();
        for line in BufReader::new(file).split(b'\n') {
            lines.extend(serde_json::from_slice(&line?).ok());
        }
        Ok(lines)
    }

    /// Adds lines.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add(&self, lines: &[Line]) -> io::Result<()> {
        let mut text = String::new();
        for line in lines {
            text.push_str(&serde_json::to_string(line)?);
            text.push('\n');
        }
        let lock = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(self.path.with_extension("lock"))?;
        flock(&lock, FlockOperation::LockExclusive)?;
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(&self.path)?;
        file.write_all(text.as_bytes())?;
        if file.metadata()?.len() > BYTES_CHECKED {
            self.drop_old_lines()?;
        }
        Ok(())
    }

    fn drop_old_lines(&self) -> io::Result<()> {
        let text = std::fs::read(&self.path)?;
        let lines: Vec<_> = text.split_inclusive(|byte| *byte == b'\n').collect();
        // Some more go at once, so that not every run writes the file again.
        let Some(first) = lines.len().checked_sub(LINES_KEPT) else { return Ok(()) };
        let new = self.path.with_extension("new");
        let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(&lines[first..].concat())?;
        file.sync_all()?;
        std::fs::rename(&new, &self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(start_ms: u64) -> Line {
        Line {
            start_ms,
            seconds: 1.5,
            profile: Some("home".to_owned()),
            repository: None,
            command: RUN.to_owned(),
            from: None,
            exit_code: 3,
            snapshot_id: None,
            numbers: serde_json::Map::new(),
        }
    }

    #[test]
    fn lines_come_back_and_damaged_ones_do_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let journal = Journal::new(folder.path());
        assert_eq!(journal.read().expect("no file is no error"), []);
        journal.add(&[line(1), line(2)]).expect("written");
        let mut file = OpenOptions::new().append(true).open(folder.path().join("runs.jsonl")).expect("a file");
        file.write_all(b"{\"start_ms\": 7, half a li\n\xff\xfe\n").expect("written");
        journal.add(&[line(3)]).expect("written");
        assert_eq!(journal.read().expect("readable"), [line(1), line(2), line(3)]);
        assert_eq!((line(1).end_ms(), line(1).is_success()), (1501, true));
    }

    #[test]
    fn old_lines_go() {
        let folder = tempfile::tempdir().expect("a folder");
        let journal = Journal::new(folder.path());
        let count = LINES_KEPT as u64 + 500;
        let many: Vec<_> = (0..count).map(|at| Line { profile: Some("x".repeat(200)), ..line(at) }).collect();
        journal.add(&many).expect("written");
        let kept = journal.read().expect("readable");
        assert_eq!((kept.len(), kept[0].start_ms), (LINES_KEPT, 500));
    }
}
