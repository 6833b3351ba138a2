//! One backup from start to commit: finds the base, announces the job, runs the pipeline, commits.

use std::cmp::Ordering;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;

use crossbeam_channel::{bounded, unbounded};
use larder_format::entry::{Timestamp, path_order};
use larder_format::ids::{ContainerKind, JobId};
use larder_format::lease::{JobKind, Lease, Pin};
use larder_format::manifest::{ContainerUsage, Manifest, SourceKind, Summary};
use larder_store::catalog::Version;
use larder_store::container_reader::ChunkReader;
use larder_store::jobs::{OpenLease, RENEW_EVERY};
use larder_store::repository::random;
use larder_store::{Created, RepositoryError};
use tokio::sync::{mpsc, oneshot};

use super::bases::OrphanedContainers;
use super::compare::{Comparison, Rules};
use super::cutting::Cutting;
use super::feed::Feeder;
use super::filters::ByteComparison;
use super::packer::{Destination, Packer};
use super::pool::Pool;
use super::prediction::{Predictor, Track};
use super::sequence::{BaseReaders, Parts, Sequencer, Streams};
use super::uploads::Uploads;
use super::wanted::Wanted;
use super::{BackupError, BackupOptions, BackupReport, IN_FLIGHT, Input};
use crate::context::Context;
use crate::version::{Entries, MetaChunks, RecipeReader};

/// Backs up `input` as a new version.
///
/// Files that cannot be read, or change while they are, are reported to the context's progress and counted; the version is
/// made all the same. Interrupted at any moment, everything committed before is intact, and what was uploaded is reused by the
/// next backup of the series.
pub fn backup(context: &Context, input: Input, options: &BackupOptions) -> Result<BackupReport, BackupError> {
    let started_ms = context.clock.now_ms();
    let job = JobId::new(started_ms, random(context.repository.entropy())?);
    let (base, merge_before) = find_base(context, options, job)?;
    let announced = match options.dry_run {
        true => Announced { base, adopts: Vec::new(), merge_before, keeper: None },
        false => Announced { merge_before, ..announce(context, options, job, base)? },
    };
    let result = run(context, input, options, job, started_ms, &announced);
    // The lease of a job that failed stays open: that is what tells the next run where its uploads are.
    // So does that of a job of whose commit an attempt is still under way.
    let close = result.as_ref().is_ok_and(|(_, committed)| committed.is_none_or(|created| created.all_answered));
    if let Some(keeper) = announced.keeper {
        context.runtime.block_on(keeper.end(close));
    }
    result.map(|(report, _)| report)
}

/// Bytes of sealed containers, and of opened frames, that `--paranoid` keeps at hand.
const COMPARISON_CACHE: NonZeroUsize = NonZeroUsize::new(32 << 20).expect("not zero");

/// What the job may build on: checked to be there *after* the lease that pins it was written.
struct Announced {
    base: Option<Version>,
    adopts: Vec<Pin>,
    /// Chunks born before this version have stayed duplicate long enough to be merged.
    merge_before: Option<JobId>,
    keeper: Option<LeaseKeeper>,
}

/// The version to build on, and the one before which chunks must have been born to be merged.
fn find_base(
    context: &Context,
    options: &BackupOptions,
    job: JobId,
) -> Result<(Option<Version>, Option<JobId>), BackupError> {
    let repository = &context.repository;
    let mut catalog = match options.base {
        Some(_) => context.runtime.block_on(repository.catalog())?,
        None => context.runtime.block_on(repository.catalog_of_series(&options.series))?,
    };
    for damaged in &catalog.damaged {
        tracing::warn!(object = %damaged.name, error = %damaged.error, "a version cannot be read and is not built on");
    }
    // The newest by the order in which jobs began; `--time` may say anything.
    catalog.versions.sort_by_key(|version| std::cmp::Reverse(version.id()));
    let of_series = catalog.versions.iter().filter(|version| version.summary.series == options.series);
    // A chunk that this version finds again is duplicate once more than there are versions since it was born.
    let merge_before = options.merge_after.and_then(|times| match times.get() {
        1 => Some(job),
        times => of_series.map(Version::id).nth(times - 2),
    });
    let base = match options.base {
        Some(id) => {
            let found = catalog.versions.into_iter().find(|version| version.id() == id);
            Some(found.ok_or(BackupError::NoSuchBase { id })?)
        }
        None => catalog.versions.into_iter().next(),
    };
    Ok((base, merge_before))
}

