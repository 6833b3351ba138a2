//! A repository on an object store.
//!
//! The lower half of this crate is the [`Store`]: named immutable objects that are created if
//! absent, read whole or in part, listed and deleted. They are in a local folder, S3, Azure, Google
//! Cloud or in memory. Everything that a real store needs is behind that one type, each concern in
//! a layer of its own. There are retries with a deadline, a time limit on every attempt, limits on
//! concurrency and bandwidth, counters, and a cache of metadata on disk.
//!
//! Input: names made by `larder_format::names` and sealed bytes. Output: the same bytes, or a
//! [`StoreError`] whose kind gives the reaction.
//!
//! The upper half is the [`Repository`]: a store whose master key is known. It seals and opens the
//! small objects of the protocol: keys, leases, registers, marks, pins and settings. The contents
//! of containers, recipes and the index are the matter of upper crates.
//!
//! Above this crate: `index`, `job` and everything that uses them. Below: `format`.

pub mod accounts;
mod answers;
mod bandwidth;
pub mod byte_lru;
mod cache;
pub mod catalog;
pub mod chunk_reader;
pub mod closed_domains;
mod cold;
pub mod cold_containers;
pub mod config;
pub mod conformance;
pub mod container_reader;
mod counters;
mod entries;
mod error;
mod error_kind;
pub mod fleet_batches;
mod foreign_config;
pub mod forget_marks;
pub mod generations;
pub mod holds;
mod in_its_place;
pub mod jobs;
mod key_object;
pub mod keyring;
#[cfg(test)]
mod kind_tests;
mod layer;
mod limit;
mod local;
mod location;
pub mod manifests;
mod name;
pub mod named_versions;
pub mod newest_versions;
mod open;
mod opening;
mod options;
mod other_program;
mod own_generations;
pub mod pins;
pub mod presence;
pub mod prices;
mod read_manifests;
mod reasons;
mod rehearsal;
mod remote;
pub mod repository;
mod retry;
pub mod rules;
pub mod settings;
mod sftp;
mod stall_timeout;
mod store;
pub mod survey;
pub mod tags;
mod tail_cache;
pub mod turns;
mod unlisted;
mod waiting;
mod watch;

pub use cold::classes::{TIERING, ThawTier, minimum_days, thaw_hours};
pub use cold::{ClassedObject, Warmth};
pub use counters::StoreStats;
pub use error::{Oversized, ServerFailure, ShortRead, StoreError, StoreOp};
pub use error_kind::StoreErrorKind;
pub use layer::{Created, Listed};
pub use location::{LOCATION_FORMS, Location, LocationError, LocationProblem, SftpLocation};
pub use open::{Environment, Post, names_variable, post};
pub use opening::OpenHints;
pub use options::{CacheOptions, S3Options, SftpOptions, StoreOptions, TlsOptions};
pub use other_program::OtherProgram;
pub use repository::{Repository, RepositoryError};
pub use store::Store;
pub use unlisted::Unlisted;
pub use waiting::Waiting;
