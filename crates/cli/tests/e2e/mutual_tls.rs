//! A storage that asks its clients for certificates.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

use crate::support::server::Bucket;
use crate::support::{Play, Ran, run};

/// An authority that signs certificates.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(vec![]).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Self(CertifiedIssuer::self_signed(params, key).expect("signed"))
    }

    /// A certificate and its key.
    fn sign(&self) -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        (params.signed_by(&key, &self.0).expect("signed").pem(), key.serialize_pem())
    }

    /// A server's settings: clients have to show a certificate of this authority.
    fn server(&self) -> ServerConfig {
        let (certificate, key) = self.sign();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.0.pem().as_bytes()).expect("PEM")).expect("an authority");
        let provider = Arc::new(aws_lc_rs::default_provider());
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
        let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).expect("PEM")];
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("PEM");
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.expect("versions").with_client_cert_verifier(clients.expect("a verifier"));
        config.with_single_cert(chain, key).expect("they fit")
    }
}

/// TLS in front of a server on this machine, at this port. It ends with its runtime.
fn listen(runtime: &Runtime, config: ServerConfig, server: u16) -> u16 {
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port is free");
    let port = listener.local_addr().expect("an address").port();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    runtime.spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(pass(acceptor.clone(), client, SocketAddr::from(([127, 0, 0, 1], server))));
        }
    });
    port
}

async fn pass(acceptor: TlsAcceptor, client: TcpStream, server: SocketAddr) {
    match acceptor.accept(client).into_fallible().await {
        Ok(mut client) => {
            if let Ok(mut server) = TcpStream::connect(server).await {
                drop(copy_bidirectional(&mut client, &mut server).await);
            }
        }
        // What the client has sent already is read, or the alert would be lost with the connection.
        Err((_, mut client)) => {
            let mut rest = Vec::new();
            drop(tokio::time::timeout(Duration::from_secs(5), client.read_to_end(&mut rest)).await);
        }
    }
}

/// A bucket behind TLS.
struct Scene {
    play: Play,
    bucket: Bucket,
    port: u16,
    authority: Authority,
    _runtime: Runtime,
}

impl Scene {
    fn new() -> Self {
        let (play, authority) = (Play::new(), Authority::new());
        let bucket = Bucket::serve(play.path("bucket"), |_, _| None);
        let runtime = Runtime::new().expect("threads start");
        let port = listen(&runtime, authority.server(), bucket.port());
        play.write("ca.pem", authority.0.pem());
        Self { play, bucket, port, authority, _runtime: runtime }
    }

    /// A file with a certificate and its key.
    fn identity(&self, name: &str, authority: &Authority) -> PathBuf {
        let (certificate, key) = authority.sign();
        self.play.write(name, format!("{certificate}{key}"))
    }

    fn larder(&self, more: &[&str], args: &[&str]) -> Ran {
        let always = ["--cacert", "ca.pem", "--timeout", "1s"];
        let mut command = self.bucket.command(&self.play, [args, &always[..], more].concat());
        run(command.env("LARDER_REPOSITORY", format!("s3:https://localhost:{}/bucket/some/prefix", self.port)))
    }
}

/// Goal: with its certificate a client uses the storage, and without one or with another one it says why not.
#[test]
fn a_client_shows_its_certificate() {
    let scene = Scene::new();
    scene.identity("ours.pem", &scene.authority);
    scene.identity("theirs.pem", &Authority::new());
    scene.play.write("source/file", "contents");
    let ours = ["--tls-client-cert", "ours.pem"];
    scene.larder(&ours, &["init", "--insecure-kdf"]).ok();
    scene.larder(&ours, &["backup", "source"]).ok();
    scene.larder(&ours, &["check", "--read-data"]).ok();
    scene.larder(&[], &["snapshots"]).code(15).says("--tls-client-cert names its file");
    let ran = scene.larder(&["--tls-client-cert", "theirs.pem"], &["snapshots"]).code(15);
    assert!(ran.stderr.contains("does not accept the certificate of --tls-client-cert"), "{}", ran.stderr);
    // The key is missing, and then it is another's.
    let (certificate, _) = scene.authority.sign();
    scene.play.write("half.pem", &certificate);
    let said = "cannot use the client's certificate of half.pem";
    scene.larder(&["--tls-client-cert", "half.pem"], &["snapshots"]).code(15).says(said);
    scene.play.write("mixed.pem", format!("{certificate}{}", scene.authority.sign().1));
    let said = "cannot use the client's certificate of mixed.pem";
    scene.larder(&["--tls-client-cert", "mixed.pem"], &["snapshots"]).code(15).says(said);
    // A configuration has the option too.
    let config = format!(
        "version = 1\n[repositories.far]\nlocation = \"s3:https://localhost:{}/bucket/some/prefix\"\ncacert = \"{}\"\n\
         tls-client-cert = \"{}\"\n",
        scene.port,
        scene.play.path("ca.pem").display(),
        scene.play.path("ours.pem").display()
    );
    scene.play.write("larder.toml", config);
    let mut command = scene.bucket.command(&scene.play, ["--config", "larder.toml", "-r", "far", "snapshots"]);
    run(command.env_remove("LARDER_REPOSITORY")).ok();
}
