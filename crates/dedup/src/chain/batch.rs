//! Many questions at once, by the rules of [`super::find`].
//!
//! Each filter sees the questions that earlier ones left open, all together. So a filter that reads
//! can have many reads in flight. The answers are those that [`super::find`] gives to each question
//! alone; a filter may use what it read for one question to answer another.

use super::{Chunk, Filter, Verdict};

/// The questions that a filter is asked, and its verdicts.
#[derive(Debug)]
pub struct Open<A> {
    /// Numbers of the questions, rising.
    numbers: Vec<usize>,
    /// What earlier filters found, by position in `numbers`.
    found: Vec<Option<A>>,
    /// By position in `numbers`.
    verdicts: Vec<Verdict<A>>,
}

impl<A> Open<A> {
    /// How many questions are open.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// The number of the question at a position: its index among all questions of the batch.
    pub fn number(&self, position: usize) -> usize {
        self.numbers[position]
    }

    /// What an earlier filter found for the question at a position.
    pub fn found(&self, position: usize) -> Option<&A> {
        self.found[position].as_ref()
    }

    /// Judges the question at a position. One that is not judged gets [`Verdict::WeakMaybe`].
    pub fn judge(&mut self, position: usize, verdict: Verdict<A>) {
        self.verdicts[position] = verdict;
    }

    /// The verdicts so far, by position.
    pub fn verdicts(&self) -> &[Verdict<A>] {
        &self.verdicts
    }
}

/// One way of finding out which chunks are known. `Q` is a question, `A` says where a chunk is.
///
/// It only reads. What a request stores is noted by the owner of the chain, which forgets it when
/// the request fails.
pub trait BatchFilter<E, Q, A> {
    /// Judges the open ones of these questions. An error ends the request.
    fn check(&mut self, asked: &[Q], open: &mut Open<A>) -> Result<(), E>;

    /// Whether it can answer [`Verdict::Existing`], and is worth asking after a
    /// [`Verdict::StrongMaybe`].
    fn can_be_certain(&self) -> bool {
        false
    }
}

/// Asks a chain of filters about chunks, in this order. `None`: the chunk is new.
pub fn find<'f, E: 'f, Q: 'f, A: Clone + 'f>(
    chain: impl IntoIterator<Item = &'f mut (dyn BatchFilter<E, Q, A> + 'f)>,
    asked: &[Q],
) -> Result<Vec<Option<A>>, E> {
    let mut found: Vec<Option<A>> = vec![None; asked.len()];
    let mut unsettled: Vec<usize> = (0..asked.len()).collect();
    for filter in chain {
        if unsettled.is_empty() {
            break;
        }
        let is_asked = |number: &usize| found[*number].is_none() || filter.can_be_certain();
        let numbers: Vec<usize> = unsettled.iter().copied().filter(is_asked).collect();
        if numbers.is_empty() {
            continue;
        }
        let before = numbers.iter().map(|number| found[*number].clone()).collect();
        let verdicts = vec![Verdict::WeakMaybe; numbers.len()];
        let mut open = Open { numbers, found: before, verdicts };
        filter.check(asked, &mut open)?;
        let mut is_settled = vec![false; asked.len()];
        for (number, verdict) in open.numbers.into_iter().zip(open.verdicts) {
            match verdict {
                Verdict::Existing(answer) => (found[number], is_settled[number]) = (Some(answer), true),
                Verdict::StrongMaybe(answer) => found[number] = Some(answer),
                Verdict::WeakMaybe => {}
                Verdict::NonExisting => (found[number], is_settled[number]) = (None, true),
            }
        }
        unsettled.retain(|number| !is_settled[*number]);
    }
    Ok(found)
}

/// A filter for single chunks as one for batches: it is asked about one after the other. This is
/// the rule that every batch filter keeps.
#[derive(Debug)]
pub struct OneByOne<F>(pub F);

impl<'a, E, A, F: Filter<E, A>> BatchFilter<E, Chunk<'a>, A> for OneByOne<F> {
    fn check(&mut self, asked: &[Chunk<'a>], open: &mut Open<A>) -> Result<(), E> {
        for position in 0..open.len() {
            let verdict = self.0.check(&asked[open.number(position)], open.found(position))?;
            open.judge(position, verdict);
        }
        Ok(())
    }

    fn can_be_certain(&self) -> bool {
        self.0.can_be_certain()
    }
}

#[cfg(test)]
mod tests {
    use super::super::find as find_one;
    use super::*;
    use larder_format::Fingerprint;
    use proptest::prelude::*;
    use std::convert::Infallible;

    /// Gives each chunk, by its first byte, a prescribed answer.
    struct Told {
        verdicts: Vec<Verdict<u32>>,
        certain: bool,
        asked: Vec<u8>,
    }

    impl Filter<Infallible, u32> for Told {
        fn check(&mut self, chunk: &Chunk<'_>, found: Option<&u32>) -> Result<Verdict<u32>, Infallible> {
            let number = chunk.bytes[0];
            self.asked.push(number);
            // An answer may depend on what was found before.
            Ok(match (self.verdicts[usize::from(number)], found) {
                (Verdict::Existing(_), Some(found)) => Verdict::Existing(*found),
                (verdict, _) => verdict,
            })
        }

        fn can_be_certain(&self) -> bool {
            self.certain
        }
    }

    fn verdict() -> impl Strategy<Value = Verdict<u32>> {
        prop_oneof![
            any::<u32>().prop_map(Verdict::Existing),
            any::<u32>().prop_map(Verdict::StrongMaybe),
            Just(Verdict::WeakMaybe),
            Just(Verdict::NonExisting),
        ]
    }

    proptest! {
        /// Batches of any size give the answers of single questions, and ask the same filters.
        #[test]
        fn a_batch_has_the_answers_of_its_questions(
            chain in prop::collection::vec((prop::collection::vec(verdict(), 6), any::<bool>()), 0..6),
        ) {
            let told = || -> Vec<Told> {
                let told = chain.iter().cloned();
                told.map(|(verdicts, certain)| Told { verdicts, certain, asked: Vec::new() }).collect()
            };
            let bytes: Vec<u8> = (0..6).collect();
            let fingerprint = Fingerprint([1; 32]);
            let chunks: Vec<_> = bytes.chunks(1).map(|bytes| Chunk { fingerprint: &fingerprint, bytes }).collect();
            let (mut single, mut answers) = (told(), Vec::new());
            for chunk in &chunks {
                let filters = single.iter_mut().map(|filter| filter as &mut dyn Filter<Infallible, u32>);
                let Ok(answer) = find_one(filters, chunk);
                answers.push(answer);
            }
            for size in [1, 4, 6] {
                let mut batched: Vec<_> = told().into_iter().map(OneByOne).collect();
                let mut found = Vec::new();
                for part in chunks.chunks(size) {
                    let filters = batched.iter_mut().map(|filter| filter as &mut dyn BatchFilter<Infallible, Chunk<'_>, u32>);
                    let Ok(answers) = find(filters, part);
                    found.extend(answers);
                }
                prop_assert_eq!(&found, &answers);
                for (one, many) in single.iter().zip(&batched) {
                    prop_assert_eq!(&one.asked, &many.0.asked);
                }
            }
        }
    }
}
