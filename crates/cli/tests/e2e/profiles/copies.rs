//! `copy-from`: copies into other repositories as a part of runs.

use super::*;

const PASSWORD_OF_CLOUD: &str = "of the cloud";

const CLOUD: &str = r#"
schedule = "daily"
[repositories.cloud]
location = "@/cloud"
password-file = "@/other"
[repositories.cloud.copy-from.nas]
"#;

/// A second repository, which gets copies of the first one. `more` are settings of these.
fn with_cloud(more: &str) -> Configured {
    let it = simple("");
    it.play.write("other", PASSWORD_OF_CLOUD);
    it.rewrite(&format!("{SIMPLE}{CLOUD}{more}"));
    it.larder(&["-r", "cloud", "init", "--insecure-kdf"]).ok();
    it
}

fn steps(ran: &Ran) -> Vec<(String, i64)> {
    let summary = summary(ran);
    let steps = summary["steps"].as_array().expect("steps").iter();
    let step = |step: &Value| {
        let from = step["from_repository"].as_str().map_or_else(String::new, |from| format!(" from {from}"));
        let (command, on) = (step["command"].as_str().expect("text"), step["repository"].as_str().expect("text"));
        (format!("{command}{from} on {on}"), step["exit_code"].as_i64().expect("a code"))
    };
    steps.map(step).collect()
}

fn in_cloud(it: &Configured) -> Vec<Value> {
    it.larder(&["-r", "cloud", "snapshots", "--json"]).ok().json().as_array().expect("a list").clone()
}

#[test]
fn copies_follow_the_backup() {
    let it = with_cloud("every = \"1d\"\nseries = [\"testhost:home\"]\n[metrics]\nfile = \"@/larder.prom\"\n");
    let dry = it.larder(&["run", "home", "--dry-run", "--json"]).ok();
    assert_eq!(steps(&dry)[1], ("copy from nas on cloud".to_owned(), 0), "before the first backup");
    it.larder(&["-r", "nas", "backup", "source", "--series", "other"]).ok();
    let dry = it.larder(&["-r", "nas", "run", "home", "--json"]).ok();
    assert_eq!(steps(&dry), [("backup on nas".to_owned(), 0)], "--repo names the only repository");
    assert!(in_cloud(&it).is_empty());
    let dry = it.larder(&["run", "home", "--dry-run", "--json"]).ok();
    assert_eq!(steps(&dry)[1], ("copy from nas on cloud".to_owned(), 0));
    assert!(in_cloud(&it).is_empty());
    let ran = it.larder(&["run", "home", "--json"]).ok();
    assert_eq!(steps(&ran), [("backup on nas".to_owned(), 0), ("copy from nas on cloud".to_owned(), 0)]);
    let copies = in_cloud(&it);
    assert!(copies.iter().all(|copy| copy["series"] == "testhost:home" && copy["origin"].is_object()), "{copies:#?}");
    assert_eq!(copies.len(), 2, "and none of the series other");
    let metrics = it.text("larder.prom");
    for sample in
        ["larder_copy_snapshots{repository=\"cloud\",from=\"nas\"} 2", "larder_snapshots{repository=\"cloud\""]
    {
        assert!(metrics.contains(sample), "{sample} is not in\n{metrics}");
    }
    // It is not due again, and then the other repository may be away.
    std::fs::rename(it.play.path("cloud"), it.play.path("away")).expect("moved");
    assert_eq!(steps(&it.larder(&["run", "home", "--json"]).ok()), [("backup on nas".to_owned(), 0)]);
    std::fs::rename(it.play.path("away"), it.play.path("cloud")).expect("moved");
    // What is typed has the options of the table, too.
    it.larder(&["-r", "cloud", "copy", "--from-repo", "nas"]).ok();
    assert_eq!(in_cloud(&it).len(), 3);
    let shown = it.larder(&["config", "show"]).ok().text();
    assert!(shown.contains("[repositories.cloud.copy-from.nas]") && shown.contains("every = \"1d\""), "{shown}");
    let units = it.larder(&["schedule", "install", "--with", "systemd", "--print"]).ok().text();
    assert!(units.contains(&format!("ReadWritePaths=-{}", it.play.path("cloud").display())), "{units}");
}

/// Goal: without `every`, each run copies; a mirror forgets; a failure counts, and prevents no backup.
#[test]
fn mirrors_forget_and_failures_count() {
    let it = with_cloud("delete = true\n");
    it.larder(&["run", "home"]).ok();
    it.larder(&["run", "home"]).ok();
    assert_eq!(in_cloud(&it).len(), 2);
    it.larder(&["-P", "home", "forget", "latest~1"]).ok();
    let ran = it.larder(&["run", "home"]).ok().text();
    assert!(ran.contains("== copy from nas on cloud") && ran.contains("forgot 1 snapshot"), "{ran}");
    assert_eq!(in_cloud(&it).len(), 2, "one was forgotten and one came");
    // The repository is away: the backup is made, and the run tells it.
    std::fs::rename(it.play.path("cloud"), it.play.path("away")).expect("moved");
    let ran = it.larder(&["run", "home", "--json"]).code(10);
    assert_eq!(steps(&ran), [("backup on nas".to_owned(), 0), ("copy from nas on cloud".to_owned(), 10)]);
    std::fs::rename(it.play.path("away"), it.play.path("cloud")).expect("moved");
    // Damage of an original: the others are copied, and the exit code is that of the copy.
    let known = crate::support::damage::named(&it.play.path("nas"), "data/");
    it.play.write("source/a", crate::support::tree::noise(1, 300_000));
    it.larder(&["-P", "home", "backup"]).ok();
    let all = crate::support::damage::named(&it.play.path("nas"), "data/");
    for name in all.iter().filter(|name| !known.contains(name)) {
        crate::support::damage::flip(&it.play.path("nas"), name, 5_000);
    }
    std::fs::remove_file(it.play.path("source/a")).expect("removed");
    let ran = it.larder(&["run", "home", "--json"]).code(13);
    assert_eq!(steps(&ran), [("backup on nas".to_owned(), 0), ("copy from nas on cloud".to_owned(), 13)]);
}

#[test]
fn mistakes_of_copies_are_named() {
    let it = with_cloud("");
    let [own, other] = ["[repositories.cloud.copy-from.cloud]\n", "[repositories.cloud.copy-from.nass]\n"];
    for (more, says) in [
        ("latestx = 1\n", "[repositories.cloud.copy-from.nas] has no option \"latestx\"; did you mean \"latest\"?"),
        ("dry-run = true\n", "[repositories.cloud.copy-from.nas] cannot have dry-run"),
        ("from-repo = \"/x\"\n", "names the other repository already; leave out from-repo"),
        ("every = 1\n", "every must be a string such as \"7d\""),
        ("latest = 1\ndelete = true\n", "delete and latest exclude each other"),
        ("latest = 0\n", "copies from nas into cloud: --latest is at least 1"),
        (own, "a repository gets no copies from itself"),
        (other, "there is no repository \"nass\"; did you mean \"nas\"?"),
        ("[profiles.home.copy-from.nas]\n", "copies belong to the repository that gets them"),
    ] {
        it.rewrite(&format!("{SIMPLE}{CLOUD}{more}"));
        it.larder(&["config", "check"]).code(2).says(says);
        it.larder(&["run", "home"]).code(2).says(says);
    }
}
