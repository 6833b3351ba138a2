//! A repository written with this crate reads back, and no valid object passes for another one.

use larder_format::DecodeError;
use larder_format::compress::Decompressor;
use larder_format::container::ContainerIndex;
use larder_format::key_file::Unlock;

use crate::miniature::{MACHINE, Objects, read, read_with, tree, write};
use crate::support::{self, CONTAINER, keys};

/// The objects that restoring the version reads.
fn is_read(name: &str) -> bool {
    !name.starts_with("jobs/") && *name != larder_format::names::key(MACHINE.key)
}

#[test]
fn what_is_written_is_read() {
    let objects = write();
    assert_eq!(read(&objects), Ok(tree()));
    assert_eq!(read_with(&objects, MACHINE.key, Unlock::File(&MACHINE.secret)), Ok(tree()), "by a key file");
}

/// Somebody who can write to the store, but has no key, can only choose among what is there.
#[test]
fn objects_do_not_pass_for_one_another() {
    let objects = write();
    let names: Vec<_> = objects.keys().collect();
    for place in names.iter().filter(|name| is_read(name)) {
        for other in &names {
            if other != place {
                let mut swapped: Objects = objects.clone();
                swapped.insert((*place).clone(), objects[*other].clone());
                assert!(read(&swapped).is_err(), "{other} passed for {place}");
            }
        }
        let mut missing = objects.clone();
        missing.remove(*place);
        assert!(read(&missing).is_err(), "{place} was not missed");
    }
}

/// Frames are sealed with their numbers: two of one length, changed about, do not open.
#[test]
fn frames_of_a_container_do_not_pass_for_one_another() {
    let parts = support::ContainerParts {
        frames: vec![vec![1; 10], vec![2; 10]],
        chunk_table: [vec![2, 0], vec![7; 64], vec![10, 10]].concat(),
        frame_table: vec![2, 0, 10, 42, 0, 10, 42],
        chunk_count: 2,
        frame_count: 2,
        payload_len: 20,
        ..support::ContainerParts::default()
    };
    let mut object = support::Forger::new().container(CONTAINER, &parts);
    let open = |object: &[u8]| {
        let index = ContainerIndex::decode(&keys(), CONTAINER, object, object.len() as u64).expect("reads");
        let mut raw = [0; 20];
        for (frame, raw) in index.frames().iter().zip(raw.chunks_mut(10)) {
            let range = frame.object_range();
            let mut sealed = object[range.start as usize..range.end as usize].to_vec();
            index.opener().open_frame(&keys(), frame, &mut sealed, raw, &mut Decompressor::new())?;
        }
        Ok(raw)
    };
    assert_eq!(open(&object), Ok([[1; 10], [2; 10]].concat().try_into().expect("20 bytes")));
    let (front, back) = object.split_at_mut(42);
    front.swap_with_slice(&mut back[..42]);
    assert_eq!(open(&object), Err(DecodeError::NotAuthentic { what: "frame" }));
}

/// One damaged byte anywhere is noticed by whoever reads the version; it never gives other contents.
#[test]
fn a_damaged_byte_is_an_error_wherever_it_lies() {
    let objects = write();
    for (name, bytes) in objects.iter().filter(|(name, _)| is_read(name)) {
        // A key's cost is not tried out: a flipped one may ask for a gigabyte.
        let step = if name.starts_with("keys/") { continue } else { (bytes.len() / 60).max(1) };
        for at in (0..bytes.len()).step_by(step) {
            let mut objects = objects.clone();
            objects.get_mut(name).expect("is there")[at] ^= 0x10;
            assert!(read(&objects).is_err(), "byte {at} of {name}");
        }
    }
}
