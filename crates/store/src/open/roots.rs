//! Certificates of authorities for machines that have none, such as an empty container.
//!
//! The TLS client refuses to start without any authority, even for plain HTTP. A static binary is
//! often all that a container holds, so the program brings Mozilla's list. A list of the system, or
//! one that `SSL_CERT_FILE` or `SSL_CERT_DIR` names, always comes first.

use object_store::{Certificate, ClientOptions};
use rustls_native_certs::load_native_certs;
use webpki_root_certs::TLS_SERVER_ROOT_CERTS;

use super::{Environment, OpenProblem};
use crate::options::TlsOptions;

/// Adds Mozilla's list of authorities if the system has none and the user names none.
pub(super) fn with_authorities(client: ClientOptions, env: &Environment) -> ClientOptions {
    let is_chosen = ["SSL_CERT_FILE", "SSL_CERT_DIR"].iter().any(|key| env.get(key).is_some());
    if is_chosen || !load_native_certs().certs.is_empty() {
        return client;
    }
    bundled().into_iter().fold(client, ClientOptions::with_root_certificate)
}

/// Adds what the user chose.
pub(super) fn with_chosen(client: ClientOptions, tls: &TlsOptions) -> Result<ClientOptions, OpenProblem> {
    let client = if tls.accepts_anyone { client.with_allow_invalid_certificates(true) } else { client };
    let Some(path) = &tls.authorities else { return Ok(client) };
    let path_text = || path.display().to_string();
    let pem = std::fs::read(path)
        .map_err(|error| OpenProblem::Authorities { path: path_text(), error: error.to_string() })?;
    match Certificate::from_pem_bundle(&pem) {
        Ok(chosen) if !chosen.is_empty() => Ok(chosen.into_iter().fold(client, ClientOptions::with_root_certificate)),
        _ => Err(OpenProblem::NoAuthority { path: path_text() }),
    }
}

/// Mozilla's list. A certificate that the client cannot read is left out.
fn bundled() -> Vec<Certificate> {
    TLS_SERVER_ROOT_CERTS.iter().filter_map(|certificate| Certificate::from_der(certificate).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bundled_list_is_readable_and_not_added_where_it_is_not_needed() {
        assert_eq!(bundled().len(), TLS_SERVER_ROOT_CERTS.len());
        assert!(bundled().len() > 100, "Mozilla trusts more than a hundred authorities");
        // The variable is honoured even where its file is missing: the user decides.
        let chosen = Environment::from([("SSL_CERT_FILE", "/nowhere")]);
        let client = with_authorities(ClientOptions::new(), &chosen);
        assert_eq!(format!("{client:?}"), format!("{:?}", ClientOptions::new()));
    }
}
