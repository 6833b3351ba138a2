//! Pins: versions that must not be forgotten, and forgetting, which must not happen to them. In the
//! same entries are the tags that a version got later (`tags.rs`).
//!
//! Numbered entries (`larder_format::pinning`) say whether a version is pinned, and the highest
//! that opens counts. Every change is a create-if-absent of the next number, after reading those
//! there are. Of two changes at once one wins, and the other reads again. Forgetting is a change
//! like the others, but always the last one. Only its winner makes the mark. Whatever fails in
//! between, a version is never pinned and marked at once:
//! * a pin that exists makes forgetting fail before the mark;
//! * forgetting that exists makes a pin fail, also when the mark does not exist yet or never will.
//!   Forgetting again finishes it.
//!
//! Any client may put entries there that do not open. They pin nothing and hide nothing, but may
//! have been real entries. A version with one above its last entry is not forgotten before another
//! entry states the intention.

use std::collections::BTreeMap;

use futures::{StreamExt, TryStreamExt};
use larder_format::ErrorKind;
use larder_format::lease::Pin;
use larder_format::mark::{Forgotten, MARK_MAX};
use larder_format::names;
use larder_format::pinning::{PinEntry, PinState};

use crate::forget_marks::{FaultyObject, OwnedVersion, read_if_there};
use crate::repository::{CONCURRENT_READS, Repository, RepositoryError, exists, random};
use crate::{Store, StoreErrorKind};

/// How often a change is tried while others change the same pin, or hold numbers with garbage.
pub(crate) const TRIES: u32 = 64;

/// How often a line is listed when its entries vanish between listing and reading.
const LOOKS: u32 = 3;

/// A pin could not be changed, or a version not be forgotten.
#[derive(Debug, thiserror::Error)]
pub enum PinError {
    /// The version must not be forgotten.
    #[error("the version is pinned (on {}: {})", entry.host, entry.reason)]
    Pinned {
        /// Who pinned it, when and why.
        entry: PinEntry,
    },
    /// An entry does not open, and might have pinned it.
    #[error("{name} cannot be read, and it may say that the version is pinned")]
    Unclear {
        /// The entry.
        name: String,
    },
    /// It is too late to pin it.
    #[error("the version is forgotten, or about to be (on {}: {})", entry.host, entry.reason)]
    Forgotten {
        /// Who forgot it, when and why.
        entry: PinEntry,
    },
    /// Its tags changed after somebody decided to forget it.
    #[error("the tags of the version changed meanwhile")]
    Retagged,
    /// An entry cannot hold all of these tags.
    #[error("these tags together are too long")]
    TooManyTags,
    /// There is nothing left of it to be pinned.
    #[error("the version is forgotten and being removed")]
    Gone,
    /// Others change the pin all the time.
    #[error("somebody else changes the pin of this version all the time")]
    Contended,
    /// The repository failed.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
}

impl PinError {
    /// How a caller can react to it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Pinned { .. } | Self::Unclear { .. } | Self::Forgotten { .. } | Self::TooManyTags | Self::Gone => {
                ErrorKind::Precondition
            }
            Self::Contended | Self::Retagged => ErrorKind::LostRace,
            Self::Repository(error) => error.kind(),
        }
    }
}

/// An entry that changes a pin. Its tags are those of the entry before.
fn entry(state: PinState, time_ms: u64, host: &str, reason: &str) -> PinEntry {
    PinEntry { state, time_ms, host: host.to_owned(), reason: reason.to_owned(), tags: None }
}

/// How reasons of holds begin (`holds.rs`).
pub(crate) const HELD: &str = "held: ";

/// Whether an entry is a hold. A pin over it is an entry of its own.
fn is_hold(entry: &PinEntry) -> bool {
    entry.state == PinState::Pinned && entry.reason.starts_with(HELD)
}

/// The entries of one version.
#[derive(Debug, Default)]
pub struct PinLine {
    /// The last entry that opens, if any.
    pub last: Option<PinEntry>,
    /// Entries after that which do not open.
    pub faulty: Vec<FaultyObject>,
    /// The number after the highest there is.
    pub(crate) next: u32,
    /// Whether an entry that was listed was not there when it was read.
    has_vanished: bool,
}

impl PinLine {
    /// Whether the version is pinned.
    pub fn is_pinned(&self) -> bool {
        self.last.as_ref().is_some_and(|entry| entry.state == PinState::Pinned)
    }

