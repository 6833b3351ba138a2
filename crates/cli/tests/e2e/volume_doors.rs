//! `larder volume`: the control socket, numbers, metrics, files, keys of a repository, damage of the log.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use larder_nbd::client::{Address, Client, Options};
use larder_nbd::{BASE_ALLOCATION, Extent};
use larder_testkit::data;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::volume_server::Server;
use crate::support::{PASSWORD, Play, run, schema};

fn with_store() -> Play {
    let play = Play::new();
    play.larder(["volume", "init", "store", "--log", "32MiB", "--insecure-kdf"]).ok();
    play.larder(["volume", "create", "store/disk", "64MiB"]).ok();
    play
}

#[test]
fn commands_reach_a_store_through_its_server() {
    let play = with_store();
    let server = Server::start(&play, &[]);
    let control = play.path("store/control");
    assert_eq!(std::fs::metadata(&control).expect("a socket").mode() & 0o777, 0o600);
    // Without a password: the server has the store open.
    let mut create = play.command(["volume", "create", "store/more", "1MiB", "--json"]);
    let created = run(create.env("LARDER_PASSWORD", "wrong")).ok();
    schema::check("volume_created", &created.json());
    play.larder(["volume", "create", "store/more", "1MiB"]).code(2).says("exists already").in_two_lines();
    assert_eq!(server.client("more").size(), 1 << 20, "it is served at once");
    let served = play.larder(["volume", "list", "store", "--json"]).ok().json();
    schema::check("volume_list", &served);
    assert_eq!(served.as_array().map(Vec::len), Some(2));
    let client = server.client("disk");
    client.write(0, &data::random(1, 1 << 20), false).expect("written");
    client.flush().expect("flushed");
    let stats = play.larder(["volume", "stats", "store", "--json"]).ok().json();
    schema::check("volume_stats", &stats);
    assert_eq!((&stats["requests"]["flushes"], &stats["requests"]["written_bytes"]), (&json!(1), &json!(1 << 20)));
    assert_eq!((&stats["space"]["data_bytes"], &stats["space"]["volumes"][0]["blocks"]), (&json!(1 << 20), &json!(16)));
    assert!(stats["connections"].as_u64() >= Some(1));
    // An eighth of the memory, which is a quarter of the machine's within bounds.
    let most = stats["memory"]["waiting_most_bytes"].as_u64().expect("a number");
    assert!((12 << 20..=128 << 20).contains(&most), "{most}");
    let text = play.larder(["volume", "stats", "store", "more"]).ok().text();
    assert!(text.contains("  more") && !text.contains("  disk") && text.contains("flushes"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    play.larder(["volume", "stats", "store", "tape"]).code(2).says("tape").in_two_lines();
    // The same numbers again and again, and an end by a signal.
    let mut watching = play.command(["volume", "stats", "store", "--watch", "--json"]);
    let mut child = watching.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    for has_space in [true, false] {
        let line: Value = serde_json::from_str(&lines.next().expect("a line").expect("text")).expect("JSON");
        schema::check("volume_stats", &line);
        assert_eq!(line.get("space").is_some(), has_space);
    }
    kill_process(Pid::from_child(&child), Signal::INT).expect("it runs");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    drop(client);
    assert_eq!(server.signal(Signal::TERM), Some(0));
    assert!(!control.exists());
    // The same result without a server.
    assert_eq!(play.larder(["volume", "list", "store", "--json"]).ok().json(), served);
    schema::check("volume_stats", &play.larder(["volume", "stats", "store", "--json"]).ok().json());
    play.larder(["volume", "stats", "store", "--watch"]).code(2).says("not served").in_two_lines();
}

#[test]
fn garbage_on_the_control_socket_harms_nobody_and_a_dead_one_is_replaced() {
    let play = with_store();
    let server = Server::start(&play, &[]);
    let control = play.path("store/control");
    for garbage in [&b"\n"[..], b"{}\n", b"{\"verb\":\"list\"", b"\0\xff\xfe\n", &[b'['; 200_000]] {
        let mut stream = UnixStream::connect(&control).expect("it listens");
        drop(stream.write_all(garbage));
        drop(stream.shutdown(std::net::Shutdown::Write));
        let mut answer = String::new();
        drop(stream.read_to_string(&mut answer));
        assert!(answer.is_empty() || answer.starts_with("{\"error\":{\"code\":2,"), "{answer}");
    }
    play.larder(["volume", "list", "store"]).ok();
    assert_eq!(server.signal(Signal::KILL), None);
    assert!(control.exists(), "a killed server leaves it");
    play.larder(["volume", "list", "store"]).ok();
    let server = Server::start(&play, &[]);
    play.larder(["volume", "list", "store"]).ok();
    assert_eq!(server.signal(Signal::TERM), Some(0));
    std::fs::write(&control, "mine").expect("written");
    play.larder(["volume", "serve", "store"]).code(1).says("no socket");
    assert_eq!(std::fs::read(&control).expect("it is there"), b"mine");
}

#[test]
fn metrics_are_served() {
    let play = with_store();
    let server = Server::start(&play, &["--metrics", "127.0.0.1:0"]);
    let client = server.client("disk");
    client.write(0, &[7; 4096], true).expect("written");
    let url = server.serving["metrics"].as_str().expect("a URL");
    let address = url.strip_prefix("http://").and_then(|url| url.strip_suffix("/metrics")).expect("an address");
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("text");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
    let value = |name: &str| {
        let found = body.lines().find_map(|line| line.strip_prefix(name));
        found.and_then(|rest| rest.trim().parse::<f64>().ok()).unwrap_or_else(|| panic!("{name} in {body}"))
    };
    assert_eq!((value("larder_volume_writes_total "), value("larder_volume_written_bytes_total ")), (1.0, 4096.0));
    assert_eq!(value("larder_volume_volumes "), 1.0);
    assert!(value("larder_volume_commit_seconds_total{phase=\"syncing\"} ") > 0.0);
    // Every sample has a type, and every name has one help.
    for line in body.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().expect("a name");
        assert_eq!(body.matches(&format!("# TYPE {name} ")).count(), 1, "{name}");
        assert_eq!(body.matches(&format!("# HELP {name} ")).count(), 1, "{name}");
    }
    play.larder(["volume", "serve", "store", "--metrics", "nowhere"]).code(2).in_two_lines();
}

#[test]
fn the_server_needs_no_reader_of_its_output() {
    let play = with_store();
    let mut server = Server::start(&play, &[]);
    server.output = None;
    server.client("disk").write(0, &[1; 512], false).expect("written");
    assert_eq!(server.signal(Signal::TERM), Some(0));
    let server = Server::start(&play, &[]);
    assert_eq!(server.serving["commits_replayed"], 0);
    assert_eq!(server.client("disk").read(0, 512).expect("read"), [1; 512]);
}

#[test]
fn people_see_what_to_type() {
    let play = with_store();
    let address = format!("unix:{}", play.path("nbd.sock").display());
    let mut command = play.command(["volume", "serve", "store", "--nbd", &address]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
    let mut text = String::new();
    for line in BufReader::new(child.stdout.take().expect("a pipe")).lines() {
        let line = line.expect("text");
        text.push_str(&format!("{line}\n"));
        if line.contains("Ctrl-C") {
            break;
        }
    }
    for part in ["serving disk (64.0 MiB):", "nbd-client -unix ", "qemu-system-x86_64 -drive ", "nbdcopy ", "losetup "]
    {
        assert!(text.contains(part), "{part} in {text}");
    }
    kill_process(Pid::from_child(&child), Signal::TERM).expect("it runs");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}

#[test]
fn volumes_are_files_where_fuse_can_be_used() {
    let play = with_store();
    if std::fs::OpenOptions::new().write(true).open("/dev/fuse").is_err() || !rustix::process::geteuid().is_root() {
        return;
    }
    let server = Server::start(&play, &["--mount-file", "files"]);
    let path = play.path("files/disk");
    assert_eq!(server.serving["exports"][0]["file"], path.to_string_lossy().as_ref());
    let content = data::random(3, 100_000);
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).expect("a file");
    std::os::unix::fs::FileExt::write_all_at(&file, &content, 12_345).expect("written");
    file.sync_data().expect("durable");
    let stats = play.larder(["volume", "stats", "store", "--json"]).ok().json();
    assert_eq!(stats["requests"]["flushes"], 1, "fsync is a flush");
    assert_eq!(server.client("disk").read(12_345, 100_000).expect("read"), content);
    play.larder(["volume", "create", "store/more", "1MiB"]).ok();
    assert_eq!(std::fs::metadata(play.path("files/more")).expect("it appears").len(), 1 << 20);
    drop(file);
    assert_eq!(server.signal(Signal::TERM), Some(0));
    assert!(!path.exists());
    play.write("full/file", "mine");
    play.larder(["volume", "serve", "store", "--mount-file", "full"]).code(1).says("not empty").in_two_lines();
}

#[test]
fn keys_of_a_repository_open_a_store() {
    let play = Play::with_repository();
    let repository = play.repository();
    play.larder(["key", "add", "--role", "backup+restore+operate", "--file", "all.key"]);
    let like = repository.to_str().expect("text");
    let made = play.larder(["volume", "init", "store", "--like", like, "--log", "32MiB", "--json"]).ok();
    schema::check("volume_initialized", &made.json());
    play.larder(["volume", "create", "store/disk", "1MiB"]).ok();
    let mut wrong = play.command(["volume", "list", "store"]);
    run(wrong.env("LARDER_PASSWORD", "wrong")).code(12).says("opens no key").in_two_lines();
    let mut nowhere = play.command(["volume", "init", "other", "--like", "nowhere", "--log", "32MiB"]);
    run(nowhere.env("LARDER_PASSWORD", PASSWORD)).code(10).in_two_lines();
    assert!(!play.path("other").exists(), "nothing was made");
}

/// The files of a store that have its state.
fn files(play: &Play) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let folders = ["manifest", "log", "runs", "containers/0"].map(|folder| play.path("store").join(folder));
    let entries = folders.iter().flat_map(|folder| std::fs::read_dir(folder).expect("a folder"));
    let mut files: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files.into_iter().map(|path| (path.clone(), std::fs::read(&path).expect("a file"))).collect()
}

