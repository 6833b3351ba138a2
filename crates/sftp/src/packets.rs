//! Sizes of packets, and the two answers that the library cannot build.

use russh_sftp::protocol::{ExtendedReply, FileAttributes, Packet};
use rustix::fs::{Stat, StatVfs};

/// Largest packet that a client may send, in bytes: what OpenSSH takes.
pub(crate) const PACKET_MAX: u32 = 256 << 10;

/// Most bytes of a body in one packet.
pub(crate) const BODY_MAX: u32 = 255 << 10;

/// Files and folders that a session may have open.
pub(crate) const HANDLES_MAX: usize = 256;

/// Numbers, as the protocol has them.
fn numbers(id: u32, numbers: &[u64]) -> Packet {
    let data = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
    Packet::ExtendedReply(ExtendedReply { id, data })
}

/// The answer to `limits@openssh.com`.
pub(crate) fn limits(id: u32) -> Packet {
    numbers(id, &[PACKET_MAX.into(), BODY_MAX.into(), BODY_MAX.into(), HANDLES_MAX as u64])
}

/// The answer to `statvfs@openssh.com`, with no more than `left` bytes free.
pub(crate) fn statvfs(id: u32, system: &StatVfs, left: Option<u64>) -> Packet {
    let fragment = system.f_frsize.max(1);
    let most = left.map_or(u64::MAX, |left| left / fragment);
    let flags = system.f_flag.bits();
    numbers(
        id,
        &[
            system.f_bsize,
            fragment,
            system.f_blocks,
            system.f_bfree.min(most),
            system.f_bavail.min(most),
            system.f_files,
            system.f_ffree,
            system.f_favail,
            system.f_fsid,
            flags,
            system.f_namemax,
        ],
    )
}

/// The attributes of a file.
pub(crate) fn attributes(stat: &Stat) -> FileAttributes {
    FileAttributes {
        size: u64::try_from(stat.st_size).ok(),
        uid: Some(stat.st_uid),
        gid: Some(stat.st_gid),
        permissions: Some(stat.st_mode),
        atime: u32::try_from(stat.st_atime).ok(),
        mtime: u32::try_from(stat.st_mtime).ok(),
        ..FileAttributes::empty()
    }
}
