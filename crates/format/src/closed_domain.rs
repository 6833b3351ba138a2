//! The end of a domain: which of its versions still count.
//!
//! `closed/<domain>` is a sealed object (`seal.rs`), magic `LCLS`, one part: a CBOR map,
//! [`ClosedDomain`]. Every role can read it, and only an operator can make one that counts. An
//! operator creates it when a backup key of the domain was stolen. Any version of the domain that
//! is not in its list is refused from then on, whenever it was or will be made. So no clock is
//! involved. The list has digests of versions, not their ids: a thief knows the ids, and could give
//! one of them to another version once its name is free.
//!
//! | field | content                                                     |
//! |------:|-------------------------------------------------------------|
//! |     0 | when, milliseconds since the epoch by the writer's clock    |
//! |     1 | on which host                                               |
//! |     2 | why                                                         |
//! |     3 | the domain's name                                           |
//! |     4 | the domain's epoch                                          |
//! |     5 | the versions that count: 16 bytes of digest each, rising    |

use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

use crate::cbor;
use crate::ids::{DomainId, SeriesKey};
use crate::keys::Keys;
use crate::manifest::Summary;
use crate::names;
use crate::seal::{ObjectType, Pad, RANDOM_LEN, Realm, Signing, open_object, seal_object};
use crate::wire::{DecodeError, EncodeError};

/// Most bytes of the object: room for some 250,000 versions of one domain.
pub const CLOSED_DOMAIN_MAX: u64 = 4 << 20;

const CLOSED: ObjectType = ObjectType {
    magic: *b"LCLS",
    version: 2,
    what: "end of a domain",
    max_len: CLOSED_DOMAIN_MAX,
    realm: Realm::Common,
    signing: Signing::Required,
    pad: Pad::Small,
};

/// What a version is: its series, its id, its time and its contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VersionDigest(pub [u8; 16]);

impl VersionDigest {
    /// The digest of a version. All its generations have the same.
    pub fn of(series: SeriesKey, summary: &Summary) -> Self {
        let mut hash = blake3::Hasher::new_derive_key("Larder format 2: version of a closed domain");
        hash.update(&series.0).update(&summary.id.0).update(&summary.time_ms.to_le_bytes());
        hash.update(&summary.roots.data.0).update(&summary.roots.metadata.0);
        let mut digest = [0; 16];
        hash.finalize_xof().fill(&mut digest);
        Self(digest)
    }
}

/// The decision that a domain has no more versions than these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClosedDomain {
    /// When, milliseconds since the epoch by the writer's clock. For people.
    pub time_ms: u64,
    /// On which host. For people.
    pub host: String,
    /// Why. For people.
    pub reason: String,
    /// The name of the domain; never empty, because the default domain belongs to all.
    pub name: String,
    /// Its epoch.
    pub epoch: u32,
    /// The versions that count, rising.
    pub versions: Vec<VersionDigest>,
}

#[derive(Debug, Encode, Decode)]
#[cbor(map)]
struct Fields {
    #[n(0)]
    time_ms: u64,
    #[n(1)]
    host: String,
    #[n(2)]
    reason: String,
    #[n(3)]
    name: String,
    #[n(4)]
    epoch: u32,
    #[n(5)]
    versions: ByteVec,
}

impl ClosedDomain {
    /// The domain.
    pub fn domain(&self, keys: &Keys) -> DomainId {
        keys.domain_id(&self.name, self.epoch)
    }

    /// Whether this version still counts.
    pub fn admits(&self, version: VersionDigest) -> bool {
        self.versions.binary_search(&version).is_ok()
    }

    /// Seals it. `random` must be fresh random bytes.
    ///
    /// # Errors
    /// Too many versions, digests that do not rise, or the default domain.
    pub fn encode(&self, keys: &Keys, random: [u8; RANDOM_LEN]) -> Result<Vec<u8>, EncodeError> {
        let domain = self.domain(keys);
        self.check(keys, domain)?;
        let versions: Vec<u8> = self.versions.iter().flat_map(|digest| digest.0).collect();
        let fields = Fields {
            time_ms: self.time_ms,
            host: self.host.clone(),
            reason: self.reason.clone(),
            name: self.name.clone(),
            epoch: self.epoch,
            versions: versions.into(),
        };
        seal_object(keys, DomainId::DEFAULT, &names::closed(domain), CLOSED, random, &[&cbor::encode(&fields)])
    }

