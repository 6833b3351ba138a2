//! Volumes in thin pools of LVM. Its programs are stand-ins (`support/lvm.py`), because most machines of tests have no
//! device mapper; `thin_delta` is the real one. Tests skip without it.

use std::fs::{File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use larder_testkit::data;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::imaging::{number, summary};
use crate::support::{Play, Ran, run};

const MIB: usize = 1 << 20;
const VOLUME: &str = "web-1";

/// Where a program is. Those of administrators are not in everybody's `PATH`.
fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders.map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// A group `vg` with a pool, a thin volume and another one.
struct Group {
    play: Play,
    thin_delta: PathBuf,
    thin_restore: PathBuf,
}

impl Group {
    #[expect(clippy::print_stderr, reason = "tells that a test was skipped")]
    fn new() -> Option<Self> {
        let found = find("thin_delta").zip(find("thin_restore")).filter(|_| find("python3").is_some());
        let Some((thin_delta, thin_restore)) = found else {
            eprintln!("skipped: thin-provisioning-tools or Python is not installed");
            return None;
        };
        let play = Play::with_repository();
        std::fs::create_dir_all(play.path("bin")).expect("created");
        for program in ["lvs", "lvcreate", "lvchange", "lvremove", "dmsetup", "thin_delta"] {
            play.write(format!("bin/{program}"), include_str!("support/lvm.py"));
            std::fs::set_permissions(play.path("bin").join(program), Permissions::from_mode(0o755)).expect("set");
        }
        let it = Self { play, thin_delta, thin_restore };
        let volume = |pool: &str, id: &str, size: usize| json!({"pool": pool, "origin": "", "id": id, "size": size, "blocks": {}, "is_external": false});
        // The pool's last block of the volume is not a whole one.
        let size = 16 * MIB + 4096;
        let volumes =
            json!({"pool": volume("", "", 1 << 30), VOLUME: volume("pool", "1", size), "linear": volume("", "", MIB)});
        it.put(&json!({"volumes": volumes, "next": 0, "is_held": false, "place": 7}));
        File::create(it.device()).and_then(|file| file.set_len(size as u64)).expect("created");
        Some(it)
    }

    fn put(&self, state: &Value) {
        self.play.write("lvm/state.json", state.to_string());
    }

    fn state(&self) -> Value {
        serde_json::from_slice(&std::fs::read(self.play.path("lvm/state.json")).expect("there")).expect("JSON")
    }

    fn device(&self) -> PathBuf {
        self.play.path("lvm").join(format!("{VOLUME}.dev"))
    }

    fn content(&self) -> Vec<u8> {
        std::fs::read(self.device()).expect("there")
    }

    fn write(&self, at: usize, content: &[u8]) {
        let device = File::options().write(true).open(self.device()).expect("there");
        device.write_all_at(content, at as u64).expect("written");
    }

    /// The snapshots of backups, and whether each has a device.
    fn snapshots(&self) -> Vec<(String, bool)> {
        let state = self.state();
        let names = state["volumes"].as_object().expect("volumes").keys();
        let has_device = |name: &str| self.play.path("lvm").join(format!("{name}.dev")).exists();
        names.filter(|name| name.starts_with("larder-")).map(|name| (name.clone(), has_device(name))).collect()
    }

    /// The only snapshot is that of this version, and has no device.
    fn keeps_only(&self, version: &Value) {
        let snapshots = self.snapshots();
        let id = version["snapshot_id"].as_str().expect("an id");
        assert!(matches!(&*snapshots, [(name, false)] if name.ends_with(id)), "{snapshots:?} for {id}");
        assert_eq!(self.state()["is_held"], false);
    }

    fn larder(&self, args: &[&str]) -> Ran {
        run(&mut self.command(args))
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.play.command(args);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = [self.play.path("bin")].into_iter().chain(std::env::split_paths(&path));
        command.env("PATH", std::env::join_paths(folders).expect("a path")).env("LVM_PLAY", self.play.path("lvm"));
        command.env("LVM_THIN_DELTA", &self.thin_delta).env("LVM_THIN_RESTORE", &self.thin_restore);
        command
    }

    /// Starts a backup whose first comparison does not end, and waits until it hangs. Also gives the process that
    /// compares.
    fn hanging(&self) -> (Child, Pid) {
        let file = |name: &str| self.play.path("lvm").join(name);
        std::fs::write(file("thin_delta.hangs"), "").expect("written");
        let mut command = self.command(&["backup", "--series", "vm", "--image", "thin:vg/web-1"]);
        let child = self.play.spawn(&mut command);
        while !file("thin_delta.hung").exists() {
            thread::sleep(Duration::from_millis(20));
        }
        let hung = std::fs::read_to_string(file("thin_delta.hung")).expect("there");
        std::fs::remove_file(file("thin_delta.hung")).expect("there");
        (child, hung.parse().ok().and_then(Pid::from_raw).expect("a number"))
    }

    fn backup(&self, more: &[&str]) -> Ran {
        self.larder(&[&["backup", "--json", "--series", "vm", "--image", "thin:vg/web-1"], more].concat())
    }

    fn fails(&self, program: &str, does: bool) {
        let file = self.play.path("lvm").join(format!("{program}.fails"));
        if does { std::fs::write(file, "") } else { std::fs::remove_file(file) }.expect("set");
    }

    /// The volume as it is in a version.
    fn is_in(&self, version: &Value) {
        let id = version["snapshot_id"].as_str().expect("an id");
        let dumped = self.play.larder(["dump", id, "/web-1"]).ok().stdout;
        assert!(dumped == self.content(), "{version}");
    }
}

#[test]
fn a_thin_volume_is_read_where_its_pool_says() {
    let Some(group) = Group::new() else { return };
    group.write(MIB, &data::random(1, 4 * MIB));
    group.write(16 * MIB, &data::random(2, 4096));
    // A dry run leaves nothing.
    group.backup(&["--dry-run"]).ok();
    assert!(group.snapshots().is_empty() && group.state()["is_held"] == false);
    let first = summary(&group.backup(&[]).ok());
    assert_eq!(number(&first, "total_bytes_processed"), 16 * MIB + 4096);
    assert_eq!(number(&first, "read_bytes"), 4 * MIB + 4096, "holes are not read: {first}");
    group.is_in(&first);
    group.keeps_only(&first);
    // Changes within blocks, in a hole, and at the end.
    group.write(2 * MIB + 100, b"a change");
    group.write(9 * MIB, &data::random(3, 10_000));
    group.write(16 * MIB + 4000, b"the end");
    let second = summary(&group.backup(&[]).ok());
    assert_eq!(second["map"], "used", "{second}");
    let read = number(&second, "read_bytes") - number(&second, "map_checked_bytes");
    assert!((130 << 10..2 * MIB).contains(&read), "{second}");
    group.is_in(&second);
    group.keeps_only(&second);
    // Another series has its own snapshot.
    let other = group.larder(&["backup", "--json", "--series", "other", "--image", "thin:vg/web-1"]);
    group.is_in(&summary(&other.ok()));
    assert_eq!(group.snapshots().len(), 2);
    let third = summary(&group.backup(&[]).ok());
    assert!(third["map"] == "used" && group.snapshots().len() == 2, "{third}");
}

/// What failed or was killed costs no snapshot that is needed, and leaves none that is not.
#[test]
fn a_backup_that_fails_keeps_the_snapshot_of_the_last_version() {
    let Some(group) = Group::new() else { return };
    group.write(MIB, &data::random(1, 4 * MIB));
    let first = summary(&group.backup(&[]).ok());
    group.write(3 * MIB, b"a change");
    for program in ["lvcreate", "lvchange"] {
        group.fails(program, true);
        let failed = group.backup(&[]).code(1);
        assert!(failed.stderr.contains(&format!("{program}: {program} was told to fail")), "{}", failed.stderr);
        group.fails(program, false);
        group.keeps_only(&first);
    }
    // A killed one left its snapshot, with a device.
    let name = group.snapshots()[0].0.clone();
    let last = if name.ends_with('0') { "1" } else { "0" };
    let (state, folder) = (group.state(), group.play.path("lvm"));
    let killed = format!("{}{last}", &name[..name.len() - 1]);
    let mut more = state.clone();
    more["volumes"][&killed] = state["volumes"][&name].clone();
    more["volumes"][&killed]["id"] = "9".into();
    group.put(&more);
    std::fs::copy(folder.join(format!("{name}.skipped")), folder.join(format!("{killed}.dev"))).expect("copied");
    let second = summary(&group.backup(&[]).ok());
    assert_eq!(second["map"], "used", "{second}");
    group.is_in(&second);
    group.keeps_only(&second);
    // What cannot be removed is named, and removed later.
    group.write(4 * MIB, b"another change");
    group.fails("lvremove", true);
    let third = group.backup(&[]).ok();
    assert!(third.stderr.contains("the snapshot vg/larder-") && third.stderr.contains(" stays: "), "{}", third.stderr);
    assert_eq!(group.snapshots().len(), 2);
    group.fails("lvremove", false);
    let fourth = summary(&group.backup(&[]).ok());
    assert_eq!(fourth["map"], "used", "{fourth}");
    group.is_in(&fourth);
    group.keeps_only(&fourth);
}

/// Who is killed while it compares leaves the pool with a snapshot of its metadata, which is the only one it can have.
#[test]
fn what_a_killed_comparison_left_in_the_pool_is_released() {
    let Some(group) = Group::new() else { return };
    group.write(MIB, &data::random(1, 4 * MIB));
    let first = summary(&group.backup(&[]).ok());
    group.write(3 * MIB, b"a change");
    let (mut killed, compares) = group.hanging();
    killed.kill().and_then(|()| killed.wait()).expect("killed");
    kill_process(compares, Signal::KILL).expect("it runs");
    assert!(group.state()["is_held"] == true && group.snapshots().len() == 2);
    let second = summary(&group.backup(&[]).ok());
    assert_eq!(second["map"], "used", "{second}");
    group.is_in(&second);
    group.keeps_only(&second);
    // One that is interrupted ends the comparison itself.
    group.write(4 * MIB, b"another change");
    let (mut stopped, _) = group.hanging();
    kill_process(Pid::from_child(&stopped), Signal::INT).expect("it runs");
    assert_eq!(stopped.wait().expect("it ends").code(), Some(130));
    group.keeps_only(&second);
    assert_ne!(first["snapshot_id"], second["snapshot_id"]);
}

/// A pool gives the number of a volume that is removed to the next one.
#[test]
fn a_snapshot_that_is_removed_meanwhile_is_no_base() {
    let Some(group) = Group::new() else { return };
    group.write(MIB, &data::random(1, 4 * MIB));
    group.backup(&[]).ok();
    group.write(3 * MIB, b"a change");
    let (file, base) = (group.play.path("lvm/removed-meanwhile"), group.snapshots()[0].0.clone());
    std::fs::write(&file, &base).expect("written");
    let second = group.backup(&[]).ok();
    std::fs::remove_file(file).expect("there");
    assert!(!second.stderr.contains("stays"), "{}", second.stderr);
    let second = summary(&second);
    assert_eq!(second["map"], "unusable", "{second}");
    group.is_in(&second);
}

/// A series may have had another volume, which keeps its snapshots.
#[test]
fn snapshots_of_another_volume_stay() {
    let Some(group) = Group::new() else { return };
    group.write(MIB, &data::random(1, MIB));
    group.backup(&[]).ok();
    let mut state = group.state();
    state["volumes"]["web-2"] = state["volumes"][VOLUME].clone();
    state["volumes"]["web-2"]["id"] = "9".into();
    group.put(&state);
    std::fs::copy(group.device(), group.play.path("lvm/web-2.dev")).expect("copied");
    let other = ["backup", "--json", "--series", "vm", "--image", "thin:vg/web-2"];
    group.larder(&other).ok();
    assert_eq!(group.snapshots().len(), 2);
    group.larder(&other).ok();
    assert_eq!(group.snapshots().len(), 2);
}

#[test]
fn without_a_map_all_of_a_volume_is_read() {
    let Some(group) = Group::new() else { return };
    group.write(MIB, &data::random(1, 4 * MIB));
    group.backup(&[]).ok();
    group.write(5 * MIB, b"a change");
    group.fails("thin_delta", true);
    let told = group.backup(&[]).ok();
    assert!(
        told.stderr.contains("volume vg/web-1: its changes are not known, so all of it is read"),
        "{}",
        told.stderr
    );
    let second = summary(&told);
    assert_eq!(second["map"], "unusable", "{second}");
    group.is_in(&second);
    group.keeps_only(&second);
    group.fails("thin_delta", false);
    // A volume over another one has the bytes of that in its holes.
    let mut state = group.state();
    state["volumes"][VOLUME]["is_external"] = true.into();
    group.put(&state);
    group.write(12 * MIB, b"as the volume below has it");
    let external =
        summary(&group.larder(&["backup", "--json", "--series", "external", "--image", "thin:vg/web-1"]).ok());
    assert_eq!(number(&external, "read_bytes"), 16 * MIB + 4096, "{external}");
    group.is_in(&external);
    // The snapshot of the last version is gone.
    let mut state = group.state();
    let gone = |name: &str| name.starts_with("larder-");
    state["volumes"].as_object_mut().expect("volumes").retain(|name, _| !gone(name));
    group.put(&state);
    let third = summary(&group.backup(&[]).ok());
    assert_eq!(third["map"], "unusable", "{third}");
    let why = "no snapshot of an earlier backup of this series says what changed in the volume";
    assert_eq!(third["map_problem"], why);
    group.is_in(&third);
}

#[test]
fn what_is_no_thin_volume_is_refused() {
    let Some(group) = Group::new() else { return };
    let refused = |source: &str, code: i32, why: &str| {
        let ran = group.larder(&["backup", "--image", source]).code(code);
        assert!(ran.stderr.contains(why), "{source}: {}", ran.stderr);
        assert!(group.snapshots().is_empty(), "{source}");
    };
    refused("thin:web-1", 2, "a thin volume is thin:GROUP/VOLUME");
    refused("thin:vg/gone", 1, "cannot back up the volume vg/gone: there is no such volume");
    refused("thin:vg/linear", 1, "it is in no thin pool");
    refused("thin:other/web-1", 1, "Volume group \"other\" not found");
    let map = group.larder(&["backup", "--image", "thin:vg/web-1", "--changed-since", "latest"]).code(2);
    assert!(map.stderr.contains("have their own maps of changes"), "{}", map.stderr);
    let path = Path::new("nowhere");
    let mut without = group.play.command(["backup", "--image", "thin:vg/web-1"]);
    let ran = run(without.env("PATH", path)).code(1);
    assert!(ran.stderr.contains("lvs: "), "{}", ran.stderr);
}

#[test]
fn a_batch_has_thin_volumes() {
    let Some(group) = Group::new() else { return };
    group.write(MIB, &data::random(1, 2 * MIB));
    group.play.write("images.toml", "[[image]]\nsource = \"thin:vg/web-1\"\n");
    let batch = || {
        let ran = group.larder(&["fleet", "run", "--json", "images.toml", "--no-pass"]).ok();
        ran.messages("fleet_image").pop().unwrap_or_else(|| panic!("{}", ran.text()))
    };
    let first = batch();
    group.is_in(&first);
    group.keeps_only(&first);
    group.write(2 * MIB, b"a change");
    let second = batch();
    assert_eq!(second["map"], "used", "{second}");
    group.is_in(&second);
    group.keeps_only(&second);
}
