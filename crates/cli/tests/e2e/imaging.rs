//! Disk images: holes, maps of changes, maps that are wrong, and images of QEMU.
//!
//! Tests of qcow2 images need `qemu-img`, and skip without it.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use larder_nbd::{Export, MemoryExport, Server, Single};
use larder_testkit::data;
use serde_json::Value;

use crate::support::{Play, Ran, damage, schema};

const MIB: usize = 1 << 20;

pub(crate) fn summary(ran: &Ran) -> Value {
    let summary = ran.messages("summary").pop().expect("a summary");
    schema::check("backup_summary", &summary);
    summary
}

pub(crate) fn number(summary: &Value, key: &str) -> usize {
    summary[key].as_u64().unwrap_or_else(|| panic!("{key}: {summary}")) as usize
}

fn id(summary: &Value) -> &str {
    summary["snapshot_id"].as_str().expect("an id")
}

/// Backs an image up into the series `vm`.
fn imaged(play: &Play, more: &[&str]) -> Ran {
    play.larder([&["backup", "--json", "--series", "vm", "--image"], more].concat())
}

fn dumped(play: &Play, summary: &Value) -> Vec<u8> {
    let listed = play.larder(["ls", "--json", id(summary)]).ok();
    let files = listed.messages("node");
    let file = files.iter().find(|node| node["type"] == "file").unwrap_or_else(|| panic!("{}", listed.text()));
    play.larder(["dump", id(summary), file["path"].as_str().expect("a path")]).ok().stdout
}

/// A file of 64 MiB with 12 MiB of data in two places.
fn sparse_file(path: &Path) -> Vec<u8> {
    let mut bytes = vec![0; 64 * MIB];
    bytes[MIB..9 * MIB].copy_from_slice(&data::random(1, 8 * MIB));
    bytes[40 * MIB..44 * MIB].copy_from_slice(&data::random(2, 4 * MIB));
    let file = File::create(path).expect("created");
    file.set_len(bytes.len() as u64).expect("sized");
    for range in [MIB..9 * MIB, 40 * MIB..44 * MIB] {
        file.write_all_at(&bytes[range.clone()], range.start as u64).expect("written");
    }
    bytes
}

#[test]
fn a_raw_image_with_maps_is_read_where_it_changed() {
    let play = Play::with_repository();
    let disk = play.path("disk.img");
    let mut bytes = sparse_file(&disk);
    let source = disk.to_str().expect("a text");
    let first = summary(&imaged(&play, &[source]).ok());
    assert_eq!(number(&first, "total_bytes_processed"), 64 * MIB);
    assert!(number(&first, "read_bytes") < 13 * MIB, "holes are not read: {first}");
    assert!(first.get("map").is_none() && dumped(&play, &first) == bytes);
    // A map that is right.
    let file = File::options().write(true).open(&disk).expect("opens");
    let write = |bytes: &mut [u8], at: usize, content: &[u8]| {
        bytes[at..at + content.len()].copy_from_slice(content);
        file.write_all_at(content, at as u64).expect("written");
    };
    write(&mut bytes, 3 * MIB + 7, &data::random(3, 100_000));
    write(&mut bytes, 50 * MIB, &data::random(4, 4096));
    let map = format!("# changes\nsince {}\n{} 100000\n{} 4096\n", id(&first), 3 * MIB + 7, 50 * MIB);
    play.write("map", map);
    let second = summary(&imaged(&play, &[source, "--changed-map", "map"]).ok());
    assert_eq!(second["map"], "used");
    let read = number(&second, "read_bytes") - number(&second, "map_checked_bytes");
    assert!((104_096..600_000).contains(&read), "{second}");
    assert!(dumped(&play, &second) == bytes);
    // A map that leaves a change out.
    write(&mut bytes, 41 * MIB, b"a change that no map names");
    play.write("map.json", "{\"offset\":0,\"length\":1}\n");
    let third = imaged(&play, &[source, "--changed-map", "map.json", "--changed-since", id(&second)]);
    assert_eq!(third.code, 3, "{}", third.stderr);
    let third = summary(&third);
    let wrong = number(&third, "map_wrong_at");
    assert!(third["map"] == "wrong" && (40 * MIB..=41 * MIB).contains(&wrong), "{third}");
    assert!(number(&third, "read_bytes") > 12 * MIB && dumped(&play, &third) == bytes);
    // In words.
    write(&mut bytes, 42 * MIB, b"another change");
    let words =
        ["backup", "--series", "vm", "--image", source, "--changed-map", "map.json", "--changed-since", "latest"];
    let told = play.larder(words);
    assert_eq!(told.code, 3);
    assert!(told.stderr.contains("warning: the map of changes is wrong: data at byte "), "{}", told.stderr);
    // A map from another snapshot than the base.
    write(&mut bytes, 2 * MIB, b"and one more");
    let fifth = summary(&imaged(&play, &[source, "--changed-map", "map"]).ok());
    assert!(fifth["map"] == "unusable" && dumped(&play, &fifth) == bytes, "{fifth}");
    assert!(fifth["map_problem"].as_str().expect("a reason").contains("follow another snapshot"), "{fifth}");
    assert!(number(&fifth, "read_bytes") >= 12 * MIB && number(&fifth, "data_added") < MIB, "{fifth}");
    // All of it is sound, and comes back with its holes.
    play.larder(["check", "--read-data"]).ok();
    play.larder(["restore", id(&fifth), "--target", "back"]).ok();
    let back = play.path("back").join(disk.strip_prefix("/").expect("absolute"));
    assert!(std::fs::read(&back).expect("restored") == bytes);
    assert!(back.metadata().expect("there").blocks() * 512 < 20 * MIB as u64, "holes are restored");
}

