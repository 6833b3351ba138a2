//! What a restore removes, with `--delete` and in the way of the snapshot, and what stays.

use super::*;
use crate::support::mounting::with_mounts;

/// `--delete` removes inside the selection only. Each line was compared with restic.
#[test]
fn deleting_stays_inside_the_selection() {
    const SNAPSHOT: [&str; 6] = ["a.txt", "b.jpg", "sub/c.jpg", "sub/d.txt", "sub/deep/e.jpg", "text/f.txt"];
    const EXTRA: [&str; 11] = [
        "extra.jpg",
        "extra.txt",
        "hollow/z.jpg",
        "pics.jpg/inner.txt",
        "sub/deep/z.jpg",
        "sub/z.jpg",
        "sub/z.txt",
        "text/z.jpg",
        "text/z.txt",
        "xdir/y.jpg",
        "xdir/y.txt",
    ];
    // Options, and which of the extra files are gone afterwards.
    const TABLE: &[(&[&str], &[&str])] = &[
        (&[], &EXTRA),
        (&["--include", "/sub"], &["sub/deep/z.jpg", "sub/z.jpg", "sub/z.txt"]),
        (&["--include", "/sub/deep"], &["sub/deep/z.jpg"]),
        // A folder without anything that is wanted of the snapshot is left alone; a folder goes by its own name.
        (&["--include", "*.jpg"], &["extra.jpg", "pics.jpg/inner.txt", "sub/deep/z.jpg", "sub/z.jpg"]),
        (&["--iinclude", "*.JPG"], &["extra.jpg", "pics.jpg/inner.txt", "sub/deep/z.jpg", "sub/z.jpg"]),
        (&["--include", "*.txt"], &["extra.txt", "sub/z.txt", "text/z.txt"]),
        (&["--include", "/hollow"], &["hollow/z.jpg"]),
        (&["--include", "/text/f.txt"], &[]),
        (&["--include", "/a.txt"], &[]),
        (&["--include", "/nothing"], &[]),
        (&["--include", "/sub/*.jpg"], &["sub/z.jpg"]),
        (
            &["--include", "sub", "--include", "*.txt"],
            &["extra.txt", "sub/deep/z.jpg", "sub/z.jpg", "sub/z.txt", "text/z.txt"],
        ),
        (&["--include", "/xdir", "--include", "/a.txt"], &["xdir/y.jpg", "xdir/y.txt"]),
        (&["--include", "/xdir"], &[]),
        (
            &["--exclude", "*.txt"],
            &[
                "extra.jpg",
                "hollow/z.jpg",
                "pics.jpg/inner.txt",
                "sub/deep/z.jpg",
                "sub/z.jpg",
                "text/z.jpg",
                "xdir/y.jpg",
                "xdir/y.txt",
            ],
        ),
        (&["--exclude", "*.jpg"], &["extra.txt", "sub/z.txt", "text/z.txt", "xdir/y.jpg", "xdir/y.txt"]),
        (&["--iexclude", "*.JPG"], &["extra.txt", "sub/z.txt", "text/z.txt", "xdir/y.jpg", "xdir/y.txt"]),
        (&["--exclude", "*"], &[]),
        (&["--exclude", "/sub", "--exclude", "/xdir", "--exclude", "*.jpg"], &["extra.txt", "text/z.txt"]),
        (
            &["--exclude", "sub/*.txt"],
            &[
                "extra.jpg",
                "extra.txt",
                "hollow/z.jpg",
                "pics.jpg/inner.txt",
                "sub/deep/z.jpg",
                "sub/z.jpg",
                "text/z.jpg",
                "text/z.txt",
                "xdir/y.jpg",
                "xdir/y.txt",
            ],
        ),
    ];
    let play = Play::with_repository();
    for name in SNAPSHOT {
        play.write(format!("source/{name}"), name);
    }
    std::fs::create_dir(play.path("source/hollow")).expect("made");
    let root = backed_up(&play);
    for (number, (options, expected)) in TABLE.iter().enumerate() {
        let target = format!("back{number}");
        for name in SNAPSHOT.iter().chain(&EXTRA) {
            play.write(format!("{target}/{name}"), name);
        }
        let gone = || {
            let is_gone = |name: &&&str| !play.path(format!("{target}/{name}")).exists();
            EXTRA.iter().filter(is_gone).copied().collect::<Vec<_>>()
        };
        let args = ["restore", &root, "--target", &target, "--delete"].into_iter().chain(options.iter().copied());
        play.larder(args.clone().chain(["--dry-run"])).ok();
        assert_eq!(gone(), [""; 0], "{options:?}: a dry run");
        play.larder(args).ok();
        assert_eq!(gone(), *expected, "{options:?}");
        let is_here = |name: &&str| play.path(format!("{target}/{name}")).exists();
        assert!(SNAPSHOT.iter().all(is_here), "{options:?}: what the snapshot has is never deleted");
    }
    // Beside a single file, nothing belongs to the snapshot.
    play.write("one/extra.txt", "");
    play.larder(["restore", &format!("{root}/a.txt"), "--target", "one", "--delete"]).ok();
    assert!(play.path("one/extra.txt").exists() && play.path("one/a.txt").exists());
}

