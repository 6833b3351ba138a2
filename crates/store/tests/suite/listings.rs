//! Listings that are none: a server, a gateway or a proxy answers a LIST with something else. Nothing of it may be believed,
//! because what a listing does not show counts as gone.

use std::error::Error;
use std::time::Duration;

use larder_store::{Environment, Store, StoreError, StoreErrorKind, StoreOptions};
use larder_testkit::canned::{Answer, Canned};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cloud {
    S3,
    Azure,
    Google,
}

const ALL: [Cloud; 3] = [Cloud::S3, Cloud::Azure, Cloud::Google];

impl Cloud {
    fn open(self, server: &Canned, retry_deadline: Duration) -> Store {
        let address = server.address();
        let (location, env) = match self {
            Self::S3 => (
                format!("s3:{address}/bucket/pre"),
                Environment::from([("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", "secret")]),
            ),
            Self::Azure => (
                "azure://bucket/pre".to_owned(),
                Environment::from([
                    ("AZURE_STORAGE_ACCOUNT_NAME", "account"),
                    ("AZURE_STORAGE_ACCOUNT_KEY", "a2V5"),
                    ("AZURE_STORAGE_ENDPOINT", &format!("{address}/account")),
                ]),
            ),
            Self::Google => ("gs://bucket/pre".to_owned(), Environment::from([("STORAGE_EMULATOR_HOST", address)])),
        };
        let options = StoreOptions { retry_deadline, ..StoreOptions::default() };
        Store::open_with(&location.parse().expect("a location"), &options, &env).expect("opens")
    }

    /// A page of `data/` as the cloud gives it.
    fn page(self, names: &[&str], next: Option<&str>) -> Answer {
        let mut entries = String::new();
        for name in names {
            entries.push_str(&match self {
                Self::S3 | Self::Google => format!(
                    "<Contents><Key>pre/data/{name}</Key><Size>3</Size>\
                     <LastModified>2030-01-01T00:00:00.000Z</LastModified></Contents>"
                ),
                Self::Azure => format!(
                    "<Blob><Name>pre/data/{name}</Name><Properties><Last-Modified>Tue, 01 Jan 2030 00:00:00 GMT\
                     </Last-Modified><Content-Length>3</Content-Length><Content-Type>x</Content-Type></Properties></Blob>"
                ),
            });
        }
        let (count, truncated) = (names.len(), next.is_some());
        let token = next.unwrap_or_default();
        Answer::status(
            200,
            &match self {
                Self::S3 | Self::Google => {
                    let token = next.map(|token| format!("<NextContinuationToken>{token}</NextContinuationToken>"));
                    format!(
                        "<?xml version=\"1.0\"?><ListBucketResult><Prefix>pre/data/</Prefix><KeyCount>{count}</KeyCount>\
                         <IsTruncated>{truncated}</IsTruncated>{}{entries}</ListBucketResult>",
                        token.unwrap_or_default()
                    )
                }
                Self::Azure => format!(
                    "\u{feff}<?xml version=\"1.0\"?><EnumerationResults><Prefix>pre/data/</Prefix><Blobs>{entries}</Blobs>\
                     <NextMarker>{token}</NextMarker></EnumerationResults>"
                ),
            },
        )
    }

    /// Answers with status 200 that are no listing, and pass.
    fn passing_lies(self) -> Vec<String> {
        let Answer::Whole(_, _, page) = self.page(&["a"], None) else { panic!("a page is a whole answer") };
        let page = String::from_utf8(page).expect("text");
        vec![
            String::new(),
            "<?xml version=\"1.0\"?><Error><Code>InternalError</Code><Message>Try again.</Message></Error>".to_owned(),
            "<html><head><title>Sign in</title></head><body></body></html>".to_owned(),
            "<!DOCTYPE html>\n<html><body>502</body></html>".to_owned(),
            "{\"message\": \"bad gateway\"}".to_owned(),
            "<Other></Other>".to_owned(),
            // Cut, with a length that fits.
            page[..page.len() - 5].to_owned(),
            page[..page.len() / 2].to_owned(),
        ]
    }
}

async fn names(store: &Store) -> Result<Vec<String>, StoreError> {
    Ok(store.list("data/").await?.into_iter().map(|object| object.name).collect())
}

