//! `dump`: files as they are, folders as archives that other programs unpack.

use std::io::Read;
use std::process::{Command, Stdio};

use crate::support::{Play, Ran, tree};

fn backed_up() -> (Play, String) {
    let play = Play::with_repository();
    tree::odd(&play.path("source"));
    play.backup(["source"]);
    let root = format!("latest:{}", play.path("source").display());
    (play, root)
}

#[test]
fn a_tar_archive_holds_everything() {
    let (play, root) = backed_up();
    let archive = play.larder(["dump", &root]).ok().stdout;
    std::fs::create_dir(play.path("back")).expect("made");
    std::fs::write(play.path("archive.tar"), archive).expect("written");
    let unpacked =
        Command::new("tar").args(["-xpf"]).arg(play.path("archive.tar")).arg("-C").arg(play.path("back")).output();
    let unpacked = unpacked.expect("tar runs");
    assert!(unpacked.status.success(), "{}", String::from_utf8_lossy(&unpacked.stderr));
    assert_eq!(unpacked.stderr, b"");
    tree::same(&play.path("source"), &play.path("back"));
}

/// Goal: access lists arrive: without them, the group of a file would get what the mask admits.
#[test]
fn a_tar_archive_holds_access_lists() {
    let play = Play::with_repository();
    let list = |permissions_of_user: u8| {
        let entry = |tag: u8, permissions: u8, id: u32| [[tag, 0, permissions, 0], id.to_le_bytes()].concat();
        let (owner, user, group) = (entry(1, 6, u32::MAX), entry(2, permissions_of_user, 1001), entry(4, 0, u32::MAX));
        [vec![2, 0, 0, 0], owner, user, group, entry(16, 7, u32::MAX), entry(32, 0, u32::MAX)].concat()
    };
    let (access, default) = (list(7), list(5));
    let file = play.write("source/file", "content");
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(&file, "system.posix_acl_access", &access, flags).expect("set");
    rustix::fs::setxattr(play.path("source"), "system.posix_acl_default", &default, flags).expect("set");
    play.backup(["source"]);
    let archive = play.larder(["dump", &format!("latest:{}", play.path("source").display())]).ok().stdout;
    std::fs::create_dir(play.path("back")).expect("made");
    let archive = play.write("archive.tar", archive);
    let unpacked = Command::new("tar").args(["--acls", "-xpf"]).arg(archive).arg("-C").arg(play.path("back")).output();
    assert!(unpacked.expect("tar runs").status.success());
    let read = |path: &str, name: &str| {
        let mut value = vec![0; 256];
        let length = rustix::fs::getxattr(play.path(path), name, &mut value[..]).expect("there is a list");
        value.truncate(length);
        value
    };
    assert_eq!(read("back/file", "system.posix_acl_access"), access);
    assert_eq!(read("back", "system.posix_acl_default"), default);
}

#[test]
fn a_zip_archive_holds_names_and_contents() {
    let (play, root) = backed_up();
    play.larder(["dump", "-a", "zip", &root, "--target", "archive.zip"]).ok();
    let mut archive =
        zip::ZipArchive::new(std::fs::File::open(play.path("archive.zip")).expect("there")).expect("a zip");
    let mut content = |name: &str| {
        let mut content = Vec::new();
        archive
            .by_name(name)
            .unwrap_or_else(|error| panic!("{name}: {error}"))
            .read_to_end(&mut content)
            .expect("whole");
        content
    };
    assert_eq!(content("folder/large"), tree::noise(1, 3_000_000));
    assert_eq!(content("plain.txt"), b"hello\n");
    assert_eq!(content("second name"), b"hello\n", "hard links become files");
    assert_eq!(content("link"), b"plain.txt");
    assert_eq!(content("not \\xff text\\n"), b"odd name");
    assert_eq!(content("sparse").len(), 5_000_000);
}

#[test]
fn a_file_is_written_whole_or_not_at_all() {
    let (play, root) = backed_up();
    let file = format!("{root}/folder/large");
    play.larder(["dump", &file, "-t", "out"]).ok();
    assert_eq!(std::fs::read(play.path("out")).expect("there"), tree::noise(1, 3_000_000));
    assert_eq!(play.larder(["dump", &format!("{root}/second name")]).ok().stdout, b"hello\n");
    let data = crate::support::damage::named(&play.repository(), "data/").remove(0);
    crate::support::damage::truncate(&play.repository(), &data);
    play.larder(["dump", &file, "--target", "broken"]).code(13).in_two_lines();
    let left: Vec<_> =
        std::fs::read_dir(play.path("")).expect("there").map(|entry| entry.expect("one").file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with("broken")), "{left:?}");
}

#[test]
fn what_is_neither_file_nor_folder_is_refused() {
    let (play, root) = backed_up();
    play.larder(["dump", &format!("{root}/link")]).code(1).says("neither a file nor a folder").in_two_lines();
    play.larder(["dump", &format!("{root}/absent")]).code(1).says("/absent").in_two_lines();
    play.larder(["dump", &root, "/absent"]).code(2).says("twice");
    play.larder(["dump", &root, "-t", "no/such/folder"]).code(1).says("no/such/folder").in_two_lines();
}

#[test]
fn a_reader_that_has_enough_is_no_failure_to_report() {
    let (play, root) = backed_up();
    let mut child = play.spawn(play.command(["dump", &format!("{root}/folder/large")]).stdout(Stdio::piped()));
    let mut start = [0; 10];
    child.stdout.take().expect("a pipe").read_exact(&mut start).expect("something");
    let ran = Ran::from(child.wait_with_output().expect("it ends")).code(141);
    assert_eq!(ran.stderr, "");
}
