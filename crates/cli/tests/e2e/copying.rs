//! `copy`: into a repository with other keys and other cuts, incrementally, resumed, and only what is proved is not read.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::json;

use crate::support::second::{OTHER, Second, number, restored, set_attribute};
use crate::support::server::Bucket;
use crate::support::{PASSWORD, Play, Ran, damage, run, tree};

#[test]
fn copies_are_equal_and_made_once() {
    let play = Play::with_repository();
    tree::odd(&play.path("source"));
    set_attribute(&play.path("source/plain.txt"));
    let _ = Command::new("mkfifo").arg(play.path("source/pipe")).status();
    if rustix::process::geteuid().is_root() {
        let _ = Command::new("mknod").arg(play.path("source/null")).args(["c", "1", "3"]).status();
        std::os::unix::fs::chown(play.path("source/folder/text"), Some(1234), Some(5678)).expect("root");
    }
    let first =
        play.backup(["source", "--series", "s", "--tag", "a,b", "--host", "web", "--time", "2020-01-02 03:04:05"]);
    play.larder(["tag", "--add", "later", &first]).ok();
    play.write("source/plain.txt", "changed\n");
    let second_id = play.backup(["source", "--series", "s"]);
    let second = Second::of(&play);
    let (_, planned) = second.copy(&["-n"]);
    assert_eq!((number(&planned, "copied"), second.snapshots().len()), (2, 0));
    let (copied, summary) = second.copy(&[]);
    assert_eq!((copied.len(), number(&summary, "copied")), (2, 2));
    let of = |play: &Play| play.larder(["snapshots", "--json"]).ok().json();
    for (number, (copy, old)) in second.snapshots().iter().zip(of(&play).as_array().expect("an array")).enumerate() {
        for key in ["time", "hostname", "username", "tags", "paths", "series"] {
            assert_eq!(copy[key], old[key], "{key}");
        }
        assert_eq!((&copy["original"], &copy["origin"]["snapshot"]), (&old["id"], &old["id"]));
        assert_ne!(copy["id"], old["id"]);
        let (from, to) = (format!("old{number}"), format!("new{number}"));
        play.larder(["restore", old["id"].as_str().expect("an id"), "--target", &from]).ok();
        second.larder(["restore", copy["id"].as_str().expect("an id"), "--target", &to]).ok();
        tree::same(&restored(&play, &from), &restored(&play, &to));
        let blocks = |at: &Path| std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(at).expect("there"));
        let sparse = (restored(&play, &from).join("sparse"), restored(&play, &to).join("sparse"));
        assert_eq!(blocks(&sparse.0), blocks(&sparse.1));
        // Entries as `ls` shows them: times to the nanosecond, attributes, links.
        let listed = |ran: Ran| ran.ok().json_lines().split_off(1);
        let a = listed(play.larder(["ls", "--json", "--long", old["id"].as_str().expect("an id")]));
        let b = listed(second.larder(["ls", "--json", "--long", copy["id"].as_str().expect("an id")]));
        assert_eq!(a, b);
    }
    second.larder(["check", "--read-data"]).ok();
    // Once more, by any choice, makes nothing.
    for again in [&[][..], &["latest"], &[&*first, &*second_id], &["--latest", "1"], &["--host", "web"]] {
        let (copied, summary) = second.copy(again);
        assert!(copied.is_empty() && number(&summary, "copied_before") > 0, "{again:?}: {summary:#}");
    }
    assert_eq!(second.snapshots().len(), 2);
}

