//! What the tests of this folder and the fuzz targets share: an example of every structure, a forger, and the checks.
//!
//! [`Forger`] seals whatever it is given under the keys of a known master key, so that hostile *contents* of sealed objects
//! can be tried as well as damaged ones. It derives its keys on its own, from what `docs/format.md` says, and so also checks
//! that page: a sealed object of its making opens only while page and code agree.

#![allow(dead_code, unreachable_pub, unused_imports, reason = "every user of this module uses a part of it")]

pub mod checks;
mod fleet;
mod forger;

use std::sync::{Arc, LazyLock};

pub use fleet::{FLEET_TASK, FLEET_WORKER, fleet, scan_item};
pub use forger::{ContainerParts, Forger, RunParts, WRAP};
use larder_chunking::{Algorithm, ChunkerParams};
use larder_format::Fingerprint;
use larder_format::closed_domain::{ClosedDomain, VersionDigest};
use larder_format::compress::Codec;
use larder_format::config::Config;
use larder_format::container::{ChunkEntry, ChunkKind, ChunkRef, FrameEntry};
use larder_format::content::ContentRoots;
use larder_format::entry::{Entry, EntryKind, Extent, Timestamp, Xattr};
use larder_format::ids::{
    ContainerId, ContainerKind, ContentDigest, DomainId, JobId, KeyId, PageRunId, RepositoryId, RunId, SeriesKey,
};
use larder_format::index_manifest::{
    IndexHead, IndexManifest, IndexedVersion, PassStatistics, Queued, QueuedObject, Reason, RunRef, Table, VersionState,
};
use larder_format::index_tables::{ContainerFacts, ContainerState, Lifespan, SeriesLifespans};
use larder_format::key_file::{self, KdfCost, KeyFields, MachineKey, Unlock};
use larder_format::keys::{Keys, MasterKey, Secret};
use larder_format::layout::Layout;
use larder_format::lease::{Done, JobKind, Lease, Pin};
use larder_format::manifest::{ContainerUsage, Manifest, SourceKind, Statistics, Summary};
use larder_format::mark::Forgotten;
use larder_format::recipe::{ContainerUse, Cover, NodeRef, Proof, Recipe, SegmentRef};
use larder_format::roles::Roles;
use larder_format::segment::{ChunkRecord, Superchunk};
use larder_format::settings::SeriesSettings;
use larder_format::volume_log::{Event, FramesEvent, SlotUse, VolumeChange};
use larder_format::volume_manifest::{ContainerRange, PageRunRef, Parent, SnapshotEntry, VolumeEntry, VolumeManifest};
use larder_format::volume_map::{BLOCK_LEN, MapItem, Mapping, Place};

/// The contents of a volume store's manifest, number 7.
pub fn volume_manifest() -> VolumeManifest {
    let run = PageRunRef { id: PageRunId([3; 16]), table: 1, records: 10, object_bytes: 12_288 };
    VolumeManifest {
        number: 7,
        log_from: 99,
        log_slot: 3,
        log_salt: [6; 16],
        slots: 8,
        slot_bytes: 64 << 20,
        next_container: 12,
        next_version: 1000,
        next_volume: 3,
        volumes: vec![
            VolumeEntry { id: 1, name: "disk-1".into(), size: 1 << 30, created_ms: 5, parent: None },
            VolumeEntry { id: 2, parent: Some(Parent::Snapshot(0)), ..volume() },
        ],
        runs: vec![run],
        block_len: BLOCK_LEN,
        next_snapshot: 1,
        snapshots: vec![snapshot()],
        retired: vec![ContainerRange { first: 0, last: 3 }],
    }
}

fn volume() -> VolumeEntry {
    let parent = Some(Parent::Outside("version".into()));
    VolumeEntry { id: 4, name: "disk".into(), size: 1 << 20, created_ms: 7, parent }
}

fn snapshot() -> SnapshotEntry {
    let (name, mark) = ("monday".into(), Some("backup".into()));
    SnapshotEntry { id: 0, volume: 1, name, version: 300, size: 1 << 20, created_ms: 8, mark }
}

