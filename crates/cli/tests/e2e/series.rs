//! `series`, `layout`, and what forgetting frees in the layout `lifecycle`.

use larder_testkit::data;
use serde_json::{Value, json};

use crate::support::{Play, damage, schema};

fn set(play: &Play, args: &[&str]) -> Value {
    let line: Vec<&str> = ["series", "set", "--json"].iter().chain(args).copied().collect();
    let set = play.larder(line).ok().json();
    schema::check("settings", &set);
    set["settings"].clone()
}

fn show(play: &Play, which: &str) -> Value {
    let shown = play.larder(["series", "show", which, "--json"]).ok().json();
    schema::check("series", &shown);
    shown
}

fn layout_of(play: &Play, id: &str) -> Value {
    let all = play.larder(["snapshots", "--json", id]).ok().json();
    schema::check("snapshots", &all);
    all[0]["layout"].clone()
}

#[test]
fn a_setting_must_be_given() {
    let play = Play::with_repository();
    play.larder(["series", "set", "s"]).code(2).says("no setting was given").says("--layout");
}

#[test]
fn a_new_series_has_the_layout_that_is_asked_for_else_set_else_standard() {
    let play = Play::with_repository();
    play.write("source/file", "content");
    assert_eq!(layout_of(&play, &play.backup(["source", "--series", "before"])), "standard");
    assert_eq!(set(&play, &["--default", "--layout", "lifecycle"])["layout"], "lifecycle");
    assert_eq!(layout_of(&play, &play.backup(["source", "--series", "after"])), "lifecycle");
    // Named after host and path.
    assert_eq!(layout_of(&play, &play.backup(["source"])), "lifecycle");
    assert_eq!(layout_of(&play, &play.backup(["source", "--series", "before"])), "standard", "it has snapshots");
    set(&play, &["own", "--layout", "standard"]);
    set(&play, &["own", "--holes", "5"]);
    let own = show(&play, "own");
    assert_eq!((&own["layout"], &own["holes_percent"], &own["snapshots"]), (&json!("standard"), &json!(5), &json!(0)));
    assert_eq!(own["settings"]["layout"], "standard", "a change of one thing leaves the others");
    assert_eq!(layout_of(&play, &play.backup(["source", "--series", "own"])), "standard");
    let asked = play.backup(["source", "--series", "asked", "--layout", "standard"]);
    assert_eq!(layout_of(&play, &asked), "standard");
    let default = show(&play, "--default");
    assert_eq!((&default["layout"], &default["holes_percent"]), (&json!("lifecycle"), &json!(20)));
    assert!(play.larder(["series", "show", "own"]).ok().text().contains("up to 5 %, set for this series"));
    assert!(play.larder(["series", "show", "--default"]).ok().text().contains("lifecycle"));
}

#[test]
fn a_series_keeps_its_layout() {
    let play = Play::with_repository();
    play.write("source/file", "content");
    play.backup(["source", "--series", "s", "--layout", "lifecycle"]);
    let before = play.objects();
    for refused in [
        &["backup", "source", "--series", "s", "--layout", "standard"][..],
        &["series", "set", "s", "--layout", "standard"],
        &["backup", "--stdin-from-command", "--series", "s", "--layout", "standard", "--", "touch", "was started"],
    ] {
        play.larder(refused)
            .code(1)
            .says("series s has snapshots in the layout lifecycle, which it keeps: not standard")
            .in_two_lines();
    }
    assert_eq!(play.objects(), before);
    assert!(!play.path("was started").exists(), "a refusal costs no dump of a database");
    // What it has can be said again, and the default is not about it.
    play.backup(["source", "--series", "s", "--layout", "lifecycle"]);
    set(&play, &["s", "--layout", "lifecycle", "--holes", "0"]);
    set(&play, &["--default", "--layout", "standard"]);
    assert_eq!(layout_of(&play, &play.backup(["source", "--series", "s"])), "lifecycle");
}

