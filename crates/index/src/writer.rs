//! Writing runs: sorted records become objects, which are uploaded while the next ones fill.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};

use larder_format::ids::{ByteCount, JobId, RunId};
use larder_format::index_manifest::{RunRef, Table};
use larder_format::names;
use larder_format::run::{RunBuilder, RunKey, prefix};
use larder_store::repository::random;
use larder_store::{Created, StoreError};

use crate::cursor::Cursor;
use crate::error::{IndexError, damaged};
use crate::executor::IndexIo;
use crate::executor::Task;
use crate::layout::layout_of;

/// Size at which an object of a run is closed. Smaller costs requests and rows of the manifest.
/// Larger costs memory of writers, which have one object growing, one on its way, and the filter of
/// the first being made.
pub const OBJECT_TARGET: ByteCount = ByteCount::mib(4);

/// Uploads of one writer that may be under way while the next object fills.
const UPLOADS: usize = 1;

/// Numbers the objects that one pass writes; shared by its threads.
#[derive(Debug)]
pub struct PassRuns {
    job: JobId,
    next: AtomicU32,
}

impl PassRuns {
    /// A pass begins. A pass that is taken up again is a new job: no name is used twice.
    pub fn new(job: JobId) -> Self {
        Self { job, next: AtomicU32::new(0) }
    }

    fn next(&self) -> Result<RunId, IndexError> {
        let number = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| next.checked_add(1));
        let seq = number.map_err(|_| IndexError::TooManyRuns { job: self.job })?;
        Ok(RunId { job: self.job, seq })
    }
}

/// Writes one run: all records of one table that a pass gives one age.
#[derive(Debug)]
pub struct RunWriter<'a> {
    io: &'a IndexIo,
    ids: &'a PassRuns,
    table: Table,
    age: u64,
    target: ByteCount,
    builder: Option<RunBuilder>,
    uploads: VecDeque<Task<Result<Created, StoreError>>>,
    runs: Vec<RunRef>,
}

impl<'a> RunWriter<'a> {
    /// Begins a run of this age, in objects of about `target` bytes.
    pub fn new(io: &'a IndexIo, ids: &'a PassRuns, table: Table, age: u64, target: ByteCount) -> Self {
        let (builder, uploads, runs) = (None, VecDeque::new(), Vec::new());
        Self { io, ids, table, age, target, builder, uploads, runs }
    }

    /// Adds a record; `None` is a tombstone. Keys rise.
    pub fn push(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), IndexError> {
        // Ranges of objects are distinguished by prefixes, so keys with one prefix stay together.
        if self.builder.as_ref().is_some_and(|b| b.len() >= self.target.0 && b.last_prefix() != prefix(key)) {
            self.close()?;
        }
        let builder = match &mut self.builder {
            Some(builder) => builder,
            none => {
                let repository = &self.io.repository;
                let id = self.ids.next()?;
                let key = RunKey::of(repository.keys(), id).map_err(damaged(id))?;
                let random = random(repository.entropy())?;
                none.insert(RunBuilder::new(key, random, self.table, layout_of(self.table), true)?)
            }
        };
        Ok(builder.push(key, value)?)
    }

    /// Adds all records of a cursor.
    pub fn push_all(&mut self, records: &mut impl Cursor) -> Result<(), IndexError> {
        while records.advance()? {
            self.push(records.key(), records.value())?;
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), IndexError> {
        let Some(builder) = self.builder.take() else { return Ok(()) };
        let finished = builder.finish()?;
        self.settle(UPLOADS - 1)?;
        let (store, name) = (self.io.repository.store().clone(), names::run(finished.run.id));
        let bytes = finished.bytes.into();
        self.uploads.push_back(self.io.executor.spawn(async move { store.create(&name, bytes).await }));
        self.runs.push(RunRef { age: self.age, ..finished.run });
        Ok(())
    }

    /// Waits until at most this number of uploads is under way.
    fn settle(&mut self, most: usize) -> Result<(), IndexError> {
        while self.uploads.len() > most {
            let Some(upload) = self.uploads.pop_front() else { break };
            self.io.executor.block_on(upload.join())?;
        }
        Ok(())
    }

    /// Ends the run. All its objects are durable; without records there are none.
    pub fn finish(mut self) -> Result<Vec<RunRef>, IndexError> {
        self.close()?;
        self.settle(0)?;
        Ok(self.runs)
    }
}
