//! The file system: requests of the kernel, and calls of exports.

use std::ffi::OsStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner,
    OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyWrite,
    Request, TimeOrNow, WriteFlags,
};
use larder_nbd::{Export, ExportError, Exports, Zeroing};
use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, OFlags};
use rustix::process::{getegid, geteuid};

use crate::handles::Handles;
use crate::seek::seek;

/// The kernel asks again each time: exports come and go, and change their size.
const NEVER_KNOWN: Duration = Duration::ZERO;
/// `lseek` for data, and for a hole.
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

/// See the crate's header.
pub(crate) struct Files {
    exports: Arc<dyn Exports>,
    handles: Mutex<Handles>,
}

impl Files {
    pub(crate) fn new(exports: Arc<dyn Exports>) -> Self {
        Self { exports, handles: Mutex::default() }
    }

    /// The export with a number.
    fn export(&self, number: INodeNo) -> Result<Arc<dyn Export>, Errno> {
        let name = self.handles.lock().name(number.0).map(str::to_owned).ok_or(Errno::ENOENT)?;
        self.exports.find(&name).map_err(errno)?.ok_or(Errno::ENOENT)
    }

    fn opened(&self, handle: FileHandle) -> Result<Arc<dyn Export>, Errno> {
        self.handles.lock().get(handle.0).ok_or(Errno::EBADF)
    }

    fn attributes(&self, number: INodeNo) -> Result<FileAttr, Errno> {
        if number == INodeNo::ROOT {
            return Ok(attributes(number, 0, FileType::Directory, 0o700));
        }
        let export = self.export(number)?;
        let mode = if export.abilities().read_only { 0o400 } else { 0o600 };
        Ok(attributes(number, export.size(), FileType::RegularFile, mode))
    }

    fn find(&self, parent: INodeNo, name: &OsStr) -> Result<FileAttr, Errno> {
        let name = name.to_str().filter(|name| parent == INodeNo::ROOT && is_shown(name)).ok_or(Errno::ENOENT)?;
        self.exports.find(name).map_err(errno)?.ok_or(Errno::ENOENT)?;
        let number = self.handles.lock().number(name);
        self.attributes(INodeNo(number))
    }

    fn open_export(&self, number: INodeNo, flags: OpenFlags) -> Result<FileHandle, Errno> {
        let export = self.export(number)?;
        let writes = flags.0 & OFlags::ACCMODE.bits() as i32 != OFlags::RDONLY.bits() as i32;
        if writes && export.abilities().read_only {
            return Err(Errno::EROFS);
        }
        Ok(FileHandle(self.handles.lock().open(export)))
    }

    fn read_export(&self, handle: FileHandle, offset: u64, size: u32) -> Result<Vec<u8>, Errno> {
        let export = self.opened(handle)?;
        let length = u64::from(size).min(export.size().saturating_sub(offset));
        let mut buffer = vec![0; length as usize];
        if length > 0 {
            export.read(offset, &mut buffer).map_err(errno)?;
        }
        Ok(buffer)
    }

    fn write_export(&self, handle: FileHandle, offset: u64, data: &[u8], flags: OpenFlags) -> Result<u32, Errno> {
        let export = self.opened(handle)?;
        let length = (data.len() as u64).min(export.size().saturating_sub(offset));
        if length == 0 && !data.is_empty() {
            // As the end of a block device.
            return Err(Errno::ENOSPC);
        }
        let fua = flags.0 & OFlags::DSYNC.bits() as i32 != 0;
        export.write(offset, &data[..length as usize], fua && export.abilities().fua).map_err(errno)?;
        if fua && !export.abilities().fua {
            export.flush().map_err(errno)?;
        }
        Ok(length as u32)
    }

    fn zero(&self, handle: FileHandle, offset: u64, length: u64, mode: i32) -> Result<(), Errno> {
        let export = self.opened(handle)?;
        let mode = FallocateFlags::from_bits_retain(mode as u32);
        let punches = mode == FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let zeroes = mode.difference(FallocateFlags::KEEP_SIZE) == FallocateFlags::ZERO_RANGE;
        // Nothing can be kept for later writes: what they need depends on their content.
        if !(punches || zeroes) || !export.abilities().write_zeroes {
            return Err(Errno::EOPNOTSUPP);
        }
        let length = length.min(export.size().saturating_sub(offset));
        if length == 0 {
            return Ok(());
        }
        export.write_zeroes(offset, length, Zeroing { no_hole: zeroes, ..Zeroing::default() }).map_err(errno)
    }

