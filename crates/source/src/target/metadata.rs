//! Puts metadata back, in the only order that keeps all of it.
//!
//! Owner first, because the kernel takes set-id bits and capabilities from a file whose owner
//! changes. Attributes next, then times. The mode comes last: it ends the mark of an unfinished
//! file (see [`super::unfinished`]). So an interrupted restore can be told from a finished one up
//! to the last call. For a file with an access control list, the group bits of the mode are the
//! list's mask. Setting the list and then the mode restores both exactly.
//!
//! Metadata that the user's rights or the file system do not allow becomes a note, never an error.
//! Only a target that fails altogether (read-only, broken, full) is one.

use std::sync::atomic::{AtomicBool, Ordering};

use larder_format::entry::{Entry, Timestamp, Xattr};
use rustix::io::Errno;

use super::attributes::{ACL_ACCESS, ACL_DEFAULT, CAPABILITY, belongs_to_system, owning_group_rights};
use super::error::TargetError;
use super::notes::{NoteKind, Notes};
use super::omit::{Omit, SET_GID, SET_UID};
use super::owner::{Ids, OwnerMode};
use super::subject::Subject;
use crate::PathText;
use crate::stat::Stat;

/// The metadata something shall have.
#[derive(Debug, Clone, Copy)]
pub(super) struct Goal<'e> {
    pub(super) mode: u32,
    /// Whose the thing was; set unless the mode is [`OwnerMode::None`].
    pub(super) ids: Ids,
    pub(super) owners: OwnerMode,
    /// `None`: times stay as they are.
    pub(super) mtime: Option<Timestamp>,
    pub(super) atime: Option<Timestamp>,
    /// `None`: attributes stay as they are.
    pub(super) xattrs: Option<&'e [Xattr]>,
    /// The parts of the version that are left out. `mode` is already without them.
    pub(super) omit: &'e Omit,
    /// `mode` lacks set-id bits of the version.
    pub(super) without_set_ids: bool,
}

impl<'e> Goal<'e> {
    pub(super) fn of(entry: &'e Entry, ids: Ids, owners: OwnerMode, omit: &'e Omit) -> Self {
        let Entry { mtime, atime, xattrs, .. } = entry;
        let mode = omit.mode(entry);
        let without_set_ids = (entry.mode & !mode) & (SET_UID | SET_GID) != 0;
        Self { mode, ids, owners, mtime: Some(*mtime), atime: *atime, xattrs: Some(xattrs), omit, without_set_ids }
    }

    /// The attributes of the version that are restored.
    fn xattrs(&self) -> Option<impl Iterator<Item = &'e Xattr> + Clone + use<'e>> {
        let omit = self.omit;
        self.xattrs.map(|all| all.iter().filter(|xattr| omit.sets(&xattr.name)))
    }
}

/// The thing as it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now<'s> {
    pub(super) stat: &'s Stat,
    pub(super) attributes: Attributes,
    /// Its content was written after `stat` was taken, so its times have moved since.
    pub(super) written_since: bool,
}

/// Which attributes the thing may have already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attributes {
    /// None, because this restore made the thing and its directory hands none down.
    Fresh,
    /// Any: those that the version does not have are removed.
    Unknown,
}

/// The abilities of this process, as far as they are known or were found out.
#[derive(Debug)]
pub(super) struct Rights {
    pub(super) euid: u32,
    groups: Vec<u32>,
    /// The system refused to give a file away; it always will, so it is not asked again.
    owner_refused: AtomicBool,
}

impl Rights {
    pub(super) fn of_this_process() -> Self {
        let mut groups: Vec<u32> =
            rustix::process::getgroups().unwrap_or_default().iter().map(|gid| gid.as_raw()).collect();
        groups.push(rustix::process::getegid().as_raw());
        Self { euid: rustix::process::geteuid().as_raw(), groups, owner_refused: AtomicBool::new(false) }
    }
}

