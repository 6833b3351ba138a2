//! Sockets that a server listens on.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

use larder_nbd::client::{Address, Client, Options};

use crate::support::server;

fn disk() -> Options {
    Options { export: "disk".into(), ..Options::default() }
}

#[test]
fn a_unix_socket_is_for_its_owner_only_and_goes_with_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let server = server();
    server.listen_unix(&path).unwrap();
    assert_eq!(fs::symlink_metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let client = Client::connect(&Address::Unix(&path), &disk()).unwrap();
    client.write(0, b"data", true).unwrap();
    assert_eq!(client.read(0, 4).unwrap(), b"data");
    let listed = Client::list(&Address::Unix(&path), &disk()).unwrap();
    assert_eq!(listed.iter().map(|export| &export.name[..]).collect::<Vec<_>>(), ["disk"]);
    drop(client);
    server.shutdown().unwrap();
    assert!(!path.exists());
}

#[test]
fn the_socket_of_a_dead_server_is_replaced_and_that_of_a_living_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "a server that was killed leaves its file");
    let (first, second) = (server(), server());
    first.listen_unix(&path).unwrap();
    let error = second.listen_unix(&path).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    drop(second);
    Client::connect(&Address::Unix(&path), &disk()).unwrap();
    // The file of somebody else stays.
    fs::remove_file(&path).unwrap();
    fs::write(&path, "mine").unwrap();
    assert_eq!(server().listen_unix(&path).unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
    drop(first);
    assert_eq!(fs::read(&path).unwrap(), b"mine");
}

/// Anybody who can read the folder can lock it.
#[test]
fn a_locked_folder_is_an_error_and_no_endless_wait() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let theirs = fs::File::open(folder.path()).unwrap();
    theirs.lock().unwrap();
    let error = server().listen_unix(&path).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    assert!(error.to_string().contains("holds a lock of the folder"), "{error}");
    assert!(!path.exists());
    drop(theirs);
    server().listen_unix(&path).unwrap();
}

#[test]
fn tcp_without_tls_is_for_loopback_only() {
    let server = server();
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    assert_eq!(server.listen_insecure(any).unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
    let address = server.listen_insecure(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let client = Client::connect(&Address::Tcp(&address.to_string()), &disk()).unwrap();
    client.write(5, b"over tcp", false).unwrap();
    assert_eq!(client.read(4, 9).unwrap(), b"\0over tcp");
    drop(client);
    server.shutdown().unwrap();
    assert!(Client::connect(&Address::Tcp(&address.to_string()), &disk()).is_err());
}
