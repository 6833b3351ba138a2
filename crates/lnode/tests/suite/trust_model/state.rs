//! The bucket, what the index and the G-node know, and the job of the client.

/// Containers with the data of one file, and names of some.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Container {
    /// Of the client's first version. Once it is deleted, its name is free.
    First,
    /// Of the same version, without the file.
    Beside,
    /// Of the client's next backup.
    Second,
    /// The thief's. It holds other bytes, and its table says so.
    Stolen,
    /// The thief's. Its table says that it holds the true bytes.
    Lying,
    /// What the G-node wrote for a generation.
    Rewritten(u8),
    /// To where a pass moved the contents of the first.
    Moved,
    /// No object ever had this name.
    Nowhere,
}

impl Container {
    fn bit(self) -> u16 {
        1 << match self {
            Self::First => 0,
            Self::Beside => 1,
            Self::Second => 2,
            Self::Stolen => 3,
            Self::Lying => 4,
            Self::Moved => 5,
            Self::Nowhere => 6,
            Self::Rewritten(generation) => 6 + u16::from(generation),
        }
    }
}

/// A set of containers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Set(u16);

impl Set {
    pub(crate) fn of(containers: &[Container]) -> Self {
        Self(containers.iter().fold(0, |bits, container| bits | container.bit()))
    }

    pub(crate) fn has(self, container: Container) -> bool {
        self.0 & container.bit() != 0
    }

    pub(crate) fn insert(&mut self, container: Container) {
        self.0 |= container.bit();
    }

    pub(crate) fn remove(&mut self, container: Container) {
        self.0 &= !container.bit();
    }

    pub(crate) fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// What a record says that the file holds: its fingerprint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Bytes {
    /// What the client has.
    True,
    /// What somebody else wants it to have.
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Domain {
    /// The client's.
    Own,
    Other,
}

/// A register: generation 0 of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Version {
    pub(crate) says: Bytes,
    pub(crate) at: Container,
    /// Of the container with its metadata.
    pub(crate) metadata: Domain,
    /// It has the witness of the client.
    pub(crate) is_witnessed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Maker {
    GNode,
    /// Somebody with the key of an operator, who puts what is not true above it.
    Signer,
    /// Somebody who cannot sign.
    Thief,
}

/// A later generation of the first version. Its summary and its digests are those of generation 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Generation {
    pub(crate) by: Maker,
    pub(crate) at: Container,
    pub(crate) metadata: Domain,
    /// The generation that it was rewritten from.
    pub(crate) from: u8,
}

/// What has the name of a mark.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) enum Mark {
    #[default]
    Absent,
    Signed,
    Planted,
}

/// The next backup of the client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) enum Job {
    #[default]
    Begins,
    /// It has a lease, which names the first version or does not, and it will commit this.
    Runs {
        names_first: bool,
        commits: Version,
    },
    Over,
}

/// The client's versions, by number.
pub(crate) const FIRST: usize = 0;
pub(crate) const SECOND: usize = 1;

/// Everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// Registers of the client's versions.
    pub(crate) versions: [Option<Version>; 2],
    /// A version of the thief in the client's series. Its id says that it is the newest.
    pub(crate) stolen: Option<Version>,
    /// Generations 1 and 2 of the first version.
    pub(crate) generations: [Option<Generation>; 2],
    pub(crate) marks: [Mark; 2],
    /// An index above the others that nobody signed. It retires what the client has.
    pub(crate) has_planted_index: bool,
    pub(crate) there: Set,
    /// The object with the name of the first container is not that container.
    pub(crate) is_garbage: bool,

    /// By the index: containers whose chunks it finds.
    pub(crate) listed: Set,
    /// The highest proved generation of the first version.
    pub(crate) proved: u8,
    /// The first container was retired, and forwards to another.
    pub(crate) is_retired: bool,

    /// Generations that this process of the G-node wrote: bits.
    pub(crate) own: u8,
    pub(crate) job: Job,
    /// To passes it looks settled.
    pub(crate) is_settled: bool,
    /// Whatever the other domain had is lost.
    pub(crate) is_other_lost: bool,
    pub(crate) has_signed: bool,

    /// For the properties: versions that were committed, and that the operator forgot.
    pub(crate) committed: [bool; 2],
    pub(crate) forgotten: [bool; 2],
}

impl State {
    /// The client's first version.
    pub(crate) fn new() -> Self {
        Self {
            versions: [Some(Self::FIRST_VERSION), None],
            stolen: None,
            generations: [None; 2],
            marks: [Mark::Absent; 2],
            has_planted_index: false,
            there: Set::of(&[Container::First, Container::Beside]),
            is_garbage: false,
            listed: Set::default(),
            proved: 0,
            is_retired: false,
            own: 0,
            job: Job::Begins,
            is_settled: false,
            is_other_lost: false,
            has_signed: false,
            committed: [true, false],
            forgotten: [false; 2],
        }
    }

    pub(crate) const FIRST_VERSION: Version =
        Version { says: Bytes::True, at: Container::First, metadata: Domain::Own, is_witnessed: true };

    /// Whether reading a container gives the true bytes.
    pub(crate) fn holds_truth(&self, container: Container) -> bool {
        let is_true = match container {
            Container::First => !self.is_garbage,
            Container::Second | Container::Rewritten(_) | Container::Moved => true,
            Container::Beside | Container::Stolen | Container::Lying | Container::Nowhere => false,
        };
        is_true && self.there.has(container)
    }

    /// Whether the true bytes are anywhere.
    pub(crate) fn has_truth(&self) -> bool {
        Self::TRUE_PLACES.into_iter().any(|place| self.holds_truth(place))
    }

    /// Whether the index finds a place with the true bytes.
    pub(crate) fn finds_truth(&self) -> bool {
        Self::TRUE_PLACES.into_iter().any(|place| self.listed.has(place) && self.holds_truth(place))
    }

    const TRUE_PLACES: [Container; 5] =
        [Container::First, Container::Second, Container::Moved, Container::Rewritten(1), Container::Rewritten(2)];

    pub(crate) fn generation(&self, number: u8) -> Option<Generation> {
        number.checked_sub(1).and_then(|at| self.generations[usize::from(at)])
    }

    /// The highest generation that has an object.
    pub(crate) fn highest(&self) -> u8 {
        (1..=2).rev().find(|number| self.generation(*number).is_some()).unwrap_or(0)
    }

    /// Whether the lease of the client retains its first version.
    pub(crate) fn names_first(&self) -> bool {
        matches!(self.job, Job::Runs { names_first: true, .. }) && !self.is_settled
    }
}
