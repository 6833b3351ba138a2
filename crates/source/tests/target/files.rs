//! Promise: files come out as their entries say, whatever lies there already, in any order of writes, interrupted or not.

use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use crate::support::*;
use larder_source::target::{
    FileDecision, FullDirectories, KeptReason, LinkDecision, NodeDecision, NoteKind, Overwrite, PutDecision,
    TargetCause, TargetError, TargetOptions,
};

#[test]
fn a_small_file_comes_back_with_content_mode_and_time() {
    let place = Place::new();
    let target = place.plain();
    for (name, size, mode_bits) in
        [("empty", 0, 0o644), ("one", 1, 0o400), ("page", 4096, 0o755), ("more", 70_000, 0o7711)]
    {
        let mut entry = file(format!("some/folder/{name}"), size);
        entry.mode = mode_bits;
        let content = bytes(size, 1);
        assert_eq!(put(&target, &entry, &content), PutDecision::Written);
        let path = place.path("some/folder").join(name);
        assert_eq!(read(&path), content);
        assert_eq!((mode(&path), mtime(&path)), (mode_bits, THEN));
    }
    assert!(target.notes().summary().is_empty(), "{:?}", target.notes().summary());
}

#[test]
fn pieces_come_in_any_order_from_many_threads() {
    let place = Place::new();
    let target = place.plain();
    let content = bytes(1_000_000, 2);
    let entry = file("big", content.len());
    let writer = begin(&target, &entry);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (writer, content) = (&writer, &content);
            scope.spawn(move || {
                for piece in (0..1000).rev().filter(|piece| piece % 4 == thread) {
                    let at = piece * 1000;
                    writer.write_at(at as u64, &content[at..at + 1000]).expect("written");
                }
            });
        }
    });
    writer.finish(&entry).expect("finished");
    assert_eq!(read(&place.path("big")), content);
    assert_eq!((mode(&place.path("big")), mtime(&place.path("big"))), (0o644, THEN));
}

#[test]
fn thousands_of_files_are_begun_at_once_with_few_descriptors() {
    let place = Place::new();
    let mut options = TargetOptions::default();
    options.open_files_max = Some(20);
    let target = place.target(options);
    let entries: Vec<_> = (0..3000).map(|number| file(format!("d{}/f{number}", number % 50), 30)).collect();
    let writers: Vec<_> = entries.iter().map(|entry| begin(&target, entry)).collect();
    std::thread::scope(|scope| {
        for part in 0..3_u8 {
            let writers = &writers;
            scope.spawn(move || {
                for writer in writers {
                    writer.write_at(u64::from(part) * 10, &[part + 1; 10]).expect("written");
                }
            });
        }
    });
    // 20 files, and the folders that a target keeps open.
    let open = open_below(&place.root);
    assert!((1..=20 + 128).contains(&open), "{open} open");
    for (writer, entry) in writers.iter().zip(&entries) {
        writer.finish(entry).expect("finished");
    }
    let expected = [[1_u8; 10], [2; 10], [3; 10]].concat();
    for number in 0..3000 {
        let path = place.path(&format!("d{}/f{number}", number % 50));
        assert_eq!(read(&path), expected);
        assert_eq!((mode(&path), mtime(&path)), (0o644, THEN));
    }
}

/// Descriptors of this process below a folder. Other tests of this process have theirs in folders of their own.
fn open_below(folder: &Path) -> usize {
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("listed").flatten();
    descriptors.filter(|one| std::fs::read_link(one.path()).is_ok_and(|path| path.starts_with(folder))).count()
}

#[test]
fn overwrite_policies_choose_by_what_is_there() {
    let all = [Overwrite::Always, Overwrite::IfChanged, Overwrite::IfNewer, Overwrite::Never];
    let written = PutDecision::Written;
    let kept = PutDecision::Kept;
    let (exists, newer) = (kept(KeptReason::Exists), kept(KeptReason::Newer));
    // What is there (content, time), and what each policy does about `new content` of THEN.
    let cases = [
        ("old content", THEN, [written, PutDecision::UpToDate, PutDecision::UpToDate, exists]),
        ("old content", LATER, [written, written, newer, exists]),
        ("old content", EARLIER, [written, written, written, exists]),
        ("another size", THEN, [written, written, newer, exists]),
        ("new content", THEN, [PutDecision::UpToDate, PutDecision::UpToDate, PutDecision::UpToDate, exists]),
    ];
    for (content, time, decisions) in cases {
        for (overwrite, expected) in all.into_iter().zip(decisions) {
            let place = Place::new();
            std::fs::write(place.path("f"), content).expect("written");
            set_mtime(&place.path("f"), time);
            let target = place.overwriting(overwrite);
            let entry = file("f", "new content".len());
            assert_eq!(put(&target, &entry, b"new content"), expected, "{content} {time:?} {overwrite:?}");
            let now = String::from_utf8(read(&place.path("f"))).expect("text");
            let wanted = if expected == written { "new content" } else { content };
            assert_eq!(now, wanted, "{content} {time:?} {overwrite:?}");
            if expected == exists || expected == newer {
                assert_eq!(target.notes().count(NoteKind::Kept), 1);
                assert_eq!(mtime(&place.path("f")), time);
            } else {
                assert_eq!(mtime(&place.path("f")), THEN);
            }
        }
    }
}

