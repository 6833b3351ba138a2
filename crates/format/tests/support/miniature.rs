//! A whole repository of one version, small enough to keep in a map: written with this crate alone, and read back the same way.
//!
//! It is not how the real writer lays things out (its chunks are cut at fixed lengths, its segments are tiny), but everything
//! is there: two kinds of containers with several frames, segments, a recipe of two nodes, blocks, leases, a forgotten mark's
//! absence. [`read`] is the order of reading that `docs/format.md` describes.

#![allow(dead_code, unreachable_pub, reason = "shared by a test and an example, which use different parts")]

use std::collections::BTreeMap;
use std::sync::Arc;

use larder_chunking::{Algorithm, ChunkerParams};
use larder_format::compress::{Compression, Compressor, Decompressor};
use larder_format::config::{Config, UnverifiedConfig};
use larder_format::container::{
    ChunkEntry, ChunkKind, ChunkRef, ContainerBuilder, ContainerIndex, ContainerSealer, seal_frame,
};
use larder_format::content::{self, ContentRoots};
use larder_format::entry::{Entry, EntryKind, Extent, Timestamp, Xattr};
use larder_format::ids::{ContainerId, ContainerKind, DomainId, JobId, KeyId, RepositoryId};
use larder_format::key_file::{self, KdfCost, KeyFields, MachineKey, Unlock};
use larder_format::keys::{Keys, MasterKey};
use larder_format::lease::{Done, JobKind, Lease};
use larder_format::manifest::{ContainerUsage, Manifest, Register, SourceKind, Statistics, Summary};
use larder_format::metadata::{Block, BlockBuilder, decode_block};
use larder_format::padding::Padding;
use larder_format::recipe::{self, ContainerUse, Cover, NodeRef, Recipe, SegmentRef};
use larder_format::roles::Roles;
use larder_format::segment::{self, ChunkRecord};
use larder_format::{Fingerprint, names};

pub const PASSWORD: &str = "miniature";
pub const SERIES: &str = "miniature";
const DOMAIN: &str = "laptop";
const MASTER: MasterKey = MasterKey([11; 32]);
const REPOSITORY: RepositoryId = RepositoryId([12; 16]);
const KEY: KeyId = KeyId([13; 8]);
/// The key file of a machine that may restore.
pub const MACHINE: MachineKey = MachineKey { repository: REPOSITORY, key: KeyId([21; 8]), secret: [22; 32] };
const JOB: JobId = JobId([1, 0x9a, 0, 0, 0, 0, 0x70, 0, 0x80, 0, 0, 0, 0, 0, 0, 14]);
const FRAME: usize = 8 << 10;

/// Every object by its name.
pub type Objects = BTreeMap<String, Vec<u8>>;

/// What is in the version: entries, and the stored bytes of those that have any.
pub fn tree() -> Vec<(Entry, Vec<u8>)> {
    let at = |seconds, nanos| Timestamp { seconds, nanos };
    let entry = |path: &[u8], kind| Entry {
        path: path.to_vec(),
        kind,
        mode: 0o644,
        uid: 0,
        gid: 0,
        user: Some(Arc::from("root")),
        group: None,
        mtime: at(1_600_000_000, 123_456_789),
        ctime: at(1_600_000_001, 0),
        atime: None,
        inode: 5,
        xattrs: Vec::new(),
    };
    let file =
        |path: &[u8], bytes: Vec<u8>| (entry(path, EntryKind::File { size: bytes.len() as u64, extents: None }), bytes);
    let other = |path: &[u8], kind| (entry(path, kind), Vec::new());
    // Repeats itself, so that one chunk is found in two places; random enough not to be one chunk.
    let mixed: Vec<u8> =
        (0..60_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8 ^ (n / 7000) as u8).collect();
    let extents = vec![Extent { offset: 8192, length: 4096 }, Extent { offset: 1 << 20, length: 100 }];
    let sparse = entry(b"tree/sparse", EntryKind::File { size: 3 << 20, extents: Some(extents) });
    let mut attributed = file(b"tree/attributed", b"with attributes".to_vec());
    attributed.0.xattrs = vec![Xattr { name: b"user.larder".to_vec(), value: b"\x00\xffvalue".to_vec() }];
    let mut folder = other(b"tree", EntryKind::Directory);
    folder.0.mode = 0o750;
    let mut locked = other(b"tree/sub", EntryKind::Directory);
    (locked.0.mode, locked.0.mtime) = (0o555, at(-5, 5));
    vec![
        folder,
        attributed,
        file(b"tree/empty", Vec::new()),
        other(b"tree/fifo", EntryKind::Fifo),
        file(b"tree/mixed", mixed.clone()),
        file(b"tree/mixed-again", mixed[..30_000].to_vec()),
        (sparse, [vec![7; 4096], vec![8; 100]].concat()),
        locked,
        other(b"tree/sub/hard", EntryKind::HardLink { target: b"tree/attributed".to_vec() }),
        other(b"tree/sub/link", EntryKind::Symlink { target: b"../mixed".to_vec() }),
        file(b"tree/\xfftext", b"a name that is not UTF-8".to_vec()),
    ]
}

