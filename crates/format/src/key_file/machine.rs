//! The key file of a machine: a secret in a text file, in the place of a password.
//!
//! Lines that begin with `#` are for people. One line is `LARDER-KEY-2`, a space, and base32 of:
//! repository id 16, key id 8, secret 32, and the first 4 bytes of BLAKE3 over these. One file
//! opens one key of one repository; a file may have a line for each of several repositories.

use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::ErrorKind;
use crate::ids::{KeyId, RepositoryId};

const WORD: &str = "LARDER-KEY-2 ";
const BODY_LEN: usize = 16 + 8 + 32;

/// Most bytes of a key file.
pub const MACHINE_KEY_MAX: usize = 64 << 10;

/// One line of a key file.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct MachineKey {
    /// The repository that it opens.
    #[zeroize(skip)]
    pub repository: RepositoryId,
    /// The key object that it opens.
    #[zeroize(skip)]
    pub key: KeyId,
    /// Takes the place of a password.
    pub secret: [u8; 32],
}

impl std::fmt::Debug for MachineKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MachineKey({}, {})", self.repository, self.key)
    }
}

/// A key file that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MachineKeyError {
    /// There is no line of a key.
    #[error("it has no line that begins with LARDER-KEY-2")]
    NoKey,
    /// A line was damaged or cut.
    #[error("line {line} is damaged: its checksum is wrong")]
    Line {
        /// Counted from 1.
        line: usize,
    },
}

impl MachineKeyError {
    /// How a caller can react to it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NoKey | Self::Line { .. } => ErrorKind::BadKey,
        }
    }
}

fn check(body: &[u8]) -> [u8; 4] {
    let mut check = [0; 4];
    check.copy_from_slice(&blake3::hash(body).as_bytes()[..4]);
    check
}

impl MachineKey {
    /// The line of the file.
    pub fn to_line(&self) -> Zeroizing<String> {
        let mut body = Zeroizing::new([&self.repository.0[..], &self.key.0, &self.secret].concat());
        let sum = check(&body);
        body.extend_from_slice(&sum);
        Zeroizing::new(format!("{WORD}{}", data_encoding::BASE32_NOPAD.encode(&body)))
    }

    /// Reads all keys of a file.
    pub fn read_all(text: &str) -> Result<Vec<Self>, MachineKeyError> {
        let mut keys = Vec::new();
        for (line, text) in text.lines().enumerate() {
            let Some(letters) = text.trim().strip_prefix(WORD) else { continue };
            let wrong = || MachineKeyError::Line { line: line + 1 };
            let bytes = data_encoding::BASE32_NOPAD.decode(letters.trim().as_bytes()).map_err(|_| wrong())?;
            let bytes = Zeroizing::new(bytes);
            let (body, sum) = bytes.split_last_chunk::<4>().ok_or_else(wrong)?;
            if body.len() != BODY_LEN || check(body) != *sum {
                return Err(wrong());
            }
            let (mut repository, mut key, mut secret) = ([0; 16], [0; 8], [0; 32]);
            repository.copy_from_slice(&body[..16]);
            key.copy_from_slice(&body[16..24]);
            secret.copy_from_slice(&body[24..]);
            keys.push(Self { repository: RepositoryId(repository), key: KeyId(key), secret });
        }
        if keys.is_empty() { Err(MachineKeyError::NoKey) } else { Ok(keys) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_reads_back_and_damage_is_named() {
        let key = MachineKey { repository: RepositoryId([1; 16]), key: KeyId([2; 8]), secret: [3; 32] };
        let other = MachineKey { repository: RepositoryId([4; 16]), ..key.clone() };
        let text = format!("# backup key\n{}\n\n  {}  \n", *key.to_line(), *other.to_line());
        assert_eq!(MachineKey::read_all(&text), Ok(vec![key.clone(), other]));
        assert_eq!(MachineKey::read_all("# nothing\n"), Err(MachineKeyError::NoKey));
        let line = key.to_line();
        for place in WORD.len()..line.len() {
            let mut letters = line.to_string().into_bytes();
            letters[place] = if letters[place] == b'A' { b'B' } else { b'A' };
            let text = String::from_utf8(letters).expect("ASCII");
            assert_eq!(MachineKey::read_all(&text), Err(MachineKeyError::Line { line: 1 }), "{place}");
        }
        assert!(MachineKey::read_all(&line[..line.len() - 8]).is_err());
    }
}
