//! `optimize`, `forget --prune`, `gnode`: the real binary frees what it says, and says what it freed.

use std::collections::BTreeMap;

use larder_testkit::data;

use crate::support::{Play, damage, scattered, schema};

/// Versions of a file that has nothing in common with the one before.
fn versions(count: u64) -> (Play, Vec<String>) {
    let play = Play::with_repository();
    let ids = (0..count).map(|number| {
        play.write("source/file", data::random(number, 200_000));
        play.backup(["source", "--series", "s"])
    });
    let ids = ids.collect();
    (play, ids)
}

fn stored(play: &Play) -> u64 {
    play.objects().iter().filter(|(name, _)| name.starts_with("data/")).map(|(_, bytes)| bytes.len() as u64).sum()
}

#[test]
fn space_is_free_when_the_pass_ends() {
    let (play, ids) = versions(4);
    let before = stored(&play);
    play.larder(["forget", &ids[1], &ids[3]]).ok();
    assert_eq!(stored(&play), before, "forgetting deletes nothing");
    let plan = play.larder(["optimize", "--dry-run", "--json"]).ok().json();
    schema::check("optimize_summary", &plan);
    assert_eq!((&plan["outcome"], &plan["plan"]["snapshots"]), (&"planned".into(), &2.into()));
    assert_eq!(stored(&play), before);
    let text = play.larder(["optimize", "-n", "--prices", "creates=0,reads=0,deletes=1000,storage=0"]).ok().text();
    assert!(text.contains("would index 2 new snapshots with 4 containers"), "{text}");
    assert!(text.contains("would delete 4 containers") && text.contains("saves 0.0000 USD per month"), "{text}");
    play.larder(["optimize", "--memory", "15M"]).code(2).says("at least 16.0 MiB");
    let done = play.larder(["optimize", "--memory", "16M", "--json"]).ok().json();
    schema::check("optimize_summary", &done);
    assert_eq!((&done["outcome"], &done["index"]), (&"done".into(), &1.into()));
    // Only of a dry run the requests are counted apart that it takes to find out.
    assert!(plan["plan"]["planning_requests"].as_u64() > Some(0));
    let mut planned = plan["plan"].clone();
    planned["planning_requests"] = 0.into();
    assert!(planned["cost"].is_null() && planned["planning_cost"].is_null(), "a folder has no prices");
    assert_eq!(done["plan"], planned);
    let freed = done["done"]["container_bytes"].as_u64().expect("a number");
    assert!(before - stored(&play) > 400_000 && freed >= before - stored(&play));
    for (number, id) in [(0, &ids[0]), (2, &ids[2])] {
        play.larder(["restore", &format!("{id}:{}", play.path("source").display()), "--target", id]).ok();
        assert_eq!(std::fs::read(play.path(id).join("file")).expect("restored"), data::random(number, 200_000));
    }
    let checked = play.larder(["check", "--read-data", "--json"]).ok().messages("summary").remove(0);
    assert_eq!(checked["unused_containers"], 0);
    assert_eq!(damage::named(&play.repository(), "forgotten/").len(), 0);
    // The check left a closed lease.
    play.larder(["prune"]).ok();
    assert!(play.larder(["prune"]).ok().text().contains("nothing to do"));
}

#[test]
fn what_forgetting_frees_is_known_before_to_the_byte() {
    let (play, ids) = versions(3);
    // A version that shares most with the one before it.
    play.write("source/other", "small");
    let shared = play.backup(["source", "--series", "s"]);
    let free = |id: &str| {
        let all = play.larder(["snapshots", "--json"]).ok().json();
        schema::check("snapshots", &all);
        let version = all.as_array().expect("an array").iter().find(|version| version["id"] == id).cloned();
        version.expect("listed")["free_bytes"].as_u64().expect("a number")
    };
    let containers = || {
        let all = play
            .objects()
            .into_iter()
            .filter(|(name, _)| ["data/", "meta/", "versions/"].iter().any(|of| name.starts_with(of)));
        all.map(|(_, bytes)| bytes.len() as u64).sum::<u64>()
    };
    assert!(free(&shared) < 30_000 && free(&ids[2]) < 30_000 && free(&ids[0]) > 200_000);
    let by_series = play.larder(["stats", "--by", "series", "--json"]).ok().json();
    schema::check("stats", &by_series);
    assert_eq!(
        (&by_series["free_bytes"], &by_series["groups"][0]["free_bytes"]),
        (&containers().into(), &containers().into())
    );
    let two = play.larder(["stats", &ids[2], &shared, "--json"]).ok().json()["free_bytes"].as_u64().expect("a number");
    assert!(two > 200_000);
    let text = play.larder(["snapshots"]).ok().text();
    assert!(text.lines().next().expect("a line").contains("Free"), "{text}");
    assert!(!play.larder(["snapshots", "--no-free"]).ok().text().contains("Free"));
    // Another series with much of the same.
    let other = play.backup(["source", "--series", "t", "--parent", &shared]);
    for id in [&ids[1], &shared, &ids[0], &other, &ids[2]] {
        let (expected, before) = (free(id), containers());
        let plan = play.larder(["forget", id, "--dry-run", "--json"]).ok().json();
        assert_eq!(plan[0]["free_bytes"], expected);
        play.larder(["forget", id, "--prune"]).ok();
        assert_eq!(before - containers(), expected);
    }
    assert_eq!(containers(), 0);
}

