//! `mount` by a user without rights: by `fusermount3`, where everybody may open `/dev/fuse`. Each test has mounts of its own.

use crate::support::mounting::can_mount;
use crate::support::{Play, Ran, run};

/// What scripts begin with: a device that everybody may open, and a command of the user.
const BEGIN: &str = r#"
    mknod fuse c 10 229; chmod 666 fuse; mount --bind fuse /dev/fuse
    alone="setpriv --reuid 65534 --regid 65534 --clear-groups"
    larder="$alone $1"
    begin() {
        rm -f said
        $larder mount --json mnt > said 2> errors & mount=$!
        until grep -qs '"mounted"' said; do kill -0 $mount || { cat errors; exit 1; }; sleep 0.02; done
    }
    is_mounted() { grep -q " $PWD/mnt " /proc/self/mountinfo; }
    "#;

/// Runs a script as root with mounts of its own.
fn script(script: &str) -> Option<(Play, Ran)> {
    if !can_mount() {
        return None;
    }
    let play = Play::with_repository();
    play.write("source/file", "content\n");
    play.backup(["source"]);
    std::fs::create_dir(play.path("mnt")).expect("created");
    let binary = play.binary_for_all();
    play.open_to_all("");
    let text = format!("{BEGIN}{script}");
    let args = ["-m", "sh", "-ec", &text, "sh", binary.to_str().expect("text")];
    let ran = run(&mut play.command_of(std::path::Path::new("unshare"), args));
    Some((play, ran))
}

/// Goal: the user sees the files and root does not; a killed mount is unmounted; a dead one is named, and goes by the command that
/// the message names.
#[test]
fn users_mount_and_nothing_is_left_behind() {
    let ran = script(
        r#"begin
        $alone cat mnt/snapshots/latest$PWD/source/file
        ! ls mnt 2> refused || { echo 'root sees it'; exit 1; }
        kill -TERM $mount; wait $mount; ! is_mounted
        echo ended
        begin
        kill -KILL $mount; wait $mount || true
        for _ in $(seq 500); do is_mounted || break; sleep 0.02; done
        ! is_mounted
        echo unmounted
        begin
        guard=$(pgrep -P $mount)
        kill -KILL $guard $mount; wait $mount || true
        is_mounted
        code=0; $larder mount mnt 2> dead || code=$?
        echo "$code: $(tr '\n' ' ' < dead)"
        $alone fusermount3 -u mnt
        begin
        kill -INT $mount; wait $mount; ! is_mounted
        echo ended again"#,
    );
    let Some((_, ran)) = ran else { return };
    let ran = ran.ok();
    let [content, ended, unmounted, dead, again] = &ran.lines()[..] else { panic!("{}", ran.text()) };
    assert_eq!([content, ended, unmounted, again], ["content", "ended", "unmounted", "ended again"]);
    assert!(dead.starts_with("2: larder: cannot mount at mnt: a dead mount is there"), "{dead}");
    assert!(dead.contains("`fusermount3 -u mnt`"), "{dead}");
}

/// Goal: each thing that a system may lack is named, with what to do.
#[test]
fn what_the_system_lacks_is_named() {
    let ran = script(
        r#"fails() { code=0; $larder mount "$@" > said 2> errors || code=$?; echo "$code: $(tr -s '\n ' ' ' < errors)"; }
        fails mnt --allow-other
        chmod 600 fuse; fails mnt; chmod 666 fuse
        programs=$PWD/programs; mkdir programs; mount --bind /usr/bin programs
        mount -t tmpfs none /usr/bin
        for name in programs/*; do programs/ln -s $PWD/$name /usr/bin/ 2> lines || true; done
        programs/rm /usr/bin/fusermount*
        fails mnt
        umount /dev/fuse; mount -t tmpfs none /dev; mknod -m 666 /dev/null c 1 3; mknod -m 666 /dev/urandom c 1 9
        fails mnt
        umount /usr/bin; fails mnt
        ! is_mounted"#,
    );
    let Some((_, ran)) = ran else { return };
    let ran = ran.ok();
    let lines = ran.lines();
    let says = [
        "user_allow_other in /etc/fuse.conf",
        "FUSE is not available: cannot open /dev/fuse: Permission denied",
        "fusermount3 is not installed install fuse3",
        "FUSE is not available: cannot open /dev/fuse: No such file or directory",
        "`larder serve-webdav`",
    ];
    assert_eq!(lines.len(), says.len(), "{}", ran.text());
    for (line, says) in lines.iter().zip(says) {
        assert!(line.starts_with("1: larder: ") && line.contains(says), "{says:?} is not in {line}");
    }
}
