//! Corrections of the lists that `dav-server` writes.
//!
//! It leaves out the quotes of ETags, so that a client would take the tag of a list for another one
//! than that of the file. And an entry without any of the properties that were asked for has no
//! status, which RFC 4918 does not allow.

use bytes::Bytes;

const TAG: &[u8] = b"<D:getetag>";
const TAG_END: &[u8] = b"</D:getetag>";
/// An entry that says nothing, and what it has to say.
const EMPTY: &[u8] = b"</D:href></D:response>";
const NOTHING: &[u8] = b"</D:href><D:propstat><D:prop></D:prop><D:status>HTTP/1.1 404 Not Found</D:status>\
                         </D:propstat></D:response>";

/// Corrects a part of a list. It has whole entries only.
pub(crate) fn corrected(part: Bytes) -> Bytes {
    let (mut corrected, mut rest) = (Vec::with_capacity(part.len() + 64), &part[..]);
    // No name and no value has this byte.
    while let Some(at) = rest.iter().position(|byte| *byte == b'<') {
        let (before, markup) = rest.split_at(at);
        corrected.extend_from_slice(before);
        if let Some(behind) = markup.strip_prefix(EMPTY) {
            corrected.extend_from_slice(NOTHING);
            rest = behind;
            continue;
        }
        corrected.push(b'<');
        rest = &markup[1..];
        let Some(behind) = markup.strip_prefix(TAG) else { continue };
        // Folders, and lists of names of properties, have none.
        if let Some(length @ 1..) = behind.iter().position(|byte| *byte == b'<')
            && behind[length..].starts_with(TAG_END)
        {
            corrected.extend_from_slice(&TAG[1..]);
            corrected.push(b'"');
            corrected.extend_from_slice(&behind[..length]);
            corrected.push(b'"');
            rest = &behind[length..];
        }
    }
    corrected.extend_from_slice(rest);
    corrected.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &'static str) -> Bytes {
        corrected(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn tags_have_quotes_and_nothing_else_changes() {
        assert_eq!(
            of("<a><D:getetag>1-a</D:getetag></a><D:getetag></D:getetag><D:getetag>2</D:getetag>z"),
            "<a><D:getetag>\"1-a\"</D:getetag></a><D:getetag></D:getetag><D:getetag>\"2\"</D:getetag>z"
        );
        for same in ["", "<", "<D:getetag", "<D:getetag>", "<D:getetag />", "<D:getetag>x", "<D:href>/a</D:href>"] {
            assert_eq!(of(same), same);
        }
    }

    #[test]
    fn entries_without_properties_have_a_status() {
        let entry = "<D:response><D:href>/a</D:href></D:response><D:response><D:href>/b</D:href><D:propstat>";
        let text = String::from_utf8(of(entry).to_vec()).expect("text");
        assert_eq!(text.matches("404 Not Found").count(), 1);
        assert!(text.starts_with("<D:response><D:href>/a</D:href><D:propstat><D:prop></D:prop><D:status>"), "{text}");
        assert!(text.ends_with("</D:propstat></D:response><D:response><D:href>/b</D:href><D:propstat>"), "{text}");
    }
}
