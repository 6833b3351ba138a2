//! Making a repository, opening it, and everything that keeps it from being opened.

use crate::support::{Play, run, schema};

#[test]
fn init_makes_a_repository_that_the_password_opens() {
    let play = Play::new();
    let made = play.larder(["init", "--insecure-kdf", "--json"]).ok().json();
    schema::check("initialized", &made);
    let listed = play.larder(["snapshots", "--json"]).ok().json();
    assert_eq!(listed, serde_json::json!([]));
    let config = play.larder(["cat", "config"]).ok().json();
    assert_eq!(config["id"], made["id"]);
    schema::check("cat_config", &config);
    assert!(play.larder(["snapshots"]).ok().text().contains("no snapshots"));
}

#[test]
fn init_says_what_the_password_is_for() {
    let play = Play::new();
    let text = play.larder(["init", "--insecure-kdf"]).ok().text();
    assert!(text.contains("Without the password nobody can read the data"), "{text}");
    let play = Play::new();
    let text = play.larder(["init", "--insecure-kdf", "--insecure-no-password"]).ok().text();
    assert!(text.contains("It has no password") && !text.contains("Without"), "{text}");
}

#[test]
fn locations_are_offered_and_taken_as_users_write_them() {
    let play = Play::with_repository();
    let location = format!("local:{}", play.repository().display());
    play.larder(["snapshots", "--repo", &location]).ok();
    let ran = play.larder(["snapshots", "--repo", "rclone:host:x"]).code(2).says("accepted are /path");
    assert!(!ran.stderr.contains("memory:"), "{}", ran.stderr);
}

#[test]
fn missing_credentials_are_said_once() {
    let play = Play::new();
    let mut command = play.command(["snapshots", "--repo", "s3:https://localhost:1/bucket"]);
    for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"] {
        command.env_remove(name);
    }
    let ran = run(command.env("HOME", play.path("home"))).code(15).says("no credentials: set AWS_ACCESS_KEY_ID");
    assert_eq!(ran.stderr.matches("AWS_ACCESS_KEY_ID").count(), 1, "{}", ran.stderr);
}

#[test]
fn a_repository_of_another_program_is_10_and_not_damaged() {
    let play = Play::new();
    play.write("borg/config", "[repository]\nversion = 1\n");
    play.write("borg/data/0/0", "BORG_SEG");
    play.write("restic/config", b"\x2c\x68\x90\x01 sealed");
    play.write(format!("restic/keys/{}", "0a".repeat(32)), "{}");
    play.write("unknown/config", "[core]\n");
    let at = |place: &str, verb: &[&str]| {
        let location = play.path(place).display().to_string();
        play.larder(verb.iter().copied().chain(["-r", location.as_str()])).in_two_lines()
    };
    at("borg", &["snapshots"]).code(10).says("its config is of Borg").says("larder import borg /");
    at("restic", &["snapshots"]).code(10).says("its config is of restic");
    at("unknown", &["check"]).code(10).says("is not a Larder repository").says("larder key import");
    // A configuration of Larder that is damaged behind its first bytes.
    play.write("damaged/config", b"LCFG\x02\0\0\0 something");
    at("damaged", &["snapshots"]).code(13).says("config is damaged");
    // The command does not advise itself.
    let whole = Play::with_repository();
    whole.larder(["key", "export", "--output", "paper"]).ok();
    let paper = whole.path("paper").display().to_string();
    for (place, code) in [("unknown", 10), ("damaged", 13)] {
        let ran = at(place, &["key", "import", &paper]).code(code).says("check -r/--repo");
        assert!(!ran.stderr.contains("key import"), "{}", ran.stderr);
    }
}

#[test]
fn a_second_init_changes_nothing() {
    let play = Play::with_repository();
    let before = play.objects();
    let again = || play.command(["init", "--insecure-kdf"]);
    run(&mut again()).code(1).says("already a Larder repository").in_two_lines();
    run(again().env_remove("LARDER_PASSWORD")).code(1).says("already a Larder repository");
    assert_eq!(play.objects(), before);
}

#[test]
fn the_ordinary_init_derives_keys_at_full_cost() {
    let play = Play::new();
    play.larder(["init"]).ok();
    let name = play.objects().into_iter().find(|(name, _)| name.starts_with("keys/")).expect("a key").0;
    let key = play.larder(["cat", "key", name.trim_start_matches("keys/")]).ok().json();
    assert!(key["memory_kib"].as_u64().expect("a number") >= 64 << 10, "{key}");
    schema::check("cat_key", &key);
    assert!(!play.larder(["init", "--help"]).ok().text().contains("insecure-kdf"), "nobody should find it by accident");
}

