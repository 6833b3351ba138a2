//! `larder drill`: samples, the scratch folder, what is found, and the report.

use std::os::unix::fs::{FileExt, MetadataExt};

use serde_json::Value;

use crate::profiles::Configured;
use crate::support::{Play, Ran, damage, schema, tree};

/// Runs a drill, and checks its summary.
#[track_caller]
fn drill(play: &Play, code: i32, args: &[&str]) -> Value {
    summary(&play.larder([&["drill", "--json", "--scratch", "scratch"], args].concat()).code(code))
}

#[track_caller]
fn summary(ran: &Ran) -> Value {
    let summary = ran.messages("summary").pop().unwrap_or_else(|| panic!("no summary: {}", ran.stderr));
    schema::check("drill_summary", &summary);
    summary
}

/// Two series: one with all kinds of items, and one with two files.
fn two_series() -> Play {
    let play = Play::with_repository();
    tree::odd(&play.path("odd"));
    for number in 0..40 {
        play.write(format!("odd/many/{number}"), tree::noise(number, 500));
    }
    play.write("odd/large", tree::noise(77, 2_000_000));
    play.write("two/large", tree::noise(78, 1_500_000));
    play.write("two/small", "small");
    play.settle();
    play.backup(["odd", "--series", "odd"]);
    play.backup(["two", "--series", "two"]);
    play
}

/// Goal: a whole repository passes, also with everything, also without writing; a seed repeats the
/// choice; nothing stays behind.
#[test]
fn a_whole_repository_passes() {
    let play = two_series();
    let first = drill(&play, 0, &["--sample", "10files", "--seed", "5", "--compare-source"]);
    let snapshots = first["snapshots"].as_array().expect("a list");
    assert_eq!((snapshots.len(), &first["result"], &first["seed"]), (2, &"passed".into(), &5.into()), "{first}");
    let odd = snapshots.iter().find(|found| found["series"] == "odd").expect("the newest of each series");
    let files = odd["files"].as_u64().expect("a number");
    assert!((10..30).contains(&files) && odd["others"].as_u64() > Some(2), "{odd}");
    assert_eq!(
        (&odd["source_files_compared"], &odd["source_files_not_comparable"]),
        (&odd["files"], &0.into()),
        "{odd}"
    );
    assert!(odd["bytes"].as_u64() >= Some(2_000_000), "the largest is there: {odd}");
    let again = drill(&play, 0, &["--sample", "10files", "--seed", "5", "--series", "odd"]);
    assert_eq!(again["snapshots"][0]["bytes"], odd["bytes"]);
    let all = drill(&play, 0, &["--sample", "100%", "--all"]);
    assert_eq!(all["snapshots"][0]["files"], all["snapshots"][0]["total_files"], "{all}");
    let read = summary(&play.larder(["drill", "--json", "--no-write", "--sample", "100%", "--compare-source"]).ok());
    assert_eq!((&read["written"], &read["result"]), (&false.into(), &"passed".into()));
    assert_eq!(std::fs::read_dir(play.path("scratch")).expect("it stays").count(), 0, "the scratch folder is empty");
    let text = play.larder(["drill", "--scratch", "scratch", "--snapshot", "latest"]).ok().text();
    assert!(text.contains("the drill passed") && text.contains("--seed "), "{text}");
    play.larder(["drill", "--sample", "0files"]).code(2);
    play.larder(["drill", "--series", "absent"]).code(1).says("no snapshot fits");
}

