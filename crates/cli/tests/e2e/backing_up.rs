//! `backup`: what is taken, what is left out, what is written down, and what happens to items that cannot be read.

use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::support::{self, Play, run, schema, tree};

fn names(play: &Play, reference: &str) -> Vec<String> {
    let top = format!("{}/", play.path("").display()).replace("//", "/");
    let lines = play.larder(["ls", reference]).ok().lines();
    lines.iter().filter_map(|line| line.strip_prefix(&*top).map(str::to_owned)).collect()
}

#[test]
fn only_what_is_new_is_read_and_stored() {
    let play = Play::with_repository();
    tree::odd(&play.path("source"));
    play.settle();
    let mut command = play.command(["backup", "source", "--json"]);
    let first = run(command.env("LARDER_PROGRESS_FPS", "60")).ok();
    for status in first.messages("status") {
        schema::check("status", &status);
    }
    let first = first.messages("summary").pop().expect("a summary");
    schema::check("backup_summary", &first);
    assert!(first["files_new"].as_u64() >= Some(9) && first["files_unmodified"] == 0, "{first}");
    assert!(first["bytes_up"].as_u64() > Some(3_000_000));
    let second = play.larder(["backup", "source", "--json"]).ok().messages("summary").pop().expect("a summary");
    assert_eq!((&second["files_new"], &second["files_changed"]), (&json!(0), &json!(0)), "{second}");
    assert_eq!(second["read_bytes"], 0);
    assert_eq!(second["parent"], first["snapshot_id"]);
    let forced = play.larder(["backup", "source", "--json", "--force"]).ok().messages("summary").pop().expect("one");
    assert!(forced["read_bytes"].as_u64() > Some(3_000_000), "{forced}");
    assert!(forced["data_added_packed"].as_u64() < Some(100_000), "found again: {forced}");
    let snapshots = play.larder(["snapshots", "--json"]).ok().json();
    schema::check("snapshots", &snapshots);
    assert_eq!(snapshots.as_array().expect("an array").len(), 3);
}

#[test]
fn a_dry_run_and_an_unchanged_tree_make_no_snapshot() {
    let play = Play::with_repository();
    play.write("source/a", "a");
    let before = play.objects();
    let dry = play.larder(["backup", "source", "--dry-run", "--json"]).ok().messages("summary").pop().expect("one");
    schema::check("backup_summary", &dry);
    assert_eq!((&dry["dry_run"], dry.get("snapshot_id")), (&json!(true), None));
    assert_eq!(dry["files_new"], 1);
    assert_eq!(play.objects(), before);
    play.settle();
    play.backup(["source"]);
    let is_skipped = || {
        let again = play.larder(["backup", "source", "--skip-if-unchanged", "--json"]).ok().messages("summary");
        again[0].get("snapshot_id").is_none()
    };
    assert!(is_skipped());
    // The folders above are in the snapshot, but what else is made in them is not what was asked for.
    play.write("beside/it", "x");
    assert!(is_skipped());
    play.write("source/a", "b");
    assert!(!is_skipped());
    play.settle();
    play.backup(["source"]);
    // What is gone is a difference, also where nothing is new and the folder has its old time.
    play.write("source/b", "b");
    play.settle();
    play.backup(["source"]);
    std::fs::remove_file(play.path("source/b")).expect("removed");
    assert!(!is_skipped());
}

#[test]
fn sockets_are_left_out_with_a_note() {
    let play = Play::with_repository();
    play.write("source/a", "a");
    let _sockets = ["one", "two"].map(|name| std::os::unix::net::UnixListener::bind(play.path("source").join(name)));
    let ran = play.larder(["backup", "source"]).ok();
    assert!(ran.stderr.contains("2 sockets") && ran.stderr.contains("source/one"), "{}", ran.stderr);
    assert!(!names(&play, "latest").contains(&"source/one".to_owned()));
    assert_eq!(play.larder(["backup", "source", "--quiet"]).ok().stderr, "");
}

