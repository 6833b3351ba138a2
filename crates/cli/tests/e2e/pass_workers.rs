//! Passes that are shared with workers: processes of their own, one of which is killed.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command};

use larder_testkit::data;
use serde_json::Value;

use crate::check_workers::{Killed, ended, files};
use crate::fleet::{KIB, signal, until};
use crate::fleet_nats::Server;
use crate::support::{Play, Ran, schema};

/// Series of which older snapshots need a part of a container that no newest one needs.
const SERIES: u64 = 6;

/// Slow enough that a test sees what is given away before the pass did all of it: of two tasks of 1 MiB, the second one begins after
/// five seconds. A worker that is busy for less than the timeout must not be taken for dead, also on a busy machine.
const SHARING: [&str; 8] =
    ["--workers", "2", "--claim-timeout", "30s", "--batch-size", "1", "--limit-download", "200KiB"];

/// Ids of the snapshots that stay.
fn repository(play: &Play) -> Vec<String> {
    let mut stay = Vec::new();
    for number in 0..SERIES {
        let series = format!("s{number}");
        let backup = |files: &[(&str, u64)]| {
            let _ = fs::remove_dir_all(play.path("source"));
            for (name, seed) in files {
                play.write(format!("source/{name}"), data::random(number * 100 + seed, 200 * KIB));
            }
            play.backup(["source", "--series", &series, "--no-similar", "--force"])
        };
        let first = backup(&[("keep", 1), ("leave", 2)]);
        stay.push(backup(&[("keep", 1)]));
        stay.push(backup(&[("new", 3)]));
        play.larder(["forget", &first]).ok();
    }
    stay
}

fn summary(ran: &Ran) -> Value {
    let summary = ran.messages("summary").pop().expect("a summary");
    schema::check("optimize_summary", &summary);
    summary
}

/// Of the summary, the part that does not depend on who copied.
fn reclaimed(summary: &Value) -> Vec<Value> {
    let keys = ["containers", "redirected_chunks", "copied_chunks", "copied_bytes", "dropped_chunks"];
    keys.iter().map(|key| summary["reclaimed"][*key].clone()).collect()
}

fn restored(play: &Play, snapshots: &[String], at: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    for snapshot in snapshots {
        let to = format!("out-{at}/{snapshot}");
        play.larder(["restore", snapshot, "--target", &to]).ok();
        let (base, mut found) = (play.path(format!("out-{at}")), Vec::new());
        files(&play.path(&to), &mut found);
        found.sort();
        all.extend(found.into_iter().map(|path| {
            let bytes = fs::read(&path).expect("a file");
            (path.strip_prefix(&base).expect("below it").to_owned(), bytes)
        }));
    }
    all
}

/// A worker reads recipes and copies chunks, while the pass stands still.
fn until_both(play: &Play, pass: &Child) {
    until(play, "/done/mark/");
    signal(pass, "-CONT");
    until(play, "/range/copy/");
    signal(pass, "-STOP");
    until(play, "/done/copy/");
    signal(pass, "-CONT");
}

/// A slow pass, a slow worker that is killed while it reads, and a fast one.
#[test]
fn a_pass_is_shared_with_a_worker_that_may_die() {
    let play = Play::with_repository();
    let snapshots = repository(&play);
    let expected = restored(&play, &snapshots, "before");
    assert_eq!(expected.len() as u64, 2 * SERIES);
    let copied = Command::new("cp").arg("-r").args([play.path("repository"), play.path("copy")]).status();
    assert!(copied.expect("cp runs").success());

    let start = |line: &[&str]| play.spawn(&mut play.command(line));
    let mut killed = Killed(vec![start(&["fleet", "work", "--limit-download", "10KiB"])]);
    let pass = ["optimize", "--task", "exact", "--json"];
    let shared = start(&[&pass[..], &SHARING[..]].concat());
    until(&play, "/claim/");
    // So some are left for the second worker.
    until(&play, "/range/mark/0/3");
    signal(&killed.0[0], "-KILL");
    // Or it would do everything before the second worker has begun.
    signal(&shared, "-STOP");
    killed.0.push(start(&["fleet", "work", "--json"]));
    until_both(&play, &shared);
    let ran = ended(shared).ok();
    let shared = summary(&ran);
    let helper = killed.0.pop().expect("the second worker");
    signal(&helper, "-INT");
    let helper = ended(helper);
    let mut bytes = 0;
    for copied in helper.messages("fleet_copied") {
        schema::check("fleet_copied", &copied);
        bytes += copied["bytes_copied"].as_u64().expect("a number");
    }
    let of = &shared["shared"];
    let by_workers = of["bytes_copied_by_workers"].as_u64().expect("a number");
    assert!(by_workers > 0 && of["worker_was_wrong"] == false, "{shared} {} {}", ran.stderr, helper.stderr);
    assert!(of["segments_read_by_workers"].as_u64() > Some(0), "{shared} {} {}", ran.stderr, helper.stderr);
    assert!(by_workers <= bytes || bytes == 0, "{by_workers} of {bytes}: {}", helper.stderr);
    assert_eq!(restored(&play, &snapshots, "after"), expected);
    play.larder(["check", "--read-data"]).ok();

    // The same by one process, on a copy from before.
    let alone = play.larder([&["--repo", "copy"], &pass[..], &["--accept-state"]].concat()).ok();
    let alone = summary(&alone);
    assert!(alone["reclaimed"]["copied_chunks"].as_u64().expect("a number") > 50, "{alone}");
    assert_eq!((reclaimed(&shared), &alone["shared"]), (reclaimed(&alone), &Value::Null), "{}", ran.stderr);

    // A worker that is interrupted right after its claim leaves it. All else went with the pass.
    let left = || {
        let mut found = Vec::new();
        if play.path("repository/fleet").is_dir() {
            files(&play.path("repository/fleet"), &mut found);
        }
        found
    };
    assert!(left().iter().all(|path| path.to_string_lossy().contains("/claim/")), "{:?}", left());
    play.larder(["fleet", "clean"]).ok();
    assert_eq!(left(), Vec::<PathBuf>::new());
    play.larder(["optimize", "--workers", "0"]).code(2).says("--workers");
    play.larder(["optimize", "--workers", "2", "--dry-run"]).code(2).says("--workers");
}

