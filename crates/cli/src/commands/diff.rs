//! `larder diff`: two snapshots, or parts of them, side by side. Both come in path order, so one pass and constant memory do.
//!
//! Content is taken for the same where a backup would not read it again (size, times and inode are the same); otherwise it is
//! read on both sides and compared.

use std::cmp::Ordering;

use larder_format::entry::{Entry, EntryKind, path_order};
use larder_lnode::VersionReader;
use larder_store::RepositoryError;
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
    let versions = Versions::load(app, &opened.repository, &args.filter)?;
    let (old, new) = (versions.find(app, &from.snapshot)?, versions.find(app, &to.snapshot)?);
    let context = app.reading(opened.repository);
    let old = Side { reader: VersionReader::open(&context, &old)?, top: from.path.unwrap_or_default() };
    let new = Side { reader: VersionReader::open(&context, &new)?, top: to.path.unwrap_or_default() };
    for side in [&old, &new] {
        if !side.top.is_empty() && side.reader.entry(&side.top)?.is_none() {
            let message = format!("snapshot {} has no {}", side.id().short(), absolute(&side.top));
            return Err(Failure::new(Exit::Failed, message));
        }
    }
    if !app.out.is_json() {
        app.out.info(format!("comparing {} with {}:", old.id().short(), new.id().short()))?;
        app.out.info("")?;
    }
    let mut printer = Printer { app, args, totals: Totals::default() };
    compare(&old, &new, &mut printer)?;
    printer.end(&old, &new)?;
    Ok(Exit::Done)
}

/// One of the two snapshots, and what of it.
struct Side {
    reader: VersionReader,
    top: Vec<u8>,
}

impl Side {
    fn id(&self) -> larder_format::ids::JobId {
        self.reader.manifest().summary.id
    }

    fn entries(&self) -> impl Iterator<Item = Result<Entry, RepositoryError>> + '_ {
        self.reader.entries_below(&self.top)
    }

    /// Path below what is compared; empty for its root.
    fn name<'e>(&self, entry: &'e Entry) -> &'e [u8] {
        let rest = entry.path.strip_prefix(&*self.top).unwrap_or(&entry.path);
        rest.strip_prefix(b"/").unwrap_or(rest)
    }

    /// A hash over the content of a file.
    fn content(&self, path: &[u8]) -> Result<blake3::Hash, Failure> {
        let mut hasher = blake3::Hasher::new();
        self.reader.visit_contents(path, |entry, content| {
            hasher.update_reader(content).map(drop).map_err(|error| super::dump::content_failed(error, &entry.path))
        })?;
        Ok(hasher.finalize())
    }
}

fn compare(old: &Side, new: &Side, printer: &mut Printer<'_>) -> Result<(), Failure> {
    let (mut olds, mut news) = (old.entries(), new.entries());
    let (mut before, mut after) = (olds.next().transpose()?, news.next().transpose()?);
    loop {
        let order = match (&before, &after) {
            (None, None) => return Ok(()),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(before), Some(after)) => path_order(old.name(before), new.name(after)),
        };
        match (order, &before, &after) {
            (Ordering::Less, Some(entry), _) => printer.removed(old.name(entry), entry)?,
            (Ordering::Greater, _, Some(entry)) => printer.added(new.name(entry), entry)?,
            (_, Some(a), Some(b)) => {
                let change = Change::between((old, a), (new, b))?;
                printer.changed(new.name(b), (a, b), change)?;
            }
            _ => return Ok(()),
        }
        if order != Ordering::Greater {
            before = olds.next().transpose()?;
        }
        if order != Ordering::Less {
            after = news.next().transpose()?;
        }
    }
}

/// What differs between two entries of one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Nothing,
    Metadata,
    Content,
    Type,
}

impl Change {
    fn between((old, a): (&Side, &Entry), (new, b): (&Side, &Entry)) -> Result<Self, Failure> {
        use EntryKind as K;
        let same_content = match (&a.kind, &b.kind) {
            (K::File { .. } | K::HardLink { .. }, K::File { .. } | K::HardLink { .. }) => same_file(old, a, new, b)?,
            (K::Symlink { target: a }, K::Symlink { target: b }) => a == b,
            (K::Directory, K::Directory) | (K::Fifo, K::Fifo) => true,
            (K::CharDevice { .. }, K::CharDevice { .. }) | (K::BlockDevice { .. }, K::BlockDevice { .. }) => {
                a.kind == b.kind
            }
            _ => return Ok(Self::Type),
        };
        Ok(match (same_content, same_metadata(a, b)) {
            (false, _) => Self::Content,
            (true, false) => Self::Metadata,
            (true, true) => Self::Nothing,
        })
    }
}

