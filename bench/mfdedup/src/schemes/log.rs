//! Containers on an endless log: filled one after the other, never changed, deleted as a whole.

use std::collections::BTreeMap;

use crate::disk::Extent;

/// Payload of a container unless a scheme says otherwise (bytes).
pub(super) const CONTAINER: u64 = 4 << 20;

/// A container: which copies of chunks it holds, in order.
#[derive(Debug)]
pub(super) struct Container {
    pub(super) copies: Vec<u32>,
    pub(super) extent: Extent,
}

/// See the module header.
#[derive(Debug)]
pub(super) struct Log {
    container_bytes: u64,
    pub(super) containers: BTreeMap<u32, Container>,
    next: u32,
    /// The one that is being filled.
    open: Option<u32>,
    end: u64,
    stored: u64,
}

impl Log {
    pub(super) fn new(container_bytes: u64) -> Self {
        Self { container_bytes, containers: BTreeMap::new(), next: 0, open: None, end: 0, stored: 0 }
    }

    /// What follows goes to a new container. Its number will be the one returned, or a later one.
    pub(super) fn close(&mut self) -> u32 {
        self.open = None;
        self.next
    }

    /// Appends a copy and says into which container.
    pub(super) fn append(&mut self, copy: u32, size: u32) -> u32 {
        let size = u64::from(size);
        let full = |container: &Container| container.extent.len + size > self.container_bytes;
        let open = self.open.filter(|open| !self.containers.get(open).is_none_or(full));
        let number = open.unwrap_or(self.next);
        if open.is_none() {
            self.next += 1;
            self.open = Some(number);
        }
        let empty = Container { copies: Vec::new(), extent: Extent { at: self.end, len: 0 } };
        let container = self.containers.entry(number).or_insert(empty);
        container.copies.push(copy);
        container.extent.len += size;
        self.end += size;
        self.stored += size;
        number
    }

    /// Deletes a container and returns it.
    pub(super) fn remove(&mut self, number: u32) -> Option<Container> {
        let gone = self.containers.remove(&number)?;
        self.stored -= gone.extent.len;
        if self.open == Some(number) {
            self.open = None;
        }
        Some(gone)
    }

    pub(super) fn extent(&self, number: u32) -> Option<Extent> {
        self.containers.get(&number).map(|container| container.extent)
    }

    /// Bytes in all containers.
    pub(super) fn stored(&self) -> u64 {
        self.stored
    }
}
