//! Where the bytes of a container of a `lifecycle` series are, and until when they are needed
//! (MFDedup sections 3.2 and 3.3).
//!
//! Recipes name chunks by the container in which they were stored first and by their offset there;
//! that never changes. Arranging moves data below these names. The index has one record for each
//! container whose chunks the newest version no longer uses completely, by the container's id. It
//! lists *extents*: stretches of chunks of its payload. Each has the last version that uses it and
//! the present place of its bytes. So a place in a category is computed, and not stored for each
//! chunk. The category of an extent is the pair of the first version that used the container and of
//! the last version that uses the extent.
//!
//! | field      | size   | meaning                                                                                   |
//! |------------|-------:|-------------------------------------------------------------------------------------------|
//! | version    |      1 | 1                                                                                         |
//! | places     |      … | containers in which extents are now (`places.rs`)                                         |
//! | extents    | varint | how many; for each                                                                        |
//! | · from     | varint | where it begins in the container as it was written, less the end of the one before        |
//! | · length   | varint | its bytes, at least 1                                                                     |
//! | · last     | varint | 0: the newest version that was arranged uses it; else the number of the last one, plus 1  |
//! | · where    | varint | 0: where it was; else the number of a place, plus 1, and                                  |
//! | · · offset | varint | where it begins in that container's payload                                               |
//!
//! Bytes in no extent are needed by no version. Keys: 1 byte of kind (0 data, 1 metadata), 16 bytes
//! of job, sequence (4 bytes big-endian).

use crate::ids::{ContainerId, ContainerKind, JobId};
use crate::places::{Places, PlacesWriter};
use crate::wire::{DecodeError, EncodeError, Put, Reader};

const WHAT: &str = "record of extents in the index";
const KEY: &str = "key of extents in the index";

/// The bytes of a key, for an index that is searched by container.
pub fn encode_key(id: &ContainerId) -> [u8; 21] {
    let mut out = [0; 21];
    out[0] = u8::from(id.kind == ContainerKind::Meta);
    out[1..17].copy_from_slice(&id.job.0);
    out[17..].copy_from_slice(&id.seq.to_be_bytes());
    out
}

/// Reads them.
pub fn decode_key(bytes: &[u8]) -> Result<ContainerId, DecodeError> {
    let mut reader = Reader::new(bytes, KEY);
    let kind = match reader.u8()? {
        0 => ContainerKind::Data,
        1 => ContainerKind::Meta,
        _ => return Err(reader.invalid("unknown kind of container")),
    };
    let job = JobId(reader.array()?);
    let seq = u32::from_be_bytes(reader.array()?);
    reader.finish()?;
    Ok(ContainerId { kind, job, seq })
}

/// Bytes of a container's payload, back to back, from the start of a chunk to the end of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Extent {
    /// Where they begin in the payload of the container in which they were stored first.
    pub from: u32,
    /// How many.
    pub length: u32,
    /// Number of the last version that uses them; `None`: the newest that was arranged.
    pub last: Option<u32>,
    /// In which container they are, and where they begin in its payload; `None`: still where they
    /// were stored first.
    pub to: Option<(ContainerId, u32)>,
}

impl Extent {
    /// Where it ends in the payload of the container in which it was stored first.
    pub fn end(&self) -> u32 {
        self.from.saturating_add(self.length)
    }
}

/// The needed parts of a container, in order. See the module header.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extents(pub Vec<Extent>);

impl Extents {
    /// The extent that has all of the bytes from `from` on, as many as `length`.
    pub fn of(&self, from: u32, length: u32) -> Option<&Extent> {
        let after = self.0.partition_point(|extent| extent.from <= from);
        let extent = self.0.get(after.checked_sub(1)?)?;
        (from.checked_add(length)? <= extent.end()).then_some(extent)
    }

    /// Present place of these bytes; `None` when no version needs them, or they are no chunk.
    pub fn place(&self, container: ContainerId, from: u32, length: u32) -> Option<(ContainerId, u32)> {
        let extent = self.of(from, length)?;
        Some(match extent.to {
            Some((container, offset)) => (container, offset.checked_add(from - extent.from)?),
            None => (container, from),
        })
    }