fn same_file(old: &Side, a: &Entry, new: &Side, b: &Entry) -> Result<bool, Failure> {
    if let (EntryKind::File { size: a, .. }, EntryKind::File { size: b, .. }) = (&a.kind, &b.kind)
        && a != b
    {
        return Ok(false);
    }
    let looks_unchanged = a.mtime == b.mtime && a.ctime == b.ctime && a.inode == b.inode;
    if looks_unchanged && std::mem::discriminant(&a.kind) == std::mem::discriminant(&b.kind) {
        return Ok(true);
    }
    Ok(old.content(&a.path)? == new.content(&b.path)?)
}

/// Whether a restore would give both the same metadata.
fn same_metadata(a: &Entry, b: &Entry) -> bool {
    a.mode == b.mode
        && (a.uid, a.gid) == (b.uid, b.gid)
        && (&a.user, &a.group) == (&b.user, &b.group)
        && a.mtime == b.mtime
        && a.xattrs == b.xattrs
}

/// What was added or removed.
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
        self.bytes += entry.size();
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
}

struct Printer<'a> {
    app: &'a App,
    args: &'a DiffArgs,
    totals: Totals,
}

impl Printer<'_> {
    fn added(&mut self, name: &[u8], entry: &Entry) -> Result<(), Failure> {
        self.totals.added.add(entry);
        self.line("+", name, entry)
    }

    fn removed(&mut self, name: &[u8], entry: &Entry) -> Result<(), Failure> {
        self.totals.removed.add(entry);
        self.line("-", name, entry)
    }

    fn changed(&mut self, name: &[u8], (a, b): (&Entry, &Entry), change: Change) -> Result<(), Failure> {
        match change {
            Change::Nothing => Ok(()),
            Change::Metadata if !self.args.metadata => Ok(()),
            Change::Metadata => self.line("U", name, b),
            Change::Content => {
                self.totals.changed_files += 1;
                self.totals.removed.bytes += a.size();
                self.totals.added.bytes += b.size();
                self.line("M", name, b)
            }
            Change::Type => {
                self.totals.removed.add(a);
                self.totals.added.add(b);
                self.line("T", name, b)
            }
        }
    }

    fn line(&self, modifier: &str, name: &[u8], entry: &Entry) -> Result<(), Failure> {
        let slash = if entry.kind == EntryKind::Directory { "/" } else { "" };
        if self.app.out.is_json() {
            let mut object = Map::new();
            object.insert("message_type".to_owned(), json!("change"));
            put_path(&mut object, "path", [b"/", name, slash.as_bytes()].concat());
            object.insert("modifier".to_owned(), json!(modifier));
            return self.app.out.json(&object);
        }
        self.app.out.line(format!("{modifier:<4} {}{slash}", absolute(name)))
    }

    fn end(&self, old: &Side, new: &Side) -> Result<(), Failure> {
        let Totals { added, removed, changed_files } = &self.totals;
        let out = &self.app.out;
        if out.is_json() {
            return out.json(&json!({
                "message_type": "statistics",
                "source_snapshot": old.id().to_string(),
                "target_snapshot": new.id().to_string(),
                "changed_files": changed_files,
                "added": added.json(),
                "removed": removed.json(),
            }));
        }
        out.info("")?;
        out.info(format!("Files:  {:>9} new, {:>9} removed, {changed_files:>9} changed", added.files, removed.files))?;
        out.info(format!("Dirs:   {:>9} new, {:>9} removed", added.dirs, removed.dirs))?;
        out.info(format!("Others: {:>9} new, {:>9} removed", added.others, removed.others))?;
        out.info(format!("  Added:   {}", sizes::show(added.bytes)))?;
        out.info(format!("  Removed: {}", sizes::show(removed.bytes)))
    }
}
