//! Round trips of a run of the binary, counted without a clock.
//!
//! The server holds all answers back until the program waits for nothing else, and then gives them all together. So the number of rounds is
//! the length of the longest chain of requests of which each needs an answer to the one before, whatever the machine's speed. What a client
//! sends together is one round.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use larder_testkit::canned::{Answer, Request, Rounds};
use parking_lot::Mutex;
use rustix::thread::gettid;

use super::server::{Bucket, answer};
use super::{Play, Ran};

/// Between two looks at threads.
const LOOK_AGAIN: Duration = Duration::from_micros(300);

/// Requests, with the numbers of their rounds.
type Came = Arc<Mutex<Vec<(u64, String)>>>;

/// A bucket that answers in rounds.
pub(crate) struct InRounds {
    bucket: Bucket,
    rounds: Rounds,
    came: Came,
    /// Threads of the server.
    threads: Arc<Mutex<Vec<i32>>>,
    port: u16,
}

/// The requests of one run.
#[derive(Debug)]
pub(crate) struct Trips {
    /// Those of each round.
    pub(crate) rounds: Vec<Vec<String>>,
}

impl Trips {
    /// How many requests there were.
    pub(crate) fn requests(&self) -> usize {
        self.rounds.iter().map(Vec::len).sum()
    }

    /// How many requests were sent in the rounds before the first one with a request that this admits.
    pub(crate) fn until(&self, admits: impl Fn(&str) -> bool) -> usize {
        let before = self.rounds.iter().take_while(|round| !round.iter().any(|request| admits(request)));
        before.map(Vec::len).sum()
    }

    /// A line a round: how many requests of which kind, and the first of them.
    pub(crate) fn shown(&self) -> String {
        let line = |(number, round): (usize, &Vec<String>)| {
            let mut kinds: BTreeMap<String, (usize, &str)> = BTreeMap::new();
            for request in round {
                let (method, name) = request.split_once(' ').unwrap_or_default();
                let kind = format!("{method} {}", name.split('/').next().unwrap_or_default());
                kinds.entry(kind).or_insert((0, name)).0 += 1;
            }
            let kinds: Vec<_> =
                kinds.into_iter().map(|(kind, (count, name))| format!("{count} {kind} ({name})")).collect();
            format!("{number:4}: {}", kinds.join(", "))
        };
        self.rounds.iter().enumerate().map(line).collect::<Vec<_>>().join("\n")
    }
}

impl InRounds {
    /// Serves `folder`.
    pub(crate) fn serve(folder: PathBuf) -> Self {
        let threads: Arc<Mutex<Vec<i32>>> = Arc::default();
        let started = threads.clone();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .on_thread_start(move || started.lock().push(gettid().as_raw_nonzero().get()))
            .enable_all()
            .build()
            .expect("threads start");
        let (rounds, came) = (Rounds::default(), Came::default());
        let (joining, noting) = (rounds.clone(), came.clone());
        let answer = move |_: usize, request: &Request| {
            let answer = answer(&folder, request);
            let mut came = noting.lock();
            let round = joining.join();
            came.push((round.number(), shown(request)));
            Answer::InRound(round, Box::new(answer))
        };
        let bucket = Bucket::on(runtime, answer);
        let port = bucket.port();
        Self { bucket, rounds, came, threads, port }
    }

    /// Runs the binary to its end.
    pub(crate) fn larder(&self, play: &Play, args: &[&str]) -> (Ran, Trips) {
        self.run(self.bucket.command(play, args))
    }

    fn run(&self, mut command: Command) -> (Ran, Trips) {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("larder starts");
        let pid = child.id();
        let ends = std::thread::spawn(move || Ran::from(child.wait_with_output().expect("it ends")));
        let mut answered = 0;
        while !ends.is_finished() {
            std::thread::sleep(LOOK_AGAIN);
            let waiting = self.came.lock().len();
            if waiting > answered && self.is_quiet(pid) && self.came.lock().len() == waiting {
                let _came = self.came.lock();
                answered = waiting;
                self.rounds.end();
            }
        }
        let ran = ends.join().expect("the run is waited for");
        let mut rounds: BTreeMap<u64, Vec<String>> = BTreeMap::new();
        for (number, request) in self.came.lock().drain(..) {
            rounds.entry(number).or_default().push(request);
        }
        (ran, Trips { rounds: rounds.into_values().collect() })
    }

    /// Whether neither the program nor the server gets any further: all of their threads sleep, none was awake between two looks, and
    /// nothing is on its way from one to the other.
    fn is_quiet(&self, pid: u32) -> bool {
        let look = || {
            let mut seen = asleep(pid, None)?;
            seen.extend(asleep(std::process::id(), Some(&self.threads.lock()))?);
            Some(seen)
        };
        let Some(before) = look() else { return false };
        std::thread::sleep(LOOK_AGAIN);
        !self.is_under_way() && look().is_some_and(|after| after == before)
    }

    /// Whether a connection of the server is being made, or has bytes that were not acknowledged or not read.
    fn is_under_way(&self) -> bool {
        let port = format!(":{:04X}", self.port);
        let sockets = std::fs::read_to_string("/proc/net/tcp").expect("Linux lists its sockets");
        sockets.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>()).any(|fields| {
            let [_, local, remote, state, queues, ..] = fields[..] else { return false };
            let is_ours = local.ends_with(&port) || remote.ends_with(&port);
            // SYN_SENT and SYN_RECV; what is closed may have bytes that nobody reads.
            let (is_made, is_open) = (matches!(state, "02" | "03"), matches!(state, "01" | "0A"));
            is_ours && (is_made || (is_open && queues != "00000000:00000000"))
        })
    }
}

/// How often each thread of a process was put to sleep; `None`: one of them is awake. Without `threads`, all of the process.
fn asleep(pid: u32, threads: Option<&[i32]>) -> Option<Vec<(i32, String)>> {
    let tasks = format!("/proc/{pid}/task");
    let ids = match threads {
        Some(ids) => ids.to_vec(),
        None => {
            let entries = std::fs::read_dir(&tasks).ok()?.flatten();
            entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
        }
    };
    let mut seen = Vec::new();
    for id in ids {
        // It may have ended.
        let Ok(status) = std::fs::read_to_string(format!("{tasks}/{id}/status")) else { continue };
        let value = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim();
        if !value("State:").starts_with('S') {
            return None;
        }
        seen.push((id, [value("voluntary_ctxt_switches:"), value("nonvoluntary_ctxt_switches:")].join(" ")));
    }
    seen.sort_unstable();
    Some(seen)
}

/// A request as a trace shows it: the method, and the object or the prefix below the repository's.
fn shown(request: &Request) -> String {
    let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
    let prefix =
        query.split('&').find_map(|part| part.strip_prefix("prefix=")).map(|prefix| prefix.replace("%2F", "/"));
    let (method, name) = match &prefix {
        Some(prefix) => ("LIST", prefix.as_str()),
        None => (request.method.as_str(), path.trim_start_matches("/bucket/")),
    };
    format!("{method} {}", name.trim_start_matches("some/prefix/"))
}
