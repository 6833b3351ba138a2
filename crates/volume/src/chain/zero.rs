//! Chunks of zeros are not stored: a mapping says that a range is zeros.

use larder_dedup::chain::Verdict;
use larder_dedup::chain::batch::Open;

use super::{Answer, Asked, ChunkFilter};
use crate::error::VolumeError;

pub(super) struct Zeros;

/// Whether all bytes are zeros. Most other data differs in its first bytes.
pub(crate) fn is_zeros(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<64>();
    words.iter().all(|word| *word == [0; 64]) && rest.iter().all(|byte| *byte == 0)
}

impl ChunkFilter for Zeros {
    fn check(&mut self, asked: &[Asked<'_>], open: &mut Open<Answer>) -> Result<(), VolumeError> {
        for position in 0..open.len() {
            if is_zeros(asked[open.number(position)].bytes) {
                open.judge(position, Verdict::Existing(Answer::Zeros));
            }
        }
        Ok(())
    }

    fn can_be_certain(&self) -> bool {
        true
    }
}
