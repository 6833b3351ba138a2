//! The location of a repository, as users write it.
//!
//! | written as                              | meaning                                              |
//! |-----------------------------------------|------------------------------------------------------|
//! | `/path`, `./path`, `path`               | a local folder                                       |
//! | `file:///path`                          | a local folder                                       |
//! | `local:/path`, `local:path`             | a local folder, as restic writes it                  |
//! | `s3://bucket/prefix`                    | S3; endpoint and region from `AWS_*`                 |
//! | `s3:https://host[:port]/bucket/prefix`  | an S3-compatible server (`s3:http://` for plain HTTP) |
//! | `s3:host[:port]/bucket/prefix`          | the same, over HTTPS                                 |
//! | `azure://container/prefix` (or `az://`) | Azure Blob Storage; account from `AZURE_*`           |
//! | `gs://bucket/prefix`                    | Google Cloud Storage; credentials from `GOOGLE_*`    |
//! | `sftp:[user@]host:path`                 | a folder of an SFTP server                           |
//! | `sftp://[user@]host[:port]/path`        | the same; `//path` for one that is not below the home |
//! | `memory:`                               | an empty store of this process, for trials           |
//!
//! Invariant: a location holds no secret. Addresses with a password or a query are refused, and
//! those of clouds with a user. The refusal does not repeat them, so locations can be printed and
//! logged anywhere.

mod sftp;

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use larder_format::ErrorKind;
use url::{Host, Url};

/// The location of a repository. Displays as it is written; shows no secrets because it has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// A folder of this machine.
    Local(PathBuf),
    /// A bucket of S3 or of a server that speaks its protocol.
    S3 {
        /// Scheme, host and port of the server; `None` for the one the environment names, or else
        /// Amazon's.
        endpoint: Option<String>,
        /// The bucket.
        bucket: String,
        /// Path of the repository in the bucket; may be empty.
        prefix: String,
    },
    /// A container of Azure Blob Storage.
    Azure {
        /// The container.
        container: String,
        /// Path of the repository in the container; may be empty.
        prefix: String,
    },
    /// A bucket of Google Cloud Storage.
    Gcs {
        /// The bucket.
        bucket: String,
        /// Path of the repository in the bucket; may be empty.
        prefix: String,
    },
    /// A folder of another machine, reached over SSH.
    Sftp(SftpLocation),
    /// An empty store in this process's memory.
    Memory,
}

/// A folder that an SFTP server offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SftpLocation {
    /// The user there; `None` for the one that the SSH client chooses.
    pub user: Option<String>,
    /// The machine, or a name from the configuration of the SSH client.
    pub host: String,
    /// The port; `None` for the one that the SSH client chooses.
    pub port: Option<u16>,
    /// The folder; without a slash at its beginning it is below the user's home.
    pub path: String,
}

/// The forms that a location may have, for messages.
pub const LOCATION_FORMS: &str = "/path, ./path, file:///path, s3://bucket/prefix, s3:https://host[:port]/bucket/prefix, \
                                  azure://container/prefix, gs://bucket/prefix, sftp:user@host:/path, \
                                  sftp://user@host:port//path";

/// A location that cannot be understood, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}; accepted are {LOCATION_FORMS}")]
pub struct LocationError {
    /// The reason.
    pub problem: LocationProblem,
}

impl LocationError {
    /// How a caller can react to it.
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::BadRequest
    }
}

