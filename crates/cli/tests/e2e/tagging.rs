//! `tag`: what listings, filters, policies and mounts see, and which keys may do it.

use serde_json::json;

use crate::support::mounting::Mounting;
use crate::support::roles::Roles;
use crate::support::{Play, damage, schema};

/// Three snapshots of one series, oldest first, the first one with the tag `old`.
fn three() -> (Play, Vec<String>) {
    let play = Play::with_repository();
    let ids = ["old", "", ""].iter().enumerate().map(|(number, tag)| {
        play.write("source/file", format!("content {number}"));
        // A backup trusts no time of a file that is as new as itself, so the next one would read it again.
        play.settle();
        let time = format!("2026-01-0{} 10:00:00", number + 1);
        play.backup(["source", "--series", "s", "--time", &time, "--tag", tag])
    });
    let ids = ids.collect();
    (play, ids)
}

fn listed(play: &Play, args: &[&str]) -> Vec<(String, serde_json::Value)> {
    let all = play.larder([&["snapshots", "--json"], args].concat()).ok().json();
    schema::check("snapshots", &all);
    let all = all.as_array().expect("an array").iter();
    all.map(|version| (version["id"].as_str().expect("text").to_owned(), version["tags"].clone())).collect()
}

#[test]
fn tags_change_and_ids_stay() {
    let (play, ids) = three();
    let before = play.objects().len();
    let lines = play.larder(["tag", "--add", "keep,b", "--remove", "old", &ids[0], "latest", "-n", "--json"]).ok();
    for line in lines.json_lines() {
        schema::check("tag", &line);
    }
    assert_eq!(lines.messages("changed")[0]["tags"], json!(["b", "keep"]));
    assert_eq!(lines.messages("summary")[0]["changed_snapshots"], 2);
    assert_eq!(play.objects().len(), before, "a dry run changes nothing");
    let text = play.larder(["tag", "--add", "keep,b", "--remove", "old", &ids[0], "latest"]).ok().text();
    assert!(text.contains("has the tags b, keep") && text.contains("changed the tags of 2 snapshots"), "{text}");
    let tags = [json!(["b", "keep"]), json!([]), json!(["b", "keep"])];
    assert_eq!(listed(&play, &[]), ids.iter().cloned().zip(tags).collect::<Vec<_>>());
    assert!(play.larder(["snapshots"]).ok().text().contains("b,keep"));
    // Filters of all verbs.
    assert_eq!(listed(&play, &["--tag", "keep"]).len(), 2);
    assert!(listed(&play, &["--tag", "old"]).is_empty());
    assert_eq!(listed(&play, &["--tag", ""]), [(ids[1].clone(), json!([]))]);
    play.larder(["ls", "latest", "--tag", "old"]).code(1).says("no snapshot fits");
    play.larder(["restore", "latest~1", "--tag", "keep", "--target", "back"]).ok();
    let restored = play.path("back").join(play.path("source/file").strip_prefix("/").expect("absolute"));
    assert_eq!(std::fs::read(restored).expect("restored"), b"content 0");
    assert_eq!(play.larder(["ls", &ids[0], "--json"]).ok().json_lines()[0]["tags"], json!(["b", "keep"]));
    let by_tag = play.larder(["stats", "--by", "tag", "--json"]).ok().json();
    assert!(by_tag.to_string().contains("keep"), "{by_tag:#}");
    // Once more changes nothing, and the filter chooses by the present tags.
    let again = play.larder(["tag", "--add", "b", "--tag", "keep", "--json"]).ok();
    assert_eq!(again.messages("summary")[0]["changed_snapshots"], 0);
    play.larder(["tag", "--set", "", "--tag", "keep"]).ok();
    assert!(listed(&play, &[]).iter().all(|(_, tags)| *tags == json!([])));
    play.larder(["check", "--read-data"]).ok();
    // The next backup follows the newest snapshot as before.
    let summary = play.larder(["backup", "source", "--series", "s", "--json"]).ok().messages("summary").remove(0);
    assert_eq!((&summary["parent"], &summary["read_bytes"]), (&json!(ids[2]), &json!(0)));
}

#[test]
fn policies_use_the_present_tags() {
    let (play, ids) = three();
    play.larder(["tag", "--set", "keep", &ids[1]]).ok();
    play.larder(["tag", "--remove", "old", &ids[0]]).ok();
    let groups = play.larder(["forget", "--keep-last", "1", "--keep-tag", "keep", "--keep-tag", "old", "--json"]);
    let groups = groups.ok().json();
    schema::check("forget", &groups[0]);
    assert_eq!(groups[0]["keep"][0]["id"], json!(ids[1]));
    assert_eq!(groups[0]["reasons"][0]["matches"], json!(["has tags [keep]"]));
    assert_eq!(groups[0]["remove"][0]["id"], json!(ids[0]));
    // A pass removes the entries with the version.
    play.larder(["tag", "--set", "x", &ids[0]]).code(1).says("no snapshot fits");
    play.larder(["optimize"]).ok();
    let entries = damage::named(&play.repository(), "pins/");
    assert!(entries.iter().all(|name| name.contains(&ids[1])) && !entries.is_empty(), "{entries:?}");
    play.larder(["forget", &ids[1]]).ok();
    play.larder(["optimize"]).ok();
    assert!(damage::named(&play.repository(), "pins/").is_empty());
}

