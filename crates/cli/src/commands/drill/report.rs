//! The report of a drill, as text and as JSON.

use larder_drill::{Finding, FindingKind, Sample, SnapshotReport};
use larder_format::ids::JobId;
use larder_format::manifest::Summary;
use larder_store::StoreStats;
use larder_store::prices::Prices;
use serde_json::{Map, Value, json};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Output, absolute, safe, summary};
use crate::{sizes, time};

/// Findings of a snapshot that are shown.
const FINDINGS_SHOWN: usize = 20;

/// Seconds of a restore of everything below which no person is told of them.
const SECONDS_MIN: f64 = 10.0;

/// A snapshot as reports name it.
#[derive(Debug, Clone)]
pub(super) struct Named {
    pub(super) id: JobId,
    pub(super) series: String,
    pub(super) time_ms: u64,
}

impl From<&Summary> for Named {
    fn from(summary: &Summary) -> Self {
        Self { id: summary.id, series: summary.series.clone(), time_ms: summary.time_ms }
    }
}

/// One snapshot of a drill.
#[derive(Debug)]
pub(super) struct Drilled {
    pub(super) snapshot: Named,
    pub(super) report: SnapshotReport,
}

/// A whole drill.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) time_ms: u64,
    pub(super) host: String,
    pub(super) repository: String,
    pub(super) seed: u64,
    pub(super) sample: Sample,
    /// Whether files were written to a scratch folder.
    pub(super) writes: bool,
    /// Whether live files were compared.
    pub(super) compares: bool,
    pub(super) snapshots: Vec<Drilled>,
    /// Snapshots of which nothing can be read.
    pub(super) failed: Vec<(Named, Failure)>,
    /// Snapshots whose drill stopped for another reason than damage.
    pub(super) unfinished: Vec<(Named, Failure)>,
    /// All requests of the command.
    pub(super) requests: StoreStats,
    pub(super) seconds: f64,
    pub(super) prices: Option<Prices>,
}

impl Report {
    pub(super) fn exit(&self) -> Exit {
        let count =
            |of: fn(&SnapshotReport) -> u64| self.snapshots.iter().map(|drilled| of(&drilled.report)).sum::<u64>();
        if !self.failed.is_empty() || count(|report| report.mismatches) > 0 {
            Exit::Damage
        } else if let Some((_, failure)) = self.unfinished.first() {
            failure.exit
        } else if count(|report| report.failures) > 0 {
            Exit::Partly
        } else {
            Exit::Done
        }
    }

    /// Whether anything is known about any snapshot.
    pub(super) fn has_anything(&self) -> bool {
        !self.snapshots.is_empty() || !self.failed.is_empty() || !self.unfinished.is_empty()
    }

    /// One word for the result.
    pub(super) fn result(&self) -> &'static str {
        match self.exit() {
            Exit::Done => "passed",
            Exit::Damage => "failed",
            _ => "incomplete",
        }
    }

    pub(super) fn sample_text(&self) -> String {
        match self.sample {
            Sample::Part(part) => format!("{} %", (part * 100_000.0).round() / 1000.0),
            Sample::Files(files) => sizes::count(files, "file"),
            Sample::Bytes(bytes) => sizes::show(bytes),
        }
    }

    /// The price of all requests and of their traffic.
    pub(super) fn cost(&self) -> Option<f64> {
        self.prices.as_ref().map(|prices| prices.of(&self.requests))
    }

    pub(super) fn json(&self) -> Map<String, Value> {
        let mut object = Map::new();
        let mut put = |key: &str, value: Value| drop(object.insert(key.to_owned(), value));
        put("message_type", json!("summary"));
        put("result", json!(self.result()));
        put("time", json!(time::rfc3339(self.time_ms)));
        put("hostname", json!(self.host));
        put("repository", json!(self.repository));
        put("program_version", json!(env!("CARGO_PKG_VERSION")));
        put("seed", json!(self.seed));
        put("sample", json!(self.sample_text()));
        put("written", json!(self.writes));
        put("source_compared", json!(self.compares));
        put("snapshots", self.snapshots.iter().map(snapshot_json).collect());
        let listed = |list: &[(Named, Failure)]| {
            let of = |(snapshot, failure): &(Named, Failure)| json!({ "id": snapshot.id.to_string(), "series": snapshot.series, "error": failure.message });
            list.iter().map(of).collect()
        };
        put("unreadable_snapshots", listed(&self.failed));
        put("unfinished_snapshots", listed(&self.unfinished));
        put("total_duration", json!(self.seconds));
        put("cost", cost_json(self.cost(), self.prices.as_ref()));
        summary::put_requests(&mut object, &self.requests);
        object
    }

    pub(super) fn show(&self, out: &Output) -> Result<(), Failure> {
        if out.is_json() {
            return out.json(&self.json());
        }
        out.keep_summary(|| Value::Object(self.json()));
        for drilled in &self.snapshots {
            drilled.print(self, out)?;
        }
        let requests = sizes::count(self.requests.requests(), "request");
        let (down, seconds) = (sizes::show(self.requests.bytes_down), self.seconds);
        let cost = match (&self.prices, self.cost()) {
            (Some(prices), Some(cost)) => format!(", {cost:.4} {}", prices.currency),
            _ => String::new(),
        };
        out.info(format!(
            "{requests}, {down} fetched{cost}, {seconds:.1} s; --seed {} repeats this choice",
            self.seed
        ))?;
        match self.exit() {
            Exit::Done => out.info("the drill passed"),
            Exit::Damage => out.info("THE DRILL FAILED: see the messages above, and run `larder check --read-data`"),
            _ => out.info("the drill is incomplete: see the messages above"),
        }
    }
}

