//! POSIX access lists as text, from the attribute that the kernel shows.
//!
//! Programs that unpack archives take access lists from records of their own, and leave out the
//! attribute. Without the list, the group would get what the mask admits.

/// The version of the attribute.
const VERSION: [u8; 4] = 2_u32.to_le_bytes();
/// Bytes of one entry.
const ENTRY_BYTES: usize = 8;

/// The key of the record for an attribute that has an access list.
pub(super) fn key(attribute: &[u8]) -> Option<&'static [u8]> {
    match attribute {
        b"system.posix_acl_access" => Some(b"SCHILY.acl.access"),
        b"system.posix_acl_default" => Some(b"SCHILY.acl.default"),
        _ => None,
    }
}

/// The list as text, such as `user::rw-,user:1001:r--,group::r--,mask::r--,other::---`. `None`: the
/// attribute has another form.
pub(super) fn text(attribute: &[u8]) -> Option<String> {
    let (entries, rest) = attribute.strip_prefix(&VERSION)?.as_chunks::<ENTRY_BYTES>();
    let lines: Option<Vec<_>> = entries.iter().map(line).collect();
    lines.filter(|lines| rest.is_empty() && !lines.is_empty()).map(|lines| lines.join(","))
}

fn line(&[tag, tag_high, permissions, permissions_high, a, b, c, d]: &[u8; ENTRY_BYTES]) -> Option<String> {
    let (kind, has_number) = match u16::from_le_bytes([tag, tag_high]) {
        0x01 => ("user", false),
        0x02 => ("user", true),
        0x04 => ("group", false),
        0x08 => ("group", true),
        0x10 => ("mask", false),
        0x20 => ("other", false),
        _ => return None,
    };
    let permissions = u16::from_le_bytes([permissions, permissions_high]);
    if permissions > 7 {
        return None;
    }
    let of = |bit: u16, letter| if permissions & bit == 0 { '-' } else { letter };
    let number = if has_number { u32::from_le_bytes([a, b, c, d]).to_string() } else { String::new() };
    Some(format!("{kind}:{number}:{}{}{}", of(4, 'r'), of(2, 'w'), of(1, 'x')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_become_lists() {
        let list = [
            2, 0, 0, 0, //
            1, 0, 6, 0, 255, 255, 255, 255, //
            2, 0, 7, 0, 0xe9, 3, 0, 0, //
            4, 0, 0, 0, 255, 255, 255, 255, //
            8, 0, 4, 0, 0xea, 3, 0, 0, //
            16, 0, 7, 0, 255, 255, 255, 255, //
            32, 0, 1, 0, 255, 255, 255, 255, //
        ];
        let expected = "user::rw-,user:1001:rwx,group::---,group:1002:r--,mask::rwx,other::--x";
        assert_eq!(text(&list).as_deref(), Some(expected));
        for bad in [&list[..4], &list[..11], &[1, 0, 0, 0], &[2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0], b""] {
            assert_eq!(text(bad), None, "{bad:?}");
        }
        assert_eq!((key(b"system.posix_acl_default"), key(b"user.a")), (Some(&b"SCHILY.acl.default"[..]), None));
    }
}