#[test]
fn unchanged_contents_are_not_read_again() {
    let play = Play::with_repository();
    for file in 0..60 {
        play.write(format!("source/small/{file}"), tree::noise(file, 20_000));
    }
    play.write("source/large", tree::noise(100, 24_000_000));
    play.backup(["source", "--series", "s"]);
    let second = Second::of(&play);
    second.copy(&[]);
    // A block in the middle of the large file, a small file, a new one, a lost one.
    let large = std::fs::File::options().write(true).open(play.path("source/large")).expect("opens");
    large.write_all_at(&tree::noise(101, 4096), 12_000_000).expect("written");
    drop(large);
    play.write("source/small/7", tree::noise(102, 20_000));
    play.write("source/small/new", tree::noise(103, 20_000));
    std::fs::remove_file(play.path("source/small/9")).expect("removed");
    let newest = play.backup(["source", "--series", "s"]);
    let (copied, _) = second.copy(&[]);
    let one = &copied[0];
    assert!(number(one, "read_bytes") < 1_500_000, "{one:#}");
    assert!(number(one, "data_added") < 1_000_000, "{one:#}");
    assert_eq!((number(one, "files_new"), number(one, "files_changed"), number(one, "files_unmodified")), (1, 2, 58));
    play.larder(["restore", &newest, "--target", "old"]).ok();
    second.larder(["restore", "latest", "--target", "new"]).ok();
    tree::same(&restored(&play, "old"), &restored(&play, "new"));
    second.larder(["check", "--read-data"]).ok();
    // A machine that did not make the copy believes nothing of it, and reads all.
    play.write("source/small/8", tree::noise(104, 20_000));
    play.backup(["source", "--series", "s"]);
    let elsewhere = run(second.command(["copy", "--json"]).env("LARDER_STATE", play.path("elsewhere"))).ok();
    let one = elsewhere.messages("copied").remove(0);
    assert!(number(&one, "read_bytes") > 24_000_000, "{one:#}");
    assert!(number(&one, "data_added") < 1_000_000, "duplicates are found all the same: {one:#}");
    second.larder(["check", "--read-data"]).ok();
    // A backup of this machine into the series does not take files over from copies.
    let ran = second.larder(["backup", "source", "--series", "s", "--json"]).ok();
    let summary = ran.messages("summary").remove(0);
    assert_eq!(number(&summary, "files_unmodified"), 0, "{summary:#}");
    second.larder(["restore", "latest", "--target", "own"]).ok();
    tree::same(&play.path("source"), &restored(&play, "own"));
}

#[test]
fn streams_and_images_are_copied_too() {
    let play = Play::with_repository();
    let mut stream = tree::noise(1, 9_000_000);
    play.larder_with_stdin(["backup", "--stdin", "--series", "stream"], &stream).ok();
    let mut disk = tree::noise(2, 12 << 20);
    disk[3 << 20..7 << 20].fill(0);
    let image = std::fs::File::create(play.path("disk.raw")).expect("made");
    image.set_len(20 << 20).expect("sized");
    image.write_all_at(&disk[..3 << 20], 0).expect("written");
    image.write_all_at(&disk[7 << 20..], 7 << 20).expect("written");
    play.larder(["backup", "--image", "disk.raw", "--series", "vm"]).ok();
    let second = Second::of(&play);
    second.copy(&[]);
    let dump = |series: &str, ran: &dyn Fn(&[&str]) -> Ran| {
        let listed = ran(&["ls", "latest", "--series", series, "--json"]).ok().json_lines();
        let node = listed.iter().find(|line| line["type"] == "file").expect("a file");
        let file = format!("latest:{}", node["path"].as_str().expect("a path"));
        ran(&["dump", &file, "--series", series]).ok().stdout
    };
    let both = |series: &str| {
        let old = dump(series, &|args| play.larder(args));
        let new = dump(series, &|args| second.larder(args.iter().copied()));
        assert!(old == new && !new.is_empty(), "{series}");
        new
    };
    assert!(both("stream") == stream);
    both("vm");
    // Changes in place: little is read of either.
    stream[4_000_000..4_004_096].copy_from_slice(&tree::noise(3, 4096));
    play.larder_with_stdin(["backup", "--stdin", "--series", "stream"], &stream).ok();
    image.write_all_at(&tree::noise(4, 8192), 9 << 20).expect("written");
    play.larder(["backup", "--image", "disk.raw", "--series", "vm"]).ok();
    let (copied, _) = second.copy(&[]);
    assert_eq!(copied.len(), 2);
    for one in &copied {
        assert!(number(one, "read_bytes") < 1_500_000, "{one:#}");
    }
    assert!(both("stream") == stream);
    both("vm");
    second.larder(["check", "--read-data"]).ok();
}

