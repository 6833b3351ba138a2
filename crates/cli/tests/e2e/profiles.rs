//! The configuration file and `larder run`: options from the file, steps, hooks, locks, exit codes.

mod copies;
mod notifying;

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{PASSWORD, Play, Ran, run, schema};

/// A folder with a configuration and a password file. `@` in the text stands for the folder.
pub(crate) struct Configured {
    pub(crate) play: Play,
    pub(crate) file: PathBuf,
}

impl Configured {
    pub(crate) fn new(text: &str) -> Self {
        let play = Play::new();
        play.write("password", PASSWORD);
        let this = Self { file: play.path("larder.toml"), play };
        this.rewrite(text);
        this
    }

    /// Replaces the configuration.
    pub(crate) fn rewrite(&self, text: &str) {
        let folder = self.play.path("");
        let text = text.replace('@', folder.display().to_string().trim_end_matches('/'));
        std::fs::write(&self.file, text).expect("written");
        std::fs::set_permissions(&self.file, PermissionsExt::from_mode(0o600)).expect("ours");
    }

    /// A command that knows the repository and the password from the file only.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = self.play.command(args);
        command.env("LARDER_CONFIG", &self.file).env_remove("LARDER_REPOSITORY").env_remove("LARDER_PASSWORD");
        command
    }

    #[track_caller]
    pub(crate) fn larder(&self, args: &[&str]) -> Ran {
        run(&mut self.command(args))
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.play.path(name)).unwrap_or_default()
    }
}

/// One profile and one repository, whose credential is a file.
pub(crate) const SIMPLE: &str = r#"
version = 1
[credentials.home]
password-file = "@/password"
[repositories.nas]
location = "@/nas"
credential = "home"
[profiles.home]
sources = ["@/source"]
repositories = ["nas"]
"#;

fn simple(more: &str) -> Configured {
    let configured = Configured::new(&format!("{SIMPLE}{more}"));
    configured.play.write("source/a", "a");
    configured.play.write("source/b.iso", "b");
    configured.larder(&["-r", "nas", "init", "--insecure-kdf"]).ok();
    configured
}

/// The summary of a run with `--json`.
fn summary(ran: &Ran) -> Value {
    let summary = ran.json_lines().pop().expect("a summary");
    schema::check("run_summary", &summary);
    summary
}

#[test]
fn repositories_and_profiles_have_names() {
    let it = simple(
        "[profiles.home.backup]\nexclude = [\"*.iso\"]\ntag = [\"nightly\"]\n[profiles.other]\nsources = [\"@/source\"]\n",
    );
    it.larder(&["-P", "home", "backup"]).ok();
    let snapshots = it.larder(&["-r", "@nas", "snapshots", "--json"]).ok().json();
    assert_eq!((&snapshots[0]["series"], &snapshots[0]["tags"][0]), (&"testhost:home".into(), &"nightly".into()));
    let files = it.larder(&["-P", "home", "ls", "latest"]).ok().text();
    assert!(files.contains("/source/a") && !files.contains("b.iso"), "{files}");
    // The only repository needs no name.
    it.larder(&["snapshots"]).ok();
    // What is typed wins; lists add up, and an empty one drops the list of the file.
    it.larder(&["-P", "home", "backup", "--host", "box", "--tag", "more", "--exclude="]).ok();
    let snapshots = it.larder(&["snapshots", "--json"]).ok().json();
    let newest = &snapshots.as_array().expect("a list").last().expect("two");
    assert_eq!((&newest["series"], newest["tags"].as_array().map(Vec::len)), (&"box:home".into(), Some(2)));
    let files = it.larder(&["ls", "latest", "--host", "box"]).ok().text();
    assert!(files.contains("b.iso"), "{files}");
    // `latest` of a profile is its own.
    it.larder(&["-P", "other", "backup"]).ok();
    let files = it.larder(&["-P", "home", "ls", "latest"]).ok().text();
    assert!(!files.contains("b.iso"), "{files}");
    it.larder(&["-r", "@nass", "snapshots"]).code(2).says("did you mean \"nas\"?");
    it.larder(&["-P", "homex", "backup"]).code(2).says("did you mean \"home\"?");
    // A path with a slash is a folder.
    it.larder(&["-r", "./nas", "snapshots", "--password-file", "password"]).ok();
    it.larder(&["-r", "./none", "snapshots", "--password-file", "password"]).code(10);
}

