//! Keeps the memory that was given back from piling up in the allocator.
//!
//! glibc gives every thread an arena of its own and keeps what is freed there. The buffers of a pipeline are made by one thread and
//! freed by another, so every arena comes to hold some: a third on top of what is in use. Few arenas share it; no lock is
//! fought for, since buffers are large and few.
//!
//! What is freed is kept up to a bound, rather than given back at once: the next buffer is as large, and getting pages again costs
//! as much as filling them.

#![cfg_attr(
    all(target_os = "linux", target_env = "gnu"),
    expect(unsafe_code, reason = "the allocator is told through its C interface")
)]

/// Buffers up to this size (bytes) are taken from what was freed: containers, frames and blocks of files.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const KEPT_EACH: i32 = 32 << 20;
/// Free memory at the end of an arena that is not given back (bytes).
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const KEPT_IN_ALL: i32 = 64 << 20;

/// To be called before the first thread is started.
pub(crate) fn set_up() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
        let arenas = i32::try_from(threads / 4).unwrap_or(i32::MAX).max(2);
        // SAFETY: mallopt changes settings of the allocator and touches no memory of ours; no other thread runs yet. Should it
        // refuse, everything works with the default.
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, arenas);
            libc::mallopt(libc::M_MMAP_THRESHOLD, KEPT_EACH);
            libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_IN_ALL);
        }
    }
}
