//! Mappings: which chunks a block of a volume consists of. Values of the block table, and parts of
//! records of the log.
//!
//! | field  | size    | meaning                                                          |
//! |--------|--------:|------------------------------------------------------------------|
//! | mac    |      16 | keyed MAC of the whole block's content; zeros: not known         |
//! | items  | 16 each | the block from its first byte on; none: the block is zeros       |
//!
//! | offset | size | field of an item                                                          |
//! |-------:|-----:|---------------------------------------------------------------------------|
//! |      0 |    4 | container                                                                 |
//! |      4 |    4 | offset of the chunk in the container's payload; both all ones: zeros      |
//! |      8 |    2 | bytes of the chunk to skip                                                |
//! |     10 |    2 | bytes to take, never 0                                                    |
//! |     12 |    4 | first bytes of the chunk's fingerprint; of zeros: zero                    |
//!
//! Items cover the block without gaps: their lengths add up to [`BLOCK_LEN`]. All numbers are
//! little-endian.

use crate::wire::{DecodeError, EncodeError, Put, Reader};

/// Bytes of a block.
pub const BLOCK_LEN: u32 = 64 << 10;
/// Most items of a mapping. A block of more pieces is written again as a whole.
pub const ITEMS_MAX: usize = 64;
/// Most bytes of an encoded mapping.
pub const MAPPING_MAX: usize = 16 + ITEMS_MAX * 16;

const WHAT: &str = "mapping";
const ZEROS: u64 = u64::MAX;

/// Where a chunk is stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Number of the container in its store.
    pub container: u32,
    /// Offset of the chunk in the container's payload.
    pub offset: u32,
}

/// Bytes of one chunk, or zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MapItem {
    /// The chunk; `None`: zeros.
    pub place: Option<Place>,
    /// Bytes of the chunk before those that are meant.
    pub skip: u16,
    /// Bytes that are meant, never 0.
    pub length: u16,
    /// First bytes of the chunk's fingerprint.
    pub tag: [u8; 4],
}

impl MapItem {
    /// Zeros.
    pub fn zeros(length: u16) -> Self {
        Self { place: None, skip: 0, length, tag: [0; 4] }
    }
}

/// The content of a block.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Mapping {
    /// Keyed MAC of the content; `None`: not known.
    pub mac: Option<[u8; 16]>,
    /// The parts of the block in order. None: the block is zeros.
    pub items: Vec<MapItem>,
}

impl Mapping {
    /// A block of zeros.
    pub const ZERO: Self = Self { mac: None, items: Vec::new() };

    /// Whether it is a block of zeros without any item.
    pub fn is_zero(&self) -> bool {
        self.items.is_empty()
    }

