//! `snapshots`, `ls`, `find`, `diff`, `stats`, `cat`: what is shown, and that its JSON is what the schemas say.

use serde_json::{Value, json};

use crate::support::{Play, schema, tree};

fn two_versions() -> Play {
    let play = Play::with_repository();
    tree::odd(&play.path("source"));
    play.write("source/will go", "x");
    play.write("source/will change", "one");
    play.write("source/same size", "aaa");
    play.write("source/becomes a folder", "x");
    play.write("source/touched", "same");
    play.backup(["source", "--tag", "first"]);
    std::fs::remove_file(play.path("source/will go")).expect("removed");
    std::fs::remove_file(play.path("source/becomes a folder")).expect("removed");
    play.write("source/becomes a folder/inside", "new");
    play.write("source/will change", "three");
    play.write("source/same size", "bbb");
    let touched = std::fs::File::options().append(true).open(play.path("source/touched")).expect("there");
    let past = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    touched.set_times(std::fs::FileTimes::new().set_modified(past)).expect("set");
    play.backup(["source", "--tag", "second"]);
    play
}

#[test]
fn snapshots_are_listed_filtered_and_grouped() {
    let play = two_versions();
    play.backup(["source/folder", "-H", "elsewhere"]);
    let all = play.larder(["snapshots", "--json"]).ok().json();
    schema::check("snapshots", &all);
    assert_eq!(all.as_array().expect("an array").len(), 3);
    let count = |args: &[&str]| {
        let mut line = vec!["snapshots", "--json"];
        line.extend_from_slice(args);
        play.larder(line).ok().json().as_array().expect("an array").len()
    };
    assert_eq!(count(&["--host", "elsewhere"]), 1);
    assert_eq!(count(&["--host", "elsewhere", "--host", "testhost"]), 3);
    assert_eq!(count(&["--tag", "first"]), 1);
    assert_eq!(count(&["--tag", "first,second"]), 0);
    assert_eq!(count(&["--path", "source"]), 2);
    assert_eq!(count(&["--latest", "1"]), 2, "one of each series");
    assert_eq!(count(&["latest", "latest~1", "latest"]), 2);
    let short = all[0]["short_id"].as_str().expect("text");
    assert_eq!(count(&[short]), 1);
    assert_eq!(count(&[&short[..6]]), 1, "the beginning of what tables show");
    let groups = play.larder(["snapshots", "--json", "--group-by", "host,paths"]).ok().json();
    assert_eq!(groups.as_array().expect("an array").len(), 2);
    schema::check("snapshot_groups", &groups);
    schema::check("snapshots", &groups[0]["snapshots"]);
    let table = play.larder(["snapshots"]).ok().lines();
    assert!(table[0].starts_with("ID") && table[2].starts_with(short), "{table:?}");
    assert!(play.larder(["snapshots", "--group-by", "host"]).ok().text().contains("hostname [elsewhere]"));
    play.larder(["snapshots", "nothing"]).code(1).says("no snapshot fits");
}

/// Goal: tables fit a terminal of 80 columns. Method: a long series, a long host and long tags, and every command with a table.
#[test]
fn no_line_of_a_table_is_longer_than_the_terminal() {
    let play = Play::with_repository();
    let folder = "source/with/a/long/path/that/no/narrow/terminal/has/room/for/in/one/line/beside/other/columns";
    play.write(format!("{folder}/file"), larder_testkit::data::random(1, 3_000_000));
    let tags = "daily,weekly,monthly,quarterly,yearly,before-the-migration,after-the-migration";
    play.backup([folder, "--tag", tags]);
    play.backup([folder, "--series", "named", "-H", "a-host-with-quite-a-long-name.example.com"]);
    play.larder(["pin", "latest"]).ok();
    for line in [
        &["snapshots"][..],
        &["snapshots", "--compact"],
        &["snapshots", "--group-by", "host"],
        &["stats"],
        &["stats", "--by", "series"],
        &["stats", "--by", "tag"],
        &["stats", "--by", "snapshot"],
        &["series", "list"],
        &["key", "list"],
        &["forget", "--keep-last", "1", "--keep-daily", "7", "--keep-weekly", "5", "--keep-tag", "daily", "--dry-run"],
    ] {
        let mut command = play.command(line);
        let ran = crate::support::Ran::from(command.env("COLUMNS", "80").output().expect("it ends")).ok();
        let is_heading = |line: &str| line.ends_with(':');
        let long: Vec<_> =
            ran.lines().into_iter().filter(|line| line.chars().count() > 80 && !is_heading(line)).collect();
        assert!(long.is_empty(), "{line:?}: {long:#?}");
    }
    let heads = |args: &[&str]| play.larder(args).ok().lines()[0].clone();
    let all = heads(&["snapshots"]);
    assert!(["Host", "Tags", "Added", "Stored"].iter().all(|head| all.contains(head)), "{all}");
    let compact = heads(&["snapshots", "--compact"]);
    assert!(!["Tags", "Added", "Stored"].iter().any(|head| compact.contains(head)), "{compact}");
    assert!(compact.contains("Host"), "only one series names its host: {compact}");
    let one = heads(&["snapshots", "--tag", "daily", "--compact"]);
    assert!(!one.contains("Host"), "the series says the host: {one}");
}