#[test]
fn an_equal_file_is_not_touched_at_all() {
    let place = Place::new();
    let target = place.plain();
    let content = bytes(10_000, 3);
    let entry = file("f", content.len());
    put(&target, &entry, &content);
    let before = std::fs::metadata(place.path("f")).expect("stat");
    assert_eq!(put(&target, &entry, &content), PutDecision::UpToDate);
    let writer = begin(&target, &entry);
    let mut old = Vec::new();
    writer.existing_content().expect("it can be read").read_to_end(&mut old).expect("read");
    assert_eq!((old.as_slice(), writer.existing_bytes()), (content.as_slice(), 10_000));
    writer.keep(0, 10_000).expect("kept");
    writer.finish(&entry).expect("finished");
    assert!(!writer.has_changed());
    let after = std::fs::metadata(place.path("f")).expect("stat");
    assert_eq!((before.ino(), before.ctime(), before.ctime_nsec()), (after.ino(), after.ctime(), after.ctime_nsec()));
}

#[test]
fn only_what_differs_is_written_into_an_old_file() {
    let place = Place::new();
    let content = bytes(30_000, 4);
    let mut old = content.clone();
    old[10_000..20_000].fill(0);
    old.extend_from_slice(b"a tail that must go");
    std::fs::write(place.path("f"), &old).expect("written");
    let inode = std::fs::metadata(place.path("f")).expect("stat").ino();
    let target = place.plain();
    let entry = file("f", content.len());
    let writer = begin(&target, &entry);
    writer.keep(0, 10_000).expect("kept");
    writer.keep(20_000, 10_000).expect("kept");
    writer.write_at(10_000, &content[10_000..20_000]).expect("written");
    writer.finish(&entry).expect("finished");
    finish_overwritten(&target);
    assert!(writer.has_changed());
    assert_eq!(read(&place.path("f")), content);
    assert_eq!(std::fs::metadata(place.path("f")).expect("stat").ino(), inode);
    assert_eq!((mode(&place.path("f")), mtime(&place.path("f"))), (0o644, THEN));
}

#[test]
fn an_interrupted_file_never_looks_finished() {
    let content = bytes(20_000, 5);
    let entry = file("f", content.len());
    for existing in [None, Some("old content")] {
        for overwrite in [Overwrite::Never, Overwrite::IfNewer, Overwrite::IfChanged, Overwrite::Always] {
            let place = Place::new();
            if let Some(existing) = existing {
                std::fs::write(place.path("f"), existing).expect("written");
            }
            let writer = begin(&place.plain(), &entry);
            writer.write_at(0, &content[..10_000]).expect("written");
            drop(writer);
            assert_eq!(mode(&place.path("f")), 0o1600);
            // Even with the right size and time, as a copy of the half restored tree might have them.
            std::fs::OpenOptions::new()
                .write(true)
                .open(place.path("f"))
                .expect("opens")
                .set_len(20_000)
                .expect("sized");
            set_mtime(&place.path("f"), THEN);
            let target = place.overwriting(overwrite);
            assert_eq!(put(&target, &entry, &content), PutDecision::Written, "{existing:?} {overwrite:?}");
            assert_eq!(read(&place.path("f")), content);
            assert_eq!((mode(&place.path("f")), mtime(&place.path("f"))), (0o644, THEN));
        }
    }
}

