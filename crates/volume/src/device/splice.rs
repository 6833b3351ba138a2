//! A new mapping from an old one and new pieces. No data is read.

use std::ops::Range;

use larder_format::volume_map::{BLOCK_LEN, ITEMS_MAX, MapItem, Mapping};

/// The items of a part of a block, as a mapping has it.
pub(crate) fn slice(mapping: &Mapping, range: &Range<u32>, out: &mut Vec<MapItem>) {
    if mapping.is_zero() {
        push_zeros(range.end - range.start, out);
        return;
    }
    let mut at = 0;
    for item in &mapping.items {
        let (from, to) = (at.max(range.start), (at + u32::from(item.length)).min(range.end));
        if from < to {
            let skip = if item.place.is_some() { item.skip + (from - at) as u16 } else { 0 };
            push(MapItem { skip, length: (to - from) as u16, ..*item }, out);
        }
        at += u32::from(item.length);
    }
}

/// Appends an item, joined with the one before where both are one stretch.
pub(crate) fn push(item: MapItem, out: &mut Vec<MapItem>) {
    if let Some(last) = out.last_mut() {
        let follows = last.place == item.place
            && last.tag == item.tag
            && (last.place.is_none() || u32::from(last.skip) + u32::from(last.length) == u32::from(item.skip));
        if let (true, Some(length)) = (follows, last.length.checked_add(item.length)) {
            last.length = length;
            return;
        }
    }
    out.push(item);
}

/// Appends zeros.
pub(crate) fn push_zeros(mut length: u32, out: &mut Vec<MapItem>) {
    while length > 0 {
        let part = length.min(0x8000);
        push(MapItem::zeros(part as u16), out);
        length -= part;
    }
}

/// The mapping of a block of which `new` parts were written. Parts are in order.
pub(crate) fn splice(old: &Mapping, new: &[(Range<u32>, Vec<MapItem>)], mac: Option<[u8; 16]>) -> Mapping {
    let mut items = Vec::new();
    let mut at = 0;
    for (range, pieces) in new {
        slice(old, &(at..range.start), &mut items);
        pieces.iter().for_each(|piece| push(*piece, &mut items));
        at = range.end;
    }
    slice(old, &(at..BLOCK_LEN), &mut items);
    if items.iter().all(|item| item.place.is_none()) {
        return Mapping::ZERO;
    }
    Mapping { mac, items }
}

/// Whether a splice with these ranges may have more items than a mapping can have.
pub(crate) fn may_overflow(old: &Mapping, ranges: impl Iterator<Item = Range<u32>>, chunk_min: u32) -> bool {
    let new: u32 = ranges.map(|range| (range.end - range.start) / chunk_min + 5).sum();
    old.items.len() + new as usize > ITEMS_MAX
}