    /// Appends an extent behind all others, to the one before where they are neighbours here and
    /// there.
    pub fn push(&mut self, extent: Extent) {
        if let Some(before) = self.0.last_mut() {
            let follows = match (before.to, extent.to) {
                (None, None) => true,
                (Some((a, offset)), Some((b, next))) => a == b && offset.checked_add(before.length) == Some(next),
                _ => false,
            };
            if follows && before.last == extent.last && before.end() == extent.from {
                before.length += extent.length;
                return;
            }
        }
        self.0.push(extent);
    }

    /// Appends the value of the record.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.check()?;
        let mut places = PlacesWriter::default();
        let mut rows = Vec::new();
        rows.put_varint(self.0.len() as u64);
        let mut end = 0;
        for extent in &self.0 {
            rows.put_varint(u64::from(extent.from - end));
            rows.put_varint(u64::from(extent.length));
            rows.put_varint(extent.last.map_or(0, |last| u64::from(last) + 1));
            match extent.to {
                None => rows.put_varint(0),
                Some((container, offset)) => {
                    rows.put_varint(places.container(container) + 1);
                    rows.put_varint(u64::from(offset));
                }
            }
            end = extent.end();
        }
        out.put_u8(2);
        places.encode(out);
        out.extend_from_slice(&rows);
        Ok(())
    }

    /// Reads the value of a record.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes, WHAT);
        reader.version(2)?;
        let places = Places::decode(&mut reader)?;
        let count = reader.count(4)?;
        let mut extents = Vec::with_capacity(count);
        let mut end = 0u32;
        for _ in 0..count {
            let gap = reader.varint_u32()?;
            let from = end.checked_add(gap).ok_or(reader.invalid("an extent lies too far"))?;
            let length = reader.varint_u32()?;
            end = from.checked_add(length).ok_or(reader.invalid("an extent lies too far"))?;
            let last = match reader.varint()?.checked_sub(1) {
                None => None,
                Some(last) => Some(u32::try_from(last).map_err(|_| reader.invalid("a version has more than 32 bits"))?),
            };
            let to = match reader.varint()?.checked_sub(1) {
                None => None,
                Some(place) => Some((places.numbered(place, &reader)?, reader.varint_u32()?)),
            };
            extents.push(Extent { from, length, last, to });
        }
        reader.finish()?;
        let extents = Self(extents);
        extents.check()?;
        // A record has one valid encoding: no unused place, and none out of order.
        let mut again = Vec::with_capacity(bytes.len());
        if extents.encode(&mut again).is_err() || again != bytes {
            return Err(DecodeError::invalid(WHAT, "its places are not in order of their use"));
        }
        Ok(extents)
    }

    fn check(&self) -> Result<(), DecodeError> {
        let invalid = |why| Err(DecodeError::invalid(WHAT, why));
        let is_whole = |extent: &Extent| extent.length > 0 && extent.from.checked_add(extent.length).is_some();
        if !self.0.iter().all(is_whole) {
            return invalid("an extent is empty or lies too far");
        }
        if !self.0.is_sorted_by(|a, b| a.end() <= b.from) {
            return invalid("its extents overlap");
        }
        let fits = |extent: &Extent| extent.to.is_none_or(|(_, offset)| offset.checked_add(extent.length).is_some());
        if !self.0.iter().all(fits) {
            return invalid("an extent lies too far in its new place");
        }
        if self.0.iter().any(|extent| extent.last == Some(u32::MAX)) {
            return invalid("it names a version that has no number");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::golden;
    use proptest::prelude::*;

    fn id(job: u8, seq: u32) -> ContainerId {
        ContainerId { kind: ContainerKind::Data, job: JobId([job; 16]), seq }
    }

    fn extents() -> Extents {
        Extents(vec![
            Extent { from: 0, length: 300, last: Some(7), to: Some((id(2, 5), 1000)) },
            Extent { from: 300, length: 10, last: None, to: Some((id(1, 0), 0)) },
            Extent { from: 400, length: 1, last: Some(0), to: None },
            Extent { from: 500, length: 70_000, last: Some(7), to: Some((id(2, 5), 1300)) },
        ])
    }

    fn encoded(extents: &Extents) -> Result<Vec<u8>, EncodeError> {
        let mut out = Vec::new();
        extents.encode(&mut out)?;
        Ok(out)
    }

    #[test]
    fn version_2_bytes_never_change() {
        let golden = golden("extents_v2", &encoded(&extents()).expect("valid"));
        assert_eq!(Extents::decode(&golden), Ok(extents()));
        let meta = ContainerId { kind: ContainerKind::Meta, ..id(3, 0x0102) };
        assert_eq!(hex::encode(encode_key(&meta)), format!("01{}00000102", "03".repeat(16)));
        assert_eq!(decode_key(&encode_key(&meta)), Ok(meta));
        assert!(decode_key(&[2; 21]).is_err() && decode_key(&[0; 20]).is_err() && decode_key(&[0; 22]).is_err());
    }

    #[test]
    fn bytes_are_found_where_they_are_now() {
        let (extents, origin) = (extents(), id(9, 9));
        assert_eq!(extents.place(origin, 0, 300), Some((id(2, 5), 1000)));
        assert_eq!(extents.place(origin, 299, 1), Some((id(2, 5), 1299)));
        assert_eq!(extents.place(origin, 299, 2), None);
        assert_eq!(extents.place(origin, 400, 1), Some((origin, 400)));
        assert_eq!(extents.place(origin, 310, 1), None);
        assert_eq!(extents.place(origin, 70_500, 1), None);
        assert_eq!(Extents::default().place(origin, 0, 0), None);
    }

    #[test]
    fn neighbours_become_one() {
        let mut all = Extents::default();
        all.push(Extent { from: 0, length: 5, last: None, to: None });
        all.push(Extent { from: 5, length: 5, last: None, to: None });
        all.push(Extent { from: 11, length: 5, last: None, to: None });
        all.push(Extent { from: 16, length: 5, last: Some(1), to: None });
        all.push(Extent { from: 21, length: 5, last: Some(1), to: Some((id(1, 1), 7)) });
        all.push(Extent { from: 26, length: 5, last: Some(1), to: Some((id(1, 1), 12)) });
        all.push(Extent { from: 31, length: 5, last: Some(1), to: Some((id(1, 2), 17)) });
        all.push(Extent { from: 36, length: 5, last: Some(1), to: Some((id(1, 2), 23)) });
        let lengths: Vec<u32> = all.0.iter().map(|extent| extent.length).collect();
        assert_eq!(lengths, [10, 5, 5, 10, 5, 5]);
    }

    #[test]
    fn what_no_reader_accepts_is_not_written() {
        let written = |change: &dyn Fn(&mut Vec<Extent>)| {
            let mut extents = extents();
            change(&mut extents.0);
            encoded(&extents).is_ok()
        };
        assert!(written(&|_| {}));
        assert!(!written(&|e| e[0].length = 301));
        assert!(!written(&|e| e[1].length = 0));
        assert!(!written(&|e| e[3].length = u32::MAX));
        assert!(!written(&|e| e[3].to = Some((id(1, 1), u32::MAX))));
        assert!(!written(&|e| e[3].last = Some(u32::MAX)));
    }

    proptest! {
        #[test]
        fn extents_survive(rows in prop::collection::vec((0u32..99, 1u32..9999, any::<Option<u16>>(), prop::option::of((0u8..3, 0u32..3, 0u32..9_999_999))), 0..20)) {
            let mut from = 0;
            let mut extents = Extents::default();
            for (gap, length, last, to) in rows {
                from += gap;
                let to = to.map(|(job, seq, offset)| (id(job, seq), offset));
                extents.0.push(Extent { from, length, last: last.map(u32::from), to });
                from += length;
            }
            let bytes = encoded(&extents).expect("valid");
            prop_assert_eq!(Extents::decode(&bytes), Ok(extents));
            for len in 0..bytes.len() {
                prop_assert!(Extents::decode(&bytes[..len]).is_err());
            }
        }

        #[test]
        fn any_bytes_are_a_record_or_an_error(bytes in prop::collection::vec(0u8..40, 0..80)) {
            for bytes in [bytes.clone(), [&[1, 0, 0], &bytes[..]].concat()] {
                if let Ok(extents) = Extents::decode(&bytes) {
                    prop_assert_eq!(encoded(&extents).expect("it was read"), bytes);
                }
            }
        }
    }
}
