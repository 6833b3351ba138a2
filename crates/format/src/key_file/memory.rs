//! Memory for argon2id in large pages, where the kernel has them.
//!
//! A derivation goes through 64 MiB in random order. In pages of 4 KiB a third of its time goes
//! into handing out sixteen thousand pages and missing the processor's table of them. The
//! parameters, and so the cost of a guess, are the same: an attacker has large pages anyway.
//!
//! The blocks are derived from the password. They are locked in memory where the limit allows it,
//! and wiped after the derivation (`larder_secret`).
#![expect(unsafe_code, reason = "blocks of argon2id are made of mapped bytes")]

use argon2::Block;
use larder_secret::Pages;

/// The smallest size for which large pages pay.
const WORTH_BYTES: usize = 4 << 20;

/// Blocks of zeros, mapped for one derivation.
pub(super) struct Blocks {
    pages: Pages,
    count: usize,
}

impl Blocks {
    /// Whether large pages pay for this number of blocks.
    pub(super) fn is_worth_it(count: usize) -> bool {
        count * Block::SIZE >= WORTH_BYTES
    }

    /// `None` when there is not so much memory.
    pub(super) fn new(count: usize) -> Option<Self> {
        Some(Self { pages: Pages::large(count.checked_mul(Block::SIZE)?)?, count })
    }
}

impl AsMut<[Block]> for Blocks {
    fn as_mut(&mut self) -> &mut [Block] {
        // SAFETY: the pages have room for `count` blocks and are aligned to more than a block
        // needs. Any bytes are valid blocks. `self` is borrowed for as long as they are.
        unsafe { std::slice::from_raw_parts_mut(self.pages.as_mut_ptr().cast(), self.count) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use argon2::{Algorithm, Argon2, Params, Version};

    /// Guards against: memory that is too short, is not zero, or is misaligned. Any of it would
    /// make all keys unreadable.
    #[test]
    fn a_derivation_is_the_same_in_any_memory() {
        for (memory_kib, lanes) in [(4 << 10, 1), ((4 << 10) + 17, 4), (8 << 10, 3)] {
            let params = Params::new(memory_kib, 1, lanes, Some(32)).expect("in bounds");
            let mut blocks = Blocks::new(params.block_count()).expect("there is memory");
            assert_eq!(blocks.as_mut().len(), params.block_count());
            assert!(blocks.as_mut().iter().all(|block| block.as_ref().iter().all(|word| *word == 0)));
            let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
            let (mut ours, mut usual) = ([0; 32], [0; 32]);
            argon2.hash_password_into_with_memory(b"secret", &[7; 32], &mut ours, &mut blocks).expect("derives");
            argon2.hash_password_into(b"secret", &[7; 32], &mut usual).expect("derives");
            assert_eq!(ours, usual);
        }
    }

    #[test]
    fn no_memory_is_an_answer() {
        assert!(Blocks::new(0).is_none());
        assert!(Blocks::new(usize::MAX).is_none());
        assert!(Blocks::new(usize::MAX / Block::SIZE).is_none());
    }
}
