//! What `larder import` prints.

use std::time::Duration;

use larder_import::compare::Compared;
use larder_lnode::BackupReport;
use serde_json::{Map, Value, json};

use super::{Importing, Wanted};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{safe, summary};
use crate::{sizes, time};

pub(super) type Comparison = Compared;

/// What the command did.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) imported: u64,
    pub(super) imported_before: u64,
    /// Of these, those whose original was not whole.
    pub(super) not_whole_before: u64,
    /// What was not whole in originals.
    pub(super) errors: u64,
    /// Paths that `--compare` found to differ.
    pub(super) different: u64,
    /// Originals that were not imported, and why.
    pub(super) failures: Vec<(String, Failure)>,
}

impl Importing<'_> {
    pub(super) fn tell_planned(&mut self, wanted: &Wanted) -> Result<(), Failure> {
        self.done.imported += 1;
        if self.app.out.is_json() {
            return self.app.out.json(&json!({
                "message_type": "would_import",
                "source_snapshot_id": hex(&wanted.original.id),
                "name": wanted.name,
                "series": wanted.series,
                "time": time::rfc3339(wanted.original.time_ms),
            }));
        }
        let (when, series) = (time::show(wanted.original.time_ms), safe(&wanted.series));
        self.app.out.info(format!("would import {} of {when} into {series}", safe(&wanted.name)))
    }

    pub(super) fn tell_one(
        &self,
        wanted: &Wanted,
        report: &BackupReport,
        compared: Option<&Comparison>,
        started_ms: u64,
        elapsed: Duration,
    ) -> Result<(), Failure> {
        let Some(new) = &report.version else { return Ok(()) };
        let statistics = &report.statistics;
        if self.app.out.is_json() {
            let mut object = summary::statistics(statistics);
            let mut put = |key: &str, value: Value| drop(object.insert(key.to_owned(), value));
            put("message_type", json!("imported"));
            put("source_snapshot_id", json!(hex(&wanted.original.id)));
            put("name", json!(wanted.name));
            put("snapshot_id", json!(new.id.to_string()));
            put("series", json!(new.series));
            put("time", json!(time::rfc3339(new.time_ms)));
            put("backup_start", json!(time::rfc3339(started_ms)));
            put("total_duration", json!(elapsed.as_secs_f64()));
            put("resumed", json!(!report.adopted.is_empty()));
            if let Some(base) = report.bases.first() {
                put("parent", json!(base.id.to_string()));
            }
            if let Some(compared) = compared {
                put("compared_equal", json!(compared.equal));
                put("compared_different", json!(compared.different.len()));
            }
            return self.app.out.json(&object);
        }
        let (read, stored) = (sizes::show(statistics.read_bytes), sizes::show(statistics.stored_bytes));
        let all = sizes::show(statistics.stream_bytes);
        let mut line =
            format!("{} imported as {}: read {read} of {all}, stored {stored}", safe(&wanted.name), new.id.short());
        if !report.adopted.is_empty() {
            line += "; uploads of an interrupted run were reused";
        }
        if let Some(Compared { equal, different, .. }) = compared {
            line += &match different.len() {
                0 => format!("; compared {}, all equal", sizes::count(*equal, "path")),
                count => format!("; {} not equal", sizes::count(count as u64, "path")),
            };
        }
        self.app.out.info(line)
    }

    pub(super) fn tell(&self, elapsed: Duration) -> Result<(), Failure> {
        let Done { imported, imported_before, not_whole_before, errors, different, failures } = &self.done;
        let is_dry = self.options.dry_run;
        if self.app.out.is_json() {
            let mut object = Map::new();
            let mut put = |key: &str, value: Value| drop(object.insert(key.to_owned(), value));
            put("message_type", json!("summary"));
            put("dry_run", json!(is_dry));
            put("imported", json!(imported));
            put("imported_before", json!(imported_before));
            put("imported_before_with_errors", json!(not_whole_before));
            put("failed", failures.iter().map(|(name, _)| name.clone()).collect());
            put("error_count", json!(errors));
            put("different", json!(different));
            put("total_duration", json!(elapsed.as_secs_f64()));
            summary::put_requests(&mut object, &self.context.repository.store().stats());
            return self.app.out.json(&object);
        }
        let verb = if is_dry { "would import" } else { "imported" };
        let mut line = format!("{verb} {}", sizes::count(*imported, "snapshot"));
        if *imported_before > 0 {
            line += &format!("; {imported_before} had been imported before");
            if *not_whole_before > 0 {
                line += &format!(", {not_whole_before} of them with errors");
            }
        }
        if *errors > 0 {
            line += &format!("; {}", sizes::count(*errors, "error"));
        }
        self.app.out.info(line)
    }

    pub(super) fn tell_failures(&self) {
        if self.done.not_whole_before > 0 {
            self.app.out.warn(
                "snapshots that were imported with errors are not imported again; if their originals are whole now, \
                 `larder forget` those snapshots first",
            );
        }
        for (name, failure) in &self.done.failures {
            self.app.out.item_error(&safe(name), "import", &failure.message);
            if let Some(advice) = &failure.advice {
                self.app.out.remark(&format!("{}: {advice}", safe(name)));
            }
        }
    }

    pub(super) fn exit(&self) -> Exit {
        match &self.done {
            Done { different: 1.., .. } => Exit::Damage,
            Done { errors: 0, failures, .. } if failures.is_empty() => Exit::Done,
            _ => Exit::Partly,
        }
    }
}

fn hex(id: &[u8; 32]) -> String {
    data_encoding::HEXLOWER.encode(id)
}
