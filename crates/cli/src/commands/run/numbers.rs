//! Numbers of the repositories of a run, for metrics. They are kept in files of the state folder,
//! because metrics are also of repositories that did not take part in the last run.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use larder_job::{Clock, SystemClock};
use larder_profile::config::Repository;

use super::replaced;
use super::runner::Runner;
use crate::commands::repository_numbers::Numbers;
use crate::failure::Failure;

/// Beginning and end of the names of the files.
const NAME: (&str, &str) = ("numbers-", ".json");

impl Runner<'_> {
    /// Counts what a repository has, if metrics are wanted. A failure changes no exit code.
    pub(super) fn count(&mut self, repository: &Repository) {
        if !self.counts || self.dry_run || self.opened.failure(repository).is_some() {
            return;
        }
        let path = self.journal.folder().join(format!("{}{}{}", NAME.0, repository.name, NAME.1));
        let before = read(&path);
        let kept = self.counted(repository, before.as_ref()).map(|numbers| keep(&path, &numbers));
        let problem = match kept {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(failure) => failure.message,
        };
        self.app.out.warn(&format!("metrics have no new numbers of the repository {}: {problem}", repository.name));
    }

    fn counted(&mut self, repository: &Repository, before: Option<&Numbers>) -> Result<Numbers, Failure> {
        let (app, opened) = self.open(repository)?;
        Numbers::count(&app, &opened.repository, before, SystemClock.now_ms())
    }
}

/// The numbers that were counted last, by repository.
pub(super) fn read_all(folder: &Path) -> io::Result<BTreeMap<String, Numbers>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_str().and_then(|name| name.strip_prefix(NAME.0)?.strip_suffix(NAME.1));
        all.extend(name.and_then(|name| Some((name.to_owned(), read(&entry.path())?))));
    }
    Ok(all)
}

/// A file that cannot be read is one that is not there.
fn read(path: &Path) -> Option<Numbers> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

fn keep(path: &Path, numbers: &Numbers) -> io::Result<()> {
    replaced::write(path, &serde_json::to_string(numbers)?, 0o600)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_kept_by_the_name_of_the_repository() {
        let folder = tempfile::tempdir().expect("a folder");
        keep(&folder.path().join("numbers-nas.json"), &Numbers::default()).expect("written");
        std::fs::write(folder.path().join("numbers-cut.json"), "{\"series\":").expect("written");
        std::fs::write(folder.path().join("runs.jsonl"), "").expect("written");
        let all = read_all(folder.path()).expect("a folder");
        assert_eq!(all, [("nas".to_owned(), Numbers::default())].into());
    }
}
