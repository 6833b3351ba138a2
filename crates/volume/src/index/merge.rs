//! Merging runs, and writing new ones.

use std::sync::Arc;

use larder_format::ids::PageRunId;
use larder_format::keys::Keys;
use larder_format::page_run::{PageRunBuilder, PageRunKey, VolumeTable};
use larder_format::volume_manifest::PageRunRef;
use larder_format::volume_map::Place;

use super::run_file::path;
use super::tables::{difference_of, place_of_key};
use crate::disk::{Disk, DiskFile};
use crate::error::VolumeError;

/// A record of a table.
pub(crate) type Record = (Vec<u8>, Vec<u8>);
/// A source of records in the order of their keys.
pub(crate) type Source = Box<dyn Iterator<Item = Result<Record, VolumeError>>>;

/// Of each key the record of the newest source, in order. `sources` has the newest first. Keys are
/// equal when their first `width` bytes are.
pub(crate) fn newest(sources: Vec<Source>, width: usize) -> impl Iterator<Item = Result<Record, VolumeError>> {
    let mut sources: Vec<_> = sources.into_iter().map(Iterator::peekable).collect();
    let mut last: Option<Vec<u8>> = None;
    std::iter::from_fn(move || {
        loop {
            let mut best: Option<(usize, Vec<u8>)> = None;
            for (number, source) in sources.iter_mut().enumerate() {
                match source.peek() {
                    Some(Ok((key, _))) if best.as_ref().is_none_or(|(_, best)| key < best) => {
                        best = Some((number, key.clone()));
                    }
                    Some(Err(_)) => return source.next(),
                    _ => {}
                }
            }
            let (number, key) = best?;
            let record = sources[number].next()?;
            if last.as_ref().is_some_and(|last| last[..width] == key[..width]) {
                continue;
            }
            last = Some(key);
            return Some(record);
        }
    })
}

/// Of each place of the table of counts the sum of all sources, in order. Sums of 0 are left out.
pub(crate) fn summed(sources: Vec<Source>) -> impl Iterator<Item = Result<(Place, i64), VolumeError>> {
    let mut sources: Vec<_> = sources.into_iter().map(Iterator::peekable).collect();
    std::iter::from_fn(move || {
        loop {
            let mut least: Option<Vec<u8>> = None;
            for source in &mut sources {
                match source.peek() {
                    Some(Ok((key, _))) if least.as_ref().is_none_or(|least| key < least) => least = Some(key.clone()),
                    Some(Err(_)) => return source.next().map(|found| found.map(|_| (Place::default(), 0))),
                    _ => {}
                }
            }
            let least = least?;
            let mut sum = 0;
            for source in &mut sources {
                if let Some(Ok((_, value))) = source.next_if(|next| matches!(next, Ok((key, _)) if *key == least)) {
                    sum += difference_of(&value).unwrap_or(0);
                }
            }
            if sum != 0
                && let Some(place) = place_of_key(&least)
            {
                return Some(Ok((place, sum)));
            }
        }
    })
}

/// Writes a run to its file.
pub(crate) struct RunWriter {
    builder: PageRunBuilder,
    id: PageRunId,
    table: VolumeTable,
    file: Arc<dyn DiskFile>,
    written: u64,
}

impl RunWriter {
    /// Bytes that are written at once.
    const PIECE: u64 = 1024;

    /// A new run. `id` must be fresh random bytes.
    pub(crate) fn new(disk: &dyn Disk, keys: &Keys, id: PageRunId, table: VolumeTable) -> Result<Self, VolumeError> {
        let file = disk.create(&path(id)).map_err(VolumeError::io(path(id)))?;
        let key = PageRunKey::of(keys, id).map_err(VolumeError::damaged(path(id)))?;
        Ok(Self { builder: PageRunBuilder::new(key, table), id, table, file, written: 0 })
    }

    /// Path of the file.
    pub(crate) fn path(&self) -> String {
        path(self.id)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), VolumeError> {
        self.file.write_at(self.written, bytes).map_err(VolumeError::io(path(self.id)))?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) -> Result<(), VolumeError> {
        self.builder.push(key, value)?;
        if self.builder.records().is_multiple_of(Self::PIECE) {
            let bytes = self.builder.take();
            self.write(&bytes)?;
        }
        Ok(())
    }

    /// Makes the run durable. `None`: it has no records, and its file is gone.
    pub(crate) fn finish(self, disk: &dyn Disk) -> Result<Option<PageRunRef>, VolumeError> {
        let Self { builder, id, table, file, written } = self;
        let records = builder.records();
        if records == 0 {
            disk.remove(&path(id)).map_err(VolumeError::io(path(id)))?;
            return Ok(None);
        }
        let bytes = builder.finish()?;
        file.write_at(written, &bytes).map_err(VolumeError::io(path(id)))?;
        file.sync().map_err(VolumeError::io(path(id)))?;
        let object_bytes = written + bytes.len() as u64;
        Ok(Some(PageRunRef { id, table: table.code(), records, object_bytes }))
    }
}
