//! `larder schedule`: unit files, crontabs, and what systemd says about them.

use std::process::Command;

use crate::profiles::{Configured, SIMPLE};
use crate::support::mounting::with_mounts;
use crate::support::{run, schema};

const SCHEDULED: &str = "schedule = [\"daily 02:30\", \"Sun 12:00\"]\nrandom-delay = \"30m\"\nrelax = [\"LockPersonality\"]\n\
                         [profiles.other]\nsources = [\"/tmp\"]\nschedule = \"every 6h\"\n[profiles.by-hand]\nsources = [\"/tmp\"]\n";

fn scheduled() -> Configured {
    Configured::new(&format!("{SIMPLE}{SCHEDULED}"))
}

fn text(it: &Configured, name: &str) -> String {
    std::fs::read_to_string(it.play.path(name)).unwrap_or_default()
}

#[test]
fn timers_are_written_listed_and_removed() {
    let it = scheduled();
    let units = it.play.path("units").display().to_string();
    let place = ["--with", "systemd", "--directory", &units];
    let ran = it.larder(&[&["schedule", "install"], &place[..]].concat()).ok();
    assert_eq!(ran.text().matches("wrote ").count(), 4, "{}", ran.text());
    let service = text(&it, "units/larder-run-home.service");
    let nas = it.play.path("nas").display().to_string();
    for line in [
        &format!("ExecStart={} --config {} run home", env!("CARGO_BIN_EXE_larder"), it.file.display()),
        "NoNewPrivileges=yes",
        &format!("ReadWritePaths=-{nas}"),
    ] {
        assert!(service.lines().any(|found| found == line), "{line} is not in {service}");
    }
    assert!(!service.contains("LockPersonality"), "{service}");
    // These files are below /tmp, where a private one would hide them.
    assert!(!service.contains("PrivateTmp"), "{service}");
    let timer = text(&it, "units/larder-run-home.timer");
    assert!(
        timer.contains("OnCalendar=*-*-* 02:30\nOnCalendar=Sun *-*-* 12:00\nRandomizedDelaySec=1800s\n"),
        "{timer}"
    );
    it.play.write("units/larder-run-theirs.timer", "[Timer]\n");
    let listed = it.larder(&[&["schedule", "list"], &place[..]].concat()).ok();
    assert_eq!(listed.lines().len(), 2, "{}", listed.text());
    let listed = it.larder(&[&["schedule", "list", "--json"], &place[..]].concat()).ok();
    listed.json_lines().iter().for_each(|line| schema::check("schedule", line));
    it.larder(&[&["schedule", "remove", "by-hand"], &place[..]].concat())
        .code(2)
        .says("no timer of the profile by-hand");
    it.larder(&[&["schedule", "remove", "home"], &place[..]].concat()).ok();
    it.larder(&[&["schedule", "remove"], &place[..]].concat()).ok();
    let left: Vec<_> = std::fs::read_dir(it.play.path("units")).expect("a folder").collect();
    assert_eq!(left.len(), 1, "files of others stay: {left:?}");
}

#[test]
fn a_line_of_cron_is_written_listed_and_removed() {
    let it = scheduled();
    let folder = it.play.path("cron").display().to_string();
    let place = ["--with", "cron", "--directory", &folder];
    it.larder(&[&["schedule", "install"], &place[..]].concat()).ok();
    let line = format!(
        "*/15 * * * * root {} --quiet --config {} run --due\n",
        env!("CARGO_BIN_EXE_larder"),
        it.file.display()
    );
    assert!(text(&it, "cron/larder").contains(&line), "{}", text(&it, "cron/larder"));
    let listed = it.larder(&[&["schedule", "list"], &place[..]].concat()).ok();
    assert!(listed.text().contains("run --due"), "{}", listed.text());
    it.larder(&[&["schedule", "install", "home"], &place[..]].concat()).code(2).says("leave out the names");
    it.larder(&[&["schedule", "remove"], &place[..]].concat()).ok();
    assert!(!it.play.path("cron/larder").exists());
    it.larder(&[&["schedule", "remove"], &place[..]].concat()).ok();
    it.rewrite(&format!("{SIMPLE}oncalendar = \"Mon *-*-1..7 03:00\"\n"));
    it.larder(&[&["schedule", "install"], &place[..]].concat()).code(2).says("only systemd understands oncalendar");
}

