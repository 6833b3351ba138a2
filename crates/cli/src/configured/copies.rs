//! Copies that `larder run` makes: which repositories get them, and from where.

use std::ffi::OsString;

use larder_profile::config::{Config, CopyFrom, Repository};

/// Repositories, and behind them those that get copies of them, and copies of these.
pub(crate) fn with_copies<'a>(config: &'a Config, used: &[&'a Repository]) -> Vec<&'a Repository> {
    let mut all = used.to_vec();
    let mut at = 0;
    while let Some(source) = all.get(at).copied() {
        let gets_copies = |other: &&Repository| {
            let is_known = all.iter().any(|known| known.name == other.name);
            !is_known && other.copies.iter().any(|copy| copy.from.value == source.name)
        };
        let found: Vec<_> = config.repositories.iter().filter(gets_copies).collect();
        all.extend(found);
        at += 1;
    }
    all
}

/// The repositories whose snapshots these get, if they are not among them.
pub(crate) fn copied_from<'a>(config: &'a Config, repositories: &[&'a Repository]) -> Vec<&'a Repository> {
    let named = |other: &&Repository| {
        let mut copies = repositories.iter().flat_map(|repository| &repository.copies);
        copies.any(|copy| copy.from.value == other.name)
    };
    let is_new = |other: &&Repository| repositories.iter().all(|known| known.name != other.name);
    config.repositories.iter().filter(named).filter(is_new).collect()
}

/// The argument that names the repository that is copied from.
pub(crate) fn from_word(copy: &CopyFrom) -> OsString {
    format!("--from-repo=@{}", copy.from.value).into()
}
