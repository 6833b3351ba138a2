//! The chunk index: memory tables, then the runs, the newest first. Pages of a run that a round
//! needs are read together.

use larder_dedup::chain::Verdict;
use larder_dedup::chain::batch::Open;

use super::{Answer, Asked, ChunkFilter, Recent, Stored};
use crate::error::VolumeError;

pub(super) struct ChunkIndex<'a> {
    pub(super) stored: &'a dyn Stored,
    pub(super) recent: &'a Recent,
}

impl ChunkFilter for ChunkIndex<'_> {
    fn check(&mut self, asked: &[Asked<'_>], open: &mut Open<Answer>) -> Result<(), VolumeError> {
        let keys: Vec<_> = (0..open.len()).map(|position| asked[open.number(position)].key).collect();
        let mut places = self.stored.in_memory(&mut keys.iter().copied());
        for (key, place) in keys.iter().zip(&mut places) {
            *place = place.or_else(|| self.recent.get(key).copied());
        }
        self.stored.runs().find_chunks(self.stored.pages(), &keys, &mut places)?;
        for (position, place) in places.into_iter().enumerate() {
            let place = place.filter(|place| self.stored.may_name(*place));
            let verdict = place.map_or(Verdict::NonExisting, |place| Verdict::StrongMaybe(Answer::At(place)));
            open.judge(position, verdict);
        }
        Ok(())
    }
}
