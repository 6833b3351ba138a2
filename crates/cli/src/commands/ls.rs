//! `larder ls`.

mod ncdu;
mod order;

use std::io;
use std::os::unix::ffi::OsStrExt;

use larder_format::entry::Entry;
use larder_reader::{FirstNames, VersionReader};
use serde_json::{Value, json};

use crate::app::App;
use crate::args::{LsArgs, LsSort};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::entries::{long_line, node};
use crate::output::{SortedLines, absolute, output_failed, summary};
use crate::refs::{self, Versions};

use self::ncdu::Ncdu;

/// Divisor of the memory that gives the part for lines that are sorted.
const SORT_ONE_IN: usize = 2;

pub(super) fn run(app: &App, args: &LsArgs) -> Result<Exit, Failure> {
    let reference = refs::parse(&args.snapshot)?;
    let mut paths: Vec<Vec<u8>> = reference.path.clone().into_iter().collect();
    for path in &args.paths {
        paths.push(refs::clean_path(path.as_bytes())?);
    }
    let opened = app.open()?;
    // The snapshot's line has its tags.
    let versions = match app.out.is_json() {
        true => Versions::load_tagged(app, &opened.repository, &args.filter)?.0,
        false => Versions::load_named(app, &opened.repository, &args.filter, &[&reference.snapshot])?,
    };
    let version = versions.find(app, &reference.snapshot)?;
    let context = app.reading(opened.repository);
    let reader = VersionReader::open(&context, &version)?;
    if app.out.is_json() && !args.ncdu {
        let mut object = summary::version(&version);
        object.insert("message_type".to_owned(), json!("snapshot"));
        object.insert("struct_type".to_owned(), json!("snapshot"));
        app.out.json(&object)?;
    }
    if args.ncdu {
        let failed = output_failed;
        let mut ncdu = Ncdu::begin(app.out.bytes(), version.summary.time_ms / 1000).map_err(failed)?;
        // A folder is shown with everything below it.
        visit(&reader, &paths, true, |entry| ncdu.add(entry).map_err(failed))?;
        ncdu.end().map_err(failed)?;
        return Ok(Exit::Done);
    }
    let shows_sizes = app.out.is_json() || args.long || matches!(args.sort, Some(LsSort::Size));
    let mut first_names = FirstNames::new(&reader);
    let mut size_of = |entry: &Entry| -> Result<Option<u64>, Failure> {
        Ok(if shows_sizes { first_names.size(entry)? } else { None })
    };
    if args.sort.is_none() && !args.reverse {
        visit(&reader, &paths, args.recursive, |entry| app.out.line(line(app, args, entry, size_of(entry)?)))?;
        return Ok(Exit::Done);
    }
    let failed = |error: io::Error| Failure::of(Exit::Failed, &error).while_doing("cannot sort the listing");
    let mut sorted = SortedLines::new(args.reverse, app.global.memory() / SORT_ONE_IN, app.scratch());
    visit(&reader, &paths, args.recursive, |entry| {
        let size = size_of(entry)?;
        let key = order::key(args.sort.unwrap_or(LsSort::Name), entry, size);
        sorted.push(key, line(app, args, entry, size)).map_err(failed)
    })?;
    sorted.visit(|line| app.out.line(line).map_err(Stop::Output)).map_err(|stop| match stop {
        Stop::Output(failure) => failure,
        Stop::Sorting(error) => failed(error),
    })?;
    Ok(Exit::Done)
}

/// Why sorted lines are not all written.
enum Stop {
    Output(Failure),
    Sorting(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Sorting(error)
    }
}

/// Visits the entries at and below the paths; without any, all.
fn visit(
    reader: &VersionReader,
    paths: &[Vec<u8>],
    is_recursive: bool,
    mut visitor: impl FnMut(&Entry) -> Result<(), Failure>,
) -> Result<(), Failure> {
    if paths.is_empty() {
        return reader.entries().try_for_each(|entry| visitor(&entry?));
    }
    paths.iter().try_for_each(|path| visit_below(reader, path, is_recursive, &mut visitor))
}

/// Visits a path: a file itself, a folder's direct entries or everything below it.
fn visit_below(
    reader: &VersionReader,
    path: &[u8],
    is_recursive: bool,
    visitor: &mut impl FnMut(&Entry) -> Result<(), Failure>,
) -> Result<(), Failure> {
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
        if is_recursive || is_direct(&entry) {
            visitor(&entry)?;
        }
    }
    if any {
        return Ok(());
    }
    let message = format!("{} has no {}", refs::shown(&reader.manifest().summary), absolute(path));
    Err(Failure::new(Exit::Failed, message).advise("`larder find` looks for it in all snapshots"))
}

/// The line of an entry.
fn line(app: &App, args: &LsArgs, entry: &Entry, size: Option<u64>) -> String {
    if app.out.is_json() {
        let mut object = node(entry, size);
        object.insert("message_type".to_owned(), json!("node"));
        object.insert("struct_type".to_owned(), json!("node"));
        app.out.labelled(&Value::Object(object))
    } else if args.long {
        long_line(entry, size, args.human_readable)
    } else {
        absolute(&entry.path)
    }
}
