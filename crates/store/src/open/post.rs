//! One HTTP request that is no part of a store, such as a message about a backup. It goes through
//! the client that stores use: the same authorities, proxies and TLS.

use object_store::client::{HttpConnector, HttpRequest, HttpRequestBody, ReqwestConnector};
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
    let answer = client.execute(request).await.map_err(|error| format!("{:?}", error.kind()).to_lowercase())?;
    Ok(answer.status().as_u16())
}
