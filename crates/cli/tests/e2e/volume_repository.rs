//! Volumes and repositories: backups of volumes, volumes over snapshots, overlays, by the real program and NBD clients.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;

use larder_nbd::client::{Address, Client, Options};
use larder_testkit::data;
use larder_volume::disk::RealDisk;
use larder_volume::{Options as StoreOptions, Store, SystemEntropy};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{PASSWORD, Play, Ran, schema, tree};

const MIB: usize = 1 << 20;
const BLOCK: usize = 64 << 10;

/// A server that runs.
struct Serving {
    child: Option<Child>,
    first: Value,
    output: BufReader<ChildStdout>,
    socket: std::path::PathBuf,
}

impl Serving {
    /// Starts a command that serves, and waits until it does.
    fn start(play: &Play, args: &[&str], message: &str) -> Self {
        let socket = play.path("nbd.sock");
        let address = format!("unix:{}", socket.display());
        let mut command = play.command([args, &["--nbd", &address, "--json"]].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        let first = event(&mut output, message).unwrap_or_else(|| {
            let ended = child.wait().expect("it ends");
            let mut text = String::new();
            std::io::Read::read_to_string(&mut child.stderr.take().expect("a pipe"), &mut text).expect("text");
            panic!("{ended}: {text}");
        });
        Self { child: Some(child), first, output, socket }
    }

    fn client(&self, export: &str) -> Client {
        let options = Options { export: export.to_owned(), ..Options::default() };
        Client::connect(&Address::Unix(&self.socket), &options).expect("it listens")
    }

    /// Why a volume cannot be read as a whole, as the server said at its start.
    fn problem(&self, volume: &str) -> Option<String> {
        let exports = self.first["exports"].as_array().expect("exports");
        let of = exports.iter().find(|export| export["name"] == volume).expect("it is served");
        of["problem"].as_str().map(str::to_owned)
    }

    fn uri(&self, export: &str) -> String {
        format!("nbd+unix:///{export}?socket={}", self.socket.display())
    }

    fn end(mut self, signal: Signal) -> Option<i32> {
        let mut child = self.child.take().expect("it runs");
        kill_process(Pid::from_child(&child), signal).expect("it runs");
        child.wait().expect("it ends").code()
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

/// The next event that is no progress.
fn event(output: &mut BufReader<ChildStdout>, message: &str) -> Option<Value> {
    loop {
        let mut line = String::new();
        output.read_line(&mut line).expect("a line");
        if line.is_empty() {
            return None;
        }
        let value: Value = serde_json::from_str(&line).expect("JSON");
        if value["message_type"] != "status" {
            schema::check(message, &value);
            return Some(value);
        }
        schema::check("status", &value);
    }
}

/// A repository, and a store with a volume `disk`.
fn with_store(size: &str) -> Play {
    let play = Play::with_repository();
    play.larder(["volume", "init", "store", "--log", "32MiB", "--insecure-kdf"]).ok();
    play.larder(["volume", "create", "store/disk", size]).ok();
    play
}

/// Writes to a volume through a server, and into the oracle.
fn write(play: &Play, volume: &str, oracle: &mut [u8], writes: &[(usize, Vec<u8>)]) {
    let serving = Serving::start(play, &["volume", "serve", "store"], "volume_serve");
    let client = serving.client(volume);
    for (at, bytes) in writes {
        client.write(*at as u64, bytes, false).expect("written");
        oracle[*at..at + bytes.len()].copy_from_slice(bytes);
    }
    drop(client);
    assert_eq!(serving.end(Signal::TERM), Some(0));
}

fn read_all(client: &Client) -> Vec<u8> {
    let size = client.size() as usize;
    (0..size).step_by(MIB).flat_map(|at| client.read(at as u64, MIB.min(size - at) as u32).expect("read")).collect()
}

fn backup(play: &Play, more: &[&str]) -> Value {
    let ran = play.larder([&["volume", "backup", "store/disk", "--series", "disk", "--json"], more].concat()).ok();
    let summary = ran.messages("summary").pop().expect("a summary");
    schema::check("backup_summary", &summary);
    summary
}

/// The store, opened here.
fn open(play: &Play) -> Store {
    // A process that another test starts has the files of this one for a moment, and so its locks.
    let tries = std::iter::repeat_with(|| {
        let disk = RealDisk::open(&play.path("store"));
        if disk.is_err() {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        disk
    });
    let disk = tries.take(100).find_map(Result::ok).expect("nobody has it open");
    let opened = Store::open(Arc::new(disk), Arc::new(SystemEntropy), PASSWORD.as_bytes(), StoreOptions::default());
    opened.expect("it opens").0
}

/// The names of the snapshots of all volumes.
fn snapshots(play: &Play) -> Vec<String> {
    open(play).snapshots().into_iter().map(|snapshot| snapshot.name).collect()
}

fn resize(play: &Play, size: usize) {
    let store = open(play);
    let volume = store.volume("disk").expect("it exists").id;
    store.resize_volume(volume, size as u64).expect("resized");
    store.close().expect("closed");
}

fn restored(play: &Play, snapshot: &Value) -> Vec<u8> {
    let snapshot = snapshot["snapshot_id"].as_str().expect("an id");
    play.larder(["dump", snapshot, "/disk"]).ok().stdout
}

#[test]
fn only_what_changed_since_the_last_backup_is_read() {
    let play = with_store("24MiB");
    let mut oracle = vec![0; 24 * MIB];
    write(&play, "disk", &mut oracle, &[(0, data::random(1, 5 * MIB)), (20 * MIB + 100, data::random(2, 300_000))]);
    let first = backup(&play, &[]);
    assert_eq!(first["read_bytes"], 24 * MIB);
    assert_eq!(first["volume"], "disk");
    assert!(restored(&play, &first) == oracle);
    write(&play, "disk", &mut oracle, &[(3 * MIB + 5, data::random(3, 1000)), (10 * MIB, data::random(4, 70_000))]);
    let second = backup(&play, &[]);
    let read = second["read_bytes"].as_u64().expect("a number");
    assert!((3 * BLOCK as u64..20 * BLOCK as u64).contains(&read), "{second}");
    assert_eq!(second["total_bytes_processed"], 24 * MIB);
    assert!(restored(&play, &second) == oracle);
    // Nothing changed: nothing is read or added.
    let third = backup(&play, &[]);
    assert_eq!((&third["read_bytes"], &third["data_blobs"]), (&Value::from(0), &Value::from(0)));
    assert!(restored(&play, &third) == oracle);
    assert_eq!(snapshots(&play).len(), 1, "the older ones are gone");
    // Another series begins with everything, and does not disturb the first one.
    let other = play.larder(["volume", "backup", "store/disk", "--series", "other", "--json"]).ok();
    assert_eq!(other.messages("summary")[0]["read_bytes"], 24 * MIB);
    assert_eq!(backup(&play, &[])["read_bytes"], 0);
    assert_eq!(backup(&play, &["--force"])["read_bytes"], 24 * MIB);
    assert_eq!(snapshots(&play).len(), 2);
    // The machine forgot that it made the snapshot: everything is read, and said why.
    std::fs::remove_dir_all(play.path("state")).expect("removed");
    play.larder(["volume", "backup", "store/disk", "--series", "disk"]).ok().says("the whole image is read, because");
    assert_eq!(backup(&play, &[])["read_bytes"], 0);
}

/// The series has the name of the volume at its first backup. A new name changes neither the series
/// nor the snapshot that the next backup begins with.
#[test]
fn a_renamed_volume_goes_on_with_its_series() {
    let play = with_store("8MiB");
    let mut oracle = vec![0; 8 * MIB];
    let backup = |volume: &str| {
        let ran = play.larder(["volume", "backup", &format!("store/{volume}"), "--json"]).ok();
        ran.messages("summary").pop().expect("a summary")
    };
    write(&play, "disk", &mut oracle, &[(0, data::random(1, 3 * MIB))]);
    backup("disk");
    play.larder(["volume", "rename", "store/disk", "vm"]).ok();
    write(&play, "vm", &mut oracle, &[(5 * MIB, data::random(2, 100_000))]);
    let second = backup("vm");
    assert!(second["read_bytes"].as_u64() < Some(2 * MIB as u64), "{second}");
    assert_eq!(snapshots(&play).len(), 1, "the snapshot of the first backup is gone");
    let id = second["snapshot_id"].as_str().expect("an id");
    assert!(play.larder(["dump", id, "/vm"]).ok().stdout == oracle);
    // A new volume with the old name must not mix its backups with those.
    play.larder(["volume", "create", "store/disk", "1MiB"]).ok();
    play.larder(["volume", "backup", "store/disk"]).code(2).says("has the backups of volume vm").in_two_lines();
    play.larder(["volume", "backup", "store/disk", "--series", "new"]).ok();
    assert_eq!(backup("vm")["read_bytes"], 0);
}

#[test]
fn sizes_may_change_between_backups() {
    let play = with_store("8MiB");
    let mut oracle = vec![0; 8 * MIB];
    write(&play, "disk", &mut oracle, &[(0, data::random(1, 8 * MIB))]);
    backup(&play, &[]);
    resize(&play, 12 * MIB);
    oracle.resize(12 * MIB, 0);
    write(&play, "disk", &mut oracle, &[(9 * MIB, data::random(2, 10_000))]);
    let grown = backup(&play, &[]);
    assert!(restored(&play, &grown) == oracle);
    assert!(grown["read_bytes"].as_u64() < Some(5 * MIB as u64), "{grown}");
    resize(&play, 3 * MIB);
    resize(&play, 6 * MIB);
    oracle.truncate(3 * MIB);
    oracle.resize(6 * MIB, 0);
    let shrunk = backup(&play, &[]);
    assert!(restored(&play, &shrunk) == oracle);
}

#[test]
fn a_backup_killed_anywhere_loses_nothing() {
    let play = with_store("16MiB");
    let mut oracle = vec![0; 16 * MIB];
    for round in 0..6u64 {
        let place = (round as usize * 977 * 1024) % (12 * MIB);
        write(&play, "disk", &mut oracle, &[(place, data::random(round, 3 * MIB))]);
        let mut command = play.command(["volume", "backup", "store/disk", "--series", "disk"]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
        // Another moment in each round; any is right.
        std::thread::sleep(std::time::Duration::from_millis(40 * (round + 1)));
        drop(child.kill());
        child.wait().expect("it ends");
        let made = backup(&play, &[]);
        assert!(restored(&play, &made) == oracle, "round {round}");
        assert_eq!(snapshots(&play).len(), 1, "round {round}");
    }
    play.larder(["volume", "check", "store", "--read-data"]).ok();
    play.larder(["check", "--read-data"]).ok();
}

/// An image with data, zeros and a length that is no whole sector.
fn image(play: &Play) -> Vec<u8> {
    let mut image = tree::noise(1, 3_000_000);
    image.resize(6_000_000, 0);
    image.extend(tree::noise(2, 1_000_100));
    play.larder_with_stdin(["backup", "--stdin", "--stdin-filename", "/image", "--series", "images"], &image).ok();
    image
}

#[test]
fn a_volume_over_a_snapshot_is_there_at_once_and_can_be_copied() {
    let play = with_store("1MiB");
    let mut oracle = image(&play);
    let made = play.larder(["volume", "create", "store/vm", "--from", "latest:/image", "--json"]).ok().json();
    schema::check("volume_created", &made);
    oracle.resize(oracle.len().next_multiple_of(512), 0);
    assert_eq!(made["size"], oracle.len());
    let copied = play.larder(["volume", "create", "store/copy", "--from", "latest", "--copy", "--json"]).ok().json();
    assert!(copied["bytes_copied"].as_u64() > Some(4_000_000), "{copied}");
    // Without its repository it is served as far as it can be, and named.
    let elsewhere = play.path("elsewhere");
    let elsewhere = elsewhere.to_str().expect("text");
    let serving = Serving::start(&play, &["volume", "serve", "store", "--repo", elsewhere], "volume_serve");
    let problem = serving.problem("vm").expect("it is named");
    assert!(problem.starts_with("volume vm is over /image of snapshot"), "{problem}");
    assert!(serving.client("vm").read(0, 512).is_err() && read_all(&serving.client("copy")) == oracle);
    assert_eq!(serving.end(Signal::TERM), Some(0));
    let first = oracle.clone();
    write(&play, "vm", &mut oracle, &[(70_000, data::random(3, 10)), (5_000_000, data::random(4, 200_000))]);
    let serving = Serving::start(&play, &["volume", "serve", "store"], "volume_serve");
    let client = serving.client("vm");
    assert!(read_all(&client) == oracle);
    client.trim(BLOCK as u64, BLOCK as u32).expect("trimmed");
    oracle[BLOCK..2 * BLOCK].fill(0);
    assert!(read_all(&client) == oracle && read_all(&serving.client("copy")) == first);
    drop(client);
    // Killed: what was flushed stays, and the lease does not hinder anything.
    serving.client("vm").flush().expect("flushed");
    assert_eq!(serving.end(Signal::KILL), None);
    // Copied while it is served and written.
    let mut serving = Serving::start(&play, &["volume", "serve", "store", "--hydrate"], "volume_serve");
    let client = serving.client("vm");
    for at in [1_000_000, 2_500_000, 6_500_000] {
        let bytes = data::random(at as u64, 700);
        client.write(at as u64, &bytes, false).expect("written");
        oracle[at..at + 700].copy_from_slice(&bytes);
    }
    let hydrated = event(&mut serving.output, "volume_hydrated").expect("an event");
    assert!(hydrated["bytes"].as_u64() > Some(1_000_000), "{hydrated}");
    assert!(read_all(&client) == oracle);
    drop(client);
    assert_eq!(serving.end(Signal::TERM), Some(0));
    // Another one without a server.
    play.larder(["volume", "create", "store/third", "--from", "latest"]).ok();
    let hydrated = play.larder(["volume", "hydrate", "store/third", "--json"]).ok().json();
    schema::check("volume_hydrated", &hydrated);
    play.larder(["volume", "hydrate", "store/vm"]).code(2).in_two_lines();
    // The repository is gone.
    std::fs::rename(play.repository(), play.path("away")).expect("renamed");
    let serving = Serving::start(&play, &["volume", "serve", "store"], "volume_serve");
    assert!(read_all(&serving.client("vm")) == oracle && read_all(&serving.client("copy")) == first);
    assert!(read_all(&serving.client("third")) == first);
    drop(serving);
    play.larder(["volume", "check", "store", "--read-data"]).ok();
}

/// The snapshot below one volume is lost. Its clients get errors where they need it, and all others
/// go on. A clone of it fails in the same way.
#[test]
fn a_lost_snapshot_below_one_volume_stops_no_other_one() {
    let play = with_store("1MiB");
    let mut oracle = image(&play);
    oracle.resize(oracle.len().next_multiple_of(512), 0);
    play.larder(["volume", "create", "store/vm", "--from", "latest:/image"]).ok();
    let second = tree::noise(9, 100_000);
    play.larder_with_stdin(["backup", "--stdin", "--stdin-filename", "/image", "--series", "images"], &second).ok();
    play.larder(["volume", "create", "store/other", "--from", "latest:/image"]).ok();
    play.larder(["volume", "create", "store/twin", "--clone", "vm"]).ok();
    let first = data::random(5, BLOCK);
    write(&play, "vm", &mut oracle, &[(0, first.clone())]);
    play.larder(["forget", "latest~1"]).ok();
    let serving = Serving::start(&play, &["volume", "serve", "store"], "volume_serve");
    for volume in ["vm", "twin"] {
        let problem = serving.problem(volume).expect("it is named");
        assert!(problem.contains("volume vm is over /image of snapshot"), "{problem}");
        assert!(problem.contains("not there any more"), "{problem}");
        assert!(serving.client(volume).read(6_500_000, 512).is_err());
    }
    let vm = serving.client("vm");
    assert!(vm.read(0, BLOCK as u32).expect("its own block") == first);
    vm.write(BLOCK as u64, &first, true).expect("a whole block needs nothing below");
    assert!(vm.read(BLOCK as u64, BLOCK as u32).expect("read") == first);
    for (volume, content) in [("other", Some(&second)), ("disk", None)] {
        assert_eq!(serving.problem(volume), None);
        let client = serving.client(volume);
        client.write(200, &first[..100], true).expect("written");
        let found = read_all(&client);
        assert!(found[200..300] == first[..100]);
        assert!(content.is_none_or(|content| found[300..content.len()] == content[300..]));
    }
    let stats = play.larder(["volume", "stats", "store", "--json"]).ok().json();
    let problems = stats["problems"].as_array().expect("a list");
    assert!(problems.iter().any(|problem| problem.as_str().is_some_and(|text| text.contains("volume vm"))), "{stats}");
    // A copy says why it cannot be, and the volume can be deleted.
    play.larder(["volume", "hydrate", "store/twin"]).code(1).says("not there any more");
    drop(vm);
    play.larder(["volume", "delete", "store/twin"]).ok();
    play.larder(["volume", "delete", "store/vm", "--snapshots"]).ok();
    let stats = play.larder(["volume", "stats", "store", "--json"]).ok().json();
    assert!(stats["problems"].is_null(), "{stats}");
    assert_eq!(serving.end(Signal::TERM), Some(0));
}

/// A clone of a snapshot of a volume over a repository is copied, here and in a server. Then its
/// parent can be, and the repository is not needed any more.
#[test]
fn clones_over_a_repository_are_copied_too() {
    let play = with_store("1MiB");
    let mut oracle = image(&play);
    oracle.resize(oracle.len().next_multiple_of(512), 0);
    play.larder(["volume", "create", "store/vm", "--from", "latest:/image"]).ok();
    write(&play, "vm", &mut oracle, &[(3_000_000, data::random(5, 100_000))]);
    play.larder(["volume", "create", "store/one", "--clone", "vm"]).ok();
    play.larder(["volume", "create", "store/two", "--clone", "vm"]).ok();
    let first = oracle.clone();
    write(&play, "one", &mut oracle, &[(70_000, data::random(6, 1000))]);
    let refused = play.larder(["volume", "hydrate", "store/vm"]);
    assert!(refused.code == 2, "{}", refused.text());
    let hydrated = play.larder(["volume", "hydrate", "store/one", "--json"]).ok().json();
    schema::check("volume_hydrated", &hydrated);
    let mut serving = Serving::start(&play, &["volume", "serve", "store", "--hydrate"], "volume_serve");
    assert_eq!(event(&mut serving.output, "volume_hydrated").expect("an event")["name"], "two");
    play.larder(["volume", "delete", "store/vm@clone-one"]).ok();
    play.larder(["volume", "delete", "store/vm@clone-two"]).ok();
    play.larder(["volume", "hydrate", "store/vm"]).ok();
    assert_eq!(serving.end(Signal::TERM), Some(0));
    std::fs::rename(play.repository(), play.path("away")).expect("renamed");
    let serving = Serving::start(&play, &["volume", "serve", "store"], "volume_serve");
    assert!(read_all(&serving.client("one")) == oracle);
    assert!(read_all(&serving.client("two")) == first && read_all(&serving.client("vm")) == first);
    drop(serving);
    play.larder(["volume", "check", "store", "--read-data"]).ok();
}

#[test]
fn an_overlay_is_continued_backed_up_and_restored() {
    let play = with_store("1MiB");
    let mut oracle = image(&play);
    oracle.resize(oracle.len().next_multiple_of(512), 0);
    let overlay = ["serve-block", "latest:/image", "--series", "images", "--overlay", "store/vm"];
    for round in 0..4u64 {
        let serving = Serving::start(&play, &overlay, "serve_block");
        assert_eq!(serving.first["volume"], "vm");
        let client = serving.client(if round == 0 { "" } else { "vm" });
        assert!(read_all(&client) == oracle, "round {round}");
        // As a machine boots: small writes in many places, flushes, a few discards.
        for step in 0..60u64 {
            let random = data::random(round * 1000 + step, 4096);
            let at =
                (u64::from_le_bytes(random[..8].try_into().expect("8")) % (oracle.len() as u64 / 512)) as usize * 512;
            let length = (512 * (1 + usize::from(random[8]) % 8)).min(oracle.len() - at);
            if random[9].is_multiple_of(9) {
                client.trim(at as u64, length as u32).expect("trimmed");
                oracle[at..at + length].fill(0);
            } else {
                client.write(at as u64, &random[..length], random[10].is_multiple_of(7)).expect("written");
                oracle[at..at + length].copy_from_slice(&random[..length]);
            }
        }
        client.flush().expect("flushed");
        drop(client);
        let signal = if round % 2 == 0 { Signal::TERM } else { Signal::KILL };
        assert_eq!(serving.end(signal), (round % 2 == 0).then_some(0));
    }
    // Another program reads the same.
    let serving = Serving::start(&play, &overlay, "serve_block");
    if Command::new("nbdcopy").arg("--version").output().is_ok() {
        let copy = play.path("copy");
        let status = Command::new("nbdcopy").arg(serving.uri("vm")).arg(&copy).status().expect("it runs");
        assert!(status.success() && std::fs::read(copy).expect("read") == oracle);
    }
    assert_eq!(serving.end(Signal::TERM), Some(0));
    let backup = || {
        let ran = play.larder(["volume", "backup", "store/vm", "--series", "vm", "--json"]).ok();
        ran.messages("summary").pop().expect("a summary")
    };
    let first = backup();
    let dumped =
        |summary: &Value| play.larder(["dump", summary["snapshot_id"].as_str().expect("an id"), "/vm"]).ok().stdout;
    assert!(dumped(&first) == oracle);
    // Most of it is the image that the repository has.
    assert!(first["data_added"].as_u64() < Some(2_500_000), "{first}");
    let serving = Serving::start(&play, &overlay, "serve_block");
    serving.client("vm").write(123, b"once more", true).expect("written");
    oracle[123..132].copy_from_slice(b"once more");
    assert_eq!(serving.end(Signal::TERM), Some(0));
    let second = backup();
    assert!(dumped(&second) == oracle);
    assert!(second["read_bytes"].as_u64() < Some(10 * BLOCK as u64), "{second}");
}

#[test]
fn what_cannot_be_is_refused() {
    let play = with_store("1MiB");
    image(&play);
    let refused =
        |args: &[&str], code: i32, says: &str| -> Ran { play.larder(args).code(code).says(says).in_two_lines() };
    refused(&["volume", "backup", "store/none"], 2, "there is no volume");
    refused(&["volume", "create", "store/x", "--from", "latest:/none"], 1, "there is no /none");
    refused(&["volume", "create", "store/disk", "--from", "latest"], 2, "exists already");
    refused(&["volume", "hydrate", "store/disk"], 2, "is not over a snapshot");
    refused(&["serve-block", "latest", "--overlay", "store/disk"], 2, "is not over a snapshot");
    refused(&["serve-block", "latest", "--overlay", "store/x", "--hydrate"], 2, "--overlay");
    play.larder(["volume", "create", "store/vm", "--from", "latest", "--series", "images"]).ok();
    let second = tree::noise(9, 100_000);
    play.larder_with_stdin(["backup", "--stdin", "--stdin-filename", "/image", "--series", "images"], &second).ok();
    refused(&["serve-block", "latest", "--overlay", "store/vm"], 2, "is over /image of snapshot");
    // The snapshot is gone: what needs it says so, with the name of the volume.
    play.larder(["forget", "latest~1"]).ok();
    refused(&["volume", "hydrate", "store/vm"], 13, "volume vm is over /image of snapshot");
    // Other passwords.
    let mut wrong = play.command(["volume", "backup", "store/disk"]);
    let password = play.write("password", "other");
    crate::support::run(wrong.env("LARDER_STORE_PASSWORD_FILE", password)).code(12).says("opens no key").in_two_lines();
}