fn announce(
    context: &Context,
    options: &BackupOptions,
    job: JobId,
    base: Option<Version>,
) -> Result<Announced, BackupError> {
    let repository = &context.repository;
    let series = repository.keys().series_key(&options.series);
    let unfinished = context.runtime.block_on(repository.unfinished_jobs())?;
    let mut adopts: Vec<_> = unfinished
        .into_iter()
        .filter(|other| other.lease.kind == JobKind::Backup && other.lease.series == options.series)
        .map(|other| Pin { series, job: other.job })
        .collect();
    let base_pin = base.as_ref().map(|base| Pin { series: base.series, job: base.id() });
    let lease = Lease {
        kind: JobKind::Backup,
        series: options.series.clone(),
        pins: base_pin.into_iter().collect(),
        adopts: adopts.clone(),
        host: context.host.clone(),
        process: std::process::id(),
        written_ms: context.clock.now_ms(),
        renew_seconds: RENEW_EVERY.as_secs() as u32,
    };
    let open = context.runtime.block_on(repository.open_lease(job, lease))?;
    let keeper = LeaseKeeper::start(context, open);
    // Only now: what was there before the lease was written may have been given up meanwhile, what is there now stays.
    let checked = context.runtime.block_on(async {
        let base_stays = match base_pin {
            Some(pin) => repository.is_retained(pin).await?,
            None => false,
        };
        let mut adoptable = Vec::new();
        for pin in adopts.drain(..) {
            if repository.is_adoptable(pin).await? {
                adoptable.push(pin);
            }
        }
        Ok::<_, RepositoryError>((base_stays, adoptable))
    });
    let (base_stays, adopts) = checked?;
    Ok(Announced { base: base.filter(|_| base_stays), adopts, merge_before: None, keeper: Some(keeper) })
}

/// Renews a lease in the background until it is ended.
struct LeaseKeeper {
    stop: oneshot::Sender<bool>,
    ended: mpsc::Receiver<()>,
}

impl LeaseKeeper {
    fn start(context: &Context, mut open: OpenLease) -> Self {
        let (stop, mut stopped) = oneshot::channel();
        let (done, ended) = mpsc::channel(1);
        let (repository, clock) = (context.repository.clone(), context.clock.clone());
        context.runtime.spawn(async move {
            let close = loop {
                tokio::select! {
                    close = &mut stopped => break close.unwrap_or(false),
                    () = tokio::time::sleep(RENEW_EVERY) => {
                        // A renewal that fails is tried again at the next: expiry takes several of them.
                        if let Err(error) = repository.renew_lease(&mut open, clock.now_ms()).await {
                            tracing::warn!(%error, "the lease could not be renewed");
                        }
                    }
                }
            };
            if close && let Err(error) = repository.close_lease(&open).await {
                tracing::warn!(%error, "the lease could not be closed; it will expire");
            }
            let _ = done.send(()).await;
        });
        Self { stop, ended }
    }

    /// Stops renewing, and closes the lease if asked to.
    async fn end(mut self, close: bool) {
        let _ = self.stop.send(close);
        self.ended.recv().await;
    }
}

