//! The configuration is checked as it will run: whatever every run would refuse, or do wrongly and report as a success, is a mistake.

use std::os::unix::fs::PermissionsExt;

use crate::profiles::{Configured, SIMPLE};
use crate::support::{PASSWORD, run};

/// `config check` and every run refuse it for the same reason.
#[track_caller]
fn refused(it: &Configured, more: &str, says: &str) {
    it.rewrite(&format!("{SIMPLE}{more}"));
    for args in [&["config", "check"][..], &["run", "--all"], &["schedule", "install", "--print"]] {
        it.larder(args).code(2).says(says).in_two_lines();
    }
}

#[test]
fn what_every_run_would_refuse_is_a_mistake() {
    let it = Configured::new(SIMPLE);
    it.play.write("source/a", "a");
    let two = "[repositories.two]\nlocation = \"@/two\"\n[profiles.bad]\nsources = [\"@/source\"]\n";
    for (more, says) in [
        (two, "the profile bad names no repository"),
        ("[profiles.bad]\nrepositories = [\"nas\"]\n", "the profile bad has no sources"),
        ("[profiles.home.forget]\nkeep-last = 0\n", "the policy of the profile home keeps no snapshot"),
        ("[profiles.home.backup]\nexclude = [\"[\"]\n", "the profile home: backup: "),
        ("[profiles.home.backup]\nexclude = [\"\"]\n", "the profile home: backup: "),
        ("[profiles.home.backup]\nseries = \"\"\n", "a series needs a name"),
        ("[profiles.home.backup]\nhost = \"\"\n", "a host needs a name"),
        ("[profiles.home.backup]\nstdin = true\n", "'--stdin' cannot be used with '[PATH]...'"),
        ("[profiles.home.backup]\nimage = \"/x\"\n", "cannot be used with"),
    ] {
        refused(&it, more, says);
    }
}

/// Such a run ends with success, and saves nothing.
#[test]
fn a_run_that_saves_nothing_is_a_mistake() {
    let it = Configured::new(SIMPLE);
    for verb in ["backup", "forget", "optimize"] {
        refused(
            &it,
            &format!("[profiles.home.{verb}]\ndry-run = true\n"),
            "cannot have dry-run: every run would change nothing",
        );
    }
    refused(&it, "[profiles.home.backup]\ntime = \"2020-01-01 00:00:00\"\n", "every snapshot would have the same time");
    it.rewrite(SIMPLE);
    let schema = it.larder(&["config", "schema"]).ok().json();
    let backup = &schema["properties"]["profiles"]["additionalProperties"]["properties"]["backup"]["properties"];
    assert!(backup["dry-run"].is_null() && backup["exclude"].is_object(), "{backup}");
    // A file that was cut has no profiles, and nothing is backed up any more.
    for text in ["", "version = 1\n"] {
        it.rewrite(text);
        for args in [&["run", "--all"][..], &["run", "--due", "-q"]] {
            it.larder(args).code(2).says("has no profiles, so nothing was backed up");
        }
    }
}

/// A policy of a profile cannot be about the snapshots of others, and one of its own series is as before.
#[test]
fn a_policy_is_about_the_series_of_its_profile() {
    let it = Configured::new(SIMPLE);
    refused(
        &it,
        "[profiles.home.forget]\nseries = [\"other\"]\nkeep-daily = 7\n",
        "about the series other, but its snapshots have the series testhost:home",
    );
    let named = "[profiles.home.backup]\nseries = \"x\"\n[profiles.home.forget]\nseries = [\"x\"]\nkeep-daily = 7\n";
    it.rewrite(&format!("{SIMPLE}{named}"));
    it.larder(&["config", "check"]).ok();
}

/// A profile that others inherit from need not be one that can run.
#[test]
fn a_profile_for_others_is_not_run() {
    let text = SIMPLE.replace(
        "[profiles.home]",
        "[profiles.base.backup]\nexclude = [\"*.iso\"]\n[profiles.home]\ninherit = \"base\"",
    );
    let it = Configured::new(&text);
    it.play.write("source/a", "a");
    it.play.write("source/b.iso", "b");
    it.larder(&["-r", "nas", "init", "--insecure-kdf"]).ok();
    it.larder(&["config", "check"]).ok();
    it.larder(&["run", "--all"]).ok();
    let files = it.larder(&["ls", "latest"]).ok().text();
    assert!(files.contains("/source/a") && !files.contains("b.iso"), "{files}");
    it.larder(&["run", "base"]).code(2).says("nothing to back up was named");
}