/// The domain of the only version.
fn domain(keys: &Keys) -> DomainId {
    keys.domain_id(DOMAIN, 0)
}

/// Collects chunks of one kind into containers.
struct Writer<'a> {
    keys: &'a Keys,
    id: ContainerId,
    frame: Vec<u8>,
    /// Each with the number of chunks before it and in it.
    frames: Vec<(usize, usize, Vec<u8>)>,
    chunks: Vec<ChunkEntry>,
    payload: u32,
    known: BTreeMap<Fingerprint, ChunkRef>,
}

impl<'a> Writer<'a> {
    fn new(keys: &'a Keys, kind: ContainerKind) -> Self {
        let id = ContainerId { kind, job: JOB, seq: 0 };
        Self { keys, id, frame: vec![], frames: vec![], chunks: vec![], payload: 0, known: BTreeMap::new() }
    }

    fn add(&mut self, bytes: &[u8]) -> ChunkRef {
        let fingerprint = Fingerprint(*blake3::keyed_hash(self.keys.fingerprint(), bytes).as_bytes());
        if let Some(known) = self.known.get(&fingerprint) {
            return *known;
        }
        let size = bytes.len() as u32;
        let place = ChunkRef { fingerprint, container: self.id, offset: self.payload, size };
        self.chunks.push(ChunkEntry { fingerprint, size, kind: ChunkKind::Plain });
        self.frame.extend_from_slice(bytes);
        self.payload += size;
        if self.frame.len() >= FRAME {
            self.close_frame();
        }
        self.known.insert(fingerprint, place);
        place
    }

    fn close_frame(&mut self) {
        let from = self.frames.last().map_or(0, |(from, count, _)| from + count);
        self.frames.push((from, self.chunks.len() - from, std::mem::take(&mut self.frame)));
    }

    fn finish(mut self) -> (ContainerId, Vec<u8>, u32, u32) {
        if !self.frame.is_empty() {
            self.close_frame();
        }
        let mut compressor = Compressor::new(Compression::DEFAULT);
        let mut builder = ContainerBuilder::new();
        let sealer = ContainerSealer::new(self.keys, self.id, domain(self.keys), [20; 32]).expect("all keys");
        for (number, (from, count, frame)) in self.frames.iter().enumerate() {
            let chunks = &self.chunks[*from..from + count];
            let frame = seal_frame(&sealer, number as u32, frame, chunks, &mut compressor);
            builder.push_frame(&frame.expect("frames are small"));
        }
        let count = self.chunks.len() as u32;
        let object = builder.finish(&sealer, &self.chunks, Padding::for_chunks(3000));
        (self.id, object.expect("the chunks are the frames'"), count, self.payload)
    }
}

fn segment_of(meta: &mut Writer<'_>, chunks: &[ChunkRef], cover: Option<Cover>) -> SegmentRef {
    let records: Vec<_> = chunks.iter().map(|chunk| ChunkRecord { chunk: *chunk, born: JOB }).collect();
    let bytes = chunks.iter().map(|chunk| u64::from(chunk.size)).sum();
    let used = ContainerUse { container: chunks[0].container, chunks: chunks.len() as u32, bytes };
    let sample = u64::from_le_bytes(*chunks[0].fingerprint.0.first_chunk().expect("32 bytes"));
    SegmentRef {
        content: content::of_segment(&records, &[], cover.as_ref(), None),
        chunk: meta.add(&segment::encode(&records, &[]).expect("valid")),
        bases: Vec::new(),
        bytes,
        chunks: records.len() as u32,
        samples: vec![sample],
        uses: vec![used],
        cover,
        proof: None,
    }
}

fn node_of(meta: &mut Writer<'_>, segments: &[SegmentRef]) -> NodeRef {
    NodeRef {
        content: content::of_node(segments),
        chunk: meta.add(&recipe::encode_node(segments).expect("valid")),
        bytes: segments.iter().map(|segment| segment.bytes).sum(),
        chunks: segments.iter().map(|segment| u64::from(segment.chunks)).sum(),
        segments: segments.len() as u32,
        cover: content::cover_of(segments),
    }
}

