//! `forget`, `pin`, `unpin`: the flags reach the library, what is shown is what is done, and refusals forget nothing.

use serde_json::Value;

use crate::support::{Play, damage, schema};

/// A repository of one series with a version of each of these times, oldest first; gives their ids.
fn versions(times: &[&str]) -> (Play, Vec<String>) {
    let play = Play::with_repository();
    play.write("source/file", "content");
    let ids = times
        .iter()
        .enumerate()
        .map(|(number, time)| {
            play.write("source/file", format!("content {number}"));
            play.backup(["source", "--series", "s", "--time", time, "--tag", &format!("t{number}")])
        })
        .collect();
    (play, ids)
}

const TIMES: [&str; 5] =
    ["2026-01-01 10:00:00", "2026-01-01 11:00:00", "2026-01-02 10:00:00", "2026-02-03 10:00:00", "2026-02-03 12:00:00"];

fn left(play: &Play) -> Vec<String> {
    let all = play.larder(["snapshots", "--json"]).ok().json();
    let ids = all.as_array().expect("an array").iter().map(|version| version["id"].as_str().expect("text").to_owned());
    ids.collect()
}

fn ids_of(versions: &Value) -> Vec<String> {
    let versions = versions.as_array().expect("an array");
    versions.iter().map(|version| version["id"].as_str().expect("text").to_owned()).collect()
}

/// `latest` counts a time in the future as the start of the job. A policy must not forget what that names.
#[test]
fn a_time_in_the_future_displaces_nothing_newer() {
    let (play, ids) = versions(&["2099-01-01 10:00:00"]);
    play.write("source/file", "made later");
    let later = play.backup(["source", "--series", "s"]);
    assert_eq!(play.larder(["snapshots", "latest", "--json"]).ok().json()[0]["id"], *later);
    for policy in ["--keep-last", "--keep-daily"] {
        let would = play.larder(["forget", policy, "1", "-n", "--json"]).ok().json();
        assert_eq!(ids_of(&would[0]["keep"]), [&*later], "{policy}");
        assert_eq!(ids_of(&would[0]["remove"]), [&*ids[0]], "{policy}");
    }
}

#[test]
fn a_policy_keeps_what_it_says_and_forgets_the_rest() {
    let (play, ids) = versions(&TIMES);
    let policy = ["forget", "--keep-daily", "2", "--keep-tag", "t0", "--json"];
    let mut dry = play.larder(policy.iter().copied().chain(["--dry-run"])).ok().json();
    assert_eq!(left(&play).len(), 5, "a dry run changes nothing");
    assert_eq!(damage::named(&play.repository(), "forgotten/").len(), 0);
    let done = play.larder(policy).ok().json();
    let free = dry[0].as_object_mut().and_then(|group| group.remove("free_bytes"));
    assert!(free.and_then(|free| free.as_u64()).is_some_and(|free| free > 500), "only a dry run says what is freed");
    assert_eq!(dry, done);
    let group = &done[0];
    schema::check("forget", group);
    schema::check("snapshots", &group["keep"]);
    assert_eq!(group["series"], "s");
    assert_eq!(group["host"], Value::Null);
    assert_eq!(ids_of(&group["keep"]), [&*ids[0], &ids[2], &ids[4]]);
    assert_eq!(ids_of(&group["remove"]), [&*ids[1], &ids[3]]);
    assert_eq!(group["reasons"][0]["matches"], serde_json::json!(["has tags [t0]"]));
    assert_eq!(group["reasons"][2]["matches"], serde_json::json!(["daily snapshot"]));
    assert_eq!(left(&play), [&*ids[0], &ids[2], &ids[4]]);
    // Once more changes nothing.
    let again = play.larder(policy).ok().json();
    assert_eq!(ids_of(&again[0]["remove"]), [""; 0]);
    let text = play.larder(["forget", "--keep-last", "1", "--keep-within", "1m2d", "-n"]).ok().text();
    assert!(text.contains("keep 2 snapshots of series s:") && text.contains("within 1m2d"), "{text}");
    assert!(text.contains("1 snapshot would be forgotten"), "{text}");
    let text = play.larder(["forget", "--keep-last", "1"]).ok().text();
    assert!(text.contains("forgot 2 snapshots"), "{text}");
    assert_eq!(left(&play), [&*ids[4]]);
    // What was forgotten cannot be restored any more, and the rest can.
    play.larder(["restore", &ids[0], "--target", "back"]).code(1).says("no snapshot fits");
    play.larder(["restore", "latest", "--target", "back"]).ok();
    play.larder(["check", "--read-data"]).ok();
}

