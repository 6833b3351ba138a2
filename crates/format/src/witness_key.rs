//! Witness: how a machine recognises the versions that it made itself.
//!
//! Everybody with a backup key of a domain can make versions of its series. A later backup takes
//! files and proved segments over from an earlier version unread, so it must not follow a version
//! of somebody else. Each machine has a secret of its own, in its key file or its state folder. It
//! puts a MAC under this secret into the summary of each version that it makes.
//!
//! ```text
//! W       = BLAKE3 derive_key("Larder format 2: witness", secret)
//! witness = id (8): keyed(W, "id")
//!         | mac (16): keyed(W, "summary\0" repository id, domain, summary)
//! ```
//!
//! The summary is hashed as its CBOR without the witness, and without the fields in which a later
//! generation may differ: attempt, layout, program, sketch. Its roots stand for the contents.

use std::fmt;

use subtle::ConstantTimeEq;

use crate::cbor;
use crate::ids::RepositoryId;
use crate::keys::Secret;
use crate::layout::Layout;
use crate::manifest::Summary;
use crate::sketch::Sketch;
use crate::witness::{ID_LEN, MAC_LEN, Witness};

/// The secret of one machine, ready for use with one repository.
#[derive(Clone)]
pub struct WitnessKey {
    key: Secret,
    repository: RepositoryId,
}

impl fmt::Debug for WitnessKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WitnessKey(..)")
    }
}

impl WitnessKey {
    /// From the machine's secret.
    pub fn new(secret: &Secret, repository: RepositoryId) -> Self {
        Self { key: Secret(blake3::derive_key("Larder format 2: witness", &secret.0)), repository }
    }

    /// The witness of a version with this summary.
    pub fn witness(&self, summary: &Summary) -> Witness {
        let id = self.key.keyed(&[b"id"]).0;
        let hashed = Summary {
            attempt: [0; 16],
            layout: Layout::Standard,
            program: String::new(),
            sketch: Sketch::default(),
            witness: None,
            ..summary.clone()
        };
        let mac = self.key.keyed(&[b"summary\0", &self.repository.0, &summary.domain.0, &cbor::encode(&hashed)]).0;
        let mut witness = Witness { id: [0; ID_LEN], mac: [0; MAC_LEN] };
        witness.id.copy_from_slice(&id[..ID_LEN]);
        witness.mac.copy_from_slice(&mac[..MAC_LEN]);
        witness
    }

    /// Whether this machine made the version with this summary.
    pub fn made(&self, summary: &Summary) -> bool {
        summary.witness.is_some_and(|found| bool::from(found.mac.ct_eq(&self.witness(summary).mac)))
    }
}

#[cfg(test)]
mod tests;
