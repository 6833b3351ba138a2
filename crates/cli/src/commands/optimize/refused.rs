//! The part of the report of `larder optimize` about snapshots of closed domains.

use larder_gnode::refused::Refused;
use serde_json::{Value, json};

use crate::failure::{Failure, chain};
use crate::output::Output;
use crate::sizes;

pub(super) fn json(refused: &Refused) -> Value {
    let ids: Vec<_> = refused.forgotten.iter().map(ToString::to_string).collect();
    let older: Vec<_> = refused.older.iter().map(ToString::to_string).collect();
    json!({ "forgotten": ids, "older": older, "failed": refused.failed.len() })
}

pub(super) fn print(refused: &Refused, is_planned: bool, out: &Output) -> Result<(), Failure> {
    for (id, error) in &refused.failed {
        let why = chain(error);
        out.warn(&format!("snapshot {} of a closed domain cannot be forgotten: {why}", id.short()));
    }
    for id in &refused.older {
        out.warn(&format!(
            "snapshot {} of a closed domain is older than its end, which does not name it; look at it, then `larder forget {id}`",
            id.short()
        ));
    }
    if refused.forgotten.is_empty() {
        return Ok(());
    }
    let snapshots = sizes::count(refused.forgotten.len() as u64, "snapshot");
    let what = if is_planned { "would forget" } else { "forgot" };
    out.info(format!("{what} {snapshots} that closed domains refuse"))
}
