//! `serve-block`: snapshots as devices, for the client of this project and for those of others, where they are installed.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use larder_nbd::client::{Address, Client, Options};
use larder_nbd::{BASE_ALLOCATION, Extent};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::block_server::Serving;
use crate::support::server::{Bucket, Trips, refusal};
use crate::support::{Play, Ran, damage, run, tree};

/// An image with stored data, stored zeros and holes.
fn image(play: &Play, name: &str) -> Vec<u8> {
    let mut image = tree::noise(1, 3_000_000);
    image.resize(9_000_000, 0);
    image.extend(tree::noise(2, 1_000_000));
    image.resize(12_000_256, 0);
    play.write(name, &image);
    // Written once more with holes.
    let sparse = play.path(name).with_extension("sparse");
    let status = Command::new("cp").arg("--sparse=always").arg(play.path(name)).arg(&sparse).status();
    assert!(status.expect("cp runs").success());
    std::fs::rename(&sparse, play.path(name)).expect("renamed");
    image
}

fn read(client: &Client, at: u64, length: usize) -> Vec<u8> {
    client.read(at, length as u32).expect("it is whole")
}

fn is_installed(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

/// Leases that no closing mark ends.
fn open_leases(play: &Play) -> usize {
    let jobs = damage::named(&play.repository(), "jobs/");
    let ends = |end: &str| jobs.iter().filter(|name| name.ends_with(end)).count();
    ends("/0") - ends("/done")
}

#[test]
fn a_file_of_a_tree_and_a_stream_are_served_as_they_were() {
    let play = Play::with_repository();
    let image = image(&play, "vm/disk.img");
    play.write("vm/other", "other");
    play.backup(["vm", "--series", "vm"]);
    play.larder_with_stdin(["backup", "--stdin", "--stdin-filename", "/stream", "--series", "stream"], &image).ok();
    let of_tree = format!("latest:{}", play.path("vm/disk.img").display());
    for (args, path) in [
        (vec![of_tree.as_str(), "--series", "vm"], play.path("vm/disk.img")),
        (vec!["latest", "--series", "stream"], PathBuf::from("/stream")),
        (vec!["latest", "/stream", "--prefetch", "0", "--cache-disk", "1MiB"], PathBuf::from("/stream")),
    ] {
        let serving = Serving::of(&play, &args);
        assert_eq!(serving.first["path"], path.to_str().expect("text"));
        assert_eq!(serving.first["size"], image.len());
        assert_eq!((open_leases(&play), &serving.first["lease"]), (1, &Value::Bool(true)));
        let client = serving.client();
        assert!(client.abilities().read_only);
        assert_eq!(client.size(), image.len() as u64);
        for (at, length) in [(0, 512), (2_999_000, 4096), (5_000_000, 1), (8_999_999, 700_000), (12_000_000, 256)] {
            assert!(read(&client, at, length) == image[at as usize..at as usize + length], "{at}");
        }
        let mut whole = Vec::new();
        while whole.len() < image.len() {
            let length = (image.len() - whole.len()).min(1 << 20);
            whole.extend(read(&client, whole.len() as u64, length));
        }
        assert!(whole == image);
        assert!(client.write(0, b"x", false).is_err(), "it is read-only");
        let (socket, folder) = (serving.socket(), serving.socket().parent().expect("a folder").to_owned());
        let (ran, events) = serving.end();
        ran.ok();
        assert_eq!(events.last().expect("an event")["event"], "ended");
        assert!(!socket.exists() && !folder.exists());
        assert_eq!(open_leases(&play), 0);
    }
}

/// Streams are stored without holes. Their zeros are shown as holes all the same.
#[test]
fn stored_zeros_are_holes() {
    let play = Play::with_repository();
    let mut image = tree::noise(1, 2_000_000);
    image.resize(6_000_000, 0);
    image.extend(tree::noise(2, 1_000_100));
    image.resize(9_000_000, 0);
    image.extend(b"the end");
    play.larder_with_stdin(["backup", "--stdin", "--stdin-filename", "/stream"], &image).ok();
    for hydrate in [&[][..], &["--hydrate"]] {
        let mut serving = Serving::of(&play, &[&["latest"], hydrate].concat());
        if !hydrate.is_empty() {
            assert_eq!(serving.event()["event"], "hydrated");
        }
        let client = serving.client();
        let (mut at, mut holes) = (0, 0);
        while at < image.len() {
            let extents = client.block_status(BASE_ALLOCATION, at as u64, (image.len() - at) as u32).expect("a map");
            for extent in extents {
                let part = &image[at..at + extent.length as usize];
                if extent.flags != 0 {
                    assert_eq!(extent.flags, Extent::HOLE | Extent::ZERO);
                    assert!(part.iter().all(|byte| *byte == 0), "{at}: {extent:?}");
                    holes += part.len();
                }
                at += part.len();
            }
        }
        // A chunk at each border has other bytes too.
        assert!(holes > 4_000_000 + 1_999_900 - 4 * (64 << 10), "{holes}");
        assert!(read(&client, 1_990_000, 3_000_000) == image[1_990_000..4_990_000]);
    }
}

/// Programs of others agree, holes included.
#[test]
fn other_clients_read_the_same() {
    let play = Play::with_repository();
    let content = image(&play, "disk.img");
    play.backup(["disk.img", "--series", "vm"]);
    let serving = Serving::of(&play, &["latest"]);
    let client = serving.client();
    let extents = client.block_status(BASE_ALLOCATION, 0, content.len() as u32).expect("it knows holes");
    let (mut at, mut holes) = (0, 0);
    for extent in &extents {
        let end = (at + extent.length).min(content.len() as u64);
        if extent.flags == Extent::HOLE | Extent::ZERO {
            assert!(content[at as usize..end as usize].iter().all(|byte| *byte == 0));
            holes += end - at;
        }
        at = end;
    }
    // A file system may have no holes.
    let allocated = std::os::unix::fs::MetadataExt::blocks(&play.path("disk.img").metadata().expect("there")) * 512;
    assert!(holes + 100_000 >= (content.len() as u64).saturating_sub(allocated), "{holes} of {extents:?}");
    if is_installed("qemu-img") {
        let compared = Command::new("qemu-img")
            .args(["compare", "-f", "raw", "-F", "raw"])
            .arg(play.path("disk.img"))
            .arg(serving.uri())
            .output()
            .expect("it runs");
        assert!(compared.status.success(), "{}", String::from_utf8_lossy(&compared.stdout));
    }
    if is_installed("nbdcopy") {
        let copied = Command::new("nbdcopy").arg(serving.uri()).arg(play.path("copy.img")).output().expect("it runs");
        assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
        assert!(std::fs::read(play.path("copy.img")).expect("there") == content);
    }
    if is_installed("nbdinfo") {
        let shown = Command::new("nbdinfo").arg(serving.uri()).output().expect("it runs");
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        assert!(shown.contains("is_read_only: true") && shown.contains(BASE_ALLOCATION), "{shown}");
    }
    serving.end().0.ok();
}

/// After the copy the repository may go.
#[test]
fn a_hydrated_device_needs_no_repository() {
    let play = Play::with_repository();
    let content = image(&play, "disk.img");
    let id = play.backup(["disk.img", "--series", "vm"]);
    for signal in [Signal::TERM, Signal::INT] {
        let mut serving = Serving::of(&play, &["latest", "--hydrate"]);
        let client = serving.client();
        let event = serving.event();
        assert_eq!(event["event"], "hydrated", "{event}");
        assert_eq!(open_leases(&play), 0, "the lease is closed");
        if signal == Signal::INT {
            play.larder(["forget", &id]).ok();
            play.larder(["optimize"]).ok();
            std::fs::rename(play.repository(), play.path("elsewhere")).expect("renamed");
        }
        let mut whole = Vec::new();
        while whole.len() < content.len() {
            let length = (content.len() - whole.len()).min(300_000);
            whole.extend(read(&client, whole.len() as u64, length));
        }
        assert!(whole == content);
        serving.end_by(signal).0.ok();
    }
}

/// A program may read the first event only.
#[test]
fn a_reader_of_the_output_that_goes_ends_nothing() {
    let play = Play::with_repository();
    let content = tree::noise(1, 3_000_000);
    play.write("disk.img", &content);
    play.backup(["disk.img", "--series", "vm"]);
    for hydrates in [true, false] {
        let args = if hydrates { &["latest", "--hydrate"][..] } else { &["latest"] };
        let mut serving = Serving::of(&play, args);
        let client = serving.client();
        let (unread, _) = std::io::pipe().expect("a pipe");
        let unread = std::process::ChildStdout::from(std::os::fd::OwnedFd::from(unread));
        drop(std::mem::replace(&mut serving.output, BufReader::new(unread)));
        while hydrates && open_leases(&play) > 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
        std::thread::sleep(Duration::from_secs(2));
        assert!(read(&client, 1_000_000, 2_000_000) == content[1_000_000..]);
        serving.end().0.ok();
    }
}

#[test]
fn forgetting_waits_for_the_end() {
    let play = Play::with_repository();
    let content = tree::noise(1, 3_000_000);
    play.write("disk.img", &content);
    let id = play.backup(["disk.img", "--series", "vm"]);
    let serving = Serving::of(&play, &[&id]);
    let client = serving.client();
    play.larder(["forget", &id]).ok();
    play.larder(["optimize"]).ok();
    play.larder(["optimize"]).ok();
    assert!(read(&client, 1_000_000, 2_000_000) == content[1_000_000..]);
    serving.end().0.ok();
    play.larder(["optimize"]).ok();
    assert_eq!(damage::named(&play.repository(), "data/"), Vec::<String>::new());
}

#[test]
fn damage_is_an_error_of_its_ranges_and_ends_with_13() {
    let play = Play::with_repository();
    let content = tree::noise(1, 3_000_000);
    play.write("disk.img", &content);
    play.backup(["disk.img", "--series", "vm"]);
    let data = damage::named(&play.repository(), "data/").remove(0);
    damage::flip(&play.repository(), &data, 1_200_000);
    let serving = Serving::of(&play, &["latest"]);
    let client = serving.client();
    let blocks = (0..content.len()).step_by(4096).map(|at| (at, (content.len() - at).min(4096)));
    let mut refused = 0;
    for (at, length) in blocks {
        match client.read(at as u64, length as u32) {
            Ok(read) => assert!(read == content[at..at + length], "{at}"),
            Err(_) => {
                refused += length;
                assert!((400_000..2_000_000).contains(&at), "{at}");
            }
        }
    }
    assert!((400_000..700_000).contains(&refused), "{refused}: one frame");
    let (ran, _) = serving.end();
    let ran = ran.code(13);
    let errors = ran.errors("error");
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!(errors[0]["item"], data);
}

/// The lease protects the data, so damage is damage, and other reads work.
#[test]
fn damage_of_a_forgotten_snapshot_is_damage_and_the_device_stays() {
    let play = Play::with_repository();
    let content = tree::noise(1, 3_000_000);
    play.write("disk.img", &content);
    let id = play.backup(["disk.img", "--series", "vm"]);
    let serving = Serving::of(&play, &[&id, "--prefetch", "0"]);
    let client = serving.client();
    play.larder(["forget", &id]).ok();
    let data = damage::named(&play.repository(), "data/").remove(0);
    damage::flip(&play.repository(), &data, 1_200_000);
    let reads = || (0..content.len()).step_by(50_000).map(|at| client.read(at as u64, 50_000)).collect::<Vec<_>>();
    assert!(reads().iter().any(Result::is_err));
    // Longer than the command needs to look at the lease.
    std::thread::sleep(Duration::from_secs(3));
    let again = reads();
    for (read, expected) in again.iter().zip(content.chunks(50_000)) {
        assert!(read.as_ref().is_ok_and(|read| read == expected) || read.is_err());
    }
    assert!(again.iter().filter(|read| read.is_ok()).count() > 30, "the device still answers");
    let ran = serving.end().0.code(13);
    assert!(!ran.stderr.contains("forgotten"), "{}", ran.stderr);
}

#[test]
fn a_device_without_a_lease_is_served_with_a_warning() {
    let play = Play::new();
    let folder = play.path("bucket");
    let bucket = Bucket::serve(folder.clone(), |_, _| None);
    bucket.larder(&play, ["init", "--insecure-kdf"]).ok();
    let content = tree::noise(1, 100_000);
    play.write("disk.img", &content);
    bucket.larder(&play, ["backup", "disk.img", "--series", "vm"]).ok();
    let bucket = Bucket::serve(folder, |_, request| (request.method == "PUT").then(|| refusal(403, "AccessDenied")));
    let serving = Serving::start(bucket.command(&play, ["serve-block", "latest", "-q"]));
    assert_eq!(serving.first["lease"], false);
    assert!(read(&serving.client(), 0, content.len()) == content);
    let ran = serving.end().0.ok();
    let warnings = ran.errors("warning");
    let says = |warning: &Value| warning["message"].as_str().is_some_and(|text| text.contains("no lease was created"));
    assert_eq!(warnings.iter().filter(|warning| says(warning)).count(), 1, "{warnings:?}");
}

#[test]
fn what_cannot_be_served_is_refused_with_names() {
    let play = Play::with_repository();
    play.write("src/a", "a");
    play.write("src/b", "b");
    let id = play.backup(["src", "--series", "s"]);
    let refused = |args: &[&str], code| play.larder([&["serve-block"], args].concat()).code(code).in_two_lines();
    refused(&["latest"], 1).says("several files").says("/src/a").says("/src/b");
    refused(&[&format!("latest:{}", play.path("src").display())], 1).says("is a folder").says("/src/a");
    refused(&["latest:/absent"], 1).says("there is no /absent");
    refused(&["nothing"], 1);
    let file = play.path("src/a").display().to_string();
    fn tcp<'a>(file: &'a str, args: &[&'a str]) -> Vec<&'a str> {
        [&["latest", file, "--nbd"], args].concat()
    }
    refused(&tcp(&file, &["127.0.0.1:0"]), 2).says("--tls DIR").says("--insecure-tcp");
    refused(&tcp(&file, &["0.0.0.0:0", "--insecure-tcp"]), 2).says("addresses of this machine");
    refused(&tcp(&file, &["unix:/x", "--insecure-tcp"]), 2).says("need --nbd HOST:PORT");
    refused(&["latest", &file, "--hydrate", "--cache-disk", "0"], 2).says("--cache-disk 0");
    refused(&tcp(&file, &["nowhere"]), 2).says("unix:/PATH or HOST:PORT");
    refused(&tcp(&file, &["127.0.0.1:0", "--tls", "absent"]), 1).says("ca-cert.pem");
    let no_folder = play.path("no/such/folder.sock").display().to_string();
    refused(&tcp(&file, &[&format!("unix:{no_folder}")]), 1).says("cannot listen on /");
    refused(&tcp(&file, &[&format!("unix:{}", play.path("src/a").display())]), 1).says("no socket");
    let mut command = play.command(["serve-block", &id, &file, "--mount-file", "mnt"]);
    run(command.env("PATH", "/nonexistent")).code(1).says("nbdfuse, which is not installed").in_two_lines();
    // Leases of what was refused are closed.
    assert_eq!(open_leases(&play), 0);
}

#[test]
fn a_key_without_the_role_is_refused() {
    let play = Play::with_repository();
    play.write("disk.img", "content");
    play.backup(["disk.img", "--series", "vm"]);
    for (role, code) in [("backup", 12), ("operate", 12)] {
        let key = play.path(format!("{role}.key")).display().to_string();
        play.larder(["key", "add", "--role", role, "--file", &key]).ok();
        let ran = play.larder(["serve-block", "latest", "--key-file", &key]).code(code);
        ran.says("restore").in_two_lines();
    }
}

#[test]
fn an_own_socket_and_tcp_on_this_machine() {
    let play = Play::with_repository();
    let content = tree::noise(1, 100_000);
    play.write("a disk", &content);
    play.backup(["a disk", "--series", "vm"]);
    let socket = play.path("own.sock");
    let serving = Serving::of(&play, &["latest", "--nbd", &format!("unix:{}", socket.display())]);
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&socket).expect("there").permissions());
    assert_eq!(mode & 0o777, 0o600);
    assert!(serving.uri().contains("/a%20disk?socket="), "{}", serving.uri());
    let export = serving.first["export"].as_str().expect("text").to_owned();
    let options = Options { export, ..Options::default() };
    let client = Client::connect(&Address::Unix(&socket), &options).expect("it serves by name");
    assert!(read(&client, 0, content.len()) == content);
    serving.end().0.ok();
    assert!(!socket.exists());
    let serving = Serving::of(&play, &["latest", "--nbd", "127.0.0.1:0", "--insecure-tcp"]);
    let address = serving.uri().strip_prefix("nbd://").expect("TCP").split('/').next().expect("an address").to_owned();
    let client = Client::connect(&Address::Tcp(&address), &Options::default()).expect("it serves");
    assert!(read(&client, 0, content.len()) == content);
    serving.end().0.ok();
}

