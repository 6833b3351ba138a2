//! `larder volume list`.

use serde::Deserialize;
use serde_json::Value;

use super::Below;
use super::request::Request;
use super::target::ask;
use crate::app::App;
use crate::args::VolumeListArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Align, Table};
use crate::sizes;
use crate::time;

/// A volume as the answer has it.
#[derive(Debug, Deserialize)]
pub(super) struct Listed {
    /// Its number: never used again.
    pub(super) id: u32,
    pub(super) name: String,
    size: u64,
    created: String,
    parent: Option<String>,
    pub(super) snapshots: Vec<Snapshot>,
}

/// A snapshot of it.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Snapshot {
    /// Its number: never used again.
    pub(super) id: u32,
    pub(super) name: String,
    pub(super) size: u64,
    created: String,
    /// The text of its creator.
    pub(super) mark: Option<String>,
}

/// Reads an answer.
pub(super) fn volumes(answer: Value) -> Result<Vec<Listed>, Failure> {
    serde_json::from_value(answer)
        .map_err(|error| Failure::new(Exit::Failed, format!("the server of the store answers something else: {error}")))
}

/// The answer with the content from outside as an object. A server sends it as a text.
fn with_objects(mut answer: Value) -> Value {
    for volume in answer.as_array_mut().into_iter().flatten() {
        let parent = volume.get("parent").and_then(Value::as_str);
        let object =
            parent.filter(|text| Below::parse(text).is_some()).and_then(|text| serde_json::from_str(text).ok());
        if let Some(object) = object {
            volume["parent"] = object;
        }
    }
    answer
}

pub(super) fn run(app: &App, args: &VolumeListArgs) -> Result<Exit, Failure> {
    let value = ask(app, &args.store, &args.password, &Request::List)?;
    if app.out.is_json() {
        app.out.json(&with_objects(value))?;
        return Ok(Exit::Done);
    }
    let volumes = volumes(value)?;
    let columns =
        [("Name", Align::Left), ("Size", Align::Right), ("Created", Align::Left), ("Content from", Align::Left)];
    let mut table = Table::new(&columns);
    let shown = |created: String| time::parse(&created).map_or(created, time::show);
    for Listed { name, size, created, parent, snapshots, .. } in volumes {
        let from = parent.map(|parent| Below::parse(&parent).map_or(parent, |below| below.shown()));
        table.row(vec![name.clone(), sizes::show(size), shown(created), from.unwrap_or_default()]);
        for of in snapshots {
            table.row(vec![format!("{name}@{}", of.name), sizes::show(of.size), shown(of.created), String::new()]);
        }
    }
    app.out.table(table)?;
    Ok(Exit::Done)
}
