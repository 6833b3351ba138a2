//! Collection: containers with few live chunks go.
//!
//! A round: victims are marked, so that no new block names them, and everything is published, so
//! that all names are in runs. Their live chunks are stored again. The block table is rewritten
//! with the new places. Then one manifest names the rewritten runs and the retired containers.
//! `docs/volume.md` has the rules and why they suffice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use larder_format::DecodeError;
use larder_format::ErrorKind;
use larder_format::page_run::VolumeTable;
use larder_format::volume_map::{Mapping, Place};

use super::merge::{Moved, put, rewrite};
use super::opened::Store;
use super::writing::Differences;
use crate::error::VolumeError;
use crate::index::{Runs, summed};

/// When containers are collected.
#[derive(Debug, Clone)]
pub struct CollectOptions {
    /// Containers with less than this percentage of live chunks are rewritten; those without any
    /// always go.
    pub live_percent: u64,
    /// Rounds end when this percentage of the file system is free; `None`: when nothing is left.
    pub until_free: Option<u64>,
    /// Chunks that one round moves at most. Each takes about 32 bytes of memory.
    pub round: usize,
}

impl Default for CollectOptions {
    fn default() -> Self {
        Self { live_percent: 40, until_free: None, round: 1 << 20 }
    }
}

/// What a collection did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Collected {
    /// Containers that retired.
    pub containers: u64,
    /// Bytes of them.
    pub freed: u64,
    /// Chunks that were stored again.
    pub copied_chunks: u64,
    /// Their bytes before compression.
    pub copied: u64,
    /// Rounds.
    pub rounds: u64,
}

/// Chunks of containers, and how many of them are live.
#[derive(Debug, Clone, Copy, Default)]
struct Usage {
    chunks: u64,
    live: u64,
}

/// Bytes of chunks that are stored again at once, with the committer's lock.
const STEP: usize = 1 << 20;
/// Percentage of dead chunks at which maintenance collects.
const DEAD_PERCENT: u64 = 25;
/// Percentage of the file system that maintenance wants to be free.
const FREE_PERCENT: u64 = 10;

impl Store {
    /// Merges, and collects what is due: for a thread that calls it now and then.
    ///
    /// # Errors
    /// Damage of a run is none: other runs are merged, and [`Store::stats`] names the run.
    pub fn maintain(&self) -> Result<Collected, VolumeError> {
        let _maintenance = self.maintenance.lock();
        // Nothing could be published.
        self.refuse_if_stopped()?;
        self.expect_no_interrupt()?;
        self.removals.retry();
        let tiers = self.merge_tiers();
        let has_room = !is_full(&tiers);
        let collected = if tiers.is_ok() || !has_room { self.collect_if_due(has_room)? } else { Collected::default() };
        self.keep_ballast();
        // What was collected makes room for the next time.
        if collected.rounds == 0 { tiers.map(|()| collected) } else { Ok(collected) }
    }

    fn collect_if_due(&self, has_room: bool) -> Result<Collected, VolumeError> {
        let is_low = !has_room || self.free_percent()? < FREE_PERCENT;
        if is_low && !self.state.lock().tables.blocks.is_empty() {
            // Discards in memory count too.
            self.publish(&mut self.committer.lock())?;
        }
        if !self.is_worth_merging(is_low) {
            return Ok(Collected::default());
        }
        let has_deleted = self.has_deleted.swap(false, Ordering::Relaxed);
        let merged = self.or_with_ballast(|| self.merge_blocks());
        if merged.is_err() {
            self.has_deleted.fetch_or(has_deleted, Ordering::Relaxed);
        }
        // Without space for it, what is dead without the merge goes.
        if !is_full(&merged) {
            merged?;
        }
        let usage = self.usage()?;
        let chunks: u64 = usage.values().map(|usage| usage.chunks).sum();
        let live: u64 = usage.values().map(|usage| usage.live).sum();
        if is_low || (chunks - live) * 100 > chunks * DEAD_PERCENT {
            return self.collect_rounds(&CollectOptions::default());
        }
        Ok(Collected::default())
    }

