//! A folder as a page, for browsers.

use std::io;

use bytes::Bytes;
use dav_server::davpath::DavPath;
use dav_server::fs::DavMetaData;
use futures::stream::{BoxStream, StreamExt, iter};

use crate::files::{Files, Shown};
use crate::walk::Trail;

/// The names of a folder with links to them, in the order of the tree.
pub(crate) fn page(files: &Files, path: &DavPath, trail: Trail) -> BoxStream<'static, io::Result<Bytes>> {
    let title = escaped(&String::from_utf8_lossy(path.as_bytes()));
    let head = format!(
        "<!DOCTYPE html>\n<html><head><meta charset=\"utf-8\"><title>{title}</title></head>\n\
         <body><h1>{title}</h1>\n<table>\n<tr><td><a href=\"../\">../</a></td></tr>\n"
    );
    let rows = files.clone().list(trail).map(|shown| row(&shown));
    let whole = iter([head]).chain(rows).chain(iter(["</table></body></html>\n".to_owned()]));
    whole.map(|part| Ok(Bytes::from(part))).boxed()
}

fn row(shown: &Shown) -> String {
    let slash = if shown.facts.is_dir() { "/" } else { "" };
    let size = if shown.facts.is_dir() { String::new() } else { shown.facts.len().to_string() };
    let name = escaped(&String::from_utf8_lossy(&shown.name));
    // Behind `./`, a name with a colon is no URL of its own.
    format!("<tr><td><a href=\"./{}{slash}\">{name}{slash}</a></td><td>{size}</td></tr>\n", encoded(&shown.name))
}

/// Text in HTML.
fn escaped(text: &str) -> String {
    text.chars().fold(String::new(), |mut escaped, letter| {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            letter if letter.is_control() => escaped.push('\u{fffd}'),
            letter => escaped.push(letter),
        }
        escaped
    })
}

/// A name in a URL.
fn encoded(name: &[u8]) -> String {
    name.iter().fold(String::new(), |mut encoded, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => encoded.push(char::from(*byte)),
            byte => encoded.push_str(&format!("%{byte:02X}")),
        }
        encoded
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_place_in_the_page() {
        assert_eq!(escaped("<a&\"b\">\u{1}"), "&lt;a&amp;&quot;b&quot;&gt;\u{fffd}");
        assert_eq!(encoded(b"a b\"'<:\xff%"), "a%20b%22%27%3C%3A%FF%25");
    }
}
