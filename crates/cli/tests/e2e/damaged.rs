//! Damaged repositories: every kind of object, damaged in every way, is found and named, and what is whole comes back.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::damage::{flip, named, objects, remove, replace, swap, truncate};
use crate::support::{Play, schema, tree};

/// A way to damage one object.
type Damage = fn(&Path, &str);

const WAYS: [(&str, Damage); 4] = [
    ("flipped early", |repository, name| flip(repository, name, 9)),
    ("flipped late", |repository, name| {
        let len = std::fs::metadata(repository.join(name)).expect("there").len() as usize;
        flip(repository, name, len - 5);
    }),
    ("truncated", truncate),
    ("missing", remove),
];

/// Two snapshots of two series, each with two files of their own and one they do not share.
fn two_series() -> Play {
    let play = Play::with_repository();
    for series in ["one", "two"] {
        let seed = u64::from(series.as_bytes()[0]);
        play.write(format!("{series}/large"), tree::noise(seed, 1_500_000));
        play.write(format!("{series}/small"), format!("small file of {series}"));
        play.backup([series, "--series", series]);
    }
    play
}

fn check_json(play: &Play, args: &[&str]) -> (i32, Value) {
    let mut all = vec!["check", "--json"];
    all.extend_from_slice(args);
    let ran = play.larder(all);
    let summary = ran.messages("summary").pop().unwrap_or_else(|| panic!("no summary: {}", ran.stderr));
    schema::check("check_summary", &summary);
    (ran.code, summary)
}

/// The first object whose name begins so, of the job that made the snapshot of a series.
fn object_of(play: &Play, series: &str, kind: &str) -> String {
    let found = play.larder(["snapshots", "--json", "--series", series]).ok().json();
    let id = found[0]["id"].as_str().expect("text").to_owned();
    let names = named(&play.repository(), kind);
    names.into_iter().find(|name| name.contains(&id)).expect("an object of the job")
}

#[test]
fn a_whole_repository_has_no_damage() {
    let play = two_series();
    for args in [
        &[][..],
        &["--read-data"],
        &["--read-data-subset", "50%"],
        &["--read-data-subset", "1/2"],
        &["--read-data-subset", "1MiB"],
        &["latest"],
    ] {
        let (code, summary) = check_json(&play, args);
        assert_eq!((code, &summary["num_errors"]), (0, &json!(0)), "{args:?}: {summary}");
    }
    assert!(play.larder(["check"]).ok().text().contains("the structure is whole"));
}

#[test]
fn damage_of_containers_is_named_with_snapshot_and_file() {
    for kind in ["data/", "meta/"] {
        for (way, damage) in WAYS {
            let play = two_series();
            let name = object_of(&play, "one", kind);
            damage(&play.repository(), &name);
            let (code, summary) = check_json(&play, &["--read-data"]);
            assert_eq!(code, 13, "{kind} {way}: {summary}");
            let damages = summary["damages"].as_array().expect("an array");
            let found = damages.iter().find(|found| found["object"] == json!(name));
            let found = found.unwrap_or_else(|| panic!("{kind} {way}: {name} is not named in {summary}"));
            let affected = &found["affected"][0];
            assert_eq!(affected["series"], "one", "{kind} {way}: {summary}");
            if kind == "data/" {
                assert!(affected["files"].to_string().contains("one/"), "{kind} {way}: {summary}");
            }
            assert!(damages.iter().all(|found| !found["affected"].to_string().contains("\"two\"")), "{summary}");
            let text = play.larder(["check", "--read-data"]).code(13).text();
            assert!(text.contains(&name) && text.contains("What to do"), "{text}");
        }
    }
}

