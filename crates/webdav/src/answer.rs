//! Which requests are answered, and how.
//!
//! `dav-server` answers them in the end. Before that, this refuses what it allows and a server for
//! others must not: whole trees in one answer, many ranges, deep XML, long bodies. After that, this
//! corrects the status and the headers. `docs/decisions/0050-webdav.md` has the list.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dav_server::davpath::DavPath;
use dav_server::{DavHandler, DavMethodSet};
use futures::StreamExt;
use http::header::Entry;
use http::header::{
    ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, IF_MODIFIED_SINCE,
    IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE, RETRY_AFTER, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body::Body;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use larder_tree::{Kind, Tree};
use tokio::sync::Semaphore;

use crate::access::{Access, Denied};
use crate::body::Content;
use crate::files::{Files, READ};
use crate::index;
use crate::left_out::Counted;
use crate::lists::corrected;
use crate::wrong::WrongPasswords;

/// Bytes of a request after its head: names of properties, at most.
const BODY_MAX: usize = 4 << 10;
/// Tags in a request: clients ask for some twenty properties. The library reads XML by recursion.
const TAGS_MAX: usize = 64;
/// Namespaces in a request. The library copies all of them into each tag.
const NAMESPACES_MAX: usize = 16;
/// Digits of a place in a file: the numbers fit into 63 bits.
const DIGITS_MAX: usize = 18;
/// Answers under way at once. More requests wait until one of them ends.
const ANSWERS: usize = 64;
/// Time for the body of a request.
const BODY_TIME: Duration = Duration::from_secs(15);
/// A wrong password is answered after this time.
const WRONG_PASSWORD: Duration = Duration::from_secs(1);
/// Seconds after which clients may ask again when the store gives no answer.
const RETRY: &str = "30";
/// What browsers may do with pages of folders, and with those in snapshots.
const INDEX_POLICY: &str = "default-src 'none'; frame-ancestors 'none'";
const FILE_POLICY: &str = "sandbox; default-src 'none'; frame-ancestors 'none'";
/// The methods that there are.
const METHODS: &str = "OPTIONS, GET, HEAD, PROPFIND";

/// An answer that says why there is no other one.
type Refusal = Box<Response<Content>>;

/// A tree, and who may ask for it.
pub(crate) struct Service {
    pub(crate) tree: Arc<Tree>,
    pub(crate) access: Access,
    pub(crate) left_out: Arc<Counted>,
    library: DavHandler,
    places: Arc<Semaphore>,
    wrong: WrongPasswords,
}

impl Service {
    pub(crate) fn new(tree: Arc<Tree>, access: Access, wrong: WrongPasswords) -> Self {
        let library = DavHandler::builder().methods(DavMethodSet::WEBDAV_RO).autoindex(false).read_buf_size(READ);
        let (library, places) = (library.build_handler(), Arc::new(Semaphore::new(ANSWERS)));
        Self { tree, access, left_out: Arc::default(), library, places, wrong }
    }

    /// Answers a request from an address.
    pub(crate) async fn answer<B>(&self, request: Request<B>, peer: IpAddr) -> Response<Content>
    where
        B: Body,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let answered = match self.try_answer(request, peer).await {
            Ok(answer) => answer,
            Err(refusal) => *refusal,
        };
        tracing::debug!(%method, path, status = answered.status().as_u16(), "a request");
        with_headers(answered, &method)
    }

    /// The same; refusals are errors.
    async fn try_answer<B>(&self, request: Request<B>, peer: IpAddr) -> Result<Response<Content>, Refusal>
    where
        B: Body,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        if let Err(denied) = self.access.check(request.headers()) {
            if denied == Denied::WrongPassword {
                self.wrong.meet(peer);
            }
            return Err(deny(denied).await.into());
        }
        // Nobody without the password can take one.
        let place = self.places.clone().acquire_owned().await.ok();
        if is_of_another_page(request.headers()) {
            return Err(refusal(StatusCode::FORBIDDEN, "pages of other servers cannot use files of this one").into());
        }
        let is_propfind = request.method().as_str() == "PROPFIND";
        if !is_propfind && ![Method::GET, Method::HEAD, Method::OPTIONS].contains(request.method()) {
            return Err(refusal(StatusCode::METHOD_NOT_ALLOWED, "snapshots cannot be changed").into());
        }
        if is_propfind {
            expect_depth(request.headers())?;
        }
        // Lists have no length, so a client of HTTP/1.0 does not notice that one was cut off.
        if request.version() < Version::HTTP_11 && (is_propfind || request.uri().path().ends_with('/')) {
            let why = "lists of folders need HTTP/1.1 (for nginx: proxy_http_version 1.1)";
            return Err(refusal(StatusCode::HTTP_VERSION_NOT_SUPPORTED, why).into());
        }
        let request = whole(request).await?;
        if is_propfind && !is_harmless(request.body()) {
            return Err(refusal(StatusCode::BAD_REQUEST, "the request has too many tags, or declarations").into());
        }
        let files = Files::new(self.tree.clone(), self.left_out.clone());
        let outcome = files.outcome.clone();
        let is_read = [Method::GET, Method::HEAD].contains(request.method());
        let answered = match DavPath::new(request.uri().path()) {
            Ok(path) if is_read && path.is_collection() => page(&files, &path, request.method()).await,
            _ => self.ask_library(files, request).await,
        };
        match (answered, outcome.failure()) {
            (Some(mut answer), None) => {
                if let Some(place) = place {
                    answer.body_mut().keep(place);
                }
                Ok(answer)
            }
            (_, status) => Err(failed(status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)).into()),
        }
    }

    /// Lets the library answer. `None`: the outcome says why not.
    async fn ask_library(&self, files: Files, request: Request<Bytes>) -> Option<Response<Content>> {
        let outcome = files.outcome.clone();
        let config = DavHandler::builder().filesystem(Box::new(files));
        let answer = self.library.handle_with(config, request.map(Full::new)).await;
        let (head, body) = answer.into_parts();
        if outcome.failure().is_some() {
            return None;
        }
        if head.status == StatusCode::NOT_FOUND {
            return Some(not_found());
        }
        let body = match head.status {
            StatusCode::MULTI_STATUS => StreamExt::boxed(body.map(|part| part.map(corrected))),
            _ => StreamExt::boxed(body),
        };
        Some(Response::from_parts(head, Content::of(body, &outcome).await?))
    }
}

