//! Numbers of open files.

use std::collections::HashMap;
use std::sync::Arc;

use larder_tree::OpenFile;

/// See the module header.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    open: HashMap<u64, Arc<OpenFile>>,
    next: u64,
}

impl Handles {
    /// Adds an open file.
    pub(crate) fn add(&mut self, file: OpenFile) -> u64 {
        self.next += 1;
        self.open.insert(self.next, Arc::new(file));
        self.next
    }

    /// An open file.
    pub(crate) fn get(&self, handle: u64) -> Option<Arc<OpenFile>> {
        self.open.get(&handle).cloned()
    }

    /// Removes an open file.
    pub(crate) fn remove(&mut self, handle: u64) -> Option<Arc<OpenFile>> {
        self.open.remove(&handle)
    }
}
