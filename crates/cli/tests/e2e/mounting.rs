//! `mount`: snapshots as folders, against the files that were backed up. Needs root and `/dev/fuse`; else the tests do nothing.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::fs::SeekFrom;
use rustix::process::Signal;

use crate::support::mounting::{Mounting, can_mount, is_mounted, until};
use crate::support::{Play, damage, tree};

/// Output of a command that must succeed.
#[track_caller]
fn output(command: &mut Command) -> String {
    let ran = command.output().expect("it is installed");
    let text = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success(), "{text}{}", String::from_utf8_lossy(&ran.stderr));
    text
}

#[track_caller]
fn shell(at: &Path, script: &str) -> String {
    output(Command::new("sh").arg("-ec").arg(script).current_dir(at))
}

/// One of everything that root can make.
fn everything(play: &Play) {
    tree::odd(&play.path("source"));
    let script = "mkfifo pipe; mknod zero c 1 5; mknod loop b 7 0x103; mkdir -m 1777 sticky; chown 1234:4321 'not '*
        setfattr -n user.color -v blue folder/text; setfattr -n user.color -v red folder
        setfattr -n trusted.secret -v 0x0001ff plain.txt
        setfacl -m u:1234:r,g:5678:rwx folder/text; setfacl -d -m u:99:rx folder
        ln zero 'zero too'; mkdir -p links; ln folder/large links/1; ln folder/large links/2
        touch -d '1931-05-06 07:08:09.25 UTC' folder/text; touch -h -d '2001-02-03 UTC' link
        mkdir many; cd many; seq -f 'n%g' 1 3000 | xargs touch; mkdir -p a/b/c n5.d; echo x > n5.d/x; echo y > a/b/c/y";
    shell(&play.path("source"), script);
}

#[test]
fn all_entries_are_as_they_were() {
    if !can_mount() {
        return;
    }
    let play = Play::with_repository();
    everything(&play);
    play.backup(["source"]);
    let Some(mounting) = Mounting::of(&play, &["--snapshot", &play.latest_of("source")]) else { return };
    let (source, shown) = (play.path("source"), mounting.folder.clone());
    let of = |path: &Path| format!("{}/", path.display());
    let differences = output(Command::new("rsync").args(["-aHAXnc", "--delete", "-i"]).args([of(&source), of(&shown)]));
    assert_eq!(differences, "");
    tree::same(&source, &shown);
    for script in [
        "getfattr -R -h -d -m- -e hex .",
        "getfacl -R -n .",
        "find . ! -type d -printf '%P %y %m %U %G %s %n %T@ %l\\n'",
    ] {
        let sorted = |at: &Path| shell(at, &format!("LC_ALL=C {script} | LC_ALL=C sort"));
        assert_eq!(sorted(&source), sorted(&shown), "{script}");
    }
    // A program that looks at numbers finds the names of a file.
    let numbers =
        ["folder/large", "links/1", "links/2"].map(|name| mounting.path(name).metadata().expect("there").ino());
    assert_eq!(BTreeSet::from(numbers).len(), 1);
    // Holes take no space, and programs find them.
    let sparse = File::open(mounting.path("sparse")).expect("there");
    assert!(sparse.metadata().expect("there").blocks() * 512 < 1_000_000);
    let data = rustix::fs::seek(&sparse, SeekFrom::Data(0)).expect("data");
    assert!((1..=2_500_000).contains(&data));
    assert!(rustix::fs::seek(&sparse, SeekFrom::Hole(2_500_000)).expect("a hole") < 5_000_000);
    assert!(rustix::fs::seek(&sparse, SeekFrom::Data(5_000_000)).is_err());
    assert!(std::fs::write(mounting.path("new"), "x").is_err(), "it is read-only");
    assert_eq!(play.open_leases(), 1);
    drop(sparse);
    let folder = mounting.folder.clone();
    mounting.end().ok();
    assert!(!is_mounted(&folder));
    assert_eq!(play.open_leases(), 0);
}

