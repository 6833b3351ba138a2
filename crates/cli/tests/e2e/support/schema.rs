//! Checks values against `docs/json/*.schema.json`: types, required fields, constants and choices, which is all they use.

use serde_json::Value;

/// The value must obey the schema, and hold no field that the schema does not know.
#[track_caller]
pub(crate) fn check(name: &str, value: &Value) {
    let path = format!("{}/../../docs/json/{name}.schema.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let schema: Value = serde_json::from_str(&text).expect("the schema is JSON");
    if let Err(why) = obeys(&schema, value, name) {
        panic!("{why} in {value:#}");
    }
}

/// Every object of a JSON text that has a `message_type` must begin with it.
#[track_caller]
pub(crate) fn kinds_come_first(text: &str) {
    // In a string, the quotes would be escaped.
    for (at, _) in text.match_indices(r#""message_type":"#) {
        let before: String = text[..at].chars().rev().take(100).collect::<Vec<_>>().into_iter().rev().collect();
        assert!(before.ends_with('{'), "message_type does not come first, but after {before}");
    }
}

fn obeys(schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    if let Some(constant) = schema.get("const")
        && constant != value
    {
        return Err(format!("{at} is {value}, not {constant}"));
    }
    if let Some(choices) = schema.get("enum").and_then(Value::as_array)
        && !choices.contains(value)
    {
        return Err(format!("{at} is {value}, none of {choices:?}"));
    }
    if let Some(types) = schema.get("type") {
        let one = [types.clone()];
        let types = types.as_array().map_or(&one[..], Vec::as_slice);
        if !types.iter().any(|kind| is_a(kind.as_str().unwrap_or_default(), value)) {
            return Err(format!("{at} is {value}, not of type {types:?}"));
        }
    }
    // A value of another kind has no fields.
    let required = schema.get("required").and_then(Value::as_array).filter(|_| value.is_object());
    for required in required.into_iter().flatten() {
        let field = required.as_str().unwrap_or_default();
        if value.get(field).is_none() {
            return Err(format!("{at}.{field} is missing"));
        }
    }
    if let (Some(properties), Some(object)) = (schema.get("properties").and_then(Value::as_object), value.as_object()) {
        for (field, value) in object {
            match properties.get(field) {
                Some(schema) => obeys(schema, value, &format!("{at}.{field}"))?,
                None if at == "find.matches" => {}
                None => return Err(format!("{at}.{field} is not documented")),
            }
        }
    }
    if let (Some(items), Some(array)) = (schema.get("items"), value.as_array()) {
        for value in array {
            obeys(items, value, at)?;
        }
    }
    Ok(())
}

fn is_a(kind: &str, value: &Value) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "null" => value.is_null(),
        _ => false,
    }
}