/// Goal: a byte that went bad in a container is found, if and only if the sample has its file.
#[test]
fn a_flipped_byte_is_found_when_it_is_in_the_sample() {
    let play = two_series();
    let id = play.larder(["snapshots", "--json", "--series", "two"]).ok().json();
    let id = id[0]["id"].as_str().expect("an id").to_owned();
    let names = damage::named(&play.repository(), "data/");
    let name = names.into_iter().find(|name| name.contains(&id)).expect("a container of the snapshot");
    damage::flip(&play.repository(), &name, 700_000);
    for args in [&["--sample", "1file"][..], &["--sample", "100%"]] {
        let found = drill(&play, 13, &[args, &["--series", "two"]].concat());
        assert_eq!((&found["result"], &found["snapshots"][0]["mismatches"]), (&"failed".into(), &1.into()), "{found}");
        let finding = &found["snapshots"][0]["findings"][0];
        assert_eq!(finding["kind"], "damaged", "{finding}");
        assert!(finding["path"].as_str().is_some_and(|path| path.ends_with("two/large")), "{finding}");
    }
    let read = summary(&play.larder(["drill", "--json", "--no-write", "--series", "two"]).code(13));
    assert_eq!(read["snapshots"][0]["findings"][0]["kind"], "damaged", "{read}");
    drill(&play, 0, &["--series", "odd"]);
    assert_eq!(std::fs::read_dir(play.path("scratch")).expect("it stays").count(), 0);
}

/// Goal: a live file with other content under the old size and time is named with both hashes; one
/// with another time is not compared.
#[test]
fn a_live_file_that_changed_under_its_time_is_named() {
    let play = two_series();
    let path = play.path("two/large");
    let before = std::fs::metadata(&path).expect("it is there");
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("opened");
    file.write_all_at(b"other bytes", 1_000_000).expect("written");
    file.set_times(std::fs::FileTimes::new().set_modified(before.modified().expect("a time"))).expect("set");
    drop(file);
    assert_eq!(std::fs::metadata(&path).expect("it is there").mtime_nsec(), before.mtime_nsec());
    play.write("two/small", "other");
    for more in [&["--scratch", "scratch"][..], &["--no-write"]] {
        let args = [&["drill", "--json", "--compare-source", "--sample", "100%", "--series", "two"], more].concat();
        let found = summary(&play.larder(args).ok());
        let snapshot = &found["snapshots"][0];
        assert_eq!((&snapshot["remarks"], &snapshot["source_files_compared"]), (&1.into(), &1.into()), "{found}");
        assert_eq!(snapshot["source_files_not_comparable"], 1, "{found}");
        let finding = &snapshot["findings"][0];
        assert_eq!(finding["kind"], "source_changed", "{finding}");
        assert!(finding["path"].as_str().is_some_and(|path| path.ends_with("two/large")), "{finding}");
        assert_ne!(finding["sha256_source"], finding["sha256_snapshot"], "{finding}");
    }
    let elsewhere = play.command(["drill", "--compare-source", "--no-write"]).env("LARDER_HOST", "other").output();
    let elsewhere = Ran::from(elsewhere.expect("it ends")).ok();
    assert!(elsewhere.stderr.contains("live files are not compared"), "{}", elsewhere.stderr);
}

