//! The filters of the runs rule out new chunks without a read.
//!
//! A filter that was dropped for want of memory admits every chunk of its run.

use larder_dedup::chain::Verdict;
use larder_dedup::chain::batch::Open;

use super::{Answer, Asked, ChunkFilter, Recent, Stored};
use crate::error::VolumeError;

pub(super) struct RunFilters<'a> {
    pub(super) stored: &'a dyn Stored,
    pub(super) recent: &'a Recent,
}

impl ChunkFilter for RunFilters<'_> {
    fn check(&mut self, asked: &[Asked<'_>], open: &mut Open<Answer>) -> Result<(), VolumeError> {
        let mut keys = (0..open.len()).map(|position| asked[open.number(position)].key);
        let in_memory = self.stored.in_memory(&mut keys);
        for (position, in_memory) in in_memory.into_iter().enumerate() {
            let key = &asked[open.number(position)].key;
            let may_be_stored =
                in_memory.is_some() || self.recent.contains_key(key) || self.stored.runs().admits_chunk(key);
            if !may_be_stored {
                open.judge(position, Verdict::NonExisting);
            }
        }
        Ok(())
    }
}
