//! [`SecretBytes`]: a byte string of bounded length in memory of its own.

use std::fmt;
use std::io::{self, Read, Write};

use crate::Pages;

/// A password or a key. It never grows beyond its capacity, so it never moves.
#[derive(Default)]
pub struct SecretBytes {
    /// `None`: it has no capacity.
    pages: Option<Pages>,
    len: usize,
}

impl SecretBytes {
    /// An empty one with room for `capacity` bytes.
    pub fn with_capacity(capacity: usize) -> io::Result<Self> {
        if capacity == 0 {
            return Ok(Self::default());
        }
        let pages = Pages::new(capacity).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { pages: Some(pages), len: 0 })
    }

    /// A copy of these bytes. The caller wipes the original.
    pub fn copy_of(bytes: &[u8]) -> io::Result<Self> {
        let mut copy = Self::with_capacity(bytes.len())?;
        copy.write_all(bytes)?;
        Ok(copy)
    }

    /// Reads everything, without a copy elsewhere. More than `most` bytes are the error
    /// [`io::ErrorKind::FileTooLarge`].
    pub fn read(mut from: impl Read, most: usize) -> io::Result<Self> {
        let mut found = Self::with_capacity(most.saturating_add(1))?;
        loop {
            let room = found.pages.as_deref_mut().map_or(&mut [][..], |pages| &mut pages[found.len..]);
            match from.read(room) {
                Ok(0) => return Ok(found),
                Ok(count) => found.len += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if found.len > most {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
        }
    }

    /// Removes the bytes from `len` on, and wipes them.
    pub fn truncate(&mut self, len: usize) {
        if let Some(pages) = self.pages.as_deref_mut().filter(|_| len < self.len) {
            pages[len..self.len].fill(0);
            self.len = len;
        }
    }
}

impl std::ops::Deref for SecretBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.pages.as_deref().map_or(&[], |pages| &pages[..self.len])
    }
}

/// Appends as much as there is room for.
impl Write for SecretBytes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = self.pages.as_deref_mut().map_or(&mut [][..], |pages| &mut pages[self.len..]);
        let count = room.len().min(bytes.len());
        room[..count].copy_from_slice(&bytes[..count]);
        self.len += count;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for SecretBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretBytes(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives one byte at a time, and is interrupted before each.
    struct Slow<'a>(&'a [u8], bool);

    impl Read for Slow<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let one = self.0.len().min(1).min(into.len());
            self.0.read(&mut into[..one])
        }
    }

    #[test]
    fn everything_is_read_up_to_the_bound() {
        let text = [7; 100];
        for most in [100, 101, 5000] {
            assert_eq!(*SecretBytes::read(Slow(&text, false), most).expect("read"), text);
        }
        for most in [0, 1, 99] {
            let error = SecretBytes::read(Slow(&text, false), most).expect_err("too long");
            assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        }
        assert_eq!(*SecretBytes::read(&b""[..], 0).expect("read"), []);
    }

    #[test]
    fn it_takes_what_there_is_room_for() {
        let mut bytes = SecretBytes::with_capacity(5).expect("memory");
        bytes.write_all(b"abc").expect("room");
        assert!(bytes.write_all(b"defg").is_err());
        assert_eq!(*bytes, *b"abcde");
        bytes.truncate(7);
        assert_eq!(*bytes, *b"abcde");
        bytes.truncate(2);
        assert_eq!(*bytes, *b"ab");
        assert_eq!(bytes.pages.as_deref(), Some(&b"ab\0\0\0"[..]), "the rest is wiped");
        let mut none = SecretBytes::default();
        assert!(none.is_empty() && none.write_all(b"x").is_err());
        none.truncate(0);
        assert_eq!(*SecretBytes::copy_of(b"secret").expect("memory"), *b"secret");
        assert!(!format!("{:?}", SecretBytes::copy_of(b"secret").expect("memory")).contains("secret"));
    }
}
