//! Promise: nothing outside the root is touched, whatever the version says, whatever lies in the target, and whatever somebody
//! swaps in while the restore runs.

use std::os::unix::fs::symlink as make_symlink;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::*;
use larder_source::target::{
    DirDecision, FileDecision, KeptReason, LinkDecision, NodeDecision, NoteKind, Overwrite, PutDecision, TargetCause,
    TargetError,
};

#[test]
fn a_link_of_the_version_is_not_written_through() {
    let place = Place::new();
    for link_target in ["../outside", place.outside.to_str().expect("text"), "/"] {
        let target = place.plain();
        let name = format!("a{}", link_target.len());
        assert_eq!(target.make_node(&symlink(&name, link_target)).expect("made"), NodeDecision::Made);
        let below = format!("{name}/b");
        let refused = |error: TargetError| {
            assert!(matches!(error, TargetError::NotBelowFolder { .. }), "{error}");
            assert_eq!(error.cause(), TargetCause::Unsafe);
        };
        refused(target.put_file(&file(&below, 1), b"x").expect_err("through a link"));
        refused(target.begin_file(&file(&below, 1)).expect_err("through a link"));
        refused(target.make_dir(&dir(&below)).expect_err("through a link"));
        refused(target.make_node(&symlink(&below, "x")).expect_err("through a link"));
        refused(target.make_node(&symlink(format!("{below}/c"), "x")).expect_err("through a link"));
        target.put_file(&file("first", 1), b"x").expect("restored");
        refused(target.make_link(&hard_link(&below, "first")).expect_err("through a link"));
        let linked = target.make_link(&hard_link("second", format!("{name}/secret"))).expect("decided");
        assert_eq!(linked, LinkDecision::NeedsContent);
        assert!(target.existing_content(&file(format!("{name}/secret"), 12)).is_none());
        assert_eq!(target.delete_extra(name.as_bytes(), &[] as &[&[u8]], |_| ()).expect("nothing done"), 0);
        assert_eq!(target.delete_extra(below.as_bytes(), &[] as &[&[u8]], |_| ()).expect("nothing done"), 0);
        place.assert_outside_untouched();
    }
}

#[test]
fn links_that_lie_in_the_target_are_replaced_or_kept_but_not_followed() {
    for overwrite in [Overwrite::Always, Overwrite::IfChanged, Overwrite::Never] {
        let place = Place::new();
        make_symlink("../outside", place.path("folder")).expect("made");
        make_symlink("../outside/secret", place.path("file")).expect("made");
        make_symlink("../outside/new", place.path("dangling")).expect("made");
        let target = place.overwriting(overwrite);
        for name in ["folder/secret", "file"] {
            assert!(target.existing_content(&file(name, 12)).is_none(), "{name}");
        }
        let decision = target.make_dir(&dir("folder")).expect("decided");
        let below = target.put_file(&file("folder/secret", 3), b"new").expect("decided");
        let plain = target.put_file(&file("file", 3), b"new").expect("decided");
        let dangling = target.put_file(&file("dangling", 3), b"new").expect("decided");
        target.finish_dirs().expect("finished");
        if overwrite == Overwrite::Never {
            assert_eq!(decision, DirDecision::Kept(KeptReason::Exists));
            assert_eq!(below, PutDecision::Kept(KeptReason::ParentKept));
            assert_eq!(
                (plain, dangling),
                (PutDecision::Kept(KeptReason::Exists), PutDecision::Kept(KeptReason::Exists))
            );
            assert_eq!(target.notes().count(NoteKind::Kept), 4);
        } else {
            assert_eq!(decision, DirDecision::Made);
            for name in ["folder/secret", "file", "dangling"] {
                assert_eq!(read(&place.path(name)), b"new");
                assert!(std::fs::symlink_metadata(place.path(name)).expect("stat").is_file());
            }
        }
        place.assert_outside_untouched();
    }
}