#[test]
fn flags_of_the_file_can_be_turned_off() {
    let it = simple("[profiles.home.backup]\nskip-if-unchanged = true\nexclude-caches = true\n");
    it.larder(&["-P", "home", "backup"]).ok();
    it.larder(&["-P", "home", "backup"]).ok();
    assert_eq!(it.larder(&["snapshots", "--json"]).ok().json().as_array().map(Vec::len), Some(1));
    it.larder(&["-P", "home", "backup", "--skip-if-unchanged=false", "--exclude-caches=true"]).ok();
    assert_eq!(it.larder(&["snapshots", "--json"]).ok().json().as_array().map(Vec::len), Some(2));
    it.larder(&["-P", "home", "backup", "--exclude=false", "--no-such=false"]).code(2);
}

/// Mistakes are found before anything is opened, by every command that uses the file.
#[test]
fn mistakes_of_the_configuration_are_named() {
    let it = Configured::new(SIMPLE);
    for (more, says) in [
        (
            "[profiles.home.forget]\nkeep-dailyx = 7\n",
            "[profiles.home.forget] has no option \"keep-dailyx\"; did you mean \"keep-daily\"?",
        ),
        ("[profiles.home.backupx]\n", "[profiles.home] has no table \"backupx\"; did you mean \"backup\"?"),
        ("exclude = [\"x\"]\n", "[profiles.home] has no option \"exclude\"; it belongs into [profiles.home.backup]"),
        ("schedulex = \"daily\"\n", "[profiles.home] has no option \"schedulex\"; did you mean \"schedule\"?"),
        ("password = \"x\"\n", "passwords may not stand in this file"),
        ("[repositories.two]\nlocation = \"@/two\"\nlimit-uploadx = 5\n", "did you mean \"limit-upload\"?"),
    ] {
        it.rewrite(&format!("{SIMPLE}{more}"));
        for args in [&["snapshots", "-r", "nas"][..], &["run", "home"], &["config", "check"]] {
            let ran = it.larder(args).code(2).says(says).in_two_lines();
            let place = format!("larder.toml:{}:1: ", SIMPLE.lines().count() + 2 - usize::from(!more.starts_with('[')));
            assert!(
                more.contains("two") || more.contains("backupx") || ran.stderr.contains(&place),
                "{place} {}",
                ran.stderr
            );
        }
    }
    // Values are checked where they are used, and all of them at once.
    let more = "[profiles.home.backup]\nexclude = true\n[profiles.home.forget]\nkeep-daily = \"x\"\nprune = \"yes\"\n\
                [profiles.home.check]\nread-data-subset = \"0%\"\n";
    it.rewrite(&format!("{SIMPLE}relax = [\"PrivateTemp\"]\n{more}"));
    let ran = it.larder(&["config", "check"]).code(2);
    for says in [
        "exclude must be a list of strings, and not true or false",
        "invalid value 'x' for '--keep-daily <N>'",
        "prune must be true or false, and not a string",
        "invalid value '0%' for '--read-data-subset",
        "no protection \"PrivateTemp\" to relax; did you mean \"PrivateTmp\"?",
    ] {
        assert!(ran.stderr.contains(says), "{says:?} is not in {}", ran.stderr);
    }
    // Two profiles in one series would forget snapshots of each other.
    let two = "[profiles.home.backup]\nseries = \"testhost:two\"\n[profiles.two]\nsources = [\"@/source\"]\nrepositories = [\"nas\"]\n";
    it.rewrite(&format!("{SIMPLE}{two}"));
    it.larder(&["config", "check"]).ok();
    let two = format!("{two}[profiles.two.forget]\nkeep-last = 1\n");
    it.rewrite(&format!("{SIMPLE}{two}"));
    it.larder(&["config", "check"]).code(2).says("the profiles home and two have the series testhost:two on nas");
    it.rewrite(&format!("{SIMPLE}{two}[profiles.two.backup]\nseries = \"x\"\n"));
    it.larder(&["config", "check"]).ok();
    // A command that does not need the file can go without it.
    it.rewrite("versionx = 1\n");
    it.larder(&["snapshots", "-r", "/none"]).code(2);
    it.larder(&["--config", "/dev/null", "-r", "/none", "snapshots"]).code(10);
    it.larder(&["version"]).ok();
    it.larder(&["--config", "/no/such/file", "run", "home"]).code(2).says("cannot read /no/such/file");
    run(it.command(&["run", "home"]).env("LARDER_CONFIG", "").env("HOME", it.play.path("nobody")))
        .code(2)
        .says("there is no configuration file");
    std::fs::set_permissions(&it.file, PermissionsExt::from_mode(0o666)).expect("ours");
    it.larder(&["config", "check"]).code(2).says("others can write");
}