    /// Whether the version must not be forgotten: it is pinned, or may be.
    pub fn forbids_forgetting(&self) -> bool {
        let is_going = self.last.as_ref().is_some_and(|entry| entry.state == PinState::Forgetting);
        !is_going && (self.is_pinned() || !self.faulty.is_empty())
    }
}

impl Repository {
    /// Pins a version: it is not forgotten until it is unpinned. Done as well if it is pinned
    /// already.
    pub async fn pin(
        &self,
        version: impl Into<OwnedVersion>,
        time_ms: u64,
        host: &str,
        reason: &str,
    ) -> Result<(), PinError> {
        let owned = version.into();
        let version = owned.version;
        self.change_pin(owned, &entry(PinState::Pinned, time_ms, host, reason), None).await?;
        self.expect_there(version).await
    }

    /// An error if the version is gone, so that nothing can be said of it.
    pub(crate) async fn expect_there(&self, version: Pin) -> Result<(), PinError> {
        // A pass removes the entries of a forgotten version after its register and before its mark,
        // and then the numbers are free again. Its contents have no meaning.
        let store = self.store.without_cache();
        let is_there = exists(&store, &names::version(version.series, version.job, 0)).await;
        if is_there.map_err(RepositoryError::from)? { Ok(()) } else { Err(PinError::Gone) }
    }

    /// Lets a version be forgotten again. Done as well if it is not pinned.
    pub async fn unpin(
        &self,
        version: impl Into<OwnedVersion>,
        time_ms: u64,
        host: &str,
        reason: &str,
    ) -> Result<(), PinError> {
        let owned = version.into();
        self.change_pin(owned, &entry(PinState::Unpinned, time_ms, host, reason), None).await
    }

    /// Forgets a version unless it is pinned. Succeeds also if another program has forgotten it
    /// before.
    pub async fn forget(&self, version: impl Into<OwnedVersion>, mark: &Forgotten) -> Result<(), PinError> {
        self.forget_decided(version.into(), mark, None).await
    }

    /// The same, unless its tags have changed since the decision, which was made with these.
    pub async fn forget_decided(
        &self,
        version: OwnedVersion,
        mark: &Forgotten,
        tags: Option<&[String]>,
    ) -> Result<(), PinError> {
        let Forgotten { time_ms, host, reason } = mark;
        self.change_pin(version, &entry(PinState::Forgetting, *time_ms, host, reason), tags).await?;
        Ok(self.mark_forgotten(version, mark).await?)
    }

    /// Brings a pin into a state, or finds that it cannot be. The tags stay as they are. It is an
    /// error if others were `decided` on.
    async fn change_pin(
        &self,
        owned: OwnedVersion,
        wanted: &PinEntry,
        decided: Option<&[String]>,
    ) -> Result<(), PinError> {
        for _ in 0..TRIES {
            let line = self.pin_line(owned.version).await?;
            let unclear = line.faulty.into_iter().next();
            let tags = line.last.as_ref().and_then(|entry| entry.tags.clone());
            match (line.last, wanted.state, unclear) {
                // No entry follows this one, so any later object is garbage.
                (Some(entry), state, _) if entry.state == PinState::Forgetting => match state {
                    PinState::Forgetting => return Ok(()),
                    _ => return Err(PinError::Forgotten { entry }),
                },
                (Some(entry), PinState::Forgetting, _) if entry.state == PinState::Pinned => {
                    return Err(PinError::Pinned { entry });
                }
                (_, PinState::Forgetting, Some(object)) => return Err(PinError::Unclear { name: object.name }),
                (_, PinState::Forgetting, None)
                    if decided.is_some() && tags.is_some() && tags.as_deref() != decided =>
                {
                    return Err(PinError::Retagged);
                }
                (Some(entry), state, None) if entry.state == state && !is_hold(&entry) => return Ok(()),
                (None, PinState::Unpinned, None) => return Ok(()),
                _ => {}
            }
            if self.create_entry(owned, line.next, &PinEntry { tags, ..wanted.clone() }).await? {
                return Ok(());
            }
        }
        Err(PinError::Contended)
    }

