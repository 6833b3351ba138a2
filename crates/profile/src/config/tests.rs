//! Configurations as they are read: tables, inheritance, included files, and mistakes with their
//! places.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::*;
use crate::hooks::Program;

fn loaded(text: &str) -> Result<Config, String> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("larder.toml");
    std::fs::write(&path, text).expect("written");
    load_file(&path).map_err(|error| error.replace(&format!("{}/", folder.path().display()), ""))
}

fn load_file(path: &Path) -> Result<Config, String> {
    let env = |name: &str| (name == "HOME").then(|| "/home/me".to_owned());
    load(path, &Variables { hostname: "box", env: &env }).map_err(|error| error.to_string())
}

const REPOSITORIES: &str = "[repositories.nas]\nlocation = \"/srv/nas\"\n[repositories.cloud]\nlocation = \"s3://b\"\n";

#[test]
fn a_whole_configuration_is_read() {
    let config = loaded(
        r#"
        version = 1
        [credentials.home]
        password-file = "/etc/larder/password"
        [repositories.nas]
        location = "/srv/${hostname}"
        credential = "home"
        limit-upload = "10MiB"
        optimize = { every = "1d", max-duration = "1h" }
        [defaults]
        threads = 2
        [defaults.backup]
        exclude-caches = true
        [profiles.home]
        sources = ["${HOME}", "/etc"]
        repositories = ["nas"]
        schedule = ["daily 02:30", "Mon 12:00"]
        random-delay = "30m"
        [profiles.home.backup]
        exclude = ["*.iso", "$${x}"]
        hooks = { before = "mount /snap" }
        [profiles.home.series.set]
        layout = "standard"
        [profiles.home.hooks]
        before = ["echo ${env:X}", { run = ["/bin/true", "a b"], timeout = "10m", on-error = "warn" }]
        failed = "logger failed"
        [notify.hc]
        kind = "healthchecks"
        url-file = "/etc/larder/url"
        [metrics]
        file = "/var/lib/x.prom"
        "#,
    )
    .expect("a configuration");
    let nas = config.repository("nas").expect("it is there");
    assert_eq!((nas.location.value.as_str(), nas.location.place.line), ("/srv/box", 6));
    assert_eq!(nas.every.get("optimize"), Some(&Duration::from_secs(86_400)));
    assert_eq!(nas.options.of_verb(&["optimize".to_owned()]).count(), 1);
    assert_eq!(nas.options.general[0].key, "limit-upload");
    assert_eq!(config.credential_of(nas).expect("it has one").options[0].key, "password-file");
    let home = config.profile("home").expect("it is there");
    assert_eq!(home.sources.iter().map(|source| &*source.value).collect::<Vec<_>>(), ["/home/me", "/etc"]);
    assert_eq!(home.schedule.as_ref().expect("one").value.systemd(), ["*-*-* 02:30", "Mon *-*-* 12:00"]);
    let verbs: Vec<_> = home.options[0].verbs.iter().map(|options| options.table.as_str()).collect();
    assert_eq!(verbs, ["profiles.home.backup", "profiles.home.series.set", "profiles.home.series"]);
    assert_eq!(home.hooks.before[0].program, Program::Shell("echo ${env:X}".to_owned()), "the shell's own");
    assert_eq!(home.hooks.before[1].timeout, Duration::from_secs(600));
    assert_eq!(home.verb_hooks["backup"].before.len(), 1);
    assert_eq!(config.notify[0].on, [Event::Start, Event::Success, Event::Warning, Event::Failure]);
    let exclude = home.options[0].of_verb(&["backup".to_owned()]).next().map(|entry| format!("{:?}", entry.node.value));
    assert!(exclude.is_some_and(|list| list.contains("\"${x}\"")), "$${{ stands for ${{");
}

#[test]
fn mistakes_are_named_with_their_place() {
    for (text, error) in [
        ("versionx = 1", "larder.toml:1:1: there is no \"versionx\" in this file; did you mean \"version\"?"),
        ("version = 2", "larder.toml:1:11: only version 1 of this file is known"),
        ("a = 1 b", "larder.toml:1:"),
        ("[repositories.x]\n", "larder.toml:1:15: [repositories.x] has no location; add location = \"…\""),
        ("[repositories.x]\nlocation = \"/x\"\ncredential = \"y\"\n", "larder.toml:3:14: there is no credential \"y\""),
        ("[repositories.x]\nlocation = 5\n", "larder.toml:2:12: location must be a string"),
        ("[repositories.\"a/b\"]\n", "larder.toml:1:15: names have up to 64 letters"),
        ("[profiles.x]\nrepositories = [\"nass\"]\n", "larder.toml:2:17: there is no repository \"nass\""),
        ("[profiles.x]\nsources = [1]\n", "larder.toml:2:12: sources must be a list of strings"),
        ("[profiles.x]\nschedule = \"sometimes\"\n", "larder.toml:2:12: \"sometimes\" is no schedule"),
        (
            "[profiles.x]\nschedule = \"daily\"\noncalendar = \"Mon\"\n",
            "larder.toml:3:14: a profile has one schedule: the other one is at larder.toml:2:1",
        ),
        (
            "[profiles.x]\npassword = \"p\"\n",
            "larder.toml:2:1: passwords may not stand in this file; use password-file",
        ),
        ("[credentials.x]\npassword = \"p\"\n", "larder.toml:2:1: passwords may not stand in this file"),
        ("[credentials.x]\n", "larder.toml:1:14: [credentials.x] needs one of key-file"),
        (
            "[profiles.x.hooks]\nbeforex = \"x\"\n",
            "larder.toml:2:1: [profiles.x.hooks] has no \"beforex\"; did you mean",
        ),
        ("[profiles.x]\ninherit = \"x\"\n", "larder.toml:2:11: profile \"x\" inherits from itself"),
        ("[profiles.x]\nsources = \"${HOMEX}\"\n", "larder.toml:2:11: ${HOMEX} is not known"),
        ("[profiles.x]\nsources = \"${env:NO}\"\n", "larder.toml:2:11: the variable NO is not set"),
        ("[profiles.x]\nrepo = \"/x\"\n", "larder.toml:2:1: repo has no place in this file"),
        ("[profiles.x.check]\nevery = \"1d\"\n", "larder.toml:2:1: every belongs to a repository"),
        ("[notify.x]\nkind = \"ntfy\"\nurl = \"https://x\"\n", "larder.toml:3:1: an address is a secret"),
        ("[notify.x]\nkind = \"mail\"\n", "larder.toml:2:8: kind is healthchecks, ntfy, webhook or command"),
    ] {
        let found = loaded(text).expect_err(text);
        assert!(found.starts_with(error), "{text:?}: {found}");
    }
}