/// Goal: a copy links files as they were, also where there is no other kind of entry than files and folders.
#[test]
fn files_of_several_names_stay_one() {
    if !can_mount() {
        return;
    }
    let play = Play::with_repository();
    play.write("source/a/x", "data");
    std::fs::create_dir(play.path("source/b")).expect("created");
    std::fs::hard_link(play.path("source/a/x"), play.path("source/b/y")).expect("linked");
    play.backup(["source"]);
    let Some(mounting) = Mounting::of(&play, &["--snapshot", &play.latest_of("source")]) else { return };
    shell(&mounting.folder, &format!("cp -a . {}", play.path("copy").display()));
    let file = |name: &str| play.path("copy").join(name).metadata().expect("there");
    assert_eq!((file("a/x").ino(), file("a/x").nlink()), (file("b/y").ino(), 2));
    mounting.end().ok();
}

/// An ACL can refuse what the mode permits.
#[test]
fn other_users_need_the_permission_of_acls() {
    if !can_mount() {
        return;
    }
    let play = Play::with_repository();
    for name in ["group", "user", "named", "open"] {
        play.write(format!("source/{name}"), name);
    }
    let script = "chmod 755 .; chown 0:65534 *; chmod 640 group; setfacl -m g::---,u:1:r,m::r group
        chmod 644 user open; setfacl -m u:65534:---,m::r user; chmod 600 named; setfacl -m u:65534:r named";
    shell(&play.path("source"), script);
    play.backup(["source"]);
    let reference = play.latest_of("source");
    let readable = |at: &Path| {
        let script = "for f in group user named open; do cat $f 2>/dev/null && echo; done; true";
        let mut command = Command::new("sh");
        // It starts in the folder, so it needs no permission for the folders above.
        let command = command.arg("-c").arg(script).current_dir(at).uid(65534).gid(65534);
        output(command).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(readable(&play.path("source")), ["named", "open"]);
    let Some(mounting) = Mounting::of(&play, &["--snapshot", &reference, "--allow-other"]) else { return };
    assert_eq!(readable(&mounting.folder), ["named", "open"]);
    mounting.end().ok();
    // Only the owner of everything changes.
    let Some(mounting) = Mounting::of(&play, &["--snapshot", &reference, "--allow-other", "--owner-root"]) else {
        return;
    };
    assert_eq!(readable(&mounting.folder), ["named", "open"]);
    mounting.end().ok();
    let args = ["--snapshot", &reference, "--allow-other", "--no-default-permissions"];
    let Some(mounting) = Mounting::of(&play, &args) else { return };
    assert_eq!(readable(&mounting.folder), ["group", "user", "named", "open"]);
    mounting.end().ok();
}

#[test]
fn snapshots_appear_by_id_time_host_tag_and_series() {
    if !can_mount() {
        return;
    }
    let play = Play::with_repository();
    play.write("source/file", "first");
    let at = |time, more: &[&str]| play.backup([&["source", "--time", time], more].concat());
    let ids = [
        at("@1000000000", &["--tag", "a,b/c", "--series", "x:/y"]),
        at("@1000000000", &["--tag", "a", "--series", "x:/y"]),
        at("@1100000000", &["--host", "other", "--series", "z"]),
    ];
    play.larder_with_stdin(["backup", "--stdin", "--stdin-filename", "/q/w/e", "--series", "stream"], b"a stream").ok();
    let Some(mounting) = Mounting::of(&play, &["--time-template", "2006-01-02", "--refresh", "0", "--keep", "0"])
    else {
        return;
    };
    assert_eq!(mounting.names(""), ["hosts", "ids", "series", "snapshots", "tags"]);
    assert_eq!(mounting.names("ids").len(), 4);
    assert!(mounting.names("ids").contains(&ids[0][24..].to_owned()), "{ids:?}");
    assert_eq!(mounting.names("series"), ["stream", "x:_y", "z"]);
    assert_eq!(mounting.names("series/x:_y"), ["2001-09-09", "2001-09-09-1", "latest"]);
    assert_eq!(mounting.names("hosts/other"), ["2004-11-09", "latest"]);
    assert_eq!((mounting.names("tags"), mounting.names("tags/b_c").len()), (vec!["a".to_owned(), "b_c".to_owned()], 2));
    let latest = std::fs::read_link(mounting.path("series/x:_y/latest")).expect("a link");
    assert_eq!(latest, Path::new("2001-09-09-1"));
    let file = format!("hosts/other/latest{}", play.path("source/file").display());
    assert_eq!(std::fs::read(mounting.path(&file)).expect("there"), b"first");
    // A stream has no entries for the folders that it is in.
    assert_eq!(mounting.names("series/stream/latest/q"), ["w"]);
    assert_eq!(std::fs::read(mounting.path("series/stream/latest/q/w/e")).expect("there"), b"a stream");
    // A walk meets no folder twice, and `..` leads back.
    let walked =
        shell(&mounting.folder, "find . -type f | wc -l; cd -P series/stream/latest/q/w; cd -P ../../../../..; ls");
    assert_eq!(walked.lines().collect::<Vec<_>>(), ["19", "hosts", "ids", "series", "snapshots", "tags"]);
    let number = |name: &str| mounting.path(name).metadata().expect("there").ino();
    assert_ne!(number("hosts/other/latest/"), number("series/z/latest/"), "one folder has one parent");
    // Later snapshots appear, and forgotten ones go.
    play.write("source/file", "second");
    play.backup(["source", "--host", "other", "--series", "z"]);
    play.larder(["forget", &ids[2]]).ok();
    assert_eq!(std::fs::read(mounting.path(&file)).expect("there"), b"second");
    let lengths = || (mounting.names("hosts/other").len(), mounting.names("ids").len());
    until("the forgotten snapshot is let go", || lengths() == (2, 4));
    mounting.end().ok();

    let args = ["--path-template", "%h/%s-%i", "--host", "other", "--owner-root", "--no-default-permissions"];
    let Some(mounting) = Mounting::of(&play, &args) else { return };
    assert_eq!((mounting.names(""), mounting.names("other").len()), (vec!["other".to_owned()], 1));
    assert!(mounting.names("other")[0].starts_with("z-"));
    mounting.end().ok();
    // A host of this name is more than the link.
    play.backup(["source", "--host", "latest", "--series", "w"]);
    play.backup(["source", "--host", "other", "--series", "w"]);
    let Some(mounting) = Mounting::of(&play, &["--path-template", "%T", "--path-template", "%h/%T"]) else { return };
    assert_eq!(mounting.names("latest").len(), 2, "a snapshot and its link");
    assert!(mounting.path("latest").symlink_metadata().expect("there").is_dir());
    mounting.end().ok();
    for (template, option) in [("%x", "--path-template"), ("plain", "--path-template"), ("2006/01", "--time-template")]
    {
        play.larder(["mount", "mnt", option, template]).code(2).in_two_lines();
    }
}

/// Threads with positioned reads and a mapping see what the source has.
#[test]
fn reads_at_random_are_right() {
    if !can_mount() {
        return;
    }
    let play = Play::with_repository();
    let names = ["a", "b", "c"];
    let contents: Vec<Vec<u8>> = (0..3).map(|seed| tree::noise(seed, 4_000_000 + seed as usize * 4097)).collect();
    for (name, content) in names.iter().zip(&contents) {
        play.write(format!("source/{name}"), content);
    }
    play.backup(["source"]);
    let Some(mounting) = Mounting::of(&play, &["--snapshot", &play.latest_of("source")]) else { return };
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (contents, mounting) = (&contents, &mounting);
            scope.spawn(move || {
                let mut state = thread + 1;
                for _ in 0..200 {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let (file, content) = ((state >> 33) as usize % 3, &contents[(state >> 33) as usize % 3]);
                    let at = (state >> 20) as usize % content.len();
                    let length = ((state >> 40) as usize % 300_000).min(content.len() - at);
                    let mut read = vec![0; length];
                    let opened = File::open(mounting.path(names[file])).expect("there");
                    opened.read_exact_at(&mut read, at as u64).expect("read");
                    assert!(read == content[at..at + length], "{file} {at} {length}");
                }
            });
        }
    });
    let script = "import mmap, sys
