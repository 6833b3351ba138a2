//! `larder serve-webdav` as a process of a test, and a client for it.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::ffi::OsStringExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{Play, Ran, ready, schema};

/// The client and the tests wait for no answer and no end longer than this.
pub(crate) const WAIT: Duration = Duration::from_secs(60);

/// A server that runs.
pub(crate) struct Serving {
    child: Option<Child>,
    output: BufReader<ChildStdout>,
    /// `127.0.0.1:PORT`.
    pub(crate) host: String,
    pub(crate) first: Value,
}

/// An answer of a server.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Names in small letters.
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// It was cut off before its end.
    pub(crate) is_cut: bool,
}

/// A file or folder of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    /// As the server wrote it, with `%XX`.
    pub(crate) href: String,
    pub(crate) is_folder: bool,
    pub(crate) size: Option<u64>,
    pub(crate) modified: String,
    pub(crate) etag: Option<String>,
}

impl Serving {
    /// Starts it on a free port of this machine.
    pub(crate) fn of(play: &Play, args: &[&str]) -> Self {
        Self::start(play.command([&["serve-webdav", "--addr", "127.0.0.1:0"], args].concat()))
    }

    pub(crate) fn start(mut command: Command) -> Self {
        command.arg("--json");
        let (child, output, first) = ready(command, "serve_webdav");
        let url = first["url"].as_str().expect("text");
        let host = url.split('/').nth(2).expect("a host").to_owned();
        Self { child: Some(child), output, host, first }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.host).expect("it listens");
        stream.set_read_timeout(Some(WAIT)).expect("set");
        stream
    }

    /// Sends a request with more lines in its head, and returns the answer.
    #[track_caller]
    pub(crate) fn ask(&self, method: &str, path: &str, more: &[&str]) -> Answer {
        self.ask_with(method, path, more, "")
    }

    #[track_caller]
    pub(crate) fn ask_with(&self, method: &str, path: &str, more: &[&str], body: &str) -> Answer {
        let mut lines = vec![format!("{method} {path} HTTP/1.1"), "Connection: close".to_owned()];
        if !more.iter().any(|line| line.starts_with("Host:")) {
            lines.push(format!("Host: {}", self.host));
        }
        if !body.is_empty() {
            lines.push(format!("Content-Length: {}", body.len()));
        }
        lines.extend(more.iter().map(|line| (*line).to_owned()));
        let mut stream = self.connect();
        // A server may refuse before it has read all.
        drop(stream.write_all(format!("{}\r\n\r\n{body}", lines.join("\r\n")).as_bytes()));
        Answer::read(stream, method == "HEAD").expect("an answer")
    }

    /// Gets a file.
    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[])
    }

    /// The names in a folder, and the folder itself as the first one.
    #[track_caller]
    pub(crate) fn list(&self, path: &str) -> Vec<Listed> {
        let answer = self.ask("PROPFIND", path, &["Depth: 1"]);
        assert_eq!((answer.status, answer.is_cut), (207, false), "{path}");
        answer.listed()
    }

    /// The last names of a folder's entries, decoded, and sorted.
    #[track_caller]
    pub(crate) fn names(&self, path: &str) -> Vec<String> {
        let entries = self.list(path).into_iter().skip(1);
        let mut names: Vec<_> = entries.map(|entry| String::from_utf8_lossy(&entry.name()).into_owned()).collect();
        names.sort();
        names
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(self.child.as_ref().expect("it runs")), signal).expect("it runs");
    }

    /// Ends it, and returns how that went, with its last event.
    #[track_caller]
    pub(crate) fn end(mut self) -> (Ran, Value) {
        self.signal(Signal::TERM);
        let child = self.child.take().expect("it runs");
        let (sender, ended) = channel();
        let pid = Pid::from_child(&child);
        let mut output = std::mem::replace(&mut self.output, BufReader::new(empty_output()));
        std::thread::spawn(move || {
            let mut text = String::new();
            drop(output.read_to_string(&mut text));
            // Nobody waits any more if it took too long.
            drop(sender.send((text, child.wait_with_output())));
        });
        let Ok((text, output)) = ended.recv_timeout(WAIT) else {
            let _ = kill_process(pid, Signal::KILL);
            panic!("it does not end");
        };
        let event: Value = serde_json::from_str(text.lines().last().expect("a line")).expect("JSON");
        schema::check("serve_webdav", &event);
        assert_eq!(event["event"], "ended");
        (Ran::from(output.expect("it ends")), event)
    }
}