#[test]
fn the_configuration_is_shown_with_its_places() {
    let it = Configured::new(&format!(
        "{SIMPLE}[profiles.home.backup]\nexclude = [\"*.iso\"]\n[defaults.backup]\nexclude = [\"*.tmp\"]\nexclude-caches = true\n"
    ));
    let ran = it.larder(&["config", "check", "--json"]).ok();
    schema::check("config_check", &ran.json());
    let text = it.larder(&["config", "show"]).ok().text();
    for line in [
        "[profiles.home.backup]",
        "exclude = [\"*.tmp\",\"*.iso\"]  # from ",
        "exclude-caches = true  # from ",
        "larder.toml:15:18",
        "[repositories.nas]",
        "exclude = [\"*.tmp\"]  # from ",
    ] {
        assert!(text.contains(line), "{line:?} is not in {text}");
    }
    assert!(!text.contains(PASSWORD));
    let ran = it.larder(&["config", "show", "home", "--json"]).ok();
    ran.json_lines().iter().for_each(|line| schema::check("config_option", line));
    let schema = it.larder(&["config", "schema"]).ok().json();
    let backup = &schema["properties"]["profiles"]["additionalProperties"]["properties"]["backup"]["properties"];
    assert_eq!(backup["exclude-caches"]["type"], "boolean");
    assert_eq!(backup["exclude"]["type"][2], "array");
}

#[test]
fn a_run_backs_up_forgets_and_maintains() {
    let maintenance = "[repositories.nas.optimize]\nevery = \"1d\"\n[repositories.nas.check]\nevery = \"7d\"\n";
    let it = simple(&format!("[profiles.home.forget]\nkeep-last = 1\n{maintenance}"));
    // Snapshots of others stay, whatever the policy of a profile says.
    it.larder(&["backup", "source", "--series", "other"]).ok();
    it.larder(&["backup", "source", "--series", "other"]).ok();
    let ran = it.larder(&["run", "home", "--json"]).ok();
    let summary_of = summary(&ran);
    let commands: Vec<_> = summary_of["steps"].as_array().expect("steps").iter().map(|step| &step["command"]).collect();
    assert_eq!(commands, ["backup", "forget", "optimize", "check"]);
    assert!(summary_of["steps"][0]["snapshot_id"].is_string());
    for line in ran.json_lines().iter().filter(|line| line["message_type"] != "run_summary") {
        assert_eq!((&line["repository"], line["step"].is_string()), (&"nas".into(), true), "{line}");
    }
    // Maintenance is not due again, and the policy keeps one snapshot of the profile.
    let ran = it.larder(&["run", "home"]).ok();
    assert!(ran.text().contains("== home: backup on nas") && ran.text().contains("Result"), "{}", ran.text());
    assert!(!ran.text().contains("optimize on nas"), "{}", ran.text());
    let snapshots = it.larder(&["snapshots", "--json"]).ok().json();
    let series: Vec<_> = snapshots.as_array().expect("a list").iter().map(|it| &it["series"]).collect();
    assert_eq!(series.iter().filter(|series| **series == "other").count(), 2, "{series:?}");
    assert_eq!(series.iter().filter(|series| **series == "testhost:home").count(), 1, "{series:?}");
    let shown = it.larder(&["schedule", "show"]).ok().text();
    assert!(shown.contains("home") && shown.contains("done") && shown.contains("no schedule"), "{shown}");
    it.larder(&["schedule", "show", "--json"])
        .ok()
        .json_lines()
        .iter()
        .for_each(|it| schema::check("schedule_state", it));
    // A policy is for the profile. Without it, rules are typed, and names take their place.
    it.larder(&["-r", "nas", "forget"]).code(2).says("neither snapshots nor a policy were given");
    let other = snapshots.as_array().expect("a list").iter().find(|it| it["series"] == "other").expect("one");
    it.larder(&["-P", "home", "forget", other["id"].as_str().expect("an id")]).ok();
    // `latest` is the newest of the profile, also beside other filters.
    let left = || it.larder(&["snapshots", "--no-free", "--json"]).ok().json();
    let of_other = |list: Value| list.as_array().expect("a list").iter().filter(|it| it["series"] == "other").count();
    it.larder(&["backup", "source", "--series", "other", "--tag", "nightly"]).ok();
    let before = of_other(left());
    it.larder(&["-P", "home", "forget", "latest"]).ok();
    it.larder(&["-P", "home", "forget", "--keep-last", "1", "--tag", "nightly"]);
    assert_eq!(of_other(left()), before, "a profile forgets nothing of others");
    // A profile runs on repositories of the file that it uses, and on no others.
    it.larder(&["-r", "/some/folder", "run", "home"]).code(2).says("repositories of the configuration only");
    // Quiet: nothing at all.
    assert_eq!(it.larder(&["run", "home", "-q"]).ok().text(), "");
}

