//! The places that tasks tell, by rising chunk.

use std::ops::RangeInclusive;

use larder_format::DecodeError;
use larder_format::fleet::{At, Placement, Placements, Requests};
use larder_format::index_tables::ChunkKey;
use larder_index::{Cursor, IndexError};
use larder_store::RepositoryError;

use crate::error::FleetError;
use crate::exchange::{Decided, Merged, OutputCursor};
use crate::shared::Batch;

fn damaged_place(source: DecodeError) -> IndexError {
    RepositoryError::Damaged { name: "place of a chunk in a fleet batch".to_owned(), source }.into()
}

/// See the module header.
pub(super) struct PlacesByChunk<'a> {
    records: Merged<'a>,
    next: Option<(ChunkKey, At, Placement)>,
    /// The chunk that the places below are of.
    chunk: Option<ChunkKey>,
    of_chunk: Vec<(At, Placement)>,
}

impl<'a> PlacesByChunk<'a> {
    /// The places that these tasks tell.
    pub(super) fn of(
        batch: &'a Batch<'a>,
        placed: impl IntoIterator<Item = &'a Decided>,
        range: RangeInclusive<u64>,
    ) -> Result<Self, FleetError> {
        let records = OutputCursor::merged::<Placements>(batch, placed, range)?;
        let mut places = Self { records, next: None, chunk: None, of_chunk: Vec::new() };
        places.advance()?;
        Ok(places)
    }

    fn advance(&mut self) -> Result<(), IndexError> {
        self.next = match self.records.advance()? {
            false => None,
            true => {
                let (chunk, at) = Requests::parse(self.records.key()).map_err(damaged_place)?;
                let value = self.records.value().unwrap_or_default();
                Some((chunk, at, Placement::decode(value).map_err(damaged_place)?))
            }
        };
        Ok(())
    }

    /// The place that an owner told of a chunk. Chunks rise from call to call.
    pub(super) fn told_by(&mut self, chunk: &ChunkKey, owner: At) -> Result<Option<Placement>, IndexError> {
        self.go_to(chunk)?;
        Ok(self.of_chunk.iter().find(|(at, _)| *at == owner).map(|(_, placement)| *placement))
    }

    /// The first that told a place of a chunk. Chunks rise from call to call.
    pub(super) fn first(&mut self, chunk: &ChunkKey) -> Result<Option<At>, IndexError> {
        self.go_to(chunk)?;
        Ok(self.of_chunk.first().map(|(at, _)| *at))
    }

    fn go_to(&mut self, chunk: &ChunkKey) -> Result<(), IndexError> {
        if self.chunk != Some(*chunk) {
            self.chunk = Some(*chunk);
            self.of_chunk.clear();
            while let Some((next, at, placement)) = self.next.filter(|(next, ..)| next <= chunk) {
                if next == *chunk {
                    self.of_chunk.push((at, placement));
                }
                self.advance()?;
            }
        }
        Ok(())
    }
}
