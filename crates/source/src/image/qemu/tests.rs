//! With a real QEMU, where one is installed. No guest runs in it: its monitor writes to the disk.

use std::process::{Child, Command, Stdio};

use larder_format::ids::JobId;
use serde_json::json;
use tempfile::TempDir;

use super::super::stops::Stops;
use super::super::tool::run;
use super::super::tracked::Names;
use super::session::LOOK;
use super::*;

const MIB: usize = 1 << 20;
const SIZE: usize = 16 * MIB;

/// A machine whose processor does not run. A drop ends it.
struct Machine {
    child: Child,
    folder: TempDir,
    monitor: Qmp,
    /// The content of its disk.
    content: Vec<u8>,
}

/// What uses the disk of a machine.
#[derive(Clone, Copy, PartialEq, Eq)]
enum User {
    /// A device, so that a filter can be between them.
    Device,
    Nobody,
}

impl Machine {
    /// `None` if QEMU is not installed. The files that it writes have at most `most` bytes.
    fn start(format: &str, user: User, most: usize) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).display().to_string();
        let image = path("image");
        if run("qemu-img", ["create", "-q", "-f", format, &image, &SIZE.to_string()]).is_err() {
            eprintln!("skipped: qemu-img is not installed");
            return None;
        }
        let socket = |name: &str| format!("unix:{},server=on,wait=off", path(name));
        let drive = format!("if=none,id=vda,file={image},format={format}");
        let script = "trap '' XFSZ; ulimit -f $1; shift; exec qemu-system-x86_64 \"$@\"";
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh", &(most / 512).to_string(), "-nodefaults", "-display", "none", "-S"]);
        command.args(["-drive", &drive, "-qmp", &socket("qmp"), "-qmp", &socket("monitor")]);
        match user {
            User::Device => command
                .args(["-M", "pc", "-accel", "tcg", "-m", "16", "-vga", "none", "-device"])
                .arg("virtio-blk-pci,romfile=,drive=vda,id=disk0"),
            User::Nobody => command.args(["-M", "none"]),
        };
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if Command::new("qemu-system-x86_64").arg("--version").stdout(Stdio::null()).status().is_err() {
            eprintln!("skipped: qemu-system-x86_64 is not installed");
            return None;
        }
        let mut child = command.spawn().expect("a shell");
        let monitor = loop {
            assert!(child.try_wait().expect("it can be waited for").is_none(), "QEMU ended");
            if let Ok(monitor) = Qmp::connect(&folder.path().join("monitor"), &Stops::default()) {
                break monitor;
            }
            std::thread::sleep(LOOK);
        };
        Some(Self { child, folder, monitor, content: vec![0; SIZE] })
    }

    /// The guest writes a block of 64 KiB.
    fn write(&mut self, block: usize, pattern: u8) {
        let line = format!("qemu-io vda \"write -P {pattern} {}k 64k\"", block * 64);
        let said = self.monitor.ask("human-monitor-command", json!({"command-line": line})).expect("written");
        assert_eq!(said, "", "{said}");
        self.content[block << 16..(block + 1) << 16].fill(pattern);
    }

    fn open(&self, job: u8) -> Result<Tracked, ImageError> {
        self.open_in("scratch", job)
    }

    /// With a scratch folder that has this parent.
    fn open_in(&self, parent: &str, job: u8) -> Result<Tracked, ImageError> {
        let folder = self.folder.path().join(parent).join(names(job).folder());
        std::fs::create_dir_all(&folder).expect("created");
        self.open_disk("vda", &folder, job)
    }

    fn open_disk(&self, disk: &str, folder: &Path, job: u8) -> Result<Tracked, ImageError> {
        let opening = Opening { names: names(job), folder, keeps: true, stops: &Stops::default() };
        open(&self.folder.path().join("qmp"), disk, opening)
    }

    /// Jobs of the bitmaps, and the number of other things that backups have in QEMU.
    fn left(&mut self) -> (Vec<JobId>, usize) {
        let nodes = self.monitor.ask("query-named-block-nodes", json!({"flat": true})).expect("nodes");
        let mut bitmaps: Vec<String> = Vec::new();
        let (mut jobs, mut others) = (Vec::new(), 0);
        for node in nodes.as_array().expect("a list") {
            let listed = node["dirty-bitmaps"].as_array().cloned().unwrap_or_default();
            bitmaps.extend(listed.iter().filter_map(|bitmap| bitmap["name"].as_str().map(str::to_owned)));
            others += usize::from(node["node-name"].as_str().is_some_and(|name| name.starts_with("larder")));
        }
        for bitmap in bitmaps {
            match names(0).version(&bitmap) {
                Some(job) => jobs.push(job),
                None => others += 1,
            }
        }
        for command in ["query-block-jobs", "query-block-exports"] {
            others += self.monitor.ask(command, json!({})).expect("a list").as_array().map_or(0, Vec::len);
        }
        jobs.sort_unstable();
        jobs.dedup();
        (jobs, others)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn job(number: u8) -> JobId {
    JobId::new(u64::from(number), [number; 10])
}

fn names(number: u8) -> Names {
    Names::new("0123456789ab", job(number))
}

fn all_of(image: &dyn Image) -> Vec<u8> {
    let mut bytes = vec![1; image.size() as usize];
    image.read_at(0, &mut bytes).expect("reads");
    bytes
}

/// The blocks of 64 KiB that changed since a version.
fn changed(tracked: &Tracked, since: u8) -> Vec<u64> {
    let found = tracked.changes.iter().find(|changes| changes.since == job(since)).expect("a map");
    assert_eq!(found.size, SIZE as u64);
    found.ranges.iter().flat_map(|range| range.start >> 16..range.end.div_ceil(1 << 16)).collect()
}

#[test]
fn a_disk_stays_as_it_was_while_the_guest_writes() {
    for user in [User::Device, User::Nobody] {
        stays_as_it_was(user);
    }
}

fn stays_as_it_was(user: User) {
    let Some(mut machine) = Machine::start("qcow2", user, 4 * SIZE) else { return };
    machine.write(1, 11);
    let first = machine.open(1).expect("opens");
    let frozen = machine.content.clone();
    assert!(first.changes.is_empty() && first.remarks.is_empty());
    assert_eq!(first.notes.iter().any(|note| note.contains("filter")), user == User::Nobody, "{:?}", first.notes);
    machine.write(1, 12);
    machine.write(2, 13);
    assert!(all_of(&*first.image) == frozen);
    first.image.finish().expect("frozen");
    drop(first.image);
    assert!(first.ending.committed().is_empty());
    assert_eq!(machine.left(), (vec![job(1)], 0));
    // What was written during the backup is noted, and a failure changes nothing.
    let second = machine.open(2).expect("opens");
    assert_eq!(changed(&second, 1), [1, 2]);
    machine.write(3, 14);
    drop(second.image);
    assert!(second.ending.failed().is_empty());
    assert_eq!(machine.left(), (vec![job(1)], 0));
    machine.write(4, 15);
    let third = machine.open(3).expect("opens");
    assert_eq!(changed(&third, 1), [1, 2, 3, 4]);
    assert!(all_of(&*third.image) == machine.content);
    let runs = third.extents.as_ref().expect("holes");
    assert_eq!(runs.iter().map(|run| run.length).sum::<u64>(), 4 << 16, "holes are known");
    drop(third.image);
    assert!(third.ending.committed().is_empty());
    assert_eq!(machine.left(), (vec![job(3)], 0));
}

/// Goal: a backup that was killed leaves nothing that lasts, and no change is lost.
#[test]
fn what_a_killed_backup_left_is_removed() {
    for user in [User::Device, User::Nobody] {
        leftovers_are_removed(user);
    }
}

fn leftovers_are_removed(user: User) {
    let Some(mut machine) = Machine::start("qcow2", user, 4 * SIZE) else { return };
    machine.write(1, 11);
    drop(machine.open(1).map(|first| first.ending.committed()).expect("opens"));
    machine.write(2, 12);
    // Its connections end, as when its process does.
    drop(machine.open(2).expect("opens"));
    assert_eq!(machine.left().0, [job(1), job(2)]);
    assert!(machine.left().1 >= 3, "{:?}", machine.left());
    machine.write(3, 13);
    // Another one was killed between the start of its server and its export.
    let folder = machine.folder.path().join("scratch").join(names(2).folder());
    let address = json!({"type": "unix", "data": {"path": folder.join("nbd")}});
    machine.monitor.ask("block-export-del", json!({"id": "larder-0123456789ab-export", "mode": "hard"})).expect("gone");
    machine.monitor.ask("nbd-server-stop", json!({})).expect("stopped");
    machine.monitor.ask("nbd-server-start", json!({"addr": address})).expect("started");
    // The next one has another scratch folder, and finds all of it nevertheless.
    let third = machine.open_in("elsewhere", 3).expect("opens");
    assert!(!folder.exists());
    assert_eq!((changed(&third, 1), changed(&third, 2)), (vec![2, 3], vec![3]));
    assert!(all_of(&*third.image) == machine.content);
    drop(third.image);
    assert!(third.ending.committed().is_empty());
    assert_eq!(machine.left(), (vec![job(3)], 0));
}

/// Goal: no version comes of a disk that did not stay as it was.
#[test]
fn a_view_that_is_lost_fails_the_backup() {
    let Some(mut machine) = Machine::start("raw", User::Nobody, 4 * SIZE) else { return };
    let first = machine.open(1).expect("opens");
    assert!(first.remarks[0].contains("no qcow2 image"), "{:?}", first.remarks);
    first.image.finish().expect("frozen");
    let job = machine.monitor.ask("query-block-jobs", json!({})).expect("jobs")[0]["device"].clone();
    machine.monitor.ask("block-job-cancel", json!({"device": job, "force": true})).expect("cancelled");
    let error = first.image.finish().expect_err("not frozen").to_string();
    assert!(error.contains("scratch folder full"), "{error}");
    drop(first.image);
    assert!(first.ending.failed().is_empty());
    assert_eq!(machine.left(), (Vec::new(), 0));
    // The server of somebody else is left alone.
    let address = json!({"type": "unix", "data": {"path": machine.folder.path().join("other")}});
    machine.monitor.ask("nbd-server-start", json!({"addr": address})).expect("started");
    let error = machine.open(2).err().expect("refused").to_string();
    assert!(error.contains("already running") && error.contains("nbd-server-stop"), "{error}");
    assert_eq!(machine.left(), (Vec::new(), 0));
    machine.monitor.ask("nbd-server-stop", json!({})).expect("stopped");
    let error = machine.open_disk("vdb", machine.folder.path(), 2);
    assert!(error.err().expect("refused").to_string().contains("it has no disk vdb"));
}

/// Goal: a scratch folder without space costs the backup, and not a write of the guest.
#[test]
fn a_full_scratch_folder_fails_the_backup_and_not_the_guest() {
    let Some(mut machine) = Machine::start("raw", User::Device, MIB) else { return };
    (0..16).for_each(|block| machine.write(block, 21));
    let first = machine.open(1).expect("opens");
    assert!(first.notes.is_empty(), "{:?}", first.notes);
    assert!(all_of(&*first.image) == machine.content);
    first.image.finish().expect("frozen");
    // Their old content needs more than 1 MiB, with the tables of the file.
    (0..16).for_each(|block| machine.write(block, 22));
    let error = first.image.finish().expect_err("not frozen").to_string();
    assert!(error.contains("is the scratch folder full?"), "{error}");
    let error = first.image.read_at(0, &mut [0; 512]).expect_err("not frozen").to_string();
    assert!(error.contains("is the scratch folder full?"), "{error}");
    let on_disk = std::fs::read(machine.folder.path().join("image")).expect("readable");
    assert!(on_disk == machine.content, "the guest's writes arrived");
    drop(first.image);
    assert!(first.ending.failed().is_empty());
    assert_eq!(machine.left(), (Vec::new(), 0));
    // All is as before.
    machine.write(1, 23);
    let second = machine.open(2).expect("opens");
    machine.write(2, 24);
    second.image.finish().expect("frozen");
    drop(second.image);
    assert!(second.ending.committed().is_empty());
    assert_eq!(machine.left(), (vec![job(2)], 0));
}

/// Goal: two backups of one disk never take each other's filter for the disk.
#[test]
fn the_filter_of_another_series_is_no_disk() {
    let Some(mut machine) = Machine::start("qcow2", User::Device, 4 * SIZE) else { return };
    let first = machine.open(1).expect("opens");
    let other = Opening {
        names: Names::new("another", job(2)),
        folder: machine.folder.path(),
        keeps: true,
        stops: &Stops::default(),
    };
    // It was killed.
    drop((first.image, first.ending));
    let socket = machine.folder.path().join("qmp");
    let error = open(&socket, "vda", other).err().expect("refused").to_string();
    assert!(error.contains("another backup of vda runs, or was killed"), "{error}");
    let second = machine.open(2).expect("opens");
    drop(second.image);
    assert!(second.ending.committed().is_empty());
    assert_eq!(machine.left().1, 0);
}
