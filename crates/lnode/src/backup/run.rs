//! One backup from start to commit: finds the base, announces the job, runs the pipeline, commits.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashSet};
use std::ops::Range;
use std::sync::Arc;

use crossbeam_channel::{bounded, unbounded};
use larder_format::entry::{Timestamp, path_order};
use larder_format::ids::{ContainerId, JobId};
use larder_format::layout::Layout;
use larder_format::lease::Pin;
use larder_format::manifest::{Manifest, SourceKind, Statistics, Summary};
use larder_format::recipe::Recipe;
use larder_job::{Ending, JobContext, LeaseKeeper};
use larder_reader::{Entries, MetaChunks, Missing, RecipeReader};
use larder_store::RepositoryError;
use larder_store::catalog::Version;
use larder_store::jobs::OtherJob;
use larder_writer::{Cutting, Merge, holdings};

use super::bases::OrphanedContainers;
use super::candidates::{Bases, Candidate, find_bases};
use super::feed::{Feeder, Feeding};
use super::image::MapReport;
use super::layout_policy::LayoutPolicy;
use super::paranoid::ByteComparison;
use super::prediction::{PositionHints, Predictor};
use super::root_coverage::RootCoverage;
use super::sequence::{BaseReaders, Parts, Sequencer, Streams};
use super::similar::{Sampled, SampledImage};
use super::skip_duplicates::SkippedDuplicates;
use super::stream_supply::StreamReader;
use super::supplied::SuppliedBase;
use super::unchanged_files::{Comparison, Rules};
use super::unchanged_parts::{ImageBase, untouched};
use super::{BackupError, BackupOptions, BackupReport, Base, Input, WhyBase, in_flight};
use crate::assemble::{
    Announced, Announcement, Contents, Description, OpenVersion, Output, announce, commit, manifest, may_adopt,
    open_version,
};

/// Backs up `input` as a new version.
///
/// Files that cannot be read, or that change during it, are reported to the context's progress and
/// counted. The version is created all the same. An interruption leaves every earlier commit
/// intact, and the next backup of the series reuses the uploads.
pub fn backup(context: &JobContext, input: Input, options: &BackupOptions) -> Result<BackupReport, BackupError> {
    let repository = &context.repository;
    let started_ms = context.clock.now_ms();
    let job = options.job_or_new(repository, started_ms)?;
    let cutting = Cutting::new(repository.config(), repository.keys()).ok_or(BackupError::WorkerDied)?;
    // Bases and unfinished jobs are looked for side by side: both may come from any listings.
    let looking = repository.clone();
    let unfinished = (!options.dry_run).then(|| context.executor.spawn(async move { looking.unfinished_jobs().await }));
    let found = find_bases(context, options, job, input, &cutting)?;
    let Bases { candidates, before, merge, policy, input, since_full } = found;
    let (bases, adopts, keeper) = match unfinished {
        None => (candidates, Vec::new(), None),
        Some(mut unfinished) => {
            let unfinished = match context.executor.block_on(unfinished.finished()) {
                Some(unfinished) => unfinished?,
                None => context.executor.block_on(repository.unfinished_jobs())?,
            };
            let announced = announce_with(context, options, job, candidates, unfinished, policy.layout())?;
            (announced.0, announced.1, Some(announced.2))
        }
    };
    let is_ahead = |version: &Version| version.summary.series == options.series && version.is_of_the_future(started_ms);
    if bases.first().is_some_and(|base| is_ahead(&base.version)) {
        context.progress.note(WRONG_CLOCK);
    }
    let announced = AnnouncedJob { bases, adopts, before, merge, policy, since_full, keeper };
    let result = run(context, input, options, job, started_ms, &cutting, &announced);
    // The lease of a failed job stays open, because it tells the next run the place of its uploads.
    // So does the lease of a job with a commit under way.
    if let Some(keeper) = announced.keeper {
        keeper.end(result.as_ref().map_or(Ending::Ended, |(_, ending)| ending.clone()));
    }
    result.map(|(report, _)| report)
}

/// Said if the newest version of the series is of the future.
const WRONG_CLOCK: &str = "the newest snapshot of the series is of a later time than now: the clock of this machine is \
     behind, or one was ahead. Policies do not count that snapshot; `larder rewrite --new-time` corrects its time";

