//! [`Users`]: how many clients use each volume, and the exports that count them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use larder_nbd::{Abilities, BlockSizes, Export, ExportError, Exports, Extent, Listed, Zeroing};
use larder_volume::{Store, VolumeExports};
use parking_lot::{Condvar, Mutex};

/// A volume, or a snapshot and its volume, by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Used {
    Volume(u32),
    Snapshot(u32, u32),
}

impl Used {
    /// Whether the end of `other` is the end of this.
    fn is_in(self, other: Self) -> bool {
        match (self, other) {
            (Self::Snapshot(_, of), Self::Volume(volume)) => of == volume,
            _ => self == other,
        }
    }
}

/// Connections to NBD exports, and open files.
#[derive(Debug, Default)]
pub(super) struct Users {
    used: Mutex<Vec<Used>>,
    left: Condvar,
}

impl Users {
    /// Their number for a volume with its snapshots, or for a snapshot. Waits a little for clients
    /// that are about to end.
    pub(super) fn of_after(&self, of: Used, wait: Duration) -> usize {
        let (mut used, end) = (self.used.lock(), Instant::now() + wait);
        loop {
            let count = used.iter().filter(|used| used.is_in(of)).count();
            if count == 0 || self.left.wait_until(&mut used, end).timed_out() {
                return count;
            }
        }
    }

    fn enter(self: &Arc<Self>, used: Used) -> User {
        self.used.lock().push(used);
        User { users: self.clone(), used }
    }
}

/// A client.
struct User {
    users: Arc<Users>,
    used: Used,
}

impl Drop for User {
    fn drop(&mut self) {
        let mut used = self.users.used.lock();
        if let Some(at) = used.iter().position(|used| *used == self.used) {
            used.swap_remove(at);
        }
        self.users.left.notify_all();
    }
}

/// The exports of a store, whose users are counted.
pub(super) struct CountedExports {
    exports: VolumeExports,
    store: Arc<Store>,
    users: Arc<Users>,
}

impl CountedExports {
    pub(super) fn new(store: Arc<Store>, users: Arc<Users>) -> Self {
        Self { exports: VolumeExports::new(store.clone()), store, users }
    }

    fn used(&self, name: &str) -> Option<Used> {
        if name.contains('@') {
            return self.store.snapshot(name).ok().map(|snapshot| Used::Snapshot(snapshot.id, snapshot.volume));
        }
        let volume = if name.is_empty() { self.store.volumes().pop() } else { self.store.volume(name).ok() };
        volume.map(|volume| Used::Volume(volume.id))
    }
}

impl Exports for CountedExports {
    fn find(&self, name: &str) -> Result<Option<Arc<dyn Export>>, ExportError> {
        // First, so that it is not deleted between the two.
        let user = self.used(name).map(|used| self.users.enter(used));
        let export = self.exports.find(name)?;
        Ok(export.map(|export| Arc::new(Counted { export, _user: user }) as Arc<dyn Export>))
    }

    fn list(&self) -> Vec<Listed> {
        self.exports.list()
    }
}

/// An export in use.
struct Counted {
    export: Arc<dyn Export>,
    _user: Option<User>,
}

impl Export for Counted {
    fn size(&self) -> u64 {
        self.export.size()
    }

    fn abilities(&self) -> Abilities {
        self.export.abilities()
    }

    fn block_sizes(&self) -> BlockSizes {
        self.export.block_sizes()
    }

    fn description(&self) -> String {
        self.export.description()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ExportError> {
        self.export.read(offset, buffer)
    }

    fn write(&self, offset: u64, data: &[u8], fua: bool) -> Result<(), ExportError> {
        self.export.write(offset, data, fua)
    }

    fn flush(&self) -> Result<(), ExportError> {
        self.export.flush()
    }

    fn trim(&self, offset: u64, length: u64, fua: bool) -> Result<(), ExportError> {
        self.export.trim(offset, length, fua)
    }

    fn write_zeroes(&self, offset: u64, length: u64, how: Zeroing) -> Result<(), ExportError> {
        self.export.write_zeroes(offset, length, how)
    }

    fn cache(&self, offset: u64, length: u64) -> Result<(), ExportError> {
        self.export.cache(offset, length)
    }

    fn contexts(&self) -> Vec<String> {
        self.export.contexts()
    }

    fn block_status(&self, context: &str, offset: u64, length: u64, most: usize) -> Result<Vec<Extent>, ExportError> {
        self.export.block_status(context, offset, length, most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_of_a_volume_are_those_of_its_snapshots_too() {
        let users = Arc::new(Users::default());
        let (disk, monday) = (users.enter(Used::Volume(1)), users.enter(Used::Snapshot(7, 1)));
        let count = |of| users.of_after(of, Duration::ZERO);
        assert_eq!(
            [Used::Volume(1), Used::Volume(2), Used::Snapshot(7, 1), Used::Snapshot(1, 1)].map(count),
            [2, 0, 1, 0]
        );
        drop(disk);
        assert_eq!(count(Used::Volume(1)), 1);
        drop(monday);
        assert_eq!(count(Used::Volume(1)), 0);
    }
}
