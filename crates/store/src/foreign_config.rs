//! The object `config` of another program: the place is no repository of Larder, and nothing there
//! is damaged.
//!
//! Its first bytes alone do not tell: those of a damaged configuration may be anything. So a place
//! with any object of Larder counts as damaged.

use futures::StreamExt;
use larder_format::config::CONFIG_MAX;
use larder_format::{DecodeError, names};

use crate::other_program::OtherProgram;
use crate::repository::RepositoryError;
use crate::{Store, StoreError};

/// The first bytes of the file `config` of Borg.
const BORG: &[u8] = b"[repository]";
/// Digits of the names of keys, snapshots and packs of restic. Keys of Larder have fewer.
const RESTIC_DIGITS: usize = 64;
/// Names that are looked at below a folder.
const LOOKED_AT: usize = 16;

/// The error of reading `config`, or [`RepositoryError::OtherConfig`] if another program made it.
pub(crate) async fn or_of_other_program(store: &Store, error: RepositoryError) -> RepositoryError {
    if !matches!(&error, RepositoryError::Damaged { source: DecodeError::BadMagic { .. }, .. }) {
        return error;
    }
    let program = recognized(store).await;
    // Other programs have many objects, and looking for one of Larder would list all.
    if program.is_none() && !matches!(first_object(store).await, Ok(None)) {
        return error;
    }
    RepositoryError::OtherConfig { location: store.to_string(), program }
}

/// The program that made the repository at this place, if it is a known one. What cannot be read
/// tells nothing.
async fn recognized(store: &Store) -> Option<OtherProgram> {
    if store.get_up_to(names::CONFIG, CONFIG_MAX).await.is_ok_and(|bytes| bytes.starts_with(BORG)) {
        return Some(OtherProgram::Borg);
    }
    let mut keys = store.list_stream(names::KEYS).take(LOOKED_AT);
    let mut has_key = false;
    while let Some(object) = keys.next().await {
        let name = object.ok()?.name;
        if names::is_object(&name) {
            return None;
        }
        has_key |= name.strip_prefix(names::KEYS).is_some_and(is_of_restic);
    }
    has_key.then_some(OtherProgram::Restic)
}

fn is_of_restic(name: &str) -> bool {
    name.len() == RESTIC_DIGITS && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The first object of a repository at this place, whichever repository that is.
pub(crate) async fn first_object(store: &Store) -> Result<Option<String>, StoreError> {
    let folders = [
        names::KEYS,
        names::VERSIONS,
        names::DATA,
        names::META,
        names::JOBS,
        names::INDEX,
        names::INDEXED,
        names::FORGOTTEN,
        names::PINS,
        names::SETTINGS,
        names::CLOSED,
        names::FLEET,
    ];
    for folder in folders {
        let mut listing = store.list_stream(folder);
        while let Some(object) = listing.next().await {
            let name = match object {
                Ok(object) => object.name,
                Err(error) if error.is_unlisted() => error.name,
                Err(error) => return Err(error),
            };
            if names::is_object(&name) || name.ends_with('/') {
                return Ok(Some(name));
            }
        }
    }
    Ok(None)
}
