//! `larder serve-block` as a process of a test.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command};

use larder_nbd::BASE_ALLOCATION;
use larder_nbd::client::{Address, Client, Options};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{Play, Ran, schema};

/// A server that runs.
pub(crate) struct Serving {
    pub(crate) child: Option<Child>,
    pub(crate) output: BufReader<std::process::ChildStdout>,
    pub(crate) first: Value,
}

impl Serving {
    /// Starts `larder serve-block --json` and waits until it serves.
    pub(crate) fn start(mut command: Command) -> Self {
        command.arg("--json").stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let mut child = command.spawn().expect("larder starts");
        let mut serving = Self {
            output: BufReader::new(child.stdout.take().expect("a pipe")),
            child: Some(child),
            first: Value::Null,
        };
        serving.first = serving.event();
        assert_eq!(serving.first["event"], "serving", "{}", serving.first);
        serving
    }

    pub(crate) fn of(play: &Play, args: &[&str]) -> Self {
        Self::start(play.command([&["serve-block"], args].concat()))
    }

    /// The next event that is no progress.
    pub(crate) fn event(&mut self) -> Value {
        loop {
            let event = self.message();
            if event["message_type"] != "status" {
                schema::check("serve_block", &event);
                return event;
            }
            schema::check("status", &event);
        }
    }

    fn message(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        if line.is_empty() {
            let ended = self.child.take().expect("it runs").wait_with_output().expect("it ends");
            panic!("it ended: {}", String::from_utf8_lossy(&ended.stderr));
        }
        serde_json::from_str(&line).expect("JSON")
    }

    pub(crate) fn uri(&self) -> &str {
        self.first["uri"].as_str().expect("text")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        PathBuf::from(self.uri().split_once("socket=").expect("a socket").1)
    }

    pub(crate) fn client(&self) -> Client {
        let options = Options { contexts: vec![BASE_ALLOCATION.to_owned()], ..Options::default() };
        Client::connect(&Address::Unix(&self.socket()), &options).expect("it serves")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().expect("it runs");
        kill_process(Pid::from_child(child), signal).expect("it runs");
    }

    /// Ends it, and returns how that went, with its last events.
    pub(crate) fn end(self) -> (Ran, Vec<Value>) {
        self.end_by(Signal::TERM)
    }

    pub(crate) fn end_by(mut self, signal: Signal) -> (Ran, Vec<Value>) {
        self.signal(signal);
        let mut events = Vec::new();
        let mut line = String::new();
        while self.output.read_line(&mut line).expect("a line") > 0 {
            let event: Value = serde_json::from_str(&line).expect("JSON");
            if event["message_type"] != "status" {
                schema::check("serve_block", &event);
                events.push(event);
            }
            line.clear();
        }
        let ended = self.child.take().expect("it runs").wait_with_output().expect("it ends");
        (Ran::from(ended), events)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            drop(child.kill());
            drop(child.wait());
        }
    }
}
