//! Makes a version without some paths of another one, or with another host, time, series or tags.
//!
//! The new version references the segments, chunks and blocks of metadata that stay, and reads no
//! contents. The old version stays until it is forgotten, and the new one names it as its origin.
//!
//! Files end where chunks do, so leaving one out changes no other. If the first name of a file with
//! hard links goes, the next name takes its place.

use std::collections::HashMap;

use larder_format::compress::Compression;
use larder_format::entry::{Entry, EntryKind};
use larder_format::ids::JobId;
use larder_format::lease::Pin;
use larder_format::manifest::{Manifest, Origin, Register, Statistics, Summary};
use larder_job::JobContext;
use larder_reader::{PlacedEntry, ReadLease, VersionReader, is_at_or_below, look, missing_containers, pin_of};
use larder_source::Excludes;
use larder_store::catalog::Version;
use larder_writer::Destination;

use crate::check::{CheckOptions, Examined, examine};
use crate::derived::{Derivation, DeriveOptions, Derived, derive};
use crate::error::RepairError;
use crate::rewriting::{Rewriting, Rewritten, whole_blocks};

/// What is different in the new version.
#[derive(Debug)]
pub struct ChangeOptions {
    /// Paths to leave out. Only patterns count.
    pub excludes: Excludes,
    /// Another host.
    pub host: Option<String>,
    /// Another time, milliseconds since the epoch.
    pub time_ms: Option<u64>,
    /// Another series.
    pub series: Option<String>,
    /// Further tags.
    pub add_tags: Vec<String>,
    /// Write nothing: only report what would be left out.
    pub dry_run: bool,
    /// Name and version of the program, to record.
    pub program: String,
    /// How new metadata are compressed.
    pub compression: Compression,
}

impl ChangeOptions {
    /// Whether versions change even if no path is left out.
    fn changes_facts(&self, old: &Summary) -> bool {
        let differs = |new: &Option<String>, old: &String| new.as_ref().is_some_and(|new| new != old);
        differs(&self.host, &old.host)
            || differs(&self.series, &old.series)
            || self.time_ms.is_some_and(|time_ms| time_ms != old.time_ms)
            || self.add_tags.iter().any(|tag| !old.tags.contains(tag))
    }
}

/// The outcome for one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeOutcome {
    /// This is the new version.
    Made(JobId),
    /// It would be made.
    Planned,
    /// An earlier run made this one, which is the same.
    MadeBefore(JobId),
    /// Nothing would be different.
    Same,
    /// Nothing would be left.
    NothingLeft,
    /// It cannot be built on: the reason.
    Unusable(&'static str),
}

/// Entries of the old version that the new one lacks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// All entries.
    pub entries: u64,
    /// Logical bytes of the files among them.
    pub bytes: u64,
}

/// The result for one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedVersion {
    /// What was made.
    pub outcome: ChangeOutcome,
    /// What was left out of it.
    pub left_out: LeftOut,
}

/// Makes a changed version of `version`, whose summary has its present tags. `others` are all
/// versions of the repository.
pub fn change(
    context: &JobContext,
    version: &Version,
    others: &[Version],
    options: &ChangeOptions,
) -> Result<ChangedVersion, RepairError> {
    let repository = &context.repository;
    let unusable = |why| Ok(ChangedVersion { outcome: ChangeOutcome::Unusable(why), left_out: LeftOut::default() });
    let domain = version.summary.domain;
    if !domain.is_default() && context.executor.block_on(repository.closed_domain(domain))?.is_some() {
        return unusable("its domain is closed, so what is made of it would not count");
    }
    let series = options.series.as_ref().unwrap_or(&version.summary.series);
    if let Some(why) = unshared(version, series, others) {
        return unusable(why);
    }
    let mut changing =
        Changing { context, version, others, options, left_out: LeftOut::default(), counts: Counts::default() };
    if options.dry_run {
        let outcome = changing.plan()?;
        return Ok(ChangedVersion { outcome, left_out: changing.left_out });
    }
    let (program, compression) = (options.program.as_str(), options.compression);
    let how = DeriveOptions { series, program, time_ms: options.time_ms, compression };
    let outcome = match derive(context, version, &mut changing, how)? {
        Derived::Made(made) => ChangeOutcome::Made(made),
        Derived::Refused(outcome) => outcome,
        Derived::Unusable(why) => ChangeOutcome::Unusable(why),
    };
    Ok(ChangedVersion { outcome, left_out: changing.left_out })
}

