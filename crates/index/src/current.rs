//! Finds the index that counts, for passes that build on it or delete by its decisions.
//!
//! An index counts when its mark names its attempt (`mark`). So the highest genuine mark says which
//! index must exist. If it does not, it was lost, and the one before it must not be used instead.
//! An object with the name of an index that does not open is skipped only after its number was made
//! void (`VoidOrMarked`). Its maker may wake, and must then execute nothing.
//!
//! Invariants (`docs/concurrency.md`, "How a pass publishes")
//! * An index that a listing lacks is asked for by name, and looked for in a second listing, before
//!   it counts as lost.
//! * [`Current::settle`] leaves the index that it found marked. [`Current::look`] changes nothing.
//! * An object that does not open and is far above all that do was planted: no pass has reached
//!   that number.

use std::collections::BTreeSet;

use larder_format::ids::RunId;
use larder_format::index_mark::IndexMark;
use larder_store::rules::Rule;
use larder_store::{Repository, RepositoryError};

use crate::error::IndexError;
use crate::mark::{Mark, contest, list_marks, read_mark};
use crate::snapshot::{IndexSnapshot, listed, read};

/// How often listings are repeated when listed objects are gone. A pass deletes old manifests once;
/// several in a row mean trouble.
const LISTINGS: u32 = 6;

/// An unreadable mark counts for an index that was lost at most so far above the others. Passes
/// take one number after the other.
const UNREADABLE_WITHIN: u64 = 1 << 20;

/// Whether the index that counts is there.
#[derive(Debug)]
pub enum State {
    /// It is, or there has been none.
    Whole,
    /// It is gone, or something else has its name.
    Lost {
        /// Its number.
        number: u64,
    },
    /// It does not open.
    Damaged {
        /// Its number.
        number: u64,
        /// The reason.
        error: RepositoryError,
    },
}

/// The result of a look at indexes and marks.
#[derive(Debug)]
pub struct Current {
    /// The index that counts. When it is lost or damaged, the highest below it that opens; when
    /// there is none, the empty one.
    pub snapshot: IndexSnapshot,
    /// Whether it is there.
    pub state: State,
    /// The numbers of all indexes, rising.
    pub numbers: Vec<u64>,
    /// The numbers of all marks, rising.
    pub marks: Vec<u64>,
    /// All objects of runs, whether an index names them or not, with their sizes.
    pub runs: Vec<(RunId, u64)>,
    /// Numbers above the one that counts that are void, or were planted.
    passed: BTreeSet<u64>,
}

/// The number under which a pass tries to publish, and its knowledge when it took the number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// The number.
    pub number: u64,
    /// The number of the index that the pass builds on; 0 for a rebuild, which builds on none.
    pub(crate) base: u64,
    /// Numbers that were taken by indexes or marks.
    pub(crate) seen: BTreeSet<u64>,
    /// Those of them that are void, or were planted.
    pub(crate) passed: BTreeSet<u64>,
}

/// The objects under one number.
enum Found {
    Counts(Box<IndexSnapshot>),
    Lost,
    Damaged(RepositoryError),
    /// The mark is unreadable, and so is the index, or it is gone.
    Unclear(Option<RepositoryError>),
    Void,
    /// It was made void just now. Earlier listings may not hold any more.
    MadeVoid,
    /// It was deleted since the listing.
    Stale,
}

impl Current {
    /// Finds the index that counts. Changes nothing; asks the store, never a cache.
    pub async fn look(repository: &Repository) -> Result<Self, IndexError> {
        Self::find(repository, false).await
    }

    /// The same for a pass. Then the index that counts is marked, and an index that does not open
    /// and has no mark is void.
    pub async fn settle(repository: &Repository) -> Result<Self, IndexError> {
        Self::find(repository, true).await
    }

    async fn find(repository: &Repository, may_mark: bool) -> Result<Self, IndexError> {
        // A number that was found lost by the listings before.
        let mut lost = None;
        for _ in 0..LISTINGS {
            // Marks first: a pass that removes an index has created a higher mark before.
            let marks = list_marks(repository).await?;
            let (numbers, runs) = listed(repository).await?;
            let all: BTreeSet<u64> = marks.iter().chain(&numbers).copied().collect();
            let (mut passed, mut unclear) = (BTreeSet::new(), Vec::new());
            let mut state = State::Whole;
            let mut snapshot = IndexSnapshot::empty();
            let (mut is_stale, mut has_voided) = (false, false);
            for number in all.iter().rev().copied() {
                match look_at(repository, number, &marks, may_mark).await? {
                    Found::Void => drop(passed.insert(number)),
                    Found::MadeVoid => has_voided = true,
                    Found::Unclear(error) => unclear.push((number, error)),
                    Found::Stale => is_stale = true,
                    Found::Lost => state = State::Lost { number },
                    Found::Damaged(error) => state = State::Damaged { number, error },
                    Found::Counts(found) => snapshot = *found,
                }
                if is_stale || snapshot.number > 0 || !matches!(state, State::Whole) {
                    break;
                }
            }
            if is_stale || has_voided {
                continue;
            }
            let below = match &state {
                State::Whole => snapshot.number,
                State::Lost { number } | State::Damaged { number, .. } => *number,
            };
            // They come from the highest down.
            for (number, error) in unclear {
                if number.saturating_sub(below) > UNREADABLE_WITHIN {
                    passed.insert(number);
                    continue;
                }
                state = match error {
                    Some(error) => State::Damaged { number, error },
                    None => State::Lost { number },
                };
                break;
            }
            match state {
                State::Whole => {}
                State::Lost { number } if lost != Some(number) => {
                    lost = Some(number);
                    continue;
                }
                State::Lost { number } | State::Damaged { number, .. } => {
                    if snapshot.number == 0 {
                        snapshot = highest_below(repository, &numbers, number).await?;
                    }
                }
            }
            return Ok(Self { snapshot, state, numbers, marks, runs, passed });
        }
        Err(IndexError::Unstable { attempts: LISTINGS })
    }

