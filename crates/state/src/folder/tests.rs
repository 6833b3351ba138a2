//! The state folder: one secret, changes that stay, and nothing that others may open.

use std::os::unix::fs::PermissionsExt;

use larder_format::ids::{JobId, SeriesKey};
use larder_format::lease::Pin;

use super::*;

const REPOSITORY: RepositoryId = RepositoryId([7; 16]);

fn made() -> (tempfile::TempDir, StateFolder) {
    let base = tempfile::tempdir().expect("temporary folder");
    let folder = StateFolder::create(&base.path().join("a/b"), REPOSITORY).expect("made");
    (base, folder)
}

/// Other bytes each time, as the system's.
fn draw(bytes: &mut [u8]) -> io::Result<()> {
    static DRAWN: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(1);
    bytes.fill(DRAWN.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
    Ok(())
}

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("own file");
}

fn pin(job: u8) -> Pin {
    Pin { series: SeriesKey([1; 16]), job: JobId([job; 16]) }
}

#[test]
fn a_secret_is_drawn_once_and_nobody_else_may_read_it() {
    let (base, folder) = made();
    let secret = folder.secret(draw).expect("drawn");
    assert_eq!(folder.secret(draw).expect("read"), secret);
    let again = StateFolder::open(&base.path().join("a/b"), REPOSITORY).expect("opened").expect("there");
    assert_eq!(again.secret(draw).expect("read"), secret);
    let modes = ["", "secret"].map(|name| std::fs::metadata(folder.path.join(name)).expect("there").mode() & 0o777);
    assert_eq!(modes, [0o700, 0o600]);
    let listed = std::fs::read_dir(&folder.path).expect("listed").flatten();
    let files: std::collections::BTreeSet<_> = listed.map(|file| file.file_name()).collect();
    assert!(files.into_iter().eq(["lock", "secret"]), "nothing is left beside it");
    assert_ne!(made().1.secret(draw).expect("drawn"), secret);
}

/// Several backups may begin at once.
#[test]
fn all_get_the_same_secret() {
    let (_base, folder) = made();
    let drawn: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| folder.secret(draw).expect("a secret"))).collect();
        threads.into_iter().map(|thread| thread.join().expect("ended")).collect()
    });
    assert!(drawn.iter().all(|secret| *secret == drawn[0]));
}

#[test]
fn changes_stay_and_are_not_lost_beside_one_another() {
    let (_base, folder) = made();
    assert_eq!(folder.seen().expect("none yet"), Seen::default());
    std::thread::scope(|scope| {
        for job in 1..=8 {
            let folder = &folder;
            scope.spawn(move || folder.change(|seen| seen.add(pin(job))).expect("changed"));
        }
    });
    let jobs: Vec<_> = folder.seen().expect("read").of_series(pin(0).series).iter().map(|job| job.0[0]).collect();
    assert_eq!(jobs.iter().copied().collect::<std::collections::BTreeSet<_>>(), (1..=8).collect());
    // Left by a process that was killed in the middle.
    std::fs::write(folder.path.join("seen.new"), b"half").expect("written");
    // The last of them is the oldest.
    let oldest = *jobs.last().expect("eight");
    folder.change(|seen| seen.remove(pin(oldest))).expect("changed");
    assert_eq!(folder.seen().expect("read").of_series(pin(0).series).len(), 7);
}

#[test]
fn what_others_may_open_is_not_used() {
    let (base, folder) = made();
    folder.secret(draw).expect("drawn");
    folder.change(|seen| seen.add(pin(1))).expect("changed");
    mode(&folder.path.join("secret"), 0o640);
    assert!(matches!(folder.secret(draw), Err(StateError::Open { mode: 0o640, .. })));
    mode(&folder.path.join("seen"), 0o606);
    assert!(matches!(folder.seen(), Err(StateError::Open { mode: 0o606, .. })));
    assert!(matches!(folder.change(|seen| seen.add(pin(2))), Err(StateError::Open { .. })));
    mode(&folder.path, 0o755);
    let opened = StateFolder::open(&base.path().join("a/b"), REPOSITORY);
    let error = opened.expect_err("open to others").to_string();
    assert!(error.contains("open to others (mode 0755); `chmod go= "), "{error}");
}

#[test]
fn links_and_other_bytes_are_not_used() {
    let (base, folder) = made();
    let secret = folder.path.join("secret");
    std::fs::write(base.path().join("elsewhere"), [1; 32]).expect("written");
    mode(&base.path().join("elsewhere"), 0o600);
    std::os::unix::fs::symlink(base.path().join("elsewhere"), &secret).expect("linked");
    assert!(matches!(folder.secret(draw), Err(StateError::Io { .. })));
    for len in [0, 31, 33, 4096] {
        let _ = std::fs::remove_file(&secret);
        std::fs::write(&secret, vec![1; len]).expect("written");
        mode(&secret, 0o600);
        assert!(matches!(folder.secret(draw), Err(StateError::Damaged { .. })), "{len}");
    }
    std::fs::write(folder.path.join("seen"), b"no CBOR").expect("written");
    mode(&folder.path.join("seen"), 0o600);
    assert!(matches!(folder.seen(), Err(StateError::Damaged { .. })));
    assert!(StateFolder::open(base.path(), REPOSITORY).expect("nothing there").is_none());
    std::fs::write(base.path().join(REPOSITORY.to_string()), b"").expect("written");
    mode(&base.path().join(REPOSITORY.to_string()), 0o600);
    assert!(matches!(StateFolder::open(base.path(), REPOSITORY), Err(StateError::Io { .. })));
}
