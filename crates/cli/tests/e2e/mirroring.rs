//! `copy` again and again: which snapshots count as copied, which are not copied, and which copies `--delete` forgets.

use std::path::Path;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::support::roles::Roles;
use crate::support::second::{Second, copied, number};
use crate::support::{PASSWORD, Play, damage, run, tree};

/// A repository with three snapshots of one series, copied into a second one; then the first was forgotten.
fn mirrored(play: &Play) -> (Second<'_>, Vec<String>) {
    let ids: Vec<String> = (0..3)
        .map(|version| {
            play.write("source/file", tree::noise(version, 30_000));
            play.backup(["source", "--series", "s", "--tag", "nightly"])
        })
        .collect();
    let second = Second::of(play);
    second.copy(&[]);
    play.larder(["forget", &ids[0]]).ok();
    (second, ids)
}

fn originals(second: &Second<'_>) -> Vec<String> {
    second.snapshots().iter().filter_map(|copy| copy["original"].as_str().map(str::to_owned)).collect()
}

/// The copy of a snapshot.
fn copy_of(second: &Second<'_>, original: &str) -> String {
    let all = second.snapshots();
    let copy = all.iter().find(|copy| copy["original"] == json!(original)).expect("a copy");
    copy["id"].as_str().expect("text").to_owned()
}

fn register(repository: &Path, id: &str) -> String {
    damage::named(repository, "versions/").into_iter().find(|name| name.contains(id)).expect("a register")
}

#[test]
fn mirrors_forget_what_the_origin_forgot_and_nothing_else() {
    let play = Play::with_repository();
    let (second, ids) = mirrored(&play);
    play.write("own/file", "of the second alone");
    second.larder(["backup", "own", "--series", "own"]).ok();
    second.copy(&[]);
    assert_eq!(second.snapshots().len(), 4, "nothing is forgotten without --delete");
    let (_, planned) = second.copy(&["--delete", "-n"]);
    assert_eq!((planned["forgotten"].as_array().map(Vec::len), second.snapshots().len()), (Some(1), 4));
    let (_, other) = second.copy(&["--delete", "--series", "other"]);
    assert_eq!(other["forgotten"], json!([]), "the filter limits it");
    let (_, summary) = second.copy(&["--delete"]);
    assert_eq!(summary["forgotten"], planned["forgotten"]);
    let left = second.snapshots();
    assert!(left.len() == 3 && left.iter().all(|copy| copy["original"] != json!(ids[0])));
    second.larder(["copy", "--delete", "latest"]).code(2);
    // A snapshot that cannot be read is still there.
    damage::behead(&play.repository(), &register(&play.repository(), &ids[1]));
    second.larder(["copy", "--delete"]).code(13).says("--delete forgot nothing");
    assert_eq!(second.snapshots().len(), 3);
    // Nor is an empty repository a reason to lose all copies.
    play.larder(["forget", &ids[1], &ids[2]]).code(13);
    second.larder(["copy", "--delete"]).code(1).says("has no snapshots");
    assert_eq!(second.snapshots().len(), 3);
}

/// The tags that a copy has now decide, as for every other policy; and a pin decides more.
#[test]
fn pins_and_present_tags_of_copies_count() {
    let play = Play::with_repository();
    let (second, ids) = mirrored(&play);
    let copies = second.snapshots();
    second.larder(["tag", "--remove", "nightly", copies[0]["id"].as_str().expect("text")]).ok();
    assert_eq!(second.copy(&["--delete", "--tag", "nightly"]).1["forgotten"], json!([]));
    second.larder(["tag", "--add", "nightly", copies[0]["id"].as_str().expect("text")]).ok();
    second.larder(["pin", copies[0]["id"].as_str().expect("text")]).ok();
    let (_, summary) = second.copy(&["--delete"]);
    assert_eq!(summary["kept"], json!([{"snapshot_id": copies[0]["id"], "reason": "pinned"}]));
    assert!(originals(&second).contains(&ids[0]));
    second.larder(["unpin", copies[0]["id"].as_str().expect("text")]).ok();
    assert_eq!(second.copy(&["--delete", "--tag", "nightly"]).1["forgotten"], json!([copies[0]["id"]]));
}

