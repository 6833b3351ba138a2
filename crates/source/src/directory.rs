//! Open directories and the names in them.

use std::ffi::CStr;
use std::mem::MaybeUninit;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags, RawDir, openat};
use rustix::io::Errno;
use rustix::path::Arg;

use crate::stat::{Follow, Stat};

/// Bytes asked of one `getdents`: about 2,000 names, so that a large directory takes few calls.
const LISTING_BUFFER: usize = 128 << 10;

/// A name list larger than this is freed instead of being reused for the next directory.
const REUSED_BYTES_MAX: usize = 1 << 20;

/// An open directory. All work on its entries goes through its descriptor. So renames above it do
/// not matter, and paths may be longer than the kernel's limit.
#[derive(Debug)]
pub(crate) struct Directory {
    descriptor: OwnedFd,
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

/// The purpose of an opened directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Reaching a known name below it: needs no read permission. Symlinks are followed.
    Passage,
    /// Reaching known names below it when it could not be opened for listing. Symlinks are not
    /// followed.
    BarePassage,
    /// Reading its names. Symlinks are not followed.
    Listing,
}

impl Directory {
    /// The root of the file system.
    pub(crate) fn root() -> Result<Self, Errno> {
        Self::wrap(openat(CWD, c"/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
    }

    /// Opens `name` below `self`.
    pub(crate) fn open(&self, name: impl Arg + Copy, purpose: Purpose) -> Result<Self, Errno> {
        let directory = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let flags = match purpose {
            Purpose::Passage => OFlags::PATH | directory,
            Purpose::BarePassage => OFlags::PATH | OFlags::NOFOLLOW | directory,
            Purpose::Listing => OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOATIME | directory,
        };
        let opened = match openat(self, name, flags, Mode::empty()) {
            // Only the owner and root may leave the access time alone.
            Err(Errno::PERM) if flags.contains(OFlags::NOATIME) => {
                openat(self, name, flags.difference(OFlags::NOATIME), Mode::empty())
            }
            other => other,
        };
        Self::wrap(opened?)
    }

    fn wrap(descriptor: OwnedFd) -> Result<Self, Errno> {
        let stat = Stat::of(&descriptor)?;
        Ok(Self { descriptor, device: stat.id.device, inode: stat.id.inode })
    }

    /// Facts about one name.
    pub(crate) fn stat(&self, name: impl Arg, follow: Follow) -> Result<Stat, Errno> {
        Stat::at(self, name, follow)
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// The names in one directory, sorted by their bytes, each once.
///
/// Names are one after the other in one buffer, each with its closing NUL, and are passed to the
/// kernel from there without a copy.
#[derive(Debug, Default)]
pub(crate) struct Names {
    bytes: Vec<u8>,
    order: Vec<NameRef>,
    next: usize,
}

#[derive(Debug, Clone, Copy)]
struct NameRef {
    /// The first eight bytes as a big-endian number: decides nearly every comparison. Padding with
    /// zeros keeps the order, because names hold no NUL.
    head: u64,
    offset: usize,
}

impl NameRef {
    fn name(self, bytes: &[u8]) -> &CStr {
        CStr::from_bytes_until_nul(&bytes[self.offset..]).unwrap_or_default()
    }
}

impl Names {
    /// Adds every name the directory lists. Names read before an error stay.
    pub(crate) fn read(&mut self, directory: &Directory, buffer: &mut ListingBuffer) -> Result<(), Errno> {
        let mut listing = RawDir::new(directory, buffer.space());
        while let Some(entry) = listing.next() {
            match entry {
                Ok(entry) => match entry.file_name().to_bytes() {
                    b"." | b".." => {}
                    _ => self.add(entry.file_name()),
                },
                Err(Errno::INTR) => {}
                // The directory was removed after it was opened: it holds nothing any more.
                Err(Errno::NOENT) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Adds one name.
    pub(crate) fn add(&mut self, name: &CStr) {
        let bytes = name.to_bytes_with_nul();
        self.order.push(NameRef { head: head(name.to_bytes()), offset: self.bytes.len() });
        self.bytes.extend_from_slice(bytes);
    }

    /// Sorts, and drops names listed twice, as can happen when the directory changes while it is
    /// listed.
    pub(crate) fn sort(&mut self) {
        let Self { bytes, order, .. } = self;
        let compare = |a: &NameRef, b: &NameRef| {
            a.head.cmp(&b.head).then_with(|| a.name(bytes).to_bytes().cmp(b.name(bytes).to_bytes()))
        };
        order.sort_unstable_by(compare);
        order.dedup_by(|a, b| compare(a, b).is_eq());
    }

    /// Whether a name is in the (sorted) list.
    pub(crate) fn contains(&self, name: &[u8]) -> bool {
        let compare = |at: &NameRef| at.head.cmp(&head(name)).then_with(|| at.name(&self.bytes).to_bytes().cmp(name));
        self.order.binary_search_by(compare).is_ok()
    }

    /// Keeps only the names for which `keep` holds.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&[u8]) -> bool) {
        let Self { bytes, order, .. } = self;
        order.retain(|at| keep(at.name(bytes).to_bytes()));
    }

    /// Names not taken yet.
    pub(crate) fn left(&self) -> usize {
        self.order.len() - self.next
    }

    /// The next name.
    pub(crate) fn take(&mut self) -> Option<&CStr> {
        let at = self.order.get(self.next)?;
        self.next += 1;
        Some(at.name(&self.bytes))
    }

    /// An empty list that reuses the memory, unless that was unusually much.
    pub(crate) fn recycle(mut self) -> Self {
        if self.bytes.capacity() > REUSED_BYTES_MAX || self.order.capacity() * size_of::<NameRef>() > REUSED_BYTES_MAX {
            return Self::default();
        }
        self.bytes.clear();
        self.order.clear();
        self.next = 0;
        self
    }
}

fn head(name: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let length = name.len().min(8);
    bytes[..length].copy_from_slice(&name[..length]);
    u64::from_be_bytes(bytes)
}

/// Space for the kernel's listings, used again for every directory.
pub(crate) struct ListingBuffer(Vec<MaybeUninit<u8>>);

impl ListingBuffer {
    pub(crate) fn new() -> Self {
        Self(vec![MaybeUninit::uninit(); LISTING_BUFFER])
    }

    fn space(&mut self) -> &mut [MaybeUninit<u8>] {
        &mut self.0
    }
}

impl std::fmt::Debug for ListingBuffer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("ListingBuffer")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::ffi::CString;

    proptest! {
        #[test]
        fn names_come_out_sorted_and_once(mut names in proptest::collection::vec(
            proptest::collection::vec(prop_oneof![Just(b'a'), Just(b'b'), 1u8..=255], 1..12), 0..60)) {
            let mut list = Names::default();
            for name in names.iter().chain(names.iter().take(3)) {
                list.add(&CString::new(name.clone()).expect("no NUL"));
            }
            list.sort();
            names.sort();
            names.dedup();
            for name in &names {
                prop_assert!(list.contains(name));
            }
            let mut taken = Vec::new();
            while let Some(name) = list.take() {
                taken.push(name.to_bytes().to_vec());
            }
            prop_assert_eq!(taken, names);
        }
    }
}
