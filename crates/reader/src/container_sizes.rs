//! Sizes of the containers of a version, as far as its manifest tells.

use std::collections::HashMap;

use larder_format::ids::{ContainerId, ContainerKind};
use larder_format::manifest::{ContainerUsage, Manifest};

/// Sizes of data containers: for those of the manifest, its own values. Others, to which chunks
/// were moved, count as full ones that compress alike. Exact sizes need the store, which costs more
/// than it saves.
#[derive(Debug)]
pub struct Sizes {
    known: HashMap<ContainerId, Known>,
    typical: Measure,
}

/// A container of the manifest.
#[derive(Debug, Clone, Copy)]
struct Known {
    measure: Measure,
    /// Bytes of its payload that the version uses.
    used: u64,
}

/// The size of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measure {
    /// Bytes of its payload.
    pub(crate) payload: u64,
    /// Bytes of the object.
    pub(crate) object: u64,
}

impl Known {
    fn of(usage: &ContainerUsage) -> Self {
        let measure = Measure { payload: usage.bytes_held, object: usage.object_bytes };
        Self { measure, used: usage.bytes_used }
    }
}

impl Measure {
    /// Bytes of the object.
    pub fn object_bytes(&self) -> u64 {
        self.object
    }
}

impl Sizes {
    /// The sizes of a manifest. `full` gives the size of a full container.
    pub(crate) fn of(manifest: &Manifest, full: impl FnOnce(Sum) -> Measure) -> Self {
        let data = manifest.containers.iter().filter(|usage| usage.container.kind == ContainerKind::Data);
        let known: HashMap<_, _> = data.map(|usage| (usage.container, Known::of(usage))).collect();
        let sum = |of: fn(&Measure) -> u64| known.values().map(|known| u128::from(of(&known.measure))).sum::<u128>();
        let typical = full(Sum { payload: sum(|measure| measure.payload), object: sum(|measure| measure.object) });
        Self { known, typical }
    }

    /// The size of a container, as far as known.
    pub fn measure(&self, id: &ContainerId) -> Measure {
        self.known.get(id).map_or(self.typical, |known| known.measure)
    }

    /// Whether the manifest tells the size of a container.
    pub fn knows(&self, id: &ContainerId) -> bool {
        self.known.contains_key(id)
    }

    /// Bytes of a container that the version uses besides `used` ones, if the manifest tells.
    pub fn rest(&self, id: &ContainerId, used: u64) -> Option<u64> {
        self.known.get(id).map(|known| known.used.saturating_sub(used))
    }

    /// The size of a full container.
    pub(crate) fn typical(&self) -> Measure {
        self.typical
    }

    /// Bytes of a container's object, if they are known.
    pub(crate) fn object(&self, id: &ContainerId) -> Option<u64> {
        self.known.get(id).map(|known| known.measure.object)
    }
}

/// Bytes of several containers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sum {
    pub(crate) payload: u128,
    pub(crate) object: u128,
}

impl Sum {
    /// `bytes` times `by` divided by `of`; unchanged if `of` is 0.
    pub(crate) fn scaled(bytes: u64, by: u128, of: u128) -> u64 {
        (u128::from(bytes) * by).checked_div(of).map_or(bytes, |scaled| scaled as u64)
    }
}
