//! Keeps the memory that was given back from piling up in the allocator.
//!
//! glibc gives every thread an arena of its own and keeps what is freed there. The buffers of a pipeline are made by one thread and
//! freed by another, so every arena comes to hold some: a third on top of what is in use. Few arenas share it; no lock is
//! fought for, since buffers are large and few.

#![cfg_attr(
    all(target_os = "linux", target_env = "gnu"),
    expect(unsafe_code, reason = "the allocator is told through its C interface")
)]

/// To be called before the first thread is started.
pub(crate) fn set_up() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
        let arenas = i32::try_from(threads / 4).unwrap_or(i32::MAX).max(2);
        // SAFETY: mallopt changes a setting of the allocator and touches no memory of ours; no other thread runs yet. Should it
        // refuse, everything works with the default.
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, arenas);
        }
    }
}
