//! Stretching a password with argon2id: here, or where the program says.
//!
//! argon2id needs much memory for a moment, and a process never returns its peak. So a program may
//! have passwords stretched by another process ([`stretch_by`]). The result is the same.

use std::sync::OnceLock;

use argon2::{Algorithm, Argon2, Version};
use zeroize::Zeroizing;

use super::memory::Blocks;
use super::{DeriveError, KdfCost, WHAT};
use crate::wire::DecodeError;

/// Stretches a password with this cost and salt. `None`: this way is not possible here.
pub type Stretch = fn(KdfCost, &[u8; 32], &[u8]) -> Result<Option<Zeroizing<[u8; 32]>>, StretchError>;

/// Another process was to stretch a password, and ended before.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the process that stretches the password {how}")]
pub struct StretchError {
    /// How it ended.
    pub how: String,
}

/// With less memory (KiB), it is stretched here.
const ELSEWHERE_KIB: u32 = 8 << 10;

static ELSEWHERE: OnceLock<Stretch> = OnceLock::new();

/// From now on, `stretch` stretches all passwords of this process, unless they take little memory.
/// Only the first call has an effect.
pub fn stretch_by(stretch: Stretch) {
    let _ = ELSEWHERE.set(stretch);
}

/// Stretches a password in this process.
///
/// # Errors
/// The costs are more than any honest key has, or out of bounds.
pub fn stretch_here(cost: KdfCost, salt: &[u8; 32], password: &[u8]) -> Result<Zeroizing<[u8; 32]>, DecodeError> {
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, cost.params()?);
    let mut key = Zeroizing::new([0; 32]);
    let count = argon2.params().block_count();
    let blocks = if Blocks::is_worth_it(count) { Blocks::new(count) } else { None };
    let derived = match blocks {
        Some(blocks) => argon2.hash_password_into_with_memory(password, salt, &mut key[..], blocks),
        None => argon2.hash_password_into(password, salt, &mut key[..]),
    };
    derived.map_err(|_| DecodeError::invalid(WHAT, "argon2id refuses its parameters"))?;
    Ok(key)
}

pub(super) fn stretch(cost: KdfCost, salt: &[u8; 32], password: &[u8]) -> Result<Zeroizing<[u8; 32]>, DeriveError> {
    // Before anything is started for it.
    cost.params()?;
    if let Some(elsewhere) = ELSEWHERE.get().filter(|_| cost.memory_kib >= ELSEWHERE_KIB)
        && let Some(key) = elsewhere(cost, salt, password)?
    {
        return Ok(key);
    }
    Ok(stretch_here(cost, salt, password)?)
}
