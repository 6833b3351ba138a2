//! What users of restic type: options without effect, orders and formats of listings, searches by size and container, and the
//! history of a path.

use serde_json::{Value, json};

use crate::support::{Play, schema};

#[test]
fn options_without_effect_are_named_once() {
    let play = Play::with_repository();
    play.write("source/a", "a");
    let ran =
        play.larder(["backup", "source", "--read-concurrency", "2", "-o", "s3.connections=9", "--pack-size=64"]).ok();
    let notes: Vec<_> = ran.stderr.lines().filter(|line| line.contains("without effect")).collect();
    assert_eq!(notes, ["note: without effect here: --pack-size, --read-concurrency, -o s3.connections"]);
    let ran = play.larder(["check", "--with-cache", "--cleanup-cache", "--key-hint", "1a", "--json"]).ok();
    assert!(
        ran.errors("warning")[0]["message"].as_str().is_some_and(|text| text.contains("--with-cache")),
        "{}",
        ran.stderr
    );
    assert!(play.larder(["-q", "snapshots", "--pack-size", "16"]).ok().stderr.is_empty());
    assert!(play.larder(["snapshots"]).ok().stderr.is_empty());
    play.larder(["init", "--repo", "other", "--repository-version", "2", "--insecure-kdf"]).ok();
    // This one has an effect.
    play.larder(["prune", "--max-repack-size", "1G", "--repack-small"])
        .ok()
        .says("without effect here: --repack-small");
    play.larder(["prune", "--max-repack-size", "much"]).code(2);
    let recovery = ["prune", "--unsafe-recover-no-free-space", "1a2b"];
    play.larder(recovery).code(2).says("Make room for a few MiB on the storage");
    let elsewhere = ["backup", "source", "--use-fs-snapshot", "--exclude-cloud-files"];
    play.larder(elsewhere).ok().says("without effect here: --use-fs-snapshot, --exclude-cloud-files");
    assert!(!play.larder(["backup", "--help"]).ok().text().contains("read-concurrency"), "they are nothing to learn");
}

#[test]
fn verbosity_has_levels() {
    let play = Play::with_repository();
    play.write("source/a", "a");
    play.backup(["source"]);
    let lines = play.larder(["backup", "source", "--verbose=2"]).ok().lines();
    assert!(lines.iter().any(|line| line.starts_with("unmodified")), "{lines:?}");
    let lines = play.larder(["backup", "source", "--verbose=1"]).ok().lines();
    assert!(!lines.iter().any(|line| line.starts_with("unmodified")), "{lines:?}");
}

fn listed() -> Play {
    let play = Play::with_repository();
    play.write("source/b.txt", vec![b'x'; 3000]);
    play.write("source/a.zip", vec![b'y'; 20]);
    play.write("source/folder/c", vec![b'z'; 100_000]);
    std::fs::File::options()
        .write(true)
        .open(play.path("source/a.zip"))
        .and_then(|file| file.set_modified(std::time::UNIX_EPOCH))
        .expect("the time is set");
    play.backup(["source"]);
    play
}

/// The last parts of the paths of files and folders below the source.
fn names(lines: &[String]) -> Vec<&str> {
    lines.iter().filter_map(|line| line.split_once("/source/").map(|(_, name)| name)).collect()
}

#[test]
fn listings_are_sorted_on_request() {
    let play = listed();
    let listed = |args: &[&str]| play.larder([&["ls", "latest"], args].concat()).ok().lines();
    assert_eq!(names(&listed(&["--sort", "size"])), ["folder", "a.zip", "b.txt", "folder/c"]);
    assert_eq!(names(&listed(&["--sort", "size", "--reverse"])), ["folder/c", "b.txt", "a.zip", "folder"]);
    assert_eq!(names(&listed(&["--reverse"])), ["folder/c", "folder", "b.txt", "a.zip"]);
    assert_eq!(names(&listed(&["--sort", "time"]))[0], "a.zip");
    assert_eq!(names(&listed(&["--sort", "mtime", "--reverse"])).last(), Some(&"a.zip"));
    assert_eq!(names(&listed(&["--sort", "extension"])), ["folder", "folder/c", "b.txt", "a.zip"]);
    for sort in ["name", "atime", "ctime"] {
        assert_eq!(listed(&["--sort", sort]).len(), listed(&[]).len());
    }
    let long = listed(&["--long", "--human-readable", "--sort", "size", "--reverse"]);
    assert!(long[0].contains(" 97.7 KiB  ") && long[0].ends_with("/folder/c"), "{long:?}");
    let nodes = play.larder(["ls", "latest", "--sort", "size", "--reverse", "--json"]).ok().json_lines();
    assert_eq!((&nodes[0]["message_type"], &nodes[1]["size"]), (&json!("snapshot"), &json!(100_000)));
    schema::check("node", &nodes[1]);
    let source = play.path("source").display().to_string();
    let direct = play.larder(["ls", "latest", &source, "--sort", "size", "--reverse"]).ok().lines();
    assert_eq!(names(&direct), ["b.txt", "a.zip", "folder"], "only direct entries are sorted");
}

