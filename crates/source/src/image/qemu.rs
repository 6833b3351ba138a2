//! Disks of a running QEMU, or of `qemu-storage-daemon`, over its control socket.
//!
//! The old content of all that the guest writes is kept (fleecing). So the disk stays as it is at
//! one moment, for this backup, and the guest goes on:
//!
//! ```text
//! guest ──writes──▶ filter ──▶ disk
//!                     └──old content──▶ scratch file ◀──reads── NBD export ◀── backup
//! ```
//!
//! From QEMU 7.1 on, a filter in front of the disk does this. When it cannot keep something, the
//! backup fails. Older programs, and disks that no device uses, have a job for it. When that cannot
//! keep something, the write of the guest fails.
//!
//! The bitmap of the new version (`tracked`) is created before that moment, and those of earlier
//! versions are copied after it or with it. They are never stopped, and their copies are read. So a
//! failure needs no repair: the old bitmaps have all changes since their versions, also those
//! during the backup. What a killed backup left in QEMU is removed by the next one of its series.
//!
//! * `disk`: finds disks; `session`: what a backup has in QEMU.

mod disk;
mod session;

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use larder_nbd::client::ClientError;
use parking_lot::Mutex;

use self::disk::disk;
use self::session::{Kept, Session};
use super::nbd::NbdImage;
use super::qmp::Qmp;
use super::stops::Stops;
use super::tracked::{Bitmap, Ending, Opening, Tracked};
use super::{Image, ImageError};

/// Asks the QEMU at the other end of a connection for the size of a disk. `what` names it in
/// messages.
///
/// # Errors
/// It does not answer, or has no such disk.
pub fn size_of_disk(stream: UnixStream, what: &str, device: &str) -> Result<u64, ImageError> {
    let mut qmp = Qmp::over(stream, what.to_owned(), &Stops::default())?;
    Ok(disk(&mut qmp, device)?.size)
}

/// Opens a disk of a running QEMU as it is now. `device` names it: a node, or a device that uses
/// one. QEMU has to be able to write to the folder.
pub fn open(socket: &Path, device: &str, opening: Opening<'_>) -> Result<Tracked, ImageError> {
    let Opening { names, folder, keeps, stops } = opening;
    let mut session = Session::new(Qmp::connect(socket, stops)?, &names, folder);
    // What a killed backup left.
    session.end();
    let disk = disk(&mut session.qmp, device)?;
    session.node.clone_from(&disk.node);
    let old: Vec<Bitmap> = disk.bitmaps.iter().filter_map(|bitmap| bitmap.of(&names)).collect();
    let opened = session.freeze(&disk, &names, &old, keeps).and_then(|note| {
        let (image, changes) = session.connect(&old, stops)?;
        let extents = image.extents()?;
        Ok((image, changes, extents, note))
    });
    let (image, changes, extents, note) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            session.end();
            session.remove_own();
            return Err(error);
        }
    };
    let mut remarks = Vec::new();
    if keeps && !disk.is_persistent {
        remarks.push(format!(
            "{device} is no qcow2 image, so QEMU forgets the changes when it ends, and the next backup then reads the whole disk"
        ));
    }
    let session = Arc::new(Mutex::new(session));
    let image = Box::new(Frozen { image, session: session.clone() });
    let old = if keeps { old.into_iter().map(|bitmap| bitmap.name).collect() } else { Vec::new() };
    let ending = Box::new(Running { session, old });
    Ok(Tracked { image, extents, changes, remarks, notes: note.into_iter().collect(), ending })
}

/// The disk as it was.
struct Frozen {
    image: NbdImage,
    session: Arc<Mutex<Session>>,
}

impl Frozen {
    /// An error if some old content was not kept.
    fn check(&self) -> io::Result<()> {
        let lost = "QEMU could not keep the old content of what the guest wrote meanwhile: is the scratch folder full?";
        let mut session = self.session.lock();
        let is_kept = match session.kept {
            // Then QEMU refuses each read.
            Kept::Filter => match self.image.probe() {
                Err(ClientError::Refused(_)) => false,
                probed => probed.map(|()| true).map_err(io::Error::other)?,
            },
            Kept::Job => session.job_is_sound().map_err(io::Error::other)?,
        };
        if is_kept { Ok(()) } else { Err(io::Error::other(lost)) }
    }
}

impl Image for Frozen {
    fn size(&self) -> u64 {
        self.image.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        // The reason is better than its effect.
        self.image.read_at(offset, buffer).map_err(|error| self.check().err().unwrap_or(error))
    }

    fn read_parts(&self, parts: &mut [(u64, &mut [u8])]) -> io::Result<()> {
        self.image.read_parts(parts).map_err(|error| self.check().err().unwrap_or(error))
    }

    fn finish(&self) -> io::Result<()> {
        self.check()
    }
}

/// What comes after a backup.
struct Running {
    session: Arc<Mutex<Session>>,
    /// Bitmaps of earlier versions.
    old: Vec<String>,
}

impl Ending for Running {
    fn committed(self: Box<Self>) -> Vec<String> {
        let mut session = self.session.lock();
        let left = session.end();
        let still = session.standstill();
        left.into_iter().chain(still).chain(session.remove(self.old.clone())).collect()
    }

    fn failed(self: Box<Self>) -> Vec<String> {
        let mut session = self.session.lock();
        let left = session.end();
        let still = session.standstill();
        left.into_iter().chain(still).chain(session.remove_own()).collect()
    }
}

#[cfg(test)]
mod tests;
