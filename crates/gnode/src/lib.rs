//! The G-node: everything that runs offline and makes room.
//!
//! * [`agreement`]: whether the index agrees with containers and versions.
//! * [`compaction`]: newest versions laid out anew, so that they are read fast.
//! * [`forget`]: marks versions that a policy does not keep.
//! * [`giving_up`]: chunks that are stored twice, or needed no more, leave containers that versions still name.
//! * [`ingest`]: the chunks of new containers, taken into the index.
//! * [`pass`]: collects what no version needs.
//! * [`proof`]: whether the newest index is right, for checks.
//! * [`repair`]: the index made anew from containers and versions alone.
//! * [`shares`]: how much each version has to itself.
//! * [`retention`]: which versions of a series a policy keeps. A pure decision.
//!
//! Passes and repairs share what the index knows of versions and containers (`ledger`, `lifespans`) and how its tables are read and
//! written (`tables`).
//!
//! Any number of L-nodes and G-nodes may work on one repository at once; `docs/concurrency.md` says why that is safe.
//! Above: `cli`. Below: `lifecycle`, `rewrite`, `reader`, `writer`, `job`, `index`, `store`, `format`.

pub mod agreement;
pub mod compaction;
mod error;
pub mod forget;
pub mod giving_up;
pub mod ingest;
mod ledger;
mod lifespans;
pub mod pass;
pub mod proof;
pub mod repair;
pub mod retention;
pub mod shares;
mod surroundings;
mod tables;
