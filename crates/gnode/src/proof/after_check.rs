//! Compares the index after a check of versions and containers. Damage is reported once: damage in
//! the report of the check does not count as an error of the index.

use larder_format::names;
use larder_index::IndexError;
use larder_job::JobContext;
use larder_rewrite::CheckReport;
use larder_rewrite::check::{AffectedVersion, Damage};
use larder_store::RepositoryError;

use super::{Proof, prove};
use crate::error::PassError;
use crate::index_check::{IndexCheck, IndexFinding};

/// The result for the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IndexState {
    /// It was not compared.
    Skipped,
    /// It cannot be read, which is among the damages.
    Unreadable,
    /// It was compared. Findings about objects that the check reports are left out.
    Compared(Proof),
}

impl IndexState {
    /// In how many ways the index is wrong.
    pub fn disagreements(&self) -> u64 {
        match self {
            Self::Compared(proof) => proof.check.count,
            Self::Skipped | Self::Unreadable => 0,
        }
    }

    /// Whether rebuilding it would help.
    pub fn wants_rebuild(&self) -> bool {
        matches!(self, Self::Unreadable) || self.disagreements() > 0
    }
}

/// Compares the newest index after a check of everything, and adds to its damages those that only
/// the index shows.
///
/// # Errors
///
/// Those of [`prove`], but not damage of the index: that is reported.
pub async fn prove_after(context: &JobContext, report: &mut CheckReport) -> Result<IndexState, PassError> {
    match prove(context).await {
        Ok(mut proof) => {
            merge(&mut proof.check, &mut report.damages);
            Ok(IndexState::Compared(proof))
        }
        Err(error) => {
            let Some((object, why)) = damage_of(&error) else { return Err(error) };
            report.damages.push(Damage { object, why, affected: Vec::new() });
            Ok(IndexState::Unreadable)
        }
    }
}

/// Moves findings about other objects than the index to the damages, or leaves them out.
///
/// The check has named the unreadable objects that versions need. The next pass deletes those that
/// no version needs. Neither makes the index wrong.
fn merge(check: &mut IndexCheck, damages: &mut Vec<Damage>) {
    let found = check.disagreements.len();
    let lost = check.disagreements.extract_if(.., |found| matches!(found, IndexFinding::ManifestLost { .. }));
    damages.extend(lost.filter_map(lost_manifest));
    let is_named = |name: &str| damages.iter().any(|damage| damage.object == name);
    check.disagreements.retain(|found| match found {
        // Moved chunks may be in a container that no version names, which the check has not read.
        IndexFinding::ContainerUnreadable { container, needed_by, .. } => !needed_by.is_empty() && !is_named(container),
        _ => true,
    });
    let left_out = found - check.disagreements.len();
    check.count = check.count.saturating_sub(left_out as u64);
}

/// A version that only the index knows.
fn lost_manifest(found: IndexFinding) -> Option<Damage> {
    let IndexFinding::ManifestLost { version, name } = found else { return None };
    let version = AffectedVersion { id: version.job, series: String::new(), files: Vec::new(), files_count: 0 };
    let why = "it is missing, and nobody has forgotten the snapshot".to_owned();
    Some(Damage { object: name, why, affected: vec![version] })
}

/// The damaged object because of which the index cannot be read, and its damage; `None`: the error
/// is no damage.
fn damage_of(error: &PassError) -> Option<(String, String)> {
    match error {
        PassError::Index(error) if error.is_damage() => Some(match error {
            IndexError::Repository(source) | IndexError::NewestUnreadable { source } => object_of(source),
            IndexError::NewestLost { number } => {
                (names::index(*number), "it is missing, and its mark says that it counts".to_owned())
            }
            error => ("index".to_owned(), error.to_string()),
        }),
        PassError::Repository(error) if error.is_damage() => Some(object_of(error)),
        _ => None,
    }
}

fn object_of(error: &RepositoryError) -> (String, String) {
    match error {
        RepositoryError::Damaged { name, source } => (name.clone(), source.to_string()),
        RepositoryError::Store(error) => (error.name.clone(), error.kind.to_string()),
        other => ("index".to_owned(), other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_format::DecodeError;
    use larder_format::ids::{JobId, SeriesKey};
    use larder_format::lease::Pin;

    const NEEDING: JobId = JobId([7; 16]);

    fn unreadable(container: &str, needed_by: &[JobId]) -> IndexFinding {
        let reason = "too short".to_owned();
        IndexFinding::ContainerUnreadable { container: container.to_owned(), reason, needed_by: needed_by.to_vec() }
    }

    fn found(disagreements: Vec<IndexFinding>) -> IndexCheck {
        IndexCheck { count: disagreements.len() as u64, disagreements, ..IndexCheck::default() }
    }

    fn damage(object: &str) -> Damage {
        Damage { object: object.to_owned(), why: "too short".to_owned(), affected: Vec::new() }
    }

    #[test]
    fn containers_count_against_the_index_only_if_no_check_told_of_them() {
        let own = IndexFinding::WrongFacts { container: "data/d".to_owned() };
        let told = [unreadable("data/a", &[NEEDING]), unreadable("data/b", &[])];
        let not_told = [unreadable("data/c", &[NEEDING]), own];
        let mut check = found(told.into_iter().chain(not_told.clone()).collect());
        // More were counted than are kept.
        check.count += 1000;
        let mut damages = vec![damage("data/a")];
        merge(&mut check, &mut damages);
        assert_eq!((check.count, &check.disagreements[..]), (1002, &not_told[..]));
        assert_eq!(damages, [damage("data/a")]);
    }

    #[test]
    fn a_lost_manifest_is_damage_of_its_version_and_not_of_the_index() {
        let version = Pin { series: SeriesKey([1; 16]), job: NEEDING };
        let mut check = found(vec![IndexFinding::ManifestLost { version, name: "versions/x".to_owned() }]);
        let mut damages = Vec::new();
        merge(&mut check, &mut damages);
        assert_eq!((check.count, check.disagreements.len()), (0, 0));
        assert_eq!((damages[0].object.as_str(), damages[0].affected[0].id), ("versions/x", NEEDING));
    }

    #[test]
    fn only_damage_is_reported_as_damage() {
        let damaged =
            RepositoryError::Damaged { name: "index/5".to_owned(), source: DecodeError::Truncated { what: "index" } };
        let object = |error: PassError| damage_of(&error).map(|(object, _)| object);
        assert_eq!(object(IndexError::Repository(damaged).into()).as_deref(), Some("index/5"));
        assert_eq!(object(IndexError::NewestLost { number: 5 }.into()), Some(names::index(5)));
        assert_eq!(object(PassError::Interrupted), None);
        assert_eq!(object(RepositoryError::NoKeys.into()), None);
    }
}
