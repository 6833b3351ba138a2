//! A pass: looks at the repository, decides what nobody can come to need, publishes the decision, deletes.
//!
//! The order of steps is the protocol of `docs/concurrency.md` ("What a collecting pass does"), whose rules are named where they
//! are kept. A pass may run beside everything else, other passes included; of those that began from one index one wins, and the
//! others have done nothing. It may be killed at any moment: what it published and did not finish, the next one decides afresh.
//!
//! * `survey`: steps 2 to 5, what is there, seen in the right order.
//! * `asked`: what is asked for by name before a listing that lacks something is believed.
//! * `lost_index`: an index that was lost is rebuilt first.
//! * `listing_scope`: which containers have to be listed.
//! * `decide`: step 6, from what was seen and nothing else. Pure.
//! * `by_name`: what a listing lacks is asked for by its name.
//! * `exact_trigger`: when what no version needs is looked for.
//! * `plan`: steps 2 to 6 in one go; `run`: the whole, from the lease to the end.
//! * `delete`: step 7, deletions in the right order.
//! * [`cost`]: what it takes and gives, in requests and money.
//!
//! Not here: what the index knows of versions and containers (`known_versions`, `lifespans`); how tables of the index are read and written
//! (`tables`); which versions are forgotten (`forget`, `retention`).

mod asked;
mod by_name;
pub mod cost;
mod decide;
mod delete;
mod delete_candidates;
mod exact_trigger;
mod listing_scope;
mod lost_index;
mod options;
mod plan;
mod report;
mod run;
mod survey;

pub use crate::error::PassError;
pub use crate::tables::{MEMORY_DEFAULT, MEMORY_MIN, remembering};
pub use listing_scope::Listing;
pub use options::PassOptions;
pub use report::{AbortedJob, Done, Kept, OpenUploads, Outcome, PassReport, Plan, Undeleted, WaitingSpace};
pub use run::run;
