//! `mount` of a repository that is far away: a bucket whose every answer takes a while.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::support::mounting::{Mounting, can_mount};
use crate::support::server::{Bucket, Trips};
use crate::support::{Play, tree};

const LATENCY: Duration = Duration::from_millis(30);

/// A tree in a bucket: a thousand small files, and two large ones.
fn backed_up() -> Play {
    let play = Play::new();
    let quick = Bucket::serve(play.path("bucket"), |_, _| None);
    quick.larder(&play, ["init", "--insecure-kdf"]).ok();
    tree::odd(&play.path("source/odd"));
    for number in 0..1000 {
        let name = format!("source/small/{}/{number}", number % 40);
        play.write(name, tree::noise(number, 500 + number as usize * 7 % 3000));
    }
    for (name, seed) in [("a", 1), ("b", 2)] {
        play.write(format!("source/large/{name}"), tree::noise(seed, 8_000_000));
    }
    quick.larder(&play, ["backup", "source"]).ok();
    play
}

fn mount(play: &Play, bucket: &Bucket) -> Mounting {
    let latest = play.latest_of("source");
    Mounting::by(play, bucket.command(play, ["mount", "--json", "mnt", "--no-cache", "--snapshot", &latest]))
}

#[track_caller]
fn shell(at: &Path, script: &str) -> String {
    let ran = Command::new("sh").arg("-ec").arg(script).current_dir(at).output().expect("sh runs");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8_lossy(&ran.stdout).into_owned()
}

/// Goal: a walk and a copy are right, and ask the storage as seldom as a restore does: facts come by whole blocks, contents by
/// whole containers, read ahead from file to file.
#[test]
fn walks_and_copies_ask_seldom() {
    if !can_mount() {
        return;
    }
    let play = backed_up();
    let (bucket, _): (Bucket, Trips) = Bucket::serve_slowly(play.path("bucket"), LATENCY);
    bucket.larder(&play, ["restore", &play.latest_of("source"), "--target", "restored", "--no-cache"]).ok();
    let of_restore = bucket.requests();
    let mounting = mount(&play, &bucket);
    let of_start = bucket.requests() - of_restore;
    let list = "find . ! -type d -printf '%P %y %m %s %T@ %l\\n' | LC_ALL=C sort";
    let before = bucket.requests();
    assert!(shell(&mounting.folder, list) == shell(&play.path("source"), list));
    let of_walk = bucket.requests() - before;
    let copy = format!("cp -a . {}", play.path("copy").display());
    shell(&mounting.folder, &copy);
    let of_copy = bucket.requests() - before - of_walk;
    tree::same(&play.path("source"), &play.path("copy"));
    println!("requests: {of_restore} of a restore, {of_start} of a mount, {of_walk} of a walk, {of_copy} of a copy");
    assert!(of_start + of_walk <= 16, "{of_start} requests of a mount and {of_walk} of a walk");
    assert!(of_copy <= 2 * of_restore, "{of_copy} requests, and {of_restore} of a restore");
    mounting.end().ok();
}

/// Goal: reads at random are right, and each piece of data is fetched once: no more requests than frames.
#[test]
fn reads_at_random_ask_once_for_each_frame() {
    if !can_mount() {
        return;
    }
    let play = backed_up();
    let (bucket, _): (Bucket, Trips) = Bucket::serve_slowly(play.path("bucket"), LATENCY);
    let mounting = mount(&play, &bucket);
    let before = bucket.requests();
    let contents = [tree::noise(1, 8_000_000), tree::noise(2, 8_000_000)];
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (contents, mounting) = (&contents, &mounting);
            scope.spawn(move || {
                let files = ["a", "b"].map(|name| File::open(mounting.path(format!("large/{name}"))).expect("there"));
                let mut state = thread + 1;
                for _ in 0..60 {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let number = (state >> 63) as usize;
                    let (file, content) = (&files[number], &contents[number]);
                    let at = (state >> 20) as usize % content.len();
                    let length = ((state >> 40) as usize % 60_000).min(content.len() - at);
                    let mut read = vec![0; length];
                    file.read_exact_at(&mut read, at as u64).expect("read");
                    assert!(read == content[at..at + length], "{number} {at} {length}");
                }
            });
        }
    });
    let asked = bucket.requests() - before;
    println!("{asked} requests for 240 reads at random");
    assert!(asked <= 60, "{asked} requests");
    mounting.end().ok();
}
