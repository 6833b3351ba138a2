//! `rewrite`: paths go and facts change, contents are not read, and a secret can be taken out for good.

use serde_json::{Value, json};

use crate::support::contents::stores;
use crate::support::roles::Roles;
use crate::support::{Play, damage, schema, tree};

const SECRET: &[u8] = b"password = hunter2-and-three-more-words";

/// Runs `rewrite --json`, and gives its summary.
fn rewrite(play: &Play, args: &[&str]) -> Value {
    let summary = play.larder([&["rewrite", "--json"], args].concat()).ok().messages("summary").remove(0);
    schema::check("rewrite", &summary);
    summary
}

fn ids(play: &Play, args: &[&str]) -> Vec<String> {
    let all = play.larder([&["snapshots", "--json"], args].concat()).ok().json();
    schema::check("snapshots", &all);
    let all = all.as_array().expect("an array").iter();
    all.map(|version| version["id"].as_str().expect("text").to_owned()).collect()
}

#[test]
fn a_leaked_password_is_taken_out_of_every_chunk() {
    taken_out("standard");
    taken_out("lifecycle");
}

fn taken_out(layout: &str) {
    let play = Play::with_repository();
    for version in 0..3u64 {
        // The secret shares a container, and a frame, with what stays. Some of that is there twice.
        play.write("source/a", tree::noise(version, 40_000));
        play.write("source/a again", tree::noise(version, 40_000));
        play.write("source/conf/secret.ini", [SECRET, b"\nmore of it\n"].concat());
        // This one stays in the container of the first snapshot, which the newest and older ones share.
        play.write("source/stable", tree::noise(77, 30_000));
        play.write("source/z", format!("version {version}\n").repeat(3000));
        play.settle();
        play.backup(["source", "--series", "s", "--tag", "kept", "--layout", layout]);
    }
    assert!(stores(&play, "repository", SECRET));
    let before = ids(&play, &[]);
    // A dry run has a lease, as a restore, and writes nothing else.
    let objects = || play.objects().into_iter().filter(|(name, _)| !name.starts_with("jobs/")).collect::<Vec<_>>();
    let kept = objects();
    let dry = rewrite(&play, &["--exclude", "secret.ini", "-n"]);
    assert!(objects() == kept, "a dry run changes nothing");
    assert!(dry["snapshots"].as_array().expect("an array").iter().all(|one| one["outcome"] == "would_be_rewritten"));
    assert_eq!(dry["snapshots"][0]["bytes_left_out"], json!(SECRET.len() + 12));
    let text = play.larder(["rewrite", "--exclude", "secret.ini", "--forget"]).ok().text();
    assert!(text.contains("rewrote 3 snapshots") && text.contains("forgot 3 snapshots"), "{text}");
    assert!(text.contains("optimize --max-unused 0") && text.contains("old versions of objects"), "{text}");
    assert_eq!(text.contains("--holes 0"), layout == "lifecycle", "{text}");
    let after = ids(&play, &[]);
    assert!(after.len() == 3 && after.iter().all(|id| !before.contains(id)));
    let listed = play.larder(["snapshots", "--json"]).ok().json();
    for (number, version) in listed.as_array().expect("an array").iter().enumerate() {
        assert_eq!((&version["tags"], &version["series"]), (&json!(["kept"]), &json!("s")));
        assert_eq!(
            (&version["original"], &version["origin"]["snapshot"]),
            (&json!(before[number]), &json!(before[number]))
        );
        assert_eq!(version["summary"]["total_files_processed"], 4);
    }
    play.larder(["find", "secret.ini"]).ok();
    assert!(stores(&play, "repository", SECRET), "until a pass it is there");
    if layout == "lifecycle" {
        play.larder(["series", "set", "s", "--holes", "0"]).ok();
    }
    play.larder(["optimize", "--max-unused", "0"]).ok();
    if layout == "standard" {
        assert!(stores(&play, "repository", SECRET), "a shared container stays");
        play.larder(["forget", &after[0], &after[1]]).ok();
        play.larder(["optimize", "--max-unused", "0"]).ok();
    }
    assert!(!stores(&play, "repository", SECRET), "no chunk that can be read has it");
    play.larder(["check", "--read-data"]).ok();
    for (version, id) in after.iter().enumerate().skip(if layout == "standard" { 2 } else { 0 }) {
        let target = format!("back{version}");
        play.larder(["restore", id, "--target", &target]).ok();
        let at = play.path(&target).join(play.path("source").strip_prefix("/").expect("absolute"));
        assert_eq!(std::fs::read(at.join("a")).expect("restored"), tree::noise(version as u64, 40_000));
        assert!(!at.join("conf/secret.ini").exists() && at.join("conf").is_dir());
    }
    // The machine's next backup follows its newest snapshot, as if nothing had happened.
    play.settle();
    let summary = play.larder(["backup", "source", "--series", "s", "--json"]).ok().messages("summary").remove(0);
    assert_eq!((&summary["parent"], &summary["files_new"]), (&json!(after[2]), &json!(1)));
    assert_eq!(summary["files_unmodified"], 4);
}