#[test]
fn snapshots_are_forgotten_by_name_in_any_order() {
    let (play, ids) = versions(&TIMES);
    play.larder(["forget", "latest", &ids[1]]).ok();
    assert_eq!(left(&play), [&*ids[0], &ids[2], &ids[3]]);
    play.larder(["forget", "latest", "nothing"]).code(1).says("no snapshot fits");
    assert_eq!(left(&play).len(), 3, "nothing is forgotten when a name is wrong");
    play.larder(["forget", &ids[0], &ids[2], &ids[3]]).ok();
    assert_eq!(left(&play), [""; 0]);
    // And a backup after that is as if it were the first.
    play.backup(["source", "--series", "s"]);
    play.larder(["restore", "latest", "--target", "back"]).ok();
}

#[test]
fn groups_are_decided_apart() {
    let (play, ids) = versions(&TIMES[..2]);
    let other = play.backup(["source", "--series", "other", "--time", TIMES[4], "--tag", "x"]);
    let groups = play.larder(["forget", "--keep-last", "1", "--json", "-n"]).ok().json();
    assert_eq!(groups.as_array().map(Vec::len), Some(2));
    let all = play.larder(["forget", "--keep-last", "1", "--group-by", "", "--json", "-n"]).ok().json();
    assert_eq!(ids_of(&all[0]["keep"]), [other]);
    let tags = play.larder(["forget", "--keep-last", "1", "-g", "tags,host", "--json", "-n"]).ok().json();
    assert_eq!(tags.as_array().map(Vec::len), Some(3));
    assert_eq!((&tags[0]["series"], &tags[0]["host"]), (&Value::Null, &Value::from("testhost")));
    let series = play.larder(["forget", "--keep-last", "1", "--series", "s", "--json"]).ok().json();
    assert_eq!(ids_of(&series[0]["remove"]), [&*ids[0]]);
    play.larder(["forget", "--keep-last", "1", "-g", "color"]).code(2);
}

#[test]
fn a_size_keeps_what_fits() {
    let play = Play::with_repository();
    let ids: Vec<_> = (0..4u64)
        .map(|number| {
            play.write("source/file", larder_testkit::data::random(number, 300_000));
            play.backup(["source", "--series", "s"])
        })
        .collect();
    let kept = |size: &str| {
        let groups = play.larder(["forget", "--keep-size", size, "--json", "-n"]).ok().json();
        ids_of(&groups[0]["keep"])
    };
    assert_eq!(kept("700KB"), ids[2..]);
    assert_eq!(kept("10MiB"), ids);
    play.larder(["forget", "--keep-size", "1000"]).code(1).says("keeps none of 4 snapshots of series s");
    assert_eq!(left(&play).len(), 4);
}

#[test]
fn what_makes_no_sense_forgets_nothing() {
    let (play, ids) = versions(&TIMES[..2]);
    play.larder(["forget"]).code(2).says("neither snapshots nor a policy");
    play.larder(["forget", "--keep-last", "0"]).code(2);
    play.larder(["forget", "--keep-last", "x"]).code(2);
    play.larder(["forget", "--keep-within", "7w"]).code(2);
    play.larder(["forget", "--keep-last", "1", &ids[0]]).code(2).says("only one of them can decide");
    play.larder(["forget", "--keep-tag", "none"]).code(1).says("keeps none of 2 snapshots").in_two_lines();
    play.larder(["forget", "--unsafe-allow-remove-all"]).code(2);
    assert_eq!(left(&play).len(), 2);
    play.larder(["forget", "--unsafe-allow-remove-all", "--tag", "t0"]).ok();
    assert_eq!(left(&play), [&*ids[1]]);
    play.larder(["forget", "--keep-tag", "none", "--unsafe-allow-remove-all"]).ok();
    assert_eq!(left(&play), [""; 0]);
}

#[test]
fn pinned_snapshots_stay() {
    let (play, ids) = versions(&TIMES);
    for line in play.larder(["pin", &ids[0], "latest~2", "--reason", "audit", "--json"]).ok().json_lines() {
        schema::check("pin", &line);
    }
    play.larder(["pin", &ids[0]]).ok();
    let listed = play.larder(["snapshots", "--json"]).ok().json();
    schema::check("snapshots", &listed);
    assert_eq!((&listed[0]["pinned"], &listed[1]["pinned"]), (&true.into(), &false.into()));
    assert!(play.larder(["snapshots"]).ok().text().contains("pinned"));
    let groups = play.larder(["forget", "--keep-last", "1", "--json"]).ok().json();
    assert_eq!(ids_of(&groups[0]["keep"]), [&*ids[0], &ids[2], &ids[4]]);
    assert_eq!(groups[0]["reasons"][0]["matches"], serde_json::json!(["pinned"]));
    let ran = play.larder(["forget", &ids[0]]).code(1).says("is pinned").says("audit");
    ran.says("larder unpin").in_two_lines();
    // A dry run says what the real one would refuse.
    play.larder(["forget", &ids[0], "-n"]).code(1).says("is pinned").says("larder unpin").in_two_lines();
    let ran = play.larder(["forget", &ids[0], &ids[4], "-n"]).code(3).says("is pinned; `larder unpin`");
    assert!(ran.text().contains("1 snapshot would be forgotten"), "{}", ran.text());
    play.larder(["forget", "--series", "nosuch", "--keep-last", "1"]).ok().says("no snapshot fits --series nosuch");
    let unused = ["forget", "--keep-last", "9", "-n", "--max-unused", "5"];
    play.larder(unused).ok().says("without effect here: --max-unused without --prune");
    assert_eq!(left(&play), [&*ids[0], &ids[2], &ids[4]]);
    play.larder(["unpin", &ids[0]]).ok();
    play.larder(["forget", &ids[0]]).ok();
    assert_eq!(left(&play), [&*ids[2], &ids[4]]);
    play.larder(["pin", &ids[0]]).code(1).says("no snapshot fits");
}

