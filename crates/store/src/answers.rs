//! Looks at HTTP answers before the client library does, and refuses those that it would misread.
//!
//! | answer                                        | what becomes of it                                                      |
//! |-----------------------------------------------|-------------------------------------------------------------------------|
//! | to a listing                                  | must be that listing, whole (see [`listing`])                           |
//! | the whole object, where a part was asked for  | refused: another server's page, or a store without ranges               |
//! | a redirect that only names the bucket's region| refused in those words                                                  |
//! | without `ETag`                                | given one: the library insists on it, and nothing here uses it          |
//! | of an object with a storage class             | keeps it as [`StorageClass`]: the library drops it                      |
//! | of the server inside of `rclone serve s3`     | is noted: two such servers guarantee less than one                      |
//!
//! The library accepts any XML document as a listing. A document of another kind counts as empty,
//! and one that was cut off in the right place as complete. Deletions rest on listings, so each is
//! checked here, whole (see [`listing`]). A refused answer is an error that `retry` repeats.

mod listing;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use data_encoding::BASE64;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};
use object_store::{ClientOptions, HeaderValue};
use url::form_urlencoded;

use crate::error_kind::StoreErrorKind;

use listing::{Asked, Dialect, ListingProblem};

/// Why an answer is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AnswerProblem {
    /// It is not the listing that was asked for.
    #[error(transparent)]
    Listing(#[from] ListingProblem),
    /// A part was asked for, and something else came.
    #[error("a request for a part of it was answered with {what}; does this server know ranges?")]
    NotAPart {
        /// The answer.
        what: &'static str,
    },
    /// The bucket is elsewhere.
    #[error("the bucket lies in the region {region}: set AWS_REGION to it")]
    WrongRegion {
        /// Where.
        region: String,
    },
}

impl AnswerProblem {
    /// The kind of error that a request met.
    pub(crate) fn kind(&self) -> StoreErrorKind {
        match self {
            Self::Listing(problem) if !problem.is_lasting() => StoreErrorKind::Unreachable,
            Self::Listing(_) | Self::NotAPart { .. } => StoreErrorKind::Foreign,
            Self::WrongRegion { .. } => StoreErrorKind::Invalid,
        }
    }
}

/// An extension of answers: the storage class of the object, as the store names it.
#[derive(Debug, Clone)]
pub(crate) struct StorageClass(pub(crate) String);

/// Makes the library's HTTP clients, with a look at their answers.
#[derive(Debug, Default)]
pub(crate) struct Looking {
    inner: ReqwestConnector,
    identified: Option<HttpClient>,
    is_rclone: Arc<AtomicBool>,
}

impl Looking {
    /// Sends requests over TLS through this client, which has a certificate.
    pub(crate) fn with_identity(client: HttpClient) -> Self {
        Self { identified: Some(client), ..Self::default() }
    }

    /// The same, which sets `is_rclone` once an answer comes from `rclone serve s3`.
    pub(crate) fn telling_rclone(self, is_rclone: Arc<AtomicBool>) -> Self {
        Self { is_rclone, ..self }
    }
}

impl HttpConnector for Looking {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let (identified, is_rclone) = (self.identified.clone(), self.is_rclone.clone());
        Ok(HttpClient::new(Looked { inner: self.inner.connect(options)?, identified, is_rclone }))
    }
}

/// A client whose answers are looked at.
#[derive(Debug)]
struct Looked {
    inner: HttpClient,
    /// The one for HTTPS, if it is another.
    identified: Option<HttpClient>,
    is_rclone: Arc<AtomicBool>,
}

#[async_trait]
impl HttpService for Looked {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let listing = listing_asked_for(&request);
        let wants_part = request.method() == "GET" && request.headers().contains_key("range");
        let is_tls = request.uri().scheme_str() == Some("https");
        let client = self.identified.as_ref().filter(|_| is_tls).unwrap_or(&self.inner);
        let mut response = client.execute(request).await?;
        if is_of_rclone(&response) {
            self.is_rclone.store(true, Ordering::Relaxed);
        }
        let status = response.status();
        if status.is_redirection()
            && !response.headers().contains_key("location")
            && let Some(region) = header(&response, "x-amz-bucket-region")
        {
            return Err(refused(AnswerProblem::WrongRegion { region: region.to_owned() }));
        }
        if !status.is_success() {
            return Ok(response);
        }
        if let Some((dialect, asked)) = listing {
            return checked(dialect, &asked, response).await;
        }
        if wants_part && status == 200 {
            let is_page = header(&response, "content-type").is_some_and(|kind| kind.starts_with("text/html"));
            let what = if is_page { "a web page" } else { "the whole object" };
            return Err(refused(AnswerProblem::NotAPart { what }));
        }
        if let Some(class) = header(&response, "x-amz-storage-class").map(str::to_owned) {
            response.extensions_mut().insert(StorageClass(class));
        }
        response.headers_mut().entry("etag").or_insert(HeaderValue::from_static("\"none\""));
        Ok(response)
    }
}

/// Whether the server inside of `rclone serve s3` has answered, or a program with the same one. It
/// calls itself AmazonS3. Its second id of a request is the first one, four times, in base64.
fn is_of_rclone(response: &HttpResponse) -> bool {
    if header(response, "server").is_some_and(|server| server.starts_with("rclone")) {
        return true;
    }
    let (Some(id), Some(long)) = (header(response, "x-amz-request-id"), header(response, "x-amz-id-2")) else {
        return false;
    };
    !id.is_empty() && BASE64.decode(long.as_bytes()).is_ok_and(|bytes| bytes == id.repeat(4).as_bytes())
}

/// A header as text.
fn header<'a>(response: &'a HttpResponse, name: &str) -> Option<&'a str> {
    response.headers().get(name)?.to_str().ok()
}

/// The error for an answer that is not passed on. Repeating is not the library's affair: this kind
/// it leaves alone.
fn refused(problem: AnswerProblem) -> HttpError {
    HttpError::new(HttpErrorKind::Decode, problem)
}

/// The listing that a request asks for, if it asks for one.
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
    listing::check(dialect, asked, &body).map_err(|problem| refused(problem.into()))?;
    Ok(HttpResponse::from_parts(parts, body.into()))
}