/// A power cut may bring old bytes back into a file that was written over: until they cannot, it must not look finished.
#[test]
fn a_file_written_over_looks_unfinished_until_it_is_on_disk() {
    let content = bytes(20_000, 6);
    // One by one, all at once, and the same when no more may wait.
    for (count, waiting) in [(1, 1), (100, 100), (300, 300 - 256)] {
        let place = Place::new();
        let entries: Vec<_> = (0..count).map(|number| file(format!("f{number}"), content.len())).collect();
        let target = place.plain();
        for (number, entry) in entries.iter().enumerate() {
            let path = place.root.join(std::str::from_utf8(&entry.path).expect("text"));
            std::fs::write(&path, bytes(20_000, 7)).expect("written");
            target.put_file(entry, &content).expect("restored");
            if number + 1 != 256 {
                assert_eq!((mode(&path), mtime(&path) == THEN), (0o1600, false), "{count}");
            }
        }
        let marked = |number: &usize| mode(&place.path(&format!("f{number}"))) == 0o1600;
        assert_eq!((0..count).filter(marked).count(), waiting);
        if count > 256 {
            finish_overwritten(&target);
            continue;
        }
        // Whoever comes next finds the right content, which may be so in memory only.
        let again = place.overwriting(Overwrite::IfChanged);
        assert_eq!(again.put_file(&entries[0], &content).expect("restored"), PutDecision::UpToDate);
        assert_eq!(mode(&place.path("f0")), 0o1600);
        finish_overwritten(&again);
        assert_eq!(mode(&place.path("f0")), 0o644);
        finish_overwritten(&target);
        for number in 0..count {
            let path = place.path(&format!("f{number}"));
            assert_eq!((mode(&path), mtime(&path)), (0o644, THEN));
            assert_eq!(read(&path), content);
        }
    }
}

#[test]
fn a_file_that_vanished_before_its_end_is_told() {
    let place = Place::new();
    let target = place.plain();
    for name in ["f", "g"] {
        std::fs::write(place.path(name), "old content").expect("written");
        target.put_file(&file(name, 3), b"new").expect("restored");
    }
    std::fs::remove_file(place.path("f")).expect("removed");
    let failed = target.finish_overwritten().expect("synced");
    assert_eq!(failed.iter().map(|(path, _)| path.as_slice()).collect::<Vec<_>>(), [b"f"]);
    assert_eq!(mode(&place.path("g")), 0o644);
}

/// What a power cut leaves of a new file: everything but its content, which reads as zeros.
#[test]
fn size_and_time_are_not_believed_where_content_is_missing() {
    use rustix::fs::FallocateFlags;
    let content = bytes(200_000, 8);
    let reserve = |file: &std::fs::File, offset: u64, length: u64| {
        rustix::fs::fallocate(file, FallocateFlags::empty(), offset, length).is_ok()
    };
    for overwrite in [Overwrite::IfChanged, Overwrite::IfNewer] {
        for missing in ["nothing", "all of it", "the end", "all of it, reserved", "the end, reserved"] {
            let place = Place::new();
            let path = place.path("f");
            let there = if missing == "nothing" {
                content.len()
            } else if missing.contains("end") {
                65_536
            } else {
                0
            };
            std::fs::write(&path, &content[..there]).expect("written");
            let opened = std::fs::OpenOptions::new().write(true).open(&path).expect("opens");
            opened.set_len(200_000).expect("sized");
            if missing.contains("reserved") && !reserve(&opened, there as u64, 200_000 - there as u64) {
                continue;
            }
            let entry = file("f", content.len());
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("set");
            set_mtime(&path, THEN);
            let decided = put(&place.overwriting(overwrite), &entry, &content);
            let expected = if missing == "nothing" { PutDecision::UpToDate } else { PutDecision::Written };
            assert_eq!(decided, expected, "{overwrite:?}, missing: {missing}");
            assert_eq!(read(&path), content);
            assert_eq!((mode(&path), mtime(&path)), (0o644, THEN));
        }
    }
}

#[test]
fn holes_of_the_version_are_no_missing_content() {
    let place = Place::new();
    let entry = sparse_file("f", 10 << 20, &[(1 << 20, 4096), (5 << 20, 8192)]);
    let content = bytes(3 * 4096, 9);
    put(&place.plain(), &entry, &content);
    let again = place.overwriting(Overwrite::IfChanged);
    assert_eq!(put(&again, &entry, &content), PutDecision::UpToDate);
    assert_eq!(put(&again, &file("empty", 0), b""), PutDecision::Written);
    assert_eq!(put(&again, &file("empty", 0), b""), PutDecision::UpToDate);
}

#[test]
fn an_old_file_that_was_begun_but_not_changed_keeps_its_mode() {
    let place = Place::new();
    std::fs::write(place.path("f"), "old content").expect("written");
    let before = mode(&place.path("f"));
    drop(begin(&place.plain(), &file("f", 5)));
    assert_eq!(mode(&place.path("f")), before);
    assert_eq!(read(&place.path("f")), b"old content");
}

