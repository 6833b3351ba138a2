//! [`Pages`]: memory of its own for a secret.
#![expect(unsafe_code, reason = "memory is mapped by hand: the allocator can neither lock it nor choose its pages")]

use std::ffi::c_void;
use std::fmt;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mlock, mmap_anonymous, munmap};

/// The large page of x86-64 and, mostly, of ARM. Elsewhere the alignment is merely no use.
pub(crate) const LARGE_PAGE: usize = 2 << 20;

/// Zeros in pages that hold nothing else. They are wiped when they are dropped.
pub struct Pages {
    map: NonNull<c_void>,
    map_len: usize,
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to this value alone, and is reached only through borrows of it.
unsafe impl Send for Pages {}
// SAFETY: as above; a shared borrow only reads.
unsafe impl Sync for Pages {}

impl Pages {
    /// Maps `len` bytes, aligned to a page. `None` when there is not so much memory, or no bytes
    /// are wanted.
    pub fn new(len: usize) -> Option<Self> {
        Self::aligned(len, 1)
    }

    /// Maps `len` bytes in large pages, where the kernel has them, and aligned to one.
    pub fn large(len: usize) -> Option<Self> {
        Self::aligned(len, LARGE_PAGE)
    }

    fn aligned(len: usize, to: usize) -> Option<Self> {
        let rounded = len.checked_next_multiple_of(to).filter(|len| *len > 0)?;
        let map_len = rounded.checked_add(to - 1)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place that the kernel chooses touches no other memory.
        let map = unsafe { mmap_anonymous(std::ptr::null_mut(), map_len, protection, MapFlags::PRIVATE) }.ok()?;
        let map = NonNull::new(map)?;
        let from = map.as_ptr().cast::<u8>().align_offset(to);
        debug_assert!(from + rounded <= map_len);
        // SAFETY: `from` is less than `to`, so this and the `rounded` bytes behind it are in the
        // mapping.
        let start = unsafe { map.add(from) };
        if to == LARGE_PAGE {
            // Advice only: with small pages it works as well.
            // SAFETY: the range is ours alone, and this advice leaves its contents as they are.
            let _ = unsafe { madvise(start.as_ptr(), rounded, Advice::LinuxHugepage) };
        }
        // Best effort: old kernels do not know the advice, and the limit on locked memory is small.
        // SAFETY: the range is ours alone, and both calls leave its contents as they are.
        let _ = unsafe { madvise(map.as_ptr(), map_len, Advice::LinuxDontDump) };
        // SAFETY: as above.
        let _ = unsafe { mlock(start.as_ptr(), rounded) };
        Some(Self { map, map_len, start: start.cast(), len })
    }

    /// Where they begin: aligned to a page, or to a large one.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }

    fn wipe(&mut self) {
        self.fill(0);
        // Nothing may leave out writes to memory that is returned right after them.
        std::hint::black_box(self.as_mut_ptr());
        #[cfg(test)]
        tests::WIPED.with(|wiped| wiped.set(wiped.get() + self.iter().filter(|byte| **byte == 0).count()));
    }
}

impl std::ops::Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len` bytes from `start` on are in the mapping, which the kernel filled with
        // zeros. They live as long as `self`, which is borrowed.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl std::ops::DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.wipe();
        // SAFETY: the mapping was made in `aligned`, it is no longer borrowed, and it is not used
        // again. Its locks go with it.
        let _ = unsafe { munmap(self.map.as_ptr(), self.map_len) };
    }
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pages({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        /// Bytes that were zero when this thread returned their pages.
        pub(super) static WIPED: Cell<usize> = const { Cell::new(0) };
    }

    /// What the kernel says about the pages: two letters for each property.
    fn flags(pages: &Pages) -> Vec<String> {
        let smaps = std::fs::read_to_string("/proc/self/smaps").expect("read");
        let at = pages.as_ptr() as usize;
        let mut is_ours = false;
        for line in smaps.lines() {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            let bounds = range.map(|(from, to)| (usize::from_str_radix(from, 16), usize::from_str_radix(to, 16)));
            if let Some((Ok(from), Ok(to))) = bounds {
                is_ours = (from..to).contains(&at);
            }
            if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| is_ours) {
                return flags.split_whitespace().map(str::to_owned).collect();
            }
        }
        panic!("no mapping has these pages");
    }

    #[test]
    fn pages_are_zeros_aligned_and_all_there() {
        for len in [1, 4096, 4097, LARGE_PAGE - 1, LARGE_PAGE, 3 * LARGE_PAGE + 1] {
            for (mut pages, align) in
                [(Pages::new(len).expect("memory"), 4096), (Pages::large(len).expect("memory"), LARGE_PAGE)]
            {
                assert_eq!((pages.len(), pages.as_ptr() as usize % align), (len, 0));
                assert!(pages.iter().all(|byte| *byte == 0));
                pages.fill(0xA5);
                assert!(pages.iter().all(|byte| *byte == 0xA5));
            }
        }
        assert!(Pages::new(0).is_none() && Pages::large(0).is_none());
        assert!(Pages::new(usize::MAX).is_none() && Pages::large(usize::MAX).is_none());
        assert!(Pages::large(usize::MAX - LARGE_PAGE).is_none());
    }

    #[test]
    fn pages_are_locked_and_in_no_core_dump() {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
        let may_lock = rustix::process::geteuid().is_root() || limit.is_none_or(|bytes| bytes >= 8 << 20);
        for pages in [Pages::new(5000).expect("memory"), Pages::large(5000).expect("memory")] {
            let flags = flags(&pages);
            assert!(flags.contains(&"dd".to_owned()), "{flags:?}");
            assert_eq!(flags.contains(&"lo".to_owned()), may_lock, "{flags:?}");
        }
    }

    #[test]
    fn pages_are_wiped_before_they_are_returned() {
        for len in [1, 5000] {
            let mut pages = Pages::new(len).expect("memory");
            pages.fill(1);
            let before = WIPED.get();
            drop(pages);
            assert_eq!(WIPED.get() - before, len);
        }
    }
}
