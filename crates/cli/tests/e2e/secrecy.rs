//! The memory of the process: no other program of its user may read it, and nothing breaks because of that.

use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::support::{Play, run, tree};

/// Bytes of the largest resident memory of a process so far.
fn peak(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("listed");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

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

/// A key with the usual costs takes 64 MiB, and not in the process that lives on.
#[test]
fn a_password_is_stretched_in_another_process() {
    let play = Play::new();
    play.larder(["init"]).ok();
    let before = jobs(&play);
    let mut command = play.command(["backup", "--stdin", "--stdin-filename", "f", "--series", "s"]);
    let mut child = play.spawn(command.stdin(Stdio::piped()));
    for _ in 0..600 {
        if jobs(&play) > before {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(jobs(&play) > before, "no job announced itself");
    let peak = peak(child.id());
    assert!(peak < 64 << 20, "{peak}");
    drop(child.stdin.take());
    assert!(child.wait().expect("it ends").success());
}

/// The key that a child derived opens without one.
#[test]
fn without_proc_a_password_is_stretched_in_place() {
    let play = Play::new();
    play.larder(["init"]).ok();
    let larder = env!("CARGO_BIN_EXE_larder");
    let script = format!("mount -t tmpfs none /proc && exec {larder} snapshots");
    let mut command = play.command_of(Path::new("unshare"), ["--mount", "sh", "-c", &script]);
    let ended = command.output().expect("unshare runs");
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    if !rustix::process::geteuid().is_root() || said.contains("unshare") || said.contains("mount:") {
        eprintln!("skipped: no mount namespace here: {said}");
        return;
    }
    assert!(ended.status.success(), "{said}");
}

/// Files that somebody left open, and variables, are not the child's.
#[test]
fn the_process_for_passwords_has_nothing_but_its_pipes() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root sees the open files of such a process");
        return;
    }
    let larder = env!("CARGO_BIN_EXE_larder");
    let script = format!("exec {larder} __stretch-password 7</dev/zero 9</etc/passwd");
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("sh runs");
    let open = || {
        let entries = std::fs::read_dir(format!("/proc/{}/fd", child.id())).expect("it runs");
        let mut names: Vec<_> =
            entries.flatten().map(|entry| entry.file_name().into_string().expect("a number")).collect();
        names.sort();
        names
    };
    let is_larder =
        || std::fs::read_link(format!("/proc/{}/exe", child.id())).is_ok_and(|exe| exe == Path::new(larder));
    for _ in 0..600 {
        if is_larder() && open() == ["0", "1", "2"] {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(is_larder());
    assert_eq!(open(), ["0", "1", "2"]);
    // One lane, one pass, 32 KiB, a salt of zeros, and a password.
    let request = [&32_u32.to_le_bytes()[..], &1_u32.to_le_bytes(), &1_u32.to_le_bytes(), &[0; 32], b"secret"].concat();
    child.stdin.take().expect("a pipe").write_all(&request).expect("taken");
    let mut answer = Vec::new();
    child.stdout.take().expect("a pipe").read_to_end(&mut answer).expect("read");
    assert!(child.wait().expect("it ends").success());
    assert_eq!((answer[0], answer.len()), (b'r', 33));
}

/// The most that a backup with these options took.
fn peak_of(play: &Play, series: &str, options: &[&str], content: Option<&[u8]>) -> u64 {
    let total = if options.contains(&"--threads") { "47M" } else { "35M" };
    let args = [&["backup", "--json", "--total-memory", total, "--no-similar", "--series", series], options].concat();
    let ran = match content {
        Some(content) => play.larder_with_stdin(args, content),
        None => play.larder(args),
    };
    let summary = ran.ok().json_lines().into_iter().find(|line| line["message_type"] == "summary").expect("a summary");
    summary["memory_bytes"].as_u64().expect("a number")
}

/// A file with pages of noise in some places. All else is equal, so no content ends a segment of its recipe, and segments are
/// as long as they may be.
fn with_long_segments(day: u64) -> Vec<u8> {
    let mut content = vec![7; 60_000_000];
    for place in (1 << 20..content.len()).step_by(5 << 20) {
        content[place..place + 4096].copy_from_slice(&tree::noise(day + place as u64, 4096));
    }
    content
}

/// The text of a program for tests is three times as large as that of a release, so the bounds are not that of the option.
#[test]
fn a_process_can_be_kept_small() {
    let play = Play::with_repository();
    let stream = ["--stdin", "--stdin-filename", "f"];
    let noise = peak_of(&play, "noise", &stream, Some(&tree::noise(1, 40_000_000)));
    assert!(noise < 58 << 20, "{noise}");
    std::fs::create_dir(play.path("tree")).expect("made");
    for day in 0..2 {
        let content = with_long_segments(day);
        std::fs::write(play.path("tree/file"), &content).expect("written");
        std::fs::write(play.path("image"), &content).expect("written");
        let peaks = [
            peak_of(&play, "stream", &stream, Some(&content)),
            peak_of(&play, "file", &["tree"], None),
            peak_of(&play, "image", &["--image", "image"], None),
            peak_of(&play, "threads", &["--threads", "2", "--image", "image"], None) - (12 << 20),
        ];
        assert!(peaks.iter().all(|peak| *peak < 46 << 20), "{peaks:?}");
    }
    play.larder(["check", "--read-data"]).ok();
    let refused = play.larder(["backup", "--stdin", "--total-memory", "20M"]).code(2);
    refused.says("containers 9.0 MiB").says("compression");
    let refused = play.larder(["backup", "--stdin", "--total-memory", "40M", "--threads", "2"]).code(2);
    refused.says("with 2 threads").says("containers 13.0 MiB");
    play.larder(["series", "set", "l", "--layout", "lifecycle"]).ok();
    let small = ["backup", "--stdin", "--series", "l", "--total-memory", "35M"];
    play.larder_with_stdin(small, b"content").says("lifecycle");
}
