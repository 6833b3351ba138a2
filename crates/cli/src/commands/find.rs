//! `larder find`: names, sizes, times and containers in all snapshots.

use std::ffi::OsString;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;

use larder_format::entry::Entry;
use larder_format::ids::ContainerId;
use larder_reader::{FirstNames, MetaChunks, VersionReader, VersionsAhead};
use larder_source::{Case, PathMatcher};
use larder_store::catalog::Version;
use serde_json::Value;

use crate::app::App;
use crate::args::FindArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::entries::{long_line, node};
use crate::output::{absolute, cut, safe};
use crate::refs::Versions;
use crate::restic;
use crate::time;

pub(super) fn run(app: &App, args: &FindArgs) -> Result<Exit, Failure> {
    if args.tree {
        let why = "--tree names objects of restic: here, folders are no objects";
        return Err(Failure::usage(why).advise(
            "`larder find NAME` finds a folder in all snapshots, and `larder history PATH` shows when it changed",
        ));
    }
    let wanted = Wanted::new(args)?;
    let opened = app.open()?;
    let versions = Versions::load(app, &opened.repository, &args.filter)?;
    let mut found = versions.find_all(app, &args.snapshots)?;
    found.sort_by_key(Version::rank);
    if args.reverse {
        found.reverse();
    }
    let context = app.reading(opened.repository);
    let needs_sizes = app.out.is_json() || args.long || args.larger.is_some() || args.smaller.is_some();
    let mut printer = Printer { app, args, versions: 0 };
    printer.begin()?;
    let chunks = MetaChunks::new(&context);
    for (version, manifest) in VersionsAhead::looking(&context, &chunks, &found) {
        let reader = VersionReader::opened(&context, version, manifest, &chunks)?;
        let mut first_names = FirstNames::new(&reader);
        let mut hits = 0;
        let mut hit = |entry: &Entry| -> Result<(), Failure> {
            if !wanted.admits(entry) {
                return Ok(());
            }
            let size = if needs_sizes { first_names.size(entry)? } else { None };
            if wanted.admits_size(size) {
                printer.hit(version, entry, size, hits)?;
                hits += 1;
            }
            Ok(())
        };
        match args.blob.or(args.pack) {
            Some(container) => files_with_data_in(&reader, container, hit)?,
            None => reader.entries().try_for_each(|entry| hit(&entry?))?,
        }
        printer.end_of_version(version, hits)?;
    }
    printer.end()?;
    versions.warn_of_damage(app);
    Ok(Exit::Done)
}

/// Visits the files of a version whose data, or a part of it, was stored in a container, under all
/// of their names. Passes may have moved it since: then the container is gone.
fn files_with_data_in(
    reader: &VersionReader,
    container: ContainerId,
    mut visitor: impl FnMut(&Entry) -> Result<(), Failure>,
) -> Result<(), Failure> {
    if !reader.lies_in(|id| *id == container)? {
        return Ok(());
    }
    let mut cursor = reader.unresolved_cursor();
    let mut first_names = FirstNames::new(reader);
    // Data of the files that were visited, neighbours as one. First names come before further ones.
    let mut visited: Vec<Range<u64>> = Vec::new();
    // The record at hand: its range in the stream, and whether it is one of the container.
    let (mut start, mut end, mut is_in) = (0, 0, false);
    for placed in reader.placed_below(b"") {
        let placed = placed?;
        if let Some(file) = first_names.file(&placed.entry)? {
            let at = visited.partition_point(|data| data.end <= file.data.start);
            if !file.data.is_empty() && visited.get(at).is_some_and(|data| data.start <= file.data.start) {
                visitor(&placed.entry)?;
            }
            continue;
        }
        let (from, bytes) = (placed.data_offset, placed.entry.stored_bytes());
        if bytes == 0 {
            continue;
        }
        let mut has = is_in && start < from + bytes && end > from;
        while end < from + bytes {
            let Some(record) = cursor.next_record()? else { break };
            (start, end) = (end, end + u64::from(record.chunk.size));
            is_in = record.chunk.container == container;
            has |= is_in && end > from;
        }
        if has {
            match visited.last_mut() {
                Some(last) if last.end == from => last.end = from + bytes,
                _ => visited.push(from..from + bytes),
            }
            visitor(&placed.entry)?;
        }
    }
    Ok(())
}

/// The patterns and filters.
struct Wanted {
    /// Patterns without a slash, compared with names.
    names: PathMatcher,
    /// Patterns with a slash, compared with whole paths.
    paths: PathMatcher,
    /// Without patterns, any name.
    any_name: bool,
    oldest: Option<u64>,
    newest: Option<u64>,
    larger: Option<u64>,
    smaller: Option<u64>,
}

