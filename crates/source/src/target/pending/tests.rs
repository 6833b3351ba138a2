//! Pending folders are returned as they were put, last first, in few bytes.

use proptest::prelude::*;

use super::*;

fn any_dir() -> impl Strategy<Value = PendingDir> {
    let time = (any::<i64>(), 0..1_000_000_000_u32).prop_map(|(seconds, nanos)| Timestamp { seconds, nanos });
    let xattr = (any::<Vec<u8>>(), any::<Vec<u8>>()).prop_map(|(name, value)| Xattr { name, value });
    let rest = (any::<(u32, u32, bool)>(), time.clone(), prop::option::of(time), prop::collection::vec(xattr, 0..3))
        .prop_map(|((uid, gid, fresh), mtime, atime, xattrs)| {
            let attributes = if fresh { Attributes::Fresh } else { Attributes::Unknown };
            Rest { ids: Ids { uid, gid }, mtime, atime, xattrs, attributes }
        });
    ("[ab]{0,3}(/[ab]{1,3}){0,4}", 0..0o10000_u32, prop::option::of(rest)).prop_map(|(path, mode, rest)| PendingDir {
        path: path.into_bytes(),
        mode,
        rest,
    })
}

proptest! {
    #[test]
    fn everything_comes_back_last_first(dirs in prop::collection::vec(any_dir(), 0..700), more in prop::collection::vec(any_dir(), 0..5)) {
        let mut pending = PendingDirs::default();
        for dir in &dirs {
            pending.push(dir);
        }
        let mut found = pending.pop_block().expect("in memory").unwrap_or_default();
        // Pushing continues after a block was taken.
        for dir in &more {
            pending.push(dir);
        }
        let mut later = Vec::new();
        while let Some(block) = pending.pop_block().expect("in memory") {
            later.extend(block);
        }
        let added: Vec<_> = later.drain(..more.len()).collect();
        prop_assert_eq!(added, more.into_iter().rev().collect::<Vec<_>>());
        found.extend(later);
        prop_assert_eq!(found, dirs.into_iter().rev().collect::<Vec<_>>());
        prop_assert_eq!(pending.held_bytes(), 0);
    }
}

#[test]
fn a_usual_directory_takes_few_bytes() {
    let mut pending = PendingDirs::default();
    for number in 0..10_000_u32 {
        let ids = Ids { uid: 1000, gid: 1000 };
        let mtime = Timestamp { seconds: 1_700_000_000, nanos: 123_456_789 };
        let rest = Rest { ids, mtime, atime: None, xattrs: Vec::new(), attributes: Attributes::Fresh };
        let path = format!("home/someone/project/source/module-{number}/tests").into_bytes();
        pending.push(&PendingDir { path, mode: 0o755, rest: Some(rest) });
    }
    assert!(pending.held_bytes() < 10_000 * 40, "{}", pending.held_bytes());
}

/// Folders of a server whose access control lists take kilobytes each.
#[test]
fn many_attributes_are_kept_in_a_file() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = |number: u32| {
        let xattrs = vec![Xattr { name: b"security.NTACL".to_vec(), value: number.to_le_bytes().repeat(500) }];
        let ids = Ids { uid: 1000, gid: 1000 };
        let mtime = Timestamp { seconds: 1_700_000_000, nanos: 0 };
        let rest = Rest { ids, mtime, atime: None, xattrs, attributes: Attributes::Fresh };
        PendingDir { path: format!("folder/{number}").into_bytes(), mode: 0o755, rest: Some(rest) }
    };
    const COUNT: u32 = 10_000;
    for (scratch, is_bounded) in
        [(Some(dir.path().join("scratch")), true), (Some("/proc/none".into()), false), (None, false)]
    {
        let mut pending = PendingDirs::new(scratch);
        for number in 0..COUNT {
            pending.push(&folder(number));
        }
        assert_eq!(pending.held_bytes() <= HELD_MAX + BLOCK_BYTES + 4096, is_bounded, "{}", pending.held_bytes());
        // Some are taken, and others come.
        let mut next = COUNT;
        for _ in 0..20 {
            for dir in pending.pop_block().expect("read").expect("a block") {
                next -= 1;
                assert!(dir == folder(next), "{next}");
            }
        }
        for number in next..COUNT {
            pending.push(&folder(number));
        }
        next = COUNT;
        while let Some(block) = pending.pop_block().expect("read") {
            for dir in block {
                next -= 1;
                assert!(dir == folder(next), "{next}");
            }
        }
        assert_eq!((next, pending.held_bytes()), (0, 0));
    }
}