#[test]
fn forget_can_make_the_pass_itself() {
    let (play, ids) = versions(3);
    let before = stored(&play);
    let ran = play.larder(["forget", "--keep-last", "1", "--prune", "--json"]).ok();
    let lines = ran.json_lines();
    schema::check("forget", &lines[0][0]);
    schema::check("optimize_summary", &lines[1]);
    assert_eq!(lines[1]["plan"]["snapshots"], 2);
    assert!(stored(&play) < before / 2);
    play.larder(["restore", &ids[2], "--target", "back"]).ok();
    let text = play.larder(["forget", "latest", "--prune"]).ok().text();
    assert!(text.contains("forgot 1 snapshot") && text.contains("deleted 2 containers"), "{text}");
    assert_eq!(stored(&play), 0);
}

#[test]
fn a_pass_that_cannot_know_what_is_needed_deletes_nothing() {
    let (play, ids) = versions(2);
    play.larder(["forget", &ids[0]]).ok();
    let manifest = damage::named(&play.repository(), "versions/").into_iter().find(|name| name.contains(&ids[1]));
    damage::flip(&play.repository(), &manifest.expect("a manifest"), 200);
    let before = play.objects();
    play.larder(["optimize"])
        .code(13)
        .says("nothing may be deleted")
        .says(&format!("larder forget {}", ids[1]))
        .in_two_lines();
    assert_eq!(play.objects(), before);
    // The way out that it names.
    play.larder(["forget", &ids[1]]).code(13);
    play.larder(["optimize"]).ok();
    assert_eq!(stored(&play), 0);
}

#[test]
fn the_newest_snapshot_is_laid_out_anew_when_little_of_many_containers_is_left_in_it() {
    let (play, newest, content) = scattered(data::random);
    let before = play.objects().len();
    let prices = "creates=0.005,reads=0.0004";
    let plan = ["optimize", "--task", "defragment", "--dry-run", "--json", "--prices", prices];
    let plan = play.larder(plan).ok().json();
    schema::check("optimize_summary", &plan);
    let planned = &plan["defragmented"];
    assert_eq!(planned["snapshots"], 1);
    assert!(
        planned["requests"].as_u64() > planned["containers"].as_u64() && planned["cost"].as_f64() > Some(0.0),
        "{planned}"
    );
    assert!(planned["containers"].as_u64().expect("a number") > 1);
    assert!(planned["bytes"].as_u64().expect("a number") < 1_500_000, "only a part of the snapshot: {planned}");
    assert_eq!(play.objects().len(), before, "a dry run writes nothing");
    let kept = play.larder(["optimize", "--task", "defragment", "--max-rewrite", "1K", "--json"]).ok().json();
    assert_eq!(kept["defragmented"]["snapshots"], 0);
    let text = play.larder(["optimize"]).ok().text();
    assert!(text.contains("rewrote") && text.contains("1 snapshot now spans"), "{text}");
    let done = play.larder(["optimize", "--json"]).ok().json();
    schema::check("optimize_summary", &done);
    assert_eq!(done["defragmented"]["snapshots"], 0, "once is enough");
    play.larder(["check", "--read-data"]).ok();
    let source = format!("{newest}:{}", play.path("source").display());
    play.larder(["restore", &source, "--target", "restored"]).ok();
    assert!(std::fs::read(play.path("restored").join("file")).expect("restored") == content);
    assert_eq!(play.larder(["snapshots", "--json"]).ok().json().as_array().map(Vec::len), Some(10));
}

