//! Repositories of restic, in both of its formats.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{all_kinds, same_as, summary, tool};
use crate::support::server::{Bucket, refusal};
use crate::support::{Play, Ran, run, tree};

/// A repository of restic in the folder of the play.
struct Restic<'a> {
    play: &'a Play,
}

impl<'a> Restic<'a> {
    /// A new one; `None` without the program, which the gate has.
    #[expect(clippy::print_stderr, reason = "a skipped test says so")]
    fn with(play: &'a Play, format: &str) -> Option<Self> {
        if Command::new("restic").arg("version").output().is_err() {
            eprintln!("skipped: it needs restic");
            return None;
        }
        let restic = Self { play };
        restic.run(&["init", "--repository-version", format]);
        Some(restic)
    }

    fn env<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command
            .env("RESTIC_PASSWORD", "secret")
            .env("RESTIC_REPOSITORY", self.play.path("restic"))
            .env("HOME", self.play.path("home"))
    }

    #[track_caller]
    fn run(&self, line: &[&str]) -> Vec<u8> {
        let mut command = self.play.command_of(std::path::Path::new("restic"), ["-q", "--no-cache"]);
        let output = self.env(command.args(line)).output().expect("restic starts");
        assert!(output.status.success(), "{line:?}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    fn backup(&self, time: &str, tag: &str) {
        let source = self.play.path("source").display().to_string();
        self.run(&["backup", "--host", "web1", "--time", time, "--tag", tag, &source]);
    }

    fn import(&self, args: &[&str]) -> Ran {
        let line = [&["import", "restic", "restic", "--json"], args].concat();
        run(self.env(&mut self.play.command(line)))
    }

    /// The largest pack.
    fn pack(&self) -> PathBuf {
        let packs = tool(self.play, &["find", "restic/data", "-type", "f", "-printf", "%s %p\n"]);
        let packs = String::from_utf8(packs).expect("text");
        let size = |line: &&str| line.split(' ').next().and_then(|size| size.parse::<u64>().ok());
        let largest = packs.lines().max_by_key(size).expect("a pack");
        self.play.path(largest.split(' ').nth(1).expect("a path"))
    }
}

/// Goal: snapshots come over with all that restic restores, unchanged files are not read, and later runs import only new ones.
#[test]
fn snapshots_come_over_with_their_history() {
    for format in ["1", "2"] {
        let play = Play::with_repository();
        all_kinds(&play, "source");
        let Some(restic) = Restic::with(&play, format) else { return };
        restic.backup("2020-02-03 04:05:06", "one");
        play.write("source/folder/new", tree::noise(77, 100_000));
        std::fs::remove_file(play.path("source/日本/Zoë")).expect("removed");
        restic.backup("2021-02-03 04:05:06", "two");
        let planned = restic.import(&["-n"]).ok();
        assert_eq!(planned.messages("would_import").len(), 2);
        let ran = restic.import(&["--compare"]).ok();
        let (all, done) = (ran.messages("imported"), summary(&ran));
        assert_eq!(
            (&done["imported"], &done["error_count"], &done["different"]),
            (&2.into(), &0.into(), &0.into()),
            "{}",
            ran.stderr
        );
        // Only what changed is read of the second one.
        assert!(all[0]["read_bytes"].as_u64() > Some(3_000_000), "{:#}", all[0]);
        assert!(all[1]["read_bytes"].as_u64() < Some(200_000), "{:#}", all[1]);
        assert!(all[1]["files_unmodified"].as_u64() > Some(8), "{:#}", all[1]);
        let source = play.path("source").display().to_string();
        assert_eq!(all[1]["series"], format!("web1:{source}"));
        let below = source.trim_start_matches('/');
        same_as(&play, all[1]["snapshot_id"].as_str().expect("an id"), below, "source");
        // The first one is what restic restores of it.
        let list: serde_json::Value = serde_json::from_slice(&restic.run(&["snapshots", "--json"])).expect("JSON");
        restic.run(&["restore", list[0]["id"].as_str().expect("an id"), "--target", "by-restic"]);
        same_as(&play, all[0]["snapshot_id"].as_str().expect("an id"), below, &format!("by-restic/{below}"));
        let here = play.larder(["snapshots", "--json"]).ok().json();
        let facts = |one: &serde_json::Value| {
            (one["hostname"].clone(), one["tags"].clone(), one["time"].as_str().map(|time| time[..4].to_owned()))
        };
        assert_eq!(facts(&here[0]), ("web1".into(), serde_json::json!(["one"]), Some("2020".to_owned())));
        assert_eq!(facts(&here[1]), ("web1".into(), serde_json::json!(["two"]), Some("2021".to_owned())));
        // Other tags there are no new snapshots.
        restic.run(&["tag", "--add", "more"]);
        play.write("source/later", "later");
        restic.backup("2022-02-03 04:05:06", "three");
        let next = restic.import(&[]).ok();
        assert_eq!((&summary(&next)["imported"], &summary(&next)["imported_before"]), (&1.into(), &2.into()));
        assert_eq!(summary(&restic.import(&["--tag", "three", "--host", "web1"]).ok())["imported_before"], 1);
        // What a rewrite left out does not come back; what was forgotten does.
        play.larder(["rewrite", "latest", "--exclude", "later", "--new-series", "other", "--forget"]).ok();
        let again = restic.import(&[]).ok();
        assert_eq!((&summary(&again)["imported"], &summary(&again)["imported_before"]), (&0.into(), &3.into()));
        let found = play.larder(["find", "later"]).text();
        assert!(!found.contains("source/later"), "{found}");
        play.larder(["check", "--read-data"]).ok();
    }
}

