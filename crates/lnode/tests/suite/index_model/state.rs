//! Indexes, marks and containers, where each pass stands, and what the store may answer wrongly.

/// Numbers of indexes, from 1 on.
pub(crate) const NUMBERS: usize = 6;
/// Attempts, and the containers they write. Number 0 is the first container, of which no index says anything.
pub(crate) const ATTEMPTS: u8 = 5;

/// A set of containers.
pub(crate) type Containers = u8;

pub(crate) fn bit(container: u8) -> Containers {
    1 << container
}

/// What an index says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Index {
    pub(crate) attempt: u8,
    /// Where the chunk is, or may be when the index was rebuilt.
    pub(crate) at: Containers,
    pub(crate) is_rebuilt: bool,
    pub(crate) is_rotten: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Mark {
    Attempt(u8),
    Void,
}

/// The next request of a pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum At {
    #[default]
    Idle,
    /// List the indexes.
    Indexes,
    /// Read the highest index that is left.
    Read,
    /// Ask for the index that the highest mark names.
    ByName,
    /// Create the void mark of the index that cannot be read, and read it.
    Void,
    VoidAgain,
    /// Create the mark of the index to build on, and read it.
    MarkBase,
    MarkBaseAgain,
    /// List containers, and decide.
    Decide,
    /// The same again, for a rebuild.
    DecideAgain,
    /// Write the container, and ask for it.
    Write,
    Seen,
    Create,
    Mark,
    MarkAgain,
    /// List the marks, then the indexes.
    LookAtMarks,
    LookAfterMark,
}

/// One pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Pass {
    pub(crate) at: At,
    /// Numbers of marks and indexes that it saw and has not passed over; what the marks say.
    pub(crate) marked: u8,
    pub(crate) marks: [Option<Mark>; NUMBERS + 1],
    pub(crate) indexes: u8,
    /// The index that it builds on, by number; nothing when it rebuilds.
    pub(crate) base: u8,
    pub(crate) base_index: Option<Index>,
    pub(crate) is_rebuilding: bool,
    pub(crate) number: u8,
    pub(crate) attempt: u8,
    pub(crate) new: Option<Index>,
    pub(crate) doomed: Containers,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) indexes: [Option<Index>; NUMBERS + 1],
    pub(crate) marks: [Option<Mark>; NUMBERS + 1],
    pub(crate) containers: Containers,
    /// Deletes under way: of containers, of indexes, of marks.
    pub(crate) doomed: Containers,
    pub(crate) stale_indexes: u8,
    pub(crate) stale_marks: u8,
    pub(crate) passes: [Pass; 2],
    pub(crate) next_attempt: u8,
    /// Attempts whose pass said that it is over, and the number that each claims.
    pub(crate) closed: u8,
    pub(crate) claims: [u8; ATTEMPTS as usize + 1],
    pub(crate) has_lied: bool,
    /// An index vanished, or cannot be read any more.
    pub(crate) is_damaged: bool,
    /// For the examples that must be reachable.
    pub(crate) was_void: bool,
    pub(crate) was_rebuilt: bool,
    /// Makers that woke when their index was gone: before they created its mark, read it, looked.
    pub(crate) woke: u8,
}

/// What goes wrong with one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lie {
    /// A listing lacks one number, or one container.
    Lacks(u8),
    LacksAll,
    /// "Not found", or bytes that do not open.
    Unreadable,
    NotApplied,
    Exists,
}

pub(crate) fn numbers(set: u8) -> impl DoubleEndedIterator<Item = u8> {
    (1..=NUMBERS as u8).filter(move |number| set & bit(*number) != 0)
}

pub(crate) fn present<T>(objects: &[Option<T>]) -> u8 {
    objects
        .iter()
        .enumerate()
        .filter(|(_, object)| object.is_some())
        .fold(0, |all, (number, _)| all | bit(number as u8))
}

pub(crate) fn show(lie: Option<Lie>, all: u8) -> u8 {
    match lie {
        Some(Lie::Lacks(one)) => all & !bit(one),
        Some(Lie::LacksAll) => 0,
        _ => all,
    }
}

/// Forgets what nobody asks for any more, so that equal futures are equal states.
pub(crate) fn tidy(state: &mut State) {
    state.doomed &= state.containers;
    state.stale_indexes &= present(&state.indexes);
    state.stale_marks &= present(&state.marks);
    for attempt in 0..=ATTEMPTS {
        let is_running = state.passes.iter().any(|pass| pass.attempt == attempt);
        if state.containers & bit(attempt) == 0 && !is_running {
            (state.closed, state.claims[attempt as usize]) = (state.closed & !bit(attempt), 0);
        }
    }
    for pass in state.passes.iter_mut().filter(|pass| pass.at >= At::Decide) {
        (pass.marked, pass.marks, pass.indexes) = (0, [None; NUMBERS + 1], 0);
        if pass.at > At::Decide {
            pass.base_index = None;
        }
    }
    // Which node it is makes no difference.
    state.passes.sort_unstable();
}

impl State {
    /// The highest index that no mark calls void.
    pub(crate) fn newest(&self) -> Option<(u8, Index)> {
        let counts = |number: &u8| self.marks[*number as usize] != Some(Mark::Void);
        let newest = numbers(present(&self.indexes)).rfind(counts)?;
        self.indexes[newest as usize].map(|index| (newest, index))
    }

    /// Whether the newest index is what the highest mark names, or newer.
    pub(crate) fn is_told(&self) -> bool {
        let named = numbers(present(&self.marks)).rfind(|number| self.marks[*number as usize] != Some(Mark::Void));
        match (named, self.newest()) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(named), Some((newest, index))) => {
                newest > named || (newest == named && self.marks[named as usize] == Some(Mark::Attempt(index.attempt)))
            }
        }
    }

    /// Whether there is a higher index than `number` that is not void.
    pub(crate) fn is_overtaken(&self, number: u8, seen: u8) -> bool {
        numbers(seen).any(|other| other > number && self.marks[other as usize] != Some(Mark::Void))
    }
}