impl Wanted {
    fn new(args: &FindArgs) -> Result<Self, Failure> {
        let case = if args.ignore_case { Case::Insensitive } else { Case::Sensitive };
        let (paths, names): (Vec<&OsString>, Vec<&OsString>) =
            args.patterns.iter().partition(|pattern| pattern.as_bytes().contains(&b'/'));
        let compile =
            |patterns: Vec<&OsString>| PathMatcher::new(patterns.iter().map(|pattern| pattern.as_bytes()), case);
        let &FindArgs { oldest, newest, larger, smaller, .. } = args;
        let any_name = args.patterns.is_empty();
        Ok(Self { names: compile(names)?, paths: compile(paths)?, any_name, oldest, newest, larger, smaller })
    }

    /// Whether an entry is wanted, if its size is.
    fn admits(&self, entry: &Entry) -> bool {
        (self.any_name || self.admits_path(&entry.path)) && self.admits_time(entry)
    }

    /// Sizes are those of files, under each of their names: nothing else has one.
    fn admits_size(&self, size: Option<u64>) -> bool {
        self.larger.is_none_or(|bound| size.is_some_and(|size| size > bound))
            && self.smaller.is_none_or(|bound| size.is_some_and(|size| size < bound))
    }

    fn admits_path(&self, path: &[u8]) -> bool {
        let (folder, name) = match path.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (&path[..at], &path[at + 1..]),
            None => (&b""[..], path),
        };
        // A pattern also matches everything below a match; here only the match itself counts.
        self.names.is_match(name) || (self.paths.is_match(path) && (folder.is_empty() || !self.paths.is_match(folder)))
    }

    fn admits_time(&self, entry: &Entry) -> bool {
        let ms = entry.mtime.seconds.saturating_mul(1000).saturating_add(i64::from(entry.mtime.nanos / 1_000_000));
        let is_after = |bound: u64| i64::try_from(bound).is_ok_and(|bound| ms >= bound);
        let is_before = |bound: u64| i64::try_from(bound).map_or(true, |bound| ms <= bound);
        self.oldest.is_none_or(is_after) && self.newest.is_none_or(is_before)
    }
}

/// Prints hits as they are found; as JSON one array of `{hits, snapshot, matches}`, one element for
/// each snapshot with hits.
struct Printer<'a> {
    app: &'a App,
    args: &'a FindArgs,
    versions: u64,
}

impl Printer<'_> {
    fn begin(&self) -> Result<(), Failure> {
        if self.app.out.is_json() { self.app.out.raw("[") } else { Ok(()) }
    }

    fn hit(&mut self, version: &Version, entry: &Entry, size: Option<u64>, hits_before: u64) -> Result<(), Failure> {
        let out = &self.app.out;
        if out.is_json() {
            let before = match (hits_before, self.versions) {
                (0, 0) => "{\"matches\":[",
                (0, _) => ",{\"matches\":[",
                _ => ",",
            };
            let mut node = node(entry, size);
            if restic::is_on() {
                restic::mapped_node(&mut node);
            }
            return out.raw(&format!("{before}{}", Value::Object(node)));
        }
        if hits_before == 0 {
            let (id, series) = (version.id().short(), safe(&version.summary.series));
            if self.versions > 0 {
                out.info("")?;
            }
            let when = time::show(version.summary.time_ms);
            // The rest of the line has 46 characters; a path is a result and is never cut.
            let series = cut(&series, out.width().map_or(usize::MAX, |width| width.saturating_sub(46)));
            out.info(format!("in snapshot {id} of {when} ({series}):"))?;
        }
        out.line(if self.args.long { long_line(entry, size, self.args.human_readable) } else { absolute(&entry.path) })
    }

    fn end_of_version(&mut self, version: &Version, hits: u64) -> Result<(), Failure> {
        if hits == 0 {
            return Ok(());
        }
        self.versions += 1;
        if !self.app.out.is_json() {
            return Ok(());
        }
        let id = version.id().to_string();
        let id = if restic::is_on() { restic::id(&id) } else { id };
        self.app.out.raw(&format!("],\"hits\":{hits},\"snapshot\":\"{id}\"}}"))
    }

    fn end(&self) -> Result<(), Failure> {
        if self.app.out.is_json() { self.app.out.raw("]\n") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn admits(patterns: &[&str], path: &str) -> bool {
        let line = ["larder", "find"].into_iter().chain(patterns.iter().copied());
        let cli = crate::args::Cli::try_parse_from(line).expect("a good command line");
        let crate::args::Command::Find(args) = cli.command else { panic!("find") };
        Wanted::new(&args).expect("good patterns").admits_path(path.as_bytes())
    }

    #[test]
    fn only_what_matches_itself_is_found() {
        assert!(admits(&["*.c"], "src/a.c"));
        assert!(admits(&["*.c"], "odd.c/b.c"));
        assert!(!admits(&["src"], "src/a.c"));
        assert!(admits(&["src"], "src"));
        assert!(admits(&["/etc/*.conf"], "etc/a.conf"));
        assert!(!admits(&["/etc/*.conf"], "home/etc/a.conf"));
        assert!(!admits(&["/etc"], "etc/a.conf"));
        assert!(admits(&["etc/**/x"], "root/etc/1/2/x"));
        assert!(admits(&["nothing", "x"], "y/x"));
    }
}
