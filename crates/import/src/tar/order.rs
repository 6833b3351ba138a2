//! Puts the members of an archive into the order of a version, whatever order they have there, in
//! bounded memory.
//!
//! Three passes over sorted records:
//!
//! 1. By path: of members with one path, the last one counts, as when an archive is extracted.
//!    Folders that the archive does not have are added above their contents. Members below
//!    something that is no folder are refused. A member that was found behind damage may be a part
//!    of the contents of a lost file, so it never replaces one from before the damage.
//! 2. Hard links by the path they name: the first path of each file gets the contents, and all
//!    others become links to it.
//! 3. By path: both together.

use std::io;
use std::path::PathBuf;

use larder_format::entry::{Entry, EntryKind, Timestamp, path_order};
use larder_source::PathText;
use larder_spill::{Record, RecordIter, RecordSorter, RecordWriter, SortedRecords};

use super::rows::{Row, doubtful, entry_record, is_doubtful, key, path, problem_record};

/// Takes the members of an archive as they come.
#[derive(Debug)]
pub(super) struct Order {
    scratch: Option<PathBuf>,
    memory: usize,
    rows: RecordSorter,
    is_behind_damage: bool,
    /// Paths that could not be used, and why.
    problems: RecordSorter,
}

/// The members in the order of a version.
#[derive(Debug, Default)]
pub(super) struct Ordered {
    pub(super) rows: SortedRecords,
    /// What is wrong with paths.
    pub(super) problems: SortedRecords,
    /// Entries among them.
    pub(super) entries: u64,
    /// Bytes of their contents.
    pub(super) bytes: u64,
    /// The first names of paths, sorted. At most [`TOPS_MAX`] are kept.
    pub(super) tops: Vec<Vec<u8>>,
}

/// First names that are kept.
pub(super) const TOPS_MAX: usize = 16;

impl Order {
    /// Holds about this many bytes in memory, and more in files without a name in `scratch`.
    pub(super) fn new(scratch: Option<PathBuf>, memory: usize) -> Self {
        let sorter = || RecordSorter::new(scratch.clone(), memory / 4);
        Self { rows: sorter(), is_behind_damage: false, problems: sorter(), scratch, memory }
    }

    /// A member, and where its contents begin.
    pub(super) fn member(&mut self, entry: Entry, offset: u64) -> io::Result<()> {
        let path = entry.path.clone();
        match entry_record(&entry, offset) {
            Ok(record) if self.is_behind_damage => self.rows.push(doubtful(record)),
            Ok(record) => self.rows.push(record),
            Err(why) => self.problem(&path, why),
        }
    }

    /// A part of the archive is damaged, and members are looked for behind it.
    pub(super) fn damage(&mut self, message: String) -> io::Result<()> {
        self.is_behind_damage = true;
        self.problem(b"", message)
    }

    /// What is wrong with a path.
    pub(super) fn problem(&mut self, path: &[u8], message: String) -> io::Result<()> {
        self.problems.push(problem_record(path, &message))
    }

    /// All members, in order. Folders that are added get the time `made`.
    pub(super) fn finish(self, made: Timestamp) -> io::Result<Ordered> {
        let Self { scratch, memory, rows, problems, .. } = self;
        let (rows, links, shadowed, mut problems) = by_path(&rows.finish()?, &scratch, memory, problems, made)?;
        let turned = turn_links(&rows, &links.finish()?, &shadowed, &scratch, memory)?;
        let mut merged = RecordWriter::new(scratch.as_deref())?;
        let mut ordered = Ordered::default();
        merge(&rows, &turned, |record, entry| match entry {
            Ok(entry) => {
                ordered.count(entry);
                merged.push(record)
            }
            Err(why) => problems.push(problem_record(&path(&record.key), &why)),
        })?;
        Ok(Ordered { rows: merged.finish()?, problems: problems.finish()?, ..ordered })
    }
}

/// An entry, or `None` at the end.
fn next_entry(records: &mut RecordIter) -> io::Result<Option<(Record, Entry)>> {
    let Some(record) = records.next().transpose()? else { return Ok(None) };
    match Row::of(&record) {
        Some(Row::Entry(entry, _)) => Ok(Some((record, *entry))),
        _ => Err(changed()),
    }
}

/// Where the contents of an entry begin. For others, what comes behind them begins there.
fn offset_of(record: &Record) -> u64 {
    match Row::of(record) {
        Some(Row::Entry(_, offset)) => offset,
        _ => 0,
    }
}

fn changed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a temporary file has changed")
}

