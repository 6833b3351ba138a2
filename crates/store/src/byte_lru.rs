//! A cache that is bounded by the bytes of its values.

use lru::LruCache;

/// An LRU cache bounded by the bytes of its values.
pub struct ByteLru<K: std::hash::Hash + Eq, V> {
    entries: LruCache<K, (V, usize)>,
    bytes: usize,
    budget: usize,
}

impl<K: std::hash::Hash + Eq, V> std::fmt::Debug for ByteLru<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ByteLru").field("bytes", &self.bytes).field("budget", &self.budget).finish_non_exhaustive()
    }
}

impl<K: std::hash::Hash + Eq, V: Clone> ByteLru<K, V> {
    /// A cache of at most `budget` bytes.
    pub fn new(budget: usize) -> Self {
        Self { entries: LruCache::unbounded(), bytes: 0, budget }
    }

    /// The most that its values take, in bytes.
    pub fn budget(&self) -> usize {
        self.budget
    }

    /// A value, which is now the most recently used.
    pub fn get(&mut self, key: &K) -> Option<V> {
        self.entries.get(key).map(|(value, _)| value.clone())
    }

    /// Whether a value is there.
    pub fn contains(&self, key: &K) -> bool {
        self.entries.contains(key)
    }

    /// Drops a value.
    pub fn remove(&mut self, key: &K) {
        if let Some((_, bytes)) = self.entries.pop(key) {
            self.bytes -= bytes;
        }
    }

    /// Keeps a value that takes `bytes`. The newest stays even when it alone is over the budget:
    /// its reader needs it now.
    pub fn put(&mut self, key: K, value: V, bytes: usize) {
        if let Some((_, old)) = self.entries.put(key, (value, bytes)) {
            self.bytes -= old;
        }
        self.bytes += bytes;
        while self.bytes > self.budget && self.entries.len() > 1 {
            if let Some((_, (_, old))) = self.entries.pop_lru() {
                self.bytes -= old;
            }
        }
    }
}
