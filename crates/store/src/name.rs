//! Which object names the store accepts.
//!
//! Names come from `larder_format::names` and are the same on every store. So the alphabet needs no
//! escaping anywhere: not in URLs, not on file systems, not in object keys. A segment never begins
//! with a dot. So no name climbs out of the repository, and a local folder can keep staging files
//! under a dot name that no listing shows.

/// Longest accepted name. With a prefix before it, a key stays below the 1,024 bytes that S3
/// allows.
pub(crate) const NAME_MAX: usize = 240;

/// Whether `name` may name an object.
pub(crate) fn is_valid(name: &str) -> bool {
    name.len() <= NAME_MAX && name.split('/').all(is_valid_segment)
}

/// Whether `segment` may be between two slashes of a name.
pub(crate) fn is_valid_segment(segment: &str) -> bool {
    !segment.is_empty()
        && !segment.starts_with('.')
        && segment.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// Brings a folder to its one spelling: empty for the whole repository, else without a slash at the
/// end.
pub(crate) fn folder(prefix: &str) -> Option<&str> {
    let folder = prefix.strip_suffix('/').unwrap_or(prefix);
    (prefix.is_empty() || is_valid(folder)).then_some(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_need_escaping_or_climb_are_refused() {
        for good in ["config", "data/0190/12", "keys/a-b_c.d", &"n".repeat(NAME_MAX)] {
            assert!(is_valid(good), "{good}");
        }
        for bad in ["", "/a", "a/", "a//b", "..", "a/../b", ".staging/x", "a b", "ü", "a\0b", &"n".repeat(NAME_MAX + 1)]
        {
            assert!(!is_valid(bad), "{bad:?}");
        }
    }

    #[test]
    fn a_folder_has_one_spelling() {
        assert_eq!(folder(""), Some(""));
        assert_eq!(folder("data/"), Some("data"));
        assert_eq!(folder("data/x"), Some("data/x"));
        assert_eq!(folder("/"), None);
        assert_eq!(folder("data//"), None);
    }
}
