//! The example `log_writes`: which disks it says that a power cut can leave.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::path::Path;
use std::sync::Arc;

use larder_nbd::client::{Client, Options};
use larder_nbd::{Limits, Server, Single};
use tempfile::TempDir;

use super::support::connect;

#[path = "../../examples/log_writes/copy.rs"]
mod copy;
#[path = "../../examples/log_writes/cut.rs"]
mod cut;
#[path = "../../examples/log_writes/device.rs"]
mod device;
#[path = "../../examples/log_writes/record.rs"]
mod record;

use cut::Image;
use device::Logged;
use record::Log;

const SECTOR: usize = 512;
const SECTORS: usize = 64;

/// A change: first sector, data, and whether it is durable when it is answered.
struct Step {
    first: usize,
    data: Vec<u8>,
    is_durable: bool,
}

fn step(first: usize, sectors: usize, value: u8, is_durable: bool) -> Option<Step> {
    Some(Step { first, data: vec![value; sectors * SECTOR], is_durable })
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

fn empty(path: &Path) -> File {
    File::create(path).unwrap().set_len((SECTORS * SECTOR) as u64).unwrap();
    open(path)
}

/// A log of writes; `None` is a flush. The ends of its records come with it.
fn logged(folder: &TempDir, steps: &[Option<Step>]) -> (Log, Vec<u64>) {
    let path = folder.path().join("log");
    let log = OpenOptions::new().append(true).create_new(true).open(&path).unwrap();
    let device = Logged::new(empty(&folder.path().join("device")), log).unwrap();
    let server = Server::new(Arc::new(Single::new("disk", Arc::new(device))), Limits::default());
    let client = Client::over_unix(connect(&server), &Options::default()).unwrap();
    let mut ends = Vec::new();
    for step in steps {
        match step {
            Some(Step { first, data, is_durable: false }) if data[0] == 0 => {
                client.trim((first * SECTOR) as u64, data.len() as u32).unwrap();
            }
            Some(Step { first, data, is_durable }) => {
                client.write((first * SECTOR) as u64, data, *is_durable).unwrap();
            }
            None => client.flush().unwrap(),
        }
        ends.push(std::fs::metadata(&path).unwrap().len());
    }
    (Log::open(&path).unwrap(), ends)
}

/// The first byte of each sector, which is whole.
fn sectors(path: &Path) -> Vec<u8> {
    let bytes = std::fs::read(path).unwrap();
    assert_eq!(bytes.len(), SECTORS * SECTOR);
    for sector in bytes.chunks(SECTOR) {
        assert!(sector.iter().all(|byte| *byte == sector[0]), "a sector is torn");
    }
    bytes.chunks(SECTOR).map(|sector| sector[0]).collect()
}

/// The disk when the power failed at a place.
fn cut_at(folder: &TempDir, log: &Log, cut: u64, seed: u64, unit: u64) -> Vec<u8> {
    let (base, out) = (folder.path().join("base"), folder.path().join("out"));
    let flushed = log.last_flush(0, cut).unwrap();
    Image::new(empty(&base)).apply(log, 0, flushed).unwrap();
    copy::sparse(&base, &out).unwrap();
    Image::new(open(&out)).scatter(log, (flushed, cut), seed, unit).unwrap();
    sectors(&out)
}

#[test]
fn a_sector_has_what_was_flushed_or_something_later() {
    let steps = [
        step(0, 8, 1, false),
        step(4, 8, 2, false),
        None,
        step(0, 2, 3, false),
        step(1, 2, 4, false),
        step(60, 4, 5, true),
        step(61, 1, 6, false),
        step(8, 2, 0, false),
        None,
        step(0, 64, 7, false),
    ];
    let folder = tempfile::tempdir().unwrap();
    let (log, ends) = logged(&folder, &steps);
    for (last, end) in ends.iter().enumerate() {
        // What each sector may have: the last element is there if everything is.
        let mut possible = vec![vec![0]; SECTORS];
        for step in &steps[..=last] {
            match step {
                Some(step) => {
                    for (sector, possible) in possible.iter_mut().enumerate() {
                        if (step.first..step.first + step.data.len() / SECTOR).contains(&sector) {
                            possible.push(step.data[0]);
                            if step.is_durable {
                                possible.drain(..possible.len() - 1);
                            }
                        }
                    }
                }
                None => possible.iter_mut().for_each(|possible| drop(possible.drain(..possible.len() - 1))),
            }
        }
        let mut seen = vec![HashSet::new(); SECTORS];
        for seed in 0..300 {
            for (sector, value) in cut_at(&folder, &log, *end, seed, SECTOR as u64).into_iter().enumerate() {
                assert!(possible[sector].contains(&value), "cut behind step {last}, sector {sector}: {value}");
                seen[sector].insert(value);
            }
        }
        // All of it happens.
        for (sector, possible) in possible.iter().enumerate() {
            assert!(possible.iter().all(|value| seen[sector].contains(value)), "cut behind step {last}, {sector}");
        }
    }
}

#[test]
fn a_larger_unit_is_old_or_new() {
    let folder = tempfile::tempdir().unwrap();
    // The write begins and ends within units of 8 sectors.
    let (log, ends) = logged(&folder, &[step(3, 50, 1, false)]);
    let mut is_mixed = false;
    for seed in 0..100 {
        let disk = cut_at(&folder, &log, ends[0], seed, 8 * SECTOR as u64);
        for unit in disk.chunks(8) {
            let (first, last) = (unit.iter().find(|value| **value == 1), unit.contains(&0));
            assert!(first.is_none() || !last || unit == &disk[..8] || unit == &disk[48..56], "seed {seed}: {unit:?}");
        }
        is_mixed |= disk[8..48].contains(&0) && disk[8..48].contains(&1);
    }
    assert!(is_mixed);
}

#[test]
fn cuts_are_ends_of_records() {
    let steps = [step(0, 8, 1, false), None, step(4, 8, 2, false), None, step(0, 2, 3, false)];
    let folder = tempfile::tempdir().unwrap();
    let (log, ends) = logged(&folder, &steps);
    let cuts = log.cuts(0, 200, 1).unwrap();
    assert!(cuts.is_sorted() && cuts.iter().all(|cut| ends.contains(cut)));
    assert!(ends.iter().all(|end| cuts.contains(end)), "each place is met");
    // The last record is incomplete: the process was killed.
    let path = folder.path().join("log");
    open(&path).set_len(ends[4] - 1).unwrap();
    let log = Log::open(&path).unwrap();
    assert!(log.cuts(0, 200, 1).unwrap().iter().all(|cut| ends[..4].contains(cut)));
}
