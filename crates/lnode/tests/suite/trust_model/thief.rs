//! What those do who may create objects under free names, and have keys that they should not have.

use crate::trust_model::state::{
    Bytes, Container, Domain, FIRST, Generation, Job, Maker, Mark, SECOND, State, Version,
};
use crate::trust_model::{Has, Trust};

/// An object that somebody creates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plant {
    /// A version in the client's series, newer than all others.
    Version,
    /// The next generation of the client's first version: not signed.
    Generation,
    /// The mark of a version: not signed.
    Mark(usize),
    /// An index above all others: not signed.
    Index,
    /// A container with the name of the client's first, whose table is that container's.
    Container,
    /// The client's first version, as it was before it was forgotten and removed.
    Replay,
    /// What makes the client's job look settled.
    Settle,
    /// A generation with an operator's signature. It says that the file is here.
    Signed(Container),
}

impl Trust {
    /// What can be created now.
    pub(crate) fn plants(&self, state: &State) -> Vec<Plant> {
        let mut plants = Vec::new();
        let mut may =
            |has: Has, is_free: bool, plant: Plant| plants.extend((self.has(has) && is_free).then_some(plant));
        let may_rewrite = state.versions[FIRST].is_some() && state.highest() < 2;
        for version in [FIRST, SECOND] {
            may(Has::Marks, state.marks[version] == Mark::Absent, Plant::Mark(version));
        }
        may(Has::Indexes, !state.has_planted_index, Plant::Index);
        may(Has::Generations, may_rewrite, Plant::Generation);
        may(Has::Containers, !state.there.has(Container::First), Plant::Container);
        may(Has::Versions, state.stolen.is_none(), Plant::Version);
        may(Has::OldVersions, state.versions[FIRST].is_none(), Plant::Replay);
        let is_running = matches!(state.job, Job::Runs { .. });
        may(Has::Settling, is_running && !state.is_settled, Plant::Settle);
        for at in [Container::Stolen, Container::Beside, Container::Nowhere] {
            may(Has::Signature, may_rewrite && !state.has_signed, Plant::Signed(at));
        }
        plants
    }

    pub(crate) fn plant(&self, state: &mut State, plant: Plant) {
        let generation = |state: &mut State, by: Maker, at: Container| {
            let number = state.highest();
            let made = Generation { by, at, metadata: Domain::Own, from: number };
            state.generations[usize::from(number)] = Some(made);
        };
        match plant {
            Plant::Version => {
                let lies = self.has(Has::LyingTables);
                let (says, at) = if lies { (Bytes::True, Container::Lying) } else { (Bytes::Other, Container::Stolen) };
                state.there.insert(at);
                state.stolen = Some(Version { says, at, metadata: Domain::Own, is_witnessed: false });
            }
            Plant::Generation => {
                state.there.insert(Container::Stolen);
                generation(state, Maker::Thief, Container::Stolen);
            }
            Plant::Mark(version) => state.marks[version] = Mark::Planted,
            Plant::Index => state.has_planted_index = true,
            Plant::Container => {
                state.there.insert(Container::First);
                state.is_garbage = true;
            }
            Plant::Replay => state.versions[FIRST] = Some(State::FIRST_VERSION),
            Plant::Settle => state.is_settled = true,
            Plant::Signed(at) => {
                if at == Container::Stolen {
                    state.there.insert(at);
                }
                state.has_signed = true;
                generation(state, Maker::Signer, at);
            }
        }
    }
}
