//! What is written: data that repeats, data that is new, zeros.

/// Sectors are old or new as a whole, also after a power cut.
pub(crate) const SECTOR: usize = 512;
/// Different data that is written again and again.
pub(crate) const POOL: u64 = 6;

/// A generator of pseudo-random numbers (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// The data of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// Zeros, by a trim, a request for zeros, or a write.
    Zeros,
    /// One of [`POOL`] contents, from its beginning.
    Pooled(u64),
    /// Data that only the write of this number has.
    Unique(u64),
}

impl Content {
    /// Sector `at` of the data.
    pub(crate) fn sector(self, at: u32) -> [u8; SECTOR] {
        let mut sector = [0; SECTOR];
        let mut random = match self {
            Self::Zeros => return sector,
            Self::Pooled(number) => Random(number << 32 | u64::from(at)),
            Self::Unique(number) => Random(1 << 63 | number << 20 | u64::from(at)),
        };
        // A half repeats the other one, so that compression has something to do.
        let (first, second) = sector.split_at_mut(SECTOR / 2);
        for word in first.chunks_exact_mut(8) {
            word.copy_from_slice(&random.next().to_le_bytes());
        }
        second.copy_from_slice(first);
        sector
    }

    /// All of the data.
    pub(crate) fn bytes(self, sectors: u32) -> Vec<u8> {
        (0..sectors).flat_map(|at| self.sector(at)).collect()
    }
}

/// What a sector may have: sector `at` of some data.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Version {
    pub(crate) content: Content,
    pub(crate) at: u32,
    /// The moment at which the write was acknowledged.
    pub(crate) acknowledged: Option<u64>,
}

impl Version {
    /// Of a volume that nobody wrote to.
    pub(crate) const FIRST: Self = Self { content: Content::Zeros, at: 0, acknowledged: Some(0) };

    pub(crate) fn bytes(&self) -> [u8; SECTOR] {
        self.content.sector(self.at)
    }
}
