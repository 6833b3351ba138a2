//! Golden bytes, round trips and damage of the objects of fleet batches.

use proptest::prelude::*;

use super::*;
use crate::compress::Compression;
use crate::container::ChunkRef;
use crate::golden::{all_damage_is_noticed, golden, keys};
use crate::ids::{AttemptId, ContainerId, ContainerKind, ContentDigest, DomainId, JobId, RunId};
use crate::index_manifest::Table;
use crate::index_tables::{ChunkKey, ChunkPlace};
use crate::keys::{Keys, MasterKey};
use crate::names;
use crate::recipe::{ContainerUse, Proof, SegmentRef};
use crate::roles::Roles;
use crate::run::{RunBuilder, RunIndex, RunKey};
use larder_chunking::Fingerprint;

const BATCH: JobId = JobId([7; 16]);
const TASK: TaskId = TaskId { stage: Stage::Join, round: 1, number: 12 };

fn plan() -> FleetPlan {
    FleetPlan {
        images: vec![PlannedImage {
            name: "web-1".to_owned(),
            series: "vm/web-1".to_owned(),
            host: 1,
            job: JobId([8; 16]),
            source: "raw:/images/web-1".to_owned(),
        }],
        hosts: ["a", "b"]
            .map(|name| PlannedHost { name: name.to_owned(), store: JobId([9; 16]), is_any: None, round: None })
            .to_vec(),
        partitions: 4,
        index: 33,
        time_ms: 1_790_000_000_000,
        program: "larder 1".to_owned(),
        shared: None,
    }
}

/// A plan for several processes.
fn shared_plan() -> FleetPlan {
    let mut plan = plan();
    plan.hosts[1].is_any = Some(true);
    plan.shared = Some(SharedWork {
        rules: 1,
        claim_seconds: 60,
        task_seconds: 600,
        tags: vec!["nightly".to_owned()],
        force: true,
        verify_every: 10,
    });
    plan
}

/// A plan with two rounds.
fn plan_in_rounds() -> FleetPlan {
    let mut plan = shared_plan();
    plan.hosts[1].round = Some(1);
    plan.shared.as_mut().expect("it is shared").rules = 2;
    plan
}

/// The register of a task that a worker did.
fn worker_record() -> TaskRecord {
    TaskRecord {
        waits: Some(true),
        live: Some(vec![1, 4]),
        worker: Some(AttemptId([5; 8])),
        store: Some(JobId([4; 16])),
        ..record()
    }
}

fn worker() -> FleetWorker {
    FleetWorker {
        worker: AttemptId([5; 8]),
        host: "a".to_owned(),
        process: 17,
        program: "larder 1".to_owned(),
        time_ms: 1_790_000_000_000,
        memory: 35 << 20,
        reads: None,
    }
}

fn record() -> TaskRecord {
    let output = |number, kind, first, last| OutputRef {
        number,
        kind,
        first,
        last,
        records: 5,
        object_bytes: 1000,
        tail_bytes: 100,
    };
    TaskRecord {
        attempt: Some(AttemptId([3; 8])),
        outputs: vec![
            output(0, OutputKind::Answers, 0, 7),
            output(1, OutputKind::Answers, 7, 9),
            output(2, OutputKind::Waiters, 1, 1),
        ],
        host: "a".to_owned(),
        time_ms: 1_790_000_000_000,
        took_ms: 250,
        memory: 35 << 20,
        why: None,
        read_bytes: 1 << 30,
        stored_bytes: 1 << 20,
        waits: None,
        live: None,
        worker: None,
        store: None,
        domain: DomainId::DEFAULT,
    }
}

const READ: TaskId = TaskId { stage: Stage::Check, round: 1, number: 12 };

fn task_head(rules: u32) -> TaskHead {
    TaskHead { rules, claim_seconds: 60, asks: AttemptId([5; 8]), program: "larder 1".to_owned() }
}

const OF_PASS: PassHead = PassHead { turn: 34, ticket: [6; 16] };

fn result_head() -> ResultHead {
    ResultHead { ticket: [6; 16], worker: AttemptId([4; 8]), host: "a".to_owned(), took_ms: 250 }
}