/// The first pass. Returns the entries, and hard links by the path they name.
fn by_path(
    rows: &SortedRecords,
    scratch: &Option<PathBuf>,
    memory: usize,
    mut problems: RecordSorter,
    made: Timestamp,
) -> io::Result<(SortedRecords, RecordSorter, SortedRecords, RecordSorter)> {
    let mut ordered = RecordWriter::new(scratch.as_deref())?;
    let mut shadowed = RecordWriter::new(scratch.as_deref())?;
    let mut links = RecordSorter::new(scratch.clone(), memory / 4);
    let mut records = rows.iter();
    let mut next = next_entry(&mut records)?;
    // The folders above the last entry, and the last entry that is no folder.
    let mut above: Vec<Vec<u8>> = Vec::new();
    let mut plain: Vec<u8> = Vec::new();
    while let Some((record, entry)) = next {
        next = next_entry(&mut records)?;
        while let Some((later, _)) =
            next.take_if(|(later, _)| later.key == record.key && is_doubtful(later) && !is_doubtful(&record))
        {
            let why = "another member with this path is behind damage, and was left out";
            problems.push(problem_record(&entry.path, why))?;
            shadowed.push(Record { key: record.key.clone(), value: offset_of(&later).to_be_bytes().to_vec() })?;
            next = next_entry(&mut records)?;
        }
        if next.as_ref().is_some_and(|(later, _)| later.key == record.key) {
            shadowed.push(Record { key: record.key, value: Vec::new() })?;
            continue;
        }
        if is_below(&entry.path, &plain) {
            problems.push(problem_record(&entry.path, "it lies below something that is no folder"))?;
            continue;
        }
        above.retain(|folder| is_below(&entry.path, folder));
        for folder in missing_folders(&entry.path, above.last()) {
            let added = entry_record(&added_folder(folder.clone(), made), 0).map_err(io::Error::other)?;
            ordered.push(added)?;
            above.push(folder);
        }
        match &entry.kind {
            EntryKind::Directory => above.push(entry.path),
            kind => {
                if let EntryKind::HardLink { target } = kind {
                    let value = [&offset_of(&record).to_be_bytes()[..], &record.key].concat();
                    links.push(Record { key: key(target), value })?;
                }
                plain = entry.path;
            }
        }
        ordered.push(record)?;
    }
    Ok((ordered.finish()?, links, shadowed.finish()?, problems))
}

/// Whether a path is below a folder.
fn is_below(path: &[u8], folder: &[u8]) -> bool {
    !folder.is_empty() && path.strip_prefix(folder).is_some_and(|rest| rest.starts_with(b"/"))
}

/// The folders between `above` and a path.
fn missing_folders(path: &[u8], above: Option<&Vec<u8>>) -> Vec<Vec<u8>> {
    let from = above.map_or(0, |above| above.len() + 1);
    let slashes = path.iter().enumerate().skip(from).filter(|(_, byte)| **byte == b'/');
    slashes.map(|(at, _)| path[..at].to_vec()).collect()
}

/// A folder that the archive does not have.
fn added_folder(path: Vec<u8>, made: Timestamp) -> Entry {
    Entry {
        path,
        kind: EntryKind::Directory,
        mode: 0o755,
        uid: 0,
        gid: 0,
        user: None,
        group: None,
        mtime: made,
        ctime: made,
        atime: None,
        inode: 0,
        xattrs: Vec::new(),
    }
}

