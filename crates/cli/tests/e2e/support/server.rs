//! A folder served as a bucket: enough of S3 for a repository, with room for everything that real servers do.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use larder_testkit::canned::{Answer, Canned, Request};
use parking_lot::Mutex;
use tokio::runtime::Runtime;

use super::{Play, Ran, damage, run};

/// A running server, and the folder behind it.
pub(crate) struct Bucket {
    canned: Canned,
    _runtime: Runtime,
}

impl Bucket {
    /// Serves `folder`; requests that `fault` has an answer for do not reach it.
    pub(crate) fn serve(
        folder: PathBuf,
        fault: impl Fn(usize, &Request) -> Option<Answer> + Send + Sync + 'static,
    ) -> Self {
        let runtime = Runtime::new().expect("threads start");
        let answer =
            move |number: usize, request: &Request| fault(number, request).unwrap_or_else(|| answer(&folder, request));
        Self::on(runtime, answer)
    }

    /// A server of this runtime.
    pub(crate) fn on(runtime: Runtime, answer: impl Fn(usize, &Request) -> Answer + Send + Sync + 'static) -> Self {
        let canned = runtime.block_on(Canned::start(answer));
        Self { canned, _runtime: runtime }
    }

    /// Serves `folder`; every answer takes this long, however many are under way.
    pub(crate) fn serve_slowly(folder: PathBuf, latency: Duration) -> (Self, Trips) {
        let runtime = Runtime::new().expect("threads start");
        let trips = Trips { latency, begun: Arc::default() };
        let begun = trips.begun.clone();
        let answer = move |_: usize, request: &Request| {
            begun.lock().push((Instant::now(), format!("{} {}", request.method, request.target)));
            Answer::Later(latency, Box::new(answer(&folder, request)))
        };
        (Self::on(runtime, answer), trips)
    }

    /// Runs the binary on the bucket.
    pub(crate) fn larder<A: AsRef<OsStr>>(&self, play: &Play, args: impl IntoIterator<Item = A>) -> Ran {
        run(&mut self.command(play, args))
    }

    /// A run of the binary on the bucket that has not begun.
    pub(crate) fn command<A: AsRef<OsStr>>(&self, play: &Play, args: impl IntoIterator<Item = A>) -> Command {
        let mut command = play.command(args);
        command
            .env("LARDER_REPOSITORY", format!("s3:{}/bucket/some/prefix", self.canned.address()))
            .env("AWS_ACCESS_KEY_ID", "id")
            .env("AWS_SECRET_ACCESS_KEY", "secret")
            .env("AWS_REGION", "us-east-1");
        command
    }

    /// Its port on this machine.
    pub(crate) fn port(&self) -> u16 {
        let (_, port) = self.canned.address().rsplit_once(':').expect("an address has a port");
        port.parse().expect("a port is a number")
    }

    /// Who sent each request that says so.
    pub(crate) fn authorizations(&self) -> Vec<String> {
        let requests = self.canned.requests();
        requests.iter().filter_map(|request| request.header("authorization")).map(str::to_owned).collect()
    }

    /// How many requests for objects, for creates, for listings and for deletions came.
    pub(crate) fn kinds(&self) -> [u64; 4] {
        let requests = self.canned.requests();
        let kind = |request: &Request| match &*request.method {
            "PUT" => 1,
            "DELETE" => 3,
            _ if request.target.contains("list-type=2") => 2,
            _ => 0,
        };
        let mut kinds = [0; 4];
        requests.iter().for_each(|request| kinds[kind(request)] += 1);
        kinds
    }

    /// How many requests came.
    pub(crate) fn requests(&self) -> usize {
        self.canned.requests().len()
    }
}

/// The requests of a slow server.
pub(crate) struct Trips {
    latency: Duration,
    begun: Arc<Mutex<Vec<(Instant, String)>>>,
}

impl Trips {
    /// The longest chain of requests of which each began after the one before was answered, in order. A client that sends requests
    /// together waits once for them.
    pub(crate) fn chain(&self) -> Vec<String> {
        let begun = self.begun.lock();
        let mut chains: Vec<(usize, Option<usize>)> = Vec::new();
        for (number, (start, _)) in begun.iter().enumerate() {
            let answered = (0..number).filter(|before| begun[*before].0 + self.latency <= *start);
            let last = answered.max_by_key(|before| chains[*before].0);
            chains.push((last.map_or(1, |last| chains[last].0 + 1), last));
        }
        let mut at = (0..chains.len()).max_by_key(|number| chains[*number].0);
        let mut chain = Vec::new();
        while let Some(number) = at {
            chain.push(begun[number].1.clone());
            at = chains[number].1;
        }
        chain.reverse();
        chain
    }