fn range() -> CheckRange {
    let container = |kind, seq| ContainerId { kind, job: JobId([8; 16]), seq };
    let containers = vec![
        container(ContainerKind::Data, 3),
        container(ContainerKind::Data, 4),
        container(ContainerKind::Data, 6),
        container(ContainerKind::Meta, 7),
    ];
    let (key, bytes, largest) = ([6; 32], 30 << 20, 8 << 20);
    CheckRange { head: task_head(CHECK_RULES), key, bytes, largest, containers }
}

fn result() -> CheckResult {
    let proofs = [[1; READ_PROOF_LEN], [2; READ_PROOF_LEN], [3; READ_PROOF_LEN]].concat();
    CheckResult { reader: AttemptId([4; 8]), host: "a".to_owned(), took_ms: 250, not_whole: vec![2], proofs }
}

/// A task of a pass.
const COPY: TaskId = TaskId { stage: Stage::Copy, round: 0, number: 3 };

fn copy_task() -> CopyTask {
    let of = |seq, chunks: &[u32]| {
        let container = ContainerId { kind: ContainerKind::Data, job: JobId([3; 16]), seq };
        ChunksOf { container, chunks: chunks.to_vec() }
    };
    CopyTask {
        head: task_head(COPY_RULES),
        of_pass: OF_PASS,
        compression: Compression::Zstd(-3),
        verify: vec![of(9, &[4, 7])],
        copy: vec![of(6, &[0, 1, 2, 900]), of(5, &[u32::MAX - 1])],
    }
}

fn copy_result() -> CopyResult {
    CopyResult { head: result_head(), epoch: 2, containers: 3, whole_bytes: 1 << 20, failure: None }
}

/// A task of an exact collection.
const MARK: TaskId = TaskId { stage: Stage::Mark, round: 1, number: 3 };

fn mark_task() -> MarkTask {
    let container = ContainerId { kind: ContainerKind::Meta, job: JobId([3; 16]), seq: 2 };
    let row = |n: u8, chunks| SegmentRef {
        chunk: ChunkRef { fingerprint: Fingerprint([n; 32]), container, offset: 1000 * u32::from(n), size: 900 },
        bases: Vec::new(),
        content: ContentDigest([n; 32]),
        bytes: 2 << 20,
        chunks,
        samples: vec![7, 8],
        uses: vec![ContainerUse { container, chunks, bytes: 2 << 20 }],
        cover: None,
        proof: None,
    };
    MarkTask { head: task_head(MARK_RULES), of_pass: OF_PASS, segments: vec![row(1, 500), row(2, 3)] }
}

fn mark_result() -> MarkResult {
    MarkResult {
        head: result_head(),
        attempt: AttemptId([2; 8]),
        records: 400,
        object_bytes: 10_000,
        digest: [8; 32],
        sum: [9; MarkSum::LEN],
        failure: None,
        domain: DomainId::DEFAULT,
    }
}

fn items() -> Vec<ScanItem> {
    let asked = |n: u8| (4096 + u32::from(n), Fingerprint([n; 32]));
    vec![
        ScanItem::Keep { first: 3, count: 500, bytes: 1 << 30 },
        ScanItem::Segment(ScannedSegment {
            proof: Some(Proof { mac: [5; 16], cutter: 0, tail: vec![4000, 300] }),
            runs: vec![
                ChunkRun::Asked(vec![asked(1), asked(2)]),
                ChunkRun::Repeated(255),
                ChunkRun::Base { segment: 4, first: 10, count: 3, bytes: 9000 },
            ],
        }),
        ScanItem::Segment(ScannedSegment { proof: None, runs: vec![ChunkRun::Asked(vec![asked(3)])] }),
    ]
}

