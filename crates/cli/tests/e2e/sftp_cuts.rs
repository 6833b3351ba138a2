//! A server of SFTP that is lost at one request, for requests all over a backup, a `forget` and a pass.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Play, Ran, tree};

const LARDER: &str = env!("CARGO_BIN_EXE_larder");
/// Places of a cut that are tried, unless `LARDER_SFTP_CUTS` says another number.
const CUTS: usize = 8;

/// What is done meanwhile.
const WORK: [&[&str]; 2] = [&["backup", "source"], &["forget", "--keep-last", "1", "--prune", "--min-age", "0s"]];

/// Passes the packets of a client to a server, and counts those of all its sessions in a file. At one of them the server is killed:
/// before it gets the packet, or when it has dealt with it, without an answer. From then on there is no server.
const PROXY: &str = r#"
import fcntl, os, subprocess, sys, threading, time
count, cut, when, *server = sys.argv[1:]
def packet(): # its number
    with open(count, "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        number = int(file.read() or 0) + 1
        file.seek(0)
        file.write(str(number))
    return number
cut = int(cut)
if cut and int(open(count).read() or 0) >= cut:
    sys.exit(1)
child = subprocess.Popen(server, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
stopped = threading.Event()
def answers():
    while data := os.read(child.stdout.fileno(), 1 << 16):
        if not stopped.is_set():
            os.write(1, data)
    os._exit(0)
threading.Thread(target=answers, daemon=True).start()
def end():
    child.kill()
    os._exit(1)
def exactly(length):
    data = b""
    while len(data) < length:
        more = os.read(0, length - len(data))
        if not more:
            child.stdin.close()
            child.wait()
            time.sleep(1)
            os._exit(0)
        data += more
    return data
while True:
    head = exactly(4)
    body = exactly(int.from_bytes(head, "big"))
    number = packet()
    if cut and number >= cut:
        if number > cut or when == "before":
            end()
        stopped.set()
    child.stdin.write(head + body)
    if stopped.is_set():
        time.sleep(0.05)
        end()
"#;

/// A folder of a server that holds a repository with one snapshot.
struct Server<'a> {
    play: &'a Play,
    folder: PathBuf,
}

impl Server<'_> {
    /// Runs a command with the server cut at a packet. 0: never.
    fn cut(&self, cut: usize, when: &str, args: &[&str]) -> Ran {
        let (proxy, count) = (self.play.path("proxy.py"), self.play.path("count"));
        let command = format!(
            "sftp.command=python3 {} {} {cut} {when} {LARDER} serve-sftp {}",
            proxy.display(),
            count.display(),
            self.folder.display()
        );
        // A server that is gone does not come back.
        let timeout = if cut == 0 { "60" } else { "1" };
        self.play.larder(
            [args, &["-r", "sftp:nas:/web1", "--timeout", timeout, "--no-state", "--no-cache", "-o", &command]]
                .concat(),
        )
    }

    fn larder(&self, args: &[&str]) -> Ran {
        let folder = self.folder.join("web1").display().to_string();
        self.play.larder([args, &["-r", &folder, "--no-state"]].concat())
    }

    /// Does the work with the server cut at a packet. The rest is not run when a command fails.
    fn work(&self, cut: usize, when: &str) -> bool {
        WORK.iter().all(|args| self.cut(cut, when, args).code == 0)
    }

    /// Does the work without a cut.
    #[track_caller]
    fn work_whole(&self) {
        WORK.iter().for_each(|args| drop(self.cut(0, "never", args).ok()));
    }

    fn snapshots(&self) -> usize {
        self.larder(&["snapshots", "--json"]).ok().json().as_array().map_or(0, Vec::len)
    }
}

fn copied(from: &Path, to: &Path) {
    drop(fs::remove_dir_all(to));
    assert!(Command::new("cp").arg("-a").args([from, to]).status().expect("cp runs").success());
}

/// Goal: at no request the loss of the server loses a snapshot, or leaves something that a later run cannot go on from.
#[test]
fn a_server_that_is_lost_at_any_request_loses_nothing() {
    let play = Play::new();
    play.write("proxy.py", PROXY);
    let server = Server { play: &play, folder: play.path("served") };
    fs::create_dir_all(&server.folder).expect("created");
    tree::odd(&play.path("source"));
    server.larder(&["init", "--insecure-kdf"]).ok();
    server.larder(&["backup", "source"]).ok();
    play.write("source/more", tree::noise(3, 900_000));
    play.settle();
    let source = play.path("source");
    copied(&server.folder, &play.path("first"));

    play.write("count", "");
    server.work_whole();
    let all: usize = fs::read_to_string(play.path("count")).expect("there").parse().expect("a number");
    assert!(all > 100 && server.snapshots() == 1, "{all} packets");
    let wanted = std::env::var("LARDER_SFTP_CUTS").ok().and_then(|text| text.parse().ok()).unwrap_or(CUTS).max(1);
    let step = (all / wanted).max(1);
    let mut unfinished = 0;
    for (number, cut) in (1..=all).step_by(step).enumerate() {
        let when = ["before", "after"][number % 2];
        let at = format!("cut {when} packet {cut} of {all}");
        copied(&play.path("first"), &server.folder);
        play.write("count", "");
        unfinished += usize::from(!server.work(cut, when));
        // What was committed is whole.
        server.larder(&["check", "--read-data"]).ok();
        let left = server.snapshots();
        assert!((1..=2).contains(&left), "{at}: {left} snapshots");
        // The next run goes on.
        println!("{at}");
        server.work_whole();
        assert_eq!(server.snapshots(), 1, "{at}");
        let back = play.path("back");
        drop(fs::remove_dir_all(&back));
        server.larder(&["restore", "latest", "--target", "back"]).ok();
        tree::same(&source, &back.join(source.strip_prefix("/").expect("absolute")));
        server.larder(&["check", "--read-data"]).ok();
    }
    println!("{all} packets, {unfinished} of {} runs were cut", all.div_ceil(step));
    assert!(unfinished * 10 > all.div_ceil(step) * 9, "{unfinished} were cut");
}
