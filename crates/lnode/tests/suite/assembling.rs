//! Versions that are assembled of pieces: equal to ordinary ones, of named containers only, and whole whatever happens.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::collections::HashMap;
use std::io::Cursor;
use std::sync::Arc;
use std::time::Duration;

use crate::support::*;
use larder_format::compress::Compression;
use larder_format::entry::{Entry, EntryKind, Timestamp};
use larder_format::ids::{ContainerId, JobId};
use larder_format::layout::Layout;
use larder_format::lease::Pin;
use larder_format::manifest::{Manifest, SourceKind, Statistics};
use larder_format::recipe::{Proof, SegmentRef};
use larder_format::segment::ChunkRecord;
use larder_format::{ChunkRef, Fingerprint};
use larder_job::{Ending, JobContext, LeaseKeeper};
use larder_lnode::assemble::{
    Announced, Announcement, AssembleError, Description, OpenVersion, Output, VersionWriter, announce, commit,
    open_version,
};
use larder_lnode::{BackupOptions, BackupReport, Input};
use larder_reader::{MetaChunks, RecipeReader};
use larder_rewrite::check::ReadData;
use larder_rewrite::{CheckOptions, check};
use larder_store::catalog::Version;
use larder_store::{Repository, Store, StoreOptions};
use larder_testkit::{Failure, Fault, FaultStore, Faults, Memory, OpKind, Stop, Times, When};
use larder_writer::{ContainerTotals, Cutting, holdings};

/// Jobs that store chunks for others use a series of this name.
const STORES: &str = "stores";

/// The image of the base, one of another series, and the new one. It has parts of both and new ones.
struct Images {
    base: Vec<u8>,
    other: Vec<u8>,
    new: Vec<u8>,
}

impl Images {
    fn of(megabytes: usize) -> Self {
        let (base, other) = (pseudo_random(megabytes * 1_000_000, 1), pseudo_random(600_000, 2));
        let mut new = base.clone();
        let at = new.len() - 1_000_000;
        new[at..at + other.len()].copy_from_slice(&other);
        new[at + 700_000..at + 760_000].copy_from_slice(&pseudo_random(60_000, 3));
        Self { base, other, new }
    }

    /// A repository with versions of the first two.
    fn stored(&self, runtime: &tokio::runtime::Runtime) -> Memory {
        let memory = Memory::new();
        let context = context(runtime, init(runtime, plain(&memory)));
        store(&context, "vm/web", &self.base);
        store(&context, "vm/db", &self.other);
        memory
    }
}

fn plain(memory: &Memory) -> Store {
    Store::from_object_store(memory.store(), "", &soon()).unwrap()
}

fn faulty(memory: &Memory) -> (Store, Faults) {
    let (store, faults) = FaultStore::new(memory.store());
    (Store::from_object_store(store, "", &soon()).unwrap(), faults)
}

/// A stopped store never comes back: no use in asking for long.
fn soon() -> StoreOptions {
    let soon = Duration::from_millis(1);
    StoreOptions { retry_deadline: soon, first_deadline: soon, ..StoreOptions::default() }
}

fn open(runtime: &tokio::runtime::Runtime, store: Store) -> JobContext {
    let entropy = Arc::new(larder_testkit::entropy());
    context(runtime, runtime.block_on(Repository::open(store, PASSWORD, entropy)).expect("the repository opens"))
}

fn store(context: &JobContext, series: &str, bytes: &[u8]) -> BackupReport {
    let reader = Box::new(Cursor::new(bytes.to_vec()));
    let input = Input::Stream { path: b"disk".to_vec(), reader, size: Some(bytes.len() as u64) };
    // An assembled recipe has no runs.
    let options = BackupOptions { find_similar: false, merge_after: None, ..options(series) };
    larder_lnode::backup(context, input, &options).unwrap()
}

