//! Locations of SFTP servers, in the two forms that restic has.
//!
//! | form                                   | folder                                   |
//! |----------------------------------------|------------------------------------------|
//! | `sftp:[user@]host:path`                | as written: `/path` or below the home    |
//! | `sftp://[user@]host[:port]/path`       | below the home                           |
//! | `sftp://[user@]host[:port]//path`      | `/path`                                  |
//!
//! An IPv6 address is in brackets. Host and user become arguments of the SSH client. So they may
//! not begin with a hyphen, which would make options of them.

use std::fmt;

use super::{LocationProblem, SftpLocation};

/// Longest folder. With the name of an object behind it, a path stays below the 4,096 bytes that
/// systems allow.
const PATH_MAX: usize = 3_000;

/// Reads what follows `sftp:`.
pub(super) fn parse(text: &str, rest: &str) -> Result<SftpLocation, LocationProblem> {
    let bad = |what| LocationProblem::Bad { text: text.to_owned(), what };
    let missing = |what| LocationProblem::Missing { text: text.to_owned(), what };
    let is_url = rest.starts_with("//");
    // The user ends at the last @ before the path, because accounts of a directory have one in
    // their names.
    let (authority, path) = if is_url {
        rest[2..].split_once('/').unwrap_or((&rest[2..], ""))
    } else {
        let user_end = rest.split('/').next().and_then(|start| start.rfind('@')).map_or(0, |at| at + 1);
        let host = &rest[user_end..];
        let host_end = if host.starts_with('[') { host.find("]:").map(|end| end + 1) } else { host.find(':') };
        match host_end {
            Some(end) => (&rest[..user_end + end], &host[end + 1..]),
            None => (rest, ""),
        }
    };
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, _)) if user.contains(':') => return Err(LocationProblem::Secret),
        Some((user, _)) if !is_argument(user) || user.contains('/') => return Err(bad("user")),
        Some((user, host)) => (Some(user.to_owned()), host),
        None => (None, authority),
    };
    let (host, port) = split_port(host, is_url).ok_or_else(|| bad("host"))?;
    if host.is_empty() {
        return Err(missing("host"));
    }
    if !is_argument(host) || host.contains(['/', '[', ']']) {
        return Err(bad("host"));
    }
    let port = match port.map(str::parse::<u16>) {
        None => None,
        Some(Ok(port)) if port != 0 => Some(port),
        Some(_) => return Err(bad("port")),
    };
    if path == "~" || path.starts_with("~/") {
        return Err(LocationProblem::Tilde { text: text.to_owned() });
    }
    let path =
        if path.starts_with('/') && path.trim_end_matches('/').is_empty() { "/" } else { path.trim_end_matches('/') };
    if path.is_empty() {
        return Err(missing("path"));
    }
    if path.contains(char::is_control) {
        return Err(bad("path"));
    }
    if path.len() > PATH_MAX {
        return Err(bad("path: it is too long"));
    }
    Ok(SftpLocation { user, host: host.to_owned(), port, path: path.to_owned() })
}

/// Whether the SSH client takes it for a name, and not for an option or several words.
fn is_argument(word: &str) -> bool {
    !word.is_empty() && !word.starts_with('-') && !word.contains(|c: char| c.is_control() || c.is_whitespace())
}

/// Splits host and port; brackets around an address are removed.
fn split_port(host: &str, has_port: bool) -> Option<(&str, Option<&str>)> {
    let (address, rest) = match host.strip_prefix('[') {
        Some(bracketed) => bracketed.split_once(']')?,
        None if has_port => {
            let end = host.find(':').unwrap_or(host.len());
            host.split_at(end)
        }
        None => (host, ""),
    };
    match rest.strip_prefix(':') {
        Some(port) if has_port => Some((address, Some(port))),
        None if rest.is_empty() => Some((address, None)),
        _ => None,
    }
}

impl fmt::Display for SftpLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { user, host, port, path } = self;
        let user = user.as_ref().map(|user| format!("{user}@")).unwrap_or_default();
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        match port {
            Some(port) => write!(f, "sftp://{user}{host}:{port}/{path}"),
            // In the short form, `host:path@…` would be a user with a password.
            None if path.contains('@') => write!(f, "sftp://{user}{host}/{path}"),
            None => write!(f, "sftp:{user}{host}:{path}"),
        }
    }
}
