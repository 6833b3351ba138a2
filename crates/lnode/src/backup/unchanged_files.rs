//! Finds unchanged files by their metadata, in one pass over the walk and the base's entries.

use std::cmp::Ordering;
use std::iter::Peekable;
use std::ops::Range;

use larder_format::entry::{Entry, EntryKind, Timestamp, path_order};
use larder_reader::{Entries, PlacedEntry};

/// The safety distance of times. A file with a ctime this close to the start of the base's backup,
/// or after it, may have changed again with equal times. Kernels stamp files with ticks of up to 10
/// ms.
const TICK_MS: i128 = 20;

/// The same for times without fractions of a second: the file system keeps whole seconds, and FAT
/// even ones.
const COARSE_TICK_MS: i128 = 2000;

/// The same for times that another machine's clock gave: servers keep their clocks, too, and not
/// all are exact.
const OTHER_CLOCK_MS: i128 = 60_000;

/// The base's knowledge of a path.
#[derive(Debug)]
pub(super) enum Known {
    /// It has nothing there, or an entry of another type.
    New,
    /// It differs; with the range of its bytes in the base's data stream.
    Changed(Range<u64>),
    /// It has the same; contents, holes and attributes need not be read.
    Same(Box<PlacedEntry>),
}

/// The conditions under which a file counts as unchanged.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rules {
    pub(super) force: bool,
    pub(super) ignore_ctime: bool,
    pub(super) ignore_inode: bool,
    /// The start of the base's backup, milliseconds since the epoch.
    pub(super) base_started_ms: u64,
}

/// See the module header.
#[derive(Debug)]
pub(super) struct Comparison {
    base: Option<Peekable<Entries>>,
    rules: Rules,
    /// The error that ended the reading of the base's entries.
    pub(super) failure: Option<larder_store::RepositoryError>,
}

impl Comparison {
    pub(super) fn new(base: Option<Entries>, rules: Rules) -> Self {
        Self { base: base.map(Iterator::peekable), rules, failure: None }
    }

    /// The base's entry at a path. Paths must come in order.
    pub(super) fn find(&mut self, path: &[u8]) -> Option<PlacedEntry> {
        let base = self.base.as_mut()?;
        loop {
            match base.peek()? {
                Err(_) => {
                    // Without the rest of the base everything counts as new: slower, not wrong.
                    self.failure = base.next().and_then(Result::err);
                    self.base = None;
                    return None;
                }
                Ok(known) => match path_order(&known.entry.path, path) {
                    Ordering::Less => drop(base.next()),
                    Ordering::Greater => return None,
                    Ordering::Equal => return base.next().and_then(Result::ok),
                },
            }
        }
    }

    /// Looks an entry up. Entries must come in path order. `has_other_clock` says whether another
    /// machine's clock may give the times. It is only asked where that matters.
    pub(super) fn look_up(&mut self, found: &Entry, has_other_clock: impl FnOnce() -> bool) -> Known {
        match self.find(&found.path) {
            Some(known) if is_same(found, &known.entry, self.rules, has_other_clock) => Known::Same(Box::new(known)),
            Some(known) if same_type(&found.kind, &known.entry.kind) => Known::Changed(known.data_range()),
            _ => Known::New,
        }
    }
}

fn same_type(a: &EntryKind, b: &EntryKind) -> bool {
    std::mem::discriminant(a) == std::mem::discriminant(b)
}

fn is_same(found: &Entry, known: &Entry, rules: Rules, has_other_clock: impl FnOnce() -> bool) -> bool {
    let same_kind = match (&found.kind, &known.kind) {
        // Holes are unknown before a file is opened.
        (EntryKind::File { size, .. }, EntryKind::File { size: known, .. }) => size == known,
        (found, known) => found == known,
    };
    !rules.force
        && same_kind
        && !is_of_no_file(known)
        && found.mtime == known.mtime
        && (rules.ignore_ctime || found.ctime == known.ctime)
        && (rules.ignore_inode || found.inode == known.inode)
        && is_settled(if rules.ignore_ctime { found.mtime } else { found.ctime }, rules, has_other_clock)
}

/// Whether the entry is of no file that was read: a repair saved what was left of it, and gave it
/// no time and no inode. A real file may have the time of the epoch.
fn is_of_no_file(known: &Entry) -> bool {
    let never = Timestamp { seconds: 0, nanos: 0 };
    known.mtime == never && known.ctime == never && known.inode == 0
}

