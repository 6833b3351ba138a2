//! Objects in storage classes of S3 that must be thawed before they can be read: which ones these
//! are, and requests to thaw them.
//!
//! The client library knows neither of the two requests. It signs their addresses, as it signs
//! those that are given to others, and they are sent here. Only S3 has such requests. On other
//! stores nothing is cold.
//!
//! * `classes`: facts about classes, without requests.

pub(crate) mod classes;

use std::time::Duration;

use jiff::Timestamp;
use object_store::aws::AmazonS3;
use object_store::client::{HttpClient, HttpRequest, HttpRequestBody, HttpResponse};
use object_store::path::Path;
use object_store::signer::{SignedUrlOptions, Signer};
use object_store::{HeaderMap, HeaderValue};
use quick_xml::Reader;
use quick_xml::events::Event;

use crate::error::{ServerFailure, StoreError, StoreOp, element};
use crate::error_kind::StoreErrorKind;
use crate::name;
use crate::waiting::Waiting;

use classes::{TIERS, ThawTier, is_cold};

/// How long a signed address is good for.
const SIGNED_FOR: Duration = Duration::from_secs(900);
/// Time for one answer.
const ANSWER_TIME: Duration = Duration::from_secs(60);
/// Pauses before a request is repeated.
const PAUSES: [Duration; 5] = [
    Duration::from_millis(200),
    Duration::from_secs(1),
    Duration::from_secs(4),
    Duration::from_secs(15),
    Duration::from_secs(30),
];
/// The header that asks a listing for what is thawed.
const OPTIONAL: &str = "x-amz-optional-object-attributes";

/// Whether an object can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Warmth {
    /// Yes.
    Warm,
    /// Yes, for some days.
    Thawed,
    /// Not yet: it was asked for.
    Thawing,
    /// No: it has to be asked for.
    Cold,
}

/// An object with its storage class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassedObject {
    /// Its name, relative to the repository.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
    /// The class as the store names it; `STANDARD` if it does not say. Of an archived object of
    /// `INTELLIGENT_TIERING`, after [`crate::Store::look_into_tiers`], the tier: `ARCHIVE_ACCESS`
    /// or `DEEP_ARCHIVE_ACCESS`.
    pub class: String,
    /// Whether it can be read, as far as a listing tells.
    pub warmth: Warmth,
    /// When it was made, milliseconds since the epoch by the store's clock; 0: it does not say.
    pub modified_ms: u64,
}

impl ClassedObject {
    /// The time until which it is billed in any case, milliseconds since the epoch by the store's
    /// clock; 0: its class has no minimum time, or the store does not say how old it is.
    ///
    /// A rule of the bucket that moves an object to another class does not change its time, so the
    /// time in that class began later.
    pub fn billed_until_ms(&self) -> u64 {
        match (self.modified_ms, classes::minimum_days(&self.class)) {
            (0, _) | (_, 0) => 0,
            (made, days) => made.saturating_add(u64::from(days) * 24 * 3600 * 1000),
        }
    }
}

/// The answer to a request to thaw an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Thawed {
    /// The store has begun.
    Asked,
    /// Somebody asked before, or the object is thawed, or it was never cold.
    Already,
}

/// Sends the requests of this module.
#[derive(Debug)]
pub(crate) struct Classes {
    pub(crate) s3: AmazonS3,
    pub(crate) client: HttpClient,
    /// Prefix of the repository in the bucket, without slashes around it.
    pub(crate) prefix: String,
}