fn found(context: &JobContext, series: &str) -> Result<Version, AssembleError> {
    let catalog = context.executor.block_on(context.repository.catalog())?;
    Ok(catalog.versions.into_iter().rfind(|version| version.summary.series == series).unwrap())
}

fn newest(context: &JobContext, series: &str) -> Version {
    found(context, series).unwrap()
}

fn restored(context: &JobContext, version: &Version) -> Vec<u8> {
    let mut restored = Vec::new();
    larder_reader::VersionReader::open(context, version)
        .unwrap()
        .visit_contents(b"", |_, content| {
            content.read_to_end(&mut restored).unwrap();
            Ok::<_, larder_store::RepositoryError>(())
        })
        .unwrap();
    restored
}

/// A segment of the data stream of a version.
struct Part {
    row: SegmentRef,
    records: Vec<ChunkRecord>,
}

fn parts(context: &JobContext, manifest: &Manifest) -> Result<Vec<Part>, AssembleError> {
    let mut reader = RecipeReader::new(Arc::new(manifest.data.clone()), MetaChunks::new(context));
    let part = |number| {
        let (row, _) = reader.segment_ref(number)?.unwrap();
        Ok(Part { row, records: reader.segment(number)?.to_vec() })
    };
    (0..manifest.data.nodes.iter().map(|node| node.segments).sum()).map(part).collect()
}

/// The segments of an image as an ordinary backup makes them, and its manifest: from a copy of the repository.
fn ordinary(runtime: &tokio::runtime::Runtime, memory: &Memory, image: &[u8]) -> (Vec<Part>, Manifest) {
    let context = open(runtime, plain(&memory.snapshot()));
    store(&context, "vm/web", image);
    let version = newest(&context, "vm/web");
    let manifest = runtime.block_on(context.repository.manifest(&version)).unwrap();
    (parts(&context, &manifest).unwrap(), manifest)
}

/// The wanted contents of a version.
struct Wanted<'a> {
    image: &'a [u8],
    parts: &'a [Part],
    /// Whether the lease names the version of the other series.
    names_other: bool,
}

fn new_job(context: &JobContext) -> JobId {
    JobId::new(context.clock.now_ms(), larder_store::repository::random(context.repository.entropy()).unwrap())
}

/// A job that only stores chunks.
struct StoreJob {
    job: JobId,
    output: Output,
    keeper: LeaseKeeper,
    places: HashMap<Fingerprint, ChunkRef>,
}

impl StoreJob {
    /// Stores those chunks of the image that none of the versions has.
    fn run(context: &JobContext, wanted: &Wanted<'_>, named: &[&OpenVersion]) -> Result<Self, AssembleError> {
        let job = new_job(context);
        let announcement =
            Announcement { series: STORES, layout: Layout::Standard, versions: Vec::new(), adopts: Vec::new() };
        let Announced { keeper, .. } = announce(context, job, announcement)?;
        let output = Output::new(context, job, Compression::DEFAULT)?;
        let known = places(context, named)?;
        let mut places = HashMap::new();
        let mut writer = output.data(Layout::Standard);
        let mut at = 0;
        for record in wanted.parts.iter().flat_map(|part| &part.records) {
            let ChunkRef { fingerprint, size, .. } = record.chunk;
            let bytes = &wanted.image[at..at + size as usize];
            at += bytes.len();
            if !known.contains_key(&fingerprint) && !places.contains_key(&fingerprint) {
                places.insert(fingerprint, writer.push(fingerprint, bytes)?);
            }
        }
        writer.flush()?;
        assert!(places.values().all(|place| place.container.seq < writer.acknowledged_below()));
        Ok(Self { job, output, keeper, places })
    }

    fn pin(&self, context: &JobContext) -> Pin {
        Pin { series: context.repository.keys().series_key(STORES), job: self.job }
    }
}

