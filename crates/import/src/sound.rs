//! What a file system can have: originals may hold other things, which no restore could make.

use larder_format::entry::Xattr;

/// Bytes of the name of an extended attribute, and of all names of a file (Linux).
const XATTR_NAME_MAX: usize = 255;
const XATTR_LIST_MAX: usize = 64 << 10;

/// Why a symbolic link with this target cannot be.
pub(crate) fn expect_target(target: &[u8]) -> Result<(), &'static str> {
    match target {
        [] => Err("it is a symbolic link to nothing"),
        target if target.contains(&0) => Err("the target of the symbolic link has a NUL"),
        _ => Ok(()),
    }
}

/// Sorted by name. Of several attributes of one name, the last one counts. The others that cannot be
/// are left out, and named.
pub(crate) fn sound_xattrs(mut xattrs: Vec<Xattr>, problems: &mut Vec<String>) -> Vec<Xattr> {
    let before = xattrs.len();
    xattrs.retain(|xattr| (1..=XATTR_NAME_MAX).contains(&xattr.name.len()) && !xattr.name.contains(&0));
    let odd = before - xattrs.len();
    // The sort keeps the order of equal names.
    xattrs.reverse();
    xattrs.sort_by(|a, b| a.name.cmp(&b.name));
    xattrs.dedup_by(|a, b| a.name == b.name);
    let mut bytes = 0;
    let known = xattrs.len();
    xattrs.retain(|xattr| {
        bytes += xattr.name.len() + 1;
        bytes <= XATTR_LIST_MAX
    });
    let count = odd + known - xattrs.len();
    if count > 0 {
        problems.push(format!("{count} of its extended attributes cannot be on a file, and were left out"));
    }
    xattrs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_that_cannot_be_are_left_out_and_the_last_of_a_name_counts() {
        let xattr = |name: &[u8], value: u8| Xattr { name: name.to_vec(), value: vec![value] };
        let mut problems = Vec::new();
        let long = [b'a'; XATTR_NAME_MAX + 1];
        let given =
            vec![xattr(b"b", 1), xattr(b"", 2), xattr(b"a", 3), xattr(b"b", 4), xattr(b"x\0", 5), xattr(&long, 6)];
        assert_eq!(sound_xattrs(given, &mut problems), [xattr(b"a", 3), xattr(b"b", 4)]);
        assert_eq!(problems, ["3 of its extended attributes cannot be on a file, and were left out"]);
        let many = (0..20_000_u32).map(|number| xattr(format!("user.{number:05}").as_bytes(), 0)).collect();
        assert_eq!(sound_xattrs(many, &mut problems).len(), XATTR_LIST_MAX / 11);
        assert_eq!(problems.len(), 2);
        assert_eq!(expect_target(b"a/../b"), Ok(()));
        assert!(expect_target(b"").is_err() && expect_target(b"a\0").is_err());
    }
}