/// Files that runs need later are looked at, and prevent nothing.
#[test]
fn files_of_messages_and_storages_are_looked_at() {
    let it = Configured::new(&format!(
        "{SIMPLE}[notify.hc]\nkind = \"webhook\"\nurl-file = \"@/url\"\n[repositories.far]\nlocation = \"@/far\"\nenvironment-file = \"@/none\"\n"
    ));
    let ran = it.larder(&["config", "check"]).ok().says("the notification hc cannot be sent: cannot read");
    ran.says("cannot read the environment file");
    it.play.write("url", "https://example.org/x");
    std::fs::set_permissions(it.play.path("url"), PermissionsExt::from_mode(0o600)).expect("ours");
    let ran = it.larder(&["config", "check"]).ok();
    assert!(!ran.stderr.contains("notification"), "{}", ran.stderr);
    it.rewrite(&format!("{}schedule = \"daily\"\n", SIMPLE.replace("password-file = \"@/password\"", "prompt = true")));
    let ran = it.larder(&["schedule", "install", "--print"]).code(2).says("on schedule cannot ask for a password");
    assert!(!ran.stderr.contains("has no credential"), "{}", ran.stderr);
}

/// All local repositories of the configuration are left out of a backup that has them inside.
#[test]
fn repositories_do_not_contain_each_other() {
    let text = SIMPLE.replace("sources = [\"@/source\"]", "sources = [\"@\"]");
    let it = Configured::new(&format!("{text}[repositories.usb]\nlocation = \"@/usb\"\ncredential = \"home\"\n"));
    it.play.write("source/a", "a");
    for name in ["nas", "usb"] {
        it.larder(&["-r", name, "init", "--insecure-kdf"]).ok();
    }
    it.larder(&["-P", "home", "backup"]).ok().says("is the repository usb and left out");
    let files = it.larder(&["-r", "nas", "ls", "latest", "--recursive"]).ok().text();
    assert!(files.contains("/source/a") && !files.contains("/usb/config") && !files.contains("/nas/config"), "{files}");
    // What is named as a source is one.
    it.larder(&["-r", "nas", "backup", it.play.path("usb").to_str().expect("a text")]).ok();
    let files = it.larder(&["-r", "nas", "ls", "latest", "--recursive"]).ok().text();
    assert!(files.contains("/usb/config"), "{files}");
}

/// Goal: what systemd gives a service as a credential can be the password. By hand, another source is named. Method: the folder and the
/// variable that a service gets, and `cat` for `systemd-creds cat`.
#[test]
fn a_password_can_be_a_credential_of_the_service() {
    let command = "password-command = 'cat \"$CREDENTIALS_DIRECTORY/nas\"'";
    let it = Configured::new(&SIMPLE.replace("password-file = \"@/password\"", command));
    it.play.write("source/a", "a");
    it.play.write("credentials/nas", PASSWORD);
    let service = |args: &[&str]| run(it.command(args).env("CREDENTIALS_DIRECTORY", it.play.path("credentials")));
    service(&["-r", "nas", "init", "--insecure-kdf"]).ok();
    service(&["run", "home"]).ok();
    let by_hand = ["-r", "nas", "snapshots", "--json", "--password-file", "password"];
    assert_eq!(it.larder(&by_hand).ok().json().as_array().map(Vec::len), Some(1));
    it.larder(&by_hand[..4]).code(12);
}

/// A name that the configuration does not have is not taken for a folder.
#[test]
fn a_typing_error_makes_no_repository() {
    let it = Configured::new(SIMPLE);
    it.larder(&["-r", "nsa", "init", "--insecure-kdf"]).code(2).says("it has nas").says("use -r ./nsa");
    assert!(!it.play.path("nsa").exists());
    it.larder(&["-r", "nsa", "snapshots", "--password-file", "password"]).code(10).says("which has nas");
    let mut command = it.command(&["-r", "./nsa", "init", "--insecure-kdf", "--password-file", "password"]);
    run(&mut command).ok();
}

/// To make a repository is the advice for an empty place only, by whichever command.
#[test]
fn a_named_repository_is_to_be_made_only_where_no_other_program_has_one() {
    let it = Configured::new(SIMPLE);
    it.play.write("source/a", "a");
    for args in [&["-r", "nas", "snapshots"][..], &["run", "home"]] {
        it.larder(args).code(10).says("`larder -r nas init` creates it");
    }
    it.play.write("nas/config", "[repository]\nversion = 1\n");
    it.play.write("nas/data/0/0", "BORG_SEG");
    for args in [&["-r", "nas", "snapshots"][..], &["run", "home"]] {
        let ran = it.larder(args).code(10).says("its config is of Borg").says("larder import borg /");
        assert!(!ran.stderr.contains("creates it"), "{}", ran.stderr);
    }
}