/// Maps that are not those of the image, or not of what its series has, cost a whole read.
#[test]
fn maps_of_something_else_are_not_used() {
    let play = Play::with_repository();
    let disk = play.path("disk.img");
    let bytes = sparse_file(&disk);
    let source = disk.to_str().expect("a text");
    let first = summary(&imaged(&play, &[source]).ok());
    let problem = |summary: &Value| summary["map_problem"].as_str().unwrap_or_default().to_owned();
    // One of a larger image.
    play.write("map", format!("0 512\n{} 4096\n", 64 * MIB - 512));
    let beyond = summary(&imaged(&play, &[source, "--changed-map", "map", "--changed-since", "latest"]).ok());
    assert!(beyond["map"] == "unusable" && dumped(&play, &beyond) == bytes, "{beyond}");
    assert!(problem(&beyond).contains("behind the end of the image"), "{beyond}");
    // `latest` is that of the series, whatever else is in the repository.
    play.larder(["backup", "--series", "other", "--image", source]).ok();
    play.write("map", "0 512\n");
    let of_series = summary(&imaged(&play, &[source, "--changed-map", "map", "--changed-since", "latest"]).ok());
    assert_eq!(of_series["map"], "used", "{of_series}");
    // A repaired snapshot lacks data, which no map names.
    for container in damage::named(&play.repository(), "data/").iter().take(1) {
        damage::remove(&play.repository(), container);
    }
    for snapshot in [&first, &beyond] {
        play.larder(["forget", id(snapshot)]).ok();
    }
    play.larder(["repair", "snapshots", "--series", "vm"]);
    let repaired = imaged(&play, &[source, "--changed-map", "map", "--changed-since", "latest"]);
    let repaired = summary(&repaired);
    assert!(repaired["map"] == "unusable" && dumped(&play, &repaired) == bytes, "{repaired}");
    assert!(problem(&repaired).contains("was repaired"), "{repaired}");
}

/// A signal while an image is opened ends the backup in order.
#[test]
fn an_image_that_does_not_open_can_be_interrupted() {
    let play = Play::with_repository();
    // A control socket that another program uses.
    let listener = std::os::unix::net::UnixListener::bind(play.path("qmp")).expect("bound");
    let source = format!("qemu:vda@{}", play.path("qmp").display());
    let child = play.spawn(&mut play.command(["backup", "--image", &source]));
    let (_stream, _) = listener.accept().expect("it connects");
    Command::new("kill").arg("-INT").arg(child.id().to_string()).status().expect("kill runs");
    let ran = Ran::from(child.wait_with_output().expect("it ends"));
    assert_eq!(ran.code, 130, "{}", ran.stderr);
    assert!(ran.stderr.contains("interrupted while the image was opened"), "{}", ran.stderr);
}

