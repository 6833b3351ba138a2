//! The file system: requests of the kernel, and calls of the tree.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek,
    ReplyOpen, ReplyXattr, Request,
};
use larder_format::ErrorKind;
use larder_tree::{Attributes, Kind, Tree, TreeError};

use crate::time::system_time;

/// How long the kernel may keep what is in snapshots, and at most what is above them.
const LASTING: Duration = Duration::from_secs(3600);
const CHANGING_MAX: Duration = Duration::from_secs(1);
/// Requests that the kernel has under way for read-ahead of its own.
const BACKGROUND: u16 = 64;
/// `lseek` for data, and for a hole.
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

/// See the module header.
pub(crate) struct Files {
    tree: Arc<Tree>,
    /// How long the kernel may keep what is above snapshots.
    changing: Duration,
    /// The kernel checks ACLs, and not only modes.
    checks_acls: bool,
}

impl Files {
    pub(crate) fn new(tree: Arc<Tree>, checks_acls: bool) -> Self {
        let changing = CHANGING_MAX.min(Duration::from_millis(tree.refresh_ms()));
        Self { tree, changing, checks_acls }
    }

    fn lifetime(&self, attributes: &Attributes) -> &Duration {
        if attributes.is_lasting { &LASTING } else { &self.changing }
    }

    fn xattr(&self, number: INodeNo, name: &OsStr) -> Result<Vec<u8>, Errno> {
        let xattrs = self.tree.xattrs(number.0).map_err(errno)?;
        let found = xattrs.into_iter().find(|xattr| xattr.name == name.as_bytes());
        Ok(found.ok_or(Errno::ENODATA)?.value)
    }

    fn xattr_names(&self, number: INodeNo) -> Result<Vec<u8>, Errno> {
        let xattrs = self.tree.xattrs(number.0).map_err(errno)?;
        Ok(xattrs.iter().flat_map(|xattr| xattr.name.iter().copied().chain([0])).collect())
    }

    fn read_at(&self, number: INodeNo, offset: u64, size: u32) -> Result<Vec<u8>, TreeError> {
        self.tree.read(&self.tree.open(number.0)?, offset, size)
    }

    fn seek(&self, number: INodeNo, offset: i64, whence: i32) -> Result<i64, Errno> {
        let file = self.tree.open(number.0).map_err(errno)?;
        if !matches!(whence, SEEK_DATA | SEEK_HOLE) {
            return Err(Errno::EINVAL);
        }
        let found = u64::try_from(offset).ok().and_then(|offset| file.seek(offset, whence == SEEK_DATA));
        found.and_then(|at| i64::try_from(at).ok()).ok_or(Errno::ENXIO)
    }
}

/// Does the work of a request. A panic is an error of this request: its thread has others to serve.
fn guarded<T>(work: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        tracing::error!("a bug: a request for a file panicked");
        Err(Errno::EIO)
    })
}

fn errno(error: TreeError) -> Errno {
    match &error {
        TreeError::NotFound | TreeError::Forgotten { .. } => Errno::ENOENT,
        TreeError::NotAFolder => Errno::ENOTDIR,
        TreeError::IsAFolder => Errno::EISDIR,
        TreeError::Unsuitable => Errno::EINVAL,
        TreeError::NoAttribute => Errno::ENODATA,
        error if error.kind() == ErrorKind::BadKey => Errno::EACCES,
        _ => Errno::EIO,
    }
}

fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Folder => FileType::Directory,
        Kind::Link => FileType::Symlink,
        Kind::Fifo => FileType::NamedPipe,
        Kind::CharDevice => FileType::CharDevice,
        Kind::BlockDevice => FileType::BlockDevice,
    }
}

/// A device number as the protocol has it.
fn device((major, minor): (u32, u32)) -> u32 {
    (minor & 0xff) | (major & 0xfff) << 8 | (minor & 0xfff00) << 12
}

fn attr(attributes: &Attributes) -> FileAttr {
    let mtime = system_time(attributes.mtime);
    FileAttr {
        ino: INodeNo(attributes.inode),
        size: attributes.size,
        blocks: attributes.stored.div_ceil(512),
        atime: system_time(attributes.atime),
        mtime,
        ctime: system_time(attributes.ctime),
        crtime: mtime,
        kind: file_type(attributes.kind),
        perm: attributes.mode as u16,
        nlink: attributes.names,
        uid: attributes.uid,
        gid: attributes.gid,
        rdev: device(attributes.device),
        // What one request of the kernel asks for.
        blksize: 128 << 10,
        flags: 0,
    }
}

