//! `gnode`: passes for what others do, for what was left, and for nothing else.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Child;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use larder_testkit::data;
use serde_json::Value;

use crate::support::{Play, damage, schema};

/// Longer than anything here takes; whoever waits so long hangs.
const HANGS: Duration = Duration::from_secs(120);

/// A G-node that runs, and what it writes.
struct Gnode {
    child: Child,
    passes: Receiver<Value>,
    warnings: Receiver<Value>,
}

impl Drop for Gnode {
    fn drop(&mut self) {
        // Of a test that failed nothing runs on.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Lines of JSON as they come.
fn lines(from: impl Read + Send + 'static) -> Receiver<Value> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            let line = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line}"));
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    lines
}

impl Gnode {
    fn start(play: &Play, args: &[&str]) -> Self {
        let mut child = play.spawn(&mut play.command([&["gnode", "--poll", "1s", "--json"], args].concat()));
        let passes = lines(child.stdout.take().expect("a pipe"));
        let warnings = lines(child.stderr.take().expect("a pipe"));
        Self { child, passes, warnings }
    }

    /// The next pass.
    #[track_caller]
    fn pass(&self) -> Value {
        let pass = self.passes.recv_timeout(HANGS).expect("a pass");
        schema::check("optimize_summary", &pass);
        pass
    }

    /// Looks several more times, at least.
    fn looks_on(&self) {
        std::thread::sleep(Duration::from_millis(3500));
    }

    /// Tells it to end; gives passes that nobody has waited for.
    fn end(mut self) -> Vec<Value> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
        assert_eq!(self.child.wait().expect("it ends").code(), Some(0));
        self.passes.iter().collect()
    }
}

#[test]
fn passes_are_made_for_what_others_did_and_not_for_what_they_did_themselves() {
    let play = Play::with_repository();
    play.write("source/common", data::random(1, 3_000_000));
    let ids = ["a", "b"].map(|series| {
        play.write("source/own", data::random(u64::from(series.as_bytes()[0]), 10_000));
        play.backup(["source", "--series", series, "--no-similar"])
    });
    let gnode = Gnode::start(&play, &[]);
    // The first one lays a snapshot out again, which adds a generation, and removes what was there before.
    let first = gnode.pass();
    assert_eq!((&first["outcome"], &first["defragmented"]["snapshots"]), (&"done".into(), &1.into()), "{first:#}");
    gnode.looks_on();
    play.larder(["forget", &ids[0]]).ok();
    let second = gnode.pass();
    assert_eq!((&second["outcome"], &second["plan"]["snapshots"]), (&"done".into(), &1.into()), "{second:#}");
    gnode.looks_on();
    play.write("source/own", "more");
    play.backup(["source", "--series", "b"]);
    let third = gnode.pass();
    let ingested = &third["plan"]["snapshots_ingested"];
    assert_eq!((&third["outcome"], ingested), (&"done".into(), &1.into()), "{third:#}");
    gnode.looks_on();
    assert_eq!(gnode.end(), Vec::<Value>::new());
    play.larder(["check", "--read-data"]).ok();
}

#[test]
fn a_pass_that_failed_is_made_again() {
    let play = Play::with_repository();
    play.write("source/file", "content");
    play.backup(["source"]);
    let manifest = damage::named(&play.repository(), "versions/").remove(0);
    let whole = std::fs::read(play.repository().join(&manifest)).expect("readable");
    damage::flip(&play.repository(), &manifest, 200);
    let gnode = Gnode::start(&play, &[]);
    loop {
        let warning = gnode.warnings.recv_timeout(HANGS).expect("a warning");
        if warning["message"].as_str().is_some_and(|message| message.contains("nothing may be deleted")) {
            break;
        }
    }
    damage::replace(&play.repository(), &manifest, &whole);
    let pass = gnode.pass();
    assert_eq!((&pass["outcome"], &pass["plan"]["snapshots_ingested"]), (&"done".into(), &1.into()), "{pass:#}");
    gnode.looks_on();
    assert_eq!(gnode.end(), Vec::<Value>::new());
}

#[test]
fn a_pass_is_made_now_and_then() {
    let play = Play::with_repository();
    play.write("source/file", "content");
    play.backup(["source"]);
    let gnode = Gnode::start(&play, &["--every", "1s"]);
    assert_eq!(gnode.pass()["outcome"], "done");
    for _ in 0..2 {
        assert_eq!(gnode.pass()["outcome"], "nothing_to_do");
    }
    gnode.end();
}

/// Asks for metrics, as Prometheus does.
fn scrape(address: &str) -> String {
    let mut stream = std::net::TcpStream::connect(address).expect("it listens");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a body");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("text/plain; version=0.0.4"), "{head}");
    body.to_owned()
}

/// Goal: the numbers of the daemon can be scraped, and count its rounds and requests.
#[test]
fn metrics_of_the_daemon_are_served() {
    let play = Play::with_repository();
    play.write("source/file", "content");
    play.backup(["source"]);
    let mut child = play.spawn(&mut play.command(["gnode", "--poll", "1s", "--metrics-listen", "127.0.0.1:0"]));
    let (stderr, stdout) = (child.stderr.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
    let gnode = Gnode { child, passes: channel().1, warnings: channel().1 };
    let mut told = BufReader::new(stderr).lines().map_while(Result::ok);
    let address = told.find_map(|line| {
        let address = line.strip_prefix("metrics are at http://")?.strip_suffix("/metrics")?;
        Some(address.to_owned())
    });
    let address = address.expect("an address");
    // The pass has ended when it is told.
    BufReader::new(stdout).lines().map_while(Result::ok).find(|line| line.contains("deleted")).expect("a pass");
    let body = scrape(&address);
    let value = |name: &str| {
        let found = body.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        found.and_then(|rest| rest.parse::<f64>().ok()).unwrap_or_else(|| panic!("{name} in {body}"))
    };
    assert_eq!(value("larder_gnode_rounds_total{result=\"done\"}"), 1.0);
    assert!(value("larder_gnode_last_success_timestamp_seconds") >= value("larder_gnode_start_timestamp_seconds"));
    assert!(value("larder_gnode_index_number") >= 1.0 && value("larder_gnode_requests_total{kind=\"create\"}") > 0.0);
    // The repository is counted right after the round.
    let body = loop {
        let body = scrape(&address);
        if body.contains("larder_gnode_repository_objects ") {
            break body;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    assert!(
        body.contains("larder_gnode_snapshots{series=\"") && body.contains("larder_gnode_unreadable_snapshots 0\n")
    );
    // Every sample has a type, and every name has one help.
    for line in body.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().expect("a name");
        assert_eq!(body.matches(&format!("# TYPE {name} ")).count(), 1, "{name}");
        assert_eq!(body.matches(&format!("# HELP {name} ")).count(), 1, "{name}");
    }
    drop(gnode);
    play.larder(["gnode", "--metrics", "nowhere"]).code(2).in_two_lines();
}