files = [open(path + '/a', 'rb') for path in sys.argv[1:]]
a, b = (mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) for file in files)
assert all(a[at:at + 5000] == b[at:at + 5000] for at in range(3999000, 0, -70001))";
    output(Command::new("python3").arg("-c").arg(script).arg(play.path("source")).arg(&mounting.folder));
    mounting.end().ok();
}

#[test]
fn a_killed_mount_leaves_nothing_mounted() {
    if !can_mount() {
        return;
    }
    let play = Play::with_repository();
    play.write("source/file", "content");
    play.backup(["source"]);
    let Some(mounting) = Mounting::of(&play, &[]) else { return };
    let folder = mounting.folder.clone();
    assert!(is_mounted(&folder));
    mounting.signal(Signal::KILL);
    until("the guard has unmounted it", || !is_mounted(&folder));
    mounting.ended().code(1009);
    // And it can be mounted again.
    let Some(mounting) = Mounting::of(&play, &[]) else { return };
    assert_eq!(mounting.names("").len(), 4);
    // Somebody else may unmount it.
    output(Command::new("umount").arg(&folder));
    mounting.ended().ok();
}

#[test]
fn a_mount_in_use_ends_all_the_same() {
    if !can_mount() {
        return;
    }
    let play = Play::with_repository();
    play.write("source/file", "content");
    play.backup(["source"]);
    let Some(mounting) = Mounting::of(&play, &["--snapshot", &play.latest_of("source")]) else { return };
    let (folder, file) = (mounting.folder.clone(), File::open(mounting.path("file")).expect("there"));
    mounting.signal(Signal::INT);
    mounting.ended().ok().says("is still in use");
    assert!(!is_mounted(&folder));
    drop(file);
    assert_eq!(play.open_leases(), 0);
}

