//! A backup: the real protocol, formats and store, with a small serial deduplication between them.

use std::collections::{BTreeMap, HashMap};

use futures::future::try_join_all;
use larder_chunking::Fingerprinter;
use larder_format::Fingerprint;
use larder_format::compress::{Compression, Compressor};
use larder_format::container::{ChunkEntry, ChunkKind, ChunkRef, ContainerBuilder, seal_frame};
use larder_format::ids::{ContainerId, ContainerKind, JobId};
use larder_format::layout::Layout;
use larder_format::lease::{Done, JobKind, Lease, Pin};
use larder_format::manifest::{ContainerUsage, Manifest, SourceKind, Statistics, Summary};
use larder_format::names;
use larder_format::recipe::{NodeRef, Recipe, SegmentRef, encode_node};
use larder_format::segment::{self, ChunkRecord};
use larder_format::sketch::Sketch;
use larder_store::catalog::Version;
use larder_store::jobs::CommitError;
use larder_store::repository::random;

use crate::simulation::ledger::{Broken, Content};
use crate::simulation::node::{Node, Stop};
use crate::simulation::reading::{chunks_of, pin_of, segments};

pub const SERIES: [&str; 2] = ["one", "two"];

/// Chunks that a container of this simulation holds: few, so that there are many containers.
const CHUNKS_PER_CONTAINER: usize = 2;
const RECORDS_PER_SEGMENT: usize = 3;

/// What a container holds.
#[derive(Clone, Copy)]
pub struct Held {
    pub chunks: u32,
    pub bytes: u64,
    pub object_bytes: u64,
}

/// A container that is full, sealed, and not uploaded yet.
pub type Object = (ContainerId, Vec<u8>, Held);

/// What the job may reference.
#[derive(Default)]
pub struct Known {
    pub chunks: HashMap<Fingerprint, ChunkRecord>,
    /// Segments and nodes.
    pub metadata: HashMap<Fingerprint, ChunkRef>,
    pub held: BTreeMap<ContainerId, Held>,
}

/// Containers that are being filled, and objects that are full.
struct Packer<'a> {
    node: &'a Node,
    job: JobId,
    kind: ContainerKind,
    seq: u32,
    open: Vec<(Fingerprint, Vec<u8>)>,
    objects: Vec<Object>,
}

impl<'a> Packer<'a> {
    fn new(node: &'a Node, job: JobId, kind: ContainerKind) -> Self {
        Self { node, job, kind, seq: 0, open: Vec::new(), objects: Vec::new() }
    }

    fn push(&mut self, fingerprint: Fingerprint, bytes: &[u8]) -> Result<ChunkRef, Stop> {
        let container = ContainerId { kind: self.kind, job: self.job, seq: self.seq };
        let offset = self.open.iter().map(|(_, bytes)| bytes.len() as u32).sum();
        self.open.push((fingerprint, bytes.to_vec()));
        if self.open.len() == CHUNKS_PER_CONTAINER {
            self.close()?;
        }
        Ok(ChunkRef { fingerprint, container, offset, size: bytes.len() as u32 })
    }

    fn close(&mut self) -> Result<(), Stop> {
        if self.open.is_empty() {
            return Ok(());
        }
        let id = ContainerId { kind: self.kind, job: self.job, seq: self.seq };
        let keys = self.node.repository.keys();
        let payload: Vec<u8> = self.open.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
        let entry = |(fingerprint, bytes): &(Fingerprint, Vec<u8>)| ChunkEntry {
            fingerprint: *fingerprint,
            size: bytes.len() as u32,
            kind: ChunkKind::Plain,
        };
        let entries: Vec<_> = self.open.iter().map(entry).collect();
        let mut builder = ContainerBuilder::new(id);
        builder.push_frame(&seal_frame(keys, id, 0, &payload, &mut Compressor::new(Compression::Off))?);
        let object = builder.finish(keys, &entries)?;
        let held =
            Held { chunks: entries.len() as u32, bytes: payload.len() as u64, object_bytes: object.len() as u64 };
        self.objects.push((id, object, held));
        self.open.clear();
        self.seq += 1;
        Ok(())
    }
}

