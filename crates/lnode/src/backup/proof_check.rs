//! The check of a proof: the bytes are the same, and they are cut as before.

use larder_chunking::{Chunker, RunMac};
use larder_format::recipe::Proof;

/// Whether the first `bytes` of `data`, which `mac` covers, are those of the proof and are cut as
/// before. `data` continues with the following bytes, at least as far as the chunker looks, or to
/// the end of the file.
pub(super) fn is_proved(proof: &Proof, bytes: u64, mac: RunMac, data: &[u8], chunker: &dyn Chunker) -> bool {
    let tail: u64 = proof.tail.iter().map(|length| u64::from(*length)).sum();
    if tail > bytes || mac.finish() != proof.mac {
        return false;
    }
    let mut at = (bytes - tail) as usize;
    proof.tail.iter().all(|length| {
        let confirmed = chunker.confirms(&data[at..], *length as usize);
        at += *length as usize;
        confirmed
    })
}
