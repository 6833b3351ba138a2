//! A pass: looks at the repository, decides what nobody can come to need, publishes the decision,
//! deletes.
//!
//! The order of steps is the protocol of `docs/concurrency.md` ("What a collecting pass does"),
//! whose rules are named where they are kept. A pass may run beside everything else, other passes
//! included; of those that began from one index one wins, and the others have done nothing. It may
//! be killed at any moment: what it published and did not finish, the next one decides afresh.
//!
//! * `run`: steps 1 to 7 in their order.
//! * `lost_index`: step 1; an index that was lost is rebuilt first.
//! * `survey`: steps 2 to 5, what is there, seen in the right order; `listing_scope`: which
//!   containers have to be listed.
//! * `by_name`, `asked`: what a listing lacks is asked for by its name before anything rests on it.
//! * `decide`: step 6, from what was seen and nothing else, and `delete_candidates` for it. Pure.
//! * `task`: what a task is; `tasks`: the list of those of a pass.
//! * `next_manifest`: the manifest that is published. Pure.
//! * `delete`: step 7, deletions in the right order.
//! * `overtaken`: whether another pass was faster.
//! * `plan`, `report`: what would be done and what was; [`cost`]: what it takes and gives, in
//!   requests and money.
//!
//! Not here: what the index knows of versions and containers (`known_versions`, `lifespans`); how
//! tables of the index are read and written (`tables`); which versions are forgotten (`forget`,
//! `retention`).

mod asked;
mod by_name;
pub mod cost;
mod decide;
mod delete;
mod delete_candidates;
mod listing_scope;
mod lost_index;
mod next_manifest;
mod options;
mod overtaken;
mod plan;
mod report;
mod run;
mod survey;
mod task;
mod tasks;

pub use crate::error::PassError;
pub use crate::tables::{MEMORY_DEFAULT, MEMORY_MIN, remembering};
pub use listing_scope::Listing;
pub use options::PassOptions;
pub use plan::{AbortedJob, Plan};
pub use report::{Done, Kept, OpenUploads, Outcome, PassReport, Undeleted, WaitingSpace};
pub use run::run;
