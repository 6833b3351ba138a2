//! The check of a proof: the bytes are the same, and they are cut as before.

use larder_chunking::{Chunker, RunMac};
use larder_format::recipe::Proof;

/// Whether the first `bytes` of `data`, which `mac` covers, are those of the proof and are cut as
/// before. `data` continues with the following bytes, at least as far as the chunker looks, or to
/// the end of the file.
pub(super) fn is_proved(proof: &Proof, bytes: u64, mac: RunMac, data: &[u8], chunker: &dyn Chunker) -> bool {
    mac.finish() == proof.mac && is_cut_as_before(&proof.tail, bytes as usize, data, chunker)
}

/// Whether the last chunks of the first `bytes` of `data` have these lengths still. Those before
/// them end so far before that nothing behind decides about them.
pub(super) fn is_cut_as_before(tail: &[u32], bytes: usize, data: &[u8], chunker: &dyn Chunker) -> bool {
    let before: Option<usize> = bytes.checked_sub(tail.iter().map(|length| *length as usize).sum());
    let Some(mut at) = before else { return false };
    tail.iter().all(|length| {
        let confirmed = chunker.confirms(&data[at..], *length as usize);
        at += *length as usize;
        confirmed
    })
}