/// Goal: reports are files of their own, for this user only, and a form that is not known is
/// refused first.
#[test]
fn reports_are_written() {
    let play = two_series();
    play.larder(["drill", "--no-write", "--report", "report.txt"]).code(2).says(".json or .html");
    for name in ["report.json", "report.html"] {
        play.larder(["drill", "--no-write", "--seed", "1", "--report", name]).ok();
        let mode = std::fs::metadata(play.path(name)).expect("it is there").mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    let json = std::fs::read(play.path("report.json")).expect("read");
    schema::check("drill_summary", &serde_json::from_slice(&json).expect("JSON"));
    let html = std::fs::read_to_string(play.path("report.html")).expect("read");
    assert!(html.contains("<span class=\"passed\">passed</span>") && html.ends_with("</html>\n"), "{html}");
    let paid = ["drill", "--json", "--no-write", "--prices", "reads=1000,creates=0,currency=EUR"];
    let paid = summary(&play.larder(paid).ok());
    let reads = paid["requests_read"].as_u64().expect("a number");
    assert_eq!((&paid["cost"]["amount"], &paid["cost"]["currency"]), (&(reads as f64).into(), &"EUR".into()), "{paid}");
    assert_eq!(summary(&play.larder(["drill", "--json", "--no-write"]).ok())["cost"], Value::Null, "a folder is free");
}

/// Goal: `run` drills a repository as often as the configuration says, with its options.
#[test]
fn a_run_drills_when_it_is_due() {
    let it = Configured::new(&format!(
        "{}[repositories.nas.drill]\nevery = \"30d\"\nsample = \"2files\"\nscratch = \"@/scratch\"\n",
        crate::profiles::SIMPLE
    ));
    it.play.write("source/a", "a");
    it.larder(&["-r", "nas", "init", "--insecure-kdf"]).ok();
    it.larder(&["config", "check"]).ok();
    let text = it.larder(&["run", "home"]).ok().text();
    assert!(text.contains("== drill on nas") && text.contains("the drill passed"), "{text}");
    let again = it.larder(&["run", "home"]).ok();
    assert!(!again.text().contains("the drill passed"), "{}", again.text());
}

/// Goal: a lost or damaged newest manifest fails the drill, also in a report that is mailed; an older snapshot does not stand in
/// for it. One machine remembers the snapshot, another one reads the index.
#[test]
fn a_lost_newest_snapshot_is_not_replaced_by_an_older_one() {
    for (is_lost, has_state) in [(true, true), (true, false), (false, false)] {
        let play = Play::with_repository();
        play.write("source/a", "first");
        play.backup(["source", "--series", "s"]);
        play.write("source/b", "second");
        let newest = play.backup(["source", "--series", "s"]);
        if !has_state {
            play.larder(["optimize"]).ok();
            std::fs::remove_dir_all(play.path("state")).expect("removed");
        }
        for name in damage::named(&play.repository(), "versions/").into_iter().filter(|name| name.contains(&newest)) {
            match is_lost {
                true => damage::remove(&play.repository(), &name),
                false => damage::flip(&play.repository(), &name, 100),
            }
        }
        let found = drill(&play, 13, &["--report", "report.html"]);
        assert_eq!(
            (&found["result"], &found["unreadable_snapshots"][0]["id"]),
            (&"failed".into(), &newest.as_str().into())
        );
        assert_eq!(found["unreadable_snapshots"][0]["series"], "s", "{found}");
        let html = std::fs::read_to_string(play.path("report.html")).expect("read");
        assert!(html.contains("<span class=\"failed\">failed</span>") && html.contains("cannot be read"), "{html}");
        let older = play.larder(["snapshots", "--json"]).json()[0]["id"].as_str().expect("an id").to_owned();
        if is_lost {
            drill(&play, 0, &["--snapshot", &older]);
        }
    }
}

/// Goal: damage that was found is told, whatever happens after it.
#[test]
fn damage_is_told_though_the_next_snapshot_does_not_fit() {
    let play = two_series();
    play.larder(["drill", "--no-write", "--report", "no/such/report.html"]).code(1).says("cannot write the report");
    let id = play.larder(["snapshots", "--json", "--series", "two"]).ok().json();
    let id = id[0]["id"].as_str().expect("an id").to_owned();
    // The older one is drilled first.
    let odd = play.larder(["snapshots", "--json", "--series", "odd"]).ok().json();
    let odd = odd[0]["id"].as_str().expect("an id").to_owned();
    for name in damage::named(&play.repository(), "meta/").into_iter().filter(|name| name.contains(&odd)) {
        damage::remove(&play.repository(), &name);
    }
    let script = "mkdir -p scratch; mount -t tmpfs -o size=1m none scratch; \
                  $1 drill --json --scratch scratch --sample 100% || echo ended with $?; \
                  $1 drill --estimate --scratch scratch/new --sample 100% --series two || echo estimated with $?";
    let Some(ran) = crate::support::mounting::with_mounts(&play, script) else { return };
    assert!(ran.text().contains("ended with 13"), "{} {}", ran.text(), ran.stderr);
    let warned = |text: &str| text.contains("scratch/new has ") && text.contains(" free, and the sample needs ");
    assert!(ran.text().contains("traffic: ") && warned(&ran.stderr), "{} {}", ran.text(), ran.stderr);
    assert!(ran.text().contains("estimated with 16"), "{}", ran.text());
    let lines = ran.lines();
    let line = lines.iter().find(|line| line.contains("\"summary\"")).expect("a summary");
    let found: Value = serde_json::from_str(line).expect("JSON");
    schema::check("drill_summary", &found);
    assert_eq!(found["unfinished_snapshots"][0]["id"], id.as_str(), "{found}");
}