    /// Appends the encoded mapping. Refuses what a reader would refuse.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.check()?;
        out.extend_from_slice(&self.mac.unwrap_or_default());
        for item in &self.items {
            let place = item.place.map_or(ZEROS, |place| u64::from(place.container) | u64::from(place.offset) << 32);
            out.put_u64(place);
            out.extend_from_slice(&item.skip.to_le_bytes());
            out.extend_from_slice(&item.length.to_le_bytes());
            out.extend_from_slice(&item.tag);
        }
        Ok(())
    }

    fn check(&self) -> Result<(), DecodeError> {
        let covered: u64 = self.items.iter().map(|item| u64::from(item.length)).sum();
        if self.items.len() > ITEMS_MAX {
            return Err(DecodeError::invalid(WHAT, "it has too many items"));
        }
        if !self.items.is_empty() && covered != u64::from(BLOCK_LEN) || self.items.iter().any(|item| item.length == 0) {
            return Err(DecodeError::invalid(WHAT, "its items do not cover the block"));
        }
        let is_odd = |item: &MapItem| match item.place {
            None => item.skip != 0 || item.tag != [0; 4],
            Some(place) => place.container == u32::MAX,
        };
        if self.items.iter().any(is_odd) || self.is_zero() && self.mac.is_some() || self.mac == Some([0; 16]) {
            return Err(DecodeError::invalid(WHAT, "it has another form than writers give it"));
        }
        Ok(())
    }

    /// Reads a mapping that fills `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes, WHAT);
        let mac: [u8; 16] = reader.array()?;
        let count = reader.remaining() / 16;
        if !reader.remaining().is_multiple_of(16) || count > ITEMS_MAX {
            return Err(reader.invalid("it has another length than any mapping"));
        }
        let mut items = Vec::with_capacity(count);
        for _ in 0..count {
            let (place, skip, length, tag) = (reader.u64()?, reader.u16()?, reader.u16()?, reader.array()?);
            let place = (place != ZEROS).then_some(Place { container: place as u32, offset: (place >> 32) as u32 });
            items.push(MapItem { place, skip, length, tag });
        }
        let mapping = Self { mac: (mac != [0; 16]).then_some(mac), items };
        mapping.check()?;
        Ok(mapping)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::golden::golden;
    use proptest::prelude::*;

    pub(crate) fn sample() -> Mapping {
        let place = Some(Place { container: 3, offset: 70_000 });
        Mapping {
            mac: Some([7; 16]),
            items: vec![
                MapItem { place, skip: 12, length: 0x8000, tag: [1, 2, 3, 4] },
                MapItem::zeros(0x4000),
                MapItem { place, skip: 0, length: 0x4000, tag: [1, 2, 3, 4] },
            ],
        }
    }

    #[test]
    fn bytes_never_change() {
        let mut out = Vec::new();
        sample().encode(&mut out).expect("valid");
        assert_eq!(Mapping::decode(&golden("volume_mapping_v2", &out)), Ok(sample()));
    }

    #[test]
    fn gaps_and_odd_items_are_refused() {
        let with = |change: fn(&mut Mapping)| {
            let mut mapping = sample();
            change(&mut mapping);
            mapping.encode(&mut Vec::new())
        };
        assert!(with(|_| ()).is_ok());
        assert!(with(|mapping| mapping.items.truncate(2)).is_err());
        assert!(with(|mapping| mapping.items[1].length = 0).is_err());
        assert!(with(|mapping| mapping.items[1].tag = [1; 4]).is_err());
        assert!(with(|mapping| mapping.items.clear()).is_err());
        assert!(with(|mapping| mapping.items = vec![MapItem::zeros(512); 128]).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_mapping_in_its_only_spelling_or_an_error(
            mut bytes in prop::collection::vec(any::<u8>(), 0..80), fix: bool,
        ) {
            // A length that fits now and then.
            if fix && bytes.len() >= 32 {
                bytes.truncate(32);
                bytes[24..28].copy_from_slice(&[0, 0, 0, 0]);
            }
            if let Ok(mapping) = Mapping::decode(&bytes) {
                let mut out = Vec::new();
                mapping.encode(&mut out).expect("it was read");
                prop_assert_eq!(out, bytes);
            }
        }

        #[test]
        fn mappings_survive(cuts in prop::collection::btree_set(1u32..BLOCK_LEN, 1..ITEMS_MAX), place: u32) {
            let mut items = Vec::new();
            let mut from = 0;
            for cut in cuts.iter().copied().chain([BLOCK_LEN]) {
                let place = (cut % 3 > 0).then_some(Place { container: place >> 1, offset: cut });
                let tag = if place.is_some() { cut.to_le_bytes() } else { [0; 4] };
                items.push(MapItem { place, skip: 0, length: (cut - from) as u16, tag });
                from = cut;
            }
            prop_assume!(items.iter().all(|item| item.length > 0));
            let mapping = Mapping { mac: None, items };
            let mut out = Vec::new();
            mapping.encode(&mut out).expect("valid");
            prop_assert!(out.len() <= MAPPING_MAX);
            prop_assert_eq!(Mapping::decode(&out), Ok(mapping));
        }
    }
}