#[test]
fn what_is_excluded_stays_out() {
    let play = Play::with_repository();
    for name in ["a.o", "a.c", "B.O", "keep.tmp", "x.tmp", "cache/data", "marked/data", "sub/deep/a.o", "big"] {
        play.write(format!("source/{name}"), "x");
    }
    play.write("source/big", vec![1; 5000]);
    play.write("source/cache/CACHEDIR.TAG", "Signature: 8a477f597d28d172789f06886806bc55\n");
    play.write("source/marked/.nobackup", "");
    let list = play.write("patterns", "# comment\n*.tmp\n!keep.tmp\n");
    let list = list.to_str().expect("text");
    play.backup([
        "source",
        "-e",
        "*.o",
        "--exclude-file",
        list,
        "--exclude-caches",
        "--exclude-if-present",
        ".nobackup",
        "--exclude-larger-than",
        "4K",
    ]);
    let expected = [
        "source",
        "source/B.O",
        "source/a.c",
        "source/cache",
        "source/cache/CACHEDIR.TAG",
        "source/keep.tmp",
        "source/marked",
        "source/marked/.nobackup",
        "source/sub",
        "source/sub/deep",
    ];
    assert_eq!(names(&play, "latest"), expected);
    play.backup(["source", "--iexclude", "*.o", "-e", "/nowhere"]);
    assert!(!names(&play, "latest").iter().any(|name| name.ends_with(".o") || name.ends_with(".O")));
    let missing = play.larder(["backup", "source", "--exclude-file", "nowhere"]).code(1);
    missing.says("nowhere").in_two_lines();
}

#[test]
fn lists_of_files_are_taken_as_their_kind_says() {
    let play = Play::with_repository();
    for name in ["a 1", "b*", "c\n2", "d"] {
        play.write(format!("source/{name}"), "x");
    }
    play.write("patterns", "# comment\nsource/[ad]*\n");
    play.backup(["--files-from", "patterns"]);
    assert_eq!(names(&play, "latest"), ["source", "source/a 1", "source/d"]);
    let series = play.larder(["snapshots", "--json"]).ok().json()[0]["series"].clone();
    assert_eq!(series, format!("testhost:{}", play.path("patterns").display()));
    play.write("verbatim", "source/b*\n");
    play.backup(["--files-from-verbatim", "verbatim"]);
    assert_eq!(names(&play, "latest"), ["source", "source/b*"]);
    play.larder_with_stdin(["backup", "--files-from-raw", "-"], b"source/c\n2\0source/d\0").ok();
    assert_eq!(names(&play, "latest"), ["source", "source/c\\n2", "source/d"]);
}

#[test]
fn a_list_that_names_nothing_makes_no_snapshot() {
    let play = Play::with_repository();
    let before = play.objects();
    play.write("empty", "# nothing\n\n");
    play.write("unmatched", "/nowhere-*\n");
    for args in [
        ["--files-from", "empty"],
        ["--files-from", "unmatched"],
        ["--files-from-raw", "empty"],
        ["--files-from", "absent"],
    ] {
        play.larder(["backup", args[0], args[1]]).code(1).in_two_lines().says("no snapshot was made");
    }
    assert_eq!(play.objects(), before);
}

#[test]
fn paths_given_twice_or_inside_one_another_count_once() {
    let play = Play::with_repository();
    play.write("source/sub/a", "a");
    let ran = play.larder(["backup", "--json", "source", "source/", "./source/../source", "source/sub"]).ok();
    assert_eq!(ran.messages("summary")[0]["files_new"], 1);
    let snapshot = &play.larder(["snapshots", "--json"]).ok().json()[0];
    assert_eq!(snapshot["paths"], json!([play.path("source")]));
    assert_eq!(snapshot["series"], format!("testhost:{}", play.path("source").display()));
}

#[test]
fn what_is_written_down_is_what_was_said() {
    let play = Play::with_repository();
    play.write("source/a", "a");
    play.backup([
        "source",
        "--tag",
        "b,a",
        "--tag",
        "c",
        "-H",
        "other",
        "--time",
        "2001-02-03T04:05:06Z",
        "--series",
        "mine",
    ]);
    let snapshot = play.larder(["snapshots", "--json"]).ok().json()[0].clone();
    assert_eq!(snapshot["tags"], json!(["a", "b", "c"]));
    assert_eq!((&snapshot["hostname"], &snapshot["series"]), (&json!("other"), &json!("mine")));
    let time = snapshot["time"].as_str().expect("text");
    assert!(time.starts_with("2001-02-0"), "{time}");
}

