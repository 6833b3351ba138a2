//! The requests of a pass that publishes an index.

use crate::index_model::state::{At, Index, Lie, Mark, NUMBERS, Pass, State, bit, numbers, present, show};
use crate::index_model::{Publishing, Rule};

impl Publishing {
    pub(crate) fn lies_to(&self, state: &State, pass: &Pass) -> Vec<Lie> {
        let listing = |all: u8| -> Vec<Lie> {
            let one = (0..8).filter(|number| all & bit(*number) != 0).map(Lie::Lacks);
            one.chain((all.count_ones() > 1).then_some(Lie::LacksAll)).collect()
        };
        let create = |is_there: bool| match is_there {
            true => vec![Lie::NotApplied],
            false => vec![Lie::NotApplied, Lie::Exists],
        };
        match pass.at {
            At::Idle | At::LookAtMarks => listing(present(&state.marks)),
            At::Indexes | At::LookAfterMark => listing(present(&state.indexes)),
            At::Read | At::ByName => vec![Lie::Unreadable],
            At::Void => create(state.marks[pass.base as usize].is_some()),
            At::MarkBase => create(state.marks[pass.base as usize].is_some()),
            At::Decide | At::DecideAgain => listing(state.containers),
            At::Write => vec![Lie::NotApplied],
            At::Seen => vec![Lie::Unreadable],
            At::Create => create(state.indexes[pass.number as usize].is_some()),
            At::Mark => create(state.marks[pass.number as usize].is_some()),
            At::VoidAgain | At::MarkBaseAgain | At::MarkAgain => vec![Lie::Unreadable],
        }
    }

    /// Creates a mark, or reads it, and says what it is then, as far as the pass can tell.
    fn mark(state: &mut State, number: u8, mark: Mark, is_read: bool, lie: Option<Lie>) -> Option<Mark> {
        let place = &mut state.marks[number as usize];
        match lie {
            Some(Lie::NotApplied) => Some(mark),
            Some(Lie::Unreadable) => None,
            // It reads the mark, and there is none.
            Some(_) => *place,
            None if is_read => *place,
            None => Some(*place.get_or_insert(mark)),
        }
    }

