//! Reads large files without filling the page cache with them.
//!
//! A backup reads each byte of a large file once. Through the page cache, such bytes evict what
//! programs of the machine are working with. Each also takes a fresh page, and on a virtual machine
//! that costs more than the copy. So what was read is dropped from the cache again, and the next
//! bytes take the same pages. What was in the cache before stays there.
//!
//! Only where the kernel says what it has (`cachestat`, Linux 6.5). Elsewhere files are read
//! through the cache, and stay in it. Nothing relies on it.

#![expect(unsafe_code, reason = "the system call has no safe form")]

use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd};

use rustix::fs::{Advice, fadvise};

/// Smaller files (bytes) stay in the cache: they evict little, and may be read again soon.
const SIZE_MIN: u64 = 8 << 20;

/// Bytes that are dropped at once. A multiple of the largest page of the cache.
const STEP: u64 = 8 << 20;

/// Bytes before the present place that stay. Pages that were read just now may be in lists of other
/// processors, and cannot be dropped without waiting for these.
const LAG: u64 = STEP;

/// Parts of a file that the cache is asked for, at most. A part is a number of steps.
const PARTS_MAX: u64 = 4096;

/// The number of `cachestat` on all architectures but Alpha and MIPS, which have no call there.
const CACHESTAT: libc::c_long = 451;

/// Pages of a file that were in the cache before it was read, and how far it was dropped.
#[derive(Debug)]
pub(crate) struct DropBehind {
    /// Bytes of a part.
    part: u64,
    /// Of each part, whether any of it was in the cache.
    was_cached: Vec<bool>,
    /// Everything before this place is dropped, or stays.
    done: u64,
}

impl DropBehind {
    /// Asks what the cache has of a file. `None` where nothing is to be dropped: the file is small,
    /// the cache has something of each part, or the kernel does not say.
    pub(crate) fn new(file: impl AsFd, size: u64) -> Option<Self> {
        if size < SIZE_MIN {
            return None;
        }
        let part = STEP * size.div_ceil(STEP).div_ceil(PARTS_MAX);
        let parts = size.div_ceil(part);
        let was_cached = match cached_pages(&file, 0, size)? {
            0 => vec![false; parts as usize],
            _ => {
                let is_cached = |number| Some(cached_pages(&file, number * part, part)? > 0);
                (0..parts).map(is_cached).collect::<Option<Vec<_>>>()?
            }
        };
        was_cached.contains(&false).then_some(Self { part, was_cached, done: 0 })
    }

    /// Reading has come to the place `to` of the file.
    pub(crate) fn pass(&mut self, file: impl AsFd, to: u64) {
        let to = to.saturating_sub(LAG);
        self.drop_to(file, to - to % STEP);
    }

    /// Reading has ended at the place `to`.
    pub(crate) fn end(&mut self, file: impl AsFd, to: u64) {
        self.drop_to(file, to);
    }

    fn drop_to(&mut self, file: impl AsFd, to: u64) {
        while self.done < to {
            let number = self.done / self.part;
            let end = (number + 1).saturating_mul(self.part).min(to);
            // Parts behind the end that the file had first are of no interest.
            let stays = self.was_cached.get(number as usize) != Some(&false);
            let length = end - self.done;
            // If the cache seems to have nothing of what was just read, it was asked about another
            // file: an overlay reads the one below.
            if !stays && cached_pages(&file, self.done, length).is_some_and(|pages| pages > 0) {
                // Advice only: reading works without it.
                let _ = fadvise(&file, self.done, NonZeroU64::new(length), Advice::DontNeed);
            }
            self.done = end;
        }
    }
}

/// Pages of a part of a file that are in the cache; `None` where the kernel does not say.
fn cached_pages(file: impl AsFd, offset: u64, length: u64) -> Option<u64> {
    #[repr(C)]
    struct Part {
        offset: u64,
        length: u64,
    }
    #[repr(C)]
    #[derive(Default)]
    struct Pages {
        cached: u64,
        dirty: u64,
        written_back: u64,
        evicted: u64,
        recently_evicted: u64,
    }
    let (part, mut pages) = (Part { offset, length }, Pages::default());
    // SAFETY: both structures have the kernel's layout, and live until the call returns.
    let result = unsafe {
        libc::syscall(CACHESTAT, file.as_fd().as_raw_fd(), std::ptr::from_ref(&part), std::ptr::from_mut(&mut pages), 0)
    };
    (result == 0).then_some(pages.cached)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use super::*;

    /// A file on a disk whose pages are not in the cache. `None` where that cannot be had.
    fn uncached(size: u64) -> Option<File> {
        // Not in memory, as the folder for temporary files may be.
        let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).expect("made");
        let block = larder_testkit::data::random(1, 1 << 20);
        for at in (0..size).step_by(block.len()) {
            file.write_all_at(&block[..block.len().min((size - at) as usize)], at).expect("written");
        }
        file.sync_all().expect("written");
        fadvise(&file, 0, None, Advice::DontNeed).expect("taken");
        let is_uncached = cached_pages(&file, 0, size) == Some(0);
        if !is_uncached {
            eprintln!("skipped: the kernel does not say what is cached, or the file system keeps everything");
        }
        is_uncached.then_some(file)
    }

    fn read(file: &File, from: u64, to: u64) {
        let mut buffer = vec![0; 1 << 20];
        for at in (from..to).step_by(buffer.len()) {
            let length = buffer.len().min((to - at) as usize);
            file.read_exact_at(&mut buffer[..length], at).expect("read");
        }
    }

    #[test]
    fn what_was_not_cached_is_dropped_and_the_rest_stays() {
        let size = (5 << 23) + 12_345;
        let Some(file) = uncached(size) else { return };
        fadvise(&file, 0, None, Advice::Random).expect("taken");
        read(&file, 2 << 23, (2 << 23) + 5000);
        let mut behind = DropBehind::new(&file, size).expect("most of it is not cached");
        assert_eq!(behind.was_cached, [false, false, true, false, false, false]);
        for to in (0..size).step_by(1 << 20) {
            read(&file, to, size.min(to + (1 << 20)));
            behind.pass(&file, to + (1 << 20));
        }
        // The lag stays until the end.
        assert!(cached_pages(&file, 4 << 23, 1 << 23).is_some_and(|pages| pages > 0));
        behind.end(&file, size);
        let parts: Vec<u64> = (0..6).filter_map(|number| cached_pages(&file, number << 23, 1 << 23)).collect();
        assert_eq!(parts, [0, 0, (1 << 23) / rustix::param::page_size() as u64, 0, 0, 0]);
    }

    #[test]
    fn small_and_cached_files_are_left_alone() {
        let Some(file) = uncached(SIZE_MIN) else { return };
        assert!(DropBehind::new(&file, SIZE_MIN - 1).is_none());
        assert!(DropBehind::new(&file, SIZE_MIN).is_some());
        read(&file, 0, SIZE_MIN);
        assert!(DropBehind::new(&file, SIZE_MIN).is_none());
    }

    #[test]
    fn large_files_have_few_parts() {
        let Some(file) = uncached(SIZE_MIN) else { return };
        let size = (1 << 40) + 1;
        file.set_len(size).expect("long");
        let behind = DropBehind::new(&file, size).expect("not cached");
        assert!(behind.was_cached.len() as u64 <= PARTS_MAX && behind.part.is_multiple_of(STEP));
        assert!(behind.part * behind.was_cached.len() as u64 >= size);
    }
}