#[test]
fn any_text_can_name_a_series() {
    let play = Play::with_repository();
    play.write("source/a", "a");
    let odd =
        ["a/b/../c", " spaces at both ends ", "line\nbreak\ttab", "../../etc", "ünï", "-", "x".repeat(3000).leak()];
    for name in odd {
        play.backup(["source", &format!("--series={name}")]);
        let again = play.backup(["source", &format!("--series={name}")]);
        let found = play.larder(["snapshots", "--json", &format!("--series={name}")]).ok().json();
        assert_eq!(found.as_array().expect("an array").len(), 2, "{name:?}");
        assert_eq!((&found[1]["series"], &found[1]["id"]), (&json!(name), &json!(again)));
        assert_eq!(found[1]["parent"], found[0]["id"], "the base is found by the name");
    }
    let table = play.larder(["snapshots"]).ok().lines();
    assert_eq!(table.len(), 2 + 2 * odd.len() + 1, "one line for each snapshot");
    let objects = support::damage::named(&play.repository(), "");
    assert!(objects.iter().all(|name| !name.contains("etc") && !name.contains(' ')), "{objects:?}");
}

/// Different streams, or lists, without a name are one series, of which a policy keeps only some.
#[test]
fn what_shares_a_series_by_accident_is_told() {
    let play = Play::with_repository();
    let little = "little in common";
    let stream = |args: &[&str], seed| {
        play.larder_with_stdin([&["backup", "--stdin"], args].concat(), &tree::noise(seed, 500_000))
    };
    assert!(!stream(&[], 1).ok().stderr.contains(little), "the first");
    assert!(!stream(&[], 1).ok().stderr.contains(little), "the same again");
    stream(&[], 2).ok().says(little).says("streams without a name share the series testhost:stdin");
    for named in [&["--series", "dump"][..], &["--stdin-filename", "dump.sql"]] {
        stream(named, 3).ok();
        assert!(!stream(named, 4).ok().stderr.contains(little), "{named:?}");
    }
    play.write("a/file", "a");
    play.write("b/file", "b");
    let list = |list: &[u8]| play.larder_with_stdin(["backup", "--files-from-raw", "-"], list);
    list(b"a\0").ok();
    assert!(!list(b"a\0").ok().stderr.contains(little));
    list(b"b\0").ok().says("lists from standard input share the series testhost:-");
}

#[test]
fn streams_become_files() {
    let play = Play::with_repository();
    let content = tree::noise(7, 2_000_000);
    play.larder_with_stdin(["backup", "--stdin"], &content).ok();
    assert_eq!(play.larder(["dump", "latest:stdin"]).ok().stdout, content);
    play.larder_with_stdin(["backup", "--stdin", "--stdin-filename", "/db/dump.sql"], b"").ok();
    assert_eq!(play.larder(["dump", "latest:/db/dump.sql"]).ok().stdout, b"");
    let all = play.larder(["snapshots", "--json"]).ok().json();
    assert_eq!((&all[0]["series"], &all[1]["series"]), (&json!("testhost:stdin"), &json!("testhost:db/dump.sql")));
    let args = ["backup", "--stdin-from-command", "--stdin-filename", "out", "--", "printf", "%s-%s", "a b", "--json"];
    let ran = play.larder(args).ok();
    assert!(ran.text().contains("saved"), "what follows -- belongs to the command");
    assert_eq!(play.larder(["dump", "latest", "out"]).ok().stdout, b"a b---json");
}

/// A command gets the variables of its caller, but nothing that opens a repository.
#[test]
fn a_command_gets_no_password() {
    let play = Play::with_repository();
    let mut command = play.command(["backup", "--stdin-from-command", "--", "env"]);
    for name in ["LARDER_FROM_PASSWORD", "RESTIC_PASSWORD", "RESTIC_FROM_PASSWORD_FILE", "AWS_PROFILE"] {
        command.env(name, "secret");
    }
    run(&mut command).ok();
    let text = String::from_utf8(play.larder(["dump", "latest:stdin"]).ok().stdout).expect("text");
    assert!(text.contains("AWS_PROFILE=secret") && !text.contains("PASSWORD"), "{text}");
}