    pub(crate) fn step(&self, state: &mut State, node: usize, moves: bool, lie: Option<Lie>) {
        let mut pass = state.passes[node];
        let own = state.indexes[pass.number as usize].filter(|index| index.attempt == pass.attempt);
        if let Some(step) = [At::Mark, At::MarkAgain, At::LookAtMarks].iter().position(|at| *at == pass.at)
            && own.is_none()
            && !self.lies
        {
            state.woke |= 1 << step;
        }
        match pass.at {
            At::Idle => {
                let marked = show(lie, present(&state.marks));
                let mut marks = state.marks;
                (0..=NUMBERS).filter(|number| marked & bit(*number as u8) == 0).for_each(|number| marks[number] = None);
                pass = Pass { at: At::Indexes, marked, marks, ..Pass::default() };
            }
            At::Indexes => {
                pass.indexes = show(lie, present(&state.indexes));
                pass.number = numbers(pass.indexes | pass.marked).next_back().unwrap_or(0) + 1;
                self.look_further(&mut pass);
            }
            At::Read => {
                let found = state.indexes[pass.base as usize].filter(|_| lie.is_none());
                let mark = pass.marks[pass.base as usize];
                match (found.filter(|index| !index.is_rotten), mark) {
                    (Some(index), Some(Mark::Attempt(attempt))) if attempt != index.attempt => self.lost(&mut pass),
                    (Some(index), mark) => {
                        pass.base_index = Some(index);
                        let is_marked = mark.is_some() || !self.keeps(Rule::BaseMarked);
                        pass.at = if is_marked { At::Decide } else { At::MarkBase };
                    }
                    // It is gone: there is a newer one, and it begins again. Or it does not open.
                    (None, _) if state.indexes[pass.base as usize].is_none() => pass = Pass::default(),
                    (None, None) if self.keeps(Rule::VoidOrMarked) => pass.at = At::Void,
                    (None, None) => {
                        pass.indexes &= !bit(pass.base);
                        self.look_further(&mut pass);
                    }
                    (None, Some(_)) => self.lost(&mut pass),
                }
            }
            At::ByName => {
                let mark = pass.marks[pass.base as usize];
                match state.indexes[pass.base as usize].filter(|index| lie.is_none() && !index.is_rotten) {
                    Some(index) if mark == Some(Mark::Attempt(index.attempt)) => {
                        pass.base_index = Some(index);
                        pass.at = At::Decide;
                    }
                    _ => self.lost(&mut pass),
                }
            }
            At::Void | At::VoidAgain => {
                let is_read = pass.at == At::VoidAgain;
                match Self::mark(state, pass.base, Mark::Void, is_read, lie) {
                    Some(Mark::Void) if !is_read && self.keeps(Rule::MarkReadBack) => pass.at = At::VoidAgain,
                    Some(Mark::Void) => {
                        state.was_void = true;
                        if self.keeps(Rule::VoidBeginsAgain) {
                            pass = Pass::default();
                        } else {
                            pass.indexes &= !bit(pass.base);
                            pass.marks[pass.base as usize] = Some(Mark::Void);
                            self.look_further(&mut pass);
                        }
                    }
                    Some(Mark::Attempt(_)) => self.lost(&mut pass),
                    None => pass = Pass::default(),
                }
            }
            At::MarkBase | At::MarkBaseAgain => {
                let is_read = pass.at == At::MarkBaseAgain;
                let attempt = pass.base_index.map_or(0, |index| index.attempt);
                match Self::mark(state, pass.base, Mark::Attempt(attempt), is_read, lie) {
                    Some(Mark::Attempt(named)) if named == attempt => {
                        let again = !is_read && self.keeps(Rule::MarkReadBack);
                        pass.at = if again { At::MarkBaseAgain } else { At::Decide };
                    }
                    _ => pass = Pass::default(),
                }
            }
            At::Decide => self.decide(state, &mut pass, moves, lie),
            At::DecideAgain => {
                if let Some(new) = pass.new.as_mut() {
                    new.at |= show(lie, state.containers);
                }
                pass.at = At::Create;
            }
            At::Write => {
                if lie.is_none() {
                    state.containers |= bit(pass.attempt);
                }
                pass.at = if self.keeps(Rule::WrittenSeen) { At::Seen } else { At::Create };
            }
            At::Seen => {
                let is_there = lie.is_none() && state.containers & bit(pass.attempt) != 0;
                pass.at = At::Create;
                if !is_there {
                    pass = self.over(state, &pass);
                }
            }
            At::Create => {
                let place = &mut state.indexes[pass.number as usize];
                let marks = self.keeps(Rule::MarkedBeforeRemoval);
                let next = if marks { At::Mark } else { At::LookAtMarks };
                match lie {
                    None if place.is_none() => (*place, pass.at) = (pass.new, next),
                    Some(Lie::NotApplied) => pass.at = next,
                    _ if !self.keeps(Rule::TakenLoses) && pass.number < self.numbers => pass.number += 1,
                    _ => pass = self.over(state, &pass),
                }
            }
            At::Mark | At::MarkAgain => {
                let is_read = pass.at == At::MarkAgain;
                match Self::mark(state, pass.number, Mark::Attempt(pass.attempt), is_read, lie) {
                    Some(Mark::Attempt(attempt)) if attempt == pass.attempt => {
                        if !is_read && self.keeps(Rule::MarkReadBack) {
                            pass.at = At::MarkAgain;
                        } else if self.keeps(Rule::HighestAfterMark) {
                            let twice = self.keeps(Rule::LookedTwice);
                            pass.at = if twice { At::LookAtMarks } else { At::LookAfterMark };
                        } else {
                            pass = self.carry_out(state, &pass);
                        }
                    }
                    _ => pass = self.over(state, &pass),
                }
            }
            At::LookAtMarks => {
                let seen = show(lie, present(&state.marks));
                match state.is_overtaken(pass.number, seen) {
                    true => pass = self.over(state, &pass),
                    false => pass.at = At::LookAfterMark,
                }
            }
            At::LookAfterMark => {
                let seen = show(lie, present(&state.indexes));
                pass = match state.is_overtaken(pass.number, seen) {
                    true => self.over(state, &pass),
                    false => self.carry_out(state, &pass),
                };
            }
        }
        state.passes[node] = pass;
    }

