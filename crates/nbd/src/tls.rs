//! TLS from a folder of certificates, as other NBD programs name them.
//!
//! | file | of |
//! |---|---|
//! | `ca-cert.pem` | both: the authority that signed the other side |
//! | `server-cert.pem`, `server-key.pem` | servers |
//! | `client-cert.pem`, `client-key.pem` | clients |
//!
//! Both sides show a certificate. Keys that both sides share (PSK) are not supported, because
//! `rustls` does not have them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// A folder does not have what TLS needs.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file is missing, or not in PEM.
    #[error("cannot read {}: {message}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        message: String,
    },
    /// The certificates do not fit.
    #[error("the certificates in {} cannot be used: {message}", folder.display())]
    Unusable {
        /// The folder.
        folder: PathBuf,
        /// Why.
        message: String,
    },
}

impl From<TlsError> for io::Error {
    fn from(error: TlsError) -> Self {
        Self::new(io::ErrorKind::InvalidInput, error)
    }
}

/// A server's certificate and the authority of its clients.
#[derive(Debug, Clone)]
pub struct ServerTls(Arc<ServerConfig>);

/// A client's certificate and the authority of its servers.
#[derive(Debug, Clone)]
pub struct ClientTls(Arc<ClientConfig>);

impl ServerTls {
    /// Reads `ca-cert.pem`, `server-cert.pem` and `server-key.pem`.
    pub fn from_folder(folder: &Path) -> Result<Self, TlsError> {
        let unusable = |message: String| TlsError::Unusable { folder: folder.to_owned(), message };
        let roots = Arc::new(authority(folder)?);
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider()).build();
        let verifier = verifier.map_err(|error| unusable(error.to_string()))?;
        let (chain, key) = identity(folder, "server")?;
        let config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(error.to_string()))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .map_err(|error| unusable(error.to_string()))?;
        Ok(Self(Arc::new(config)))
    }

    pub(crate) fn config(&self) -> &Arc<ServerConfig> {
        &self.0
    }
}

impl ClientTls {
    /// Reads `ca-cert.pem`, `client-cert.pem` and `client-key.pem`.
    pub fn from_folder(folder: &Path) -> Result<Self, TlsError> {
        let unusable = |message: String| TlsError::Unusable { folder: folder.to_owned(), message };
        let (chain, key) = identity(folder, "client")?;
        let config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(error.to_string()))?
            .with_root_certificates(authority(folder)?)
            .with_client_auth_cert(chain, key)
            .map_err(|error| unusable(error.to_string()))?;
        Ok(Self(Arc::new(config)))
    }

    pub(crate) fn config(&self) -> &Arc<ClientConfig> {
        &self.0
    }
}

/// Named here, because a process may have several: then `rustls` would refuse to choose.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

fn unreadable(path: &Path, message: impl ToString) -> TlsError {
    TlsError::File { path: path.to_owned(), message: message.to_string() }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(path).map_err(|error| unreadable(path, error))?;
    let found = read.collect::<Result<Vec<_>, _>>().map_err(|error| unreadable(path, error))?;
    if found.is_empty() {
        return Err(unreadable(path, "it has no certificate"));
    }
    Ok(found)
}

fn authority(folder: &Path) -> Result<RootCertStore, TlsError> {
    let path = folder.join("ca-cert.pem");
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&path)? {
        roots.add(certificate).map_err(|error| unreadable(&path, error))?;
    }
    Ok(roots)
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn identity(folder: &Path, side: &str) -> Result<Identity, TlsError> {
    let chain = certificates(&folder.join(format!("{side}-cert.pem")))?;
    let path = folder.join(format!("{side}-key.pem"));
    let key = PrivateKeyDer::from_pem_file(&path).map_err(|error| unreadable(&path, error))?;
    Ok((chain, key))
}