/// A backup leaves its repository out, so the snapshot does not have it; a folder with the repository in it, neither.
#[test]
fn a_restore_never_removes_or_changes_a_repository() {
    let play = Play::new();
    for repository in ["source/repo", "source/deep/below/repo"] {
        play.write("source/file", "content");
        let larder = |args: &[&str]| play.larder([&["-r", repository][..], args].concat());
        larder(&["init", "--insecure-kdf"]).ok();
        // When the folder above is not in the snapshot either, it would be deleted with all that is below.
        let above = play.path("source").display().to_string();
        larder(&["backup", &above, "--exclude", "deep"]).ok();
        let root = format!("latest:{above}");
        for more in [&["--dry-run"][..], &[]] {
            let ran = larder(&[&["restore", &root, "--target", "source", "--delete"], more].concat()).ok();
            assert!(ran.stderr.contains("left in place, because backups leave such things out"), "{}", ran.stderr);
            assert!(!ran.text().contains("deleted, because not"), "{}", ran.text());
        }
        larder(&["check", "--read-data"]).ok();
        for target in [repository, &format!("{repository}/data")] {
            let ran = larder(&["restore", &root, "--target", target]).code(1);
            assert!(ran.stderr.contains("is a repository"), "{}", ran.stderr);
        }
        // The snapshot of another machine has a file in the place of the folder, and files in the place of the repository.
        play.write("other/deep", "a file");
        play.write("other/repo", "a file");
        larder(&["backup", "other"]).ok();
        let other = format!("latest:{}", play.path("other").display());
        let ran = larder(&["restore", &other, "--target", "source", "--delete"]).code(3);
        assert!(ran.stderr.contains("the repository, its cache or its state is there"), "{}", ran.stderr);
        larder(&["check", "--read-data"]).ok();
        std::fs::remove_dir_all(play.path("source")).expect("removed");
    }
}

/// Its path is not known, and the backup left it out as its own repository.
#[test]
fn a_restore_from_a_copy_does_not_remove_the_original() {
    let play = Play::new();
    play.write("source/file", "content");
    let source = play.path("source").display().to_string();
    play.larder(["-r", "source/repo", "init", "--insecure-kdf"]).ok();
    play.larder(["-r", "source/repo", "backup", &source]).ok();
    play.larder(["-r", "copy", "init", "--insecure-kdf"]).ok();
    let password = play.write("password", support::PASSWORD).display().to_string();
    play.larder(["-r", "copy", "copy", "--from-repo", "source/repo", "--from-password-file", &password]).ok();
    let ran = play.larder(["-r", "copy", "restore", &format!("latest:{source}"), "--target", "source", "--delete"]);
    let ran = ran.code(3);
    assert!(ran.stderr.contains("a repository is in it"), "{}", ran.stderr);
    play.larder(["-r", "source/repo", "check", "--read-data"]).ok();
}

#[test]
fn a_full_folder_is_replaced_only_with_delete() {
    let play = Play::with_repository();
    play.write("source/name", "a file");
    let root = backed_up(&play);
    play.write("back/name/precious", "in no snapshot");
    for overwrite in ["always", "if-changed"] {
        let ran = play.larder(["restore", &root, "--target", "back", "--overwrite", overwrite]).code(3);
        assert!(ran.stderr.contains("a folder that is not empty is in the way"), "{}", ran.stderr);
        assert_eq!(std::fs::read(play.path("back/name/precious")).expect("there"), b"in no snapshot");
    }
    play.larder(["restore", &root, "--target", "back", "--delete"]).ok();
    assert_eq!(std::fs::read(play.path("back/name")).expect("there"), b"a file");
}

