//! Prints what the newest index of a repository says of versions, containers and extents: for whoever looks into why something stays.
//!
//! `LARDER_PASSWORD=… cargo run -p larder-gnode --features measure --example index_dump -- LOCATION [NUMBER]`
#![allow(clippy::print_stdout, reason = "what it is for")]

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;

use larder_format::index_manifest::IndexManifest;
use larder_format::index_tables::ContainerFacts;
use larder_format::names;
use larder_index::{ContainerExtents, Containers, IndexIo, IndexSnapshot, LookupOptions, TableView};
use larder_store::repository::SystemEntropy;
use larder_store::{Location, Repository, Store, StoreOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let location = args.next().ok_or("usage: index_dump LOCATION [NUMBER]")?;
    let number = args.next().map(|number| number.parse::<u64>()).transpose()?;
    let password = std::env::var("LARDER_PASSWORD")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let store = Store::open(&location.parse::<Location>()?, &StoreOptions::default())?;
    let repository = runtime.block_on(Repository::open(store, password.as_bytes(), Arc::new(SystemEntropy)))?;
    let manifest = match number {
        Some(number) => {
            let bytes = runtime.block_on(repository.store().get(&names::index(number)))?;
            Arc::new(IndexManifest::decode(repository.keys(), number, &bytes)?)
        }
        None => runtime.block_on(IndexSnapshot::newest(&repository))?.snapshot.manifest,
    };
    println!("head {:?}", manifest.head);
    manifest.versions.iter().for_each(|version| println!("{version:?}"));
    manifest.queue.iter().for_each(|queued| println!("queued {queued:?}"));
    let io = IndexIo { repository, executor: runtime.handle().into() };
    let containers: TableView<Containers> = TableView::new(io.clone(), &manifest.runs, LookupOptions::default());
    let mut facts: BTreeMap<u32, ContainerFacts> = BTreeMap::new();
    for record in containers.scan(0..=u64::MAX, 1 << 20) {
        let (number, record) = record?;
        facts.extend(record.map(|record| (number, record)));
    }
    for (number, facts) in &facts {
        let ContainerFacts { id, state, layout, bytes, users, forwards, .. } = facts;
        println!("container {number} {id} {state:?} {layout} {bytes} bytes, to {forwards:?}");
        for user in users {
            println!("    used by {:?} {:?}", user.series, user.lifespans);
        }
    }
    let extents: TableView<ContainerExtents> = TableView::new(io, &manifest.runs, LookupOptions::default());
    for record in extents.scan(0..=u64::MAX, 1 << 20) {
        let (container, extents) = record?;
        println!("extents of {container}");
        for extent in extents.iter().flat_map(|extents| &extents.0) {
            println!("    {extent:?}");
        }
    }
    Ok(())
}