/// The bases of the job: checked to be there *after* the lease that pins them was written.
struct AnnouncedJob {
    bases: Vec<Candidate>,
    adopts: Vec<Pin>,
    /// The version before the base, with which nothing is shared: the resulting loss is measured.
    before: Option<Version>,
    /// Chunks born before this version have been duplicate long enough to be merged.
    merge: Option<Merge>,
    policy: &'static dyn LayoutPolicy,
    /// Versions of the series in a row that were not read as a whole.
    since_full: usize,
    keeper: Option<LeaseKeeper>,
}

/// Announces the job with these bases, and with the unfinished jobs of its series.
fn announce_with(
    context: &JobContext,
    options: &BackupOptions,
    job: JobId,
    candidates: Vec<Candidate>,
    unfinished: Vec<OtherJob>,
    layout: Layout,
) -> Result<(Vec<Candidate>, Vec<Pin>, LeaseKeeper), BackupError> {
    let series = context.repository.keys().series_key(&options.series);
    let adopts = unfinished
        .into_iter()
        .filter(|other| other.lease.series == options.series && may_adopt(context, layout, &other.lease))
        .map(|other| Pin { series, job: other.job })
        .collect();
    let versions = candidates.iter().map(|candidate| candidate.version.clone()).collect();
    let announcement = Announcement { series: &options.series, layout, versions, adopts };
    let Announced { versions, adopts, keeper } = announce(context, job, announcement)?;
    let newest = candidates.into_iter().zip(versions);
    let bases = newest.filter_map(|(candidate, newest)| newest.map(|version| Candidate { version, ..candidate }));
    Ok((bases.collect(), adopts, keeper))
}

/// A base whose manifest was read.
struct OpenBase {
    manifest: Manifest,
    why: WhyBase,
    /// Whether this machine trusts it (`WitnessedOnly`): what looks unchanged since is unchanged.
    is_trusted: bool,
    /// Whether its data stream predicts that of the input: it is the first base, trusted, and
    /// whole.
    is_followed: bool,
    /// Missing containers that it names: their chunks are stored again.
    missing: Arc<HashSet<ContainerId>>,
    /// The objects that are absent.
    absent: BTreeSet<ContainerId>,
    /// Whether more may be missing, because the index cannot be read.
    is_unknown: bool,
}

impl OpenBase {
    /// Whether its files are those of the input, so that equal metadata means equal contents. Inode
    /// numbers and times of another series mean nothing here.
    fn has_same_files(&self) -> bool {
        self.why != WhyBase::Similar && self.is_whole()
    }

    /// Whether none of its containers is known to be missing. No data of an incomplete base is
    /// reused unread.
    fn is_whole(&self) -> bool {
        self.missing.is_empty()
    }
}

/// Reads the manifests; damaged versions are not built on.
fn open_bases(context: &JobContext, announced: &AnnouncedJob) -> Result<Vec<OpenBase>, BackupError> {
    let mut bases = Vec::new();
    for candidate in &announced.bases {
        let is_trusted = candidate.is_trusted;
        let Some(OpenVersion { manifest, missing }) = open_version(context, &candidate.version)? else { continue };
        let (why, Missing { named, absent, is_unknown }) = (candidate.why, missing);
        let is_followed = bases.is_empty() && is_trusted && named.is_empty();
        bases.push(OpenBase { manifest, why, is_trusted, is_followed, missing: Arc::new(named), absent, is_unknown });
    }
    Ok(bases)
}

