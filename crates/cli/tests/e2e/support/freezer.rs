//! Storage classes of S3 in front of a folder: objects that must be thawed before they can be read.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use larder_testkit::canned::{Answer, Request};
use parking_lot::Mutex;

use super::damage;
use super::server::{Bucket, answer, refusal};

/// When all objects were made.
const MADE: &str = "2026-01-01T00:00:00.000Z";
/// The prefix of the repository in the bucket.
const PREFIX: &str = "some/prefix/";

/// What is known about one object in a cold class.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Frozen {
    class: String,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Cold,
    /// Thawed after this number of listings.
    Thawing(u32),
    Thawed,
    /// Listed as thawed, and cold again when it is read: its days are over.
    Expiring,
}

/// The table of classes. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Freezer {
    objects: Arc<Mutex<BTreeMap<String, Frozen>>>,
    /// Bodies of requests to thaw, with the answers.
    asked: Arc<Mutex<Vec<(String, u16)>>>,
    /// The next objects expire once.
    expires: Arc<Mutex<u32>>,
    /// Objects that were read while they were cold.
    refused: Arc<Mutex<Vec<String>>>,
    /// Listings of classes since the last question.
    listings: Arc<Mutex<u32>>,
    /// Whether listings of classes are refused.
    hides_classes: Arc<AtomicBool>,
}

/// An answer about a thawed object.
fn of_class(class: &str, answer: Answer) -> Answer {
    match answer {
        Answer::Whole(status @ (200 | 206), mut headers, body) => {
            headers.push(("x-amz-storage-class", class.to_owned()));
            headers.push((
                "x-amz-restore",
                "ongoing-request=\"false\", expiry-date=\"Fri, 01 Jan 2027 00:00:00 GMT\"".to_owned(),
            ));
            Answer::Whole(status, headers, body)
        }
        answer => answer,
    }
}

/// The class whose archive tiers only an object itself tells.
const TIERING: &str = "INTELLIGENT_TIERING";

impl Freezer {
    /// A bucket with classes. An object is thawed after `listings` listings.
    pub(crate) fn serve(&self, folder: PathBuf, listings: u32) -> Bucket {
        let (freezer, of) = (self.clone(), folder.clone());
        Bucket::serve(folder, move |_, request| freezer.answer(&of, listings, request))
    }

    /// Moves all data that is there to a class, as a rule of the bucket does.
    pub(crate) fn freeze(&self, folder: &std::path::Path, class: &str) {
        for (name, _) in damage::sizes(folder, &format!("{PREFIX}data/")) {
            self.objects.lock().insert(name, Frozen { class: class.to_owned(), state: State::Cold });
        }
    }

    /// The reads of cold objects since the last call.
    pub(crate) fn refused(&self) -> Vec<String> {
        std::mem::take(&mut *self.refused.lock())
    }

    /// How many listings of classes came since the last call.
    pub(crate) fn listings(&self) -> u32 {
        std::mem::take(&mut *self.listings.lock())
    }

    /// Refuses listings of classes from now on.
    pub(crate) fn hide_classes(&self) {
        self.hides_classes.store(true, Ordering::Relaxed);
    }

    /// Thaws all objects, as if somebody else had asked.
    pub(crate) fn thaw_all(&self) {
        self.objects.lock().values_mut().for_each(|frozen| frozen.state = State::Thawed);
    }

    /// Takes out everything: all objects can be read.
    pub(crate) fn clear(&self) {
        self.objects.lock().clear();
    }

    /// This number of objects that are thawed from now on expires before the first read.
    pub(crate) fn expire(&self, count: u32) {
        *self.expires.lock() = count;
    }

    /// Names of objects with a class, and the classes.
    pub(crate) fn classes(&self) -> Vec<(String, String)> {
        self.objects.lock().iter().map(|(name, frozen)| (name.clone(), frozen.class.clone())).collect()
    }

    /// The requests to thaw since the last call, with the statuses of their answers.
    pub(crate) fn asked(&self) -> Vec<(String, u16)> {
        std::mem::take(&mut *self.asked.lock())
    }

