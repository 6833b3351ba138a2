//! The tasks of a batch, in the order of their stages. Each reads outputs of stages before, writes
//! its own under the name of an attempt, and creates its register. Any of them may be repeated.

mod answers;
mod asked;
mod choose;
mod finish;
mod hits;
mod join;
mod left;
mod placed;
mod places;
mod resolve;
mod scan;
mod sort;
mod store;
mod tables;

pub(crate) use finish::finish;
pub(crate) use join::join;
pub(crate) use resolve::{LastRound, resolve};
pub(crate) use scan::{Scanned, SharedImage, scan};
pub(crate) use sort::{place, send};
pub(crate) use store::{RestingJob, StoreJob, Stored, Unregistered, settle, store};
