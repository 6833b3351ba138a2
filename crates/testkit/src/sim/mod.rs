//! Deterministic simulation: many actors over one faulty store, on one thread, in virtual time, all
//! from one seed.
//!
//! An *actor* is a future that reaches the store through a [`SimStore`] of its own: a machine with
//! one process. Every request it makes stops there and waits. When no actor can continue by itself,
//! the scheduler of [`Sim`] decides from its seed what happens next. It decides whose request is
//! executed, and whether it fails, is never answered, or is executed much later. It also decides
//! who crashes, and how much time passes. So one seed is one run, to the last request ([`Trace`]),
//! and another seed is another.
//!
//! * [`World`] is the bucket, with the requests under way to it. It can be inspected between any
//!   two steps. A client that is not part of the simulation reaches it through [`World::plain`], at
//!   once and without faults.
//! * [`Weather`] has the frequency of each fault.
//!
//! Invariants
//! * Creating, reading or deleting one object is atomic; a listing is not: it comes in pages, each
//!   as of its own moment.
//! * A request without answer may take effect at any later step, or never.
//! * Nothing here knows Larder: the caller's invariants are checked after every step.
//!
//! Not here: what actors do. Everything that they use must be deterministic itself: no threads, no
//! clock but tokio's, no randomness but from the caller's seed, no iteration over hash maps.

mod ambush;
mod damage;
mod fate;
mod request;
mod run;
mod state;
mod store;
mod trace;
mod world;

pub use ambush::{Ambush, Wake};
pub use damage::{Wrong, WrongAnswer};
pub use request::Change;
pub use run::{Failed, Life, Machine, Sim};
pub use state::Weather;
pub use store::SimStore;
pub use trace::Trace;
pub use world::World;
