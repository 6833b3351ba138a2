//! What one object of a run is sealed with.

use crate::ids::{DomainId, RunId};
use crate::keys::{Keys, Secret};
use crate::names;
use crate::seal::{PartKeys, RANDOM_LEN};
use crate::wire::DecodeError;

/// The keys of one object of a run.
#[derive(Debug, Clone)]
pub struct RunKey {
    pub(super) id: RunId,
    pub(super) parts: PartKeys,
}

impl RunKey {
    /// Those of an object of the index.
    pub fn of(keys: &Keys, id: RunId) -> Result<Self, DecodeError> {
        let base = keys.index(super::WHAT)?.keyed(&[b"run\0", names::run(id).as_bytes()]);
        Ok(Self { id, parts: PartKeys::new(base) })
    }

    /// Those of an output of a fleet task, by the name of the object. `id` is for messages.
    pub fn of_fleet(keys: &Keys, domain: DomainId, name: &str, id: RunId) -> Result<Self, DecodeError> {
        let base = keys.domain_secret(domain, super::WHAT)?.keyed(&[b"fleet\0", name.as_bytes()]);
        Ok(Self { id, parts: PartKeys::new(base) })
    }

    /// Those of a run that its process alone writes and reads, in a file of its own. `secret` are
    /// random bytes of that process.
    pub fn of_process(secret: [u8; RANDOM_LEN], id: RunId) -> Self {
        let base = Secret(secret).keyed(&[b"spill\0", names::run(id).as_bytes()]);
        Self { id, parts: PartKeys::new(base) }
    }
}