#[test]
fn ncdu_reads_a_listing() {
    let play = listed();
    let tree = play.larder(["ls", "latest", "--ncdu"]).ok().json();
    assert_eq!((&tree[0], &tree[1], &tree[2]["progname"]), (&json!(1), &json!(2), &json!("larder")));
    let mut folder = &tree[3];
    for name in play.path("source").components().skip(1) {
        let name = json!(name.as_os_str().to_str());
        let entries = folder.as_array().expect("a folder");
        folder = entries.iter().find(|entry| entry[0]["name"] == name).unwrap_or_else(|| panic!("{name} in {folder}"));
    }
    let sizes: Vec<(&Value, &Value)> =
        folder.as_array().expect("a folder")[1..]
            .iter()
            .map(|entry| {
                if entry.is_array() {
                    (&entry[0]["name"], &entry[1]["asize"])
                } else {
                    (&entry["name"], &entry["asize"])
                }
            })
            .collect();
    let expected = [("a.zip", 20), ("b.txt", 3000), ("folder", 100_000)].map(|(name, size)| (json!(name), json!(size)));
    assert_eq!(sizes, expected.iter().map(|(name, size)| (name, size)).collect::<Vec<_>>());
    play.larder(["ls", "latest", "--ncdu", "--long"]).code(2);
}