impl Classes {
    /// All objects below a folder of the repository, such as `data/`, with their classes: `each`
    /// gets them one by one. `page_asked` is told of each request.
    pub(crate) async fn list(
        &self,
        folder: &str,
        waiting: &Waiting,
        page_asked: impl Fn(u64),
        mut each: impl FnMut(ClassedObject),
    ) -> Result<(), StoreError> {
        let prefix = if self.prefix.is_empty() { String::new() } else { format!("{}/", self.prefix) };
        let mut headers = HeaderMap::new();
        headers.insert(OPTIONAL, HeaderValue::from_static("RestoreStatus"));
        let mut token = None::<String>;
        loop {
            let mut query = vec![("list-type", "2".to_owned()), ("prefix", format!("{prefix}{folder}"))];
            query.extend(token.take().map(|token| ("continuation-token", token)));
            let request = Asked { op: StoreOp::List, name: folder, method: "GET", path: Path::default(), query };
            page_asked(1);
            let Answered { status, body, .. } = self.send(&request, &headers, &[], waiting).await?;
            if !(200..300).contains(&status) {
                return Err(request.refused(status, &body));
            }
            let page = Page::read(&body)
                .map_err(|why| StoreError::new(StoreOp::List, folder, StoreErrorKind::Foreign).because(why))?;
            let named = page.objects.into_iter().filter_map(|object| {
                let name = object.name.strip_prefix(&prefix).filter(|name| name::is_valid(name))?.to_owned();
                Some(ClassedObject { name, ..object })
            });
            named.for_each(&mut each);
            token = page.token.filter(|token| !token.is_empty());
            if token.is_none() {
                return Ok(());
            }
        }
    }

    /// Asks for an object. One of an archive tier of `INTELLIGENT_TIERING` stays readable, and so
    /// no days are named for it.
    pub(crate) async fn thaw(
        &self,
        object: &ClassedObject,
        tier: ThawTier,
        days: u32,
        waiting: &Waiting,
    ) -> Result<Thawed, StoreError> {
        let name = object.name.as_str();
        let query = vec![("restore", String::new())];
        let request = Asked { op: StoreOp::Thaw, name, method: "POST", path: self.path(StoreOp::Thaw, name)?, query };
        let is_tiered = TIERS.contains(&object.class.as_str());
        let days = if is_tiered { String::new() } else { format!("<Days>{days}</Days>") };
        let body = format!(
            "<RestoreRequest xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">{days}\
             <GlacierJobParameters><Tier>{}</Tier></GlacierJobParameters></RestoreRequest>",
            tier.in_requests()
        );
        let Answered { status, body: answer, .. } =
            self.send(&request, &HeaderMap::new(), body.as_bytes(), waiting).await?;
        let text = String::from_utf8_lossy(&answer);
        match (status, element(&text, "Code").unwrap_or_default()) {
            (202, _) => Ok(Thawed::Asked),
            // The time of one that is thawed already is only made longer.
            (200..=299, _) | (409, "RestoreAlreadyInProgress") | (403, "InvalidObjectState") => Ok(Thawed::Already),
            _ => Err(request.refused(status, &answer)),
        }
    }

    /// Asks an object of `INTELLIGENT_TIERING` for its tier, which a listing does not tell. `None`:
    /// it can be read. Costs a request.
    pub(crate) async fn archived(
        &self,
        name: &str,
        waiting: &Waiting,
    ) -> Result<Option<(&'static str, Warmth)>, StoreError> {
        let path = self.path(StoreOp::Size, name)?;
        let request = Asked { op: StoreOp::Size, name, method: "HEAD", path, query: Vec::new() };
        let Answered { status, headers, body } = self.send(&request, &HeaderMap::new(), &[], waiting).await?;
        // Passes may have deleted it since the listing.
        if status == 404 {
            return Ok(None);
        }
        if !(200..300).contains(&status) {
            return Err(request.refused(status, &body));
        }
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let Some(tier) = TIERS.into_iter().find(|tier| *tier == text("x-amz-archive-status")) else { return Ok(None) };
        let is_thawing = text("x-amz-restore").contains("ongoing-request=\"true\"");
        Ok(Some((tier, if is_thawing { Warmth::Thawing } else { Warmth::Cold })))
    }

    fn path(&self, op: StoreOp, name: &str) -> Result<Path, StoreError> {
        let whole = if self.prefix.is_empty() { name.to_owned() } else { format!("{}/{name}", self.prefix) };
        Path::parse(whole).map_err(|error| StoreError::new(op, name, StoreErrorKind::Invalid).because(error))
    }

