//! Hard links in the place of first names that are left out.
//!
//! Of a file whose first name is not wanted, the first wanted name has the contents, and further
//! ones link to it. Those that were used last are remembered, within a bound: a folder may have a
//! link for every file of another one. A name whose stand-in is forgotten has the contents itself.

use larder_job::JobContext;
use lru::LruCache;

/// The part of the memory for them.
const ONE_IN: usize = 24;
/// Bytes of an entry beside its two paths, roughly.
const OVERHEAD: usize = 128;

/// See the module header. Paths are those of the version. The same names in the same order give the
/// same answers, so a verification knows what a restore made.
#[derive(Debug)]
pub struct StandIns {
    known: LruCache<Vec<u8>, Vec<u8>>,
    bytes: usize,
    room: usize,
}

impl StandIns {
    /// None yet. The context tells how many are remembered.
    pub fn new(context: &JobContext) -> Self {
        Self::within(context.memory / ONE_IN)
    }

    fn within(room: usize) -> Self {
        Self { known: LruCache::unbounded(), bytes: 0, room }
    }

    /// The name that has the contents of a first name. `None`: none has them, or it is forgotten.
    pub fn get(&mut self, first: &[u8]) -> Option<&[u8]> {
        self.known.get(first).map(Vec::as_slice)
    }

    /// From now on, `name` has the contents of a first name that has no stand-in.
    pub fn insert(&mut self, first: Vec<u8>, name: Vec<u8>) {
        self.bytes += first.len() + name.len() + OVERHEAD;
        self.known.put(first, name);
        while self.bytes > self.room
            && let Some((first, name)) = self.known.pop_lru()
        {
            self.bytes -= first.len() + name.len() + OVERHEAD;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_were_used_last_are_remembered_within_the_room() {
        let mut all = StandIns::within(10 * (8 + OVERHEAD));
        let name = |number: u32| number.to_be_bytes().to_vec();
        for number in 0..100 {
            assert_eq!(all.get(&name(number)), None);
            all.insert(name(number), name(number + 1000));
            // The first one is used all the time.
            assert_eq!(all.get(&name(0)), Some(&*name(1000)));
            assert!(all.known.len() <= 10 && all.bytes <= all.room);
        }
        let known: Vec<_> = (0..100).filter(|number| all.get(&name(*number)).is_some()).collect();
        assert_eq!(known, [0, 91, 92, 93, 94, 95, 96, 97, 98, 99]);
    }
}
