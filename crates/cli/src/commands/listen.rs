//! Where a device is served: a Unix socket or TCP, and its URI for clients.

use std::ffi::OsStr;
use std::fs::DirBuilder;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use larder_nbd::{Server, ServerTls};
use larder_store::repository::{SystemEntropy, random};

use crate::args::ListenArgs;
use crate::environment;
use crate::exit::Exit;
use crate::failure::Failure;

/// Where to listen, as the options say.
#[derive(Debug)]
pub(in crate::commands) enum Address {
    /// A socket in a folder that is made for it.
    Private,
    Unix(PathBuf),
    Tcp(SocketAddr),
}

/// Where the server listens.
#[derive(Debug)]
pub(in crate::commands) struct Place {
    pub(in crate::commands) at: At,
    /// Removed at the end.
    folder: Option<PathBuf>,
}

/// A socket, or an address and whether it takes TLS.
#[derive(Debug)]
pub(in crate::commands) enum At {
    Unix(PathBuf),
    Tcp(SocketAddr, bool),
}

impl Address {
    /// Refuses addresses and options that make no sense, before anything is opened.
    pub(in crate::commands) fn of(args: &ListenArgs) -> Result<Self, Failure> {
        let address = match &args.nbd {
            None => Self::Private,
            Some(text) => Self::parse(text)?,
        };
        match &address {
            Self::Tcp(_) if args.tls.is_none() && !args.insecure_tcp => {
                Err(Failure::usage("TCP needs --tls DIR, because everybody who can connect could read the device")
                    .advise("--insecure-tcp allows it for this machine, and --nbd unix:/PATH needs neither"))
            }
            Self::Tcp(address) if args.insecure_tcp && !address.ip().is_loopback() => {
                Err(Failure::usage("--insecure-tcp is only for addresses of this machine, such as 127.0.0.1:10809"))
            }
            Self::Private | Self::Unix(_) if args.tls.is_some() || args.insecure_tcp => {
                Err(Failure::usage("--tls and --insecure-tcp need --nbd HOST:PORT"))
            }
            _ => Ok(address),
        }
    }

    fn parse(text: &OsStr) -> Result<Self, Failure> {
        if let Some(path) = text.as_bytes().strip_prefix(b"unix:") {
            let path = PathBuf::from(OsStr::from_bytes(path));
            let path = std::path::absolute(path).map_err(|_| Failure::usage("--nbd unix: needs a path"))?;
            return Ok(Self::Unix(path));
        }
        let wrong = || Failure::usage("--nbd takes unix:/PATH or HOST:PORT, such as 127.0.0.1:10809");
        let text = text.to_str().ok_or_else(wrong)?;
        let mut found = text.to_socket_addrs().map_err(|_| wrong())?;
        found.next().map(Self::Tcp).ok_or_else(wrong)
    }

    /// Starts to listen.
    pub(in crate::commands) fn listen(self, server: &Server, tls: Option<&Path>) -> Result<Place, Failure> {
        let at = match &self {
            Self::Private => "a private socket".to_owned(),
            Self::Unix(socket) => socket.display().to_string(),
            Self::Tcp(address) => address.to_string(),
        };
        let failed = |error: std::io::Error| Failure::of_file(&error).while_doing(&format!("cannot listen on {at}"));
        match self {
            Self::Private => {
                let folder = private_folder()?;
                let socket = folder.join("nbd.sock");
                let place = Place { at: At::Unix(socket.clone()), folder: Some(folder) };
                server.listen_unix(&socket).map_err(failed)?;
                Ok(place)
            }
            Self::Unix(socket) => {
                server.listen_unix(&socket).map_err(failed)?;
                Ok(Place::of(At::Unix(socket)))
            }
            Self::Tcp(address) => {
                let bound = match tls {
                    None => server.listen_insecure(address).map_err(failed)?,
                    Some(folder) => {
                        let tls = ServerTls::from_folder(folder).map_err(|error| Failure::of(Exit::Failed, &error))?;
                        server.listen_tls(address, tls).map_err(failed)?
                    }
                };
                Ok(Place::of(At::Tcp(bound, tls.is_some())))
            }
        }
    }
}

