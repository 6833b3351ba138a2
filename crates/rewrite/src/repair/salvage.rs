//! Saves the rest of damaged versions as new versions of their series.
//!
//! A new version is made from the damaged one (`derived`). It shares all whole containers with it,
//! and copies none. The original stays until it is forgotten.
//!
//! A file that lost parts is saved with holes in their place (`holes`). Files that are lost
//! completely, and those in damaged metadata, are left out. Each is reported to the context's
//! progress.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use larder_format::compress::Compression;
use larder_format::entry::{Entry, EntryKind, Timestamp, path_order};
use larder_format::ids::{ContainerId, JobId};
use larder_format::manifest::{Manifest, Origin, Summary};
use larder_format::segment::ChunkRecord;
use larder_job::{Activity, JobContext, Problem};
use larder_reader::{PlacedEntry, ReadLease, VersionReader, look, pin_of};
use larder_store::catalog::Version;
use larder_writer::Destination;

use super::holes::{Holed, without};
use super::{RepairError, SHARED_ID, TAG_REPAIRED};
use crate::check::{CheckOptions, CheckReport, Examined, ReadData, bad_ranges, examine};
use crate::derived::{Derivation, DeriveOptions, Derived, derive};
use crate::rewriting::{Rewriting, Rewritten, whole_blocks};

/// Options of saving.
#[derive(Debug, Clone)]
pub struct SalvageOptions {
    /// Content to read, to find damage.
    pub read_data: ReadData,
    /// Only these versions; empty = all.
    pub versions: Vec<JobId>,
    /// Write nothing: only report the parts that would be saved.
    pub dry_run: bool,
    /// Name and version of the program, to record.
    pub program: String,
    /// How new metadata are compressed.
    pub compression: Compression,
}

/// The outcome for one damaged version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SalvageOutcome {
    /// The rest is in this version.
    Saved(JobId),
    /// It would be.
    Planned,
    /// An earlier run created this version of it.
    SavedBefore(JobId),
    /// No file suffers from the damage.
    NothingLost,
    /// No part of it is left.
    NothingLeft,
    /// It was forgotten meanwhile.
    Forgotten,
    /// It cannot be read or built on: the reason.
    Unreadable(String),
}

/// A damaged version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SalvagedVersion {
    /// Its id.
    pub id: JobId,
    /// Its series; empty when its manifest cannot be read.
    pub series: String,
    /// Its outcome.
    pub outcome: SalvageOutcome,
    /// Its losses.
    pub losses: Losses,
}

/// The losses of a version.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Losses {
    /// Files that lost a part.
    pub files_damaged: u64,
    /// Files, and names of files, that are lost completely.
    pub files_lost: u64,
    /// Stretches of metadata that cannot be read, each with an unknown number of entries.
    pub gaps: u64,
    /// Lost bytes of files, except those in the gaps.
    pub bytes_lost: u64,
}

