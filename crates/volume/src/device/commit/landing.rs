//! The second half of a record: both syncs, and then what readers and flushes see.
//!
//! All that waits for the disk is done in the thread of the record, while the next batch is
//! prepared: names of new containers, frames and record are synced at once. Behind them, the tables
//! of containers that are full are written. They are synced together with the next record, so a
//! batch waits for the disk once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread::{Scope, ScopedJoinHandle};

use larder_format::volume_map::{Mapping, Place};

use super::batch::BlockId;
use super::staging::Grown;
use crate::chain::Key;
use crate::counters::Phase;
use crate::dirty::Dirty;
use crate::disk::DiskFile;
use crate::error::VolumeError;
use crate::store::{Committer, OpenContainer, Store};

/// What makes a record durable.
#[derive(Default)]
pub(super) struct Syncs {
    /// Folders where containers were created that the record names.
    pub(super) folders: BTreeSet<String>,
    /// The log, the containers that the record names, and those whose tables were written behind
    /// the record before. None: nothing changed.
    pub(super) files: Vec<Arc<dyn DiskFile>>,
    /// Full containers. Every frame of them is named by this record or an earlier one.
    pub(super) closing: Vec<OpenContainer>,
}

impl Syncs {
    /// Makes the record durable, and then writes the tables of full containers.
    ///
    /// A start that finds the record without a name or a frame drops it, so these may become
    /// durable in any order. The tables are synced with the next record, or before a manifest needs
    /// them. So a failure concerns containers of the last two records that name frames: a start
    /// does not trust these.
    fn run(&self, store: &Store) -> Result<(), VolumeError> {
        let folders: Vec<&str> = self.folders.iter().map(String::as_str).collect();
        store.disk.sync_many(&folders, &self.files).map_err(VolumeError::io("commit"))?;
        self.closing.iter().try_for_each(OpenContainer::write_tables)
    }
}

/// A record that is written and not synced.
pub(super) struct Written {
    pub(super) syncs: Syncs,
    /// Blocks that are done when it is durable.
    pub(super) blocks: Vec<BlockId>,
    /// Their new contents with versions.
    pub(super) mappings: Vec<(BlockId, u64, Mapping)>,
    pub(super) chunks: Vec<(Key, Place)>,
    pub(super) grown: Vec<Grown>,
}

/// A record under way to the disk.
pub(super) struct Flight<'scope> {
    written: Written,
    syncs: Arc<Syncs>,
    /// Syncs it. `None`: it is synced when it lands.
    thread: Option<ScopedJoinHandle<'scope, Result<(), VolumeError>>>,
}

impl<'scope> Flight<'scope> {
    /// Begins to sync a record, in a thread of its own if there is one.
    pub(super) fn begin<'env>(store: &'env Store, written: Written, scope: &'scope Scope<'scope, 'env>) -> Self {
        let mut flight = Self::later(written);
        let syncs = flight.syncs.clone();
        let sync = move || syncs.run(store);
        flight.thread = std::thread::Builder::new().name("sync".into()).spawn_scoped(scope, sync).ok();
        flight
    }

    /// A record that is synced when it lands.
    pub(super) fn later(mut written: Written) -> Self {
        let syncs = Arc::new(std::mem::take(&mut written.syncs));
        Self { written, syncs, thread: None }
    }

    /// Waits until the record is durable, and shows what it changed. An error stops all writing.
    pub(super) fn land(self, store: &Store, committer: &mut Committer) -> Result<(), VolumeError> {
        let Self { written, syncs, thread } = self;
        let time = store.counters.time(Phase::Syncing);
        let synced = match thread {
            Some(thread) => thread.join().unwrap_or_else(|_| {
                let ended = std::io::Error::other("a thread that syncs ended");
                Err(VolumeError::io("commit")(ended))
            }),
            None => syncs.run(store),
        };
        drop(time);
        synced.map_err(|error| store.stop(error))?;
        for grown in &written.grown {
            store.containers.show(grown.number, &grown.file, &grown.contents);
        }
        let mut done = Vec::with_capacity(written.blocks.len());
        {
            let mut state = store.state.lock();
            for ((volume, block), version, mapping) in written.mappings {
                state.tables.put_block(volume, block, version, mapping);
            }
            state.tables.chunks.extend(written.chunks.iter().copied());
            for key in &written.blocks {
                if let Some(dirty) = state.sealing.blocks.remove(key) {
                    state.sealing.bytes -= dirty.bytes_held();
                    done.push(dirty);
                }
            }
            state.sealing.counted = state.sealing.blocks.len();
        }
        store.changed.notify_all();
        committer.chain.landed(&written.chunks);
        // Readers may still have some of them. The memory is freed while writers go on.
        store.spare_blocks.give(done.into_iter().filter_map(Arc::into_inner).flat_map(Dirty::into_pieces));
        for container in &syncs.closing {
            store.containers.closed(container.number);
            committer.tables.push(container.file.clone());
        }
        Ok(())
    }
}