#[test]
fn filters_that_select_nothing_are_named() {
    let play = two_versions();
    let untagged = play.backup(["source"]);
    let found = play.larder(["snapshots", "--json", "--tag", ""]).ok().json();
    assert_eq!(found.as_array().expect("an array").len(), 1);
    assert_eq!(found[0]["id"], untagged.as_str());
    play.larder(["ls", "latest", "--tag", "third", "--host", "x"])
        .code(1)
        .says("no snapshot fits \"latest\" with --host x --tag third");
    play.larder(["check", "--tag", "third"]).code(1).says("no snapshot fits --tag third");
    let source = play.path("source").display().to_string();
    let series = format!("of series testhost:{source} has no /absent");
    play.larder(["ls", "latest:/absent"]).code(1).says(&series);
    play.larder(["dump", "latest:/absent"]).code(1).says(&series);
    play.larder(["restore", "latest:/absent", "--target", "back"]).code(1).says(&series);
}

#[test]
fn contents_are_listed() {
    let play = two_versions();
    let source = play.path("source").display().to_string();
    let all = play.larder(["ls", "latest~1"]).ok().lines();
    for name in ["/plain.txt", "/not \\xff text\\n", "/folder/large", "/dangling"] {
        assert!(all.contains(&format!("{source}{name}")), "{name} is not in {all:?}");
    }
    let direct = play.larder(["ls", &format!("latest~1:{source}/folder")]).ok().lines();
    assert_eq!(direct, [format!("{source}/folder"), format!("{source}/folder/large"), format!("{source}/folder/text")]);
    let direct = play.larder(["ls", "latest", &source]).ok().lines();
    assert!(!direct.contains(&format!("{source}/folder/large")), "{direct:?}");
    let below = play.larder(["ls", "latest", &source, "--recursive"]).ok().lines();
    assert!(below.contains(&format!("{source}/folder/large")), "{below:?}");
    let long = play.larder(["ls", "-l", &format!("latest:{source}/link")]).ok().text();
    assert!(long.starts_with("lrwxrwxrwx") && long.trim_end().ends_with("-> plain.txt"), "{long}");
    play.larder(["ls", "latest:/absent"]).code(1).says("/absent").in_two_lines();

    let ran = play.larder(["ls", "latest", "--json"]).ok();
    let lines = ran.json_lines();
    schema::check("snapshot", &lines[0]);
    for node in &lines[1..] {
        schema::check("node", node);
    }
    let node = |path: &str| {
        let path = json!(format!("{source}/{path}"));
        lines.iter().find(|node| node["path"] == path).unwrap_or_else(|| panic!("{path}")).clone()
    };
    assert_eq!(node("plain.txt")["size"], 6);
    assert_eq!(node("second name")["type"], "hardlink");
    assert_eq!(node("second name")["size"], 6, "that of its first name");
    let long = play.larder(["ls", "-l", &format!("latest:{source}/second name")]).ok().text();
    assert!(long.contains("   6  ") && long.trim_end().ends_with("/plain.txt"), "{long}");
    let found = play.larder(["find", "*", "--larger", "5", "--smaller", "7", "-s", "latest"]).ok().lines();
    let found: Vec<_> = found.iter().filter_map(|line| line.strip_prefix(&format!("{source}/"))).collect();
    assert_eq!(found, ["plain.txt", "second name"]);
    assert_eq!(node("empty")["permissions"], "-rws--x--x");
    assert_eq!(node("sparse")["size"], 5_000_000);
    let odd = lines.iter().find(|node| node.get("path_b64").is_some()).expect("the odd name");
    assert!(odd["path"].as_str().expect("text").contains('\u{fffd}'));
}

