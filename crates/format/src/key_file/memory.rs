//! Memory for argon2id in large pages, where the kernel has them.
//!
//! A derivation goes through 64 MiB in random order. In pages of 4 KiB a third of its time goes
//! into handing out sixteen thousand pages and missing the processor's table of them. The
//! parameters, and so the cost of a guess, are the same: an attacker has large pages anyway.
#![expect(unsafe_code, reason = "memory is mapped by hand: the allocator gives no say in how large its pages are")]

use std::ffi::c_void;
use std::ptr::NonNull;

use argon2::Block;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// The large page of x86-64 and, mostly, of ARM. Elsewhere the alignment is merely no use.
const LARGE_PAGE: usize = 2 << 20;

/// Blocks of zeros, mapped for one derivation.
pub(super) struct Blocks {
    map: NonNull<c_void>,
    map_len: usize,
    blocks: NonNull<Block>,
    count: usize,
}

impl Blocks {
    /// Whether large pages pay for this number of blocks.
    pub(super) fn is_worth_it(count: usize) -> bool {
        count * Block::SIZE >= 2 * LARGE_PAGE
    }

    /// `None` when there is not so much memory. Nothing is taken of it before it is written to.
    pub(super) fn new(count: usize) -> Option<Self> {
        let len = count.checked_mul(Block::SIZE).filter(|len| *len > 0)?.checked_next_multiple_of(LARGE_PAGE)?;
        let map_len = len.checked_add(LARGE_PAGE)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place that the kernel chooses touches no other memory.
        let map = unsafe { mmap_anonymous(std::ptr::null_mut(), map_len, protection, MapFlags::PRIVATE) }.ok()?;
        let map = NonNull::new(map)?;
        let from = map.as_ptr().cast::<u8>().align_offset(LARGE_PAGE);
        debug_assert!(from + len <= map_len);
        // SAFETY: `from` is less than `LARGE_PAGE`, so this and the `len` bytes behind it are in
        // the mapping.
        let start = unsafe { map.add(from) };
        // Advice only: with small pages it works as well.
        // SAFETY: the range is ours alone, and this advice leaves its contents as they are.
        let _ = unsafe { madvise(start.as_ptr(), len, Advice::LinuxHugepage) };
        Some(Self { map, map_len, blocks: start.cast(), count })
    }
}

impl AsMut<[Block]> for Blocks {
    fn as_mut(&mut self) -> &mut [Block] {
        // SAFETY: `count` blocks fit into the mapping from `blocks` on, which is aligned to more
        // than a block needs. The kernel filled it with zeros, which are valid blocks. `self` is
        // borrowed for as long as they are.
        unsafe { std::slice::from_raw_parts_mut(self.blocks.as_ptr(), self.count) }
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `new`, it is no longer borrowed, and it is not used
        // again.
        let _ = unsafe { munmap(self.map.as_ptr(), self.map_len) };
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
