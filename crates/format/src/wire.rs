//! Little-endian primitives that every binary layout of this crate is written with, and the errors
//! of decoders and encoders.
//!
//! Lengths and counts are checked against the bytes that are present before anything is allocated
//! for them.

use crate::ErrorKind;
use crate::roles::Roles;

/// Why bytes are not valid. The reader adds the object's name in the store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes end inside a structure.
    #[error("{what} is cut short")]
    Truncated {
        /// The structure or field.
        what: &'static str,
    },
    /// Not this kind of object at all.
    #[error("not a {what}: it begins with {found:02x?}")]
    BadMagic {
        /// The kind that was expected.
        what: &'static str,
        /// The first four bytes found.
        found: [u8; 4],
    },
    /// Written by a newer Larder, or damaged in its version byte.
    #[error("{what} has format version {found}; this program reads versions up to {newest}")]
    UnsupportedVersion {
        /// The structure.
        what: &'static str,
        /// The version byte found.
        found: u8,
        /// The newest version this program reads.
        newest: u8,
    },
    /// Written before the first release.
    #[error("{what} was written by a development version of Larder; make a new repository and back up again")]
    Development {
        /// The structure.
        what: &'static str,
    },
    /// The repository uses something this program does not know.
    #[error("the repository needs {feature:?}, which this program does not know")]
    UnknownFeature {
        /// Its name as the repository's configuration gives it.
        feature: String,
    },
    /// A field holds a value that no encoder writes.
    #[error("{what} is invalid: {why}")]
    Invalid {
        /// The structure or field.
        what: &'static str,
        /// The reason.
        why: &'static str,
    },
    /// The object must be signed by an operator, and is not.
    #[error("{what} is not signed by an operator")]
    Unsigned {
        /// The structure.
        what: &'static str,
    },
    /// The key in use does not open such objects. The object may be whole.
    #[error("this key does not open it ({what}): that needs a key with the role {needs}")]
    KeyLacks {
        /// The structure.
        what: &'static str,
        /// A role that opens it.
        needs: Roles,
    },
    /// The authentication tag does not fit: damaged, forged, moved from another place, or sealed
    /// with another key.
    #[error("{what} does not authenticate")]
    NotAuthentic {
        /// The structure.
        what: &'static str,
    },
}

impl DecodeError {
    /// How a caller can react to it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            // A newer program reads it.
            Self::UnsupportedVersion { .. } | Self::UnknownFeature { .. } | Self::Development { .. } => {
                ErrorKind::Precondition
            }
            Self::KeyLacks { .. } => ErrorKind::BadKey,
            Self::Truncated { .. }
            | Self::BadMagic { .. }
            | Self::Invalid { .. }
            | Self::NotAuthentic { .. }
            | Self::Unsigned { .. } => ErrorKind::Damaged,
        }
    }

    /// Whether the key in use is the reason. The object may be whole. Asking again is of no use.
    pub fn is_of_key(&self) -> bool {
        matches!(self, Self::KeyLacks { .. })
    }

    pub(crate) const fn invalid(what: &'static str, why: &'static str) -> Self {
        Self::Invalid { what, why }
    }
}

/// A value that no decoder of this format would accept, refused before it is stored. It is a
/// mistake of the program, or a limit of the format that was reached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} cannot be stored: {why}")]
pub struct EncodeError {
    /// The structure.
    pub what: &'static str,
    /// The reason.
    pub why: &'static str,
}

impl EncodeError {
    /// How a caller can react to it.
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::Bug
    }

    pub(crate) const fn new(what: &'static str, why: &'static str) -> Self {
        Self { what, why }
    }

    /// A number as the 32 bits that a layout has for it.
    pub(crate) fn fit_u32(what: &'static str, number: usize) -> Result<u32, Self> {
        u32::try_from(number).map_err(|_| Self::new(what, "a number has more than 32 bits"))
    }
}

/// Encoders share the decoders' checks; an error is then not damage but our own mistake.
impl From<DecodeError> for EncodeError {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::Invalid { what, why } => Self { what, why },
            DecodeError::Truncated { what }
            | DecodeError::BadMagic { what, .. }
            | DecodeError::UnsupportedVersion { what, .. }
            | DecodeError::Development { what }
            | DecodeError::Unsigned { what }
            | DecodeError::NotAuthentic { what } => Self { what, why: "it would not be read back" },
            DecodeError::KeyLacks { what, .. } => Self { what, why: "the key in use may not write it" },
            DecodeError::UnknownFeature { .. } => {
                Self { what: "repository", why: "it needs what this program does not know" }
            }
        }
    }
}

