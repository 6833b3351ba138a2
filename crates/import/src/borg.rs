//! Archives of Borg 1 as originals: the program `borg` exports each as an archive of tar.
//!
//! | fact | from |
//! |---|---|
//! | archives with their times, hosts, users, comments | `borg list --json` |
//! | entries and contents | `borg export-tar` |
//! | times of files to the microsecond, which tar has to the second | `borg list` of the archive |
//!
//! What the export does not have is lost: extended attributes, access lists, file flags. An export
//! that fails makes no version, because it may have ended early.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use larder_format::ErrorKind;
use larder_format::entry::{Entry, Timestamp};
use serde::Deserialize;

use crate::ImportError;
use crate::original::ForeignId;
use crate::tar::{Archive, ReadOptions};

/// Messages of the program that are kept.
const MESSAGES_MAX: usize = 200;
/// How long the next one is waited for after the program has ended.
const LAST_MESSAGES: Duration = Duration::from_secs(2);
/// Lines of a list in which an entry is looked for.
const AHEAD_MAX: usize = 1000;

/// A repository of Borg.
#[derive(Debug, Clone)]
pub struct BorgRepository {
    location: OsString,
}

/// An archive of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BorgArchive {
    /// Its name.
    pub name: String,
    /// Its id.
    pub id: ForeignId,
    /// When its backup began, milliseconds since the epoch.
    pub time_ms: u64,
    /// The host it was made on.
    pub host: String,
    /// The user who made it.
    pub user: String,
    /// Its comment; mostly empty.
    pub comment: String,
}

#[derive(Deserialize)]
struct Listing {
    archives: Vec<Listed>,
    repository: ListedRepository,
    encryption: Option<Encryption>,
}

#[derive(Deserialize)]
struct Encryption {
    mode: String,
}

#[derive(Deserialize)]
struct ListedRepository {
    id: String,
}

#[derive(Deserialize)]
struct Listed {
    name: String,
    id: String,
    start: String,
    #[serde(default)]
    hostname: String,
    #[serde(default)]
    username: String,
    #[serde(default)]
    comment: String,
}

impl BorgRepository {
    /// The repository at this location, as Borg takes it.
    pub fn new(location: &OsStr) -> Self {
        Self { location: location.to_owned() }
    }

    /// The id of the repository, and its archives, oldest first.
    ///
    /// # Errors
    /// The program cannot be started, or fails.
    pub fn archives(&self) -> Result<(ForeignId, Vec<BorgArchive>), ImportError> {
        let format = "{archive}{id}{hostname}{username}{comment}{start}";
        let mut child = Running::start(borg().args(["list", "--json", "--format", format]).arg(&self.location))?;
        let mut text = Vec::new();
        let read = child.stdout.read_to_end(&mut text);
        child.end()?;
        read.map_err(ImportError::Read)?;
        let odd =
            |what: &str| ImportError::Program { name: "borg", kind: ErrorKind::Precondition, message: what.to_owned() };
        let listing: Listing = serde_json::from_slice(&text).map_err(|error| odd(&format!("its list: {error}")))?;
        if listing.encryption.is_some_and(|encryption| encryption.mode != "none") && !has_passphrase() {
            return Err(odd(PASSPHRASE));
        }
        let id = |text: &str| foreign_id(text).ok_or_else(|| odd(&format!("its list has the id {text:?}")));
        let repository = id(&listing.repository.id)?;
        let mut archives = Vec::new();
        for listed in listing.archives {
            let time = time(&listed.start).ok_or_else(|| odd(&format!("its list has the time {:?}", listed.start)))?;
            let millis = i128::from(time.seconds) * 1000 + i128::from(time.nanos / 1_000_000);
            archives.push(BorgArchive {
                id: id(&listed.id)?,
                name: listed.name,
                time_ms: u64::try_from(millis).unwrap_or(0),
                host: listed.hostname,
                user: listed.username,
                comment: listed.comment,
            });
        }
        // Times of Borg 1.2 are whole seconds, and its list has the order in which they were made.
        archives.sort_by_key(|archive| archive.time_ms);
        Ok((repository, archives))
    }

    /// Exports an archive. Warnings of the program are problems of its entries.
    ///
    /// # Errors
    /// The program cannot be started, or fails; a temporary file cannot be written.
    pub fn export(&self, archive: &BorgArchive, options: &ReadOptions) -> Result<Archive, ImportError> {
        let mut place = self.location.clone();
        place.push("::");
        place.push(&archive.name);
        let mut listing =
            Running::start(borg().args(["list", "--format", "{health} {isomtime} {path}{NUL}"]).arg(&place))?;
        let export = Running::start(borg().arg("export-tar").arg(&place).arg("-"))?;
        let (stream, ending) = export.split();
        let mut times = Times::new(BufReader::new(&mut listing.stdout));
        let read = Archive::of_stream(Box::new(stream), options, &mut |entry| times.correct(entry));
        // Read to its end, or it could wait for ever.
        let rest = io::copy(&mut times.lines, &mut io::sink());
        // If the program failed, the archive may be cut off. It also fails if nobody reads the rest.
        let ended = ending.end();
        if options.cancel.is_cancelled() {
            return Err(ImportError::Interrupted);
        }
        let archive = match (read, ended) {
            (Err(error @ ImportError::Scratch(_)), _) | (_, Err(error)) => return Err(error),
            (read, Ok(warnings)) => read?.with_warnings(warnings),
        };
        rest.map_err(ImportError::Read)?;
        listing.end()?;
        Ok(archive)
    }
}

