//! A file as a device that writes down its changes.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;

use larder_nbd::{Abilities, BlockSizes, Export, ExportError, Zeroing};
use parking_lot::Mutex;

use super::copy;
use super::record::{Kind, Record};

/// Sectors are whole after a power cut: requests must have whole ones.
pub(crate) const SECTOR: u64 = 512;

/// A device in a file, with a log of its changes.
pub(crate) struct Logged {
    file: File,
    size: u64,
    /// Held while a change is made, so the log has the order of the changes.
    log: Mutex<File>,
}

impl Logged {
    /// The log must be opened for appending.
    pub(crate) fn new(file: File, log: File) -> std::io::Result<Self> {
        Ok(Self { size: file.metadata()?.len(), file, log: Mutex::new(log) })
    }

    /// The log is written first: who was answered finds the record in it.
    fn change(
        &self,
        record: &Record,
        data: &[u8],
        act: impl FnOnce() -> std::io::Result<()>,
    ) -> Result<(), ExportError> {
        let mut log = self.log.lock();
        log.write_all(&record.encode(data))?;
        Ok(act()?)
    }
}

impl Export for Logged {
    fn size(&self) -> u64 {
        self.size
    }

    fn abilities(&self) -> Abilities {
        Abilities { read_only: false, fua: true, trim: true, write_zeroes: true, ..Abilities::READ_ONLY }
    }

    fn block_sizes(&self) -> BlockSizes {
        BlockSizes { minimum: SECTOR as u32, ..BlockSizes::default() }
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ExportError> {
        Ok(self.file.read_exact_at(buffer, offset)?)
    }

    fn write(&self, offset: u64, data: &[u8], fua: bool) -> Result<(), ExportError> {
        let record = Record { kind: Kind::Write, durable: fua, offset, length: data.len() as u64 };
        self.change(&record, data, || self.file.write_all_at(data, offset))
    }

    fn flush(&self) -> Result<(), ExportError> {
        let record = Record { kind: Kind::Flush, durable: false, offset: 0, length: 0 };
        self.change(&record, &[], || Ok(()))
    }

    fn trim(&self, offset: u64, length: u64, fua: bool) -> Result<(), ExportError> {
        self.write_zeroes(offset, length, Zeroing { fua, ..Zeroing::default() })
    }

    fn write_zeroes(&self, offset: u64, length: u64, how: Zeroing) -> Result<(), ExportError> {
        let record = Record { kind: Kind::Zero, durable: how.fua, offset, length };
        self.change(&record, &[], || copy::punch(&self.file, offset, length))
    }
}
