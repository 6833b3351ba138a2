//! Promise: a full or read-only target ends in an error that names the file, and the restore goes on from there when there is
//! space again.

use std::path::PathBuf;
use std::process::Command;

use crate::support::*;
use larder_format::entry::Entry;
use larder_source::target::{FileDecision, Overwrite, PutDecision, Target, TargetCause, TargetError, TargetOptions};

/// A small file system of its own, gone at the end.
struct Small {
    place: Place,
    path: PathBuf,
}

impl Small {
    fn new(test: &str, options: &str) -> Option<Self> {
        if !is_root(test) {
            return None;
        }
        let place = Place::new();
        let path = place.path("small");
        std::fs::create_dir(&path).expect("made");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "larder-test"]).arg(&path).status();
        mounted.is_ok_and(|status| status.success()).then_some(Self { place, path })
    }

    fn remount(&self, options: &str) {
        let done = Command::new("mount").args(["-o", &format!("remount,{options}")]).arg(&self.path).status();
        assert!(done.is_ok_and(|status| status.success()));
    }

    fn target(&self, overwrite: Overwrite) -> Target {
        let mut options = TargetOptions::default();
        options.overwrite = overwrite;
        Target::open(&self.path, options).expect("opens")
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.path).status();
    }
}

fn is_full(error: &TargetError, entry: &Entry) {
    assert_eq!(error.cause(), TargetCause::Full, "{error}");
    let name = String::from_utf8_lossy(&entry.path).into_owned();
    assert!(error.to_string().contains(&name), "{error}");
    let source = std::error::Error::source(error).expect("the system's word").to_string();
    assert!(source.contains("No space left"), "{source}");
}

#[test]
fn a_full_disk_names_the_file_and_leaves_nothing_that_looks_finished() {
    let name = "a_full_disk_names_the_file_and_leaves_nothing_that_looks_finished";
    let Some(small) = Small::new(name, "size=4m,nr_inodes=1000") else { return };
    let content = bytes(1_500_000, 1);
    let entries: Vec<Entry> = (0..6).map(|number| file(format!("d/f{number}"), content.len())).collect();
    let restore = |target: &Target, entry: &Entry, by_pieces: bool| {
        if !by_pieces {
            return target.put_file(entry, &content).map(|_| ());
        }
        match target.begin_file(entry)? {
            FileDecision::Write(writer) => {
                for (number, piece) in content.chunks(100_000).enumerate() {
                    writer.write_at(number as u64 * 100_000, piece)?;
                }
                writer.finish(entry)
            }
            _ => Ok(()),
        }
    };
    let target = small.target(Overwrite::Always);
    target.make_dir(&dir("d")).expect("made");
    let mut whole = 0;
    for (number, entry) in entries.iter().enumerate() {
        match restore(&target, entry, number % 2 == 0) {
            Ok(()) => whole += 1,
            Err(error) => is_full(&error, entry),
        }
    }
    assert_eq!(whole, 2);
    for (number, entry) in entries.iter().enumerate() {
        let path = small.path.join(format!("d/f{number}"));
        let looks_finished = path.exists() && mode(&path) == 0o644;
        assert_eq!(looks_finished, number < whole, "{:?}", entry.path);
    }
    small.remount("size=20m");
    let target = small.target(Overwrite::Never);
    target.make_dir(&dir("d")).expect("taken");
    for (number, entry) in entries.iter().enumerate() {
        restore(&target, entry, number % 2 == 1).expect("there is space now");
        finish_overwritten(&target);
        assert!(read(&small.path.join(format!("d/f{number}"))) == content);
        assert_eq!(mtime(&small.path.join(format!("d/f{number}"))), THEN);
    }
    target.finish_dirs().expect("finished");
    assert_eq!(mode(&small.path.join("d")), 0o755);
    small.place.assert_outside_untouched();
}

#[test]
fn a_file_system_without_room_for_names_is_full_as_well() {
    let name = "a_file_system_without_room_for_names_is_full_as_well";
    let Some(small) = Small::new(name, "size=4m,nr_inodes=10") else { return };
    let target = small.target(Overwrite::Always);
    let mut failures = Vec::new();
    for number in 0..20 {
        let entry = file(format!("f{number}"), 1);
        failures.extend(target.put_file(&entry, b"x").map_err(|error| (error, entry)).err());
    }
    assert!(failures.len() > 5);
    for (error, entry) in &failures {
        is_full(error, entry);
    }
    is_full(&target.make_dir(&dir("d")).expect_err("full"), &dir("d"));
    is_full(&target.make_node(&symlink("l", "x")).expect_err("full"), &symlink("l", "x"));
}

#[test]
fn a_read_only_target_is_unusable() {
    let Some(small) = Small::new("a_read_only_target_is_unusable", "size=4m") else { return };
    let mut entry = file("old", 1);
    assert_eq!(put(&small.target(Overwrite::Always), &entry, b"x"), PutDecision::Written);
    small.remount("ro");
    let target = small.target(Overwrite::IfChanged);
    entry.mode = 0o600;
    for error in [
        target.put_file(&file("new", 1), b"x").map(|_| ()).expect_err("read-only"),
        target.put_file(&entry, b"x").map(|_| ()).expect_err("read-only"),
        target.make_dir(&dir("d")).map(|_| ()).expect_err("read-only"),
        target.delete_extra(b"", &[] as &[&[u8]], |_| ()).map(|_| ()).expect_err("read-only"),
    ] {
        assert_eq!(error.cause(), TargetCause::Unusable, "{error}");
    }
    let root = small.path.join("below");
    let error = Target::open(&root, TargetOptions::default()).expect_err("read-only");
    assert_eq!(error.cause(), TargetCause::Unusable);
}
