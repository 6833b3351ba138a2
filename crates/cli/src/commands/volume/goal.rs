//! [`Goal`]: where backups of a volume go, and the snapshots of the volume that they leave.

use larder_format::ids::{JobId, RepositoryId};
use serde_json::{Value, json};

use super::list::{Listed, Snapshot};
use crate::failure::Failure;

/// A series of a repository.
pub(super) struct Goal {
    repository: String,
    pub(super) series: String,
    /// The series has the name that the volume had at its first backup.
    is_default: bool,
}

impl Goal {
    /// The series that was asked for. Else that of the last backup without such a wish: a volume
    /// that got another name goes on with its series, and with the snapshot of its last backup.
    pub(super) fn of(
        repository: RepositoryId,
        wanted: Option<&str>,
        snapshots: &[Snapshot],
        default: impl FnOnce() -> String,
    ) -> Self {
        let repository = repository.to_string();
        if let Some(series) = wanted {
            return Self { repository, series: series.to_owned(), is_default: false };
        }
        let known = snapshots.iter().rev().find_map(|snapshot| default_of(snapshot, &repository));
        Self { repository, series: known.unwrap_or_else(default), is_default: true }
    }

    /// Refuses the series of another volume, which had this name when its backups began.
    pub(super) fn expect_own(&self, volume: &Listed, volumes: &[Listed]) -> Result<(), Failure> {
        let is_ours = |snapshot: &Snapshot| default_of(snapshot, &self.repository).as_ref() == Some(&self.series);
        let mut others = volumes.iter().filter(|other| other.id != volume.id);
        match others.find(|other| self.is_default && other.snapshots.iter().any(is_ours)) {
            None => Ok(()),
            Some(Listed { name, .. }) => {
                let message =
                    format!("series {} has the backups of volume {name}, which had this name before", self.series);
                Err(Failure::usage(message).advise("--series names another series"))
            }
        }
    }

    /// The mark of a snapshot from which a version was made, or is being made.
    pub(super) fn mark(&self, version: Option<JobId>) -> String {
        let version = version.map(|version| version.to_string());
        let mut mark = json!({"repository": self.repository, "series": self.series, "version": version});
        if self.is_default {
            mark["default"] = json!(true);
        }
        mark.to_string()
    }

    /// Whether a snapshot was made for a backup of this series.
    pub(super) fn is_of(&self, snapshot: &Snapshot) -> bool {
        self.version_of(snapshot).is_some()
    }

    /// The version that the mark of a snapshot names. `Some(None)`: it was made for a backup that
    /// did not end.
    fn version_of(&self, snapshot: &Snapshot) -> Option<Option<JobId>> {
        let mark = mark_of(snapshot)?;
        let is_of = mark["repository"] == *self.repository && mark["series"] == *self.series;
        is_of.then(|| mark["version"].as_str().and_then(|version| version.parse().ok()))
    }

    /// The newest snapshot of which a version was made, and the version.
    pub(super) fn newest_backup(&self, snapshots: &[Snapshot]) -> Option<(Snapshot, JobId)> {
        let version = |snapshot: &Snapshot| self.version_of(snapshot).flatten();
        snapshots.iter().rev().find_map(|snapshot| Some((snapshot.clone(), version(snapshot)?)))
    }
}

fn mark_of(snapshot: &Snapshot) -> Option<Value> {
    serde_json::from_str(snapshot.mark.as_deref()?).ok()
}

/// The series of a snapshot's mark, if the series was chosen by the name of the volume.
fn default_of(snapshot: &Snapshot, repository: &str) -> Option<String> {
    let mark = mark_of(snapshot)?;
    let is_of = mark["repository"] == *repository && mark["default"] == true;
    is_of.then(|| mark["series"].as_str().map(str::to_owned))?
}