impl Losses {
    fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// The results of saving.
#[derive(Debug, Clone, Default)]
pub struct SalvageReport {
    /// The results of the check.
    pub check: CheckReport,
    /// Versions that were damaged.
    pub versions: Vec<SalvagedVersion>,
}

/// Saves the rest of damaged versions.
pub fn salvage(context: &JobContext, options: &SalvageOptions) -> Result<SalvageReport, RepairError> {
    let store = context.repository.store().without_cache();
    let context = &JobContext { repository: context.repository.through(store), ..context.clone() };
    let wanted = CheckOptions { read_data: options.read_data, versions: options.versions.clone(), estimate: false };
    let examined = examine(context, &wanted)?;
    let (catalog, _) = context.executor.block_on(context.repository.tagged_catalog())?;
    let (shared, all) = (catalog.shared_ids(), catalog.versions);
    let mut affected: BTreeMap<JobId, String> = BTreeMap::new();
    for version in examined.report.damages.iter().flat_map(|damage| &damage.affected) {
        affected.entry(version.id).or_insert_with(|| version.series.clone());
    }
    let mut versions = Vec::new();
    for (id, series) in affected {
        if context.cancel.is_cancelled() {
            return Err(RepairError::Interrupted);
        }
        let mut losses = Losses::default();
        let outcome = match examined.readable.iter().find(|version| version.id() == id) {
            None => {
                SalvageOutcome::Unreadable("its manifest cannot be read, and nothing else says what it held".into())
            }
            // The damage may be that of the other one.
            Some(_) if shared.contains(&id) => SalvageOutcome::Unreadable(SHARED_ID.into()),
            Some(version) => match saved_before(context, &all, id) {
                Some(saved) => SalvageOutcome::SavedBefore(saved),
                None => save(context, version, &examined, options, &mut losses)?,
            },
        };
        versions.push(SalvagedVersion { id, series, outcome, losses });
    }
    Ok(SalvageReport { check: examined.report, versions })
}

/// The damaged versions that may be forgotten because their rest is saved.
///
/// One wrong answer of a store can make a whole version look damaged, or a saved one look stored.
/// So both are checked once more: the original must still be damaged, and the version saved from it
/// must exist and be whole.
pub fn replaced(
    context: &JobContext,
    report: &SalvageReport,
    options: &SalvageOptions,
) -> Result<HashSet<JobId>, RepairError> {
    let saved: BTreeMap<JobId, JobId> = report
        .versions
        .iter()
        .filter_map(|version| match version.outcome {
            SalvageOutcome::Saved(saved) | SalvageOutcome::SavedBefore(saved) => Some((version.id, saved)),
            _ => None,
        })
        .collect();
    if saved.is_empty() {
        return Ok(HashSet::new());
    }
    let versions = saved.keys().chain(saved.values()).copied().collect();
    let again = examine(context, &CheckOptions { read_data: options.read_data, versions, estimate: false })?;
    let affected = || again.report.damages.iter().flat_map(|damage| &damage.affected).map(|version| version.id);
    let damaged: HashSet<JobId> = affected().collect();
    let readable: HashSet<JobId> = again.readable.iter().map(Version::id).collect();
    let is_whole = |id: &JobId| readable.contains(id) && !damaged.contains(id);
    let is_replaced = |(old, new): &(JobId, JobId)| damaged.contains(old) && is_whole(new);
    Ok(saved.into_iter().filter(is_replaced).map(|(old, _)| old).collect())
}

/// The version that an earlier run created from this one, with the tags that it has now. Any client
/// of the domain could claim that a version is it, so it is signed or of this machine.
fn saved_before(context: &JobContext, all: &[Version], id: JobId) -> Option<JobId> {
    let old = all.iter().find(|version| version.id() == id)?;
    let is_of = |version: &&Version| {
        let summary = &version.summary;
        summary.base == Some(id)
            && is_saved_from(summary, id)
            && old.summary.tags.iter().all(|tag| summary.tags.contains(tag))
            && (summary.is_signed || context.machine.made(summary))
    };
    all.iter().find(is_of).map(Version::id)
}

/// Whether a version holds the saved rest of this one, as its tags say.
pub fn is_saved_from(version: &Summary, id: JobId) -> bool {
    version.tags.contains(&tag_of(id))
}

/// The tag that names the original of a saved version.
fn tag_of(id: JobId) -> String {
    format!("{TAG_REPAIRED}-from:{}", id.short())
}

/// Announces and does the work on one version.
fn save(
    context: &JobContext,
    version: &Version,
    examined: &Examined,
    options: &SalvageOptions,
    losses: &mut Losses,
) -> Result<SalvageOutcome, RepairError> {
    let repository = &context.repository;
    let domain = version.summary.domain;
    if !domain.is_default() && context.executor.block_on(repository.closed_domain(domain))?.is_some() {
        let why = "its domain is closed, so what is saved from it would not count; restore it instead";
        return Ok(SalvageOutcome::Unreadable(why.into()));
    }
    let pin = pin_of(version);
    if options.dry_run {
        let lease = ReadLease::take(context, version.summary.series.clone(), vec![pin]);
        let outcome = match context.executor.block_on(look(repository, version)) {
            Ok(Some(manifest)) => rewrite(context, version.id(), manifest, examined, Destination::Nowhere, losses)
                .map(|rewritten| rewritten.map_or_else(|outcome| outcome, |_| SalvageOutcome::Planned)),
            Ok(None) => Ok(SalvageOutcome::Forgotten),
            Err(error) => Err(error.into()),
        };
        lease.close();
        return outcome;
    }
    let line = context.executor.block_on(repository.pin_line(pin_of(version)))?;
    let tags = line.tags().map(<[String]>::to_vec);
    let mut saving = Salvaging { context, examined, losses, tags };
    let series = &version.summary.series;
    let (program, compression) = (options.program.as_str(), options.compression);
    let how = DeriveOptions { series, program, time_ms: None, compression };
    Ok(match derive(context, version, &mut saving, how)? {
        Derived::Made(saved) => SalvageOutcome::Saved(saved),
        Derived::Refused(outcome) => outcome,
        Derived::Unusable(why) => SalvageOutcome::Unreadable(why.to_owned()),
    })
}

/// A version that is being saved.
struct Salvaging<'a> {
    context: &'a JobContext,
    examined: &'a Examined,
    losses: &'a mut Losses,
    /// The tags that it got later, if any.
    tags: Option<Vec<String>>,
}

