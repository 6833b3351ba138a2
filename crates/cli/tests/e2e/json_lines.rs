//! The shape of JSON lines, for all verbs: wrappers such as resticprofile take a line for a message only if it begins with
//! `{"message_type":"`.

use crate::support::{Play, Ran, schema};

/// Verbs whose JSON other tests read, through the same check: they need a mount, a socket or minutes.
const ELSEWHERE: [&str; 5] = ["mount", "serve-block", "serve-webdav", "gnode", "volume"];
/// Verbs without JSON.
const WITHOUT: [&str; 4] = ["completions", "man", "help", "serve-sftp"];

/// Goal: in the JSON of every verb, on both outputs, `message_type` comes first in each object that has one.
#[test]
fn the_type_of_a_message_comes_first() {
    let play = Play::new();
    play.write("source/a", "one");
    play.write("source/unreadable/b", "two");
    let config = play.write(
        "larder.toml",
        format!(
            "version = 1\n[credentials.c]\npassword-command = \"echo '{}'\"\n[repositories.r]\nlocation = \"{}\"\n\
             credential = \"c\"\n[profiles.p]\nsources = [\"{}\"]\nrepositories = [\"r\"]\nschedule = \"daily\"\n",
            crate::support::PASSWORD,
            play.repository().display(),
            play.path("source").display()
        ),
    );
    let config = config.to_str().expect("text");
    play.write("images.toml", "[[image]]\nsource = \"source/a\"\n");
    let mut objects = 0;
    let mut verbs: Vec<&str> = Vec::new();
    for line in [
        &["init", "--insecure-kdf"][..],
        &["init", "--insecure-kdf"],
        &["backup", "source", "-vv", "--tag", "t", "--log-level", "info"],
        &["backup", "source", "absent"],
        &["backup", "source", "--estimate"],
        &["snapshots"],
        &["snapshots", "--group-by", "host"],
        &["ls", "latest"],
        &["find", "a"],
        &["diff", "latest~1", "latest", "--metadata"],
        &["history", "source/a"],
        &["stats"],
        &["stats", "--by", "tag"],
        &["restore", "latest", "--target", "back", "-v"],
        &["restore", "latest", "--target", "back2", "--estimate"],
        &["restore", "latest", "--target", "back3", "--plan"],
        &["dump", "latest:/", "--target", "dumped"],
        &["check", "--read-data"],
        &["check", "--read-data", "--workers", "2"],
        &["check", "--estimate"],
        &["drill", "--no-write"],
        &["drill", "--estimate"],
        &["pin", "latest"],
        &["unpin", "latest"],
        &["tag", "--add", "u", "latest"],
        &["rewrite", "latest", "--exclude", "absent", "--new-host", "other", "--dry-run"],
        &["copy", "--from-repo", "repository", "--from-insecure-no-password"],
        &["copy", "--from-repo", "repository", "--from-insecure-no-password", "--estimate"],
        &["import", "tar", "dumped", "--dry-run"],
        &["series", "list"],
        &["series", "set", "--default", "--layout", "standard"],
        &["series", "show", "--default"],
        &["layout", "nothing"],
        &["key", "list"],
        &["key", "export"],
        &["cat", "config"],
        &["cat", "manifest", "latest"],
        &["repair", "config"],
        &["repair", "snapshots"],
        &["repair", "index", "--dry-run"],
        &["forget", "--keep-last", "1", "--dry-run"],
        &["forget", "--keep-last", "1", "--estimate"],
        &["forget", "--keep-last", "1", "--prune"],
        &["forget", "nothing"],
        &["optimize", "--dry-run"],
        &["optimize", "--estimate"],
        &["fleet", "run", "images.toml", "--dry-run"],
        &["fleet", "run", "images.toml", "--no-pass"],
        &["fleet", "plan", "images.toml"],
        &["fleet", "status"],
        &["fleet", "abort", "abc"],
        &["fleet", "clean"],
        &["validate-store", "other"],
        &["config", "check", "--config", config],
        &["config", "show", "--config", config],
        &["schedule", "show", "--config", config],
        &["run", "p", "--config", config],
        &["unlock"],
        &["version"],
    ] {
        let mut command = play.command(line);
        if line[0] == "run" {
            command.env_remove("LARDER_REPOSITORY").env_remove("LARDER_PASSWORD");
        }
        let ran = Ran::from(command.arg("--json").output().expect("it ends"));
        let both = format!("{}{}", ran.text(), ran.stderr);
        assert!(both.contains(['{', '[']), "{line:?} wrote no JSON: {both}");
        schema::kinds_come_first(&both);
        objects += both.matches(r#"{"message_type":""#).count();
        verbs.push(line[0]);
    }
    assert!(objects > 40, "only {objects} objects with a type");
    let help = play.larder(["--help"]).ok().text();
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let missing: Vec<_> = listed
        .filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|verb| !verbs.contains(verb) && !ELSEWHERE.contains(verb) && !WITHOUT.contains(verb))
        .collect();
    assert!(missing.is_empty(), "no line of this test has {missing:?}");
}