fn run(
    context: &Context,
    input: Input,
    options: &BackupOptions,
    job: JobId,
    started_ms: u64,
    announced: &Announced,
) -> Result<(BackupReport, Option<Created>), BackupError> {
    let repository = &context.repository;
    let base = match &announced.base {
        Some(version) => match context.runtime.block_on(repository.manifest(version)) {
            Ok(manifest) => Some(manifest),
            Err(error) if error.is_damage() => {
                tracing::warn!(%error, "the base version is damaged and not built on");
                None
            }
            Err(error) => return Err(error.into()),
        },
        None => None,
    };
    let source = match &input {
        Input::Tree(_) => SourceKind::Tree,
        Input::Stream { .. } => SourceKind::Stream,
    };
    let uploads = Uploads::new(repository.clone(), context.runtime.clone());
    let streams = pipeline(context, input, options, job, started_ms, announced, base.as_ref(), &uploads)?;
    uploads.wait()?;
    let mut statistics = streams.statistics.clone();
    statistics.stored_bytes = uploads.stored_bytes();
    let unchanged = base.as_ref().is_some_and(|base| base.data == streams.data && base.metadata == streams.metadata);
    let mut report = BackupReport {
        version: None,
        statistics,
        base: base.as_ref().map(|base| base.summary.id),
        adopted: announced.adopts.iter().map(|pin| pin.job).collect(),
    };
    if options.dry_run || (options.skip_if_unchanged && unchanged) {
        return Ok((report, None));
    }
    let containers = container_table(&streams, base.as_ref(), &uploads)?;
    let mut tags = options.tags.clone();
    tags.sort();
    tags.dedup();
    let summary = Summary {
        id: job,
        series: options.series.clone(),
        base: report.base,
        time_ms: options.time_ms.unwrap_or(started_ms),
        started_ms,
        ended_ms: context.clock.now_ms(),
        host: options.host.clone(),
        user: options.user.clone(),
        tags,
        paths: options.paths.clone(),
        program: options.program.clone(),
        source,
        statistics: report.statistics.clone(),
        attempt: random(repository.entropy())?,
    };
    let manifest = Manifest { summary: summary.clone(), data: streams.data, metadata: streams.metadata, containers };
    let series = repository.keys().series_key(&options.series);
    let created = context.runtime.block_on(repository.commit(series, &manifest))?;
    report.version = Some(summary);
    Ok((report, Some(created)))
}

#[expect(clippy::too_many_arguments, reason = "called once; a struct for it would only be taken apart again")]
fn pipeline(
    context: &Context,
    input: Input,
    options: &BackupOptions,
    job: JobId,
    started_ms: u64,
    announced: &Announced,
    base: Option<&Manifest>,
    uploads: &Arc<Uploads>,
) -> Result<Streams, BackupError> {
    let repository = &context.repository;
    let cutting = Cutting::new(repository.config(), repository.keys()).ok_or(BackupError::WorkerDied)?;
    let pool = Pool::new(context.threads, options.compression);
    let handle = pool.handle().ok_or(BackupError::WorkerDied)?;
    let destination = match options.dry_run {
        true => Destination::Nowhere,
        false => Destination::Store { pool: handle.clone(), uploads: uploads.clone() },
    };
    let chunks = MetaChunks::new(context);
    let readers = base.map(|base| {
        let (data, metadata) = (Arc::new(base.data.clone()), Arc::new(base.metadata.clone()));
        let readers = BaseReaders {
            data: RecipeReader::new(data.clone(), chunks.clone()),
            unread: RecipeReader::new(data, chunks.clone()),
            metadata: RecipeReader::new(metadata.clone(), chunks.clone()),
        };
        (readers, Entries::new(metadata, chunks.clone()), base.summary.started_ms)
    });
    let (readers, entries, base_started_ms) = match readers {
        Some((readers, entries, started)) => (Some(readers), Some(entries), started),
        None => (None, None, 0),
    };
    let dead: Vec<_> = announced.adopts.iter().map(|pin| pin.job).collect();
    let orphans = OrphanedContainers::list(repository, &context.runtime, job, &dead)?;
    let (spare, spares) = unbounded();
    let (out, fed) = bounded(IN_FLIGHT);
    let track = Track::default();
    // Who distrusts fingerprints will not trust a MAC.
    let run_mac = cutting.run_mac.clone().filter(|_| !options.paranoid);
    let predictor = base.zip(run_mac).map(|(base, run_mac)| {
        Predictor::new(RecipeReader::new(Arc::new(base.data.clone()), chunks.clone()), run_mac, track.clone())
    });
    let feeder = Feeder {
        pool: handle,
        cutting: cutting.clone(),
        out,
        cancel: context.cancel.clone(),
        predictor,
        spare: spares,
    };
    let rules = Rules {
        force: options.force,
        ignore_ctime: options.ignore_ctime,
        ignore_inode: options.ignore_inode,
        base_started_ms,
    };
    let mut sequencer = Sequencer::new(Parts {
        job,
        cutting,
        data_packer: Packer::new(destination.clone(), ContainerKind::Data, job),
        meta_packer: Packer::new(destination, ContainerKind::Meta, job),
        base: readers,
        orphans: (!orphans.is_empty()).then_some(orphans),
        comparison: options.paranoid.then(|| {
            let reader = ChunkReader::new(repository.clone(), COMPARISON_CACHE, COMPARISON_CACHE);
            ByteComparison::new(reader, context.runtime.clone(), job)
        }),
        index_memory: options.index_memory,
        merge_before: announced.merge_before,
        wanted: Wanted::new(&options.paths),
        track,
        progress: context.progress.clone(),
        cancel: context.cancel.clone(),
        spare,
    });
    let feeding = std::thread::Builder::new().name("feed".to_owned()).spawn(move || match input {
        Input::Tree(walk) => feeder.tree(walk, Comparison::new(entries, rules)),
        Input::Stream { path, reader, size } => {
            let now = Timestamp { seconds: (started_ms / 1000) as i64, nanos: (started_ms % 1000) as u32 * 1_000_000 };
            let (known, failure) = match entries.map(|entries| range_of(entries, &path)) {
                Some(Err(error)) => (None, Some(error)),
                Some(Ok(range)) => (range, None),
                None => (None, None),
            };
            feeder.stream(path, reader, size, now, known.as_ref());
            failure
        }
    });
    let feeding = feeding.map_err(|_| BackupError::WorkerDied)?;
    let sequenced = sequencer.run(&fed);
    // Unblocks a feeder that waits for room in the channel.
    drop(fed);
    let fed_failure = feeding.join().map_err(|_| BackupError::WorkerDied)?;
    sequenced?;
    if let Some(error) = fed_failure {
        if !error.is_damage() {
            return Err(error.into());
        }
        tracing::warn!(%error, "the base version's metadata is damaged; files were read that look unchanged");
    }
    if !sequencer.has_entries() {
        return Err(BackupError::NothingRead);
    }
    sequencer.finish()
}

