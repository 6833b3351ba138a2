//! Other processes, as tests play them: they see tasks of a pass or a rewrite, and decide them with the truth or with a lie.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use larder_format::ChunkRef;
use larder_format::fleet::{COPY_CONTAINERS_MAX, ChunksOf, CopyResult, CopyTask, FleetWorker, ResultHead, TaskId};
use larder_format::ids::{AttemptId, ContainerId, ContainerKind, JobId};
use larder_format::names::{self, FleetObject};
use larder_job::JobContext;
use larder_rewrite::chunk_copier::{BatchEnd, ChunkCopier, CopyBatch, NumberedChunk};

use crate::support::*;

/// Tasks of passes, or of checks, without a register.
pub(crate) fn due(scene: &Scene) -> Vec<(JobId, TaskId)> {
    let paths = scene.runtime.block_on(scene.memory.paths());
    let of = |want: fn(FleetObject) -> Option<TaskId>| {
        let found = paths.iter().filter_map(|path| names::parse_fleet(path));
        found.filter_map(|(pass, object)| Some((pass, want(object)?))).collect::<Vec<_>>()
    };
    let decided = of(|object| if let FleetObject::Done(task) = object { Some(task) } else { None });
    let mut due = of(|object| if let FleetObject::Range(task) = object { Some(task) } else { None });
    due.retain(|task| !decided.contains(task));
    due
}

pub(crate) fn fleet_objects(scene: &Scene) -> Vec<String> {
    let paths = scene.runtime.block_on(scene.memory.paths());
    paths.into_iter().filter(|path| path.starts_with(names::FLEET)).collect()
}

/// What another process does with the tasks that it sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Other {
    /// It copies, and tells the truth.
    Honest,
    /// It says that all is done, and does nothing.
    Idle,
    /// It names containers that do not exist.
    Phantom,
    /// It leaves one chunk out.
    Short,
    /// It copies other chunks.
    Stranger,
    /// Its containers have other contents than their tables say.
    Rotten,
    /// It copied for another task.
    Stale,
    /// It says that it could not.
    Failed,
    /// It names more containers than an attempt may write.
    Beyond,
    /// It has no operator's key.
    Unsigned,
    /// Some are honest, and some are not.
    Mixed,
}

pub(crate) const LIES: [Other; 10] = [
    Other::Idle,
    Other::Phantom,
    Other::Short,
    Other::Stranger,
    Other::Rotten,
    Other::Stale,
    Other::Failed,
    Other::Beyond,
    Other::Unsigned,
    Other::Mixed,
];

fn chunks(context: &JobContext, of: &[ChunksOf]) -> Vec<NumberedChunk> {
    let mut all = Vec::new();
    for ChunksOf { container, chunks } in of {
        let index = context.executor.block_on(context.repository.read_container_index(*container)).unwrap();
        let there: Vec<ChunkRef> = index.chunk_refs().collect();
        all.extend(chunks.iter().map(|number| NumberedChunk { number: *number, chunk: there[*number as usize] }));
    }
    all
}

pub(crate) fn result_head(ticket: [u8; 16]) -> ResultHead {
    ResultHead { ticket, worker: AttemptId([9; 8]), host: "other".to_owned(), took_ms: 1 }
}

/// Claims a task, and never gives a sign of life.
pub(crate) fn is_claimed(context: &JobContext, pass: JobId, task: TaskId) -> bool {
    let (keys, store) = (context.repository.keys(), context.repository.store());
    let dead = FleetWorker {
        worker: AttemptId([6; 8]),
        host: "dead".to_owned(),
        process: 1,
        program: "test".to_owned(),
        time_ms: 1,
        memory: 0,
        reads: None,
    };
    let bytes = dead.encode_claim(keys, pass, task, 0, [7; 32]).unwrap();
    context.executor.block_on(store.create(&names::fleet_claim(pass, task, 0), bytes.into())).is_ok()
}

