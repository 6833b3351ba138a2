//! Holds: pins for a moment, while another version is forgotten for the sake of this one.
//!
//! A successor must not be forgotten between the look at it and the mark of its predecessor. A hold
//! is an entry in the line of its pins (`pins.rs`), so it competes with forgetting like any pin.
//! Its end is the next entry, and brings back the state before it. If somebody pins, unpins or tags
//! the version meanwhile, that entry has this number, and stays. A tag then leaves the version
//! pinned, and so does a program that dies in between, until somebody unpins it.

use larder_format::pinning::{PinEntry, PinState};

use crate::forget_marks::OwnedVersion;
use crate::pins::{HELD, PinError, TRIES};
use crate::repository::Repository;

/// A version that is held. Two programs that hold one version at once may leave it pinned.
#[derive(Debug)]
pub struct Hold {
    owned: OwnedVersion,
    /// The number of its entry.
    number: u32,
    entry: PinEntry,
    /// The entry before it.
    before: Option<PinEntry>,
}

impl Repository {
    /// Holds a version: it is not forgotten before [`Self::release`].
    ///
    /// # Errors
    /// It is forgotten, or about to be; its pin is unclear, or others change it all the time.
    pub async fn hold(
        &self,
        version: impl Into<OwnedVersion>,
        time_ms: u64,
        host: &str,
        reason: &str,
    ) -> Result<Hold, PinError> {
        let owned = version.into();
        for _ in 0..TRIES {
            let line = self.pin_line(owned.version).await?;
            // The hold would count in the place of an entry that may be a real pin.
            if let Some(object) = line.faulty.into_iter().next() {
                return Err(PinError::Unclear { name: object.name });
            }
            let before = line.last;
            if let Some(entry) = before.as_ref().filter(|entry| entry.state == PinState::Forgetting) {
                return Err(PinError::Forgotten { entry: entry.clone() });
            }
            let tags = before.as_ref().and_then(|entry| entry.tags.clone());
            let (host, reason) = (host.to_owned(), format!("{HELD}{reason}"));
            let entry = PinEntry { state: PinState::Pinned, time_ms, host, reason, tags };
            if self.create_entry(owned, line.next, &entry).await? {
                self.expect_there(owned.version).await?;
                return Ok(Hold { owned, number: line.next, entry, before });
            }
        }
        Err(PinError::Contended)
    }

    /// Ends a hold. What somebody did with the version meanwhile stays.
    ///
    /// # Errors
    /// The store fails. Then the version may stay pinned.
    pub async fn release(&self, hold: Hold, time_ms: u64) -> Result<(), PinError> {
        let Hold { owned, number, entry, before } = hold;
        let after = before.unwrap_or(PinEntry { state: PinState::Unpinned, time_ms, ..entry });
        // Anything else with this number came between.
        self.create_entry(owned, number.saturating_add(1), &after).await.map(drop)
    }
}
