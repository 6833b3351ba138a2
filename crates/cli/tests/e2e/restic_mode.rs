//! restic mode: the shapes that Backrest and resticprofile read, from the program under restic's name.

use std::os::unix::process::CommandExt;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::{PASSWORD, Play, Ran, run, schema};

/// A run under the name `restic`, with restic's variables and none of ours for the repository.
fn restic(play: &Play, args: &[&str]) -> Ran {
    let mut command = play.command(args);
    for name in ["LARDER_REPOSITORY", "LARDER_PASSWORD", "LARDER_HOST"] {
        command.env_remove(name);
    }
    with_variables(&mut command, play);
    run(command.arg0("/usr/bin/restic"))
}

fn with_variables(command: &mut Command, play: &Play) {
    command.env("RESTIC_REPOSITORY", play.repository()).env("RESTIC_PASSWORD", PASSWORD).env("RESTIC_HOST", "resthost");
}

fn id(value: &Value) -> String {
    let id = value.as_str().expect("an id").to_owned();
    assert_eq!(id.len(), 64, "{id}");
    id
}

/// Goal: each command that Backrest starts answers as its parser wants. Method: its command lines, in its order.
#[test]
fn what_backrest_asks_is_answered() {
    let play = Play::new();
    play.write("source/a", "one");
    play.write("source/folder/b", "two");
    play.write("source/folder/large", vec![b'x'; 600_000]);
    std::fs::hard_link(play.path("source/a"), play.path("source/z")).expect("a link");
    let options = ["-o", "sftp.args=-oBatchMode=yes"];
    let restic = |args: &[&str]| restic(&play, &[args, &options[..]].concat());
    let version = restic(&["version"]).ok().text();
    assert!(version.starts_with("restic 0.19.1 compatible (larder "), "{version}");
    restic(&["cat", "config"]).code(10);
    let made = restic(&["init", "--json", "--insecure-kdf"]).ok().json();
    let config = restic(&["cat", "config"]).ok().json();
    assert_eq!((id(&made["id"]), &config["version"]), (id(&config["id"]), &json!(2)));
    assert!(config["chunker_polynomial"].is_string());
    schema::check("cat_config", &config);

    let source = play.path("source").display().to_string();
    let backup = restic(&["backup", "--json", &source, "--exclude-caches", "--tag", "plan:p,created-by:i"]).ok();
    let summary = backup.messages("summary").pop().expect("a summary");
    let first = id(&summary["snapshot_id"]);
    assert!(backup.lines().last().is_some_and(|line| line.starts_with(r#"{"message_type":"summary","#)));
    for key in ["files_new", "dirs_new", "data_added", "data_added_packed", "total_bytes_processed", "total_duration"] {
        assert!(summary[key].is_number(), "{key}");
    }
    play.write("source/c", "three");
    let backup = restic(&["backup", "--json", &source, "--tag", "plan:p", "--parent", &first]).ok();
    let second = id(&backup.messages("summary")[0]["snapshot_id"]);

    let all = restic(&["snapshots", "--json", "--tag", "plan:p"]).ok().json();
    assert_eq!((id(&all[0]["id"]), id(&all[1]["id"])), (first.clone(), second.clone()));
    assert_eq!((id(&all[1]["parent"]), &all[1]["hostname"]), (first.clone(), &json!("resthost")));
    assert_eq!(id(&all[0]["tree"]), first);
    assert_eq!(all[1]["summary"]["files_new"], 1);

    let nodes = restic(&["ls", "--json", &first, &source, "--no-lock"]).ok().json_lines();
    assert_eq!(id(&nodes[0]["id"]), first);
    let node = |name: &str| nodes[1..].iter().find(|node| node["name"] == name).expect("the entry").clone();
    let mode = |name: &str| node(name)["mode"].as_u64().expect("a number");
    assert_eq!(mode("folder") >> 31, 1, "a folder by Go's bits");
    assert_eq!((mode("a") >> 20, &node("z")["type"]), (0, &json!("file")));

    let inside = format!("{first}:{source}/folder");
    let restored = restic(&["restore", "--json", &inside, "--target", "back", "--include", "/b"]).ok();
    let summary = restored.messages("summary").pop().expect("a summary");
    assert!(summary["files_restored"].is_number() && summary["total_bytes"].is_number(), "{summary}");
    assert_eq!(std::fs::read(play.path("back/b")).expect("restored"), b"two");
    assert_eq!(restic(&["dump", &first, &format!("{source}/a"), "--archive", "tar"]).ok().stdout, b"one");

    let stats = restic(&["stats", "--json", "--mode=raw-data"]).ok().json();
    assert_eq!(stats["snapshots_count"], 2);
    for key in ["total_size", "total_uncompressed_size", "compression_ratio", "total_blob_count"] {
        assert!(stats[key].as_f64().is_some_and(|number| number > 0.0), "{key} in {stats}");
    }
    let groups =
        restic(&["forget", "--json", "--keep-last", "1", "--tag", "plan:p", "--group-by", "", "--dry-run"]).ok().json();
    let groups = groups.as_array().expect("groups");
    assert_eq!(groups.len(), 1);
    assert_eq!((id(&groups[0]["keep"][0]["id"]), id(&groups[0]["remove"][0]["id"])), (second.clone(), first.clone()));
    restic(&["forget", "--json", &first]).ok();
    restic(&["prune", "--max-unused", "25.00%"]).ok();
    restic(&["prune", "--max-unused", "1000B"]).ok().says("without effect here: --max-unused in bytes");
    restic(&["check", "--read-data-subset=50.0000%"]).ok();
    restic(&["unlock"]).ok();
    assert_eq!(restic(&["snapshots", "--json"]).ok().json().as_array().map(Vec::len), Some(1));
    let found = restic(&["find", "--json", "c"]).ok().json();
    assert_eq!((id(&found[0]["snapshot"]), &found[0]["matches"][0]["type"]), (second, &json!("file")));
}

#[test]
fn the_mode_is_never_the_default() {
    let play = Play::with_repository();
    play.write("source/a", "one");
    let snapshot = play.backup(["source"]);
    assert_eq!(snapshot.len(), 32);
    let all = play.larder(["snapshots", "--json"]).ok().json();
    assert_eq!((&all[0]["id"], all[0].get("tree")), (&json!(snapshot), None));
    let mut command = play.command(["snapshots"]);
    with_variables(command.env_remove("LARDER_REPOSITORY"), &play);
    run(&mut command).code(2).says("no repository was named");
    // The variable switches it on as the name does, and ours come before restic's.
    let mut command = play.command(["snapshots", "--json"]);
    let ran =
        run(command.env("LARDER_RESTIC", "1").env("RESTIC_REPOSITORY", "/absent").env("RESTIC_PASSWORD", "wrong")).ok();
    assert_eq!(id(&ran.json()[0]["id"])[..32], snapshot);
    // Long ids are understood everywhere.
    play.larder(["ls", &id(&ran.json()[0]["id"])]).ok();
}
