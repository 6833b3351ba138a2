//! Ways in which bytes go wrong, as a proptest strategy: what a disk, a bug or somebody hostile would do to an encoding.

#![allow(unreachable_pub, reason = "shared by test files, which have no outside")]

use proptest::prelude::*;
use proptest::sample::Index;

#[derive(Debug, Clone)]
pub enum Damage {
    Set(Index, u8),
    Flip(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, u8),
    Repeat(Index, u8),
    Cut(Index),
    /// A number that claims more than can be there.
    Huge(Index, u64),
}

fn damage() -> impl Strategy<Value = Damage> {
    let at = || any::<Index>();
    prop_oneof![
        (at(), any::<u8>()).prop_map(|(at, byte)| Damage::Set(at, byte)),
        (at(), 0u8..8).prop_map(|(at, bit)| Damage::Flip(at, bit)),
        (at(), prop::collection::vec(any::<u8>(), 1..6)).prop_map(|(at, bytes)| Damage::Insert(at, bytes)),
        (at(), 1u8..40).prop_map(|(at, len)| Damage::Remove(at, len)),
        (at(), 1u8..40).prop_map(|(at, len)| Damage::Repeat(at, len)),
        at().prop_map(Damage::Cut),
        (at(), prop_oneof![Just(u64::MAX), Just(1 << 63), Just(u64::from(u32::MAX)), Just(1 << 31), Just(1 << 20)])
            .prop_map(|(at, number)| Damage::Huge(at, number)),
    ]
}

/// One to three damages.
pub fn damages() -> impl Strategy<Value = Vec<Damage>> {
    prop::collection::vec(damage(), 1..4)
}

/// `bytes` with all `damages` done to it.
pub fn damaged(bytes: &[u8], damages: &[Damage]) -> Vec<u8> {
    let mut out = bytes.to_vec();
    for damage in damages {
        if out.is_empty() {
            break;
        }
        let range = |at: &Index, len: u8| {
            let from = at.index(out.len());
            from..out.len().min(from + usize::from(len))
        };
        match damage {
            Damage::Set(at, byte) => {
                let at = at.index(out.len());
                out[at] = *byte;
            }
            Damage::Flip(at, bit) => {
                let at = at.index(out.len());
                out[at] ^= 1 << bit;
            }
            Damage::Insert(at, bytes) => {
                let at = at.index(out.len());
                out.splice(at..at, bytes.iter().copied());
            }
            Damage::Remove(at, len) => {
                let range = range(at, *len);
                out.drain(range);
            }
            Damage::Repeat(at, len) => {
                let range = range(at, *len);
                let again = out[range.clone()].to_vec();
                out.splice(range.start..range.start, again);
            }
            Damage::Cut(at) => out.truncate(at.index(out.len())),
            Damage::Huge(at, number) => {
                let at = at.index(out.len());
                out.splice(at..=at, crate::support::varint(*number));
            }
        }
    }
    out
}
