//! Volumes and repositories beside a running server: backups, volumes over snapshots, copies.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use larder_testkit::data;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::volume_server::Server;
use crate::support::{Play, Ran, run, schema, tree};

const MIB: usize = 1 << 20;

fn with_store(size: &str) -> Play {
    let play = Play::with_repository();
    play.larder(["volume", "init", "store", "--log", "32MiB", "--insecure-kdf"]).ok();
    play.larder(["volume", "create", "store/disk", size]).ok();
    play
}

/// A server that knows no repository.
fn alone(play: &Play) -> Server {
    Server::start_as(play, &[], |command| command.env_remove("LARDER_REPOSITORY"))
}

/// A backup, and its progress. The command has no password of the store.
fn backup(play: &Play, more: &[&str]) -> Ran {
    let words = [&["volume", "backup", "store/disk", "--series", "disk", "--json"], more].concat();
    let mut command = play.command(words);
    let nowhere = "/nowhere/at/all";
    run(command.env("LARDER_PROGRESS_FPS", "60").env("LARDER_STORE_PASSWORD_FILE", nowhere)).ok()
}

fn summary(ran: &Ran) -> Value {
    for status in ran.messages("status") {
        schema::check("status", &status);
    }
    let summary = ran.messages("summary").pop().expect("a summary");
    schema::check("backup_summary", &summary);
    summary
}

fn restored(play: &Play, summary: &Value) -> Vec<u8> {
    play.larder(["dump", summary["snapshot_id"].as_str().expect("an id"), "/disk"]).ok().stdout
}