/// Whether a version is there, whole but for its contents, and not forgotten: its metadata is read
/// and nothing comes from a cache. Whether it is forgotten is asked last.
pub fn stands(context: &JobContext, version: Pin) -> Result<bool, RepairError> {
    let repository = &context.repository.through(context.repository.store().without_cache());
    let context = &context.through(repository);
    let wanted = CheckOptions { versions: vec![version.job], ..CheckOptions::default() };
    let Examined { report, readable, .. } = examine(context, &wanted)?;
    let is_whole = readable.iter().any(|found| pin_of(found) == version);
    if !is_whole || report.damages.iter().flat_map(|damage| &damage.affected).any(|found| found.id == version.job) {
        return Ok(false);
    }
    let register = context.executor.block_on(async {
        match repository.is_retained(version).await? {
            true => repository.read_register(version, 0).await,
            false => Ok(None),
        }
    })?;
    let Some(Register::Committed(manifest)) = register else { return Ok(false) };
    let missing = missing_containers(context, &manifest)?;
    Ok(missing.named.is_empty() && !missing.is_unknown)
}

/// Why a version of another series cannot share chunks with this one.
fn unshared(version: &Version, series: &str, others: &[Version]) -> Option<&'static str> {
    use larder_format::layout::Layout;
    if series == version.summary.series {
        return None;
    }
    if version.summary.layout == Layout::Lifecycle {
        return Some("chunks of the layout lifecycle are shared within their series alone");
    }
    let is_of = |other: &&Version| other.summary.series == series && other.summary.domain == version.summary.domain;
    let newest = others.iter().filter(is_of).max_by_key(|other| other.id())?;
    let differs = newest.summary.layout != version.summary.layout;
    differs.then_some("the other series is in the layout lifecycle, which shares no chunks with it")
}

/// Entries of the new version.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    files: u64,
    folders: u64,
    others: u64,
}

impl Counts {
    fn entry(&mut self, entry: &Entry) {
        match entry.kind {
            EntryKind::File { .. } | EntryKind::HardLink { .. } => self.files += 1,
            EntryKind::Directory => self.folders += 1,
            _ => self.others += 1,
        }
    }
}

/// A version that is being changed.
struct Changing<'a> {
    context: &'a JobContext,
    version: &'a Version,
    others: &'a [Version],
    options: &'a ChangeOptions,
    left_out: LeftOut,
    counts: Counts,
}

impl Changing<'_> {
    /// Reads the entries under a lease of a reader, and writes nothing.
    fn plan(&mut self) -> Result<ChangeOutcome, RepairError> {
        let context = self.context;
        let lease = ReadLease::take(context, self.version.summary.series.clone(), vec![pin_of(self.version)]);
        let outcome = match context.executor.block_on(look(&context.repository, self.version)) {
            Ok(Some(manifest)) => self
                .write(self.version.id(), &manifest, Destination::Nowhere)
                .map(|written| written.map_or_else(|outcome| outcome, |_| ChangeOutcome::Planned)),
            Ok(None) => Ok(ChangeOutcome::Unusable("it was forgotten meanwhile")),
            Err(error) => Err(error.into()),
        };
        lease.close();
        outcome
    }

    /// Whether a path, or a folder above it, is left out. What is below such a folder goes too,
    /// whatever later patterns say.
    fn is_excluded(&self, path: &[u8]) -> bool {
        let excludes = &self.options.excludes;
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        ends.chain([path.len()]).any(|end| excludes.by_pattern(&path[..end]))
    }

    fn leave_out(&mut self, entry: &Entry) {
        self.left_out.entries += 1;
        self.left_out.bytes = self.left_out.bytes.saturating_add(entry.size());
    }

    /// Writes all entries that stay.
    fn entries(&mut self, reader: &VersionReader, rewriting: &mut Rewriting) -> Result<(), RepairError> {
        let mut folder: Option<Vec<u8>> = None;
        // Paths that stand for first names that were left out.
        let mut stand_ins: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
        for placed in reader.placed_below(b"") {
            if self.context.cancel.is_cancelled() {
                return Err(RepairError::Interrupted);
            }
            let PlacedEntry { mut entry, mut data_offset } = placed?;
            let is_below = folder.as_ref().is_some_and(|folder| is_at_or_below(&entry.path, folder));
            if is_below || self.options.excludes.by_pattern(&entry.path) {
                if !is_below && entry.kind == EntryKind::Directory {
                    folder = Some(entry.path.clone());
                }
                self.leave_out(&entry);
                continue;
            }
            if let EntryKind::HardLink { target } = &entry.kind
                && self.is_excluded(target)
            {
                match stand_ins.get(target) {
                    Some(stand_in) => entry.kind = EntryKind::HardLink { target: stand_in.clone() },
                    None => {
                        let target = target.clone();
                        // Without it the version would be damaged, which `check` reports.
                        let Some(first) = reader.placed(&target)? else { continue };
                        (entry.kind, entry.xattrs) = (first.entry.kind, first.entry.xattrs);
                        data_offset = first.data_offset;
                        stand_ins.insert(target, entry.path.clone());
                    }
                }
            }
            rewriting.keep(data_offset..data_offset.saturating_add(entry.stored_bytes()))?;
            self.counts.entry(&entry);
            rewriting.entry(&entry)?;
        }
        Ok(())
    }
}

