//! A JSON schema of the configuration file for editors, made from the definitions of clap.

use clap::{Arg, Command};
use larder_profile::config::Event;
use serde_json::{Map, Value, json};

use super::definitions::{Definitions, Shape, shape};

/// The schema.
pub(crate) fn schema(definitions: &Definitions) -> Value {
    let text = || json!({ "type": "string" });
    let texts = || json!({ "type": ["string", "array"], "items": { "type": "string" } });
    let hook = json!({
        "type": ["string", "object"],
        "properties": {
            "run": texts(),
            "timeout": { "type": "string", "description": "Time after which it is stopped, such as 10m" },
            "on-error": { "enum": ["stop", "warn", "ignore"] },
        },
        "additionalProperties": false,
    });
    let hook_list =
        json!({ "anyOf": [{ "$ref": "#/$defs/hook" }, { "type": "array", "items": { "$ref": "#/$defs/hook" } }] });
    let hooks = table(["before", "after", "failed", "finally"].map(|key| (key, hook_list.clone())));
    let credential = table([
        ("key-file", text()),
        ("password-file", text()),
        ("password-command", text()),
        ("prompt", json!({ "type": "boolean", "description": "Ask on the terminal" })),
    ]);
    let every = ["optimize", "check", "drill"].map(|verb| (verb, "every", text()));
    let mut repository = options(definitions, &[], &every);
    repository.insert("location".to_owned(), json!({ "type": "string", "description": "As after --repo" }));
    repository.insert("credential".to_owned(), text());
    repository.insert("environment-file".to_owned(), text());
    let mut copy = options(definitions, &["copy".to_owned()], &[]);
    copy.retain(|key, _| !["from-repo", "from-repository-file"].contains(&key.as_str()));
    copy.insert("every".to_owned(), text());
    let copies = json!({ "type": "object", "additionalProperties": closed(copy),
        "description": "Repositories whose snapshots `larder run` copies into this one" });
    repository.insert("copy-from".to_owned(), copies);
    let of_hooks: Vec<_> =
        top_verbs(definitions).map(|verb| (verb, "hooks", json!({ "$ref": "#/$defs/hooks" }))).collect();
    let mut profile = options(definitions, &[], &of_hooks);
    for (key, value) in [
        ("inherit", text()),
        ("sources", texts()),
        ("repositories", texts()),
        ("repository", text()),
        ("schedule", texts()),
        ("oncalendar", text()),
        ("random-delay", text()),
        ("relax", texts()),
        ("hooks", json!({ "$ref": "#/$defs/hooks" })),
    ] {
        profile.insert(key.to_owned(), value);
    }
    let notify = table([
        ("kind", json!({ "enum": ["healthchecks", "ntfy", "webhook", "command"] })),
        ("url-file", text()),
        ("run", json!({ "anyOf": [texts(), { "$ref": "#/$defs/hook" }] })),
        ("on", json!({ "type": ["string", "array"], "items": { "enum": Event::ALL.map(Event::name) } })),
        ("timeout", json!({ "type": "string", "description": "Time for one attempt, such as 10s" })),
    ]);
    let named = |value: Value| json!({ "type": "object", "additionalProperties": value });
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Configuration of Larder",
        "type": "object",
        "$defs": { "hook": hook, "hooks": hooks },
        "properties": {
            "version": { "const": 1 },
            "include": texts(),
            "credentials": named(credential),
            "repositories": named(closed(repository)),
            "defaults": closed(options(definitions, &[], &[])),
            "profiles": named(closed(profile)),
            "notify": named(notify),
            "metrics": table([("file", text())]),
        },
        "additionalProperties": false,
    })
}

fn closed(properties: Map<String, Value>) -> Value {
    json!({ "type": "object", "properties": properties, "additionalProperties": false })
}

fn table<const N: usize>(properties: [(&str, Value); N]) -> Value {
    closed(properties.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

fn top_verbs(definitions: &Definitions) -> impl Iterator<Item = &str> {
    let verbs = definitions.verb(&[]).into_iter().flat_map(Command::get_subcommands);
    verbs.map(Command::get_name).filter(|name| *name != "help")
}

/// The options of a verb and of those below it. `more` are further keys of verbs.
fn options(definitions: &Definitions, verb: &[String], more: &[(&str, &str, Value)]) -> Map<String, Value> {
    let mut properties = Map::new();
    let is_of_file = |arg: &&Arg| arg.get_long().is_some_and(|long| Definitions::why_typed_only(long).is_none());
    for arg in definitions.options(verb).filter(is_of_file) {
        properties.insert(arg.get_long().unwrap_or_default().to_owned(), property(arg));
    }
    for below in definitions.verb(verb).into_iter().flat_map(Command::get_subcommands) {
        let name = below.get_name();
        if name == "help" {
            continue;
        }
        let path = [verb, &[name.to_owned()]].concat();
        let mut of_verb = options(definitions, &path, &[]);
        if verb.is_empty() {
            let further = more.iter().filter(|(verb, ..)| *verb == name);
            of_verb.extend(further.map(|(_, key, value)| ((*key).to_owned(), value.clone())));
        }
        properties.insert(name.to_owned(), closed(of_verb));
    }
    properties
}

fn property(arg: &Arg) -> Value {
    let mut property = match shape(arg) {
        Shape::Flag => json!({ "type": "boolean" }),
        Shape::Count => json!({ "type": ["boolean", "integer"] }),
        Shape::Single => json!({ "type": ["string", "number"] }),
        Shape::List => json!({ "type": ["string", "number", "array"], "items": { "type": ["string", "number"] } }),
    };
    if let Some(help) = arg.get_help() {
        property["description"] = json!(help.to_string());
    }
    property
}