pub(super) fn cost_json(cost: Option<f64>, prices: Option<&Prices>) -> Value {
    match (cost, prices) {
        (Some(cost), Some(prices)) => {
            json!({ "amount": cost, "currency": prices.currency, "basis": prices.basis })
        }
        _ => Value::Null,
    }
}

fn snapshot_json(drilled: &Drilled) -> Value {
    let Drilled { snapshot, report } = drilled;
    let findings: Vec<_> = report.findings.iter().map(finding_json).collect();
    let all = report.seconds_for_all().map(|(low, high)| [low, high]);
    json!({
        "id": snapshot.id.to_string(),
        "series": snapshot.series,
        "snapshot_time": time::rfc3339(snapshot.time_ms),
        "total_files": report.population.files,
        "total_bytes": report.population.bytes,
        "files": report.sample.files,
        "bytes": report.sample.bytes,
        "others": report.others,
        "limited_by_memory": report.is_limited,
        "seconds": report.restore_ms as f64 / 1000.0,
        "bytes_per_second": per_second(report),
        "requests": report.restore_requests.requests(),
        "bytes_down": report.restore_requests.bytes_down,
        "bytes_read_per_byte": report.fetched.per_byte(),
        "seconds_for_all": all,
        "source_files_compared": report.compared,
        "source_files_not_comparable": report.not_comparable,
        "items_without_metadata": report.without_metadata,
        "cold_files": report.cold,
        "mismatches": report.mismatches,
        "failures": report.failures,
        "remarks": report.remarks,
        "findings": findings,
    })
}

pub(super) fn per_second(report: &SnapshotReport) -> Option<u64> {
    (report.restore_ms > 0).then(|| report.sample.bytes.saturating_mul(1000) / report.restore_ms)
}

fn finding_json(finding: &Finding) -> Value {
    let mut object = json!({
        "path": absolute(&finding.path),
        "kind": finding.kind.name(),
        "detail": finding.detail,
    });
    if let Some((source, backup)) = &finding.hashes {
        object["sha256_source"] = json!(source);
        object["sha256_snapshot"] = json!(backup);
    }
    object
}

impl Drilled {
    fn print(&self, of: &Report, out: &Output) -> Result<(), Failure> {
        let report = &self.report;
        let (files, bytes) = (sizes::count(report.sample.files, "file"), sizes::show(report.sample.bytes));
        let all = sizes::count(report.population.files, "file");
        let all_bytes = sizes::show(report.population.bytes);
        let done = if of.writes { "restored" } else { "read" };
        let rate = per_second(report).map_or_else(String::new, |rate| format!(" ({}/s)", sizes::show(rate)));
        let seconds = report.restore_ms as f64 / 1000.0;
        out.info(format!(
            "snapshot {} of series {}: {done} {files} ({bytes}) of {all} ({all_bytes}) in {seconds:.1} s{rate}",
            self.snapshot.id.short(),
            safe(&self.snapshot.series)
        ))?;
        if let Some((low, high)) = report.seconds_for_all().filter(|(_, high)| *high >= SECONDS_MIN) {
            out.info(format!("  everything would take {}", time::show_span(low, high)))?;
        }
        if report.is_limited {
            out.warn("the sample is smaller than asked for; a larger one needs more --memory");
        }
        if of.compares {
            let compared = sizes::count(report.compared, "live file");
            out.info(format!("  compared {compared}; {} changed since, or are gone", report.not_comparable))?;
        }
        if report.cold > 0 {
            let files = sizes::count(report.cold, "file");
            out.remark(&format!("note: {files} not tested: their data is in cold storage"));
        }
        if report.without_metadata > 0 {
            let items = sizes::count(report.without_metadata, "item");
            out.remark(&format!(
                "note: {items} without owner, mode, attributes or device: the scratch folder or user lacks them"
            ));
        }
        for finding in report.findings.iter().take(FINDINGS_SHOWN) {
            out.line(format!("{}  {}: {}", label(finding.kind), absolute(&finding.path), safe(&finding.detail)))?;
            if let Some((source, backup)) = &finding.hashes {
                out.line(format!("  SHA-256 of the live file  {source}\n  SHA-256 in the snapshot   {backup}"))?;
            }
        }
        match report.finding_count().saturating_sub(report.findings.len().min(FINDINGS_SHOWN) as u64) {
            0 => Ok(()),
            more => out.line(format!("and {more} more")),
        }
    }
}

