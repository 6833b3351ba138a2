//! Holes of files in an archive: the maps of GNU tar, which come in four forms.
//!
//! | form | where the map is |
//! |---|---|
//! | old GNU | in the header and in blocks behind it |
//! | pax 0.0 | in records `GNU.sparse.offset` and `GNU.sparse.numbytes`, one pair for each piece |
//! | pax 0.1 | in one record `GNU.sparse.map` |
//! | pax 1.0 | as decimal lines before the data, padded to a block |

use larder_format::entry::Extent;

use super::records::Records;

/// The pieces of data of a sparse file, as the archive has them.
#[derive(Debug, Default)]
pub(super) struct Map {
    pieces: Vec<Extent>,
}

impl Map {
    pub(super) fn push(&mut self, offset: u64, length: u64) {
        self.pieces.push(Extent { offset, length });
    }

    /// The map of the forms 0.0 and 0.1. `None`: there is none, or it is damaged.
    pub(super) fn of_records(records: &Records) -> Option<Self> {
        let mut numbers = Vec::new();
        match records.get(b"GNU.sparse.map") {
            Some(map) => {
                for number in std::str::from_utf8(map).ok()?.split(',') {
                    numbers.push(number.parse().ok()?);
                }
            }
            None => {
                for (key, value) in records.iter() {
                    if matches!(key, b"GNU.sparse.offset" | b"GNU.sparse.numbytes") {
                        numbers.push(std::str::from_utf8(value).ok()?.parse().ok()?);
                    }
                }
            }
        }
        let mut map = Self::default();
        let (pairs, []) = numbers.as_chunks::<2>() else { return None };
        pairs.iter().for_each(|[offset, length]| map.push(*offset, *length));
        (!pairs.is_empty()).then_some(map)
    }

    /// The extents of a file of `size` bytes of which `stored` are in the archive. `None` inside:
    /// it has no holes.
    ///
    /// # Errors
    /// The map does not fit.
    pub(super) fn extents(self, size: u64, stored: u64) -> Result<Option<Vec<Extent>>, &'static str> {
        let mut extents: Vec<Extent> = Vec::new();
        let mut sum = 0_u64;
        for piece in self.pieces.into_iter().filter(|piece| piece.length > 0) {
            let end = piece.offset.checked_add(piece.length).filter(|end| *end <= size);
            let last = extents.last_mut();
            let before = last.as_ref().map_or(0, |last| last.offset + last.length);
            if end.is_none() || piece.offset < before {
                return Err("its map of holes is damaged");
            }
            sum += piece.length;
            match last.filter(|_| piece.offset == before) {
                Some(last) => last.length += piece.length,
                None => extents.push(piece),
            }
        }
        if sum != stored {
            return Err("its map of holes is damaged");
        }
        Ok((sum != size).then_some(extents))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_become_extents() {
        let map = |pieces: &[(u64, u64)]| Map {
            pieces: pieces.iter().map(|(offset, length)| Extent { offset: *offset, length: *length }).collect(),
        };
        let extents = |found: Result<Option<Vec<Extent>>, _>| {
            found.map(|found| found.map(|all| all.iter().map(|e| (e.offset, e.length)).collect::<Vec<_>>()))
        };
        assert_eq!(extents(map(&[(0, 5), (5, 5), (20, 1), (30, 0)]).extents(30, 11)), Ok(Some(vec![(0, 10), (20, 1)])));
        assert_eq!(extents(map(&[(0, 5), (5, 5), (10, 0)]).extents(10, 10)), Ok(None));
        assert_eq!(extents(map(&[(30, 0)]).extents(30, 0)), Ok(Some(vec![])));
        for (pieces, size, stored) in
            [(&[(0, 5)][..], 30, 6), (&[(0, 5), (4, 1)], 30, 6), (&[(0, 31)], 30, 31), (&[(u64::MAX, 2)], u64::MAX, 2)]
        {
            assert!(map(pieces).extents(size, stored).is_err(), "{pieces:?}");
        }
    }
}