#[test]
fn version_2_bytes_never_change() {
    let sealed = plan().encode(&keys(), BATCH, [9; 32]).expect("fits");
    assert_eq!(FleetPlan::decode(&keys(), BATCH, &golden("fleet_plan_v2", &sealed)), Ok(plan()));
    let sealed = record().encode(&keys(), BATCH, TASK, [9; 32]).expect("fits");
    assert_eq!(TaskRecord::decode(&keys(), BATCH, TASK, &golden("fleet_task_v2", &sealed)), Ok(record()));
    let sealed = shared_plan().encode(&keys(), BATCH, [9; 32]).expect("fits");
    assert_eq!(FleetPlan::decode(&keys(), BATCH, &golden("fleet_plan_shared_v2", &sealed)), Ok(shared_plan()));
    let sealed = plan_in_rounds().encode(&keys(), BATCH, [9; 32]).expect("fits");
    assert_eq!(FleetPlan::decode(&keys(), BATCH, &golden("fleet_plan_rounds_v2", &sealed)), Ok(plan_in_rounds()));
    let sealed = worker_record().encode(&keys(), BATCH, TASK, [9; 32]).expect("fits");
    assert_eq!(TaskRecord::decode(&keys(), BATCH, TASK, &golden("fleet_task_worker_v2", &sealed)), Ok(worker_record()));
    let sealed = worker().encode_claim(&keys(), BATCH, TASK, 3, [9; 32]).expect("fits");
    let claim = golden("fleet_claim_v2", &sealed);
    assert_eq!(FleetWorker::decode_claim(&keys(), BATCH, TASK, 3, &claim), Ok(worker()));
    assert!(FleetWorker::decode_claim(&keys(), BATCH, TASK, 2, &claim).is_err());
    let sealed = worker().encode_beat(&keys(), BATCH, 3, [9; 32]).expect("fits");
    let beat = golden("fleet_beat_v2", &sealed);
    assert_eq!(FleetWorker::decode_beat(&keys(), BATCH, AttemptId([5; 8]), 3, &beat), Ok(worker()));
    assert!(FleetWorker::decode_beat(&keys(), BATCH, AttemptId([6; 8]), 3, &beat).is_err());
    let reads = FleetWorker { reads: Some(vec![0, 300]), ..worker() };
    let sealed = reads.encode_beat(&keys(), BATCH, 3, [9; 32]).expect("fits");
    let sealed = golden("fleet_beat_reads_v2", &sealed);
    assert_eq!(FleetWorker::decode_beat(&keys(), BATCH, AttemptId([5; 8]), 3, &sealed), Ok(reads));
    let sealed = range().encode(&keys(), BATCH, READ, [9; 32]).expect("fits");
    assert_eq!(CheckRange::decode(&keys(), BATCH, READ, &golden("fleet_range_v2", &sealed)), Ok(range()));
    let sealed = result().encode(&keys(), BATCH, READ, [9; 32]).expect("fits");
    assert_eq!(CheckResult::decode(&keys(), BATCH, READ, &golden("fleet_result_v2", &sealed)), Ok(result()));
    let sealed = copy_task().encode(&keys(), BATCH, COPY, [9; 32]).expect("fits");
    assert_eq!(CopyTask::decode(&keys(), BATCH, COPY, &golden("fleet_copy_v2", &sealed)), Ok(copy_task()));
    let sealed = copy_result().encode(&keys(), BATCH, COPY, [9; 32]).expect("fits");
    assert_eq!(CopyResult::decode(&keys(), BATCH, COPY, &golden("fleet_copied_v2", &sealed)), Ok(copy_result()));
    let sealed = mark_task().encode(&keys(), BATCH, MARK, [9; 32]).expect("fits");
    assert_eq!(MarkTask::decode(&keys(), BATCH, MARK, &golden("fleet_mark_v2", &sealed)), Ok(mark_task()));
    let sealed = mark_result().encode(&keys(), BATCH, MARK, [9; 32]).expect("fits");
    assert_eq!(MarkResult::decode(&keys(), BATCH, MARK, &golden("fleet_marked_v2", &sealed)), Ok(mark_result()));
    let all: Vec<u8> = items().iter().flat_map(|item| item.encode().expect("fits")).collect();
    golden("fleet_scan_v2", &all);
    golden("fleet_output_v2", &output());
    golden("fleet_marks_v2", &marks());
}

