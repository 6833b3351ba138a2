//! The generations of versions that this process wrote.

use std::collections::HashMap;
use std::sync::Arc;

use larder_format::lease::Pin;
use parking_lot::Mutex;

/// Generations that a process remembers to have written. Those that are not remembered are proved
/// like those of others.
const REMEMBERED_MAX: usize = 1 << 16;

/// The generations that this process wrote: of each its attempt, and the one that it was rewritten
/// from. A pass need not prove them.
#[derive(Debug, Clone, Default)]
pub(crate) struct OwnGenerations(Arc<Mutex<HashMap<(Pin, u32), Origin>>>);

/// The attempt of a generation, and the generation that it was rewritten from.
type Origin = ([u8; 16], u32);

impl OwnGenerations {
    pub(crate) fn add(&self, version: Pin, generation: u32, attempt: [u8; 16], from: u32) {
        let mut own = self.0.lock();
        if generation > from && own.len() < REMEMBERED_MAX {
            own.insert((version, generation), (attempt, from));
        }
    }

    /// The generation from which this process rewrote this one, perhaps in several steps.
    pub(crate) fn origin(&self, version: Pin, generation: u32, attempt: [u8; 16]) -> Option<u32> {
        let own = self.0.lock();
        let of = |generation: u32| own.get(&(version, generation)).copied();
        let (_, mut from) = of(generation).filter(|(written, _)| *written == attempt)?;
        while let Some((_, before)) = of(from) {
            from = before;
        }
        Some(from)
    }
}
