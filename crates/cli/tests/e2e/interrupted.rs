//! Runs that are stopped in the middle: nothing that was committed is lost, and the next run works at once.

use std::io::Write;
use std::process::{Child, ChildStdin, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Play, Ran, tree};

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("a pid")).expect("not 0");
    kill_process(pid, signal).expect("it runs");
}

/// A backup of standard input that has uploaded something and waits for more.
fn waiting_backup(play: &Play) -> (Child, ChildStdin) {
    let mut child = play.spawn(play.command(["backup", "--stdin", "--json"]).stdin(Stdio::piped()));
    let mut stdin = child.stdin.take().expect("a pipe");
    let content = tree::noise(11, 40_000_000);
    stdin.write_all(&content).expect("it reads");
    // Something is uploaded once enough has been read.
    for _ in 0..600 {
        let job = crate::support::damage::named(&play.repository(), "data/");
        if !job.is_empty() {
            return (child, stdin);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(child.kill());
    panic!("nothing was uploaded: {:?}", child.wait());
}

fn snapshots(play: &Play) -> usize {
    play.larder(["snapshots", "--json"]).ok().json().as_array().expect("an array").len()
}

#[test]
fn ctrl_c_ends_with_130_and_the_next_run_works() {
    for stop in [Signal::INT, Signal::TERM, Signal::HUP] {
        let play = Play::with_repository();
        let (child, stdin) = waiting_backup(&play);
        signal(&child, stop);
        let ran = Ran::from(child.wait_with_output().expect("it ends")).code(130);
        drop(stdin);
        let errors = ran.errors("exit_error");
        assert_eq!(errors[0]["code"], 130, "{}", ran.stderr);
        assert_eq!(snapshots(&play), 0);
        again(&play);
    }
}

/// Everything is read and cut long before it is uploaded, which would take three quarters of a minute.
#[test]
fn ctrl_c_ends_a_backup_that_only_uploads() {
    let play = Play::with_repository();
    let content = tree::noise(12, 12_000_000);
    std::fs::write(play.path("input"), content).expect("a file");
    let child = play.spawn(&mut play.command(["--limit-upload", "256KiB", "backup", "--json", "input"]));
    std::thread::sleep(Duration::from_secs(3));
    signal(&child, Signal::INT);
    let ran = Ran::from(child.wait_with_output().expect("it ends")).code(130);
    assert_eq!(ran.errors("exit_error")[0]["code"], 130, "{}", ran.stderr);
    assert_eq!(snapshots(&play), 0);
}

/// The same backup once more reuses what was uploaded.
fn again(play: &Play) {
    let content = tree::noise(11, 40_000_000);
    let ran = play.larder_with_stdin(["backup", "--stdin", "--json"], &content).ok();
    let summary = ran.messages("summary").pop().expect("a summary");
    assert_eq!(summary["adopted_jobs"].as_array().expect("an array").len(), 1, "{summary}");
    assert!(summary["data_added"].as_u64() < Some(38_000_000), "uploads are reused: {summary}");
    assert_eq!(play.larder(["dump", "latest:stdin"]).ok().stdout, content);
    play.larder(["check", "--read-data"]).ok();
}

#[test]
fn kill_9_loses_nothing_either() {
    let play = Play::with_repository();
    let (mut child, _stdin) = waiting_backup(&play);
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    assert_eq!(snapshots(&play), 0);
    again(&play);
}

#[test]
fn optimize_tells_the_space_of_a_killed_backup_and_how_to_free_it() {
    let play = Play::with_repository();
    let (mut child, _stdin) = waiting_backup(&play);
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    let told = play.larder(["optimize"]).ok().text();
    assert!(told.contains("has not ended") && told.contains("--dead-after 15m --min-age 0"), "{told}");
    let summary = play.larder(["optimize", "--json"]).ok().json();
    let uploads = &summary["open_uploads"][0];
    assert!(uploads["bytes"].as_u64() > Some(0) && uploads["heartbeat_ms"].as_u64() > Some(0), "{summary}");
    std::thread::sleep(Duration::from_millis(1100));
    let freed = play.larder(["optimize", "--dead-after", "1s", "--min-age", "0"]).ok().text();
    assert!(freed.contains("no heartbeat for"), "{freed}");
    assert_eq!(crate::support::damage::named(&play.repository(), "data/"), Vec::<String>::new());
}

#[test]
fn a_command_that_hangs_is_ended_with_the_backup() {
    let play = Play::with_repository();
    let script = "echo begun; touch started; exec sleep 1000";
    let child = play.spawn(&mut play.command(["backup", "--stdin-from-command", "--", "sh", "-c", script]));
    for _ in 0..600 {
        if play.path("started").exists() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    signal(&child, Signal::INT);
    Ran::from(child.wait_with_output().expect("it ends")).code(130);
    assert_eq!(snapshots(&play), 0);
}

#[test]
fn without_a_job_a_signal_ends_at_once() {
    let play = Play::with_repository();
    // A command for the password that never ends keeps it waiting before any job.
    let mut command = play.command(["snapshots", "--password-command", "touch started; exec sleep 1000"]);
    let child = play.spawn(command.env_remove("LARDER_PASSWORD"));
    for _ in 0..600 {
        if play.path("started").exists() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    signal(&child, Signal::TERM);
    let mut child = child;
    drop((child.stdout.take(), child.stderr.take()));
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
}

#[test]
fn an_interrupted_restore_continues() {
    let play = Play::with_repository();
    for number in 0..40 {
        play.write(format!("source/{number}"), tree::noise(number, 500_000));
    }
    play.backup(["source"]);
    let root = format!("latest:{}", play.path("source").display());
    let child = play.spawn(&mut play.command(["restore", &root, "--target", "back", "--limit-download", "4M"]));
    for _ in 0..600 {
        if std::fs::read_dir(play.path("back")).is_ok_and(|mut found| found.next().is_some()) {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    signal(&child, Signal::INT);
    let ran = Ran::from(child.wait_with_output().expect("it ends"));
    assert!(matches!(ran.code, 0 | 130), "{}: {}", ran.code, ran.stderr);
    play.larder(["restore", &root, "--target", "back", "--verify"]).ok();
    tree::same(&play.path("source"), &play.path("back"));
}

#[test]
fn an_interrupted_dump_leaves_no_half_file() {
    let play = Play::with_repository();
    play.write("large", tree::noise(2, 30_000_000));
    play.backup(["large"]);
    let reference = format!("latest:{}", play.path("large").display());
    let mut command = play.command(["dump", &reference, "--target", "out", "--limit-download", "4M"]);
    let child = play.spawn(&mut command);
    let parts = || {
        let names = std::fs::read_dir(play.path("")).expect("there").map(|entry| entry.expect("one").file_name());
        names.filter(|name| name.to_string_lossy().starts_with("out")).collect::<Vec<_>>()
    };
    for _ in 0..600 {
        if !parts().is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    signal(&child, Signal::INT);
    Ran::from(child.wait_with_output().expect("it ends")).code(130);
    assert_eq!(parts(), Vec::<std::ffi::OsString>::new());
}
