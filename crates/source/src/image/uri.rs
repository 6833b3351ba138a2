//! Addresses of network block devices, in the form that other programs use:
//!
//! | address | server |
//! |---|---|
//! | `nbd://HOST[:PORT]/[EXPORT]` | TCP |
//! | `nbds://HOST[:PORT]/[EXPORT]?tls-certificates=FOLDER` | TCP with TLS |
//! | `nbd+unix:///[EXPORT]?socket=PATH` | a Unix socket |

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::str::FromStr;

use larder_nbd::ClientTls;
use larder_nbd::client::Address;

use super::ImageError;

/// The port of a server that names none.
const PORT: u16 = 10809;

/// An address. It is shown as it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NbdUri {
    text: String,
    server: Server,
    /// Name of the export; empty for the default one.
    export: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Server {
    Unix(PathBuf),
    /// Host and port, and the folder with certificates for TLS.
    Tcp(String, Option<PathBuf>),
}

impl NbdUri {
    /// Whether a text is meant as such an address.
    pub fn is_one(text: &str) -> bool {
        let scheme = text.split("://").next().unwrap_or_default();
        scheme.len() < text.len() && matches!(scheme, "nbd" | "nbds" | "nbd+unix" | "nbds+unix")
    }

    /// Name of the export; empty for the default one.
    pub fn export(&self) -> &str {
        &self.export
    }

    /// Calls `with` with the address for a client.
    pub(super) fn connect<T>(&self, with: impl FnOnce(&Address<'_>) -> T) -> Result<T, ImageError> {
        Ok(match &self.server {
            Server::Unix(path) => with(&Address::Unix(path)),
            Server::Tcp(host, None) => with(&Address::Tcp(host)),
            Server::Tcp(host, Some(folder)) => with(&Address::Tls(host, &ClientTls::from_folder(folder)?)),
        })
    }
}

impl fmt::Display for NbdUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for NbdUri {
    type Err = ImageError;

    fn from_str(text: &str) -> Result<Self, ImageError> {
        let wrong = |why| ImageError::Uri { uri: text.to_owned(), why };
        let (scheme, rest) = text.split_once("://").ok_or_else(|| wrong("it has no scheme"))?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (host, export) = place.split_once('/').unwrap_or((place, ""));
        let text_of = |part: &str| decoded(part).and_then(|bytes| String::from_utf8(bytes).ok());
        let export = text_of(export).ok_or_else(|| wrong("the name of the export is no text"))?;
        let (mut socket, mut certificates) = (None, None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decoded(value).ok_or_else(|| wrong("a percent sign is not followed by two digits"))?;
            let value = PathBuf::from(OsString::from_vec(value));
            match key {
                "socket" => socket = Some(value),
                "tls-certificates" => certificates = Some(value),
                _ => return Err(wrong("the only parameters are socket and tls-certificates")),
            }
        }
        let server = match (scheme, socket) {
            ("nbd+unix", Some(socket)) if host.is_empty() && certificates.is_none() => Server::Unix(socket),
            ("nbd+unix", None) => return Err(wrong("it has no ?socket=PATH")),
            ("nbd+unix", _) => return Err(wrong("a socket has neither a host nor certificates")),
            ("nbds+unix", _) => return Err(wrong("TLS over a Unix socket is not supported")),
            ("nbd" | "nbds", None) if host.is_empty() => return Err(wrong("it has no host")),
            ("nbd", None) if certificates.is_none() => Server::Tcp(with_port(host), None),
            ("nbd", None) => return Err(wrong("certificates need nbds://")),
            ("nbds", None) if certificates.is_some() => Server::Tcp(with_port(host), certificates),
            ("nbds", None) => return Err(wrong("it has no ?tls-certificates=FOLDER")),
            ("nbd" | "nbds", Some(_)) => return Err(wrong("a socket needs nbd+unix://")),
            _ => return Err(wrong("the schemes are nbd, nbds and nbd+unix")),
        };
        Ok(Self { text: text.to_owned(), server, export })
    }
}

/// The host with the port of those that name none.
fn with_port(host: &str) -> String {
    // An IPv6 address is in brackets, and has colons itself.
    let after = host.rsplit_once(']').map_or(host, |(_, after)| after);
    if after.contains(':') { host.to_owned() } else { format!("{host}:{PORT}") }
}

/// Bytes of a text with percent signs before two hex digits.
fn decoded(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+'))?);
        rest = &rest[2..];
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> NbdUri {
        text.parse().expect("an address")
    }

    #[test]
    fn addresses_of_other_programs_are_understood() {
        let unix = parsed("nbd+unix:///a%20disk?socket=/run/%41.sock");
        assert_eq!((&unix.server, unix.export()), (&Server::Unix("/run/A.sock".into()), "a disk"));
        assert_eq!(unix.to_string(), "nbd+unix:///a%20disk?socket=/run/%41.sock");
        let bare = |host: &str| Server::Tcp(host.to_owned(), None);
        assert_eq!(parsed("nbd://host").server, bare("host:10809"));
        assert_eq!(parsed("nbd://host:1/x/y").server, bare("host:1"));
        assert_eq!(parsed("nbd://host:1/x/y").export(), "x/y");
        assert_eq!(parsed("nbd://[::1]/").server, bare("[::1]:10809"));
        assert_eq!(parsed("nbd://[::1]:2/").server, bare("[::1]:2"));
        let tls = parsed("nbds://host/disk?tls-certificates=/etc/pki");
        assert_eq!(tls.server, Server::Tcp("host:10809".to_owned(), Some("/etc/pki".into())));
    }

    #[test]
    fn others_are_refused_with_a_reason() {
        for text in [
            "nbd+unix:///disk",
            "nbd+unix://host/disk?socket=/a",
            "nbds+unix:///disk?socket=/a",
            "nbd:///disk",
            "nbd://host/disk?socket=/a",
            "nbd://host/disk?tls-certificates=/a",
            "nbds://host/disk",
            "nbd://host/disk?other=1",
            "nbd://host/%4",
            "nbd://host/%+4",
            "nbd://host/%ff",
            "http://host/",
            "/a/file",
        ] {
            assert!(matches!(text.parse::<NbdUri>(), Err(ImageError::Uri { .. })), "{text}");
        }
        assert!(NbdUri::is_one("nbds://x") && NbdUri::is_one("nbd+unix:///") && !NbdUri::is_one("/nbd://"));
        assert!(!NbdUri::is_one("nbd") && !NbdUri::is_one("raw:nbd"));
    }
}
