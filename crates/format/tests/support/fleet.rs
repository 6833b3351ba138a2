//! Examples of the objects of fleet batches, and of checks and passes with workers.

use larder_format::Fingerprint;
use larder_format::compress::Compression;
use larder_format::fleet::{
    CheckRange, CheckResult, ChunkRun, ChunksOf, CopyResult, CopyTask, FleetPlan, FleetWorker, OutputKind, OutputRef,
    PassHead, PlannedHost, PlannedImage, ResultHead, ScanItem, ScannedSegment, SharedWork, Stage, TaskHead, TaskId,
    TaskRecord,
};
use larder_format::ids::{AttemptId, ContainerId, ContainerKind, DomainId};
use larder_format::recipe::Proof;

use super::{JOB, RANDOM, keys};

fn task_head() -> TaskHead {
    TaskHead { rules: 1, claim_seconds: 60, asks: FLEET_WORKER, program: "larder".to_owned() }
}

/// A range of a check, and its result: names, and sealed.
fn fleet_check() -> [(String, Vec<u8>); 2] {
    let container = |kind, seq| ContainerId { kind, job: JOB, seq };
    let range = CheckRange {
        head: task_head(),
        key: [7; 32],
        bytes: 30,
        largest: 10,
        containers: vec![
            container(ContainerKind::Data, 1),
            container(ContainerKind::Data, 2),
            container(ContainerKind::Meta, 9),
        ],
    };
    let result = CheckResult {
        reader: FLEET_WORKER,
        host: "host".to_owned(),
        took_ms: 3,
        not_whole: vec![1],
        proofs: vec![5; 32],
    };
    [
        (
            larder_format::names::fleet_range(JOB, FLEET_TASK),
            range.encode(&keys(), JOB, FLEET_TASK, RANDOM).expect("fits"),
        ),
        (
            larder_format::names::fleet_done(JOB, FLEET_TASK),
            result.encode(&keys(), JOB, FLEET_TASK, RANDOM).expect("fits"),
        ),
    ]
}

/// A task of a pass, and its result: names, and sealed.
fn fleet_copy() -> [(String, Vec<u8>); 2] {
    let of = |seq, chunks| ChunksOf { container: ContainerId { kind: ContainerKind::Data, job: JOB, seq }, chunks };
    let task = CopyTask {
        head: task_head(),
        of_pass: PassHead { turn: 5, ticket: [7; 16] },
        compression: Compression::Zstd(1),
        verify: vec![of(1, vec![3, 4])],
        copy: vec![of(2, vec![0, 9]), of(7, vec![1])],
    };
    let result = CopyResult {
        head: ResultHead { ticket: [7; 16], worker: FLEET_WORKER, host: "host".to_owned(), took_ms: 3 },
        epoch: 1,
        containers: 2,
        whole_bytes: 4,
        failure: Some("why".to_owned()),
    };
    [
        (
            larder_format::names::fleet_range(JOB, FLEET_TASK),
            task.encode(&keys(), JOB, FLEET_TASK, RANDOM).expect("fits"),
        ),
        (
            larder_format::names::fleet_done(JOB, FLEET_TASK),
            result.encode(&keys(), JOB, FLEET_TASK, RANDOM).expect("fits"),
        ),
    ]
}

/// The plan of a fleet batch, the register of a task, a claim and a sign of life, and those of a check and a pass: names, and sealed.
pub fn fleet() -> Vec<(String, Vec<u8>)> {
    let image =
        PlannedImage { name: "a".to_owned(), series: "vm/a".to_owned(), host: 0, job: JOB, source: "a.raw".to_owned() };
    let plan = FleetPlan {
        images: vec![image],
        hosts: vec![PlannedHost { name: "host".to_owned(), store: JOB, is_any: Some(true), round: None }],
        partitions: 1,
        index: 3,
        time_ms: 1,
        program: "larder".to_owned(),
        shared: Some(SharedWork {
            rules: 1,
            claim_seconds: 60,
            task_seconds: 600,
            tags: vec!["tag".to_owned()],
            force: false,
            verify_every: 10,
        }),
    };
    let worker = FleetWorker {
        worker: FLEET_WORKER,
        host: "host".to_owned(),
        process: 1,
        program: "larder".to_owned(),
        time_ms: 2,
        memory: 3,
        reads: Some(vec![0]),
    };
    let output = OutputRef {
        number: 0,
        kind: OutputKind::Answers,
        first: 1,
        last: 2,
        records: 3,
        object_bytes: 1000,
        tail_bytes: 100,
    };
    let record = TaskRecord {
        attempt: Some(AttemptId([1; 8])),
        outputs: vec![output],
        host: "host".to_owned(),
        time_ms: 1,
        took_ms: 2,
        memory: 3,
        why: None,
        read_bytes: 4,
        stored_bytes: 5,
        waits: Some(true),
        live: Some(vec![0, 2]),
        worker: Some(FLEET_WORKER),
        store: Some(JOB),
        domain: DomainId::DEFAULT,
    };
    let of_batch = [
        (
            larder_format::names::fleet_claim(JOB, FLEET_TASK, 1),
            worker.encode_claim(&keys(), JOB, FLEET_TASK, 1, RANDOM).expect("fits"),
        ),
        (
            larder_format::names::fleet_beat(JOB, FLEET_WORKER, 1),
            worker.encode_beat(&keys(), JOB, 1, RANDOM).expect("fits"),
        ),
        (larder_format::names::fleet_plan(JOB), plan.encode(&keys(), JOB, RANDOM).expect("fits")),
        (
            larder_format::names::fleet_done(JOB, FLEET_TASK),
            record.encode(&keys(), JOB, FLEET_TASK, RANDOM).expect("fits"),
        ),
    ];
    of_batch.into_iter().chain(fleet_check()).chain(fleet_copy()).collect()
}

/// A worker of a fleet batch.
pub const FLEET_WORKER: AttemptId = AttemptId([1; 8]);

/// A task of a fleet batch.
pub const FLEET_TASK: TaskId = TaskId { stage: Stage::Join, round: 0, number: 3 };

/// An item of a scan.
pub fn scan_item() -> Vec<u8> {
    let proof = Some(Proof { mac: [5; 16], cutter: 0, tail: vec![4000, 300] });
    let runs = vec![
        ChunkRun::Asked(vec![(4096, Fingerprint([1; 32])), (500, Fingerprint([2; 32]))]),
        ChunkRun::Repeated(3),
        ChunkRun::Base { segment: 4, first: 10, count: 3, bytes: 9000 },
    ];
    ScanItem::Segment(ScannedSegment { proof, runs }).encode().expect("fits")
}