/// Records are values inside of sealed blocks, so their bytes are written out here.
#[test]
fn records_have_these_bytes() {
    let at = At { image: 1, number: 0x0203 };
    let place = Placement { rest: [9; 12], host: 1, seq: 2, offset: 3, size: 4 };
    let hex_of = |bytes: &[u8]| hex::encode(bytes);
    assert_eq!(hex_of(&at.encode()), "0000000100000203");
    assert_eq!(hex_of(&Requests::key(&ChunkKey([5; 20]), at)), format!("{}0000000100000203", "05".repeat(20)));
    let stored = Answer::Stored(ChunkPlace { container: 1, chunk: 2 });
    assert_eq!(hex_of(&stored.encode()), "000100000002000000");
    assert_eq!(hex_of(&Answer::Owner.encode()), "010000000000000000");
    assert_eq!(hex_of(&Answer::Waits(at).encode()), "020000000100000203");
    let placed = format!("{}01000000020000000300000004000000", "09".repeat(12));
    assert_eq!(hex_of(&place.encode()), placed);
    assert_eq!(hex_of(&Resolution::Placed(place).encode()), format!("00{placed}"));
    for answer in [stored, Answer::Owner, Answer::Waits(at)] {
        assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
    }
    for resolution in [Resolution::Placed(place), Resolution::Promoted, Resolution::Again] {
        assert_eq!(Resolution::decode(&resolution.encode()), Ok(resolution));
    }
    assert!(Answer::decode(&[1, 0, 0, 0, 0, 0, 0, 0, 1]).is_err(), "an owner waits for nobody");
    assert!(Resolution::decode(&[3; 29]).is_err() && Answer::decode(&[]).is_err());
}

fn output() -> Vec<u8> {
    let key = output_key(&keys(), 0);
    let mut builder = RunBuilder::new(key, [4; 32], Table::Chunks, Answers::LAYOUT, false).expect("a layout");
    for number in 0..3 {
        builder.push(&At { image: 2, number }.encode(), Some(&Answer::Owner.encode())).expect("rises");
    }
    builder.finish().expect("records").bytes
}

/// The output of an exact collection.
fn marks() -> Vec<u8> {
    let name = names::fleet_output(BATCH, MARK, AttemptId([2; 8]), 0);
    let key = RunKey::of_fleet(&keys(), DomainId::DEFAULT, &name, RunId { job: BATCH, seq: 0 }).expect("all keys");
    let mut builder = RunBuilder::new(key, [4; 32], Table::Chunks, MARKS, false).expect("a layout").packed();
    for n in 0..3 {
        builder.push(&[n; 20], Some(&u32::from(n + 1).to_be_bytes())).expect("rises");
    }
    builder.finish().expect("records").bytes
}

fn output_key(keys: &Keys, number: u32) -> RunKey {
    let name = names::fleet_output(BATCH, TASK, AttemptId([3; 8]), number);
    RunKey::of_fleet(keys, DomainId::DEFAULT, &name, RunId { job: BATCH, seq: number }).expect("all keys")
}

#[test]
fn an_output_opens_under_its_own_name_alone() {
    let bytes = output();
    let opens = |key: RunKey| RunIndex::decode(&key, &bytes, bytes.len() as u64).is_ok();
    assert!(opens(output_key(&keys(), 0)));
    assert!(!opens(output_key(&keys(), 1)));
    assert!(!opens(output_key(&Keys::derive(&MasterKey([2; 32])), 0)));
    let of_index = RunKey::of(&keys(), RunId { job: BATCH, seq: 0 }).expect("all keys");
    assert!(!opens(of_index));
}

