//! Batches of disk images: what is saved, what is shared, what is named when it fails, and what is refused.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use larder_nbd::{Export, MemoryExport, Server, Single};
use larder_testkit::data;
use serde_json::Value;

use crate::support::{Play, Ran, schema};

pub(crate) const KIB: usize = 1 << 10;

/// Runs a batch; gives the messages about its images, by name, and the summary.
fn fleet(play: &Play, more: &[&str], code: i32) -> (Vec<Value>, Value, Ran) {
    let ran = play.larder([&["fleet", "run", "images.toml", "--json"], more].concat()).code(code);
    let images = ran.messages("fleet_image");
    images.iter().for_each(|image| schema::check("fleet_image", image));
    let summary = ran.messages("fleet_summary").pop().expect("a summary");
    schema::check("fleet_summary", &summary);
    (images, summary, ran)
}

fn number(of: &Value, key: &str) -> usize {
    of[key].as_u64().unwrap_or_else(|| panic!("{key}: {of}")) as usize
}

/// What the snapshot of an image restores to.
pub(crate) fn dumped(play: &Play, image: &Value) -> Vec<u8> {
    let id = image["snapshot_id"].as_str().unwrap_or_else(|| panic!("{image}"));
    let listed = play.larder(["ls", "--json", id]).ok();
    let file = listed.messages("node").into_iter().find(|node| node["type"] == "file").expect("a file");
    play.larder(["dump", id, file["path"].as_str().expect("a path")]).ok().stdout
}

#[test]
fn images_of_an_inventory_become_snapshots_that_share_their_data() {
    let play = Play::with_repository();
    let common = data::random(1, 600 * KIB);
    let disk = |own: u64| [&common[..], &vec![0; 300 * KIB], &data::random(own, 100 * KIB)].concat();
    let mut disks: Vec<_> = (2..6).map(disk).collect();
    for (number, bytes) in disks.iter().enumerate() {
        play.write(format!("images/web-{number}.raw"), bytes);
    }
    play.write("images.toml", "[[image]]\nsource = \"images/web-[0-2].raw\"\n[[image]]\nname = \"db\"\nsource = \"images/web-3.raw\"\nhost = \"other\"\n");
    // Nothing is stored by a dry run.
    let planned = play.larder(["fleet", "run", "images.toml", "--dry-run", "--json"]).ok().messages("fleet_image");
    planned.iter().for_each(|image| schema::check("fleet_image", image));
    assert_eq!(planned.len(), 4);
    play.larder(["snapshots", "--json"])
        .ok()
        .json()
        .as_array()
        .map_or(0, Vec::len)
        .eq(&0)
        .then_some(())
        .expect("no snapshot");
    let (images, summary, ran) = fleet(&play, &[], 0);
    let names: Vec<_> = images.iter().map(|image| image["name"].as_str().expect("a name")).collect();
    assert_eq!(names, ["web-0", "web-1", "web-2", "db"]);
    for (image, bytes) in images.iter().zip(&disks) {
        assert!(dumped(&play, image) == *bytes, "{image}");
        assert_eq!(image["series"], format!("vm/{}", image["name"].as_str().expect("a name")));
    }
    // The common data, their own, and some zeros, once.
    assert!(number(&summary, "data_added") < 1100 * KIB, "{summary}");
    assert!(ran.messages("pass_summary").len() <= 1);
    // The second day: one disk changes, and another one like the first comes.
    let changed = data::random(9, 5 * KIB);
    disks[1][200 * KIB..205 * KIB].copy_from_slice(&changed);
    let file = OpenOptions::new().write(true).open(play.path("images/web-1.raw")).expect("opens");
    file.write_all_at(&changed, 200 * KIB as u64).expect("written");
    disks.push([&disks[0][..], b"a little more"].concat());
    play.write("images/new.raw", &disks[4]);
    play.write("images.toml", "[[image]]\nsource = \"images/*.raw\"\n");
    let (images, summary, _) = fleet(&play, &["--no-pass"], 0);
    assert_eq!(images.len(), 5);
    for image in &images {
        let expected = match image["name"].as_str().expect("a name") {
            "new" => &disks[4],
            name => &disks[name[4..].parse::<usize>().expect("a number")],
        };
        assert!(dumped(&play, image) == *expected, "{image}");
    }
    assert!(number(&summary, "data_added") < 150 * KIB, "{summary}");
    play.larder(["check", "--read-data"]).ok();
    // They are ordinary snapshots: any may be forgotten, and a plain backup continues the series.
    let said = play.larder(["fleet", "status", "--json"]).ok().json();
    said.as_array().expect("batches").iter().for_each(|batch| schema::check("fleet_status", batch));
    assert_eq!(said.as_array().map(Vec::len), Some(1), "the first batch was cleaned up");
    let cleaned = play.larder(["fleet", "clean", "--json"]).ok().messages("fleet_cleaned").pop().expect("cleaned");
    schema::check("fleet_cleaned", &cleaned);
    assert_eq!(number(&cleaned, "batches"), 1);
    play.larder(["forget", "--keep-last", "1", "--prune"]).ok();
    let plain = play.larder(["backup", "--json", "--series", "vm/web-1", "--image", "images/web-1.raw"]).ok();
    let plain = plain.messages("summary").pop().expect("a summary");
    assert_eq!(number(&plain, "data_blobs"), 0, "{plain}");
    for image in &images[1..] {
        assert!(!dumped(&play, image).is_empty());
    }
    play.larder(["check", "--read-data"]).ok();
}

