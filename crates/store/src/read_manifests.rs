//! Manifests that were read as a whole while a version was looked for. The caller that asked for
//! the version reads them next.
//!
//! They never change, so their bytes stay true. Whether they still count is not asked here.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

/// Bytes of manifests that are read as a whole where one is looked for: the caller is likely to
/// need the rest.
pub(crate) const WHOLE_MANIFEST: u64 = 64 << 10;
/// Number of manifests that are kept. Each is small: others are not read as a whole.
const KEPT: usize = 8;

/// The last manifests that were read as a whole, by name.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReadManifests(Arc<Mutex<VecDeque<(String, Bytes)>>>);

impl ReadManifests {
    /// Keeps one, and forgets the oldest when there are too many.
    pub(crate) fn add(&self, name: &str, bytes: &Bytes) {
        let mut kept = self.0.lock();
        kept.retain(|(other, _)| other != name);
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back((name.to_owned(), bytes.clone()));
    }

    /// The manifest of this name.
    pub(crate) fn get(&self, name: &str) -> Option<Bytes> {
        self.0.lock().iter().find(|(other, _)| other == name).map(|(_, bytes)| bytes.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_kept() {
        let kept = ReadManifests::default();
        for number in 0..=KEPT {
            kept.add(&number.to_string(), &Bytes::from(vec![number as u8]));
        }
        kept.add("1", &Bytes::from_static(b"again"));
        assert_eq!(kept.get("0"), None);
        assert_eq!(kept.get("1").as_deref(), Some(&b"again"[..]));
        assert_eq!(kept.get("2").as_deref(), Some(&[2][..]));
        assert_eq!(kept.0.lock().len(), KEPT);
    }
}