/// The second pass: the new rows of files with several names, and of these names.
fn turn_links(
    rows: &SortedRecords,
    links: &SortedRecords,
    shadowed: &SortedRecords,
    scratch: &Option<PathBuf>,
    memory: usize,
) -> io::Result<SortedRecords> {
    let mut turned = RecordSorter::new(scratch.clone(), memory / 4);
    let mut links = links.iter().peekable();
    let mut shadowed = shadowed.iter().peekable();
    let mut records = rows.iter();
    while links.peek().is_some() {
        let Some((record, entry)) = next_entry(&mut records)? else { break };
        // Links to paths that are not there stay as they are, and the third pass reports them.
        while links.next_if(|link| link.as_ref().is_ok_and(|link| link.key < record.key)).is_some() {}
        let mut first: Option<Vec<u8>> = None;
        // Another member had this path before. A link that came earlier names that one, whose
        // contents are not here.
        let mut was_replaced = false;
        // And one that came later and was left out is named by links behind it.
        let mut left_out = None;
        while let Some(old) = shadowed.next_if(|old| old.as_ref().map_or(true, |old| old.key <= record.key)) {
            let old = old?;
            match old.value.first_chunk() {
                _ if old.key != record.key => {}
                Some(at) => left_out = left_out.or(Some(u64::from_be_bytes(*at))),
                None => was_replaced = true,
            }
        }
        while let Some(link) = links.next_if(|link| link.as_ref().map_or(true, |link| link.key == record.key)) {
            let link = link?;
            let Some((at, link)) = link.value.split_first_chunk() else { continue };
            let at = u64::from_be_bytes(*at);
            if was_replaced && at <= offset_of(&record) || left_out.is_some_and(|left_out| at >= left_out) {
                continue;
            }
            let link = path(link);
            match &entry.kind {
                // No name of theirs can be a link in a version; each gets an entry of its own.
                EntryKind::Symlink { .. } => push(&mut turned, Entry { path: link, ..entry.clone() }, 0)?,
                EntryKind::Directory | EntryKind::HardLink { .. } => {}
                _ => {
                    // Links come in the order of their paths, so the first of them is the first.
                    let owner = first.get_or_insert_with(|| match path_order(&link, &entry.path) {
                        std::cmp::Ordering::Less => link.clone(),
                        _ => entry.path.clone(),
                    });
                    if *owner != link {
                        push(&mut turned, linked(&entry, link, owner), 0)?;
                    }
                }
            }
        }
        let Some(owner) = first.filter(|owner| *owner != entry.path) else { continue };
        let Some(Row::Entry(_, offset)) = Row::of(&record) else { continue };
        push(&mut turned, Entry { path: owner.clone(), ..entry.clone() }, offset)?;
        push(&mut turned, linked(&entry, entry.path.clone(), &owner), 0)?;
    }
    turned.finish()
}

fn linked(entry: &Entry, path: Vec<u8>, owner: &[u8]) -> Entry {
    Entry { path, kind: EntryKind::HardLink { target: owner.to_vec() }, ..entry.clone() }
}

fn push(rows: &mut RecordSorter, entry: Entry, offset: u64) -> io::Result<()> {
    match entry_record(&entry, offset) {
        Ok(record) => rows.push(record),
        // It was an entry under another path, and so is one under this.
        Err(why) => Err(io::Error::other(why)),
    }
}

/// The third pass: rows that were turned replace those of the archive. An error is what is wrong
/// with the path of the record.
fn merge(
    rows: &SortedRecords,
    turned: &SortedRecords,
    mut take: impl FnMut(Record, Result<&Entry, String>) -> io::Result<()>,
) -> io::Result<()> {
    let mut turned = turned.iter().peekable();
    let mut records = rows.iter();
    while let Some((record, entry)) = next_entry(&mut records)? {
        let replaced = turned.next_if(|turned| turned.as_ref().map_or(true, |turned| turned.key == record.key));
        match (replaced.transpose()?, &entry.kind) {
            (Some(replaced), _) => match Row::of(&replaced) {
                Some(Row::Entry(entry, _)) => take(replaced, Ok(&entry))?,
                _ => return Err(changed()),
            },
            (None, EntryKind::HardLink { target }) => {
                let target = PathText(target);
                take(
                    record,
                    Err(format!("it is a link to {target}, which the archive does not have, or has several times")),
                )?;
            }
            (None, _) => take(record, Ok(&entry))?,
        }
    }
    Ok(())
}