fn run(
    context: &JobContext,
    input: Sampled,
    options: &BackupOptions,
    job: JobId,
    started_ms: u64,
    cutting: &Arc<Cutting>,
    announced: &AnnouncedJob,
) -> Result<(BackupReport, Ending), BackupError> {
    let source = match &input {
        Sampled::Tree(_) => SourceKind::Tree,
        Sampled::Stream { .. } | Sampled::Image(_) => SourceKind::Stream,
        Sampled::Entries(source) => source.kind(),
    };
    let bases = open_bases(context, announced)?;
    if let (Some(with_base), false) = (options.with_base, bases.is_empty()) {
        with_base();
    }
    if let (Some(base), Sampled::Tree(_), false) = (bases.first(), &input, options.force)
        && base.has_same_files()
        && !base.is_trusted
    {
        context.progress.note(why_all_is_read(context));
    }
    let layout = announced.policy.layout();
    if !options.write.suffices_for(layout, cutting.chunk_max()) {
        return Err(BackupError::NeedsMemory { layout });
    }
    let output = Output::within(context, job, options.compression, options.write)?;
    let output = if options.dry_run { output.counting() } else { output };
    let streams = pipeline(context, input, options, started_ms, cutting, announced, &bases, &output);
    // Waiters for room learn that the job has ended, and not why.
    let (streams, map) =
        streams.map_err(|error| if context.cancel.is_cancelled() { BackupError::Interrupted } else { error })?;
    context.progress.only_uploads_are_left();
    output.wait()?;
    let mut statistics = streams.statistics.clone();
    statistics.stored_bytes = output.stored_bytes();
    statistics.read_bytes += map.as_ref().map_or(0, |map| map.checked_bytes);
    statistics.errors += options.copy_of.map_or(0, |copy| copy.errors);
    // Without a version of its own, this machine would read all files again and again.
    // Nor is an older version the newest, which another machine made.
    let unchanged = bases.first().filter(|base| base.is_trusted && base.why != WhyBase::Own).is_some_and(
        |OpenBase { manifest, why, .. }| {
            let is_equal = || manifest.data == streams.data && manifest.metadata == streams.metadata;
            // The folders above the requested paths have their own times, which change with
            // everything else in them. If nothing is new, nothing is missing when the number of
            // entries is equal.
            let differs_above =
                || !streams.differs && entries_of(&manifest.summary.statistics) == entries_of(&statistics);
            *why != WhyBase::Similar && (is_equal() || differs_above())
        },
    );
    let used = bases.iter().map(|OpenBase { manifest, why, .. }| {
        let Summary { id, series, .. } = &manifest.summary;
        Base { id: *id, series: series.clone(), why: *why }
    });
    let mut report = BackupReport {
        version: None,
        statistics,
        bases: used.collect(),
        adopted: announced.adopts.iter().map(|pin| pin.job).collect(),
        missing: bases.iter().flat_map(|base| base.absent.iter().copied()).collect(),
        may_miss_more: bases.iter().any(|base| base.is_unknown),
        map,
    };
    if options.dry_run || (options.skip_if_unchanged && unchanged) {
        return Ok((report, output.nothing_committed()));
    }
    let followed = bases.first().filter(|base| base.is_followed).map(|base| &base.manifest);
    let sketch = match followed.filter(|base| base.data == streams.data && !base.summary.sketch.is_empty()) {
        // It knows more of what was proved and not cut.
        Some(base) => base.summary.sketch.clone(),
        None => streams.sketcher.finish(followed.map(|base| (&base.summary.sketch, base.data.bytes()))),
    };
    let sketch = announced.policy.sketch_for_others(sketch);
    let of_bases: Vec<_> = bases.iter().map(|base| holdings(&base.manifest.containers)).collect();
    let (stored, of_orphans) = (output.stored(), streams.orphans.as_ref().map(|orphans| orphans.loader().held()));
    let held = |container: &ContainerId| {
        let mut all = [&stored].into_iter().chain(of_orphans).chain(&of_bases);
        all.find_map(|held| held.get(container).copied())
    };
    let description = Description {
        series: options.series.clone(),
        layout: announced.policy.layout(),
        base: report.bases.first().map(|base| base.id),
        more_bases: report.bases.iter().skip(1).map(|base| base.id).collect(),
        time_ms: options.time_ms.unwrap_or(started_ms),
        started_ms: options.copy_of.map_or(started_ms, |copy| copy.started_ms),
        host: options.host.clone(),
        user: options.user.clone(),
        tags: options.tags.clone(),
        paths: options.paths.clone(),
        program: options.program.clone(),
        source,
        origin: options.copy_of.map(|copy| copy.origin),
    };
    let Streams { data, metadata, usage, .. } = streams;
    let contents = Contents { data, metadata, usage, statistics: report.statistics.clone(), sketch };
    let manifest = manifest(context, job, description, contents, held)?;
    let ending = commit(context, &manifest, &output)?;
    report.version = Some(manifest.summary);
    Ok((report, ending))
}

