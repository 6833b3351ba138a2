//! Tools to test Larder under faults: stores that fail on demand, bytes and trees made from a seed.
//!
//! Only ever a dev-dependency. It knows `object_store` and nothing of Larder's own crates, so every
//! crate may use it.
//!
//! * [`FaultStore`] wraps any store and applies the faults of a [`Faults`] handle: fail, hang, lie,
//!   stop for good.
//! * [`LyingStore`] wraps any store and gives one wrong answer that looks right.
//! * [`Memory`] is a store whose whole state can be copied, looked at and damaged behind
//!   everybody's back.
//! * [`data`] and [`tree`] make bytes and folders that are the same for the same seed, everywhere.
//! * [`entropy`] makes the random bytes of keys and names, from a seed that a failed test prints.
//! * [`sim`] runs many actors over one faulty store in virtual time, the same for the same seed.
//! * [`sweep`] says which operations of a job a long sweep tries.
//! * [`assert_kinds`] says what kind of failure each variant of an error is.
//! * [`canned`] is an HTTP server that gives prepared answers, for the edges of a client library.

pub mod canned;
pub mod data;
mod entropy;
mod fault;
mod kinds;
mod lie;
mod memory;
mod plan;
pub mod sim;
mod sweep;
pub mod tree;

pub use entropy::entropy;
pub use fault::FaultStore;
pub use lie::{Lie, Lies, LyingStore, Told};
pub use memory::Memory;
pub use plan::{Failure, Fault, Faults, Op, OpKind, Stop, Times, When};
pub use sweep::sweep;
