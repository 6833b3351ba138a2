//! [`Host`]: an opened store that answers requests.

use std::sync::Arc;
use std::time::Instant;

use larder_job::Cancel;
use larder_volume::{Recovery, Store};
use serde_json::Value;

use super::Parents;
use super::users::Users;
use crate::failure::Failure;

/// Creates a volume of a name over something outside of the store, which a text describes.
pub(super) type CreateOver = Box<dyn Fn(&str, &str) -> Result<Value, Failure> + Send + Sync>;

/// See the module header.
pub(super) struct Host {
    pub(super) store: Arc<Store>,
    pub(super) recovery: Recovery,
    pub(super) opened: Instant,
    /// Connections of NBD clients, if it is served.
    pub(super) clients: Option<Box<dyn Fn() -> u64 + Send + Sync>>,
    /// Clients of each volume.
    pub(super) users: Arc<Users>,
    /// Snapshots of a repository below volumes.
    pub(super) parents: Arc<Parents>,
    /// Ends long requests.
    pub(super) cancel: Cancel,
    /// A server's way to add such a volume.
    pub(super) create_over: Option<CreateOver>,
}

impl Host {
    /// A store that was just opened.
    pub(super) fn new(store: Store, recovery: Recovery) -> Self {
        Self {
            store: Arc::new(store),
            recovery,
            opened: Instant::now(),
            clients: None,
            users: Arc::default(),
            parents: Arc::default(),
            cancel: Cancel::default(),
            create_over: None,
        }
    }
}
