//! Which owner a restored file gets.
//!
//! A backup keeps owners as numbers and as names. On the original machine both agree. On another
//! one, people mean the names (`www-data` is 33 here and 48 there). So names win where they exist
//! and numbers are the fallback, as in tar and rsync. A rescue system, a chroot or a container
//! image being restored from outside wants the numbers: [`OwnerMode::ById`].
//!
//! Access control lists name further users by number only; those numbers are restored as they are
//! in every mode.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use larder_format::entry::Entry;
use nix::unistd::{Group, User};

/// How owners are restored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OwnerMode {
    /// By name where this system knows the name, else by number.
    #[default]
    ByName,
    /// By number (`--numeric-owner`).
    ById,
    /// Not at all: new entries belong to the user who restores, existing ones keep their owner.
    None,
}

/// The numbers a file shall have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ids {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// Names looked up once each, for all threads.
#[derive(Debug, Default)]
pub(super) struct OwnerTable {
    users: Names,
    groups: Names,
}

impl OwnerTable {
    /// The numbers meant by an entry. In mode [`OwnerMode::None`] they are not set, but set-id bits
    /// still depend on them.
    pub(super) fn ids(&self, mode: OwnerMode, entry: &Entry) -> Ids {
        match mode {
            OwnerMode::ById | OwnerMode::None => Ids { uid: entry.uid, gid: entry.gid },
            OwnerMode::ByName => Ids {
                uid: self.users.id(
                    entry.user.as_ref(),
                    |name| Some(User::from_name(name).ok()??.uid.as_raw()),
                    entry.uid,
                ),
                gid: self.groups.id(
                    entry.group.as_ref(),
                    |name| Some(Group::from_name(name).ok()??.gid.as_raw()),
                    entry.gid,
                ),
            },
        }
    }
}

#[derive(Debug, Default)]
struct Names(RwLock<HashMap<Arc<str>, Option<u32>>>);

impl Names {
    fn id(&self, name: Option<&Arc<str>>, look_up: impl FnOnce(&str) -> Option<u32>, otherwise: u32) -> u32 {
        let Some(name) = name else { return otherwise };
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner).get(name).copied();
        let id = known.unwrap_or_else(|| {
            // Outside the lock: a directory service may take a network round trip.
            let id = look_up(name);
            self.0.write().unwrap_or_else(PoisonError::into_inner).insert(name.clone(), id);
            id
        });
        id.unwrap_or(otherwise)
    }
}

#[cfg(test)]
mod tests {
    use larder_format::entry::{EntryKind, Timestamp};

    use super::*;

    fn entry(user: Option<&str>, group: Option<&str>) -> Entry {
        Entry {
            path: b"f".to_vec(),
            kind: EntryKind::Fifo,
            mode: 0o644,
            uid: 4001,
            gid: 4002,
            user: user.map(Arc::from),
            group: group.map(Arc::from),
            mtime: Timestamp::default(),
            ctime: Timestamp::default(),
            atime: None,
            inode: 0,
            xattrs: Vec::new(),
        }
    }

    #[test]
    fn names_win_where_they_exist() {
        let table = OwnerTable::default();
        for _ in 0..2 {
            let ids = table.ids(OwnerMode::ByName, &entry(Some("root"), Some("no-such-group-here")));
            assert_eq!(ids, Ids { uid: 0, gid: 4002 });
            let ids = table.ids(OwnerMode::ByName, &entry(None, Some("root")));
            assert_eq!(ids, Ids { uid: 4001, gid: 0 });
        }
        let ids = table.ids(OwnerMode::ById, &entry(Some("root"), Some("root")));
        assert_eq!(ids, Ids { uid: 4001, gid: 4002 });
    }
}