    /// The index that counts, for passes that build on it or delete by its decisions: an error if
    /// it is lost or damaged.
    pub fn base(self) -> Result<IndexSnapshot, IndexError> {
        match self.state {
            State::Whole => Ok(self.snapshot),
            State::Lost { number } => Err(IndexError::NewestLost { number }),
            State::Damaged { error, .. } => Err(IndexError::NewestUnreadable { source: error }),
        }
    }

    /// The number for an index that is built on this one.
    pub fn turn(&self) -> Result<Turn, IndexError> {
        self.turn_above(self.snapshot.number, self.snapshot.number)
    }

    /// The number for an index that is built on none, above all that count or may come to, and
    /// above `claimed`.
    pub fn turn_of_rebuild(&self, claimed: u64) -> Result<Turn, IndexError> {
        let counts = match &self.state {
            State::Whole => self.snapshot.number,
            State::Lost { number } | State::Damaged { number, .. } => *number,
        };
        self.turn_above(counts.max(claimed), 0)
    }

    fn turn_above(&self, highest: u64, base: u64) -> Result<Turn, IndexError> {
        let seen: BTreeSet<u64> = self.numbers.iter().chain(&self.marks).copied().collect();
        let free = |number: &u64| !seen.contains(number);
        let number = (highest..u64::MAX).map(|number| number + 1).find(free);
        let number = number.ok_or(IndexError::NumbersExhausted { highest })?;
        Ok(Turn { number, base, seen, passed: self.passed.clone() })
    }
}

/// The object under a number of a listing.
async fn look_at(repository: &Repository, number: u64, marks: &[u64], may_mark: bool) -> Result<Found, IndexError> {
    let mut mark = match marks.binary_search(&number) {
        Ok(_) => read_mark(repository, number).await?,
        Err(_) => None,
    };
    if matches!(mark, Some(Mark::Genuine(IndexMark::Void))) {
        return Ok(Found::Void);
    }
    // By name: a listing may lack it.
    let index = match read(repository, number).await {
        Ok(None) if mark.is_none() => return Ok(Found::Stale),
        Ok(index) => Ok(index),
        Err(error) if error.is_of_object() => Err(error),
        Err(error) => return Err(error.into()),
    };
    let is_void = mark.is_none() && index.is_err() && !(may_mark && repository.keeps(Rule::VoidOrMarked));
    if mark.is_none() && may_mark && !is_void {
        let wanted = match &index {
            Ok(Some(manifest)) => IndexMark::Counts(manifest.head.attempt),
            _ => IndexMark::Void,
        };
        mark = Some(contest(repository, number, wanted).await?);
    }
    if is_void || matches!(mark, Some(Mark::Genuine(IndexMark::Void))) {
        if let Err(error) = index {
            tracing::warn!(number, %error, "not an index; it is passed over");
        }
        return Ok(if is_void { Found::Void } else { Found::MadeVoid });
    }
    Ok(match (mark, index) {
        (Some(Mark::Genuine(IndexMark::Counts(attempt))), Ok(Some(manifest))) if manifest.head.attempt != attempt => {
            Found::Lost
        }
        (_, Ok(Some(manifest))) => Found::Counts(Box::new(IndexSnapshot { number, manifest: manifest.into() })),
        (Some(Mark::Unreadable), Ok(None)) => Found::Unclear(None),
        (Some(Mark::Unreadable), Err(error)) => Found::Unclear(Some(error)),
        (_, Ok(None)) => Found::Lost,
        (_, Err(error)) => Found::Damaged(error),
    })
}

/// The highest index below a number that opens, or the empty one: for its counters.
async fn highest_below(repository: &Repository, numbers: &[u64], below: u64) -> Result<IndexSnapshot, IndexError> {
    for number in numbers.iter().rev().copied().filter(|number| *number <= below) {
        match read(repository, number).await {
            Ok(Some(manifest)) => return Ok(IndexSnapshot { number, manifest: manifest.into() }),
            Ok(None) => {}
            Err(error) if error.is_of_object() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(IndexSnapshot::empty())
}