/// What the backup could not read was there, so it is no reason to delete it.
#[test]
fn nothing_is_deleted_for_an_incomplete_snapshot() {
    let play = Play::with_repository();
    play.write("source/file", "content");
    let missing = play.path("source/missing").display().to_string();
    play.larder(["backup", "source", &missing]).code(3);
    let root = format!("latest:{}", play.path("source").display());
    play.write("source/missing", "it is back");
    let ran = play.larder(["restore", &root, "--target", "source", "--delete"]).code(3);
    assert!(ran.stderr.contains("nothing is deleted: the backup could not read"), "{}", ran.stderr);
    assert!(ran.stderr.contains("--force deletes all the same"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("could not be restored"), "every item was restored: {}", ran.stderr);
    let ran = play.larder(["restore", &root, "--target", "source", "--delete", "--json"]).code(3);
    let summary = ran.messages("summary").remove(0);
    schema::check("restore_summary", &summary);
    assert_eq!((&summary["error_count"], &summary["delete_refused"]), (&json!(0), &json!(true)));
    assert!(play.path("source/missing").exists());
    play.larder(["restore", &root, "--target", "source", "--delete", "--force"]).ok();
    assert!(!play.path("source/missing").exists());
}

/// The snapshot has a file in the place of a full folder: that is no reason either.
#[test]
fn a_full_folder_stays_for_an_incomplete_snapshot() {
    let play = Play::with_repository();
    play.write("source/name", "a file");
    let missing = play.path("source/missing").display().to_string();
    play.larder(["backup", "source", &missing]).code(3);
    let root = format!("latest:{}", play.path("source").display());
    play.write("back/name/precious", "in no snapshot");
    let ran = play.larder(["restore", &root, "--target", "back", "--delete"]).code(3);
    assert!(ran.stderr.contains("nothing is deleted: the backup could not read 1 item,"), "{}", ran.stderr);
    assert!(play.path("back/name/precious").exists(), "{}", ran.stderr);
    play.larder(["restore", &root, "--target", "back", "--delete", "--force"]).ok();
    assert!(!play.path("back/name/precious").exists());
}

/// Usual in rescue systems and containers: the target is the whole host, and the repository another path.
#[test]
fn a_bind_mount_does_not_hide_a_repository() {
    let spared = "left in place, because backups leave such things out";
    let cases = [
        ("whole/source", "whole/source/repo", "mnt/source", 0, spared),
        ("source", "whole", "mnt/data", 1, "is a repository"),
        ("source", "whole", "mnt/new/below", 1, "is a repository"),
    ];
    for (source, repository, target, code, words) in cases {
        let play = Play::new();
        play.write(format!("{source}/file"), "content");
        std::fs::create_dir_all(play.path("whole")).expect("made");
        std::fs::create_dir(play.path("mnt")).expect("made");
        let (repository, above) =
            (play.path(repository).display().to_string(), play.path(source).display().to_string());
        play.larder(["-r", &repository, "init", "--insecure-kdf"]).ok();
        play.larder(["-r", &repository, "backup", &above]).ok();
        let script = format!(
            "mount --bind whole mnt; $1 -r {repository} restore latest:{above} --target {target} --delete; \
             test -e {repository}/config"
        );
        let Some(ran) = with_mounts(&play, &script) else { return };
        assert!(ran.code(code).stderr.contains(words), "{target}");
        play.larder(["-r", &repository, "check", "--read-data"]).ok();
        assert!(!play.path("whole/new").exists());
    }
}

/// Kernels and sandboxes without `openat2` cannot open a folder only if it is on the same mount.
const WITHOUT_OPENAT2: &str = r"
import ctypes, os, struct, sys
code = struct.pack('HBBI' * 4, 0x20, 0, 0, 0, 0x15, 0, 1, 437, 0x06, 0, 0, 0x00050026, 0x06, 0, 0, 0x7fff0000)
text = ctypes.create_string_buffer(code)
program = struct.pack('HxxxxxxP', 4, ctypes.addressof(text))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
";

#[test]
fn a_mounted_file_system_stays_without_openat2() {
    let play = Play::with_repository();
    play.write("source/file", "content");
    let root = backed_up(&play);
    play.write("filter.py", WITHOUT_OPENAT2);
    let script = format!(
        "mkdir -p source/mnt source/deep/mnt; mount -t tmpfs none source/mnt; mount --bind source/mnt source/deep/mnt; \
         echo kept > source/mnt/precious; \
         python3 filter.py $1 restore {root} --target source --delete || echo ended with $?; ls source/mnt source/deep/mnt"
    );
    let Some(ran) = with_mounts(&play, &script) else { return };
    let ran = ran.ok();
    assert!(ran.text().contains("ended with 3"), "{} {}", ran.text(), ran.stderr);
    assert_eq!(ran.text().matches("precious").count(), 2, "{} {}", ran.text(), ran.stderr);
    assert!(ran.stderr.contains("a mounted file system or a repository is in it"), "{}", ran.stderr);
}

/// A file under a mount point, such as the usual mark that nothing is mounted, is not the mounted file system.
#[test]
fn a_file_under_a_mount_point_does_not_empty_what_is_mounted() {
    let play = Play::with_repository();
    play.write("source/file", "content");
    play.write("source/nas/NOT_MOUNTED", "");
    play.write("source/nas/sub/stray", "");
    let root = backed_up(&play);
    let restore = format!("$1 restore {root} --target source --delete; find source/nas -type f | sort");
    let script = format!(
        "mount -t tmpfs none source/nas; mkdir -p source/nas/sub; touch source/nas/precious source/nas/sub/more; {restore}"
    );
    let Some(ran) = with_mounts(&play, &script) else { return };
    let ran = ran.ok();
    for name in ["source/nas/precious", "source/nas/sub/more"] {
        assert!(ran.text().contains(name), "{} {}", ran.text(), ran.stderr);
    }
    assert!(ran.stderr.contains("another file system is mounted there than"), "{}", ran.stderr);
    // One that was mounted during the backup, too, is restored as any folder.
    let backup = format!(
        "mount -t tmpfs none source/nas; touch source/nas/known; $1 backup source; touch source/nas/new; {restore}"
    );
    let ran = with_mounts(&play, &backup).expect("as before").ok();
    assert!(ran.text().contains("source/nas/known") && !ran.text().contains("source/nas/new"), "{}", ran.text());
}
