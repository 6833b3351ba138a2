//! `larder ls`.

use std::os::unix::ffi::OsStrExt;

use larder_format::entry::Entry;
use larder_reader::VersionReader;
use serde_json::{Value, json};

use crate::app::App;
use crate::args::LsArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::entries::{long_line, node};
use crate::output::{absolute, summary};
use crate::refs::{self, Versions};

pub(super) fn run(app: &App, args: &LsArgs) -> Result<Exit, Failure> {
    let reference = refs::parse(&args.snapshot)?;
    let mut paths: Vec<Vec<u8>> = reference.path.clone().into_iter().collect();
    for path in &args.paths {
        paths.push(refs::clean_path(path.as_bytes())?);
    }
    let opened = app.open()?;
    let versions = Versions::load(app, &opened.repository, &args.filter)?;
    let version = versions.find(app, &reference.snapshot)?;
    let context = app.reading(opened.repository);
    let reader = VersionReader::open(&context, &version)?;
    if app.out.is_json() {
        let mut object = summary::version(&version);
        object.insert("message_type".to_owned(), json!("snapshot"));
        object.insert("struct_type".to_owned(), json!("snapshot"));
        app.out.json(&object)?;
    }
    if paths.is_empty() {
        for entry in reader.entries() {
            print(app, args, &entry?)?;
        }
        return Ok(Exit::Done);
    }
    for path in paths {
        list_below(app, args, &reader, &path)?;
    }
    Ok(Exit::Done)
}

/// Lists a path: a file itself, a folder's direct entries or everything below it.
fn list_below(app: &App, args: &LsArgs, reader: &VersionReader, path: &[u8]) -> Result<(), Failure> {
    let is_direct = |entry: &Entry| {
        let rest = match path {
            b"" => Some(&*entry.path),
            path => entry.path.strip_prefix(path).and_then(|rest| rest.strip_prefix(b"/")),
        };
        rest.is_none_or(|rest| !rest.contains(&b'/'))
    };
    let mut any = path.is_empty();
    for entry in reader.entries_below(path) {
        let entry = entry?;
        any = true;
        if args.recursive || is_direct(&entry) {
            print(app, args, &entry)?;
        }
    }
    if any {
        return Ok(());
    }
    let message = format!("{} has no {}", refs::shown(&reader.manifest().summary), absolute(path));
    Err(Failure::new(Exit::Failed, message).advise("`larder find` looks for it in all snapshots"))
}

fn print(app: &App, args: &LsArgs, entry: &Entry) -> Result<(), Failure> {
    if app.out.is_json() {
        let mut object = node(entry);
        object.insert("message_type".to_owned(), json!("node"));
        object.insert("struct_type".to_owned(), json!("node"));
        app.out.json(&Value::Object(object))
    } else if args.long {
        app.out.line(long_line(entry))
    } else {
        app.out.line(absolute(&entry.path))
    }
}
