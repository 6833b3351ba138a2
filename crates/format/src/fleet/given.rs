//! What tasks that one process gives to others have in common, and their results: heads, and one
//! way to seal and to open them.
//!
//! An object has one part, a CBOR map. Its first fields are those of its heads, and the fields of
//! its own follow. All numbers are below 24, so the map has a head of one byte.

use minicbor::{Decode, Encode};

use crate::cbor;
use crate::ids::{AttemptId, DomainId};
use crate::keys::Keys;
use crate::seal::{ObjectType, RANDOM_LEN, open_object, seal_object};
use crate::wire::{DecodeError, EncodeError};

/// The first byte of a map with fewer than 24 fields, less their number.
const MAP: u8 = 0xa0;

/// Who gives a task away, and how.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct TaskHead {
    /// The rules that workers must follow. A worker leaves tasks with others alone.
    #[n(0)]
    pub rules: u32,
    /// Without a sign of life for so long, the claim of a worker is taken over. Not 0.
    #[n(1)]
    pub claim_seconds: u32,
    /// The process that gives it away. It gives signs of life as workers do.
    #[n(2)]
    pub asks: AttemptId,
    /// Name and version of its program. For people.
    #[n(3)]
    pub program: String,
}

impl TaskHead {
    pub(super) fn check(&self, what: &'static str) -> Result<(), DecodeError> {
        match self.claim_seconds {
            0 => Err(DecodeError::invalid(what, "its workers have no time")),
            _ => Ok(()),
        }
    }
}

/// Which task of a pass it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct PassHead {
    /// The number of the index that the pass is to publish, or of the generation that a rewrite of
    /// a version is to create. For people.
    #[n(4)]
    pub turn: u64,
    /// Drawn for this task.
    #[n(5)]
    #[cbor(with = "minicbor::bytes")]
    pub ticket: [u8; 16],
}

/// Who did a task of a pass.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct ResultHead {
    /// The ticket of the task.
    #[n(0)]
    #[cbor(with = "minicbor::bytes")]
    pub ticket: [u8; 16],
    /// The process that did it.
    #[n(1)]
    pub worker: AttemptId,
    /// Its host. For people.
    #[n(2)]
    pub host: String,
    /// How long it took, in milliseconds. For people.
    #[n(3)]
    pub took_ms: u64,
}

/// A map with the fields of several maps, whose numbers rise.
pub(super) fn join<const N: usize>(maps: [Vec<u8>; N]) -> Vec<u8> {
    let mut all = vec![MAP];
    for map in maps {
        let (head, fields) = map.split_first().unwrap_or((&MAP, &[]));
        all[0] += head - MAP;
        all.extend_from_slice(fields);
    }
    all
}

/// Seals the map of an object in the domain of the key. `random` must be fresh random bytes.
pub(super) fn seal(
    keys: &Keys,
    name: &str,
    object: ObjectType,
    random: [u8; RANDOM_LEN],
    map: &[u8],
) -> Result<Vec<u8>, EncodeError> {
    seal_object(keys, keys.domain(), name, object, random, &[map])
}

/// The opened map of an object.
pub(super) struct OpenedMap {
    what: &'static str,
    part: Vec<u8>,
    pub(super) domain: DomainId,
}

impl OpenedMap {
    /// Some of its fields. Those of the others are passed over.
    pub(super) fn fields<'b, T: Decode<'b, ()>>(&'b self) -> Result<T, DecodeError> {
        cbor::decode_padded(&self.part, self.what)
    }
}

/// Opens the map of an object.
pub(super) fn open(keys: &Keys, name: &str, object: ObjectType, bytes: &[u8]) -> Result<OpenedMap, DecodeError> {
    let mut opened = open_object(keys, name, object, bytes, 1, 1)?;
    Ok(OpenedMap { what: object.what, part: std::mem::take(&mut opened.parts[0]), domain: opened.domain })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Encode)]
    #[cbor(map)]
    struct Own {
        #[n(6)]
        some: Option<u32>,
        #[n(7)]
        more: u8,
    }

    #[test]
    fn joined_maps_are_one_map() {
        let head = PassHead { turn: 7, ticket: [3; 16] };
        for some in [None, Some(900)] {
            let own = Own { some, more: 4 };
            let joined = join([cbor::encode(&head), cbor::encode(&own)]);
            assert_eq!(joined[0], MAP + 3 + u8::from(some.is_some()));
            assert_eq!(cbor::decode::<PassHead>(&joined, "a map"), Ok(head));
        }
    }
}
