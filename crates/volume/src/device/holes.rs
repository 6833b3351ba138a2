//! Parts of a block that are known to be zeros, without reading any data.

use std::ops::Range;

use larder_format::volume_map::{BLOCK_LEN, Mapping};

use super::lower::Found;
use crate::error::VolumeError;
use crate::index::View;
use crate::store::Store;

/// Zeros in a block are told in multiples of this number of bytes. Clients ask in such units.
const GRAIN: u32 = 4096;

impl Store {
    /// The parts of a range of a block: bytes, and whether they are known to be zeros.
    pub(crate) fn zeros_of(&self, view: View, block: u64, range: &Range<u32>) -> Result<Vec<(u64, bool)>, VolumeError> {
        let whole = |is_zero| vec![(range.len() as u64, is_zero)];
        if view == View::live(view.volume) {
            let state = self.state.lock();
            for waiting in [&state.active, &state.sealing] {
                if let Some(dirty) = waiting.blocks.get(&(view.volume, block)) {
                    return Ok(whole(dirty.is_zeros()));
                }
            }
        }
        Ok(match self.found(view, block)? {
            Found::Mapping(mapping) => within(range, &zeros(&mapping)),
            Found::Outside(outside) => whole(outside.is_zero(block)?),
        })
    }
}

/// The ranges of a block that are zeros, of whole grains.
fn zeros(mapping: &Mapping) -> Vec<Range<u32>> {
    if mapping.is_zero() {
        return std::iter::once(0..BLOCK_LEN).collect();
    }
    let (mut at, mut found) = (0, Vec::<Range<u32>>::new());
    for item in &mapping.items {
        let end = at + u32::from(item.length);
        match found.last_mut() {
            _ if item.place.is_some() => {}
            Some(last) if last.end == at => last.end = end,
            _ => found.push(at..end),
        }
        at = end;
    }
    let grains = found.into_iter().map(|zeros| zeros.start.next_multiple_of(GRAIN)..zeros.end / GRAIN * GRAIN);
    grains.filter(|zeros| zeros.start < zeros.end).collect()
}

/// A range, divided at zeros.
fn within(range: &Range<u32>, zeros: &[Range<u32>]) -> Vec<(u64, bool)> {
    let (mut at, mut parts) = (range.start, Vec::new());
    for zeros in zeros {
        let (from, to) = (zeros.start.clamp(at, range.end), zeros.end.clamp(at, range.end));
        parts.extend([(from - at, false), (to - from, true)]);
        at = to;
    }
    parts.push((range.end - at, false));
    parts.retain(|(length, _)| *length > 0);
    parts.into_iter().map(|(length, is_zero)| (u64::from(length), is_zero)).collect()
}

#[cfg(test)]
mod tests {
    use larder_format::volume_map::{MapItem, Place};

    use super::*;

    fn mapping(parts: &[(bool, u16)]) -> Mapping {
        let item = |&(is_zero, length): &(bool, u16)| match is_zero {
            true => MapItem::zeros(length),
            false => MapItem { place: Some(Place { container: 0, offset: 0 }), skip: 0, length, tag: [0; 4] },
        };
        Mapping { mac: None, items: parts.iter().map(item).collect() }
    }

    #[test]
    fn zeros_are_told_in_whole_grains() {
        assert!(zeros(&Mapping::ZERO).into_iter().eq(std::iter::once(0..BLOCK_LEN)));
        assert_eq!(zeros(&mapping(&[(false, 5000), (true, 3192), (false, 57_344)])), []);
        let two = mapping(&[(true, 4096), (true, 4097), (false, 8191), (true, 16_384), (false, 32_768)]);
        assert_eq!(zeros(&two), [0..8192, 16_384..32_768]);
    }

    #[test]
    fn a_range_is_divided_at_zeros() {
        let zeros = [4096..8192, 12_288..20_480];
        assert_eq!(within(&(0..4096), &zeros), [(4096, false)]);
        assert_eq!(within(&(5000..6000), &zeros), [(1000, true)]);
        assert_eq!(within(&(4000..16_384), &zeros), [(96, false), (4096, true), (4096, false), (4096, true)]);
        assert_eq!(within(&(20_000..65_536), &zeros), [(480, true), (45_056, false)]);
    }
}