/// Goal: each file that the damage hit is named and left out, the others are whole; other errors are told as what they are.
#[test]
fn what_is_whole_in_a_damaged_repository_comes_over() {
    let play = Play::with_repository();
    for name in 0..30 {
        play.write(format!("source/small/{name}"), tree::noise(name, 100_000));
    }
    let Some(restic) = Restic::with(&play, "2") else { return };
    restic.backup("2020-02-03 04:05:06", "one");
    let pack = restic.pack();
    // A second snapshot with the same damage in it, and a large file.
    play.write("source/large", tree::noise(100, 20_000_000));
    restic.backup("2021-02-03 04:05:06", "two");
    for path in [pack, restic.pack()] {
        let mut bytes = std::fs::read(&path).expect("read");
        let at = bytes.len() / 2;
        bytes[at] ^= 1;
        let writable = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&path, writable).expect("ours");
        std::fs::write(&path, bytes).expect("written");
    }
    let ran = restic.import(&[]).code(3);
    let all = ran.messages("imported");
    let files = |one: &serde_json::Value| one["total_files_processed"].as_u64();
    assert_eq!((files(&all[0]), &all[0]["error_count"]), (Some(29), &1.into()), "{}", ran.stderr);
    assert_eq!((files(&all[1]), &all[1]["error_count"]), (Some(29), &2.into()), "{}", ran.stderr);
    assert!(ran.stderr.contains("source/small/") && ran.stderr.contains("source/large"), "{}", ran.stderr);
    play.larder(["check", "--read-data"]).ok();
    let mut wrong = play.command(["import", "restic", "restic"]);
    run(restic.env(&mut wrong).env("RESTIC_PASSWORD", "wrong")).code(12).says("wrong password");
    run(restic.env(&mut play.command(["import", "restic", "nowhere"]))).code(10).says("no restic repository");
    play.write("password", "secret\n");
    let mut by_file = play.command(["import", "restic", "restic", "-n", "--from-password-file", "password"]);
    run(by_file.env_remove("RESTIC_PASSWORD")).ok();
    run(play.command(["import", "restic", "restic", "-n"]).env("RESTIC_FROM_PASSWORD_COMMAND", "echo secret")).ok();
    run(&mut play.command(["import", "restic", "restic", "-n"])).code(12).says("--from-password-file");
    restic.import(&["--snapshot", "abcdef"]).code(1);
    restic.import(&["--series", "{absent}"]).code(2);
}

