//! TLS from a certificate and its key, both in PEM. Clients show no certificate, but a password.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// A certificate or its key cannot be used.
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
    /// They do not fit.
    #[error("the certificate in {} cannot be used: {message}", path.display())]
    Unusable {
        /// The file of the certificate.
        path: PathBuf,
        /// Why.
        message: String,
    },
}

/// A server's certificate and key.
#[derive(Debug, Clone)]
pub struct Tls(pub(crate) Arc<ServerConfig>);

impl Tls {
    /// Reads a chain of certificates, the server's first, and the key of the first one.
    pub fn from_files(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let unreadable = |path: &Path, message: String| TlsError::File { path: path.to_owned(), message };
        let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let chain = chain.map_err(|error| unreadable(certificate, error.to_string()))?;
        if chain.is_empty() {
            return Err(unreadable(certificate, "it has no certificate".to_owned()));
        }
        let key = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, error.to_string()))?;
        let unusable =
            |error: rustls::Error| TlsError::Unusable { path: certificate.to_owned(), message: error.to_string() };
        // Named here, because a process may have several providers: then `rustls` would refuse to
        // choose.
        let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(unusable)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config)))
    }
}
