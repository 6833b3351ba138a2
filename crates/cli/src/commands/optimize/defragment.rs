//! The part of the report of `larder optimize` about newest snapshots that were rewritten.

use larder_gnode::maintenance::{Decision, DefragmentReport, Reason};
use larder_store::prices::Prices;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::Output;
use crate::sizes;

/// Duplicates of the newest snapshots, in bytes, below which no person is told of them.
const LEFT_MIN: u64 = 64 << 10;

pub(super) fn json(report: &DefragmentReport, prices: Option<&Prices>) -> Value {
    json!({
        "snapshots": report.versions,
        "containers": report.containers,
        "bytes": report.bytes,
        "stored_bytes": report.stored_bytes,
        "shared_bytes": report.shared_bytes,
        "left_duplicate_bytes": report.left_duplicate_bytes,
        "failed": report.failed.len(),
        "cold": report.cold.len(),
        "overtaken": report.overtaken,
        "decisions": report.decisions.iter().map(decision_json).collect::<Vec<_>>(),
        "requests": report.requests.count(),
        "cost": prices.map(|prices| report.requests.price(prices)),
    })
}

fn decision_json(decision: &Decision) -> Value {
    json!({
        "id": decision.id.to_string(),
        "series": decision.series,
        "rewritten": decision.is_worth_it(),
        "reason": match decision.reason {
            Reason::Slow => "slow",
            Reason::Many => "many",
            Reason::Paid => "paid",
            Reason::Needed => "needed",
            Reason::Waits => "waits",
        },
        "held_bytes": decision.held_bytes,
        "used_bytes": decision.used_bytes,
        "containers": decision.containers,
        "copied_bytes": decision.copied_bytes,
        "paid_bytes": decision.paid_bytes,
        "backups": decision.backups,
    })
}

/// Why a snapshot is rewritten, or not yet.
fn explained(decision: &Decision) -> String {
    let (id, copied) = (decision.id.short(), sizes::show(decision.copied_bytes));
    let (backups, paid) = (sizes::count(decision.backups, "backup"), sizes::show(decision.paid_bytes));
    let holds = format!("its containers hold {} % of what it uses", decision.held_percent());
    match decision.reason {
        Reason::Slow => format!("snapshot {id} is rewritten: {holds}, too much to wait"),
        Reason::Many => {
            format!("snapshot {id} is rewritten: it uses {} containers, too many to wait", decision.containers)
        }
        Reason::Paid => {
            format!("snapshot {id} is rewritten: {holds}, and copying {copied} is worth it after {backups}")
        }
        Reason::Needed => format!("snapshot {id} is rewritten, because it has data in common with others"),
        Reason::Waits => format!(
            "snapshot {id} is not rewritten yet: {holds}; copying {copied} costs too much after {backups}, which pay for {paid}"
        ),
    }
}

pub(super) fn print(
    report: &DefragmentReport,
    is_planned: bool,
    out: &Output,
    prices: Option<&Prices>,
) -> Result<(), Failure> {
    if report.has_left {
        out.info("no time was left to rewrite all snapshots; the next pass continues")?;
    } else if report.was_stopped {
        out.info("the time limit was reached before all snapshots were examined; the next pass continues")?;
    }
    if !report.cold.is_empty() {
        let snapshots = sizes::count(report.cold.len() as u64, "snapshot");
        out.remark(&format!("note: {snapshots} not rewritten: their data is in cold storage"));
    }
    for decision in &report.decisions {
        out.info(explained(decision))?;
    }
    if report.left_duplicate_bytes >= LEFT_MIN {
        let left = sizes::show(report.left_duplicate_bytes);
        out.info(format!("the newest snapshots still share about {left} that is stored more than once"))?;
    }
    if report.is_empty() {
        return Ok(());
    }
    let (snapshots, bytes) = (sizes::count(report.versions, "snapshot"), sizes::show(report.bytes));
    let containers = sizes::count(report.containers, "container");
    let shared = sizes::show(report.shared_bytes);
    match is_planned {
        true => {
            let shared = match report.shared_bytes {
                0 => String::new(),
                _ => format!(" and share {shared} with others"),
            };
            out.info(format!("would rewrite {bytes}{shared}, so that {snapshots} would span {containers} fewer"))?;
            let requests = sizes::count(report.requests.count(), "request");
            out.info(match prices {
                Some(prices) => format!("{requests}: {:.4} {}", report.requests.price(prices), prices.currency),
                None => requests,
            })
        }
        false => {
            let stored = sizes::show(report.stored_bytes);
            let copied = format!("rewrote {bytes} ({stored} stored)");
            let span = if report.versions == 1 { "spans" } else { "span" };
            match report.shared_bytes {
                0 => out.info(format!("{copied}: {snapshots} now {span} {containers} fewer")),
                _ => out
                    .info(format!("{copied}, shared {shared} with others: {snapshots} now {span} {containers} fewer")),
            }
        }
    }
}