/// Goal: the line makes the backup that is due, with the few variables and the shell that cron gives it, also from a file whose
/// name cron and the shell would misread; and none that is not due.
#[test]
fn the_line_of_cron_makes_the_backup_that_is_due() {
    let it = Configured::new(&format!("{SIMPLE}schedule = \"every 6h\"\n"));
    it.play.write("source/a", "a");
    it.larder(&["-r", "nas", "init", "--insecure-kdf"]).ok();
    let odd = it.play.path("my 5% 'file'.toml");
    std::fs::rename(&it.file, &odd).expect("renamed");
    std::fs::create_dir(it.play.path("home")).expect("created");
    let (config, folder) = (odd.to_str().expect("text"), it.play.path("cron").display().to_string());
    let install = ["--config", config, "schedule", "install", "--with", "cron", "--directory", &folder];
    run(it.play.command(install).env_remove("LARDER_REPOSITORY")).ok();
    let crontab = text(&it, "cron/larder");
    let line = crontab.lines().find(|line| !line.starts_with('#')).expect("a line");
    let [_, _, _, _, _, "root", command] = line.splitn(7, ' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
    // What cron makes of it. A percent sign without a backslash would end it.
    let command = command.replace("\\%", "\n").replace('%', "#").replace('\n', "%");
    it.play.write("line", command);
    let home = it.play.path("home").display().to_string();
    // What root remembers is not touched. Others remember in their home.
    let hide = "[ $(id -u) -ne 0 ] || mount -t tmpfs none /var/lib; umask 022; ";
    let call = format!(
        "line=$(cat line); {hide} for time in 1 2; do \
         (cd {home}; env -i HOME={home} LOGNAME=$(id -un) SHELL=/bin/sh PATH=/usr/bin:/bin /bin/sh -c \"$line\"); done"
    );
    let Some(ran) = with_mounts(&it.play, &call) else { return };
    let ran = ran.ok();
    // cron sends mail for every word.
    assert_eq!((ran.text(), &*ran.stderr), (String::new(), ""));
    let mut snapshots = it.play.command(["--config", config, "-r", "nas", "snapshots", "--json"]);
    let snapshots = run(snapshots.env_remove("LARDER_REPOSITORY").env_remove("LARDER_PASSWORD")).ok().json();
    assert_eq!(snapshots.as_array().map(Vec::len), Some(1), "{snapshots:#}");
}

#[test]
fn files_can_be_printed_and_nothing_else_happens() {
    let it = scheduled();
    let ran = it.larder(&["schedule", "install", "other", "--print", "--with", "systemd"]).ok();
    assert!(ran.text().contains("OnCalendar=*-*-* 00/6:00") && !ran.text().contains("run home"), "{}", ran.text());
    let ran = it.larder(&["schedule", "install", "--print", "--with", "systemd", "--json"]).ok();
    ran.json_lines().iter().for_each(|line| schema::check("schedule_file", line));
    it.larder(&["schedule", "install", "by-hand", "--print"]).code(2).says("the profile by-hand has no schedule");
    it.larder(&["schedule", "install", "homex", "--print"]).code(2).says("did you mean \"home\"?");
    it.rewrite(&format!("{}{SCHEDULED}", SIMPLE.replace("password-file = \"@/password\"", "prompt = true")));
    it.larder(&["schedule", "install", "--print"])
        .code(2)
        .says("the profile home on schedule cannot ask for a password");
    it.rewrite(&format!("{}{SCHEDULED}", SIMPLE.replace("credential = \"home\"", "")));
    it.larder(&["schedule", "install", "--print"]).code(2).says("the repository nas has no credential");
    let shown = it.larder(&["schedule", "show"]).ok().text();
    assert!(shown.contains("(+30m)") && shown.contains("never") && shown.contains("no schedule"), "{shown}");
}

/// Files that are older than the configuration are named.
#[test]
fn installed_files_are_compared_with_the_configuration() {
    for with in ["systemd", "cron"] {
        let it = scheduled();
        let folder = it.play.path("files").display().to_string();
        let place = ["--with", with, "--directory", &folder];
        let installed = |it: &Configured| {
            let ran = it.larder(&[&["schedule", "show", "--json"], &place[..]].concat()).ok();
            ran.json_lines().iter().for_each(|line| schema::check("schedule_state", line));
            let lines = ran.json_lines().into_iter().filter(|line| line["message_type"] == "schedule_state");
            lines.map(|line| line["installed"].clone()).collect::<Vec<_>>()
        };
        assert_eq!(installed(&it), ["no".into(), "no".into(), serde_json::Value::Null]);
        it.larder(&[&["schedule", "install"], &place[..]].concat()).ok();
        assert_eq!(installed(&it), ["yes".into(), "yes".into(), serde_json::Value::Null]);
        if with == "systemd" {
            it.rewrite(&format!("{SIMPLE}{}", SCHEDULED.replace("02:30", "04:30")));
        } else {
            let line = text(&it, "files/larder").replace("run --due", "run --all");
            it.play.write("files/larder", line);
        }
        assert_eq!(installed(&it)[0], "differs");
        it.larder(&[&["schedule", "show"], &place[..]].concat()).ok().says("differs from the configuration");
    }
}

/// A clock that was ahead hides no later run.
#[test]
fn runs_in_the_future_are_named() {
    let it = scheduled();
    let line = |start_ms: u64, code| {
        format!(
            "{{\"start_ms\":{start_ms},\"seconds\":1.0,\"profile\":\"home\",\"command\":\"run\",\"exit_code\":{code}}}\n"
        )
    };
    let ahead = 32_503_680_000_000;
    it.play.write("state/runs/runs.jsonl", line(ahead, 0));
    let shown = it.larder(&["schedule", "show"]).ok().says("is in the future: a clock was wrong").text();
    assert!(!shown.contains("3000"), "{shown}");
    it.play.write("state/runs/runs.jsonl", line(ahead, 0) + &line(1_700_000_000_000, 15));
    let shown = it.larder(&["schedule", "show", "home", "--json"]).ok().json();
    assert_eq!((&shown["exit_code"], shown["last_run"].as_str().map(|time| &time[..4])), (&15.into(), Some("2023")));
}

/// systemd reads the units, when it is here.
#[test]
fn systemd_accepts_the_units() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        eprintln!("skipped: systemd-analyze is not installed");
        return;
    }
    let it = scheduled();
    it.rewrite(&format!("{SIMPLE}oncalendar = \"nonsense\"\n"));
    it.larder(&["schedule", "install", "--print", "--with", "systemd"])
        .code(2)
        .says("systemd does not accept the units");
    it.rewrite(&format!("{SIMPLE}{SCHEDULED}"));
    let ran = it.larder(&["schedule", "install", "--print", "--with", "systemd"]).ok();
    for line in ran.text().lines().filter_map(|line| line.strip_prefix("OnCalendar=")) {
        let output = Command::new("systemd-analyze").args(["calendar", line]).output().expect("it runs");
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }
    // Units of users can have few protections.
    if rustix::process::geteuid().is_root() {
        let units = it.play.path("units").display().to_string();
        it.larder(&["schedule", "install", "--with", "systemd", "--directory", &units]).ok();
        let mut rated = Command::new("systemd-analyze");
        rated.args(["security", "--offline=yes", "--no-pager", "--threshold=35"]);
        let output = rated.arg(it.play.path("units/larder-run-home.service")).output().expect("it runs");
        // An exposure of 0 is none, and 100 is all.
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}