/// Where a version has the bytes of the file at `path` in its data stream.
fn range_of(mut entries: Entries, path: &[u8]) -> Result<Option<Range<u64>>, RepositoryError> {
    entries.skip_towards(path)?;
    for found in entries {
        let found = found?;
        match path_order(&found.entry.path, path) {
            Ordering::Less => {}
            Ordering::Equal => return Ok(Some(found.data_offset..found.data_offset + found.entry.stored_bytes())),
            Ordering::Greater => break,
        }
    }
    Ok(None)
}

/// The version's container table: what it uses of each container, out of how much.
fn container_table(
    streams: &Streams,
    base: Option<&Manifest>,
    uploads: &Uploads,
) -> Result<Vec<ContainerUsage>, BackupError> {
    let mut held = uploads.stored();
    for usage in base.iter().flat_map(|base| &base.containers) {
        held.entry(usage.container).or_insert(super::uploads::Held {
            chunks: usage.chunks_held,
            bytes: usage.bytes_held,
            object_bytes: usage.object_bytes,
        });
    }
    if let Some(orphans) = &streams.orphans {
        held.extend(orphans.loader().held().iter().map(|(id, held)| (*id, *held)));
    }
    let mut table = Vec::with_capacity(streams.usage.len());
    for (container, (chunks, bytes)) in &streams.usage {
        let Some(held) = held.get(container) else { return Err(BackupError::WorkerDied) };
        table.push(ContainerUsage {
            container: *container,
            chunks_used: u32::try_from(*chunks).unwrap_or(u32::MAX).min(held.chunks),
            bytes_used: (*bytes).min(held.bytes),
            chunks_held: held.chunks,
            bytes_held: held.bytes,
            object_bytes: held.object_bytes,
        });
    }
    table.sort_by_key(|usage| usage.container);
    Ok(table)
}

impl std::fmt::Debug for LeaseKeeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LeaseKeeper")
    }
}