#[test]
fn profiles_inherit() {
    let config = loaded(&format!(
        "{REPOSITORIES}[profiles.base]\nsources = [\"/a\"]\nrepositories = [\"nas\"]\nschedule = \"daily\"\n\
         [profiles.base.backup]\nexclude = [\"x\"]\n[profiles.b]\ninherit = \"base\"\nsources = [\"/b\"]\n"
    ))
    .expect("a configuration");
    let b = config.profile("b").expect("it is there");
    assert_eq!((b.sources[0].value.as_str(), b.repositories[0].value.as_str()), ("/b", "nas"));
    assert!(b.schedule.is_some() && b.options.len() == 2);
}

/// Each event of hooks is inherited by itself.
#[test]
fn hooks_are_inherited_event_by_event() {
    let config = loaded(&format!(
        "{REPOSITORIES}[profiles.base.hooks]\nbefore = \"a\"\nfailed = \"tell\"\nfinally = \"b\"\n\
         [profiles.base.backup.hooks]\nbefore = \"c\"\nfinally = \"d\"\n\
         [profiles.b]\ninherit = \"base\"\n[profiles.b.hooks]\nbefore = \"e\"\nfinally = []\n\
         [profiles.b.backup.hooks]\nfinally = \"f\"\n[profiles.c]\ninherit = \"b\"\n"
    ))
    .expect("a configuration");
    for name in ["b", "c"] {
        let profile = config.profile(name).expect("it is there");
        let lines = |hooks: &[crate::hooks::Hook]| {
            let lines = hooks.iter().map(|hook| match &hook.program {
                Program::Shell(line) => line.clone(),
                other => panic!("{other:?}"),
            });
            lines.collect::<Vec<_>>()
        };
        let of_all = [&profile.hooks.before, &profile.hooks.failed, &profile.hooks.finally].map(|hooks| lines(hooks));
        assert_eq!(of_all, [vec!["e".to_owned()], vec!["tell".to_owned()], vec![]], "{name}");
        let of_backup = &profile.verb_hooks["backup"];
        assert_eq!((lines(&of_backup.before), lines(&of_backup.finally)), (vec!["c".to_owned()], vec!["f".to_owned()]));
    }
}

/// Those who wait for a message are known, whatever else is wrong.
#[test]
fn notifications_of_a_file_with_a_mistake_are_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("larder.toml");
    let text = "[profiles.x]\nschedule = \"sometimes\"\n[notify.bad]\nkind = \"mail\"\n\
                [notify.me]\nkind = \"command\"\nrun = \"true\"\n";
    std::fs::write(&path, text).expect("written");
    assert!(load_file(&path).is_err());
    let found = super::notifications(&path, &Variables { hostname: "box", env: &|_| None });
    assert_eq!(found.iter().map(|notify| &*notify.name).collect::<Vec<_>>(), ["me"]);
    // Its program would run as the reader.
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).expect("ours");
    assert!(super::notifications(&path, &Variables { hostname: "box", env: &|_| None }).is_empty());
}

#[test]
fn other_files_are_included_and_names_are_defined_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("written");
    std::fs::create_dir(folder.path().join("conf.d")).expect("made");
    write("larder.toml", &format!("include = [\"conf.d/*.toml\"]\n{REPOSITORIES}"));
    write("conf.d/b.toml", "[profiles.b]\n");
    write("conf.d/a.toml", "[profiles.a]\n");
    write("conf.d/notes.txt", "no configuration");
    let path = folder.path().join("larder.toml");
    let config = load_file(&path).expect("a configuration");
    assert_eq!((config.profile_names(), config.files.len()), ("a, b".to_owned(), 3));
    write("conf.d/c.toml", "\n[profiles.a]\n");
    let error = load_file(&path).expect_err("twice");
    assert!(error.contains("c.toml:2:11: profile \"a\" is defined twice; the other one is at"), "{error}");
    assert!(error.contains("a.toml:1:11"), "{error}");
    write("conf.d/c.toml", "[defaults]\n");
    assert!(load_file(&path).expect_err("no defaults there").contains("belongs into the main file"));
}

/// Hooks of a file run with the rights of its reader.
#[test]
fn files_that_others_can_write_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("larder.toml");
    std::fs::write(&path, "version = 1\n").expect("written");
    for mode in [0o620, 0o602, 0o666] {
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("ours");
        assert!(load_file(&path).expect_err("refused").contains("others can write"), "{mode:o}");
    }
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).expect("ours");
    load_file(&path).expect("accepted");
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&path, Some(65534), None).expect("root may");
        assert!(load_file(&path).expect_err("refused").contains("belongs to another user (uid 65534)"));
    }
    load_file(Path::new("/dev/null")).expect("an empty one");
    assert!(load_file(folder.path()).is_err());
}
