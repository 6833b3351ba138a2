//! The memory of the process: no other program of its user may read it, and nothing breaks because of that.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::support::{Play, run, tree};

fn jobs(play: &Play) -> usize {
    play.objects().iter().filter(|(name, _)| name.starts_with("jobs/")).count()
}

/// The kernel gives the entries of a process to root when nobody else may look into it.
#[test]
fn a_running_process_is_closed_to_others_of_its_user() {
    let limit = getrlimit(Resource::Core);
    setrlimit(Resource::Core, Rlimit { current: limit.maximum, ..limit }).expect("raised");
    let play = Play::with_repository();
    std::fs::create_dir(play.path("back")).expect("made");
    play.open_to_all(".");
    for allows_dumps in [false, true] {
        let before = jobs(&play);
        let mut command = play.unprivileged(["backup", "--stdin", "--stdin-filename", "f", "--series", "s"]);
        if allows_dumps {
            command.env("LARDER_CORE_DUMPS", "1");
        }
        let mut child = play.spawn(command.stdin(Stdio::piped()));
        // It has the keys by then.
        for _ in 0..600 {
            if jobs(&play) > before {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        assert!(jobs(&play) > before, "no job announced itself");
        let entries = format!("/proc/{}", child.id());
        let environment = std::fs::metadata(format!("{entries}/environ")).expect("it runs");
        assert_eq!(environment.uid() != 0, allows_dumps);
        let limits = std::fs::read_to_string(format!("{entries}/limits")).expect("it runs");
        let core = limits.lines().find(|line| line.starts_with("Max core file size")).expect("listed");
        let soft = core.split_whitespace().nth(4).expect("a column");
        assert_eq!(soft != "0", allows_dumps && limit.maximum != Some(0), "{core}");
        let content = tree::noise(u64::from(allows_dumps), 3_000_000);
        child.stdin.take().expect("a pipe").write_all(&content).expect("taken");
        assert!(child.wait().expect("it ends").success());
        // Files of the repository and of the restore are created by way of /proc/self/fd.
        let target = format!("back/{allows_dumps}");
        run(&mut play.unprivileged(["restore", "latest", "--series", "s", "--target", &target])).ok();
        assert_eq!(std::fs::read(play.path(&target).join("f")).expect("restored"), content);
    }
}

#[test]
fn no_lockable_memory_is_no_error() {
    let play = Play::with_repository();
    play.write("source/file", "content");
    play.open_to_all(".");
    run(&mut play.limited("--memlock=0", ["backup", "source"])).ok();
    run(&mut play.limited("--memlock=0", ["check", "--read-data"])).ok();
}
