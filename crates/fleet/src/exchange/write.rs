//! Writing the outputs of a task, and its register.

use std::marker::PhantomData;

use larder_format::fleet::{FleetRecord, OutputRef, TaskId, TaskRecord};
use larder_format::ids::{AttemptId, DomainId, JobId, RunId};
use larder_format::index_manifest::Table;
use larder_format::names;
use larder_format::run::{RecordLayout, RunBuilder, RunKey, ValueWidth};
use larder_index::Cursor;
use larder_store::repository::random;
use larder_store::rules::Rule;
use larder_store::{RepositoryError, StoreErrorKind};

use crate::error::FleetError;
use crate::memory::high_water;
use crate::shared::Batch;

/// The outputs of one attempt at a task.
pub(crate) struct Outputs<'a> {
    batch: &'a Batch<'a>,
    task: TaskId,
    attempt: AttemptId,
    refs: Vec<OutputRef>,
    digests: Vec<[u8; 32]>,
    started_ms: u64,
}

/// A task that has a register.
#[derive(Debug, Clone)]
pub(crate) struct Decided {
    pub(crate) task: TaskId,
    pub(crate) record: TaskRecord,
    /// The digest of each output's bytes. `None`: another process created the register, and all of
    /// its outputs are hints.
    pub(crate) digests: Option<Vec<[u8; 32]>>,
    /// Whether the register could be read. Otherwise the record says that the task was aborted.
    pub(crate) is_readable: bool,
}

impl Decided {
    /// A register that another process created, or one without outputs.
    pub(crate) fn by_others(task: TaskId, record: TaskRecord) -> Self {
        Self { task, record, digests: None, is_readable: true }
    }

    /// A register that cannot be read.
    pub(crate) fn unreadable(task: TaskId, error: &RepositoryError, domain: DomainId) -> Self {
        let why = format!("the register of task {task} cannot be read ({error})");
        let record = TaskRecord::aborted(why, domain);
        Self { is_readable: false, ..Self::by_others(task, record) }
    }
}

/// What a register says of the work.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    pub(crate) read_bytes: u64,
    pub(crate) stored_bytes: u64,
    /// Whether an image waits for chunks of others.
    pub(crate) waits: bool,
    /// Of a host's questions: the images that were scanned.
    pub(crate) live: Option<Vec<u32>>,
    /// Of a host's questions: the job that stores its new chunks.
    pub(crate) store: Option<JobId>,
    /// Something that people should know of it.
    pub(crate) remark: Option<String>,
}

impl<'a> Outputs<'a> {
    pub(crate) fn begin(batch: &'a Batch<'a>, task: TaskId) -> Result<Self, FleetError> {
        let attempt = AttemptId(random(batch.context.repository.entropy())?);
        let started_ms = batch.context.clock.now_ms();
        Ok(Self { batch, task, attempt, refs: Vec::new(), digests: Vec::new(), started_ms })
    }

    /// The task.
    pub(crate) fn task(&self) -> TaskId {
        self.task
    }

    /// A writer of records by rising key.
    pub(crate) fn writer<R: FleetRecord>(&mut self) -> OutputWriter<'_, 'a, R> {
        OutputWriter { outputs: self, builder: None, record: PhantomData }
    }

    /// Writes all records of a cursor. Returns their number.
    pub(crate) fn write<R: FleetRecord>(&mut self, records: &mut impl Cursor) -> Result<u64, FleetError> {
        let mut writer = self.writer::<R>();
        let mut count = 0;
        while records.advance()? {
            writer.push(records.key(), records.value().unwrap_or_default())?;
            count += 1;
        }
        writer.finish()?;
        Ok(count)
    }

    /// Creates the register: the task is done, by this attempt.
    pub(crate) fn done(self, facts: Facts) -> Result<Decided, FleetError> {
        let context = self.batch.context;
        let time_ms = context.clock.now_ms();
        let record = TaskRecord {
            attempt: Some(self.attempt),
            outputs: self.refs,
            host: context.identity.host.clone(),
            time_ms,
            took_ms: time_ms.saturating_sub(self.started_ms),
            memory: high_water(),
            why: facts.remark,
            read_bytes: facts.read_bytes,
            stored_bytes: facts.stored_bytes,
            waits: facts.waits.then_some(true),
            live: facts.live,
            worker: self.batch.worker,
            store: facts.store,
            domain: context.repository.keys().domain(),
        };
        self.batch.register(self.task, &record)?;
        Ok(Decided { digests: Some(self.digests), ..Decided::by_others(self.task, record) })
    }
}