/// Why a location is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LocationProblem {
    /// Nothing was given.
    #[error("the repository location is empty")]
    Empty,
    /// The part before the colon is not known.
    #[error("repository locations beginning with {scheme:?} are not known")]
    UnknownScheme {
        /// The text before the colon.
        scheme: String,
    },
    /// The location ends before the bucket.
    #[error("the repository location {text:?} names no {what}")]
    Missing {
        /// The location.
        text: String,
        /// "bucket", "container", "host", "path".
        what: &'static str,
    },
    /// The bucket, host or path has a form that cannot be.
    #[error("the repository location {text:?} has a bad {what}")]
    Bad {
        /// The location.
        text: String,
        /// "bucket", "host", ...
        what: &'static str,
    },
    /// A user, password, query or fragment, which might contain keys.
    #[error("the repository location must not hold a user, a password or a query: keys belong into the environment")]
    Secret,
    /// `user@host:path`, as SSH has it.
    #[error(
        "the repository location {text:?} looks like a place on another machine: write \
             sftp:{text} for that, or ./{text} for a folder here"
    )]
    Elsewhere {
        /// The location.
        text: String,
    },
    /// `~` that no shell has replaced.
    #[error("the repository location {text:?} begins with ~, which only a shell replaces: write the folder out")]
    Tilde {
        /// The location.
        text: String,
    },
}

impl From<LocationProblem> for LocationError {
    fn from(problem: LocationProblem) -> Self {
        Self { problem }
    }
}

impl Location {
    /// Reads a location from an argument or variable, which may be a path that is not UTF-8.
    pub fn from_os(text: &OsStr) -> Result<Self, LocationError> {
        match text.to_str() {
            Some(text) => text.parse(),
            None => Ok(Self::Local(PathBuf::from(text))),
        }
    }
}

impl FromStr for Location {
    type Err = LocationError;

    fn from_str(text: &str) -> Result<Self, LocationError> {
        Ok(parse(text)?)
    }
}

fn parse(text: &str) -> Result<Location, LocationProblem> {
    if text.is_empty() {
        return Err(LocationProblem::Empty);
    }
    if text.contains('\0') {
        return Err(LocationProblem::Bad { text: text.to_owned(), what: "path: it holds a zero byte" });
    }
    // A path may hold colons; only a word before the first one counts as a scheme.
    let scheme = text.split_once(':').filter(|(scheme, _)| {
        scheme.len() > 1 && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
    });
    let Some((scheme, rest)) = scheme.filter(|(scheme, _)| !scheme.starts_with('.')) else {
        if text.split_once(':').is_some_and(|(host, _)| host.contains('@') && !host.contains('/')) {
            return Err(LocationProblem::Elsewhere { text: text.to_owned() });
        }
        return parse_path(text);
    };
    match scheme.to_ascii_lowercase().as_str() {
        "file" => parse_file_url(text),
        "local" if rest.is_empty() => Err(LocationProblem::Missing { text: text.to_owned(), what: "path" }),
        "local" => parse_path(rest),
        "s3" => parse_s3(text, rest),
        "azure" | "az" => {
            parse_bucket(text, rest, "container").map(|(container, prefix)| Location::Azure { container, prefix })
        }
        "gs" => parse_bucket(text, rest, "bucket").map(|(bucket, prefix)| Location::Gcs { bucket, prefix }),
        "sftp" => sftp::parse(text, rest).map(Location::Sftp),
        "memory" if rest.trim_matches('/').is_empty() => Ok(Location::Memory),
        _ => Err(LocationProblem::UnknownScheme { scheme: format!("{scheme}:") }),
    }
}

fn parse_path(text: &str) -> Result<Location, LocationProblem> {
    if text == "~" || text.starts_with("~/") {
        return Err(LocationProblem::Tilde { text: text.to_owned() });
    }
    Ok(Location::Local(PathBuf::from(text)))
}

fn parse_file_url(text: &str) -> Result<Location, LocationProblem> {
    let bad = |what| LocationProblem::Bad { text: text.to_owned(), what };
    // `file:name` would be read as `/name`, so a relative path of this form is refused.
    if !text["file:".len()..].starts_with('/') {
        return Err(bad("path: after file: it must begin with /"));
    }
    let url = Url::parse(text).map_err(|_| bad("path"))?;
    if url.query().is_some() || url.fragment().is_some() {
        return Err(bad("path: write ? as %3F and # as %23"));
    }
    let path = url.to_file_path().map_err(|()| bad("host: a file is on this machine"))?;
    Ok(Location::Local(path))
}