/// Two programs read an archive at once. Both would ask on one terminal, for each archive, and the
/// second answer would be shown.
const PASSPHRASE: &str = "it would ask for the passphrase of its key again and again; \
                          set BORG_PASSCOMMAND or BORG_PASSPHRASE, also for an empty one";

fn has_passphrase() -> bool {
    ["BORG_PASSPHRASE", "BORG_PASSCOMMAND"].iter().any(|name| std::env::var_os(name).is_some())
}

fn borg() -> Command {
    let mut command = Command::new("borg");
    // It and its ssh need their own secrets, and none of ours.
    larder_secret::variables::remove_from(&mut command, larder_secret::variables::is_credential);
    // Times in lists are of the local zone.
    command.env("TZ", "UTC").arg("--log-json");
    command
}

fn foreign_id(text: &str) -> Option<ForeignId> {
    data_encoding::HEXLOWER.decode(text.as_bytes()).ok()?.try_into().ok()
}

/// A time of a list, such as `2026-11-26T11:39:59.123456`.
fn time(text: &str) -> Option<Timestamp> {
    let at = text.parse::<DateTime>().ok()?.to_zoned(TimeZone::UTC).ok()?.timestamp();
    let nanos = at.as_nanosecond();
    let seconds = i64::try_from(nanos.div_euclid(1_000_000_000)).ok()?;
    Some(Timestamp { seconds, nanos: nanos.rem_euclid(1_000_000_000) as u32 })
}

/// The exact times of files, in the order of the archive.
struct Times<R> {
    lines: R,
    /// Lines that were read and not used.
    ahead: VecDeque<(Vec<u8>, Timestamp, bool)>,
}

impl<R: BufRead> Times<R> {
    fn new(lines: R) -> Self {
        Self { lines, ahead: VecDeque::new() }
    }

    /// The export has the entries in the same order, and leaves some out. An entry that is not
    /// found keeps its time, and nothing is skipped for it.
    fn correct(&mut self, entry: &mut Entry) -> Option<String> {
        let path = listed(&entry.path);
        for at in 0..AHEAD_MAX {
            if self.ahead.len() <= at {
                let next = self.next()?;
                self.ahead.push_back(next);
            }
            let Some((_, time, is_broken)) = self.ahead.get(at).filter(|(found, ..)| *found == path).cloned() else {
                continue;
            };
            self.ahead.drain(..=at);
            // Another time would be that of another file with this path.
            if time.seconds == entry.mtime.seconds {
                (entry.mtime, entry.ctime) = (time, time);
            }
            return is_broken.then(|| "Borg has lost parts of its contents".to_owned());
        }
        None
    }

    fn next(&mut self) -> Option<(Vec<u8>, Timestamp, bool)> {
        let mut line = Vec::new();
        self.lines.read_until(0, &mut line).ok()?;
        let line = line.strip_suffix(b"\0")?;
        let is_broken = line.starts_with(b"broken ");
        let line = line.splitn(2, |byte| *byte == b' ').nth(1)?;
        let space = line.iter().position(|byte| *byte == b' ')?;
        let time = time(std::str::from_utf8(&line[..space]).ok()?)?;
        let path = line[space + 1..].strip_prefix(b"/").unwrap_or(&line[space + 1..]);
        Some((path.to_vec(), time, is_broken))
    }
}

/// A path as the list has it: a question mark for each byte that is not UTF-8.
fn listed(path: &[u8]) -> Vec<u8> {
    let mut listed = Vec::with_capacity(path.len());
    for part in path.utf8_chunks() {
        listed.extend_from_slice(part.valid().as_bytes());
        listed.extend(part.invalid().iter().map(|_| b'?'));
    }
    listed
}

/// The program at work. Its messages are read beside.
struct Running {
    stdout: ChildStdout,
    ending: Ending,
}

struct Ending {
    child: Child,
    messages: Receiver<Message>,
}

/// A line of `--log-json`.
#[derive(Deserialize)]
struct Message {
    #[serde(default)]
    levelname: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    msgid: String,
}

impl Running {
    fn start(command: &mut Command) -> Result<Self, ImportError> {
        let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = spawned.map_err(|error| ImportError::NoProgram { name: "borg", source: error })?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (Some(stdout), Some(stderr)) = (stdout, stderr) else {
            return Err(ImportError::Read(io::ErrorKind::BrokenPipe.into()));
        };
        let (sender, messages) = channel();
        let reading = std::thread::Builder::new().name("borg".to_owned()).spawn(move || read_messages(stderr, &sender));
        reading.map_err(ImportError::Read)?;
        Ok(Self { stdout, ending: Ending { child, messages } })
    }

