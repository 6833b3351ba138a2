//! `larder diff`: prints the differences of two snapshots, or parts of them; the work is
//! `larder_reader::diff`.

use larder_format::entry::{Entry, EntryKind};
use larder_reader::{Change, MetaChunks, Unshared, VersionReader, VersionsAhead, diff_with_bytes};
use serde_json::{Map, Value, json};

use crate::app::App;
use crate::args::DiffArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::absolute;
use crate::output::entries::put_path;
use crate::refs::{self, Versions};
use crate::sizes;

pub(super) fn run(app: &App, args: &DiffArgs) -> Result<Exit, Failure> {
    let (from, to) = (refs::parse(&args.from)?, refs::parse(&args.to)?);
    let opened = app.open()?;
    let references = [&*from.snapshot, &*to.snapshot];
    let versions = Versions::load_named(app, &opened.repository, &args.filter, &references)?;
    let (old, new) = (versions.find(app, &from.snapshot)?, versions.find(app, &to.snapshot)?);
    let context = app.reading(opened.repository);
    let (chunks, both) = (MetaChunks::new(&context), [old, new]);
    let mut readers = VersionsAhead::looking(&context, &chunks, &both)
        .map(|(version, manifest)| VersionReader::opened(&context, version, manifest, &chunks));
    let mut side = |path: Option<Vec<u8>>| match readers.next() {
        Some(reader) => Ok(Side { reader: reader?, top: path.unwrap_or_default() }),
        None => unreachable!("there are two versions"),
    };
    let (old, new): (Result<_, Failure>, Result<_, Failure>) = (side(from.path), side(to.path));
    let (old, new) = (old?, new?);
    for side in [&old, &new] {
        if !side.top.is_empty() && side.reader.entry(&side.top)?.is_none() {
            let message = format!("{} has no {}", refs::shown(&side.reader.manifest().summary), absolute(&side.top));
            return Err(Failure::new(Exit::Failed, message));
        }
    }
    if !app.out.is_json() {
        app.out.info(format!("comparing {} with {}:", old.id().short(), new.id().short()))?;
    }
    let mut printer = Printer { app, args, totals: Totals::default(), any: false };
    diff_with_bytes((&old.reader, &old.top), (&new.reader, &new.top), |name, old, new, change, unshared| {
        printer.change(name, (old, new), change, unshared)
    })?;
    printer.end(&old, &new)?;
    Ok(Exit::Done)
}

/// The sign of a change, as restic has it.
pub(super) fn sign(change: Change) -> &'static str {
    match change {
        Change::Nothing => " ",
        Change::Metadata => "U",
        Change::Content => "M",
        Change::Type => "T",
        Change::Added => "+",
        Change::Removed => "-",
    }
}

/// One of the two snapshots, and the chosen part of it.
struct Side {
    reader: VersionReader,
    top: Vec<u8>,
}

impl Side {
    fn id(&self) -> larder_format::ids::JobId {
        self.reader.manifest().summary.id
    }
}

/// Added or removed entries.
#[derive(Debug, Default)]
struct Counts {
    files: u64,
    dirs: u64,
    others: u64,
    bytes: u64,
}

impl Counts {
    fn add(&mut self, entry: &Entry) {
        match entry.kind {
            EntryKind::File { .. } | EntryKind::HardLink { .. } => self.files += 1,
            EntryKind::Directory => self.dirs += 1,
            _ => self.others += 1,
        }
        self.bytes = self.bytes.saturating_add(entry.size());
    }

    fn json(&self) -> Value {
        json!({"files": self.files, "dirs": self.dirs, "others": self.others, "bytes": self.bytes})
    }
}

#[derive(Debug, Default)]
struct Totals {
    added: Counts,
    removed: Counts,
    changed_files: u64,
    /// Sizes of the changed files, in the old snapshot and in the new one.
    changed_bytes: (u64, u64),
    /// Bytes of these that the other snapshot's file lacks.
    unshared: Unshared,
}

struct Printer<'a> {
    app: &'a App,
    args: &'a DiffArgs,
    totals: Totals,
    /// Whether a line was printed.
    any: bool,
}

impl Printer<'_> {
    fn change(
        &mut self,
        name: &[u8],
        (old, new): (Option<&Entry>, Option<&Entry>),
        change: Change,
        unshared: Unshared,
    ) -> Result<(), Failure> {
        match change {
            Change::Nothing => return Ok(()),
            Change::Metadata if !self.args.metadata => return Ok(()),
            Change::Metadata => {}
            Change::Content => {
                self.totals.changed_files += 1;
                self.totals.changed_bytes.0 += old.map_or(0, Entry::size);
                self.totals.changed_bytes.1 += new.map_or(0, Entry::size);
                self.totals.unshared.removed += unshared.removed;
                self.totals.unshared.added += unshared.added;
            }
            Change::Type | Change::Added | Change::Removed => {
                old.into_iter().for_each(|entry| self.totals.removed.add(entry));
                new.into_iter().for_each(|entry| self.totals.added.add(entry));
            }
        }
        match new.or(old) {
            Some(entry) => self.line(sign(change), name, entry),
            None => Ok(()),
        }
    }

    fn line(&mut self, modifier: &str, name: &[u8], entry: &Entry) -> Result<(), Failure> {
        let slash = if entry.kind == EntryKind::Directory { "/" } else { "" };
        if self.app.out.is_json() {
            let mut object = Map::new();
            object.insert("message_type".to_owned(), json!("change"));
            put_path(&mut object, "path", [b"/", name, slash.as_bytes()].concat());
            object.insert("modifier".to_owned(), json!(modifier));
            return self.app.out.json(&object);
        }
        if !self.any {
            self.any = true;
            self.app.out.info("")?;
        }
        self.app.out.line(format!("{modifier:<4} {}{slash}", absolute(name)))
    }

    fn end(&self, old: &Side, new: &Side) -> Result<(), Failure> {
        let Totals { added, removed, changed_files, changed_bytes: (before, after), unshared } = &self.totals;
        let out = &self.app.out;
        if out.is_json() {
            return out.json(&json!({
                "message_type": "statistics",
                "source_snapshot": old.id().to_string(),
                "target_snapshot": new.id().to_string(),
                "changed_files": changed_files,
                "changed": {"files": changed_files, "bytes_before": before, "bytes_after": after,
                    "bytes_added": unshared.added, "bytes_removed": unshared.removed},
                "added": added.json(),
                "removed": removed.json(),
            }));
        }
        if !self.any {
            return out.info("no differences");
        }
        out.info("")?;
        out.info(format!("Files:  {:>9} new, {:>9} removed, {changed_files:>9} changed", added.files, removed.files))?;
        out.info(format!("Dirs:   {:>9} new, {:>9} removed", added.dirs, removed.dirs))?;
        out.info(format!("Others: {:>9} new, {:>9} removed", added.others, removed.others))?;
        out.info(format!("  New files:     {}", sizes::show(added.bytes)))?;
        out.info(format!("  Removed files: {}", sizes::show(removed.bytes)))?;
        out.info(format!("  Changed files: {}, before {}", sizes::show(*after), sizes::show(*before)))?;
        let (new, gone) = (sizes::show(unshared.added), sizes::show(unshared.removed));
        out.info(format!("  Changed in them: {new} new, {gone} removed"))
    }
}
