//! Objects of a local repository that cannot be examined, and links in it. A loop of links stands for a bad sector: both are told by
//! the look at one entry, not by its bytes.

use std::os::unix::fs::symlink;
use std::path::Path;

use crate::support::damage::{named, objects};
use crate::support::{Play, tree};

/// Two snapshots of two series in two jobs, in an index.
fn two_series() -> Play {
    let play = Play::with_repository();
    for series in ["one", "two"] {
        for version in 0..2_u64 {
            play.write(format!("{series}/large"), tree::noise(u64::from(series.as_bytes()[0]) + version, 900_000));
            play.write(format!("{series}/small"), format!("small file of {series}"));
            play.backup([series, "--series", series]);
        }
    }
    play.larder(["optimize"]).ok();
    play.larder(["forget", "--series", "one", "--keep-last", "1"]).ok();
    play.larder(["series", "set", "one", "--layout", "standard"]).ok();
    play.larder(["pin", "latest", "--series", "one"]).ok();
    play
}

/// Puts something that cannot be examined in an object's place; returns how to put the object back.
fn hide(repository: &Path, name: &str) -> impl FnOnce() + use<> {
    let (at, away) = (repository.join(name), repository.with_extension("away"));
    std::fs::rename(&at, &away).expect("moved");
    symlink(at.file_name().expect("a name"), &at).expect("linked");
    move || std::fs::rename(&away, &at).expect("moved back")
}

/// One object of each kind costs what needs it, and nothing else: it is named, and passes stop before they decide.
#[test]
fn an_object_that_cannot_be_examined_costs_what_needs_it() {
    let play = two_series();
    let newest = play.larder(["snapshots", "--json", "--series", "one"]).ok().json();
    let id = newest[0]["id"].as_str().expect("text").to_owned();
    play.larder(["check", "--read-data"]).ok();
    for kind in ["versions/", "data/", "meta/", "forgotten/", "pins/", "settings/", "index/", "index/runs/"] {
        let names = named(&play.repository(), kind);
        // A pass may have rewritten the snapshot, so its containers need not have its id.
        let manifest = play.larder(["cat", "manifest", &id, "--json"]).ok().json();
        let containers = manifest["containers"].as_array().expect("a table").clone();
        let of_one = |name: &&String| match kind {
            "versions/" => name.contains(&id),
            "data/" | "meta/" => containers.iter().any(|row| row["container"] == name.as_str()),
            _ => true,
        };
        let name = names.iter().rfind(of_one).unwrap_or_else(|| panic!("no object in {kind}")).clone();
        let put_back = hide(&play.repository(), &name);
        let before = objects_but(&play, &name);
        let ran = play.larder(["check"]).code(13);
        assert!(ran.text().contains(&name), "{name} is not in {}", ran.text());
        let _ = std::fs::remove_dir_all(play.path("target"));
        let restored = play.larder(["restore", "latest", "--series", "two", "--target", "target"]);
        assert!([0, 13].contains(&restored.code), "{name}: {} {}", restored.code, restored.stderr);
        let target = play.path("target").join(play.path("two").strip_prefix("/").expect("absolute"));
        assert_eq!(std::fs::read(target.join("large")).expect("restored"), tree::noise(u64::from(b't') + 1, 900_000));
        let shown = play.larder(["snapshots"]);
        assert!([0, 13].contains(&shown.code), "{name}: {} {}", shown.code, shown.stderr);
        // Without defragmentation, which writes new containers before the pass looks at anything.
        let ran = play.larder(["optimize", "--task", "collect,dedup,arrange"]).code(13);
        assert!(ran.stderr.contains(&name), "{name} is not in {}", ran.stderr);
        assert_eq!(objects_but(&play, &name), before, "a pass decided without {name}");
        let backed_up = play.larder(["backup", "two", "--series", "two"]);
        assert!([0, 13].contains(&backed_up.code), "{name}: {} {}", backed_up.code, backed_up.stderr);
        put_back();
        play.larder(["check", "--read-data"]).ok();
    }
}

/// A folder has the name of the mark of the newest index: passes name it, and go on when it is gone.
#[test]
fn a_folder_in_the_place_of_a_mark_is_named() {
    let play = two_series();
    let marks = named(&play.repository(), "indexed/");
    let name = marks.last().expect("a mark");
    let at = play.repository().join(name);
    std::fs::remove_file(&at).expect("removed");
    std::fs::create_dir(&at).expect("created");
    for verb in [&["optimize"][..], &["repair", "index"]] {
        let ran = play.larder(verb).code(13);
        assert!(ran.stderr.contains(name.as_str()), "{name} is not in {}", ran.stderr);
    }
    std::fs::remove_dir(&at).expect("removed");
    play.larder(["optimize"]).ok();
    play.larder(["check", "--read-data"]).ok();
}

/// All but one object, and leases of what ran meanwhile.
fn objects_but(play: &Play, name: &str) -> Vec<String> {
    let found = objects_of(&play.repository());
    found.into_iter().filter(|found| found != name && !found.starts_with("jobs/")).collect()
}

fn objects_of(repository: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut waiting = vec![repository.to_path_buf()];
    while let Some(folder) = waiting.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let entry = entry.expect("an entry");
            match entry.file_type().expect("known").is_dir() {
                true => waiting.push(entry.path()),
                false => found.push(entry.path().strip_prefix(repository).expect("below").display().to_string()),
            }
        }
    }
    found.sort();
    found
}

/// A repository in a folder of its client, and a pass of another user over it.
#[test]
fn a_planted_link_leads_no_pass_into_another_repository() {
    let (ours, other) = (Play::with_repository(), Play::with_repository());
    for play in [&ours, &other] {
        play.write("source/file", tree::noise(7, 300_000));
        play.backup(["source"]);
    }
    let before = objects(&other.repository());
    for kind in ["data", "meta"] {
        let job = std::fs::read_dir(other.repository().join(kind)).expect("a folder").next().expect("a job");
        let job = job.expect("an entry");
        symlink(job.path(), ours.repository().join(kind).join(job.file_name())).expect("linked");
    }
    let ran = ours.larder(["optimize"]).code(13);
    assert!(ran.stderr.contains("symbolic link"), "{}", ran.stderr);
    ours.larder(["check"]).code(13);
    assert_eq!(objects(&other.repository()), before);
    other.larder(["check", "--read-data"]).ok();
}
