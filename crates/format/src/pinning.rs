//! Whether a version is pinned, and its present tags: numbered entries, of which the last one
//! counts.
//!
//! `pins/<series>/<job>/<n>` is a sealed object (`seal.rs`), magic `LPIN`, one part: a CBOR map,
//! [`PinEntry`]. Nothing may be overwritten, so each change is the next number, created if absent.
//! Of two simultaneous changes one wins, and the other looks again. A version without entries is
//! not pinned, and has the tags of its manifest.
//!
//! Both are in one line, because both decide what a policy forgets. An entry that does not open may
//! have been either, and then nothing is forgotten.
//!
//! Forgetting takes a number of the same line ([`PinState::Forgetting`]) before it makes the mark.
//! After that number no pin counts. So a version is never pinned and marked at once, even if a
//! program was slow or died in between.

use minicbor::{Decode, Encode};

use crate::cbor;
use crate::ids::{DomainId, JobId, SeriesKey};
use crate::keys::Keys;
use crate::mark::MARK_MAX;
use crate::names;
use crate::seal::{ObjectType, Pad, RANDOM_LEN, Realm, Signing, open_object, seal_object};
use crate::wire::{DecodeError, EncodeError};

const PIN: ObjectType = ObjectType {
    magic: *b"LPIN",
    version: 2,
    what: "pin of a version",
    max_len: MARK_MAX,
    realm: Realm::Domain,
    signing: Signing::Required,
    pad: Pad::Small,
};

/// The meaning of an entry for its version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum PinState {
    /// It must not be forgotten.
    #[n(0)]
    Pinned,
    /// It may be forgotten again.
    #[n(1)]
    Unpinned,
    /// It is being forgotten: no entry may follow.
    #[n(2)]
    Forgetting,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct PinEntry {
    /// The state from this entry on.
    #[n(0)]
    pub state: PinState,
    /// When, milliseconds since the epoch by the writer's clock. For people.
    #[n(1)]
    pub time_ms: u64,
    /// On which host. For people.
    #[n(2)]
    pub host: String,
    /// By whom and why. For people.
    #[n(3)]
    pub reason: String,
    /// The tags of the version from this entry on, sorted; `None`: those of its manifest. Every
    /// entry repeats those of the one before.
    #[n(4)]
    pub tags: Option<Vec<String>>,
}

impl PinEntry {
    /// Seals entry `number` of one version. `random` must be fresh random bytes.
    pub fn encode(
        &self,
        keys: &Keys,
        domain: DomainId,
        series: SeriesKey,
        job: JobId,
        number: u32,
        random: [u8; RANDOM_LEN],
    ) -> Result<Vec<u8>, EncodeError> {
        seal_object(keys, domain, &names::pin(series, job, number), PIN, random, &[&cbor::encode(self)])
    }

    /// Opens entry `number` of one version.
    pub fn decode(keys: &Keys, series: SeriesKey, job: JobId, number: u32, bytes: &[u8]) -> Result<Self, DecodeError> {
        let opened = open_object(keys, &names::pin(series, job, number), PIN, bytes, 1, 1)?;
        cbor::decode_padded(&opened.parts[0], PIN.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::{all_damage_is_noticed, golden};
    use crate::keys::MasterKey;
    use proptest::prelude::*;

    const SERIES: SeriesKey = SeriesKey([6; 16]);
    const JOB: JobId = JobId([7; 16]);

    fn keys() -> Keys {
        crate::golden::keys()
    }

    fn entry() -> PinEntry {
        PinEntry {
            state: PinState::Pinned,
            time_ms: 1_790_000_000_000,
            host: "host".to_owned(),
            reason: "alice: before the migration".to_owned(),
            tags: None,
        }
    }

    fn sealed() -> Vec<u8> {
        entry().encode(&keys(), DomainId::DEFAULT, SERIES, JOB, 3, [9; 32]).expect("fits")
    }

    #[test]
    fn version_2_bytes_never_change() {
        let golden = golden("pin_v2", &sealed());
        assert_eq!(PinEntry::decode(&keys(), SERIES, JOB, 3, &golden), Ok(entry()));
    }

    /// Entries without tags are as they were before there were any.
    #[test]
    fn tags_are_one_more_field() {
        let tagged = PinEntry { tags: Some(vec!["a".to_owned(), "b".to_owned()]), ..entry() };
        let bytes = tagged.encode(&keys(), DomainId::DEFAULT, SERIES, JOB, 4, [9; 32]).expect("fits");
        let golden = golden("pin_with_tags_v2", &bytes);
        assert_eq!(PinEntry::decode(&keys(), SERIES, JOB, 4, &golden), Ok(tagged));
    }

    #[test]
    fn an_entry_is_bound_to_its_version_and_its_number() {
        let bytes = sealed();
        assert!(PinEntry::decode(&keys(), SERIES, JOB, 4, &bytes).is_err());
        assert!(PinEntry::decode(&keys(), SERIES, JobId([8; 16]), 3, &bytes).is_err());
        assert!(PinEntry::decode(&keys(), SeriesKey([8; 16]), JOB, 3, &bytes).is_err());
        assert!(PinEntry::decode(&Keys::derive(&MasterKey([2; 32])), SERIES, JOB, 3, &bytes).is_err());
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let bytes = sealed();
        all_damage_is_noticed(&bytes, |bytes| PinEntry::decode(&keys(), SERIES, JOB, 3, bytes).is_ok());
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(state in 0..3u8, time_ms: u64, host in ".{0,40}", reason in ".{0,200}", tags in proptest::option::of(proptest::collection::vec(".{0,20}", 0..4))) {
            let state = [PinState::Pinned, PinState::Unpinned, PinState::Forgetting][usize::from(state)];
            let entry = PinEntry { state, time_ms, host, reason, tags };
            let bytes = entry.encode(&keys(), DomainId::DEFAULT, SERIES, JOB, 0, [3; 32]).expect("fits");
            prop_assert_eq!(PinEntry::decode(&keys(), SERIES, JOB, 0, &bytes), Ok(entry));
        }
    }
}
