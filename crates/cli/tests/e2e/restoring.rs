//! `restore`: what comes back, into what, and what stops it.

mod deleting;

use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use crate::support::{self, Play, run, schema, tree};

/// A backup of `source`; gives the reference of its root.
fn backed_up(play: &Play) -> String {
    play.backup(["source"]);
    format!("latest:{}", play.path("source").display())
}

#[test]
fn everything_comes_back_as_it_was() {
    let play = Play::with_repository();
    tree::odd(&play.path("source"));
    let root = backed_up(&play);
    let ran = play.larder(["restore", &root, "--target", "back", "--json"]).ok();
    schema::check("restore_summary", &ran.messages("summary")[0]);
    tree::same(&play.path("source"), &play.path("back"));
    let rsync = std::process::Command::new("rsync")
        .args(["-naHAXc", "--delete", "--itemize-changes"])
        .arg(play.path("source/"))
        .arg(play.path("back/"))
        .output();
    if let Ok(compared) = rsync {
        let text = String::from_utf8_lossy(&compared.stdout).into_owned();
        let differences: Vec<_> = text.lines().filter(|line| !line.ends_with(" ./")).collect();
        assert_eq!(differences, [""; 0], "an independent comparison");
    }
    let blocks =
        |name: &str| std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(play.path(name)).expect("there"));
    assert!(blocks("back/sparse") <= blocks("source/sparse") + 16, "holes stay holes");
}

#[test]
fn zeros_take_no_space_on_request() {
    use std::os::unix::fs::MetadataExt;
    let play = Play::with_repository();
    let size = 50_u64 << 20;
    play.write("source/zeros", vec![0; size as usize]);
    let root = backed_up(&play);
    // The second time over old content, which is punched out.
    for old in [false, true] {
        if old {
            play.write("back/zeros", vec![1; size as usize]);
        }
        play.larder(["restore", &root, "--target", "back", "--sparse"]).ok();
        let restored = std::fs::metadata(play.path("back/zeros")).expect("there");
        assert_eq!(restored.len(), size);
        assert!(std::fs::read(play.path("back/zeros")).expect("read").iter().all(|byte| *byte == 0));
        let hole = std::fs::File::create(play.path("hole")).expect("made");
        hole.set_len(size).expect("sized");
        if hole.metadata().expect("there").blocks() > 0 {
            eprintln!("the file system has no holes: what is allocated is not compared");
            return;
        }
        assert!(restored.blocks() * 512 < size / 100, "{} bytes are allocated, old: {old}", restored.blocks() * 512);
    }
}

#[test]
fn verifying_reads_everything_again() {
    let play = Play::with_repository();
    tree::odd(&play.path("source"));
    let root = backed_up(&play);
    let ran = play.larder(["restore", &root, "--target", "back", "--verify", "--json"]).ok();
    let summary = ran.messages("summary").pop().expect("a summary");
    assert_eq!((&summary["mismatches"], &summary["error_count"]), (&json!(0), &json!(0)), "{summary}");
    // What is kept is compared as well.
    play.write("back/plain.txt", "HELLO\n");
    let ran = play.larder(["restore", &root, "--target", "back", "--verify", "--overwrite", "never"]).code(13);
    assert!(ran.stderr.contains("/plain.txt"), "{}", ran.stderr);
}

/// A cut copy that has the time of the first name is kept, and no link is made to it.
#[test]
fn a_link_is_not_made_to_a_file_that_is_not_the_snapshots() {
    let play = Play::with_repository();
    play.write("source/a", "right content");
    std::fs::hard_link(play.path("source/a"), play.path("source/b")).expect("linked");
    let root = backed_up(&play);
    let time = std::fs::metadata(play.path("source/a")).and_then(|file| file.modified()).expect("there");
    let policies: [&[&str]; 4] =
        [&["--overwrite", "never"], &["--overwrite", "if-newer"], &["--include", "b"], &["--overwrite", "if-changed"]];
    for policy in policies {
        let _ = std::fs::remove_dir_all(play.path("back"));
        play.write("back/a", "short");
        std::fs::File::open(play.path("back/a")).and_then(|file| file.set_modified(time)).expect("set");
        play.larder([&["restore", &*root, "--target", "back"], policy].concat()).ok();
        let read = |name: &str| std::fs::read_to_string(play.path("back").join(name)).expect("there");
        let kept = if policy.contains(&"if-changed") { "right content" } else { "short" };
        assert_eq!((read("a").as_str(), read("b").as_str()), (kept, "right content"), "{policy:?}");
    }
}

