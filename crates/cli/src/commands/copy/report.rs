//! What `larder copy` prints.

use std::time::Duration;

use larder_gnode::mirror::Kept;
use larder_lnode::BackupReport;
use larder_lnode::transfer::selection::Refusal;
use larder_store::catalog::Version;
use serde_json::{Map, Value, json};

use super::{Copying, Done};
use crate::failure::Failure;
use crate::output::summary;
use crate::refs::shown;
use crate::{sizes, time};

impl Copying<'_> {
    pub(super) fn tell_planned(&self, version: &Version) -> Result<(), Failure> {
        if self.app.out.is_json() {
            return self.app.out.json(&json!({
                "message_type": "would_copy",
                "source_snapshot_id": version.id().to_string(),
                "series": version.summary.series,
                "time": time::rfc3339(version.summary.time_ms),
            }));
        }
        let when = time::show(version.summary.time_ms);
        self.app.out.info(format!("would copy {} of {when}", shown(&version.summary)))
    }

    pub(super) fn tell_one(
        &self,
        version: &Version,
        report: &BackupReport,
        started_ms: u64,
        elapsed: Duration,
    ) -> Result<(), Failure> {
        let Some(new) = &report.version else { return Ok(()) };
        if self.app.out.is_json() {
            let mut object = summary::statistics(&report.statistics);
            let mut put = |key: &str, value: Value| drop(object.insert(key.to_owned(), value));
            put("message_type", json!("copied"));
            put("source_snapshot_id", json!(version.id().to_string()));
            put("snapshot_id", json!(new.id.to_string()));
            put("series", json!(new.series));
            put("time", json!(time::rfc3339(new.time_ms)));
            put("backup_start", json!(time::rfc3339(started_ms)));
            put("total_duration", json!(elapsed.as_secs_f64()));
            if let Some(base) = report.bases.first() {
                put("parent", json!(base.id.to_string()));
            }
            put("resumed", json!(!report.adopted.is_empty()));
            return self.app.out.json(&object);
        }
        let statistics = &report.statistics;
        let (read, stored) = (sizes::show(statistics.read_bytes), sizes::show(statistics.stored_bytes));
        let all = sizes::show(statistics.stream_bytes);
        let resumed = if report.adopted.is_empty() { "" } else { "; uploads of an interrupted run were reused" };
        let (old, id) = (shown(&version.summary), new.id.short());
        self.app.out.info(format!("{old} copied as {id}: read {read} of {all}, stored {stored}{resumed}"))
    }

    pub(super) fn tell(&self, elapsed: Duration) -> Result<(), Failure> {
        let Done { copied, copied_before, came_from_here, forgotten, kept, .. } = &self.done;
        let is_dry = self.args.dry_run || self.args.estimate;
        let out = &self.app.out;
        if out.is_json() {
            return out.json(&self.summary(is_dry, elapsed));
        }
        out.keep_summary(|| self.summary(is_dry, elapsed));
        let verb = if is_dry { "would copy" } else { "copied" };
        let mut line = format!("{verb} {}", sizes::count(*copied, "snapshot"));
        if *copied_before > 0 {
            line += &format!("; {copied_before} had been copied before");
        }
        if *came_from_here > 0 {
            line += &format!("; {came_from_here} came from here");
        }
        out.info(line)?;
        if !forgotten.is_empty() {
            let verb = if is_dry { "would forget" } else { "forgot" };
            let count = sizes::count(forgotten.len() as u64, "snapshot");
            out.info(format!(
                "{verb} {count}, because the {} gone",
                if forgotten.len() == 1 { "original is" } else { "originals are" }
            ))?;
        }
        for (id, kept) in kept {
            let id = id.short();
            match kept {
                Kept::Pinned => out.info(format!("the original of {id} is gone; the copy is pinned and stays"))?,
                Kept::OnlyWhole => out.info(format!(
                    "only a part of the original of {id} was saved, so the copy stays; `larder forget {id}` removes it"
                ))?,
                // Nothing is forgotten then, and it is an error.
                Kept::StillThere => {}
            }
        }
        Ok(())
    }

    fn summary(&self, is_dry: bool, elapsed: Duration) -> Value {
        let Done { copied, copied_before, came_from_here, refused, failures, forgotten, kept } = &self.done;
        let mut object = Map::new();
        let mut put = |key: &str, value: Value| drop(object.insert(key.to_owned(), value));
        put("message_type", json!("summary"));
        put("dry_run", json!(is_dry));
        put("copied", json!(copied));
        put("copied_before", json!(copied_before));
        put("came_from_here", json!(came_from_here));
        let refused = refused
            .iter()
            .map(|(version, refusal)| json!({"snapshot_id": version.id().to_string(), "reason": name_of(*refusal)}));
        put("refused", refused.collect());
        put("failed", failures.iter().map(|(id, _)| id.to_string()).collect());
        put("forgotten", forgotten.iter().map(ToString::to_string).collect());
        let kept = kept.iter().map(|(id, kept)| json!({"snapshot_id": id.to_string(), "reason": word_of(*kept)}));
        put("kept", kept.collect());
        put("total_duration", json!(elapsed.as_secs_f64()));
        summary::put_requests(&mut object, &self.destination.repository.store().stats());
        let mut source = Map::new();
        summary::put_requests(&mut source, &self.source.repository.store().stats());
        object.insert("source".to_owned(), Value::Object(source));
        Value::Object(object)
    }

    pub(super) fn tell_failures(&self) {
        let out = &self.app.out;
        for (version, refusal) in &self.done.refused {
            let id = version.id().short();
            let advice = match refusal {
                Refusal::SharedId => "",
                Refusal::UnconfirmedTime => "; name it by its id to copy it all the same",
                Refusal::SeveralDomains | Refusal::OtherSnapshotsHere => {
                    "; name it by its id, or use --mix-series, to copy it all the same"
                }
            };
            out.item_error(&id, "copy", &format!("{} was not copied: {refusal}{advice}", shown(&version.summary)));
        }
        for (id, failure) in &self.done.failures {
            out.item_error(&id.short(), "copy", &failure.message);
        }
    }
}

fn name_of(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::SharedId => "shared_id",
        Refusal::UnconfirmedTime => "unconfirmed_time",
        Refusal::SeveralDomains => "several_domains",
        Refusal::OtherSnapshotsHere => "other_snapshots_here",
    }
}

fn word_of(kept: Kept) -> &'static str {
    match kept {
        Kept::Pinned => "pinned",
        Kept::OnlyWhole => "only_whole",
        Kept::StillThere => "still_there",
    }
}