/// Whether a browser asks because a page of another server uses the file: as a script or an image.
/// A link from there is followed.
fn is_of_another_page(headers: &HeaderMap) -> bool {
    let is_other = |site: &HeaderValue| matches!(site.as_bytes(), b"cross-site" | b"same-site");
    let is_link = headers.get("sec-fetch-mode").is_some_and(|mode| mode.as_bytes() == b"navigate");
    headers.get_all("sec-fetch-site").iter().any(is_other) && !is_link
}

/// A folder as a page. `None`: the outcome says why not.
async fn page(files: &Files, path: &DavPath, method: &Method) -> Option<Response<Content>> {
    let place = match files.place(path).await {
        Ok(place) if place.attributes.kind == Kind::Folder => place,
        _ if files.outcome.failure().is_some() => return None,
        _ => return Some(not_found()),
    };
    let content = match *method {
        Method::HEAD => Content::text(""),
        _ => Content::of(index::page(files, path, place.trail), &files.outcome).await?,
    };
    let mut answer = Response::new(content);
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    // Nothing in it is foreign. In a sandbox, browsers would not download what its links lead to.
    answer.headers_mut().insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(INDEX_POLICY));
    Some(answer)
}

async fn deny(denied: Denied) -> Response<Content> {
    match denied {
        Denied::OtherHost => refusal(StatusCode::FORBIDDEN, "this server answers only programs on its own machine"),
        Denied::NoPassword | Denied::WrongPassword => {
            if denied == Denied::WrongPassword {
                tokio::time::sleep(WRONG_PASSWORD).await;
            }
            let mut answer = refusal(StatusCode::UNAUTHORIZED, "a password is needed");
            let realm = HeaderValue::from_static("Basic realm=\"larder\", charset=\"UTF-8\"");
            answer.headers_mut().insert(WWW_AUTHENTICATE, realm);
            answer
        }
    }
}

/// A folder and its names, or one thing: all below it would be an answer without a bound.
fn expect_depth(headers: &HeaderMap) -> Result<(), Refusal> {
    let mut depths = headers.get_all("depth").iter();
    match (depths.next().map(HeaderValue::as_bytes), depths.next()) {
        (Some(b"0" | b"1"), None) => Ok(()),
        // Without a depth, all is meant.
        (None, None) => Err(endless().into()),
        (Some(depth), None) if depth.eq_ignore_ascii_case(b"infinity") => Err(endless().into()),
        _ => Err(refusal(StatusCode::BAD_REQUEST, "the header Depth must be 0 or 1").into()),
    }
}

