//! What this machine remembers: poisoned snapshots are not followed, and an earlier state of the
//! repository is noticed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::Value;

use crate::support::{Play, Ran, run};

fn copy(from: &std::path::Path, to: &std::path::Path) {
    let status = std::process::Command::new("cp").arg("-a").arg(from).arg(to).status().expect("cp runs");
    assert!(status.success());
}

/// A tree whose files look alike and hold other bytes.
fn write(play: &Play, letter: char) {
    for number in 0..3 {
        let path = format!("tree/{number}");
        play.write(&path, letter.to_string().repeat(20_000 + number));
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000);
        let file = fs::File::options().write(true).open(play.path(&path)).expect("there");
        file.set_modified(time).expect("own file");
    }
    play.settle();
}

/// As a client of a file system without stable inodes.
const BACKUP: [&str; 6] = ["backup", "tree", "--series", "s", "--ignore-ctime", "--ignore-inode"];

fn back_up(play: &Play, more: &[&str]) -> Value {
    let ran = play.larder(BACKUP.iter().chain(more).chain(&["--json"])).ok();
    ran.messages("summary").remove(0)
}

fn read_bytes(summary: &Value) -> u64 {
    summary["read_bytes"].as_u64().expect("a number")
}

/// Another machine with the same password makes a snapshot of the same series: the files look as
/// they do here, and hold other bytes.
fn poison(play: &Play) {
    write(play, 'E');
    run(play.command(BACKUP).arg("--force").env("LARDER_STATE", play.path("stranger"))).ok();
    write(play, 'A');
}

fn holds(play: &Play, letter: char) -> bool {
    let ran = play.larder(["dump", "latest", &play.path("tree/1").display().to_string()]).ok();
    ran.text() == letter.to_string().repeat(20_001)
}

#[test]
fn a_poisoned_snapshot_is_not_followed() {
    let play = Play::with_repository();
    write(&play, 'A');
    back_up(&play, &[]);
    poison(&play);
    let summary = back_up(&play, &[]);
    assert_eq!((read_bytes(&summary), &summary["bases"][0]["why"]), (0, &Value::from("own")));
    assert!(holds(&play, 'A'));
    play.larder(["check", "--read-data"]).ok();
    // Who asks for it gets the risk.
    poison(&play);
    back_up(&play, &["--trust-newest"]);
    assert!(holds(&play, 'E'));
}

#[test]
fn a_key_file_is_a_machine_of_its_own() {
    let play = Play::with_repository();
    write(&play, 'A');
    for name in ["one", "two"] {
        play.larder(["key", "add", "--role", "backup", "--domain", "laptop", "--file", name]).ok();
    }
    let back_up_with = |file: &str, more: &[&str]| -> Ran {
        let mut command = play.command(BACKUP);
        command.env_remove("LARDER_PASSWORD").env("LARDER_KEY_FILE", play.path(file)).arg("--no-state");
        run(command.args(more)).ok()
    };
    let back_up = |file: &str| back_up_with(file, &["--json"]);
    let summary = |ran: Ran| ran.messages("summary").remove(0);
    back_up("one");
    assert_eq!(read_bytes(&summary(back_up("one"))), 0, "nothing but the file is needed");
    write(&play, 'E');
    back_up_with("two", &[]).says("all files are read, because this machine made none of the newest snapshots");
    write(&play, 'A');
    let again = summary(back_up("one"));
    assert_eq!((read_bytes(&again), &again["bases"][0]["why"]), (0, &Value::from("own")));
    assert!(holds(&play, 'A'));
}

#[test]
fn a_state_that_cannot_be_used_costs_a_full_read_and_is_named() {
    let play = Play::with_repository();
    write(&play, 'A');
    back_up(&play, &[]);
    let folder = fs::read_dir(play.path("state")).expect("made").next().expect("one").expect("readable").path();
    let all: u64 = 60_003;
    assert_eq!(read_bytes(&back_up(&play, &[])), 0);
    // Others may read it.
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("own folder");
    play.larder(BACKUP)
        .ok()
        .says("is open to others (mode 0755); `chmod go= ")
        .says("all files are read, because this machine has neither");
    assert_eq!(read_bytes(&back_up(&play, &[])), all);
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).expect("own folder");
    assert_eq!(read_bytes(&back_up(&play, &[])), 0);
    // Its bytes are others.
    fs::write(folder.join("secret"), b"short").expect("own file");
    play.larder(BACKUP).ok().says("secret cannot be read; delete it to begin again");
    fs::remove_file(folder.join("secret")).expect("own file");
    play.larder(BACKUP).ok().says("all files are read, because this machine made none of the newest snapshots");
    // It cannot be made.
    fs::write(play.path("file"), b"").expect("written");
    let nowhere = play.path("file").join("state");
    run(play.command(BACKUP).env("LARDER_STATE", nowhere)).ok().says("the state of this machine cannot be used");
    run(play.command(BACKUP).arg("--no-state")).ok().says("neither a key file nor a state folder");
}