    fn seek_export(&self, handle: FileHandle, offset: i64, whence: i32) -> Result<i64, Errno> {
        let export = self.opened(handle)?;
        let offset = u64::try_from(offset).ok().filter(|offset| *offset < export.size()).ok_or(Errno::ENXIO)?;
        let found = match whence {
            SEEK_DATA | SEEK_HOLE => seek(&*export, offset, whence == SEEK_DATA).map_err(errno)?,
            _ => return Err(Errno::EINVAL),
        };
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

/// Whether a name can be the name of a file.
fn is_shown(name: &str) -> bool {
    !name.is_empty() && name.len() <= 255 && !name.contains(['/', '\0']) && name != "." && name != ".."
}

/// The numbers of the protocol are those of Linux.
fn errno(error: ExportError) -> Errno {
    Errno::from_i32(error.code.to_wire() as i32)
}

fn attributes(number: INodeNo, size: u64, kind: FileType, mode: u16) -> FileAttr {
    FileAttr {
        ino: number,
        size,
        blocks: size.div_ceil(512),
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind,
        perm: mode,
        nlink: 1,
        uid: geteuid().as_raw(),
        gid: getegid().as_raw(),
        rdev: 0,
        blksize: 64 << 10,
        flags: 0,
    }
}

impl Filesystem for Files {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match guarded(|| self.find(parent, name)) {
            Ok(attributes) => reply.entry(&NEVER_KNOWN, &attributes, Generation(0)),
            Err(error) => reply.error(error),
        }
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match guarded(|| self.attributes(number)) {
            Ok(attributes) => reply.attr(&NEVER_KNOWN, &attributes),
            Err(error) => reply.error(error),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        number: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        _size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        match guarded(|| self.attributes(number)) {
            Ok(attributes) => reply.attr(&NEVER_KNOWN, &attributes),
            Err(error) => reply.error(error),
        }
    }

    fn open(&self, _: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match guarded(|| self.open_export(number, flags)) {
            // Other clients may change the data, so no copy of it may be kept.
            Ok(handle) => reply.opened(handle, FopenFlags::FOPEN_DIRECT_IO),
            Err(error) => reply.error(error),
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match guarded(|| self.read_export(handle, offset, size)) {
            Ok(data) => reply.data(&data),
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match guarded(|| self.write_export(handle, offset, data, flags)) {
            Ok(written) => reply.written(written),
            Err(error) => reply.error(error),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // Called at each close, which promises nothing.
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        match guarded(|| self.opened(handle)?.flush().map_err(errno)) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.handles.lock().close(handle.0);
        reply.ok();
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        match guarded(|| self.zero(handle, offset, length, mode)) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn lseek(&self, _: &Request, _: INodeNo, handle: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        match guarded(|| self.seek_export(handle, offset, whence)) {
            Ok(found) => reply.offset(found),
            Err(error) => reply.error(error),
        }
    }

    fn readdir(&self, _: &Request, number: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        if number != INodeNo::ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let folders = [".", ".."].map(|name| (INodeNo::ROOT, FileType::Directory, name.to_owned()));
        let mut entries = folders.to_vec();
        let listed = match guarded(|| Ok(self.exports.list())) {
            Ok(listed) => listed,
            Err(error) => return reply.error(error),
        };
        for listed in listed.into_iter().filter(|listed| is_shown(&listed.name)) {
            let number = INodeNo(self.handles.lock().number(&listed.name));
            entries.push((number, FileType::RegularFile, listed.name));
        }
        let rest = entries.into_iter().enumerate().skip(usize::try_from(offset).unwrap_or(usize::MAX));
        for (at, (number, kind, name)) in rest {
            if reply.add(number, at as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_of_one_request() {
        let failed = guarded(|| -> Result<(), Errno> { panic!("a mistake of a test") });
        assert_eq!(failed.map_err(|error| error.code()), Err(Errno::EIO.code()));
        assert!(guarded(|| Ok(())).is_ok());
    }
}