/// Makes the repository.
pub fn write() -> Objects {
    let keys = Keys::derive(&MASTER);
    let mut objects = Objects::new();
    let chunker = ChunkerParams::with_average(Algorithm::MinCdc, 4096);
    let config = Config { repository: REPOSITORY, created_ms: 1_600_000_000_000, chunker, page_cuts: true };
    let fields = KeyFields {
        cost: Some(KdfCost::TEST),
        salt: [15; 32],
        user: "root".to_owned(),
        host: "miniature".to_owned(),
        created_ms: 1_600_000_000_000,
        roles: Roles::ALL,
        domain: String::new(),
        epoch: 0,
    };
    let config = config.encode(&keys).expect("valid");
    let unlock = Unlock::Password(PASSWORD.as_bytes());
    let wrapped = key_file::wrap(&keys, keys.secrets(), unlock, &fields, KEY, REPOSITORY, &config);
    objects.insert(names::key(KEY), wrapped.expect("the cost is in bounds"));
    // A machine that may restore, and has a key file.
    let fields = KeyFields { cost: None, roles: Roles::RESTORE, ..fields };
    let restore = keys.secrets().for_roles(Roles::RESTORE, DomainId::DEFAULT, None).expect("all keys");
    let unlock = Unlock::File(&MACHINE.secret);
    let wrapped = key_file::wrap(&keys, &restore, unlock, &fields, MACHINE.key, REPOSITORY, &config);
    objects.insert(names::key(MACHINE.key), wrapped.expect("short"));
    objects.insert(names::CONFIG.to_owned(), config);

    // Contents in the order of the entries; cutting begins again at each file.
    let tree = tree();
    let mut data = Writer::new(&keys, ContainerKind::Data);
    let data_chunks: Vec<_> =
        tree.iter().flat_map(|(_, content)| content.chunks(3000)).map(|chunk| data.add(chunk)).collect();
    let mut meta = Writer::new(&keys, ContainerKind::Meta);
    let segments: Vec<_> = data_chunks.chunks(7).map(|chunks| segment_of(&mut meta, chunks, None)).collect();
    let data_nodes: Vec<_> = segments.chunks(3).map(|segments| node_of(&mut meta, segments)).collect();

    // Blocks of two entries, each block a chunk of the metadata stream.
    let block = |entries: &[(Entry, Vec<u8>)]| -> Block {
        let mut builder = BlockBuilder::new();
        assert!(entries.iter().all(|(entry, _)| builder.push(entry) == Ok(None)), "two entries do not fill a block");
        builder.finish().expect("entries")
    };
    let blocks: Vec<_> = tree.chunks(2).map(block).collect();
    let mut metadata_segments = Vec::new();
    for group in blocks.chunks(4) {
        let chunks: Vec<_> = group.iter().map(|block| meta.add(&block.bytes)).collect();
        let data_bytes = group.iter().map(|block| block.data_bytes).sum();
        let cover = Cover { first_path: group[0].first_path.clone(), data_bytes };
        metadata_segments.push(segment_of(&mut meta, &chunks, Some(cover)));
    }
    let metadata_nodes = vec![node_of(&mut meta, &metadata_segments)];

    let mut containers = Vec::new();
    for writer in [data, meta] {
        let (container, object, chunks_held, bytes_held) = writer.finish();
        let (object_bytes, bytes_held) = (object.len() as u64, u64::from(bytes_held));
        let (chunks_used, bytes_used) = (chunks_held, bytes_held);
        containers.push(ContainerUsage { container, chunks_used, bytes_used, chunks_held, bytes_held, object_bytes });
        objects.insert(names::container(container), object);
    }
    let lease = Lease {
        kind: JobKind::Backup,
        series: SERIES.to_owned(),
        pins: Vec::new(),
        adopts: Vec::new(),
        host: "miniature".to_owned(),
        process: 1,
        written_ms: 1_600_000_000_000,
        renew_seconds: 300,
        claims: None,
        generation: None,
        layout: Some(larder_format::layout::Layout::Standard),
        ended: None,
        domain: domain(&keys),
        is_signed: true,
    };
    objects.insert(names::lease(JOB, 0), lease.encode(&keys, JOB, 0, [16; 32]).expect("short"));
    let series = keys.series_key_in(domain(&keys), SERIES);
    let done = Done::committed(series).with_containers(1, 1);
    objects.insert(names::lease_done(JOB), done.encode(&keys, domain(&keys), JOB, [17; 32]).expect("short"));
    let (data, metadata) = (Recipe { nodes: data_nodes }, Recipe { nodes: metadata_nodes });
    let summary = Summary {
        id: JOB,
        series: SERIES.to_owned(),
        base: None,
        time_ms: 1_600_000_000_000,
        started_ms: 1_600_000_000_000,
        ended_ms: 1_600_000_001_000,
        host: "miniature".to_owned(),
        user: "root".to_owned(),
        tags: vec!["golden".to_owned()],
        paths: vec![b"/tree".to_vec()],
        program: "larder-format tests".to_owned(),
        source: SourceKind::Tree,
        statistics: Statistics { files_new: 6, ..Statistics::default() },
        attempt: [18; 16],
        sketch: larder_format::sketch::Sketch::default(),
        layout: larder_format::layout::Layout::Standard,
        more_bases: Vec::new(),
        domain: domain(&keys),
        is_signed: true,
        roots: ContentRoots::of(&data, &metadata),
        witness: None,
        domain_name: String::new(),
        domain_epoch: 0,
        origin: None,
    };
    let manifest = Manifest { summary, data, metadata, containers };
    objects.insert(names::version(series, JOB, 0), manifest.encode(&keys, series, 0, [19; 32]).expect("valid"));
    objects
}

