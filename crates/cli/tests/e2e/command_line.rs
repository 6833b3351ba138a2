//! The command line itself: usage errors, help, completions, manual pages, output that nobody reads.

use std::process::Stdio;

use crate::support::{Play, schema};

#[test]
fn a_wrong_command_line_is_2() {
    let play = Play::with_repository();
    for args in [
        &[][..],
        &["nonsense"],
        &["backup"],
        &["backup", "--stdin", "x"],
        &["backup", "--stdin-from-command"],
        &["backup", "--stdin", "--stdin-filename", "../x"],
        &["backup", ".", "--exclude", "["],
        &["backup", ".", "--exclude-if-present", "a/b"],
        &["backup", ".", "--exclude-larger-than", "much"],
        &["backup", ".", "--time", "yesterday"],
        &["backup", "", "--dry-run"],
        &["backup", ".", "--series", ""],
        &["restore", "latest"],
        &["restore", "latest:../x", "--target", "t"],
        &["restore", "latest", "--target", "t", "--overwrite", "sometimes"],
        &["check", "--read-data-subset", "0%"],
        &["snapshots", "--compression", "lz4"],
        &["snapshots", "--limit-upload", "fast"],
        &["snapshots", "-q", "-v"],
        &["snapshots", "--log-level", "nonsense=x=y"],
        &["snapshots", "--log-level", "loud"],
        &["cat", "config", "x"],
        &["cat", "masterkey"],
        &["init", "--chunk-size", "1"],
        &["init", "--chunk-size", "1T"],
    ] {
        let ran = play.larder(args);
        assert_eq!(ran.code, 2, "{args:?}: {}", ran.stderr);
        assert!(!ran.stderr.is_empty(), "{args:?}");
    }
    let ran = play.larder(["backup", "--json", "--nonsense"]).code(2);
    schema::check("exit_error", &ran.errors("exit_error")[0]);
}

