//! A process that keeps its resident memory small (`backup --total-memory`).
//!
//! `--memory` is what caches and tables take. The program itself, its buffers, and what the
//! allocator keeps come on top. Here all of it counts: what the kernel reports as `VmHWM`. So there
//! is one thread for computation if no more are asked for, containers and blocks are small, little
//! freed memory is kept, and pages of the program that are not in use are given back to the kernel.

#![expect(unsafe_code, reason = "the kernel is told which pages of the program are not in use")]

use std::fs::File;
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use larder_lnode::ReadBudget;
use larder_writer::WriteBudget;
use rustix::mm::{Advice, madvise};

use crate::app::App;
use crate::args::Global;
use crate::failure::Failure;
use crate::{allocator, sizes};

/// The parts that every backup with `threads` threads has, in bytes, and their names. Estimates for
/// a release (`docs/decisions/0032-memory-of-a-process.md`).
fn parts(threads: NonZeroUsize) -> [(&'static str, u64); 4] {
    let threads = threads.get();
    [
        ("program, libraries and connection", 15_000_000),
        ("containers", WriteBudget::small(threads).waiting as u64),
        ("blocks of the input", ReadBudget::small_bytes(threads) as u64),
        ("compression", 2_500_000_u64.saturating_mul(threads as u64)),
    ]
}

/// The least for caches and tables of duplicates (bytes).
const CACHES_MIN: u64 = 2_000_000;
/// More is of no use (bytes).
const CACHES_MAX: u64 = 1 << 30;

/// How often the resident memory is looked at. Code comes in by some megabytes in this time. Looks
/// cost half a percent of a core, because they wake one.
const LOOK: Duration = Duration::from_millis(5);
/// The same as long as half of it is free.
const LOOK_SELDOM: Duration = Duration::from_millis(50);
/// Stack of the thread that looks (bytes).
const STACK: usize = 64 << 10;

/// The memory for caches and tables within `total` bytes.
fn caches(total: u64, threads: NonZeroUsize) -> Result<u64, Failure> {
    let parts = parts(threads);
    let needed = parts.iter().fold(0_u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
    match total.checked_sub(needed) {
        Some(rest) if rest >= CACHES_MIN => Ok(rest.min(CACHES_MAX)),
        _ => {
            let list: Vec<_> = parts
                .iter()
                .chain([&("caches and tables", CACHES_MIN)])
                .map(|(name, bytes)| format!("{name} {}", sizes::show(*bytes)))
                .collect();
            let least = sizes::show(needed.saturating_add(CACHES_MIN));
            let with = match threads.get() {
                1 => String::new(),
                threads => format!(" with {threads} threads"),
            };
            Err(Failure::usage(format!("--total-memory is at least {least}{with}: {}", list.join(", "))))
        }
    }
}

/// From now on this process tries to stay below `total` bytes. To be called before the first thread
/// is started.
pub(crate) fn begin(total: u64, global: &mut Global) -> Result<(), Failure> {
    let threads = global.threads.unwrap_or(NonZeroUsize::MIN);
    global.memory = Some(caches(total, threads)?);
    global.threads = Some(threads);
    global.total_memory = Some(total);
    allocator::keep_little();
    page_out();
    watch(total);
    Ok(())
}

/// The memory of backups for containers and for the input, in such a process or in a usual one.
pub(crate) fn budgets(app: &App) -> (WriteBudget, ReadBudget) {
    match app.global.total_memory {
        Some(_) => (WriteBudget::small(app.threads().get()), ReadBudget::small(app.threads().get())),
        None => (WriteBudget::default(), ReadBudget::default()),
    }
}

/// What this process took so far, at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peak {
    pub(crate) bytes: u64,
    /// What it was to take.
    total: u64,
}

impl Peak {
    /// `None` where the system does not say.
    pub(crate) fn of(total: u64) -> Option<Self> {
        let bytes = larder_fleet::memory_peak();
        (bytes > 0).then_some(Self { bytes, total })
    }

    /// What to say when it was too much. The snapshot is whole.
    pub(crate) fn warning(&self) -> Option<String> {
        let (bytes, total) = (sizes::show(self.bytes), sizes::show(self.total));
        (self.bytes > self.total).then(|| format!("this process took {bytes} of memory, and --total-memory is {total}"))
    }
}

/// Tells the kernel that the pages of the program are not in use. Those that are come back from its
/// file or from the kernel's cache. What started the process, read the command line and opened the
/// repository does not.
pub(crate) fn page_out() {
    give_back(|_| true);
}

/// The pages of a file that are mapped to be read or executed, and never written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FilePages {
    from: usize,
    bytes: usize,
    is_code: bool,
}

