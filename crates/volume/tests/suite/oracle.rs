//! What a volume may hold after a crash.

use larder_volume::{Store, VolumeError};

/// Bytes of a sector.
pub(crate) const SECTOR: usize = 512;

/// What each sector of a volume may hold.
#[derive(Clone)]
pub(crate) struct Oracle(pub(crate) Vec<Vec<Vec<u8>>>);

impl Oracle {
    pub(crate) fn new(sectors: usize) -> Self {
        Self(vec![vec![vec![0; SECTOR]]; sectors])
    }

    pub(crate) fn size(&self) -> u64 {
        (self.0.len() * SECTOR) as u64
    }

    pub(crate) fn wrote(&mut self, offset: u64, data: &[u8]) {
        for (number, sector) in (offset as usize / SECTOR..).zip(data.chunks(SECTOR)) {
            self.0[number].push(sector.to_vec());
        }
    }

    /// All that was written before is durable.
    pub(crate) fn flushed(&mut self) {
        for values in &mut self.0 {
            values.drain(..values.len() - 1);
        }
    }

    /// What it holds now.
    pub(crate) fn newest(&self) -> Vec<u8> {
        self.0.iter().flat_map(|values| values.last().unwrap().iter().copied()).collect()
    }

    /// A write failed, and happened in part or not at all: what the volume holds now is the newest.
    pub(crate) fn look_again(&mut self, store: &Store, volume: u32, seed: u64) -> Result<(), VolumeError> {
        let mut found = vec![0xee; self.size() as usize];
        store.read(volume, 0, &mut found)?;
        for (number, (values, sector)) in self.0.iter_mut().zip(found.chunks(SECTOR)).enumerate() {
            assert!(values.iter().any(|value| value == sector), "seed {seed}: volume {volume}, sector {number}");
            values.push(sector.to_vec());
        }
        Ok(())
    }

    /// What the volume holds after a crash is one of the values that it may have.
    pub(crate) fn compare(&mut self, store: &Store, volume: u32, seed: u64) -> Result<(), VolumeError> {
        self.look_again(store, volume, seed)?;
        self.flushed();
        Ok(())
    }
}