#[test]
fn a_map_says_what_changed_and_a_wrong_one_is_found() {
    let play = Play::with_repository();
    let mut bytes = data::random(1, 3 << 20);
    play.write("disk.raw", &bytes);
    play.write(
        "images.toml",
        "[[image]]\nname = \"d\"\nsource = \"disk.raw\"\nmap = \"{name}.map\"\nsince = \"latest\"\n",
    );
    play.write("d.map", "0 0\n");
    play.write("first.toml", "[[image]]\nname = \"d\"\nsource = \"disk.raw\"\n");
    play.larder(["fleet", "run", "first.toml", "--no-pass"]).ok();
    bytes[1 << 20..(1 << 20) + 100].fill(7);
    File::options()
        .write(true)
        .open(play.path("disk.raw"))
        .and_then(|file| file.write_all_at(&[7; 100], 1 << 20))
        .expect("written");
    play.write("d.map", format!("{} 100\n", 1 << 20));
    let (images, _, _) = fleet(&play, &["--no-pass"], 0);
    assert_eq!(images[0]["map"], "used");
    assert!(dumped(&play, &images[0]) == bytes);
    assert!(number(&images[0], "data_blobs") < 8, "{}", images[0]);
    // The same as `thin_delta` says it of two snapshots of a thin volume, in blocks of 64 KiB.
    let xml = "<superblock uuid=\"\" time=\"1\" transaction=\"2\" data_block_size=\"128\" nr_data_blocks=\"48\">\n\
               <diff left=\"1\" right=\"2\">\n<same begin=\"0\" length=\"24\"/>\n<different begin=\"24\" length=\"1\"/>\n</diff>\n\
               </superblock>\n";
    bytes[(3 << 19)..(3 << 19) + 100].fill(9);
    play.write("disk.raw", &bytes);
    play.write("d.map", xml);
    let (images, _, _) = fleet(&play, &["--no-pass"], 0);
    assert_eq!(images[0]["map"], "used");
    assert!(dumped(&play, &images[0]) == bytes);
    // The map leaves a change out: everything is read in the same run.
    bytes[2 << 20..(2 << 20) + 100].fill(8);
    File::options()
        .write(true)
        .open(play.path("disk.raw"))
        .and_then(|file| file.write_all_at(&[8; 100], 2 << 20))
        .expect("written");
    play.write("d.map", "0 1\n");
    let (images, _, ran) = fleet(&play, &["--no-pass"], 3);
    assert_eq!(images[0]["map"], "wrong");
    assert!(ran.stderr.contains("the map of changes is wrong"), "{}", ran.stderr);
    assert!(dumped(&play, &images[0]) == bytes);
}