#[test]
fn every_flipped_bit_and_every_cut_is_noticed() {
    let bytes = plan().encode(&keys(), BATCH, [9; 32]).expect("fits");
    all_damage_is_noticed(&bytes, |bytes| FleetPlan::decode(&keys(), BATCH, bytes).is_ok());
    let bytes = record().encode(&keys(), BATCH, TASK, [9; 32]).expect("fits");
    all_damage_is_noticed(&bytes, |bytes| TaskRecord::decode(&keys(), BATCH, TASK, bytes).is_ok());
    let bytes = worker().encode_claim(&keys(), BATCH, TASK, 0, [9; 32]).expect("fits");
    all_damage_is_noticed(&bytes, |bytes| FleetWorker::decode_claim(&keys(), BATCH, TASK, 0, bytes).is_ok());
    let bytes = worker().encode_beat(&keys(), BATCH, 0, [9; 32]).expect("fits");
    let of_worker = |bytes: &[u8]| FleetWorker::decode_beat(&keys(), BATCH, worker().worker, 0, bytes).is_ok();
    all_damage_is_noticed(&bytes, of_worker);
    let bytes = range().encode(&keys(), BATCH, READ, [9; 32]).expect("fits");
    all_damage_is_noticed(&bytes, |bytes| CheckRange::decode(&keys(), BATCH, READ, bytes).is_ok());
    let bytes = result().encode(&keys(), BATCH, READ, [9; 32]).expect("fits");
    all_damage_is_noticed(&bytes, |bytes| CheckResult::decode(&keys(), BATCH, READ, bytes).is_ok());
    let bytes = copy_task().encode(&keys(), BATCH, COPY, [9; 32]).expect("fits");
    all_damage_is_noticed(&bytes, |bytes| CopyTask::decode(&keys(), BATCH, COPY, bytes).is_ok());
    let bytes = copy_result().encode(&keys(), BATCH, COPY, [9; 32]).expect("fits");
    all_damage_is_noticed(&bytes, |bytes| CopyResult::decode(&keys(), BATCH, COPY, bytes).is_ok());
    let bytes = mark_task().encode(&keys(), BATCH, MARK, [9; 32]).expect("fits");
    all_damage_is_noticed(&bytes, |bytes| MarkTask::decode(&keys(), BATCH, MARK, bytes).is_ok());
    let bytes = mark_result().encode(&keys(), BATCH, MARK, [9; 32]).expect("fits");
    all_damage_is_noticed(&bytes, |bytes| MarkResult::decode(&keys(), BATCH, MARK, bytes).is_ok());
}

/// Who may only back up and restore can ask for no copies or marks, nor say that there are some.
#[test]
fn only_an_operator_says_what_was_copied() {
    let roles = Roles::BACKUP.and(Roles::RESTORE);
    let secrets = keys().secrets().for_roles(roles, DomainId::DEFAULT, None).expect("narrower");
    let machine = Keys::of(secrets, keys().opening_public().clone()).expect("whole");
    assert!(copy_task().encode(&machine, BATCH, COPY, [9; 32]).is_err());
    assert!(copy_result().encode(&machine, BATCH, COPY, [9; 32]).is_err());
    assert!(mark_task().encode(&machine, BATCH, MARK, [9; 32]).is_err());
    assert!(mark_result().encode(&machine, BATCH, MARK, [9; 32]).is_err());
    // It reads what an operator says.
    let bytes = copy_result().encode(&keys(), BATCH, COPY, [9; 32]).expect("fits");
    assert_eq!(CopyResult::decode(&machine, BATCH, COPY, &bytes), Ok(copy_result()));
    for (batch, task) in [(JobId([6; 16]), COPY), (BATCH, TaskId { number: 4, ..COPY })] {
        assert!(CopyResult::decode(&keys(), batch, task, &bytes).is_err(), "another pass or task");
    }
    let bytes = mark_result().encode(&keys(), BATCH, MARK, [9; 32]).expect("fits");
    let others = [TaskId { number: 4, ..MARK }, TaskId { round: 0, ..MARK }, TaskId { stage: Stage::Copy, ..MARK }];
    for (batch, task) in others.map(|task| (BATCH, task)).into_iter().chain([(JobId([6; 16]), MARK)]) {
        assert!(MarkResult::decode(&keys(), batch, task, &bytes).is_err(), "another pass, look or task");
    }
}

