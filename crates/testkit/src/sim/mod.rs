//! Deterministic simulation: many actors over one faulty store, on one thread, in virtual time, all from one seed.
//!
//! An *actor* is a future that reaches the store through a [`SimStore`] of its own: a machine with one process. Every request it
//! makes stops there and waits. When no actor can go on by itself, the scheduler of [`Sim`] decides from its seed what happens
//! next: whose request is carried out, whether it fails, is never answered, or is carried out much later; who crashes; how much
//! time passes. So one seed is one run, to the last request ([`Trace`]), and another seed is another.
//!
//! * [`World`] is the bucket and what is under way to it. It can be looked at between any two steps, and a client that is not
//!   part of the simulation reaches it through [`World::plain`], at once and without faults.
//! * [`Weather`] says how often what goes wrong.
//!
//! Invariants
//! * Creating, reading or deleting one object is atomic; a listing is not: it comes in pages, each as of its own moment.
//! * A request without answer may take effect at any later step, or never.
//! * Nothing here knows Larder: what must hold is the caller's, asked after every step.
//!
//! Not here: what actors do. Whatever they use must be deterministic itself: no threads, no clock but tokio's, no randomness but
//! what the caller seeds, no iteration over hash maps.

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
