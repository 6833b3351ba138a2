//! The control protocol of QEMU (QMP): a line of JSON is a command, and one with the same number is
//! its answer. Events and other lines come between them, and are left out.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

use super::ImageError;
use super::stops::Stops;

/// Longest line (bytes): machines with many disks describe them in one.
const LINE_MAX: u64 = 64 << 20;
/// Lines that may come before an answer.
const EVENTS_MAX: usize = 100_000;
/// How long a command may take. A transaction waits for requests of the guest.
const ANSWER_MAX: Duration = Duration::from_secs(120);

/// How often a wait looks whether it is to end.
const TICK: Duration = Duration::from_millis(200);

/// A connection to a running QEMU, or to `qemu-storage-daemon`.
pub(super) struct Qmp {
    stream: BufReader<UnixStream>,
    /// The beginning of a line.
    line: Vec<u8>,
    /// The number of the last command.
    number: u64,
    /// For messages.
    what: String,
    /// How long a command may take.
    answer_max: Duration,
}

/// A line from QEMU.
#[derive(Deserialize)]
struct Line {
    #[serde(rename = "QMP")]
    greeting: Option<Value>,
    #[serde(rename = "return")]
    answer: Option<Value>,
    error: Option<Refused>,
    /// The number of the command that it answers.
    id: Option<u64>,
}

/// An error of a command.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Refused {
    pub(super) desc: String,
}

impl Qmp {
    /// Connects, and agrees on the protocol. Another program may have the socket, and this can take
    /// long; `stops` ends it.
    pub(super) fn connect(socket: &Path, stops: &Stops) -> Result<Self, ImageError> {
        let what = format!("QEMU at {}", socket.display());
        let failed = |error: io::Error| {
            // QEMU is asked for, and none of its tools.
            let is_missing = error.kind() == io::ErrorKind::NotFound;
            let why = if is_missing { "there is no such socket".to_owned() } else { error.to_string() };
            ImageError::Tool { program: what.clone(), why }
        };
        let stream = UnixStream::connect(socket).map_err(failed)?;
        stream.set_read_timeout(Some(TICK)).map_err(failed)?;
        stream.set_write_timeout(Some(ANSWER_MAX)).map_err(failed)?;
        Self::over(stream, what, stops)
    }

    /// Agrees on the protocol.
    pub(super) fn over(stream: UnixStream, what: String, stops: &Stops) -> Result<Self, ImageError> {
        let mut qmp =
            Self { stream: BufReader::new(stream), line: Vec::new(), number: 0, what, answer_max: ANSWER_MAX };
        if qmp.line(Instant::now(), |qmp| stops.check(&qmp.what))?.greeting.is_none() {
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
        self.number += 1;
        let mut line = json!({"execute": command, "arguments": arguments, "id": self.number}).to_string();
        line.push('\n');
        self.stream.get_mut().write_all(line.as_bytes()).map_err(|error| self.failed(error))?;
        // Not ended by `stops`: after a failure, bitmaps are put together again by commands.
        let begun = Instant::now();
        for _ in 0..EVENTS_MAX {
            match self.line(begun, |_| Ok(()))? {
                Line { error: Some(refused), id: Some(id), .. } if id == self.number => return Ok(Err(refused)),
                Line { answer: Some(answer), id: Some(id), .. } if id == self.number => return Ok(Ok(answer)),
                // It did not understand the line.
                Line { error: Some(refused), id: None, .. } => return Err(self.failed(refused.desc)),
                // An event, or the late answer to a command that is not waited for any more.
                _ if begun.elapsed() >= self.answer_max => break,
                _ => {}
            }
        }
        Err(self.failed("it sends events, but no answer"))
    }

    /// The next line of a command that began then. `goes_on` may end the wait for it.
    fn line(&mut self, begun: Instant, goes_on: impl Fn(&Self) -> Result<(), ImageError>) -> Result<Line, ImageError> {
        loop {
            let left = LINE_MAX.saturating_sub(self.line.len() as u64);
            // A part of a line stays for the next time.
            let read = self.stream.by_ref().take(left).read_until(b'\n', &mut self.line);
            match read {
                Ok(_) => break,
                Err(error) if !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    return Err(self.failed(error));
                }
                Err(_) if begun.elapsed() >= self.answer_max => {
                    return Err(self.failed("it does not answer; is another program connected to this socket?"));
                }
                Err(_) => goes_on(self)?,
            }
        }
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
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
        Qmp::over(server(lines), "a test".to_owned(), &Stops::default())
    }

    #[test]
    fn answers_and_refusals_are_told_apart_and_events_are_left_out() {
        let mut qmp = over(
            "{\"QMP\": {}}\r\n{\"return\": {}, \"id\": 1}\r\n{\"event\": \"STOP\"}\r\n\
             {\"return\": [7], \"id\": 1}\r\n{\"return\": [1], \"id\": 2}\r\n\
             {\"error\": {\"class\": \"x\", \"desc\": \"late\"}, \"id\": 2}\r\n\
             {\"error\": {\"class\": \"x\", \"desc\": \"no\"}, \"id\": 3}\n",
        )
        .expect("it speaks");
        assert_eq!(qmp.ask("a", json!({})).expect("answered"), json!([1]));
        assert_eq!(qmp.ask("b", json!({})).expect_err("refused").to_string(), "a test: b: no");
    }

    /// Events do not make the time of a command begin again.
    #[test]
    fn a_guest_that_only_sends_events_ends_a_command() {
        let (ours, mut theirs) = UnixStream::pair().expect("sockets");
        theirs.write_all(b"{\"QMP\": {}}\n{\"return\": {}, \"id\": 1}\n").expect("sent");
        let mut qmp = Qmp::over(ours, "a test".to_owned(), &Stops::default()).expect("it speaks");
        qmp.answer_max = Duration::ZERO;
        std::thread::spawn(move || while theirs.write_all(b"{\"event\": \"STOP\"}\n").is_ok() {});
        let error = qmp.ask("a", json!({})).expect_err("no answer").to_string();
        assert_eq!(error, "a test: it sends events, but no answer");
    }

    #[test]
    fn a_wait_for_the_greeting_can_be_stopped() {
        let (ours, _theirs) = UnixStream::pair().expect("sockets");
        ours.set_read_timeout(Some(Duration::from_millis(1))).expect("set");
        let stops = Stops::default();
        stops.stop();
        let error = Qmp::over(ours, "a test".to_owned(), &stops).err().expect("stopped").to_string();
        assert!(error.contains("interrupted"), "{error}");
    }

    #[test]
    fn other_servers_are_refused() {
        for (lines, why) in [
            ("{}\n", "does not speak QMP"),
            ("HTTP/1.1 400\n", "expected value"),
            ("{\"QMP\": {}}\n{\"error\": {\"desc\": \"busy\"}}\n", "busy"),
            ("{\"QMP\": {}}\n{\"error\": {\"desc\": \"busy\"}, \"id\": 1}\n", "busy"),
            ("{\"QMP\": {}}\n{\"return\"", "EOF"),
        ] {
            let error = over(lines).err().expect("refused").to_string();
            assert!(error.contains(why), "{lines}: {error}");
        }
    }
}