fn endless() -> Response<Content> {
    let why = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n\
               <D:error xmlns:D=\"DAV:\"><D:propfind-finite-depth/></D:error>\n";
    let mut answer = Response::new(Content::text(why));
    *answer.status_mut() = StatusCode::FORBIDDEN;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/xml; charset=utf-8"));
    answer
}

/// The request with its body, and without the headers that cost too much or that nothing needs.
async fn whole<B>(request: Request<B>) -> Result<Request<Bytes>, Refusal>
where
    B: Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (mut head, body) = request.into_parts();
    let read = tokio::time::timeout(BODY_TIME, Limited::new(body, BODY_MAX).collect()).await;
    let body = match read {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            return Err(refusal(StatusCode::PAYLOAD_TOO_LARGE, "the request is too long").into());
        }
        Ok(Err(_)) => return Err(refusal(StatusCode::BAD_REQUEST, "the request is not whole").into()),
        Err(_) => return Err(refusal(StatusCode::REQUEST_TIMEOUT, "the request takes too long").into()),
    };
    // It allows trees without a bound, and `If` is about locks.
    head.headers.remove("x-litmus");
    head.headers.remove("if");
    // `latest` may become an older file, so only ETags say that one is the same.
    head.headers.remove(IF_MODIFIED_SINCE);
    weakly_compared(&mut head.headers);
    // A part has a meaning for GET alone (RFC 9110, 14.2).
    if head.method != Method::GET || !may_send_part(&head.headers) {
        head.headers.remove(RANGE);
        head.headers.remove(IF_RANGE);
    }
    Ok(Request::from_parts(head, body))
}

/// Makes weak tags of `If-None-Match` strong. They match if they are otherwise equal (RFC 9110,
/// 13.1.2), and the library takes no weak tag for equal. Proxies that compress make tags weak.
fn weakly_compared(headers: &mut HeaderMap) {
    let Entry::Occupied(mut entry) = headers.entry(IF_NONE_MATCH) else { return };
    for value in entry.iter_mut() {
        let (mut strong, mut is_quoted) = (Vec::with_capacity(value.len()), false);
        let mut rest = value.as_bytes();
        while let [first, behind @ ..] = rest {
            rest = match rest.strip_prefix(b"W/") {
                Some(tag) if !is_quoted && tag.starts_with(b"\"") => tag,
                _ => {
                    is_quoted ^= *first == b'"';
                    strong.push(*first);
                    behind
                }
            };
        }
        if let Ok(strong) = HeaderValue::from_bytes(&strong) {
            *value = strong;
        }
    }
}

/// Whether a range can be sent; else a server sends the whole file. Many ranges would be many
/// files, and the library adds to numbers of any size. A date does not say of which file the client
/// has the other parts.
fn may_send_part(headers: &HeaderMap) -> bool {
    let mut ranges = headers.get_all(RANGE).iter();
    let is_one = ranges.next().is_none_or(|range| is_one_range(range.as_bytes())) && ranges.next().is_none();
    let is_tag = headers.get(IF_RANGE).is_none_or(|tag| tag.as_bytes().starts_with(b"\""));
    is_one && is_tag && !headers.contains_key(IF_UNMODIFIED_SINCE)
}

/// `bytes=D-D`, `bytes=D-` or `bytes=-D`.
fn is_one_range(range: &[u8]) -> bool {
    let Some(range) = range.strip_prefix(b"bytes=") else { return false };
    let Some(dash) = range.iter().position(|byte| *byte == b'-') else { return false };
    let (start, end) = (&range[..dash], &range[dash + 1..]);
    let is_number = |digits: &[u8]| digits.len() <= DIGITS_MAX && digits.iter().all(u8::is_ascii_digit);
    is_number(start) && is_number(end) && !(start.is_empty() && end.is_empty())
}

/// Whether XML has few tags and namespaces, and no declarations, which may stand for any amount of
/// text. In UTF-16 these would not be seen, and each letter has a zero.
fn is_harmless(xml: &[u8]) -> bool {
    let count = |text: &[u8]| xml.windows(text.len()).filter(|part| *part == text).count();
    count(b"<") <= TAGS_MAX && count(b"xmlns") <= NAMESPACES_MAX && count(b"<!") == 0 && !xml.contains(&0)
}

