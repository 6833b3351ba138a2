//! Azure and Google Cloud Storage as we set their clients up, against a server that gives prepared answers: what a create asks for,
//! and what becomes of it when its answer is lost. `tests/clouds.sh` has servers that behave like the clouds.

use bytes::Bytes;
use larder_store::{Created, Environment, Store, StoreErrorKind, StoreOptions};
use larder_testkit::canned::{Answer, Canned};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cloud {
    Azure,
    Google,
}

const BOTH: [Cloud; 2] = [Cloud::Azure, Cloud::Google];

impl Cloud {
    fn open(self, server: &Canned) -> Store {
        let address = server.address();
        let (location, env) = match self {
            Self::Azure => (
                "azure://bucket/pre",
                Environment::from([
                    ("AZURE_STORAGE_ACCOUNT_NAME", "account"),
                    ("AZURE_STORAGE_ACCOUNT_KEY", "a2V5"),
                    ("AZURE_STORAGE_ENDPOINT", &format!("{address}/account")),
                ]),
            ),
            Self::Google => ("gs://bucket/pre", Environment::from([("STORAGE_EMULATOR_HOST", address)])),
        };
        let location = location.parse().expect("a location");
        Store::open_with(&location, &StoreOptions::default(), &env).expect("opens")
    }

    /// The header that makes a put a create.
    fn condition(self) -> (&'static str, &'static str) {
        match self {
            Self::Azure => ("if-none-match", "*"),
            Self::Google => ("x-goog-if-generation-match", "0"),
        }
    }

    fn taken(self) -> Answer {
        match self {
            Self::Azure => Answer::status(409, "<Error><Code>BlobAlreadyExists</Code></Error>"),
            Self::Google => Answer::status(412, "<Error><Code>PreconditionFailed</Code></Error>"),
        }
    }
}

fn headers() -> Vec<(&'static str, String)> {
    vec![
        ("etag", "\"1\"".to_owned()),
        ("x-goog-generation", "1".to_owned()),
        ("last-modified", "Tue, 01 Jan 2030 00:00:00 GMT".to_owned()),
    ]
}

#[tokio::test]
async fn a_put_is_a_create() {
    for cloud in BOTH {
        let server = Canned::start(|_, _| Answer::Whole(201, headers(), Vec::new())).await;
        let created = cloud.open(&server).create("data/1", Bytes::from_static(b"12345")).await.expect("created");
        assert_eq!(created, Created { all_answered: true });
        let requests = server.requests();
        assert_eq!(requests.len(), 1, "{cloud:?}");
        let (name, value) = cloud.condition();
        assert_eq!((requests[0].method.as_str(), requests[0].header(name)), ("PUT", Some(value)), "{cloud:?}");
    }
}

/// The answer to the first attempt is lost; the second is told that the name is taken. By whom, reading it back says.
#[tokio::test]
async fn a_create_whose_answer_was_lost_is_settled_by_reading_back() {
    for cloud in BOTH {
        for (there, ours) in [(&b"12345"[..], true), (b"other", false)] {
            let server = Canned::start(move |number, request| match (number, request.method.as_str()) {
                (0, _) => Answer::Close,
                (_, "PUT") => cloud.taken(),
                _ => Answer::Whole(200, headers(), there.to_vec()),
            })
            .await;
            let created = cloud.open(&server).create("data/1", Bytes::from_static(b"12345")).await;
            let expected = if ours { Ok(Created { all_answered: true }) } else { Err(StoreErrorKind::AlreadyExists) };
            assert_eq!(created.map_err(|error| error.kind), expected, "{cloud:?}");
        }
    }
}

#[tokio::test]
async fn a_taken_name_is_a_lost_race_without_a_second_request() {
    for cloud in BOTH {
        let server = Canned::start(move |_, _| cloud.taken()).await;
        let error = cloud.open(&server).create("data/1", Bytes::from_static(b"12345")).await.expect_err("taken");
        assert_eq!((error.kind, server.requests().len()), (StoreErrorKind::AlreadyExists, 1), "{cloud:?}");
    }
}

#[tokio::test]
async fn deleting_what_is_not_there_is_done() {
    let part = "--b\r\nContent-Type: application/http\r\nContent-ID: 0\r\n\r\nHTTP/1.1 404 The specified blob does not exist.\r\n\
                x-ms-error-code: BlobNotFound\r\n\r\n\r\n--b--\r\n";
    for cloud in BOTH {
        let server = Canned::start(move |_, _| match cloud {
            Cloud::Azure => Answer::Whole(
                202,
                vec![("content-type", "multipart/mixed; boundary=b".to_owned())],
                part.as_bytes().to_vec(),
            ),
            Cloud::Google => Answer::status(404, "<Error><Code>NoSuchKey</Code></Error>"),
        })
        .await;
        cloud.open(&server).delete("data/1").await.unwrap_or_else(|error| panic!("{cloud:?}: {error:?}"));
    }
}