#[test]
fn contents_are_neither_read_nor_stored_again() {
    let play = Play::with_repository();
    play.write("source/large", tree::noise(1, 9_000_000));
    play.write("source/other", tree::noise(2, 300_000));
    play.write("source/junk", tree::noise(3, 100_000));
    play.backup(["source"]);
    let data = damage::sizes(&play.repository(), "data/");
    let summary = rewrite(&play, &["--exclude", "junk", "latest"]);
    assert_eq!(damage::sizes(&play.repository(), "data/"), data);
    let down = summary["bytes_down"].as_u64().expect("a number");
    assert!(down < 1_000_000, "{down} bytes were read");
    play.larder(["restore", "latest", "--target", "back", "--verify"]).ok();
    // Once more: it was done before, and the result has nothing to leave out.
    let again = rewrite(&play, &["--exclude", "junk"]);
    let outcomes: Vec<_> = again["snapshots"].as_array().expect("an array").iter().map(|one| &one["outcome"]).collect();
    assert_eq!(outcomes, ["rewritten_before", "unchanged"]);
    let done = rewrite(&play, &["--exclude", "junk", "--forget"]);
    assert_eq!(done["forgotten"].as_array().map(Vec::len), Some(1));
    play.larder(["check", "--read-data"]).ok();
}

#[test]
fn every_kind_of_entry_stays_as_it_was() {
    let play = Play::with_repository();
    tree::odd(&play.path("source"));
    // The first name of a file goes: the next one takes its place, and the third follows that.
    play.write("source/linked/1", tree::noise(4, 50_000));
    for name in ["2", "3"] {
        std::fs::hard_link(play.path("source/linked/1"), play.path(format!("source/linked/{name}"))).expect("linked");
    }
    play.backup(["source"]);
    let args = ["--exclude", "linked/1", "--exclude", "text", "--iexclude", "LARGE", "--exclude", "/nowhere"];
    let summary = rewrite(&play, &args);
    assert_eq!(summary["snapshots"][0]["entries_left_out"], 3);
    for name in ["linked/1", "folder/text", "folder/large"] {
        std::fs::remove_file(play.path("source").join(name)).expect("removed");
    }
    play.larder(["restore", "latest", "--target", "back"]).ok();
    let restored = play.path("back").join(play.path("source").strip_prefix("/").expect("absolute"));
    let (mut old, mut new) = (tree::look(&play.path("source")), tree::look(&restored));
    for folder in ["folder", "linked"] {
        // Their times changed when files were removed.
        old.remove(folder.as_bytes());
        new.remove(folder.as_bytes());
    }
    old.remove(&b""[..]);
    new.remove(&b""[..]);
    assert_eq!(old.keys().collect::<Vec<_>>(), new.keys().collect::<Vec<_>>());
    for (name, look) in &old {
        assert_eq!(look, &new[name], "{}", String::from_utf8_lossy(name));
    }
    play.larder(["check", "--read-data"]).ok();
}

#[test]
fn host_time_series_and_tags_change() {
    let play = Play::with_repository();
    play.write("source/a", "content");
    let old = play.backup(["source", "--series", "s", "--tag", "t"]);
    play.larder(["tag", "--add", "later", &old]).ok();
    let args = ["--new-host", "web1", "--new-time", "2020-02-03 04:05:06", "--new-series", "new", "--new-tag", "x"];
    let summary = rewrite(&play, &[&args[..], &["--forget"]].concat());
    let new = summary["snapshots"][0]["new_snapshot_id"].clone();
    let listed = play.larder(["snapshots", "--json"]).ok().json();
    let one = &listed[0];
    assert_eq!((&one["id"], &one["hostname"], &one["series"]), (&new, &json!("web1"), &json!("new")));
    assert_eq!(one["tags"], json!(["later", "t", "x"]));
    assert!(one["time"].as_str().is_some_and(|time| time.starts_with("2020-02-03T04:05:06")), "{one:#}");
    assert_eq!(rewrite(&play, &args)["snapshots"][0]["outcome"], "unchanged");
    play.larder(["optimize"]).ok();
    play.larder(["check", "--read-data"]).ok();
    play.larder(["restore", "latest", "--target", "back", "--series", "new"]).ok();
}