#[test]
fn images_that_fail_are_named_and_the_others_are_saved() {
    let play = Play::with_repository();
    play.write("a.raw", data::random(1, 200 * KIB));
    play.write("c.qcow", b"QFI\xfb and more");
    play.write(
        "images.toml",
        "[[image]]\nsource = \"a.raw\"\n[[image]]\nsource = \"gone.raw\"\n[[image]]\nsource = \"c.qcow\"\n",
    );
    let (images, summary, ran) = fleet(&play, &["--no-pass"], 3);
    assert!(images[0].get("snapshot_id").is_some());
    assert_eq!((&images[1]["stage"], &images[2]["stage"]), (&"scan".into(), &"scan".into()));
    assert_eq!((number(&summary, "images_saved"), number(&summary, "images_failed")), (1, 2));
    for (name, why) in [("gone", "gone.raw"), ("c.qcow", "qcow2:")] {
        let line = ran.stderr.lines().find(|line| line.contains(&format!("image {name} of host"))).expect("named");
        assert!(line.contains("stage scan") && line.contains(why), "{line}");
    }
    let stages = play.larder(["fleet", "status"]).ok().text();
    assert!(stages.contains("scan: 1 done, 2 failed") && stages.contains("finish: 1 done"), "{stages}");
}

#[test]
fn inventories_and_series_without_a_meaning_are_refused() {
    let play = Play::with_repository();
    play.write("a.raw", data::random(1, 10 * KIB));
    let refused = |text: &str, code: i32, why: &str| {
        play.write("images.toml", text);
        play.larder(["fleet", "run", "images.toml"]).code(code).says(why);
    };
    refused("", 2, "names no image");
    refused("[[image]]\nsource = \"a.raw\"\n[[image]]\nsource = \"a.raw\"\n", 2, "two images have");
    refused("[[image]]\nsource = \"*.img\"\n", 2, "matches no file");
    refused("[[image]]\nsource = \"a.raw\"\nseries = \"larder:fleet\"\n", 2, "belong to the program");
    refused("[[image]]\nsource = \"qemu:disk\"\n", 2, "image");
    play.larder(["fleet", "run", "absent.toml"]).code(2).says("cannot read absent.toml");
    play.larder(["series", "set", "vm/l", "--layout", "lifecycle"]).ok();
    refused("[[image]]\nsource = \"a.raw\"\nseries = \"vm/l\"\n", 1, "lifecycle");
    play.larder(["backup", "a.raw", "--series", "larder:fleet"]).code(2).says("belong to the program");
    play.larder(["fleet", "status", "abc"]).code(1).says("no batch");
    assert!(play.larder(["fleet", "status"]).ok().text().contains("no batch"));
}

/// A key for backups opens no index and makes no pass. It saves all the same.
#[test]
fn a_key_for_backups_suffices() {
    let play = Play::with_repository();
    play.larder(["key", "add", "--role", "backup", "--domain", "host", "--file", "host.key"]).ok();
    let bytes = data::random(1, 200 * KIB);
    play.write("a.raw", &bytes);
    play.write("b.raw", &bytes);
    play.write("images.toml", "[[image]]\nsource = \"?.raw\"\n");
    let ran = play.larder(["--key-file", "host.key", "fleet", "run", "images.toml", "--json"]).code(0);
    let summary = ran.messages("fleet_summary").pop().expect("a summary");
    assert_eq!(summary["index_asked"], false);
    assert!(number(&summary, "data_added") < 210 * KIB, "{summary}");
    for image in ran.messages("fleet_image") {
        assert!(dumped(&play, &image) == bytes);
    }
}

