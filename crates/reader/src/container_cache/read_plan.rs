//! Decides whether a container is read whole or by its wanted parts.
//!
//! A request costs as much as the bytes that could arrive in its place ([`GAP_MAX`]). Reading parts
//! takes one request for the tables and one for every part.

use std::ops::Range;

use larder_format::container::{FRAME_TARGET, TAIL_GUESS};
use larder_format::manifest::ContainerUsage;
use larder_store::container_reader::GAP_MAX;

use crate::container_sizes::Sum;
pub use crate::container_sizes::{Measure, Sizes};

/// How to read a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Ranges of its payload, in rising order; `None`: all of it.
    pub ranges: Option<Vec<Range<u32>>>,
    /// Bytes of this read, at most; approximate for parts, because the frames are not known yet.
    pub bytes: u64,
}

/// Chooses for a container with these `wanted` ranges, in any order.
pub fn choose(wanted: Vec<Range<u32>>, container: Measure) -> Part {
    choose_with_rest(wanted, container, 0)
}

/// The same where `rest` other bytes of the payload are wanted later, and a whole container is kept
/// until then.
pub fn choose_with_rest(wanted: Vec<Range<u32>>, container: Measure, rest: u64) -> Part {
    let (part, requests) = reckon(wanted, container);
    let later = match rest {
        0 => 0,
        // The tables and one part, at least.
        _ => scaled(rest, container) + TAIL_GUESS as u64 + 2 * GAP_MAX,
    };
    match part.bytes + requests * GAP_MAX + later < container.object + GAP_MAX {
        true => part,
        false => Part { ranges: None, bytes: container.object },
    }
}

/// Whether a container of which this much is used is read whole, wherever the used bytes are.
pub(crate) fn is_read_whole(usage: &ContainerUsage) -> bool {
    let unused = usage.bytes_held.saturating_sub(usage.bytes_used);
    let unused = Sum::scaled(unused, u128::from(usage.object_bytes), u128::from(usage.bytes_held));
    // Reading parts takes one request more than reading all, at least.
    unused <= GAP_MAX
}

/// Reads exactly the wanted ranges of a container with known tables, whatever the cost.
pub(crate) fn exactly(wanted: Vec<Range<u32>>, container: Measure) -> Part {
    let part = reckon(wanted, container).0;
    Part { bytes: part.bytes.saturating_sub(TAIL_GUESS as u64), ..part }
}

/// Bytes of the object for bytes of the payload.
fn scaled(bytes: u64, container: Measure) -> u64 {
    match container.payload {
        0 => 0,
        held => (u128::from(bytes) * u128::from(container.object) / u128::from(held)) as u64,
    }
}

/// Reading by parts, and its number of requests.
fn reckon(mut wanted: Vec<Range<u32>>, container: Measure) -> (Part, u64) {
    wanted.sort_unstable_by_key(|range| range.start);
    wanted.dedup_by(|next, last| {
        let joins = next.start <= last.end;
        if joins {
            last.end = last.end.max(next.end);
        }
        joins
    });
    let frame = FRAME_TARGET as u64;
    let scaled = |bytes: u64| scaled(bytes, container);
    let (mut requests, mut bytes, mut end) = (1, TAIL_GUESS as u64, None);
    for range in &wanted {
        let from = u64::from(range.start) / frame * frame;
        let to = u64::from(range.end).div_ceil(frame) * frame;
        match end {
            Some(last) if from <= last => bytes += scaled(to.saturating_sub(last)),
            Some(last) if scaled(from - last) <= GAP_MAX => bytes += scaled(to.saturating_sub(last)),
            _ => {
                requests += 1;
                // Real frames begin elsewhere than this estimate assumes.
                bytes += scaled(to - from) + scaled(frame);
            }
        }
        end = Some(end.unwrap_or(0).max(to));
    }
    (Part { ranges: Some(wanted), bytes }, requests)
}

/// A smaller request is not worth its latency, however many may be under way (bytes).
const PIECE_MIN: u64 = 2 << 20;

/// Requests for a whole container of this size, so that `streams` of them can be under way when
/// memory is only for few containers. One more container is being read.
pub fn pieces(object_bytes: u64, memory: u64, streams: usize) -> u64 {
    let Some(ahead) = memory.saturating_sub(object_bytes).checked_div(object_bytes) else { return 1 };
    let wanted = (streams as u64).div_ceil(ahead.max(1));
    wanted.min(object_bytes / PIECE_MIN).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(payload: u64) -> Measure {
        Measure { payload, object: payload / 2 }
    }

    #[test]
    fn little_of_a_large_container_is_read_by_parts() {
        let part = choose(vec![3 << 20..4 << 20, 0..10], usage(16 << 20));
        assert_eq!(part.ranges, Some(vec![0..10, 3 << 20..4 << 20]));
        assert!(part.bytes < 4 << 20, "{part:?}");
    }

    #[test]
    fn much_of_it_or_a_small_one_is_read_whole() {
        let whole = |wanted: &[Range<u32>], bytes| {
            assert_eq!(choose(wanted.to_vec(), usage(bytes)), Part { ranges: None, bytes: bytes / 2 });
        };
        let here_and_there: Vec<_> = (0..8).map(|n| n << 21..(n << 21) + 10).collect();
        whole(&[Range { start: 0, end: 15 << 20 }], 16 << 20);
        whole(&here_and_there, 16 << 20);
        whole(&[Range { start: 0, end: 10 }], 2 << 20);
        whole(&[], 0);
    }

    #[test]
    fn a_container_is_read_whole_if_the_rest_is_wanted_later() {
        let wanted = vec![Range { start: 0, end: 2 << 20 }];
        let is_whole = |rest| choose_with_rest(wanted.clone(), usage(16 << 20), rest).ranges.is_none();
        assert_eq!([0, 100, 14 << 20].map(is_whole), [false, false, true]);
    }

    #[test]
    fn containers_are_read_in_pieces_where_memory_is_short_of_the_streams() {
        const CONTAINER: u64 = 8 << 20;
        assert_eq!(pieces(CONTAINER, 7 * CONTAINER, 6), 1);
        assert_eq!(pieces(CONTAINER, 5 * CONTAINER, 6), 2);
        assert_eq!(pieces(CONTAINER, 3 * CONTAINER, 6), 3);
        assert_eq!(pieces(CONTAINER, CONTAINER, 100), 4, "none smaller than 2 MiB");
        assert_eq!(pieces(CONTAINER, 0, 0), 1);
        assert_eq!(pieces(1 << 20, 1 << 20, 6), 1);
        assert_eq!(pieces(0, 1 << 20, 6), 1);
    }
}