#[test]
fn what_two_series_have_is_stored_once_after_a_pass() {
    let play = Play::with_repository();
    play.write("source/common", data::random(1, 3_000_000));
    let mut ids = Vec::new();
    for series in ["a", "b"] {
        play.write("source/own", data::random(series.len() as u64 + u64::from(series.as_bytes()[0]), 10_000));
        ids.push(play.backup(["source", "--series", series, "--no-similar"]));
    }
    let before = stored(&play);
    assert!(before > 6_000_000, "{before}");
    let text = play.larder(["optimize"]).ok().text();
    assert!(text.contains("shared") && text.contains("1 snapshot now spans 1 container fewer"), "{text}");
    assert!(stored(&play) < 3_100_000, "{}", stored(&play));
    let done = play.larder(["optimize", "--json"]).ok().json();
    schema::check("optimize_summary", &done);
    assert_eq!(done["defragmented"]["snapshots"], 0);
    play.larder(["check", "--read-data"]).ok();
    // Each of them without the other, and without the index.
    play.larder(["forget", &ids[1]]).ok();
    play.larder(["optimize"]).ok();
    std::fs::remove_dir_all(play.path("repository").join("index")).expect("there is one");
    let source = format!("{}:{}", ids[0], play.path("source").display());
    play.larder(["restore", &source, "--target", "restored"]).ok();
    assert!(std::fs::read(play.path("restored").join("common")).expect("restored") == data::random(1, 3_000_000));
}

/// What two series have in common and neither's newest snapshot needs is kept once, and both are restored.
#[test]
fn what_is_stored_twice_is_retired() {
    let play = Play::with_repository();
    play.write("source/file", data::random(1, 300_000));
    let ids = ["a", "b"].map(|series| play.backup(["source", "--series", series, "--force", "--no-similar"]));
    for (number, series) in [(2, "a"), (3, "b")] {
        play.write("source/file", data::random(number, 20_000));
        play.backup(["source", "--series", series, "--force", "--no-similar"]);
    }
    // A plan knows of what a pass has taken in.
    play.larder(["optimize", "--task", "collect"]).ok();
    let before = stored(&play);
    assert!(before > 600_000);
    let plan = play.larder(["optimize", "--task", "dedup", "--dry-run", "--json"]).ok().json();
    schema::check("optimize_summary", &plan);
    assert_eq!((&plan["reclaimed"]["containers"], &plan["reclaimed"]["planned_copied_bytes"]), (&1.into(), &0.into()));
    let text = play.larder(["optimize", "--task", "dedup", "--dry-run", "--prices", "storage=1"]).ok().text();
    assert!(text.contains("would retire 1 container") && text.contains("saves"), "{text}");
    assert_eq!(stored(&play), before);
    let done = play.larder(["optimize", "--task", "dedup", "--max-unused", "0", "--json"]).ok().json();
    schema::check("optimize_summary", &done);
    assert_eq!((&done["outcome"], &done["reclaimed"]["containers"]), (&"done".into(), &1.into()));
    assert!(before - stored(&play) > 300_000);
    // Of the one that was retired every chunk is found through the index, in one look for all of them.
    let found = ids.each_ref().map(|id| {
        let subpath = format!("{id}:{}", play.path("source").display());
        let restored = play.larder(["restore", &subpath, "--target", id, "--json"]).ok().json_lines();
        assert_eq!(std::fs::read(play.path(id).join("file")).expect("restored"), data::random(1, 300_000));
        let summary = restored.last().expect("a summary");
        schema::check("restore_summary", summary);
        [&summary["chunks_found_by_index"], &summary["index_look_ups"]].map(|count| count.as_u64().expect("a count"))
    });
    let [[redirected, look_ups], others] = [found.iter().max(), found.iter().min()].map(|counts| *counts.expect("two"));
    assert!(redirected >= 10 && look_ups == 1 && others == [0, 0], "{found:?}");
    play.larder(["check", "--read-data"]).ok();
    play.larder(["repair", "index", "--dry-run"]).ok();
    let exact = play.larder(["optimize", "--task", "exact", "--json"]).ok().json();
    assert_eq!((&exact["reclaimed"]["exact"], &exact["reclaimed"]["containers"]), (&true.into(), &0.into()));
}