/// Changes `subject` from its present state to its goal.
pub(super) fn apply(
    rights: &Rights,
    notes: &Notes,
    path: &[u8],
    subject: Subject<'_>,
    now: &Now<'_>,
    goal: &Goal<'_>,
) -> Result<(), TargetError> {
    let Now { stat, attributes, written_since } = *now;
    let is_directory = stat.file_type.is_dir();
    let (owner, owner_changed) = set_owner(rights, notes, path, subject, stat, goal)?;
    let mut mode = goal.mode;
    let mut mode_moved = owner_changed;
    if goal.without_set_ids {
        notes.add(NoteKind::OmittedSetId, path, || format!("mode {mode:04o}"));
    }
    if let Some(all) = goal.xattrs {
        let done = set_xattrs(notes, path, subject, all, goal.omit, attributes)?;
        mode_moved |= done.changed;
        if let Some(group_bits) = done.lost_acl {
            // Without its list the mask would become the rights of the owning group, which may be
            // more than it had.
            mode = mode & !0o070 | mode & group_bits << 3;
        }
    }
    if let Some(mtime) = goal.mtime
        && (written_since || stat.mtime != mtime || goal.atime.is_some_and(|atime| atime != stat.atime))
    {
        let set = subject.set_times(mtime, goal.atime);
        note_unless_fatal(set, "set the times of", path, || notes.add(NoteKind::Times, path, || reason(set)))?;
    }
    if stat.file_type.is_symlink() {
        return Ok(());
    }
    let dropped = if mode & SET_UID != 0 && owner.uid != goal.ids.uid && !is_directory { SET_UID } else { 0 }
        | if mode & SET_GID != 0 && owner.gid != goal.ids.gid && !is_directory { SET_GID } else { 0 };
    if dropped != 0 {
        mode &= !dropped;
        notes.add(NoteKind::SetId, path, || format!("mode {:04o} instead of {:04o}", mode, goal.mode));
    }
    if mode_moved || stat.mode != mode {
        let set = subject.chmod(mode);
        note_unless_fatal(set, "set the mode of", path, || notes.add(NoteKind::Mode, path, || reason(set)))?;
    }
    Ok(())
}

/// Whether there is nothing left to set that this process could set. Access times do not count:
/// looking changes them.
pub(super) fn is_reached(rights: &Rights, subject: Subject<'_>, stat: &Stat, goal: &Goal<'_>) -> bool {
    let may_own = rights.euid == 0 && goal.owners != OwnerMode::None;
    if may_own && (Ids { uid: stat.uid, gid: stat.gid }) != goal.ids {
        return false;
    }
    if goal.mtime.is_some_and(|mtime| mtime != stat.mtime) || (goal.mode != stat.mode && !stat.file_type.is_symlink()) {
        return false;
    }
    let Some(mut wanted) = goal.xattrs() else { return true };
    let Ok(mut names) = subject.xattr_names() else { return false };
    names.retain(|name| {
        wanted.clone().any(|xattr| xattr.name == *name) || (goal.omit.touches(name) && !belongs_to_system(name))
    });
    names.len() == wanted.clone().count()
        && wanted.all(|xattr| subject.xattr(&xattr.name).is_ok_and(|value| value == xattr.value))
}

/// The owner afterwards, and whether it was changed.
fn set_owner(
    rights: &Rights,
    notes: &Notes,
    path: &[u8],
    subject: Subject<'_>,
    stat: &Stat,
    goal: &Goal<'_>,
) -> Result<(Ids, bool), TargetError> {
    let now = Ids { uid: stat.uid, gid: stat.gid };
    let wanted = goal.ids;
    if goal.owners == OwnerMode::None || now == wanted {
        return Ok((now, false));
    }
    let is_root = rights.euid == 0;
    let uid = (wanted.uid != now.uid && !rights.owner_refused.load(Ordering::Relaxed)).then_some(wanted.uid);
    let may_give = is_root || uid.is_some() || rights.groups.contains(&wanted.gid);
    let gid = (wanted.gid != now.gid && may_give).then_some(wanted.gid);
    let mut reached = now;
    let mut refused = Errno::PERM;
    for (uid, gid) in [(uid, gid), (None, gid)] {
        if uid.is_none() && gid.is_none() {
            continue;
        }
        let set = subject.chown(uid, gid);
        match set {
            Ok(()) => {
                reached = Ids { uid: uid.unwrap_or(now.uid), gid: gid.unwrap_or(now.gid) };
                break;
            }
            Err(errno) => {
                note_unless_fatal(set, "set the owner of", path, || {})?;
                refused = errno;
                if uid.is_some() && errno == Errno::PERM && !is_root {
                    rights.owner_refused.store(true, Ordering::Relaxed);
                }
            }
        }
    }
    if reached != wanted {
        let Ids { uid, gid } = wanted;
        notes.add(NoteKind::Owner, path, || format!("user {uid}, group {gid}: {}", reason(Err(refused))));
    }
    Ok((reached, reached != now))
}

