//! The parts that all jobs share: repository, executor, clock, cancellation, progress and lease.
//!
//! * [`JobContext`]: the needs of a job or a pass beside its own options.
//! * [`LeaseKeeper`]: opens a job's lease, renews it in the background or around a future, and
//!   closes it.
//!
//! The executor is [`larder_index::Executor`], because the index needs it too. This crate never
//! reads or writes versions, and depends on no job. Above: `writer`, `reader` and all their users.
//! Below: `index`, `state`, `store`, `format`.

mod activity;
mod context;
mod lease;
mod roll_back;

pub use activity::{Activity, ItemFate};
pub use context::{Cancel, Clock, Identity, JobContext, NoProgress, Problem, Progress, SystemClock};
pub use larder_state::{Machine, RolledBack};
pub use lease::{Ending, LeaseKeeper};
