//! The filter chain: is a chunk known? Asked of one filter after the other, until the answer cannot
//! get better (dedupv1 section III-B).
//!
//! | verdict | meaning | what follows |
//! |---|---|---|
//! | [`Verdict::Existing`] | certain, for instance after comparing bytes | nothing |
//! | [`Verdict::StrongMaybe`] | a fingerprint was found | only filters that can be certain |
//! | [`Verdict::WeakMaybe`] | not ruled out | the next filter |
//! | [`Verdict::NonExisting`] | ruled out | nothing: the chunk is new |
//!
//! A chunk that is found to be new and is stored is shown to all filters a second time, so that
//! those with a memory add it. A mode of Larder is a list of filters; the filters know nothing of
//! one another.
//!
//! Two kinds of questions have the same rules. A backup asks about one chunk after the other
//! ([`Filter`], [`find`]), and the answer is a record. A volume asks about many chunks at once
//! ([`batch`]), so that their reads are in flight together. The type of the answer is a parameter.

pub mod batch;

use larder_format::Fingerprint;
use larder_format::segment::ChunkRecord;

/// The chunk of the question.
#[derive(Debug, Clone, Copy)]
pub struct Chunk<'a> {
    /// Its name.
    pub fingerprint: &'a Fingerprint,
    /// Its content.
    pub bytes: &'a [u8],
}

impl Chunk<'_> {
    /// Its length, as records have it.
    pub fn size(&self) -> u32 {
        // Chunks are at most 8 MiB long.
        self.bytes.len() as u32
    }
}

/// The answer of a filter about a chunk. `A` says where the chunk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict<A = ChunkRecord> {
    /// It is stored there, for certain.
    Existing(A),
    /// It is stored there, as far as fingerprints tell.
    StrongMaybe(A),
    /// This filter does not know.
    WeakMaybe,
    /// It is not stored.
    NonExisting,
}

/// One way of finding out whether a chunk is known.
pub trait Filter<E, A = ChunkRecord> {
    /// Judges a chunk, for which an earlier filter may have found `found`.
    fn check(&mut self, chunk: &Chunk<'_>, found: Option<&A>) -> Result<Verdict<A>, E>;

    /// Whether it can answer [`Verdict::Existing`], and is worth asking after a
    /// [`Verdict::StrongMaybe`].
    fn can_be_certain(&self) -> bool {
        false
    }

    /// Takes up a chunk that was new and has been stored.
    fn update(&mut self, stored: &A) -> Result<(), E> {
        let _ = stored;
        Ok(())
    }
}

/// Asks a chain of filters about a chunk, in this order.
pub fn find<'f, E: 'f, A: 'f>(
    chain: impl IntoIterator<Item = &'f mut (dyn Filter<E, A> + 'f)>,
    chunk: &Chunk<'_>,
) -> Result<Option<A>, E> {
    let mut found = None;
    for filter in chain {
        if found.is_some() && !filter.can_be_certain() {
            continue;
        }
        match filter.check(chunk, found.as_ref())? {
            Verdict::Existing(record) => return Ok(Some(record)),
            Verdict::StrongMaybe(record) => found = Some(record),
            Verdict::WeakMaybe => {}
            Verdict::NonExisting => return Ok(None),
        }
    }
    Ok(found)
}

/// Shows the chain a chunk that was new and has been stored.
pub fn update<'f, E: 'f, A: 'f>(
    chain: impl IntoIterator<Item = &'f mut (dyn Filter<E, A> + 'f)>,
    stored: &A,
) -> Result<(), E> {
    chain.into_iter().try_for_each(|filter| filter.update(stored))
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_format::ChunkRef;
    use larder_format::ids::{ContainerId, ContainerKind, JobId};
    use std::convert::Infallible;

    fn record(seq: u32) -> ChunkRecord {
        let container = ContainerId { kind: ContainerKind::Data, job: JobId([1; 16]), seq };
        ChunkRecord {
            chunk: ChunkRef { fingerprint: Fingerprint([1; 32]), container, offset: 0, size: 1 },
            born: container.job,
        }
    }

    /// Gives the prescribed answers, and counts.
    struct Told {
        verdict: Verdict,
        certain: bool,
        asked: usize,
        updated: usize,
    }

    impl Told {
        fn new(verdict: Verdict) -> Self {
            Self { verdict, certain: matches!(verdict, Verdict::Existing(_)), asked: 0, updated: 0 }
        }
    }

    impl Filter<Infallible> for Told {
        fn check(&mut self, _: &Chunk<'_>, _: Option<&ChunkRecord>) -> Result<Verdict, Infallible> {
            self.asked += 1;
            Ok(self.verdict)
        }

        fn can_be_certain(&self) -> bool {
            self.certain
        }

        fn update(&mut self, _: &ChunkRecord) -> Result<(), Infallible> {
            self.updated += 1;
            Ok(())
        }
    }

    /// The filters asked, and the answer, for these verdicts in order.
    fn run(verdicts: &[Verdict]) -> (Vec<usize>, Option<ChunkRecord>) {
        let mut filters: Vec<_> = verdicts.iter().map(|verdict| Told::new(*verdict)).collect();
        let chunk = Chunk { fingerprint: &Fingerprint([1; 32]), bytes: &[0] };
        let Ok(found) = find(filters.iter_mut().map(|filter| filter as &mut dyn Filter<Infallible>), &chunk);
        let Ok(()) = update(filters.iter_mut().map(|filter| filter as &mut dyn Filter<Infallible>), &record(9));
        assert!(filters.iter().all(|filter| filter.updated == 1));
        (filters.iter().map(|filter| filter.asked).collect(), found)
    }

    #[test]
    fn a_verdict_decides_who_is_asked_next() {
        use Verdict::{Existing, NonExisting, StrongMaybe, WeakMaybe};
        // A bloom filter rules out.
        assert_eq!(run(&[NonExisting, StrongMaybe(record(1))]), (vec![1, 0], None));
        // Bloom, block index that misses, chunk index that hits, byte comparison: the example of
        // dedupv1.
        assert_eq!(
            run(&[WeakMaybe, WeakMaybe, StrongMaybe(record(1)), Existing(record(1))]),
            (vec![1, 1, 1, 1], Some(record(1)))
        );
        // After a strong maybe, another strong maybe tells nothing.
        assert_eq!(
            run(&[StrongMaybe(record(1)), StrongMaybe(record(2)), Existing(record(1))]),
            (vec![1, 0, 1], Some(record(1)))
        );
        assert_eq!(run(&[Existing(record(3)), Existing(record(4))]), (vec![1, 0], Some(record(3))));
        assert_eq!(run(&[WeakMaybe, WeakMaybe]), (vec![1, 1], None));
    }

    #[test]
    fn a_comparison_that_fails_makes_the_chunk_new() {
        let mut index = Told::new(Verdict::StrongMaybe(record(1)));
        let mut compare = Told { certain: true, ..Told::new(Verdict::NonExisting) };
        let chunk = Chunk { fingerprint: &Fingerprint([1; 32]), bytes: &[0] };
        let chain: [&mut dyn Filter<Infallible>; 2] = [&mut index, &mut compare];
        assert_eq!(find(chain, &chunk), Ok(None));
    }
}