fn places(context: &JobContext, named: &[&OpenVersion]) -> Result<HashMap<Fingerprint, ChunkRef>, AssembleError> {
    let mut places = HashMap::new();
    for version in named {
        let records = parts(context, &version.manifest)?.into_iter().flat_map(|part| part.records);
        places.extend(records.map(|record| (record.chunk.fingerprint, record.chunk)));
    }
    Ok(places)
}

fn opened(context: &JobContext, series: &str) -> Result<OpenVersion, AssembleError> {
    Ok(open_version(context, &found(context, series)?)?.unwrap())
}

/// Assembles the next version of `vm/web`: its chunks are in the base, in a version of another series, and in a job that
/// stores the new ones.
fn assemble(context: &JobContext, wanted: &Wanted<'_>) -> Result<(JobId, u64), AssembleError> {
    let (base, other) = (opened(context, "vm/web")?, opened(context, "vm/db")?);
    let chunks = StoreJob::run(context, wanted, &[&base, &other])?;
    let job = new_job(context);
    let mut named = vec![found(context, "vm/web")?];
    if wanted.names_other {
        named.push(found(context, "vm/db")?);
    }
    let adopts = vec![chunks.pin(context)];
    let announcement = Announcement { series: "vm/web", layout: Layout::Standard, versions: named, adopts };
    let Announced { versions, adopts, keeper } = announce(context, job, announcement)?;
    assert_eq!(adopts, [chunks.pin(context)]);
    let mut opened = Vec::new();
    for version in versions.into_iter().flatten() {
        opened.extend(open_version(context, &version)?);
    }
    let result = write(context, job, wanted, &opened, &chunks, &other);
    keeper.end(result.as_ref().map_or(Ending::Ended, |(_, ending)| ending.clone()));
    let StoreJob { output, keeper, .. } = chunks;
    keeper.end(if result.is_ok() { output.nothing_committed() } else { Ending::Ended });
    result.map(|(kept, _)| (job, kept))
}

fn write(
    context: &JobContext,
    job: JobId,
    wanted: &Wanted<'_>,
    named: &[OpenVersion],
    chunks: &StoreJob,
    other: &OpenVersion,
) -> Result<(u64, Ending), AssembleError> {
    let cutting = Cutting::new(context.repository.config(), context.repository.keys()).unwrap();
    let mut places = places(context, &named.iter().chain([other]).collect::<Vec<_>>())?;
    places.extend(&chunks.places);
    let of_base = parts(context, &named[0].manifest)?;
    let output = Output::new(context, job, Compression::DEFAULT)?;
    let mut recipes = output.recipes(context, &cutting, 0);
    let mut writer = VersionWriter::new(context, job, &mut recipes, Some(&named[0]));
    let mut kept = 0;
    for part in wanted.parts {
        match of_base.iter().position(|base| base.row.content == part.row.content) {
            Some(number) => {
                writer.keep(number as u32..number as u32 + 1)?;
                kept += 1;
            }
            None => {
                let place = |record: &ChunkRecord| ChunkRecord { chunk: places[&record.chunk.fingerprint], born: job };
                let proof: Option<Proof> = part.row.proof.clone();
                writer.segment(part.records.iter().map(place).collect(), proof)?;
            }
        }
    }
    let now = Timestamp { seconds: 5, nanos: 0 };
    let entry = Entry {
        path: b"disk".to_vec(),
        kind: EntryKind::File { size: wanted.image.len() as u64, extents: None },
        mode: 0o600,
        uid: 1,
        gid: 1,
        user: None,
        group: None,
        mtime: now,
        ctime: now,
        atime: None,
        inode: 0,
        xattrs: Vec::new(),
    };
    let description = Description {
        series: "vm/web".to_owned(),
        layout: Layout::Standard,
        base: Some(named[0].manifest.summary.id),
        more_bases: named[1..].iter().map(|version| version.manifest.summary.id).collect(),
        time_ms: context.clock.now_ms(),
        started_ms: context.clock.now_ms(),
        host: "host".to_owned(),
        user: "user".to_owned(),
        tags: vec!["b".to_owned(), "a".to_owned()],
        paths: Vec::new(),
        program: "test".to_owned(),
        source: SourceKind::Stream,
        origin: None,
    };
    let mut held: HashMap<ContainerId, ContainerTotals> = chunks.output.stored();
    held.extend(named[1..].iter().flat_map(|version| holdings(&version.manifest.containers)));
    let counted = Statistics { stored_bytes: chunks.output.stored_bytes(), ..Statistics::default() };
    let manifest = writer.finish(&entry, counted, description, |container| held.get(container).copied())?;
    Ok((kept, commit(context, &manifest, &output)?))
}