#[test]
fn swapped_objects_are_not_taken_for_one_another() {
    for kind in ["data/", "meta/", "versions/"] {
        let play = two_series();
        let (a, b) = (object_of(&play, "one", kind), object_of(&play, "two", kind));
        swap(&play.repository(), &a, &b);
        let (code, summary) = check_json(&play, &["--read-data"]);
        assert_eq!(code, 13, "{kind}: {summary}");
        for name in [&a, &b] {
            assert!(summary["damages"].to_string().contains(name.as_str()), "{kind}: {name} is not named in {summary}");
        }
    }
}

#[test]
fn the_rest_of_a_damaged_snapshot_comes_back() {
    let play = Play::with_repository();
    // Small files first, so that they lie in another container than the end of the large one.
    play.write("source/a", "first");
    play.write("source/large", tree::noise(3, 40_000_000));
    play.write("source/z", "last");
    play.backup(["source"]);
    let data = named(&play.repository(), "data/");
    assert!(data.len() >= 3, "several containers: {data:?}");
    let middle = &data[data.len() / 2];
    remove(&play.repository(), middle);
    let root = format!("latest:{}", play.path("source").display());
    let ran =
        play.larder(["restore", &root, "--target", "back"]).code(13).says("/large").says("cannot be read any more");
    assert!(!ran.stderr.contains("/z"), "{}", ran.stderr);
    let ran = play.larder(["restore", &root, "--target", "again", "--json"]).code(13);
    let summary = ran.messages("summary").pop().expect("a summary");
    schema::check("restore_summary", &summary);
    assert_eq!((&summary["damaged"], &summary["error_count"]), (&json!(1), &json!(1)), "{summary}");
    for name in ["a", "z"] {
        assert_eq!(
            std::fs::read(play.path("back").join(name)).ok(),
            std::fs::read(play.path("source").join(name)).ok()
        );
    }
    let dump = play.larder(["dump", &format!("{root}/large")]).code(13);
    assert!(dump.stderr.contains("large"), "{}", dump.stderr);
    // As the advice says: a new series is whole.
    play.backup(["source", "--series", "again", "--no-similar"]);
    play.larder(["restore", &root, "--target", "whole", "--series", "again"]).ok();
    tree::same(&play.path("source"), &play.path("whole"));
    let (code, summary) = check_json(&play, &["--read-data", "--series", "again"]);
    assert_eq!((code, &summary["num_errors"]), (0, &json!(0)), "{summary}");
}

#[test]
fn one_damaged_manifest_hides_no_other_snapshot() {
    for (way, damage) in &WAYS[..3] {
        let play = two_series();
        let name = object_of(&play, "two", "versions/");
        let id = name.split('/').nth(2).expect("an id").to_owned();
        damage(&play.repository(), &name);
        let (code, summary) = check_json(&play, &[]);
        assert_eq!(code, 13, "{way}: {summary}");
        assert!(summary["damages"].to_string().contains(&id), "{way}: {summary}");
        // Damage late in a manifest does not concern the listing.
        let listed = play.larder(["snapshots", "--json"]);
        assert!(matches!(listed.code, 0 | 13), "{way}: {}", listed.stderr);
        if listed.code == 13 {
            assert_eq!(listed.json().as_array().expect("an array").len(), 1, "{way}");
            assert!(listed.stderr.contains(&id[24..]), "{way}: {}", listed.stderr);
            schema::check("warning", &listed.errors("warning")[0]);
            let found = play.larder(["ls", &id]).code(13);
            assert!(found.stderr.contains("cannot be read"), "{way}: {}", found.stderr);
            let instead = play.larder(["ls", "latest"]).code(13);
            assert!(instead.text().contains("one/large") && instead.stderr.contains("is damaged"), "{way}");
        }
        play.larder(["restore", "latest", "--series", "one", "--target", "back"]).ok();
    }
}

#[test]
fn a_damaged_base_is_not_built_on() {
    for (_, damage) in &WAYS[..3] {
        let play = two_series();
        damage(&play.repository(), &object_of(&play, "two", "versions/"));
        play.backup(["two", "--series", "two"]);
        play.larder(["restore", "latest", "--series", "two", "--target", "back"]);
        let below = play.path("back").join(play.path("two").strip_prefix("/").expect("absolute"));
        tree::same(&play.path("two"), &below);
    }
}