#[test]
fn a_store_without_a_container_of_its_log_opens_on_request_and_names_what_is_lost() {
    let play = with_store();
    let server = Server::start(&play, &[]);
    let client = server.client("disk");
    for block in 0..3u64 {
        client.write(block << 16, &data::random(block, 1 << 16), true).expect("written");
    }
    assert_eq!(server.signal(Signal::KILL), None);
    std::fs::remove_file(play.path("store/containers/0/0")).expect("removed");
    play.larder(["volume", "serve", "store"]).code(13).says("containers/0/0").says("--accept-loss").in_two_lines();
    let before = files(&play);
    let asked = play.larder(["volume", "check", "store"]).code(13).says("containers/0/0 is missing or too short");
    asked.says("would fail").says("volume disk, blocks 0 to ").says("no content").says("--accept-loss");
    assert_eq!(files(&play), before);
    let checked = play.larder(["volume", "check", "store", "--accept-loss", "--json"]).code(13);
    schema::check("volume_check", &checked.json());
    assert_eq!(checked.json()["containers_lost"], json!(["containers/0/0"]));
    assert_eq!(checked.json()["failing"][0]["volume"], "disk");
    assert_eq!((&checked.json()["lost"], &checked.json()["commits_lost"]), (&json!([]), &json!(0)));
    // It is served again, and the same data written again is stored again.
    let server = Server::start(&play, &[]);
    let client = server.client("disk");
    assert!(client.read(0, 1 << 16).is_err());
    for block in 0..3u64 {
        client.write(block << 16, &data::random(block, 1 << 16), true).expect("written");
        assert_eq!(client.read(block << 16, 1 << 16).expect("read"), data::random(block, 1 << 16));
    }
    assert_eq!(server.signal(Signal::TERM), Some(0));
    // Merges drop the old contents of the blocks.
    play.larder(["volume", "collect", "store"]).ok();
    play.larder(["volume", "check", "store", "--read-data"]).ok();
}