/// A snapshot, and a newest one that has every other file of it, and new ones: a rewrite copies three bytes at most for a new one.
fn to_rewrite(play: &Play) -> Vec<String> {
    let mut stay = Vec::new();
    for step in [1, 2] {
        let _ = fs::remove_dir_all(play.path("source"));
        for number in (0..80).step_by(step) {
            play.write(format!("source/{number:02}"), data::random(number, 250 * KIB));
        }
        for number in (80..96).filter(|_| step == 2) {
            play.write(format!("source/{number}"), data::random(number, 250 * KIB));
        }
        stay.push(play.backup(["source", "--series", "s", "--force"]));
    }
    stay
}

/// The rewrite of a newest snapshot, a slow worker that is killed, and a fast one.
#[test]
fn a_rewrite_is_shared_with_a_worker_that_may_die() {
    let play = Play::with_repository();
    let snapshots = to_rewrite(&play);
    let expected = restored(&play, &snapshots, "before");
    assert_eq!(expected.len(), 80 + 40 + 16);
    let copied = Command::new("cp").arg("-r").args([play.path("repository"), play.path("copy")]).status();
    assert!(copied.expect("cp runs").success());

    let start = |line: &[&str]| play.spawn(&mut play.command(line));
    let mut killed = Killed(vec![start(&["fleet", "work", "--limit-download", "10KiB"])]);
    let rewrite = ["optimize", "--task", "defragment", "--max-unused", "0", "--json"];
    let shared = start(&[&rewrite[..], &SHARING[..]].concat());
    // Several tasks, so that one is left for the second worker.
    until(&play, "/range/copy/0/1");
    until(&play, "/claim/");
    signal(&killed.0[0], "-KILL");
    signal(&shared, "-STOP");
    killed.0.push(start(&["fleet", "work"]));
    until(&play, "/done/copy/");
    signal(&shared, "-CONT");
    let ran = ended(shared).ok();
    let shared = summary(&ran);
    let of = &shared["shared"];
    assert!(
        of["bytes_copied_by_workers"].as_u64() > Some(0) && of["worker_was_wrong"] == false,
        "{shared} {}",
        ran.stderr
    );
    assert_eq!(restored(&play, &snapshots, "after"), expected);
    play.larder(["check", "--read-data"]).ok();

    // The same by one process, on a copy from before.
    let alone = summary(&play.larder([&["--repo", "copy"], &rewrite[..], &["--accept-state"]].concat()).ok());
    let rewritten =
        |summary: &Value| ["snapshots", "bytes", "shared_bytes"].map(|key| summary["defragmented"][key].clone());
    assert!(alone["defragmented"]["bytes"].as_u64() > Some(9_000_000), "{alone}");
    assert_eq!(rewritten(&shared), rewritten(&alone), "{}", ran.stderr);
}

/// A worker that NATS wakes, and whose server dies while it copies. Another worker is stopped with a claim, and goes on when the
/// pass is over.
#[test]
fn workers_of_a_pass_may_lose_nats_and_may_be_late() {
    let play = Play::with_repository();
    let Some(mut server) = Server::start(&play, &["-js"]) else { return };
    let snapshots = repository(&play);
    let expected = restored(&play, &snapshots, "before");
    let start = |line: &[&str]| play.spawn(&mut play.command(line));
    let mut killed = Killed(vec![start(&["fleet", "work", "--json", "--limit-download", "10KiB"])]);
    let pass = start(&[&["optimize", "--task", "exact", "--json"][..], &SHARING[..]].concat());
    until(&play, "/claim/");
    let status = play.larder(["fleet", "status", "--json"]).ok().json();
    let status = status.as_array().and_then(|all| all.first()).cloned().expect("the pass");
    schema::check("fleet_shared", &status);
    assert_eq!((&status["of"], &status["open"]), (&Value::from("pass"), &Value::from(true)), "{status}");
    assert!(play.larder(["fleet", "status"]).ok().text().starts_with("pass "));
    until(&play, "/range/mark/0/3");
    signal(&killed.0[0], "-STOP");
    signal(&pass, "-STOP");
    killed.0.push(start(&["fleet", "work", "--json", "--queue", &server.address()]));
    until_both(&play, &pass);
    server.kill();
    let ran = ended(pass).ok();
    let summary = summary(&ran);
    let of = &summary["shared"];
    assert!(of["worker_was_wrong"] == false && of["tasks_of_workers"].as_u64() > Some(0), "{summary} {}", ran.stderr);
    // The one that stood still writes what it had begun to write. Nobody names it.
    signal(&killed.0[0], "-CONT");
    assert_eq!(restored(&play, &snapshots, "after"), expected);
    for worker in std::mem::take(&mut killed.0) {
        signal(&worker, "-INT");
        ended(worker);
    }
    play.larder(["optimize", "--task", "exact"]).ok();
    play.larder(["check", "--read-data"]).ok();
    assert_eq!(restored(&play, &snapshots, "later"), expected);
}
