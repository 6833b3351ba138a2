//! What the fuzz targets share. Each target is one decoder of the crate `larder-format`; what must hold of it whatever it is
//! given stands in the crate's own tests (`crates/format/tests/support/checks.rs`), because they try the same with less patience.
//!
//! A sealed object is fuzzed twice: as it lies in the store, where everything must be refused that is not authentic, and by
//! its contents, which the forger of those tests seals under a known key.

#[path = "../../crates/format/tests/support/mod.rs"]
mod support;

pub use support::{ContainerParts, RunParts, checks};

/// Takes what `len` bytes of the input say is the length of a part, and the part; the rest is another.
pub fn split(input: &[u8]) -> (&[u8], &[u8]) {
    let Some((len, rest)) = input.split_first_chunk::<2>() else { return (input, &[]) };
    rest.split_at(rest.len().min(usize::from(u16::from_le_bytes(*len))))
}

/// What must hold of the messages of NBD; the crate `larder-nbd` tests the same.
#[path = "../../crates/nbd/tests/suite/checks.rs"]
pub mod nbd_checks;
/// What must hold of whole sessions of NBD.
#[path = "../../crates/nbd/tests/suite/sessions.rs"]
pub mod nbd_sessions;
