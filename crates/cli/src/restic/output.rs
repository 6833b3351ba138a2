//! JSON as restic writes it.
//!
//! * Ids have 64 characters. Ours have 32, so 32 zeros follow, which are taken off again.
//! * Modes of files have the bits of Go, and a further name of a file is a file.
//! * Snapshots have a tree, and statistics are those of the mode.

use serde_json::{Map, Value, json};

/// Behind the ids of snapshots.
const ZEROS: &str = "00000000000000000000000000000000";

/// Keys whose values are ids.
const IDS: [&str; 4] = ["id", "snapshot_id", "parent", "snapshot"];

/// Bits of the modes of Go beside the permissions, by type.
const TYPES: [(&str, u32); 5] =
    [("dir", 1 << 31), ("symlink", 1 << 27), ("dev", 1 << 26), ("chardev", 1 << 26 | 1 << 21), ("fifo", 1 << 25)];

/// Bits of the modes of POSIX, and what they are in Go.
const SPECIAL: [(u32, u32); 3] = [(0o4000, 1 << 23), (0o2000, 1 << 22), (0o1000, 1 << 20)];

/// An id with 64 characters.
pub(crate) fn id(own: &str) -> String {
    let is_own = own.len() == ZEROS.len() && own.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_own { format!("{own}{ZEROS}") } else { own.to_owned() }
}

/// The id of a snapshot as it was given, without the zeros.
pub(crate) fn own_id(given: &str) -> &str {
    if given.len() == 2 * ZEROS.len() { given.strip_suffix(ZEROS).unwrap_or(given) } else { given }
}

/// A result or a message.
pub(crate) fn mapped(value: Value) -> Value {
    match value {
        Value::Array(values) => Value::Array(values.into_iter().map(mapped).collect()),
        Value::Object(object) => {
            let is_node = object.get("message_type").is_some_and(|kind| kind == "node");
            let is_snapshot = object.contains_key("short_id") && object.contains_key("paths");
            let of_key = |(key, value): (String, Value)| {
                let value = mapped_id(&key, &value).unwrap_or_else(|| mapped(value));
                (key, value)
            };
            let mut object: Map<String, Value> = object.into_iter().map(of_key).collect();
            if is_node {
                mapped_node(&mut object);
            }
            if is_snapshot {
                let id = object.get("id").cloned().unwrap_or_default();
                object.insert("tree".to_owned(), id);
            }
            Value::Object(object)
        }
        simple => simple,
    }
}

fn mapped_id(key: &str, value: &Value) -> Option<Value> {
    value.as_str().filter(|_| IDS.contains(&key)).map(|text| json!(id(text)))
}

/// An entry of a snapshot.
pub(crate) fn mapped_node(node: &mut Map<String, Value>) {
    let kind = node.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    if let Some(mode) = node.get("mode").and_then(Value::as_u64).and_then(|mode| u32::try_from(mode).ok()) {
        node.insert("mode".to_owned(), json!(go_mode(&kind, mode)));
    }
    if kind == "hardlink" {
        node.insert("type".to_owned(), json!("file"));
    }
}

fn go_mode(kind: &str, mode: u32) -> u32 {
    let of_type = TYPES.iter().find(|(name, _)| *name == kind).map_or(0, |(_, bits)| *bits);
    let special = SPECIAL.iter().filter(|(posix, _)| mode & posix != 0).map(|(_, go)| go).sum::<u32>();
    of_type | special | (mode & 0o777)
}

/// Statistics in one of restic's modes. Blobs are counted as containers.
pub(crate) fn stats(own: &Map<String, Value>, mode: Option<&str>) -> Value {
    let number = |key: &str| own.get(key).and_then(Value::as_u64).unwrap_or_default();
    if mode != Some("raw-data") {
        return json!({
            "total_size": number("logical_bytes"),
            "total_file_count": number("total_file_count"),
            "snapshots_count": number("snapshots_count"),
        });
    }
    let (stored, unique) = (number("stored_bytes"), number("unique_bytes"));
    let saved = if unique == 0 { 0.0 } else { (1.0 - stored as f64 / unique as f64).max(0.0) * 100.0 };
    json!({
        "total_size": stored,
        "total_uncompressed_size": unique,
        "compression_ratio": own.get("compression_ratio"),
        "compression_progress": 100.0,
        "compression_space_saving": saved,
        "total_blob_count": number("containers"),
        "snapshots_count": number("snapshots_count"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn ids_become_long_and_short_again() {
        let long = id(OWN);
        assert_eq!((long.len(), own_id(&long)), (64, OWN));
        assert_eq!((id("latest"), own_id("latest")), ("latest".to_owned(), "latest"));
        let other = "f".repeat(64);
        assert_eq!(own_id(&other), other);
        let groups = mapped(json!([{"keep": [{"id": OWN, "short_id": "01", "paths": ["/"]}], "note": OWN}]));
        assert_eq!(groups[0]["keep"][0], json!({"id": long, "tree": long, "short_id": "01", "paths": ["/"]}));
        assert_eq!(groups[0]["note"], OWN, "not every text is an id");
    }

    #[test]
    fn modes_are_those_of_go() {
        // From `fs.FileMode`: the same files with os.Lstat.
        assert_eq!(go_mode("dir", 0o1777), 2_148_532_735);
        assert_eq!(go_mode("file", 0o4755), 8_389_101);
        assert_eq!(go_mode("symlink", 0o777), 134_218_239);
        assert_eq!(go_mode("chardev", 0o666), 69_206_454);
        let node = mapped(json!({"message_type": "node", "type": "hardlink", "mode": 0o2640}));
        assert_eq!(node, json!({"message_type": "node", "type": "file", "mode": 4_194_720}));
    }
}