#[test]
fn series_are_listed_with_and_without_snapshots() {
    let play = Play::with_repository();
    assert!(play.larder(["series", "list"]).ok().text().contains("no series"));
    play.write("source/file", data::random(1, 50_000));
    play.backup(["source", "--series", "b"]);
    let newest = play.backup(["source", "--series", "b"]);
    set(&play, &["a", "--layout", "lifecycle"]);
    let all = play.larder(["series", "list", "--json"]).ok().json();
    let all = all.as_array().expect("an array");
    all.iter().for_each(|series| schema::check("series", series));
    let facts: Vec<_> = all.iter().map(|series| (&series["series"], &series["layout"], &series["snapshots"])).collect();
    assert_eq!(facts, [(&json!("a"), &json!("lifecycle"), &json!(0)), (&json!("b"), &json!("standard"), &json!(2))]);
    assert_eq!((&all[1]["newest"], &all[1]["newest_bytes"]), (&json!(newest), &json!(50_000)));
    assert!(all[1]["added_bytes"].as_u64().is_some_and(|bytes| bytes > 50_000));
    let lines = play.larder(["series", "list"]).ok().lines();
    assert!(lines[2].starts_with("a ") && lines[3].starts_with("b ") && lines[4].contains("new series"), "{lines:?}");
    play.larder(["series", "show", "c"]).code(1).says("there is no series c").in_two_lines();
    for wrong in [
        &["series"][..],
        &["series", "set", "a"],
        &["series", "set", "--layout", "standard"],
        &["series", "set", "a", "--default", "--layout", "standard"],
        &["series", "set", "a", "--layout", "other"],
        &["series", "set", "a", "--holes", "101"],
        &["series", "set", "", "--holes", "1"],
        &["series", "show"],
        &["layout"],
    ] {
        play.larder(wrong).code(2);
    }
}

/// Who may create objects cannot set anything, and what is damaged says nothing.
#[test]
fn settings_that_do_not_open_are_ignored() {
    let play = Play::with_repository();
    set(&play, &["--default", "--layout", "lifecycle", "--holes", "7"]);
    set(&play, &["--default", "--holes", "8"]);
    let objects = damage::named(&play.repository(), "settings/");
    assert_eq!(objects.len(), 2);
    damage::flip(&play.repository(), "settings/default/1", 40);
    let shown = show(&play, "--default");
    assert_eq!((&shown["layout"], &shown["holes_percent"]), (&json!("lifecycle"), &json!(7)));
    assert_eq!(set(&play, &["--default", "--holes", "9"])["holes_percent"], 9);
    assert_eq!(show(&play, "--default")["holes_percent"], 9);
}

/// A file that changes a little with every snapshot, in the layout `lifecycle`.
fn lifecycle(count: u64) -> (Play, Vec<String>) {
    let play = Play::with_repository();
    let ids = (0..count).map(|number| {
        play.write("source/same", data::random(1, 400_000));
        play.write("source/for two", data::random(100 + number / 2, 300_000));
        play.write("source/for one", data::random(200 + number, 200_000));
        play.backup(["source", "--series", "s", "--layout", "lifecycle"])
    });
    let ids = ids.collect();
    (play, ids)
}

fn layout(play: &Play) -> Value {
    let layout = play.larder(["layout", "s", "--json"]).ok().json();
    schema::check("layout", &layout);
    layout
}

fn containers(play: &Play) -> u64 {
    let objects = play.objects().into_iter();
    let all = objects.filter(|(name, _)| ["data/", "meta/", "versions/"].iter().any(|of| name.starts_with(of)));
    all.map(|(_, bytes)| bytes.len() as u64).sum()
}