    /// The highest index that is left is looked at next.
    fn look_further(&self, pass: &mut Pass) {
        let is_void = |number: &u8| pass.marks[*number as usize] == Some(Mark::Void);
        let newest = numbers(pass.indexes).rfind(|number| !is_void(number)).unwrap_or(0);
        let named = numbers(pass.marked).rfind(|number| !is_void(number)).unwrap_or(0);
        if named > newest && self.keeps(Rule::LossTold) {
            pass.base = named;
            pass.at = At::ByName;
        } else {
            pass.base = newest;
            pass.at = if newest == 0 { At::Decide } else { At::Read };
        }
    }

    /// The index was lost, or is damaged: it is rebuilt.
    fn lost(&self, pass: &mut Pass) {
        (pass.is_rebuilding, pass.base, pass.base_index) = (true, 0, None);
        pass.at = At::Decide;
    }

    fn decide(&self, state: &mut State, pass: &mut Pass, moves: bool, lie: Option<Lie>) {
        if state.next_attempt > self.attempts || pass.number > self.numbers {
            *pass = Pass::default();
            return;
        }
        pass.attempt = state.next_attempt;
        state.next_attempt += 1;
        state.claims[pass.attempt as usize] = pass.number;
        let listed = show(lie, state.containers);
        let own = bit(pass.attempt);
        if pass.is_rebuilding {
            let first = if self.keeps(Rule::RebuiltKeepsCopies) { u8::MAX } else { listed & listed.wrapping_neg() };
            let at = listed & first;
            pass.new = Some(Index { attempt: pass.attempt, at, is_rebuilt: true, is_rotten: false });
            state.was_rebuilt = true;
            let again = self.keeps(Rule::ListedTwice) && self.keeps(Rule::RebuiltKeepsCopies);
            pass.at = if again { At::DecideAgain } else { At::Create };
            return;
        }
        let empty = Index { attempt: 0, at: bit(0), is_rebuilt: false, is_rotten: false };
        let base = pass.base_index.unwrap_or(empty);
        // Nobody moves what the rebuilt index found in several places.
        let new = if moves && !base.is_rebuilt { own } else { base.at };
        // What others wrote and no index has, when they are over.
        let is_over = |attempt: u8| {
            state.closed & bit(attempt) != 0 || (attempt > 0 && state.claims[attempt as usize] <= pass.base)
        };
        let over = (0..=self.attempts).filter(|attempt| is_over(*attempt)).fold(0, |all, attempt| all | bit(attempt));
        let unknown = listed & !base.at & (over | bit(0));
        let reclaimed = if new == own { base.at } else { 0 };
        pass.doomed = (unknown | reclaimed) & !new;
        pass.new = Some(Index { attempt: pass.attempt, at: new, is_rebuilt: base.is_rebuilt, is_rotten: false });
        pass.at = if new == own { At::Write } else { At::Create };
    }

    /// The pass is over, and has deleted nothing.
    fn over(&self, state: &mut State, pass: &Pass) -> Pass {
        state.closed |= bit(pass.attempt);
        Pass::default()
    }

    /// Its deletes are sent: of containers, of older indexes, of their marks.
    fn carry_out(&self, state: &mut State, pass: &Pass) -> Pass {
        state.doomed |= pass.doomed;
        let below = (1..pass.base).fold(0, |all, number| all | bit(number));
        state.stale_indexes |= below;
        state.stale_marks |= below;
        self.over(state, pass)
    }
}