#[test]
fn people_read_what_to_type() {
    let play = Play::with_repository();
    play.write("disk.img", "content");
    play.backup(["disk.img", "--series", "vm"]);
    let mut child = play.spawn(&mut play.command(["serve-block", "latest"]));
    let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
    let (mut text, mut line) = (String::new(), String::new());
    while !line.contains("Stop it with") {
        line.clear();
        assert!(output.read_line(&mut line).expect("a line") > 0, "{text}");
        text.push_str(&line);
    }
    for expected in
        ["serving /", "nbd+unix:///", "nbd-client -unix ", "qemu-system-x86_64 -drive", "nbdfuse ", "nbdcopy "]
    {
        assert!(text.contains(expected), "{expected:?} is not in:\n{text}");
    }
    kill_process(Pid::from_child(&child), Signal::INT).expect("it runs");
    Ran::from(child.wait_with_output().expect("it ends")).ok();
}

/// With FUSE, the device is a file. Elsewhere there is nothing to test.
#[test]
fn the_device_can_be_a_file() {
    if !is_installed("nbdfuse") || !Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root() {
        return;
    }
    let play = Play::with_repository();
    let content = image(&play, "disk.img");
    play.backup(["disk.img", "--series", "vm"]);
    let folder = play.path("mnt").display().to_string();
    let serving = Serving::of(&play, &["latest", "--mount-file", &folder]);
    let file = serving.first["mounted"].as_str().expect("a path").to_owned();
    assert!(std::fs::read(&file).expect("readable") == content);
    serving.end().0.ok();
    assert!(!Path::new(&file).exists(), "it is unmounted");
}

