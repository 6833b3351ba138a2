//! Volumes and snapshots, as the manifest lists them and the log changes them.

use minicbor::{Decode, Encode};

use crate::wire::DecodeError;

/// Most bytes of a volume.
pub const VOLUME_MAX: u64 = 64 << 40;
/// Most volumes and snapshots of a store together.
pub const VOLUMES_MAX: usize = 65_535;
/// Longest name of a volume or a snapshot in bytes.
pub const VOLUME_NAME_MAX: usize = 255;
/// Longest text of a parent or a mark in bytes.
pub const VOLUME_TEXT_MAX: usize = 4096;

/// Where blocks come from that a volume does not have itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Encode, Decode)]
pub enum Parent {
    /// A snapshot of this store, by its number.
    #[n(0)]
    Snapshot(#[n(0)] u32),
    /// Something outside of the store. The text says what; the store does not read it.
    #[n(1)]
    Outside(#[n(0)] String),
}

/// A volume.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct VolumeEntry {
    /// Number in the store; never used again.
    #[n(0)]
    pub id: u32,
    /// Its name, unique in the store.
    #[n(1)]
    pub name: String,
    /// Bytes; a multiple of 512.
    #[n(2)]
    pub size: u64,
    /// When it was created, milliseconds since the epoch. For people.
    #[n(3)]
    pub created_ms: u64,
    /// Where blocks come from that it does not have itself. `None`: they are zeros.
    #[n(4)]
    pub parent: Option<Parent>,
}

/// A snapshot of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct SnapshotEntry {
    /// Number in the store; never used again.
    #[n(0)]
    pub id: u32,
    /// Number of its volume.
    #[n(1)]
    pub volume: u32,
    /// Its name, unique among the snapshots of the volume.
    #[n(2)]
    pub name: String,
    /// It has versions of blocks below this one.
    #[n(3)]
    pub version: u64,
    /// Bytes of the volume when it was created.
    #[n(4)]
    pub size: u64,
    /// When it was created, milliseconds since the epoch. For people.
    #[n(5)]
    pub created_ms: u64,
    /// A text of those who created it. The store does not read it.
    #[n(6)]
    pub mark: Option<String>,
}

impl VolumeEntry {
    /// Refuses an entry that has no valid form by itself.
    pub(crate) fn check(&self, what: &'static str) -> Result<(), DecodeError> {
        let is_long = matches!(&self.parent, Some(Parent::Outside(text)) if text.len() > VOLUME_TEXT_MAX);
        if self.id == u32::MAX || !is_valid_name(&self.name) || !is_valid_size(self.size) || is_long {
            return Err(DecodeError::invalid(what, "a volume has no valid form"));
        }
        Ok(())
    }
}

impl SnapshotEntry {
    /// Refuses an entry that has no valid form by itself.
    pub(crate) fn check(&self, what: &'static str) -> Result<(), DecodeError> {
        let is_long = self.mark.as_ref().is_some_and(|mark| mark.len() > VOLUME_TEXT_MAX);
        if self.id == u32::MAX || !is_valid_name(&self.name) || !is_valid_size(self.size) || is_long {
            return Err(DecodeError::invalid(what, "a snapshot has no valid form"));
        }
        Ok(())
    }
}

/// Whether a volume or a snapshot may have this name: letters, digits, `-`, `_` and `.`, and no dot
/// first.
pub fn is_valid_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=VOLUME_NAME_MAX).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(is_plain)
}

/// Whether a volume may have this many bytes: a multiple of 512, at least 512, at most 64 TiB.
pub fn is_valid_size(size: u64) -> bool {
    size.is_multiple_of(512) && (512..=VOLUME_MAX).contains(&size)
}
