//! How `optimize` ends: what it found damaged or lost, what others kept it from, and what it had no time for.

use larder_testkit::data;
use serde_json::Value;

use crate::support::{Play, damage, scattered, schema};

/// Two versions that have nothing in common, and the names of their data containers.
fn two_versions() -> (Play, Vec<String>) {
    let play = Play::with_repository();
    for number in 0..2 {
        play.write("source/file", data::random(number, 200_000));
        play.backup(["source", "--series", "s"]);
    }
    let containers = damage::named(&play.repository(), "data/");
    assert_eq!(containers.len(), 2);
    (play, containers)
}

#[track_caller]
fn optimized(play: &Play, args: &[&str], code: i32) -> Value {
    let summary = play.larder([&["optimize", "--json"], args].concat()).code(code).json();
    schema::check("optimize_summary", &summary);
    summary
}

#[test]
fn a_container_that_is_gone_is_told_and_is_no_success() {
    let (play, containers) = two_versions();
    play.larder(["optimize"]).ok();
    damage::remove(&play.repository(), &containers[0]);
    // A pass lists what is new to it; whatever else is gone it sees when it lists everything.
    for args in [&["--list-all", "--dry-run"][..], &["--list-all"], &["--list-all"]] {
        let summary = optimized(&play, args, 13);
        assert_eq!(summary["missing_containers"], 1, "{summary:#}");
    }
    play.larder(["optimize", "--list-all"]).code(13).says("1 container that snapshots need cannot be found");
    play.larder(["forget", "latest~1", "--prune"]).ok();
    play.larder(["optimize", "--list-all"]).ok();
}

#[test]
fn a_container_that_a_pass_cannot_read_is_told_and_is_no_success() {
    let (play, containers) = two_versions();
    let length = std::fs::metadata(play.repository().join(&containers[1])).expect("there").len();
    damage::flip(&play.repository(), &containers[1], length as usize - 20);
    let dry = optimized(&play, &["--dry-run"], 0);
    assert_eq!(dry["unlisted_containers"], serde_json::json!([]), "a dry run reads no container");
    let summary = optimized(&play, &[], 13);
    assert_eq!(summary["unlisted_containers"], serde_json::json!([containers[1]]), "{summary:#}");
    assert_eq!((&summary["outcome"], &summary["missing_containers"]), (&"done".into(), &0.into()));
    // It is tried again by every pass until it can be read.
    let again = optimized(&play, &[], 13);
    assert_eq!(again["unlisted_containers"], serde_json::json!([containers[1]]), "{again:#}");
    damage::flip(&play.repository(), &containers[1], length as usize - 20);
    optimized(&play, &[], 0);
    play.larder(["check", "--read-data"]).ok();
    let (play, containers) = two_versions();
    damage::truncate(&play.repository(), &containers[0]);
    play.larder(["optimize"]).code(13).says(&format!("{} cannot be read and is not in the index", containers[0]));
}

/// What would be retired is read first, and what cannot be read stays.
#[test]
fn a_copy_that_cannot_be_read_is_told_and_is_no_success() {
    let play = Play::with_repository();
    play.write("source/file", data::random(1, 300_000));
    for series in ["a", "b"] {
        play.backup(["source", "--series", series, "--force", "--no-similar"]);
    }
    let copies = damage::named(&play.repository(), "data/");
    for (number, series) in [(2, "a"), (3, "b")] {
        play.write("source/file", data::random(number, 20_000));
        play.backup(["source", "--series", series, "--force", "--no-similar"]);
    }
    play.larder(["optimize", "--task", "collect"]).ok();
    for copy in &copies {
        damage::flip(&play.repository(), copy, 100_000);
    }
    let summary = optimized(&play, &["--task", "dedup"], 13);
    let unreadable = summary["reclaimed"]["unreadable_containers"].as_array().expect("an array");
    assert!(!unreadable.is_empty() && summary["reclaimed"]["containers"] == 0, "{summary:#}");
    play.larder(["optimize", "--task", "dedup"]).code(13).says("cannot be read; no copy of its chunks was retired");
    assert!(copies.iter().all(|copy| play.repository().join(copy).exists()));
}

#[test]
fn a_snapshot_that_cannot_be_laid_out_anew_is_told_and_is_no_success() {
    let (play, newest, _) = scattered(data::random);
    for container in damage::named(&play.repository(), "data/") {
        // In the middle of every tenth of it: whatever is copied cannot be read.
        let length = std::fs::metadata(play.repository().join(&container)).expect("there").len() as usize;
        for tenth in 0..8 {
            damage::flip(&play.repository(), &container, length * tenth / 10 + length / 20);
        }
    }
    let summary = optimized(&play, &["--task", "defragment"], 13);
    let compacted = &summary["defragmented"];
    assert_eq!((&compacted["failed"], &compacted["snapshots"]), (&1.into(), &0.into()), "{summary:#}");
    let said = format!("snapshot {} was not rewritten", &newest[24..]);
    play.larder(["optimize", "--task", "defragment"]).code(13).says(&said);
    // Its manifest is needed to find out whether there is something to do at all.
    let manifest = damage::named(&play.repository(), "versions/").into_iter().find(|name| name.contains(&newest));
    damage::flip(&play.repository(), &manifest.expect("a manifest"), 200);
    let summary = optimized(&play, &["--task", "defragment"], 13);
    assert_eq!(summary["defragmented"]["failed"], 1, "{summary:#}");
}

/// To stop in time is what was asked for.
#[test]
fn without_time_nothing_is_begun() {
    let (play, _) = two_versions();
    play.larder(["forget", "latest~1"]).ok();
    let before = play.objects();
    for more in [&[][..], &["--task", "defragment"], &["--task", "collect"], &["--dry-run"]] {
        let summary = optimized(&play, &[&["--max-duration", "0s"], more].concat(), 0);
        assert_eq!((&summary["outcome"], &summary["unfinished"]), (&"stopped".into(), &true.into()), "{summary:#}");
        // The configuration, the key, and the list of keys: nothing was looked for.
        assert!(summary["requests"].as_u64() < Some(6), "{summary:#}");
    }
    let text = play.larder(["optimize", "--max-duration", "0s"]).ok().text();
    assert!(text.contains("nothing was deleted; the next pass continues"), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(!text.contains("no time was left"), "nobody knows whether anything was left: {text}");
    assert_eq!(play.objects(), before);
    let summary = optimized(&play, &["--max-duration", "1h"], 0);
    assert_eq!((&summary["outcome"], &summary["unfinished"]), (&"done".into(), &false.into()));
    assert_eq!(summary["done"]["containers"], 2);
}

/// How new data is compressed is said for all verbs.
#[test]
fn passes_compress_as_they_are_told() {
    let copied = |compression: &str| {
        let (play, ..) = scattered(data::text);
        let mut command = play.command(["optimize", "--task", "defragment", "--json"]);
        let ran = crate::support::Ran::from(command.env("LARDER_COMPRESSION", compression).output().expect("it ends"));
        let summary = ran.ok().json();
        let [bytes, stored] =
            ["bytes", "stored_bytes"].map(|name| summary["defragmented"][name].as_u64().expect("a number"));
        assert!(bytes > 50_000, "{summary:#}");
        stored as f64 / bytes as f64
    };
    let (off, best) = (copied("off"), copied("max"));
    assert!(off > 0.9 && best < 0.7, "{off} and {best}");
}
