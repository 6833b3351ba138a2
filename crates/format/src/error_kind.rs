//! [`ErrorKind`]: how a caller can react to a failure. Every error type of the workspace that
//! reaches the command line has a method `kind`, next to its variants. Only the command line knows
//! which exit code a kind has.

/// How a caller can react to a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The store gave no usable answer. The same request may succeed later, without any change.
    Retry,
    /// The store, its bucket or the credentials for it cannot be used until a person changes one of
    /// them.
    Unusable,
    /// The credentials do not allow to delete.
    DeleteDenied,
    /// No space is left where something was to be written, or a quota is used up.
    Full,
    /// Another program was first, or aborted this job. The same request starts from the new state.
    LostRace,
    /// Bytes that the repository needs are damaged or missing.
    Damaged,
    /// There is no repository at this place.
    NoRepository,
    /// The password or the key does not open the repository.
    BadKey,
    /// An argument has no meaning, independent of the contents of the repository.
    BadRequest,
    /// A valid request that cannot be met: its subject does not exist, is protected, or was written
    /// by a newer program.
    Precondition,
    /// Threads, memory, local files or numbers ran out, or this machine cannot use them.
    Resource,
    /// The job was asked to stop.
    Interrupted,
    /// A mistake of the program.
    Bug,
}

impl ErrorKind {
    /// Every kind.
    pub const ALL: [Self; 13] = [
        Self::Retry,
        Self::Unusable,
        Self::DeleteDenied,
        Self::Full,
        Self::LostRace,
        Self::Damaged,
        Self::NoRepository,
        Self::BadKey,
        Self::BadRequest,
        Self::Precondition,
        Self::Resource,
        Self::Interrupted,
        Self::Bug,
    ];
}
