//! Text of inventories and configuration files, as a document with places.

#![no_main]

use std::path::Path;
use std::sync::Arc;

use larder_profile::document;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let file: Arc<Path> = Arc::from(Path::new("inventory.toml"));
    match document::parse(&file, text) {
        Ok(table) => drop(format!("{table:?}")),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