#[test]
fn a_dry_run_changes_nothing() {
    let it = simple("[profiles.home.forget]\nkeep-last = 1\n[profiles.home.hooks]\nbefore = \"touch @/hook\"\n");
    let objects = || crate::support::damage::objects(&it.play.path("nas"));
    let before = objects();
    let ran = it.larder(&["run", "--all", "--dry-run", "--json"]).ok();
    assert_eq!(summary(&ran)["dry_run"], true);
    assert_eq!(objects(), before);
    assert!(!it.play.path("hook").exists());
    it.larder(&["schedule", "show"]).ok().text().contains("never").then_some(()).expect("nothing is remembered");
}

#[test]
fn hooks_are_told_what_happened() {
    let hooks = r#"
[profiles.home.hooks]
before = ["echo before >> @/log", { run = ["touch", "@/a file"] }]
after = "echo after $LARDER_EXIT_CODE >> @/log; cat > @/run.json"
failed = "echo failed $LARDER_EXIT_CODE $LARDER_ERROR >> @/log"
finally = "echo finally >> @/log"
[profiles.home.backup.hooks]
before = "echo backup before $LARDER_REPOSITORY >> @/log"
after = "echo backup after $LARDER_SNAPSHOT >> @/log; cat > @/backup.json; env > @/env"
"#;
    let it = simple(hooks);
    run(it.command(&["run", "home"]).env("AWS_SECRET_ACCESS_KEY", "hush").env("LARDER_PASSWORD", PASSWORD)).ok();
    let backup: Value = serde_json::from_str(&it.text("backup.json")).expect("JSON");
    let id = backup["snapshot_id"].as_str().expect("an id");
    let log = it.text("log");
    assert_eq!(log, format!("before\nbackup before nas\nbackup after {id}\nafter 0\nfinally\n"));
    schema::check("run_summary", &serde_json::from_str(&it.text("run.json")).expect("JSON"));
    assert!(it.play.path("a file").exists());
    let env = it.text("env");
    assert!(!env.contains("hush") && !env.contains(PASSWORD) && env.contains("LARDER_COMMAND=backup"), "{env}");
}

/// A hook before the backup that fails stops it; the ones for failures run, and their own failure
/// is no success.
#[test]
fn a_failing_hook_stops_the_profile() {
    let hooks = "[profiles.home.hooks]\nbefore = \"echo no disk; exit 7\"\nfailed = \"echo $LARDER_ERROR > @/failed\"\n\
                 [profiles.home.forget]\nkeep-last = 1\n";
    let it = simple(hooks);
    let ran = it.larder(&["run", "home", "--json"]).code(1);
    let run_summary = summary(&ran);
    assert_eq!(run_summary["steps"].as_array().map(Vec::len), Some(1), "{run_summary}");
    assert_eq!(it.text("failed"), "profile home: the before hook \"echo\" ended with code 7\n");
    it.larder(&["run", "home"])
        .code(1)
        .says("profile home: the before hook \"echo\" ended with code 7")
        .says("no disk");
    assert_eq!(it.larder(&["snapshots", "--json"]).ok().json().as_array().map(Vec::len), Some(0));
    // A warning stops nothing.
    let hook = "[profiles.home.hooks]\nbefore = { run = \"exit 7\", on-error = \"warn\" }\n";
    it.rewrite(&format!("{SIMPLE}{hook}"));
    it.larder(&["run", "home"]).ok().says("hook \"exit\" ended with code 7");
    // One that hangs is stopped.
    let hook = "[profiles.home.hooks]\nafter = { run = [\"sleep\", \"1000\"], timeout = \"1s\" }\n";
    it.rewrite(&format!("{SIMPLE}{hook}"));
    it.larder(&["run", "home"]).code(1).says("hook \"sleep\" did not end within 1s and was stopped");
}

