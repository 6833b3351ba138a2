//! How much memory a job that writes takes for its containers.

use larder_format::container::{CONTAINER_TARGET, FRAME_TARGET, LIFECYCLE_PAYLOAD, PAYLOAD_TARGET_MAX};
use larder_format::layout::Layout;

/// Most containers that one job fills at once. An open container takes memory until it is closed.
pub const WRITERS_MAX: usize = 4;

/// Sizes of the pieces between new chunks and the store, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteBudget {
    /// Chunks that are not compressed yet, frames of open containers, and containers under way to
    /// the store, together. More has to wait.
    pub waiting: usize,
    /// Sealed object bytes at which a container is closed.
    pub container_target: usize,
    /// Payload bytes at which a container is closed however well it compresses.
    pub payload_max: usize,
    /// Payload bytes at which a frame of data is closed.
    pub frame_target: usize,
}

/// What frames take that are closed and not sealed, beside open containers.
const SLACK: usize = 16 << 20;

impl WriteBudget {
    /// The least memory, for one thread: one container of data is filled while one is under way.
    pub const SMALL: Self = Self::small(1);
    const SMALL_CONTAINER: usize = 4 << 20;

    /// The least memory with which `threads` threads have work: each may fill a container while the
    /// others are under way.
    pub const fn small(threads: usize) -> Self {
        let more = threads.saturating_sub(1).saturating_mul(Self::SMALL_CONTAINER);
        Self {
            waiting: more.saturating_add(9 << 20),
            container_target: Self::SMALL_CONTAINER,
            payload_max: Self::SMALL_CONTAINER,
            frame_target: 256 << 10,
        }
    }

    /// Whether an open container of data and one of metadata can always be closed, with chunks of
    /// up to `chunk_max` bytes: they and the frames that do not belong to them yet fit together. A
    /// frame is closed by the chunk that exceeds its target.
    pub fn suffices_for(&self, layout: Layout, chunk_max: usize) -> bool {
        let open = self.payload_max.max(self.payload_min(layout)) + self.payload_max;
        let frames = 2 * self.frame_target + chunk_max;
        self.container_target <= self.payload_max && open + frames <= self.waiting
    }

    /// Bytes of chunks that a data container holds at least, unless it is the last of a job.
    pub(crate) fn payload_min(&self, layout: Layout) -> usize {
        match layout {
            Layout::Standard => self.container_target,
            Layout::Lifecycle => LIFECYCLE_PAYLOAD,
        }
    }
}

impl Default for WriteBudget {
    /// As fast as the machine.
    fn default() -> Self {
        Self {
            waiting: WAITING_DEFAULT,
            container_target: CONTAINER_TARGET,
            payload_max: PAYLOAD_TARGET_MAX,
            frame_target: FRAME_TARGET,
        }
    }
}

const WAITING_DEFAULT: usize = 96 << 20;
const _: () = assert!(WAITING_DEFAULT >= 2 * PAYLOAD_TARGET_MAX + SLACK);
const _: () = assert!(WAITING_DEFAULT >= WRITERS_MAX * LIFECYCLE_PAYLOAD + SLACK);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_containers_can_always_be_closed() {
        const USUAL: usize = 16 << 10;
        const LARGEST: usize = 8 << 20;
        for layout in [Layout::Standard, Layout::Lifecycle] {
            assert!(WriteBudget::default().suffices_for(layout, LARGEST));
        }
        assert!(WriteBudget::SMALL.suffices_for(Layout::Standard, USUAL));
        assert!(!WriteBudget::SMALL.suffices_for(Layout::Standard, LARGEST), "a chunk would wait for ever");
        assert!(!WriteBudget::SMALL.suffices_for(Layout::Lifecycle, USUAL), "its containers are larger than all of it");
        let without_meta = WriteBudget { waiting: 8 << 20, ..WriteBudget::SMALL };
        assert!(!without_meta.suffices_for(Layout::Standard, USUAL));
    }
}