/// A successor that cannot be copied is no successor.
#[test]
fn a_snapshot_that_cannot_be_copied_stops_the_forgetting() {
    let play = Play::with_repository();
    let (second, ids) = mirrored(&play);
    let before = damage::named(&play.repository(), "meta/");
    play.larder(["rewrite", "--new-host", "other", "--forget", &ids[1]]).ok();
    let new = damage::named(&play.repository(), "meta/").into_iter().filter(|name| !before.contains(name));
    new.for_each(|name| damage::remove(&play.repository(), &name));
    let (summary, stderr) = second.copy_with(13, &["--delete"]);
    assert!(stderr.contains("--delete forgot nothing"), "{stderr}");
    assert_eq!((&summary["forgotten"], originals(&second)), (&json!([]), ids));
}

/// What was saved of a damaged original has holes: the copy is the only whole one.
#[test]
fn the_copy_of_a_snapshot_that_was_saved_in_part_stays() {
    let play = Play::with_repository();
    let (second, ids) = mirrored(&play);
    for name in damage::named(&play.repository(), "data/").iter().filter(|name| name.contains(&ids[1])) {
        damage::flip(&play.repository(), name, 5_000);
    }
    play.larder(["repair", "snapshots", "--read-data", "--forget"]).ok();
    let whole = copy_of(&second, &ids[1]);
    let (copied, summary) = second.copy(&["--delete"]);
    assert!(copied.len() == 1 && summary["forgotten"].as_array().map(Vec::len) == Some(1), "{summary:#}");
    assert_eq!(summary["kept"], json!([{"snapshot_id": whole, "reason": "only_whole"}]));
    second.larder(["restore", &whole, "--target", "whole"]).ok();
    second.larder(["copy", "--delete"]).ok().text();
}

/// A listing that lacks a part tells nothing of what is gone.
#[test]
fn an_incomplete_or_old_listing_stops_the_forgetting() {
    let play = Play::with_repository();
    let (second, ids) = mirrored(&play);
    // A link that leads to itself: a local folder that cannot be examined.
    let at = play.repository().join(register(&play.repository(), &ids[1]));
    std::fs::rename(&at, play.path("away")).expect("moved");
    std::os::unix::fs::symlink(at.file_name().expect("a name"), &at).expect("linked");
    let (_, stderr) = second.copy_with(13, &["--delete"]);
    assert!(stderr.contains("cannot be examined") && stderr.contains("--delete forgot nothing"), "{stderr}");
    // Without --delete, the exit code says it as well.
    second.copy_with(13, &[]);
    std::fs::rename(play.path("away"), &at).expect("moved back");
    // The newest snapshot that this machine made there is gone without a trace.
    let newest: Vec<String> =
        play.objects().into_iter().map(|(name, _)| name).filter(|name| name.contains(&ids[2])).collect();
    newest.iter().for_each(|name| damage::remove(&play.repository(), name));
    let (_, stderr) = second.copy_with(13, &["--delete"]);
    assert!(stderr.contains("is older than it was"), "{stderr}");
    assert_eq!(originals(&second), ids);
}

/// The store's time of a snapshot's manifest.
fn made(repository: &Path, id: &str, seconds: u64) {
    let file = std::fs::File::open(repository.join(register(repository, id))).expect("opens");
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).expect("touched");
}

/// An operator's signature would confirm the times that a thief made up.
#[test]
fn forged_times_are_not_copied() {
    let play = Play::with_repository();
    let key = play.path("web.key");
    run(play.command(["key", "add", "--role", "backup", "--file"]).arg(&key)).ok();
    play.write("source/file", "content");
    let by_key = |time: &str| {
        let mut command = play.command(["backup", "source", "--series", "s", "--json", "--time", time]);
        let ran = run(command.env_remove("LARDER_PASSWORD").env("LARDER_KEY_FILE", &key)).ok();
        ran.messages("summary").remove(0)["snapshot_id"].as_str().expect("an id").to_owned()
    };
    let real = by_key("2020-01-02 03:00:00");
    // An hour later than 3 o'clock, in any zone within a day.
    made(&play.repository(), &real, 1_577_937_600);
    let forged = by_key("2020-01-02 23:59:59");
    let second = Second::of(&play);
    let (summary, stderr) = second.copy_with(3, &["--delete"]);
    assert!(stderr.contains("does not confirm its time") && stderr.contains("forgot nothing"), "{stderr}");
    assert_eq!(summary["refused"], json!([{"snapshot_id": forged, "reason": "unconfirmed_time"}]));
    assert_eq!(originals(&second), std::slice::from_ref(&real));
    let kept = second.larder(["forget", "--keep-daily", "1", "--json"]).ok().json();
    assert_eq!(kept[0]["keep"][0]["original"], json!(real));
    // `latest` follows times, so it names nothing.
    second.copy_with(3, &["latest"]);
    assert_eq!(second.copy(&[&forged]).0.len(), 1, "people may want it");
    // A time in the future counts as that of the job, in the copy as well.
    let future = play.backup(["source", "--series", "t", "--time", "2090-01-01 00:00:00"]);
    second.copy(&[]);
    let listed = second.snapshots();
    let copy = listed.iter().find(|copy| copy["original"] == json!(future)).expect("copied");
    assert!(copy["time"].as_str().is_some_and(|time| !time.starts_with("2090")), "{copy:#}");
}

