//! One object under `keys/`: reading it, and opening it with a password.

use bytes::Bytes;
use larder_format::ids::{KeyId, RepositoryId};
use larder_format::key_file::{self, KEY_MAX, Unlock, UnwrapError};
use larder_format::keys::Secrets;
use larder_format::names;

use crate::{Store, StoreError, StoreErrorKind};

/// Reads a key object; `None` when it is not there (any more).
pub(crate) async fn read_key(store: &Store, id: KeyId) -> Result<Option<Bytes>, StoreError> {
    match store.get_sound(&names::key(id), KEY_MAX, |bytes| key_file::read_fields(bytes).is_ok()).await {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind == StoreErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// argon2id takes tens of milliseconds of a core: not on a thread that serves I/O.
pub(crate) async fn unwrap_off_thread(
    bytes: Bytes,
    password: &[u8],
    id: KeyId,
    repository: RepositoryId,
) -> Result<Secrets, UnwrapError> {
    let password = zeroize::Zeroizing::new(password.to_vec());
    let work = move || key_file::unwrap(&bytes, Unlock::Password(&password), id, repository);
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}
