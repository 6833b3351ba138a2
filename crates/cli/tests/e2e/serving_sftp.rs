//! `serve-sftp`: repositories behind the server that sshd would start, on pipes.

use std::fs;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

use crate::support::{Play, Ran};

const LARDER: &str = env!("CARGO_BIN_EXE_larder");

/// A folder that is served with some rules, and a client of it.
struct Served {
    play: Play,
    server: String,
}

impl Served {
    fn with(rules: &str) -> Self {
        let play = Play::new();
        let folder = play.path("served");
        let server = format!("sftp.command={LARDER} serve-sftp {rules} {}", folder.display());
        play.write("source/a", "one");
        play.write("source/b", vec![7; 300_000]);
        Self { play, server }
    }

    fn larder(&self, args: &[&str]) -> Ran {
        let location = ["-r", "sftp:backup@nas:/web1", "-o", &self.server];
        self.play.larder([args, &location[..]].concat())
    }
}

/// Goal: a repository goes through everything on this server, and every promise of a store is kept.
#[test]
fn a_repository_lives_behind_the_server() {
    let served = Served::with("");
    served.larder(&["init", "--insecure-kdf"]).ok();
    served.larder(&["backup", "source"]).ok();
    served.play.write("source/c", vec![9; 200_000]);
    served.larder(&["backup", "source"]).ok();
    served.larder(&["check", "--read-data"]).ok();
    served.larder(&["restore", "latest", "--target", "back"]).ok();
    let source = served.play.path("source");
    let back = served.play.path("back").join(source.strip_prefix("/").expect("absolute")).join("c");
    assert_eq!(fs::read(back).expect("restored"), vec![9; 200_000]);
    served.larder(&["forget", "--keep-last", "1", "--prune", "--min-age", "0s"]).ok();
    assert_eq!(served.larder(&["snapshots", "--json"]).ok().json().as_array().map(Vec::len), Some(1));
    let ran = served.play.larder(["validate-store", "sftp:nas:/trial", "-o", &served.server]).ok();
    assert!(!ran.text().contains("BROKEN"), "{}", ran.text());
    let names = fs::read_dir(served.play.path("served/web1")).expect("there");
    assert!(names.count() > 4, "the repository is an ordinary folder");
}

/// Goal: a client of an append-only server backs up and restores, and cannot delete.
#[test]
fn an_append_only_server_loses_nothing() {
    let served = Served::with("--append-only");
    served.larder(&["init", "--insecure-kdf"]).ok();
    for content in ["one", "two"] {
        served.play.write("source/a", content);
        served.larder(&["backup", "source"]).ok();
    }
    served.larder(&["restore", "latest", "--target", "back"]).ok();
    let before = files(&served);
    let ran = served.larder(&["forget", "--keep-last", "1", "--prune", "--min-age", "0s"]).code(14);
    assert!(ran.stderr.contains("append-only"), "{}", ran.stderr);
    let after = files(&served);
    for (name, bytes) in before {
        assert_eq!(after.get(&name), Some(&bytes), "{name}");
    }
}

/// All files of the served folder, but those under way.
fn files(served: &Served) -> std::collections::BTreeMap<String, Vec<u8>> {
    let mut found = std::collections::BTreeMap::new();
    let mut folders = vec![served.play.path("served")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("readable").map(|entry| entry.expect("readable")) {
            match entry.file_type().expect("known").is_dir() {
                true if entry.file_name() != ".staging-sftp" => folders.push(entry.path()),
                true => {}
                false => {
                    drop(found.insert(entry.path().display().to_string(), fs::read(entry.path()).expect("readable")))
                }
            }
        }
    }
    found
}