/// From files before the first snapshot, from snapshots behind it, and with other facts.
#[test]
fn a_batch_is_planned_without_reading_its_images() {
    let play = Play::with_repository();
    for number in 0..3 {
        play.write(format!("images/web-{number}.raw"), data::random(number, 500 * KIB));
    }
    play.write("images.toml", "[[image]]\nsource = \"images/*.raw\"\n");
    let planned = |more: &[&str]| {
        let plan = play.larder([&["fleet", "plan", "images.toml", "--json"], more].concat()).ok().json();
        schema::check("fleet_plan", &plan);
        plan
    };
    let first = planned(&[]);
    assert_eq!((number(&first, "images"), number(&first, "hosts"), number(&first, "bytes")), (3, 1, 3 * 500 * KIB));
    assert_eq!((first["rounds"].as_array().map(Vec::len), first["fits"].as_bool()), (Some(1), Some(true)));
    fleet(&play, &[], 0);
    let second = planned(&["--what-if", "hosts=3", "--what-if", "changed=10", "--what-if", "writes=1MB"]);
    assert_eq!((number(&second, "hosts"), number(&second, "bytes")), (3, 3 * 500 * KIB));
    assert!(number(&second, "overwritten_bytes") > 0 && number(&second, "new_bytes") < number(&first, "new_bytes"));
    // Limits that nothing keeps are said.
    let late = play.larder(["fleet", "plan", "images.toml", "--time-limit", "1s", "--what-if", "request=30"]).ok();
    late.says("the limits cannot be kept");
    let shown = play.larder(["fleet", "plan", "images.toml"]).ok().text();
    assert!(shown.contains("3 images") && shown.contains("web-0 web-1 web-2"), "{shown}");
    play.larder(["fleet", "plan", "images.toml", "--what-if", "speed=3"]).code(2).says("speed=3");
    play.write("images.toml", "[[image]]\nsource = \"nbd://localhost/disk\"\n");
    play.larder(["fleet", "plan", "images.toml"]).code(2).says("no snapshot");
    play.larder(["fleet", "plan", "images.toml", "--what-if", "size=1G"]).ok();
}

/// The batch follows the plan: first backups are in rounds of their own, and share all the same.
#[test]
fn a_batch_follows_the_rounds_of_its_plan() {
    let play = Play::with_repository();
    let common = data::random(1, 400 * KIB);
    let disk = |own: u64| [&common[..], &data::random(own, 80 * KIB)].concat();
    for number in 0..4 {
        play.write(format!("web-{number}.raw"), disk(number + 2));
    }
    play.write("first.toml", "[[image]]\nsource = \"web-3.raw\"\n");
    play.larder(["fleet", "run", "first.toml", "--no-pass"]).ok();
    play.write("images.toml", "[[image]]\nsource = \"web-*.raw\"\n");
    let shown = play.larder(["fleet", "run", "images.toml", "--rounds", "2", "--dry-run"]).ok().text();
    let of = |name: &str| shown.lines().find(|line| line.starts_with(name)).expect("it is listed").to_owned();
    assert!((0..3).all(|number| of(&format!("web-{number}")).contains(": round 1, ")), "{shown}");
    assert!(of("web-3").contains(": round 2, "), "{shown}");
    let (images, summary, _) = fleet(&play, &["--no-pass", "--rounds", "3"], 0);
    for (number, image) in images.iter().enumerate() {
        assert!(dumped(&play, image) == disk(number as u64 + 2), "{image}");
    }
    // Nothing knows the first snapshot of web-3, as no pass was made. Without its base, the others store the common part once.
    assert!(number(&summary, "data_added") < 800 * KIB, "{summary}");
    let said = play.larder(["fleet", "status", "--json"]).ok().json();
    let batch = said.as_array().expect("batches").iter().find(|batch| batch["rounds"] == 3).expect("the batch");
    schema::check("fleet_status", batch);
    let finished = |round: u64| {
        let stages = batch["stages"].as_array().expect("stages").iter();
        stages
            .filter(|stage| stage["stage"] == "finish" && stage["round"] == round)
            .map(|stage| number(stage, "done"))
            .sum::<usize>()
    };
    assert_eq!((1..=3).map(finished).sum::<usize>(), 4);
    assert!((1..=3).all(|round| finished(round) > 0), "{batch}");
    let shown = play.larder(["fleet", "status"]).ok().text();
    assert!(shown.contains("finish of round 3 of 3: "), "{shown}");
    play.larder(["fleet", "run", "images.toml", "--rounds", "2", "--time-limit", "3h"]).code(2).says("--time-limit");
    play.larder(["fleet", "run", "images.toml", "--rounds", "0"]).code(2).says("--rounds");
    // A limit that nobody can keep is said, and the batch is made.
    let late = ["fleet", "run", "images.toml", "--no-pass", "--time-limit", "1s", "--what-if", "request=30"];
    play.larder(late).ok().says("the limits of the plan cannot be kept");
    play.larder(["check", "--read-data"]).ok();
}