#[test]
fn missing_bytes_are_an_error_and_not_a_hole() {
    let place = Place::new();
    let target = place.plain();
    let entry = file("f", 100);
    let writer = begin(&target, &entry);
    writer.write_at(0, &[1; 50]).expect("written");
    let error = writer.finish(&entry).expect_err("half of it is missing");
    assert!(matches!(error, TargetError::Incomplete { expected: 100, got: 50, .. }), "{error}");
    writer.write_at(50, &[2; 50]).expect("still open");
    writer.finish(&entry).expect("finished");
    let error = writer.write_at(0, &[3; 10]).expect_err("it is finished");
    assert_eq!(error.cause(), TargetCause::Bug);
    assert!(target.put_file(&entry, &[1; 99]).is_err());
}

#[test]
fn content_beyond_the_size_is_refused() {
    let place = Place::new();
    let target = place.plain();
    let entry = file("f", 100);
    let writer = begin(&target, &entry);
    for (offset, length) in [(100, 1), (0, 101), (u64::MAX, 2), (u64::MAX - 1, 1)] {
        let error = writer.write_at(offset, &vec![1; length]).expect_err("outside the file");
        assert_eq!(error.cause(), TargetCause::Damaged);
    }
    assert!(writer.keep(0, 1).is_err(), "there is no old content");
}

#[test]
fn damaged_extents_are_refused() {
    let place = Place::new();
    let target = place.plain();
    let bad: [&[(u64, u64)]; 5] = [&[(0, 0)], &[(5, 6)], &[(0, 5), (4, 2)], &[(5, 1), (0, 1)], &[(u64::MAX, 2)]];
    for extents in bad {
        let error = target.begin_file(&sparse_file("f", 10, extents)).expect_err("damaged");
        assert_eq!(error.cause(), TargetCause::Damaged, "{extents:?}");
    }
    let error = target.begin_file(&sparse_file("f", u64::MAX, &[])).expect_err("no file is that large");
    assert_eq!(error.cause(), TargetCause::Damaged);
    assert!(!place.path("f").exists());
}

/// A backup made with hard links (`cp -al`) may share inodes with the target: writing into them would change both.
#[test]
fn a_file_with_another_name_is_replaced_and_not_written_into() {
    for (content, new_mode) in [("new content", 0o644), ("do not touch", 0o600)] {
        let place = Place::new();
        std::fs::hard_link(place.outside.join("secret"), place.path("f")).expect("linked");
        let mut entry = file("f", content.len());
        entry.mode = new_mode;
        put(&place.plain(), &entry, content.as_bytes());
        assert_eq!(read(&place.path("f")), content.as_bytes());
        assert_eq!(mode(&place.path("f")), new_mode);
        place.assert_outside_untouched();
    }
}

#[test]
fn other_types_in_the_way_are_replaced() {
    let make: [fn(&Place); 4] = [
        |place| std::fs::create_dir_all(place.path("f/deep/er")).expect("made"),
        |place| std::os::unix::fs::symlink("../outside/secret", place.path("f")).expect("made"),
        |place| std::os::unix::fs::symlink("../outside", place.path("f")).expect("made"),
        |place| {
            let cwd = rustix::fs::CWD;
            rustix::fs::mkfifoat(cwd, place.path("f"), rustix::fs::Mode::from_raw_mode(0o600)).expect("made");
        },
    ];
    for make in make {
        let place = Place::new();
        make(&place);
        let target = place.overwriting(Overwrite::Never);
        assert_eq!(put(&target, &file("f", 3), b"new"), PutDecision::Kept(KeptReason::Exists));
        let target = place.plain();
        assert_eq!(put(&target, &file("f", 3), b"new"), PutDecision::Written);
        assert!(std::fs::symlink_metadata(place.path("f")).expect("stat").is_file());
        assert_eq!(read(&place.path("f")), b"new");
        assert_eq!(target.notes().count(NoteKind::Replaced), 1);
        place.assert_outside_untouched();
    }
}

