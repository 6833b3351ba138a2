//! [`Unlisted`]: entries that a listing cannot examine, noted instead of ending it.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::error::StoreError;
use crate::layer::Listed;

/// Entries that listings could not examine: objects, and folders with a slash at their ends.
#[derive(Debug, Default)]
pub struct Unlisted {
    found: Mutex<BTreeMap<String, StoreError>>,
}

impl Unlisted {
    /// Notes one. An object is listed all the same: by name, without bytes, and never as old.
    pub(crate) fn note(&self, error: StoreError) -> Option<Listed> {
        let name = error.name.clone();
        tracing::warn!(entry = %name, error = ?error.source, "cannot be examined; the listing goes on");
        let object = (!name.ends_with('/')).then(|| Listed { name: name.clone(), size: 0, modified_ms: u64::MAX });
        self.found.lock().insert(name, error);
        object
    }

    /// Takes the entries noted so far, by name.
    pub fn take(&self) -> Vec<StoreError> {
        std::mem::take(&mut *self.found.lock()).into_values().collect()
    }
}
