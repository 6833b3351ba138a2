//! Commits: what waits becomes frames and one record of the log.
//!
//! | module    | what it has                                                       |
//! |-----------|-------------------------------------------------------------------|
//! | `batch`   | the blocks of one record, and what was there before               |
//! | `front`   | the first half of a batch: its blocks, and their chunks           |
//! | `streams` | their bytes as streams, and the items that they get               |
//! | `cut`     | chunks and fingerprints                                           |
//! | `ask`     | the questions to the filter chain                                 |
//! | `drafts`  | new chunks, in frames                                             |
//! | `staging` | containers that get the frames                                    |
//! | `frames`  | sealing and writing frames                                        |
//! | `landing` | syncing a record, and showing what it changed                     |
//! | `copy`    | chunks of a collection become frames and a record                 |
//!
//! Order of a batch: frames are written; the record is written; both are synced at once; then the
//! memory tables change, and flushes are acknowledged. While one batch is synced, the next one is
//! prepared up to its frames, and the one behind that is cut. A record is written when the one
//! before is durable. An error before the record leaves everything as it was, and the next commit
//! tries again. An error from there on stops all writing.

mod ask;
mod batch;
mod copy;
mod cut;
mod drafts;
mod frames;
mod front;
mod landing;
mod staging;
mod streams;

use std::sync::Arc;
use std::thread::Scope;

use larder_format::volume_log::Event;
use larder_format::volume_map::{Mapping, Place};

use self::batch::{BlockId, Changing, Progress};
use self::drafts::{Drafts, place_in};
use self::front::{CutBatch, Later};
use self::landing::{Flight, Syncs, Written};
use self::staging::{Added, Grown, Staging};
use self::streams::Item;
use super::splice::splice;
use super::unreadable::Unreadable;
use crate::chain::{Answer, Key};
use crate::counters::Phase;
use crate::disk::DiskFile;
use crate::error::VolumeError;
use crate::store::{Committer, StopOnPanic, Store};
use crate::workers;

/// A batch whose frames are written.
struct Prepared {
    batch: Vec<Changing>,
    chunks: NewChunks,
    added: Added,
}

/// Chunks of a batch that were not stored before, and their places.
type NewChunks = Vec<(Key, Place)>;

/// What became of a chunk of a batch.
enum Found {
    Stored(Answer),
    /// Frame of the batch, and the offset in it.
    New(usize, usize),
}

impl Store {
    /// Commits everything that waits. Gives the blocks that wait all the same.
    pub(crate) fn commit(&self, committer: &mut Committer) -> Result<Unreadable, VolumeError> {
        self.commit_with(committer, Later::Wait)
    }

    /// Commits everything that waits, and then what arrives meanwhile, as long as it is much and
    /// nobody else waits for the committer.
    pub(crate) fn commit_on(&self, committer: &mut Committer) -> Result<Unreadable, VolumeError> {
        self.commit_with(committer, Later::Join)
    }

    fn commit_with(&self, committer: &mut Committer, later: Later) -> Result<Unreadable, VolumeError> {
        let committed = self.commit_all(committer, later);
        // Writers look at the state before they wait.
        drop(self.state.lock());
        self.changed.notify_all();
        committed
    }

    fn commit_all(&self, committer: &mut Committer, later: Later) -> Result<Unreadable, VolumeError> {
        let upto = {
            let mut state = self.state.lock();
            if let Some(why) = &state.stopped {
                return Err(VolumeError::Stopped(why.clone()));
            }
            let active = std::mem::take(&mut state.active);
            if state.sealing.blocks.is_empty() {
                state.sealing = active;
            } else {
                // The last commit failed before its record.
                state.sealing.put_all(active);
            }
            state.accepted
        };
        self.look_at_space()?;
        let _guard = StopOnPanic(self);
        let progress = Progress { upto, ..Progress::default() };
        let mut staging = Staging::new(committer.container.take(), committer.next_container);
        let result = std::thread::scope(|scope| self.commit_batches(committer, &mut staging, progress, later, scope));
        // What failed was taken back, so this is what durable records name.
        (committer.container, committer.next_container) = staging.into_parts();
        committer.chain.end();
        // Blocks that cannot be read wait, and the others are durable now.
        let progress = result?;
        let left = progress.unreadable;
        self.note_unreadable(&left);
        let mut state = self.state.lock();
        if left.is_empty() {
            state.committed = progress.upto;
        }
        state.log_use = committer.log.usage();
        Ok(left)
    }

