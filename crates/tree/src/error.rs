//! Why something in the tree cannot be had.

use larder_format::ErrorKind;
use larder_format::ids::JobId;
use larder_reader::RandomError;
use larder_store::RepositoryError;

/// See the module header.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// There is no such name or number.
    #[error("there is no such file")]
    NotFound,
    /// The snapshot was forgotten while nothing in it was in use.
    #[error("snapshot {} was forgotten", id.short())]
    Forgotten {
        /// Its id.
        id: JobId,
    },
    /// It is not a folder.
    #[error("it is not a folder")]
    NotAFolder,
    /// It is a folder.
    #[error("it is a folder")]
    IsAFolder,
    /// It is something else than this question is about.
    #[error("it has no such thing")]
    Unsuitable,
    /// It has no such attribute.
    #[error("it has no such attribute")]
    NoAttribute,
    /// The mount has no number for it.
    #[error("the mount has no room for more")]
    NoRoom,
    /// Its data cannot be read.
    #[error(transparent)]
    Contents(#[from] RandomError),
    /// The repository failed, or its data is damaged.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
}

impl TreeError {
    /// The reaction that a caller can choose.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NotFound
            | Self::Forgotten { .. }
            | Self::NotAFolder
            | Self::IsAFolder
            | Self::Unsuitable
            | Self::NoAttribute => ErrorKind::Precondition,
            Self::NoRoom => ErrorKind::Resource,
            Self::Contents(error) => error.kind(),
            Self::Repository(error) => error.kind(),
        }
    }

    /// Whether data is in cold storage and has to be thawed first.
    pub fn is_cold(&self) -> bool {
        match self {
            Self::Repository(error) | Self::Contents(RandomError::Repository(error)) => error.is_cold(),
            _ => false,
        }
    }

    /// Whether data is missing or damaged.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Repository(error) | Self::Contents(RandomError::Repository(error)) => error.is_damage(),
            // Reads end at the size of the file, so its contents are shorter than its entry says.
            Self::Contents(RandomError::BeyondEnd { .. }) => true,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_shorter_than_the_entry_are_damage() {
        let short = RandomError::BeyondEnd { offset: 4096, length: 10, size: 4000 };
        assert!(TreeError::from(short).is_damage());
        assert!(!TreeError::from(RandomError::Interrupted).is_damage());
        assert!(!TreeError::NotFound.is_damage());
    }
}