/// An answer with a status and a line of text.
fn refusal(status: StatusCode, why: &str) -> Response<Content> {
    let mut answer = Response::new(Content::text(format!("{why}\n")));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    // The rest of the request was not read.
    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    answer
}

fn not_found() -> Response<Content> {
    refusal(StatusCode::NOT_FOUND, "there is no such file or folder")
}

/// The answer to a request that failed. The server has said why on its side.
fn failed(status: StatusCode) -> Response<Content> {
    let why = match status {
        StatusCode::SERVICE_UNAVAILABLE => "the data cannot be read now",
        StatusCode::INSUFFICIENT_STORAGE => "the server has no room for more",
        StatusCode::FORBIDDEN => "the key of the server does not open this",
        StatusCode::METHOD_NOT_ALLOWED => "this is not a file",
        _ => "the data is damaged or missing",
    };
    let mut answer = refusal(status, why);
    if status == StatusCode::SERVICE_UNAVAILABLE {
        answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static(RETRY));
    }
    answer
}

/// The headers that all answers have.
fn with_headers(mut answer: Response<Content>, method: &Method) -> Response<Content> {
    let status = answer.status();
    let headers = answer.headers_mut();
    // The library claims locks, which readers do not need.
    headers.insert("dav", HeaderValue::from_static("1"));
    headers.remove(HeaderName::from_static("ms-author-via"));
    if *method == Method::OPTIONS || status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, HeaderValue::from_static(METHODS));
    }
    // A page in a snapshot must not read other files with the password that the browser has.
    headers.entry(CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static(FILE_POLICY));
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
    // Without it, caches guess from old dates that a file will not change, and `latest` does.
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("private, no-cache"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_of_small_numbers_is_sent() {
        for good in ["bytes=0-0", "bytes=5-", "bytes=-5", "bytes=0-999999999999999999"] {
            assert!(is_one_range(good.as_bytes()), "{good}");
        }
        let bad = [
            "bytes=0-18446744073709551615",
            "bytes=18446744073709551615-",
            "bytes=0-1,3-4",
            "bytes=+1-+2",
            "bytes=-",
            "bytes=",
            "bytes=1",
            "bytes=1-2-3",
            "bytes= 1-2",
            "lines=1-2",
            "",
        ];
        for bad in bad {
            assert!(!is_one_range(bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn weak_tags_become_strong_and_nothing_else_changes() {
        for (sent, expected) in [
            ("W/\"a\"", "\"a\""),
            ("W/\"a\", \"b\",W/\"c\"", "\"a\", \"b\",\"c\""),
            ("\"W/\", \"aW/\"", "\"W/\", \"aW/\""),
            ("*", "*"),
            ("W/a", "W/a"),
            ("", ""),
        ] {
            let mut headers = HeaderMap::new();
            headers.append(IF_NONE_MATCH, HeaderValue::from_static("\"first\""));
            headers.append(IF_NONE_MATCH, HeaderValue::from_static(sent));
            weakly_compared(&mut headers);
            assert_eq!(headers.get_all(IF_NONE_MATCH).iter().collect::<Vec<_>>(), ["\"first\"", expected], "{sent}");
        }
    }

    #[test]
    fn xml_is_small_and_plain() {
        let asked = "<D:propfind xmlns:D=\"DAV:\"><D:prop><D:getetag/></D:prop></D:propfind>";
        assert!(is_harmless(asked.as_bytes()) && is_harmless(b""));
        let utf16: Vec<u8> = asked.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let names = " xmlns:a=\"b\"".repeat(NAMESPACES_MAX + 1);
        let bad =
            [utf16, "<a/>".repeat(TAGS_MAX + 1).into(), format!("<a{names}/>").into(), b"<!DOCTYPE a><a/>".to_vec()];
        assert!(bad.iter().all(|bad| !is_harmless(bad)));
    }

    #[test]
    fn only_links_lead_here_from_other_pages() {
        let of = |site: &'static str, mode: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("sec-fetch-site", HeaderValue::from_static(site));
            headers.insert("sec-fetch-mode", HeaderValue::from_static(mode));
            is_of_another_page(&headers)
        };
        assert!(of("cross-site", "no-cors") && of("same-site", "cors"));
        assert!(!of("cross-site", "navigate") && !of("same-origin", "no-cors") && !of("none", "navigate"));
        assert!(!is_of_another_page(&HeaderMap::new()));
    }
}