/// A backup builds on nothing that is missing, and says so; the snapshot that it makes is whole, and so the next one has nothing to say.
#[test]
fn a_backup_notices_what_is_missing_of_its_base() {
    for layout in ["standard", "lifecycle"] {
        for (kind, optimized) in [("data/", false), ("meta/", false), ("data/", true)] {
            let what = format!("{layout}, {kind}, {optimized}");
            let play = Play::with_repository();
            for version in 0..3 {
                play.write("source/same", tree::noise(1, 1_500_000));
                play.write("source/changes", tree::noise(2 + version, 1_500_000));
                play.write("source/small", format!("version {version}"));
                play.backup(["source", "--series", "s", "--layout", layout]);
                if optimized {
                    play.larder(["optimize", "--min-age", "0"]).ok();
                }
            }
            let whole = backed_up(&play, 0);
            assert_eq!(whole["missing_objects"], json!([]), "{what}");
            let lost = lose_needed(&play, kind);
            let told = backed_up(&play, 13);
            assert_eq!(told["missing_objects"], json!([lost]), "{what}");
            assert_eq!(told["files_unmodified"], 0, "{what}: all files are read");
            let added = told["data_added"].as_u64().expect("a number");
            assert!(added < 2_500_000, "{what}: what is there is not stored again, but {added} bytes were");
            play.larder(["restore", "latest", "--target", "back"]).ok();
            let below = play.path("back").join(play.path("source").strip_prefix("/").expect("absolute"));
            tree::same(&play.path("source"), &below);
            play.larder(["check", told["snapshot_id"].as_str().expect("text")]).ok();
            // In the layout lifecycle the next one may build on snapshots before that too.
            if layout == "standard" {
                let again = backed_up(&play, 0);
                assert_eq!((&again["missing_objects"], &again["files_new"]), (&json!([]), &json!(0)), "{what}");
            }
        }
    }
}

/// What passes moved is not there either, and without an index nobody can say where it went. That is no reason to store it again, and
/// no success.
#[test]
fn a_backup_without_an_index_says_that_more_may_be_missing() {
    let play = Play::with_repository();
    for version in 0..3 {
        play.write("source/same", tree::noise(1, 1_500_000));
        play.write("source/changes", tree::noise(2 + version, 1_500_000));
        play.settle();
        play.backup(["source", "--series", "s", "--layout", "lifecycle"]);
        play.larder(["optimize"]).ok();
    }
    for name in named(&play.repository(), "index/") {
        remove(&play.repository(), &name);
    }
    let summary = backed_up(&play, 13);
    assert_eq!((&summary["missing_objects"], &summary["files_new"]), (&json!([]), &json!(0)));
    assert_eq!(summary["index_unreadable"], true);
    play.larder(["repair", "index"]).ok();
    assert_eq!(backed_up(&play, 0)["index_unreadable"], false);
}

/// A container that is cut short, or has a folder in its place, is no better than none.
#[test]
fn a_backup_builds_on_no_container_that_is_cut_short_or_unreadable() {
    for layout in ["standard", "lifecycle"] {
        for (kind, way) in [("data/", "truncated"), ("meta/", "truncated"), ("data/", "folder"), ("data/", "empty")] {
            let what = format!("{layout}, {kind}, {way}");
            let play = Play::with_repository();
            play.write("source/same", tree::noise(1, 1_500_000));
            play.backup(["source", "--series", "s", "--layout", layout]);
            let name = lose_needed(&play, kind);
            let at = play.repository().join(&name);
            match way {
                "folder" => std::fs::create_dir(&at).expect("a folder"),
                "empty" => std::fs::write(&at, "").expect("written"),
                _ => {
                    let bytes = std::fs::read(play.path("aside")).expect("moved there");
                    std::fs::write(&at, &bytes[..bytes.len() - 100]).expect("written");
                }
            }
            let told = backed_up(&play, 13);
            assert_eq!(told["missing_objects"], json!([name]), "{what}");
            let newest = told["snapshot_id"].as_str().expect("text");
            play.larder(["restore", newest, "--target", "back"]);
            let below = play.path("back").join(play.path("source").strip_prefix("/").expect("absolute"));
            tree::same(&play.path("source"), &below);
        }
    }
}