#[test]
fn names_are_found_in_all_snapshots() {
    let play = two_versions();
    let source = play.path("source").display().to_string();
    let found = play.larder(["find", "will*"]).ok().lines();
    let hits: Vec<_> = found.iter().filter(|line| line.starts_with('/')).collect();
    assert_eq!(hits.len(), 3, "{found:?}");
    let found = play.larder(["find", "--json", "will*", "LARGE", "-i"]).ok().json();
    schema::check("find", &found);
    assert_eq!((&found[0]["hits"], &found[1]["hits"]), (&json!(3), &json!(2)));
    schema::check("node", &found[0]["matches"][0]);
    assert_eq!(play.larder(["find", "--json", "nothing*"]).ok().json(), json!([]));
    let one = play.larder(["find", "--json", &format!("{source}/fold*/l*"), "--snapshot", "latest"]).ok().json();
    assert_eq!((one.as_array().expect("an array").len(), &one[0]["hits"]), (1, &json!(1)));
    let old = play.larder(["find", "--json", "touched", "--newest", "2010-01-01"]).ok().json();
    assert_eq!(old.as_array().expect("an array").len(), 1, "only the second is so old");
}

#[test]
fn differences_are_those_that_were_made() {
    let play = two_versions();
    let source = play.path("source").display().to_string();
    let (old, new) = (format!("latest~1:{source}"), format!("latest:{source}"));
    let lines = play.larder(["diff", "-q", &old, &new]).ok().lines();
    let expected = [
        "T    /becomes a folder/",
        "+    /becomes a folder/inside",
        "M    /same size",
        "M    /will change",
        "-    /will go",
    ];
    assert_eq!(lines, expected);
    let lines = play.larder(["diff", "--metadata", "-q", &old, &new]).ok().lines();
    assert!(lines.contains(&"U    /touched".to_owned()), "{lines:?}");
    let ran = play.larder(["diff", "--json", &old, &new]).ok();
    for change in ran.messages("change") {
        schema::check("change", &change);
    }
    let statistics = ran.messages("statistics").pop().expect("statistics");
    schema::check("diff_statistics", &statistics);
    assert_eq!(statistics["changed_files"], 2);
    assert_eq!(
        statistics["changed"],
        json!({"files": 2, "bytes_before": 6, "bytes_after": 8,
        "bytes_added": 8, "bytes_removed": 6})
    );
    assert_eq!((&statistics["added"]["bytes"], &statistics["removed"]["bytes"]), (&json!(3), &json!(2)));
    assert!(play.larder(["diff", "-q", "latest", "latest"]).ok().lines().is_empty());
    let lines = play.larder(["diff", "latest", "latest"]).ok().lines();
    assert_eq!(lines[1..], ["no differences"], "{lines:?}");
    play.larder(["diff", "latest:/absent", "latest"]).code(1).says("of series").says("has no /absent");
}

/// Goal: of a large file, only the chunks count that differ, also behind an insertion.
#[test]
fn differences_are_counted_by_chunks() {
    let play = Play::with_repository();
    let mut contents = tree::noise(1, 3_000_000);
    play.write("source/large", &contents);
    play.backup(["source"]);
    contents.splice(1_000_000..1_000_000, *b"six...");
    contents.extend_from_slice(b"end");
    play.write("source/large", &contents);
    play.backup(["source"]);
    let ran = play.larder(["diff", "--json", "latest~1", "latest"]).ok();
    let statistics = ran.messages("statistics").pop().expect("statistics");
    schema::check("diff_statistics", &statistics);
    let changed = &statistics["changed"];
    assert_eq!((&changed["bytes_before"], &changed["bytes_after"]), (&json!(3_000_000), &json!(3_000_009)));
    let bytes = |key: &str| changed[key].as_u64().expect("a number");
    assert_eq!(bytes("bytes_added") - bytes("bytes_removed"), 9, "{changed}");
    assert!((9..400_000).contains(&bytes("bytes_added")), "{changed}");
    assert!(play.larder(["diff", "latest~1", "latest"]).ok().text().contains("Changed in them: "));
}

#[test]
fn a_copy_with_other_inodes_is_no_difference_of_content() {
    let play = Play::with_repository();
    tree::odd(&play.path("source"));
    play.backup(["source"]);
    let copied = std::process::Command::new("cp").arg("-a").arg(play.path("source")).arg(play.path("copy")).status();
    assert!(copied.expect("cp runs").success());
    play.backup(["copy"]);
    let (old, new) =
        (format!("latest~1:{}", play.path("source").display()), format!("latest:{}", play.path("copy").display()));
    assert_eq!(play.larder(["diff", "-q", "--metadata", &old, &new]).ok().lines(), Vec::<String>::new());
}

