//! Names and paths from outside, made safe for a terminal.

use larder_source::PathText;

/// Text from outside (names of series, hosts, tags) made safe for a terminal and for one line.
pub(crate) fn safe(text: &str) -> String {
    PathText(text.as_bytes()).to_string()
}

/// A path of a version as users see it: absolute, one line.
pub(crate) fn absolute(path: &[u8]) -> String {
    if path.starts_with(b"/") { PathText(path).to_string() } else { format!("/{}", PathText(path)) }
}