#[test]
fn a_failing_command_makes_no_snapshot() {
    let play = Play::with_repository();
    let failing =
        ["backup", "--stdin-from-command", "--", "sh", "-c", "head -c 3000000 /dev/urandom; echo no space >&2; exit 3"];
    play.larder(failing).code(1).says("no snapshot was made").says("no space");
    play.larder(["backup", "--stdin-from-command", "--", "/nowhere/at/all"])
        .code(1)
        .says("/nowhere/at/all")
        .in_two_lines();
    assert_eq!(play.larder(["snapshots", "--json"]).ok().json(), json!([]));
    play.larder(["check", "--read-data"]).ok();
}

#[test]
fn a_fifo_given_by_name_is_read_to_its_end() {
    let play = Play::with_repository();
    let fifo = play.path("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().expect("mkfifo runs").success());
    let content = tree::noise(3, 1_000_000);
    let writer = std::thread::spawn({
        let (fifo, content) = (fifo.clone(), content.clone());
        move || std::fs::write(fifo, content).expect("read by larder")
    });
    play.backup(["--read-special", "fifo"]);
    writer.join().expect("written");
    let reference = format!("latest:{}", fifo.display());
    assert_eq!(play.larder(["dump", &reference]).ok().stdout, content);
    play.larder(["backup", "--read-special", "fifo", "other"]).code(2).says("by itself");
    play.backup(["fifo"]);
    let node = play.larder(["ls", "--json", &reference]).ok().messages("node").pop().expect("the node");
    assert_eq!(node["type"], "fifo", "without --read-special it is only a name");
}

#[test]
fn what_cannot_be_read_is_named_and_the_rest_is_saved() {
    let play = Play::with_repository();
    play.write("source/good", "good");
    let secret = play.write("source/secret", "secret");
    std::fs::create_dir(play.path("source/closed")).expect("made");
    play.open_to_all("repository");
    std::fs::set_permissions(&secret, PermissionsExt::from_mode(0o000)).expect("set");
    std::fs::set_permissions(play.path("source/closed"), PermissionsExt::from_mode(0o000)).expect("set");
    let ran = run(&mut play.unprivileged(["backup", "source"])).code(3);
    assert!(ran.stderr.contains("source/secret") && ran.stderr.contains("source/closed"), "{}", ran.stderr);
    let ran = run(&mut play.unprivileged(["backup", "source", "--json"])).code(3);
    let errors = ran.errors("error");
    assert!(errors.len() >= 2, "{errors:?}");
    for error in &errors {
        schema::check("error", error);
    }
    assert!(errors.iter().any(|error| error["item"] == json!(secret)), "{errors:?}");
    assert_eq!(ran.messages("summary")[0]["error_count"], json!(errors.len()));
    play.open_to_all("repository");
    assert!(names(&play, "latest").contains(&"source/good".to_owned()));
    std::fs::set_permissions(play.path("source/closed"), PermissionsExt::from_mode(0o755)).expect("set");
}

#[test]
fn a_path_that_is_not_there_is_named() {
    let play = Play::with_repository();
    play.write("source/a", "a");
    let ran = play.larder(["backup", "source", "absent"]).code(3);
    assert!(ran.stderr.contains("absent"), "{}", ran.stderr);
    assert!(names(&play, "latest").contains(&"source/a".to_owned()));
    let before = play.larder(["snapshots", "--json"]).ok().json();
    play.larder(["backup", "absent", "not here either"]).code(1).says("nothing to back up").in_two_lines();
    assert_eq!(play.larder(["snapshots", "--json"]).ok().json(), before);
}

#[test]
fn a_file_that_holds_more_than_it_says_is_named() {
    let play = Play::with_repository();
    let ran = play.larder(["backup", "/proc/version"]).code(3);
    assert!(ran.stderr.contains("/proc/version"), "{}", ran.stderr);
}

#[test]
fn the_repository_is_not_backed_up_into_itself() {
    let play = Play::with_repository();
    play.write("a", "a");
    let ran = play.larder(["backup", "."]).ok();
    assert!(ran.stderr.contains("repository itself"), "{}", ran.stderr);
    let names = names(&play, "latest");
    assert!(names.contains(&"a".to_owned()) && !names.iter().any(|name| name.starts_with("repository")), "{names:?}");
}

#[test]
fn two_backups_of_one_series_at_once_are_both_whole() {
    let play = Play::with_repository();
    tree::odd(&play.path("source"));
    let mut children: Vec<_> = (0..3).map(|_| play.spawn(&mut play.command(["backup", "source", "--json"]))).collect();
    while let Some(child) = children.pop() {
        support::Ran::from(child.wait_with_output().expect("it ends")).ok();
    }
    let all = play.larder(["snapshots", "--json"]).ok().json();
    let all = all.as_array().expect("an array");
    assert_eq!(all.len(), 3);
    for (number, snapshot) in all.iter().enumerate() {
        let target = format!("back{number}");
        let reference = format!("{}:{}", snapshot["id"].as_str().expect("text"), play.path("source").display());
        play.larder(["restore", &reference, "--target", &target]).ok();
        tree::same(&play.path("source"), &play.path(target));
    }
    play.larder(["check", "--read-data"]).ok();
}

#[test]
fn verbose_lists_items() {
    let play = Play::with_repository();
    play.write("source/a", "a");
    play.settle();
    assert!(play.larder(["backup", "source", "-v"]).ok().text().contains("source/a, 1 B"));
    play.write("source/b", "b");
    let ran = play.larder(["backup", "source", "-vv", "--json"]).code(0);
    let items = ran.json_lines();
    let items: Vec<_> = items.iter().filter(|item| item["message_type"] == "verbose_status").collect();
    for item in &items {
        schema::check("verbose_status", item);
    }
    let action = |name: &str| {
        let item = items.iter().find(|item| item["item"].as_str().expect("text").ends_with(name)).expect(name);
        item["action"].as_str().expect("text").to_owned()
    };
    assert_eq!((action("/b").as_str(), action("/a").as_str()), ("new", "unchanged"));
    assert_eq!(play.larder(["backup", "source", "-q"]).ok().text(), "");
}

#[test]
fn a_newer_parent_can_be_chosen() {
    let play = Play::with_repository();
    play.write("source/a", "a");
    let first = play.backup(["source"]);
    play.backup(["source"]);
    let third = play.larder(["backup", "source", "--json", "--parent", &first[24..]]).ok().messages("summary");
    assert_eq!(third[0]["parent"], json!(first));
    play.larder(["backup", "source", "--parent", "ffffffff"]).code(1).says("no snapshot fits");
}

/// The folders above what was asked for can be read, but nobody asked for them.
#[test]
fn a_folder_that_cannot_be_opened_makes_no_snapshot() {
    let play = Play::with_repository();
    play.write("above/secret/file", "content");
    play.open_to_all("repository");
    let closed = std::os::unix::fs::PermissionsExt::from_mode(0o000);
    std::fs::set_permissions(play.path("above/secret"), closed).expect("it is ours");
    let ran = run(&mut play.unprivileged(["backup", "above/secret"])).code(1);
    assert!(ran.stderr.contains("nothing could be read"), "{}", ran.stderr);
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(play.path("above/secret"), open).expect("it is ours");
    assert_eq!(play.larder(["snapshots", "--json"]).ok().json(), serde_json::json!([]));
}

#[test]
fn a_renamed_series_finds_its_data_and_says_where() {
    let play = Play::with_repository();
    play.write("source/large", tree::noise(1, 2_000_000));
    play.write("source/small", "small");
    play.settle();
    let first = play.backup(["source", "--series", "old name"]);
    let report = play.larder(["backup", "source", "--series", "new name", "--dry-run", "--json"]).ok();
    let report = report.messages("summary").pop().expect("a summary");
    schema::check("backup_summary", &report);
    assert_eq!(report["bases"], json!([{ "id": first, "series": "old name", "why": "similar" }]));
    assert_eq!((&report["parent"], &report["files_new"]), (&json!(first), &json!(2)));
    assert_eq!(report["read_bytes"], 2_000_005, "times and inodes of another series prove nothing");
    let text = play.larder(["backup", "source", "--series", "new name"]).ok().text();
    assert!(text.contains(&format!("similar to old name ({})", &first[24..])), "{text}");
    let again = play.larder(["backup", "source", "--series", "new name", "--json"]).ok().messages("summary");
    assert_eq!((&again[0]["bases"][0]["why"], &again[0]["read_bytes"]), (&json!("newest"), &json!(0)));
    let alone =
        play.larder(["backup", "source", "--series", "alone", "--no-similar", "--json"]).ok().messages("summary");
    assert_eq!(alone[0]["bases"], json!([]));
    assert!(alone[0]["data_added"].as_u64() > Some(2_000_000), "{alone:?}");
    let asked =
        play.larder(["backup", "source", "--parent", &first, "--json", "--series", "asked"]).ok().messages("summary");
    assert_eq!((&asked[0]["bases"][0]["why"], &asked[0]["read_bytes"]), (&json!("asked"), &json!(0)));
}

#[test]
fn an_empty_standard_input_is_worth_a_warning() {
    let play = Play::with_repository();
    play.larder_with_stdin(["backup", "--stdin"], b"").ok().says("warning: standard input was empty");
    let ran = play.larder_with_stdin(["backup", "--stdin"], b"x").ok();
    assert!(!ran.stderr.contains("was empty"), "{}", ran.stderr);
    let text = play.larder_with_stdin(["backup", "--stdin", "--dry-run"], b"more").ok().text();
    assert!(text.contains("Would add to the repository: ") && !text.contains("stored"), "{text}");
}

/// Goal: when all is read, and a slow store still takes the data, progress says so instead of a rate.
#[test]
fn progress_tells_that_it_waits_for_uploads() {
    let play = Play::with_repository();
    play.write("source/file", tree::noise(1, 1_500_000));
    let mut command = play.command(["--limit-upload", "1MiB", "backup", "source", "--json"]);
    let ran = run(command.env("LARDER_PROGRESS_FPS", "20")).ok();
    let mut of_uploads = ran.messages("status").into_iter().filter(|status| status["is_uploading"] == true);
    let last = of_uploads.next_back().expect("the data was read long before");
    schema::check("status", &last);
    assert_eq!((&last["bytes_done"], &last["percent_done"]), (&json!(1_500_000), &json!(1.0)), "{last}");
    play.write("source/other", tree::noise(2, 1_500_000));
    let mut command = play.command(["--limit-upload", "1MiB", "backup", "source"]);
    run(command.env("LARDER_PROGRESS_FPS", "20")).ok().says("waiting for uploads");
}

/// Bytes of a file that are in the page cache, by a program of util-linux.
fn cached(file: &Path) -> u64 {
    let output = Command::new("fincore").args(["--bytes", "--noheadings", "--output", "RES"]).arg(file).output();
    let text = String::from_utf8(output.expect("util-linux is installed").stdout).expect("text");
    text.trim().parse().expect("a number")
}

/// A large file is taken out of the page cache again, if it was not there: read for the first time, and compared with its predecessor.
#[test]
fn reading_a_large_file_leaves_the_page_cache_alone() {
    let play = Play::with_repository();
    // The folder for temporary files may be in memory.
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let file = disk.path().join("large");
    std::fs::write(&file, tree::noise(1, 20 << 20)).expect("written");
    let drop_pages = || {
        let file = File::open(&file).expect("opens");
        file.sync_all().expect("written");
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("taken");
    };
    drop_pages();
    if cached(&file) > 0 {
        eprintln!("skipped: this file system keeps its pages");
        return;
    }
    for _ in 0..2 {
        play.larder(["backup", "--force", &file.display().to_string()]).ok();
        assert_eq!(cached(&file), 0);
    }
    std::fs::read(&file).expect("reads");
    play.larder(["backup", "--force", &file.display().to_string()]).ok();
    assert_eq!(cached(&file), 20 << 20, "a cached file stays in the cache");
    drop_pages();
    play.larder(["restore", "latest", "--target", "target"]).ok();
    let restored = play.path("target").join(file.strip_prefix("/").expect("absolute"));
    assert!(std::fs::read(restored).expect("reads") == std::fs::read(&file).expect("reads"));
}