#[test]
fn help_lists_verbs_and_exit_codes() {
    let play = Play::new();
    let help = play.larder(["--help"]).ok().text();
    for text in ["backup", "restore", "snapshots", "validate-store", " 13  damage", "130  interrupted"] {
        assert!(help.contains(text), "{text} is not in:\n{help}");
    }
    for hidden in ["create", "extract", "prune"] {
        assert!(!help.contains(&format!("  {hidden} ")), "{hidden} is in:\n{help}");
    }
    for verb in [
        "init",
        "backup",
        "snapshots",
        "ls",
        "find",
        "diff",
        "stats",
        "restore",
        "dump",
        "serve-block",
        "check",
        "key",
        "cat",
        "series",
        "layout",
    ] {
        assert!(play.larder([verb, "--help"]).ok().text().contains("Usage"), "{verb}");
    }
    play.larder(["--version"]).ok();
    let version = play.larder(["version", "--json"]).ok().json();
    crate::support::schema::check("version", &version);
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn verbs_and_options_of_other_programs_are_answered() {
    let play = Play::with_repository();
    for (verb, instead) in [("browse", "larder mount"), ("sync", "larder copy"), ("rebuild-index", "larder check")] {
        play.larder([verb, "latest"]).code(2).says(&format!("no `larder {verb}`")).says(instead).in_two_lines();
    }
    let ran = play.larder(["browse", "--json"]).code(2);
    schema::check("exit_error", &ran.errors("exit_error")[0]);
    play.larder(["snapshots", "--no-lock", "--retry-lock", "5m"]).ok();
    play.larder(["break-lock"]).ok();
    assert!(!play.larder(["--help"]).ok().text().contains("no-lock"), "they are nothing to learn");
}

/// What variables set must not look as if it were missing, and a bare `larder` shows how to begin.
#[test]
fn variables_do_not_change_what_is_said_about_the_command_line() {
    let play = Play::new();
    let with_variable = |args: &[&str]| {
        crate::support::run(play.command(args).env("LARDER_CACHE_DIR", play.path("cache")).env("LARDER_THREADS", "1"))
            .code(2)
    };
    assert!(with_variable(&[]).stderr.contains("Commands:"));
    assert!(!with_variable(&["restore", "latest"]).stderr.contains("cache-dir"));
    let mut command = play.command(["snapshots", "--no-cache"]);
    crate::support::run(command.env("LARDER_CACHE_DIR", play.path("cache"))).code(10);
}

#[test]
fn short_help_is_short() {
    let play = Play::new();
    for verb in ["snapshots", "ls", "diff", "init"] {
        let help = play.larder([verb, "-h"]).ok().text();
        assert!(help.lines().count() < 40, "{help}");
        assert!(help.contains("larder --help") && help.contains("--repo") && !help.contains("--log-level"), "{help}");
        assert!(play.larder([verb, "--help"]).ok().text().contains("--log-level"));
    }
    let help = play.larder(["forget", "-h"]).ok().text();
    assert!(help.lines().count() < 50, "{help}");
    assert!(help.contains("--keep-daily") && help.contains("--prune") && !help.contains("--min-age"), "{help}");
    assert!(play.larder(["forget", "--help"]).ok().text().contains("--min-age"));
}

/// Settings for experiments are not shown, and they work.
#[test]
fn settings_for_experiments_are_hidden() {
    let play = Play::with_repository();
    play.write("source/a", "a");
    for (verb, option) in [
        (&["init"][..], "--chunker"),
        (&["backup"], "--merge-after"),
        (&["backup"], "--no-similar"),
        (&["series", "set"], "--holes"),
        (&["series", "set"], "--arrange-every"),
        (&["optimize"], "--list-all"),
    ] {
        let help = play.larder([verb, &["--help"]].concat()).ok().text();
        assert!(!help.lines().any(|line| line.trim_start().starts_with(option)), "{help}");
    }
    play.larder(["backup", "source", "--no-similar", "--merge-after", "2"]).ok();
    play.larder(["backup", "source", "--merge-after", "never"]).ok();
    play.larder(["optimize", "--list-all"]).ok();
    play.larder(["init", "--repo", "fixed", "--chunker", "fixed", "--insecure-kdf"]).ok();
}

#[test]
fn one_option_is_about_memory() {
    let play = Play::with_repository();
    play.write("source/a", "a");
    play.larder(["backup", "source", "--memory", "32M"]).ok();
    for verb in [&["snapshots"][..], &["optimize", "--dry-run"], &["dump", "latest"]] {
        play.larder([verb, &["--memory-limit", "16MiB"]].concat()).ok();
        play.larder([verb, &["--memory", "1M"]].concat()).code(2).says("at least 16.0 MiB");
    }
    crate::support::run(play.command(["snapshots"]).env("LARDER_MEMORY", "1M")).code(2).says("at least 16.0 MiB");
}

#[test]
fn unlock_says_why_there_is_nothing_to_do() {
    let play = Play::new();
    assert!(play.larder(["unlock"]).ok().text().contains("no locks"));
    play.larder(["unlock", "--json"]).ok().json();
}

#[test]
fn completions_and_manual_pages_are_written() {
    let play = Play::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(play.larder(["completions", shell]).ok().text().contains("snapshots"), "{shell}");
    }
    assert!(play.larder(["man"]).ok().text().starts_with(".ie"), "roff");
    play.larder(["man", "pages"]).ok();
    for page in ["larder.1", "larder-backup.1", "larder-key-export.1"] {
        let text = std::fs::read_to_string(play.path("pages").join(page)).expect(page);
        assert!(text.contains(".TH") && !text.contains("insecure-kdf"), "{page}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_panic() {
    let play = Play::new();
    let mut child = play.spawn(play.command(["completions", "zsh"]).stdout(Stdio::piped()));
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(141), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.stderr, b"");
}

#[test]
fn a_full_disk_behind_standard_output_is_16() {
    let play = Play::new();
    let full = std::fs::File::options().write(true).open("/dev/full").expect("a full device");
    let child = play.command(["completions", "zsh"]).stdout(full).stderr(Stdio::piped()).spawn().expect("starts");
    crate::support::Ran::from(child.wait_with_output().expect("it ends"))
        .code(16)
        .says("cannot write to standard output");
    let full = std::fs::File::options().write(true).open("/dev/full").expect("a full device");
    let child = play.command(["--help"]).stdout(full).stderr(Stdio::piped()).spawn().expect("starts");
    crate::support::Ran::from(child.wait_with_output().expect("it ends")).code(16);
    let play = Play::with_repository();
    play.write("source/a", "one");
    play.backup(["source"]);
    let place = format!("latest:{}", play.path("source/a").display());
    play.larder(["dump", &place, "--target", "/dev/full"]).code(16).says("cannot write to /dev/full");
}

/// A file without the key must not pass for one that has it, and not be in the way of the next try.
#[test]
fn a_key_that_cannot_be_written_leaves_no_file() {
    let play = Play::with_repository();
    std::fs::create_dir(play.path("tiny")).expect("made");
    let larder = env!("CARGO_BIN_EXE_larder");
    let script = format!(
        "mount -t tmpfs -o size=4k none tiny && head -c 4096 /dev/zero > tiny/x && \
         {larder} key export --output tiny/key; code=$?; test ! -e tiny/key || code=99; exit $code"
    );
    let mut command = play.command_of(std::path::Path::new("unshare"), ["--mount", "sh", "-c", &script]);
    let ran = crate::support::run(&mut command);
    if !rustix::process::geteuid().is_root() || ran.stderr.contains("unshare") || ran.stderr.contains("mount:") {
        return;
    }
    ran.code(16).says("cannot write the paper key to tiny/key");
    play.write("taken", "");
    play.larder(["key", "export", "--output", "taken"]).code(1).says("name another file");
}

#[test]
fn what_others_type_is_understood_or_refused_with_a_reason() {
    let play = Play::with_repository();
    play.write("source/a", "one");
    play.write("map", "0 1\n");
    play.larder(["-v=1", "snapshots"]).ok();
    play.larder(["serve"]).code(2).says("larder serve-sftp");
    play.larder(["create", "::monday", "source"]).code(2).says("snapshots have no names").in_two_lines();
    play.larder(["create", "repository::monday", "source"]).code(2).says("snapshots have no names");
    play.larder(["backup", "source", "--changed-map", "map"]).code(2).says("--changed-map needs --image");
    play.larder(["backup", "source", "--host", ""]).code(2).says("a host needs a name");
    assert_eq!(play.larder(["snapshots", "--json"]).ok().json(), serde_json::json!([]));
    play.write("names/x::y", "a file of this name is one");
    play.larder(["backup", "names/x::y"]).ok();
    play.larder(["tag", "--add", ""]).code(2).says("no tag was given");
    play.larder(["--threads", "0", "snapshots"]).code(2).says("at least 1");
    let ran = crate::support::run(play.command(["snapshots"]).env("LARDER_MEMORY", "foo"));
    ran.code(2).says("the variable LARDER_MEMORY");
    play.larder(["snapshots", "--limit-upload=-5"]).code(2).says("is not a size");
}

#[test]
fn options_without_effect_are_named() {
    let play = Play::with_repository();
    play.write("source/a", "one");
    let stream = ["backup", "--stdin", "-e", "x", "-x", "--skip-if-unchanged"];
    let ran = play.larder_with_stdin(stream, b"one").ok();
    ran.says("without effect here: --exclude, --one-file-system, --skip-if-unchanged");
    play.larder(["backup", "--read-special", "source"]).ok().says("without effect here: --read-special");
    play.larder(["ls", "latest", "--human-readable"]).ok().says("--human-readable without --long");
    let ran = play.larder(["backup", "source"]).ok();
    assert!(!ran.stderr.contains("without effect"), "{}", ran.stderr);
}

#[test]
fn validate_store_tries_out_a_folder() {
    let play = Play::new();
    std::fs::create_dir(play.path("store")).expect("made");
    let ran = play.larder(["validate-store", "--json", "store"]).ok();
    assert!(!ran.stderr.contains("there was no folder"), "{}", ran.stderr);
    let checks = ran.messages("check");
    assert!(checks.len() >= 8, "{checks:?}");
    for check in &checks {
        schema::check("validate_store", check);
        assert_eq!(check["kept"], true, "{check}");
    }
    assert_eq!(ran.messages("summary")[0]["num_errors"], 0);
    assert!(crate::support::damage::objects(&play.path("store")).is_empty(), "everything is removed");
    // A folder that was not there is not there afterwards.
    play.larder(["validate-store", "far/away/store"]).ok().says("there was no folder far/away/store");
    assert!(!play.path("far").exists());
    assert!(play.path("store").exists());
}

#[test]
fn validate_store_says_when_it_cannot_even_begin() {
    let play = Play::new();
    play.write("file", "not a folder");
    let ran = play.larder(["validate-store", "file/store"]);
    assert!(matches!(ran.code, 1 | 15), "{}: {}", ran.code, ran.stderr);
    // Nothing can ever be created there, and no retry changes that.
    let began = std::time::Instant::now();
    for args in [&["validate-store", "/proc/larder"][..], &["init", "--repo", "/proc/larder", "--insecure-kdf"]] {
        play.larder(args).code(15).says("cannot create the folder /proc/larder for the repository").in_two_lines();
    }
    assert!(began.elapsed() < std::time::Duration::from_secs(5), "{:?}", began.elapsed());
}

#[test]
fn what_goes_on_inside_is_written_where_asked() {
    let play = Play::with_repository();
    play.write("source/a", "a");
    play.larder(["backup", "source", "--log-file", "log", "--log-level", "trace"]).ok();
    assert!(!std::fs::read_to_string(play.path("log")).expect("a log").is_empty());
    let secret = std::fs::read_to_string(play.path("log")).expect("a log");
    assert!(!secret.contains(crate::support::PASSWORD));
    play.larder(["snapshots", "--log-file", "no/such/folder/log"]).code(1).says("no/such/folder").in_two_lines();
}

/// Whoever read the log went away. That ends no command.
#[test]
fn a_closed_standard_error_ends_nothing() {
    let play = Play::with_repository();
    play.write("source/a", "a");
    for args in [&["-vv", "backup", "source"][..], &["-vvv", "snapshots"], &["--log-level", "trace", "check"]] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = play.command(args).stderr(writer).output().expect("it ends");
        assert_eq!(output.status.code(), Some(0), "{args:?}");
    }
}