/// A repository that cannot be opened fails its own steps, and hooks of failures run.
#[test]
fn a_failed_backup_prevents_its_policy_and_nothing_else() {
    let two = "[repositories.gone]\nlocation = \"@/gone\"\ncredential = \"home\"\n[profiles.both]\nsources = [\"@/source\"]\n\
               repositories = [\"gone\", \"nas\"]\n[profiles.both.forget]\nkeep-last = 1\n";
    let it = simple(two);
    let ran = it.larder(&["run", "both", "--json"]).code(10);
    let run_summary = summary(&ran);
    let steps: Vec<_> = run_summary["steps"]
        .as_array()
        .expect("steps")
        .iter()
        .map(|step| {
            (
                step["repository"].as_str().unwrap_or_default(),
                step["command"].as_str().unwrap_or_default(),
                step["exit_code"].as_i64(),
            )
        })
        .collect();
    assert_eq!(steps, [("gone", "backup", Some(10)), ("nas", "backup", Some(0)), ("nas", "forget", Some(0))]);
    let ran = it.larder(&["run", "both"]).code(10).says("repository gone");
    assert!(ran.stderr.contains("`larder -r gone init` creates it"), "{}", ran.stderr);
    // Only the named repository.
    it.larder(&["-r", "nas", "run", "both"]).ok();
}

/// A wrong password is found before the first hook runs.
#[test]
fn a_wrong_password_costs_nothing() {
    let it = simple(
        "[profiles.home.backup.hooks]\nbefore = \"touch @/hook\"\n[profiles.home.hooks]\nfailed = \"touch @/failed\"\n",
    );
    it.play.write("password", "wrong");
    it.larder(&["run", "home"]).code(12);
    assert!(it.play.path("failed").exists(), "somebody is told");
    run(&mut it.command(&["-P", "home", "backup"])).code(12);
}

/// Starts a run whose hook waits until a file is there.
fn waiting_run(it: &Configured) -> std::process::Child {
    let child = it.play.spawn(&mut it.command(&["run", "home"]));
    let started = Instant::now();
    while !it.play.path("begun").exists() {
        assert!(started.elapsed() < Duration::from_secs(60), "the hook starts");
        std::thread::sleep(Duration::from_millis(10));
    }
    child
}

/// The hook ends at last, also when nobody lets it go: a test that fails must not hang.
const WAITS: &str = "[profiles.home.hooks]\n\
    before = \"touch @/begun; i=0; while ! test -e @/go && test $i -lt 6000; do sleep 0.05; i=$((i+1)); done\"\n\
    finally = \"echo finally $LARDER_EXIT_CODE > @/finally\"\n";

#[test]
fn one_run_of_a_profile_at_a_time() {
    let it = simple(WAITS);
    let child = waiting_run(&it);
    let says = format!("(process {})", child.id());
    it.larder(&["run", "home"]).code(11).says("profile home is running since 20").says(&says).in_two_lines();
    // A dry run disturbs nobody.
    it.larder(&["run", "home", "--dry-run"]).ok();
    let waiting = it.play.spawn(&mut it.command(&["run", "home", "--wait", "1m"]));
    it.play.write("go", "");
    for child in [child, waiting] {
        Ran::from(child.wait_with_output().expect("it ends")).ok();
    }
    assert_eq!(it.larder(&["snapshots", "--json"]).ok().json().as_array().map(Vec::len), Some(2));
}

#[test]
fn an_interrupted_run_ends_with_its_last_hooks() {
    let it = simple(WAITS);
    let child = waiting_run(&it);
    Command::new("kill").arg("-INT").arg(child.id().to_string()).status().expect("kill runs");
    let ran = Ran::from(child.wait_with_output().expect("it ends")).code(130);
    assert!(ran.stderr.contains("was interrupted"), "{}", ran.stderr);
    assert_eq!(it.text("finally"), "finally 130\n");
    // The next run is not hindered.
    it.play.write("go", "");
    it.larder(&["run", "home"]).ok();
}

