//! A pass: looks at the repository, decides what can never be needed, publishes the decision,
//! deletes.
//!
//! The order of steps is the protocol of `docs/concurrency.md` ("What a collecting pass does"). Its
//! rules are named at the code that keeps them. A pass may run beside everything else, other passes
//! included. Of passes that began from one index one wins, and the others have done nothing. It may
//! be killed at any moment: the next one decides again about unfinished deletions.
//!
//! * `run`: steps 1 to 7 in their order.
//! * `lost_index`: step 1; a lost index is rebuilt first.
//! * `survey`: steps 2 to 5, observations in the right order; `listing_scope`: which containers
//!   have to be listed.
//! * `confirm_containers`, `confirm_registers`: ask by name for objects that a listing lacks,
//!   before a decision rests on their absence.
//! * `prove`: walks generations that other programs wrote, before they supersede lower ones.
//! * `decide`: step 6, from the observations alone, with `delete_candidates`. Pure.
//! * `task`: the interface of a task; `tasks`: the list of those of a pass.
//! * `next_manifest`: the manifest that is published. Pure.
//! * `delete`: step 7, deletions in the right order.
//! * `overtaken`: whether another pass was faster.
//! * `plan`, `report`: the plan and the result; [`cost`]: their requests and money.
//!
//! Not here: the index's knowledge of versions and containers (`known_versions`, `lifespans`),
//! access to index tables (`tables`), and the choice of forgotten versions (`forget`, `retention`).

mod confirm_containers;
mod confirm_registers;
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
mod prove;
mod report;
mod roll_back;
mod run;
mod survey;
mod task;
mod tasks;

pub use crate::error::PassError;
pub use crate::tables::{MEMORY_DEFAULT, MEMORY_MIN, remembering};
pub use listing_scope::Listing;
pub use options::PassOptions;
pub use plan::{AbortedJob, Plan};
pub use prove::{Unproved, WhyUnproved};
pub use report::{Done, Kept, OpenUploads, Outcome, PassReport, Undeleted, WaitingSpace};
pub use run::run;