/// Gives back the pages that `admits` wants.
fn give_back(admits: impl Fn(&FilePages) -> bool) {
    // Without `/proc`, they stay.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for pages in maps.lines().filter_map(file_pages).filter(|pages| admits(pages)) {
        // Data may have been relocated by the loader, and then differ from their file. Code has
        // not. That it is mapped by other processes too does not keep it here.
        let advice = if pages.is_code { Advice::LinuxDontNeed } else { Advice::LinuxPageOut };
        // SAFETY: both leave the contents as they are. These are read-only pages of files, and
        // those of code were never written to (but by debuggers), so that they come back from the
        // file.
        let _ = unsafe { madvise(std::ptr::without_provenance_mut(pages.from), pages.bytes, advice) };
    }
}

fn file_pages(line: &str) -> Option<FilePages> {
    let mut columns = line.split_whitespace();
    let (range, rights) = (columns.next()?, columns.next()?);
    let inode = columns.nth(2)?;
    let (from, to) = range.split_once('-')?;
    let (from, to) = (usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?);
    let is_wanted = rights.starts_with('r') && !rights.contains('w') && inode != "0";
    is_wanted.then(|| FilePages { from, bytes: to.saturating_sub(from), is_code: rights.contains('x') })
}

/// Looks at the resident memory from time to time. Near the limit, code is given back: the kernel
/// maps 64 KiB around each page that is executed, and unmaps nothing by itself.
fn watch(total: u64) {
    let (near, code_min) = (total - total / 4, total / 5);
    // Without `/proc`, there is nothing to do.
    let Ok(statm) = File::open("/proc/self/statm") else { return };
    let look = move || {
        // What else is in files, such as constants.
        let (mut stays, mut now) = (0, Resident::default());
        loop {
            std::thread::sleep(if now.all < near / 2 { LOOK_SELDOM } else { LOOK });
            now = Resident::of(&statm).unwrap_or_default();
            if now.all > near && now.of_files > stays + code_min {
                give_back(|pages| pages.is_code);
                stays = staying(stays, Resident::of(&statm).unwrap_or_default().of_files, code_min);
            }
        }
    };
    let thread = std::thread::Builder::new().name("memory".to_owned()).stack_size(STACK);
    if let Err(error) = thread.spawn(look) {
        tracing::warn!(%error, "resident memory is not watched");
    }
}

/// What stays of files after code was given back, by what is left of them now. Other threads may
/// have run for a while since, and their code is back. So the figure rises in small steps.
fn staying(before: u64, left: u64, code_min: u64) -> u64 {
    left.min(before + code_min / 4)
}

/// Resident memory of a process in bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Resident {
    all: u64,
    of_files: u64,
}

impl Resident {
    /// Reads `/proc/PID/statm`, which takes 1 µs, and `status` with opening takes 12. `None` where
    /// the system does not say.
    fn of(statm: &File) -> Option<Self> {
        let mut text = [0; 128];
        let length = statm.read_at(&mut text, 0).ok()?;
        let mut pages = std::str::from_utf8(text.get(..length)?).ok()?.split(' ').skip(1).map(str::parse::<u64>);
        let mut bytes = || Some(pages.next()?.ok()? * rustix::param::page_size() as u64);
        Some(Self { all: bytes()?, of_files: bytes()? })
    }
}

#[cfg(test)]
mod tests {
    use rustix::mm::{MapFlags, ProtFlags, mmap};

    use super::*;