/// Events of a volume store's log.
pub fn volume_events() -> Vec<Event> {
    let chunk = ChunkEntry { fingerprint: Fingerprint([1; 32]), size: 1000, kind: ChunkKind::Plain };
    let frame = FrameEntry { codec: Codec::Zstd, raw_len: 1000, sealed_len: 432 };
    let place = Some(Place { container: 3, offset: 70_000 });
    let half = MapItem { place, skip: 12, length: 0x8000, tag: [1, 2, 3, 4] };
    let mapping = Mapping { mac: Some([7; 16]), items: vec![half, MapItem::zeros(0x8000)] };
    vec![
        Event::Frames(FramesEvent { container: 3, first: 7, frames: vec![frame], chunks: vec![chunk] }),
        Event::Wrote { volume: 1, block: 77, version: 300, mapping },
        Event::NextSlot(SlotUse { slot: 3, salt: [4; 16] }),
        Event::Volume(VolumeChange::Volume(volume())),
        Event::Volume(VolumeChange::Snapshot(snapshot())),
        Event::Volume(VolumeChange::SnapshotDeleted(0)),
        Event::Volume(VolumeChange::Deleted(4)),
    ]
}

/// A page of one chunk, before it is sealed; see `checks::volume_page`.
pub fn volume_page() -> Vec<u8> {
    [&[0, 1, 1, 0][..], &[5; 20], &[1, 0, 0, 0, 2, 0, 0, 0]].concat()
}

/// A page of one count.
pub fn volume_counts_page() -> Vec<u8> {
    [&[2, 1, 1, 0][..], &[5; 8], &[1, 0, 0, 0]].concat()
}

pub const MASTER: [u8; 32] = [1; 32];
pub const REPOSITORY: RepositoryId = RepositoryId([4; 16]);
/// The key of the series `host:/home` under [`MASTER`].
pub const SERIES: SeriesKey =
    SeriesKey([0x2a, 0xbd, 0x62, 0x19, 0x4f, 0xc4, 0x23, 0xe7, 0x7e, 0xdf, 0x5b, 0x1a, 0x85, 0xaa, 0xb3, 0xd9]);
pub const JOB: JobId = JobId([7; 16]);
/// Random bytes for salts.
pub const RANDOM: [u8; 32] = [9; 32];
/// The name of a domain that was closed.
pub const CLOSED_DOMAIN: &str = "laptop";
pub const BASE: JobId = JobId([5; 16]);

pub fn keys() -> Keys {
    static KEYS: LazyLock<Keys> = LazyLock::new(|| Keys::derive(&MasterKey(MASTER)));
    KEYS.clone()
}

/// The object that forged runs pretend to be.
pub const RUN: RunId = RunId { job: JOB, seq: 3 };

/// A run of five records in two blocks: keys of 2 bytes, values of 3, the fourth a tombstone.
pub fn run_parts() -> RunParts {
    let even = [&[0, 3, 0, 0, 0][..], b"aaabac", &[1; 9]].concat();
    let uneven = [&[1, 2, 0, 0, 0][..], b"baca", &[[3, 0, 0, 0], [3, 0, 0, 128]].concat(), &[2; 3]].concat();
    // A filter that admits everything.
    let filter = [&[0; 8][..], &[255], &[0; 4]].concat();
    let fence = |key: &[u8], plain: &[u8], records: u8| [key, &[plain.len() as u8 + 32, records]].concat();
    let fences = [fence(b"aa", &even, 3), fence(b"ba", &uneven, 2), b"ca".to_vec()].concat();
    let mut head = [0; 24];
    head[..5].copy_from_slice(&[1, 2, 3, 0, 2]);
    (head[8], head[16]) = (5, 1);
    RunParts { blocks: vec![even, uneven], filter, fences, head, lens: [None, None] }
}

