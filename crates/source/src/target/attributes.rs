//! Attributes whose names have a meaning, and the rights in an access control list.

/// The access control list of a file or directory.
pub(super) const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
/// The list that a directory hands down.
pub(super) const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";
/// Rights of root that a program gets when it is started.
pub(super) const CAPABILITY: &[u8] = b"security.capability";

/// Attributes that the system puts on files by itself: a version without them says nothing about
/// them.
pub(super) fn belongs_to_system(name: &[u8]) -> bool {
    let by_itself: [&[u8]; 5] =
        [b"security.selinux", b"security.SMACK64", b"security.apparmor", b"security.ima", b"security.evm"];
    by_itself.iter().any(|prefix| name.starts_with(prefix))
        || name.starts_with(b"btrfs.")
        || (name.starts_with(b"system.") && name != ACL_ACCESS && name != ACL_DEFAULT)
}

/// The rights of the owning group in the kernel's form of an access control list, all
/// little-endian: a version (4 bytes), then entries of tag (2), rights (2) and id (4).
pub(super) fn owning_group_rights(acl: &[u8]) -> Option<u32> {
    const OWNING_GROUP: u16 = 4;
    let mut entries = acl.get(4..)?.chunks_exact(8);
    entries.find_map(|entry| {
        let half = |at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
        (half(0) == OWNING_GROUP).then(|| u32::from(half(2)) & 7)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owning_group_is_found_in_a_list() {
        let entry = |tag: u16, rights: u16, id: u32| {
            [tag.to_le_bytes().as_slice(), &rights.to_le_bytes(), &id.to_le_bytes()].concat()
        };
        let none = u32::MAX;
        let list =
            [2_u32.to_le_bytes().to_vec(), entry(1, 6, none), entry(2, 6, 1000), entry(4, 4, none), entry(16, 6, none)]
                .concat();
        assert_eq!(owning_group_rights(&list), Some(4));
        assert_eq!(owning_group_rights(&list[..20]), None);
        assert_eq!(owning_group_rights(&[]), None);
    }

    #[test]
    fn only_attributes_of_the_system_stay_unasked() {
        for own in [&b"security.selinux"[..], b"system.nfs4_acl", b"btrfs.compression", b"security.ima"] {
            assert!(belongs_to_system(own));
        }
        for other in [&b"user.a"[..], ACL_ACCESS, ACL_DEFAULT, CAPABILITY, b"trusted.overlay.opaque"] {
            assert!(!belongs_to_system(other));
        }
    }
}