/// The first word of a line about a finding.
pub(super) fn label(kind: FindingKind) -> &'static str {
    match kind {
        FindingKind::Damaged => "DAMAGED",
        FindingKind::NotRestored => "NOT RESTORED",
        FindingKind::Differs => "DIFFERS",
        FindingKind::SourceDiffers => "SOURCE DIFFERS",
        FindingKind::SourceChanged => "source changed",
        FindingKind::SourceUnreadable => "SOURCE UNREADABLE",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_drill::Amount;

    /// A report with one of everything.
    fn report() -> Report {
        let finding = |path: &str, kind, hashes| Finding {
            path: path.as_bytes().to_vec(),
            kind,
            detail: "a <detail>".to_owned(),
            hashes,
        };
        let hashes = Some(("aa".to_owned(), "bb".to_owned()));
        let drilled = SnapshotReport {
            population: Amount { files: 1000, bytes: 1 << 30 },
            sample: Amount { files: 10, bytes: 1 << 20 },
            others: 3,
            restore_ms: 2000,
            restore_requests: StoreStats { reads: 5, bytes_down: 1_500_000, ..StoreStats::default() },
            compared: 9,
            not_comparable: 1,
            findings: vec![
                finding("srv/a&b", FindingKind::Damaged, None),
                finding("srv/c", FindingKind::SourceChanged, hashes),
            ],
            mismatches: 1,
            remarks: 1,
            ..SnapshotReport::default()
        };
        let snapshot = Named { id: JobId([0x5a; 16]), series: "web:/srv".to_owned(), time_ms: 0 };
        let failure = Failure::new(Exit::Damage, "it is damaged");
        Report {
            time_ms: 1_800_000_000_000,
            host: "web".to_owned(),
            repository: "/srv/repository".to_owned(),
            seed: 7,
            sample: Sample::Part(0.01),
            writes: true,
            compares: true,
            snapshots: vec![Drilled { snapshot: snapshot.clone(), report: drilled }],
            failed: vec![(snapshot, failure)],
            unfinished: Vec::new(),
            requests: StoreStats { reads: 12, creates: 4, lists: 2, bytes_down: 2_000_000, ..StoreStats::default() },
            seconds: 3.5,
            prices: "reads=1,creates=10,currency=EUR".parse().ok(),
        }
    }

    /// The time zone of the machine and the version of the program are no part of it.
    fn neutral(text: &str) -> String {
        let text = text.replace(&time::rfc3339(1_800_000_000_000), "TIME").replace(&time::rfc3339(0), "SAVED");
        text.replace(env!("CARGO_PKG_VERSION"), "VERSION")
    }

    #[test]
    fn a_report_has_these_bytes_as_json() {
        let json = format!("{:#}\n", Value::Object(report().json()));
        assert_eq!(neutral(&json), include_str!("golden/report.json"), "{json}");
    }

    #[test]
    fn a_report_has_these_bytes_as_html() {
        let html = super::super::html::render(&report());
        assert_eq!(neutral(&html), include_str!("golden/report.html"), "{html}");
    }

    #[test]
    fn a_mismatch_counts_more_than_a_failure() {
        let mut report = report();
        assert_eq!((report.exit(), report.result()), (Exit::Damage, "failed"));
        report.failed.clear();
        assert_eq!(report.exit(), Exit::Damage);
        report.snapshots[0].report.mismatches = 0;
        assert_eq!((report.exit(), report.result()), (Exit::Done, "passed"));
        report.snapshots[0].report.failures = 1;
        assert_eq!((report.exit(), report.result()), (Exit::Partly, "incomplete"));
        let snapshot = report.snapshots[0].snapshot.clone();
        report.unfinished.push((snapshot, Failure::new(Exit::Full, "no room")));
        assert_eq!((report.exit(), report.result()), (Exit::Full, "incomplete"));
        report.snapshots[0].report.mismatches = 1;
        assert_eq!(report.exit(), Exit::Damage, "what was found stays found");
    }
}