/// A manifest of the index with a row of every kind.
pub fn index_manifest() -> IndexManifest {
    let head = IndexHead {
        number: 5,
        pass: JOB,
        attempt: [4; 16],
        time_ms: 1_790_000_000_000,
        host: "host".to_owned(),
        program: "larder 0.1.0".to_owned(),
        next_version: 9,
        next_container: 1000,
        next_age: 12,
        statistics: PassStatistics { chunks: 5, ..PassStatistics::default() },
        rebuilt: None,
        dropped: None,
        missing: None,
        left: None,
        searched: None,
        unlisted: None,
        unread: None,
    };
    let layout = larder_format::layout::Layout::Standard;
    let version = |number, state| IndexedVersion {
        number,
        series: SERIES,
        job: BASE,
        generation: 1,
        state,
        layout,
        is_arranged: false,
        is_carried: false,
        is_proved: false,
        is_settled: true,
        seen_ms: 1_790_000_000_000,
    };
    let run = |table, age| RunRef {
        table,
        age,
        id: RUN,
        first: 5,
        last: 1 << 63,
        records: 1000,
        tombstones: 7,
        object_bytes: 28_300,
        tail_bytes: 1200,
        filter_bytes: 900,
    };
    let queued = |what, reason| Queued { what, reason, decided: 4 };
    IndexManifest {
        head,
        versions: vec![
            version(0, VersionState::Collected),
            version(3, VersionState::Forgotten),
            version(8, VersionState::Retained),
        ],
        runs: vec![run(Table::Chunks, 3), run(Table::Chunks, 11), run(Table::Streams, 2)],
        queue: vec![
            queued(QueuedObject::Container(CONTAINER), Reason::Moved),
            queued(QueuedObject::Generation { series: SERIES, job: JOB, generation: 1 }, Reason::Superseded),
            queued(QueuedObject::Job { series: SERIES, job: BASE }, Reason::Collected),
            queued(QueuedObject::Run(RUN), Reason::Superseded),
            queued(QueuedObject::Index(3), Reason::Superseded),
        ],
    }
}

/// The two plaintext parts of a sealed manifest of the index: the head and the body.
pub fn index_manifest_parts() -> [Vec<u8>; 2] {
    let sealed = index_manifest().encode(&keys(), RANDOM).expect("valid");
    let [head, body] = &open(&larder_format::names::index(5), &sealed)[..] else { panic!("it has two parts") };
    [head.clone(), body.clone()]
}

/// A container's record in the index.
pub fn container_facts() -> ContainerFacts {
    let lifespans = vec![Lifespan { first: 0, last: Some(7) }, Lifespan { first: 300, last: None }];
    ContainerFacts {
        id: CONTAINER,
        state: ContainerState::Live,
        layout: larder_format::layout::Layout::Standard,
        chunks: 2000,
        bytes: 8 << 20,
        object_bytes: 4_000_000,
        retired_chunks: 3,
        retired_bytes: 12_000,
        users: vec![SeriesLifespans { series: SERIES, lifespans }],
        forwards: vec![0, 5, 1000],
    }
}

/// A container of three chunks in two frames.
pub fn container_parts() -> ContainerParts {
    let sizes = [300u64, 200, 41];
    let chunk_table = [vec![2, 0], vec![7; 96], sizes.iter().flat_map(|size| varint(*size)).collect()].concat();
    let frame = |raw: usize| [vec![0], varint(raw as u64), varint(raw as u64 + 32)].concat();
    ContainerParts {
        frames: vec![vec![1; 500], vec![2; 41]],
        chunk_table,
        frame_table: [vec![2], frame(500), frame(41)].concat(),
        chunk_count: 3,
        frame_count: 2,
        payload_len: 541,
        padding: vec![0; 100],
        ..ContainerParts::default()
    }
}

/// The container that forged containers pretend to be.
pub const CONTAINER: ContainerId = ContainerId { kind: ContainerKind::Data, job: JOB, seq: 3 };

/// LEB128, as `wire.rs` writes it.
pub fn varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

pub fn config() -> Config {
    Config {
        repository: REPOSITORY,
        created_ms: 1_790_000_000_000,
        chunker: ChunkerParams::with_average(Algorithm::MinCdc, 4096),
        page_cuts: true,
    }
}

pub fn lease() -> Lease {
    let pin = |byte| Pin { series: SeriesKey([byte; 16]), job: JobId([byte + 1; 16]) };
    Lease {
        kind: JobKind::Backup,
        series: "host:/home".to_owned(),
        pins: vec![pin(3)],
        adopts: vec![pin(5), pin(7)],
        host: "host".to_owned(),
        process: 99,
        written_ms: 1_790_000_000_000,
        renew_seconds: 300,
        claims: None,
        generation: None,
        layout: Some(Layout::Lifecycle),
        ended: Some(true),
        domain: DomainId::DEFAULT,
        is_signed: true,
    }
}

pub fn done() -> Done {
    Done { is_signed: true, ..Done::committed(SERIES).with_containers(12, 3) }
}

pub fn forgotten() -> Forgotten {
    Forgotten { time_ms: 1_790_000_000_000, host: "host".to_owned(), reason: "alice: not among the last 7".to_owned() }
}