/// A folder that a dead mount is on cannot be used, not even by root.
#[test]
fn a_mounted_file_in_use_leaves_no_dead_mount() {
    if !is_installed("nbdfuse") || !Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root() {
        return;
    }
    let play = Play::with_repository();
    image(&play, "disk.img");
    play.backup(["disk.img", "--series", "vm"]);
    let folder = play.path("mnt").display().to_string();
    let serving = Serving::of(&play, &["latest", "--mount-file", &folder]);
    let open = std::fs::File::open(serving.first["mounted"].as_str().expect("a path")).expect("readable");
    let ran = serving.end().0.ok();
    assert!(ran.errors("warning").iter().any(|warning| warning["message"].to_string().contains("still in use")));
    drop(open);
    assert_eq!(std::fs::read_dir(&folder).expect("no dead mount").count(), 0);
    // Killed programs do leave one.
    let socket = format!("unix:{}", play.path("own.sock").display());
    let mut serving = Serving::of(&play, &["latest", "--mount-file", &folder, "--nbd", &socket]);
    let taken = play.larder(["serve-block", "latest", "--mount-file", &folder]);
    taken.code(1).says("already has a file nbd").in_two_lines();
    let mounted =
        Command::new("pgrep").arg("-f").arg(format!("^nbdfuse --readonly {folder} ")).output().expect("it runs");
    let nbdfuse: i32 = String::from_utf8_lossy(&mounted.stdout).trim().parse().expect("one process");
    serving.signal(Signal::KILL);
    drop(serving.child.take().expect("it runs").wait());
    kill_process(Pid::from_raw(nbdfuse).expect("a process"), Signal::KILL).expect("it runs");
    while Path::new(&folder).is_dir() {
        std::thread::sleep(Duration::from_millis(20));
    }
    let refused = play.larder(["serve-block", "latest", "--mount-file", &folder]);
    let is_removed = Command::new("umount").arg(&folder).status().expect("umount runs").success();
    refused.code(1).says("has a dead mount on it").in_two_lines();
    assert!(is_removed);
}