    /// Merges, and collects all that there is to collect.
    pub fn collect(&self, options: &CollectOptions) -> Result<Collected, VolumeError> {
        let _maintenance = self.maintenance.lock();
        self.expect_no_interrupt()?;
        self.removals.retry();
        self.publish(&mut self.committer.lock())?;
        let merged = self.or_with_ballast(|| self.merge_blocks());
        // Without space for it, what is dead without the merge goes.
        if !is_full(&merged) {
            merged?;
        }
        let collected = self.collect_rounds(options);
        self.keep_ballast();
        collected
    }

    /// Counts again how often blocks name each chunk, and replaces the counts.
    pub fn repair_counts(&self) -> Result<(), VolumeError> {
        let _maintenance = self.maintenance.lock();
        let mut committer = self.committer.lock();
        self.publish(&mut committer)?;
        let mut next = self.state.lock().runs.copy();
        let mut differences = Differences::new(self);
        for record in next.blocks.iter().flat_map(|run| self.watched(run)) {
            let mapping = Mapping::decode(&record?.1);
            differences.add(&mapping.map_err(VolumeError::damaged("a run"))?, 1)?;
        }
        next.counts = differences.finish()?;
        self.count_from_now_on(&mut committer, next, &[], None)
    }

    fn free_percent(&self) -> Result<u64, VolumeError> {
        let space = self.disk.space().map_err(VolumeError::io("the file system"))?;
        Ok(space.free.saturating_mul(100) / space.total.max(1))
    }

    /// Counts are only exact after a merge of the whole block table. It is worth it when the newer
    /// runs have a third as many records as the oldest one, or a twentieth when space is short, and
    /// when something was deleted.
    fn is_worth_merging(&self, is_low: bool) -> bool {
        let runs = self.state.lock().runs.clone();
        if self.has_deleted.load(Ordering::Relaxed) {
            return true;
        }
        // Damaged runs stay beside the merged ones.
        if *self.merged_blocks.lock() == runs.blocks.iter().map(|run| run.id()).collect::<Vec<_>>() {
            return false;
        }
        let records: Vec<u64> = runs.blocks.iter().map(|run| run.reference.records).collect();
        let Some((oldest, newer)) = records.split_first() else { return false };
        let share = if is_low { 20 } else { 3 };
        newer.iter().sum::<u64>() * share > *oldest
    }

    /// Merges all runs of the block table to one. A damaged run stays, and splits the others.
    fn merge_blocks(&self) -> Result<(), VolumeError> {
        let runs = self.state.lock().runs.clone();
        let merges = loop {
            let sound = self.sound(&runs.blocks).into_iter().map(|stretch| stretch.range());
            let merges = sound.map(|range| self.merge_sound(&runs, VolumeTable::Blocks, range));
            // Damage that was found now splits them in another way.
            if let Some(merges) = merges.collect::<Result<Option<Vec<_>>, _>>()? {
                break merges;
            }
        };
        drop(runs);
        self.install(&mut self.committer.lock(), merges)?;
        *self.merged_blocks.lock() = self.state.lock().runs.blocks.iter().map(|run| run.id()).collect();
        Ok(())
    }

    /// Whether blocks of a damaged run may name chunks that no scan finds.
    fn has_damaged_blocks(&self) -> bool {
        let runs = self.state.lock().runs.clone();
        runs.blocks.iter().any(|run| self.damaged.has(run.id()))
    }

