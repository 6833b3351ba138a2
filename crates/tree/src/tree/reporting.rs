//! What users of the tree met, and who is told.

use larder_format::ids::JobId;

use super::Tree;
use crate::error::TreeError;
use crate::opened::Opened;

/// Things that are reported once each, at most.
const REPORTED_MAX: usize = 1000;
impl Tree {
    /// Passes a result on. Damage is reported, unless the snapshot was forgotten.
    pub(super) fn met<T, E: Into<TreeError>>(
        &self,
        opened: &Opened,
        path: &[u8],
        result: Result<T, E>,
    ) -> Result<T, TreeError> {
        let error = match result {
            Ok(value) => return Ok(value),
            Err(error) => error.into(),
        };
        match error.repository().filter(|error| error.is_damage()) {
            Some(_) if opened.is_forgotten() => {
                self.forgotten(opened.version.id());
                Err(TreeError::Forgotten { id: opened.version.id() })
            }
            Some(damage) => {
                let what = what(opened, path);
                if self.is_new(&what) {
                    self.reports.damaged(&what, damage);
                }
                Err(error)
            }
            None => {
                self.failed(&what(opened, path), &error);
                Err(error)
            }
        }
    }

    pub(super) fn forgotten(&self, id: JobId) {
        if self.is_new(&format!("forgotten {id}")) {
            self.reports.forgotten(id);
        }
    }

    pub(super) fn failed(&self, what: &str, error: &TreeError) {
        if self.is_new(&format!("{what}: {error}")) {
            self.reports.failed(what, error);
        }
    }

    fn is_new(&self, what: &str) -> bool {
        let mut reported = self.reported.lock();
        reported.len() < REPORTED_MAX && reported.insert(what.to_owned())
    }
}

/// A path in a snapshot, for people.
pub(super) fn what(opened: &Opened, path: &[u8]) -> String {
    format!("{}:/{}", opened.version.id().short(), String::from_utf8_lossy(path))
}
