//! Every chunk that retained versions name, sorted: all their recipes are read, each distinct
//! segment once.

use larder_format::index_tables::ChunkKey;
use larder_format::lease::Pin;
use larder_format::manifest::Register;
use larder_format::run::{RecordLayout, ValueWidth};
use larder_index::{IndexPass, Sorted, Sorter};
use larder_reader::References;
use larder_rewrite::chunk_copier::RewriteError;

use super::{ReclaimError, Work};

/// Keys of chunks, without values.
pub(super) const KEYS: RecordLayout = RecordLayout { key_len: 20, value: ValueWidth::Fixed(0) };

/// The keys of all chunks that these manifests need; `None` when one of them cannot be read, so
/// that they are unknown.
///
/// By fingerprint, not by place. Two versions may need a chunk in different places, and one copy of
/// it is enough.
pub(super) fn needed(pass: &IndexPass, work: &Work, walks: &[(Pin, u32)]) -> Result<Option<Sorted>, ReclaimError> {
    let repository = &pass.io.repository;
    let mut keys = Sorter::new(repository, KEYS, pass.memory / 2, &pass.folder)?;
    let mut references = References::new(&work.context.on(&pass.io.executor));
    for (version, generation) in walks {
        let manifest = match pass.io.executor.block_on(repository.read_register(*version, *generation)) {
            Ok(Some(Register::Committed(manifest))) => manifest,
            Ok(Some(Register::Aborted)) => continue,
            // Another pass was faster, and this one will not publish.
            Ok(None) => return Ok(None),
            Err(error) if error.is_damage() => {
                tracing::warn!(%error, "what is needed is not known, so nothing is collected chunk by chunk");
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        let walked = references.visit(&manifest.data, |chunk| {
            if work.context.cancel.is_cancelled() {
                return Err(ReclaimError::ChunkCopier(RewriteError::Interrupted));
            }
            Ok(keys.push(&ChunkKey::of(&chunk.fingerprint).0, Some(&[]))?)
        });
        match walked {
            Ok(()) => {}
            Err(ReclaimError::Index(error)) if error.is_damage() => {
                tracing::warn!(%error, "what is needed is not known, so nothing is collected chunk by chunk");
                return Ok(None);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Some(keys.finish()?))
}