/// A copy that was made while a pass ran: it has the index of after the pass, the containers of before, and lacks what the pass wrote.
#[test]
fn a_copy_that_lacks_a_container_is_not_whole() {
    let play = Play::with_repository();
    for (series, own, new) in [("a", 2, 4), ("b", 3, 5)] {
        play.write("source/one", data::random(1, 200_000));
        play.write("source/two", data::random(own, 200_000));
        play.backup(["source", "--series", series, "--force", "--no-similar"]);
        play.write("source/one", data::random(new, 20_000));
        play.write("source/two", "");
        play.backup(["source", "--series", series, "--force", "--no-similar"]);
    }
    play.larder(["optimize", "--task", "collect"]).ok();
    let objects = || play.objects().into_iter().collect::<BTreeMap<String, Vec<u8>>>();
    let before = objects();
    play.larder(["optimize", "--max-unused", "0"]).ok();
    let after = objects();
    let of_data = |name: &&String| name.starts_with("data/");
    let written: Vec<_> = after.keys().filter(of_data).filter(|name| !before.contains_key(*name)).collect();
    let retired: Vec<_> = before.keys().filter(of_data).filter(|name| !after.contains_key(*name)).collect();
    assert!(!written.is_empty() && !retired.is_empty(), "{written:?} {retired:?}");
    for name in &retired {
        let path = play.repository().join(name);
        std::fs::create_dir_all(path.parent().expect("in a folder")).expect("made");
        std::fs::write(path, &before[*name]).expect("written");
    }
    written.iter().for_each(|name| std::fs::remove_file(play.repository().join(name)).expect("there is one"));
    let text = play.larder(["check", "--read-data"]).code(13).text();
    assert!(written.iter().all(|name| text.contains(*name)) && text.contains("needed by snapshot"), "{text}");
    for _ in 0..2 {
        play.larder(["optimize", "--task", "collect"]).code(13);
    }
    assert!(retired.iter().all(|name| play.repository().join(name).exists()));
    play.larder(["repair", "index"]).ok();
    play.larder(["optimize", "--task", "collect"]).ok();
    play.larder(["check", "--read-data"]).ok();
}

/// The newest index alone is gone: nothing is deleted on the word of the one before it, and the loss is told.
#[test]
fn the_loss_of_the_newest_index_is_told() {
    let (play, ids) = versions(3);
    play.larder(["optimize"]).ok();
    play.larder(["forget", &ids[0]]).ok();
    play.larder(["optimize"]).ok();
    std::fs::remove_file(play.repository().join("index/2")).expect("there is one");
    let text = play.larder(["check"]).code(13).text();
    assert!(text.contains("index/2: it is missing"), "{text}");
    play.larder(["optimize", "--dry-run"]).code(13);
    // A machine that remembers it rebuilds nothing by itself.
    play.larder(["optimize"]).code(13).says("index 2, which this machine saw, is gone");
    let done = play.larder(["optimize", "--accept-state", "--json"]).ok().json();
    assert_eq!(done["index_rebuilt"], 3);
    play.larder(["check", "--read-data"]).ok();
}

/// Bytes of a repository's data that its only snapshot does not need.
fn unused(play: &Play) -> u64 {
    let logical = play.larder(["stats", "--json"]).ok().json()["total_size"].as_u64().expect("a number");
    stored(play).saturating_sub(logical)
}

/// Small files in one container with a large one that changed: the container goes, although another takes its place.
#[test]
fn a_small_repository_shrinks() {
    let play = Play::with_repository();
    for number in 0..41 {
        play.write(format!("source/small-{number}"), data::random(number, 2_000));
    }
    for edition in 0..2 {
        play.write("source/large", data::random(100 + edition, 5_000_000));
        play.backup(["source", "--series", "s"]);
    }
    assert!(unused(&play) < 100_000, "both are needed");
    play.larder(["forget", "--keep-last", "1", "--prune"]).ok();
    assert!(unused(&play) < 100_000, "{}", unused(&play));
    play.larder(["check", "--read-data"]).ok();
}

/// The user says how much may be unused. Without that, what is dense enough stays.
#[test]
fn nothing_unused_is_left_when_that_is_asked_for() {
    let play = Play::with_repository();
    let content = data::random(1, 3_000_000);
    play.write("source/file", &content);
    play.backup(["source", "--series", "s"]);
    play.write("source/file", &content[..2_650_000]);
    play.backup(["source", "--series", "s"]);
    play.larder(["forget", "--keep-last", "1", "--prune"]).ok();
    assert!(unused(&play) > 300_000, "{}", unused(&play));
    play.larder(["optimize", "--max-unused", "20"]).ok();
    assert!(unused(&play) > 300_000, "a ninth is less than a fifth");
    play.larder(["optimize", "--max-unused", "0"]).ok();
    // What is left is padding: how much depends on the keys, and is far from 100,000 bytes.
    assert!(unused(&play) < 100_000, "{}", unused(&play));
    assert!(play.larder(["optimize", "--max-unused", "0"]).ok().text().contains("nothing to do"));
    play.larder(["restore", "latest", "--target", "restored"]).ok();
    play.larder(["check", "--read-data"]).ok();
}
