//! The mark that a version is forgotten.
//!
//! `forgotten/<series>/<job>` is a sealed object (`seal.rs`), magic `LFGT`, one part: a CBOR map,
//! [`Forgotten`]. The name alone says which version. The key follows from the name, so only a
//! holder of the master key can hide a version, and only that one.
//!
//! The mark of an aborted job is in `manifest.rs`, because it has the name of a manifest. The
//! closing mark of a lease is in `lease.rs`.

use minicbor::{Decode, Encode};

use crate::cbor;
use crate::ids::{DomainId, JobId, SeriesKey};
use crate::keys::Keys;
use crate::names;
use crate::seal::{ObjectType, Pad, RANDOM_LEN, Realm, Signing, open_object, seal_object};
use crate::wire::{DecodeError, EncodeError};

/// Most bytes of a mark.
pub const MARK_MAX: u64 = 16 << 10;

const FORGOTTEN: ObjectType = ObjectType {
    magic: *b"LFGT",
    version: 2,
    what: "mark of a forgotten version",
    max_len: MARK_MAX,
    realm: Realm::Domain,
    signing: Signing::Required,
    pad: Pad::Small,
};

/// The contents of a mark besides the fact that its version is forgotten. All of it is for people.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Forgotten {
    /// When, milliseconds since the epoch by the writer's clock. Nothing safe depends on it.
    #[n(0)]
    pub time_ms: u64,
    /// On which host.
    #[n(1)]
    pub host: String,
    /// By whom and why, for instance a user's name and the rule of retention that no longer kept
    /// it.
    #[n(2)]
    pub reason: String,
}

impl Forgotten {
    /// Seals the mark of one version. `random` must be fresh random bytes.
    pub fn encode(
        &self,
        keys: &Keys,
        domain: DomainId,
        series: SeriesKey,
        job: JobId,
        random: [u8; RANDOM_LEN],
    ) -> Result<Vec<u8>, EncodeError> {
        seal_object(keys, domain, &names::forgotten(series, job), FORGOTTEN, random, &[&cbor::encode(self)])
    }

    /// Opens the mark of one version.
    pub fn decode(keys: &Keys, series: SeriesKey, job: JobId, bytes: &[u8]) -> Result<Self, DecodeError> {
        let opened = open_object(keys, &names::forgotten(series, job), FORGOTTEN, bytes, 1, 1)?;
        cbor::decode_padded(&opened.parts[0], FORGOTTEN.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::{all_damage_is_noticed, golden};
    use crate::keys::MasterKey;
    use crate::lease::Done;
    use crate::manifest::encode_aborted;
    use proptest::prelude::*;

    const SERIES: SeriesKey = SeriesKey([6; 16]);
    const JOB: JobId = JobId([7; 16]);

    fn keys() -> Keys {
        crate::golden::keys()
    }

    fn mark() -> Forgotten {
        Forgotten {
            time_ms: 1_790_000_000_000,
            host: "host".to_owned(),
            reason: "alice: not among the last 7".to_owned(),
        }
    }

    fn sealed() -> Vec<u8> {
        mark().encode(&keys(), DomainId::DEFAULT, SERIES, JOB, [9; 32]).expect("fits")
    }

    #[test]
    fn version_2_bytes_never_change() {
        let golden = golden("forgotten_v2", &sealed());
        assert_eq!(Forgotten::decode(&keys(), SERIES, JOB, &golden), Ok(mark()));
    }

    /// A client that may only create objects cannot hide a version: not with bytes of its own, nor
    /// with any existing mark.
    #[test]
    fn a_mark_is_bound_to_its_version_and_its_kind() {
        let opens = |bytes: &[u8]| Forgotten::decode(&keys(), SERIES, JOB, bytes).is_ok();
        assert!(opens(&sealed()));
        assert!(!opens(b""));
        assert!(!opens(&mark().encode(&keys(), DomainId::DEFAULT, SERIES, JobId([8; 16]), [9; 32]).expect("fits")));
        assert!(!opens(&mark().encode(&keys(), DomainId::DEFAULT, SeriesKey([8; 16]), JOB, [9; 32]).expect("fits")));
        assert!(!opens(&encode_aborted(&keys(), DomainId::DEFAULT, SERIES, JOB, 0, [9; 32]).expect("fits")));
        assert!(!opens(&Done::nothing().encode(&keys(), DomainId::DEFAULT, JOB, [9; 32]).expect("fits")));
        assert!(!opens(
            &mark().encode(&Keys::derive(&MasterKey([2; 32])), DomainId::DEFAULT, SERIES, JOB, [9; 32]).expect("fits")
        ));
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let bytes = sealed();
        all_damage_is_noticed(&bytes, |bytes| Forgotten::decode(&keys(), SERIES, JOB, bytes).is_ok());
    }

    #[test]
    fn a_reason_without_end_is_refused_when_it_is_written() {
        let long = Forgotten { reason: "x".repeat(MARK_MAX as usize), ..mark() };
        assert!(long.encode(&keys(), DomainId::DEFAULT, SERIES, JOB, [9; 32]).is_err());
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(time_ms: u64, host in ".{0,40}", reason in ".{0,200}") {
            let mark = Forgotten { time_ms, host, reason };
            let bytes = mark.encode(&keys(), DomainId::DEFAULT, SERIES, JOB, [3; 32]).expect("fits");
            prop_assert_eq!(Forgotten::decode(&keys(), SERIES, JOB, &bytes), Ok(mark));
        }
    }
}
