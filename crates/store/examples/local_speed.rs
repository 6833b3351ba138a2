//! How fast a local folder is, beside plain system calls and `object_store`'s own local store.
//!
//! `cargo run --release -p larder-store --features measure --example local_speed -- <folder> [objects] [MiB an object]`
//!
//! Prints seconds and MB/s for creating objects that survive power loss, one at a time and eight at a time, and for reading
//! them back from the page cache. The folder decides the disk; it is left empty.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use larder_store::{Location, Store, StoreOptions};
use larder_testkit::data;
use object_store::local::LocalFileSystem;
use object_store::{ObjectStore, ObjectStoreExt, PutMode};

#[expect(clippy::print_stdout, reason = "a measuring program prints")]
fn report(what: &str, bytes: usize, began: Instant) {
    let seconds = began.elapsed().as_secs_f64();
    println!("{what:<44} {seconds:8.3} s {:8.0} MB/s", bytes as f64 / 1e6 / seconds);
}

fn raw(folder: &Path, objects: &[Bytes]) -> std::io::Result<()> {
    for (number, bytes) in objects.iter().enumerate() {
        let mut file = File::create_new(folder.join(number.to_string()))?;
        file.write_all(bytes)?;
        file.sync_all()?;
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

fn fresh(folder: &Path, name: &str) -> std::io::Result<PathBuf> {
    let folder = folder.join(name);
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let folder = PathBuf::from(args.next().ok_or("which folder?")?).join("local-speed");
    let count: usize = args.next().map_or(Ok(100), |text| text.parse())?;
    let mib: usize = args.next().map_or(Ok(8), |text| text.parse())?;
    let objects: Vec<Bytes> = (0..count).map(|seed| data::random(seed as u64, mib << 20).into()).collect();
    let total = count * (mib << 20);

    for round in 0..3 {
        let plain = fresh(&folder, &format!("raw{round}"))?;
        let began = Instant::now();
        raw(&plain, &objects)?;
        report("write, fsync, fsync folder: one at a time", total, began);
        fs::remove_dir_all(&plain)?;

        let other =
            Arc::new(LocalFileSystem::new_with_prefix(fresh(&folder, &format!("other{round}"))?)?.with_fsync(true));
        for at_once in [1, 8] {
            let began = Instant::now();
            let creates = objects.iter().cloned().enumerate().map(|(number, bytes)| {
                let (other, path) = (other.clone(), format!("data/{at_once}/{number}").into());
                async move { other.put_opts(&path, bytes.into(), PutMode::Create.into()).await }
            });
            stream::iter(creates).buffer_unordered(at_once).try_collect::<Vec<_>>().await?;
            report(&format!("object_store create: {at_once} at a time"), total, began);
        }
        let began = Instant::now();
        for number in 0..count {
            other.get(&format!("data/1/{number}").into()).await?.bytes().await?;
        }
        report("object_store read", total, began);

        let location = Location::Local(folder.join(format!("ours{round}")));
        let store = Store::open(&location, &StoreOptions::default())?;
        for at_once in [1, 8] {
            let began = Instant::now();
            let creates = objects.iter().cloned().enumerate().map(|(number, bytes)| {
                let (store, name) = (store.clone(), format!("data/{at_once}/{number}"));
                async move { store.create(&name, bytes).await }
            });
            stream::iter(creates).buffer_unordered(at_once).try_collect::<Vec<_>>().await?;
            report(&format!("Store create: {at_once} at a time"), total, began);
        }
        let began = Instant::now();
        for number in 0..count {
            store.get(&format!("data/1/{number}")).await?;
        }
        report("Store read", total, began);
        let began = Instant::now();
        let reads = (0..count).map(|number| {
            let store = store.clone();
            async move { store.get(&format!("data/8/{number}")).await }
        });
        stream::iter(reads).buffer_unordered(4).try_for_each(|_| async { Ok(()) }).await?;
        report("Store read: 4 at a time", total, began);
    }
    fs::remove_dir_all(&folder)?;
    Ok(())
}