#[test]
fn what_cannot_be_rewritten_stays() {
    let play = Play::with_repository();
    play.write("source/a", tree::noise(1, 30_000));
    let pinned = play.backup(["source", "--series", "s"]);
    play.larder(["pin", &pinned]).ok();
    let objects = play.objects();
    play.larder(["rewrite"]).code(2);
    play.larder(["rewrite", "latest"]).code(2);
    play.larder(["rewrite", "--exclude", "[", "latest"]).code(2);
    play.larder(["rewrite", "--new-series", "", "latest"]).code(2);
    play.larder(["rewrite", "--exclude", "a", "--host", "other"]).code(1).says("no snapshot fits");
    play.larder(["rewrite", "--exclude", "a", "--forget"]).code(1).says("is pinned").says("larder unpin");
    assert_eq!(play.objects(), objects);
    let summary = rewrite(&play, &["--exclude", "nothing"]);
    assert_eq!(summary["snapshots"][0]["outcome"], "unchanged");
    play.write("lines/only", "one");
    play.backup(["lines/only", "--series", "one"]);
    let summary = rewrite(&play, &["--exclude", "/*", "--series", "one", "--forget"]);
    assert_eq!((&summary["snapshots"][0]["outcome"], &summary["forgotten"]), (&json!("nothing_left"), &json!([])));
    // A series in the other layout shares nothing.
    play.backup(["source", "--series", "lc", "--layout", "lifecycle"]);
    let ran = play.larder(["rewrite", "--new-series", "elsewhere", "--series", "lc"]).code(1);
    ran.says("shared within their series alone");
    let ran = play.larder(["rewrite", "--new-series", "lc", "--series", "s"]).code(1);
    ran.says("layout lifecycle");
    // Within the series it works, also there.
    play.write("source/b", tree::noise(2, 30_000));
    play.backup(["source", "--series", "lc"]);
    assert_eq!(
        rewrite(&play, &["--exclude", "b", "--series", "lc", "--forget"])["forgotten"].as_array().map(Vec::len),
        Some(1)
    );
    play.larder(["optimize"]).ok();
    play.larder(["check", "--read-data"]).ok();
    play.larder(["restore", "latest", "--series", "lc", "--target", "back"]).ok();
    // A damaged snapshot is not rewritten, and not forgotten.
    for name in damage::named(&play.repository(), "data/") {
        std::fs::remove_file(play.repository().join(name)).expect("removed");
    }
    play.larder(["unpin", &pinned]).ok();
    let left = ids(&play, &[]).len();
    play.larder(["rewrite", "--new-host", "x", "--series", "s", "--forget"]).code(1).says("missing");
    assert_eq!(ids(&play, &[]).len(), left);
}

/// A rewritten snapshot of another machine is not one of this machine, and clients may not rewrite.
#[test]
fn rewriting_gives_no_trust_and_needs_an_operator() {
    let roles = Roles::new();
    roles.add("client", &["--role", "backup", "--domain", "client"]).ok();
    roles.run("client", &["backup", "src", "--series", "c"]).ok();
    let listed = roles.run("client", &["snapshots", "--json"]).ok().json();
    let id = listed[0]["id"].as_str().expect("an id").to_owned();
    for key in ["client", "restore"] {
        let ran = roles.run(key, &["rewrite", "--exclude", "b", &id]).code(12);
        ran.says("needs a key with the role").says("operate");
    }
    roles.run("operate", &["rewrite", "--exclude", "b", "--forget", &id]).ok();
    // It is in the client's domain, and the client reads its files again.
    let listed = roles.run("client", &["snapshots", "--json"]).ok().json();
    assert_eq!((&listed[0]["domain"], &listed[0]["original"]), (&json!("client"), &json!(id)));
    roles.play.settle();
    let ran = roles.run("client", &["backup", "src", "--series", "c", "--json"]).ok();
    let summary = ran.messages("summary").remove(0);
    assert_eq!((&summary["parent"], &summary["files_unmodified"]), (&listed[0]["id"], &json!(0)));
    roles.run("all", &["check", "--read-data"]).ok();
    roles.run("all", &["restore", listed[0]["id"].as_str().expect("an id"), "--target", "back"]).ok();
}

/// One time for all snapshots would leave one of them to the next policy.
#[test]
fn all_snapshots_get_no_common_time_by_accident() {
    let play = Play::with_repository();
    play.write("source/a", "content");
    let first = play.backup(["source", "--series", "s"]);
    play.backup(["source", "--series", "s"]);
    let objects = play.objects();
    let at = ["rewrite", "--new-time", "2020-02-03 04:05:06", "--forget"];
    play.larder(at)
        .code(2)
        .says("--new-time would be that of all 2 snapshots")
        .says("name the snapshots")
        .in_two_lines();
    play.larder(["rewrite", "--new-series", "x"]).code(2).says("--new-series would be that of all 2 snapshots");
    play.larder(["rewrite", "--new-host", ""]).code(2).says("a host needs a name");
    assert_eq!(play.objects(), objects);
    let text = play.larder(["rewrite", "--new-time", "2020-02-03 04:05:06", &first]).ok().text();
    assert!(text.contains(", time 2020-02-03 04:05:06") && !text.contains("without 0"), "{text}");
    play.larder(["rewrite", "--new-series", "x", "--series", "s"]).ok();
    // Nothing is said about what was left out if nothing was rewritten.
    let text = play.larder(["rewrite", "--exclude", "*", &first]).ok().text();
    assert!(text.contains("nothing of it would be left") && !text.contains("the old snapshots still have"), "{text}");
}
