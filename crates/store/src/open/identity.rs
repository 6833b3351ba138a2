//! A client's own certificate (mutual TLS).
//!
//! The client library has no setting for it. So the HTTP client with the certificate is built here,
//! with the settings that the library gives its own, and the library sends through it. It serves
//! addresses with `https://` only. Others, such as the metadata service of a machine, keep the
//! library's client.

use object_store::client::HttpClient;
use reqwest::tls::Certificate;

use super::{CONNECT_TIME_MAX, Environment, OpenProblem, USER_AGENT, idle_connections, roots};
use crate::answers::Looking;
use crate::options::StoreOptions;

/// Makes the library's HTTP clients for a cloud, with the certificate that the options name.
///
/// `bundle` has further authorities in PEM, and `proxy` is the address of one: what variables of
/// the cloud name.
pub(super) fn connector(
    options: &StoreOptions,
    env: &Environment,
    bundle: Option<&str>,
    proxy: Option<&str>,
) -> Result<Looking, OpenProblem> {
    let Some(path) = &options.tls.identity else { return Ok(Looking::default()) };
    let wrong = |error: String| OpenProblem::Identity { path: path.display().to_string(), error };
    let pem = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
    let identity =
        reqwest::Identity::from_pem(&pem).map_err(|_| wrong("it holds no certificate with its key in PEM".into()))?;
    let mut builder = reqwest::Client::builder()
        .user_agent(USER_AGENT)
        .identity(identity)
        .http1_only()
        .https_only(true)
        .connect_timeout(options.attempt_timeout.min(CONNECT_TIME_MAX))
        .pool_max_idle_per_host(idle_connections(options))
        .tls_danger_accept_invalid_certs(options.tls.accepts_anyone)
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate();
    let mut authorities = roots::missing(env);
    if let Some(chosen) = roots::chosen(&options.tls)? {
        authorities.extend(Certificate::from_pem_bundle(&chosen).unwrap_or_default());
    }
    if let Some(bundle) = bundle {
        authorities.extend(Certificate::from_pem_bundle(bundle.as_bytes()).unwrap_or_default());
    }
    if let Some(proxy) = proxy {
        builder = builder.proxy(reqwest::Proxy::all(proxy).map_err(|error| wrong(error.to_string()))?);
    }
    let client = builder.tls_certs_merge(authorities).build().map_err(|error| wrong(deepest(&error)))?;
    Ok(Looking::with_identity(HttpClient::new(client)))
}

/// The innermost reason of an error: why a key and a certificate cannot be used.
fn deepest(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(inner) = error.source() {
        error = inner;
    }
    error.to_string()
}