/// Answers a question for bytes of any length.
fn reply_bytes(bytes: Result<Vec<u8>, Errno>, size: u32, reply: ReplyXattr) {
    match bytes {
        Ok(bytes) if size == 0 => reply.size(bytes.len() as u32),
        Ok(bytes) if bytes.len() > size as usize => reply.error(Errno::ERANGE),
        Ok(bytes) => reply.data(&bytes),
        Err(error) => reply.error(error),
    }
}

impl Filesystem for Files {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // Facts come with the list, always: programs that ask for each file would wait for each.
        let wanted = InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_ASYNC_DIO;
        // An old kernel works without them.
        let _ = config.add_capabilities(wanted & config.capabilities());
        let _ = config.set_max_background(BACKGROUND);
        // Modes alone may permit what an ACL refuses, so nothing is shown without this check.
        if self.checks_acls && config.add_capabilities(InitFlags::FUSE_POSIX_ACL).is_err() {
            let why = "this kernel does not check the ACLs of FUSE files, so other users cannot be admitted";
            return Err(std::io::Error::new(std::io::ErrorKind::Unsupported, why));
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match guarded(|| self.tree.lookup(parent.0, name.as_bytes()).map_err(errno)) {
            Ok(found) => reply.entry(self.lifetime(&found), &attr(&found), Generation(0)),
            Err(error) => reply.error(error),
        }
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match guarded(|| self.tree.attributes(number.0).map_err(errno)) {
            Ok(found) => reply.attr(self.lifetime(&found), &attr(&found)),
            Err(error) => reply.error(error),
        }
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        match guarded(|| self.tree.link_target(number.0).map_err(errno)) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(error),
        }
    }

    /// Files are not opened: after this answer the kernel sends no more `open`, `flush` and
    /// `release`, and keeps pages of all files. For small files these are most requests
    /// (`docs/decisions/0055-files-are-not-opened.md`).
    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn read(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match guarded(|| self.read_at(number, offset, size).map_err(errno)) {
            Ok(data) => reply.data(&data),
            Err(error) => reply.error(error),
        }
    }

    fn opendir(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match guarded(|| self.tree.attributes(number.0).map_err(errno)) {
            // Lists of folders in snapshots never change.
            Ok(found) if found.is_lasting => {
                reply.opened(FileHandle(0), FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE);
            }
            Ok(_) => reply.opened(FileHandle(0), FopenFlags::empty()),
            Err(error) => reply.error(error),
        }
    }

    fn readdir(&self, _: &Request, number: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let listed = guarded(|| {
            let mut each = |found: &larder_tree::Listed<'_>| {
                let Attributes { inode, kind, .. } = found.attributes;
                reply.add(INodeNo(inode), found.cookie, file_type(kind), OsStr::from_bytes(found.name))
            };
            self.tree.list(number.0, offset, false, &mut each).map_err(errno)
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn readdirplus(&self, _: &Request, number: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectoryPlus) {
        let listed = guarded(|| {
            let mut each = |found: &larder_tree::Listed<'_>| {
                let (name, attributes) = (OsStr::from_bytes(found.name), &found.attributes);
                let attr = attr(attributes);
                reply.add(attr.ino, found.cookie, name, self.lifetime(attributes), &attr, Generation(0))
            };
            self.tree.list(number.0, offset, true, &mut each).map_err(errno)
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn releasedir(&self, _: &Request, _: INodeNo, _: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        reply.ok();
    }

    fn getxattr(&self, _: &Request, number: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        reply_bytes(guarded(|| self.xattr(number, name)), size, reply);
    }

    fn listxattr(&self, _: &Request, number: INodeNo, size: u32, reply: ReplyXattr) {
        reply_bytes(guarded(|| self.xattr_names(number)), size, reply);
    }

    fn lseek(&self, _: &Request, number: INodeNo, _: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        match guarded(|| self.seek(number, offset, whence)) {
            Ok(found) => reply.offset(found),
            Err(error) => reply.error(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_are_those_of_the_protocol() {
        assert_eq!(device((8, 1)), 0x801);
        assert_eq!(device((259, 0x12345)), 0x1230_0000 | 259 << 8 | 0x45);
    }

    #[test]
    fn a_panic_is_an_error_of_one_request() {
        let failed = guarded(|| -> Result<(), Errno> { panic!("a mistake of a test") });
        assert_eq!(failed.map_err(|error| error.code()), Err(Errno::EIO.code()));
    }
}