/// The copy that a pass kept of two is lost: a snapshot whose own container was retired for it has lost its contents too.
#[test]
fn a_backup_notices_that_a_retired_container_leads_nowhere() {
    let play = Play::with_repository();
    let contents = tree::noise(1, 3_000_000);
    for series in ["a", "b"] {
        play.write(format!("{series}/file"), &contents);
        play.backup([series, "--series", series, "--no-similar"]);
    }
    let first = play.larder(["snapshots", "--json"]).ok().json();
    let [of_a, of_b] = ["a", "b"].map(|series| {
        let rows = first.as_array().expect("an array").clone();
        let row = rows.into_iter().find(|row| row["series"] == json!(series)).expect("a snapshot");
        row["id"].as_str().expect("text").to_owned()
    });
    for series in ["a", "b"] {
        play.write(format!("{series}/file"), tree::noise(u64::from(series.as_bytes()[0]), 1_000_000));
        play.backup([series, "--series", series, "--no-similar"]);
    }
    play.larder(["optimize", "--max-unused", "0"]).ok();
    let data = named(&play.repository(), "data/");
    let is_there = |id: &String| data.iter().any(|name| name.contains(id.as_str()));
    let (retired, kept, series) = match (is_there(&of_a), is_there(&of_b)) {
        (false, true) => (of_a, of_b, "a"),
        (true, false) => (of_b, of_a, "b"),
        _ => panic!("one copy goes: {data:?}"),
    };
    let lost: Vec<_> = data.iter().filter(|name| name.contains(kept.as_str())).collect();
    lost.iter().for_each(|name| remove(&play.repository(), name));
    play.write(format!("{series}/file"), &contents);
    let args = ["backup", series, "--series", series, "--no-similar", "--parent", &retired, "--json"];
    let told = play.larder(args).code(13).messages("summary").pop().expect("a summary");
    assert_eq!(told["missing_objects"], json!(lost), "{told}");
    play.larder(["restore", told["snapshot_id"].as_str().expect("text"), "--target", "back"]).ok();
    let below = play.path("back").join(play.path(series).strip_prefix("/").expect("absolute"));
    tree::same(&play.path(series), &below);
}

/// Backs the tree up once more; gives the summary.
fn backed_up(play: &Play, code: i32) -> Value {
    let ran = play.larder(["backup", "source", "--series", "s", "--json"]).code(code);
    let summary = ran.messages("summary").pop().unwrap_or_else(|| panic!("no summary: {}", ran.stderr));
    schema::check("backup_summary", &summary);
    summary
}

/// Removes the largest object of a kind that the newest snapshot needs.
fn lose_needed(play: &Play, kind: &str) -> String {
    let at = |name: &String| play.repository().join(name);
    let mut names = named(&play.repository(), kind);
    names.sort_by_key(|name| std::cmp::Reverse(std::fs::metadata(at(name)).expect("there").len()));
    let is_needed = |name: &String| {
        std::fs::rename(at(name), play.path("aside")).expect("moved");
        let is_needed = play.larder(["check", "latest"]).code == 13;
        if !is_needed {
            std::fs::rename(play.path("aside"), at(name)).expect("moved back");
        }
        is_needed
    };
    names.into_iter().find(is_needed).expect("the snapshot needs something")
}