/// Two sites that mirror one another.
#[test]
fn copies_do_not_come_back() {
    let play = Play::with_repository();
    play.write("source/file", "of the first");
    let ids = [0, 1].map(|_| play.backup(["source", "--series", "a"]));
    let second = Second::of(&play);
    play.write("own/file", "of the second");
    second.larder(["backup", "own", "--series", "b"]).ok();
    let count = || (number_of(&play), second.snapshots().len());
    for round in 0..3 {
        let (_, there) = second.copy(&[]);
        let back = second.copy_back(&[]);
        assert_eq!(count(), (3, 3), "round {round}");
        assert_eq!(number(&back, "came_from_here"), 2);
        assert_eq!(number(&there, "came_from_here"), u64::from(round > 0));
    }
    // What one site forgot does not come back from the other one, unless it is asked for.
    let copy = copy_of(&second, &ids[0]);
    play.larder(["forget", &ids[0]]).ok();
    assert_eq!((number(&second.copy_back(&[]), "copied"), count()), (0, (2, 3)));
    assert_eq!(number(&second.copy_back(&[&copy]), "copied"), 1);
    // Nor does what was made of a copy there.
    second.larder(["rewrite", "--new-host", "other", &copy_of(&second, &ids[1])]).ok();
    assert_eq!(number(&second.copy_back(&[]), "copied"), 0);
}

fn number_of(play: &Play) -> usize {
    play.larder(["snapshots", "--json"]).ok().json().as_array().map_or(0, Vec::len)
}

/// A key of one domain cannot reach a series of another one, also not by way of a copy.
#[test]
fn series_of_several_writers_do_not_come_together() {
    let roles = Roles::new();
    for name in ["web", "thief"] {
        roles.add(name, &["--role", "backup", "--domain", name]).ok();
    }
    let play = &roles.play;
    let back_up = |key: &str, series: &str| roles.run(key, &["backup", "src", "--series", series]).ok();
    back_up("web", "web1");
    let second = Second::of(play);
    second.copy(&["--series", "web1"]);
    back_up("thief", "web1");
    back_up("web", "web1");
    let (summary, stderr) = second.copy_with(3, &["--series", "web1"]);
    assert!(stderr.contains("several domains"), "{stderr}");
    // The one that was first keeps the name.
    assert_eq!((number(&summary, "copied"), summary["refused"].as_array().map(Vec::len)), (1, Some(1)));
    back_up("web", "new");
    back_up("thief", "new");
    let (summary, _) = second.copy_with(3, &["--series", "new"]);
    assert_eq!((number(&summary, "copied"), summary["refused"].as_array().map(Vec::len)), (0, Some(2)));
    let named = summary["refused"][0]["snapshot_id"].as_str().expect("text").to_owned();
    assert_eq!(second.copy(&[&named]).0.len(), 1, "people decide by naming it");
    // Nor do backups of the second repository and copies.
    second.larder(["backup", "src", "--series", "s"]).ok();
    let (summary, stderr) = second.copy_with(3, &["--series", "s"]);
    assert!(stderr.contains("other snapshots here") && stderr.contains("--mix-series"), "{stderr}");
    assert_eq!(summary["refused"], json!([{"snapshot_id": roles.first, "reason": "other_snapshots_here"}]));
    assert_eq!(second.copy(&["--series", "s", "--mix-series"]).0.len(), 1);
    second.larder(["check", "--read-data"]).ok();
}