impl Place {
    /// One without a folder of its own.
    pub(in crate::commands) fn of(at: At) -> Self {
        Self { at, folder: None }
    }

    /// The URI of an export, as NBD programs take it.
    pub(in crate::commands) fn uri(&self, export: &str) -> String {
        let name = escaped(export.as_bytes());
        let authority = |address: &SocketAddr| match address.ip().is_unspecified() {
            false => address.to_string(),
            true => format!("{}:{}", host_of(address), address.port()),
        };
        match &self.at {
            At::Unix(socket) => format!("nbd+unix:///{name}?socket={}", escaped(socket.as_os_str().as_bytes())),
            At::Tcp(address, false) => format!("nbd://{}/{name}", authority(address)),
            At::Tcp(address, true) => format!("nbds://{}/{name}", authority(address)),
        }
    }
}

/// The host that clients connect to: all addresses of this machine together are its name.
pub(in crate::commands) fn host_of(address: &SocketAddr) -> String {
    match address.ip() {
        ip if ip.is_unspecified() => environment::host(),
        ip => ip.to_string(),
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder {
            // The server removes its socket. An empty folder that stays does no harm.
            drop(std::fs::remove_dir(folder));
        }
    }
}

/// A new folder that only this user can enter.
pub(in crate::commands) fn private_folder() -> Result<PathBuf, Failure> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|folder| folder.is_dir());
    let parent = runtime.unwrap_or_else(std::env::temp_dir);
    let number: [u8; 8] = random(&SystemEntropy)?;
    let folder = parent.join(format!("larder-{}", data_encoding::HEXLOWER.encode(&number)));
    DirBuilder::new().mode(0o700).create(&folder).map_err(|error| {
        Failure::of(Exit::Failed, &error).while_doing(&format!("cannot create the folder {}", folder.display()))
    })?;
    Ok(folder)
}

/// Text in a URI: everything but common characters and slashes as `%XX`.
fn escaped(text: &[u8]) -> String {
    let mut escaped = String::new();
    for byte in text {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' | b'~' => {
                escaped.push(char::from(*byte))
            }
            byte => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_sockets_or_hosts_with_ports() {
        let parse = |text: &str| Address::parse(OsStr::new(text));
        assert!(matches!(parse("unix:/run/a b.sock"), Ok(Address::Unix(path)) if path == Path::new("/run/a b.sock")));
        assert!(matches!(parse("127.0.0.1:10809"), Ok(Address::Tcp(address)) if address.port() == 10809));
        assert!(matches!(parse("[::1]:1"), Ok(Address::Tcp(address)) if address.is_ipv6()));
        for bad in ["", "/run/a.sock", "127.0.0.1", ":", "unix:"] {
            assert_eq!(parse(bad).unwrap_err().exit, Exit::Usage, "{bad}");
        }
    }

    #[test]
    fn names_are_escaped_in_uris() {
        let place = Place::of;
        assert_eq!(
            place(At::Unix("/run/a b?.sock".into())).uri("images/disk #1"),
            "nbd+unix:///images/disk%20%231?socket=/run/a%20b%3F.sock"
        );
        let address = "[::1]:10809".parse().unwrap();
        assert_eq!(place(At::Tcp(address, false)).uri("a"), "nbd://[::1]:10809/a");
        assert_eq!(place(At::Tcp(address, true)).uri("a"), "nbds://[::1]:10809/a");
        for all in ["0.0.0.0:10809", "[::]:10809"] {
            let place = place(At::Tcp(all.parse().unwrap(), true));
            assert_eq!(place.uri("a"), format!("nbds://{}:10809/a", environment::host()));
        }
    }

    #[test]
    fn a_private_folder_is_private_and_goes() {
        let folder = private_folder().unwrap();
        let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&folder).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o700);
        drop(Place { at: At::Unix(folder.join("nbd.sock")), folder: Some(folder.clone()) });
        assert!(!folder.exists());
    }
}