fn snapshots(play: &Play) -> Vec<String> {
    let list = play.larder(["volume", "list", "store", "--json"]).ok().json();
    schema::check("volume_list", &list);
    let of = list[0]["snapshots"].as_array().expect("a list").iter();
    of.map(|snapshot| snapshot["name"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn a_volume_is_backed_up_while_it_is_served() {
    let play = with_store("64MiB");
    let server = alone(&play);
    let client = server.client("disk");
    let mut oracle = vec![0; 64 * MIB];
    let mut write = |at: usize, bytes: Vec<u8>| {
        client.write(at as u64, &bytes, false).expect("written");
        oracle[at..at + bytes.len()].copy_from_slice(&bytes);
        oracle.clone()
    };
    write(0, data::random(1, 9 * MIB));
    let first_content = write(40 * MIB + 100, data::random(2, 300_000));
    let first = summary(&backup(&play, &[]));
    assert_eq!((&first["read_bytes"], &first["volume"]), (&Value::from(64 * MIB), &Value::from("disk")));
    assert!(restored(&play, &first) == first_content);
    // The snapshot of the volume is the content that was stored.
    let name = first["volume_snapshot"].as_str().expect("a name").to_owned();
    assert!(server.content(&name) == first_content);
    write(3 * MIB + 5, data::random(3, 1000));
    let second_content = write(60 * MIB, data::random(4, 70_000));
    let second = summary(&backup(&play, &[]));
    let read = second["read_bytes"].as_u64().expect("a number");
    assert!((3 << 16..20 << 16).contains(&read), "{second}");
    assert!(restored(&play, &second) == second_content);
    assert_eq!(snapshots(&play).len(), 1, "the older one is gone");
    // A snapshot that another backup reads stays, and so does the volume.
    let name = second["volume_snapshot"].as_str().expect("a name").to_owned();
    let reader = server.client(&name);
    let third = backup(&play, &[]);
    assert!(third.stderr.contains("stays: snapshot") && third.stderr.contains("in use"), "{}", third.stderr);
    assert_eq!(summary(&third)["read_bytes"], 0);
    assert_eq!(snapshots(&play).len(), 2);
    drop(reader);
    assert_eq!(summary(&backup(&play, &["--force"]))["read_bytes"], 64 * MIB);
    assert_eq!(snapshots(&play).len(), 1);
    // The volume may get another name meanwhile, and the next backup may find no server.
    drop(client);
    assert_eq!(server.signal(Signal::TERM), Some(0));
    let last = play.larder(["volume", "backup", "store/disk", "--series", "disk", "--json"]).ok();
    assert_eq!(summary(&last)["read_bytes"], 0);
    play.larder(["volume", "check", "store", "--read-data"]).ok();
}

#[test]
fn a_backup_whose_server_or_command_is_killed_loses_nothing() {
    let play = with_store("64MiB");
    let mut oracle = Vec::new();
    for round in 0..4u64 {
        let server = alone(&play);
        let client = server.client("disk");
        client.write(round * MIB as u64, &data::random(round, 24 * MIB), true).expect("written");
        drop(client);
        oracle = server.content("disk");
        let mut command = play.command(["volume", "backup", "store/disk", "--series", "disk", "--json"]);
        command.env("LARDER_PROGRESS_FPS", "60");
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
        // It has begun to read, or is done.
        let mut first = [0];
        drop(std::io::Read::read(&mut child.stdout.take().expect("a pipe"), &mut first));
        if round % 2 == 0 {
            assert_eq!(server.signal(Signal::KILL), None);
        } else {
            drop(child.kill());
        }
        child.wait().expect("it ends");
    }
    let server = alone(&play);
    let made = summary(&backup(&play, &[]));
    assert!(restored(&play, &made) == oracle);
    assert_eq!(snapshots(&play).len(), 1);
    assert_eq!(server.signal(Signal::TERM), Some(0));
    play.larder(["volume", "check", "store", "--read-data"]).ok();
    play.larder(["check", "--read-data"]).ok();
}

/// An image with data, zeros and a length that is no whole sector.
fn image(play: &Play) -> Vec<u8> {
    let mut image = tree::noise(1, 3_000_000);
    image.resize(6_000_000, 0);
    image.extend(tree::noise(2, 1_000_100));
    play.larder_with_stdin(["backup", "--stdin", "--stdin-filename", "/image", "--series", "images"], &image).ok();
    image.resize(image.len().next_multiple_of(512), 0);
    image
}

#[test]
fn volumes_over_snapshots_are_created_and_copied_while_the_store_is_served() {
    let play = with_store("1MiB");
    let oracle = image(&play);
    // The server has no repository: refused, and says what to do.
    let server = alone(&play);
    let from = ["volume", "create", "store/vm", "--from", "latest:/image", "--json"];
    play.larder(from).code(2).says("cannot open its repository").says("--copy");
    // Everything is sent.
    let made = play.larder([&from[..], &["--copy"]].concat()).ok().json();
    schema::check("volume_created", &made);
    assert!(made["bytes_copied"].as_u64() > Some(3_000_000), "{made}");
    assert!(server.content("vm") == oracle);
    play.larder(from).code(2);
    play.larder([&from[..], &["--copy"]].concat()).code(2).says("exists already");
    let names = |play: &Play| -> Vec<String> {
        let list = play.larder(["volume", "list", "store", "--json"]).ok().json();
        list.as_array().expect("a list").iter().map(|of| of["name"].as_str().expect("a name").to_owned()).collect()
    };
    assert_eq!(names(&play), ["disk", "vm"]);
    play.larder(["volume", "hydrate", "store/vm"]).code(2).says("is not over a snapshot").in_two_lines();
    assert_eq!(server.signal(Signal::TERM), Some(0));

    // A server with the repository.
    let server = Server::start(&play, &[]);
    let over = ["volume", "create", "store/over", "--from", "latest:/image", "--json"];
    let made = play.larder(over).ok().json();
    schema::check("volume_created", &made);
    assert_eq!((&made["size"], &made["bytes_copied"]), (&Value::from(oracle.len()), &Value::Null));
    play.larder(over).code(2).says("exists already");
    let client = server.client("over");
    client.write(70_000, b"mine", true).expect("written");
    let mut oracle = oracle;
    oracle[70_000..70_004].copy_from_slice(b"mine");
    assert!(server.content("over") == oracle);
    // A backup of it needs nothing else.
    let words = ["volume", "backup", "store/over", "--series", "over", "--json"];
    let made = summary(&play.larder(words).ok());
    let dumped = play.larder(["dump", made["snapshot_id"].as_str().expect("an id"), "/over"]).ok().stdout;
    assert!(dumped == oracle);
    let hydrate = || {
        let mut command = play.command(["volume", "hydrate", "store/over", "--json"]);
        run(command.env("LARDER_PROGRESS_FPS", "60").env_remove("LARDER_REPOSITORY"))
    };
    hydrate().code(2).says("a snapshot that may need its parent");
    let kept = play.larder(["volume", "list", "store", "--json"]).ok().json();
    let kept = kept[2]["snapshots"][0]["name"].as_str().expect("a snapshot").to_owned();
    play.larder(["volume", "delete", &format!("store/over@{kept}")]).ok();
    let copied = hydrate().ok();
    copied.messages("status").iter().for_each(|status| schema::check("status", status));
    let copied = copied.messages("volume_hydrated").pop().expect("a report");
    schema::check("volume_hydrated", &copied);
    assert!(copied["bytes"].as_u64() > Some(3_000_000), "{copied}");
    hydrate().code(2);
    std::fs::rename(play.repository(), play.path("away")).expect("renamed");
    assert!(server.content("over") == oracle, "nothing needs the repository any more");
    assert_eq!(server.signal(Signal::TERM), Some(0));
    let server = Server::start(&play, &[]);
    assert!(server.content("over") == oracle);
    drop(server);
    play.larder(["volume", "check", "store", "--read-data"]).ok();
}

/// Lines with the rate and the time that is left, which people see on a terminal.
#[test]
fn copies_show_their_progress() {
    let play = with_store("1MiB");
    let image = tree::noise(1, 40 * MIB);
    play.larder_with_stdin(["backup", "--stdin", "--stdin-filename", "/image", "--series", "images"], &image).ok();
    let shown = |change: &dyn Fn(&mut Command), words: &[&str]| {
        let mut command = play.command(words);
        change(command.env("LARDER_PROGRESS_FPS", "60"));
        run(&mut command).ok()
    };
    let rate = |text: &str| text.lines().any(|line| line.contains(" of 40.0 MiB") && line.contains("/s"));
    play.larder(["volume", "create", "store/a", "--from", "latest:/image"]).ok();
    let copied = shown(&|_| (), &["volume", "hydrate", "store/a"]);
    assert!(rate(&copied.stderr), "{}", copied.stderr);
    let copied = shown(&|_| (), &["volume", "create", "store/b", "--from", "latest:/image", "--copy", "--json"]);
    let statuses = copied.messages("status");
    assert!(statuses.iter().any(|status| status["total_bytes"] == 40 * MIB), "{}", copied.text());
    statuses.iter().for_each(|status| schema::check("status", status));
    let done: Vec<_> = statuses.iter().map(|status| status["bytes_done"].as_u64().expect("a number")).collect();
    assert!(done.is_sorted() && done.iter().all(|done| *done <= 40 * MIB as u64), "{done:?}");
    let server = Server::start(&play, &[]);
    play.larder(["volume", "create", "store/c", "--from", "latest:/image"]).ok();
    let copied = shown(&|_| (), &["volume", "hydrate", "store/c"]);
    assert!(rate(&copied.stderr), "{}", copied.stderr);
    let copied = shown(&|_| (), &["volume", "create", "store/d", "--from", "latest:/image", "--copy"]);
    assert!(rate(&copied.stderr), "{}", copied.stderr);
    assert!(server.content("d").starts_with(&image) && server.content("c").starts_with(&image));
}

/// Without `--series`, a volume keeps its series under a new name, and its incremental backups.
#[test]
fn a_renamed_volume_goes_on_with_its_series() {
    let play = with_store("8MiB");
    let server = Server::start(&play, &[]);
    server.client("disk").write(0, &data::random(1, MIB), true).expect("written");
    let backup = |volume: &str| play.larder(["volume", "backup", &format!("store/{volume}"), "--json"]);
    let first = summary(&backup("disk").ok());
    play.larder(["volume", "rename", "store/disk", "other"]).ok();
    server.client("other").write(0, b"changed", true).expect("written");
    let second = summary(&backup("other").ok());
    assert_eq!(second["series"], first["series"]);
    assert!(second["read_bytes"].as_u64() < Some(MIB as u64), "{second}");
    assert_eq!(snapshots(&play).len(), 1);
    // Another volume with the old name must not go on with that series.
    play.larder(["volume", "create", "store/disk", "1MiB"]).ok();
    backup("disk").code(2).says("has the backups of volume other");
    play.larder(["volume", "backup", "store/disk", "--series", "mine"]).ok();
}

/// A signal to the command ends the copy of the server, which serves on. The next one continues.
#[test]
fn an_interrupted_copy_of_a_server_is_continued() {
    let play = with_store("1MiB");
    let image = tree::noise(1, 60 * MIB);
    play.larder_with_stdin(["backup", "--stdin", "--stdin-filename", "/image", "--series", "images"], &image).ok();
    // So slow that it would take a minute.
    let server = Server::start(&play, &["--limit-download", "1MiB"]);
    play.larder(["volume", "create", "store/vm", "--from", "latest:/image"]).ok();
    let mut command = play.command(["volume", "hydrate", "store/vm", "--json"]);
    let mut child = play.spawn(command.env("LARDER_PROGRESS_FPS", "60"));
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let status: Value = serde_json::from_str(&lines.next().expect("a line").expect("text")).expect("JSON");
    schema::check("status", &status);
    // A full pipe would hold the command up.
    let rest = std::thread::spawn(move || lines.for_each(drop));
    // Another one is refused meanwhile.
    play.larder(["volume", "hydrate", "store/vm"]).code(11).says("is being copied already").in_two_lines();
    kill_process(Pid::from_child(&child), Signal::INT).expect("it is not waited for");
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    rest.join().expect("it reads");
    // Served, and still over the snapshot.
    assert_eq!(server.client("vm").read(0, 512).expect("read"), image[..512]);
    let list = play.larder(["volume", "list", "store", "--json"]).ok().json();
    assert!(list[1]["parent"]["snapshot"].is_string(), "{list}");
    assert_eq!(server.signal(Signal::TERM), Some(0));
    let server = Server::start(&play, &[]);
    play.larder(["volume", "hydrate", "store/vm"]).ok();
    assert!(server.content("vm") == image);
}

/// So does one to a command that sends the data: nothing is left of the volume.
#[test]
fn an_interrupted_new_volume_leaves_nothing() {
    let play = with_store("1MiB");
    let image = tree::noise(1, 60 * MIB);
    play.larder_with_stdin(["backup", "--stdin", "--stdin-filename", "/image", "--series", "images"], &image).ok();
    let server = alone(&play);
    let mut command = play.command(["volume", "create", "store/vm", "--from", "latest:/image", "--copy", "--json"]);
    command.args(["--limit-download", "1MiB"]);
    let mut child = play.spawn(command.env("LARDER_PROGRESS_FPS", "60"));
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    lines.next().expect("progress").expect("text");
    let rest = std::thread::spawn(move || lines.for_each(drop));
    kill_process(Pid::from_child(&child), Signal::INT).expect("it is not waited for");
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    rest.join().expect("it reads");
    let list = play.larder(["volume", "list", "store", "--json"]).ok().json();
    assert_eq!(list.as_array().map(Vec::len), Some(1), "{list}");
    assert_eq!(server.signal(Signal::TERM), Some(0));
}