#[test]
fn a_dry_run_changes_nothing_and_tells_the_same() {
    let place = Place::new();
    std::fs::write(place.path("old"), "old content").expect("written");
    set_mtime(&place.path("old"), LATER);
    std::fs::create_dir(place.path("folder")).expect("made");
    for absent in [false, true] {
        let mut options = TargetOptions::default();
        options.dry_run = true;
        options.overwrite = Overwrite::IfNewer;
        let root = if absent { place.path("absent") } else { place.root.clone() };
        let target = larder_source::target::Target::open(&root, options).expect("opens");
        target.make_dir(&dir("new-folder")).expect("decided");
        assert_eq!(put(&target, &file("new-folder/f", 1), b"x"), PutDecision::Written);
        let expected = if absent { PutDecision::Written } else { PutDecision::Kept(KeptReason::Newer) };
        assert_eq!(put(&target, &file("old", 1), b"x"), expected);
        let expected = if absent { PutDecision::Written } else { PutDecision::Kept(KeptReason::Newer) };
        assert_eq!(put(&target, &file("folder", 1), b"x"), expected);
        let entry = file("new", 1);
        let FileDecision::Write(writer) = target.begin_file(&entry).expect("decided") else { panic!("it is new") };
        writer.write_at(0, b"x").expect("swallowed");
        writer.finish(&entry).expect("swallowed");
        target.make_node(&symlink("link", "x")).expect("decided");
        target.make_link(&hard_link("hard", "old")).expect("decided");
        target.finish_dirs().expect("nothing to do");
    }
    let mut names: Vec<_> =
        std::fs::read_dir(&place.root).expect("listed").map(|name| name.expect("read").file_name()).collect();
    names.sort();
    assert_eq!(names, ["folder", "old"]);
    assert_eq!(read(&place.path("old")), b"old content");
}

#[test]
fn a_dry_run_keeps_the_folders_that_a_real_run_keeps() {
    for (policy, kept) in [(FullDirectories::Keep, true), (FullDirectories::Remove, false)] {
        for dry_run in [true, false] {
            let place = Place::new();
            std::fs::create_dir(place.path("empty")).expect("made");
            for folder in ["full", "for-link", "for-hard-link"] {
                std::fs::create_dir(place.path(folder)).expect("made");
                std::fs::write(place.path(&format!("{folder}/file")), "mine").expect("written");
            }
            let mut options = TargetOptions::default();
            options.dry_run = dry_run;
            options.full_directories = policy;
            let target = place.target(options);
            let reason = KeptReason::DirectoryNotEmpty;
            assert_eq!(put(&target, &file("empty", 1), b"x"), PutDecision::Written);
            let expected = if kept { PutDecision::Kept(reason) } else { PutDecision::Written };
            assert_eq!(put(&target, &file("full", 1), b"x"), expected, "dry run: {dry_run}");
            let expected = if kept { NodeDecision::Kept(reason) } else { NodeDecision::Made };
            assert_eq!(target.make_node(&symlink("for-link", "x")).expect("decided"), expected, "dry run: {dry_run}");
            if !dry_run {
                let expected = if kept { LinkDecision::Kept(reason) } else { LinkDecision::Linked };
                assert_eq!(target.make_link(&hard_link("for-hard-link", "empty")).expect("decided"), expected);
            }
            assert_eq!(place.path("full/file").exists(), kept || dry_run);
        }
    }
}

#[test]
fn a_missing_root_is_made_and_a_file_as_root_is_refused() {
    let place = Place::new();
    std::fs::write(place.path("file"), "").expect("written");
    let error = larder_source::target::Target::open(&place.path("file"), TargetOptions::default()).expect_err("a file");
    assert!(error.to_string().contains("file as the folder to restore into"), "{error}");
    let target = larder_source::target::Target::open(&place.path("a/b"), TargetOptions::default()).expect("made");
    put(&target, &file("f", 1), b"x");
    assert_eq!(read(&place.path("a/b/f")), b"x");
}

#[test]
fn a_running_program_is_replaced() {
    let place = Place::new();
    // By a process of its own: a program that is open for writing does not start.
    let copied = std::process::Command::new("cp").arg("/bin/sleep").arg(place.path("program")).status();
    assert!(copied.expect("cp runs").success());
    std::fs::set_permissions(place.path("program"), PermissionsExt::from_mode(0o755)).expect("set");
    let mut child = loop {
        match std::process::Command::new(place.path("program")).arg("100").spawn() {
            // Another test that starts a program at this moment has what is being copied open until it has started it.
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => std::thread::yield_now(),
            started => break started.expect("started"),
        }
    };
    let decision = put(&place.plain(), &file("program", 3), b"new");
    child.kill().expect("killed");
    child.wait().expect("waited for");
    assert_eq!(decision, PutDecision::Written);
    assert_eq!(read(&place.path("program")), b"new");
}
