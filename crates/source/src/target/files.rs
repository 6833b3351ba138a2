//! Keeps the number of open files of a restore bounded.
//!
//! Restoring in the order of containers has thousands of files begun at once, and a process may
//! open about a thousand. A begun file is a [`Slot`]; its descriptor may be taken away at any time
//! and is opened again by the next write. Which one is taken: one that was not written lately
//! (second chance). A write holds its own reference, so a descriptor never closes under it; the
//! true bound is therefore the limit plus one per thread.
//!
//! Lock order: the ring before a slot. A write that finds its descriptor takes only the slot's
//! lock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fd::OwnedFd;

/// A begun file: its descriptor while it has one.
#[derive(Debug, Default)]
pub(super) struct Slot {
    open: Mutex<Option<Open>>,
    used: AtomicBool,
}

#[derive(Debug)]
struct Open {
    fd: Arc<OwnedFd>,
    place: usize,
}

impl Slot {
    /// The descriptor, when it is open.
    pub(super) fn get(&self) -> Option<Arc<OwnedFd>> {
        let fd = self.lock().as_ref().map(|open| open.fd.clone());
        self.used.store(true, Ordering::Relaxed);
        fd
    }

    fn lock(&self) -> MutexGuard<'_, Option<Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All open files of one target.
#[derive(Debug)]
pub(super) struct OpenFiles {
    limit: usize,
    ring: Mutex<Ring>,
}

#[derive(Debug, Default)]
struct Ring {
    slots: Vec<Option<Arc<Slot>>>,
    free: Vec<usize>,
    hand: usize,
}

impl OpenFiles {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit: limit.max(1), ring: Mutex::default() }
    }

    /// Gives a slot its descriptor, and takes another slot's away when there are too many.
    ///
    /// Returns the descriptor to use: when two threads opened the same file at once, that of the
    /// first.
    pub(super) fn insert(&self, slot: &Arc<Slot>, fd: OwnedFd) -> Arc<OwnedFd> {
        // Closing may take long on a network file system, so it happens after the lock is given
        // back.
        let mut closed = None;
        let mut ring = self.lock();
        if let Some(open) = slot.lock().as_ref() {
            return open.fd.clone();
        }
        let place = match ring.free.pop() {
            Some(place) => place,
            None if ring.slots.len() < self.limit => {
                ring.slots.push(None);
                ring.slots.len() - 1
            }
            None => ring.evict(&mut closed),
        };
        let fd = Arc::new(fd);
        *slot.lock() = Some(Open { fd: fd.clone(), place });
        ring.slots[place] = Some(slot.clone());
        drop(ring);
        drop(closed);
        fd
    }

    /// Takes a slot out, because its file is finished or abandoned.
    pub(super) fn remove(&self, slot: &Slot) -> Option<Arc<OwnedFd>> {
        let mut ring = self.lock();
        let open = slot.lock().take()?;
        ring.slots[open.place] = None;
        ring.free.push(open.place);
        Some(open.fd)
    }

    /// Files open now.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.lock().slots.iter().flatten().count()
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ring {
    /// Frees a place in a ring that has no empty one.
    fn evict(&mut self, closed: &mut Option<Open>) -> usize {
        loop {
            let place = self.hand;
            self.hand = (self.hand + 1) % self.slots.len();
            match &self.slots[place] {
                Some(slot) if slot.used.swap(false, Ordering::Relaxed) => {}
                Some(slot) => {
                    *closed = slot.lock().take();
                    self.slots[place] = None;
                    return place;
                }
                None => return place,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn null() -> OwnedFd {
        std::fs::File::open("/dev/null").expect("the null device opens").into()
    }

    #[test]
    fn the_one_not_used_lately_is_closed() {
        let files = OpenFiles::new(3);
        let slots: Vec<Arc<Slot>> = (0..4).map(|_| Arc::default()).collect();
        for slot in &slots[..3] {
            files.insert(slot, null());
        }
        assert!(slots[0].get().is_some() && slots[2].get().is_some());
        files.insert(&slots[3], null());
        let open: Vec<bool> = slots.iter().map(|slot| slot.lock().is_some()).collect();
        assert_eq!(open, [true, false, true, true]);
        assert_eq!(files.len(), 3);
    }

    #[test]
    fn many_threads_never_exceed_the_limit_and_never_lose_a_place() {
        let files = OpenFiles::new(8);
        let slots: Vec<Arc<Slot>> = (0..100).map(|_| Arc::default()).collect();
        std::thread::scope(|scope| {
            for thread in 0..4_usize {
                let (files, slots) = (&files, &slots);
                scope.spawn(move || {
                    for step in 0..5000_usize {
                        let slot = &slots[(step * 7 + thread * 13) % slots.len()];
                        match slot.get() {
                            Some(_) if step % 11 == 0 => drop(files.remove(slot)),
                            Some(_) => {}
                            None => drop(files.insert(slot, null())),
                        }
                    }
                });
            }
        });
        assert!(files.len() <= 8);
        for slot in &slots {
            files.remove(slot);
        }
        assert_eq!(files.len(), 0);
        let ring = files.lock();
        assert_eq!(ring.free.len(), ring.slots.len());
    }
}
