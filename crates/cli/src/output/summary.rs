//! Versions and statistics as JSON, with restic's field names and additional ones.

use larder_format::manifest::{Statistics, Summary};
use larder_reader::FetchReport;
use larder_store::StoreStats;
use larder_store::catalog::Version;
use serde_json::{Map, Value, json};

use crate::{sizes, time};

/// A version as one object of `snapshots --json`.
pub(crate) fn version(version: &Version) -> Map<String, Value> {
    let summary = &version.summary;
    let mut object = Map::new();
    let mut put = |key: &str, value: Value| drop(object.insert(key.to_owned(), value));
    put("id", json!(summary.id.to_string()));
    put("short_id", json!(summary.id.short()));
    put("time", json!(time::rfc3339(summary.time_ms)));
    put("series", json!(summary.series));
    put("hostname", json!(summary.host));
    put("domain", json!(summary.domain_name));
    put("username", json!(summary.user));
    put("tags", json!(summary.tags));
    put("program_version", json!(summary.program));
    put("layout", json!(summary.layout.name()));
    if let Some(origin) = summary.origin {
        put("original", json!(origin.first.unwrap_or(origin.version).to_string()));
        put("origin", json!({"repository": origin.repository.to_string(), "snapshot": origin.version.to_string()}));
    }
    if let Some(base) = summary.base {
        put("parent", json!(base.to_string()));
    }
    put("summary", Value::Object(statistics_of(summary)));
    put_paths(&mut object, &summary.paths);
    object
}

fn put_paths(object: &mut Map<String, Value>, paths: &[Vec<u8>]) {
    let shown: Vec<_> = paths.iter().map(|path| String::from_utf8_lossy(path)).collect();
    object.insert("paths".to_owned(), json!(shown));
    if paths.iter().any(|path| std::str::from_utf8(path).is_err()) {
        let exact: Vec<_> = paths.iter().map(|path| data_encoding::BASE64.encode(path)).collect();
        object.insert("paths_b64".to_owned(), json!(exact));
    }
}

fn statistics_of(summary: &Summary) -> Map<String, Value> {
    let mut object = statistics(&summary.statistics);
    object.insert("backup_start".to_owned(), json!(time::rfc3339(summary.started_ms)));
    object.insert("backup_end".to_owned(), json!(time::rfc3339(summary.ended_ms)));
    object
}

/// The counters of a backup.
pub(crate) fn statistics(statistics: &Statistics) -> Map<String, Value> {
    let Statistics {
        files_new,
        files_changed,
        files_unmodified,
        dirs_new,
        dirs_changed,
        dirs_unmodified,
        others,
        logical_bytes,
        stream_bytes,
        read_bytes,
        chunks,
        new_chunks,
        added_bytes,
        stored_bytes,
        errors,
        predictions_right,
        predictions_wrong,
        predicted_bytes,
        skip_permille,
    } = statistics;
    let mut value = json!({
        "files_new": files_new,
        "files_changed": files_changed,
        "files_unmodified": files_unmodified,
        "dirs_new": dirs_new,
        "dirs_changed": dirs_changed,
        "dirs_unmodified": dirs_unmodified,
        "others": others,
        "data_blobs": new_chunks,
        "tree_blobs": 0,
        "data_added": added_bytes,
        "data_added_packed": stored_bytes,
        "total_files_processed": files(statistics),
        "total_bytes_processed": logical_bytes,
        "total_chunks": chunks,
        "stream_bytes": stream_bytes,
        "read_bytes": read_bytes,
        "shared_bytes": shared(statistics),
        "error_count": errors,
        "predictions_right": predictions_right,
        "predictions_wrong": predictions_wrong,
        "predicted_bytes": predicted_bytes,
    });
    if let (Value::Object(object), Some(permille)) = (&mut value, skip_permille) {
        object.insert("skip_permille".to_owned(), json!(permille));
    }
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}

/// Files of a version.
pub(crate) fn files(statistics: &Statistics) -> u64 {
    statistics.files_new + statistics.files_changed + statistics.files_unmodified
}

/// Bytes of the data stream that were in the repository before. Metadata counts as added, so this
/// may be a little too low.
pub(crate) fn shared(statistics: &Statistics) -> u64 {
    statistics.stream_bytes.saturating_sub(statistics.added_bytes)
}

/// Adds the numbers of fetched contents.
pub(crate) fn put_fetched(object: &mut Map<String, Value>, fetched: &FetchReport) {
    let FetchReport {
        containers,
        requests,
        bytes,
        again,
        disk_hits,
        disk_read,
        disk_written,
        used: _,
        redirected,
        look_ups,
    } = *fetched;
    for (key, value) in [
        ("containers_read", json!(containers)),
        ("container_requests", json!(requests)),
        ("container_bytes_read", json!(bytes)),
        ("bytes_read_per_byte", json!(fetched.per_byte())),
        ("containers_read_again", json!(again)),
        ("disk_tier_hits", json!(disk_hits)),
        ("disk_tier_bytes_read", json!(disk_read)),
        ("disk_tier_bytes_written", json!(disk_written)),
        ("chunks_found_by_index", json!(redirected)),
        ("index_look_ups", json!(look_ups)),
    ] {
        object.insert(key.to_owned(), value);
    }
}

/// The same in words.
pub(crate) fn fetched(fetched: &FetchReport) -> String {
    let (containers, bytes) = (sizes::count(fetched.containers, "container"), sizes::show(fetched.bytes));
    let requests = sizes::count(fetched.requests, "request");
    let mut text = format!("read {containers}: {bytes} in {requests} (read amplification {:.2})", fetched.per_byte());
    if fetched.again > 0 {
        text += &format!("; {} of them again, because there was no memory to keep them", fetched.again);
    }
    if fetched.disk_hits > 0 {
        let (read, written) = (sizes::show(fetched.disk_read), sizes::show(fetched.disk_written));
        text += &format!("; {read} came from the disk tier, to which {written} were written");
    }
    if fetched.redirected > 0 {
        let (redirected, look_ups) =
            (sizes::count(fetched.redirected, "chunk"), sizes::count(fetched.look_ups, "look-up"));
        text += &format!("; the index redirected {redirected} that had moved, in {look_ups}");
    }
    text
}

/// Adds the requests to the store.
pub(crate) fn put_requests(object: &mut Map<String, Value>, stats: &StoreStats) {
    for (key, value) in [
        ("requests", stats.requests()),
        ("requests_create", stats.creates),
        ("requests_read", stats.reads + stats.sizes),
        ("requests_list", stats.lists),
        ("requests_delete", stats.deletes),
        ("retries", stats.retries),
        ("bytes_up", stats.bytes_up),
        ("bytes_down", stats.bytes_down),
    ] {
        object.insert(key.to_owned(), json!(value));
    }
}