/// A mention less, more, or of a chunk that differs in one bit: another sum. The order is nothing.
#[test]
fn a_sum_of_marks_tells_every_change_of_one() {
    let keys: Vec<ChunkKey> =
        (0..20_u8).map(|n| ChunkKey(std::array::from_fn(|at| n ^ (at as u8).wrapping_mul(37)))).collect();
    let sum = |mentions: &[(ChunkKey, u32)]| {
        let mut sum = MarkSum::default();
        mentions.iter().for_each(|(key, times)| sum.add(key, *times));
        (sum.mentions, sum.bytes())
    };
    let all: Vec<(ChunkKey, u32)> = keys.iter().map(|key| (*key, 1)).collect();
    let twice: Vec<(ChunkKey, u32)> = keys.iter().map(|key| (*key, 2)).collect();
    let reversed: Vec<_> = all.iter().rev().chain(&all).copied().collect();
    assert_eq!(sum(&twice), sum(&reversed));
    for at in 0..all.len() {
        let (mut less, mut more) = (all.clone(), all.clone());
        less.remove(at);
        more[at].1 += 1;
        assert!(sum(&less).0 != sum(&all).0 && sum(&more).0 != sum(&all).0);
        for bit in 0..160 {
            let mut changed = all.clone();
            changed[at].0.0[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(sum(&changed).1, sum(&all).1, "bit {bit} of {at}");
        }
    }
}

/// No two attempts share a number, and a pass never gets as far with its own.
#[test]
fn each_attempt_has_numbers_of_its_own() {
    let of = |number, epoch| CopyTask::numbers(TaskId { number, ..COPY }, epoch);
    let attempts = [(0, 0), (0, 1), (0, 255), (1, 0), (1, 255), (COPY_TASKS_MAX - 1, 0), (COPY_TASKS_MAX - 1, 255)];
    let all: Vec<_> = attempts.iter().map(|(number, epoch)| of(*number, *epoch).expect("numbers")).collect();
    assert!(all.windows(2).all(|two| two[0].end <= two[1].start) && all[0].start == 1 << 31);
    assert_eq!(all.last().expect("some").end, u32::MAX);
    assert_eq!((of(COPY_TASKS_MAX, 0), of(0, 256)), (None, None));
    let id = |seq| ContainerId { kind: ContainerKind::Data, job: BATCH, seq };
    let first = (1 << 31) + (3 * 256 + 2) * 256;
    assert_eq!(copy_result().containers(BATCH, COPY), Some((first..first + 3).map(id).collect()));
    for wrong in [CopyResult { containers: 256, ..copy_result() }, CopyResult { epoch: 256, ..copy_result() }] {
        assert_eq!(wrong.containers(BATCH, COPY), None);
    }
}

#[test]
fn a_register_is_bound_to_its_task() {
    let bytes = record().encode(&keys(), BATCH, TASK, [9; 32]).expect("fits");
    let opens = |batch, task| TaskRecord::decode(&keys(), batch, task, &bytes).is_ok();
    assert!(opens(BATCH, TASK));
    assert!(!opens(JobId([6; 16]), TASK));
    assert!(!opens(BATCH, TaskId { round: 0, ..TASK }));
    assert!(!opens(BATCH, TaskId { stage: Stage::Store, ..TASK }));
}

#[test]
fn a_result_is_bound_to_its_check_and_its_range() {
    let bytes = result().encode(&keys(), BATCH, READ, [9; 32]).expect("fits");
    let opens = |batch, task| CheckResult::decode(&keys(), batch, task, &bytes).is_ok();
    assert!(opens(BATCH, READ));
    assert!(!opens(JobId([6; 16]), READ), "another check");
    assert!(!opens(BATCH, TaskId { round: 2, ..READ }), "another look");
    assert!(!opens(BATCH, TaskId { number: 13, ..READ }), "another range");
    let [one, two, three] = [1, 2, 3].map(|byte| Some([byte; READ_PROOF_LEN]));
    assert_eq!(result().by_position(4), Some(vec![one, two, None, three]));
    for other in [0, 2, 3, 5] {
        assert_eq!(result().by_position(other), None, "{other}");
    }
}

#[test]
fn what_contradicts_itself_is_refused() {
    let no_partition = FleetPlan { partitions: 0, ..plan() };
    let no_host = FleetPlan { hosts: Vec::new(), ..plan() };
    let mut no_time = shared_plan();
    no_time.shared.iter_mut().for_each(|shared| shared.claim_seconds = 0);
    for plan in [no_partition, no_host, no_time] {
        assert!(plan.encode(&keys(), BATCH, [9; 32]).is_err());
    }
    let mut falling = record();
    falling.outputs.swap(0, 1);
    let aborted = TaskRecord { attempt: None, ..record() };
    let twice = TaskRecord { live: Some(vec![1, 1]), ..record() };
    for record in [falling, aborted, twice] {
        assert!(record.encode(&keys(), BATCH, TASK, [9; 32]).is_err());
    }
    let no_time = TaskHead { claim_seconds: 0, ..task_head(CHECK_RULES) };
    let (mut falling, mut twice) = (range(), range());
    falling.containers.swap(0, 1);
    twice.containers[1] = twice.containers[0];
    let no_container = CheckRange { containers: Vec::new(), ..range() };
    for range in [falling, twice, no_container, CheckRange { head: no_time.clone(), ..range() }] {
        assert!(range.encode(&keys(), BATCH, READ, [9; 32]).is_err());
    }
    let (falling, cut) = (vec![3, 1], vec![1; READ_PROOF_LEN + 1]);
    for result in [CheckResult { not_whole: falling, ..result() }, CheckResult { proofs: cut, ..result() }] {
        assert!(result.encode(&keys(), BATCH, READ, [9; 32]).is_err());
    }
    let falling = ChunksOf { chunks: vec![3, 3], ..copy_task().copy[0].clone() };
    let (mut falling, mut empty) = (CopyTask { copy: vec![falling], ..copy_task() }, copy_task());
    falling.verify.clear();
    (empty.verify, empty.copy) = (Vec::new(), Vec::new());
    let no_level = CopyTask { compression: Compression::Zstd(23), ..copy_task() };
    for task in [falling, empty, no_level, CopyTask { head: no_time.clone(), ..copy_task() }] {
        assert!(task.encode(&keys(), BATCH, COPY, [9; 32]).is_err());
    }
    let too_many = SegmentRef { chunks: 1 + MARK_CHUNKS_MAX as u32, ..mark_task().segments[0].clone() };
    let (none, many) = (MarkTask { segments: Vec::new(), ..mark_task() }, vec![too_many]);
    for task in [none, MarkTask { segments: many, ..mark_task() }, MarkTask { head: no_time, ..mark_task() }] {
        assert!(task.encode(&keys(), BATCH, MARK, [9; 32]).is_err());
    }
    assert!(ScanItem::Keep { first: 0, count: 0, bytes: 0 }.encode().is_err());
    assert!(ScanItem::decode(&[2, 0, 0, 0, 0]).is_err());
}

fn chunk_run() -> impl Strategy<Value = ChunkRun> {
    prop_oneof![
        prop::collection::vec((1_u32.., any::<[u8; 32]>().prop_map(Fingerprint)), 1..5).prop_map(ChunkRun::Asked),
        (1_u32..).prop_map(ChunkRun::Repeated),
        (any::<u32>(), 0..u32::MAX / 2, 1..u32::MAX / 2, any::<u64>())
            .prop_map(|(segment, first, count, bytes)| ChunkRun::Base { segment, first, count, bytes }),
    ]
}

proptest! {
    #[test]
    fn scans_are_read_back(
        runs in prop::collection::vec(chunk_run(), 1..5),
        proof in prop::option::of((any::<[u8; 16]>(), 0..3_u8, prop::collection::vec(any::<u32>(), 0..5))),
        keep in (0..u32::MAX / 2, 1..u32::MAX / 2, any::<u64>()),
    ) {
        let proof = proof.map(|(mac, cutter, tail)| Proof { mac, cutter, tail });
        let keep = ScanItem::Keep { first: keep.0, count: keep.1, bytes: keep.2 };
        for item in [ScanItem::Segment(ScannedSegment { proof, runs }), keep] {
            let bytes = item.encode().expect("fits");
            prop_assert_eq!(ScanItem::decode(&bytes), Ok(item));
            for cut in 0..bytes.len() {
                prop_assert!(ScanItem::decode(&bytes[..cut]).is_err());
            }
        }
    }

    #[test]
    fn any_bytes_are_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(item) = ScanItem::decode(&bytes) {
            prop_assert_eq!(item.encode().expect("it was read"), bytes);
        }
    }
}
