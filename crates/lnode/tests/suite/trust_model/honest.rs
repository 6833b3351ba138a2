//! What the client, its restores, the operator and the G-node do.

use crate::trust_model::state::{Bytes, Container, Domain, FIRST, Generation, Job, Maker, Mark, SECOND, Set};
use crate::trust_model::state::{State, Version};
use crate::trust_model::{Rule, Trust};

/// What a restore gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Restored {
    Bytes(Bytes),
    Damaged,
    /// There is no such version.
    Gone,
}

/// What a pass is told to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tasks {
    /// It may read as much as a proof takes.
    pub(crate) proves: bool,
    /// It moves what is only needed by older versions.
    pub(crate) moves: bool,
}

impl Trust {
    /// Whether a mark hides its version, and lets a pass remove it.
    pub(crate) fn is_marked(&self, state: &State, version: usize) -> bool {
        match state.marks[version] {
            Mark::Absent => false,
            Mark::Signed => true,
            Mark::Planted => !self.keeps(Rule::SignedOnly),
        }
    }

    /// Whether a generation opens as one.
    pub(crate) fn counts(&self, generation: Generation) -> bool {
        generation.by != Maker::Thief || !self.keeps(Rule::SignedOnly)
    }

    /// The highest generation of the first version that counts, and where it says that the file is.
    pub(crate) fn newest(&self, state: &State) -> Option<(u8, Container, Domain)> {
        let version = state.versions[FIRST]?;
        let later = (1..=2).rev().filter_map(|number| Some((number, state.generation(number)?)));
        let counting = later.into_iter().find(|(_, generation)| self.counts(*generation));
        Some(counting.map_or((0, version.at, version.metadata), |(number, found)| (number, found.at, found.metadata)))
    }

    /// The same for who builds on it (`NewestOrNothing`). A mark that does not open counts here.
    fn buildable(&self, state: &State) -> Option<(u8, Container, Domain)> {
        let newest = self.newest(state)?;
        (newest.0 == state.highest() && state.marks[FIRST] == Mark::Absent).then_some(newest)
    }

    /// Reads a version of the client.
    pub(crate) fn restore(&self, state: &State, version: usize) -> Restored {
        if self.is_marked(state, version) {
            return Restored::Gone;
        }
        let Some(Version { says, at, metadata, .. }) = state.versions[version] else { return Restored::Gone };
        let newest = if version == FIRST { self.newest(state) } else { None };
        let (_, at, metadata) = newest.unwrap_or((0, at, metadata));
        if metadata == Domain::Other && state.is_other_lost {
            return Restored::Damaged;
        }
        if says == Bytes::Other {
            let is_there = at == Container::Stolen && state.there.has(at);
            return if is_there { Restored::Bytes(Bytes::Other) } else { Restored::Damaged };
        }
        if state.holds_truth(at) {
            return Restored::Bytes(Bytes::True);
        }
        // It is gone, or its bytes have another fingerprint.
        let looks_elsewhere = !state.there.has(at) || self.keeps(Rule::WrongIsAbsent);
        match looks_elsewhere && state.finds_truth() {
            true => Restored::Bytes(Bytes::True),
            false => Restored::Damaged,
        }
    }

    /// A backup begins. `is_touched`: the file looks changed, and is read.
    pub(crate) fn begin(&self, state: &mut State, is_touched: bool) {
        let is_proved = |number: u8| !self.waits_for_proofs || number <= state.proved;
        let own = self.buildable(state).filter(|(number, ..)| is_proved(*number));
        let own = own.and_then(|(_, at, _)| Some(Version { at, ..state.versions[FIRST]? }));
        let newest = state.stolen.or(own);
        let followed = if self.keeps(Rule::WitnessedOnly) { own.filter(|own| own.is_witnessed) } else { newest };
        // Nothing is taken over from a base of which a container is missing.
        let is_whole = |base: &Version| state.there.has(base.at) || (base.at == Container::First && state.is_retired);
        let unread = followed.filter(|base| is_whole(base) && !is_touched);
        // A duplicate is not stored again, if its record says where it is. The newest is asked first.
        let mut bases = newest.into_iter().chain(followed).filter(is_whole);
        let duplicate = || bases.find(|base| base.says == Bytes::True);
        let (says, at) = match unread.or_else(duplicate) {
            Some(Version { says, at, .. }) => (says, at),
            None => (Bytes::True, Container::Second),
        };
        if at == Container::Second {
            state.there.insert(at);
        }
        let commits = Version { says, at, ..State::FIRST_VERSION };
        state.job = Job::Runs { names_first: own.is_some(), commits };
    }

    /// A first backup of another series begins, which resembles a version of the other domain.
    pub(crate) fn begin_beside(&self, state: &mut State) {
        let metadata = if self.keeps(Rule::MetaInDomain) { Domain::Own } else { Domain::Other };
        let commits = Version { metadata, at: Container::Second, ..State::FIRST_VERSION };
        state.there.insert(Container::Second);
        state.job = Job::Runs { names_first: false, commits };
    }

    pub(crate) fn commit(state: &mut State, commits: Version) {
        state.versions[SECOND] = Some(commits);
        state.committed[SECOND] = true;
        (state.job, state.is_settled) = (Job::Over, false);
    }