impl Batch<'_> {
    /// Creates the register of a task, if it is absent (`OneWinner`).
    pub(crate) fn register(&self, task: TaskId, record: &TaskRecord) -> Result<(), FleetError> {
        let repository = &self.context.repository;
        let salt = random(repository.entropy())?;
        let bytes = record.encode(repository.keys(), self.id, task, salt).map_err(RepositoryError::from)?;
        let name = names::fleet_done(self.id, task);
        let created = repository.store().create(&name, bytes.into());
        match self.context.executor.block_on(created) {
            Ok(_) => Ok(()),
            Err(error) if error.kind == StoreErrorKind::AlreadyExists && !repository.keeps(Rule::OneWinner) => Ok(()),
            // Another process was faster, or took this one for dead. This attempt does not count.
            Err(error) if error.kind == StoreErrorKind::AlreadyExists => Err(FleetError::Taken { task }),
            Err(error) => Err(error.into()),
        }
    }
}

impl Batch<'_> {
    /// The register of a task that was aborted.
    pub(crate) fn aborted(&self, why: String) -> TaskRecord {
        let context = self.context;
        TaskRecord {
            host: context.identity.host.clone(),
            time_ms: context.clock.now_ms(),
            memory: high_water(),
            worker: self.worker,
            ..TaskRecord::aborted(why, context.repository.keys().domain())
        }
    }

    /// Creates the register of a task that was done and leaves nothing, if it is absent. `None`: it
    /// is decided already.
    pub(crate) fn done(&self, task: TaskId) -> Result<Option<Decided>, FleetError> {
        let attempt = Some(AttemptId(random(self.context.repository.entropy())?));
        let record = TaskRecord { attempt, why: None, ..self.aborted(String::new()) };
        match self.register(task, &record) {
            Ok(()) => Ok(Some(Decided::by_others(task, record))),
            Err(FleetError::Taken { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates the register of a task that was aborted, if it is absent. `None`: it is decided
    /// already.
    pub(crate) fn abort(&self, task: TaskId, why: String) -> Result<Option<Decided>, FleetError> {
        let record = self.aborted(why);
        match self.register(task, &record) {
            Ok(()) => Ok(Some(Decided::by_others(task, record))),
            Err(FleetError::Taken { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Writes the records of one kind, by rising key.
pub(crate) struct OutputWriter<'w, 'a, R> {
    outputs: &'w mut Outputs<'a>,
    builder: Option<RunBuilder>,
    record: PhantomData<fn() -> R>,
}

impl<R: FleetRecord> OutputWriter<'_, '_, R> {
    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) -> Result<(), FleetError> {
        let mut builder = match self.builder.take() {
            Some(builder) => builder,
            None => self.begin()?,
        };
        builder.push(key, Some(value)).map_err(RepositoryError::from)?;
        match builder.len().max(unpacked(builder.records(), R::LAYOUT)) >= self.outputs.batch.budget().output {
            true => self.end(builder),
            false => {
                self.builder = Some(builder);
                Ok(())
            }
        }
    }

    fn begin(&self) -> Result<RunBuilder, FleetError> {
        let Outputs { batch, task, attempt, refs, .. } = &*self.outputs;
        let repository = &batch.context.repository;
        let number = refs.len() as u32;
        let (keys, name) = (repository.keys(), names::fleet_output(batch.id, *task, *attempt, number));
        let key = RunKey::of_fleet(keys, keys.domain(), &name, RunId { job: batch.id, seq: number })
            .map_err(|source| RepositoryError::Damaged { name, source })?;
        let random = random(repository.entropy())?;
        Ok(RunBuilder::new(key, random, Table::Chunks, R::LAYOUT, false).map_err(RepositoryError::from)?.packed())
    }

    fn end(&mut self, builder: RunBuilder) -> Result<(), FleetError> {
        let outputs = &mut *self.outputs;
        outputs.batch.expect_not_cancelled()?;
        let number = outputs.refs.len() as u32;
        let name = names::fleet_output(outputs.batch.id, outputs.task, outputs.attempt, number);
        let finished = builder.finish().map_err(RepositoryError::from)?;
        let run = finished.run;
        outputs.digests.push(*blake3::hash(&finished.bytes).as_bytes());
        let context = outputs.batch.context;
        context.executor.block_on(context.repository.store().create(&name, finished.bytes.into()))?;
        outputs.refs.push(OutputRef {
            number,
            kind: R::KIND,
            first: run.first,
            last: run.last,
            records: run.records,
            object_bytes: run.object_bytes,
            tail_bytes: run.tail_bytes,
        });
        Ok(())
    }

    pub(crate) fn finish(mut self) -> Result<(), FleetError> {
        match self.builder.take() {
            Some(builder) => self.end(builder),
            None => Ok(()),
        }
    }
}

/// Bytes of records of an output before they are packed. Receivers have memory for the
/// index of an object that is not. 0: they are not packed.
pub(super) fn unpacked(records: u64, layout: RecordLayout) -> u64 {
    match layout.value {
        ValueWidth::Fixed(width) => records.saturating_mul(u64::from(layout.key_len) + u64::from(width)),
        ValueWidth::Variable => 0,
    }
}