#[test]
fn a_layout_is_shown_before_the_first_pass_and_drawn() {
    let (play, ids) = lifecycle(3);
    let shown = layout(&play);
    assert_eq!((&shown["index"], &shown["layout"]), (&json!(0), &json!("lifecycle")));
    let snapshots = shown["snapshots"].as_array().expect("an array");
    assert_eq!(snapshots.iter().map(|snapshot| &snapshot["id"]).collect::<Vec<_>>(), ids.iter().collect::<Vec<_>>());
    assert!(snapshots.iter().all(|snapshot| snapshot["state"] == "new"));
    // Of the first two nothing is known to go: the third may use what they stored. It goes itself.
    assert!(snapshots[2]["free_bytes"].as_u64().is_some_and(|bytes| bytes > 500_000));
    let text = play.larder(["layout", "s", "--svg", "drawing.svg"]).ok().text();
    assert!(text.contains("no pass was made yet") && text.contains("active"), "{text}");
    let drawing = std::fs::read_to_string(play.path("drawing.svg")).expect("it is drawn");
    assert!(drawing.starts_with("<svg") && drawing.trim_end().ends_with("</svg>"));
    play.larder(["layout", "s", "--svg", "no/such/folder/drawing"]).code(1).says("no/such/folder").in_two_lines();
    play.larder(["layout", "t"]).code(1).says("there is no series t").in_two_lines();
    play.backup(["source", "--series", "t"]);
    play.larder(["layout", "t"]).code(1).says("series t is in the layout standard").in_two_lines();
}

#[test]
fn what_forgetting_frees_is_known_by_categories() {
    let (play, ids) = lifecycle(5);
    play.larder(["optimize"]).ok();
    let shown = layout(&play);
    assert!(shown["snapshots"].as_array().expect("an array").iter().all(|snapshot| snapshot["state"] == "arranged"));
    let free = |at: usize| shown["snapshots"][at]["free_bytes"].as_u64().expect("known");
    let data = |at: usize| shown["snapshots"][at]["free_data_bytes"].as_u64().expect("known");
    // 0 and 1 share what is for two, so each of them has for itself what is for one; 4 has nobody to share with.
    for (at, bytes) in [(0, 200_000), (1, 200_000), (2, 200_000), (3, 200_000), (4, 500_000)] {
        assert!((bytes..bytes + 30_000).contains(&data(at)), "{at}: {}", data(at));
    }
    let all = play.larder(["snapshots", "--json"]).ok().json();
    let listed = |at: usize| all[at]["free_bytes"].as_u64().expect("known");
    assert_eq!([0, 1, 2, 3, 4].map(listed), [0, 1, 2, 3, 4].map(free));
    let plan = play.larder(["forget", &ids[0], &ids[1], "--dry-run", "--json"]).ok().json();
    schema::check("forget", &plan[0]);
    let planned = plan[0]["free_bytes"].as_u64().expect("known");
    assert!(planned >= 650_000, "what the two share goes with both: {planned}");
    let stats = play.larder(["stats", &ids[0], &ids[1], "--json"]).ok().json();
    schema::check("stats", &stats);
    assert_eq!((&stats["free_bytes"], &stats["layouts"]), (&planned.into(), &json!(["lifecycle"])));
    let text = play.larder(["forget", &ids[0], &ids[1], "--dry-run"]).ok().text();
    assert!(text.contains("2 snapshots would be forgotten, which frees "), "{text}");
    // The oldest ones go with their volumes, and nothing else is touched.
    let before = containers(&play);
    play.larder(["forget", &ids[0], &ids[1], "--prune"]).ok();
    assert_eq!(before - containers(&play), planned);
    let text = play.larder(["layout", "s"]).ok().text();
    assert!(text.contains("all of 3 snapshots arranged"), "{text}");
    play.larder(["check", "--read-data"]).ok();
}

