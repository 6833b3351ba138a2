//! POSIX access lists: as text in archives, and as the attribute that the kernel shows.
//!
//! Programs that unpack archives take access lists from records of their own, and leave out the
//! attribute. Without the list, the group would get what the mask admits.

use nix::unistd::{Group, User};

const ACCESS: [&[u8]; 2] = [b"system.posix_acl_access", b"SCHILY.acl.access"];
const DEFAULT: [&[u8]; 2] = [b"system.posix_acl_default", b"SCHILY.acl.default"];

/// The version of the attribute.
const VERSION: [u8; 4] = 2_u32.to_le_bytes();
/// Bytes of one entry.
const ENTRY_BYTES: usize = 8;
/// The number of an entry that names nobody.
const NOBODY: u32 = u32::MAX;

const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// The key of the record of tar for an attribute; `None`: it has no access list.
pub fn record(attribute: &[u8]) -> Option<&'static [u8]> {
    [ACCESS, DEFAULT].into_iter().find(|[name, _]| *name == attribute).map(|[_, key]| key)
}

/// An attribute, or the line of its list that is no entry, or that names somebody whom this system
/// does not know. `None`: the list says no more than the mode.
pub type Read = Result<Option<Vec<u8>>, String>;

/// The name and the value of the attribute that a record of tar has as text; `None`: it is no
/// record of an access list.
pub fn of_record(key: &[u8], value: &[u8]) -> Option<(&'static [u8], Read)> {
    match key {
        key if key == ACCESS[1] => Some((ACCESS[0], attribute(value))),
        key if key == DEFAULT[1] => Some((DEFAULT[0], default_attribute(value))),
        _ => None,
    }
}

/// The attribute of a list such as `user::rw-,user:joe:r--:1001,group::r--,mask::r--`. `None` if it
/// says no more than the mode.
fn attribute(text: &[u8]) -> Read {
    let mut entries = Vec::new();
    for line in text.split(|byte| matches!(byte, b'\n' | b',')) {
        let line = String::from_utf8_lossy(line);
        let line = line.split('#').next().unwrap_or_default().trim();
        if !line.is_empty() {
            entries.push(entry(line).ok_or_else(|| line.to_owned())?);
        }
    }
    if entries.iter().all(|(tag, _, _)| matches!(*tag, USER_OBJ | GROUP_OBJ | OTHER)) {
        return Ok(None);
    }
    Ok(Some(encode(entries)))
}

fn encode(mut entries: Vec<(u16, u32, u16)>) -> Vec<u8> {
    entries.sort_unstable();
    let mut bytes = VERSION.to_vec();
    for (tag, id, permissions) in entries {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&permissions.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

/// As [`attribute`], for a default list: it says something with three entries too.
fn default_attribute(text: &[u8]) -> Read {
    match attribute(text)? {
        Some(bytes) => Ok(Some(bytes)),
        None => {
            let lines = text.split(|byte| matches!(byte, b'\n' | b','));
            let lines = lines.map(String::from_utf8_lossy);
            let entries: Vec<_> = lines.filter_map(|line| entry(line.trim())).collect();
            Ok((!entries.is_empty()).then(|| encode(entries)))
        }
    }
}

/// Tag, number and permissions.
fn entry(line: &str) -> Option<(u16, u32, u16)> {
    let line = line.strip_prefix("default:").unwrap_or(line);
    let mut fields = line.split(':');
    let (kind, name, permissions) = (fields.next()?, fields.next()?, fields.next()?);
    let number = fields.next().map(str::parse::<u32>).transpose().ok()?;
    let permissions = permissions.bytes().try_fold(0, |all, byte| {
        Some(match byte {
            b'r' => all | 4,
            b'w' => all | 2,
            b'x' => all | 1,
            b'-' => all,
            _ => return None,
        })
    })?;
    let id = |by_name: &dyn Fn(&str) -> Option<u32>| number.or_else(|| name.parse().ok()).or_else(|| by_name(name));
    let (tag, id) = match (kind, name) {
        ("user" | "u", "") => (USER_OBJ, NOBODY),
        ("user" | "u", _) => (USER, id(&|name| User::from_name(name).ok()?.map(|user| user.uid.as_raw()))?),
        ("group" | "g", "") => (GROUP_OBJ, NOBODY),
        ("group" | "g", _) => (GROUP, id(&|name| Group::from_name(name).ok()?.map(|group| group.gid.as_raw()))?),
        ("mask" | "m", _) => (MASK, NOBODY),
        ("other" | "o", _) => (OTHER, NOBODY),
        _ => return None,
    };
    Some((tag, id, permissions))
}

/// The list as text, such as `user::rw-,user:1001:r--,group::r--,mask::r--,other::---`. `None`: the
/// attribute has another form.
pub fn text(attribute: &[u8]) -> Option<String> {
    let (entries, rest) = attribute.strip_prefix(&VERSION)?.as_chunks::<ENTRY_BYTES>();
    let lines: Option<Vec<_>> = entries.iter().map(line).collect();
    lines.filter(|lines| rest.is_empty() && !lines.is_empty()).map(|lines| lines.join(","))
}

fn line(&[tag, tag_high, permissions, permissions_high, a, b, c, d]: &[u8; ENTRY_BYTES]) -> Option<String> {
    let (kind, has_number) = match u16::from_le_bytes([tag, tag_high]) {
        USER_OBJ => ("user", false),
        USER => ("user", true),
        GROUP_OBJ => ("group", false),
        GROUP => ("group", true),
        MASK => ("mask", false),
        OTHER => ("other", false),
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
    fn lists_become_attributes() {
        let expected = [
            2, 0, 0, 0, //
            1, 0, 6, 0, 255, 255, 255, 255, //
            2, 0, 4, 0, 0, 0, 0, 0, //
            2, 0, 7, 0, 0xe9, 3, 0, 0, //
            4, 0, 4, 0, 255, 255, 255, 255, //
            16, 0, 5, 0, 255, 255, 255, 255, //
            32, 0, 0, 0, 255, 255, 255, 255, //
        ];
        for text in [
            "user::rw-,user:1001:rwx,user:root:r--,group::r--,mask::r-x,other::---",
            "user::rw-\nuser:root:r--\t#effective:r--\nuser:joe:rwx:1001\ngroup::r--\nmask::r-x\nother::---\n",
        ] {
            assert_eq!(attribute(text.as_bytes()), Ok(Some(expected.to_vec())), "{text}");
        }
        let plain = b"user::rw-,group::r--,other::r--";
        assert_eq!(attribute(plain), Ok(None));
        assert_eq!(default_attribute(plain).map(|found| found.map(|bytes| bytes.len())), Ok(Some(28)));
        for bad in ["user:no-such-user-here:r--", "user::rq-", "nobody::r--", "user"] {
            assert_eq!(attribute(bad.as_bytes()), Err(bad.to_owned()));
        }
    }

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
        assert_eq!(record(b"system.posix_acl_default"), Some(&b"SCHILY.acl.default"[..]));
        assert_eq!(record(b"user.a"), None);
    }
}