/// Reads chunks, and checks that each is the one its record names.
struct Chunks<'a> {
    keys: &'a Keys,
    objects: &'a Objects,
}

impl Chunks<'_> {
    fn get(&self, chunk: &ChunkRef) -> Result<Vec<u8>, String> {
        let object = self.objects.get(&names::container(chunk.container)).ok_or("a container is missing")?;
        let index = ContainerIndex::decode(self.keys, chunk.container, object, object.len() as u64)
            .map_err(|error| error.to_string())?;
        let frame = index.frame_at(chunk.offset).ok_or("a chunk lies outside of its container")?;
        let range = frame.object_range();
        let mut sealed = object[range.start as usize..range.end as usize].to_vec();
        let mut raw = vec![0; frame.entry.raw_len as usize];
        index
            .opener()
            .open_frame(self.keys, frame, &mut sealed, &mut raw, &mut Decompressor::new())
            .map_err(|error| error.to_string())?;
        let from = (chunk.offset - frame.payload_offset) as usize;
        let bytes = raw.get(from..from + chunk.size as usize).ok_or("a chunk lies across frames")?;
        if blake3::keyed_hash(self.keys.fingerprint(), bytes).as_bytes() != &chunk.fingerprint.0 {
            return Err("a chunk has another fingerprint".to_owned());
        }
        Ok(bytes.to_vec())
    }

    fn stream(&self, recipe: &Recipe) -> Result<Vec<Vec<u8>>, String> {
        let mut chunks = Vec::new();
        for node in &recipe.nodes {
            let segments = recipe::decode_node(&self.get(&node.chunk)?).map_err(|error| error.to_string())?;
            content::check_node(node, &segments).map_err(|error| error.to_string())?;
            for row in &segments {
                let segment = segment::decode(&self.get(&row.chunk)?).map_err(|error| error.to_string())?;
                content::check_segment(row, &segment).map_err(|error| error.to_string())?;
                for record in segment.records {
                    chunks.push(self.get(&record.chunk)?);
                }
            }
        }
        Ok(chunks)
    }
}

/// Reads the only version back: from the password to the entries and their contents.
pub fn read(objects: &Objects) -> Result<Vec<(Entry, Vec<u8>)>, String> {
    read_with(objects, KEY, Unlock::Password(PASSWORD.as_bytes()))
}

/// The same with any key.
pub fn read_with(objects: &Objects, key: KeyId, unlock: Unlock<'_>) -> Result<Vec<(Entry, Vec<u8>)>, String> {
    let get = |name: &str| objects.get(name).ok_or_else(|| format!("{name} is missing"));
    let config = UnverifiedConfig::decode(get(names::CONFIG)?).map_err(|error| error.to_string())?;
    let secrets = key_file::unwrap(get(&names::key(key))?, unlock, key, config.claimed_repository());
    let (_, keys) = config.open(secrets.map_err(|error| error.to_string())?).map_err(|error| error.to_string())?;
    let series = keys.series_key_in(domain(&keys), SERIES);
    let register = Manifest::decode(&keys, series, JOB, 0, get(&names::version(series, JOB, 0))?);
    let Register::Committed(manifest) = register.map_err(|error| error.to_string())? else {
        return Err("the version was retired".to_owned());
    };
    let chunks = Chunks { keys: &keys, objects };
    let mut data = chunks.stream(&manifest.data)?.concat().into_iter();
    let mut tree = Vec::new();
    for block in chunks.stream(&manifest.metadata)? {
        for entry in decode_block(&block).map_err(|error| error.to_string())? {
            let content: Vec<u8> = data.by_ref().take(entry.stored_bytes() as usize).collect();
            tree.push((entry, content));
        }
    }
    Ok(tree)
}
