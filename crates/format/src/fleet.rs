//! What the tasks of a fleet batch leave for one another, below `fleet/<batch>/`. A check that
//! several processes share leaves its ranges there too, and a pass its tasks.
//!
//! | object                                             | content                                   |
//! |----------------------------------------------------|-------------------------------------------|
//! | `fleet/<batch>/plan`                               | [`FleetPlan`], sealed, magic `LFPL`       |
//! | `fleet/<batch>/done/<stage>/<round>/<task>`        | [`TaskRecord`], sealed, magic `LFTR`      |
//! | `fleet/<batch>/out/<stage>/<round>/<task>/<attempt>/<n>` | records by rising key: a run (`run.rs`) |
//! | `fleet/<batch>/claim/<stage>/<round>/<task>/<epoch>` | [`FleetWorker`], sealed, magic `LFCL`   |
//! | `fleet/<batch>/beat/<worker>/<n>`                  | [`FleetWorker`], sealed, magic `LFWB`     |
//! | `fleet/<batch>/range/check/<look>/<task>`          | [`CheckRange`], sealed, magic `LFCR`      |
//! | `fleet/<batch>/done/check/<look>/<task>`           | [`CheckResult`], sealed, magic `LFCD`     |
//! | `fleet/<pass>/range/copy/0/<task>`                 | [`CopyTask`], signed, magic `LFCP`        |
//! | `fleet/<pass>/done/copy/0/<task>`                  | [`CopyResult`], signed, magic `LFCE`      |
//! | `fleet/<pass>/range/mark/<look>/<task>`            | [`MarkTask`], signed, magic `LFMT`        |
//! | `fleet/<pass>/done/mark/<look>/<task>`             | [`MarkResult`], signed, magic `LFMR`      |
//!
//! An output has the layout of a run of the index, under a key of its own: keyed BLAKE3 over
//! `fleet`, a zero byte and the object's name, under the secret of the domain. Its first key of
//! every block is the directory by which a receiver finds its range. The widths are those of
//! `records.rs`; the scan of an image has [`ScanItem`]s by rising number.
//!
//! Nothing outside of `fleet/` refers to these objects, and no version needs them. Any machine of
//! the domain can make those that are not signed. So a receiver verifies what it takes from them:
//! fingerprints against its own scan, and places against the tables of containers.

mod check;
mod claim;
mod copy;
mod given;
mod mark;
mod plan;
mod records;
mod register;
mod scan;
#[cfg(test)]
mod tests;

pub use check::{CHECK_RULES, CheckRange, CheckResult, RANGE_CONTAINERS_MAX, RANGE_MAX, READ_PROOF_LEN};
pub use claim::{CLAIM_MAX, FleetWorker};
pub use copy::{COPY_CONTAINERS_MAX, COPY_MAX, COPY_RULES, COPY_TASKS_MAX, ChunksOf, CopyResult, CopyTask};
pub use given::{PassHead, ResultHead, TaskHead};
pub use mark::{
    MARK_CHUNKS_MAX, MARK_MAX, MARK_OUTPUT_MAX, MARK_RULES, MARK_TASKS_MAX, MARKS, MarkResult, MarkSum, MarkTask,
};
pub use plan::{FLEET_ROUNDS_MAX, FLEET_RULES, FleetPlan, PLAN_MAX, PlannedHost, PlannedImage, SharedWork};
pub use records::{
    Answer, Answers, At, FleetRecord, Placement, Placements, Requests, Resolution, Resolutions, Scans, Waiter, Waiters,
};
pub use register::{OutputKind, OutputRef, TASK_MAX, TaskRecord};
pub use scan::{ChunkRun, ScanItem, ScannedSegment};

pub use crate::fleet_task::{Stage, TaskId};
