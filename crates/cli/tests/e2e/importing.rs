//! `import`: archives of GNU tar, of Borg and of restic become snapshots with all that the original program would restore.

mod borg;
mod restic;
mod tar;

use std::path::Path;

use serde_json::Value;

use crate::support::{Play, Ran, schema, tree};

/// Runs a program of the system to its end.
#[track_caller]
fn tool(play: &Play, line: &[&str]) -> Vec<u8> {
    let output = play.command_of(Path::new(line[0]), &line[1..]).output().expect("it starts");
    assert!(output.status.success(), "{line:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// A tree with entries of all kinds below `top`.
fn all_kinds(play: &Play, top: &str) {
    tree::odd(&play.path(top));
    let path = |name: &str| play.path(top).join(name).display().to_string();
    // Names that sort otherwise than a walk finds them, and links whose first path is not the first one in an archive.
    for name in ["a", "a/b", "a-", "a.b", "z/deep/er", "dir/x"] {
        std::fs::create_dir_all(path(name)).expect("made");
    }
    play.write(format!("{top}/z/deep/er/file"), "deep");
    std::fs::hard_link(path("z/deep/er/file"), path("a/b/linked")).expect("linked");
    std::fs::hard_link(path("z/deep/er/file"), path("a-/linked")).expect("linked");
    tool(play, &["mkfifo", &path("pipe")]);
    tool(play, &["setfattr", "-n", "user.larder", "-v", "a=b%c", &path("plain.txt")]);
    tool(play, &["setfattr", "-n", "user.folder", "-v", "x", &path("folder")]);
    if rustix::process::geteuid().is_root() {
        tool(play, &["mknod", &path("null"), "c", "1", "3"]);
        tool(play, &["mknod", &path("disk"), "b", "7", "200"]);
        tool(play, &["setfacl", "-m", "u:1234:rw,g:root:r", &path("folder/text")]);
        tool(play, &["setfacl", "-d", "-m", "u:1234:rw", &path("dir/x")]);
        tool(play, &["chown", "-h", "1234:5678", &path("link"), &path("folder/text")]);
        tool(play, &["chmod", "6755", &path("folder/large")]);
    }
    tool(play, &["touch", "-d", "1969-12-31 23:59:58.5", &path("empty folder")]);
}

/// The message of the one snapshot that a run imported.
#[track_caller]
fn imported(ran: &Ran) -> Value {
    for line in ran.json_lines().iter().filter(|line| line["message_type"] != "status") {
        schema::check("import", line);
    }
    let mut all = ran.messages("imported");
    assert_eq!(all.len(), 1, "{}", ran.stderr);
    all.remove(0)
}

#[track_caller]
fn summary(ran: &Ran) -> Value {
    for line in ran.json_lines().iter().filter(|line| line["message_type"] != "status") {
        schema::check("import", line);
    }
    ran.messages("summary").remove(0)
}

/// Restores a snapshot, and compares with rsync what is below a folder of it with the source.
#[track_caller]
fn same_as(play: &Play, snapshot: &str, below: &str, source: &str) {
    let target = format!("restored-{snapshot}");
    play.larder(["restore", snapshot, "--target", &target]).ok();
    let (from, to) = (format!("{source}/"), format!("{target}/{below}/"));
    let options = if rustix::process::geteuid().is_root() { "-aHAXni" } else { "-rlptHAXni" };
    let differences = tool(play, &["rsync", options, "--delete", "--checksum", &from, &to]);
    assert_eq!(String::from_utf8_lossy(&differences), "", "rsync sees differences");
    std::fs::remove_dir_all(play.path(&target)).expect("removed");
}
