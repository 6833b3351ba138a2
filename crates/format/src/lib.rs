//! Every structure that Larder stores, and the keys that seal it. No I/O and no async: bytes in,
//! values out.
//!
//! The writer, the restorer, the checker and the fuzz targets share these decoders. Each module
//! draws the layout of its structure directly above the encoder, with a version byte. A decoder
//! trusts no input and never panics. `docs/format.md` explains how the structures hang together.
//!
//! Above this crate: `store`. Below: `chunking` (the [`Fingerprint`] type).

mod causes;
mod cbor;
pub mod closed_domain;
pub mod compress;
pub mod config;
pub mod container;
pub mod content;
#[cfg(test)]
mod development_tests;
pub mod difference;
pub mod entry;
mod error_kind;
pub mod extents;
pub mod fleet;
mod fleet_task;
#[cfg(test)]
mod golden;
pub mod ids;
pub mod index_manifest;
pub mod index_mark;
pub mod index_tables;
pub mod kem;
pub mod key_file;
pub mod keys;
#[cfg(test)]
mod kind_tests;
pub mod layout;
pub mod lease;
pub mod manifest;
pub mod mark;
pub mod metadata;
pub mod names;
pub mod padding;
pub mod page_run;
pub mod pinning;
mod places;
pub mod recipe;
pub mod roles;
pub mod run;
pub mod seal;
pub mod segment;
pub mod settings;
pub mod sketch;
pub mod volume_entry;
pub mod volume_log;
pub mod volume_manifest;
pub mod volume_map;
mod wire;
pub mod witness;
pub mod witness_key;

pub use causes::chain;
pub use container::ChunkRef;
pub use error_kind::ErrorKind;
pub use larder_chunking::Fingerprint;
pub use wire::{DecodeError, EncodeError};