    /// Whether the log or the memory tables must be emptied before the next record.
    fn is_publication_due(&self, committer: &Committer) -> bool {
        committer.log.is_half_full() || self.state.lock().tables.bytes_held() >= self.options.tables
    }

    /// Commits what waits, batch by batch. All records have landed when it ends without an error.
    fn commit_batches<'scope, 'env>(
        &'env self,
        committer: &mut Committer,
        staging: &mut Staging,
        mut progress: Progress,
        later: Later,
        scope: &'scope Scope<'scope, 'env>,
    ) -> Result<Progress, VolumeError> {
        let record_room = committer.log.record_room();
        let mut flight: Option<Flight<'_>> = None;
        let room = committer.rooms.pop().unwrap_or_default();
        let mut next = self.cut_next(record_room, &mut progress, later, room);
        while let Some(cut) = next.take() {
            if self.is_publication_due(committer) {
                land(self, committer, flight.take())?;
                self.publish_between(committer, staging)?;
            }
            let ahead = if self.options.overlap && self.goes_on(&progress, later) {
                let room = committer.rooms.pop().unwrap_or_default();
                let mut progress = std::mem::take(&mut progress);
                let cut_next = move || (self.cut_next(record_room, &mut progress, later, room), progress);
                Some(workers::beside(scope, "cut", cut_next))
            } else {
                None
            };
            let prepared = self.prepare(committer, staging, cut);
            if let Some(ahead) = ahead {
                (next, progress) = ahead.end();
            }
            land(self, committer, flight.take())?;
            let written = self.write_record(committer, prepared?)?;
            if self.options.overlap && (next.is_some() || self.goes_on(&progress, later)) {
                flight = Some(Flight::begin(self, written, scope));
            } else {
                Flight::later(written).land(self, committer)?;
            }
            if next.is_none() {
                // The last batch is under way. More may have arrived since.
                let room = committer.rooms.pop().unwrap_or_default();
                next = self.cut_next(record_room, &mut progress, later, room);
            }
        }
        land(self, committer, flight)?;
        Ok(progress)
    }

    /// Publishes between two batches, when nothing is under way.
    fn publish_between(&self, committer: &mut Committer, staging: &mut Staging) -> Result<(), VolumeError> {
        let settled = std::mem::replace(staging, Staging::new(None, 0));
        (committer.container, committer.next_container) = settled.into_parts();
        let published = self.publish(committer);
        *staging = Staging::new(committer.container.take(), committer.next_container);
        committer.chain.end();
        published
    }

    /// Looks for the chunks of a batch, and writes frames of those that are new. An error takes
    /// back what it did.
    fn prepare(
        &self,
        committer: &mut Committer,
        staging: &mut Staging,
        mut cut: CutBatch,
    ) -> Result<Prepared, VolumeError> {
        let found = self.find_and_store(committer, staging, &cut);
        let prepared = match found {
            Ok((items, chunks)) => {
                let mut items = items.into_iter();
                for (stream, chunks) in cut.streams.iter().zip(&cut.chunks) {
                    let of_stream: Vec<Item> = items.by_ref().take(chunks.lengths.len()).collect();
                    stream.assign(&mut cut.blocks, &of_stream);
                }
                Ok(Prepared { batch: cut.blocks, chunks, added: staging.end_batch() })
            }
            Err(error) => {
                staging.abort();
                Err(error)
            }
        };
        committer.rooms.push(cut.room);
        prepared
    }

