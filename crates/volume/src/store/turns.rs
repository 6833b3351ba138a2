//! [`Turns`]: a lock whose owner sees whether somebody waits for it.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};

/// A lock with the number of those who wait for it.
pub(crate) struct Turns<T> {
    value: Mutex<T>,
    waiting: AtomicUsize,
}

impl<T> Turns<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Mutex::new(value), waiting: AtomicUsize::new(0) }
    }

    /// Waits until nobody else has it.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let guard = self.value.lock();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        guard
    }

    /// `None`: another one has it.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.value.try_lock()
    }

    /// Whether somebody waits for it, as far as its owner can know.
    pub(crate) fn is_wanted(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }
}