#[test]
fn files_are_found_by_size_and_time() {
    let play = listed();
    let found = |args: &[&str]| {
        let lines = play.larder([&["find"], args].concat()).ok().lines();
        names(&lines).iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(found(&["*", "--larger", "2K"]), ["b.txt", "folder/c"]);
    assert_eq!(found(&["*", "--larger", "3000"]), ["folder/c"], "equal is not larger");
    assert_eq!(found(&["*", "--smaller", "3000"]), ["a.zip"], "a folder has no size");
    assert_eq!(found(&["*", "--larger", "20", "--smaller", "4K"]), ["b.txt"]);
    assert_eq!(found(&["*.*", "--older", "1971-01-01"]), ["a.zip"]);
    assert_eq!(found(&["*.*", "--newer", "1971-01-01"]), ["b.txt"]);
}

/// Goal: of a container that `check` names, one learns whose data it has. Method: two backups, each with a container of its own.
#[test]
fn files_are_found_by_their_container() {
    let play = Play::with_repository();
    play.write("source/old", larder_testkit::data::random(1, 50_000));
    play.backup(["source"]);
    play.write("source/new", larder_testkit::data::random(2, 50_000));
    play.write("source/empty", "");
    std::fs::hard_link(play.path("source/new"), play.path("source/other name")).expect("linked");
    play.backup(["source"]);
    let containers = |snapshot: &str| -> Vec<String> {
        let manifest = play.larder(["cat", "manifest", snapshot]).ok().json();
        let rows = manifest["containers"].as_array().expect("rows").clone();
        let names = rows.iter().filter_map(|row| row["container"].as_str());
        names.filter(|name| name.starts_with("data/")).map(str::to_owned).collect()
    };
    let first = containers("latest~1");
    let second: Vec<_> = containers("latest").into_iter().filter(|name| !first.contains(name)).collect();
    let found = |container: &str, more: &[&str]| -> Vec<Vec<String>> {
        let found = play.larder([&["find", "--json", "--blob", container], more].concat()).ok().json();
        schema::check("find", &found);
        let names = |hit: &Value| {
            let matches = hit["matches"].as_array().expect("matches").clone();
            matches.iter().map(|node| node["name"].as_str().expect("a name").to_owned()).collect()
        };
        found.as_array().expect("an array").iter().map(names).collect()
    };
    assert_eq!(found(&first[0], &[]), [["old"], ["old"]], "both snapshots use the first container");
    assert_eq!(found(&second[0], &[]), [["new", "other name"]]);
    assert_eq!(found(&second[0], &["old"]), Vec::<Vec<String>>::new(), "a name counts as well");
    play.larder(["find", "--blob", "1a2b3c"]).code(2).says("not the name of a container");
    assert_eq!(play.larder(["find", "--pack", &second[0]]).ok().text().lines().count(), 3, "restic's word");
    play.larder(["find"]).code(2);
    for args in [&["find", "--tree"][..], &["find", "--tree", "1a2b3c"], &["find", "1a2b3c", "--tree"]] {
        play.larder(args).code(2).says("folders are no objects").says("larder history PATH");
    }
}

#[test]
fn each_change_of_a_path_is_shown_once() {
    let play = Play::with_repository();
    let file = play.path("source/folder/file").display().to_string();
    let folder = play.path("source/folder").display().to_string();
    play.write("source/other", "x");
    play.backup(["source"]);
    play.write("source/folder/file", "one");
    let appeared = play.backup(["source"]);
    play.backup(["source"]);
    // A snapshot of another series has the path too, and is not mixed in.
    play.backup(["source/folder", "--series", "elsewhere", "--time", "2001-01-01 00:00:00"]);
    play.settle();
    play.write("source/folder/file", "two");
    let changed = play.backup(["source"]);
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("ours");
    play.backup(["source"]);
    play.write("source/folder/beside", "x");
    let beside = play.backup(["source"]);
    std::fs::remove_file(&file).expect("removed");
    let removed = play.backup(["source"]);
    play.backup(["source"]);

    let history = |args: &[&str]| -> Vec<(String, String)> {
        let lines = play.larder([&["history", "--json"], args].concat()).ok().json_lines();
        lines.iter().for_each(|line| schema::check("history", line));
        let text = |line: &Value, key: &str| line[key].as_str().expect("text").to_owned();
        lines.iter().map(|line| (text(line, "modifier"), text(line, "snapshot_id"))).collect()
    };
    let of = |changes: &[(&str, &String)]| -> Vec<(String, String)> {
        changes.iter().map(|(sign, id)| ((*sign).to_owned(), (*id).clone())).collect()
    };
    assert_eq!(history(&[&file]), of(&[("+", &appeared), ("M", &changed), ("-", &removed)]));
    assert_eq!(history(&["source/folder/file"]).len(), 3, "a relative path begins here");
    assert_eq!(history(&[&file, "--metadata"]).len(), 4);
    assert_eq!(history(&[&folder]), of(&[("+", &appeared), ("M", &changed), ("M", &beside), ("M", &removed)]));
    assert_eq!(history(&[&file, "--series", "elsewhere"]).len(), 1);
    let lines = play.larder(["history", &folder]).ok().lines();
    assert!(lines[0].starts_with(&folder) && lines[0].contains("in series testhost:"), "{lines:?}");
    assert!(lines[3].starts_with("M  ") && lines[3].ends_with("below it: 1 added"), "{lines:?}");
    play.larder(["history", "/absent"]).code(1).says("no snapshot has /absent").in_two_lines();
}

#[test]
fn a_compact_policy_shows_less() {
    let play = Play::with_repository();
    play.write("source/a", "a");
    for _ in 0..3 {
        play.backup(["source", "--tag", "t"]);
    }
    let heads = |args: &[&str]| {
        let lines = play.larder([&["forget", "--keep-last", "1", "--dry-run"], args].concat()).ok().lines();
        lines.into_iter().find(|line| line.starts_with("ID")).expect("a table")
    };
    let (whole, compact) = (heads(&[]), heads(&["-c"]));
    assert!(["Tags", "Reasons", "Size"].iter().all(|head| whole.contains(head)), "{whole}");
    assert!(!["Tags", "Reasons", "Size"].iter().any(|head| compact.contains(head)), "{compact}");
    assert_eq!(compact, heads(&["--compact"]));
}

#[test]
fn a_repository_cuts_as_another_does() {
    let play = Play::new();
    play.larder(["init", "--insecure-kdf", "--chunk-size", "16K", "--no-page-cuts"]).ok();
    let from = play.repository().display().to_string();
    let password = play.write("password", crate::support::PASSWORD).display().to_string();
    let init = |place: &str, args: &[&str]| {
        let mut command =
            play.command([&["init", "--insecure-kdf", "--repo", place, "--from-repo", &from], args].concat());
        crate::support::run(command.env("LARDER_PASSWORD", "another"))
    };
    init("wrong", &[]).code(12).says("how --from-repo cuts data");
    assert!(!play.path("wrong").exists(), "nothing was made");
    init("copy", &["--from-password-file", &password, "--copy-chunker-params"]).ok();
    let config = |place: &str, secret: &str| {
        let mut command = play.command(["cat", "config", "--repo", place]);
        crate::support::run(command.env("LARDER_PASSWORD", secret)).ok().json()
    };
    let (ours, theirs) = (config("copy", "another"), config(&from, crate::support::PASSWORD));
    for key in ["chunker", "chunk_min", "chunk_average", "chunk_max", "page_cuts"] {
        assert_eq!(ours[key], theirs[key], "{key}");
    }
    assert_ne!(ours["id"], theirs["id"]);
    init("both", &["--chunk-size", "4K"]).code(2);
}

/// Goal: `--group-by` chooses the snapshots that a backup is compared with, as in restic; `find -R` shows the newest first.
#[test]
fn groups_of_backups_and_the_order_of_finds() {
    let play = Play::with_repository();
    play.write("source/a", "one");
    play.write("other/b", "two");
    play.settle();
    let unmodified = |args: &[&str]| {
        let ran = play.larder([&["backup", "--json"], args].concat()).ok();
        let summary = ran.messages("summary").pop().expect("a summary");
        (summary["series"].as_str().expect("a name").to_owned(), summary["files_unmodified"].as_u64())
    };
    assert_eq!(unmodified(&["source", "-g", "host"]), ("testhost".to_owned(), Some(0)));
    // Other paths, and the same group.
    assert_eq!(unmodified(&["source", "other", "--group-by", "host"]), ("testhost".to_owned(), Some(1)));
    assert_eq!(unmodified(&["source", "--group-by", "host,tags", "--tag", "t"]).0, "testhost:t");
    let by_default = unmodified(&["source"]).0;
    assert_eq!(unmodified(&["source", "--group-by", "host,paths"]), (by_default, Some(1)));
    assert_eq!(unmodified(&["source", "--group-by", "host", "--series", "named"]).0, "named");
    play.larder(["backup", "source", "--group-by", "series"]).code(2).says("named after host, paths and tags");
    let order = |args: &[&str]| {
        let found = play.larder([&["find", "a", "--json"], args].concat()).ok().json();
        let ids = found.as_array().expect("an array").iter().map(|found| found["snapshot"].clone());
        ids.collect::<Vec<_>>()
    };
    let mut oldest_first = order(&[]);
    assert_eq!(oldest_first.len(), 6);
    oldest_first.reverse();
    assert_eq!(order(&["-R"]), oldest_first);
}

/// Goal: kinds of objects as restic names them are understood, or lead to the verb to use.
#[test]
fn objects_as_restic_names_them() {
    let play = listed();
    let manifest = play.larder(["cat", "manifest", "latest"]).ok().json();
    assert_eq!(play.larder(["cat", "snapshot", "latest"]).ok().json(), manifest);
    assert_eq!(play.larder(["list", "snapshots", "--json"]).ok().json(), play.larder(["list", "--json"]).ok().json());
    assert_eq!(play.larder(["list", "locks"]).ok().text(), "");
    for (kind, advice) in
        [("index", "larder check"), ("pack", "larder find --blob"), ("tree", "larder ls"), ("blob", "larder dump")]
    {
        play.larder(["cat", kind, "1a2b"]).code(2).says(&format!("there is no `larder cat {kind}`")).says(advice);
    }
    play.larder(["cat", "nonsense"]).code(2).says("[possible values: config, key, manifest]");
    play.larder(["find", "--pack", "nonsense"]).code(2).says("'--pack <OBJECT>'");
    play.larder(["find", "--blob", "nonsense"]).code(2).says("'--blob <OBJECT>'");
    assert_eq!(play.larder(["snapshots", "--last", "--json"]).ok().json().as_array().map(Vec::len), Some(1));
    play.larder(["list", "keys"]).code(2).says("use `larder key list`");
    play.larder(["list", "packs"]).code(2).says("there is no `larder list packs`");
    play.larder(["list", "nonsense"]).code(1).says("no snapshot fits");
    play.larder(["unlock", "--remove-all"]).ok().says("without effect here: --remove-all");
    let long = play.larder(["find", "c", "--long", "--human-readable"]).ok().text();
    assert!(long.contains(" 97.7 KiB  "), "{long}");
}
