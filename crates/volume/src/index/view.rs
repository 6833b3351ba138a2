//! [`View`]: what a reader sees of a volume.

/// A point of view: the versions of a volume's blocks below a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) volume: u32,
    pub(crate) below: u64,
}

impl View {
    /// A volume as it is now.
    pub(crate) fn live(volume: u32) -> Self {
        Self { volume, below: u64::MAX }
    }
}
