//! Certificates of authorities for machines that have none, such as an empty container.
//!
//! The TLS client refuses to start without any authority, even for plain HTTP. A static binary is
//! often all that a container holds, so the program brings Mozilla's list. A list of the system, or
//! one that `SSL_CERT_FILE` or `SSL_CERT_DIR` names, always comes first.

use object_store::{Certificate, ClientOptions};
use reqwest::tls::Certificate as PlainCertificate;
use rustls_native_certs::load_native_certs;
use webpki_root_certs::TLS_SERVER_ROOT_CERTS;

use super::{Environment, OpenProblem};
use crate::options::TlsOptions;

/// Adds Mozilla's list of authorities if the system has none and the user names none.
pub(super) fn with_authorities(client: ClientOptions, env: &Environment) -> ClientOptions {
    if has_authorities(env) {
        return client;
    }
    bundled().into_iter().fold(client, ClientOptions::with_root_certificate)
}

/// Mozilla's list if it is needed, for a client of our own.
pub(super) fn missing(env: &Environment) -> Vec<PlainCertificate> {
    if has_authorities(env) {
        return Vec::new();
    }
    TLS_SERVER_ROOT_CERTS.iter().filter_map(|certificate| PlainCertificate::from_der(certificate).ok()).collect()
}

/// Whether the system has authorities, or the user names some.
fn has_authorities(env: &Environment) -> bool {
    let is_chosen = ["SSL_CERT_FILE", "SSL_CERT_DIR"].iter().any(|key| env.get(key).is_some());
    is_chosen || !load_native_certs().certs.is_empty()
}

/// Adds what the user chose.
pub(super) fn with_chosen(client: ClientOptions, tls: &TlsOptions) -> Result<ClientOptions, OpenProblem> {
    let client = if tls.accepts_anyone { client.with_allow_invalid_certificates(true) } else { client };
    let Some(pem) = chosen(tls)? else { return Ok(client) };
    let chosen = Certificate::from_pem_bundle(&pem).unwrap_or_default();
    Ok(chosen.into_iter().fold(client, ClientOptions::with_root_certificate))
}

/// The file with the authorities that the user chose, of which there is one at least.
pub(super) fn chosen(tls: &TlsOptions) -> Result<Option<Vec<u8>>, OpenProblem> {
    let Some(path) = &tls.authorities else { return Ok(None) };
    let path_text = || path.display().to_string();
    let pem = std::fs::read(path)
        .map_err(|error| OpenProblem::Authorities { path: path_text(), error: error.to_string() })?;
    match Certificate::from_pem_bundle(&pem) {
        Ok(chosen) if !chosen.is_empty() => Ok(Some(pem)),
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
