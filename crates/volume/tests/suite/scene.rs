//! A store on a simulated disk.

use std::sync::Arc;
use std::sync::LazyLock;

use larder_chunking::{Algorithm, ChunkerParams};
use larder_format::config::Config;
use larder_format::key_file::KdfCost;
use larder_format::keys::Keys;
use larder_volume::disk::{Disk, Fault, SimulatedDisk};
use larder_volume::store::{NewStore, unlock};
use larder_volume::{Entropy, Options, Recovery, Store, VolumeError};
use parking_lot::Mutex;

/// Random numbers from a seed.
#[derive(Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(length + 8);
        while out.len() < length {
            out.extend_from_slice(&self.next().to_le_bytes());
        }
        out.truncate(length);
        out
    }
}

/// Random bytes of a seed, for stores.
pub(crate) struct Seeded(Mutex<Random>);

impl Seeded {
    pub(crate) fn entropy(seed: u64) -> Arc<dyn Entropy> {
        Arc::new(Self(Mutex::new(Random(seed))))
    }
}

impl Entropy for Seeded {
    fn random(&self) -> Result<[u8; 32], VolumeError> {
        Ok(self.0.lock().bytes(32).try_into().unwrap())
    }
}

pub(crate) const PASSWORD: &[u8] = b"secret";

pub(crate) fn new_store(slots: u32, slot_bytes: u64) -> NewStore {
    let chunker = ChunkerParams { algorithm: Algorithm::MinCdcAes, min: 4 << 10, average: 8 << 10, max: 12 << 10 };
    NewStore { chunker, slots, slot_bytes, now_ms: 0, cost: KdfCost::TEST, like: None }
}

pub(crate) fn options() -> Options {
    Options { write_buffer: 1 << 20, commit_at: 512 << 10, ..Options::of_memory(8 << 20) }
}

/// A disk with a store of one volume, and its keys. Made once, because deriving keys takes time.
pub(crate) struct Scene {
    pub(crate) disk: SimulatedDisk,
    pub(crate) config: Config,
    pub(crate) keys: Keys,
    pub(crate) entropy: Arc<dyn Entropy>,
}

static KEYS: LazyLock<(Config, Keys)> = LazyLock::new(|| {
    let disk = SimulatedDisk::new(0);
    Store::create(&disk, &*Seeded::entropy(1), PASSWORD, &new_store(4, 1 << 16)).unwrap();
    unlock(&disk, PASSWORD).unwrap()
});

impl Scene {
    /// A store with a log of four slots.
    pub(crate) fn new(seed: u64, slot_bytes: u64) -> Self {
        Self::of(seed, &new_store(4, slot_bytes))
    }

    /// A store with these properties.
    pub(crate) fn of(seed: u64, new: &NewStore) -> Self {
        let disk = SimulatedDisk::new(seed);
        // The same entropy as above, so the keys are the same.
        let entropy = Seeded::entropy(1);
        let created = Store::create(&disk, &*entropy, PASSWORD, new).unwrap();
        let (config, keys) = KEYS.clone();
        let config = Config { chunker: created.chunker, ..config };
        Self { disk, config, keys, entropy: Seeded::entropy(seed ^ 0x5eed) }
    }

    pub(crate) fn open_with(&self, options: Options) -> Result<(Store, Recovery), VolumeError> {
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        Store::open_with_keys(disk, self.entropy.clone(), &self.config, self.keys.clone(), options)
    }

    pub(crate) fn open(&self) -> (Store, Recovery) {
        self.open_with(options()).unwrap()
    }

    /// Ends the process without closing, and opens the store again.
    pub(crate) fn reopen(&self, store: Store, fault: Fault) -> (Store, Recovery) {
        drop(store);
        self.disk.restart(fault);
        self.open()
    }
}
