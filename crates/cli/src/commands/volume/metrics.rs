//! The numbers of a served store in the text format of Prometheus.

use super::report::Report;
use crate::commands::metrics_text::{Kind, MetricsText, labels};

fn label(name: &str, value: &str) -> String {
    labels(&[(name, value)])
}

/// All metrics of a store.
pub(super) fn render(report: &Report) -> String {
    let mut text = MetricsText::new("larder_volume_");
    let Report { requests, commits, memory, log, runs, caches, replayed, .. } = report;
    text.metric(
        "uptime_seconds",
        "Time since the store was opened.",
        Kind::Gauge,
        &[(String::new(), report.uptime_ms as f64 / 1000.0)],
    );
    text.gauge("volumes", "Volumes of the store.", report.volumes);
    text.gauge("snapshots", "Snapshots of volumes.", report.snapshots);
    text.gauge("logical_bytes", "Size of all volumes together.", report.logical_bytes);
    text.gauge("free_bytes", "Free space of the file system.", report.free_bytes);
    text.gauge("full", "1 while writes are refused because the file system is full.", u64::from(report.is_full));
    text.gauge(
        "stopped",
        "1 when nothing can be written until the server is started again.",
        u64::from(report.stopped.is_some()),
    );
    text.gauge("problems", "Failures of work in the background, and damage that it met.", report.problems.len() as u64);
    text.gauge("connections", "Connections of NBD clients.", report.connections.unwrap_or_default());
    text.counter("reads_total", "Requests to read.", requests.reads);
    text.counter("read_bytes_total", "Bytes that clients read.", requests.read_bytes);
    text.counter("writes_total", "Requests to write.", requests.writes);
    text.counter("written_bytes_total", "Bytes that clients wrote.", requests.written_bytes);
    text.metric(
        "write_wait_seconds_total",
        "Time that writes and discards waited for room in the write buffer.",
        Kind::Counter,
        &[(String::new(), requests.waited_micros as f64 / 1e6)],
    );
    text.counter("discards_total", "Requests to discard or to write zeros.", requests.discards);
    text.counter("discarded_bytes_total", "Bytes of these requests.", requests.discarded_bytes);
    text.counter("flushes_total", "Requests to make everything durable.", requests.flushes);
    text.counter("commits_total", "Commits that wrote a record of the log.", commits.commits);
    text.counter("blocks_total", "Blocks of commits.", commits.blocks);
    text.counter("unchanged_blocks_total", "Whole blocks that had this content before.", commits.unchanged_blocks);
    text.counter("cut_bytes_total", "Bytes that were cut into chunks.", commits.cut_bytes);
    text.counter("new_chunks_total", "Chunks that were stored.", commits.new_chunks);
    text.counter("new_bytes_total", "Bytes of new chunks.", commits.new_bytes);
    text.counter("stored_bytes_total", "Bytes of new chunks, compressed and sealed.", commits.sealed_bytes);
    text.counter("publishes_total", "Manifests that were published.", commits.publishes);
    let phases = commits.phases.iter().map(|phase| (label("phase", &phase.name), phase.micros as f64 / 1e6));
    text.metric(
        "commit_seconds_total",
        "Time of each part of the work of commits.",
        Kind::Counter,
        &phases.collect::<Vec<_>>(),
    );
    text.gauge("waiting_bytes", "Writes that wait for a commit.", memory.waiting_bytes);
    text.gauge("waiting_most_bytes", "Size of the write buffer.", memory.waiting_most_bytes);
    text.gauge("table_bytes", "Memory tables.", memory.table_bytes);
    text.gauge("log_slots", "Slots of the log.", log.slots);
    text.gauge("log_slots_used", "Slots with records that are not in runs.", log.slots_used);
    let tables = [("chunks", &runs.chunks), ("blocks", &runs.blocks), ("counts", &runs.counts)];
    let of = |value: fn(&super::report::TableRuns) -> u64| {
        tables.map(|(name, runs)| (label("table", name), value(runs) as f64))
    };
    text.metric("runs", "Runs on disk.", Kind::Gauge, &of(|runs| runs.runs));
    text.metric("run_records", "Records of runs.", Kind::Gauge, &of(|runs| runs.records));
    text.metric("run_bytes", "Bytes of runs.", Kind::Gauge, &of(|runs| runs.bytes));
    let caches = [("pages", &caches.pages), ("frames", &caches.frames)];
    let hits = caches.map(|(name, cache)| (label("cache", name), cache.hits as f64));
    let misses = caches.map(|(name, cache)| (label("cache", name), cache.misses as f64));
    text.metric("cache_hits_total", "Look-ups that a cache answered.", Kind::Counter, &hits);
    text.metric("cache_misses_total", "Look-ups that read from disk.", Kind::Counter, &misses);
    text.gauge("replayed_commits", "Commits of the log that the start replayed.", replayed.commits);
    filters(&mut text, report);
    text.end()
}

/// Counters of the filter chain.
fn filters(text: &mut MetricsText, report: &Report) {
    if report.filters.is_empty() {
        return;
    }
    let samples = |value: fn(&super::report::Filter) -> f64| -> Vec<_> {
        report.filters.iter().map(|filter| (label("filter", &filter.name), value(filter))).collect()
    };
    let asked = samples(|filter| filter.asked as f64);
    text.metric("filter_asked_total", "Chunks that a filter was asked for.", Kind::Counter, &asked);
    let mut answers = Vec::new();
    for filter in &report.filters {
        let counts = [
            ("existing", filter.existing),
            ("strong", filter.strong),
            ("weak", filter.weak),
            ("non_existing", filter.non_existing),
        ];
        for (answer, count) in counts {
            answers.push((labels(&[("filter", filter.name.as_str()), ("answer", answer)]), count as f64));
        }
    }
    text.metric("filter_answers_total", "Answers of a filter.", Kind::Counter, &answers);
    let seconds = samples(|filter| filter.micros as f64 / 1e6);
    text.metric("filter_seconds_total", "Time of a filter.", Kind::Counter, &seconds);
}
