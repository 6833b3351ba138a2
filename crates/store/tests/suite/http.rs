//! The S3 client as we set it up, against a server that gives prepared answers: one request for each attempt, conditional
//! and checksummed puts, and every way in which a server can fail told apart.

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use larder_store::{Environment, ServerFailure, Store, StoreErrorKind, StoreOptions};
use larder_testkit::canned::{Answer, Canned, Request};

fn open(server: &Canned, options: &StoreOptions) -> Store {
    open_at(&format!("s3:{}/bucket/pre", server.address()), options)
}

fn open_at(location: &str, options: &StoreOptions) -> Store {
    let env = Environment::from([("AWS_ACCESS_KEY_ID", "test-key"), ("AWS_SECRET_ACCESS_KEY", "test-secret")]);
    Store::open_with(&location.parse().expect("a location"), options, &env).expect("opens")
}

fn once() -> StoreOptions {
    StoreOptions { retry_deadline: Duration::ZERO, ..StoreOptions::default() }
}

fn created() -> Answer {
    Answer::Whole(200, vec![("etag", "\"1\"".into())], Vec::new())
}

fn object(status: u16, range: Option<&str>, body: &[u8]) -> Answer {
    let mut headers = vec![("etag", "\"1\"".to_owned()), ("last-modified", "Tue, 01 Jan 2030 00:00:00 GMT".to_owned())];
    headers.extend(range.map(|range| ("content-range", range.to_owned())));
    Answer::Whole(status, headers, body.to_vec())
}

async fn failing(
    answer: impl Fn() -> Answer + Send + Sync + 'static,
) -> (StoreErrorKind, Option<ServerFailure>, usize) {
    let server = Canned::start(move |_, _| answer()).await;
    let store = open(&server, &once());
    let error = store.create("x", Bytes::from_static(b"12345")).await.expect_err("fails");
    let failure = error.source().and_then(|source| source.downcast_ref::<ServerFailure>()).cloned();
    (error.kind, failure, server.requests().len())
}

#[tokio::test]
async fn a_put_is_conditional_signed_and_checksummed_by_its_signature() {
    let server = Canned::start(|_, _| created()).await;
    open(&server, &once()).create("data/1", Bytes::from_static(b"12345")).await.expect("created");
    let requests = server.requests();
    let [Request { method, target, body, .. }] = &requests[..] else { panic!("{requests:?}") };
    assert_eq!((method.as_str(), target.as_str(), &body[..]), ("PUT", "/bucket/pre/data/1", &b"12345"[..]));
    let header = |name| requests[0].header(name).unwrap_or_default();
    assert_eq!(header("if-none-match"), "*");
    assert!(header("authorization").contains("Credential=test-key/"));
    let sha256_of_12345 = "5994471abb01112afcc18159f6cc74b4f511b99806da59b3caf5a9c173cacfc5";
    assert_eq!(header("x-amz-content-sha256"), sha256_of_12345);
}

#[tokio::test]
async fn a_failing_server_gets_one_request_for_each_attempt() {
    for status in [429, 500, 502, 503, 504] {
        let (_, _, requests) = failing(move || Answer::status(status, "")).await;
        assert_eq!(requests, 1, "{status}: the client repeats by itself");
    }
}

#[tokio::test]
async fn a_servers_answers_are_told_apart() {
    use StoreErrorKind as K;
    let coded =
        |code: &str| format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>Said so.</Message></Error>");
    for (status, code, kind) in [
        (400, "InvalidRequest", K::Invalid),
        (400, "RequestTimeout", K::Unreachable),
        (401, "Unauthorized", K::PermissionDenied),
        (403, "AccessDenied", K::PermissionDenied),
        (403, "QuotaExceeded", K::Full),
        (404, "NoSuchBucket", K::NoBucket),
        (404, "NoSuchKey", K::NotFound),
        (409, "ConditionalRequestConflict", K::Throttled),
        (412, "PreconditionFailed", K::AlreadyExists),
        (429, "TooManyRequests", K::Throttled),
        (500, "InternalError", K::Unreachable),
        (501, "NotImplemented", K::Invalid),
        (503, "SlowDown", K::Throttled),
        (507, "XMinioStorageFull", K::Full),
    ] {
        let body = coded(code);
        let (found, failure, _) = failing(move || Answer::status(status, &body)).await;
        assert_eq!(found, kind, "{status} {code}");
        let expected = ServerFailure { status, code: code.to_owned(), message: "Said so.".to_owned() };
        assert_eq!(failure, Some(expected), "{status} {code}");
    }
}

#[tokio::test]
async fn broken_connections_and_dead_ports_are_unreachable() {
    assert_eq!(failing(|| Answer::Close).await.0, StoreErrorKind::Unreachable);
    let store = open_at("s3:http://127.0.0.1:1/bucket", &once());
    assert_eq!(store.get("x").await.expect_err("nobody there").kind, StoreErrorKind::Unreachable);
    let store = open_at("s3:http://no-such-host.invalid/bucket", &once());
    let kind = store.get("x").await.expect_err("no such host").kind;
    // Without a network not even that is known.
    assert!(matches!(kind, StoreErrorKind::NoConnection | StoreErrorKind::Unreachable), "{kind:?}");
}