/// Who may only back up could claim that a snapshot was copied.
#[test]
fn copies_of_others_count_only_if_an_operator_signed_them() {
    let roles = Roles::new();
    let play = Play::with_repository();
    play.write("source/file", tree::noise(1, 50_000));
    play.backup(["source", "--series", "t"]);
    for name in ["one", "two"] {
        roles.add(name, &["--role", "backup", "--domain", "shared"]).ok();
    }
    let from = play.repository();
    let command = |key: &str| {
        let file = roles.file(key);
        let mut command = roles.play.command(["copy"]);
        command.env_remove("LARDER_PASSWORD").env("LARDER_KEY_FILE", &file);
        command.env("LARDER_STATE", file.with_extension("state"));
        command.env("LARDER_FROM_REPOSITORY", &from).env("LARDER_FROM_PASSWORD", PASSWORD);
        command
    };
    run(command("one").arg("-n")).ok().says("does not sign");
    let copy = |key: &str| {
        let summary = copied(run(command(key).arg("--json")).ok()).1;
        (number(&summary, "copied"), number(&summary, "copied_before"))
    };
    assert_eq!(copy("one"), (1, 0));
    assert_eq!(copy("one"), (0, 1), "it made it");
    assert_eq!(copy("two"), (1, 0), "it does not believe the other one");
    assert_eq!(copy("two"), (0, 1));
    // Another domain does not see them.
    assert_eq!((copy("all"), copy("all")), ((1, 0), (0, 1)));
    let ran = roles.run("restore", &["copy", "--from-repo", "nowhere"]).code(12);
    ran.says("needs a key with the role").says("backup");
    let ran = roles.run("one", &["copy", "--delete", "--from-repo", "nowhere"]).code(12);
    ran.says("needs a key with the role").says("operate");
    roles.run("all", &["check", "--read-data"]).ok();
}

/// Files that somebody forged in the other repository do not count as unchanged here.
#[test]
fn no_backup_follows_a_copy_or_what_was_made_of_it() {
    let play = Play::with_repository();
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000);
    let write = |name: &str, content: &str| {
        let path = play.write(format!("source/{name}"), content);
        std::fs::File::options().write(true).open(path).expect("opens").set_modified(old).expect("touched");
    };
    for name in ["a", "b", "c"] {
        write(name, "forged");
    }
    play.settle();
    let id = play.backup(["source", "--series", "s"]);
    let second = Second::of(&play);
    second.copy(&[]);
    for name in ["a", "b", "c"] {
        write(name, "honest");
    }
    // Contents are told by size and time of change alone.
    let args = ["backup", "source", "--series", "s", "--ignore-ctime", "--ignore-inode", "--json", "--dry-run"];
    let unmodified = |series: &str| {
        let mut args = args.to_vec();
        args[3] = series;
        let ran = second.larder(args).ok();
        let summary: Value = ran.messages("summary").remove(0);
        number(&summary, "files_unmodified")
    };
    assert_eq!(unmodified("s"), 0, "a copy");
    let copy = copy_of(&second, &id);
    second.larder(["rewrite", "--new-host", "other", "--new-series", "t", &copy]).ok();
    assert_eq!(unmodified("t"), 0, "a rewritten copy");
    // A file that is there twice is lost once: the other two are saved.
    let mut bad = damage::named(&play.path("second"), "data/");
    bad.truncate(1);
    damage::remove(&play.path("second"), &bad[0]);
    let ran = second.larder(["repair", "snapshots", &copy, "--json"]);
    let saved = ran.ok().messages("summary").remove(0);
    assert_eq!((&saved["snapshots"][0]["outcome"], second.snapshots().len()), (&json!("saved"), 3), "{saved:#}");
    assert_eq!(unmodified("s"), 0, "what was saved of a copy");
}

/// Every run would copy all again, because nothing could show that a copy is a real one.
#[test]
fn a_machine_that_remembers_nothing_signs_its_copies_or_makes_none() {
    let play = Play::with_repository();
    play.write("source/file", "content");
    play.backup(["source", "--series", "s"]);
    let second = Second::of(&play);
    assert_eq!(second.copy(&["--no-state"]).0.len(), 1);
    assert!(second.copy(&["--no-state"]).0.is_empty(), "the first one is signed");
    // A password of a role without signature.
    let mut add = second.command(["key", "add", "--role", "backup"]);
    run(add.env("LARDER_NEW_PASSWORD", "a third one").args(["--insecure-kdf"])).ok();
    let mut command = second.command(["copy", "--no-state"]);
    run(command.env("LARDER_PASSWORD", "a third one")).code(1).says("this machine remembers nothing");
}
