//! Runs that are being written: of any table, and the differences of counts that belong to them.

use std::collections::BTreeMap;
use std::sync::Arc;

use larder_format::ids::PageRunId;
use larder_format::page_run::VolumeTable;
use larder_format::volume_map::{Mapping, Place};

use super::opened::Store;
use crate::error::VolumeError;
use crate::index::{RunFile, RunWriter, place_key};

/// A run that is being written. It has no file before its first record, and its file goes when it
/// is dropped before its end.
pub(super) struct Writing<'a> {
    store: &'a Store,
    table: VolumeTable,
    writer: Option<RunWriter>,
}

impl<'a> Writing<'a> {
    pub(super) fn new(store: &'a Store, table: VolumeTable) -> Self {
        Self { store, table, writer: None }
    }

    /// Adds a record. Keys rise.
    pub(super) fn push(&mut self, key: &[u8], value: &[u8]) -> Result<(), VolumeError> {
        if let Some(writer) = &mut self.writer {
            return writer.push(key, value);
        }
        let mut id = [0; 16];
        id.copy_from_slice(&self.store.entropy.random()?[..16]);
        let writer = RunWriter::new(&*self.store.disk, &self.store.keys, PageRunId(id), self.table)?;
        self.writer.insert(writer).push(key, value)
    }

    /// Makes the run durable. `None`: it has no records.
    pub(super) fn finish(mut self) -> Result<Option<Arc<RunFile>>, VolumeError> {
        let Some(writer) = self.writer.take() else { return Ok(None) };
        let (path, removals) = (writer.path(), &self.store.removals);
        let finished = writer.finish(&*self.store.disk).and_then(|reference| {
            reference.map(|reference| RunFile::open_new(removals, &self.store.keys, reference)).transpose()
        });
        finished.inspect_err(|_| removals.remove(&path))
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        if let Some(writer) = &self.writer {
            self.store.removals.remove(&writer.path());
        }
    }
}

/// Places whose counts differ by the runs of one publication. They become runs of the table of
/// counts, several if they are many: the counts of a place are a sum.
pub(super) struct Differences<'a> {
    store: &'a Store,
    of: BTreeMap<Place, i64>,
    runs: Vec<Arc<RunFile>>,
}

impl<'a> Differences<'a> {
    /// Places that are in memory at once: about 64 MiB.
    const MOST: usize = 1 << 20;

    pub(super) fn new(store: &'a Store) -> Self {
        Self { store, of: BTreeMap::new(), runs: Vec::new() }
    }

    /// Counts every item of a mapping.
    pub(super) fn add(&mut self, mapping: &Mapping, difference: i64) -> Result<(), VolumeError> {
        for place in mapping.items.iter().filter_map(|item| item.place) {
            *self.of.entry(place).or_insert(0) += difference;
        }
        if self.of.len() >= Self::MOST { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<(), VolumeError> {
        let mut writing = Writing::new(self.store, VolumeTable::Counts);
        for (place, difference) in std::mem::take(&mut self.of).into_iter().filter(|(_, difference)| *difference != 0) {
            writing.push(&place_key(place), &difference.to_le_bytes())?;
        }
        self.runs.extend(writing.finish()?);
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<Vec<Arc<RunFile>>, VolumeError> {
        if !self.of.is_empty() {
            self.write()?;
        }
        Ok(self.runs)
    }
}