#[test]
fn a_damaged_key_is_damage_and_not_a_wrong_password() {
    let play = two_series();
    let key = named(&play.repository(), "keys/").remove(0);
    let whole = std::fs::read(play.repository().join(&key)).expect("readable");
    truncate(&play.repository(), &key);
    play.larder(["snapshots"]).code(13).says(&key).in_two_lines();
    replace(&play.repository(), &key, &whole);
    play.larder(["snapshots"]).ok();
    remove(&play.repository(), &key);
    play.larder(["snapshots"]).code(12).says("no usable key").in_two_lines();
}

#[test]
fn objects_of_a_newer_format_are_refused_politely() {
    let play = two_series();
    let name = object_of(&play, "one", "versions/");
    let mut bytes = std::fs::read(play.repository().join(&name)).expect("readable");
    bytes[4] = 9;
    replace(&play.repository(), &name, &bytes);
    let ran = play.larder(["snapshots"]);
    assert!(matches!(ran.code, 1 | 13), "{}: {}", ran.code, ran.stderr);
    assert!(ran.stderr.contains("format version 9"), "{}", ran.stderr);
}

#[test]
fn every_object_cut_to_nothing_is_survived() {
    let play = two_series();
    for (name, content) in objects(&play.repository()) {
        replace(&play.repository(), &name, b"");
        for args in
            [&["snapshots"][..], &["check"], &["ls", "latest"], &["stats"], &["restore", "latest", "--target", "back"]]
        {
            // No panic and no unknown code; which one depends on the object.
            let ran = play.larder(args);
            assert!(matches!(ran.code, 0 | 1 | 3 | 12 | 13), "{name} {args:?}: {} {}", ran.code, ran.stderr);
        }
        replace(&play.repository(), &name, &content);
    }
    let (code, summary) = check_json(&play, &["--read-data"]);
    assert_eq!(code, 0, "{summary}");
}

#[test]
fn planted_objects_hide_no_snapshot_and_are_reported() {
    let play = two_series();
    let register = object_of(&play, "one", "versions/");
    let (version, _) = register.rsplit_once('/').expect("a generation");
    let job = version.rsplit('/').next().expect("an id");
    let key = "keys/0000000000000000".to_owned();
    let planted = [
        version.replacen("versions/", "forgotten/", 1),
        format!("{version}/7"),
        format!("jobs/{job}/4000000000"),
        key.clone(),
    ];
    for name in &planted {
        play.write(play.repository().join(name), "planted by whoever may create objects");
    }
    let listed = play.larder(["snapshots", "--json"]).ok();
    assert_eq!(listed.json().as_array().expect("an array").len(), 2);
    let warnings = listed.errors("warning");
    for name in &planted[..2] {
        let warning = warnings.iter().find(|warning| warning["message"].to_string().contains(name.as_str()));
        schema::check("warning", warning.unwrap_or_else(|| panic!("no warning of {name}: {}", listed.stderr)));
    }
    play.larder(["restore", "latest", "--series", "one", "--target", "back"]).ok();
    let (code, summary) = check_json(&play, &[]);
    assert_eq!((code, &summary["num_errors"]), (13, &json!(planted.len())), "{summary}");
    for name in &planted {
        assert!(summary["damages"].to_string().contains(name.as_str()), "{name} is not named in {summary}");
    }
    assert!(play.larder(["check"]).code(13).text().contains("no snapshot needs it"));
    // A wrong password is one, whatever else lies among the keys; what is no key is shown, and can be removed.
    crate::support::run(play.command(["snapshots"]).env("LARDER_PASSWORD", "wrong")).code(12).says("wrong password");
    let keys = play.larder(["key", "list"]).ok();
    assert_eq!(keys.lines().len(), 3, "{}", keys.text());
    assert!(keys.stderr.contains("0000000000000000 is no key"), "{}", keys.stderr);
    play.larder(["key", "remove", "0000"]).ok();
    assert!(!play.repository().join(&key).exists());
}