/// A name of the target is another file in the snapshot: the folder of a guest that has its host's
/// names below it.
#[test]
fn links_of_a_part_have_its_contents_where_the_snapshot_has_the_same_names_above() {
    let play = Play::with_repository();
    let host = play.path("host");
    let below = play.path("guest").join(host.strip_prefix("/").expect("absolute"));
    for (folder, content) in [(&host, "of the host"), (&below, "of the guest: longer")] {
        std::fs::create_dir_all(folder).expect("made");
        std::fs::write(folder.join("perl"), content).expect("written");
        for name in ["perl5", "perl6"] {
            std::fs::hard_link(folder.join("perl"), folder.join(name)).expect("linked");
        }
    }
    play.backup(["host", "guest"]);
    let part = format!("latest:{}", play.path("guest").display());
    let policies: [&[&str]; 7] = [
        &[],
        &["--exclude", "*.log"],
        &["--include", "perl5", "--include", "perl6"],
        &["--exclude", "perl"],
        &["--overwrite", "never"],
        &["--overwrite", "if-newer"],
        &["--overwrite", "if-changed"],
    ];
    for policy in policies {
        let _ = std::fs::remove_dir_all(play.path("back"));
        play.larder([&["restore", &*part, "--target", "back", "--verify"], policy].concat()).ok();
        let folder = play.path("back").join(host.strip_prefix("/").expect("absolute"));
        let names: Vec<_> =
            ["perl", "perl5", "perl6"].iter().map(|name| folder.join(name)).filter(|path| path.exists()).collect();
        assert!(names.len() >= 2, "{policy:?}");
        for name in &names {
            assert_eq!(std::fs::read_to_string(name).expect("there"), "of the guest: longer", "{policy:?}");
            // One file, also where its first name is left out.
            let inode =
                |path: &std::path::Path| std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(path).expect("there"));
            assert_eq!(inode(name), inode(&names[0]), "{policy:?}");
        }
    }
}

/// The first name of two files is outside of what is restored.
#[test]
fn links_to_a_name_outside_are_one_file_and_verified() {
    let play = Play::with_repository();
    play.write("source/x/a", "content");
    std::fs::create_dir_all(play.path("source/y")).expect("made");
    for name in ["y/c", "y/d"] {
        std::fs::hard_link(play.path("source/x/a"), play.path("source").join(name)).expect("linked");
    }
    let root = backed_up(&play);
    for (args, names) in [
        (vec![format!("{root}/y")], ["c", "d"]),
        (vec![root.clone(), "--include".to_owned(), "/y".to_owned()], ["y/c", "y/d"]),
    ] {
        let _ = std::fs::remove_dir_all(play.path("back"));
        let mut all = vec!["restore".to_owned()];
        all.extend(args);
        all.extend(["--target", "back", "--verify"].map(str::to_owned));
        play.larder(all.clone()).ok();
        let [one, other] = names.map(|name| play.path("back").join(name));
        let inode =
            |path: &std::path::Path| std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(path).expect("there"));
        assert_eq!(inode(&one), inode(&other), "{all:?}");
        // A verification reads the contents.
        let time = std::fs::metadata(&one).and_then(|file| file.modified()).expect("there");
        std::fs::write(&one, "CONTENT").expect("written");
        std::fs::File::open(&one).and_then(|file| file.set_modified(time)).expect("set");
        all.extend(["--overwrite", "never"].map(str::to_owned));
        play.larder(all.clone()).code(13);
    }
}

