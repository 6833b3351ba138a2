//! The numbers of a summary that the journal keeps, for metrics.

use serde_json::{Map, Value};

/// The key of the journal for unused bytes in cold storage.
pub(super) const COLD_UNUSED: &str = "cold_unused_bytes";

/// Keys of the journal, and where a summary has their numbers. A star stands for all items of a
/// list, whose numbers are added; of a list at the end, the items are counted.
const NUMBERS: [(&str, &str); 23] = [
    ("files_new", "files_new"),
    ("files_changed", "files_changed"),
    ("files_unmodified", "files_unmodified"),
    ("total_bytes_processed", "total_bytes_processed"),
    ("data_added", "data_added"),
    ("data_added_packed", "data_added_packed"),
    ("error_count", "error_count"),
    ("num_errors", "num_errors"),
    ("bytes_read", "bytes_read"),
    ("unused_bytes", "unused_bytes"),
    (COLD_UNUSED, COLD_UNUSED),
    ("deleted_bytes", "done/container_bytes"),
    ("rewritten_bytes", "defragmented/stored_bytes"),
    ("waiting_bytes", "waiting/bytes"),
    ("undeleted", "undeleted"),
    ("drilled_files", "snapshots/*/files"),
    ("drilled_bytes", "snapshots/*/bytes"),
    ("mismatches", "snapshots/*/mismatches"),
    ("failures", "snapshots/*/failures"),
    ("copied", "copied"),
    ("copies_failed", "failed"),
    ("copies_refused", "refused"),
    ("copies_forgotten", "forgotten"),
];

/// The numbers of a summary.
pub(super) fn numbers(summary: &Value) -> Map<String, Value> {
    let found = NUMBERS.iter().filter_map(|(key, path)| {
        let path: Vec<_> = path.split('/').collect();
        Some(((*key).to_owned(), at(summary, &path)?))
    });
    found.collect()
}

fn at(value: &Value, path: &[&str]) -> Option<Value> {
    match (path, value) {
        ([], Value::Array(items)) => Some(items.len().into()),
        ([], Value::Number(_)) => Some(value.clone()),
        ([], _) => None,
        (["*", rest @ ..], _) => {
            let items = value.as_array()?.iter().map(|item| at(item, rest)?.as_u64());
            items.sum::<Option<u64>>().map(Value::from)
        }
        ([key, rest @ ..], _) => at(value.get(key)?, rest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_are_found_added_and_counted() {
        let summary = json!({
            "files_new": 7,
            "data_added": null,
            "done": { "container_bytes": 5, "entries": 1 },
            "undeleted": [{ "object": "a" }, { "object": "b" }],
            "snapshots": [{ "files": 2, "bytes": 10 }, { "files": 3, "bytes": 20 }],
        });
        let expected = json!({
            "files_new": 7, "deleted_bytes": 5, "undeleted": 2, "drilled_files": 5, "drilled_bytes": 30,
        });
        assert_eq!(Value::Object(numbers(&summary)), expected);
        assert!(numbers(&json!([])).is_empty());
    }
}
