//! The oracle as writers share it, and the file of events.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use larder_nbd::client::ClientError;
use parking_lot::{Mutex, MutexGuard};

use crate::event::Event;
use crate::oracle::{Oracle, Wrong};

/// Why a round ended before its time.
#[derive(Debug)]
pub(crate) enum End {
    /// The server is gone.
    Killed,
    /// The server did what it must not.
    Wrong(String),
}

impl From<Wrong> for End {
    fn from(Wrong(why): Wrong) -> Self {
        Self::Wrong(why)
    }
}

impl From<ClientError> for End {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Io(_) | ClientError::Closed(_) => Self::Killed,
            other => Self::Wrong(other.to_string()),
        }
    }
}

/// Where events are kept for a later look.
pub(crate) struct Journal {
    events: File,
    /// The log of the device below the store.
    log: PathBuf,
}

impl Journal {
    /// Begins a new file.
    pub(crate) fn create(events: &Path, log: &Path) -> std::io::Result<Self> {
        Ok(Self { events: File::create_new(events)?, log: log.to_owned() })
    }
}

/// What all writers know.
pub(crate) struct Shared {
    oracle: Mutex<(Oracle, Option<Journal>)>,
    numbers: AtomicU64,
}

impl Shared {
    pub(crate) fn new(oracle: Oracle, journal: Option<Journal>) -> Self {
        Self { oracle: Mutex::new((oracle, journal)), numbers: AtomicU64::new(1) }
    }

    /// A number that no write and no snapshot has.
    pub(crate) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Takes note of an event that has the given place in the log, which is 0 without a log.
    pub(crate) fn note(&self, event: impl FnOnce(u64) -> Event) {
        let (oracle, journal) = &mut *self.oracle.lock();
        let place = match journal {
            Some(journal) => std::fs::metadata(&journal.log).expect("there is a log").len(),
            None => 0,
        };
        let event = event(place);
        oracle.note(&event);
        if let Some(journal) = journal {
            journal.events.write_all(event.line().as_bytes()).expect("there is space for events");
        }
    }

    /// The oracle, for one user at a time.
    pub(crate) fn oracle(&self) -> parking_lot::MappedMutexGuard<'_, Oracle> {
        MutexGuard::map(self.oracle.lock(), |(oracle, _)| oracle)
    }
}