#[test]
fn plain_backups_and_images_share_a_series() {
    let play = Play::with_repository();
    let disk = play.path("disk.img");
    let mut bytes = sparse_file(&disk);
    let source = disk.to_str().expect("a text");
    let plain = |play: &Play| {
        let ran = play.larder(["backup", "--json", "--series", "vm", source]).ok();
        summary(&ran)
    };
    plain(&play);
    let image = summary(&imaged(&play, &[source]).ok());
    assert_eq!(number(&image, "data_blobs"), 0, "all chunks are known: {image}");
    bytes[5 * MIB] ^= 1;
    std::fs::write(&disk, &bytes).expect("written");
    let again = plain(&play);
    assert!(number(&again, "data_added") < MIB && dumped(&play, &again) == bytes, "{again}");
    // The base of this one is a tree, which no map follows.
    play.write("map", format!("since {}\n{} 1\n", id(&image), 5 * MIB));
    let last = summary(&imaged(&play, &[source, "--changed-map", "map"]).ok());
    assert!(last["map"] == "unusable" && dumped(&play, &last) == bytes, "{last}");
}

#[test]
fn network_block_devices_are_backed_up() {
    let play = Play::with_repository();
    let device = Arc::new(MemoryExport::new(64 << 20));
    let mut bytes = vec![0; 64 * MIB];
    bytes[10 * MIB..13 * MIB].copy_from_slice(&data::random(5, 3 * MIB));
    device.write(10 << 20, &bytes[10 * MIB..13 * MIB], false).expect("written");
    let server = Server::new(Arc::new(Single::new("disk/a", device)), Default::default());
    let socket = play.path("nbd.sock");
    server.listen_unix(&socket).expect("it listens");
    let uri = format!("nbd+unix:///disk/a?socket={}", socket.display());
    let first = summary(&imaged(&play, &[&uri]).ok());
    assert_eq!((number(&first, "read_bytes"), number(&first, "total_bytes_processed")), (3 * MIB, 64 * MIB));
    assert!(dumped(&play, &first) == bytes);
    // Without its context a map is no map.
    let none = imaged(&play, &[&uri, "--changed-context", "qemu:dirty-bitmap:b", "--changed-since", id(&first)]);
    assert!(none.code == 1 && none.stderr.contains("no context qemu:dirty-bitmap:b"), "{}", none.stderr);
    for (words, why) in [
        (&[&*uri, "--changed-context", "x:y"][..], "needs --changed-since"),
        (&["/dev/null"], "neither a regular file nor a block device"),
        (&["nbd://127.0.0.1:1/x"], "cannot use nbd://127.0.0.1:1/x"),
        (&["nbd:///x"], "it has no host"),
        (&["disk", "--changed-context", "x:y", "--changed-since", "latest"], "needs a network block device"),
        (&["qcow2:disk", "--changed-map", "map"], "have their own maps of changes"),
        (&[&uri, "--changed-since", id(&first)], "needs --changed-map"),
    ] {
        let refused = imaged(&play, words);
        assert!(refused.code != 0 && refused.stderr.contains(why), "{words:?}: {}", refused.stderr);
    }
    let mut gone = play.write("map", "0 1\n");
    let refused = imaged(&play, &[&uri, "--changed-map", "map"]);
    assert!(refused.code == 2 && refused.stderr.contains("does not say from which snapshot"), "{}", refused.stderr);
    gone.set_extension("gone");
    let refused = imaged(&play, &[&uri, "--changed-map", gone.to_str().expect("a text")]);
    assert!(refused.code == 1 && refused.stderr.contains("cannot read"), "{}", refused.stderr);
    assert_eq!(play.larder(["snapshots", "--json"]).ok().json().as_array().map(Vec::len), Some(1));
    server.shutdown().expect("it ends");
}

/// Whether QEMU's tools are installed.
#[expect(clippy::print_stderr, reason = "tells that a test was skipped")]
fn has_qemu() -> bool {
    let has = |program: &str| Command::new(program).arg("--version").stdout(Stdio::null()).status().is_ok();
    let all = ["qemu-img", "qemu-nbd", "qemu-io"].into_iter().all(has);
    if !all {
        eprintln!("skipped: qemu-utils is not installed");
    }
    all
}

fn qemu(program: &str, args: &[&str]) -> String {
    let ran = Command::new(program).args(args).output().expect("it starts");
    assert!(ran.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).expect("a text")
}

/// A qcow2 image of 64 MiB in a folder of a test.
struct Qcow2<'a> {
    play: &'a Play,
    path: String,
}

impl<'a> Qcow2<'a> {
    fn new(play: &'a Play) -> Self {
        let path = play.path("web.qcow2").to_str().expect("a text").to_owned();
        qemu("qemu-img", &["create", "-q", "-f", "qcow2", &path, "64M"]);
        Self { play, path }
    }