    /// Forgets what came so far.
    pub(crate) fn clear(&self) {
        self.begun.lock().clear();
    }
}

/// An error as S3 words it.
pub(crate) fn refusal(status: u16, code: &str) -> Answer {
    Answer::status(status, &format!("<Error><Code>{code}</Code><Message>for a test</Message></Error>"))
}

/// What a bucket answers.
pub(crate) fn answer(folder: &Path, request: &Request) -> Answer {
    let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
    let Some(key) = path.strip_prefix("/bucket").map(|key| key.trim_start_matches('/')) else {
        return refusal(404, "NoSuchBucket");
    };
    if query.contains("list-type=2") {
        return list(folder, query);
    }
    let file = folder.join(key);
    match request.method.as_str() {
        "PUT" => put(&file, request),
        "DELETE" => {
            drop(std::fs::remove_file(&file));
            Answer::status(204, "")
        }
        _ => get(&file, request),
    }
}

fn list(folder: &Path, query: &str) -> Answer {
    let prefix = query.split('&').find_map(|part| part.strip_prefix("prefix=")).unwrap_or_default().replace("%2F", "/");
    let objects = damage::sizes(folder, &prefix);
    let listed: Vec<String> = objects
        .iter()
        .map(|(name, size)| {
            format!(
                "<Contents><Key>{name}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>\"x\"</ETag>\
                 <Size>{size}</Size></Contents>"
            )
        })
        .collect();
    let (count, contents) = (listed.len(), listed.concat());
    let body = format!(
        "<?xml version=\"1.0\"?><ListBucketResult><Name>bucket</Name><Prefix>{prefix}</Prefix><KeyCount>{count}</KeyCount>\
         <MaxKeys>100000</MaxKeys><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>"
    );
    Answer::Whole(200, vec![("content-type", "application/xml".to_owned())], body.into_bytes())
}

fn put(file: &Path, request: &Request) -> Answer {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let folder = file.parent().expect("a parent");
    std::fs::create_dir_all(folder).expect("made");
    // A link is made whole or not at all, and only where nothing is.
    let whole =
        std::env::temp_dir().join(format!("bucket-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed)));
    std::fs::write(&whole, &request.body).expect("written");
    let linked = std::fs::hard_link(&whole, file);
    std::fs::remove_file(&whole).expect("removed");
    match linked {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => return refusal(412, "PreconditionFailed"),
        linked => linked.expect("the folder for temporary files is on the same file system"),
    }
    Answer::Whole(200, vec![("etag", "\"x\"".to_owned())], Vec::new())
}

fn get(file: &Path, request: &Request) -> Answer {
    let Ok(content) = std::fs::read(file) else { return refusal(404, "NoSuchKey") };
    let size = content.len();
    let mut headers = vec![
        ("etag", "\"x\"".to_owned()),
        ("last-modified", "Thu, 01 Jan 2026 00:00:00 GMT".to_owned()),
        ("accept-ranges", "bytes".to_owned()),
    ];
    let Some((from, to)) = request.header("range").and_then(|range| span(range, size)) else {
        return Answer::Whole(200, headers, content);
    };
    if from >= size {
        return refusal(416, "InvalidRange");
    }
    headers.push(("content-range", format!("bytes {from}-{}/{size}", to - 1)));
    Answer::Whole(206, headers, content[from..to].to_vec())
}

/// First byte, and the byte behind the last.
fn span(range: &str, size: usize) -> Option<(usize, usize)> {
    let (from, to) = range.strip_prefix("bytes=")?.split_once('-')?;
    match (from.parse::<usize>(), to.parse::<usize>()) {
        (Err(_), Ok(last)) => Some((size.saturating_sub(last), size)),
        (Ok(from), Ok(to)) => Some((from, (to + 1).min(size))),
        (Ok(from), Err(_)) => Some((from, size)),
        _ => None,
    }
}