/// The version byte that all structures had before the first release.
pub(crate) const DEVELOPMENT: u8 = 1;

/// Appends primitives to a buffer.
pub(crate) trait Put {
    fn put_u8(&mut self, value: u8);
    fn put_u32(&mut self, value: u32);
    fn put_u64(&mut self, value: u64);
    /// LEB128: 7 bits a byte, lowest first; at most 10 bytes.
    fn put_varint(&mut self, value: u64);
    /// A signed number as a varint with the sign in the lowest bit.
    fn put_signed(&mut self, value: i64);
    /// A varint length and the bytes.
    fn put_bytes(&mut self, bytes: &[u8]);
}

impl Put for Vec<u8> {
    fn put_u8(&mut self, value: u8) {
        self.push(value);
    }

    fn put_u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn put_u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn put_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.push(value as u8);
    }

    fn put_signed(&mut self, value: i64) {
        self.put_varint(((value << 1) ^ (value >> 63)) as u64);
    }

    fn put_bytes(&mut self, bytes: &[u8]) {
        self.put_varint(bytes.len() as u64);
        self.extend_from_slice(bytes);
    }
}

/// Reads primitives from the front of a slice; `what` names the structure in errors.
#[derive(Debug, Clone)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    what: &'static str,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8], what: &'static str) -> Self {
        Self { rest: bytes, what }
    }

    pub(crate) fn invalid(&self, why: &'static str) -> DecodeError {
        DecodeError::invalid(self.what, why)
    }

    pub(crate) fn remaining(&self) -> usize {
        self.rest.len()
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (head, rest) = self.rest.split_at_checked(len).ok_or(DecodeError::Truncated { what: self.what })?;
        self.rest = rest;
        Ok(head)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (head, rest) = self.rest.split_first_chunk().ok_or(DecodeError::Truncated { what: self.what })?;
        self.rest = rest;
        Ok(*head)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(crate) fn u16(&mut self) -> Result<u16, DecodeError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(self.invalid("a number has more than 64 bits"));
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                // One spelling for each number, or equal structures could have different
                // fingerprints.
                return if byte == 0 && shift != 0 { Err(self.invalid("a number is padded")) } else { Ok(value) };
            }
        }
        Err(self.invalid("a number has more than 64 bits"))
    }

    pub(crate) fn varint_u32(&mut self) -> Result<u32, DecodeError> {
        u32::try_from(self.varint()?).map_err(|_| self.invalid("a number has more than 32 bits"))
    }

    pub(crate) fn signed(&mut self) -> Result<i64, DecodeError> {
        let raw = self.varint()?;
        Ok((raw >> 1) as i64 ^ -((raw & 1) as i64))
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let len = self.varint()?;
        let len = usize::try_from(len).map_err(|_| DecodeError::Truncated { what: self.what })?;
        self.take(len)
    }

    /// A count of things that take at least `least` bytes each: refused when they cannot be there.
    pub(crate) fn count(&mut self, least: usize) -> Result<usize, DecodeError> {
        let count = usize::try_from(self.varint()?).map_err(|_| DecodeError::Truncated { what: self.what })?;
        if count > self.rest.len() / least.max(1) {
            return Err(DecodeError::Truncated { what: self.what });
        }
        Ok(count)
    }

    /// The bytes that are left.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn finish(&self) -> Result<(), DecodeError> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.invalid("bytes follow its end")) }
    }

    pub(crate) fn version(&mut self, newest: u8) -> Result<u8, DecodeError> {
        let found = self.u8()?;
        if found == DEVELOPMENT {
            return Err(DecodeError::Development { what: self.what });
        }
        if found == 0 || found > newest {
            return Err(DecodeError::UnsupportedVersion { what: self.what, found, newest });
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_survive(value: u64, signed: i64) {
            let mut out = Vec::new();
            out.put_varint(value);
            out.put_signed(signed);
            let mut reader = Reader::new(&out, "numbers");
            prop_assert_eq!(reader.varint(), Ok(value));
            prop_assert_eq!(reader.signed(), Ok(signed));
            prop_assert_eq!(reader.finish(), Ok(()));
        }

        #[test]
        fn any_bytes_are_a_number_in_its_only_spelling_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..12)) {
            let mut reader = Reader::new(&bytes, "number");
            if let Ok(value) = reader.varint() {
                let mut out = Vec::new();
                out.put_varint(value);
                prop_assert_eq!(&out[..], &bytes[..bytes.len() - reader.remaining()]);
            }
        }
    }
}