/// Why no file counts as unchanged.
fn why_all_is_read(context: &JobContext) -> &'static str {
    match context.machine.has_witness() {
        true => "all files are read, because this machine made none of the newest snapshots of the series",
        false => "all files are read, because this machine has neither a key file nor a state folder",
    }
}

/// The number of entries of a version.
fn entries_of(statistics: &Statistics) -> u64 {
    let Statistics { files_new, files_changed, files_unmodified, .. } = statistics;
    let Statistics { dirs_new, dirs_changed, dirs_unmodified, others, .. } = statistics;
    files_new + files_changed + files_unmodified + dirs_new + dirs_changed + dirs_unmodified + others
}

#[expect(clippy::too_many_arguments, reason = "called once; a struct for it would only be taken apart again")]
fn pipeline(
    context: &JobContext,
    mut input: Sampled,
    options: &BackupOptions,
    started_ms: u64,
    cutting: &Arc<Cutting>,
    announced: &AnnouncedJob,
    bases: &[OpenBase],
    output: &Output,
) -> Result<(Streams, Option<MapReport>), BackupError> {
    let (repository, job) = (&context.repository, output.job());
    let chunks = MetaChunks::new(context);
    let skips = match &announced.before {
        Some(before) => before_base(context, before, &chunks)?.map(SkippedDuplicates::measured),
        None => bases.iter().any(|base| base.why == WhyBase::Before).then(SkippedDuplicates::counted),
    };
    let recipes: Vec<_> = bases
        .iter()
        .map(|base| (Arc::new(base.manifest.data.clone()), Arc::new(base.manifest.metadata.clone())))
        .collect();
    let reader = |recipe: &Arc<Recipe>| RecipeReader::new(recipe.clone(), chunks.clone());
    let readers = bases.iter().zip(&recipes).map(|(base, (data, metadata))| BaseReaders {
        data: reader(data),
        metadata: reader(metadata),
        missing: base.missing.clone(),
    });
    let first = bases.first().zip(recipes.first());
    let followed = first.filter(|(base, _)| base.is_followed);
    let files = first.filter(|(base, _)| base.has_same_files());
    let entries = files.map(|(_, (_, metadata))| Entries::new(metadata.clone(), chunks.clone()));
    let base_started_ms = files.map_or(0, |(base, _)| base.manifest.summary.started_ms);
    let dead: Vec<_> = announced.adopts.iter().map(|pin| pin.job).collect();
    let orphans = OrphanedContainers::list(repository, &context.executor, job, &dead)?;
    let (spare, spares) = unbounded();
    // In turns, everything is fed before any of it is sequenced.
    let (out, fed) = if context.executor.is_in_turns() { unbounded() } else { bounded(in_flight(context)) };
    let hints = PositionHints::default();
    // `--paranoid` doubts fingerprints, and so must not trust a MAC.
    let run_mac = cutting.run_mac.clone().filter(|_| !options.paranoid);
    let predictor =
        followed.zip(run_mac).map(|((_, (data, _)), run_mac)| Predictor::new(reader(data), run_mac, hints.clone()));
    // A version that is one stream is the predecessor as a whole, under any name.
    let whole_stream = followed
        .filter(|(base, _)| base.manifest.summary.source == SourceKind::Stream)
        .map(|(base, _)| 0..base.manifest.data.bytes());
    let feeder = Feeder {
        pool: output.pool(),
        read: options.read,
        cutting: cutting.clone(),
        out,
        cancel: context.cancel.clone(),
        predictor,
        spare: spares,
        remarks: Some(context.progress.clone()),
    };
    let rules = Rules {
        force: options.force || files.is_some_and(|(base, _)| !base.is_trusted),
        ignore_ctime: options.ignore_ctime,
        ignore_inode: options.ignore_inode,
        base_started_ms,
    };
    let comparison = options.paranoid.then(|| {
        let chunks = bases.iter().fold(chunks.clone(), |chunks, base| chunks.for_reading(&base.manifest));
        ByteComparison::new(repository, context.executor.clone(), job, chunks)
    });
    let of_base = chunks.clone();
    let sink = output
        .metadata(cutting.fingerprinter.clone())
        .comparing(comparison.clone().map(|comparison| Box::new(comparison) as _))
        .reading(Box::new(move |chunk| of_base.read(chunk)));
    let mut sequencer = Sequencer::new(Parts {
        job,
        cutting: cutting.clone(),
        data_writer: output.data(announced.policy.layout()),
        sink,
        bases: readers.collect(),
        unread: followed.map(|(_, (data, _))| reader(data)),
        orphans: (!orphans.is_empty()).then_some(orphans),
        comparison,
        index_memory: options.index_memory,
        scratch: options.scratch.clone(),
        policy: announced.policy,
        skips,
        merge: announced.merge,
        wanted: RootCoverage::new(&options.paths),
        hints,
        progress: context.progress.clone(),
        cancel: context.cancel.clone(),
        spare,
    });
    let (untouched, map) = match &mut input {
        Sampled::Image(image) => {
            let base = first.map(|(base, (data, metadata))| ImageBase {
                summary: &base.manifest.summary,
                is_trusted: base.is_trusted,
                is_followed: base.is_followed,
                data,
                metadata,
            });
            untouched(context, image, base, &chunks, cutting, announced.since_full, options.read.window)?
        }
        Sampled::Tree(_) | Sampled::Stream { .. } | Sampled::Entries(_) => (None, None),
    };
    // What a source knows is about one base, which has to be followed.
    let supplied_base =
        match &input {
            Sampled::Entries(source) => followed
                .filter(|(base, _)| Some(base.manifest.summary.id) == source.base())
                .map(|(_, (data, metadata))| SuppliedBase {
                    entries: Comparison::new(Some(Entries::new(metadata.clone(), chunks.clone())), Rules::default()),
                    data: data.clone(),
                    chunks: chunks.clone(),
                }),
            _ => None,
        };
    let feed = move || {
        let (path, reader) = match input {
            Sampled::Tree(walk) => return feeder.tree(walk, Comparison::new(entries, rules)),
            Sampled::Entries(mut source) => return feeder.supplied(&mut *source, supplied_base),
            Sampled::Stream { path, reader, size } => (path, StreamReader::Forward(reader, size)),
            Sampled::Image(SampledImage { path, image, .. }) => (path, StreamReader::Image(image)),
        };
        let now = Timestamp { seconds: (started_ms / 1000) as i64, nanos: (started_ms % 1000) as u32 * 1_000_000 };
        let (known, failure) = match entries.filter(|_| whole_stream.is_none()) {
            Some(entries) => match range_of(entries, &path) {
                Err(error) => (None, Some(error)),
                Ok(range) => (range, None),
            },
            None => (whole_stream, None),
        };
        feeder.stream(path, reader, now, known.as_ref(), untouched);
        failure
    };
    let feeding = Feeding::begin(context, feed)?;
    let sequenced = sequencer.run(&fed);
    // Unblocks a feeder that waits for room in the channel.
    drop(fed);
    let fed_failure = feeding.end()?;
    sequenced?;
    if let Some(error) = fed_failure {
        if !error.is_damage() {
            return Err(error.into());
        }
        tracing::warn!(%error, "the base version's metadata is damaged; files were read that look unchanged");
    }
    // A copy has the entries of its original, whatever these are.
    if !sequencer.has_entries() && options.copy_of.is_none() {
        return Err(BackupError::NothingRead);
    }
    Ok((sequencer.finish()?, map))
}

/// The data stream of the version before the base. Nothing is lost when it is unreadable, or
/// forgotten meanwhile.
fn before_base(
    context: &JobContext,
    before: &Version,
    chunks: &MetaChunks,
) -> Result<Option<RecipeReader>, RepositoryError> {
    match context.executor.block_on(context.repository.manifest(before)) {
        Ok(manifest) => Ok(Some(RecipeReader::new(Arc::new(manifest.data), chunks.clone()))),
        Err(error) if error.is_damage() => {
            tracing::warn!(%error, "the version before the base cannot be read; skip duplicates are not measured");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The range of a version's data stream with the bytes of the file at `path`.
fn range_of(mut entries: Entries, path: &[u8]) -> Result<Option<Range<u64>>, RepositoryError> {
    entries.skip_towards(path)?;
    for found in entries {
        let found = found?;
        match path_order(&found.entry.path, path) {
            Ordering::Less => {}
            Ordering::Equal => return Ok(Some(found.data_range())),
            Ordering::Greater => break,
        }
    }
    Ok(None)
}