#[test]
fn a_damaged_log_opens_on_request_and_names_what_is_lost() {
    let play = with_store();
    let server = Server::start(&play, &[]);
    let client = server.client("disk");
    for block in 0..3u64 {
        client.write(block << 16, &data::random(block, 1 << 16), true).expect("written");
    }
    play.larder(["volume", "create", "store/late", "1MiB"]).ok();
    play.larder(["volume", "resize", "store/disk", "65MiB"]).ok();
    play.larder(["volume", "snapshot", "store/disk@monday"]).ok();
    assert_eq!(server.signal(Signal::KILL), None);
    // The second record of the slot in use.
    let mut is_damaged = false;
    for slot in 0..8 {
        let path = play.path(format!("store/log/{slot}"));
        let mut bytes = std::fs::read(&path).expect("a slot");
        let sealed = u32::from_le_bytes(bytes[512..516].try_into().expect("4 bytes")) as usize;
        if sealed > 0 {
            let second = 512 + (16 + sealed).next_multiple_of(512);
            bytes[second + 50] ^= 1;
            std::fs::write(&path, bytes).expect("written");
            is_damaged = true;
        }
    }
    assert!(is_damaged);
    play.larder(["volume", "serve", "store"]).code(13).says("--accept-loss").in_two_lines();
    // First without the option: it says what would be lost, and changes nothing.
    let before = files(&play);
    let line = "volume disk, blocks 2 to 2 (bytes 131072 to 196607, 64.0 KiB): lost writes";
    let asked = play.larder(["volume", "check", "store"]).code(13).says(line).says("--accept-loss");
    let asked = asked.says("nothing was changed").says("lost: the creation of volume late");
    asked.says("lost: the new size of volume disk").says("lost: the creation of snapshot disk@monday");
    let asked = play.larder(["volume", "check", "store", "--json"]).code(13);
    schema::check("volume_check", &asked.json());
    assert_eq!(asked.json()["loss_accepted"], false);
    assert_eq!(files(&play), before);
    let checked = play.larder(["volume", "check", "store", "--accept-loss", "--json"]).code(13);
    schema::check("volume_check", &checked.json());
    for key in ["lost", "commits_lost", "changes_lost"] {
        assert_eq!(checked.json()[key], asked.json()[key]);
    }
    assert_eq!(checked.json()["loss_accepted"], true);
    assert_eq!(checked.json()["lost"], json!([{"volume": "disk", "first": 2, "last": 2}]));
    assert_eq!(checked.json()["commits_lost"], 5);
    assert_eq!(checked.json()["changes_lost"].as_array().map(Vec::len), Some(3));
    assert!(checked.stderr.contains(line), "{}", checked.stderr);
    assert!(play.larder(["volume", "check", "store", "--json"]).ok().json().get("loss_accepted").is_none());
    play.larder(["volume", "check", "store", "--read-data"]).ok();
    let server = Server::start(&play, &[]);
    assert_eq!(server.client("disk").read(0, 1 << 16).expect("read"), data::random(0, 1 << 16));
    assert_eq!(server.client("disk").read(1 << 16, 512).expect("read"), [0; 512]);
}