/// Backs up the next content of some series.
pub async fn backup(node: &Node) -> Result<(), Stop> {
    let (repository, ledger) = (&node.repository, &node.ledger);
    let series = SERIES[node.below(SERIES.len())];
    let job = node.new_job()?;

    let catalog = match node.one_in(4) {
        true => repository.catalog().await?,
        false => repository.catalog_of_series(series).await?,
    };
    let mut candidates = catalog.versions;
    // A series keeps the layout of its newest version. Versions of the layout `lifecycle` share nothing with other series.
    let of_series = candidates.iter().filter(|version| version.summary.series == series);
    let newest = of_series.max_by_key(|version| version.id());
    let layout = newest.map_or(ledger.layout(series), |newest| newest.summary.layout);
    let is_own = |version: &Version| layout == Layout::Standard || version.summary.series == series;
    candidates.retain(|version| version.summary.layout == layout && is_own(version));
    candidates.sort_by_key(|version| std::cmp::Reverse(version.id()));
    let mut bases = Vec::new();
    if node.one_in(4) && !candidates.is_empty() {
        bases.push(candidates.swap_remove(node.below(candidates.len())));
    }
    // With a second base where the newest version lost too much.
    let most = if layout == Layout::Lifecycle && node.one_in(3) { 2 } else { 1 };
    candidates.truncate(most - bases.len());
    bases.extend(candidates);
    let unfinished = repository.unfinished_jobs().await?;
    let key = repository.keys().series_key(series);
    let adopts: Vec<Pin> = unfinished
        .into_iter()
        .filter(|other| other.lease.kind == JobKind::Backup && other.lease.series == series)
        .map(|other| Pin { series: key, job: other.job })
        .collect();
    // What was chosen is old news by the time it is announced.
    node.linger().await;
    let lease = Lease {
        kind: JobKind::Backup,
        series: series.to_owned(),
        pins: bases.iter().map(pin_of).collect(),
        adopts: adopts.clone(),
        host: "node".to_owned(),
        process: 1,
        written_ms: node.now_ms(),
        renew_seconds: 300,
        claims: None,
        generation: None,
        layout: Some(layout),
        ended: None,
    };
    let (mut open, bases, adopts) = if node.broken == Broken::LookBeforeLease {
        let (bases, adopts) = look(node, bases, adopts).await?;
        node.linger().await;
        (repository.open_lease(job, lease).await?, bases, adopts)
    } else {
        let open = repository.open_lease(job, lease).await?;
        node.linger().await;
        let (bases, adopts) = look(node, bases, adopts).await?;
        (open, bases, adopts)
    };

    let known = known(node, job, &bases, &adopts).await?;
    node.linger().await;
    let content = ledger.edited(series, &mut node.rng());
    let (manifest, objects) = pack(node, job, series, layout, &content, &known)?;
    let mut uploads = Vec::new();
    for (id, object, _) in objects {
        let upload = async move { repository.store().create(&names::container(id), object.into()).await };
        uploads.push(upload);
    }
    if node.broken != Broken::CommitBeforeDurable {
        try_join_all(std::mem::take(&mut uploads)).await?;
    }
    if node.one_in(3) {
        repository.renew_lease(&mut open, node.now_ms()).await?;
    }
    node.linger().await;
    if node.one_in(12) {
        // Nothing had changed.
        repository.close_lease(&open, Done::nothing()).await?;
        return Ok(());
    }
    ledger.means_to_commit(job, content);
    match repository.commit(key, &manifest).await {
        Ok(created) => {
            ledger.told_committed(job, series);
            ledger.count("committed");
            if !bases.is_empty() {
                ledger.count("on a base");
            }
            if bases.len() > 1 {
                ledger.count("on two bases");
            }
            if manifest.containers.iter().any(|usage| adopts.iter().any(|pin| pin.job == usage.container.job)) {
                ledger.count("adopted");
            }
            try_join_all(uploads).await?;
            if created.all_answered || node.broken == Broken::CloseUnanswered {
                repository.close_lease(&open, Done::committed(key)).await?;
            }
        }
        Err(CommitError::Fenced) => {
            ledger.count("fenced");
            ledger.told_fenced(job);
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// What of base and adopted jobs may be used.
async fn look(node: &Node, bases: Vec<Version>, adopts: Vec<Pin>) -> Result<(Vec<Version>, Vec<Pin>), Stop> {
    let repository = &node.repository;
    let mut retained = Vec::new();
    for version in bases {
        if !repository.is_retained(pin_of(&version)).await? {
            continue;
        }
        // What was converted since it was listed has nothing in common with this job.
        let newest = repository.newest_generation(&version).await?;
        retained.extend(newest.filter(|newest| newest.summary.layout == version.summary.layout));
    }
    let mut adoptable = Vec::new();
    for pin in adopts {
        if node.broken == Broken::AdoptUnseen || repository.is_adoptable(pin).await? {
            adoptable.push(pin);
        }
    }
    Ok((retained, adoptable))
}

async fn known(node: &Node, job: JobId, bases: &[Version], adopts: &[Pin]) -> Result<Known, Stop> {
    let repository = &node.repository;
    let mut known = Known::default();
    for pin in adopts {
        for object in repository.store().list(&names::containers_of(ContainerKind::Data, pin.job)).await? {
            let id = names::parse_container(&object.name).expect("it lies below data/");
            let index = match repository.read_container_index(id).await {
                Ok(index) => index,
                Err(error) if error.is_damage() => continue,
                Err(error) => return Err(error.into()),
            };
            let held = Held {
                chunks: index.chunks.len() as u32,
                bytes: u64::from(index.payload_len),
                object_bytes: index.object_len,
            };
            known.held.insert(id, held);
            known.chunks.extend(index.chunk_refs().map(|chunk| (chunk.fingerprint, ChunkRecord { chunk, born: job })));
        }
    }
    // What the first one has counts.
    for version in bases.iter().rev() {
        let manifest = repository.manifest(version).await?;
        let (nodes, found) = segments(&chunks_of(repository), &manifest).await?;
        known.metadata.extend(nodes.iter().map(|node| (node.fingerprint, *node)));
        for (segment, records) in found {
            known.metadata.insert(segment.chunk.fingerprint, segment.chunk);
            known.chunks.extend(records.iter().map(|record| (record.chunk.fingerprint, *record)));
        }
        for usage in &manifest.containers {
            let held = Held { chunks: usage.chunks_held, bytes: usage.bytes_held, object_bytes: usage.object_bytes };
            known.held.insert(usage.container, held);
        }
    }
    Ok(known)
}

/// Makes containers of what is not known, and the manifest.
pub fn pack(
    node: &Node,
    job: JobId,
    series: &str,
    layout: Layout,
    content: &Content,
    known: &Known,
) -> Result<(Manifest, Vec<Object>), Stop> {
    let fingerprinter = Fingerprinter::new(&node.repository.keys().fingerprint);
    let mut data = Packer::new(node, job, ContainerKind::Data);
    let mut meta = Packer::new(node, job, ContainerKind::Meta);
    let mut own: HashMap<Fingerprint, ChunkRecord> = HashMap::new();
    let mut used: BTreeMap<ContainerId, (u32, u64)> = BTreeMap::new();
    let mut uses = |chunk: &ChunkRef| {
        let (chunks, bytes) = used.entry(chunk.container).or_default();
        (*chunks, *bytes) = (*chunks + 1, *bytes + u64::from(chunk.size));
    };

    let mut records = Vec::new();
    for block in content.iter() {
        let fingerprint = fingerprinter.one(block);
        let record = match known.chunks.get(&fingerprint).or_else(|| own.get(&fingerprint)) {
            Some(record) => *record,
            None => ChunkRecord { chunk: data.push(fingerprint, block)?, born: job },
        };
        own.insert(fingerprint, record);
        uses(&record.chunk);
        records.push(record);
    }
    data.close()?;

    let mut rows = Vec::new();
    for records in records.chunks(RECORDS_PER_SEGMENT) {
        let bytes = segment::encode(records, &[])?;
        let fingerprint = fingerprinter.one(&bytes);
        let chunk = match known.metadata.get(&fingerprint) {
            Some(chunk) => *chunk,
            None => meta.push(fingerprint, &bytes)?,
        };
        uses(&chunk);
        let size = records.iter().map(|record| u64::from(record.chunk.size)).sum();
        let chunks = records.len() as u32;
        rows.push(SegmentRef {
            chunk,
            bytes: size,
            chunks,
            samples: Vec::new(),
            uses: Vec::new(),
            cover: None,
            proof: None,
        });
    }
    let bytes = encode_node(&rows)?;
    let fingerprint = fingerprinter.one(&bytes);
    let chunk = match known.metadata.get(&fingerprint) {
        Some(chunk) => *chunk,
        None => meta.push(fingerprint, &bytes)?,
    };
    uses(&chunk);
    meta.close()?;

    let objects: Vec<_> = data.objects.into_iter().chain(meta.objects).collect();
    let mut held = known.held.clone();
    held.extend(objects.iter().map(|(id, _, held)| (*id, *held)));
    let containers = used.into_iter().map(|(container, (chunks, bytes))| {
        let held = held[&container];
        ContainerUsage {
            container,
            chunks_used: chunks.min(held.chunks),
            bytes_used: bytes.min(held.bytes),
            chunks_held: held.chunks,
            bytes_held: held.bytes,
            object_bytes: held.object_bytes,
        }
    });
    let node_ref = NodeRef {
        chunk,
        bytes: records.iter().map(|record| u64::from(record.chunk.size)).sum(),
        chunks: records.len() as u64,
        segments: rows.len() as u32,
        cover: None,
    };
    let now = node.now_ms();
    let summary = Summary {
        id: job,
        series: series.to_owned(),
        base: None,
        time_ms: now,
        started_ms: now,
        ended_ms: now,
        host: "node".to_owned(),
        user: String::new(),
        tags: Vec::new(),
        paths: Vec::new(),
        program: "simulation".to_owned(),
        source: SourceKind::Stream,
        statistics: Statistics::default(),
        attempt: random(node.repository.entropy())?,
        sketch: Sketch::default(),
        layout,
        more_bases: Vec::new(),
    };
    let manifest = Manifest {
        summary,
        data: Recipe { nodes: vec![node_ref] },
        metadata: Recipe::default(),
        containers: containers.collect(),
    };
    Ok((manifest, objects))
}