#[test]
fn what_makes_no_sense_tags_nothing() {
    let (play, ids) = three();
    let before = play.objects().len();
    play.larder(["tag"]).code(2);
    play.larder(["tag", &ids[0]]).code(2);
    play.larder(["tag", "--set", "a", "--add", "b"]).code(2);
    play.larder(["tag", "--set", "a", "--host", "other"]).code(1).says("no snapshot fits --host other");
    play.larder(["tag", "--add", "a", &ids[0], "nothing"]).code(1);
    play.larder(["tag", "--add", &"x".repeat(257), &ids[0]]).code(2).says("at most 256 bytes");
    play.larder(["tag", "--set", "a\tb", &ids[0]]).code(2).says("control characters");
    let many: Vec<String> = (0..80).map(|number| format!("{number:0>250}")).collect();
    play.larder(["tag", "--add", &many.join(","), &ids[0]]).code(1).says("too long");
    assert_eq!(play.objects().len(), before);
}

#[test]
fn mounts_show_the_present_tags() {
    let (play, ids) = three();
    let Some(mounting) = Mounting::of(&play, &["--refresh", "0s"]) else { return };
    assert_eq!(mounting.names("tags"), ["old"]);
    play.larder(["tag", "--set", "new", &ids[0], &ids[1]]).ok();
    assert_eq!(mounting.names("tags"), ["new"]);
    assert_eq!(mounting.names("tags/new").len(), 3, "two times and the latest");
    mounting.end().ok();
}

/// A stolen key that may only back up has no way to let a policy forget what it could not forget before.
#[test]
fn a_key_that_may_only_back_up_changes_no_tags() {
    let roles = Roles::new();
    roles.add("client", &["--role", "backup", "--domain", "client"]).ok();
    roles.run("client", &["backup", "src", "--series", "c", "--tag", "mine"]).ok();
    roles.play.write("src/a", "changed");
    roles.run("client", &["backup", "src", "--series", "c"]).ok();
    let listed = roles.run("client", &["snapshots", "--json"]).ok().json();
    let kept = listed[0]["id"].as_str().expect("an id").to_owned();
    // An operator tags what was made in the domain, and the client sees it.
    roles.run("operate", &["tag", "--set", "keep", &kept]).ok();
    assert_eq!(roles.run("client", &["snapshots", "--json"]).ok().json()[0]["tags"], json!(["keep"]));
    let objects = roles.play.objects();
    for key in ["client", "backup", "restore"] {
        for change in [["--set", ""], ["--remove", "keep"], ["--add", "more"]] {
            let ran = roles.run(key, &["tag", change[0], change[1], &kept]).code(12);
            ran.says("needs a key with the role").says("operate");
        }
    }
    assert_eq!(roles.play.objects(), objects);
    // Objects that pretend to be entries: sealed by the client, and garbage.
    let entry = damage::named(&roles.play.repository(), "pins/").remove(0);
    let place = entry.trim_end_matches('0').to_owned();
    let sealed = damage::named(&roles.play.repository(), "versions/");
    let sealed = sealed.iter().find(|name| name.contains(&kept)).expect("a register");
    let mut sealed = std::fs::read(roles.play.repository().join(sealed)).expect("there");
    sealed[..4].copy_from_slice(b"LPIN");
    for (number, plant) in [(5, sealed), (9, b"garbage".to_vec())] {
        std::fs::write(roles.play.repository().join(format!("{place}{number}")), plant).expect("planted");
        assert_eq!(roles.run("operate", &["snapshots", "--json", &kept]).ok().json()[0]["tags"], json!(["keep"]));
        let policy = ["forget", "--series", "c", "--keep-last", "1", "--json"];
        let groups = roles.run("operate", &policy).ok().json();
        assert_eq!(groups[0]["remove"], json!([]), "what may be pinned or tagged stays");
        roles.run("operate", &["tag", "--set", "", &kept]).code(1).says("cannot be read");
    }
    roles.run("operate", &["unpin", &kept]).ok();
    let policy = ["forget", "--series", "c", "--keep-last", "1", "--keep-tag", "keep", "--json"];
    assert_eq!(roles.run("operate", &policy).ok().json()[0]["remove"], json!([]), "the operator's tags count again");
}
