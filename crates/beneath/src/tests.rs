//! Both ways of resolving open the same things and refuse the same things.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use super::*;

const FILE: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

fn both() -> [Resolver; 2] {
    [Resolver::default(), Resolver::by_component()]
}

fn read(file: OwnedFd) -> String {
    let mut text = String::new();
    File::from(file).read_to_string(&mut text).expect("read");
    text
}

/// `root` with files, folders and links, and `outside` beside it.
fn scene() -> (tempfile::TempDir, File) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let root = dir.path().join("root");
    fs::create_dir_all(root.join("real/below")).expect("made");
    fs::create_dir_all(dir.path().join("outside/below")).expect("made");
    fs::write(root.join("real/file"), "inside").expect("made");
    fs::write(dir.path().join("outside/file"), "outside").expect("made");
    symlink("real", root.join("inner")).expect("made");
    symlink("../outside", root.join("outer")).expect("made");
    symlink("/", root.join("absolute")).expect("made");
    symlink("loop", root.join("loop")).expect("made");
    let root = File::open(root).expect("opens");
    (dir, root)
}

#[test]
fn pieces_join_to_the_path_and_fit() {
    let long = ["component"; 1000].join("/");
    let mut rest = long.as_bytes();
    let mut joined = Vec::new();
    while !rest.is_empty() {
        let (piece, after) = first_piece(rest);
        assert!(piece.len() <= PIECE_BYTES && !piece.starts_with(b"/") && !piece.ends_with(b"/"));
        joined.push(piece);
        rest = after;
    }
    assert_eq!(joined.join(&b'/'), long.as_bytes());
    assert!(joined.len() > 2);
}

#[test]
fn files_and_folders_below_are_opened_and_links_are_not() {
    let (_dir, root) = scene();
    for resolver in both() {
        assert_eq!(read(resolver.open(&root, b"real/file", FILE).expect("opens")), "inside");
        resolver.open(&root, b"real/below", FOLDER).expect("opens");
        for path in ["inner/file", "outer/file", "outer/below", "absolute/tmp", "loop", "loop/x", "inner", "outer"] {
            for flags in [FILE, FOLDER] {
                assert_eq!(resolver.open(&root, path.as_bytes(), flags).expect_err(path), Errno::LOOP, "{path}");
            }
        }
        for path in ["real/file/x", "real/file/x/y"] {
            assert_eq!(resolver.open(&root, path.as_bytes(), FILE).expect_err(path), Errno::NOTDIR);
        }
        assert_eq!(resolver.open(&root, b"real/file", FOLDER).expect_err("a file"), Errno::NOTDIR);
        assert_eq!(resolver.open(&root, b"real/absent/x", FILE).expect_err("absent"), Errno::NOENT);
    }
}

#[test]
fn no_way_leads_up() {
    let (_dir, root) = scene();
    for resolver in both() {
        for path in ["..", "../outside/file", "real/../../outside/file"] {
            assert_eq!(resolver.open(&root, path.as_bytes(), FILE).expect_err(path), Errno::XDEV);
        }
    }
}

#[test]
fn paths_longer_than_the_kernel_takes_are_opened() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let name = "n".repeat(250);
    let mut at: OwnedFd = File::open(dir.path()).expect("opens").into();
    for _ in 0..40 {
        rustix::fs::mkdirat(&at, &*name, Mode::RWXU).expect("made");
        at = open_child(&at, name.as_bytes(), FOLDER).expect("opens");
    }
    let wanted = rustix::fs::fstat(&at).expect("stat").st_ino;
    let root = File::open(dir.path()).expect("opens");
    for resolver in both() {
        let found = resolver.open(&root, vec![&*name; 40].join("/").as_bytes(), FOLDER).expect("opens");
        assert_eq!(rustix::fs::fstat(&found).expect("stat").st_ino, wanted);
    }
}

/// A folder is swapped for a link to the outside again and again while files are opened through it.
#[test]
fn a_raced_swap_never_leads_out() {
    let (dir, root) = scene();
    let at = |name: &str| dir.path().join("root").join(name);
    let (real, away) = (at("real"), at("away"));
    let swap = move |outside: &Path| {
        fs::rename(&real, &away).expect("moved");
        symlink(outside, &real).expect("linked");
        fs::remove_file(&real).expect("removed");
        fs::rename(&away, &real).expect("moved back");
    };
    let is_over = Arc::new(AtomicBool::new(false));
    let swapping = std::thread::spawn({
        let (is_over, outside) = (is_over.clone(), dir.path().join("outside"));
        move || {
            while !is_over.load(Ordering::Relaxed) {
                swap(&outside);
            }
        }
    });
    for resolver in both() {
        for _ in 0..20_000 {
            match resolver.open(&root, b"real/file", FILE) {
                Ok(file) => assert_eq!(read(file), "inside"),
                Err(errno) => {
                    assert!(matches!(errno, Errno::LOOP | Errno::NOENT | Errno::NOTDIR | Errno::AGAIN), "{errno}");
                }
            }
        }
    }
    is_over.store(true, Ordering::Relaxed);
    swapping.join().expect("no panic");
    // Between two swaps it is the folder. On a busy machine no open may have met that.
    for resolver in both() {
        assert_eq!(read(resolver.open(&root, b"real/file", FILE).expect("nobody swaps it now")), "inside");
    }
}
