//! Finds sequential streams among the reads of many clients, and decides how far to read ahead.
//!
//! A pure decision; `read_ahead` executes it.

use std::ops::Range;

/// Streams that are told apart. More than these replace the one that was quiet longest.
const STREAMS_MAX: usize = 16;
/// Reads may arrive in another order than they were sent, within this distance (bytes).
const SLACK: u64 = 1 << 20;
/// Bytes read ahead of a stream at first.
const WINDOW_MIN: u64 = 1 << 20;
/// Reads in a row after which a stream is read ahead.
const READS_MIN: u32 = 2;

/// One of the streams.
#[derive(Debug, Clone)]
struct Stream {
    /// The end of its reads so far.
    end: u64,
    /// The end of what was read ahead.
    ahead: u64,
    window: u64,
    reads: u32,
}

/// See the module header.
#[derive(Debug)]
pub(super) struct Streams {
    /// The one that was read last is last.
    streams: Vec<Stream>,
    window_max: u64,
}

impl Streams {
    /// `window_max`: bytes ahead of all streams together.
    pub(super) fn new(window_max: u64) -> Self {
        Self { streams: Vec::new(), window_max }
    }

    /// Notes a read. Returns the range to read ahead now.
    pub(super) fn note(&mut self, read: &Range<u64>) -> Option<Range<u64>> {
        let continues = |stream: &Stream| {
            read.start <= stream.end.saturating_add(SLACK) && stream.end <= read.end.saturating_add(SLACK)
        };
        let Some(at) = self.streams.iter().rposition(continues) else {
            if self.streams.len() == STREAMS_MAX {
                self.streams.remove(0);
            }
            self.streams.push(Stream { end: read.end, ahead: read.end, window: WINDOW_MIN, reads: 1 });
            return None;
        };
        let mut stream = self.streams.remove(at);
        let is_forward = read.end > stream.end;
        stream.end = stream.end.max(read.end);
        stream.reads = stream.reads.saturating_add(u32::from(is_forward));
        let active = 1 + self.streams.iter().filter(|other| other.reads >= READS_MIN).count() as u64;
        let window = stream.window.min(self.window_max / active);
        let from = stream.ahead.max(stream.end);
        let to = stream.end.saturating_add(window);
        // In large steps: each step is a plan and some requests.
        let is_due = is_forward && stream.reads >= READS_MIN && to.saturating_sub(from) >= window / 2 && from < to;
        if is_due {
            stream.ahead = to;
            stream.window = stream.window.saturating_mul(2).min(self.window_max.max(WINDOW_MIN));
        }
        self.streams.push(stream);
        is_due.then_some(from..to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Everything between the first plan and the end is planned once, before it is read.
    fn is_ahead(reads: impl Iterator<Item = Range<u64>>, streams: &mut Streams) -> u64 {
        let mut planned: Option<Range<u64>> = None;
        let mut at = 0;
        for read in reads {
            at = read.end;
            if let Some(next) = streams.note(&read) {
                if let Some(before) = &planned {
                    assert_eq!(before.end.max(read.end), next.start, "no gap and nothing twice");
                }
                planned = Some(planned.map_or(next.start, |planned| planned.start)..next.end);
            }
        }
        planned.map_or(0, |planned| planned.end.saturating_sub(at))
    }

    #[test]
    fn a_stream_is_read_ahead_in_growing_windows() {
        let mut streams = Streams::new(16 * MIB);
        let reads = (0..2000).map(|n| n * 65_536..(n + 1) * 65_536);
        let ahead = is_ahead(reads, &mut streams);
        assert!((8 * MIB..=16 * MIB).contains(&ahead), "{ahead}");
    }

    #[test]
    fn random_reads_are_not() {
        let mut streams = Streams::new(16 * MIB);
        for n in 0..1000_u64 {
            let at = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
            assert_eq!(streams.note(&(at..at + 4096)), None);
        }
    }

    #[test]
    fn several_streams_share_the_window() {
        let mut streams = Streams::new(16 * MIB);
        let mut ahead = [0_u64; 4];
        for n in 0..1000 {
            for stream in 0..4_u64 {
                let at = (stream << 40) + n * 65_536;
                if let Some(next) = streams.note(&(at..at + 65_536)) {
                    let distance = next.end - (at + 65_536);
                    ahead[stream as usize] = ahead[stream as usize].max(distance);
                    assert!(n < 10 || distance <= 4 * MIB, "{distance}");
                }
            }
        }
        assert!(ahead.iter().all(|ahead| *ahead >= MIB), "{ahead:?}");
    }

    /// A client with several requests under way sends them in order, and they arrive in another.
    #[test]
    fn order_may_be_broken_a_little() {
        let mut streams = Streams::new(16 * MIB);
        let mut planned = 0;
        for n in (0..1000_u64).map(|n| n ^ 3) {
            planned += u64::from(streams.note(&(n * 65_536..(n + 1) * 65_536)).is_some());
        }
        assert!((1..100).contains(&planned), "{planned}");
        assert_eq!(streams.streams.len(), 1);
    }

    #[test]
    fn reading_one_place_again_and_again_is_no_stream() {
        let mut streams = Streams::new(16 * MIB);
        for _ in 0..100 {
            assert_eq!(streams.note(&(4096..8192)), None);
        }
    }
}