/// Copies what a task asks for, or something else. Returns the number of containers.
fn copy(context: &JobContext, pass: JobId, id: TaskId, task: &CopyTask, other: Other) -> u32 {
    let mut batch = CopyBatch { verify: chunks(context, &task.verify), copy: chunks(context, &task.copy) };
    match other {
        Other::Short => drop(batch.copy.pop()),
        Other::Stranger => batch.copy.extend(batch.verify.clone()),
        _ => {}
    }
    let numbers = CopyTask::numbers(id, 0).unwrap();
    let copier = ChunkCopier::new(context, pass, task.compression).unwrap();
    let mut copier = copier.numbered_from(numbers.start);
    assert!(matches!(copier.copy_batch(&batch).unwrap(), BatchEnd::Here(_)));
    let containers = copier.next_number() - numbers.start;
    copier.finish().unwrap();
    containers
}

/// Decides every task that is due. Returns the number of those that are due to one who tells the truth, and of all.
pub(crate) fn decide(scene: &Scene, other: Other) -> (u64, u64) {
    let context = scene.context();
    let keys = context.repository.keys();
    let store = context.repository.store();
    let due = due(scene);
    let mut honest = 0;
    for (pass, id) in &due {
        let bytes = context.executor.block_on(store.get(&names::fleet_range(*pass, *id))).unwrap();
        let task = CopyTask::decode(keys, *pass, *id, &bytes).unwrap();
        let other = match other {
            Other::Mixed if id.number.is_multiple_of(2) => Other::Honest,
            Other::Mixed => Other::Idle,
            other => other,
        };
        honest += u64::from(other == Other::Honest);
        let containers = match other {
            Other::Idle | Other::Failed => 0,
            Other::Phantom => 1,
            Other::Beyond => COPY_CONTAINERS_MAX,
            _ => copy(&context, *pass, *id, &task, other),
        };
        if other == Other::Rotten {
            // Of each container, one chunk is read again. So one frame of many would be found by chance.
            if let Some(seq) = CopyTask::numbers(*id, 0).unwrap().take(containers as usize).next_back() {
                let id = ContainerId { kind: ContainerKind::Data, job: *pass, seq };
                let name = names::container(id);
                let mut bytes = scene.runtime.block_on(scene.memory.get(&name)).unwrap().to_vec();
                let index = context.executor.block_on(context.repository.read_container_index(id)).unwrap();
                for frame in index.frames() {
                    // Behind its salt.
                    bytes[frame.object_range().start as usize + 20] ^= 1;
                }
                scene.runtime.block_on(scene.memory.put(&name, bytes::Bytes::from(bytes)));
            }
        }
        let result = CopyResult {
            head: result_head(if other == Other::Stale { [0; 16] } else { task.of_pass.ticket }),
            epoch: 0,
            containers,
            whole_bytes: 0,
            failure: (other == Other::Failed).then(|| "it is a test".to_owned()),
        };
        let mut bytes = result.encode(keys, *pass, *id, [7; 32]).unwrap();
        if other == Other::Unsigned {
            // The signature is in the first part behind the body hash.
            bytes[90] ^= 1;
        }
        let _ = context.executor.block_on(store.create(&names::fleet_done(*pass, *id), bytes.into()));
    }
    (honest, due.len() as u64)
}

/// A store, and what happens there once: others decide all tasks that there are. Also counts these.
pub(crate) fn deciding(scene: &Arc<Scene>, other: Other) -> (Arc<Between>, Arc<AtomicU64>) {
    let (hooked, count) = (scene.clone(), Arc::new(AtomicU64::new(0)));
    let counted = count.clone();
    let between = Between::new(scene.memory.store(), move || {
        let (scene, count) = (hooked.clone(), counted.clone());
        async move {
            let (_, all) = tokio::task::spawn_blocking(move || decide(&scene, other)).await.unwrap();
            count.fetch_add(all, Ordering::SeqCst);
        }
    });
    (between, count)
}
