//! `larder history`: each change of one path, once, over the snapshots of a series.

use std::os::unix::ffi::OsStrExt;

use larder_format::entry::{Entry, EntryKind};
use larder_format::manifest::Summary;
use larder_reader::{Change, MetaChunks, VersionReader, VersionsAhead, diff, is_at_or_below};
use larder_store::catalog::Version;
use serde_json::{Map, Value, json};

use super::diff::sign;
use crate::app::App;
use crate::args::HistoryArgs;
use crate::environment;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::entries::{node, put_path};
use crate::output::{absolute, safe};
use crate::refs::{self, Versions};
use crate::{sizes, time};

pub(super) fn run(app: &App, args: &HistoryArgs) -> Result<Exit, Failure> {
    let path = path_of(args)?;
    let opened = app.open()?;
    let versions = Versions::load(app, &opened.repository, &args.filter)?;
    let chosen = chosen(&versions.find_all(app, &[])?, args, &path);
    let context = app.reading(opened.repository);
    let chunks = MetaChunks::new(&context);
    let mut before: Option<VersionReader> = None;
    let mut printer = Printer { app, args, path: &path, found: 0 };
    for (version, manifest) in VersionsAhead::looking(&context, &chunks, &chosen) {
        let reader = VersionReader::opened(&context, version, manifest, &chunks)?;
        match &before {
            None => printer.first(&reader)?,
            Some(before) => printer.later(before, &reader)?,
        }
        before = Some(reader);
    }
    versions.warn_of_damage(app);
    if printer.found == 0 {
        let message = format!("no snapshot has {}", absolute(&path));
        return Err(Failure::new(Exit::Failed, message).advise("`larder find` looks for a name in all snapshots"));
    }
    Ok(Exit::Done)
}

/// The path in snapshots. A relative one begins at the present folder, as that of a backup does.
fn path_of(args: &HistoryArgs) -> Result<Vec<u8>, Failure> {
    let given = match args.wanted.as_bytes().first() {
        Some(b'/') => args.wanted.as_bytes().to_vec(),
        _ => environment::absolute(&args.wanted)?,
    };
    refs::clean_path(&given)
}

/// The versions to compare, oldest first. Without a filter they are those of one series: of the
/// newest version that backed up the path, a folder above it, or something below it.
fn chosen(found: &[Version], args: &HistoryArgs, path: &[u8]) -> Vec<Version> {
    let mut chosen = found.to_vec();
    chosen.sort_by_key(|version| (version.summary.time_ms, version.id()));
    let filter = &args.filter;
    let is_filtered = !filter.series.is_empty() || !filter.host.is_empty() || !filter.path.is_empty();
    if is_filtered || !filter.tag.is_empty() {
        return chosen;
    }
    let newest = chosen.iter().rev().find(|version| covers(&version.summary, path)).or_else(|| chosen.last());
    let Some(series) = newest.map(|version| (version.summary.domain_name.clone(), version.summary.series.clone()))
    else {
        return chosen;
    };
    chosen.retain(|version| (&version.summary.domain_name, &version.summary.series) == (&series.0, &series.1));
    chosen
}

/// Whether a version may have a path.
fn covers(summary: &Summary, path: &[u8]) -> bool {
    let inside = |root: &Vec<u8>| root.strip_prefix(b"/").unwrap_or(root).to_vec();
    let roots = summary.paths.iter().map(inside);
    roots.into_iter().any(|root| root.is_empty() || is_at_or_below(path, &root) || is_at_or_below(&root, path))
}

/// Numbers of entries below a folder.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Below {
    added: u64,
    removed: u64,
    changed: u64,
    metadata: u64,
}

struct Printer<'a> {
    app: &'a App,
    args: &'a HistoryArgs,
    path: &'a [u8],
    found: u64,
}