    fn split(self) -> (ChildStdout, Ending) {
        (self.stdout, self.ending)
    }

    /// Waits for its end. Returns its warnings.
    fn end(self) -> Result<Vec<String>, ImportError> {
        drop(self.stdout);
        self.ending.end()
    }
}

impl Ending {
    fn end(mut self) -> Result<Vec<String>, ImportError> {
        let status = self.child.wait().map_err(ImportError::Read)?;
        // A process that it started may hold the pipe open for ever, as a master of ssh does.
        let wait = || self.messages.recv_timeout(LAST_MESSAGES).ok();
        let messages: Vec<Message> = std::iter::from_fn(wait).take(MESSAGES_MAX).collect();
        match status.code() {
            // Warnings, and warnings by their numbers.
            Some(0 | 1 | 100..128) => {
                let warnings = messages.into_iter().filter(|message| message.levelname == "WARNING");
                Ok(warnings.map(|message| message.message).collect())
            }
            _ => {
                let is_error = |message: &&Message| matches!(&*message.levelname, "ERROR" | "CRITICAL");
                let kind = messages.iter().find_map(|message| kind_of(&message.msgid));
                let first = messages.iter().find(is_error).and_then(|error| error.message.lines().next());
                Err(ImportError::Program {
                    name: "borg",
                    kind: kind.unwrap_or(ErrorKind::Resource),
                    message: first.map_or_else(|| format!("it ended with {status}"), str::to_owned),
                })
            }
        }
    }
}

/// What an error of the program means here.
fn kind_of(message: &str) -> Option<ErrorKind> {
    match message {
        "PassphraseWrong"
        | "PasscommandFailure"
        | "KeyfileNotFoundError"
        | "RepoKeyNotFoundError"
        | "NoPassphraseFailure" => Some(ErrorKind::BadKey),
        "Repository.DoesNotExist" | "Repository.InvalidRepository" | "Repository.PathPermissionDenied" => {
            Some(ErrorKind::NoRepository)
        }
        "LockTimeout" | "LockFailed" | "LockErrorT" | "LockError" => Some(ErrorKind::LostRace),
        "IntegrityError" | "Repository.CheckNeeded" | "Repository.ObjectNotFound" => Some(ErrorKind::Damaged),
        _ => None,
    }
}

fn read_messages(stderr: impl Read, messages: &Sender<Message>) {
    let mut count = 0;
    for line in BufReader::new(stderr).split(b'\n') {
        let Ok(line) = line else { break };
        // It is read to its end, or the program could wait for ever.
        if count < MESSAGES_MAX {
            count += 1;
            let plain = || Message {
                levelname: "ERROR".to_owned(),
                message: String::from_utf8_lossy(&line).into_owned(),
                msgid: String::new(),
            };
            // Without a receiver, nobody waits for it.
            let _ = messages.send(serde_json::from_slice(&line).unwrap_or_else(|_| plain()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_format::entry::EntryKind;

    #[test]
    fn a_process_that_keeps_the_pipe_open_is_not_waited_for() {
        let line = "echo '{\"levelname\":\"WARNING\",\"message\":\"odd\"}' >&2; sleep 600 >/dev/null & echo $!";
        let mut running = Running::start(Command::new("sh").args(["-c", line])).expect("started");
        let mut sleeping = String::new();
        running.stdout.read_to_string(&mut sleeping).expect("read");
        assert_eq!(running.end().expect("ended"), ["odd"]);
        // It sleeps still.
        assert!(Command::new("kill").arg(sleeping.trim()).status().expect("started").success());
    }

    #[test]
    fn times_are_found_in_their_order_and_names_may_be_odd() {
        let line = |path: &str, nanos: u32| format!("healthy 1970-01-01T00:00:07.{nanos:06} {path}\0");
        let list = [line("a", 1), line("left out", 2), line("odd?\n", 3), line("b", 4), line("c", 5)].concat();
        let mut times = Times::new(list.as_bytes());
        let mut micros = |path: &[u8], seconds| {
            let mtime = Timestamp { seconds, nanos: 0 };
            let kind = EntryKind::Fifo;
            let mut entry = Entry {
                path: path.to_vec(),
                kind,
                mode: 0,
                uid: 0,
                gid: 0,
                user: None,
                group: None,
                mtime,
                ctime: mtime,
                atime: None,
                inode: 0,
                xattrs: Vec::new(),
            };
            times.correct(&mut entry);
            entry.mtime.nanos / 1000
        };
        assert_eq!(micros(b"a", 7), 1);
        assert_eq!(micros(b"absent", 7), 0);
        assert_eq!(micros(b"odd\xff\n", 7), 3);
        assert_eq!(micros(b"b", 8), 0, "it is another second");
        assert_eq!(micros(b"c", 7), 5);
    }
}