/// Everything that changes volumes, with a server and without one.
#[test]
fn volumes_are_changed_with_and_without_a_server() {
    for is_served in [false, true] {
        let play = with_store();
        let server = is_served.then(|| Server::start(&play, &[]));
        let change = |words: &[&str]| {
            let ran = play.larder([&["volume"], words, &["--json"]].concat()).ok();
            schema::check("volume_changed", &ran.json());
            ran.json()
        };
        assert_eq!(change(&["snapshot", "store/disk@one"])["name"], "disk@one");
        schema::check(
            "volume_created",
            &play.larder(["volume", "create", "store/a", "--clone", "disk@one", "--json"]).ok().json(),
        );
        play.larder(["volume", "create", "store/b", "--clone", "disk"]).ok();
        play.larder(["volume", "create", "store/c"]).code(2).says("SIZE").in_two_lines();
        play.larder(["volume", "snapshot", "store/disk"]).code(2).says("NAME@SNAP").in_two_lines();
        assert_eq!(change(&["resize", "store/a", "96MiB"])["size"], 96 << 20);
        let less = ["volume", "resize", "store/a", "1MiB"];
        play.larder(less).code(2).says("discards the last 95.0 MiB").says("--shrink").in_two_lines();
        assert_eq!(change(&["resize", "store/a", "1MiB", "--shrink"])["size"], 1 << 20);
        assert_eq!(change(&["resize", "store/a", "1MiB"])["size"], 1 << 20);
        assert_eq!(change(&["rename", "store/a", "z"])["name"], "z");
        let listed = play.larder(["volume", "list", "store", "--json"]).ok().json();
        schema::check("volume_list", &listed);
        let names = |list: &Value| -> Vec<String> {
            let volumes = list.as_array().expect("a list").iter();
            volumes.map(|volume| volume["name"].as_str().expect("a name").to_owned()).collect()
        };
        assert_eq!(names(&listed), ["disk", "z", "b"]);
        assert_eq!(names(&listed[0]["snapshots"]), ["one", "clone-b"]);
        assert!(play.larder(["volume", "list", "store"]).ok().text().contains("disk@clone-b"));
        play.larder(["volume", "delete", "store/disk@one"]).code(2).in_two_lines();
        change(&["delete", "store/z"]);
        change(&["delete", "store/disk@one"]);
        play.larder(["volume", "delete", "store/disk"]).code(2).in_two_lines();
        change(&["delete", "store/b"]);
        change(&["delete", "store/disk", "--snapshots"]);
        let collected = play.larder(["volume", "collect", "store", "--json"]).ok();
        schema::check("volume_collected", &collected.json());
        assert_eq!(play.larder(["volume", "list", "store", "--json"]).ok().json(), json!([]));
        drop(server);
    }
}