/// The output of a program that ends at once.
fn empty_output() -> ChildStdout {
    let mut child = Command::new("true").stdout(Stdio::piped()).spawn().expect("it starts");
    let output = child.stdout.take().expect("a pipe");
    drop(child.wait());
    output
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

impl Answer {
    /// Reads an answer up to its end.
    pub(crate) fn read(stream: impl Read, is_head: bool) -> io::Result<Self> {
        let mut input = BufReader::new(stream);
        let mut line = || -> io::Result<String> {
            let mut line = String::new();
            input.read_line(&mut line)?;
            if line.is_empty() { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(line.trim_end().to_owned()) }
        };
        let first = line()?;
        let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or(io::ErrorKind::InvalidData)?;
        let mut headers = Vec::new();
        loop {
            let line = line()?;
            let Some((name, value)) = line.split_once(": ") else { break };
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        let mut answer = Self { status, headers, body: Vec::new(), is_cut: false };
        if is_head || status == 304 {
            return Ok(answer);
        }
        if answer.header("transfer-encoding") == Some("chunked") {
            answer.is_cut = chunks(&mut input, &mut answer.body).is_err();
        } else {
            answer.is_cut = input.read_to_end(&mut answer.body).is_err();
            let length = answer.header("content-length").map(|length| length.parse().expect("a number"));
            answer.is_cut |= length.is_some_and(|length: usize| answer.body.len() != length);
        }
        Ok(answer)
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    fn listed(&self) -> Vec<Listed> {
        let text = self.text();
        let of = |part: &str, tag: &str| {
            let (_, rest) = part.split_once(&format!("<D:{tag}>"))?;
            Some(rest.split_once("</D:").expect("it ends").0.to_owned())
        };
        let entries = text.split("<D:response>").skip(1).map(|part| Listed {
            href: of(part, "href").expect("a name"),
            is_folder: part.contains("<D:collection"),
            size: of(part, "getcontentlength").map(|size| size.parse().expect("a number")),
            modified: of(part, "getlastmodified").unwrap_or_default(),
            etag: of(part, "getetag"),
        });
        entries.collect()
    }
}

fn chunks(input: &mut impl BufRead, body: &mut Vec<u8>) -> io::Result<()> {
    loop {
        let mut line = String::new();
        input.read_line(&mut line)?;
        let length = usize::from_str_radix(line.trim_end(), 16).map_err(io::Error::other)?;
        let start = body.len();
        body.resize(start + length + 2, 0);
        let read = input.read_exact(&mut body[start..]);
        body.truncate(start + length);
        read?;
        if length == 0 {
            return Ok(());
        }
    }
}

impl Listed {
    /// Its last name as bytes.
    pub(crate) fn name(&self) -> Vec<u8> {
        let name = self.href.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        let (mut bytes, mut rest) = (Vec::new(), name.as_bytes());
        while let Some((first, more)) = rest.split_first() {
            rest = more;
            if *first == b'%' {
                let digits = std::str::from_utf8(&rest[..2]).expect("digits");
                bytes.push(u8::from_str_radix(digits, 16).expect("digits"));
                rest = &rest[2..];
            } else {
                bytes.push(*first);
            }
        }
        bytes
    }

    /// The same as a name of a file.
    pub(crate) fn file_name(&self) -> std::ffi::OsString {
        std::ffi::OsString::from_vec(self.name())
    }
}