/// The result for the attributes.
#[derive(Debug, Default)]
struct XattrsDone {
    /// Some were set or removed: with an access control list, the mode has changed as well.
    changed: bool,
    /// An access control list could not be set: the rights of the owning group without it.
    lost_acl: Option<u32>,
}

/// Makes the attributes those of the version, but for those that are left out.
fn set_xattrs(
    notes: &Notes,
    path: &[u8],
    subject: Subject<'_>,
    all: &[Xattr],
    omit: &Omit,
    attributes: Attributes,
) -> Result<XattrsDone, TargetError> {
    let (wanted, omitted): (Vec<_>, Vec<_>) = all.iter().partition(|xattr| omit.sets(&xattr.name));
    for Xattr { name, .. } in omitted {
        let kind = if omit.touches(name) { NoteKind::OmittedSetId } else { NoteKind::OmittedXattr };
        notes.add(kind, path, || PathText(name).to_string());
    }
    let mut done = XattrsDone::default();
    let existing = match attributes {
        Attributes::Fresh => Vec::new(),
        Attributes::Unknown => subject.xattr_names().map_err(TargetError::step("list the attributes of", path))?,
    };
    for name in &existing {
        if wanted.iter().any(|xattr| xattr.name == *name) || !omit.touches(name) || belongs_to_system(name) {
            continue;
        }
        match subject.remove_xattr(name) {
            Ok(()) => done.changed = true,
            Err(Errno::NODATA) => {}
            removed @ Err(_) => note_unless_fatal(removed, "remove an attribute of", path, || {
                notes.add(NoteKind::ExtraXattr, path, || format!("{}: {}", PathText(name), reason(removed)));
            })?,
        }
    }
    for Xattr { name, value } in wanted {
        if existing.contains(name) && subject.xattr(name).is_ok_and(|now| now == *value) {
            continue;
        }
        let set = subject.set_xattr(name, value);
        done.changed |= set.is_ok();
        if set.is_err() && name == ACL_ACCESS {
            done.lost_acl = owning_group_rights(value);
        }
        note_unless_fatal(set, "set an attribute of", path, || {
            let kind = match name.as_slice() {
                ACL_ACCESS | ACL_DEFAULT => NoteKind::Acl,
                CAPABILITY => NoteKind::Capability,
                _ => NoteKind::Xattr,
            };
            notes.add(kind, path, || format!("{}: {}", PathText(name), reason(set)));
        })?;
    }
    Ok(done)
}

/// Metadata that cannot be set is noted; a target on which nothing can be done any more is an
/// error.
fn note_unless_fatal(
    result: Result<(), Errno>,
    action: &'static str,
    path: &[u8],
    note: impl FnOnce(),
) -> Result<(), TargetError> {
    match result {
        Ok(()) => Ok(()),
        Err(errno @ (Errno::ROFS | Errno::IO | Errno::STALE)) => Err(TargetError::step(action, path)(errno)),
        Err(_) => {
            note();
            Ok(())
        }
    }
}

/// The system's words for a failure.
pub(super) fn reason(result: Result<(), Errno>) -> String {
    match result {
        Ok(()) => String::new(),
        Err(errno) => std::io::Error::from(errno).to_string(),
    }
}