#[test]
fn a_wrong_password_is_12_and_nothing_else_happens() {
    let play = Play::with_repository();
    let before = play.objects();
    for verb in [&["snapshots"][..], &["backup", "."], &["check"], &["restore", "latest", "--target", "x"]] {
        let ran = crate::support::run(play.command(verb).env("LARDER_PASSWORD", "wrong"));
        ran.code(12).says("wrong password").in_two_lines();
    }
    let ran = crate::support::run(play.command(["snapshots", "--json"]).env("LARDER_PASSWORD", "wrong")).code(12);
    let errors = ran.errors("exit_error");
    schema::check("exit_error", &errors[0]);
    assert_eq!(errors[0]["code"], 12);
    assert_eq!(play.objects(), before);
    assert!(!play.path("x").exists());
}

#[test]
fn passwords_come_from_the_first_source_given() {
    let play = Play::with_repository();
    let right = play.write("right", format!("{}\n", crate::support::PASSWORD));
    let wrong = play.write("wrong", "no\n");
    let run = |env: &[(&str, &str)], args: &[&str]| {
        let mut command = play.command(["snapshots"]);
        command.args(args).env_remove("LARDER_PASSWORD").envs(env.iter().copied());
        crate::support::run(&mut command).code
    };
    let (right, wrong) = (right.to_str().expect("text"), wrong.to_str().expect("text"));
    let echo = format!("printf '%s\\r\\n' '{}'", crate::support::PASSWORD);
    assert_eq!(run(&[("LARDER_PASSWORD", "no")], &["--password-file", right]), 0);
    assert_eq!(run(&[("LARDER_PASSWORD_FILE", right), ("LARDER_PASSWORD", "no")], &[]), 0);
    assert_eq!(run(&[("LARDER_PASSWORD_COMMAND", &echo), ("LARDER_PASSWORD", "no")], &[]), 0);
    assert_eq!(run(&[("LARDER_PASSWORD_FILE", wrong), ("LARDER_PASSWORD_COMMAND", &echo)], &[]), 12);
    assert_eq!(run(&[("LARDER_PASSWORD_FILE", wrong)], &["--password-command", &echo]), 0);
    assert_eq!(run(&[], &["--password-command", "exit 1"]), 12);
    assert_eq!(run(&[], &["--password-file", right, "--password-command", &echo]), 2);
    assert_eq!(run(&[], &[]), 12, "there is no terminal to ask on");
    let mut empty = play.command(["snapshots"]);
    crate::support::run(empty.env("LARDER_PASSWORD", "")).code(12).says("the password is empty").in_two_lines();
}

#[test]
fn a_password_can_come_through_a_file_descriptor() {
    let play = Play::with_repository();
    let script = format!("exec 3<<'E'\n{}\nE\nexec \"$0\" snapshots --password-fd 3", crate::support::PASSWORD);
    let mut shell = std::process::Command::new("sh");
    shell.arg("-c").arg(script).arg(env!("CARGO_BIN_EXE_larder")).env("LARDER_REPOSITORY", play.repository());
    crate::support::run(&mut shell).ok();
}

#[test]
fn an_empty_password_must_be_meant() {
    let play = Play::new();
    let empty = play.write("empty", "\n");
    let mut command = play.command(["init", "--insecure-kdf", "--password-file"]);
    crate::support::run(command.arg(&empty)).code(12).says("the password is empty").says("--insecure-no-password");
    assert!(!play.repository().join("config").exists());
    play.larder(["init", "--insecure-kdf", "--insecure-no-password"]).ok();
    play.larder(["snapshots", "--insecure-no-password"]).ok();
    play.larder(["snapshots"]).code(12);
}

#[test]
fn what_is_no_repository_is_10() {
    let play = Play::new();
    for verb in [&["snapshots"][..], &["backup", "."], &["check"], &["key", "list"], &["stats"]] {
        play.larder(verb).code(10).says("no Larder repository").in_two_lines();
    }
    assert!(!play.repository().exists(), "looking makes nothing");
    // A folder of something else.
    play.write("repository/notes.txt", "mine");
    play.larder(["snapshots"]).code(10);
    play.write("repository/config", "{\"version\": 2, \"id\": \"another program's\"}");
    play.larder(["snapshots"]).code(10).says("its config is of another program").in_two_lines();
}