    /// Sends a request until there is an answer that is worth reading.
    async fn send(
        &self,
        asked: &Asked<'_>,
        headers: &HeaderMap,
        body: &[u8],
        waiting: &Waiting,
    ) -> Result<Answered, StoreError> {
        let mut pauses = PAUSES.into_iter();
        loop {
            let tried = tokio::time::timeout(ANSWER_TIME, self.try_once(asked, headers, body)).await;
            let error = match tried {
                Ok(Ok(answer)) if !matches!(answer.status, 429 | 500 | 502..=599) => return Ok(answer),
                Ok(Ok(answer)) => asked.refused(answer.status, &answer.body),
                Ok(Err(error)) if !error.is_retryable() => return Err(error),
                Ok(Err(error)) => error,
                Err(_) => asked.error(StoreErrorKind::Unreachable).because(crate::error::TimedOut(ANSWER_TIME)),
            };
            let Some(pause) = pauses.next() else { return Err(error) };
            tracing::debug!(%error, "asking again");
            if !waiting.sleep(pause).await {
                return Err(error.interrupted());
            }
        }
    }

    async fn try_once(&self, asked: &Asked<'_>, headers: &HeaderMap, body: &[u8]) -> Result<Answered, StoreError> {
        let invalid = |why: &'static str| asked.error(StoreErrorKind::Invalid).because(why);
        let mut options = SignedUrlOptions::new().with_query(asked.query.clone());
        options.signed_headers = headers.clone();
        let method = || asked.method.parse().map_err(|_| invalid("no method"));
        let signed = self.s3.signed_url_opts(method()?, &asked.path, SIGNED_FOR, &options).await;
        let url = signed.map_err(|error| StoreError::from_object_store(asked.op, asked.name, error))?;
        let mut request = HttpRequest::new(HttpRequestBody::from(body.to_vec()));
        *request.method_mut() = method()?;
        *request.uri_mut() = url.as_str().parse().map_err(|_| invalid("the address is none"))?;
        request.headers_mut().extend(headers.clone());
        let unreachable = |error: object_store::client::HttpError| {
            let error = object_store::Error::Generic { store: "S3", source: error.into() };
            StoreError::from_object_store(asked.op, asked.name, error)
        };
        let response: HttpResponse = self.client.execute(request).await.map_err(unreachable)?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = response.into_body().bytes().await.map_err(unreachable)?.to_vec();
        Ok(Answered { status, headers, body })
    }
}

/// An answer of the server.
struct Answered {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
}

/// A request, as errors name it.
struct Asked<'a> {
    op: StoreOp,
    name: &'a str,
    method: &'static str,
    path: Path,
    query: Vec<(&'static str, String)>,
}

impl Asked<'_> {
    fn error(&self, kind: StoreErrorKind) -> StoreError {
        StoreError::new(self.op, self.name, kind)
    }

    /// The server did not do it.
    fn refused(&self, status: u16, body: &[u8]) -> StoreError {
        let text = String::from_utf8_lossy(body);
        let of = |tag| element(&text, tag).unwrap_or_default().chars().take(200).collect();
        StoreError::of_server(self.op, self.name, ServerFailure { status, code: of("Code"), message: of("Message") })
    }
}

/// One page of a listing.
#[derive(Debug, Default)]
struct Page {
    objects: Vec<ClassedObject>,
    token: Option<String>,
}