/// A reader that went away ends the steps, and not the hooks and messages.
#[test]
fn a_closed_output_prevents_no_hook_and_no_message() {
    let hooks = "[profiles.home.hooks]\nfinally = \"echo finally >> @/told\"\n[profiles.home.backup.hooks]\n\
                 finally = \"echo backup $LARDER_EXIT_CODE >> @/told\"\n[notify.me]\nkind = \"command\"\n\
                 run = \"echo $LARDER_EVENT $LARDER_EXIT_CODE >> @/told\"\n";
    let it = simple(hooks);
    let mut command = it.command(&["run", "home", "--verbose"]);
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let ended = command.stdout(writer).stderr(Stdio::null()).status().expect("it runs");
    assert_eq!(ended.code(), Some(141));
    assert_eq!(it.text("told"), "backup 141\nfinally\nfailure 141\n");
}

/// A configuration that nobody can run is a failure that people are told about.
#[test]
fn mistakes_of_the_configuration_are_told() {
    let notify = "[notify.me]\nkind = \"command\"\nrun = \"echo $LARDER_EVENT $LARDER_PROFILE >> @/told\"\n\
                  on = [\"failure\", \"recovery\"]\n[metrics]\nfile = \"@/larder.prom\"\n";
    let it = simple(notify);
    let sound = format!("{SIMPLE}schedule = \"monthly\"\n{notify}");
    // A value that the program refuses, a key that it does not know, and a wrong file.
    it.rewrite(&format!("{sound}[profiles.home.forget]\nkeep-daily = \"x\"\n"));
    it.larder(&["run", "home"]).code(2).says("keep-daily");
    assert!(
        it.text("larder.prom").contains("larder_run_exit_code{profile=\"home\",repository=\"\",command=\"run\"} 2")
    );
    it.rewrite(&format!("{sound}[profiles.home.forget]\nkeep-dailyx = 5\n"));
    it.larder(&["run", "home"]).code(2).says("keep-dailyx");
    it.rewrite(&format!("{sound}[profiles.odd]\nschedule = \"sometimes\"\n"));
    it.larder(&["run", "home"]).code(2).says("is no schedule");
    assert_eq!(it.text("told"), "failure home\nfailure home\nfailure home\n");
    // A dry run tells nobody, and neither do other verbs. What is due is told once a day.
    it.larder(&["run", "home", "--dry-run"]).code(2);
    it.larder(&["-r", "nas", "snapshots"]).code(2);
    it.larder(&["run", "--due"]).code(2);
    it.larder(&["run", "--due"]).code(2);
    assert_eq!(it.text("told").lines().skip(3).collect::<Vec<_>>(), ["failure configuration"]);
    it.rewrite(&sound);
    // A profile without a repository is a mistake, too.
    it.rewrite(&format!(
        "{}{notify}[repositories.two]\nlocation = \"@/two\"\n",
        sound.replace("repositories = [\"nas\"]\n", "").replace(notify, "")
    ));
    it.larder(&["run", "home"]).code(2);
    assert_eq!(it.text("told").lines().skip(4).collect::<Vec<_>>(), ["failure home"]);
    it.rewrite(&sound);
    // A wrong command is no mistake of the configuration. And what a mistake has prevented is due.
    it.larder(&["run", "nobody"]).code(2);
    it.larder(&["run", "--due"]).ok();
    assert!(it.text("told").ends_with("recovery home\n"), "{}", it.text("told"));
}

/// Two runs that are due together maintain a repository once.
#[test]
fn maintenance_is_run_once() {
    let more = "[repositories.nas.optimize]\nevery = \"1d\"\n[profiles.two]\nsources = [\"@/source\"]\n\
                repositories = [\"nas\"]\n";
    let it = simple(more);
    // Somebody maintains it: this test.
    it.larder(&["run", "home"]).ok();
    let runs = it.play.path("state/runs");
    let journal = runs.join("runs.jsonl");
    let text = std::fs::read_to_string(&journal).expect("a journal");
    let without: Vec<_> = text.lines().filter(|line| !line.contains("\"optimize\"")).collect();
    std::fs::write(&journal, without.join("\n") + "\n").expect("written");
    let lock = std::fs::File::options().write(true).open(runs.join("maintenance-nas.lock")).expect("a lock");
    lock.lock().expect("free");
    let steps = |ran: &Ran| summary(ran)["steps"].as_array().expect("steps").len();
    let ran = it.larder(&["run", "two", "--json"]).ok();
    assert_eq!(steps(&ran), 1, "it does not wait: {}", ran.text());
    lock.unlock().expect("held");
    let ran = it.larder(&["run", "two", "--json"]).ok();
    assert_eq!(steps(&ran), 2, "{}", ran.text());
}

