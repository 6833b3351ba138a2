//! The control protocol of QEMU (QMP): a line of JSON is a command, and one is its answer. Events
//! come between them, and are left out.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::ImageError;

/// Longest line (bytes): machines with many disks describe them in one.
const LINE_MAX: u64 = 64 << 20;
/// Lines that may come before an answer.
const EVENTS_MAX: usize = 100_000;
/// How long a command may take. A transaction waits for requests of the guest.
const ANSWER_MAX: Duration = Duration::from_secs(120);

/// A connection to a running QEMU, or to `qemu-storage-daemon`.
pub(super) struct Qmp {
    stream: BufReader<UnixStream>,
    /// For messages.
    what: String,
}

/// A line from QEMU.
#[derive(Deserialize)]
struct Line {
    #[serde(rename = "QMP")]
    greeting: Option<Value>,
    #[serde(rename = "return")]
    answer: Option<Value>,
    error: Option<Refused>,
}

/// An error of a command.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Refused {
    pub(super) desc: String,
}

impl Qmp {
    /// Connects, and agrees on the protocol.
    pub(super) fn connect(socket: &Path) -> Result<Self, ImageError> {
        let what = format!("QEMU at {}", socket.display());
        let failed = |error: io::Error| ImageError::Tool { program: what.clone(), why: error.to_string() };
        let stream = UnixStream::connect(socket).map_err(failed)?;
        stream.set_read_timeout(Some(ANSWER_MAX)).map_err(failed)?;
        stream.set_write_timeout(Some(ANSWER_MAX)).map_err(failed)?;
        Self::over(stream, what)
    }

    fn over(stream: UnixStream, what: String) -> Result<Self, ImageError> {
        let mut qmp = Self { stream: BufReader::new(stream), what };
        if qmp.line()?.greeting.is_none() {
            return Err(qmp.failed("it does not speak QMP"));
        }
        qmp.ask("qmp_capabilities", json!({}))?;
        Ok(qmp)
    }

    /// An error of this connection.
    pub(super) fn failed(&self, why: impl ToString) -> ImageError {
        ImageError::Tool { program: self.what.clone(), why: why.to_string() }
    }

    /// Runs a command.
    pub(super) fn ask(&mut self, command: &str, arguments: Value) -> Result<Value, ImageError> {
        self.try_ask(command, arguments)?.map_err(|refused| self.failed(format!("{command}: {}", refused.desc)))
    }

    /// The same, with a refusal as it is.
    pub(super) fn try_ask(&mut self, command: &str, arguments: Value) -> Result<Result<Value, Refused>, ImageError> {
        let mut line = json!({"execute": command, "arguments": arguments}).to_string();
        line.push('\n');
        self.stream.get_mut().write_all(line.as_bytes()).map_err(|error| self.failed(error))?;
        for _ in 0..EVENTS_MAX {
            match self.line()? {
                Line { error: Some(refused), .. } => return Ok(Err(refused)),
                Line { answer: Some(answer), .. } => return Ok(Ok(answer)),
                _ => {}
            }
        }
        Err(self.failed("it does not answer"))
    }

    fn line(&mut self) -> Result<Line, ImageError> {
        let mut line = Vec::new();
        let read = self.stream.by_ref().take(LINE_MAX).read_until(b'\n', &mut line);
        let read = read.map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => {
                self.failed("it does not answer; is another program connected to this socket?")
            }
            _ => self.failed(error),
        })?;
        if read == 0 {
            return Err(self.failed("it closed the connection"));
        }
        serde_json::from_slice(&line).map_err(|error| self.failed(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that sends these lines, whatever it is told.
    fn server(lines: &'static str) -> UnixStream {
        let (ours, mut theirs) = UnixStream::pair().expect("sockets");
        theirs.write_all(lines.as_bytes()).expect("sent");
        theirs.shutdown(std::net::Shutdown::Write).expect("closed");
        std::thread::spawn(move || io::copy(&mut theirs, &mut io::sink()));
        ours
    }

    fn over(lines: &'static str) -> Result<Qmp, ImageError> {
        Qmp::over(server(lines), "a test".to_owned())
    }

    #[test]
    fn answers_and_refusals_are_told_apart_and_events_are_left_out() {
        let mut qmp = over(
            "{\"QMP\": {}}\r\n{\"return\": {}}\r\n{\"event\": \"STOP\"}\r\n{\"return\": [1]}\r\n{\"error\": {\"class\": \"x\", \"desc\": \"no\"}}\n",
        )
        .expect("it speaks");
        assert_eq!(qmp.ask("a", json!({})).expect("answered"), json!([1]));
        assert_eq!(qmp.ask("b", json!({})).expect_err("refused").to_string(), "a test: b: no");
    }

    #[test]
    fn other_servers_are_refused() {
        for (lines, why) in [
            ("{}\n", "does not speak QMP"),
            ("HTTP/1.1 400\n", "expected value"),
            ("{\"QMP\": {}}\n{\"error\": {\"desc\": \"busy\"}}\n", "busy"),
            ("{\"QMP\": {}}\n{\"return\"", "EOF"),
        ] {
            let error = over(lines).err().expect("refused").to_string();
            assert!(error.contains(why), "{lines}: {error}");
        }
    }
}