/// More of them than are remembered: the names that come too late are files of their own, and right.
#[test]
fn many_links_to_names_outside_are_whole_with_little_memory() {
    let play = Play::with_repository();
    let long = "n".repeat(150);
    for folder in ["x", "y/a", "y/b"] {
        std::fs::create_dir_all(play.path("source").join(folder)).expect("made");
    }
    for number in 0..3000 {
        let name = |folder: &str| play.path("source").join(folder).join(format!("{long}{number}"));
        std::fs::write(name("x"), number.to_string()).expect("written");
        ["y/a", "y/b"].iter().for_each(|folder| std::fs::hard_link(name("x"), name(folder)).expect("linked"));
    }
    let root = backed_up(&play);
    play.larder(["restore", &format!("{root}/y"), "--target", "back", "--verify", "--memory", "16MiB"]).ok();
    for number in 0..3000 {
        let name = |folder: &str| play.path("back").join(folder).join(format!("{long}{number}"));
        for folder in ["a", "b"] {
            assert_eq!(std::fs::read_to_string(name(folder)).expect("there"), number.to_string());
        }
    }
    let inode = |folder: &str| {
        let file = std::fs::metadata(play.path("back").join(folder).join(format!("{long}0"))).expect("there");
        std::os::unix::fs::MetadataExt::ino(&file)
    };
    assert_ne!(inode("a"), inode("b"), "all were remembered, so this test shows nothing");
}

#[test]
fn the_whole_snapshot_has_its_folders_below_the_target() {
    let play = Play::with_repository();
    play.write("source/sub/a", "a");
    play.backup(["source"]);
    play.larder(["restore", "latest", "-t", "back"]).ok();
    let below = play.path("back").join(play.path("source").strip_prefix("/").expect("absolute"));
    tree::same(&play.path("source"), &below);
}

#[test]
fn parts_come_back_by_path_and_pattern() {
    let play = Play::with_repository();
    for name in ["a.txt", "b.bin", "sub/c.txt", "sub/d.bin", "sub/tmp/e.txt"] {
        play.write(format!("source/{name}"), name);
    }
    let root = backed_up(&play);
    let restored = |args: &[&str], target: &str| {
        let mut all = vec!["restore", "--target", target];
        all.extend_from_slice(args);
        play.larder(all).ok();
        let names = tree::look(&play.path(target)).into_keys().map(|name| String::from_utf8(name).expect("text"));
        names.filter(|name| !name.is_empty()).collect::<Vec<_>>()
    };
    assert_eq!(restored(&[&format!("{root}/sub/c.txt")], "one"), ["c.txt"]);
    assert_eq!(restored(&[&format!("{root}/sub/tmp")], "folder"), ["e.txt"]);
    assert_eq!(restored(&[&root, "--include", "*.txt", "-e", "/sub/tmp"], "text"), ["a.txt", "sub", "sub/c.txt"]);
    assert_eq!(restored(&[&root, "--exclude", "/sub"], "rest"), ["a.txt", "b.bin"]);
    assert_eq!(restored(&[&root, "--iinclude", "A.TXT"], "case"), ["a.txt"]);
    play.larder(["restore", &format!("{root}/absent"), "--target", "x"]).code(1).says("/absent").in_two_lines();
}

#[test]
fn what_exists_is_treated_as_asked() {
    let play = Play::with_repository();
    play.write("source/a", "from the backup");
    play.write("source/b", "b");
    let root = backed_up(&play);
    let read = |name: &str| std::fs::read_to_string(play.path(name)).expect("readable");
    play.larder(["restore", &root, "--target", "back"]).ok();
    play.write("back/a", "changed since");
    play.write("back/extra", "not in the backup");
    play.larder(["restore", &root, "--target", "back", "--overwrite", "never"]).ok();
    assert_eq!(read("back/a"), "changed since");
    play.larder(["restore", &root, "--target", "back", "--overwrite", "if-newer"]).ok();
    assert_eq!(read("back/a"), "changed since");
    let before = tree::look(&play.path("back"));
    let dry = play.larder(["restore", &root, "--target", "back", "--delete", "--dry-run", "--json"]).ok();
    assert_eq!(dry.messages("summary")[0]["dry_run"], true);
    assert_eq!(tree::look(&play.path("back")), before);
    let lines = play.larder(["restore", &root, "--target", "back", "--delete", "--dry-run", "-v"]).ok().lines();
    let has = |start: &str| lines.iter().any(|line| line.starts_with(start));
    assert!(has("would restore  ") && has("would delete   "), "{lines:#?}");
    assert!(!has("restored") && !has("deleted"), "{lines:#?}");
    play.larder(["restore", &root, "--target", "back", "--overwrite", "if-changed"]).ok();
    assert_eq!((read("back/a").as_str(), play.path("back/extra").exists()), ("from the backup", true));
    let ran = play.larder(["restore", &root, "--target", "back", "--delete", "--json"]).ok();
    assert_eq!(ran.messages("summary")[0]["files_deleted"], 1);
    tree::same(&play.path("source"), &play.path("back"));
    play.larder(["restore", &root, "--target", "absent/dry", "--dry-run"]).ok();
    assert!(!play.path("absent").exists());
}