    /// Creates an entry under the next number of its line. `false` if another one took it, or
    /// that is unclear.
    pub(crate) async fn create_entry(
        &self,
        owned: OwnedVersion,
        number: u32,
        entry: &PinEntry,
    ) -> Result<bool, PinError> {
        let OwnedVersion { domain, version } = owned;
        let name = names::pin(version.series, version.job, number);
        let salt = random(self.entropy())?;
        let bytes = entry
            .encode(&self.keys, domain, version.series, version.job, number, salt)
            .map_err(RepositoryError::from)?;
        match self.store.create(&name, bytes.clone().into()).await {
            // People rely on it: a store that says "created" and has nothing is asked once more.
            Ok(_) => {
                let stored = read_if_there(&self.store.without_cache(), &name, MARK_MAX).await?;
                Ok(stored.is_some_and(|stored| *stored == *bytes))
            }
            Err(error) if error.kind == StoreErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(RepositoryError::from(error).into()),
        }
    }

    /// The state of one version's pin, asked of the store and never of a cache.
    pub async fn pin_line(&self, version: Pin) -> Result<PinLine, RepositoryError> {
        let store = self.store.without_cache();
        for _ in 1..LOOKS {
            let line = self.look_at_pin_line(&store, version).await?;
            if !line.has_vanished {
                return Ok(line);
            }
        }
        self.look_at_pin_line(&store, version).await
    }

    async fn look_at_pin_line(&self, store: &Store, version: Pin) -> Result<PinLine, RepositoryError> {
        let mut numbers = Vec::new();
        for object in store.list(&names::pins_of(version.series, version.job)).await? {
            numbers.extend(names::parse_pin(&object.name).map(|(.., number)| number));
        }
        self.read_pin_line(version, numbers).await
    }

    /// The state of every version that must not be forgotten. Entries that do not open are logged.
    pub async fn pinned(&self) -> Result<BTreeMap<Pin, PinLine>, RepositoryError> {
        let mut pinned = self.pin_lines().await?;
        pinned.retain(|_, line| line.forbids_forgetting());
        Ok(pinned)
    }

    /// The pins and the later tags of all versions that have some. Entries that do not open are
    /// logged.
    pub async fn pin_lines(&self) -> Result<BTreeMap<Pin, PinLine>, RepositoryError> {
        let lines = self.all_pin_lines().await?;
        for object in lines.values().flat_map(|line| &line.faulty) {
            tracing::warn!(object = %object.name, error = %object.error, "not what its name says; it is ignored");
        }
        Ok(lines)
    }

    /// Entries that do not open, of all versions, by name: for `check`. A line of which an entry is
    /// gone since the listing is listed again.
    pub async fn faulty_pins(&self) -> Result<Vec<FaultyObject>, RepositoryError> {
        let mut faulty = Vec::new();
        for (version, line) in self.all_pin_lines().await? {
            let line = if line.has_vanished { self.pin_line(version).await? } else { line };
            faulty.extend(line.faulty);
        }
        Ok(faulty)
    }

    /// The entries of all versions that have some, from one listing.
    async fn all_pin_lines(&self) -> Result<BTreeMap<Pin, PinLine>, RepositoryError> {
        let listed = self.list_pins().await?;
        let reads = listed
            .into_iter()
            .map(|(version, numbers)| async move { Ok((version, self.read_pin_line(version, numbers).await?)) });
        futures::stream::iter(reads).buffer_unordered(CONCURRENT_READS).try_collect().await
    }

    async fn read_pin_line(&self, version: Pin, mut numbers: Vec<u32>) -> Result<PinLine, RepositoryError> {
        let Pin { series, job } = version;
        numbers.sort_unstable();
        let next = numbers.last().map_or(0, |last| last.saturating_add(1));
        let mut line = PinLine { next, ..PinLine::default() };
        let store = self.store.without_cache();
        while let Some(number) = numbers.pop() {
            let name = names::pin(series, job, number);
            let read = async {
                let Some(bytes) = read_if_there(&store, &name, MARK_MAX).await? else { return Ok(None) };
                let entry = PinEntry::decode(&self.keys, series, job, number, &bytes);
                entry.map(Some).map_err(RepositoryError::damaged(&*name))
            };
            match read.await {
                Ok(Some(entry)) => {
                    line.last = Some(entry);
                    break;
                }
                // Deleted since the listing, with everything else of its version: another listing
                // says whether that is so.
                Ok(None) => line.has_vanished = true,
                // Of a version of another machine, which this key does not see.
                Err(error) if error.is_foreign() => {}
                Err(error) if error.is_of_object() => line.faulty.push(FaultyObject { name, job, error }),
                Err(error) => return Err(error),
            }
        }
        Ok(line)
    }
}
