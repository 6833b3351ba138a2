//! One HTTP request that is no part of a store, such as a message about a backup. It goes through
//! the client that stores use: the same authorities, proxies and TLS.

use std::error::Error;

use object_store::client::{HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, ReqwestConnector};
use object_store::{ClientOptions, HeaderValue};

use super::{Environment, roots};

/// A request with the method POST.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Post {
    /// The address, with `https://` or `http://`.
    pub url: String,
    /// Names, in lower case, and values of headers.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: Vec<u8>,
}

/// Sends a request once, and gives the status of the answer. The caller limits the time.
///
/// # Errors
/// The address is none, or the server cannot be reached. The text does not repeat the address,
/// which may be a secret.
pub async fn post(message: &Post, env: &Environment) -> Result<u16, String> {
    let options = ClientOptions::new()
        .with_user_agent(HeaderValue::from_static(concat!("larder/", env!("CARGO_PKG_VERSION"))))
        .with_allow_http(true);
    let client = ReqwestConnector::default().connect(&roots::with_authorities(options, env));
    let client = client.map_err(|error| error.to_string())?;
    let mut request = HttpRequest::new(HttpRequestBody::from(message.body.clone()));
    *request.method_mut() = "POST".parse().map_err(|_| "no method".to_owned())?;
    *request.uri_mut() = message.url.parse().map_err(|_| "the address is none".to_owned())?;
    for (name, value) in &message.headers {
        let value = HeaderValue::from_str(value).map_err(|_| format!("the header {name} has a line end"))?;
        request.headers_mut().insert(*name, value);
    }
    let answer = client.execute(request).await.map_err(|error| words(&error))?;
    Ok(answer.status().as_u16())
}

/// Why a request failed. The texts of the libraries may have the address, which is a secret; that
/// of the system has not.
fn words(error: &HttpError) -> String {
    let what = match error.kind() {
        HttpErrorKind::Connect => "it cannot be connected to",
        HttpErrorKind::Timeout => "it does not answer",
        _ => "the request failed",
    };
    let mut next: Option<&(dyn Error + 'static)> = error.source();
    while let Some(error) = next {
        if let Some(code) = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error) {
            return format!("{what}: {}", std::io::Error::from_raw_os_error(code));
        }
        next = error.source();
    }
    what.to_owned()
}