/// Two contents in turn: from the third snapshot on all that the one before it lacks is in the one before that.
#[test]
fn what_comes_back_after_a_snapshot_without_it_is_shown() {
    let play = Play::with_repository();
    let mut newest = Value::Null;
    for number in 0..3 {
        // So much that some of its chunks are among the samples by which it is measured.
        play.write("source/file", data::random(1 + number % 2, 16_000_000));
        play.backup(["source", "--series", "s", "--layout", "lifecycle"]);
        newest = show(&play, "s")["newest_skip_permille"].clone();
        assert_eq!(newest.is_null(), number < 2, "{newest}");
    }
    let permille = newest.as_u64().expect("a number");
    // It is all of it; measured by few samples.
    assert!((300..=1000).contains(&permille), "{permille}");
    let percent = format!("{:.1} %", permille as f64 / 10.0);
    let shown = layout(&play);
    let shares: Vec<&Value> =
        shown["snapshots"].as_array().expect("an array").iter().map(|one| &one["skip_permille"]).collect();
    assert_eq!(shares, [&Value::Null, &Value::Null, &newest]);
    let lines = play.larder(["layout", "s"]).ok().lines();
    let head = lines.iter().position(|line| line.contains("Skipped")).expect("a column");
    let rows = &lines[head + 2..head + 5];
    assert!(rows[2].ends_with(&percent) && !rows[0].contains('%') && !rows[1].contains('%'), "{rows:?}");
    let text = play.larder(["series", "show", "s"]).ok().text();
    let line = format!("Skipped    {percent} of what its base does not have was in the snapshot before that");
    assert!(text.contains(&line), "{text}");
    // It is said of this layout.
    play.larder(["series", "convert", "s", "--layout", "standard"]).ok();
    assert_eq!(show(&play, "s")["newest_skip_permille"], Value::Null);
    assert!(!play.larder(["series", "show", "s"]).ok().text().contains("Skipped"));
}

/// Objects below a folder that came with the last snapshot.
fn of_newest(play: &Play, newest: &str, folder: &str) -> Vec<String> {
    damage::named(&play.repository(), &format!("{folder}/{newest}"))
}

/// What cannot be read stays as it is, is named, and is damage; the rest is converted.
#[test]
fn a_snapshot_that_cannot_be_read_is_told_and_the_others_are_converted() {
    for (folder, is_gone) in [("data", false), ("data", true), ("meta", false), ("meta", true)] {
        let play = Play::with_repository();
        let content = |number: u64| data::random(10 + number, 100_000);
        let ids: Vec<String> = (0..3)
            .map(|number| {
                play.write("source/same", data::random(1, 300_000));
                play.write("source/own", content(number));
                play.backup(["source", "--series", "s"])
            })
            .collect();
        // The index knows all of it before anything is damaged.
        play.larder(["optimize", "--task", "collect"]).ok();
        let objects = of_newest(&play, &ids[2], folder);
        assert!(!objects.is_empty());
        let whole: Vec<_> = objects.iter().map(|name| (name, std::fs::read(play.repository().join(name)))).collect();
        for name in &objects {
            match is_gone {
                true => damage::remove(&play.repository(), name),
                false => damage::flip(&play.repository(), name, 100),
            }
        }
        let ran = play.larder(["series", "convert", "s", "--layout", "lifecycle", "--json"]).code(13);
        let converted = ran.messages("summary").remove(0);
        schema::check("series_convert", &converted);
        assert_eq!((&converted["snapshots"], &converted["left"]), (&json!(2), &json!(1)), "{converted}");
        let [told] = &converted["unreadable"].as_array().expect("an array")[..] else { panic!("{converted}") };
        assert_eq!(told["id"], json!(ids[2]));
        let why = told["error"].as_str().expect("words");
        assert!(objects.iter().any(|name| why.contains(name)), "{why} does not name any of {objects:?}");
        let again = play.larder(["series", "convert", "s", "--layout", "lifecycle"]).code(13);
        let told = again.says("cannot be read and stays as it is").text();
        assert!(told.contains("converted 0 snapshots") && !told.contains("deletes the old containers"), "{told}");
        assert_eq!([0, 1, 2].map(|at| layout_of(&play, &ids[at])), ["lifecycle", "lifecycle", "standard"]);
        // Passes keep what it has, and say so when they come upon what is lost.
        for _ in 0..2 {
            let pass = play.larder(["optimize"]);
            assert!([0, 13].contains(&pass.code), "{}", pass.stderr);
        }
        whole
            .into_iter()
            .for_each(|(name, bytes)| drop(play.write(play.repository().join(name), bytes.expect("read"))));
        play.larder(["check", "--read-data"]).ok();
        play.larder(["series", "convert", "s", "--layout", "lifecycle"]).ok();
        play.larder(["optimize"]).ok();
        for (number, id) in ids.iter().enumerate() {
            play.larder(["restore", &format!("{id}:{}", play.path("source").display()), "--target", id]).ok();
            let restored = std::fs::read(play.path(id).join("own")).expect("restored");
            assert!(restored == content(number as u64), "snapshot {number}, {folder}, gone {is_gone}");
        }
        play.larder(["check", "--read-data"]).ok();
    }
}

