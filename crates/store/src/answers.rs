//! Looks at HTTP answers before the client library does, and refuses those that it would misread.
//!
//! The library takes any XML document for a listing: one that is something else counts as empty, one that was cut off in the
//! right place as complete. Deletions rest on listings, so each is checked here, whole (see [`listing`]). A refused answer is an
//! error that `retry` repeats.

mod listing;

use async_trait::async_trait;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};
use url::form_urlencoded;

pub(crate) use listing::ListingProblem;
use listing::{Asked, Dialect};

/// Makes the library's HTTP clients, with a look at their answers.
#[derive(Debug, Default)]
pub(crate) struct Looking {
    inner: ReqwestConnector,
}

impl HttpConnector for Looking {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Looked { inner: self.inner.connect(options)? }))
    }
}

/// A client whose answers are looked at.
#[derive(Debug)]
struct Looked {
    inner: HttpClient,
}

#[async_trait]
impl HttpService for Looked {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let listing = listing_asked_for(&request);
        let response = self.inner.execute(request).await?;
        match listing {
            Some((dialect, asked)) if response.status().is_success() => checked(dialect, &asked, response).await,
            _ => Ok(response),
        }
    }
}

/// What a request asks to be listed, if it asks for a listing.
fn listing_asked_for(request: &HttpRequest) -> Option<(Dialect, Asked)> {
    if request.method() != "GET" {
        return None;
    }
    let (mut dialect, mut asked) = (None, Asked::default());
    for (name, value) in form_urlencoded::parse(request.uri().query()?.as_bytes()) {
        match (&*name, &*value) {
            ("list-type", _) => dialect = Some(Dialect::S3),
            ("comp", "list") => dialect = Some(Dialect::Azure),
            ("prefix", _) => asked.prefix = value.into_owned(),
            ("continuation-token" | "marker", _) => asked.token = Some(value.into_owned()),
            _ => {}
        }
    }
    dialect.map(|dialect| (dialect, asked))
}

/// Passes a listing on if it is one.
async fn checked(dialect: Dialect, asked: &Asked, response: HttpResponse) -> Result<HttpResponse, HttpError> {
    let (parts, body) = response.into_parts();
    let body = body.bytes().await?;
    // Repeating is not the library's affair: this kind it leaves alone.
    listing::check(dialect, asked, &body).map_err(|problem| HttpError::new(HttpErrorKind::Decode, problem))?;
    Ok(HttpResponse::from_parts(parts, body.into()))
}
