//! Parts of a version that a restore leaves out on request: set-id bits, devices, attributes.
//!
//! A program with a set-id bit or with capabilities runs with the rights of another user. A device
//! node gives access to a disk, whatever the rights of the files on it. So who restores a foreign
//! version as root may not want them.
//!
//! Set-id bits and capabilities count as if the version did not have them: existing ones go.
//! Attributes that the filter does not select are neither set nor removed.

use std::sync::Arc;

use larder_format::entry::{Entry, EntryKind};

use super::attributes::{ACL_ACCESS, CAPABILITY, owning_group_rights};
use crate::exclude::PathMatcher;

pub(super) const SET_UID: u32 = 0o4000;
pub(super) const SET_GID: u32 = 0o2000;

/// The parts that are left out; none by default.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Omit {
    /// Set-user-id and set-group-id bits of files, and file capabilities. The set-group-id bit of a
    /// directory gives no rights and stays.
    pub set_ids: bool,
    /// Block and character devices.
    pub devices: bool,
    /// Extended attributes that the filter does not select.
    pub xattrs: XattrFilter,
}

/// Selects extended attributes by name. The patterns are those of paths.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct XattrFilter {
    /// If set, only attributes that match.
    pub include: Option<Arc<PathMatcher>>,
    /// If set, no attributes that match.
    pub exclude: Option<Arc<PathMatcher>>,
}

impl XattrFilter {
    fn selects(&self, name: &[u8]) -> bool {
        self.include.as_ref().is_none_or(|include| include.is_match(name))
            && !self.exclude.as_ref().is_some_and(|exclude| exclude.is_match(name))
    }
}

impl Omit {
    /// The mode to restore.
    pub(super) fn mode(&self, entry: &Entry) -> u32 {
        let mut mode = entry.mode;
        if self.set_ids && entry.kind != EntryKind::Directory {
            mode &= !(SET_UID | SET_GID);
        }
        let acl = entry.xattrs.iter().find(|xattr| xattr.name == ACL_ACCESS && !self.sets(ACL_ACCESS));
        if let Some(group_bits) = acl.and_then(|acl| owning_group_rights(&acl.value)) {
            // Without its list the mask would become the rights of the owning group, which may be
            // more than it had.
            mode = mode & !0o070 | mode & group_bits << 3;
        }
        mode
    }

    /// Whether such an entry is not restored at all.
    pub(super) fn is_omitted(&self, kind: &EntryKind) -> bool {
        self.devices && matches!(kind, EntryKind::CharDevice { .. } | EntryKind::BlockDevice { .. })
    }

    /// Whether an attribute of the version is restored.
    pub(super) fn sets(&self, name: &[u8]) -> bool {
        self.touches(name) && !(self.set_ids && name == CAPABILITY)
    }

    /// Whether an attribute in the target may be changed or removed.
    pub(super) fn touches(&self, name: &[u8]) -> bool {
        self.xattrs.selects(name)
    }
}
