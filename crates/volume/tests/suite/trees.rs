//! Trees of snapshots and clones, against vectors.

use std::collections::BTreeMap;

use larder_volume::CheckOptions;
use larder_volume::disk::Fault;
use larder_volume::{CollectOptions, Options};
use proptest::prelude::*;

use super::scene::{Scene, options};
use super::snapshots::{BLOCK, read, read_snapshot};

/// What is done to a tree of volumes and snapshots.
#[derive(Debug, Clone)]
enum Op {
    Write { of: usize, at: usize, length: usize, byte: u8 },
    Discard { of: usize, at: usize, length: usize },
    Snapshot(usize),
    Clone(usize),
    DeleteVolume(usize),
    DeleteSnapshot(usize),
    Resize(usize, usize),
    Restart(bool),
    Maintain,
    Collect,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let place = (any::<prop::sample::Index>(), 0usize..5 * BLOCK, 1usize..2 * BLOCK);
    let of = || any::<prop::sample::Index>().prop_map(|index| index.index(1 << 20));
    let op = prop_oneof![
        6 => (place.clone(), 1u8..4).prop_map(|((of, at, length), byte)| Op::Write {
            of: of.index(1 << 20), at, length, byte
        }),
        2 => place.prop_map(|(of, at, length)| Op::Discard { of: of.index(1 << 20), at, length }),
        3 => of().prop_map(Op::Snapshot),
        3 => of().prop_map(Op::Clone),
        1 => of().prop_map(Op::DeleteVolume),
        2 => of().prop_map(Op::DeleteSnapshot),
        1 => (of(), 1usize..6 * 128).prop_map(|(of, sectors)| Op::Resize(of, sectors * 512)),
        2 => any::<bool>().prop_map(Op::Restart),
        1 => Just(Op::Maintain),
        1 => Just(Op::Collect),
    ];
    prop::collection::vec(op, 1..40)
}

fn pick(of: usize, from: &BTreeMap<u32, Vec<u8>>) -> Option<u32> {
    from.keys().nth(of % from.len().max(1)).copied()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn trees_of_snapshots_and_clones_read_as_vectors(ops in ops(), seed: u64) {
        let scene = Scene::new(seed, 1 << 18);
        let small = || Options { tables: 16 << 10, ..options() };
        let (mut store, _) = scene.open_with(small()).unwrap();
        let mut volumes = BTreeMap::from([(store.create_volume("v", 5 * BLOCK as u64, 0).unwrap().id, vec![0; 5 * BLOCK])]);
        let mut snapshots: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
        for (number, op) in ops.into_iter().enumerate() {
            let name = format!("n{number}");
            match op {
                Op::Write { of, at, length, byte } => {
                    let Some(id) = pick(of, &volumes) else { continue };
                    let content = volumes.get_mut(&id).unwrap();
                    let (at, end) = (at.min(content.len()), (at + length).min(content.len()));
                    content[at..end].fill(byte);
                    store.write(id, at as u64, &vec![byte; end - at]).unwrap();
                }
                Op::Discard { of, at, length } => {
                    let Some(id) = pick(of, &volumes) else { continue };
                    let content = volumes.get_mut(&id).unwrap();
                    let (at, end) = (at.min(content.len()), (at + length).min(content.len()));
                    content[at..end].fill(0);
                    store.discard(id, at as u64, (end - at) as u64).unwrap();
                }
                Op::Snapshot(of) => {
                    let Some(id) = pick(of, &volumes) else { continue };
                    let snapshot = store.create_snapshot(id, &name, None, 0).unwrap();
                    snapshots.insert(snapshot.id, volumes[&id].clone());
                }
                Op::Clone(of) => {
                    let Some(id) = pick(of, &snapshots) else { continue };
                    volumes.insert(store.clone_snapshot(&name, id, 0).unwrap().id, snapshots[&id].clone());
                }
                Op::DeleteVolume(of) => {
                    let Some(id) = pick(of, &volumes) else { continue };
                    let entries = store.snapshots();
                    if store.delete_volume(id, true).is_ok() {
                        volumes.remove(&id);
                        entries.iter().filter(|entry| entry.volume == id).for_each(|entry| drop(snapshots.remove(&entry.id)));
                    }
                }
                Op::DeleteSnapshot(of) => {
                    let Some(id) = pick(of, &snapshots) else { continue };
                    if store.delete_snapshot(id).is_ok() {
                        snapshots.remove(&id);
                    }
                }
                Op::Resize(of, size) => {
                    let Some(id) = pick(of, &volumes) else { continue };
                    store.resize_volume(id, size as u64).unwrap();
                    volumes.get_mut(&id).unwrap().resize(size, 0);
                }
                Op::Restart(flushes) => {
                    if flushes { store.flush().unwrap() } else { store.close().unwrap() }
                    drop(store);
                    scene.disk.restart(Fault::Power);
                    store = scene.open_with(small()).unwrap().0;
                }
                Op::Maintain => drop(store.maintain().unwrap()),
                Op::Collect => drop(store.collect(&CollectOptions::default()).unwrap()),
            }
        }
        store.flush().unwrap();
        for (id, content) in &volumes {
            prop_assert!(read(&store, *id, 0, content.len()) == *content, "volume {}", id);
        }
        for (id, content) in &snapshots {
            prop_assert!(read_snapshot(&store, *id, content.len()) == *content, "snapshot {}", id);
        }
        let report = store.check(&CheckOptions::new(true)).unwrap();
        prop_assert!(report.errors.is_empty(), "{:?}", report.errors);
    }
}
