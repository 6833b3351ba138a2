//! Comparison of bytes. Equal fingerprints with different bytes end the commit: one of both chunks
//! could only be kept in place of the other.
//!
//! Chunks of this commit are not compared: their frames may be under way to the disk.

use larder_dedup::chain::Verdict;
use larder_dedup::chain::batch::Open;

use super::{Answer, Asked, ChunkFilter, Recent, Stored};
use crate::error::VolumeError;

pub(super) struct ByteComparison<'a> {
    pub(super) stored: &'a dyn Stored,
    pub(super) recent: &'a Recent,
}

impl ChunkFilter for ByteComparison<'_> {
    fn check(&mut self, asked: &[Asked<'_>], open: &mut Open<Answer>) -> Result<(), VolumeError> {
        for position in 0..open.len() {
            let Some(found) = open.found(position).copied() else { continue };
            let Answer::At(place) = found else { continue };
            let Asked { key, bytes, .. } = &asked[open.number(position)];
            if self.recent.get(key) == Some(&place) {
                continue;
            }
            let verdict = match self.stored.bytes_at(place, bytes.len()) {
                Ok(stored) if stored == *bytes => Verdict::Existing(found),
                Ok(_) => {
                    let container = place.container;
                    tracing::error!(container, offset = place.offset, "different chunks have one fingerprint");
                    return Err(VolumeError::Collision { container, offset: place.offset });
                }
                Err(error @ VolumeError::Damaged { .. }) => {
                    tracing::warn!("{error}; the chunk is stored again");
                    Verdict::NonExisting
                }
                Err(error) => return Err(error),
            };
            open.judge(position, verdict);
        }
        Ok(())
    }

    fn can_be_certain(&self) -> bool {
        true
    }
}