    /// The G-node makes the next generation. `copies`: it copies the file. Else it leaves it where it is.
    pub(crate) fn rewrite(&self, state: &mut State, copies: bool) -> Option<()> {
        let (from, place, _) = self.buildable(state)?;
        let number = state.highest() + 1;
        let is_moved = place == Container::First && state.is_retired;
        let is_there = state.holds_truth(if is_moved { Container::Moved } else { place });
        if number > 2 || (copies && !is_there) {
            return None;
        }
        let at = if copies { Container::Rewritten(number) } else { place };
        if copies {
            state.there.insert(at);
        }
        // The container that is open has metadata of another domain.
        let is_apart = self.keeps(Rule::MetaInDomain) || !self.has_neighbour;
        let metadata = if is_apart { Domain::Own } else { Domain::Other };
        state.generations[usize::from(number - 1)] = Some(Generation { by: Maker::GNode, at, metadata, from });
        state.own |= 1 << number;
        Some(())
    }

    /// Whether a pass finds that a generation has the file where it says. `truth`: the highest proved one.
    fn proves(&self, state: &State, truth: Container, at: Container) -> bool {
        if at == truth {
            return true;
        }
        if !self.keeps(Rule::ReadWhereMoved) {
            let is_passed_over = at == Container::Beside || (at == Container::Nowhere && state.finds_truth());
            if is_passed_over {
                return true;
            }
        }
        // What has the name of a retired container goes with this pass.
        state.holds_truth(at) && !(at == Container::First && state.is_retired)
    }

    /// A pass: what it sees, decides and deletes.
    pub(crate) fn pass(&self, state: &mut State, tasks: Tasks) -> Option<()> {
        let named = state.names_first();
        let retained = [FIRST, SECOND].map(|version| !self.is_marked(state, version) || (version == FIRST && named));
        if state.has_planted_index {
            // It is passed over, or it is what counts.
            state.has_planted_index = false;
            if !self.keeps(Rule::SignedOnly) {
                state.there.remove(Container::First);
                state.there.remove(Container::Moved);
            }
        }
        let mut kept = Set::of(&[Container::Stolen, Container::Lying]);
        let mut listed = Set::default();
        if let Some(first) = state.versions[FIRST].filter(|_| retained[FIRST]) {
            let holding = self.holding(state, first, named, tasks)?;
            for number in 0..=2 {
                let at = if number == 0 { Some(first.at) } else { state.generation(number).map(|found| found.at) };
                let stays = number >= holding || named;
                at.filter(|_| stays).into_iter().for_each(|at| kept.insert(at));
            }
            kept.insert(Container::Beside);
            let at = state.generation(holding).map_or(first.at, |found| found.at);
            listed = listed.or(Set::of(&[at, Container::Beside]));
            if !named {
                state.proved = holding;
                (1..holding).for_each(|number| state.generations[usize::from(number - 1)] = None);
            }
        }
        let others = [state.versions[SECOND].filter(|_| retained[SECOND]), state.stolen];
        for version in others.into_iter().flatten() {
            kept.insert(version.at);
            listed.insert(version.at);
        }
        if matches!(state.job, Job::Runs { .. }) {
            // Its uploads: whatever its lease says, they are young.
            kept.insert(Container::Second);
        }
        self.move_first(state, tasks, retained[FIRST]);
        // Who names what was retired keeps what it forwards to.
        state.is_retired &= kept.has(Container::First);
        if state.is_retired {
            kept.remove(Container::First);
            kept.insert(Container::Moved);
            listed.remove(Container::First);
            listed.insert(Container::Moved);
        }
        state.there = state.there.and(kept);
        state.is_garbage &= state.there.has(Container::First);
        state.listed = listed.and(kept);
        for version in [FIRST, SECOND].into_iter().filter(|version| !retained[*version]) {
            (state.versions[version], state.marks[version]) = (None, Mark::Absent);
            if version == FIRST {
                (state.generations, state.proved, state.own) = ([None; 2], 0, 0);
            }
        }
        Some(())
    }

    /// The highest generation of the first version that a pass relies on; `None`: it stops at one that it cannot read.
    fn holding(&self, state: &State, first: Version, named: bool, tasks: Tasks) -> Option<u8> {
        let at = |number: u8| state.generation(number).map_or(first.at, |found| found.at);
        let is_known = |number: u8| {
            let Some(found) = state.generation(number) else { return number == 0 };
            let is_own = state.own & (1 << number) != 0;
            let from = Self::origin(state, found);
            let is_of_truth = from == 0 || from == state.proved || !self.keeps(Rule::RewrittenFromProved);
            let is_proved = number == state.proved || !self.keeps(Rule::ProvedBeforeRetired);
            self.counts(found) && (is_proved || (is_own && is_of_truth))
        };
        let truth = (0..=2).rev().find(|number| is_known(*number)).unwrap_or(0);
        let mut read = (1..=2).filter(|number| *number > truth || named).filter_map(|number| state.generation(number));
        if read.any(|found| !self.counts(found)) {
            return None;
        }
        let mut above = (truth + 1..=2).rev().filter(|number| state.generation(*number).is_some());
        let proved = above.find(|number| tasks.proves && self.proves(state, at(truth), at(*number)));
        Some(proved.unwrap_or(truth))
    }

    /// The generation from which this process rewrote this one, perhaps in several steps.
    fn origin(state: &State, mut found: Generation) -> u8 {
        while let Some(before) = state.generation(found.from).filter(|_| state.own & (1 << found.from) != 0) {
            found = before;
        }
        found.from
    }

    /// What only older versions name is moved, and read when it is.
    fn move_first(&self, state: &mut State, tasks: Tasks, is_retained: bool) {
        let has_newer = state.versions[SECOND].is_some() || state.stolen.is_some();
        let is_quiet = state.highest() == 0 && !state.names_first();
        let may_go = tasks.moves && is_retained && has_newer && is_quiet && !state.is_retired;
        if may_go && state.listed.has(Container::First) && state.holds_truth(Container::First) {
            state.is_retired = true;
            state.there.insert(Container::Moved);
        }
    }
}