impl Page {
    /// Reads a page that was checked already (`answers`).
    fn read(body: &[u8]) -> Result<Self, String> {
        let mut page = Self::default();
        let mut reader = Reader::from_reader(body);
        let (mut text, mut name, mut size, mut modified_ms) = (String::new(), String::new(), 0, 0);
        let (mut class, mut is_thawing, mut is_thawed) = (String::new(), false, false);
        loop {
            match reader.read_event().map_err(|error| error.to_string())? {
                Event::Start(start) => {
                    text.clear();
                    if start.local_name().as_ref() == b"Contents" {
                        (name, size, class, is_thawing, is_thawed, modified_ms) = Default::default();
                    }
                }
                Event::Text(part) => text.push_str(&part.decode().map_err(|error| error.to_string())?),
                Event::GeneralRef(reference) => {
                    let of = reference.decode().map_err(|error| error.to_string())?;
                    match reference.resolve_char_ref() {
                        Ok(Some(char)) => text.push(char),
                        _ => text.push_str(quick_xml::escape::resolve_predefined_entity(&of).unwrap_or_default()),
                    }
                }
                Event::End(end) => match end.local_name().as_ref() {
                    b"Key" => name = std::mem::take(&mut text),
                    b"Size" => size = text.parse().map_err(|_| format!("a size is {text:?}"))?,
                    b"LastModified" => {
                        let time = text.parse::<Timestamp>().map_or(0, Timestamp::as_millisecond);
                        modified_ms = u64::try_from(time).unwrap_or(0);
                    }
                    b"StorageClass" => class = std::mem::take(&mut text),
                    b"IsRestoreInProgress" => is_thawing = text == "true",
                    b"RestoreExpiryDate" => is_thawed = !text.is_empty(),
                    b"NextContinuationToken" => page.token = Some(std::mem::take(&mut text)),
                    b"Contents" => {
                        let warmth = match (is_cold(&class), is_thawing, is_thawed) {
                            (false, ..) => Warmth::Warm,
                            (true, true, _) => Warmth::Thawing,
                            (true, false, true) => Warmth::Thawed,
                            (true, false, false) => Warmth::Cold,
                        };
                        let class = if class.is_empty() { "STANDARD".to_owned() } else { std::mem::take(&mut class) };
                        let name = std::mem::take(&mut name);
                        page.objects.push(ClassedObject { name, size, class, warmth, modified_ms });
                    }
                    _ => {}
                },
                Event::Eof => return Ok(page),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_says_what_can_be_read() {
        let made = "<LastModified>2026-10-12T17:50:30.000Z</LastModified>";
        let object = |number: u32, more: &str| {
            format!(
                "<Contents><Key>p/data/{number}</Key>{}<Size>7</Size>{more}</Contents>",
                if number == 3 { made } else { "" }
            )
        };
        let status =
            |more: &str| format!("<StorageClass>DEEP_ARCHIVE</StorageClass><RestoreStatus>{more}</RestoreStatus>");
        let body = [
            "<ListBucketResult>".to_owned(),
            object(1, ""),
            object(2, "<StorageClass>GLACIER_IR</StorageClass>"),
            object(3, "<StorageClass>GLACIER</StorageClass>"),
            object(4, &status("<IsRestoreInProgress>true</IsRestoreInProgress>")),
            object(
                5,
                &status(
                    "<IsRestoreInProgress>false</IsRestoreInProgress><RestoreExpiryDate>2026-12-01</RestoreExpiryDate>",
                ),
            ),
            // Not that of the one before.
            object(6, "<StorageClass>DEEP_ARCHIVE</StorageClass>"),
            "<NextContinuationToken>a&amp;b</NextContinuationToken></ListBucketResult>".to_owned(),
        ];
        let page = Page::read(body.concat().as_bytes()).expect("a page");
        let found: Vec<_> = page.objects.iter().map(|object| (object.class.as_str(), object.warmth)).collect();
        let expected = [
            ("STANDARD", Warmth::Warm),
            ("GLACIER_IR", Warmth::Warm),
            ("GLACIER", Warmth::Cold),
            ("DEEP_ARCHIVE", Warmth::Thawing),
            ("DEEP_ARCHIVE", Warmth::Thawed),
            ("DEEP_ARCHIVE", Warmth::Cold),
        ];
        assert_eq!(found, expected);
        assert_eq!((page.token.as_deref(), page.objects[0].size), (Some("a&b"), 7));
        let until: Vec<_> = page.objects.iter().map(ClassedObject::billed_until_ms).collect();
        let of_glacier = 1_791_827_430_000 + 90 * 24 * 3600 * 1000;
        assert_eq!(until, [0, 0, of_glacier, 0, 0, 0], "the others do not say how old they are");
    }
}