fn parse_s3(text: &str, rest: &str) -> Result<Location, LocationProblem> {
    let lower = rest.to_ascii_lowercase();
    if rest.starts_with("//") {
        let (bucket, prefix) = parse_bucket(text, rest, "bucket")?;
        return Ok(Location::S3 { endpoint: None, bucket, prefix });
    }
    if lower.starts_with("https://") || lower.starts_with("http://") {
        return parse_s3_url(text, rest);
    }
    parse_s3_url(text, &format!("https://{rest}"))
}

fn parse_s3_url(text: &str, url: &str) -> Result<Location, LocationProblem> {
    refuse_secrets(url)?;
    let bad = |what| LocationProblem::Bad { text: text.to_owned(), what };
    let (scheme, rest) = url.split_once("://").ok_or_else(|| bad("address"))?;
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    if authority.is_empty() {
        return Err(LocationProblem::Missing { text: text.to_owned(), what: "host" });
    }
    // Only scheme and host go through the URL parser: it would rewrite the characters of a prefix.
    let endpoint = Url::parse(&format!("{scheme}://{authority}/")).map_err(|_| bad("host"))?;
    if !matches!(endpoint.host(), Some(Host::Domain(_) | Host::Ipv4(_) | Host::Ipv6(_))) {
        return Err(bad("host"));
    }
    let (bucket, prefix) = split_bucket(text, path, "bucket")?;
    let endpoint = endpoint.as_str().trim_end_matches('/').to_owned();
    Ok(Location::S3 { endpoint: Some(endpoint), bucket, prefix })
}

/// Reads `//bucket/prefix`.
fn parse_bucket(text: &str, rest: &str, what: &'static str) -> Result<(String, String), LocationProblem> {
    let Some(path) = rest.strip_prefix("//") else {
        return Err(LocationProblem::Missing { text: text.to_owned(), what });
    };
    refuse_secrets(rest)?;
    split_bucket(text, path, what)
}

/// Refuses parts that could contain a key, before any message repeats the text.
fn refuse_secrets(url: &str) -> Result<(), LocationProblem> {
    let authority = url.split_once("//").map_or(url, |(_, rest)| rest).split('/').next().unwrap_or_default();
    if authority.contains('@') || url.contains(['?', '#']) { Err(LocationProblem::Secret) } else { Ok(()) }
}

fn split_bucket(text: &str, path: &str, what: &'static str) -> Result<(String, String), LocationProblem> {
    let (bucket, prefix) = path.split_once('/').unwrap_or((path, ""));
    if bucket.is_empty() {
        return Err(LocationProblem::Missing { text: text.to_owned(), what });
    }
    // Google allows dots, Azure `$root`; everything that needs escaping in an address must be
    // refused.
    if !bucket.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'$'))
        || bucket.len() > 255
    {
        return Err(LocationProblem::Bad { text: text.to_owned(), what });
    }
    let prefix = prefix.trim_end_matches('/');
    // Two slashes in a row, or a leading one, make keys that other tools cannot show or reach.
    let odd = |part: &str| part.is_empty() || part == "." || part == ".." || part.contains(char::is_control);
    if !prefix.is_empty() && prefix.split('/').any(odd) {
        return Err(LocationProblem::Bad { text: text.to_owned(), what: "prefix" });
    }
    // With names of 240 bytes below it, a key stays under the 1,024 bytes that stores allow.
    if prefix.len() > 700 {
        return Err(LocationProblem::Bad { text: text.to_owned(), what: "prefix: it is too long" });
    }
    Ok((bucket.to_owned(), prefix.to_owned()))
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (start, bucket, prefix) = match self {
            Self::Local(path) => return write_path(f, path),
            Self::Memory => return f.write_str("memory:"),
            Self::Sftp(sftp) => return sftp.fmt(f),
            Self::S3 { endpoint: None, bucket, prefix } => ("s3://".to_owned(), bucket, prefix),
            Self::S3 { endpoint: Some(endpoint), bucket, prefix } => (format!("s3:{endpoint}/"), bucket, prefix),
            Self::Azure { container, prefix } => ("azure://".to_owned(), container, prefix),
            Self::Gcs { bucket, prefix } => ("gs://".to_owned(), bucket, prefix),
        };
        write!(f, "{start}{bucket}")?;
        if prefix.is_empty() { Ok(()) } else { write!(f, "/{prefix}") }
    }
}