/// Runs that were missed, killed or interrupted are due, and others are not.
#[test]
fn due_profiles_run_once() {
    let it = simple(&format!("{WAITS}[profiles.never]\nsources = [\"@/source\"]\n"));
    it.rewrite(&format!("{SIMPLE}schedule = \"monthly\"\n{WAITS}[profiles.never]\nsources = [\"@/source\"]\n"));
    let mut child = it.play.spawn(&mut it.command(&["run", "--due"]));
    let started = Instant::now();
    while !it.play.path("begun").exists() {
        assert!(started.elapsed() < Duration::from_secs(60), "the hook starts");
        std::thread::sleep(Duration::from_millis(10));
    }
    // One that runs is left alone.
    let ran = it.larder(&["run", "--due", "--json"]).ok();
    assert_eq!(summary(&ran)["steps"].as_array().map(Vec::len), Some(0));
    child.kill().expect("it can be killed");
    child.wait().expect("it ends");
    it.play.write("go", "");
    let ran = it.larder(&["run", "--due", "--json"]).ok();
    assert_eq!(summary(&ran)["steps"][0]["profile"], "home");
    let ran = it.larder(&["run", "--due"]).ok();
    assert!(ran.text().contains("no profile is due"), "{}", ran.text());
}

/// One password for two repositories is asked for once. Needs `script` for a terminal.
#[test]
fn one_prompt_for_all_repositories() {
    let two = "[repositories.two]\nlocation = \"@/two\"\ncredential = \"home\"\n";
    let it = simple(two);
    it.larder(&["-r", "two", "init", "--insecure-kdf"]).ok();
    let prompt = SIMPLE.replace("password-file = \"@/password\"", "prompt = true");
    it.rewrite(&format!("{}{two}", prompt.replace("[\"nas\"]", "[\"nas\", \"two\"]")));
    it.larder(&["run", "home"]).code(12).says("no terminal to ask on");
    let line = format!("{} run home", env!("CARGO_BIN_EXE_larder"));
    let template = it.command(&[]);
    let mut script = Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).current_dir(it.play.path(""));
    for (name, value) in template.get_envs() {
        match value {
            Some(value) => script.env(name, value),
            None => script.env_remove(name),
        };
    }
    let Ok(mut child) = script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn() else {
        return;
    };
    let mut stdin = child.stdin.take().expect("a pipe");
    // A second question would be answered, and counted.
    std::io::Write::write_all(&mut stdin, format!("{PASSWORD}\n{PASSWORD}\n").as_bytes()).expect("typed");
    let output = child.wait_with_output().expect("it ends");
    drop(stdin);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert_eq!(text.matches("password of the repository").count(), 1, "{text}");
    assert!(text.contains("backup on two"), "{text}");
}

/// Credentials of a storage are in a file that only its owner reads.
#[test]
fn environment_files_are_secrets() {
    let it = Configured::new(
        &SIMPLE.replace("credential = \"home\"\n", "credential = \"home\"\nenvironment-file = \"@/env\"\n"),
    );
    it.play.write("env", "AWS_ACCESS_KEY_ID=me\nAWS_SECRET_ACCESS_KEY=hush\n");
    std::fs::set_permissions(it.play.path("env"), PermissionsExt::from_mode(0o644)).expect("ours");
    it.larder(&["-r", "nas", "snapshots"]).code(15).says("can be read by others (mode 0644)").in_two_lines();
    std::fs::set_permissions(it.play.path("env"), PermissionsExt::from_mode(0o600)).expect("ours");
    it.larder(&["-r", "nas", "snapshots"]).code(10);
    it.play.write("env", "AWS_ACCESS_KEY_ID\n");
    let ran = it.larder(&["-r", "nas", "snapshots"]).code(2).says("env:1: write NAME=value");
    assert!(!ran.stderr.contains("AWS_ACCESS"), "{}", ran.stderr);
}
