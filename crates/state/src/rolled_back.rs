//! What a machine remembers and the repository has no trace of.

use larder_format::ids::DomainId;
use larder_format::lease::Pin;
use larder_format::names;

use crate::seen::{Seen, SeenIndex};

/// The repository is older than this machine remembers it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RolledBack {
    /// A version is gone.
    #[error("snapshot {} was made here and is gone, and nothing says that it was forgotten", version.job.short())]
    Version {
        /// The version.
        version: Pin,
    },
    /// An index is gone.
    #[error("index {}, which this machine saw, is gone; {}", seen.number, Newest(seen.number, *newest))]
    Index {
        /// The index that this machine saw.
        seen: SeenIndex,
        /// The newest that is there now; 0: none.
        newest: u64,
    },
    /// A domain is open again.
    #[error("{} is gone or damaged: this machine saw that it closed a domain", names::closed(*domain))]
    Closing {
        /// The domain.
        domain: DomainId,
    },
}

/// What there is in the place of an index.
struct Newest(u64, u64);

impl std::fmt::Display for Newest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self(_, 0) => f.write_str("there is none"),
            Self(seen, newest) if seen == newest => write!(f, "another index {newest} is in its place"),
            Self(_, newest) => write!(f, "the newest is {newest}"),
        }
    }
}

impl Seen {
    /// The domains that this machine saw closed, and that are open. Only for what was seen before
    /// the repository was looked at.
    pub fn opened_again(&self, is_closed: impl Fn(DomainId) -> bool) -> Vec<RolledBack> {
        let open = self.closed().iter().filter(|domain| !is_closed(**domain));
        open.map(|domain| RolledBack::Closing { domain: *domain }).collect()
    }

    /// The index that this machine saw, if the newest one in the repository is older, or another
    /// one of the same number. Only for what was seen *before* the repository was looked at:
    /// another process of this machine may publish meanwhile.
    pub fn lost_index(&self, newest: SeenIndex) -> Option<RolledBack> {
        let seen = self.index?;
        let is_lost = seen.number >= newest.number && !seen.is(&newest);
        is_lost.then_some(RolledBack::Index { seen, newest: newest.number })
    }
}
