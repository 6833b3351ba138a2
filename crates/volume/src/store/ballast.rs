//! The ballast: a file whose space is released when the file system is full, so that the store can
//! still be opened and collected.
//!
//! A start needs space for the runs of the log and for a manifest; a collection needs space for the
//! block table that it rewrites. Others can fill the file system before. So the store keeps as
//! much: the bytes of the log, and those of the runs of blocks and of counts. It keeps at most
//! 4 GiB, and at most 1/32 of the file system. The file has no content and no length. Its space is
//! allocated (`fallocate`), so a file system without that has no ballast.

use std::io;
use std::sync::atomic::Ordering;

use larder_format::ErrorKind;
use larder_format::page_run::VolumeTable;

use super::opened::Store;
use crate::disk::{Disk, Space};
use crate::error::VolumeError;

/// The path of the ballast in the store.
const PATH: &str = "ballast";
/// The largest ballast.
const MOST: u64 = 4 << 30;
/// The share of the file system that it takes at most.
const SHARE: u64 = 32;
/// It grows in steps of this.
const STEP: u64 = 1 << 20;

/// Releases the space of the ballast. Whether there was any.
pub(super) fn release(disk: &dyn Disk) -> bool {
    let is_gone = disk.remove(PATH).is_ok();
    if is_gone {
        tracing::warn!("the file system is full: the store removes its ballast");
        // Some file systems have the space only then.
        drop(disk.sync_folder(""));
    }
    is_gone
}

impl Store {
    /// Does work, and does it again without the ballast if there is no space for it.
    pub(super) fn or_with_ballast<T>(
        &self,
        mut work: impl FnMut() -> Result<T, VolumeError>,
    ) -> Result<T, VolumeError> {
        match work() {
            Err(error) if error.kind() == ErrorKind::Full && release(&*self.disk) => {
                self.ballast.store(0, Ordering::Relaxed);
                self.removals.retry();
                work()
            }
            done => done,
        }
    }

    /// Makes the ballast, or a larger one, if the file system has room. Without it the store works
    /// as long as the file system is not full, so nothing fails for it.
    pub(super) fn keep_ballast(&self) {
        let Ok(space) = self.disk.space() else { return };
        let (has, wanted) = (self.ballast.load(Ordering::Relaxed), self.ballast_wanted(space));
        // Not what writes may not use, or it would be a reason to refuse them.
        if wanted <= has || space.free < self.reserved(space) + (wanted - has) {
            return;
        }
        match allocate(&*self.disk, wanted) {
            Ok(()) => {
                self.ballast.store(wanted, Ordering::Relaxed);
                self.problems.end(PATH);
            }
            Err(error) => {
                self.problems.note(PATH, &error.to_string());
                // A part of it is of use only if it is known how large it is.
                if has == 0 {
                    self.removals.remove(PATH);
                }
            }
        }
    }

    fn ballast_wanted(&self, space: Space) -> u64 {
        let state = self.state.lock();
        let (slots, _, slot_bytes) = state.log_use;
        let runs = [VolumeTable::Blocks, VolumeTable::Counts].into_iter().flat_map(|table| state.runs.of(table));
        let bytes = slots * slot_bytes + runs.map(|run| run.reference.object_bytes).sum::<u64>();
        bytes.next_multiple_of(STEP).min(MOST).min(space.total / SHARE)
    }
}

fn allocate(disk: &dyn Disk, bytes: u64) -> io::Result<()> {
    let file = match disk.create(PATH) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => disk.open(PATH),
        created => created,
    }?;
    file.reserve(bytes)?;
    file.sync()?;
    disk.sync_folder("")
}
