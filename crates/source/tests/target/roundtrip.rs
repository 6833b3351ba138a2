//! Promise: what was walked and read is what lies in the target afterwards, by the judgement of an independent comparison.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::support::pump::Held;
use crate::support::torture;
use crate::support::treediff::{self, Options};
use crate::support::*;
use larder_source::target::{NoteKind, Overwrite, Target, TargetOptions};

/// The root itself is no entry of a version that begins below it, and sockets are in none.
const BELOW: Options = Options { no_owner: false, no_root: true, skip_sockets: true };

fn torture_tree(place: &Place) -> (std::path::PathBuf, Held) {
    let source = place.base.path().join("source");
    std::fs::create_dir(&source).expect("made");
    torture::Torture::small().build(&source).expect("built");
    let held = Held::read(source.as_os_str().as_bytes()).expect("read");
    assert!(held.entries.len() > 50);
    (source, held)
}

fn assert_equal(a: &Path, b: &Path) {
    let found = treediff::differences(a, b, BELOW).expect("compared");
    assert!(found.is_empty(), "{} differences:\n{}", found.len(), found[..found.len().min(50)].join("\n"));
}

#[test]
fn a_tree_of_every_odd_thing_comes_back() {
    let place = Place::new();
    let (source, held) = torture_tree(&place);
    let target = place.plain();
    held.restore(&target, 3, 10_000).expect("restored");
    assert_eq!(target.notes().summary(), []);
    assert_equal(&source, &place.root);
    for (entry, content) in &held.entries {
        let mut found = target.verify(entry).expect("compared");
        found.compare_content(entry, content.as_slice()).expect("read");
        assert_eq!(found.differences, [], "{}", larder_source::PathText(&entry.path));
    }
    // Over itself, under every policy, and with zeros as holes.
    for overwrite in [Overwrite::Always, Overwrite::IfChanged, Overwrite::IfNewer, Overwrite::Never] {
        let mut options = TargetOptions::default();
        options.overwrite = overwrite;
        options.sparse = true;
        held.restore(&place.target(options), 2, 10_000).expect("restored");
        assert_equal(&source, &place.root);
    }
}

/// Every entry meets every other kind of thing in its place.
#[test]
fn a_tree_comes_back_over_another_one() {
    let place = Place::new();
    let (source, held) = torture_tree(&place);
    held.restore(&place.plain(), 1, 10_000).expect("restored");
    // The same names in another order: files where folders were and the other way round.
    let names: Vec<_> =
        std::fs::read_dir(&place.root).expect("listed").map(|name| name.expect("read").path()).collect();
    let aside = place.base.path().join("aside");
    std::fs::create_dir(&aside).expect("made");
    for (number, name) in names.iter().enumerate() {
        std::fs::rename(name, aside.join(number.to_string())).expect("moved");
    }
    for (number, name) in names.iter().rev().enumerate() {
        std::fs::rename(aside.join(number.to_string()), name).expect("moved");
    }
    assert!(!treediff::differences(&source, &place.root, BELOW).expect("compared").is_empty());
    let target = place.plain();
    let mut folders: Vec<&[u8]> = Vec::new();
    for (entry, _) in &held.entries {
        if entry.kind == larder_format::entry::EntryKind::Directory {
            target.make_dir(entry).expect("made");
            folders.push(&entry.path);
        }
    }
    for folder in folders {
        let mut keep: Vec<&[u8]> = held
            .entries
            .iter()
            .filter_map(|(entry, _)| entry.path.strip_prefix(folder)?.strip_prefix(b"/"))
            .filter(|rest| !rest.contains(&b'/'))
            .collect();
        keep.sort();
        target.delete_extra(folder, &keep, |_| ()).expect("deleted");
    }
    held.restore(&target, 2, 10_000).expect("restored");
    assert_equal(&source, &place.root);
    place.assert_outside_untouched();
}

/// Killed anywhere in the middle, a second run ends with the same tree, whatever the policy.
#[test]
fn an_interrupted_restore_is_continued() {
    let place = Place::new();
    let (source, held) = torture_tree(&place);
    for overwrite in [Overwrite::Always, Overwrite::IfChanged, Overwrite::IfNewer, Overwrite::Never] {
        let root = place.path(&format!("{overwrite:?}"));
        let half = Held { entries: held.entries[..held.entries.len() / 2].to_vec(), problems: Vec::new() };
        let interrupted = Target::open(&root, TargetOptions::default()).expect("opens");
        for (entry, content) in &half.entries {
            match &entry.kind {
                larder_format::entry::EntryKind::Directory => drop(interrupted.make_dir(entry).expect("made")),
                larder_format::entry::EntryKind::File { .. } if !content.is_empty() => {
                    let writer = begin(&interrupted, entry);
                    writer.write_at(entry.size() - 1, b"x").expect("written");
                }
                _ => {}
            }
        }
        let mut options = TargetOptions::default();
        options.overwrite = overwrite;
        let target = Target::open(&root, options).expect("opens");
        held.restore(&target, 1, 10_000).expect("restored");
        assert_eq!(target.notes().count(NoteKind::Kept), 0, "{:?}", target.notes().summary());
        assert_equal(&source, &root);
    }
}