#[test]
fn paths_that_could_leave_the_target_are_refused() {
    let place = Place::new();
    let target = place.plain();
    for path in ["", "/etc/x", "../outside/x", "a/../../outside/x", "a//b", "./a", "a/", "a\0b"] {
        let error = target.put_file(&file(path, 1), b"x").expect_err(path);
        assert_eq!(error.cause(), TargetCause::Damaged, "{path:?}");
        assert!(target.make_dir(&dir(path)).is_err());
        assert!(target.make_node(&symlink(path, "x")).is_err());
        assert!(target.make_link(&hard_link(path, "x")).is_err());
        assert!(target.make_link(&hard_link("x", path)).is_err());
        assert!(target.verify(&file(path, 1)).is_err());
        assert!(target.existing_content(&file(path, 1)).is_none());
        assert!(path.is_empty() || target.delete_extra(path.as_bytes(), &[] as &[&[u8]], |_| ()).is_err());
    }
    assert_eq!(std::fs::read_dir(&place.root).expect("listed").count(), 0);
    place.assert_outside_untouched();
}

/// An attacker with rights in the target swaps folders for links as fast as possible, while the restore writes below them.
#[test]
fn links_swapped_in_during_the_restore_are_not_followed() {
    let place = Place::new();
    let stop = AtomicBool::new(false);
    let (root, hidden) = (place.root.clone(), place.base.path().join("hidden"));
    std::fs::create_dir(root.join("d")).expect("made");
    let mut restored = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                // Some of these fail, when the restore was faster.
                let _ = std::fs::rename(root.join("d"), &hidden);
                let _ = make_symlink("../outside", root.join("d"));
                let _ = std::fs::remove_file(root.join("d"));
                let _ = std::fs::rename(&hidden, root.join("d"));
            }
        });
        for round in 0..300 {
            // A target of its own, so that the folder is looked up again and not kept open.
            let target = place.plain();
            for number in 0..4 {
                let below = format!("d/f{}", (round + number) % 7);
                match number {
                    0 => drop(target.make_dir(&dir("d"))),
                    1 => restored += usize::from(target.put_file(&file(&below, 3), b"new").is_ok()),
                    2 => drop(target.delete_extra(b"d", &[] as &[&[u8]], |_| ())),
                    _ => {
                        let entry = file(format!("d/e/{round}"), 3);
                        if let Ok(FileDecision::Write(writer)) = target.begin_file(&entry)
                            && writer.write_at(0, b"new").is_ok()
                        {
                            restored += usize::from(writer.finish(&entry).is_ok());
                        }
                    }
                }
            }
            let _ = target.finish_dirs();
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(restored > 0, "the restore got through now and then");
    place.assert_outside_untouched();
}

/// A file that has no descriptor for the moment is opened again by its path, where something else may lie by then.
#[test]
fn a_file_swapped_for_another_is_not_written_into() {
    let place = Place::new();
    let mut options = larder_source::target::TargetOptions::default();
    options.open_files_max = Some(1);
    let target = place.target(options);
    let swaps: [fn(&Place); 5] = [
        |place| make_symlink("../outside/secret", place.path("f")).expect("made"),
        |place| std::fs::hard_link(place.outside.join("secret"), place.path("f")).expect("made"),
        |place| std::fs::write(place.path("f"), "another file").expect("made"),
        |place| std::fs::create_dir(place.path("f")).expect("made"),
        |place| {
            let mode = rustix::fs::Mode::from_raw_mode(0o666);
            rustix::fs::mkfifoat(rustix::fs::CWD, place.path("f"), mode).expect("made");
        },
    ];
    for swap in swaps {
        let entry = file("f", 10);
        let writer = begin(&target, &entry);
        writer.write_at(0, &[1; 5]).expect("written");
        let other = begin(&target, &file("other", 1));
        std::fs::rename(place.path("f"), place.path("moved")).expect("moved");
        swap(&place);
        let error = writer.write_at(5, &[1; 5]).expect_err("another file");
        assert!(matches!(error, TargetError::Swapped { .. }), "{error}");
        drop(other);
        drop(writer);
        std::fs::remove_file(place.path("moved")).expect("removed");
        std::fs::remove_file(place.path("f")).or_else(|_| std::fs::remove_dir(place.path("f"))).expect("removed");
        place.assert_outside_untouched();
    }
}

/// Removing a folder that is in the way takes links in it away and leaves what they point to.
#[test]
fn removal_does_not_follow_links() {
    let place = Place::new();
    std::fs::create_dir_all(place.path("f/a/b")).expect("made");
    make_symlink("../../../outside", place.path("f/a/link")).expect("made");
    make_symlink(&place.outside, place.path("f/absolute")).expect("made");
    std::fs::hard_link(place.outside.join("secret"), place.path("f/a/b/name")).expect("linked");
    assert_eq!(put(&place.plain(), &file("f", 3), b"new"), PutDecision::Written);
    place.assert_outside_untouched();
}