/// Two workers of two hosts, the process that plans, and nothing but a folder between them.
#[test]
fn workers_of_several_hosts_finish_a_batch() {
    let play = Play::with_repository();
    let common = data::random(1, 500 * KIB);
    let disk = |own: u64| [&common[..], &data::random(own, 80 * KIB)].concat();
    let disks: Vec<_> = (2..6).map(disk).collect();
    for (number, bytes) in disks.iter().enumerate() {
        play.write(format!("images/web-{number}.raw"), bytes);
    }
    play.write(
        "images.toml",
        "[[image]]\nsource = \"images/web-[01].raw\"\nhost = \"a\"\n[[image]]\nsource = \"images/web-2.raw\"\nhost = \"b\"\n\
         [[image]]\nsource = \"images/web-3.raw\"\nshared = true\n",
    );
    let workers: Vec<_> = ["a", "b"]
        .map(|host| {
            let line = ["fleet", "work", "images.toml", "--once", "--json", "--host", host];
            play.command(line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
        })
        .into();
    let (images, summary, _) = fleet(&play, &["--queue", "store", "--no-pass"], 0);
    for worker in workers {
        let ran = Ran::from(worker.wait_with_output().expect("it ends")).code(0);
        ran.messages("fleet_work").iter().for_each(|work| schema::check("fleet_work", work));
    }
    assert_eq!(images.len(), 4);
    for (image, bytes) in images.iter().zip(&disks) {
        assert!(dumped(&play, image) == *bytes, "{image}");
    }
    assert!(number(&summary, "data_added") < 1100 * KIB, "{summary}");
    let said = play.larder(["fleet", "status", "--json"]).ok().json();
    said.as_array().expect("batches").iter().for_each(|batch| schema::check("fleet_status", batch));
    let workers = said[0]["workers"].as_array().expect("workers");
    assert!(workers.len() == 3 && said[0]["due"].is_null(), "{said}");
    play.larder(["check", "--read-data"]).ok();
    // Nobody reads the images of this batch.
    let waits = ["fleet", "run", "images.toml", "--queue", "store", "--no-pass", "--json"];
    let waits = play.command(waits).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let batch = loop {
        let said = play.larder(["fleet", "status", "--json"]).ok().json();
        let open = said.as_array().expect("batches").iter().find(|batch| batch["open"] == true);
        match open {
            Some(batch) => break batch["batch"].as_str().expect("an id").to_owned(),
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    let shown = play.larder(["fleet", "status", &batch]).ok().text();
    assert!(shown.contains("waits for host "), "{shown}");
    let aborted =
        play.larder(["fleet", "abort", &batch, "--json"]).ok().messages("fleet_aborted").pop().expect("it ends");
    schema::check("fleet_aborted", &aborted);
    let ran = Ran::from(waits.wait_with_output().expect("it ends"));
    assert_ne!(ran.code, 0, "{}", ran.stderr);
    let images = ran.messages("fleet_image");
    assert!(images.iter().take(3).all(|image| image["error"] == "the batch was aborted"), "{images:?}");
    play.larder(["fleet", "retry", "abc"]).code(1).says("no batch");
}

/// Objects below a folder of which some may be deleted while it is read.
fn objects_below(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => objects_below(&entry.path(), found),
            _ => found.push(entry.path()),
        }
    }
}

/// Waits until objects of a batch have this in their names.
pub(crate) fn until(play: &Play, text: &str) {
    let folder = play.path("repository/fleet");
    let mut found = Vec::new();
    // On a busy machine, processes need seconds to begin.
    for _ in 0..12_000 {
        found.clear();
        objects_below(&folder, &mut found);
        if found.iter().any(|path| path.to_string_lossy().contains(text)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("no {text}: {found:?}");
}

pub(crate) fn signal(worker: &Child, signal: &str) {
    assert!(Command::new("kill").args([signal, &worker.id().to_string()]).status().expect("kill runs").success());
}

/// One worker is killed, another one stands still beyond its time. Each image is saved by another worker, or it is named and the next
/// batch saves it: that depends on the moment. What the stopped one does later changes nothing.
#[test]
fn workers_are_killed_and_stopped() {
    let play = Play::with_repository();
    let disks: Vec<_> = (0..2).map(|own| data::random(own + 2, 400 * KIB)).collect();
    play.write("a.raw", &disks[0]);
    play.write("b.raw", &disks[1]);
    play.write(
        "images.toml",
        "[[image]]\nsource = \"a.raw\"\nhost = \"a\"\n[[image]]\nsource = \"b.raw\"\nhost = \"b\"\n",
    );
    let start = |line: &[&str]| {
        let mut command = play.command(line);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
    };
    let work = |host: &str| start(&["fleet", "work", "images.toml", "--once", "--host", host]);
    let patience = ["--claim-timeout", "2s", "--task-timeout", "6s", "--json", "--no-pass"];
    let planner = start(&[&["fleet", "run", "images.toml", "--queue", "store"][..], &patience].concat());
    let mut killed = work("a");
    until(&play, "/claim/send/0/0/0");
    signal(&killed, "-KILL");
    killed.wait().expect("it ends");
    let replaced = work("a");
    let stopped = work("b");
    until(&play, "/claim/send/0/1/0");
    signal(&stopped, "-STOP");
    let ran = Ran::from(planner.wait_with_output().expect("it ends"));
    signal(&stopped, "-CONT");
    stopped.wait_with_output().expect("it ends");
    replaced.wait_with_output().expect("it ends");
    let images = ran.messages("fleet_image");
    let mut saved = 0;
    for (image, disk) in images.iter().zip(&disks) {
        match image["error"].as_str() {
            None => {
                assert!(dumped(&play, image) == *disk);
                saved += 1;
            }
            Some(why) => assert!(why.contains("no sign of life for") && why.contains("host "), "{why}"),
        }
    }
    let snapshots = || play.larder(["snapshots", "--json"]).ok().json().as_array().map_or(0, Vec::len);
    assert_eq!(snapshots(), saved, "{}", ran.stderr);
    if saved < 2 {
        let batch = ran.messages("fleet_summary")[0]["batch"].as_str().expect("an id").to_owned();
        let again = [work("a"), work("b")];
        let retried = play.larder([&["fleet", "retry", &batch][..], &patience].concat()).code(0);
        for worker in again {
            worker.wait_with_output().expect("it ends");
        }
        for image in retried.messages("fleet_image").iter().filter(|image| image.get("error").is_none()) {
            let number = usize::from(image["name"] == "b");
            assert!(dumped(&play, image) == disks[number]);
        }
    }
    assert_eq!(snapshots(), 2);
    play.larder(["check", "--read-data"]).ok();
}

/// A raw file, a qcow2 image with its bitmap, a network block device and a map file, on two days. Whatever is listed restores.
#[test]
fn images_of_all_kinds_are_in_one_batch() {
    let play = Play::with_repository();
    let common = data::random(1, 400 * KIB);
    let disk = |own: u64| [&common[..], &data::random(own, 624 * KIB)].concat();
    play.write("raw.raw", disk(2));
    let device = Arc::new(MemoryExport::new(1 << 20));
    device.write(0, &disk(3), false).expect("written");
    let server = Server::new(Arc::new(Single::new("disk", device)), Default::default());
    let socket = play.path("nbd.sock");
    server.listen_unix(&socket).expect("it listens");
    let mut inventory = format!(
        "[[image]]\nname = \"nbd\"\nsource = \"nbd+unix:///disk?socket={}\"\n[[image]]\nname = \"raw\"\nsource = \"raw.raw\"\n",
        socket.display()
    );
    let has_qemu = Command::new("qemu-img").arg("--version").output().is_ok_and(|ran| ran.status.success());
    if has_qemu {
        play.write("q.raw", disk(4));
        let line = ["convert", "-f", "raw", "-O", "qcow2", "q.raw", "q.qcow2"];
        assert!(Command::new("qemu-img").args(line).current_dir(play.path(".")).status().expect("runs").success());
        inventory += "[[image]]\nname = \"q\"\nsource = \"qcow2:q.qcow2\"\n";
    }
    play.write("images.toml", &inventory);
    for day in 0..2 {
        let (images, _, _) = fleet(&play, &["--no-pass"], 0);
        for (image, own) in images.iter().zip([3, 2, 4]) {
            assert!(dumped(&play, image) == disk(own), "day {day}: {image}");
            assert!(day == 0 || number(image, "data_blobs") == 0, "{image}");
        }
        if has_qemu && day == 1 {
            assert_eq!(images[2]["map"], "used", "its bitmap");
        }
    }
    server.shutdown().expect("it ends");
    // A server that is gone is one image that fails.
    let (images, _, ran) = fleet(&play, &["--no-pass"], 3);
    assert!(images[0]["error"].is_string() && ran.stderr.contains("image nbd of host"), "{}", ran.stderr);
    play.larder(["check", "--read-data"]).ok();
}

/// Ctrl-C ends a batch with 130. It is over then: what it left for its tasks can be removed, and the next one works at once.
#[test]
fn a_batch_that_is_interrupted_is_over() {
    let play = Play::with_repository();
    let bytes = data::random(1, 8 << 20);
    play.write("a.raw", &bytes);
    play.write("images.toml", "[[image]]\nsource = \"a.raw\"\n");
    let slow = ["--limit-upload", "256KiB", "fleet", "run", "images.toml", "--no-pass", "--json"];
    let mut command = play.command(slow);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    until(&play, "/done/join/0/0");
    signal(&child, "-INT");
    let ran = Ran::from(child.wait_with_output().expect("it ends")).code(130);
    assert!(ran.messages("fleet_image")[0]["error"].is_string(), "{}", ran.text());
    let cleaned = play.larder(["fleet", "clean", "--json"]).ok().messages("fleet_cleaned").pop().expect("cleaned");
    assert_eq!((number(&cleaned, "batches"), number(&cleaned, "open_batches")), (1, 0));
    let (images, _, _) = fleet(&play, &["--no-pass"], 0);
    assert!(dumped(&play, &images[0]) == bytes);
}

/// The process of a retry has no images: workers read them, also those of its own machine and those that are shared. A map that was
/// wrong in the batch before gives the exit code 3 all the same.
#[test]
fn a_retry_leaves_shared_images_and_those_of_its_own_machine_to_workers() {
    let play = Play::with_repository();
    let mut disks = [1, 2, 3].map(|own| data::random(own, 300 * KIB));
    let first = "[[image]]\nsource = \"d.raw\"\n";
    play.write("d.raw", &disks[0]);
    play.write("first.toml", first);
    play.larder(["fleet", "run", "first.toml", "--no-pass"]).ok();
    disks[0][100 * KIB..100 * KIB + 100].fill(7);
    play.write("d.raw", &disks[0]);
    play.write("d.map", "0 1\n");
    let others = "[[image]]\nsource = \"own.raw\"\n[[image]]\nsource = \"all.raw\"\nshared = true\n";
    play.write("images.toml", format!("{first}map = \"d.map\"\nsince = \"latest\"\n{others}"));
    let patience = ["--claim-timeout", "2s", "--task-timeout", "1s"];
    let line = ["fleet", "run", "images.toml", "--queue", "store"];
    play.larder([&line[..], &patience].concat()).code(2).says("--task-timeout");
    let (images, summary, _) = fleet(&play, &["--queue", "store"], 3);
    assert!(images[0]["map"] == "wrong" && images[1]["stage"] == "scan" && images[2]["stage"] == "scan", "{images:?}");
    play.write("own.raw", &disks[1]);
    play.write("all.raw", &disks[2]);
    let batch = summary["batch"].as_str().expect("an id").to_owned();
    let mut worker = play.command(["fleet", "work", "images.toml", "--once"]);
    let worker = worker.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let ran = play.larder(["fleet", "retry", &batch, "--no-pass", "--json"]);
    let worked = Ran::from(worker.wait_with_output().expect("it ends"));
    let images = ran.messages("fleet_image");
    let saved = images.iter().rev().take(2).rev().zip(&disks[1..]);
    saved.for_each(|(image, disk)| assert!(dumped(&play, image) == *disk, "{image}"));
    worked.code(0);
    ran.code(3);
}

/// Ctrl-C ends the process that planned. Workers go on, so no image is named as lost, and `fleet retry` reports.
#[test]
fn a_planner_that_is_interrupted_names_nothing_as_lost() {
    let play = Play::with_repository();
    let disks = [1, 2].map(|own| data::random(own, 200 * KIB));
    let mut inventory = String::new();
    for (host, disk) in ["a", "b"].into_iter().zip(&disks) {
        play.write(format!("{host}.raw"), disk);
        inventory += &format!("[[image]]\nsource = \"{host}.raw\"\nhost = \"{host}\"\n");
    }
    play.write("images.toml", inventory);
    let start = |line: &[&str]| {
        let mut command = play.command(line);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
    };
    let work = |host: &str| start(&["fleet", "work", "images.toml", "--once", "--host", host]);
    let planner = start(&["fleet", "run", "images.toml", "--queue", "store", "--no-pass", "--json"]);
    let one = work("a");
    until(&play, "/done/send/0/0");
    signal(&planner, "-INT");
    let ran = Ran::from(planner.wait_with_output().expect("it ends")).code(130);
    let images = ran.messages("fleet_image");
    images.iter().for_each(|image| schema::check("fleet_image", image));
    assert!(images.len() == 2 && images.iter().all(|image| image["undecided"] == true), "{images:?}");
    assert!(
        images.iter().all(|image| image.get("error").is_none()) && !ran.stderr.contains("not saved"),
        "{}",
        ran.stderr
    );
    let summary = ran.messages("fleet_summary").pop().expect("a summary");
    schema::check("fleet_summary", &summary);
    assert_eq!((number(&summary, "images_failed"), number(&summary, "images_undecided")), (0, 2));
    let batch = summary["batch"].as_str().expect("an id").to_owned();
    // A pass leaves it alone, because its workers go on.
    play.larder(["optimize"]).ok();
    for worker in [work("b"), one] {
        Ran::from(worker.wait_with_output().expect("it ends")).code(0);
    }
    let ran = play.larder(["fleet", "retry", &batch, "--no-pass", "--json"]).ok();
    for (image, disk) in ran.messages("fleet_image").iter().zip(&disks) {
        assert!(dumped(&play, image) == *disk, "{image}");
    }
}

/// A batch that is damaged has a line of its own, and the others are shown.
#[test]
fn a_batch_that_cannot_be_read_leaves_the_others_in_the_list() {
    let play = Play::with_repository();
    play.write("a.raw", data::random(1, 20 * KIB));
    play.write("images.toml", "[[image]]\nsource = \"a.raw\"\n");
    let batches = [(); 3].map(|()| fleet(&play, &["--no-pass"], 0).1["batch"].as_str().expect("an id").to_owned());
    let object = |batch: &str, name: &str| play.path(format!("repository/fleet/{batch}/{name}"));
    std::fs::write(object(&batches[0], "plan"), b"no plan").expect("written");
    std::fs::write(object(&batches[1], "done/finish/0/0"), b"no register").expect("written");
    let shown = play.larder(["fleet", "status"]).ok().text();
    assert!(shown.contains(&format!("batch {} cannot be read", batches[0])), "{shown}");
    assert!(batches[1..].iter().all(|batch| shown.contains(&format!("batch {batch}, "))), "{shown}");
    assert!(shown.contains("the register of task finish/0/0 cannot be read"), "{shown}");
    let said = play.larder(["fleet", "status", "--json"]).ok().json();
    let said = said.as_array().expect("batches");
    let kinds: Vec<_> = said.iter().map(|batch| batch["message_type"].as_str().expect("a kind")).collect();
    assert_eq!(kinds, ["fleet_status", "fleet_status", "fleet_unreadable"]);
    said.iter().zip(kinds).for_each(|(batch, kind)| schema::check(kind, batch));
    play.larder(["fleet", "status", &batches[0]]).code(13);
}
