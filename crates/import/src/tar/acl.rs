//! POSIX access lists: from the text in an archive to the attribute that the kernel shows.

use nix::unistd::{Group, User};

/// The version of the attribute.
const VERSION: u32 = 2;
/// The number of an entry that names nobody.
const NOBODY: u32 = u32::MAX;

const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// The attribute of an access list such as `user::rw-,user:joe:r--:1001,group::r--,mask::r--`. `None`
/// if it says no more than the mode.
///
/// # Errors
/// The line that is no entry of an access list, or that names somebody whom this system does not
/// know.
pub(super) fn attribute(text: &[u8]) -> Result<Option<Vec<u8>>, String> {
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
    let mut bytes = VERSION.to_le_bytes().to_vec();
    for (tag, id, permissions) in entries {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&permissions.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

/// A default list says also then something when it has no more than three entries.
pub(super) fn default_attribute(text: &[u8]) -> Result<Option<Vec<u8>>, String> {
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
}
