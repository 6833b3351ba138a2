//! What users of the tree met, and who is told.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use larder_format::ids::JobId;

use super::Tree;
use crate::error::TreeError;
use crate::opened::Opened;

/// Things of one kind that are reported once each, at most.
const REPORTED_MAX: usize = 1000;

/// What was reported. Many failures leave the room for damage as it is.
#[derive(Debug, Default)]
pub(super) struct Reported {
    damage: HashSet<String>,
    failures: HashSet<String>,
}

impl Reported {
    fn is_new_damage(&mut self, what: &str) -> bool {
        is_new(&mut self.damage, what)
    }

    fn is_new_failure(&mut self, what: &str) -> bool {
        is_new(&mut self.failures, what)
    }
}

fn is_new(reported: &mut HashSet<String>, what: &str) -> bool {
    reported.len() < REPORTED_MAX && reported.insert(what.to_owned())
}

impl Tree {
    /// Whether users met missing or damaged data, reported or not.
    pub fn met_damage(&self) -> bool {
        self.met_damage.load(Ordering::Relaxed)
    }

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
        let what = what(opened, path);
        if !error.is_damage() {
            self.failed(&what, &error);
        } else if opened.is_forgotten() {
            self.forgotten(opened.version.id());
            return Err(TreeError::Forgotten { id: opened.version.id() });
        } else {
            self.met_damage.store(true, Ordering::Relaxed);
            if self.reported.lock().is_new_damage(&what) {
                self.reports.damaged(&what, &error);
            }
        }
        Err(error)
    }

    pub(super) fn forgotten(&self, id: JobId) {
        if self.reported.lock().is_new_failure(&format!("forgotten {id}")) {
            self.reports.forgotten(id);
        }
    }

    pub(super) fn failed(&self, what: &str, error: &TreeError) {
        if self.reported.lock().is_new_failure(&format!("{what}: {error}")) {
            self.reports.failed(what, error);
        }
    }
}

/// A path in a snapshot, for people.
pub(super) fn what(opened: &Opened, path: &[u8]) -> String {
    format!("{}:/{}", opened.version.id().short(), String::from_utf8_lossy(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_leave_room_for_damage() {
        let mut reported = Reported::default();
        let new = (0..REPORTED_MAX + 10).filter(|number| reported.is_new_failure(&number.to_string())).count();
        assert_eq!(new, REPORTED_MAX);
        assert!(reported.is_new_damage("a file"));
        assert!(!reported.is_new_damage("a file"));
    }
}
