//! Publishing: the memory tables become runs, and the next manifest names them.
//!
//! Order: the open container gets its tables, and all tables are synced; the new runs are synced; a
//! slot of the log begins; the manifest is linked and its folder synced; then slots are free, and
//! files that no manifest names any more go when their last reader ends.

use std::cmp::Reverse;
use std::sync::Arc;

use larder_format::page_run::VolumeTable;
use larder_format::volume_manifest::{VolumeManifest, path};
use larder_format::volume_map::Mapping;

use super::containers;
use super::log::Log;
use super::manifest::{self, Unnamed};
use super::opened::{Committer, StopOnPanic, Store};
use super::writing::{Differences, Writing};
use crate::counters::Phase;
use crate::error::VolumeError;
use crate::index::{Judged, Memtables, Record, RunFile, Runs, block_key, run_path, value_of};

/// Runs of a table at which a publication merges them itself, if nobody else does.
const RUNS_MOST: usize = 48;

impl Store {
    /// Makes everything durable and leaves an empty log, so that the next start replays nothing.
    ///
    /// A merge or a round of collection that runs meanwhile ends with [`VolumeError::Interrupted`].
    /// What cannot be committed is an error, and everything else is published all the same.
    pub fn close(&self) -> Result<(), VolumeError> {
        let _pause = self.interrupts.pause();
        let flushed = self.flush();
        let mut committer = self.committer.lock();
        if committer.manifest.log_from == committer.log.seq {
            return flushed;
        }
        let published = self.publish(&mut committer);
        flushed.and(published)
    }

    /// Publishes what was committed so far. An error leaves the store as it was, or stopped.
    pub(crate) fn publish(&self, committer: &mut Committer) -> Result<(), VolumeError> {
        let runs = self.state.lock().runs.clone();
        let is_behind = VolumeTable::ALL.into_iter().any(|table| runs.of(table).len() > RUNS_MOST);
        // A merge in the background has this lock, and then waits for the committer.
        if is_behind
            && !self.interrupts.are_there()
            && let Some(_merging) = self.maintenance.try_lock()
        {
            let merged = self.merge_tier();
            let merged =
                merged.and_then(|merged| merged.map_or(Ok(()), |merged| self.install(committer, vec![merged])));
            match merged {
                Ok(()) => self.problems.end("merge"),
                Err(_) if self.interrupts.are_there() => {}
                // Everything else must go on.
                Err(error) => self.problems.note("merge", &error.to_string()),
            }
        }
        drop(runs);
        let next = self.state.lock().runs.copy();
        self.publish_over(committer, next, &[])
    }

    /// The same over these runs, instead of those that count now. Nothing names the retired
    /// containers any more.
    pub(super) fn publish_over(
        &self,
        committer: &mut Committer,
        next: Runs,
        retired: &[u32],
    ) -> Result<(), VolumeError> {
        // An earlier manifest may count, and it names a slot that looks free here.
        self.refuse_if_stopped()?;
        let before = &committer.manifest;
        let (shape, live) = ((before.slots, before.slot_bytes), &committer.log.live);
        let log = self.or_with_ballast(|| {
            let (seq, anchor) = (committer.log.seq, committer.log.anchor.clone());
            Log::begin(&*self.disk, &self.keys, &*self.entropy, shape, live.clone(), seq, anchor)
        })?;
        self.publish_with(committer, next, retired, Some(log))
    }

    /// The same with a log that has no records yet: this one, or that of the committer.
    pub(super) fn publish_with(
        &self,
        committer: &mut Committer,
        next: Runs,
        retired: &[u32],
        log: Option<Log>,
    ) -> Result<(), VolumeError> {
        let _time = self.counters.time(Phase::Publishing);
        self.counters.publishes.add(1);
        self.refuse_if_stopped()?;
        let _guard = StopOnPanic(self);
        if let Some(container) = &committer.container {
            self.or_with_ballast(|| container.close())?;
            self.containers.closed(container.number);
            committer.container = None;
        }
        // A manifest says that all containers have tables.
        let synced = self.disk.sync_files(&std::mem::take(&mut committer.tables));
        synced.map_err(|error| self.stop(VolumeError::io("containers")(error)))?;
        // After an error the files of new runs go with `next`, so they take no space.
        let next = self.or_with_ballast(|| {
            let mut next = next.copy();
            self.flush_tables(&mut next)?;
            self.disk.sync_folder("runs").map_err(VolumeError::io("runs"))?;
            Ok(next)
        })?;
        let before = &committer.manifest;
        let begun = log.as_ref().unwrap_or(&committer.log);
        let mut manifest = VolumeManifest {
            log_from: begun.seq,
            log_slot: begun.current.slot,
            log_salt: begun.current.salt,
            next_container: committer.next_container,
            next_version: committer.next_version,
            ..before.clone()
        };
        self.catalog().put_into(&mut manifest);
        self.count_from_now_on(committer, next, retired, Some(manifest))?;
        if let Some(log) = log {
            committer.log = log;
        }
        committer.log.live = vec![committer.log.current.slot];
        self.state.lock().log_use = committer.log.usage();
        Ok(())
    }