/// The repository as it is now, to be put back later.
fn keep(play: &Play) -> PathBuf {
    let kept = play.path("kept");
    copy(&play.repository(), &kept);
    kept
}

fn put_back(play: &Play, kept: &std::path::Path) {
    fs::remove_dir_all(play.repository()).expect("own folder");
    copy(kept, &play.repository());
}

#[test]
fn an_earlier_state_of_the_repository_is_noticed() {
    let play = Play::with_repository();
    write(&play, 'A');
    back_up(&play, &[]);
    let kept = keep(&play);
    back_up(&play, &[]);
    play.larder(["check"]).ok();
    put_back(&play, &kept);
    let ran = play.larder(["check"]).code(13);
    assert!(ran.text().contains("was made here and is gone, and nothing says that it was forgotten"), "{}", ran.text());
    for verb in [&["optimize"][..], &["optimize", "--dry-run"]] {
        play.larder(verb).code(13).says("was made here and is gone").says("--accept-state");
    }
    // Another machine sees nothing strange.
    run(play.command(["check"]).env("LARDER_STATE", play.path("other"))).ok();
    play.larder(BACKUP).ok().says("was made here and is gone");
    // A new snapshot does not make up for the lost one: a storage that shows it again needs its data.
    play.larder(["check"]).code(13);
    play.larder(["optimize"]).code(13).says("was made here and is gone");
    play.larder(["optimize", "--accept-state"]).ok();
    play.larder(["check"]).ok();
}

#[test]
fn an_earlier_index_is_noticed_and_can_be_accepted() {
    let play = Play::with_repository();
    write(&play, 'A');
    back_up(&play, &[]);
    play.larder(["optimize"]).ok();
    let kept = keep(&play);
    write(&play, 'B');
    // A snapshot of somebody else: this machine remembers only the index.
    run(play.command(BACKUP).env("LARDER_STATE", play.path("stranger"))).ok();
    play.larder(["optimize"]).ok();
    put_back(&play, &kept);
    let ran = play.larder(["check"]).code(13);
    assert!(ran.text().contains("which this machine saw, is gone"), "{}", ran.text());
    play.larder(["optimize"]).code(13).says("which this machine saw, is gone");
    play.larder(["optimize", "--accept-state"]).ok();
    play.larder(["check"]).ok();
    put_back(&play, &kept);
    play.larder(["check", "--accept-state"]).ok();
    play.larder(["optimize"]).ok();
}

/// What is forgotten and collected on this machine is not missed.
#[test]
fn forgotten_snapshots_are_not_missed() {
    let play = Play::with_repository();
    write(&play, 'A');
    back_up(&play, &[]);
    play.larder(["forget", "latest", "--prune"]).ok();
    play.larder(["check"]).ok();
    play.larder(["optimize"]).ok();
    assert!(!play.larder(BACKUP).ok().stderr.contains("was made here and is gone"));
}

/// A thief of a key that operates could publish a false index.
#[test]
fn an_index_of_another_machine_is_refused_on_request() {
    let play = Play::with_repository();
    write(&play, 'A');
    back_up(&play, &[]);
    play.larder(["optimize", "--own-index-only"]).ok();
    back_up(&play, &[]);
    run(play.command(["optimize"]).env("LARDER_STATE", play.path("stranger"))).ok();
    for verb in [&["optimize", "--own-index-only"][..], &["optimize", "--own-index-only", "--dry-run"]] {
        play.larder(verb).code(1).says("was not made on this machine").says("--accept-state");
    }
    play.larder(["optimize", "--own-index-only", "--accept-state"]).ok();
    back_up(&play, &[]);
    play.larder(["optimize", "--own-index-only"]).ok();
}