#[test]
fn a_mount_that_fails_leaves_nothing() {
    let play = Play::with_repository();
    play.write("disk.img", "content");
    play.backup(["disk.img", "--series", "vm"]);
    let program = play.write("bin/nbdfuse", "#!/bin/sh\nexit 1\n");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, mode).expect("the file is ours");
    std::fs::create_dir(play.path("runtime")).expect("a folder");
    let mut command = play.command(["serve-block", "latest", "--mount-file", "mnt"]);
    let path = std::env::var("PATH").expect("text");
    command.env("PATH", format!("{}:{path}", play.path("bin").display())).env("XDG_RUNTIME_DIR", play.path("runtime"));
    run(&mut command).code(1).says("nbdfuse did not mount").in_two_lines();
    assert_eq!(std::fs::read_dir(play.path("runtime")).expect("a folder").count(), 0);
    assert_eq!(open_leases(&play), 0);
}

/// Whatever is read, memory stays what `--memory` says beside the program itself.
#[test]
fn memory_is_bounded() {
    let play = Play::with_repository();
    let content = tree::noise(1, 96 << 20);
    play.write("disk.img", &content);
    play.backup(["disk.img", "--series", "vm"]);
    let serving = Serving::of(&play, &["latest", "--memory", "16M"]);
    let client = serving.client();
    let child = serving.child.as_ref().expect("it runs").id();
    let peak = || {
        let status = std::fs::read_to_string(format!("/proc/{child}/status")).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a line");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
    };
    let before = peak();
    for at in (0..content.len()).step_by(1 << 20) {
        assert!(read(&client, at as u64, 1 << 20) == content[at..at + (1 << 20)], "{at}");
    }
    let grown = peak() - before;
    assert!(grown < 48 << 20, "{grown} bytes more");
    serving.end().0.ok();
}

