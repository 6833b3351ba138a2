//! Whether to try a kind of prediction, by how the last ones ended.
//!
//! A prediction costs the MAC that decides it. After some wrong ones in a row, only one place in
//! several is tried. The first right one brings all back, and so does other evidence that a place
//! would have been right.

/// This number of wrong tries in a row ends them.
const MISSES_MAX: u32 = 4;
/// After that, one place in this number is tried.
const ONE_IN: u32 = 8;

/// See the module header.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Tries {
    /// Wrong tries since the last right one.
    misses: u32,
    /// Places that were left out since the last try.
    left_out: u32,
}

impl Tries {
    /// Whether to try the next place.
    pub fn is_next(&mut self) -> bool {
        self.left_out += 1;
        let is_next = self.misses < MISSES_MAX || self.left_out == ONE_IN;
        if is_next {
            self.left_out = 0;
        }
        is_next
    }

    /// A place was right. That it was tried is not necessary.
    pub fn was_right(&mut self) {
        *self = Self::default();
    }

    /// A try was wrong.
    pub fn was_wrong(&mut self) {
        self.misses = self.misses.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    /// Tries each of `places`, of which some are right. A result is known `ahead` places later.
    /// Returns which were tried.
    fn tried(places: &[bool], ahead: usize) -> Vec<bool> {
        let (mut tries, mut coming) = (Tries::default(), VecDeque::new());
        let mut all = Vec::new();
        for is_right in places {
            let is_tried = tries.is_next();
            all.push(is_tried);
            coming.push_back((is_tried, *is_right));
            if coming.len() > ahead {
                match coming.pop_front() {
                    Some((true, true)) => tries.was_right(),
                    Some((true, false)) => tries.was_wrong(),
                    _ => (),
                }
            }
        }
        all
    }

    proptest! {
        /// Wrong tries cost little, and no history delays the return: where places become
        /// right, one of the next few is tried, and then all.
        #[test]
        fn tries_stop_after_misses_and_return(
            history in prop::collection::vec(any::<bool>(), 0..60),
            wrong in 0..200_usize,
            right in 0..60_usize,
            ahead in 0..4_usize,
        ) {
            let places: Vec<bool> =
                [history.clone(), vec![false; wrong], vec![true; right]].concat();
            let tried = tried(&places, ahead);
            let (before, right_from) = (history.len(), history.len() + wrong);
            let wasted = tried[before..right_from].iter().filter(|is_tried| **is_tried).count();
            let most = MISSES_MAX as usize + ahead + wrong.div_ceil(ONE_IN as usize);
            // Right places of the history may become known only here.
            prop_assert!(wasted <= most + ahead + 1, "{} of {}", wasted, wrong);
            let back = ONE_IN as usize + ahead;
            prop_assert!(tried[right_from..].iter().skip(back).all(|is_tried| *is_tried));
        }

        #[test]
        fn right_places_are_all_tried(count in 0..100_usize, ahead in 0..4_usize) {
            prop_assert!(tried(&vec![true; count], ahead).into_iter().all(|is_tried| is_tried));
        }
    }

    #[test]
    fn evidence_of_another_kind_brings_tries_back() {
        let mut tries = Tries::default();
        for _ in 0..MISSES_MAX {
            assert!(tries.is_next());
            tries.was_wrong();
        }
        assert!(!tries.is_next());
        tries.was_right();
        assert!(tries.is_next());
    }
}
