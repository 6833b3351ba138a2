//! Compares presumed duplicates with the stored bytes (`backup --paranoid`): chunks of both
//! streams, and segments and nodes of recipes that are shared with a base.
//!
//! Data that differs or cannot be read is not shared but stored once more. The store itself is
//! asked, not the cache on this machine. Two kinds of data are not compared. One is data that this
//! job has stored, which may still be under way. The other is data that is reused unread.

use std::num::NonZeroUsize;
use std::sync::Arc;

use bytes::Bytes;
use larder_dedup::chain::{Chunk, Filter, Verdict};
use larder_format::ids::JobId;
use larder_format::segment::ChunkRecord;
use larder_format::{ChunkRef, Fingerprint};
use larder_index::Executor;
use larder_reader::{MetaChunks, is_missing};
use larder_store::chunk_reader::ChunkReader;
use larder_store::{Repository, RepositoryError};
use larder_writer::CompareStored;

/// Bytes of sealed containers, and of opened frames, that are kept.
const CACHE: NonZeroUsize = NonZeroUsize::new(32 << 20).expect("not zero");

/// See the module header.
#[derive(Debug, Clone)]
pub(super) struct ByteComparison {
    reader: Arc<ChunkReader>,
    runtime: Executor,
    job: JobId,
    /// Tells the places of chunks that records only name.
    chunks: MetaChunks,
}

impl ByteComparison {
    pub(super) fn new(repository: &Repository, runtime: Executor, job: JobId, chunks: MetaChunks) -> Self {
        let reader = ChunkReader::new(repository.through(repository.store().without_cache()), CACHE, CACHE);
        Self { reader: Arc::new(reader), runtime, job, chunks }
    }

    fn stored(&self, chunk: &ChunkRef) -> Result<Bytes, RepositoryError> {
        loop {
            let mut chunk = *chunk;
            self.chunks.locate(&mut chunk)?;
            match self.runtime.block_on(self.reader.read(&chunk)) {
                Err(error) if is_missing(&error) && self.chunks.relocates(&chunk)? => {}
                read => return read,
            }
        }
    }
}

impl CompareStored for ByteComparison {
    /// Data that this job has stored itself is not compared.
    fn is_stored(&self, chunk: &ChunkRef, bytes: &[u8]) -> Result<bool, RepositoryError> {
        if chunk.container.job == self.job {
            return Ok(true);
        }
        is_same(&chunk.fingerprint, self.stored(chunk), bytes)
    }
}

/// The verdict of reading a chunk on `bytes` with the same fingerprint.
fn is_same(
    fingerprint: &Fingerprint,
    stored: Result<Bytes, RepositoryError>,
    bytes: &[u8],
) -> Result<bool, RepositoryError> {
    match stored {
        Ok(stored) if stored == bytes => Ok(true),
        Ok(_) => {
            tracing::error!(?fingerprint, "two different chunks have one fingerprint");
            Ok(false)
        }
        Err(error) if error.is_unreadable() || error.is_of_object() => {
            tracing::warn!(%error, "a stored chunk cannot be read; it is stored again");
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

impl Filter<RepositoryError> for ByteComparison {
    fn check(&mut self, chunk: &Chunk<'_>, found: Option<&ChunkRecord>) -> Result<Verdict, RepositoryError> {
        let Some(found) = found else { return Ok(Verdict::WeakMaybe) };
        Ok(match self.is_stored(&found.chunk, chunk.bytes)? {
            true => Verdict::Existing(*found),
            false => Verdict::NonExisting,
        })
    }

    fn can_be_certain(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_format::DecodeError;
    use larder_store::{StoreError, StoreErrorKind, StoreOp};

    fn of_store(kind: StoreErrorKind) -> RepositoryError {
        RepositoryError::Store(StoreError { op: StoreOp::Read, name: "data/0".to_owned(), kind, source: None })
    }

    /// Two chunks with one fingerprint cannot be made, nor a container that opens with other
    /// contents. So this tests the consequences.
    #[test]
    fn only_equal_bytes_are_shared_and_only_damage_is_stored_anew() {
        let same = |stored| is_same(&Fingerprint([1; 32]), stored, b"bytes");
        assert!(same(Ok(Bytes::from_static(b"bytes"))).expect("was read"));
        for other in [&b"Bytes"[..], b"byte", b"bytes and more", b""] {
            assert!(
                !same(Ok(Bytes::from_static(other))).expect("was read"),
                "two different chunks have one fingerprint"
            );
        }
        let damaged = |source| RepositoryError::Damaged { name: "data/0".to_owned(), source };
        assert!(!same(Err(damaged(DecodeError::Invalid { what: "chunk", why: "no" }))).expect("damage is no failure"));
        for kind in [StoreErrorKind::NotFound, StoreErrorKind::Damaged] {
            assert!(!same(Err(of_store(kind))).expect("damage is no failure"));
        }
        same(Err(of_store(StoreErrorKind::Unreachable))).expect_err("a store that does not answer tells nothing");
    }
}
