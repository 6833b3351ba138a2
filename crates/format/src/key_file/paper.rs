//! The paper form of the master key: lines that a person can type back, each with its own check.

use zeroize::Zeroizing;

use crate::ErrorKind;
use crate::ids::RepositoryId;
use crate::keys::MasterKey;

/// The paper form of a master key: lines that a person can type back, each with a check of its own.
///
/// Six lines, each 18 base32 letters in groups of six: the next 8 bytes of (repository id ‖ master
/// key) and 3 bytes of checksum. The checksum covers the line's number and those bytes, so a typing
/// error is found in its line.
pub fn to_paper(master: &MasterKey, repository: RepositoryId) -> Vec<String> {
    let secret = Zeroizing::new([&repository.0[..], &master.0].concat());
    let line = |(number, bytes): (usize, &[u8])| {
        let mut body = Zeroizing::new(bytes.to_vec());
        body.extend_from_slice(&paper_check(number, bytes));
        let text = data_encoding::BASE32_NOPAD.encode(&body);
        let groups: Vec<_> = text.as_bytes().chunks(6).map(String::from_utf8_lossy).collect();
        groups.join("-")
    };
    secret.chunks(8).enumerate().map(line).collect()
}

fn paper_check(number: usize, bytes: &[u8]) -> [u8; 3] {
    let mut hasher = blake3::Hasher::new_derive_key("Larder paper key 1");
    hasher.update(&[number as u8]).update(bytes);
    let mut check = [0; 3];
    check.copy_from_slice(&hasher.finalize().as_bytes()[..3]);
    check
}

/// A paper key that was typed wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PaperError {
    /// Not the right number of lines.
    #[error("a paper key has 6 lines, and this has {found}")]
    Lines {
        /// How many there were.
        found: usize,
    },
    /// A line with a typing error.
    #[error("line {line} of the paper key has a typing error")]
    Line {
        /// Counted from 1.
        line: usize,
    },
}

impl PaperError {
    /// How a caller can react to it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Lines { .. } | Self::Line { .. } => ErrorKind::BadKey,
        }
    }
}

/// Reads a paper key; case, spaces, dashes and empty lines do not matter, and 0, 1, 8 are read as
/// O, I, B.
pub fn from_paper(text: &str) -> Result<(MasterKey, RepositoryId), PaperError> {
    let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    if lines.len() != 6 {
        return Err(PaperError::Lines { found: lines.len() });
    }
    let mut secret = Zeroizing::new(Vec::with_capacity(48));
    for (number, line) in lines.iter().enumerate() {
        let wrong = PaperError::Line { line: number + 1 };
        let letters: String = line
            .chars()
            .filter(|letter| !letter.is_whitespace() && *letter != '-')
            .map(|letter| match letter.to_ascii_uppercase() {
                '0' => 'O',
                '1' => 'I',
                '8' => 'B',
                letter => letter,
            })
            .collect();
        let bytes = data_encoding::BASE32_NOPAD.decode(letters.as_bytes()).map_err(|_| wrong.clone())?;
        let (bytes, check) = bytes.split_last_chunk::<3>().ok_or(wrong.clone())?;
        if bytes.len() != 8 || paper_check(number, bytes) != *check {
            return Err(wrong);
        }
        secret.extend_from_slice(bytes);
    }
    let (mut repository, mut master) = ([0; 16], [0; 32]);
    repository.copy_from_slice(&secret[..16]);
    master.copy_from_slice(&secret[16..]);
    Ok((MasterKey(master), RepositoryId(repository)))
}