/// There and back again: every snapshot keeps its id and its content, and the series goes on.
#[test]
fn a_series_is_converted_both_ways() {
    let play = Play::with_repository();
    let content = |number: u64| [data::random(1, 300_000), data::random(10 + number, 100_000)].concat();
    let mut ids = Vec::new();
    let mut back_up = |number: u64| {
        play.write("source/file", content(number));
        ids.push(play.backup(["source", "--series", "s"]));
        ids.clone()
    };
    (0..3).for_each(|number| drop(back_up(number)));
    play.larder(["optimize"]).ok();
    for (round, to) in [(3, "lifecycle"), (4, "standard")] {
        let converted =
            play.larder(["series", "convert", "s", "--layout", to, "--json"]).ok().messages("summary").remove(0);
        schema::check("series_convert", &converted);
        assert_eq!((&converted["snapshots"], &converted["left"]), (&json!(round), &json!(0)));
        let again = play.larder(["series", "convert", "s", "--layout", to]).ok().text();
        assert!(again.contains("nothing to do"), "{again}");
        if to == "lifecycle" {
            // The index knows of it by the next pass only.
            assert!(layout(&play)["snapshots"].as_array().expect("an array").iter().all(|one| one["state"] == "new"));
        }
        let ids = back_up(round);
        assert_eq!(show(&play, "s")["layout"], to);
        play.larder(["optimize"]).ok();
        play.larder(["optimize"]).ok();
        for (number, id) in ids.iter().enumerate() {
            assert_eq!(layout_of(&play, id), to);
            let target = format!("{to} {id}");
            play.larder(["restore", &format!("{id}:{}", play.path("source").display()), "--target", &target]).ok();
            let restored = std::fs::read(play.path(target).join("file")).expect("restored");
            assert!(restored == content(number as u64), "snapshot {number} in the layout {to}");
        }
        play.larder(["check", "--read-data"]).ok();
    }
    play.larder(["layout", "s"]).code(1).says("layout standard").in_two_lines();
    play.larder(["series", "convert", "t", "--layout", "lifecycle"]).code(1).says("there is no series").in_two_lines();
}

#[test]
fn series_say_why_they_have_their_layout() {
    let play = Play::with_repository();
    play.write("source/file", "content");
    set(&play, &["plain", "--holes", "5"]);
    let why = |name: &str| {
        let shown = show(&play, name);
        (shown["layout"].clone(), shown["layout_from"].clone())
    };
    assert_eq!(why("plain"), (json!("standard"), json!("program")));
    set(&play, &["--default", "--layout", "lifecycle"]);
    assert_eq!(why("plain"), (json!("lifecycle"), json!("repository")));
    set(&play, &["plain", "--layout", "standard"]);
    assert_eq!(why("plain"), (json!("standard"), json!("series")));
    play.backup(["source", "--series", "plain"]);
    assert_eq!(why("plain"), (json!("standard"), json!("snapshots")));
    assert!(play.larder(["series", "list"]).ok().text().contains(" snapshots "));
}