/// Holes are neither read nor stored nor written: otherwise this would take minutes and fill the disk.
#[test]
fn a_file_of_100_gb_of_holes_comes_back() {
    use std::os::unix::fs::{FileExt, MetadataExt};
    const SIZE: u64 = 100_000_000_000;
    let play = Play::with_repository();
    let path = play.write("source/huge", "at the beginning");
    let file = std::fs::File::options().write(true).open(&path).expect("opened");
    if file.set_len(SIZE).is_err() || file.metadata().expect("looked at").blocks() > 1000 {
        return;
    }
    for (text, at) in [("in the middle", SIZE / 2), ("at the end", SIZE - 10)] {
        file.write_all_at(text.as_bytes(), at).expect("written");
    }
    let root = backed_up(&play);
    play.larder(["restore", &root, "--target", "back", "--verify", "--sync"]).ok();
    let back = std::fs::File::open(play.path("back/huge")).expect("restored");
    let found = back.metadata().expect("looked at");
    assert_eq!(found.len(), SIZE);
    assert!(found.blocks() < 1000, "{} blocks", found.blocks());
    for (text, at) in [("at the beginning", 0), ("in the middle", SIZE / 2), ("at the end", SIZE - 10)] {
        let mut bytes = vec![0; text.len()];
        back.read_exact_at(&mut bytes, at).expect("read");
        assert_eq!(bytes, text.as_bytes());
    }
}

#[test]
fn a_folder_of_200_000_entries_comes_back() {
    const COUNT: usize = 200_000;
    let play = Play::with_repository();
    // In memory so many files take no time, whatever else the disk has to do.
    let memory = std::path::Path::new("/dev/shm");
    let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.expect("a folder");
    let (many, back) = (dir.path().join("many"), dir.path().join("back"));
    std::fs::create_dir(&many).expect("made");
    for number in 0..COUNT {
        std::fs::File::create(many.join(number.to_string())).expect("made");
    }
    play.backup([&many]);
    let root = format!("latest:{}", many.display());
    assert_eq!(play.larder(["ls", &root]).ok().lines().len(), COUNT + 1);
    crate::support::run(play.command(["restore", &root, "--target"]).arg(&back)).ok();
    assert_eq!(std::fs::read_dir(&back).expect("restored").count(), COUNT);
}

#[test]
fn patterns_that_fit_nothing_are_told() {
    let play = Play::with_repository();
    play.write("source/a", "a");
    let root = backed_up(&play);
    let ran = play.larder(["restore", &root, "--target", "back", "--include", "no.such"]).ok();
    assert!(ran.stderr.contains("nothing in the snapshot"), "{}", ran.stderr);
    let ran = play.larder(["restore", &root, "--target", "back", "--iinclude", "A"]).ok();
    assert_eq!(ran.stderr, "");
}

/// A dry run says what a real one does, and fetches no content to find out.
#[test]
fn a_dry_run_fetches_nothing() {
    let play = Play::with_repository();
    play.write("source/large", tree::noise(1, 3_000_000));
    play.write("source/small", tree::noise(2, 10_000));
    play.write("source/empty", "");
    let root = backed_up(&play);
    let restore = |options: &[&str]| {
        let args = ["restore", &root, "--target", "back", "--json"].iter().chain(options).copied().collect::<Vec<_>>();
        play.larder(args).ok().messages("summary").pop().expect("one")
    };
    let count = |summary: &serde_json::Value| {
        ["files_restored", "files_up_to_date", "bytes_restored", "container_requests"].map(|key| summary[key].as_u64())
    };
    assert_eq!(count(&restore(&["--dry-run"])), [3, 0, 3_010_000, 0].map(Some));
    let real = count(&restore(&[]));
    assert_eq!(real[..3], [3, 0, 3_010_000].map(Some));
    assert!(real[3] > Some(0));
    // Of what is there, only what differs would be fetched.
    assert_eq!(count(&restore(&["--dry-run"])), [0, 3, 0, 0].map(Some));
    assert_eq!(count(&restore(&[])), [0, 3, 0, 0].map(Some));
    play.write("back/large", [tree::noise(1, 3_000_000), b"more".to_vec()].concat());
    play.write("back/small", tree::noise(3, 10_000));
    let dry = count(&restore(&["--dry-run"]));
    assert_eq!((dry[0], dry[1], dry[3]), (Some(2), Some(1), Some(0)));
    let real = count(&restore(&[]));
    assert_eq!(dry[..3], real[..3]);
    tree::same(&play.path("source"), &play.path("back"));
}