/// However few threads the system allows: an error that says so, or success; no hang and no bug.
#[test]
fn too_few_threads_are_an_error_that_says_so() {
    let play = Play::with_repository();
    play.write("source/a", "a");
    play.open_to_all("repository");
    let mut refused = 0;
    for most in [1, 2, 3, 4, 6, 8, 10, 12, 16, 200] {
        for args in [&["backup", "source", "--no-cache"][..], &["check", "--read-data", "--no-cache"]] {
            let ran = crate::support::run(&mut play.with_few_threads(most, args));
            assert!(!ran.stderr.contains("this is a bug"), "{most}: {args:?}: {}", ran.stderr);
            if ran.code != 0 {
                assert_eq!(ran.code, 1, "{most}: {args:?}: {}", ran.stderr);
                assert!(ran.stderr.contains("threads"), "{most}: {args:?}: {}", ran.stderr);
                refused += 1;
            }
        }
    }
    assert!(refused > 0);
    play.larder(["check", "--threads", "100000"]).code(2).says("--threads");
}

#[test]
fn log_messages_of_json_are_json() {
    let play = Play::with_repository();
    play.write("source/file", "x");
    let ran = play.larder(["backup", "source", "--json", "-vvv"]).ok();
    // Every line of standard error is read as JSON here.
    let logged = ran.errors("log");
    assert!(!logged.is_empty(), "{}", ran.stderr);
    logged.iter().for_each(|message| schema::check("log", message));
}

#[test]
fn help_names_the_exit_codes_that_scripts_want() {
    let play = Play::new();
    let help = |verb: &str| play.larder([verb, "--help"]).ok().text();
    assert!(help("backup").contains("Exit code 13: "));
    assert!(help("optimize").contains("Exit code 3: ") && help("optimize").contains("Exit code 13: "));
    assert!(help("pin").starts_with("Protect snapshots from `forget`"), "{}", help("pin"));
}

#[test]
fn downloads_from_a_folder_keep_the_limit() {
    let play = Play::with_repository();
    play.write("source/file", larder_testkit::data::random(1, 3_000_000));
    play.backup(["source"]);
    let started = std::time::Instant::now();
    play.larder(["check", "--read-data", "--limit-download", "1MiB"]).ok();
    assert!(started.elapsed() > std::time::Duration::from_secs(1), "{:?}", started.elapsed());
}