    /// What the chunks of a batch became, and the new ones among them.
    fn find_and_store(
        &self,
        committer: &mut Committer,
        staging: &mut Staging,
        cut: &CutBatch,
    ) -> Result<(Vec<Item>, NewChunks), VolumeError> {
        if cut.streams.is_empty() {
            return Ok((Vec::new(), Vec::new()));
        }
        let time = self.counters.time(Phase::Asking);
        let answers = self.ask(committer, cut)?;
        drop(time);
        let _time = self.counters.time(Phase::Storing);
        let mut drafts = Drafts::default();
        let names = || cut.chunks.iter().flat_map(|chunks| &chunks.names);
        let mut found = Vec::with_capacity(answers.len());
        for ((range, name), answer) in cut.ranges().zip(names()).zip(answers) {
            found.push(match answer {
                Some(answer) => Found::Stored(answer),
                None => {
                    let (frame, within) = drafts.add(&cut.room, range, name);
                    Found::New(frame, within)
                }
            });
        }
        let frames = staging.write(self, &mut committer.compressors, &drafts)?;
        let new: Vec<_> = drafts.places(&frames).collect();
        new.iter().for_each(|(key, place)| committer.chain.update(*key, *place));
        let items = cut.ranges().zip(names()).zip(found).map(|((range, name), found)| {
            let place = match found {
                Found::Stored(Answer::Zeros) => None,
                Found::Stored(Answer::At(place)) => Some(place),
                Found::New(frame, within) => Some(place_in(&frames, frame, within)),
            };
            let mut tag = [0; 4];
            tag.copy_from_slice(&name.0[..4]);
            Item { length: range.len() as u32, place, tag }
        });
        Ok((items.collect(), new))
    }

    /// Writes the record of a batch, not synced. The record before must be durable.
    fn write_record(&self, committer: &mut Committer, prepared: Prepared) -> Result<Written, VolumeError> {
        let Prepared { batch, chunks, added } = prepared;
        let Added { mut events, grown, folders, closing } = added;
        let mut mappings = Vec::new();
        for changing in &batch {
            if changing.is_unchanged {
                continue;
            }
            let mapping = if changing.dirty.is_zeros() {
                Mapping::ZERO
            } else {
                splice(&changing.old, &changing.parts, changing.mac)
            };
            if mapping == changing.old && !changing.becomes_own {
                continue;
            }
            let ((volume, block), version) = (changing.key, committer.next_version);
            committer.next_version += 1;
            events.push(Event::Wrote { volume, block, version, mapping: mapping.clone() });
            mappings.push((changing.key, version, mapping));
        }
        let files = self.append(committer, events, &grown)?;
        let blocks: Vec<BlockId> = batch.iter().map(|changing| changing.key).collect();
        Ok(Written { syncs: Syncs { folders, files, closing }, blocks, mappings, chunks, grown })
    }

    /// Writes a record, not synced, and gives the files that must be synced: none if it says
    /// nothing. An error stops all writing.
    fn append(
        &self,
        committer: &mut Committer,
        events: Vec<Event>,
        grown: &[Grown],
    ) -> Result<Vec<Arc<dyn DiskFile>>, VolumeError> {
        if events.is_empty() {
            return Ok(Vec::new());
        }
        let _time = self.counters.time(Phase::Syncing);
        self.counters.committed(&events);
        let appended = committer.log.append(&*self.disk, &self.keys, &*self.entropy, events);
        let mut files = appended.map_err(|error| self.stop(error))?;
        files.extend(grown.iter().map(|grown| grown.file.clone()));
        files.append(&mut committer.tables);
        Ok(files)
    }
}

/// Waits for a record, if one is under way.
fn land(store: &Store, committer: &mut Committer, flight: Option<Flight<'_>>) -> Result<(), VolumeError> {
    flight.map_or(Ok(()), |flight| flight.land(store, committer))
}