impl Derivation for Salvaging<'_> {
    type Refusal = SalvageOutcome;

    fn write(
        &mut self,
        job: JobId,
        old: &Manifest,
        destination: Destination,
    ) -> Result<Result<Rewritten, SalvageOutcome>, RepairError> {
        rewrite(self.context, job, old.clone(), self.examined, destination, self.losses)
    }

    fn describe(&self, old: &Summary, new: Summary) -> Result<Summary, SalvageOutcome> {
        let (mut statistics, mut tags) = (new.statistics, self.tags.clone().unwrap_or(new.tags));
        statistics.errors += self.losses.files_damaged + self.losses.files_lost + self.losses.gaps;
        tags.extend([TAG_REPAIRED.to_owned(), tag_of(old.id)]);
        tags.sort();
        tags.dedup();
        let origin = Some(Origin::of(self.context.repository.config().repository, old));
        Ok(Summary { statistics, tags, origin, ..new })
    }
}

/// Writes the remaining streams, or returns the reason not to.
fn rewrite(
    context: &JobContext,
    job: JobId,
    old: Manifest,
    examined: &Examined,
    destination: Destination,
    losses: &mut Losses,
) -> Result<Result<Rewritten, SalvageOutcome>, RepairError> {
    let Examined { bad, chunks, .. } = examined;
    let reader = VersionReader::knowing(context, old, chunks);
    let mut ranges = Vec::new();
    bad_ranges(&reader, bad, &mut ranges)?;
    let is_whole = |record: &ChunkRecord| bad.get(&record.chunk.container).is_none_or(|bad| !bad.covers(&record.chunk));
    let known = whole_blocks(&reader, is_whole)?;
    let mut rewriting = Rewriting::new(context, job, reader.manifest(), known, destination);
    let version = reader.manifest().summary.id;
    let mut saving = Saving { context, version, losses, lost: HashSet::new(), gaps: Vec::new(), last: Vec::new() };
    let mut ranges = Lost { ranges, next: 0 };
    let mut entries = reader.placed_below(b"");
    let mut is_behind_gap = false;
    loop {
        if context.cancel.is_cancelled() {
            return Err(RepairError::Interrupted);
        }
        match entries.next() {
            None => break,
            Some(Ok(placed)) => {
                if path_order(&saving.last, &placed.entry.path) != Ordering::Less && !saving.last.is_empty() {
                    saving.lose(&placed.entry.path, "its entry is out of order and is left out", 0);
                    continue;
                }
                if std::mem::take(&mut is_behind_gap) {
                    for folder in missing_folders(&saving.last, &placed.entry) {
                        rewriting.entry(&folder)?;
                    }
                }
                saving.last.clone_from(&placed.entry.path);
                saving.entry(&mut rewriting, placed, &mut ranges)?;
            }
            Some(Err(error)) if error.is_damage() => {
                let until = entries.recover()?;
                saving.gap(until.clone());
                is_behind_gap = true;
                if until.is_none() {
                    break;
                }
            }
            Some(Err(error)) => return Err(error.into()),
        }
    }
    let nothing_is_left = saving.last.is_empty();
    if losses.is_nothing() {
        return Ok(Err(SalvageOutcome::NothingLost));
    }
    if nothing_is_left {
        return Ok(Err(SalvageOutcome::NothingLeft));
    }
    let rewritten = rewriting.finish()?;
    let why = "what is left of its contents does not fit what is left of its entries".to_owned();
    Ok(rewritten.ok_or(SalvageOutcome::Unreadable(why)))
}

/// Lost ranges of a data stream, in order.
struct Lost {
    ranges: Vec<(Range<u64>, ContainerId)>,
    next: usize,
}