#[test]
fn a_newer_format_is_refused_politely() {
    let play = Play::with_repository();
    let mut config = std::fs::read(play.repository().join("config")).expect("a config");
    config[4] = 3;
    crate::support::damage::replace(&play.repository(), "config", &config);
    let before = play.objects();
    for verb in [&["snapshots"][..], &["backup", "."], &["check"]] {
        play.larder(verb).code(1).says("format version 3").says("newer Larder").in_two_lines();
    }
    assert_eq!(play.objects(), before);
}

/// Nothing was released before format 2.
#[test]
fn a_repository_of_a_development_version_is_refused_by_name() {
    let play = Play::with_repository();
    let mut config = std::fs::read(play.repository().join("config")).expect("a config");
    config[4] = 1;
    crate::support::damage::replace(&play.repository(), "config", &config);
    let before = play.objects();
    for verb in [&["snapshots"][..], &["backup", "."], &["check"], &["key", "list"]] {
        play.larder(verb).code(1).says("development version").says("back up again");
    }
    assert_eq!(play.objects(), before);
}

#[test]
fn a_forged_config_is_noticed() {
    let play = Play::with_repository();
    let len = std::fs::read(play.repository().join("config")).expect("a config").len();
    crate::support::damage::flip(&play.repository(), "config", len - 1);
    play.larder(["snapshots"]).ok().says("config is damaged").says("larder repair config");
    play.larder(["check"]).code(13);
    play.larder(["repair", "config"]).ok();
    play.larder(["check"]).ok();
}

#[test]
fn locations_come_from_flags_and_variables() {
    let play = Play::with_repository();
    let file = play.write("where", format!("{}\n", play.repository().display()));
    let elsewhere = play.path("nowhere");
    let run = |env: Option<(&str, &std::path::Path)>, args: &[&str]| {
        let mut command = play.command(["snapshots"]);
        command.args(args).env_remove("LARDER_REPOSITORY").envs(env);
        crate::support::run(&mut command).code
    };
    let repository = play.repository();
    let (here, list) = (repository.to_str().expect("text"), file.to_str().expect("text"));
    assert_eq!(run(None, &[]), 2);
    assert_eq!(run(None, &["-r", here]), 0);
    assert_eq!(run(None, &["--repository-file", list]), 0);
    assert_eq!(run(Some(("LARDER_REPOSITORY_FILE", &file)), &[]), 0);
    assert_eq!(run(Some(("LARDER_REPOSITORY", &elsewhere)), &["-r", here]), 0);
    assert_eq!(run(Some(("LARDER_REPOSITORY", &elsewhere)), &[]), 10);
    assert_eq!(run(None, &["-r", "rclone:host:x"]), 2);
    assert_eq!(run(None, &["-r", "s3:https://key:secret@host/bucket"]), 2);
}

#[test]
fn storage_that_cannot_be_reached_is_15() {
    let play = Play::new();
    let mut command = play.command(["snapshots", "-r", "s3:http://127.0.0.1:1/bucket/x", "--timeout", "1s"]);
    command.env("AWS_ACCESS_KEY_ID", "key").env("AWS_SECRET_ACCESS_KEY", "secret");
    crate::support::run(&mut command).code(15).says("s3:http://127.0.0.1:1/bucket/x").in_two_lines();
    play.larder(["snapshots", "-r", "azure://container/x"]).code(15).says("AZURE_STORAGE_ACCOUNT_NAME").in_two_lines();
    let mut command = play.command(["snapshots", "-r", "s3:http://127.0.0.1:1/bucket/x"]);
    for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"] {
        command.env_remove(name);
    }
    command.env("HOME", play.path("home"));
    crate::support::run(&mut command).code(15).says("no credentials").in_two_lines();
}

/// A repository between other files is hard to get rid of.
#[test]
fn a_folder_of_other_files_gets_no_repository() {
    let play = Play::new();
    play.write("full/mine", "precious");
    let init = |place: &str| play.larder(["init", "--insecure-kdf", "-r", place]);
    init("full").code(2).says("has other files, such as mine").says("full/larder").in_two_lines();
    assert_eq!(std::fs::read_dir(play.path("full")).expect("a folder").count(), 1);
    init("full/larder").ok();
    // What file systems make, and an earlier attempt that was interrupted, is not in the way.
    for name in ["new/lost+found/x", "new/.hidden", "new/keys/.x"] {
        play.write(name, "");
    }
    init("new").ok();
    play.write("file", "no folder");
    for args in [["snapshots", "-r", "file"], ["init", "-r", "file"]] {
        play.larder(args).code(10).says("it is not a folder").in_two_lines();
    }
}
