//! Fields of a message in their order.

use super::{Malformed, STRING_MAX};

/// The rest of a message that is being decoded.
#[derive(Debug)]
pub struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// All of a message.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next `length` bytes.
    pub fn bytes(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed("the message is too short"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Malformed("the message is too short"))?;
        self.0 = rest;
        Ok(*taken)
    }

    /// The next two bytes.
    pub fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    /// The next four bytes.
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    /// The next eight bytes.
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    /// A length of four bytes and as much text.
    pub fn string(&mut self) -> Result<String, Malformed> {
        let length = self.u32()? as usize;
        text(self.bytes(length)?)
    }

    /// Everything that is left.
    pub fn rest(self) -> &'a [u8] {
        self.0
    }

    /// Bytes that are left.
    pub fn left(&self) -> usize {
        self.0.len()
    }

    /// Nothing may be left.
    pub fn end(self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed("the message is too long")) }
    }
}

/// A name from the wire: UTF-8 of at most [`STRING_MAX`] bytes, without NUL.
pub fn text(bytes: &[u8]) -> Result<String, Malformed> {
    if bytes.len() > STRING_MAX {
        return Err(Malformed("a string is longer than 4,096 bytes"));
    }
    if bytes.contains(&0) {
        return Err(Malformed("a string contains NUL"));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| Malformed("a string is not UTF-8"))?;
    Ok(text.to_owned())
}

/// Appends a length of four bytes and the text.
pub fn put_string(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as u32).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}
