//! JSON as one line of text, in the order of keys that other programs rely on.
//!
//! Every object with a `message_type` begins with it: resticprofile takes a line for a message only
//! if it begins with `{"message_type":"`. All other keys are sorted.

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;

/// The key that comes first.
const FIRST: &str = "message_type";

/// One line of JSON. The program's values have text keys only, so this cannot fail.
pub(crate) fn json_line(value: &impl Serialize) -> String {
    serde_json::to_value(value).and_then(|value| serde_json::to_string(&Ordered(&value))).unwrap_or_else(|error| {
        let error = Value::from(error.to_string());
        format!("{{\"{FIRST}\":\"error\",\"error\":{{\"message\":{error}}}}}")
    })
}

/// A value whose objects begin with their type.
struct Ordered<'a>(&'a Value);

impl Serialize for Ordered<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(object) => {
                let mut map = serializer.serialize_map(Some(object.len()))?;
                if let Some(kind) = object.get(FIRST) {
                    map.serialize_entry(FIRST, kind)?;
                }
                for (key, value) in object.iter().filter(|(key, _)| *key != FIRST) {
                    map.serialize_entry(key, &Ordered(value))?;
                }
                map.end()
            }
            Value::Array(values) => serializer.collect_seq(values.iter().map(Ordered)),
            simple => simple.serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_type_comes_first_at_every_depth() {
        let inner = json!({"b": 1, "a": {"message_type": "x", "A": null}});
        let value = json!({"z": [inner, 2, "text"], "adopted": true, "message_type": "summary"});
        let line = json_line(&value);
        let wanted =
            r#"{"message_type":"summary","adopted":true,"z":[{"a":{"message_type":"x","A":null},"b":1},2,"text"]}"#;
        assert_eq!(line, wanted);
        assert_eq!(serde_json::from_str::<Value>(&line).expect("JSON"), value);
    }

    #[test]
    fn a_value_that_is_no_json_is_an_error_message() {
        let keys = std::collections::BTreeMap::from([((1, 2), 3)]);
        let line = json_line(&keys);
        assert!(line.starts_with(r#"{"message_type":"error","error":{"message":""#), "{line}");
        serde_json::from_str::<Value>(&line).expect("JSON");
    }
}
