//! The name of a chunk.

use std::fmt;

/// Keyed identity of a chunk: BLAKE3 in keyed mode over the chunk's bytes, 256 bits.
///
/// Two chunks with the same fingerprint are the same chunk; nothing compares bytes afterwards.
/// Without the repository's key, the fingerprint of a known file cannot be computed and looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub [u8; 32]);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::Fingerprint;

    #[test]
    fn display_is_lower_case_hex() {
        let text = Fingerprint([0xab; 32]).to_string();
        assert_eq!(text, "ab".repeat(32));
    }
}