/// A relative path that looks like a scheme is shown with `./`, so that the shown text can be read
/// back.
fn write_path(f: &mut fmt::Formatter<'_>, path: &Path) -> fmt::Result {
    let shown = path.display().to_string();
    match parse(&shown) {
        Ok(Location::Local(_)) => f.write_str(&shown),
        _ => write!(f, "./{shown}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn s3(endpoint: Option<&str>, bucket: &str, prefix: &str) -> Location {
        Location::S3 { endpoint: endpoint.map(str::to_owned), bucket: bucket.to_owned(), prefix: prefix.to_owned() }
    }

    fn sftp(user: Option<&str>, host: &str, port: Option<u16>, path: &str) -> Location {
        Location::Sftp(SftpLocation { user: user.map(str::to_owned), host: host.into(), port, path: path.into() })
    }

    #[test]
    fn every_form_is_understood() {
        let local = |path: &str| Location::Local(PathBuf::from(path));
        for (text, location) in [
            ("/srv/backup", local("/srv/backup")),
            ("./backup", local("./backup")),
            ("backup", local("backup")),
            ("../x:y", local("../x:y")),
            ("file:///srv/a%20b", local("/srv/a b")),
            ("file://localhost/srv", local("/srv")),
            ("s3://bucket", s3(None, "bucket", "")),
            ("s3://bucket/a/b/", s3(None, "bucket", "a/b")),
            ("s3:https://minio.example:9000/bucket/p", s3(Some("https://minio.example:9000"), "bucket", "p")),
            ("s3:http://127.0.0.1:9000/bucket", s3(Some("http://127.0.0.1:9000"), "bucket", "")),
            ("s3:http://[::1]:9000/bucket", s3(Some("http://[::1]:9000"), "bucket", "")),
            ("s3:s3.example.com/bucket/p q", s3(Some("https://s3.example.com"), "bucket", "p q")),
            ("azure://box/p", Location::Azure { container: "box".into(), prefix: "p".into() }),
            ("az://box", Location::Azure { container: "box".into(), prefix: String::new() }),
            ("gs://bucket/p", Location::Gcs { bucket: "bucket".into(), prefix: "p".into() }),
            ("local:/srv/backup", local("/srv/backup")),
            ("local:backup", local("backup")),
            ("memory:", Location::Memory),
            ("sftp:host:/srv/b", sftp(None, "host", None, "/srv/b")),
            ("sftp:me@host:b", sftp(Some("me"), "host", None, "b")),
            ("sftp:me@corp.example@host:b/", sftp(Some("me@corp.example"), "host", None, "b")),
            ("sftp:[::1]:/b", sftp(None, "::1", None, "/b")),
            ("sftp://host/b", sftp(None, "host", None, "b")),
            ("sftp://me@host:2222//srv/b", sftp(Some("me"), "host", Some(2222), "/srv/b")),
            ("sftp://[fe80::1]:22//b", sftp(None, "fe80::1", Some(22), "/b")),
            ("sftp:host:/", sftp(None, "host", None, "/")),
        ] {
            assert_eq!(text.parse(), Ok(location), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_a_location_is_named_with_the_accepted_forms() {
        for (text, says) in [
            ("", "empty"),
            ("rclone:remote:x", "\"rclone:\" are not known"),
            ("sftp:host", "no path"),
            ("sftp:host:", "no path"),
            ("sftp:/me@host:b", "bad user"),
            ("me@host:b", "write sftp:me@host:b for that, or ./me@host:b for a folder here"),
            ("me@host:/srv/b", "another machine"),
            ("sftp://host", "no path"),
            ("sftp://host/", "no path"),
            ("sftp::/x", "no host"),
            ("sftp:@host:/x", "bad user"),
            ("sftp:-oProxyCommand=x:/x", "bad host"),
            ("sftp:-l@host:/x", "bad user"),
            ("sftp://host:0/x", "bad port"),
            ("sftp://[::1/x", "bad host"),
            ("sftp:host:~/x", "only a shell replaces"),
            ("https://host/bucket", "\"https:\" are not known"),
            ("s3:", "no host"),
            ("local:", "no path"),
            ("s3://", "no bucket"),
            ("s3:host", "no bucket"),
            ("s3:https://host/", "no bucket"),
            ("s3:https:///bucket", "no host"),
            ("s3://buc ket/p", "bad bucket"),
            ("s3://bucket//p", "bad prefix"),
            ("s3://bucket/../p", "bad prefix"),
            ("gs:bucket", "no bucket"),
            ("azure:box", "no container"),
            ("memory:x", "not known"),
            ("file:x", "must begin with /"),
            ("file://other/x", "bad host"),
            ("~/backup", "only a shell replaces"),
        ] {
            let error = text.parse::<Location>().expect_err(text).to_string();
            assert!(error.contains(says), "{text}: {error}");
            assert!(error.contains("accepted are /path"), "{error}");
        }
    }

    #[test]
    fn an_address_with_a_secret_is_refused_and_not_repeated() {
        for text in [
            "s3:https://AKIA:hunter2@host/bucket",
            "s3:AKIA:hunter2@host/bucket",
            "s3://AKIA:hunter2@bucket/p",
            "azure://box/p?sig=hunter2",
            "s3:https://host/bucket/p?X-Amz-Signature=hunter2",
            "sftp:me:hunter2@host:/x",
            "sftp://me:hunter2@host/x",
        ] {
            let error = text.parse::<Location>().expect_err(text);
            assert_eq!(error.problem, LocationProblem::Secret);
            assert!(!error.to_string().contains("hunter2"));
        }
    }

    #[test]
    fn a_path_that_is_not_utf8_is_a_folder() {
        use std::os::unix::ffi::OsStrExt;
        let odd = OsStr::from_bytes(b"/srv/\xff");
        assert_eq!(Location::from_os(odd), Ok(Location::Local(PathBuf::from(odd))));
    }

    #[test]
    fn a_path_with_an_at_sign_is_shown_as_it_is_read() {
        for text in ["sftp://host/b@x", "sftp://me@host//srv/b@x"] {
            let location: Location = text.parse().expect(text);
            assert_eq!(location.to_string(), text);
        }
    }

    #[test]
    fn a_folder_named_like_a_scheme_is_shown_readably() {
        let odd = Location::Local(PathBuf::from("s3:x"));
        assert_eq!(odd.to_string(), "./s3:x");
    }

    proptest! {
        #[test]
        fn anything_accepted_is_shown_as_it_is_read(text in "(s3:|s3://|sftp:|sftp://|azure://|gs://|file://|http://|/|\\./)?[a-z0-9./:@?~ %-]{0,24}") {
            if let Ok(location) = text.parse::<Location>() {
                // A path that is no text (`file:///%a0`) cannot be shown exactly: the shown form is
                // for people.
                if matches!(&location, Location::Local(path) if path.to_str().is_none()) {
                    return Ok(());
                }
                prop_assert_eq!(location.to_string().parse::<Location>(), Ok(location));
            }
        }
    }
}