/// Goal: a full quota ends a backup as a full disk does; what was committed stays.
#[test]
fn a_quota_is_a_full_disk() {
    let served = Served::with("--max-size 1MiB");
    served.larder(&["init", "--insecure-kdf"]).ok();
    served.larder(&["backup", "source"]).ok();
    let mut state = 1_u64;
    let mut noise = vec![0; 3_000_000];
    for byte in &mut noise {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *byte = (state >> 56) as u8;
    }
    served.play.write("source/noise", noise);
    served.larder(&["backup", "source"]).code(16);
    let other = served.play.larder_with_stdin(["serve-sftp", "served"], b"no packets");
    other.code(2).says("nothing on standard input spoke SFTP");
    served.play.larder(["serve-sftp", "none/below"]).code(2).says("there is no folder none");
    // Also if nothing can be written at all.
    Served::with("--max-size 1KiB").larder(&["init", "--insecure-kdf"]).code(16).says("the space of this folder");
    served.larder(&["check", "--read-data"]).ok();
    served.larder(&["restore", "latest", "--target", "back"]).ok();
}

/// A session of the protocol, by hand.
struct Session {
    child: Child,
    next: u32,
}

/// What a request is answered with.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Status(u32),
    Handle(Vec<u8>),
    Other(u8),
}

const DONE: Answer = Answer::Status(0);
const DENIED: Answer = Answer::Status(3);
const UNKNOWN: Answer = Answer::Status(8);

fn text(text: &str) -> Vec<u8> {
    bytes(text.as_bytes())
}

fn bytes(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes()[..], bytes].concat()
}

impl Session {
    fn start(play: &Play, rules: &[&str]) -> Self {
        let mut command = Command::new(LARDER);
        command.arg("serve-sftp").args(rules).arg(play.path("served"));
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("starts");
        let mut session = Self { child, next: 0 };
        session.send(&[1, 0, 0, 0, 3]);
        assert_eq!(session.receive()[0], 2, "a version");
        session
    }

    fn send(&mut self, packet: &[u8]) {
        self.child.stdin.as_mut().expect("piped").write_all(&bytes(packet)).expect("sent");
    }

    fn receive(&mut self) -> Vec<u8> {
        let stdout = self.child.stdout.as_mut().expect("piped");
        let mut length = [0; 4];
        stdout.read_exact(&mut length).expect("answered");
        let mut packet = vec![0; u32::from_be_bytes(length) as usize];
        stdout.read_exact(&mut packet).expect("answered");
        packet
    }

    fn ask(&mut self, kind: u8, rest: &[&[u8]]) -> Answer {
        self.next += 1;
        self.send(&[&[kind][..], &self.next.to_be_bytes(), &rest.concat()].concat());
        let answer = self.receive();
        let number = |at: usize| u32::from_be_bytes(answer[at..at + 4].try_into().expect("four bytes"));
        assert_eq!(number(1), self.next);
        match answer[0] {
            101 => Answer::Status(number(5)),
            102 => Answer::Handle(answer[9..].to_vec()),
            other => Answer::Other(other),
        }
    }

    fn open(&mut self, path: &str, flags: u32) -> Answer {
        self.ask(3, &[&text(path), &flags.to_be_bytes(), &[0; 4]])
    }

    fn stage(&mut self, path: &str) -> Vec<u8> {
        match self.open(path, 2 | 8 | 32) {
            Answer::Handle(handle) => handle,
            other => panic!("{path}: {other:?}"),
        }
    }

    fn write(&mut self, handle: &[u8], content: &str) -> Answer {
        self.ask(6, &[&bytes(handle), &[0; 8], &text(content)])
    }

    fn link(&mut self, old: &str, new: &str) -> Answer {
        self.ask(200, &[&text("hardlink@openssh.com"), &text(old), &text(new)])
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().expect("ended").success());
    }
}