impl Ordered {
    fn count(&mut self, entry: &Entry) {
        self.entries += 1;
        self.bytes += entry.stored_bytes();
        let top = entry.path.split(|byte| *byte == b'/').next().unwrap_or_default();
        if self.tops.len() < TOPS_MAX && self.tops.last().is_none_or(|last| last != top) {
            self.tops.push(top.to_vec());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MADE: Timestamp = Timestamp { seconds: 7, nanos: 0 };

    fn entry(path: &str, kind: EntryKind, mode: u32) -> Entry {
        Entry { mode, ..Entry { kind, ..added_folder(path.as_bytes().to_vec(), MADE) } }
    }

    fn file(path: &str, size: u64) -> Entry {
        entry(path, EntryKind::File { size, extents: None }, 0o600)
    }

    fn link(path: &str, target: &str) -> Entry {
        entry(path, EntryKind::HardLink { target: target.into() }, 0o600)
    }

    fn folder(path: &str) -> Entry {
        entry(path, EntryKind::Directory, 0o700)
    }

    /// The entries in order as `path kind offset`, and the paths of problems.
    fn ordered(members: &[Entry]) -> (Vec<String>, Vec<String>) {
        let dir = tempfile::tempdir().expect("a folder");
        let mut all = Vec::new();
        // In memory, and with many runs.
        for (scratch, memory) in [(None, 1 << 20), (Some(dir.path().to_owned()), 1)] {
            let mut order = Order::new(scratch, memory);
            for (number, member) in members.iter().enumerate() {
                order.member(member.clone(), number as u64).expect("taken");
            }
            let ordered = order.finish(MADE).expect("finished");
            let rows: Vec<Row> = ordered.rows.iter().map(|row| Row::of(&row.expect("read")).expect("a row")).collect();
            assert_eq!(ordered.entries, rows.len() as u64);
            let paths = |row: &Row| match row {
                Row::Entry(entry, offset) => {
                    let path = String::from_utf8_lossy(&entry.path).into_owned();
                    match &entry.kind {
                        EntryKind::File { .. } => format!("{path} file {offset}"),
                        EntryKind::HardLink { target } => format!("{path} -> {}", String::from_utf8_lossy(target)),
                        EntryKind::Symlink { .. } => format!("{path} symlink"),
                        EntryKind::Directory => format!("{path}/ {:o}", entry.mode),
                        _ => format!("{path} other"),
                    }
                }
                Row::Problem(path, _) => String::from_utf8_lossy(path).into_owned(),
            };
            let problems = ordered.problems.iter().map(|row| paths(&Row::of(&row.expect("read")).expect("a row")));
            all.push((rows.iter().map(paths).collect::<Vec<_>>(), problems.collect::<Vec<_>>()));
        }
        let last = all.pop().expect("one");
        assert!(all.iter().all(|other| *other == last), "{all:?} and {last:?}");
        last
    }

    #[test]
    fn entries_are_sorted_the_last_one_counts_and_folders_are_added() {
        let members = [
            file("b/c/x", 1),
            file("a.b", 2),
            file("a/1", 3),
            folder("a"),
            file("a.b", 4),
            file("a-", 5),
            file("b/d", 6),
            file("z", 7),
            file("z/below", 8),
            folder("z2"),
        ];
        let (rows, problems) = ordered(&members);
        assert_eq!(
            rows,
            [
                "a/ 700",
                "a/1 file 2",
                "a- file 5",
                "a.b file 4",
                "b/ 755",
                "b/c/ 755",
                "b/c/x file 0",
                "b/d file 6",
                "z file 7",
                "z2/ 700"
            ]
        );
        assert_eq!(problems, ["z/below"]);
    }

    #[test]
    fn members_behind_damage_replace_nothing() {
        let mut order = Order::new(None, 1 << 20);
        let before = [file("a", 1), file("b", 1), file("b", 2), link("b link", "b")];
        let behind =
            [file("a", 3), link("to a", "a"), file("new", 4), file("new", 5), link("to new", "new"), file("b", 6)];
        for (number, member) in before.iter().chain(&behind).enumerate() {
            if number == before.len() {
                order.damage("damage".to_owned()).expect("taken");
            }
            order.member(member.clone(), 10 * number as u64).expect("taken");
        }
        let ordered = order.finish(MADE).expect("finished");
        let shown = |row: larder_spill::RecordIter| -> Vec<String> {
            row.map(|row| match Row::of(&row.expect("read")).expect("a row") {
                Row::Entry(entry, offset) => match entry.kind {
                    EntryKind::HardLink { target } => {
                        format!("{} -> {}", PathText(&entry.path), PathText(&target))
                    }
                    _ => format!("{} {offset}", PathText(&entry.path)),
                },
                Row::Problem(path, _) => PathText(&path).to_string(),
            })
            .collect()
        };
        assert_eq!(shown(ordered.rows.iter()), ["a 0", "b 20", "b link -> b", "new 70", "to new -> new"]);
        // The damage itself; what was left out; the link to one of them.
        assert_eq!(shown(ordered.problems.iter()), ["", "a", "b", "to a"]);
    }

    #[test]
    fn the_first_path_of_a_file_has_its_contents() {
        let members = [
            file("m", 1),
            link("z", "m"),
            link("a", "m"),
            link("b", "m"),
            file("1", 1),
            link("2", "1"),
            link("lost", "nowhere"),
            link("self", "self"),
            entry("s", EntryKind::Symlink { target: b"t".to_vec() }, 0o777),
            link("again", "s"),
            folder("d"),
            link("to folder", "d"),
            entry("fifo", EntryKind::Fifo, 0o600),
            link("e", "fifo"),
        ];
        let (rows, problems) = ordered(&members);
        assert_eq!(
            rows,
            [
                "1 file 4",
                "2 -> 1",
                "a file 0",
                "again symlink",
                "b -> a",
                "d/ 700",
                "e other",
                "fifo -> e",
                "m -> a",
                "s symlink",
                "z -> a"
            ]
        );
        assert_eq!(problems, ["lost", "self", "to folder"]);
    }
}
