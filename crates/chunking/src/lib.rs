//! Cutting streams into chunks and naming chunks by a keyed fingerprint. No I/O, no clock, no
//! randomness.
//!
//! Input: slices of a stream, and keys that the repository derives. Output: chunk lengths and
//! [`Fingerprint`]s. A reader of a stream asks [`page_size`] once for the head of the stream and
//! builds a [`Chunker`] from [`ChunkerParams`]. It cuts buffer after buffer with
//! [`Chunker::cut_all`], and fingerprints the chunks with a [`Fingerprinter`].
//!
//! Two promises hold the rest of the system together:
//!
//! * **A cut depends only on the chunk's start, the content behind it, the parameters and the
//!   seed.** No state crosses a cut, so equal content is cut equally at any place, and skipping
//!   ahead to a predicted cut gives the same boundaries as scanning.
//! * **Every kernel gives the same answer.** Each vector kernel equals one scalar reference bit for
//!   bit, and [`self_test`] proves it again at every start of the program. A machine that cuts
//!   differently finds no duplicates. One that hashes differently writes fingerprints that no other
//!   machine can verify.
//!
//! Cut points and fingerprints are part of the format: golden files in `tests/suite/golden` hold
//! them fixed.
//!
//! Depends on no other crate of this project.

mod chunker;
mod factory;
mod fastcdc;
mod fingerprint;
mod fingerprinter;
mod fixed;
mod mincdc;
pub mod pages;
mod params;
mod rabin;
mod run_mac;
mod seed;
mod self_test;

pub use chunker::{Chunker, StreamEnd};
pub use factory::chunker;
#[doc(hidden)]
pub use factory::{NamedChunker, chunkers_by_kernel};
pub use fingerprint::Fingerprint;
pub use fingerprinter::Fingerprinter;
pub use pages::page_size;
pub use params::{Algorithm, CHUNK_MAX, CHUNK_MIN, ChunkerParams, DEFAULT_AVERAGE, ParamsError, UnknownAlgorithm};
pub use run_mac::{RunMac, RunMacKey};
pub use self_test::{SelfTestError, self_test};