/// A repository with a file in the series `old` and one in `new`. Returns the snapshot of the former, and the file's path in a mount.
fn two_series(play: &Play, content: &[u8]) -> (String, String) {
    play.write("source/file", content);
    let old = play.backup(["source", "--series", "old"]);
    play.write("other/file", tree::noise(6, 100_000));
    play.backup(["other", "--series", "new"]);
    (old, format!("series/old/latest{}", play.path("source/file").display()))
}

/// Goal: a snapshot that was read lately stays whole, with its name, although it is forgotten and a pass ran.
#[test]
fn what_was_read_lately_stays() {
    if !can_mount() {
        return;
    }
    let play = Play::with_repository();
    let content = tree::noise(5, 20_000_000);
    let (old, path) = two_series(&play, &content);
    let Some(mounting) = Mounting::of(&play, &["--refresh", "0"]) else { return };
    assert_eq!(mounting.names("series"), ["new", "old"]);
    assert_eq!(play.open_leases(), 0, "lists need no lease");
    let path = mounting.path(path);
    let file = File::open(&path).expect("there");
    assert_eq!(play.open_leases(), 1);
    play.larder(["forget", &old]).ok();
    play.larder(["optimize"]).ok();
    assert_eq!(mounting.names("series"), ["new", "old"], "a snapshot in use keeps its name");
    assert_eq!(std::fs::metadata(&path).expect("it can be found by its path").len(), content.len() as u64);
    let mut read = vec![0; content.len()];
    file.read_exact_at(&mut read, 0).expect("its data is still there");
    assert!(read == content);
    mounting.end().ok();
}

/// Goal: an open file that nobody reads holds no lease. A forgotten snapshot goes then, and reads say so; one that is not forgotten is
/// read as before.
#[test]
fn open_files_do_not_count_as_use() {
    if !can_mount() {
        return;
    }
    let play = Play::with_repository();
    let content = tree::noise(5, 20_000_000);
    let (old, path) = two_series(&play, &content);
    let Some(mounting) = Mounting::of(&play, &["--keep", "0", "--refresh", "0"]) else { return };
    let path = mounting.path(path);
    let file = File::open(&path).expect("there");
    let read = |at: usize| {
        let mut bytes = vec![0; 4096];
        file.read_exact_at(&mut bytes, at as u64).map(|()| assert!(bytes == content[at..at + 4096]))
    };
    read(0).expect("there");
    until("the snapshot is let go", || play.open_leases() == 0);
    read(9_000_000).expect("not forgotten");
    until("the snapshot is let go again", || play.open_leases() == 0);
    play.larder(["forget", &old]).ok();
    assert_eq!(mounting.names("series"), ["new"]);
    play.larder(["optimize"]).ok();
    let gone = read(18_000_000).expect_err("forgotten");
    assert_eq!(gone.raw_os_error(), Some(rustix::io::Errno::NOENT.raw_os_error()));
    // The kernel may still know the name, and it opens the file itself. Nothing can be read.
    let again = File::open(&path).and_then(|file| file.read_exact_at(&mut [0; 4096], 14_000_000));
    assert_eq!(again.expect_err("forgotten").raw_os_error(), Some(rustix::io::Errno::NOENT.raw_os_error()));
    drop(file);
    mounting.end().ok().says("was forgotten");
}

