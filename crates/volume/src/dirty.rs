//! [`Dirty`]: what was written to a block and waits for a commit.

use std::collections::BTreeMap;
use std::ops::Range;

use larder_format::volume_map::BLOCK_LEN;

/// Memory of a waiting block beside its bytes, nearly.
const OVERHEAD: usize = 512;

/// Waiting content of a block: pieces over zeros, or over what the block had before.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dirty {
    /// The rest of the block is zeros.
    zeros: bool,
    /// Pieces by offset. They do not overlap.
    pieces: BTreeMap<u32, Vec<u8>>,
    /// MAC of the whole block, if it was worked out.
    mac: Option<[u8; 16]>,
}

impl Dirty {
    /// A block of zeros.
    pub(crate) fn zeros() -> Self {
        Self { zeros: true, ..Self::default() }
    }

    /// A block with this content.
    pub(crate) fn whole(content: Vec<u8>) -> Self {
        debug_assert_eq!(content.len(), BLOCK_LEN as usize);
        Self { pieces: BTreeMap::from([(0, content)]), ..Self::default() }
    }

    /// The same with the MAC of the content.
    pub(crate) fn with_mac(content: Vec<u8>, mac: [u8; 16]) -> Self {
        Self { mac: Some(mac), ..Self::whole(content) }
    }

    /// The MAC of the block, if it was worked out.
    pub(crate) fn mac(&self) -> Option<[u8; 16]> {
        self.mac
    }

    /// Writes over what is there.
    pub(crate) fn put(&mut self, at: u32, data: Vec<u8>) {
        self.mac = None;
        let end = at + data.len() as u32;
        let before: Vec<u32> = self.pieces.range(..end).rev().map(|(from, _)| *from).collect();
        for from in before {
            let to = from + self.pieces[&from].len() as u32;
            if to <= at {
                break;
            }
            let Some(mut piece) = self.pieces.remove(&from) else { continue };
            if to > end {
                self.pieces.insert(end, piece[(end - from) as usize..].to_vec());
            }
            if from < at {
                // Many short pieces must not hold the memory of long ones.
                piece.truncate((at - from) as usize);
                piece.shrink_to_fit();
                self.pieces.insert(from, piece);
            }
        }
        self.pieces.insert(at, data);
    }

    /// Writes all of a later state over this one.
    pub(crate) fn put_all(&mut self, later: &Self) {
        if later.zeros {
            *self = later.clone();
            return;
        }
        for (at, piece) in &later.pieces {
            self.put(*at, piece.clone());
        }
        if later.mac.is_some() {
            self.mac = later.mac;
        }
    }

    /// Whether it says what the whole block is.
    pub(crate) fn is_whole(&self) -> bool {
        self.covers(&(0..BLOCK_LEN))
    }

    /// Whether the whole block is zeros.
    pub(crate) fn is_zeros(&self) -> bool {
        self.zeros && self.pieces.is_empty()
    }

    /// Whether it says what every byte of a range is.
    pub(crate) fn covers(&self, range: &Range<u32>) -> bool {
        self.zeros || self.ranges().any(|known| known.start <= range.start && range.end <= known.end)
    }

    /// The ranges that it says something about; neighbours are one range.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = Range<u32>> {
        let mut ranges: Vec<Range<u32>> = Vec::new();
        if self.zeros {
            ranges.push(0..BLOCK_LEN);
            return ranges.into_iter();
        }
        for (from, piece) in &self.pieces {
            let to = from + piece.len() as u32;
            match ranges.last_mut() {
                Some(last) if last.end == *from => last.end = to,
                _ => ranges.push(*from..to),
            }
        }
        ranges.into_iter()
    }

    /// Copies what it says over the bytes of a block from `from` on.
    pub(crate) fn overlay(&self, from: u32, buffer: &mut [u8]) {
        if self.zeros {
            buffer.fill(0);
        }
        let end = from + buffer.len() as u32;
        for (at, piece) in self.pieces.range(..end) {
            let (start, stop) = ((*at).max(from), (at + piece.len() as u32).min(end));
            if start < stop {
                let source = &piece[(start - at) as usize..(stop - at) as usize];
                buffer[(start - from) as usize..(stop - from) as usize].copy_from_slice(source);
            }
        }
    }

    /// Appends what it says of a range, which it covers.
    pub(crate) fn append(&self, range: &Range<u32>, out: &mut Vec<u8>) {
        let from = out.len();
        let first = self.pieces.range(..=range.start).next_back();
        match first.and_then(|(at, piece)| piece.get((range.start - at) as usize..(range.end - at) as usize)) {
            // Nearly always one piece, which is copied once.
            Some(piece) => out.extend_from_slice(piece),
            None => {
                out.resize(from + range.len(), 0);
                self.overlay(range.start, &mut out[from..]);
            }
        }
    }

    /// The whole block, if it is one piece.
    pub(crate) fn as_whole(&self) -> Option<&[u8]> {
        self.pieces.get(&0).filter(|piece| piece.len() == BLOCK_LEN as usize).map(Vec::as_slice)
    }

    /// The memory of its pieces.
    pub(crate) fn into_pieces(self) -> impl Iterator<Item = Vec<u8>> {
        self.pieces.into_values()
    }

    /// Bytes of memory that it takes, nearly.
    pub(crate) fn bytes_held(&self) -> usize {
        OVERHEAD + self.pieces.values().map(|piece| piece.len() + OVERHEAD / 4).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn overwritten_pieces_free_their_memory() {
        let mut dirty = Dirty::default();
        for at in 0..100 {
            dirty.put(at, vec![1; (BLOCK_LEN - at) as usize]);
        }
        let room: usize = dirty.pieces.values().map(Vec::capacity).sum();
        assert!(room <= dirty.bytes_held(), "{room}");
    }

    proptest! {
        #[test]
        fn pieces_read_as_written(
            writes in prop::collection::vec((0u32..BLOCK_LEN, 1u32..9000, any::<u8>()), 1..30), zeros: bool, split: usize,
        ) {
            let mut expected: Vec<Option<u8>> = vec![zeros.then_some(0); BLOCK_LEN as usize];
            let mut dirty = if zeros { Dirty::zeros() } else { Dirty::default() };
            let (mut later, split) = (Dirty::default(), split % writes.len());
            for (number, (at, length, byte)) in writes.into_iter().enumerate() {
                let length = length.min(BLOCK_LEN - at);
                expected[at as usize..(at + length) as usize].fill(Some(byte));
                let target = if number < split { &mut dirty } else { &mut later };
                target.put(at, vec![byte; length as usize]);
            }
            dirty.put_all(&later);
            let mut found = vec![0xee; BLOCK_LEN as usize];
            dirty.overlay(0, &mut found);
            for range in dirty.ranges() {
                let mut appended = vec![1];
                dirty.append(&range, &mut appended);
                prop_assert_eq!(&appended[1..], &found[range.start as usize..range.end as usize]);
            }
            prop_assert!(dirty.as_whole().is_none_or(|whole| whole == found));
            let known: u32 = dirty.ranges().map(|range| range.len() as u32).sum();
            prop_assert_eq!(known as usize, expected.iter().flatten().count());
            for (at, byte) in expected.iter().enumerate() {
                prop_assert_eq!(byte.unwrap_or(0xee), found[at], "byte {}", at);
                prop_assert_eq!(byte.is_some(), dirty.covers(&(at as u32..at as u32 + 1)));
            }
        }
    }
}
