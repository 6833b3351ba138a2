//! Repositories of Borg 1.

use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use larder_testkit::canned::Answer;
use tokio::runtime::Runtime;

use super::{all_kinds, summary, tool};
use crate::support::mounting::until;
use crate::support::server::{Bucket, answer};
use crate::support::{Play, Ran, run, tree};

/// A repository of Borg in the folder of the play.
struct Borg<'a> {
    play: &'a Play,
}

impl<'a> Borg<'a> {
    fn with(play: &'a Play, mode: &str) -> Self {
        let borg = Self { play };
        borg.run(&["init", "-e", mode, "borg"]);
        borg
    }

    fn env<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        let home = self.play.path("borg-home");
        command.env("BORG_BASE_DIR", home).env("BORG_PASSPHRASE", "secret").env_remove("BORG_REPO").env("TZ", "UTC")
    }

    #[track_caller]
    fn run(&self, line: &[&str]) {
        let mut command = self.play.command_of(std::path::Path::new("borg"), line);
        let output = self.env(&mut command).output().expect("borg starts: it is a package of the gate");
        assert!(output.status.success(), "{line:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// An archive of `source` with this time.
    fn create(&self, name: &str, time: &str, comment: &str) {
        let place = format!("borg::{name}");
        self.run(&[
            "create",
            "--timestamp",
            time,
            "--comment",
            comment,
            "--chunker-params",
            "10,16,12,4095",
            &place,
            "source",
        ]);
    }

    fn import(&self, args: &[&str]) -> Ran {
        let line = [&["import", "borg", "borg", "--json"], args].concat();
        run(self.env(&mut self.play.command(line)))
    }
}

/// Goal: every archive becomes a snapshot, oldest first, with its time, host and comment; later runs import only new ones.
#[test]
fn archives_come_over_with_their_history() {
    let play = Play::with_repository();
    all_kinds(&play, "source");
    let borg = Borg::with(&play, "repokey");
    // Made in another order than their times.
    borg.create("web1-second", "2021-02-03T04:05:06", "after the move");
    play.write("source/new", "changed");
    borg.create("web1-first", "2020-02-03T04:05:06", "");
    borg.create("db-third", "2022-02-03T04:05:06", "");
    let planned = borg.import(&["-n"]).ok();
    assert_eq!(planned.messages("would_import").len(), 3);
    let plain = run(borg.env(&mut play.command(["import", "borg", "borg", "-n"]))).ok();
    assert!(plain.stderr.contains("neither extended attributes nor access lists"), "{}", plain.stderr);
    let pattern = ["--series-pattern", "^(?P<host>[^-]+)-", "--series", "{host}/{repository}", "--compare"];
    let first = borg.import(&[&pattern[..], &["--snapshot", "web1-second"]].concat()).ok();
    assert_eq!(summary(&first)["imported"], 1);
    let ran = borg.import(&pattern).ok();
    let names: Vec<_> = ran.messages("imported").iter().map(|one| one["name"].clone()).collect();
    assert_eq!(names, ["web1-first", "db-third"]);
    assert_eq!(summary(&ran)["imported_before"], 1);
    assert_eq!(summary(&borg.import(&pattern).ok())["imported_before"], 3);
    let all = play.larder(["snapshots", "--json"]).ok().json();
    let all: Vec<_> = all
        .as_array()
        .expect("all")
        .iter()
        .map(|one| {
            let time = one["time"].as_str().expect("a time");
            (
                one["series"].clone(),
                one["hostname"].clone(),
                time[..4].to_owned(),
                one["tags"].clone(),
                one["paths"].clone(),
            )
        })
        .collect();
    assert_eq!(all.len(), 3);
    assert_eq!(
        all[0],
        (
            "web1/borg".into(),
            "web1".into(),
            "2020".into(),
            serde_json::json!(["web1-first"]),
            serde_json::json!(["/source"])
        )
    );
    assert_eq!(all[1].3, serde_json::json!(["comment=after the move", "web1-second"]));
    assert_eq!((&all[2].0, &*all[2].2), (&"db/borg".into(), "2022"));
    // Times are exact to a microsecond, although tar has them to the second. Borg rounds.
    play.larder(["restore", "latest", "--target", "back"]).ok();
    let time = |path: &str| {
        let metadata = std::fs::symlink_metadata(play.path(path)).expect("there");
        metadata.mtime() * 1_000_000 + metadata.mtime_nsec() / 1000
    };
    for name in ["plain.txt", "folder/large", "empty", "link"] {
        let difference = time(&format!("source/{name}")) - time(&format!("back/source/{name}"));
        assert!(difference.abs() <= 1, "{name}: {difference} µs");
    }
    let differences = tool(&play, &["rsync", "-rlpoHni", "--checksum", "-D", "source/", "back/source/"]);
    assert_eq!(String::from_utf8_lossy(&differences), "");
    play.larder(["check", "--read-data"]).ok();
}

/// Goal: a repository without encryption comes over as well, with the same contents.
#[test]
fn an_authenticated_repository_comes_over() {
    let play = Play::with_repository();
    all_kinds(&play, "source");
    let borg = Borg::with(&play, "authenticated");
    borg.create("one", "2020-02-03T04:05:06", "");
    let summary = borg.import(&["--compare"]).ok().messages("summary").remove(0);
    assert_eq!(summary["imported"], 1, "{summary:#}");
    play.larder(["restore", "latest", "--target", "back"]).ok();
    let differences = tool(&play, &["rsync", "-rlpoHni", "--checksum", "-D", "source/", "back/source/"]);
    assert_eq!(String::from_utf8_lossy(&differences), "");
    play.larder(["check", "--read-data"]).ok();
}

/// Goal: errors of Borg are told as what they are, and no snapshot is made of half an archive.
#[test]
fn what_borg_cannot_read_is_told() {
    let play = Play::with_repository();
    play.write("source/1", tree::noise(1, 900_000));
    play.write("source/2", tree::noise(2, 900_000));
    let borg = Borg::with(&play, "authenticated");
    borg.create("one", "2020-02-03T04:05:06", "");
    let wrong = run(borg.env(&mut play.command(["import", "borg", "borg"])).env("BORG_PASSPHRASE", "wrong")).code(12);
    assert!(wrong.stderr.contains("assphrase"), "{}", wrong.stderr);
    run(borg.env(&mut play.command(["import", "borg", "nowhere"]))).code(10).says("nowhere");
    run(borg.env(&mut play.command(["import", "borg", "borg"])).env("PATH", "/nowhere")).code(1).says("borgbackup");
    borg.import(&["--snapshot", "absent"]).code(1);
    borg.import(&["--series", "{absent}"]).code(2);
    borg.import(&["--series-pattern", "no group"]).code(2);
    // A flipped byte in the middle of the data.
    let segment = std::fs::read_dir(play.path("borg/data/0")).expect("there").map(|file| file.expect("there").path());
    let segment = segment.max_by_key(|path| std::fs::metadata(path).expect("there").len()).expect("one");
    let mut bytes = std::fs::read(&segment).expect("read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&segment, bytes).expect("written");
    let ran = borg.import(&[]).code(3);
    assert_eq!(summary(&ran)["failed"], serde_json::json!(["one"]), "{}", ran.stderr);
    assert_eq!(play.larder(["snapshots", "--json"]).ok().json().as_array().map(Vec::len), Some(0));
}

/// A bucket that stores one object and never says so: the first `held` one after this many versions.
fn bucket_that_holds(play: &Play, versions: usize, held: &'static str) -> (Bucket, Arc<AtomicBool>) {
    let (is_held, seen) = (Arc::new(AtomicBool::new(false)), AtomicUsize::new(0));
    let (folder, holds) = (play.path("bucket"), is_held.clone());
    let runtime = Runtime::new().expect("threads start");
    let bucket = Bucket::on(runtime, move |_, request| {
        let is_put = |of: &str| request.method == "PUT" && request.target.contains(of);
        let before = seen.fetch_add(usize::from(is_put("/versions/")), Ordering::SeqCst);
        let stored = answer(&folder, request);
        if before == versions && is_put(held) {
            holds.store(true, Ordering::SeqCst);
            return Answer::Later(Duration::from_secs(3600), Box::new(stored));
        }
        stored
    });
    (bucket, is_held)
}

/// Goal: killed anywhere, the next run makes every snapshot once, and equal. Method: a storage that is silent in the middle of the
/// first archive, in the middle of the second one, and when the last snapshot is there.
#[test]
fn a_killed_import_goes_on() {
    let play = Play::new();
    let quick = Bucket::serve(play.path("bucket"), |_, _| None);
    quick.larder(&play, ["init", "--insecure-kdf"]).ok();
    let borg = Borg::with(&play, "repokey");
    for number in 1..=3_u64 {
        for file in 0..4 {
            play.write(format!("source/{number}/{file}"), tree::noise(number * 100 + file, 400_000));
        }
        play.write("source/changing", tree::noise(number, 100_000));
        borg.create(&format!("archive{number}"), &format!("202{number}-02-03T04:05:06"), "");
        tool(&play, &["cp", "-a", "source", &format!("copy{number}")]);
    }
    for (versions, held) in [(0, "/data/"), (1, "/data/"), (1, "/versions/")] {
        let (bucket, is_held) = bucket_that_holds(&play, versions, held);
        let mut command = bucket.command(&play, ["import", "borg", "borg"]);
        let mut child = play.spawn(borg.env(&mut command));
        until("the storage is silent", || is_held.load(Ordering::SeqCst));
        child.kill().expect("killed");
        child.wait().expect("ended");
    }
    let mut command = quick.command(&play, ["import", "borg", "borg", "--json", "--compare"]);
    let done = summary(&run(borg.env(&mut command)).ok());
    assert_eq!((&done["imported"], &done["imported_before"]), (&0.into(), &3.into()), "{done:#}");
    let all = quick.larder(&play, ["snapshots", "--json"]).ok().json();
    let all = all.as_array().expect("snapshots");
    let tags: Vec<_> = all.iter().map(|one| one["tags"][0].clone()).collect();
    assert_eq!(tags, ["archive1", "archive2", "archive3"]);
    for (number, one) in all.iter().enumerate() {
        let (id, target) = (one["id"].as_str().expect("an id"), format!("back{number}"));
        quick.larder(&play, ["restore", id, "--target", &target]).ok();
        let (from, to) = (format!("copy{}/", number + 1), format!("{target}/source/"));
        let differences = tool(&play, &["rsync", "-rlpoHni", "--checksum", "--delete", "-D", &from, &to]);
        assert_eq!(String::from_utf8_lossy(&differences), "");
    }
    quick.larder(&play, ["check", "--read-data"]).ok();
}