pub fn closed_domain() -> ClosedDomain {
    ClosedDomain {
        time_ms: 1_790_000_000_000,
        host: "host".to_owned(),
        reason: "the laptop was stolen".to_owned(),
        name: CLOSED_DOMAIN.to_owned(),
        epoch: 0,
        versions: vec![VersionDigest([7; 16]), VersionDigest([8; 16])],
    }
}

pub fn settings() -> SeriesSettings {
    SeriesSettings {
        layout: Some(Layout::Lifecycle),
        holes_percent: Some(20),
        time_ms: 1_790_000_000_000,
        host: "host".to_owned(),
        series: "host:/home".to_owned(),
        arrange_every: None,
    }
}

pub fn container_id(kind: ContainerKind, job: JobId, seq: u32) -> ContainerId {
    ContainerId { kind, job, seq }
}

/// Records in several containers, runs and ages, of even and of uneven sizes.
pub fn records() -> Vec<ChunkRecord> {
    let place = |job, seq, offset, size, born, byte| ChunkRecord {
        chunk: ChunkRef {
            fingerprint: Fingerprint([byte; 32]),
            container: container_id(ContainerKind::Data, job, seq),
            offset,
            size,
        },
        born,
    };
    vec![
        place(JOB, 0, 0, 4000, JOB, 1),
        place(JOB, 0, 4000, 5000, JOB, 2),
        place(JOB, 0, 9000, 300, BASE, 3),
        place(BASE, 7, 70_000, 4000, BASE, 4),
        place(BASE, 7, 74_000, 4000, BASE, 5),
        place(JOB, 1, 0, 1, JOB, 6),
    ]
}

/// A superchunk among [`records`].
pub fn superchunks() -> Vec<Superchunk> {
    vec![Superchunk { first: 3, records: 2, mac: [0xcd; 16] }]
}

pub fn segments() -> Vec<SegmentRef> {
    let chunk = |seq, offset, byte| ChunkRef {
        fingerprint: Fingerprint([byte; 32]),
        container: container_id(ContainerKind::Meta, JOB, seq),
        offset,
        size: 1000,
    };
    let used =
        |seq, chunks, bytes| ContainerUse { container: container_id(ContainerKind::Data, BASE, seq), chunks, bytes };
    vec![
        SegmentRef {
            chunk: chunk(0, 0, 1),
            bases: Vec::new(),
            content: ContentDigest([0xc1; 32]),
            bytes: 2 << 20,
            chunks: 512,
            samples: vec![7, u64::MAX],
            uses: vec![used(3, 500, 2_000_000), used(4, 12, 97_152)],
            cover: None,
            proof: Some(Proof { mac: [0xab; 16], cutter: 1, tail: vec![4096, 300] }),
        },
        SegmentRef {
            chunk: chunk(1, 1000, 2),
            bases: vec![chunk(0, 70_000, 3), chunk(2, 17, 4)],
            content: ContentDigest([0xc2; 32]),
            bytes: 40_000,
            chunks: 3,
            samples: vec![9],
            uses: vec![used(3, 3, 40_000)],
            cover: Some(Cover { first_path: b"home/\xff".to_vec(), data_bytes: 1 << 40 }),
            proof: None,
        },
    ]
}

/// One entry of every kind, with everything an entry can have.
pub fn entries() -> Vec<Entry> {
    let plain = |path: &[u8], kind| Entry {
        path: path.to_vec(),
        kind,
        mode: 0o644,
        uid: 1000,
        gid: 100,
        user: Some(Arc::from("alice")),
        group: Some(Arc::from("users")),
        mtime: Timestamp { seconds: 1_700_000_000, nanos: 999_999_999 },
        ctime: Timestamp { seconds: 1_700_000_000, nanos: 999_999_999 },
        atime: None,
        inode: 77,
        xattrs: Vec::new(),
    };
    let sparse = EntryKind::File {
        size: 1 << 30,
        extents: Some(vec![Extent { offset: 4096, length: 8192 }, Extent { offset: 1 << 20, length: 1 }]),
    };
    vec![
        Entry { mode: 0o1777, uid: 0, gid: 0, user: None, group: None, ..plain(b"dir", EntryKind::Directory) },
        plain(b"dir/block", EntryKind::BlockDevice { major: 8, minor: 1 }),
        plain(b"dir/char", EntryKind::CharDevice { major: 1, minor: 3 }),
        plain(b"dir/fifo", EntryKind::Fifo),
        plain(b"dir/file", EntryKind::File { size: 5, extents: None }),
        plain(b"dir/link", EntryKind::HardLink { target: b"dir/file".to_vec() }),
        Entry {
            mtime: Timestamp { seconds: -1, nanos: 1 },
            ctime: Timestamp { seconds: i64::MAX, nanos: 0 },
            atime: Some(Timestamp { seconds: i64::MIN, nanos: 5 }),
            inode: u64::MAX,
            ..plain(b"dir/sparse", sparse)
        },
        Entry {
            xattrs: vec![
                Xattr { name: b"security.capability".to_vec(), value: vec![1, 0, 0, 2] },
                Xattr { name: b"user.\xff".to_vec(), value: Vec::new() },
            ],
            ..plain(b"dir/\xff", EntryKind::Symlink { target: b"../\xfe".to_vec() })
        },
    ]
}