    fn write(&self, kilobyte: usize, kilobytes: usize, pattern: u8) {
        let command = format!("write -P {pattern} {kilobyte}k {kilobytes}k");
        qemu("qemu-io", &["-f", "qcow2", "-c", &command, &self.path]);
    }

    fn bitmaps(&self) -> Vec<String> {
        let info: Value =
            serde_json::from_str(&qemu("qemu-img", &["info", "--output=json", &self.path])).expect("JSON");
        let listed = info["format-specific"]["data"]["bitmaps"].as_array().cloned().unwrap_or_default();
        listed.iter().map(|bitmap| bitmap["name"].as_str().expect("a name").to_owned()).collect()
    }

    fn backup(&self, more: &[&str]) -> Ran {
        imaged(self.play, &[&[&*format!("qcow2:{}", self.path)], more].concat())
    }

    /// The disk in the image.
    fn content(&self) -> Vec<u8> {
        let raw = self.play.path("content");
        qemu("qemu-img", &["convert", "-f", "qcow2", "-O", "raw", &self.path, raw.to_str().expect("a text")]);
        std::fs::read(raw).expect("readable")
    }
}

#[test]
fn a_qcow2_image_is_read_where_its_bitmap_says() {
    if !has_qemu() {
        return;
    }
    let play = Play::with_repository();
    let image = Qcow2::new(&play);
    image.write(1024, 8192, 1);
    // A dry run leaves the image as it is.
    image.backup(&["--dry-run"]).ok();
    assert!(image.bitmaps().is_empty());
    let first = summary(&image.backup(&[]).ok());
    assert_eq!(number(&first, "read_bytes"), 8 * MIB);
    assert!(first.get("map").is_none() && dumped(&play, &first) == image.content());
    let bitmaps = image.bitmaps();
    assert!(bitmaps.len() == 1 && bitmaps[0].ends_with(id(&first)), "{bitmaps:?}");
    image.write(5000, 100, 2);
    image.write(40_000, 64, 3);
    let second = summary(&image.backup(&[]).ok());
    assert_eq!(second["map"], "used");
    let read = number(&second, "read_bytes") - number(&second, "map_checked_bytes");
    assert!((164 << 10..2 * MIB).contains(&read), "{second}");
    assert!(dumped(&play, &second) == image.content());
    assert!(image.bitmaps().len() == 1 && image.bitmaps()[0].ends_with(id(&second)));
    // Another series has a bitmap of its own.
    let words = ["backup", "--series", "other", "--image", &*format!("qcow2:{}", image.path)];
    play.larder(words).ok();
    assert_eq!(image.bitmaps().len(), 2);
    let third = summary(&image.backup(&["--verify-every", "1"]).ok());
    assert_eq!((&third["map"], number(&third, "data_added") < MIB), (&Value::from("used"), true));
    assert_eq!(image.bitmaps().len(), 2);
    // Without its snapshot, a bitmap is of no use.
    play.larder(["forget", id(&third)]).ok();
    image.write(2000, 4, 4);
    let fourth = image.backup(&[]).ok();
    assert!(fourth.stderr.is_empty(), "{}", fourth.stderr);
    let fourth = summary(&fourth);
    assert!(fourth["map"] == "unusable" && dumped(&play, &fourth) == image.content(), "{fourth}");
    play.larder(["check", "--read-data"]).ok();
}

