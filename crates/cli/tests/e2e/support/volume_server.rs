//! `larder volume serve` as a process of a test.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use larder_nbd::client::{Address, Client, Options};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{Play, schema};

/// A server of the store `store`.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) serving: Value,
    pub(crate) socket: PathBuf,
    /// It says that it ended. `None`: nobody reads it any more.
    pub(crate) output: Option<BufReader<ChildStdout>>,
}

impl Server {
    pub(crate) fn start(play: &Play, more: &[&str]) -> Self {
        Self::start_as(play, more, |command| command)
    }

    /// The same with another environment.
    pub(crate) fn start_as(play: &Play, more: &[&str], change: impl Fn(&mut Command) -> &mut Command) -> Self {
        let socket = play.path("nbd.sock");
        let address = format!("unix:{}", socket.display());
        let mut command = play.command(["volume", "serve", "store", "--nbd", &address, "--json"]);
        Self::run(change(command.args(more)), socket)
    }

    /// One on a port of this machine, with the certificates of a folder.
    pub(crate) fn start_tls(play: &Play, certificates: &Path) -> Self {
        let mut command = play.command(["volume", "serve", "store", "--nbd", "127.0.0.1:0", "--json", "--tls"]);
        Self::run(command.arg(certificates), PathBuf::new())
    }

    fn run(command: &mut Command, socket: PathBuf) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        output.read_line(&mut line).expect("a line");
        let serving: Value = serde_json::from_str(&line).expect("JSON");
        schema::check("volume_serve", &serving);
        Self { child, serving, socket, output: Some(output) }
    }

    pub(crate) fn client(&self, export: &str) -> Client {
        let options = Options { export: export.into(), ..Options::default() };
        Client::connect(&Address::Unix(&self.socket), &options).expect("it listens")
    }

    /// The whole content of an export.
    pub(crate) fn content(&self, export: &str) -> Vec<u8> {
        let client = self.client(export);
        let size = client.size() as usize;
        let parts = (0..size).step_by(1 << 20);
        parts.flat_map(|at| client.read(at as u64, (1 << 20).min(size - at) as u32).expect("read")).collect()
    }

    pub(crate) fn signal(mut self, signal: Signal) -> Option<i32> {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
        self.child.wait().expect("it ends").code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