impl Printer<'_> {
    /// The first version: the path appears, if it has it.
    fn first(&mut self, reader: &VersionReader) -> Result<(), Failure> {
        match reader.entry(self.path)? {
            Some(entry) => self.print(reader, Change::Added, Some(&entry), Below::default()),
            None => Ok(()),
        }
    }

    /// A later version, which is compared with the one before it.
    fn later(&mut self, before: &VersionReader, reader: &VersionReader) -> Result<(), Failure> {
        let (mut own, mut entry, mut below) = (Change::Nothing, None, Below::default());
        diff((before, self.path), (reader, self.path), |name, old, new, change| {
            if name.is_empty() {
                own = change;
                entry = new.or(old).cloned();
                return Ok::<_, Failure>(());
            }
            match change {
                Change::Nothing => {}
                Change::Metadata => below.metadata += 1,
                Change::Content | Change::Type => below.changed += 1,
                Change::Added => below.added += 1,
                Change::Removed => below.removed += 1,
            }
            Ok(())
        })?;
        let is_changed_below = below.added + below.removed + below.changed > 0;
        let is_shown = match own {
            Change::Nothing | Change::Metadata if is_changed_below => true,
            Change::Nothing => below.metadata > 0 && self.args.metadata,
            Change::Metadata => self.args.metadata,
            Change::Content | Change::Type | Change::Added | Change::Removed => true,
        };
        if !is_shown {
            return Ok(());
        }
        let own = match own {
            Change::Nothing | Change::Metadata if is_changed_below => Change::Content,
            Change::Nothing => Change::Metadata,
            own => own,
        };
        self.print(reader, own, entry.as_ref(), below)
    }

    fn print(
        &mut self,
        reader: &VersionReader,
        change: Change,
        entry: Option<&Entry>,
        below: Below,
    ) -> Result<(), Failure> {
        self.found += 1;
        let summary = &reader.manifest().summary;
        if self.app.out.is_json() {
            return self.app.out.json(&json_of(summary, self.path, change, entry, below));
        }
        if self.found == 1 {
            self.app.out.info(format!("{} in series {}:", absolute(self.path), safe(&summary.series)))?;
        }
        let is_there = change != Change::Removed;
        let mut line = format!("{}  {}  {}", sign(change), summary.id.short(), time::show(summary.time_ms));
        if let Some(entry) = entry.filter(|_| is_there) {
            let size = sizes::show(entry.size());
            line.push_str(&format!("  {size:>10}  modified {}", time::show_file_time(entry.mtime)));
        }
        let counts = [(below.added, "added"), (below.removed, "removed"), (below.changed, "changed")];
        let counts: Vec<_> = counts.iter().filter(|(count, _)| *count > 0 && is_there).collect();
        if !counts.is_empty() && change != Change::Added {
            let counts: Vec<_> = counts.iter().map(|(count, what)| format!("{count} {what}")).collect();
            line.push_str(&format!("  below it: {}", counts.join(", ")));
        }
        self.app.out.line(line)
    }
}

fn json_of(summary: &Summary, path: &[u8], change: Change, entry: Option<&Entry>, below: Below) -> Value {
    let mut object = Map::new();
    let mut put = |key: &str, value: Value| drop(object.insert(key.to_owned(), value));
    put("message_type", json!("history"));
    put("modifier", json!(sign(change)));
    put("snapshot_id", json!(summary.id.to_string()));
    put("short_id", json!(summary.id.short()));
    put("time", json!(time::rfc3339(summary.time_ms)));
    put("series", json!(summary.series));
    put("hostname", json!(summary.host));
    let Below { added, removed, changed, metadata } = below;
    put("below", json!({"added": added, "removed": removed, "changed": changed, "metadata": metadata}));
    let own_size = |entry: &Entry| match entry.kind {
        EntryKind::File { size, .. } => Some(size),
        _ => None,
    };
    let node = entry.filter(|_| change != Change::Removed).map(|entry| node(entry, own_size(entry)));
    put("node", node.map_or(Value::Null, Value::Object));
    put_path(&mut object, "path", [b"/", path].concat());
    Value::Object(object)
}