impl Lost {
    /// The lost ranges within `from..to`, cut to it and counted from its beginning. Calls come in
    /// order.
    fn within(&mut self, from: u64, to: u64) -> Vec<Range<u64>> {
        while self.ranges.get(self.next).is_some_and(|(range, _)| range.end <= from) {
            self.next += 1;
        }
        let touching = self.ranges[self.next..].iter().take_while(|(range, _)| range.start < to);
        touching.map(|(range, _)| range.start.max(from) - from..range.end.min(to) - from).collect()
    }
}

/// The facts collected so far.
struct Saving<'a> {
    context: &'a JobContext,
    version: JobId,
    losses: &'a mut Losses,
    /// Files that are left out and that others may link to.
    lost: HashSet<Vec<u8>>,
    /// Stretches without entries: behind the first path, before the second.
    gaps: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    last: Vec<u8>,
}

impl Saving<'_> {
    fn entry(&mut self, rewriting: &mut Rewriting, placed: PlacedEntry, lost: &mut Lost) -> Result<(), RepairError> {
        let range = placed.data_range();
        let PlacedEntry { entry, data_offset } = placed;
        if let EntryKind::HardLink { target } = &entry.kind
            && self.is_lost(target)
        {
            self.lose(&entry.path, "it is another name of a file that is lost, and is left out", 0);
            return Ok(());
        }
        let stored = entry.stored_bytes();
        let lost = lost.within(range.start, range.end);
        if stored == 0 || lost.is_empty() {
            rewriting.keep(range)?;
            rewriting.entry(&entry)?;
            return Ok(());
        }
        match without(&entry, &lost) {
            Some(Holed { entry, kept, lost }) => {
                for range in kept {
                    rewriting.keep(data_offset.saturating_add(range.start)..data_offset.saturating_add(range.end))?;
                }
                rewriting.entry(&entry)?;
                self.losses.files_damaged += 1;
                self.losses.bytes_lost += lost;
                self.tell(&entry.path, &format!("{lost} of {stored} bytes are lost and read as zeros"));
            }
            None => {
                self.lose(&entry.path, "all of it is lost, and it is left out", stored);
                self.lost.insert(entry.path);
            }
        }
        Ok(())
    }

    fn is_lost(&self, path: &[u8]) -> bool {
        let in_gap = |(after, until): &(Vec<u8>, Option<Vec<u8>>)| {
            path_order(after, path) == Ordering::Less
                && until.as_ref().is_none_or(|until| path_order(path, until) == Ordering::Less)
        };
        self.lost.contains(path) || self.gaps.iter().any(in_gap)
    }

    fn lose(&mut self, path: &[u8], message: &str, bytes: u64) {
        self.losses.files_lost += 1;
        self.losses.bytes_lost += bytes;
        self.tell(path, message);
    }

    fn gap(&mut self, until: Option<Vec<u8>>) {
        self.losses.gaps += 1;
        let until_text = until.as_ref().map(|until| format!("/{}", larder_source::PathText(until)));
        let message = match (self.last.is_empty(), until_text) {
            (true, Some(until)) => format!("nothing before {until} is known any more"),
            (true, None) => "nothing of its tree can be read".to_owned(),
            (false, Some(until)) => format!("what came behind it and before {until} is lost"),
            (false, None) => "everything behind it is lost".to_owned(),
        };
        self.tell(&self.last.clone(), &message);
        self.gaps.push((self.last.clone(), until));
    }

    fn tell(&self, path: &[u8], message: &str) {
        let message = format!("{message} (snapshot {})", self.version.short());
        let problem = Problem { path: path.to_vec(), during: Activity::Repair, message };
        self.context.progress.problem(&problem);
    }
}

/// Folders above an entry that were in the gap before it. Only their existence is known.
fn missing_folders(last: &[u8], entry: &Entry) -> Vec<Entry> {
    let ends = entry.path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    let folders = ends.map(|end| &entry.path[..end]).filter(|path| path_order(last, path) == Ordering::Less);
    let never = Timestamp { seconds: 0, nanos: 0 };
    let folder = |path: &[u8]| Entry {
        path: path.to_vec(),
        kind: EntryKind::Directory,
        mode: 0o700,
        mtime: never,
        ctime: never,
        atime: None,
        inode: 0,
        xattrs: Vec::new(),
        ..entry.clone()
    };
    folders.map(folder).collect()
}