fn is_clean(context: &JobContext, at: &str) {
    let report = check(context, &CheckOptions { read_data: ReadData::All, ..CheckOptions::default() }).unwrap();
    assert_eq!(report.damages, [], "{at}");
}

#[test]
fn an_assembled_version_equals_an_ordinary_one() {
    let (runtime, images) = (runtime(), Images::of(9));
    let memory = images.stored(&runtime);
    let (parts, ordinary) = ordinary(&runtime, &memory, &images.new);
    let context = open(&runtime, plain(&memory));
    let wanted = Wanted { image: &images.new, parts: &parts, names_other: true };
    let (job, kept) = assemble(&context, &wanted).unwrap();
    assert!(kept > 1, "segments of the base were taken over");
    let version = newest(&context, "vm/web");
    assert_eq!(version.id(), job);
    let manifest = runtime.block_on(context.repository.manifest(&version)).unwrap();
    assert_eq!(manifest.summary.roots.data, ordinary.summary.roots.data);
    assert_eq!(manifest.summary.sketch, ordinary.summary.sketch);
    assert_eq!(manifest.summary.tags, ["a", "b"]);
    let (made, expected) = (&manifest.summary.statistics, &ordinary.summary.statistics);
    assert_eq!((made.chunks, made.stream_bytes), (expected.chunks, expected.stream_bytes));
    assert_eq!((made.logical_bytes, made.files_new), (expected.logical_bytes, 1));
    // Chunks of the other series and of the store job are where those are.
    let of_other = newest(&context, "vm/db").id();
    let owners = |id: JobId| manifest.containers.iter().any(|row| row.container.job == id);
    assert!(owners(of_other) && !owners(ordinary.summary.id));
    assert!(restored(&context, &version) == images.new);
    is_clean(&context, "assembled");
    // The next ordinary backup builds on it, and proves what is equal.
    let next = store(&context, "vm/web", &images.new);
    assert_eq!(next.bases.first().map(|base| base.id), Some(job));
    assert_eq!((next.statistics.new_chunks, next.statistics.predictions_wrong), (0, 0));
    assert!(next.statistics.predicted_bytes > images.new.len() as u64 / 2, "{:?}", next.statistics);
}

#[test]
fn containers_that_the_lease_does_not_name_are_refused() {
    let (runtime, images) = (runtime(), Images::of(3));
    let memory = images.stored(&runtime);
    let (parts, _) = ordinary(&runtime, &memory, &images.new);
    let context = open(&runtime, plain(&memory));
    let wanted = Wanted { image: &images.new, parts: &parts, names_other: false };
    let error = assemble(&context, &wanted).unwrap_err();
    let of_other = newest(&context, "vm/db").id();
    assert!(matches!(error, AssembleError::NotNamed { container } if container.job == of_other), "{error}");
    assert_eq!(versions(&context).len(), 2);
}

