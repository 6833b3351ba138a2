//! Entries of a folder, as transports for folders list them: which are objects, which lead to
//! objects, and which only lie in their place.

use larder_format::names;
use rustix::fs::FileType;

/// Deepest folder that is looked into; names have four levels.
pub(crate) const DEPTH_MAX: usize = 12;

/// An entry that a listing visits.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Its whole name; that of a folder ends with a slash.
    pub(crate) name: String,
    /// The kind of the entry, if it is neither a file nor a folder to enter.
    pub(crate) wrong: Option<FileType>,
}

impl Entry {
    /// The entry of a name and a kind, unless listings pass it over. `may_enter` says whether
    /// folders may be entered at this depth.
    pub(crate) fn of(name: String, kind: FileType, may_enter: bool) -> Option<Self> {
        let is_object = names::is_object(&name);
        match kind {
            FileType::RegularFile if is_object => Some(Self { name, wrong: None }),
            wrong if is_object => Some(Self { name, wrong: Some(wrong) }),
            FileType::Directory if may_enter => Some(Self { name: name + "/", wrong: None }),
            // Opened as a folder: one of root or of the caller is followed, others are reported.
            FileType::Symlink if may_hold_objects(&name) => Some(Self { name: name + "/", wrong: None }),
            wrong if may_hold_objects(&name) => Some(Self { name: name + "/", wrong: Some(wrong) }),
            FileType::RegularFile => Some(Self { name, wrong: None }),
            _ => None,
        }
    }
}

/// Puts entries of a folder in the order of listings, and removes those before `after`.
pub(crate) fn put_in_order<T>(entries: &mut Vec<T>, name: impl Fn(&T) -> &String, after: Option<&str>) {
    // With its slash a folder sorts among files as the names below it do.
    entries.sort_unstable_by(|a, b| name(a).cmp(name(b)));
    if let Some(after) = after {
        entries.retain(|entry| {
            let name = name(entry).as_str();
            name > after || (name.ends_with('/') && after.starts_with(name))
        });
    }
}

/// Whether objects may be below this name: it is one of the repository's folders.
pub(crate) fn may_hold_objects(name: &str) -> bool {
    const ID: &str = "00000000000000000000000000000000";
    const KEY: &str = "0000000000000000";
    const BELOW: [&[&str]; 6] = [&["1"], &[KEY], &[ID], &[ID, "1"], &[ID, ID], &[ID, ID, "1"]];
    BELOW.iter().any(|below| names::is_object(&format!("{name}/{}", below.join("/"))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_format::ids::{ContainerId, ContainerKind, DomainId, JobId, KeyId, RunId, SeriesKey, SettingsOf};

    #[test]
    fn every_folder_above_an_object_may_hold_objects() {
        let (job, series) = (JobId([7; 16]), SeriesKey([9; 16]));
        for name in [
            names::container(ContainerId { kind: ContainerKind::Data, job, seq: 12 }),
            names::container(ContainerId { kind: ContainerKind::Meta, job, seq: 0 }),
            names::version(series, job, 3),
            names::forgotten(series, job),
            names::pin(series, job, 1),
            names::settings(SettingsOf::Default, 0),
            names::settings(SettingsOf::Series(series), 7),
            names::lease(job, 2),
            names::lease_done(job),
            names::index(8),
            names::indexed(8),
            names::run(RunId { job, seq: 1 }),
            names::key(KeyId([1; 8])),
            names::closed(DomainId([1; 16])),
        ] {
            let mut folder = name.as_str();
            while let Some((above, _)) = folder.rsplit_once('/') {
                assert!(may_hold_objects(above), "{above}");
                folder = above;
            }
            assert!(!may_hold_objects(&name), "{name}");
        }
        for foreign in ["", "lost", "data/j", "data/lost+found", "Data"] {
            assert!(!may_hold_objects(foreign), "{foreign}");
        }
    }
}
