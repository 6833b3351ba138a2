//! A device in memory, for tests and measurements.

use parking_lot::RwLock;

use crate::export::{Abilities, BASE_ALLOCATION, Export, ExportError, Extent, Zeroing};

/// Bytes that are allocated together.
const BLOCK: usize = 64 << 10;

/// `None`: zeroes that take no memory.
type Block = RwLock<Option<Box<[u8]>>>;

/// A device in memory. A block of 64 KiB takes memory once something is written to it.
#[derive(Debug)]
pub struct MemoryExport {
    size: u64,
    abilities: Abilities,
    blocks: Box<[Block]>,
}

impl MemoryExport {
    /// A device of zeroes that can do everything.
    pub fn new(size: u64) -> Self {
        let all = Abilities {
            read_only: false,
            flush: true,
            fua: true,
            trim: true,
            write_zeroes: true,
            fast_zero: true,
            cache: true,
            multi_conn: true,
            rotational: false,
            sparse_reads: true,
        };
        Self::with_abilities(size, all)
    }

    /// A device of zeroes that says what it can do.
    pub fn with_abilities(size: u64, abilities: Abilities) -> Self {
        let count = usize::try_from(size.div_ceil(BLOCK as u64)).unwrap_or(usize::MAX);
        Self { size, abilities, blocks: (0..count).map(|_| RwLock::new(None)).collect() }
    }

    /// Calls `act` for each block of a range: its number, where the range begins in it, and how
    /// long it is there.
    fn each(offset: u64, length: u64, mut act: impl FnMut(usize, usize, usize)) {
        let (mut at, end) = (offset, offset + length);
        while at < end {
            let from = (at % BLOCK as u64) as usize;
            let count = (BLOCK - from).min((end - at) as usize);
            act((at / BLOCK as u64) as usize, from, count);
            at += count as u64;
        }
    }

    fn zero(&self, offset: u64, length: u64, keep: bool) {
        Self::each(offset, length, |block, from, count| {
            let mut block = self.blocks[block].write();
            if keep {
                block.get_or_insert_with(|| vec![0; BLOCK].into())[from..from + count].fill(0);
            } else if count == BLOCK {
                *block = None;
            } else if let Some(block) = &mut *block {
                block[from..from + count].fill(0);
            }
        });
    }
}

impl Export for MemoryExport {
    fn size(&self) -> u64 {
        self.size
    }

    fn abilities(&self) -> Abilities {
        self.abilities
    }

    fn description(&self) -> String {
        "memory".into()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ExportError> {
        let mut at = 0;
        Self::each(offset, buffer.len() as u64, |block, from, count| {
            let target = &mut buffer[at..at + count];
            match &*self.blocks[block].read() {
                Some(block) => target.copy_from_slice(&block[from..from + count]),
                None => target.fill(0),
            }
            at += count;
        });
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8], _fua: bool) -> Result<(), ExportError> {
        let mut at = 0;
        Self::each(offset, data.len() as u64, |block, from, count| {
            let mut block = self.blocks[block].write();
            let block = block.get_or_insert_with(|| vec![0; BLOCK].into());
            block[from..from + count].copy_from_slice(&data[at..at + count]);
            at += count;
        });
        Ok(())
    }

    fn trim(&self, offset: u64, length: u64, _fua: bool) -> Result<(), ExportError> {
        self.zero(offset, length, false);
        Ok(())
    }

    fn write_zeroes(&self, offset: u64, length: u64, how: Zeroing) -> Result<(), ExportError> {
        self.zero(offset, length, how.no_hole);
        Ok(())
    }

    fn cache(&self, _offset: u64, _length: u64) -> Result<(), ExportError> {
        Ok(())
    }

    fn contexts(&self) -> Vec<String> {
        vec![BASE_ALLOCATION.into()]
    }

    fn block_status(&self, _: &str, offset: u64, length: u64, most: usize) -> Result<Vec<Extent>, ExportError> {
        let mut extents: Vec<Extent> = Vec::new();
        Self::each(offset, length, |block, _, count| {
            let allocated = self.blocks[block].read().is_some();
            let flags = if allocated { 0 } else { Extent::HOLE | Extent::ZERO };
            match extents.last_mut() {
                Some(last) if last.flags == flags => last.length += count as u64,
                _ => extents.push(Extent { length: count as u64, flags }),
            }
        });
        extents.truncate(most);
        Ok(extents)
    }
}