/// Goal: a snapshot whose tree the index does not have is named and left out, and comes over when the index is whole.
#[test]
fn a_lost_index_makes_no_empty_snapshots() {
    let play = Play::with_repository();
    let Some(restic) = Restic::with(&play, "2") else { return };
    play.write("source/one", tree::noise(1, 50_000));
    restic.backup("2020-02-03 04:05:06", "one");
    let index = || -> Vec<PathBuf> {
        std::fs::read_dir(play.path("restic/index")).expect("listed").map(|entry| entry.expect("read").path()).collect()
    };
    let before = index();
    play.write("source/two", tree::noise(2, 50_000));
    restic.backup("2021-02-03 04:05:06", "two");
    let new: Vec<PathBuf> = index().into_iter().filter(|path| !before.contains(path)).collect();
    assert_eq!(new.len(), 1);
    std::fs::rename(&new[0], play.path("aside")).expect("moved");
    let ran = restic.import(&[]).code(3).says("restic repair index");
    assert_eq!(summary(&ran)["imported"], 1);
    std::fs::rename(play.path("aside"), &new[0]).expect("moved");
    let ran = restic.import(&["--compare"]).ok();
    assert_eq!((&summary(&ran)["imported"], &summary(&ran)["imported_before"]), (&1.into(), &1.into()));
}

/// Goal: killed anywhere, the next run makes every snapshot once, and equal.
#[test]
fn a_killed_import_goes_on() {
    let play = Play::with_repository();
    let Some(restic) = Restic::with(&play, "2") else { return };
    for round in 0..4 {
        for file in 0..10 {
            play.write(format!("source/{round}/{file}"), tree::noise(round * 100 + file, 500_000));
        }
        restic.backup(&format!("202{round}-02-03 04:05:06"), "t");
    }
    for delay in [700, 900, 1100, 1300] {
        let mut command = play.command(["import", "restic", "restic"]);
        let mut child = play.spawn(restic.env(&mut command));
        std::thread::sleep(std::time::Duration::from_millis(delay));
        child.kill().expect("killed");
        child.wait().expect("ended");
    }
    let last = restic.import(&["--compare"]).ok();
    let done = summary(&last);
    assert_eq!(done["imported"].as_u64().expect("a number") + done["imported_before"].as_u64().expect("a number"), 4);
    assert_eq!(play.larder(["snapshots", "--json"]).ok().json().as_array().map(Vec::len), Some(4));
    same_as(&play, "latest", play.path("source").display().to_string().trim_start_matches('/'), "source");
}

/// Goal: a storage that does not answer for contents ends the import; nothing is taken for damaged, and the next run has everything.
#[test]
fn a_storage_that_fails_is_no_damage() {
    let play = Play::with_repository();
    play.write("source/one", tree::noise(1, 100_000));
    play.write("source/two", tree::noise(2, 10_000_000));
    let Some(restic) = Restic::with(&play, "2") else { return };
    restic.backup("2020-02-03 04:05:06", "one");
    let refuse = Arc::new(AtomicBool::new(true));
    let refuses = refuse.clone();
    let folder = play.path("restic");
    let bucket = Bucket::serve(folder.clone(), move |_, request| {
        // Those of trees are smaller.
        let is_contents = request.target.strip_prefix("/bucket/").is_some_and(|name| {
            name.starts_with("data/") && std::fs::metadata(folder.join(name)).is_ok_and(|pack| pack.len() > 50_000)
        });
        (is_contents && refuses.load(Ordering::Relaxed)).then(|| refusal(403, "AccessDenied"))
    });
    let import = |args: &[&str]| {
        let place = format!("s3:http://127.0.0.1:{}/bucket", bucket.port());
        let mut command = play.command([&["import", "restic", &place, "--json"], args].concat());
        restic.env(&mut command).env("AWS_ACCESS_KEY_ID", "id").env("AWS_SECRET_ACCESS_KEY", "secret");
        run(command.env("AWS_REGION", "us-east-1"))
    };
    let failed = import(&[]);
    assert!(!matches!(failed.code, 0 | 3), "{}: {}", failed.code, failed.stderr);
    assert_eq!(play.larder(["snapshots", "--json"]).ok().json().as_array().map(Vec::len), Some(0));
    refuse.store(false, Ordering::Relaxed);
    let ran = import(&["--compare"]).ok();
    assert_eq!((&summary(&ran)["imported"], &summary(&ran)["error_count"]), (&1.into(), &0.into()));
}
