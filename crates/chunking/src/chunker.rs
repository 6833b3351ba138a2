//! The trait that every cutting algorithm implements.

use crate::params::ChunkerParams;

/// Whether more bytes of the stream follow the slice that is being cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// More may follow: leave the undecided rest.
    Open,
    /// The slice ends where the stream ends: cut it to the last byte.
    Reached,
}

/// Cuts a stream into chunks.
///
/// Every cut is a function of the chunk's start, the content from there, the parameters and the
/// seed. Of the content it uses at most `max` bytes, and whether the stream ends within them.
/// Implementations hold no state that cutting changes.
pub trait Chunker: Send + Sync {
    /// The parameters this chunker was made of.
    fn params(&self) -> ChunkerParams;

    /// Length of the chunk that starts at `data[0]`.
    ///
    /// `data` holds at least `max` bytes, or reaches to the end of the stream. The result is 0 only
    /// for empty data, at most `max`, and at least `min` unless the stream ends before.
    fn next_cut(&self, data: &[u8]) -> usize;

    /// Cuts as many whole chunks as `data` decides.
    ///
    /// Appends their lengths and returns the bytes they cover. At the end of the stream, this is
    /// all of `data`. Otherwise, it is all but a rest of less than `max` bytes, which the caller
    /// puts before its next input.
    fn cut_all(&self, data: &[u8], end: StreamEnd, lengths: &mut Vec<u32>) -> usize {
        self.cut_until(data, end, usize::MAX, lengths)
    }

    /// The same, but no chunk begins at or behind `stop`.
    fn cut_until(&self, data: &[u8], end: StreamEnd, stop: usize, lengths: &mut Vec<u32>) -> usize {
        // A whole `max` is required even where an earlier cut is already certain. This keeps the
        // contract of `next_cut` simple and costs nothing: buffers are hundreds of times longer.
        let decided = match end {
            StreamEnd::Open => self.params().max as usize,
            StreamEnd::Reached => 1,
        };
        let mut at = 0;
        while at < stop && data.len() - at >= decided {
            let length = self.next_cut(&data[at..]);
            lengths.push(length as u32);
            at += length;
        }
        at
    }

    /// Whether a chunk of this length, cut by this chunker somewhere else, would end here too if
    /// its bytes are those that `data` begins with. `data` as for [`Chunker::next_cut`].
    ///
    /// `false` says that `next_cut(data) != length`. `true` together with equal bytes says that
    /// `next_cut(data) == length`. So this look at its end and one fingerprint decide a predicted
    /// cut, without a scan (SlimStore section IV-B). The algorithms of the papers decide by the
    /// bytes before a cut, so the look costs them one window. MinCDC's cuts also depend on the
    /// bytes behind it, so looking costs nearly as much as cutting.
    fn confirms(&self, data: &[u8], length: usize) -> bool;

    /// Whether [`Chunker::confirms`] is much cheaper than [`Chunker::next_cut`], so that predicting
    /// cuts saves time.
    fn is_worth_predicting(&self) -> bool {
        false
    }
}