/// Goal: no request changes, replaces or removes what is stored, or leaves the folder. Method: each way that the
/// protocol has.
#[test]
fn nothing_that_is_stored_can_be_changed() {
    let play = Play::new();
    play.write("outside", "secret");
    let mut session = Session::start(&play, &["--append-only"]);
    for folder in ["/.staging-sftp", "/data"] {
        assert_eq!(session.ask(14, &[&text(folder), &[0; 4]]), DONE);
    }
    let handle = session.stage("/.staging-sftp/x");
    assert_eq!(session.write(&handle, "whole"), DONE);
    // Another session takes the staging name away, and waits with a file of its own.
    let mut other = Session::start(&play, &["--append-only"]);
    assert_eq!(other.link("/.staging-sftp/x", "/data/1"), DENIED, "it staged nothing");
    assert_eq!(session.link("/.staging-sftp/x", "/data/1"), DONE);
    assert_eq!(session.write(&handle, "other"), DENIED, "it is an object now");
    assert_eq!(session.link("/.staging-sftp/x", "/data/2"), DENIED, "once");
    let stored = || fs::read_to_string(play.path("served/data/1")).expect("there");
    let handle = session.stage("/.staging-sftp/y");
    assert_eq!(session.write(&handle, "mine"), DONE);
    assert_eq!(other.ask(13, &[&text("/.staging-sftp/y")]), DONE);
    let waiting = other.stage("/.staging-sftp/y");
    assert_ne!(session.link("/.staging-sftp/y", "/data/3"), DONE, "its file has no name any more");
    assert_eq!(other.write(&waiting, "theirs"), DONE);
    assert!(!play.path("served/data/3").exists());
    let handle = session.stage("/.staging-sftp/z");
    assert_ne!(session.link("/.staging-sftp/z", "/data/1"), DONE, "the name is taken");
    assert_eq!(session.write(&handle, "still under way"), DONE);
    // Flags: 1 read, 2 write, 4 append, 8 create, 16 truncate, 32 exclusive.
    for flags in [2, 2 | 4, 2 | 8, 2 | 8 | 16, 2 | 8 | 32, 1 | 2, 4, 16] {
        let answer = session.open("/data/1", flags);
        assert_eq!(answer, DENIED, "{flags}");
    }
    assert_eq!(session.ask(13, &[&text("/data/1")]), DENIED, "remove");
    assert_eq!(session.ask(15, &[&text("/data")]), DENIED, "rmdir");
    for (kind, rest) in [
        (9, vec![text("/data/1"), vec![0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]]),
        (10, vec![bytes(&handle), vec![0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]]),
        (18, vec![text("/.staging-sftp/z"), text("/data/1")]),
        (20, vec![text("/data/4"), text("/../outside")]),
        (200, vec![text("posix-rename@openssh.com"), text("/.staging-sftp/z"), text("/data/1")]),
        (200, vec![text("copy-data"), bytes(&handle)]),
    ] {
        let rest: Vec<&[u8]> = rest.iter().map(Vec::as_slice).collect();
        assert_eq!(session.ask(kind, &rest), UNKNOWN, "{kind}");
    }
    for out in ["/../outside", "../outside", "/data/../../outside"] {
        assert_eq!(session.open(out, 1), DENIED, "{out}");
    }
    std::os::unix::fs::symlink(play.path("outside"), play.path("served/data/link")).expect("linked");
    std::os::unix::fs::symlink(play.path("."), play.path("served/away")).expect("linked");
    for link in ["/data/link", "/away/outside"] {
        assert!(matches!(session.open(link, 1), Answer::Status(_)), "{link}");
    }
    assert_eq!(session.ask(14, &[&text("/.ssh"), &[0; 4]]), DENIED, "a folder that begins with a dot");
    assert_eq!(stored(), "whole");
    assert!(matches!(session.open("/data/1", 1), Answer::Handle(_)));
    assert_eq!(session.ask(7, &[&text("/data/1")]), Answer::Other(105), "attributes");
}

#[test]
fn a_terminal_is_told_what_the_command_is_for() {
    let play = Play::new();
    let missing = play.larder(["serve-sftp"]).code(2);
    assert!(missing.stderr.contains("<FOLDER>"), "{}", missing.stderr);
}