    fn collect_rounds(&self, options: &CollectOptions) -> Result<Collected, VolumeError> {
        let mut collected = Collected::default();
        // What failed once is not tried again and again.
        let mut tried = BTreeSet::new();
        let mut moves = !self.has_damaged_blocks();
        loop {
            if let Some(wanted) = options.until_free
                && self.free_percent()? >= wanted
            {
                return Ok(collected);
            }
            let options = CollectOptions { round: if moves { options.round } else { 0 }, ..options.clone() };
            let victims = self.victims(&options, &tried)?;
            if victims.is_empty() {
                return Ok(collected);
            }
            tried.extend(&victims);
            let round = self.or_with_ballast(|| self.round(&options, victims.clone(), &mut collected));
            match round {
                Ok(()) => collected.rounds += 1,
                // Copies need space, and all names of what moves. Containers that nothing names go
                // without.
                Err(error) if moves && matches!(error.kind(), ErrorKind::Full | ErrorKind::Damaged) => {
                    tracing::warn!("only containers without any live chunk are collected: {error}");
                    tried.clear();
                    moves = false;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Chunks of all closed containers.
    fn usage(&self) -> Result<BTreeMap<u32, Usage>, VolumeError> {
        let (next, runs) = {
            let committer = self.committer.lock();
            (committer.manifest.next_container, self.state.lock().runs.clone())
        };
        let mut usage = BTreeMap::new();
        for number in (0..next).filter(|number| !runs.retired.contains(*number)) {
            self.expect_no_interrupt()?;
            let known = self.totals.lock().get(&number).copied();
            let chunks = match known {
                Some(chunks) => chunks,
                None => match self.containers.table(number) {
                    Ok(table) => table.contents.read().chunks.len() as u64,
                    // `check` reports it. Its chunks stay, and it goes when no block names it.
                    Err(VolumeError::Damaged { .. }) => {
                        usage.insert(number, Usage { chunks: 0, live: 0 });
                        continue;
                    }
                    Err(error) => return Err(error),
                },
            };
            self.totals.lock().insert(number, chunks);
            usage.insert(number, Usage { chunks, live: 0 });
        }
        for place in self.live_places(&runs) {
            if let Some(usage) = usage.get_mut(&place?.container) {
                usage.live += 1;
            }
        }
        Ok(usage)
    }

    /// The containers of the next round: the emptiest ones.
    fn victims(&self, options: &CollectOptions, tried: &BTreeSet<u32>) -> Result<BTreeSet<u32>, VolumeError> {
        let usage = self.usage()?;
        let is_sparse = |usage: &Usage| {
            let may_move = usage.live <= options.round as u64;
            usage.live == 0 || may_move && usage.live * 100 < usage.chunks * options.live_percent
        };
        let mut sparse: Vec<_> =
            usage.into_iter().filter(|(number, usage)| is_sparse(usage) && !tried.contains(number)).collect();
        sparse.sort_by_key(|(number, usage)| (usage.live, *number));
        let mut moving = 0;
        let fits = |(_, usage): &(u32, Usage)| {
            moving += usage.live as usize;
            moving <= options.round || usage.live == 0
        };
        Ok(sparse.into_iter().take_while(fits).map(|(number, _)| number).collect())
    }

    fn round(
        &self,
        options: &CollectOptions,
        mut victims: BTreeSet<u32>,
        collected: &mut Collected,
    ) -> Result<(), VolumeError> {
        let _closing = Closing(self);
        {
            let mut committer = self.committer.lock();
            self.closing.write().extend(&victims);
            victims.iter().for_each(|number| committer.chain.forget_container(*number));
            self.publish(&mut committer)?;
        }
        let runs = self.state.lock().runs.clone();
        let mut live: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for place in self.live_places(&runs) {
            let place = place?;
            if victims.contains(&place.container) {
                live.entry(place.container).or_default().push(place.offset);
            }
        }
        // What was written until a moment ago may have named more of them.
        let too_many: Vec<u32> =
            live.iter().filter(|(_, offsets)| offsets.len() > options.round).map(|(number, _)| *number).collect();
        for number in too_many {
            live.remove(&number);
            victims.remove(&number);
        }
        let mut moved = Moved::new();
        for (number, offsets) in live {
            match self.copy_chunks(number, &offsets, &mut moved, collected) {
                Ok(()) => {}
                // Its chunks that can be read have another place now; the container stays.
                Err(VolumeError::Damaged { what, source }) => {
                    tracing::error!("a container cannot be collected: {what}: {source}");
                    victims.remove(&number);
                }
                Err(error) => return Err(error),
            }
        }
        self.retire(&runs, victims, &moved, collected)
    }

    /// Stores the live chunks of a container again.
    fn copy_chunks(
        &self,
        number: u32,
        offsets: &[u32],
        moved: &mut Moved,
        collected: &mut Collected,
    ) -> Result<(), VolumeError> {
        let table = self.containers.table(number)?;
        let mut chunks = BTreeMap::new();
        let mut offset = 0;
        for chunk in &table.contents.read().chunks {
            chunks.insert(offset, *chunk);
            offset += chunk.size;
        }
        let (mut batch, mut places, mut bytes) = (Vec::new(), Vec::new(), 0);
        for (at, offset) in offsets.iter().enumerate() {
            self.expect_no_interrupt()?;
            let place = Place { container: number, offset: *offset };
            let what = || format!("{}, payload offset {offset}", super::containers::path(number));
            let missing = || VolumeError::damaged(what())(DecodeError::Truncated { what: "container" });
            let chunk = chunks.get(offset).ok_or_else(missing)?;
            let (frame, from) = self.containers.frame(place)?;
            let content = frame.get(from..from + chunk.size as usize).ok_or_else(missing)?;
            batch.push((chunk.fingerprint, content.to_vec()));
            places.push(place);
            bytes += content.len();
            if bytes >= STEP || at + 1 == offsets.len() {
                let new = self.store_chunks(&mut self.committer.lock(), &batch)?;
                collected.copied_chunks += new.len() as u64;
                collected.copied += bytes as u64;
                moved.extend(places.drain(..).zip(new));
                batch.clear();
                bytes = 0;
            }
        }
        Ok(())
    }

    /// Rewrites all names of chunks that moved, and retires the containers.
    fn retire(
        &self,
        runs: &Runs,
        victims: BTreeSet<u32>,
        moved: &Moved,
        collected: &mut Collected,
    ) -> Result<(), VolumeError> {
        let old = runs.blocks.len();
        let merged = match moved.is_empty() {
            true => None,
            false => Some(self.merge(runs, VolumeTable::Blocks, 0..old, moved)?),
        };
        let mut committer = self.committer.lock();
        let mut next = self.state.lock().runs.copy();
        if let Some(merged) = merged {
            let newer: Vec<_> = next.blocks.iter().skip(old).map(|run| run.id()).collect();
            if !put(&mut next, &merged) {
                return Err(VolumeError::BadRequest("runs changed during a collection".into()));
            }
            // Commits wait meanwhile. Their runs and their memory table can name what was copied
            // from older mappings.
            for id in newer {
                let Some(at) = next.blocks.iter().position(|run| run.id() == id) else { continue };
                let rewritten = self.merge(&next, VolumeTable::Blocks, at..at + 1, moved)?;
                put(&mut next, &rewritten);
            }
            for mapping in self.state.lock().tables.blocks.values_mut() {
                rewrite(mapping, moved);
            }
        }
        let retired: Vec<u32> = victims.into_iter().collect();
        let mut freed = 0;
        for number in &retired {
            freed += self.containers.object_len(*number).unwrap_or(0);
            self.totals.lock().remove(number);
        }
        self.publish_over(&mut committer, next, &retired)?;
        self.containers.forget(&retired);
        collected.containers += retired.len() as u64;
        collected.freed += freed;
        Ok(())
    }
}

/// Containers close as long as it lives, which is one round.
struct Closing<'a>(&'a Store);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.closing.write().clear();
    }
}

impl Store {
    /// Places that blocks name, in order. A negative count is damage: nothing may be deleted then.
    fn live_places(&self, runs: &Runs) -> impl Iterator<Item = Result<Place, VolumeError>> + use<> {
        let sources = runs.counts.iter().map(|run| self.watched(run)).collect();
        summed(sources).map(|sum| match sum? {
            (place, 1..) => Ok(place),
            (place, _) => {
                let what = format!("the table of counts, container {}", place.container);
                Err(VolumeError::damaged(what)(DecodeError::NotAuthentic { what: "count of a chunk" }))
            }
        })
    }
}

fn is_full<T>(done: &Result<T, VolumeError>) -> bool {
    done.as_ref().is_err_and(|error| error.kind() == ErrorKind::Full)
}