    /// Opens the object of a domain.
    pub fn decode(keys: &Keys, domain: DomainId, bytes: &[u8]) -> Result<Self, DecodeError> {
        let opened = open_object(keys, &names::closed(domain), CLOSED, bytes, 1, 1)?;
        let fields: Fields = cbor::decode_padded(&opened.parts[0], CLOSED.what)?;
        let (digests, rest) = fields.versions.as_chunks::<16>();
        if !rest.is_empty() {
            return Err(DecodeError::invalid(CLOSED.what, "the last digest is cut off"));
        }
        let closed = Self {
            time_ms: fields.time_ms,
            host: fields.host,
            reason: fields.reason,
            name: fields.name,
            epoch: fields.epoch,
            versions: digests.iter().map(|digest| VersionDigest(*digest)).collect(),
        };
        closed.check(keys, domain)?;
        Ok(closed)
    }

    fn check(&self, keys: &Keys, domain: DomainId) -> Result<(), DecodeError> {
        if self.name.is_empty() {
            return Err(DecodeError::invalid(CLOSED.what, "the default domain cannot be closed"));
        }
        if self.domain(keys) != domain {
            return Err(DecodeError::invalid(CLOSED.what, "it names another domain"));
        }
        if !self.versions.is_sorted_by(|a, b| a < b) {
            return Err(DecodeError::invalid(CLOSED.what, "its digests do not rise"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::{all_damage_is_noticed, golden};
    use crate::keys::MasterKey;
    use proptest::prelude::*;

    fn keys() -> Keys {
        crate::golden::keys()
    }

    fn closed() -> ClosedDomain {
        ClosedDomain {
            time_ms: 1_790_000_000_000,
            host: "host".to_owned(),
            reason: "the laptop was stolen".to_owned(),
            name: "laptop".to_owned(),
            epoch: 0,
            versions: vec![VersionDigest([7; 16]), VersionDigest([8; 16])],
        }
    }

    fn domain() -> DomainId {
        keys().domain_id("laptop", 0)
    }

    fn sealed() -> Vec<u8> {
        closed().encode(&keys(), [9; 32]).expect("fits")
    }

    #[test]
    fn version_2_bytes_never_change() {
        let golden = golden("closed_domain_v2", &sealed());
        assert_eq!(ClosedDomain::decode(&keys(), domain(), &golden), Ok(closed()));
    }

    #[test]
    fn only_listed_versions_count() {
        assert!(closed().admits(VersionDigest([7; 16])) && closed().admits(VersionDigest([8; 16])));
        assert!(!closed().admits(VersionDigest([6; 16])) && !closed().admits(VersionDigest([9; 16])));
    }

    #[test]
    fn it_is_bound_to_its_domain() {
        assert!(ClosedDomain::decode(&keys(), keys().domain_id("laptop", 1), &sealed()).is_err());
        assert!(ClosedDomain::decode(&keys(), keys().domain_id("server", 0), &sealed()).is_err());
        assert!(ClosedDomain::decode(&Keys::derive(&MasterKey([2; 32])), domain(), &sealed()).is_err());
        assert!(ClosedDomain { name: String::new(), ..closed() }.encode(&keys(), [9; 32]).is_err());
    }

    /// Without an operator's signature nobody ends a domain.
    #[test]
    fn only_an_operator_makes_one_that_counts() {
        let type_of_thief = ObjectType { signing: Signing::Never, ..CLOSED };
        let fields = cbor::encode(&Fields {
            time_ms: 0,
            host: String::new(),
            reason: String::new(),
            name: "laptop".to_owned(),
            epoch: 0,
            versions: Vec::new().into(),
        });
        let name = names::closed(domain());
        let forged = seal_object(&keys(), DomainId::DEFAULT, &name, type_of_thief, [9; 32], &[&fields]).expect("fits");
        assert!(ClosedDomain::decode(&keys(), domain(), &forged).is_err());
        let signed = seal_object(&keys(), DomainId::DEFAULT, &name, CLOSED, [9; 32], &[&fields]).expect("fits");
        assert!(ClosedDomain::decode(&keys(), domain(), &signed).is_ok());
    }

    #[test]
    fn digests_rise() {
        let falling = ClosedDomain { versions: vec![VersionDigest([8; 16]), VersionDigest([7; 16])], ..closed() };
        assert!(falling.encode(&keys(), [9; 32]).is_err());
        let twice = ClosedDomain { versions: vec![VersionDigest([8; 16]); 2], ..closed() };
        assert!(twice.encode(&keys(), [9; 32]).is_err());
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let bytes = sealed();
        all_damage_is_noticed(&bytes, |bytes| ClosedDomain::decode(&keys(), domain(), bytes).is_ok());
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(time_ms: u64, host in ".{0,40}", reason in ".{0,200}", name in ".{1,40}", digests in prop::collection::btree_set(any::<[u8; 16]>(), 0..40)) {
            let versions = digests.into_iter().map(VersionDigest).collect();
            let closed = ClosedDomain { time_ms, host, reason, name, epoch: 0, versions };
            let bytes = closed.encode(&keys(), [3; 32]).expect("fits");
            prop_assert_eq!(ClosedDomain::decode(&keys(), closed.domain(&keys()), &bytes), Ok(closed));
        }
    }
}