    /// Links the manifest of these runs. `flushed`: the manifest of all else, if the runs have all
    /// of the memory tables; else the log begins where it began before.
    pub(super) fn count_from_now_on(
        &self,
        committer: &mut Committer,
        mut next: Runs,
        retired: &[u32],
        flushed: Option<VolumeManifest>,
    ) -> Result<(), VolumeError> {
        let _guard = StopOnPanic(self);
        if flushed.is_none() {
            self.disk.sync_folder("runs").map_err(VolumeError::io("runs"))?;
        }
        retired.iter().for_each(|number| next.retired.insert(*number));
        let is_flushed = flushed.is_some();
        let mut manifest = flushed.unwrap_or_else(|| committer.manifest.clone());
        manifest.number = committer.manifest.number + 1;
        manifest.runs = next.all().map(|run| run.reference.clone()).collect();
        manifest.retired = next.retired.ranges();
        self.or_with_ballast(|| manifest::prepare(&*self.disk, &self.keys, &*self.entropy, &manifest))?;
        let fresh: Vec<_> = next.all().filter(|run| run.publish()).cloned().collect();
        if let Err(Unnamed { error, is_gone }) = manifest::name(&*self.disk, &manifest) {
            if is_gone {
                fresh.iter().for_each(|run| run.unpublish(&self.removals));
                return Err(error);
            }
            // It may have been created or not.
            return Err(self.stop(error));
        }
        self.damaged.retain(next.all());
        let old = std::mem::replace(&mut committer.manifest, manifest);
        next.keep_filters(self.options.index_memory);
        let next = Arc::new(next);
        let before = {
            let mut state = self.state.lock();
            if is_flushed {
                state.tables = Memtables::default();
            }
            std::mem::replace(&mut state.runs, next.clone())
        };
        let is_kept = |run: &&Arc<RunFile>| next.all().any(|other| other.id() == run.id());
        let runs = before.all().filter(|run| !is_kept(run)).map(|run| run_path(run.id()));
        let files = runs.chain(retired.iter().map(|number| containers::path(*number))).collect();
        before.supersede(self.removals.clone(), files, next);
        drop(before);
        self.removals.remove(&path(old.number));
        Ok(())
    }

    pub(crate) fn refuse_if_stopped(&self) -> Result<(), VolumeError> {
        match &self.state.lock().stopped {
            Some(why) => Err(VolumeError::Stopped(why.clone())),
            None => Ok(()),
        }
    }

    /// Writes the memory tables as new runs, and the counts of what they name.
    fn flush_tables(&self, next: &mut Runs) -> Result<(), VolumeError> {
        let (chunks, blocks) = self.memory_records()?;
        let mut writing = Writing::new(self, VolumeTable::Chunks);
        for (key, value) in chunks {
            writing.push(&key, &value)?;
        }
        next.chunks.extend(writing.finish()?);
        let mut differences = Differences::new(self);
        let mut writing = Writing::new(self, VolumeTable::Blocks);
        let bounds = self.catalog().bounds();
        let is_bottom = next.blocks.is_empty();
        for judged in Judged::new(blocks.into_iter().map(Ok), &bounds, is_bottom) {
            let ((key, value), true) = judged? else { continue };
            writing.push(&key, &value)?;
            differences.add(&Mapping::decode(&value).map_err(VolumeError::damaged("memory"))?, 1)?;
        }
        next.blocks.extend(writing.finish()?);
        next.counts.extend(differences.finish()?);
        Ok(())
    }

    /// Sorted records of the memory tables.
    fn memory_records(&self) -> Result<(Vec<Record>, Vec<Record>), VolumeError> {
        let state = self.state.lock();
        let chunks = state.tables.chunks.iter().map(|(key, place)| (key.to_vec(), value_of(*place).to_vec()));
        let mut chunks: Vec<Record> = chunks.collect();
        let mut blocks = Vec::with_capacity(state.tables.blocks.len());
        for ((volume, block, Reverse(version)), mapping) in &state.tables.blocks {
            let mut value = Vec::new();
            mapping.encode(&mut value)?;
            blocks.push((block_key(*volume, *block, *version).to_vec(), value));
        }
        drop(state);
        chunks.sort_unstable();
        Ok((chunks, blocks))
    }

    /// Nothing can be written any more, because it is open how much of it is durable.
    pub(crate) fn stop(&self, error: VolumeError) -> VolumeError {
        self.state.lock().stopped.get_or_insert_with(|| error.to_string());
        error
    }
}
