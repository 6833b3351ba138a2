//! A repository on an object store.
//!
//! The lower half of this crate is the [`Store`]: named immutable objects that are created if absent, read whole or in
//! part, listed and deleted, on a local folder, S3, Azure, Google Cloud or in memory. Everything that makes a real store
//! bearable sits behind that one type, each concern in a layer of its own: retries with a deadline, a time limit on
//! every attempt, limits on concurrency and bandwidth, counters, and a cache of metadata on disk.
//!
//! What flows in: names made by `larder_format::names` and sealed bytes. What flows out: the same bytes, or a
//! [`StoreError`] whose kind says what to do. Nothing here knows what is inside an object.
//!
//! Above this crate: `index`, `job` and everything that uses them. Below: `format`.

pub mod accounts;
mod answers;
pub mod byte_lru;
mod cache;
pub mod catalog;
pub mod chunk_reader;
pub mod config;
pub mod conformance;
pub mod container_reader;
mod counters;
mod error;
pub mod forget_marks;
pub mod jobs;
pub mod keyring;
mod layer;
mod limit;
mod local;
mod location;
mod name;
pub mod newest_versions;
mod open;
mod options;
pub mod pins;
pub mod presence;
mod remote;
pub mod repository;
mod retry;
pub mod rules;
pub mod settings;
mod stall_timeout;
mod store;
pub mod survey;
mod tail_cache;
mod unlisted;
mod waiting;

pub use counters::StoreStats;
pub use error::{Oversized, ServerFailure, ShortRead, StoreError, StoreErrorKind, StoreOp};
pub use layer::{Created, Listed};
pub use location::{LOCATION_FORMS, Location, LocationError, LocationProblem};
pub use open::{Environment, names_variable};
pub use options::{CacheOptions, StoreOptions};
pub use repository::{Repository, RepositoryError};
pub use store::Store;
pub use unlisted::Unlisted;
pub use waiting::Waiting;
