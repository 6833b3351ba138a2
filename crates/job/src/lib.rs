//! What every job shares: a repository, an executor, a clock, a way to stop it and to watch it, its
//! lease.
//!
//! * [`JobContext`]: what a job or a pass is given beside its own options.
//! * [`LeaseKeeper`]: opens a job's lease, renews it in the background or around a future, and
//!   closes it.
//!
//! The executor is [`larder_index::Executor`], because the index needs it too. This crate never
//! reads or writes versions, and knows no job. Above: `writer`, `reader` and everything that uses
//! them. Below: `index`, `store`, `format`.

mod activity;
mod context;
mod lease;

pub use activity::{Activity, ItemFate};
pub use context::{Cancel, Clock, Identity, JobContext, NoProgress, Problem, Progress, SystemClock};
pub use lease::{Ending, LeaseKeeper};
