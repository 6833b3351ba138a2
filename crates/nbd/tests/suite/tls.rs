//! TLS with certificates on both sides.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;

use larder_nbd::client::{Address, Client, Options};
use larder_nbd::codec::option::ClientOption;
use larder_nbd::{ClientTls, Server, ServerTls, TlsError};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;

use crate::support::server;

/// A folder with an authority, and certificates that it signed.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: String| fs::write(folder.path().join(name), text).unwrap();
    let mut authority = CertificateParams::new(vec![]).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    write("ca-cert.pem", authority.pem());
    for side in ["server", "client"] {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        write(&format!("{side}-cert.pem"), certificate.signed_by(&key, &authority).unwrap().pem());
        write(&format!("{side}-key.pem"), key.serialize_pem());
    }
    folder
}

fn listening(folder: &Path) -> (Server, String) {
    let server = server();
    let tls = ServerTls::from_folder(folder).unwrap();
    let address = server.listen_tls(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), tls).unwrap();
    (server, address.to_string())
}

fn disk() -> Options {
    Options { export: "disk".into(), ..Options::default() }
}

#[test]
fn data_goes_over_tls_in_both_directions() {
    let folder = folder();
    let (server, address) = listening(folder.path());
    let tls = ClientTls::from_folder(folder.path()).unwrap();
    let address = Address::Tls(&address, &tls);
    assert_eq!(Client::list(&address, &disk()).unwrap()[0].name, "disk");
    let client = Client::connect(&address, &disk()).unwrap();
    let data: Vec<_> = (0..900_000_u32).map(|at| (at / 3) as u8).collect();
    client.write(7, &data, false).unwrap();
    let tickets: Vec<_> = (0..30).map(|part| client.submit_read(7 + part * 30_000, 30_000).unwrap()).collect();
    for (ticket, part) in tickets.into_iter().zip(data.chunks(30_000)) {
        assert!(client.wait(ticket).unwrap() == part);
    }
    assert!(client.read(7, 900_000).unwrap() == data);
    client.flush().unwrap();
    drop(client);
    server.shutdown().unwrap();
}

#[test]
fn without_tls_nothing_but_starttls_is_answered() {
    let folder = folder();
    let (_server, address) = listening(folder.path());
    let error = Client::connect(&Address::Tcp(&address), &disk()).err().unwrap();
    assert!(error.to_string().contains("TlsRequired"), "{error}");
    // The old way has no error replies.
    let mut raw = TcpStream::connect(&address).unwrap();
    raw.read_exact(&mut [0; 18]).unwrap();
    raw.write_all(&[0, 0, 0, 3]).unwrap();
    raw.write_all(&ClientOption::ExportName("disk".into()).encode()).unwrap();
    assert_eq!(raw.read_to_end(&mut Vec::new()).unwrap(), 0);
    // What was sent in the open is not taken for a part of the session.
    let mut raw = TcpStream::connect(&address).unwrap();
    raw.read_exact(&mut [0; 18]).unwrap();
    let early = [&[0, 0, 0, 3][..], &ClientOption::StartTls.encode(), &ClientOption::List.encode()].concat();
    raw.write_all(&early).unwrap();
    let mut rest = Vec::new();
    // Unread bytes make the end a reset.
    let _ = raw.read_to_end(&mut rest);
    assert_eq!(rest, b"");
}

#[test]
fn certificates_of_another_authority_are_refused_on_both_sides() {
    let (ours, theirs) = (folder(), folder());
    let (_server, address) = listening(ours.path());
    let stranger = ClientTls::from_folder(theirs.path()).unwrap();
    assert!(Client::connect(&Address::Tls(&address, &stranger), &disk()).is_err());
    // The client trusts the server, but not the other way round.
    fs::copy(ours.path().join("ca-cert.pem"), theirs.path().join("ca-cert.pem")).unwrap();
    let stranger = ClientTls::from_folder(theirs.path()).unwrap();
    assert!(Client::connect(&Address::Tls(&address, &stranger), &disk()).is_err());
    // The name counts as well.
    let tls = ClientTls::from_folder(ours.path()).unwrap();
    let stream = TcpStream::connect(&address).unwrap();
    assert!(Client::over_tcp(stream, Some((tls.clone(), "example.org".into())), &disk()).is_err());
    let stream = TcpStream::connect(&address).unwrap();
    assert!(Client::over_tcp(stream, Some((tls, "localhost".into())), &disk()).is_ok());
}

#[test]
fn a_handshake_that_does_not_end_has_a_time_limit() {
    let folder = folder();
    let limits = larder_nbd::Limits { negotiation: std::time::Duration::from_millis(50), ..Default::default() };
    let server = crate::support::server_of(crate::support::Gated::new(), limits);
    let tls = ServerTls::from_folder(folder.path()).unwrap();
    let address = server.listen_tls(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), tls).unwrap();
    let mut raw = TcpStream::connect(address).unwrap();
    raw.read_exact(&mut [0; 18]).unwrap();
    raw.write_all(&[&[0, 0, 0, 3][..], &ClientOption::StartTls.encode()].concat()).unwrap();
    let mut rest = Vec::new();
    raw.read_to_end(&mut rest).unwrap();
    assert_eq!(rest.len(), 20, "the acknowledgement, and nothing else");
}

#[test]
fn a_folder_without_certificates_is_an_error_that_names_the_file() {
    let folder = folder();
    fs::write(folder.path().join("server-cert.pem"), "no certificate").unwrap();
    let error = ServerTls::from_folder(folder.path()).unwrap_err();
    assert!(matches!(&error, TlsError::File { path, .. } if path.ends_with("server-cert.pem")), "{error}");
    fs::remove_file(folder.path().join("ca-cert.pem")).unwrap();
    let error = ClientTls::from_folder(folder.path()).unwrap_err();
    assert!(matches!(&error, TlsError::File { path, .. } if path.ends_with("ca-cert.pem")), "{error}");
    // The key of another certificate.
    let (one, two) = (self::folder(), self::folder());
    fs::copy(two.path().join("server-key.pem"), one.path().join("server-key.pem")).unwrap();
    assert!(matches!(ServerTls::from_folder(one.path()), Err(TlsError::Unusable { .. })));
}