pub fn manifest() -> Manifest {
    let container = container_id(ContainerKind::Meta, JOB, 0);
    let chunk = ChunkRef { fingerprint: Fingerprint([8; 32]), container, offset: 5, size: 6 };
    let content = ContentDigest([0xc3; 32]);
    let node = NodeRef { chunk, content, bytes: 1000, chunks: 3, segments: 1, cover: None };
    let cover = Some(Cover { first_path: b"home".to_vec(), data_bytes: 1000 });
    let data = Recipe { nodes: vec![node.clone()] };
    let metadata = Recipe { nodes: vec![NodeRef { cover, ..node }] };
    let summary = Summary {
        id: JOB,
        series: "host:/home".to_owned(),
        base: Some(BASE),
        time_ms: 1_790_000_000_000,
        started_ms: 1_790_000_000_001,
        ended_ms: 1_790_000_000_002,
        host: "host".to_owned(),
        user: "alice".to_owned(),
        tags: vec!["daily".to_owned()],
        paths: vec![b"/home/\xff".to_vec()],
        program: "larder 0.1.0".to_owned(),
        source: SourceKind::Tree,
        statistics: Statistics { files_new: 3, stored_bytes: 77, ..Statistics::default() },
        attempt: [4; 16],
        sketch: larder_format::sketch::Sketch::default(),
        layout: larder_format::layout::Layout::Standard,
        more_bases: Vec::new(),
        domain: DomainId::DEFAULT,
        is_signed: true,
        roots: ContentRoots::of(&data, &metadata),
        witness: None,
        domain_name: String::new(),
        domain_epoch: 0,
        origin: None,
    };
    let usage =
        ContainerUsage { container, chunks_used: 1, bytes_used: 6, chunks_held: 2, bytes_held: 11, object_bytes: 300 };
    Manifest { summary, data, metadata, containers: vec![usage] }
}

/// The two plaintext parts of a sealed manifest: the summary and the body.
pub fn manifest_parts() -> [Vec<u8>; 2] {
    let name = larder_format::names::version(SERIES, JOB, 0);
    let sealed = manifest().encode(&keys(), SERIES, 0, RANDOM).expect("valid");
    let [summary, body] = &open(&name, &sealed)[..] else { panic!("a manifest has two parts") };
    [summary.clone(), body.clone()]
}

/// Opens a sealed object without the crate's help.
pub fn open(name: &str, object: &[u8]) -> Vec<Vec<u8>> {
    Forger::new().open(name, object)
}

/// The key object that forged keys pretend to be, and the secret of its file.
pub const KEY: KeyId = KeyId([3; 8]);
pub const FILE: [u8; 32] = [8; 32];

pub fn key_fields(cost: Option<KdfCost>, roles: Roles) -> KeyFields {
    KeyFields {
        cost,
        salt: [5; 32],
        user: "alice".to_owned(),
        host: "host".to_owned(),
        created_ms: 1_790_000_000_000,
        roles,
        domain: String::new(),
        epoch: 0,
    }
}

/// A key object of a role that opens with [`FILE`].
pub fn key_of(roles: Roles) -> Vec<u8> {
    let config = config().encode(&keys()).expect("valid");
    let secrets = keys().secrets().for_roles(roles, DomainId([5; 16]), Some(Secret([6; 32]))).expect("all keys");
    let fields = key_fields(None, roles);
    key_file::wrap(&keys(), &secrets, Unlock::File(&FILE), &fields, KEY, REPOSITORY, &config).expect("wraps")
}

pub fn machine_key() -> MachineKey {
    MachineKey { repository: REPOSITORY, key: KEY, secret: FILE }
}
