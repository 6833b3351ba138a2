//! Serves a store over NBD without the command line, for measurements of the store and NBD alone.
//!
//! ```text
//! cargo run --release -p larder-volume --example serve -- FOLDER SOCKET MIB NAME...
//! ```
//!
//! Creates the store if the folder is missing, and volumes of this size that are missing. Serves
//! until its standard input ends. Then it says how much processor time it took.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement for developers")]

use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use larder_format::key_file::KdfCost;
use larder_nbd::{Limits, Server};
use larder_volume::disk::RealDisk;
use larder_volume::store::NewStore;
use larder_volume::{Options, Store, SystemEntropy, VolumeExports};

fn main() {
    let mut args = std::env::args().skip(1);
    let (folder, socket) = (PathBuf::from(args.next().unwrap()), PathBuf::from(args.next().unwrap()));
    let size = args.next().unwrap().parse::<u64>().unwrap() << 20;
    if !folder.exists() {
        let new = NewStore { cost: KdfCost::TEST, ..NewStore::default() };
        Store::create(&RealDisk::create(&folder).unwrap(), &SystemEntropy, b"secret", &new).unwrap();
    }
    let disk = Arc::new(RealDisk::open(&folder).unwrap());
    let options = Options::of_memory(512 << 20);
    let store = Arc::new(Store::open(disk, Arc::new(SystemEntropy), b"secret", options).unwrap().0);
    for name in args {
        if store.volume(&name).is_err() {
            store.create_volume(&name, size, 0).unwrap();
        }
    }
    // As `larder volume serve` has it.
    let limits = Limits { memory: 64 << 20, ..Limits::default() };
    let server = Server::new(Arc::new(VolumeExports::new(store.clone())), limits);
    server.listen_unix(&socket).unwrap();
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| store.commit_in_background(Duration::from_secs(1), &|| ends.load(Ordering::Relaxed)));
        std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
        ends.store(true, Ordering::Relaxed);
        store.flush().unwrap();
    });
    server.shutdown().unwrap();
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let seconds = |field: usize| fields[field].parse::<u64>().unwrap() as f64 / 100.0;
    println!("cpu {:.2} + {:.2} s", seconds(11), seconds(12));
    store.close().unwrap();
}