#[tokio::test]
async fn a_hanging_server_is_left_after_the_attempts_time() {
    let server = Canned::start(|_, _| Answer::Silence(Duration::from_secs(60))).await;
    let store = open(&server, &StoreOptions { attempt_timeout: Duration::from_millis(50), ..once() });
    let error = store.size("x").await.expect_err("no answer");
    assert_eq!(error.kind, StoreErrorKind::Unreachable);
    assert_eq!(error.to_string(), "cannot look up x: the storage gave no usable answer");
    let reason = error.source().map(ToString::to_string);
    assert_eq!(reason.as_deref(), Some("no answer within 50ms"));
}

#[tokio::test]
async fn a_body_that_ends_early_is_read_again() {
    let server = Canned::start(|number, _| {
        let headers = vec![("etag", "\"1\"".into()), ("last-modified", "Tue, 01 Jan 2030 00:00:00 GMT".into())];
        if number == 0 {
            Answer::Announce(200, headers, 10, b"1234".to_vec())
        } else {
            object(200, None, b"1234567890")
        }
    })
    .await;
    let store = open(&server, &StoreOptions::default());
    assert_eq!(store.get("x").await.expect("read"), "1234567890");
    assert_eq!(store.stats().retries, 1);
}

#[tokio::test]
async fn a_range_of_an_object_that_is_too_short_is_damage() {
    // A server cuts a range that reaches past the end, and refuses one that begins there.
    let cut = Canned::start(|_, _| object(206, Some("bytes 5-9/10"), b"67890")).await;
    let error = open(&cut, &once()).get_range("x", 5..20).await.expect_err("too short");
    assert_eq!(error.kind, StoreErrorKind::Damaged);
    let refused = Canned::start(|_, request| match request.method.as_str() {
        "HEAD" => object(200, None, b"1234567890"),
        _ => Answer::status(416, "<Error><Code>InvalidRange</Code></Error>"),
    })
    .await;
    let error = open(&refused, &once()).get_range("x", 50..60).await.expect_err("too short");
    assert_eq!(error.kind, StoreErrorKind::Damaged);
    assert_eq!(error.source().map(ToString::to_string).as_deref(), Some("60 bytes expected, 10 found"));
}

#[tokio::test]
async fn a_server_that_ignores_ranges_is_not_believed() {
    let server = Canned::start(|_, _| object(200, None, b"1234567890")).await;
    open(&server, &once()).get_range("x", 5..8).await.expect_err("the whole object came");
}

#[tokio::test]
async fn a_listing_is_read_in_pages_and_resumed_after_a_failure() {
    let page = |names: &[&str], next: Option<&str>| {
        let mut body = format!(
            "<?xml version=\"1.0\"?><ListBucketResult><Prefix>pre/data/</Prefix><IsTruncated>{}</IsTruncated>",
            next.is_some()
        );
        for name in names {
            body.push_str(&format!(
                "<Contents><Key>pre/{name}</Key><Size>3</Size><LastModified>2030-01-01T00:00:00.000Z</LastModified></Contents>"
            ));
        }
        body.push_str(
            &next.map(|next| format!("<NextContinuationToken>{next}</NextContinuationToken>")).unwrap_or_default(),
        );
        Answer::status(200, &(body + "</ListBucketResult>"))
    };
    let server = Canned::start(move |number, request| match number {
        0 => page(&["data/a", "data/b"], Some("more")),
        1 => Answer::status(500, ""),
        _ if request.target.contains("start-after=pre%2Fdata%2Fb") => page(&["data/c"], None),
        _ => page(&["wrong"], None),
    })
    .await;
    let store = open(&server, &StoreOptions::default());
    let names: Vec<_> = store.list("data/").await.expect("listed").into_iter().map(|object| object.name).collect();
    assert_eq!(names, ["data/a", "data/b", "data/c"]);
}

/// Azurite before 3.37, and whoever else does not know where to go on, begins again.
#[tokio::test]
async fn a_listing_that_begins_anew_after_a_failure_is_cut_to_what_is_missing() {
    let page = |names: &[&str], next: &str| {
        let entry = |name| {
            format!(
                "<Contents><Key>pre/data/{name}</Key><Size>3</Size><LastModified>2030-01-01T00:00:00.000Z</LastModified></Contents>"
            )
        };
        let entries: String = names.iter().map(entry).collect();
        let head = format!("<Prefix>pre/data/</Prefix><IsTruncated>{}</IsTruncated>", !next.is_empty());
        Answer::status(
            200,
            &format!("<?xml version=\"1.0\"?><ListBucketResult>{head}{entries}{next}</ListBucketResult>"),
        )
    };
    let server = Canned::start(move |number, _| match number {
        0 => page(&["a", "b"], "<NextContinuationToken>more</NextContinuationToken>"),
        1 => Answer::status(500, ""),
        _ => page(&["a", "b", "c"], ""),
    })
    .await;
    let store = open(&server, &StoreOptions::default());
    let names: Vec<_> = store.list("data/").await.expect("listed").into_iter().map(|object| object.name).collect();
    assert_eq!(names, ["data/a", "data/b", "data/c"]);
}
