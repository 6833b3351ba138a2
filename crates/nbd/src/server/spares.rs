//! Large buffers that are used again. Fresh memory of the kernel costs as much as to fill it.

use parking_lot::Mutex;

/// Shorter buffers come from the allocator.
const SHORTEST: usize = 32 << 10;

#[derive(Debug, Default)]
struct Kept {
    bytes: usize,
    buffers: Vec<Vec<u8>>,
}

/// Buffers of a server that nobody uses now.
#[derive(Debug)]
pub(super) struct Spares {
    kept: Mutex<Kept>,
    most: usize,
}

impl Spares {
    /// Keeps at most `most` bytes.
    pub(super) fn new(most: usize) -> Self {
        Self { kept: Mutex::default(), most }
    }

    /// A buffer of this length. It holds anything.
    pub(super) fn take(&self, length: usize) -> Vec<u8> {
        if length >= SHORTEST {
            let mut kept = self.kept.lock();
            // The latest one is most likely in a cache of the processor.
            if let Some(at) = kept.buffers.iter().rposition(|buffer| buffer.len() >= length) {
                let mut buffer = kept.buffers.swap_remove(at);
                kept.bytes -= buffer.capacity();
                drop(kept);
                buffer.truncate(length);
                return buffer;
            }
        }
        vec![0; length]
    }

    /// Keeps the buffer, if there is room.
    pub(super) fn give(&self, buffer: Vec<u8>) {
        let bytes = buffer.capacity();
        if buffer.len() < SHORTEST {
            return;
        }
        let mut kept = self.kept.lock();
        // A buffer much longer than its contents would be kept for ever, and seldom be long enough.
        if kept.bytes + bytes <= self.most && bytes <= 2 * buffer.len() {
            kept.bytes += bytes;
            kept.buffers.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back_up_to_the_limit() {
        let spares = Spares::new(200 << 10);
        let (first, second) = (spares.take(128 << 10), spares.take(128 << 10));
        let place = first.as_ptr();
        spares.give(first);
        spares.give(second);
        assert_eq!(spares.kept.lock().bytes, 128 << 10, "the second one is beyond the limit");
        let again = spares.take(100 << 10);
        assert_eq!((again.as_ptr(), again.len()), (place, 100 << 10));
        assert_eq!(spares.kept.lock().bytes, 0);
        spares.give(vec![0; 1000]);
        assert_eq!(spares.kept.lock().bytes, 0, "short ones are not worth it");
        assert_eq!(spares.take(1000).len(), 1000);
    }
}