/// Round trips from the start of the program to the first sector.
fn trips_to_the_first_sector(play: &Play, latency: Duration, versions: usize, key: Option<&Path>) -> Vec<String> {
    let (bucket, trips): (Bucket, Trips) = Bucket::serve_slowly(play.path("bucket"), latency);
    for version in 0..versions {
        play.write("disk.img", tree::noise(version as u64, 1_500_000));
        bucket.larder(play, ["backup", "disk.img", "--series", "vm"]).ok();
    }
    trips.clear();
    let mut command = bucket.command(play, ["serve-block", "latest", "--no-cache"]);
    if let Some(key) = key {
        command.env_remove("LARDER_PASSWORD").env("LARDER_KEY_FILE", key);
    }
    let serving = Serving::start(command);
    let client = serving.client();
    assert!(read(&client, 0, 512) == tree::noise(versions as u64 - 1, 1_500_000)[..512]);
    let chain = trips.chain();
    serving.end().0.ok();
    chain
}

/// At 30 ms for each, twelve round trips are well below a second.
#[test]
fn the_first_sector_takes_few_round_trips() {
    let play = Play::new();
    let quick = Bucket::serve(play.path("bucket"), |_, _| None);
    quick.larder(&play, ["init", "--insecure-kdf"]).ok();
    let key = play.path("machine.key");
    quick.larder(&play, ["key", "add", "--file", &key.display().to_string()]).ok();
    let latency = Duration::from_millis(100);
    let with_password = trips_to_the_first_sector(&play, latency, 3, None);
    let with_key = trips_to_the_first_sector(&play, latency, 1, Some(&key));
    println!("{} round trips with a password, {} with a key file", with_password.len(), with_key.len());
    assert!(with_password.len() <= 12, "{}: {with_password:#?}", with_password.len());
    assert!(with_key.len() < with_password.len(), "{with_key:#?}");
    // Each is there: a chain that misses some would be shorter.
    assert!(with_key.len() >= 8, "{with_key:#?}");
}