#[test]
fn a_killed_copy_is_resumed() {
    let play = Play::with_repository();
    play.write("source/large", tree::noise(5, 40_000_000));
    play.backup(["source", "--series", "s"]);
    let second = Second::of(&play);
    let mut child = play.spawn(&mut second.command(["copy", "--limit-upload", "8MiB"]));
    for _ in 0..600 {
        if !damage::named(&play.path("second"), "data/").is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    assert!(second.snapshots().is_empty());
    let (copied, _) = second.copy(&[]);
    assert_eq!(copied[0]["resumed"], json!(true), "{:#}", copied[0]);
    assert!(number(&copied[0], "data_added") < 39_000_000, "{:#}", copied[0]);
    second.larder(["check", "--read-data"]).ok();
    second.larder(["restore", "latest", "--target", "new"]).ok();
    tree::same(&play.path("source"), &restored(&play, "new"));
}

#[test]
fn what_cannot_be_copied_is_said() {
    let play = Play::with_repository();
    play.write("source/file", tree::noise(1, 300_000));
    let bad = play.backup(["source", "--series", "bad"]);
    let containers = damage::named(&play.repository(), "data/");
    play.write("other/file", tree::noise(2, 300_000));
    play.backup(["other", "--series", "good"]);
    play.larder(["-r", "empty", "init", "--insecure-kdf"]).ok();
    let second = Second::of(&play);
    run(second.command(["copy"]).env_remove("LARDER_FROM_REPOSITORY")).code(2).says("--from-repo");
    run(second.command(["copy"]).env("LARDER_FROM_PASSWORD", "wrong")).code(12).says("the repository to copy from");
    // The password of the own repository does not help, nor does advice about it.
    run(second.command(["copy"]).env_remove("LARDER_FROM_PASSWORD")).code(12).says("use --from-password-file");
    second.larder(["copy", "--from-repo", "/none"]).code(10).says("check --from-repo").in_two_lines();
    second.larder(["copy", "--latest", "0"]).code(2).says("at least 1");
    let text = play.path("text");
    std::fs::write(&text, PASSWORD).expect("written");
    let from = ["copy", "--from-repo", "repository", "--from-password-file", "text", "-n"];
    run(second.command(from).env_remove("LARDER_FROM_REPOSITORY").env_remove("LARDER_FROM_PASSWORD")).ok();
    let empty = second.command(["copy"]).env("LARDER_FROM_REPOSITORY", play.path("empty")).output();
    Ran::from(empty.expect("it runs")).ok().says("the other repository has no snapshots");
    second.larder(["copy", "nothing"]).code(1).says("no snapshot fits");
    second.larder(["copy", "--series", "none"]).code(1).says("no snapshot fits");
    let same =
        second.command(["copy"]).env("LARDER_REPOSITORY", play.repository()).env("LARDER_PASSWORD", PASSWORD).output();
    Ran::from(same.expect("it runs")).code(2).says("the same repository");
    // Damage: that snapshot is not copied in part, the other one is.
    for name in &containers {
        damage::flip(&play.repository(), name, 5_000);
    }
    let ran = second.larder(["copy", "--json"]).code(13);
    let summary = ran.messages("summary").remove(0);
    assert_eq!((number(&summary, "copied"), &summary["failed"]), (1, &json!([bad])));
    assert_eq!(ran.errors("error").len(), 1, "{}", ran.stderr);
    let copies = second.snapshots();
    assert!(copies.len() == 1 && copies[0]["series"] == "good");
    second.larder(["check", "--read-data"]).ok();
}

/// Goal: a repository of a newer format on either side is named, and nothing changes in either.
#[test]
fn a_repository_of_another_format_is_not_copied() {
    let play = Play::with_repository();
    play.write("source/file", "content");
    play.backup(["source"]);
    let second = Second::of(&play);
    for (newer, is_source) in [(play.repository(), true), (play.path("second"), false)] {
        let config = std::fs::read(newer.join("config")).expect("a config");
        let mut changed = config.clone();
        changed[4] = 3;
        damage::replace(&newer, "config", &changed);
        let before = [damage::objects(&play.repository()), damage::objects(&play.path("second"))];
        for args in [&["copy"][..], &["copy", "--delete"], &["copy", "-n"]] {
            let ran = second.larder(args.iter().copied()).code(1).says("format version 3").says("newer Larder");
            assert_eq!(ran.stderr.contains("the repository to copy from"), is_source, "{}", ran.stderr);
        }
        assert_eq!([damage::objects(&play.repository()), damage::objects(&play.path("second"))], before);
        damage::replace(&newer, "config", &config);
    }
    second.copy(&[]);
}

/// The first copy of a series finds the data of other series, as a first backup does.
#[test]
fn the_first_copy_of_a_series_finds_similar_ones() {
    let play = Play::with_repository();
    for file in 0..40 {
        play.write(format!("source/{file}"), tree::noise(file, 60_000));
    }
    play.backup(["source", "--series", "one"]);
    play.write("source/other", tree::noise(99, 60_000));
    play.backup(["source", "--series", "two"]);
    let second = Second::of(&play);
    let (copied, _) = second.copy(&[]);
    assert!(number(&copied[0], "data_added") > 2_300_000, "{:#}", copied[0]);
    assert!(number(&copied[1], "data_added") < 300_000, "{:#}", copied[1]);
    second.larder(["check", "--read-data"]).ok();
}

/// What the configuration has for one repository does not reach the other one.
#[test]
fn each_storage_gets_its_own_variables() {
    let play = Play::new();
    let serve = |folder: &str| Bucket::serve(play.path(folder), |_, _| None);
    let (a, b) = (serve("bucket a"), serve("bucket b"));
    let location = |bucket: &Bucket| format!("s3:http://127.0.0.1:{}/bucket/prefix", bucket.port());
    let private = |name: &str, text: String| {
        let path = play.write(name, text);
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("ours");
        path.display().to_string()
    };
    let env = |key: &str| format!("AWS_ACCESS_KEY_ID={key}\nAWS_SECRET_ACCESS_KEY=secret\nAWS_REGION=us-east-1\n");
    let (of_a, of_b) = (private("a.env", env("key-of-a")), private("b.env", env("key-of-b")));
    let (password_a, password_b) = (private("a.pw", PASSWORD.into()), private("b.pw", OTHER.into()));
    let config = play.write(
        "larder.toml",
        format!(
            "version = 1\n[repositories.a]\nlocation = \"{}\"\nenvironment-file = \"{of_a}\"\npassword-file = \"{password_a}\"\n\
             [repositories.b]\nlocation = \"{}\"\nenvironment-file = \"{of_b}\"\npassword-file = \"{password_b}\"\n",
            location(&a),
            location(&b),
        ),
    );
    let larder = |args: &[&str]| {
        let mut command = play.command(args);
        for name in ["LARDER_REPOSITORY", "LARDER_PASSWORD", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"] {
            command.env_remove(name);
        }
        command.arg("--config").arg(&config);
        run(&mut command)
    };
    play.write("source/file", tree::noise(1, 100_000));
    larder(&["-r", "@a", "init", "--insecure-kdf"]).ok();
    larder(&["-r", "@b", "init", "--insecure-kdf"]).ok();
    larder(&["-r", "@a", "backup", "source"]).ok();
    larder(&["-r", "@b", "copy", "--from-repo", "@a"]).ok();
    // By its location, the other repository has what `--from-` says, and nothing of the configuration.
    let from = location(&a);
    let without = larder(&["-r", "@b", "copy", "--from-repo", &from, "--from-password-file", &password_a]);
    assert_ne!(without.code, 0, "{}", without.stderr);
    let args = ["--from-password-file", &password_a, "--from-environment-file", &of_a];
    larder(&[&["-r", "@b", "copy", "--from-repo", &from][..], &args].concat()).ok();
    for (bucket, own, other) in [(&a, "key-of-a", "key-of-b"), (&b, "key-of-b", "key-of-a")] {
        let heads = bucket.authorizations();
        assert!(heads.iter().any(|head| head.contains(own)), "{heads:?}");
        assert!(heads.iter().all(|head| !head.contains(other)), "{heads:?}");
    }
}

/// Memory does not grow with what is copied.
#[test]
fn a_copy_stays_within_its_memory() {
    let play = Play::with_repository();
    play.write("source/large", tree::noise(8, 160_000_000));
    for file in 0..300 {
        play.write(format!("source/small/{file}"), tree::noise(1000 + file, 40_000));
    }
    play.backup(["source", "--series", "s"]);
    let second = Second::of(&play);
    let mut child = play.spawn(&mut second.command(["copy", "--memory", "32M", "--quiet"]));
    let mut peak = 0;
    while child.try_wait().expect("it is ours").is_none() {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        peak = line.map_or(peak, |line| line.trim().trim_end_matches(" kB").parse().expect("a number"));
        std::thread::sleep(Duration::from_millis(5));
    }
    Ran::from(child.wait_with_output().expect("it ends")).ok();
    assert!(peak > 0 && peak < 160_000, "{peak} KiB");
    second.larder(["check"]).ok();
}

/// Settings of one storage do not reach the other one: a command that takes the place of ssh, certificates that are not verified.
#[test]
fn each_storage_gets_its_own_settings() {
    let play = Play::with_repository();
    play.write("source/file", tree::noise(1, 100_000));
    play.backup(["source", "--series", "s"]);
    let second = Second::of(&play);
    let serves = format!("sftp.command={} serve-sftp {}", env!("CARGO_BIN_EXE_larder"), play.repository().display());
    let copy = |more: &[&str]| {
        let args = [&["copy", "--from-repo", "sftp:nowhere:/", "--timeout", "1s"], more].concat();
        // There is no ssh.
        run(second.command(args).env_remove("LARDER_FROM_REPOSITORY").env("PATH", play.path("empty")))
    };
    let refused = copy(&["-o", &serves]);
    assert_ne!(refused.code, 0, "the setting is of the other storage");
    copy(&["--from-option", &serves, "-o", "sftp.command=/bin/false"]).ok();
    assert_eq!(second.snapshots().len(), 1);
    second.larder(["check", "--read-data"]).ok();
    copy(&["--from-option", "sftp.connections=0"]).code(2);
    let absent = play.path("absent.pem").display().to_string();
    let bucket = Bucket::serve(play.path("bucket"), |_, _| None);
    let https = format!("s3:https://127.0.0.1:{}/bucket/prefix", bucket.port());
    let cacert = |option: &str| {
        let args = ["copy", "--from-repo", &https, "--timeout", "1s", option, &absent];
        let mut command = second.command(args);
        command.env_remove("LARDER_FROM_REPOSITORY").env("AWS_ACCESS_KEY_ID", "k").env("AWS_SECRET_ACCESS_KEY", "s");
        run(&mut command)
    };
    let of_source = cacert("--from-cacert");
    assert!(of_source.code != 0 && of_source.stderr.contains("absent.pem"), "{}", of_source.stderr);
    let of_first = cacert("--cacert");
    assert!(of_first.code != 0 && !of_first.stderr.contains("absent.pem"), "{}", of_first.stderr);
}

/// Damage in the other repository is told by the exit code, also if other snapshots were refused.
#[test]
fn damage_there_counts_more_than_a_refusal() {
    let play = Play::with_repository();
    play.write("source/file", "contents");
    let bad = play.backup(["source", "--series", "bad"]);
    play.backup(["source", "--series", "refused"]);
    let second = Second::of(&play);
    second.larder(["backup", "source", "--series", "refused"]).ok();
    second.copy_with(3, &["--series", "refused"]);
    let manifest = damage::named(&play.repository(), "versions/").into_iter().find(|name| name.contains(&bad));
    damage::flip(&play.repository(), &manifest.expect("a manifest"), 200);
    let (summary, _) = second.copy_with(13, &[]);
    assert_eq!(summary["refused"][0]["reason"], "other_snapshots_here", "{summary:#}");
}
