//! Prints what the newest index of a repository says of versions, containers and extents: for whoever looks into why something stays.
//!
//! `LARDER_PASSWORD=… cargo run -p larder-gnode --example index_dump -- LOCATION [NUMBER]`
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a look that cannot go on fails here")]

use std::collections::BTreeMap;
use std::sync::Arc;

use larder_format::index_manifest::IndexManifest;
use larder_format::index_tables::ContainerFacts;
use larder_format::names;
use larder_index::{ContainerExtents, Containers, IndexIo, IndexSnapshot, LookupOptions, TableView};
use larder_store::repository::SystemEntropy;
use larder_store::{Location, Repository, Store, StoreOptions};

fn main() {
    let mut args = std::env::args().skip(1);
    let Some(location) = args.next() else {
        println!("usage: index_dump LOCATION [NUMBER]");
        std::process::exit(2);
    };
    let password = std::env::var("LARDER_PASSWORD").unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let store = Store::open(&location.parse::<Location>().unwrap(), &StoreOptions::default()).unwrap();
    let repository = runtime.block_on(Repository::open(store, password.as_bytes(), Arc::new(SystemEntropy))).unwrap();
    let manifest = match args.next().and_then(|number| number.parse::<u64>().ok()) {
        Some(number) => {
            let bytes = runtime.block_on(repository.store().get(&names::index(number))).unwrap();
            Arc::new(IndexManifest::decode(repository.keys(), number, &bytes).unwrap())
        }
        None => runtime.block_on(IndexSnapshot::newest(&repository)).unwrap().snapshot.manifest,
    };
    println!("head {:?}", manifest.head);
    manifest.versions.iter().for_each(|version| println!("{version:?}"));
    manifest.queue.iter().for_each(|queued| println!("queued {queued:?}"));
    let io = IndexIo { repository, runtime: runtime.handle().into() };
    let containers: TableView<Containers> = TableView::new(io.clone(), &manifest.runs, LookupOptions::default());
    let records = containers.scan(0..=u64::MAX, 1 << 20).map(|record| record.unwrap());
    let facts: BTreeMap<u32, ContainerFacts> = records.filter_map(|(number, facts)| Some((number, facts?))).collect();
    for (number, facts) in &facts {
        let ContainerFacts { id, state, layout, bytes, users, forwards, .. } = facts;
        println!("container {number} {id} {state:?} {layout} {bytes} bytes, to {forwards:?}");
        for user in users {
            println!("    used by {:?} {:?}", user.series, user.lifespans);
        }
    }
    let extents: TableView<ContainerExtents> = TableView::new(io, &manifest.runs, LookupOptions::default());
    for record in extents.scan(0..=u64::MAX, 1 << 20) {
        let (container, extents) = record.unwrap();
        println!("extents of {container}");
        for extent in extents.iter().flat_map(|extents| &extents.0) {
            println!("    {extent:?}");
        }
    }
}
