//! Random bytes.

use crate::error::VolumeError;

/// A source of random bytes.
pub trait Entropy: Send + Sync {
    /// 32 fresh random bytes.
    fn random(&self) -> Result<[u8; 32], VolumeError>;
}

/// The system's.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn random(&self) -> Result<[u8; 32], VolumeError> {
        let mut bytes = [0; 32];
        #[expect(
            clippy::disallowed_methods,
            reason = "the one place of this crate that asks the system for random numbers"
        )]
        let filled = getrandom::fill(&mut bytes);
        let failed = |error: getrandom::Error| std::io::Error::other(error.to_string());
        filled.map_err(failed).map_err(VolumeError::io("random bytes"))?;
        Ok(bytes)
    }
}
