//! Batches of disk images: duplicates are found for all images together, and then each image
//! becomes an ordinary version of its series.
//!
//! ```text
//! scan     images --> scans, questions            store    new chunks --> containers, places
//! send     questions of a host, sorted            place    places that others wait for, sorted
//! join     questions x index --> answers          resolve  waiters x places
//!                                                 finish   scans, places --> versions
//! ```
//!
//! Stages follow one another; the tasks of one stage do not depend on each other. Tasks exchange
//! sorted records below `fleet/<batch>/`, and each has a register that is created once
//! (`larder_format::fleet`). One process does all of them ([`run()`]), or several that share
//! nothing but the store ([`coordinate`], [`work()`]).
//!
//! A version of a batch uses containers of three kinds only (`OwnersNamed`): its own, those of
//! versions that its lease names, and those of the jobs that store for the batch, which it adopts.
//! Everything else that tasks say is a hint, and is compared with tables of containers.
//! `docs/fleet.md` has the order of steps.
//!
//! Workers also read for checks ([`SharedCheck`]), and copy for passes ([`SharedPass`]). Above:
//! `cli`. Below: `rewrite`, `lnode`, `reader`, `index`.

mod batch;
mod begin;
mod board;
mod check;
mod clean;
mod error;
mod exchange;
mod full_scratch;
mod given;
#[cfg(test)]
mod kind_tests;
mod left;
mod member;
mod memory;
mod nats_error;
mod passes;
mod queue;
mod report;
mod session;
mod shared;
mod situation;
mod status;
mod supervise;
mod tasks;
mod waiting;
mod work;

pub mod inventory;
pub mod plan;

pub use batch::run;
pub use check::{Answer, SharedCheck, SharedCheckOptions, SharedCheckReport};
pub use clean::{Cleaned, clean};
pub use error::{FleetError, FullScratch};
pub use memory::high_water as memory_peak;
pub use nats_error::NatsError;
pub use passes::{Copied, SharedPass, SharedPassOptions, SharedPassReport};
pub use queue::{Delivery, MemoryQueue, Nats, NatsOptions, Queue};
pub use report::{BatchReport, FleetImage, FleetOptions, ImageFailure, ImageReport, OpenedImage, Sources};
pub use shared::STORE_SERIES;
pub use status::{BatchStatus, SharedStatus, StageId, StageStatus, WorkerStatus, batches, shared_status, status};
pub use work::{
    Patience, Takes, WorkEvent, WorkOptions, Worked, abort, coordinate, find, is_meant, read_plan, resume, to_retry,
    work,
};
