//! The old mapping of the block, and of the block before: data that is written in place, or that
//! moved a little, has the chunks that were there.
//!
//! A mapping has four bytes of a fingerprint. The chunks of the container that it names confirm
//! them; these stay with the `cache` filter's (dedupv1, the block index filter).

use larder_dedup::chain::Verdict;
use larder_dedup::chain::batch::Open;
use parking_lot::Mutex;

use super::cache::KnownContainers;
use super::{Answer, Asked, ChunkFilter, Stored};
use crate::error::VolumeError;

pub(super) struct BlockTags<'a, 'b> {
    pub(super) stored: &'a dyn Stored,
    pub(super) containers: &'a Mutex<&'b mut KnownContainers>,
}

impl ChunkFilter for BlockTags<'_, '_> {
    fn check(&mut self, asked: &[Asked<'_>], open: &mut Open<Answer>) -> Result<(), VolumeError> {
        let mut containers = self.containers.lock();
        for position in 0..open.len() {
            let question = &asked[open.number(position)];
            let items = question.old.into_iter().flatten().flat_map(|mapping| &mapping.items);
            let candidates = items.filter(|item| item.tag == question.key[..4]).filter_map(|item| item.place);
            let candidates = candidates.filter(|place| self.stored.may_name(*place));
            for place in candidates {
                containers.load(place.container, self.stored)?;
                if let Some(place) = containers.find(&question.key).filter(|place| self.stored.may_name(*place)) {
                    open.judge(position, Verdict::StrongMaybe(Answer::At(place)));
                    break;
                }
            }
        }
        Ok(())
    }
}