/// A snapshot that cannot be read keeps a pass from collecting anything, so there is a way to be rid of it.
#[test]
fn a_damaged_snapshot_can_be_forgotten_by_its_id() {
    let (play, ids) = versions(&TIMES[..2]);
    let manifest = damage::named(&play.repository(), "versions/").into_iter().find(|name| name.contains(&ids[0]));
    damage::behead(&play.repository(), &manifest.expect("a manifest"));
    play.larder(["forget", "--keep-last", "1"]).code(13).says("cannot be read");
    assert_eq!(damage::named(&play.repository(), "forgotten/").len(), 0);
    let groups = play.larder(["forget", &ids[0], "--json"]);
    assert_eq!(groups.json()[0]["remove_unreadable"], serde_json::json!([ids[0]]));
    assert_eq!(damage::named(&play.repository(), "forgotten/").len(), 1);
    play.larder(["check"]).ok();
    assert_eq!(left(&play), [&*ids[1]]);
}

/// What could be forgotten of several is forgotten, said, and collected; the exit code says that it is not all.
#[test]
fn one_that_cannot_be_forgotten_keeps_no_other() {
    let (play, ids) = versions(&TIMES);
    play.larder(["pin", &ids[0], &ids[1]]).ok();
    let ran = play.larder(["forget", &ids[0], &ids[2], &ids[1], "--json"]).code(3);
    let groups = ran.json();
    schema::check("forget", &groups[0]);
    assert_eq!(ids_of(&groups[0]["remove"]), [&*ids[2]], "only what was done: {groups:#}");
    assert_eq!(ids_of(&groups[0]["failed"]), [&*ids[0], &ids[1]]);
    assert!(
        groups[0]["failed"][0]["message"].as_str().is_some_and(|message| message.contains("is pinned")),
        "{groups:#}"
    );
    assert_eq!(ran.errors("error").len(), 2);
    assert_eq!(left(&play), [&*ids[0], &ids[1], &ids[3], &ids[4]]);
    let text = play.larder(["forget", &ids[3], &ids[0], "--prune"]).code(3).says("was not forgotten").text();
    assert!(text.contains("forgot 1 snapshot") && text.contains("deleted"), "{text}");
    assert_eq!(damage::named(&play.repository(), "forgotten/").len(), 0, "the pass was made");
    assert_eq!(left(&play), [&*ids[0], &ids[1], &ids[4]]);
    // Where nothing was done there is nothing to collect, and one reason.
    let groups = play.larder(["forget", &ids[0], "--prune", "--json"]).code(1);
    assert_eq!(groups.errors("exit_error").len(), 1);
    let groups = groups.json();
    assert_eq!((ids_of(&groups[0]["remove"]), ids_of(&groups[0]["failed"])), (vec![], vec![ids[0].clone()]));
}

/// Snapshots that lack files take no place of the last one that has them.
#[test]
fn incomplete_snapshots_do_not_displace_the_last_complete_one() {
    let play = Play::with_repository();
    play.write("source/a", "content");
    let older = play.backup(["source", "--series", "s"]);
    let complete = play.backup(["source", "--series", "s"]);
    for _ in 0..3 {
        play.larder(["backup", "source", "absent", "--series", "s"]).code(3);
    }
    let groups = play.larder(["forget", "--keep-last", "2", "--json"]).ok().json();
    let reasons = groups[0]["reasons"].as_array().expect("an array");
    let of_complete = reasons.iter().find(|reason| reason["snapshot"]["id"] == *complete).expect("kept");
    assert_eq!(of_complete["matches"], serde_json::json!(["last complete snapshot"]));
    assert_eq!(reasons.len(), 3);
    assert!(groups[0]["remove"].as_array().expect("an array").iter().any(|removed| removed["id"] == *older));
    // The next complete one takes its place.
    play.backup(["source", "--series", "s"]);
    play.larder(["forget", "--keep-last", "1"]).ok();
    let left = play.larder(["snapshots", "--json"]).ok().json();
    assert_eq!(left.as_array().map(Vec::len), Some(1));
}
