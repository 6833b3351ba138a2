//! One reader at a time for each key: others that need the same wait for it, and then find it.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

/// See the module header. Keys are compared by their hashes, which are the same in every run, as
/// the simulation wants it. Two with one hash wait for each other, which costs time and nothing
/// else. Holds the keys that somebody reads or waits for.
#[derive(Debug, Default)]
pub struct Turns {
    hasher: BuildHasherDefault<DefaultHasher>,
    turns: Mutex<HashMap<u64, Arc<tokio::sync::Mutex<()>>>>,
}

impl Turns {
    /// Waits until nobody else has the turn of this key.
    pub async fn wait(&self, key: &impl Hash) -> Turn<'_> {
        let key = self.hasher.hash_one(key);
        let turn = self.turns.lock().entry(key).or_default().clone();
        // Also ends the wait of somebody who does not wait to the end.
        let mut mine = Turn { turns: self, key, guard: None };
        mine.guard = Some(turn.lock_owned().await);
        mine
    }
}

/// The turn of a key. It ends when this is dropped.
#[derive(Debug)]
pub struct Turn<'t> {
    turns: &'t Turns,
    key: u64,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut turns = self.turns.turns.lock();
        drop(self.guard.take());
        // Who waits has another reference.
        if turns.get(&self.key).is_some_and(|turn| Arc::strong_count(turn) == 1) {
            turns.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn those_of_one_key_wait_and_others_do_not() {
        let turns = Turns::default();
        // Many more than the tasks of any process.
        let wait = async |key: i32| turns.wait(&key).await;
        let each = (0..1000).map(wait);
        let held: Vec<_> = futures::future::join_all(each).await;
        let (long, soon) = (Duration::from_secs(9), Duration::from_secs(1));
        assert!(tokio::time::timeout(long, turns.wait(&7)).await.is_err());
        assert_eq!(Arc::strong_count(&turns.turns.lock()[&turns.hasher.hash_one(7)]), 2, "who left does not count");
        let (waited, ()) = tokio::join!(turns.wait(&7), async {
            tokio::time::sleep(soon).await;
            drop(held);
        });
        drop(waited);
        assert!(turns.turns.lock().is_empty(), "nothing is left of keys that nobody wants");
    }
}