/// A first page and a second, of which one is a lie.
async fn listed_despite(cloud: Cloud, lie: String, lied_at: usize) {
    let shown = format!("{cloud:?}, request {lied_at}: {lie}");
    let server = Canned::start(move |number, request| match number {
        number if number == lied_at => Answer::status(200, &lie),
        _ if request.target.contains("there") || request.target.contains("start") => cloud.page(&["b"], None),
        _ => cloud.page(&["a"], Some("there")),
    })
    .await;
    let found = names(&cloud.open(&server, Duration::from_secs(60))).await;
    assert_eq!(found.expect(&shown), ["data/a", "data/b"], "{shown}");
}

#[tokio::test]
async fn an_answer_that_is_no_listing_is_asked_for_again() {
    let each = ALL.into_iter().flat_map(|cloud| cloud.passing_lies().into_iter().map(move |lie| (cloud, lie)));
    let each = each.flat_map(|(cloud, lie)| [0, 1].map(|lied_at| listed_despite(cloud, lie.clone(), lied_at)));
    futures::future::join_all(each).await;
}

#[tokio::test]
async fn a_server_that_never_lists_is_told_in_words() {
    for cloud in ALL {
        for lie in cloud.passing_lies() {
            let answer = lie.clone();
            let server = Canned::start(move |_, _| Answer::status(200, &answer)).await;
            let error = names(&cloud.open(&server, Duration::ZERO)).await.expect_err(&lie);
            assert_eq!(error.kind, StoreErrorKind::Unreachable, "{lie}");
            let said = error.source().map(ToString::to_string).unwrap_or_default();
            assert!(said.contains("the answer to a listing is no"), "{cloud:?} {lie}: {said}");
        }
    }
}

/// `ListObjects` version 1: truncated, and the client is to go on after the last name. Nothing here does.
#[tokio::test]
async fn a_server_of_the_old_listing_is_refused() {
    let page = "<ListBucketResult><Prefix>pre/data/</Prefix><IsTruncated>true</IsTruncated><Contents>\
                <Key>pre/data/a</Key><Size>3</Size><LastModified>2030-01-01T00:00:00.000Z</LastModified></Contents>\
                </ListBucketResult>";
    let server = Canned::start(move |_, _| Answer::status(200, page)).await;
    let error = names(&Cloud::S3.open(&server, Duration::from_secs(60))).await.expect_err("not complete");
    assert_eq!(error.kind, StoreErrorKind::Foreign);
    let said = error.source().map(ToString::to_string).unwrap_or_default();
    assert!(said.ends_with("does this server know ListObjectsV2?"), "{said}");
    // It is asked a few times, not for a minute.
    assert_eq!(server.requests().len(), 4);
}

#[tokio::test]
async fn a_listing_of_something_else_is_refused() {
    for page in [
        "<Prefix>pre/keys/</Prefix><IsTruncated>false</IsTruncated>",
        "<Prefix></Prefix><IsTruncated>false</IsTruncated>",
        "<Prefix>pre/data/</Prefix>",
        "<Prefix>pre/data/</Prefix><IsTruncated>false</IsTruncated><KeyCount>7</KeyCount>",
        "<Prefix>pre/data/</Prefix><IsTruncated>false</IsTruncated><NextContinuationToken>x</NextContinuationToken>",
    ] {
        let body = format!("<ListBucketResult>{page}</ListBucketResult>");
        let server = Canned::start(move |_, _| Answer::status(200, &body)).await;
        let error = names(&Cloud::S3.open(&server, Duration::from_secs(60))).await.expect_err(page);
        assert_eq!(error.kind, StoreErrorKind::Foreign, "{page}");
    }
}

/// The connection ends in the middle of a page. That is no damage of anything, and asked again as long as any other silence.
#[tokio::test]
async fn a_page_that_breaks_off_is_no_damage() {
    let Answer::Whole(status, headers, page) = Cloud::S3.page(&["a"], None) else { panic!("a page is a whole answer") };
    let server = Canned::start(move |number, _| match number {
        0..=3 => Answer::Announce(status, headers.clone(), page.len(), page[..page.len() / 2].to_vec()),
        _ => Cloud::S3.page(&["a"], None),
    })
    .await;
    let error = names(&Cloud::S3.open(&server, Duration::ZERO)).await.expect_err("breaks off");
    assert_eq!(error.kind, StoreErrorKind::Unreachable);
    assert_eq!(names(&Cloud::S3.open(&server, Duration::from_secs(60))).await.expect("in the end"), ["data/a"]);
}
