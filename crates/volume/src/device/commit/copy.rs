//! Copying chunks: a collection stores the live chunks of a container again, as a commit stores new
//! ones. No block changes.

use larder_format::Fingerprint;
use larder_format::volume_map::Place;

use super::StopOnPanic;
use super::drafts::{Drafts, place_in};
use super::landing::{Flight, Syncs, Written};
use super::staging::{Added, Staging};
use crate::error::VolumeError;
use crate::index::chunk_key;
use crate::store::{Committer, Store};

/// Where a chunk is, or will be.
enum Copy {
    Stored(Place),
    /// Frame, and the offset in it.
    New(usize, usize),
}

impl Store {
    /// Stores chunks, durably, and gives their places. One that the index knows, in a container
    /// that stays, is not stored again.
    pub(crate) fn store_chunks(
        &self,
        committer: &mut Committer,
        chunks: &[(Fingerprint, Vec<u8>)],
    ) -> Result<Vec<Place>, VolumeError> {
        self.refuse_if_stopped()?;
        let _guard = StopOnPanic(self);
        if self.is_publication_due(committer) {
            self.publish(committer)?;
        }
        let mut staging = Staging::new(committer.container.take(), committer.next_container);
        let places = self.copy_chunks_staged(committer, &mut staging, chunks);
        // What failed was taken back, so this is what durable records name.
        (committer.container, committer.next_container) = staging.into_parts();
        places
    }

    fn copy_chunks_staged(
        &self,
        committer: &mut Committer,
        staging: &mut Staging,
        chunks: &[(Fingerprint, Vec<u8>)],
    ) -> Result<Vec<Place>, VolumeError> {
        let known = self.known_places(chunks)?;
        let mut drafts = Drafts::default();
        let copies: Vec<Copy> = chunks
            .iter()
            .zip(known)
            .map(|((name, bytes), known)| match known {
                Some(place) => Copy::Stored(place),
                None => {
                    let (frame, within) = drafts.add(bytes, 0..bytes.len(), name);
                    Copy::New(frame, within)
                }
            })
            .collect();
        let frames = staging.write(self, &mut committer.compressors, &drafts).inspect_err(|_| staging.abort())?;
        let Added { events, grown, folders, closing } = staging.end_batch();
        let files = self.append(committer, events, &grown)?;
        let chunks = drafts.places(&frames).collect();
        let syncs = Syncs { folders, files, closing };
        let written = Written { syncs, blocks: Vec::new(), mappings: Vec::new(), chunks, grown };
        Flight::later(written).land(self, committer)?;
        let place = |copy| match copy {
            Copy::Stored(place) => place,
            Copy::New(frame, within) => place_in(&frames, frame, within),
        };
        Ok(copies.into_iter().map(place).collect())
    }

    /// Where the index has chunks, in containers that stay.
    fn known_places(&self, chunks: &[(Fingerprint, Vec<u8>)]) -> Result<Vec<Option<Place>>, VolumeError> {
        let keys: Vec<_> = chunks.iter().map(|(name, _)| chunk_key(name)).collect();
        let (mut places, runs) = {
            let state = self.state.lock();
            let place = |key| state.tables.chunks.get(key).copied().filter(|place| self.may_name(&state.runs, *place));
            (keys.iter().map(place).collect::<Vec<_>>(), state.runs.clone())
        };
        runs.find_chunks(&self.pages, &keys, &mut places)?;
        Ok(places.into_iter().map(|place| place.filter(|place| self.may_name(&runs, *place))).collect())
    }
}
