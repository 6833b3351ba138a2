//! [`SpareBlocks`]: memory of blocks that were committed, for the next ones.
//!
//! One thread writes a block and another frees it, and the system takes back what many of them
//! free. New pages for the next blocks cost as much as to fill them.

use larder_format::volume_map::BLOCK_LEN;
use parking_lot::Mutex;

/// Memory of blocks that nobody uses now.
pub(crate) struct SpareBlocks {
    kept: Mutex<Vec<Vec<u8>>>,
    most: usize,
}

impl SpareBlocks {
    /// Keeps at most `bytes`.
    pub(crate) fn new(bytes: usize) -> Self {
        Self { kept: Mutex::default(), most: bytes / BLOCK_LEN as usize }
    }

    /// A copy of the content of a whole block.
    pub(crate) fn copy(&self, content: &[u8]) -> Vec<u8> {
        let spare = self.kept.lock().pop();
        match spare {
            Some(mut block) if block.len() == content.len() => {
                block.copy_from_slice(content);
                block
            }
            _ => content.to_vec(),
        }
    }

    /// Keeps the memory of whole blocks, as far as there is room. The rest is freed.
    pub(crate) fn give(&self, blocks: impl Iterator<Item = Vec<u8>>) {
        let mut blocks = blocks.filter(|block| block.len() == BLOCK_LEN as usize);
        let mut kept = self.kept.lock();
        let room = self.most.saturating_sub(kept.len());
        kept.extend(blocks.by_ref().take(room));
        drop(kept);
        blocks.for_each(drop);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_back_up_to_the_limit_and_with_the_new_content() {
        let block = |byte: u8| vec![byte; BLOCK_LEN as usize];
        let spares = SpareBlocks::new(2 * BLOCK_LEN as usize);
        let first = block(1);
        let place = first.as_ptr();
        spares.give([block(2), vec![3; 512], first, block(4)].into_iter());
        assert_eq!(spares.kept.lock().len(), 2);
        let copy = spares.copy(&block(5));
        assert_eq!((copy.as_ptr(), &copy), (place, &block(5)));
        assert_eq!(spares.copy(&block(6)), block(6));
        assert_eq!(spares.copy(&block(7)), block(7));
        assert_eq!(spares.copy(&[8; 512]), [8; 512]);
    }
}
