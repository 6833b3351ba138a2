//! Names of users and groups, each looked up once.
//!
//! The system's own lookup is used (NSS), so names from a directory service are found as well. One
//! lookup may take a network round trip; a tree has few owners, so the answers, also "unknown", are
//! kept for the whole walk.

use std::collections::HashMap;
use std::sync::Arc;

use nix::unistd::{Gid, Group, Uid, User};

/// A cache from numbers to names.
#[derive(Debug, Default)]
pub struct Owners {
    users: HashMap<u32, Option<Arc<str>>>,
    groups: HashMap<u32, Option<Arc<str>>>,
    last_user: Option<(u32, Option<Arc<str>>)>,
    last_group: Option<(u32, Option<Arc<str>>)>,
}

impl Owners {
    /// An empty cache.
    pub fn new() -> Self {
        Self::default()
    }

    /// Name of a user; `None` when the system knows none, or none that is UTF-8.
    pub fn user(&mut self, uid: u32) -> Option<Arc<str>> {
        cached(&mut self.last_user, &mut self.users, uid, |uid| {
            User::from_uid(Uid::from_raw(uid)).ok().flatten().map(|user| Arc::from(user.name))
        })
    }

    /// Name of a group; `None` when the system knows none, or none that is UTF-8.
    pub fn group(&mut self, gid: u32) -> Option<Arc<str>> {
        cached(&mut self.last_group, &mut self.groups, gid, |gid| {
            Group::from_gid(Gid::from_raw(gid)).ok().flatten().map(|group| Arc::from(group.name))
        })
    }
}

/// The owner of the entry before is nearly always the owner of this one: one comparison instead of
/// a hash.
fn cached(
    last: &mut Option<(u32, Option<Arc<str>>)>,
    known: &mut HashMap<u32, Option<Arc<str>>>,
    id: u32,
    look_up: impl FnOnce(u32) -> Option<Arc<str>>,
) -> Option<Arc<str>> {
    match last {
        Some((last_id, name)) if *last_id == id => name.clone(),
        _ => {
            let name = known.entry(id).or_insert_with(|| look_up(id)).clone();
            *last = Some((id, name.clone()));
            name
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_and_unknown_owners_alternate() {
        let mut owners = Owners::new();
        for _ in 0..2 {
            assert_eq!(owners.user(0).as_deref(), Some("root"));
            assert_eq!(owners.user(3_999_999_999), None);
            assert_eq!(owners.group(0).as_deref(), Some("root"));
            assert_eq!(owners.group(3_999_999_999), None);
        }
    }
}