/// The key that opened the repository last is tried first, and without a listing.
#[test]
fn the_last_key_is_tried_first() {
    let play = Play::with_repository();
    for number in 0..3 {
        let password = format!("other {number}");
        run(play.command(["key", "add", "--insecure-kdf"]).env("LARDER_NEW_PASSWORD", password)).ok();
    }
    write(&play, 'A');
    back_up(&play, &[]);
    let lists = |play: &Play| back_up(play, &["--dry-run"])["requests_list"].as_u64().expect("a number");
    let (first, second) = (lists(&play), lists(&play));
    assert!(second < first, "{first} and {second} listings");
    // A key that was removed opens nothing, also if it is remembered.
    let keys = play.larder(["key", "list", "--json"]).ok().json();
    let current =
        keys.as_array().expect("a list").iter().find(|key| key["current"] == true).expect("one")["id"].clone();
    let mut remove = play.command(["key", "remove", current.as_str().expect("text")]);
    run(remove.env("LARDER_PASSWORD", "other 1")).ok();
    play.larder(["snapshots"]).code(12);
}

/// Garbage under the name of a mark, or of a later generation, explains nothing.
#[test]
fn planted_objects_do_not_hide_an_earlier_state() {
    let play = Play::with_repository();
    write(&play, 'A');
    back_up(&play, &[]);
    let kept = keep(&play);
    let newest = back_up(&play, &[])["snapshot_id"].as_str().expect("an id").to_owned();
    let register = crate::support::damage::named(&play.repository(), "versions/");
    let register = register.into_iter().find(|name| name.contains(&newest)).expect("a register");
    let version = register.strip_suffix("/0").expect("a register");
    put_back(&play, &kept);
    for planted in [version.replacen("versions/", "forgotten/", 1), format!("{version}/1")] {
        let path = play.repository().join(planted);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(&path, b"garbage").expect("planted");
        let ran = play.larder(["check", "--no-index"]).code(13);
        assert!(ran.text().contains("ROLLED BACK"), "{}", ran.text());
        play.larder(["optimize"]).code(13);
        fs::remove_file(&path).expect("removed");
    }
    // One word is enough, whatever else this machine remembers of the series.
    play.larder(["check", "--accept-state"]).ok();
    play.larder(["check"]).ok();
    play.larder(["optimize"]).ok();
}

/// A storage that hides the index may hide more.
#[test]
fn a_hidden_index_is_not_rebuilt_without_a_word() {
    let play = Play::with_repository();
    write(&play, 'A');
    back_up(&play, &[]);
    play.larder(["optimize"]).ok();
    for hidden in [&["index"][..], &["index", "indexed"]] {
        for folder in hidden {
            fs::remove_dir_all(play.repository().join(folder)).expect("own folder");
        }
        play.larder(["optimize"]).code(13).says("which this machine saw, is gone").says("--accept-state");
        play.larder(["repair", "index"]).ok();
        play.larder(["optimize"]).ok();
        play.larder(["check"]).ok();
    }
}

/// What another machine made last is not the same as what this one made before.
#[test]
fn an_older_snapshot_is_no_reason_to_skip() {
    let play = Play::with_repository();
    write(&play, 'A');
    back_up(&play, &[]);
    poison(&play);
    let summary = back_up(&play, &["--skip-if-unchanged"]);
    assert!(summary["snapshot_id"].is_string() && holds(&play, 'A'), "{summary}");
    assert!(back_up(&play, &["--skip-if-unchanged"])["snapshot_id"].is_null(), "now it is the newest");
}

/// This machine forgets, another one collects.
#[test]
fn snapshots_that_were_forgotten_here_are_not_missed() {
    let play = Play::with_repository();
    write(&play, 'A');
    back_up(&play, &[]);
    play.larder(["forget", "latest"]).ok();
    run(play.command(["optimize"]).env("LARDER_STATE", play.path("elsewhere"))).ok();
    play.larder(["check"]).ok();
    play.larder(["optimize"]).ok();
}

#[test]
fn a_memory_that_cannot_be_read_is_named() {
    let play = Play::with_repository();
    write(&play, 'A');
    back_up(&play, &[]);
    let folder = fs::read_dir(play.path("state")).expect("made").next().expect("one").expect("readable").path();
    fs::write(folder.join("seen"), b"garbage").expect("own file");
    for verb in [&BACKUP[..], &["check"], &["optimize"]] {
        play.larder(verb).ok().says("seen cannot be read; delete it to begin again");
    }
}
