//! The files of a restic repository in a store.
//!
//! The library cannot tell a file that is absent or damaged from a store that does not answer. So
//! the error of a store that fails is kept here, and ends the import.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;
use larder_index::Executor;
use larder_store::{Store, StoreError, StoreErrorKind};
use parking_lot::Mutex;

/// Bytes of a file that are read at once. Contents that were backed up together lie together.
const WINDOW_BYTES: u64 = 4 << 20;
/// Such parts that stay in memory.
const WINDOWS: usize = 8;

/// See the module header. The window that was used last is the last one.
pub(super) struct ResticFiles {
    store: Store,
    executor: Executor,
    windows: Mutex<VecDeque<Window>>,
    /// The first failure of the store.
    failure: Mutex<Option<StoreError>>,
}

struct Window {
    name: String,
    /// Bytes of the whole file.
    size: u64,
    number: u64,
    bytes: Bytes,
}

impl ResticFiles {
    pub(super) fn new(store: Store, executor: Executor) -> Self {
        Self { store, executor, windows: Mutex::default(), failure: Mutex::default() }
    }

    /// The failure that is no fault of a single file, once.
    pub(super) fn take_failure(&self) -> Option<StoreError> {
        self.failure.lock().take()
    }

    /// Waits for an answer.
    fn wait<T>(&self, answer: impl Future<Output = Result<T, StoreError>>) -> Result<T, ReadFailure> {
        self.executor.block_on(answer).map_err(|error| {
            let failure = ReadFailure { is_absent: error.kind == StoreErrorKind::NotFound, text: error.to_string() };
            if !is_of_one_file(&error) {
                self.failure.lock().get_or_insert(error);
            }
            failure
        })
    }

    /// Names below a folder, with their sizes.
    pub(super) fn list(&self, folder: &str) -> Result<Vec<(String, u64)>, ReadFailure> {
        let listed = self.wait(self.store.list(&format!("{folder}/")))?;
        Ok(listed.into_iter().map(|listed| (listed.name, listed.size)).collect())
    }

    /// The size of a file; `None` if it is absent.
    pub(super) fn size(&self, name: &str) -> Result<Option<u64>, ReadFailure> {
        match self.wait(self.store.size(name)) {
            Ok(size) => Ok(Some(size)),
            Err(failure) if failure.is_absent => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A whole file.
    pub(super) fn get(&self, name: &str) -> Result<Bytes, ReadFailure> {
        self.wait(self.store.get(name))
    }

    /// A part of a file. It may be shorter than wanted, if the file ends before.
    pub(super) fn get_range(&self, name: &str, range: Range<u64>) -> Result<Bytes, ReadFailure> {
        let (first, last) = (range.start / WINDOW_BYTES, range.end.saturating_sub(1) / WINDOW_BYTES);
        if range.is_empty() || last > first + 1 {
            return self.wait(self.store.get_range(name, range));
        }
        let mut part = Vec::with_capacity((range.end - range.start) as usize);
        for number in first..=last {
            let bytes = self.window(name, number)?;
            let at = |offset: u64| (offset.saturating_sub(number * WINDOW_BYTES) as usize).min(bytes.len());
            part.extend_from_slice(&bytes[at(range.start)..at(range.end)]);
        }
        Ok(part.into())
    }

    fn window(&self, name: &str, number: u64) -> Result<Bytes, ReadFailure> {
        let mut size = None;
        {
            let mut windows = self.windows.lock();
            if let Some(at) = windows.iter().position(|window| window.name == name && window.number == number) {
                let found = windows.remove(at);
                windows.extend(found);
                return Ok(windows.back().map(|window| window.bytes.clone()).unwrap_or_default());
            }
            if let Some(of_file) = windows.iter().find(|window| window.name == name) {
                size = Some(of_file.size);
            }
        }
        let size = match size {
            Some(size) => size,
            None => self.wait(self.store.size(name))?,
        };
        let start = (number * WINDOW_BYTES).min(size);
        let range = start..size.min(start + WINDOW_BYTES);
        let bytes = self.wait(self.store.get_range(name, range))?;
        let mut windows = self.windows.lock();
        if windows.len() == WINDOWS {
            windows.pop_front();
        }
        windows.push_back(Window { name: name.to_owned(), size, number, bytes: bytes.clone() });
        Ok(bytes)
    }
}

/// Whether an error says nothing about other files. A server that refuses one may refuse all.
fn is_of_one_file(error: &StoreError) -> bool {
    use StoreErrorKind::{Damaged, NotFound, TooLarge, Unreadable};
    match error.kind {
        NotFound | Damaged | TooLarge => true,
        Unreadable => error.server_failure().is_none(),
        _ => false,
    }
}

/// A file that was not read.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub(super) struct ReadFailure {
    /// There is no such file.
    is_absent: bool,
    text: String,
}