/// Goal: after a backup that failed, and beside what a killed one left, the next one covers all changes.
#[test]
fn bitmaps_outlive_backups_that_fail() {
    if !has_qemu() {
        return;
    }
    let play = Play::with_repository();
    let image = Qcow2::new(&play);
    image.write(0, 20_000, 1);
    let first = summary(&image.backup(&[]).ok());
    image.write(3000, 64, 2);
    let before = image.bitmaps();
    // Versions cannot be listed: the backup fails after it created its bitmap.
    let versions = play.repository().join("versions");
    std::fs::rename(&versions, play.path("aside")).expect("moved");
    std::fs::write(&versions, "no folder").expect("written");
    let failed = image.backup(&[]);
    assert_ne!(failed.code, 0);
    std::fs::remove_file(&versions).and_then(|()| std::fs::rename(play.path("aside"), &versions)).expect("moved");
    assert_eq!(image.bitmaps(), before, "the old one stays, and the new one is gone");
    // A backup that was killed may leave the bitmap of a snapshot that never came to be.
    let stale = format!("{}{}", before[0].trim_end_matches(id(&first)), "0".repeat(id(&first).len()));
    qemu("qemu-img", &["bitmap", "--add", &image.path, &stale]);
    image.write(9000, 64, 3);
    let second = summary(&image.backup(&[]).ok());
    assert!(second["map"] == "used" && dumped(&play, &second) == image.content(), "{second}");
    assert!(image.bitmaps().len() == 1 && image.bitmaps()[0].ends_with(id(&second)), "{:?}", image.bitmaps());
    // The bitmap vanished, as with a tool that does not know of it.
    qemu("qemu-img", &["bitmap", "--remove", &image.path, &image.bitmaps()[0]]);
    image.write(12_000, 64, 4);
    let third = image.backup(&[]).ok();
    let third = summary(&third);
    assert!(third["map"] == "unusable" && dumped(&play, &third) == image.content(), "{third}");
    assert!(third["map_problem"].as_str().expect("a reason").contains("no whole bitmap"), "{third}");
    // A bitmap that misses a change: the image was written by something that does not note it.
    let name = image.bitmaps().remove(0);
    image.write(15_000, 64, 5);
    qemu("qemu-img", &["bitmap", "--clear", &image.path, &name]);
    let fourth = image.backup(&["--verify-every", "1"]);
    assert_eq!(fourth.code, 3, "{}", fourth.stderr);
    let fourth = summary(&fourth);
    assert!(fourth["map"] == "wrong" && dumped(&play, &fourth) == image.content(), "{fourth}");
}

#[test]
fn a_qcow2_image_that_cannot_be_used_is_refused_with_advice() {
    if !has_qemu() {
        return;
    }
    let play = Play::with_repository();
    let image = Qcow2::new(&play);
    // A virtual machine, as far as locks go.
    let mut user = Command::new("qemu-io")
        .args(["-f", "qcow2", &image.path])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    // Its prompt comes when it has the image open.
    std::io::Read::read(user.stdout.as_mut().expect("a pipe"), &mut [0]).expect("a prompt");
    let refused = image.backup(&[]);
    drop(user.stdin.take());
    user.wait().expect("it ends");
    assert!(refused.code == 1 && refused.stderr.contains("lock"), "{}", refused.stderr);
    assert!(refused.stderr.contains("another program has the image open"), "{}", refused.stderr);
    // A disk that looks like an image may be the work of a guest, so nothing is guessed.
    let guessed = imaged(&play, &[&image.path]);
    assert!(guessed.code == 2 && guessed.stderr.contains("looks like a qcow2 image"), "{}", guessed.stderr);
    let raw = summary(&imaged(&play, &[&format!("raw:{}", image.path)]).ok());
    assert!(dumped(&play, &raw) == std::fs::read(&image.path).expect("readable"));
    let no_image = play.write("no.qcow2", "something else");
    let refused = imaged(&play, &[&format!("qcow2:{}", no_image.display())]);
    assert!(refused.code == 1 && refused.stderr.contains("Image is not in qcow2 format"), "{}", refused.stderr);
    // An image that cannot hold bitmaps is read as a whole each time.
    let old = play.path("old.qcow2").to_str().expect("a text").to_owned();
    qemu("qemu-img", &["create", "-q", "-f", "qcow2", "-o", "compat=0.10", &old, "8M"]);
    let read = imaged(&play, &[&format!("qcow2:{old}")]).ok();
    assert!(read.stderr.contains("changes of") && read.stderr.contains("cannot be noted"), "{}", read.stderr);
}

/// A running QEMU without a guest: its monitor writes to the disk. A drop ends it.
struct Machine {
    child: std::process::Child,
    monitor: BufReader<UnixStream>,
    /// The content of its disk.
    content: Vec<u8>,
}

impl Machine {
    /// `None` if QEMU is not installed.
    #[expect(clippy::print_stderr, reason = "tells that a test was skipped")]
    fn start(image: &Qcow2<'_>) -> Option<Self> {
        let socket = |name: &str| format!("unix:{},server=on,wait=off", image.play.path(name).display());
        let drive = format!("if=none,id=vda,file={},format=qcow2", image.path);
        let mut command = Command::new("qemu-system-x86_64");
        command.args(["-M", "none", "-nodefaults", "-display", "none", "-drive", &drive]);
        command.args(["-qmp", &socket("qmp"), "-qmp", &socket("monitor")]).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let Ok(child) = command.spawn() else {
            eprintln!("skipped: qemu-system-x86_64 is not installed");
            return None;
        };
        let monitor = loop {
            match UnixStream::connect(image.play.path("monitor")) {
                Ok(monitor) => break BufReader::new(monitor),
                Err(_) => std::thread::sleep(std::time::Duration::from_millis(20)),
            }
        };
        let mut machine = Self { child, monitor, content: vec![0; 64 * MIB] };
        machine.line();
        machine.ask("qmp_capabilities", "{}");
        Some(machine)
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        self.monitor.read_line(&mut line).expect("a line");
        serde_json::from_str(&line).expect("JSON")
    }