    #[test]
    fn too_little_memory_is_refused_with_the_parts() {
        let threads = |count| NonZeroUsize::new(count).expect("at least one");
        for count in [1, 2, 16] {
            let parts = parts(threads(count));
            let least: u64 = parts.iter().map(|(_, bytes)| bytes).sum::<u64>() + CACHES_MIN;
            assert_eq!(caches(least, threads(count)).expect("enough"), CACHES_MIN);
            assert_eq!(caches(u64::MAX, threads(count)).expect("enough"), CACHES_MAX);
            for total in [0, least - 1] {
                let refused = caches(total, threads(count)).expect_err("too little").message;
                assert!(parts.iter().all(|(name, _)| refused.contains(name)), "{refused}");
                assert_eq!(refused.contains(&format!("with {count} threads")), count > 1, "{refused}");
            }
        }
        assert!(caches(35_000_000, threads(1)).is_ok(), "the least that the manual names");
        assert!(caches(47_000_000, threads(2)).is_ok(), "the same for two threads");
        assert!(caches(u64::MAX - 1, NonZeroUsize::MAX).is_err(), "no sum overflows");
    }

    #[test]
    fn a_process_that_took_too_much_says_so() {
        let peak = Peak::of(1).expect("the system says");
        assert!(peak.bytes > 1 << 20);
        assert!(peak.warning().expect("too much").contains("--total-memory is 1 B"));
        assert_eq!(Peak { total: peak.bytes, ..peak }.warning(), None);
    }

    #[test]
    fn pages_of_files_are_found_in_the_list_of_mappings() {
        let text = "55d0a000-55d0b000 r-xp 00001000 fe:00 1234 /usr/bin/larder";
        let found = FilePages { from: 0x55d0_a000, bytes: 0x1000, is_code: true };
        assert_eq!(file_pages(text), Some(found));
        assert_eq!(file_pages(&text.replace("r-x", "r--")), Some(FilePages { is_code: false, ..found }));
        for other in [
            "55d0a000-55d0b000 rw-p 00001000 fe:00 1234 /usr/bin/larder",
            "7ffc0000-7ffc1000 r-xp 00000000 00:00 0 [vdso]",
            "7ffc0000-7ffc1000 ---p 00000000 fe:00 1234 /lib/libc.so",
            "",
            "x",
        ] {
            assert_eq!(file_pages(other), None, "{other}");
        }
        page_out();
    }

    /// Code that came back before the look would count as what stays, and twice as much would be
    /// let in the next time.
    #[test]
    fn code_that_is_back_at_once_is_no_reason_for_much_more() {
        assert_eq!(staying(0, 9 << 20, 8 << 20), 2 << 20);
        assert_eq!(staying(2 << 20, 3 << 20, 8 << 20), 3 << 20);
        assert_eq!(staying(6 << 20, 1 << 20, 8 << 20), 1 << 20, "it falls at once");
    }

    /// How much of the mapping at `from` is resident (bytes).
    fn resident_at(from: usize) -> u64 {
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("a list");
        let of_it = maps.lines().skip_while(|line| !line.starts_with(&format!("{from:x}-")));
        let rss = of_it.skip(1).find_map(|line| line.strip_prefix("Rss:")).expect("a size");
        rss.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
    }

    #[test]
    fn code_is_given_back_and_comes_again() {
        let statm = File::open("/proc/self/statm").expect("the system says");
        assert!(Resident::of(&statm).is_some_and(|now| now.of_files > 1 << 20 && now.all > now.of_files));
        // A second mapping of this program's first MiB: other tests use the first one meanwhile.
        let (bytes, program) = (1 << 20, std::fs::File::open("/proc/self/exe").expect("this program"));
        let null = std::ptr::null_mut();
        // SAFETY: a place that the kernel chooses, which nothing else uses.
        let from = unsafe { mmap(null, bytes, ProtFlags::READ | ProtFlags::EXEC, MapFlags::PRIVATE, &program, 0) };
        let from = from.expect("a mapping").addr();
        let sum = || -> u64 {
            let pages = (from..from + bytes).step_by(1 << 12);
            // SAFETY: these pages are mapped to be read, and stay so.
            pages.map(|at| u64::from(unsafe { std::ptr::read_volatile(std::ptr::without_provenance::<u8>(at)) })).sum()
        };
        let before = sum();
        assert_eq!(resident_at(from), bytes as u64);
        give_back(|pages| pages.is_code);
        assert_eq!(resident_at(from), 0);
        assert_eq!(sum(), before, "nothing is lost");
    }
}