#[test]
fn segments_that_the_base_does_not_have_are_refused() {
    let (runtime, images) = (runtime(), Images::of(3));
    let context = open(&runtime, plain(&images.stored(&runtime)));
    let cutting = Cutting::new(context.repository.config(), context.repository.keys()).unwrap();
    let job = new_job(&context);
    let output = Output::new(&context, job, Compression::DEFAULT).unwrap();
    let mut recipes = output.recipes(&context, &cutting, 0);
    let base = opened(&context, "vm/web").unwrap();
    let segments = parts(&context, &base.manifest).unwrap().len() as u32;
    let mut writer = VersionWriter::new(&context, job, &mut recipes, Some(&base));
    let past = writer.keep(segments - 1..segments + 1).unwrap_err();
    assert!(matches!(past, AssembleError::NotInBase { segment } if segment == segments), "{past}");
    let mut writer = VersionWriter::new(&context, job, &mut recipes, None);
    assert!(matches!(writer.keep(0..1), Err(AssembleError::NotInBase { segment: 0 })));
    let mut damaged = base;
    damaged.missing.named.extend(damaged.manifest.containers.first().map(|row| row.container));
    let mut writer = VersionWriter::new(&context, job, &mut recipes, Some(&damaged));
    assert!(matches!(writer.keep(0..1), Err(AssembleError::NotInBase { segment: 0 })));
}

#[test]
fn the_watermark_never_passes_a_container_that_is_not_acknowledged() {
    let runtime = runtime();
    let memory = Memory::new();
    init(&runtime, plain(&memory));
    let (store, faults) = faulty(&memory);
    let context = open(&runtime, store);
    let output = Output::new(&context, new_job(&context), Compression::DEFAULT).unwrap();
    let mut writer = output.data(Layout::Standard);
    drop(output);
    assert_eq!(writer.acknowledged_below(), 0);
    let first = writer.push(Fingerprint([1; 32]), &pseudo_random(5000, 1)).unwrap();
    assert_eq!((writer.acknowledged_below(), writer.is_acknowledged(&first)), (0, false));
    writer.flush().unwrap();
    assert_eq!((writer.acknowledged_below(), writer.is_acknowledged(&first)), (1, true));
    let denied = Fault::FailBefore(Failure::Status(403));
    faults.add(When::kind(OpKind::Put).path("data/"), denied, Times::Always);
    let second = writer.push(Fingerprint([2; 32]), &pseudo_random(5000, 2)).unwrap();
    writer.flush().unwrap_err();
    faults.clear();
    assert_eq!((writer.acknowledged_below(), writer.is_acknowledged(&second)), (1, false));
}

#[test]
fn an_assembly_cut_at_any_operation_leaves_every_version_whole_and_can_be_done_again() {
    let (runtime, images) = (runtime(), Images::of(3));
    let before = images.stored(&runtime);
    let (parts, _) = ordinary(&runtime, &before, &images.new);
    let wanted = Wanted { image: &images.new, parts: &parts, names_other: true };
    let run = |memory: &Memory, cut: Option<(u64, Stop)>| {
        let (store, faults) = faulty(memory);
        let context = open(&runtime, store);
        let began = faults.count();
        if let Some((n, stop)) = cut {
            faults.stop_at(began + n, stop);
        }
        (assemble(&context, &wanted).is_ok(), faults.count() - began)
    };
    let (is_done, operations) = run(&before.snapshot(), None);
    assert!(is_done && operations >= 10, "{operations} operations");
    for n in 0..operations {
        for stop in [Stop::Before, Stop::After] {
            let at = format!("cut at operation {n} of {operations}, {stop:?}");
            let memory = before.snapshot();
            let (is_done, _) = run(&memory, Some((n, stop)));
            let context = open(&runtime, plain(&memory));
            let is_made = versions(&context).len() == 3;
            assert!(is_made || !is_done, "{at}: reported as done, but there is no version");
            let expected = if is_made { &images.new } else { &images.base };
            assert!(restored(&context, &newest(&context, "vm/web")) == *expected, "{at}");
            is_clean(&context, &at);
            if !is_made {
                assemble(&context, &wanted).expect("it can be done again");
                assert!(restored(&context, &newest(&context, "vm/web")) == images.new, "{at}");
                is_clean(&context, &at);
            }
        }
    }
}