#[test]
fn statistics_add_up() {
    let play = two_versions();
    let stats = play.larder(["stats", "--json"]).ok().json();
    schema::check("stats", &stats);
    let number = |value: &Value| value.as_u64().expect("a number");
    assert_eq!(stats["snapshots_count"], 2);
    assert!(number(&stats["logical_bytes"]) > 2 * 8_000_000, "{stats}");
    assert!(number(&stats["unique_bytes"]) < number(&stats["logical_bytes"]));
    assert!(number(&stats["stored_bytes"]) <= number(&stats["repository_bytes"]));
    let on_disk: usize = play.objects().iter().map(|(_, content)| content.len()).sum();
    assert_eq!(number(&stats["repository_bytes"]), on_disk as u64);
    assert!(number(&stats["read_bytes"]) > 3_000_000, "{stats}");
    let by = play.larder(["stats", "--json", "--by", "tag"]).ok().json();
    assert_eq!(by["groups"].as_array().expect("an array").len(), 2);
    assert_eq!(by["groups"][0]["name"], "first");
    assert!(play.larder(["stats", "--by", "series"]).ok().text().contains("testhost:"));
    assert_eq!(play.larder(["stats", "--json", "latest"]).ok().json()["snapshots_count"], 1);
    // An older time than that of the first two comes first, whatever its id.
    let oldest = play.backup(["source", "--time", "2001-01-01 00:00:00"]);
    let by = play.larder(["stats", "--json", "--by", "snapshot"]).ok().json();
    let names: Vec<_> = by["groups"].as_array().expect("an array").iter().map(|group| &group["name"]).collect();
    let all = play.larder(["snapshots", "--json"]).ok().json();
    let expected: Vec<_> = all.as_array().expect("an array").iter().map(|snapshot| &snapshot["short_id"]).collect();
    assert_eq!((names, all[0]["id"].as_str()), (expected, Some(oldest.as_str())));
}

#[test]
fn manifests_can_be_shown_for_support() {
    let play = two_versions();
    let manifest = play.larder(["cat", "manifest", "latest"]).ok().json();
    assert!(manifest["containers"].as_array().is_some_and(|rows| !rows.is_empty()), "{manifest}");
    schema::check("cat_manifest", &manifest);
    play.larder(["cat", "manifest"]).code(2);
    play.larder(["cat", "key", "zz"]).code(1);
}

/// Goal: what is said of predictions is what happened. Method: a long file, backed up, changed in one place, and backed up again.
#[test]
fn predictions_are_counted_in_chunks_and_bytes() {
    const BYTES: u64 = 40_000_000;
    let play = Play::with_repository();
    let mut content = larder_testkit::data::random(21, BYTES as usize);
    let mut counts = Vec::new();
    for place in [0, 15_000_000] {
        content[place..place + 4].copy_from_slice(b"here");
        play.write("source/large", &content);
        let summary = play.larder(["backup", "--json", "source"]).ok().messages("summary").pop().expect("a summary");
        schema::check("backup_summary", &summary);
        let count = |name: &str| summary[name].as_u64().expect("a number");
        counts.push([count("predictions_right"), count("predictions_wrong"), count("predicted_bytes")]);
        if place > 0 {
            // One segment of 2 MiB or somewhat more has changed; it may unsettle the one behind it.
            let chunks = count("total_chunks");
            assert!(count("predictions_right") > chunks / 4 * 3, "{summary}");
            assert!((1..chunks / 4).contains(&count("predictions_wrong")), "{summary}");
            assert!((BYTES / 4 * 3..BYTES).contains(&count("predicted_bytes")), "{summary}");
        }
    }
    assert_eq!(counts[0], [0, 0, 0], "nothing was there to predict from");
    let stats = play.larder(["stats", "--json"]).ok().json();
    schema::check("stats", &stats);
    let [right, wrong, bytes] = counts[1];
    assert_eq!(stats["read_bytes"], json!(2 * BYTES));
    assert_eq!(
        [&stats["predictions_right"], &stats["predictions_wrong"], &stats["predicted_bytes"]],
        [&json!(right), &json!(wrong), &json!(bytes)]
    );
    let text = play.larder(["stats"]).ok().text();
    assert!(text.contains(&format!("{right} hits, {wrong} misses")), "{text}");
}