#[test]
fn latest_means_what_the_filters_say() {
    let play = Play::with_repository();
    for (host, tag, content) in [("a", "x", "1"), ("b", "x", "2"), ("a", "y", "3"), ("b", "y", "4")] {
        play.write("source/file", content);
        play.backup(["source", "-H", host, "--tag", tag, "--series", &format!("{host}/{tag}")]);
    }
    let file = play.path("source/file").display().to_string();
    let dump = |reference: &str, filter: &[&str]| {
        let mut args = vec!["dump".to_owned(), format!("{reference}:{file}")];
        args.extend(filter.iter().map(|arg| (*arg).to_owned()));
        let ran = play.larder(args);
        (ran.code, ran.text())
    };
    assert_eq!(dump("latest", &[]), (0, "4".to_owned()));
    assert_eq!(dump("latest~2", &[]), (0, "2".to_owned()));
    assert_eq!(dump("latest", &["--host", "a"]), (0, "3".to_owned()));
    assert_eq!(dump("latest~1", &["-H", "a"]), (0, "1".to_owned()));
    assert_eq!(dump("latest", &["--tag", "x"]), (0, "2".to_owned()));
    assert_eq!(dump("latest", &["--series", "a/x"]), (0, "1".to_owned()));
    assert_eq!(dump("latest", &["--path", "source", "--host", "b"]), (0, "4".to_owned()));
    assert_eq!(dump("latest", &["--path", "elsewhere"]).0, 1);
    assert_eq!(dump("latest~9", &[]).0, 1);
    let ids = play.larder(["snapshots", "--json"]).ok().json();
    let first = ids[0]["short_id"].as_str().expect("text").to_owned();
    assert_eq!(dump(&first, &["--host", "nobody"]), (0, "1".to_owned()), "an id is an id");
    assert_eq!(dump("0", &[]).0, 1, "all ids begin so");
}

#[test]
fn a_target_without_permission_is_a_clear_error() {
    let play = Play::with_repository();
    play.write("source/a", "a");
    let root = backed_up(&play);
    play.open_to_all("repository");
    std::fs::create_dir(play.path("closed")).expect("made");
    std::fs::set_permissions(play.path("closed"), PermissionsExt::from_mode(0o555)).expect("set");
    let ran = run(&mut play.unprivileged(["restore", &root, "--target", "closed/back"]));
    ran.code(1).says("closed/back").says("ermission denied").in_two_lines();
    play.write("file", "not a folder");
    play.larder(["restore", &root, "--target", "file"]).code(1).says("file").in_two_lines();
}

#[test]
fn a_full_disk_is_16_and_running_again_continues() {
    let play = Play::with_repository();
    play.write("source/large", tree::noise(5, 3_000_000));
    let root = backed_up(&play);
    // A limit on file sizes is the full disk that needs no rights.
    let script = "ulimit -f 1000; trap '' XFSZ; exec \"$0\" \"$@\"";
    let mut shell = play.command(["restore", &root, "--target", "back"]);
    let args: Vec<_> = shell.get_args().map(ToOwned::to_owned).collect();
    let mut limited = std::process::Command::new("sh");
    limited.arg("-c").arg(script).arg(env!("CARGO_BIN_EXE_larder")).args(args).current_dir(play.path(""));
    limited.envs(shell.get_envs().filter_map(|(name, value)| value.map(|value| (name, value))));
    let ran = run(&mut limited);
    assert!(matches!(ran.code, 3 | 16), "{}: {}", ran.code, ran.stderr);
    assert!(ran.stderr.contains("large"), "{}", ran.stderr);
    run(&mut shell).ok();
    tree::same(&play.path("source"), &play.path("back"));
}

