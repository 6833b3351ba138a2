//! Checks that are shared with workers: processes of their own, one of which is killed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use larder_testkit::data;
use serde_json::Value;

use crate::fleet::{KIB, signal, until};
use crate::support::{Play, Ran, schema};

/// How long a process may take, at most.
const MOST: Duration = Duration::from_secs(120);

/// Waits for the end of a process. It is killed after [`MOST`].
pub(crate) fn ended(child: Child) -> Ran {
    let id = child.id();
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || tell.send(child.wait_with_output()));
    if let Ok(output) = told.recv_timeout(MOST) {
        return Ran::from(output.expect("it can be waited for"));
    }
    let _ = std::process::Command::new("kill").args(["-KILL", &id.to_string()]).status();
    panic!("process {id} did not end in {MOST:?}");
}

/// All files below a folder.
pub(crate) fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() { files(&path, found) } else { found.push(path) }
    }
}

/// What does not depend on who read.
fn findings(ran: &Ran) -> Value {
    let mut summary = ran.messages("summary").pop().expect("a summary");
    schema::check("check_summary", &summary);
    let keys = summary.as_object_mut().expect("an object");
    keys.retain(|key, _| {
        let is_of_run = key.starts_with("requests") || key.starts_with("bytes_up") || key.starts_with("bytes_down");
        !is_of_run && !key.contains("workers") && key != "total_duration" && key != "retries"
    });
    summary
}

/// Workers that still run when a test fails.
pub(crate) struct Killed(pub(crate) Vec<Child>);

impl Drop for Killed {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A repository with damage, a slow process that makes the check, a slow worker that is killed while it reads, and a fast one.
#[test]
fn a_check_is_shared_with_a_worker_that_may_die() {
    let play = Play::with_repository();
    for number in 0..6 {
        play.write("source/file", data::random(number, 300 * KIB));
        let series = format!("s{number}");
        play.larder(["backup", "source", "--series", &series, "--no-similar", "--force"]).ok();
    }
    let mut containers = Vec::new();
    files(&play.path("repository/data"), &mut containers);
    containers.sort();
    let mut bytes = fs::read(&containers[1]).expect("a container");
    bytes[1000] ^= 1;
    fs::remove_file(&containers[1]).expect("removed");
    fs::write(&containers[1], bytes).expect("written");
    let alone = play.larder(["check", "--read-data", "--json"]).code(13);
    let start = |line: &[&str]| play.spawn(&mut play.command(line));
    let mut killed = Killed(vec![start(&["fleet", "work", "--limit-download", "20KiB"])]);
    let line =
        ["check", "--read-data", "--workers", "2", "--claim-timeout", "1s", "--limit-download", "250KiB", "--json"];
    let check = start(&line);
    // Both give signs of life.
    until(&play, "/beat/");
    let beating = || {
        let mut found = Vec::new();
        files(&play.path("repository/fleet"), &mut found);
        let of =
            |path: &PathBuf| path.parent().filter(|path| path.to_string_lossy().contains("/beat/")).map(Path::to_owned);
        found.iter().filter_map(of).collect::<std::collections::BTreeSet<_>>().len()
    };
    for _ in 0..1000 {
        if beating() > 1 {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(beating() > 1, "the worker did not come");
    signal(&killed.0[0], "-KILL");
    killed.0.push(start(&["fleet", "work", "--json"]));
    let shared = ended(check).code(13);
    assert_eq!(findings(&shared), findings(&alone), "{}", shared.stderr);
    let helper = killed.0.pop().expect("the second worker");
    signal(&helper, "-INT");
    let helper = ended(helper);
    schema::kinds_come_first(&helper.text());
    let mut read = 0;
    for answer in helper.messages("fleet_checked") {
        schema::check("fleet_checked", &answer);
        read += answer["containers_read"].as_u64().expect("a number");
    }
    let summary = shared.messages("summary").pop().expect("a summary");
    let by_workers = summary["containers_read_by_workers"].as_u64().expect("a number");
    assert!(by_workers > 0 && by_workers <= read, "{by_workers} of {read}: {}", helper.stderr);
    // Nothing of it is left but what the killed one may have written last.
    play.larder(["check", "--workers", "2"]).code(2).says("--read-data");
    play.larder(["check", "--read-data", "--workers", "0"]).code(2).says("--workers");
    play.larder(["key", "add", "--role", "backup", "--domain", "host", "--file", "host.key"]).ok();
    play.larder(["--key-file", "host.key", "fleet", "work"]).code(12).says("reading for checks");
}
