//! Prints the bytes of all chunks in the data containers of a repository, and those of the distinct ones among them. The
//! second number is what exact deduplication of the same chunks would have stored.
//!
//! `LARDER_PASSWORD=… cargo run -p larder-gnode --features measure --example distinct -- LOCATION`
#![allow(clippy::print_stdout, reason = "what it is for")]

use std::collections::HashSet;
use std::error::Error;
use std::sync::Arc;

use larder_store::repository::SystemEntropy;
use larder_store::{Location, Repository, Store, StoreOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let location = std::env::args().nth(1).ok_or("usage: distinct LOCATION")?;
    let password = std::env::var("LARDER_PASSWORD")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let store = Store::open(&location.parse::<Location>()?, &StoreOptions::default())?;
    let repository = runtime.block_on(Repository::open(store, password.as_bytes(), Arc::new(SystemEntropy)))?;
    let (mut all, mut distinct, mut seen) = (0_u64, 0_u64, HashSet::new());
    runtime.block_on(async {
        for object in repository.store().list(larder_format::names::DATA).await? {
            let Some(id) = larder_format::names::parse_container(&object.name) else { continue };
            for chunk in repository.read_container_index(id).await?.chunk_refs() {
                all += u64::from(chunk.size);
                if seen.insert(chunk.fingerprint) {
                    distinct += u64::from(chunk.size);
                }
            }
        }
        Ok::<_, Box<dyn Error>>(())
    })?;
    println!("{all} {distinct}");
    Ok(())
}
