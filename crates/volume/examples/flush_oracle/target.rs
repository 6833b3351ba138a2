//! The server that is tested: its exports, and its control socket.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use larder_nbd::client::{Address, Client, ClientError, Options};

use crate::oracle::Oracle;
use crate::shared::End;

/// Bytes of a read, and reads in flight.
const READ: u64 = 1 << 20;
const READS: usize = 8;

/// A volume of a server.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) socket: PathBuf,
    pub(crate) volume: String,
    pub(crate) control: Option<PathBuf>,
}

impl Target {
    /// A connection to an export.
    pub(crate) fn connect(&self, export: &str) -> Result<Client, ClientError> {
        let options = Options { export: export.to_owned(), ..Options::default() };
        Client::connect(&Address::Unix(&self.socket), &options)
    }

    fn read_all(&self, export: &str) -> Result<Vec<u8>, ClientError> {
        let client = self.connect(export)?;
        let (mut found, mut tickets, mut at) = (Vec::new(), VecDeque::new(), 0);
        while at < client.size() || !tickets.is_empty() {
            if at < client.size() && tickets.len() < READS {
                let length = READ.min(client.size() - at);
                tickets.push_back(client.submit_read(at, length as u32)?);
                at += length;
            } else if let Some(ticket) = tickets.pop_front() {
                found.extend(client.wait(ticket)?);
            }
        }
        Ok(found)
    }

    /// Reads the volume and all snapshots. They are what the oracle knows, and stay so. The number
    /// of snapshots is returned.
    pub(crate) fn verify(&self, oracle: &mut Oracle) -> Result<usize, End> {
        oracle.settle(&self.read_all(&self.volume)?)?;
        oracle.settle_snapshots(|name| match self.read_all(&format!("{}@{name}", self.volume)) {
            Ok(found) => Ok(Some(found)),
            // There is no such export.
            Err(ClientError::Option(_)) => Ok(None),
            Err(error) => Err(error.into()),
        })
    }

    /// Asks the control socket. A refusal is an error.
    pub(crate) fn control(&self, request: &str) -> Result<(), End> {
        let Some(path) = &self.control else { return Ok(()) };
        let ask = || {
            let mut stream = UnixStream::connect(path)?;
            stream.write_all(format!("{request}\n").as_bytes())?;
            let mut answer = String::new();
            BufReader::new(stream).read_line(&mut answer)?;
            Ok::<_, std::io::Error>(answer)
        };
        match ask() {
            Ok(answer) if answer.starts_with(r#"{"ok":"#) => Ok(()),
            // Half an answer, or none.
            Ok(answer) if !answer.ends_with('\n') => Err(End::Killed),
            Ok(answer) => Err(End::Wrong(format!("{request} is refused: {answer}"))),
            Err(_) => Err(End::Killed),
        }
    }
}