    fn ask(&mut self, command: &str, arguments: &str) -> Value {
        let line = format!("{{\"execute\":\"{command}\",\"arguments\":{arguments}}}\n");
        self.monitor.get_mut().write_all(line.as_bytes()).expect("sent");
        loop {
            let line = self.line();
            if line.get("event").is_none() {
                return line["return"].clone();
            }
        }
    }

    fn write(&mut self, kilobyte: usize, kilobytes: usize, pattern: u8) {
        let line = format!("qemu-io vda \\\"write -P {pattern} {kilobyte}k {kilobytes}k\\\"");
        self.ask("human-monitor-command", &format!("{{\"command-line\":\"{line}\"}}"));
        self.content[kilobyte << 10..(kilobyte + kilobytes) << 10].fill(pattern);
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn a_disk_of_a_running_qemu_is_backed_up() {
    if !has_qemu() {
        return;
    }
    let play = Play::with_repository();
    let image = Qcow2::new(&play);
    let Some(mut machine) = Machine::start(&image) else { return };
    let source = format!("qemu:vda@{}", play.path("qmp").display());
    machine.write(1024, 8192, 1);
    let first = summary(&imaged(&play, &[&source]).ok());
    assert!(first.get("map").is_none() && dumped(&play, &first) == machine.content, "{first}");
    machine.write(2000, 64, 2);
    let second = imaged(&play, &[&source]).ok();
    assert!(second.stderr.is_empty(), "{}", second.stderr);
    let second = summary(&second);
    assert!(second["map"] == "used" && dumped(&play, &second) == machine.content, "{second}");
    let read = number(&second, "read_bytes") - number(&second, "map_checked_bytes");
    assert!(read < 2 * MIB, "{second}");
    // A backup that fails leaves the bitmap, and nothing else.
    machine.write(3000, 64, 3);
    let versions = play.repository().join("versions");
    std::fs::rename(&versions, play.path("aside")).expect("moved");
    std::fs::write(&versions, "no folder").expect("written");
    assert_ne!(imaged(&play, &[&source]).code, 0);
    std::fs::remove_file(&versions).and_then(|()| std::fs::rename(play.path("aside"), &versions)).expect("moved");
    // QEMU ends exports and jobs a moment after it was told to.
    for query in ["query-block-jobs", "query-block-exports"] {
        let mut is_empty = || {
            std::thread::sleep(std::time::Duration::from_millis(50));
            machine.ask(query, "{}") == serde_json::json!([])
        };
        assert!((0..600).any(|_| is_empty()), "{query}");
    }
    let third = summary(&imaged(&play, &[&source]).ok());
    assert!(third["map"] == "used" && dumped(&play, &third) == machine.content, "{third}");
    let nowhere = imaged(&play, &[&format!("qemu:vdb@{}", play.path("qmp").display())]);
    assert!(nowhere.code == 1 && nowhere.stderr.contains("it has no disk vdb"), "{}", nowhere.stderr);
    // The machine ends well, and the image at rest has the bitmap.
    machine.ask("quit", "{}");
    machine.child.wait().expect("it ends");
    image.write(4000, 64, 4);
    let rest = summary(&image.backup(&[]).ok());
    assert!(rest["map"] == "used" && dumped(&play, &rest) == image.content(), "{rest}");
    // A machine that is killed has not noted its last changes.
    drop(machine);
    let mut killed = Machine::start(&image).expect("it starts again");
    killed.write(5000, 64, 5);
    drop(killed);
    let after = summary(&image.backup(&[]).ok());
    assert!(after["map"] == "unusable" && dumped(&play, &after) == image.content(), "{after}");
    // A disk of another size is another disk.
    qemu("qemu-img", &["resize", "-q", &image.path, "65M"]);
    let larger = summary(&image.backup(&[]).ok());
    assert!(larger["map"] == "unusable" && dumped(&play, &larger) == image.content(), "{larger}");
    assert!(larger["map_problem"].as_str().expect("a reason").contains("another size"), "{larger}");
    play.larder(["check", "--read-data"]).ok();
}