    fn answer(&self, folder: &std::path::Path, listings: u32, request: &Request) -> Option<Answer> {
        let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
        let key = path.strip_prefix("/bucket/").unwrap_or_default().to_owned();
        let parameter = |name: &str| query.split('&').any(|part| part.split('=').next() == Some(name));
        match request.method.as_str() {
            "PUT" => {
                if let Some(class) = request.header("x-amz-storage-class").filter(|class| *class != "STANDARD") {
                    let frozen = Frozen { class: class.to_owned(), state: State::Cold };
                    self.objects.lock().entry(key).or_insert(frozen);
                }
                None
            }
            "POST" if parameter("restore") => Some(self.thaw(&key, listings, request)),
            "GET" if parameter("list-type") && request.header("x-amz-optional-object-attributes").is_some() => {
                assert!(query.contains("X-Amz-Signature="), "{query}");
                assert!(query.contains("x-amz-optional-object-attributes"), "it is signed: {query}");
                *self.listings.lock() += 1;
                match self.hides_classes.load(Ordering::Relaxed) {
                    true => Some(refusal(501, "NotImplemented")),
                    false => Some(self.list(folder)),
                }
            }
            "GET" => {
                let mut objects = self.objects.lock();
                let frozen = objects.get_mut(&key)?;
                match frozen.state {
                    State::Thawed => Some(of_class(&frozen.class, answer(folder, request))),
                    state => {
                        if state == State::Expiring {
                            frozen.state = State::Cold;
                        }
                        self.refused.lock().push(key);
                        Some(refusal(403, "InvalidObjectState"))
                    }
                }
            }
            "HEAD" => {
                let objects = self.objects.lock();
                let frozen = objects.get(&key).filter(|frozen| frozen.class == TIERING)?;
                let mut headers = vec![("x-amz-archive-status", "ARCHIVE_ACCESS".to_owned())];
                match frozen.state {
                    State::Thawed | State::Expiring => return None,
                    State::Thawing(_) => headers.push(("x-amz-restore", "ongoing-request=\"true\"".to_owned())),
                    State::Cold => {}
                }
                Some(Answer::Whole(200, headers, Vec::new()))
            }
            "DELETE" => {
                self.objects.lock().remove(&key);
                None
            }
            _ => None,
        }
    }

    fn thaw(&self, key: &str, listings: u32, request: &Request) -> Answer {
        let (status, answer) = match self.objects.lock().get_mut(key) {
            None => (403, refusal(403, "InvalidObjectState")),
            Some(frozen) => match frozen.state {
                State::Cold => {
                    frozen.state = State::Thawing(listings);
                    (202, Answer::status(202, ""))
                }
                State::Thawing(_) => (409, refusal(409, "RestoreAlreadyInProgress")),
                State::Thawed | State::Expiring => (200, Answer::status(200, "")),
            },
        };
        self.asked.lock().push((String::from_utf8_lossy(&request.body).into_owned(), status));
        answer
    }

    fn list(&self, folder: &std::path::Path) -> Answer {
        let mut objects = self.objects.lock();
        let mut listed = Vec::new();
        for (name, size) in damage::sizes(folder, &format!("{PREFIX}data/")) {
            let mut class = "<StorageClass>STANDARD</StorageClass>".to_owned();
            if let Some(frozen) = objects.get_mut(&name) {
                let status = match frozen.state {
                    State::Cold => "",
                    State::Thawing(_) => "<IsRestoreInProgress>true</IsRestoreInProgress>",
                    State::Thawed | State::Expiring => {
                        "<IsRestoreInProgress>false</IsRestoreInProgress>\
                         <RestoreExpiryDate>2027-01-01T00:00:00.000Z</RestoreExpiryDate>"
                    }
                };
                let status = match frozen.class == TIERING {
                    true => String::new(),
                    false => format!("<RestoreStatus>{status}</RestoreStatus>"),
                };
                class = format!("<StorageClass>{}</StorageClass>{status}", frozen.class);
                frozen.state = match frozen.state {
                    State::Thawing(0 | 1) if *self.expires.lock() > 0 => {
                        *self.expires.lock() -= 1;
                        State::Expiring
                    }
                    State::Thawing(0 | 1) => State::Thawed,
                    State::Thawing(left) => State::Thawing(left - 1),
                    state => state,
                };
            }
            listed.push(format!(
                "<Contents><Key>{name}</Key><LastModified>{MADE}</LastModified><Size>{size}</Size>{class}</Contents>"
            ));
        }
        let (count, contents) = (listed.len(), listed.concat());
        let body = format!(
            "<ListBucketResult><Prefix>{PREFIX}data/</Prefix><KeyCount>{count}</KeyCount><IsTruncated>false</IsTruncated>\
             {contents}</ListBucketResult>"
        );
        Answer::status(200, &body)
    }
}