#[test]
fn a_volume_in_use_is_deleted_by_force_only() {
    let play = with_store();
    let server = Server::start(&play, &[]);
    play.larder(["volume", "create", "store/more", "1MiB"]).ok();
    play.larder(["volume", "snapshot", "store/disk@monday"]).ok();
    let (disk, monday) = (server.client("disk"), server.client("disk@monday"));
    let refused = |name: &str, by: &str| {
        play.larder(["volume", "delete", name]).code(11).says("is in use by").says(by).says("--force").in_two_lines();
    };
    refused("store/disk@monday", "1 client");
    // Clients of its snapshots count too.
    refused("store/disk", "2 clients");
    drop(monday);
    // Its client has left.
    play.larder(["volume", "delete", "store/disk@monday"]).ok();
    refused("store/disk", "1 client");
    play.larder(["volume", "delete", "store/more"]).ok();
    assert_eq!(disk.read(0, 512).expect("read"), [0; 512]);
    play.larder(["volume", "delete", "store/disk", "--force"]).ok();
    assert!(disk.read(0, 512).is_err(), "it is gone");
}

#[test]
fn zeros_in_a_block_are_holes_of_a_snapshot() {
    let play = Play::new();
    // Cut at each page, so that the holes are known to the byte.
    let init = ["volume", "init", "store", "--log", "32MiB", "--insecure-kdf", "--chunks", "fixed:4KiB"];
    play.larder(init).ok();
    play.larder(["volume", "create", "store/disk", "64MiB"]).ok();
    let server = Server::start(&play, &[]);
    let client = server.client("disk");
    // Data, zeros that were written, and data in one block; a block of written zeros; nothing.
    let mut block = data::random(1, 4096);
    block.resize(53_248, 0);
    block.extend(data::random(2, 12_288));
    client.write(0, &block, false).expect("written");
    client.write(64 << 10, &[0; 64 << 10], true).expect("written");
    play.larder(["volume", "snapshot", "store/disk@one"]).ok();
    let options = Options { export: "disk@one".into(), contexts: vec![BASE_ALLOCATION.into()], ..Options::default() };
    let snapshot = Client::connect(&Address::Unix(&server.socket), &options).expect("it listens");
    let extents = snapshot.block_status(BASE_ALLOCATION, 0, 64 << 20).expect("a map");
    let found: Vec<_> = extents.iter().map(|extent| (extent.length, extent.flags)).collect();
    let hole = Extent::HOLE | Extent::ZERO;
    let behind = (64 << 20) - (64 << 10);
    assert_eq!(found, [(4096, 0), (49_152, hole), (12_288, 0), (behind, hole)]);
    assert_eq!(snapshot.read(0, 64 << 10).expect("read"), block);
}
