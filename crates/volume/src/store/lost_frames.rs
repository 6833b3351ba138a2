//! [`LostFrames`]: frames that durable records of the log name, and that are gone: their container
//! is missing, or ends before them.
//!
//! That is damage, because frames and record are synced together. A store that accepts it keeps all
//! records. Blocks that name such frames fail, and no other block does. A missing container counts
//! as retired, so nothing names it again.

use std::collections::BTreeMap;
use std::io::ErrorKind;

use larder_format::DecodeError;
use larder_format::volume_map::{Mapping, Place};

use super::containers::{self, Named};
use crate::disk::Disk;
use crate::error::VolumeError;

/// What is lost of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lost {
    /// It has no file.
    All,
    /// Its file ends before the frame that begins at this offset of the payload.
    From(u32),
}

/// See the module header.
#[derive(Debug, Default)]
pub(super) struct LostFrames(BTreeMap<u32, Lost>);

impl LostFrames {
    /// Looks for all containers that the log names.
    pub(super) fn find(disk: &dyn Disk, named: &Named) -> Result<Self, VolumeError> {
        let mut lost = BTreeMap::new();
        for (number, contents) in named {
            let name = containers::path(*number);
            let file = match disk.open(&name) {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    lost.insert(*number, Lost::All);
                    continue;
                }
                file => file.map_err(VolumeError::io(&name))?,
            };
            let length = file.length().map_err(VolumeError::io(&name))?;
            let first = contents.frames.iter().find(|frame| frame.object_range().end > length);
            lost.extend(first.map(|frame| (*number, Lost::From(frame.payload_offset))));
        }
        Ok(Self(lost))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the frame with a byte of a container's payload is lost.
    pub(super) fn has(&self, place: Place) -> bool {
        match self.0.get(&place.container) {
            None => false,
            Some(Lost::All) => true,
            Some(Lost::From(offset)) => place.offset >= *offset,
        }
    }

    /// Whether a mapping names a lost frame.
    pub(super) fn concern(&self, mapping: &Mapping) -> bool {
        mapping.items.iter().filter_map(|item| item.place).any(|place| self.has(place))
    }

    /// Whether a container has no file.
    pub(super) fn is_missing(&self, container: u32) -> bool {
        self.0.get(&container) == Some(&Lost::All)
    }

    /// Containers without a file.
    pub(super) fn missing(&self) -> Vec<u32> {
        self.0.keys().copied().filter(|number| self.is_missing(*number)).collect()
    }

    /// Paths of all containers that lost frames.
    pub(super) fn paths(&self) -> Vec<String> {
        self.0.keys().map(|number| containers::path(*number)).collect()
    }

    /// The damage of the first container. `None`: nothing is lost.
    pub(super) fn error(&self) -> Option<VolumeError> {
        let what = containers::path(*self.0.keys().next()?);
        Some(VolumeError::DamagedLog { what, source: DecodeError::Truncated { what: "container that the log names" } })
    }
}
