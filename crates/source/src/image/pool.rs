//! What a thin pool knows about its volumes.
//!
//! While a pool is in use, programs read a snapshot of its metadata, and there can be only one. It
//! is on the disk of the pool, and stays there when a program is killed. So its place is noted in a
//! file, which the process locks. The next one that has the lock and finds the same place releases
//! what was left.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::fs::OFlags;

use super::ImageError;
use super::stops::Stops;
use super::thin_delta::{self, Thin};
use super::tool::{failed, run, run_into};

/// The program that talks to the device mapper.
pub(super) const DMSETUP: &str = "dmsetup";
const THIN_DELTA: &str = "thin_delta";
/// Where the kernel has its mapped devices.
pub(super) const MAPPED: &str = "/dev/mapper/";
/// How often the snapshot is asked for while other programs have it, and how long each time: 30
/// seconds in all.
const TRIES: usize = 15;
const LOOK: Duration = Duration::from_secs(2);
/// What `dmsetup status` says where there is no such snapshot.
const NOTHING: &str = "-";

/// A thin pool: the name of its device.
pub(super) struct Pool(String);

impl Pool {
    pub(super) fn new(device: &str) -> Self {
        Self(device.to_owned())
    }

    /// Looks at the pool as it is now, while it is in use. The folder is private to this user.
    pub(super) fn freeze<'p>(&'p self, folder: &Path, stops: &'p Stops) -> Result<Frozen<'p>, ImageError> {
        expect_right_delta()?;
        let io = |source| ImageError::Io { path: folder.join(&self.0), source };
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        options.custom_flags(OFlags::NOFOLLOW.bits() as i32);
        let mut note = options.open(folder.join(&self.0)).map_err(io)?;
        // Backups of other volumes take moments.
        loop {
            match note.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) => thread::sleep(LOOK / 10),
                Err(TryLockError::Error(error)) => return Err(io(error)),
            }
            stops.check(DMSETUP)?;
        }
        let mut left = String::new();
        note.read_to_string(&mut left).map_err(io)?;
        if !left.is_empty() && left == self.place()? {
            self.message("release_metadata_snap")?;
        }
        self.reserve(stops)?;
        let mut frozen = Frozen { pool: self, stops, note, is_released: false };
        let place = self.place()?;
        frozen.write(&place).map_err(io)?;
        Ok(frozen)
    }

    fn reserve(&self, stops: &Stops) -> Result<(), ImageError> {
        for _ in 0..TRIES {
            stops.check(DMSETUP)?;
            match self.message("reserve_metadata_snap") {
                Err(ImageError::Tool { why, .. }) if why.contains("resource busy") => thread::sleep(LOOK),
                reserved => return reserved,
            }
        }
        let release = format!("dmsetup message {} 0 release_metadata_snap", self.device());
        let why = format!(
            "another program has the snapshot of the metadata of the pool; if no backup and no thin_delta runs on this \
             pool, one that was killed left it, and `{release}` removes it"
        );
        Err(failed(DMSETUP, why))
    }

    /// Where the snapshot of the metadata is.
    fn place(&self) -> Result<String, ImageError> {
        let status = run(DMSETUP, ["status", &*self.device()])?;
        let status = String::from_utf8_lossy(&status);
        // START LENGTH thin-pool TRANSACTION METADATA DATA PLACE
        let place = status.split_ascii_whitespace().nth(6).filter(|place| *place != NOTHING);
        Ok(place.unwrap_or_default().to_owned())
    }

    fn message(&self, text: &str) -> Result<(), ImageError> {
        run(DMSETUP, ["message", &*self.device(), "0", text]).map(drop)
    }

    fn device(&self) -> String {
        format!("{}-tpool", self.0)
    }
}

/// Versions 1.0.0 to 1.0.5 of `thin_delta` join blocks that are next to each other in the volume,
/// wherever they are in the pool. So they call changed blocks the same.
fn expect_right_delta() -> Result<(), ImageError> {
    let version = run(THIN_DELTA, ["-V"])?;
    let version = String::from_utf8_lossy(&version);
    let version = version.trim();
    match misses_changes(version) {
        true => Err(failed(THIN_DELTA, format!("version {version} misses changes; 1.0.6 or newer is needed"))),
        false => Ok(()),
    }
}

fn misses_changes(version: &str) -> bool {
    let mut numbers = version.split(['.', '-', ' ']).filter_map(|part| part.parse::<u32>().ok());
    (numbers.next(), numbers.next()) == (Some(1), Some(0)) && numbers.next().unwrap_or(0) < 6
}

/// The metadata of a pool as they were.
pub(super) struct Frozen<'p> {
    pool: &'p Pool,
    stops: &'p Stops,
    note: File,
    is_released: bool,
}

impl Frozen<'_> {
    /// What differs between two volumes, which have these numbers in the pool. Of one and the same,
    /// what it has.
    pub(super) fn compare(&self, old: &str, new: &str) -> Result<Thin, ImageError> {
        self.stops.check(THIN_DELTA)?;
        let metadata = format!("{MAPPED}{}_tmeta", self.pool.0);
        let args = ["--metadata-snap", "--snap1", old, "--snap2", new, &*metadata];
        run_into(THIN_DELTA, args, Some(self.stops), thin_delta::parse)?.map_err(|wrong| failed(THIN_DELTA, wrong))
    }

    /// Leaves the pool as it was.
    pub(super) fn release(mut self) -> Result<(), ImageError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), ImageError> {
        if std::mem::replace(&mut self.is_released, true) {
            return Ok(());
        }
        self.pool.message("release_metadata_snap")?;
        // If that fails, the next process finds another place.
        let _ = self.write("");
        Ok(())
    }

    fn write(&mut self, place: &str) -> std::io::Result<()> {
        self.note.set_len(0)?;
        self.note.rewind()?;
        self.note.write_all(place.as_bytes())
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        // Without a note, it stays.
        let _ = self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::misses_changes;

    #[test]
    fn versions_that_miss_changes_are_known() {
        for right in ["0.9.0", "1.0.6", "1.0.12", "1.1.0", "2.0.0", "0.8.5-rc1", "unknown"] {
            assert!(!misses_changes(right), "{right}");
        }
        for wrong in ["1.0.0", "1.0.5", "1.0", "1.0.4-dev"] {
            assert!(misses_changes(wrong), "{wrong}");
        }
    }
}