/// Whether every later change, since the base read the file, must have given it another time.
fn is_settled(time: Timestamp, rules: Rules, has_other_clock: impl FnOnce() -> bool) -> bool {
    let time_ms = i128::from(time.seconds) * 1000 + i128::from(time.nanos / 1_000_000);
    let before_ms = i128::from(rules.base_started_ms) - time_ms;
    let tick_ms = if time.nanos == 0 { COARSE_TICK_MS } else { TICK_MS };
    before_ms > tick_ms && (before_ms > OTHER_CLOCK_MS || !has_other_clock())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(size: u64, seconds: i64) -> Entry {
        at(size, Timestamp { seconds, nanos: 0 })
    }

    fn is_same(found: &Entry, known: &Entry, rules: Rules) -> bool {
        super::is_same(found, known, rules, || false)
    }

    fn at(size: u64, time: Timestamp) -> Entry {
        Entry {
            path: b"a".to_vec(),
            kind: EntryKind::File { size, extents: None },
            mode: 0o644,
            uid: 0,
            gid: 0,
            user: None,
            group: None,
            mtime: time,
            ctime: time,
            atime: None,
            inode: 7,
            xattrs: Vec::new(),
        }
    }

    #[test]
    fn any_difference_that_matters_means_reading() {
        let rules = Rules { base_started_ms: 100_000, ..Rules::default() };
        let known = entry(5, 50);
        assert!(is_same(&entry(5, 50), &known, rules));
        assert!(!is_same(&entry(6, 50), &known, rules));
        assert!(!is_same(&Entry { inode: 8, ..entry(5, 50) }, &known, rules));
        assert!(is_same(&Entry { inode: 8, ..entry(5, 50) }, &known, Rules { ignore_inode: true, ..rules }));
        let touched = Entry { ctime: Timestamp { seconds: 51, nanos: 0 }, ..entry(5, 50) };
        assert!(!is_same(&touched, &known, rules));
        assert!(is_same(&touched, &known, Rules { ignore_ctime: true, ..rules }));
        assert!(!is_same(&entry(5, 50), &known, Rules { force: true, ..rules }));
        assert!(!is_same(&Entry { kind: EntryKind::Directory, ..entry(5, 50) }, &known, rules));
    }

    #[test]
    fn a_file_that_a_repair_gave_no_time_is_read_again() {
        let never = Timestamp { seconds: 0, nanos: 0 };
        let found = Entry { ctime: Timestamp { seconds: 9, nanos: 9 }, ..at(5, never) };
        let rules = Rules { base_started_ms: 1_000_000, ignore_ctime: true, ignore_inode: true, ..Rules::default() };
        assert!(is_same(&found, &at(5, never), rules));
        assert!(!is_same(&found, &Entry { inode: 0, ..at(5, never) }, rules));
    }

    #[test]
    fn a_file_changed_while_the_base_was_made_is_read_again() {
        let known = at(5, Timestamp { seconds: 100, nanos: 1 });
        for (started, same) in [(100_000, false), (100_019, false), (99_000, false), (100_021, true)] {
            let rules = Rules { base_started_ms: started, ..Rules::default() };
            assert_eq!(is_same(&known, &known, rules), same, "{started}");
            // Without its ctime, the mtime tells as much.
            let rules = Rules { ignore_ctime: true, ..rules };
            assert_eq!(is_same(&known, &known, rules), same, "{started}");
        }
    }

    /// ext4 with small inodes, HFS+, FAT and many servers keep no fractions of seconds.
    #[test]
    fn times_in_whole_seconds_are_told_apart_after_two() {
        let known = entry(5, 100);
        for (started, same) in [(100_021, false), (101_999, false), (102_000, false), (102_001, true)] {
            for ignore_ctime in [false, true] {
                let rules = Rules { base_started_ms: started, ignore_ctime, ..Rules::default() };
                assert_eq!(is_same(&known, &known, rules), same, "{started}");
            }
        }
    }

    #[test]
    fn a_clock_of_a_server_may_be_a_minute_off() {
        let known = at(5, Timestamp { seconds: 100, nanos: 1 });
        for (started, local, remote) in [(100_019, false, false), (160_000, true, false), (160_001, true, true)] {
            let rules = Rules { base_started_ms: started, ..Rules::default() };
            assert_eq!(super::is_same(&known, &known, rules, || false), local, "{started}");
            assert_eq!(super::is_same(&known, &known, rules, || true), remote, "{started}");
        }
        // It is not asked about files that changed long ago.
        let rules = Rules { base_started_ms: 200_000, ..Rules::default() };
        assert!(super::is_same(&known, &known, rules, || panic!("asked")));
    }
}