#[test]
fn a_read_only_repository_still_gives_everything_back() {
    let play = Play::with_repository();
    tree::odd(&play.path("source"));
    play.backup(["source"]);
    play.write("source/plain.txt", "changed");
    let root = backed_up(&play);
    let closed = std::process::Command::new("chmod").args(["-R", "a-w,a+rX"]).arg(play.repository()).status();
    assert!(closed.expect("chmod runs").success());
    std::fs::create_dir(play.path("back")).expect("made");
    play.open_to_all("back");
    let before = play.objects();
    for args in [
        &["snapshots"][..],
        &["ls", "latest"],
        &["find", "*.txt"],
        &["diff", "latest~1", "latest"],
        &["stats"],
        &["check", "--read-data"],
        &["restore", &root, "--target", "back/x", "--no-owner"],
        &["dump", &format!("{root}/plain.txt")],
        &["cat", "config"],
        &["key", "list"],
    ] {
        let ran = run(&mut play.unprivileged(args));
        assert_eq!(ran.code, 0, "{args:?}: {}", ran.stderr);
    }
    let ran = run(&mut play.unprivileged(["backup", "/proc/version"]));
    ran.code(15).in_two_lines();
    assert_eq!(play.objects(), before);
    let opened = std::process::Command::new("chmod").args(["-R", "u+w"]).arg(play.repository()).status();
    assert!(opened.expect("chmod runs").success());
}

#[test]
fn what_the_users_rights_do_not_allow_is_noted() {
    let play = Play::with_repository();
    play.write("source/a", "a");
    let root = backed_up(&play);
    std::fs::create_dir(play.path("back")).expect("made");
    play.open_to_all("back");
    play.open_to_all("repository");
    let ran = run(&mut play.unprivileged(["restore", &root, "--target", "back/x", "--json"])).ok();
    let summary = ran.messages("summary").pop().expect("a summary");
    schema::check("restore_summary", &summary);
    if rustix::process::geteuid().is_root() {
        assert!(summary["notes"].to_string().contains("owner"), "{summary}");
    }
    assert_eq!(support::tree::look(&play.path("back/x"))[&b"a"[..]].content, b"a");
}

#[test]
fn set_ids_devices_and_attributes_are_left_out_on_request() {
    use rustix::fs::{CWD, FileType, Mode, XattrFlags, makedev, mknodat, setxattr};
    let play = Play::with_repository();
    play.write("source/program", "x");
    let program = play.path("source/program");
    for name in ["user.keep", "user.drop"] {
        setxattr(&program, name, b"1", XattrFlags::empty()).expect("set");
    }
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o6755)).expect("set");
    let has_device =
        mknodat(CWD, play.path("source/device"), FileType::CharacterDevice, Mode::RUSR, makedev(1, 3)).is_ok();
    let root = backed_up(&play);
    let names = |file: &str| {
        let mut names = [0_u8; 1000];
        let length = rustix::fs::listxattr(play.path(file), &mut names[..]).expect("listed");
        String::from_utf8_lossy(&names[..length]).into_owned()
    };
    let mode = |file: &str| std::fs::metadata(play.path(file)).expect("there").permissions().mode() & 0o7777;
    let restore = |target: &str, options: &[&str]| {
        let line = ["restore", &root, "--target", target, "--verify"];
        play.larder(line.iter().chain(options)).ok()
    };
    restore("all", &[]);
    assert_eq!((mode("all/program"), play.path("all/device").exists()), (0o6755, has_device));
    assert!(names("all/program").contains("user.keep\0") && names("all/program").contains("user.drop\0"));
    // Over the first one as well: its bits and its device must not stay or be called a difference.
    for target in ["new", "all"] {
        let ran = restore(target, &["--no-setid", "--no-devices", "--exclude-xattr", "user.d*"]);
        assert_eq!(mode(&format!("{target}/program")), 0o755);
        assert_eq!(play.path(format!("{target}/device")).exists(), has_device && target == "all");
        assert_eq!(names(&format!("{target}/program")).contains("user.drop\0"), target == "all");
        assert!(ran.stderr.contains("as the options ask"), "{}", ran.stderr);
        assert_eq!(ran.stderr.contains("the options leave out devices"), has_device, "{}", ran.stderr);
    }
    restore("some", &["--include-xattr", "user.d*"]);
    assert!(!names("some/program").contains("user.keep\0") && names("some/program").contains("user.drop\0"));
    let ran = play.larder(["restore", &root, "--target", "bad", "--exclude-xattr", "user.[a"]);
    assert!(ran.code != 0 && !play.path("bad").exists(), "{}", ran.stderr);
}
