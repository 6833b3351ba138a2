//! Limits the freed memory that the allocator keeps.
//!
//! glibc gives every thread an arena of its own and keeps the memory that is freed there. One
//! thread allocates the buffers of a pipeline and another frees them, so all arenas keep some: a
//! third beyond the memory in use. Few arenas share it. There is little contention, because buffers
//! are large and few.
//!
//! Freed memory is kept up to a bound, not returned at once. The next buffer has the same size, and
//! getting new pages costs as much as filling them.

#![cfg_attr(
    all(target_os = "linux", target_env = "gnu"),
    expect(unsafe_code, reason = "the allocator is told through its C interface")
)]

/// Buffers up to this size (bytes) are taken from freed memory: containers, frames and blocks of
/// files.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const KEPT_EACH: i32 = 32 << 20;
/// The same in a backup that has a version to compare with (bytes). A container has 8 MiB at least.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const CONTAINERS: i32 = 8 << 20;
/// Free memory at the end of an arena that is not returned (bytes).
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const KEPT_IN_ALL: i32 = 64 << 20;

/// Buffers up to this size (bytes) are taken from freed memory in a process that keeps little:
/// frames, and tables of containers. Larger ones are returned at once. With 1 MiB here and 2 MiB
/// below, the first backup of a worker took 41 MB, and 10 % less of the processor.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const LITTLE: i32 = 300 << 10;
/// Free memory at the end of an arena that such a process does not return (bytes). Without it,
/// pages that come and go were a third of what a worker of a batch takes of the processor.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const LITTLE_IN_ALL: i32 = 512 << 10;

/// Buffers up to this size (bytes) are taken from freed memory in a process that mounts: parts of
/// containers and all that is opened of them.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const PARTS: i32 = 4 << 20;

/// From now on, little freed memory is kept. To be called before the first thread is started.
pub(crate) fn keep_little() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: as in `set_up`.
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, 1);
            libc::mallopt(libc::M_MMAP_THRESHOLD, LITTLE);
            libc::mallopt(libc::M_TRIM_THRESHOLD, LITTLE_IN_ALL);
        }
    }
}

/// From now on, buffers of more than `PARTS` bytes are taken from the kernel. The library of FUSE
/// has one of 16 MiB for each thread, of which it touches some pages. From freed memory, all of it
/// would be filled with zeros. To be called before the first thread is started.
pub(crate) fn keep_parts_alone() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: as in `set_up`.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, PARTS);
    }
}

/// From now on, buffers of whole containers are taken from the kernel and returned to it. Freed
/// memory has no holes of their size then. So later versions of a database take a sixth less,
/// for 6 % of the processor time. A first backup takes less memory anyway, and new pages would cost
/// it as much.
pub(crate) fn return_containers() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: mallopt takes the lock of the main arena, and sets a number. Other threads read the
    // number without a lock, and either value is right for them.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, CONTAINERS);
    }
}

/// To be called before the first thread is started.
pub(crate) fn set_up() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
        let arenas = i32::try_from(threads / 4).unwrap_or(i32::MAX).max(2);
        // SAFETY: mallopt changes settings of the allocator and touches no memory of ours; no other
        // thread runs yet. Should it refuse, everything works with the default.
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, arenas);
            libc::mallopt(libc::M_MMAP_THRESHOLD, KEPT_EACH);
            libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_IN_ALL);
        }
    }
}