impl Derivation for Changing<'_> {
    type Refusal = ChangeOutcome;

    fn write(
        &mut self,
        job: JobId,
        old: &Manifest,
        destination: Destination,
    ) -> Result<Result<Rewritten, ChangeOutcome>, RepairError> {
        let missing = missing_containers(self.context, old)?;
        if !missing.named.is_empty() || missing.is_unknown {
            let why = "objects that it needs are missing, or the index that has their places cannot be read";
            return Ok(Err(ChangeOutcome::Unusable(why)));
        }
        let reader = VersionReader::new(self.context, old.clone());
        let known = whole_blocks(&reader, |_| true)?;
        let mut rewriting = Rewriting::new(self.context, job, old, known, destination);
        self.entries(&reader, &mut rewriting)?;
        if self.left_out.entries == 0 && !self.options.changes_facts(&self.version.summary) {
            return Ok(Err(ChangeOutcome::Same));
        }
        let Counts { files, folders, others } = self.counts;
        if files + folders + others == 0 {
            return Ok(Err(ChangeOutcome::NothingLeft));
        }
        let rewritten = rewriting.finish()?;
        Ok(rewritten.ok_or(ChangeOutcome::Unusable("its contents do not fit its entries")))
    }

    fn describe(&self, old: &Summary, new: Summary) -> Result<Summary, ChangeOutcome> {
        let options = self.options;
        let Counts { files, folders, others } = self.counts;
        let statistics = Statistics {
            files_new: 0,
            files_changed: 0,
            files_unmodified: files,
            dirs_new: 0,
            dirs_changed: 0,
            dirs_unmodified: folders,
            others,
            ..new.statistics
        };
        let mut tags = self.version.summary.tags.clone();
        tags.extend(options.add_tags.iter().cloned());
        tags.sort();
        tags.dedup();
        let origin = Origin::of(self.context.repository.config().repository, old);
        let summary = Summary {
            host: options.host.clone().unwrap_or(new.host),
            time_ms: options.time_ms.unwrap_or(new.time_ms),
            tags,
            origin: Some(origin),
            statistics,
            ..new
        };
        // Any client of the domain could claim that a version is the result.
        let is_believed = |other: &Summary| other.is_signed || self.context.machine.made(other);
        let is_same = |other: &&Version| {
            let Summary { origin: of, series, host, time_ms, tags, roots, .. } = &other.summary;
            *of == summary.origin
                && (series, host, time_ms, tags, roots)
                    == (&summary.series, &summary.host, &summary.time_ms, &summary.tags, &summary.roots)
                && is_believed(&other.summary)
        };
        match self.others.iter().find(is_same) {
            Some(made) => Err(ChangeOutcome::MadeBefore(made.id())),
            None => Ok(summary),
        }
    }
}