#[test]
fn folders_that_cannot_be_mount_points_are_refused() {
    let play = Play::with_repository();
    play.write("source/file", "content");
    play.backup(["source"]);
    let refused = |folder: &str, text: &str| play.larder(["mount", folder]).code(2).says(text).in_two_lines();
    refused("source", "is not empty").says("--nonempty");
    refused("missing", "does not exist");
    refused("source/file", "is not a folder");
    let inside = play.latest_of("source/file");
    play.write("empty/x", "");
    std::fs::remove_file(play.path("empty/x")).expect("removed");
    play.larder(["mount", "empty", "--snapshot", &inside]).code(2).says("is not a folder").in_two_lines();
    play.larder(["mount", "empty", "--snapshot", "latest:/nothing"]).code(2).says("has no /nothing").in_two_lines();
    let Some(mounting) = Mounting::of(&play, &[]) else { return };
    refused("mnt", "something is mounted there already (fuse").says("umount");
    play.larder(["mount", "mnt", "--nonempty"]).code(2).says("something is mounted there already");
    mounting.end().ok();
}

#[test]
fn damage_is_an_error_of_one_file() {
    if !can_mount() {
        return;
    }
    let play = Play::with_repository();
    let content = tree::noise(7, 3_000_000);
    play.write("source/bad", &content);
    play.backup(["source", "--series", "s"]);
    let data = damage::named(&play.repository(), "data/");
    play.write("source/good", tree::noise(8, 500_000));
    play.backup(["source", "--series", "s"]);
    let length = std::fs::metadata(play.repository().join(&data[0])).expect("there").len();
    damage::flip(&play.repository(), &data[0], length as usize / 2);
    let Some(mounting) = Mounting::of(&play, &["--snapshot", &play.latest_of("source")]) else { return };
    let failed = std::fs::read(mounting.path("bad")).expect_err("it is damaged");
    assert_eq!(failed.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
    assert!(std::fs::read(mounting.path("bad")).is_err());
    assert!(std::fs::read(mounting.path("good")).expect("whole") == tree::noise(8, 500_000));
    let file = File::open(mounting.path("bad")).expect("there");
    let mut start = vec![0; 100_000];
    file.read_exact_at(&mut start, 0).expect("another frame");
    assert!(start == content[..start.len()]);
    drop(file);
    let ran = mounting.end().code(13).says(&data[0]);
    assert_eq!(ran.stderr.matches("source/bad").count(), 1, "{}", ran.stderr);
}

/// A folder of any size takes no more memory than the caches have.
#[test]
fn a_large_folder_is_listed_in_bounded_memory() {
    if !can_mount() {
        return;
    }
    let play = Play::with_repository();
    // In memory where that is possible: a disk takes longer for these files than all the rest.
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.expect("a folder");
    for number in 0..100_000 {
        File::create(place.path().join(format!("file with some name {number:07}"))).expect("created");
    }
    std::fs::create_dir(place.path().join("zz")).expect("created");
    std::fs::write(place.path().join("zz/last"), "x").expect("written");
    play.backup([place.path()]);
    let source = format!("latest:{}", place.path().display());
    let Some(mounting) = Mounting::of(&play, &["--snapshot", &source, "--memory", "16M"]) else { return };
    let listed = shell(&mounting.folder, "find . -type f -size -1 | wc -l; find . | wc -l; ls zz");
    assert_eq!(listed.lines().collect::<Vec<_>>(), ["100000", "100003", "last"]);
    let peak = mounting.peak_memory();
    assert!(peak < 80 << 20, "{peak} bytes");
    mounting.end().ok();
}
