//! The settings of a series, or of all series without their own: numbered entries, of which the
//! last one counts.
//!
//! `settings/<series>/<n>` and `settings/default/<n>` are sealed objects (`seal.rs`), magic `LSET`,
//! one part: a CBOR map, [`SeriesSettings`]. Nothing may be overwritten, so each change is the next
//! number, created if absent, and says all that is set from then on. The highest that opens counts.
//! Safety does not depend on settings. They decide the layout of new versions and how much passes
//! move. Data stored under others stays as it is.

use minicbor::{Decode, Encode};

use crate::cbor;
use crate::ids::{DomainId, SettingsOf};
use crate::keys::Keys;
use crate::layout::Layout;
use crate::names;
use crate::seal::{ObjectType, Pad, RANDOM_LEN, Realm, Signing, open_object, seal_object};
use crate::wire::{DecodeError, EncodeError};

/// Most bytes of an entry.
pub const SETTINGS_MAX: u64 = 16 << 10;

/// Percentage of holes that an active container of the layout `lifecycle` may have by default.
pub const HOLES_PERCENT: u8 = 20;

/// Number of versions of the layout `lifecycle` after which containers are retired, by default.
pub const ARRANGE_EVERY: u8 = 1;

const SETTINGS: ObjectType = ObjectType {
    magic: *b"LSET",
    version: 2,
    what: "settings of a series",
    max_len: SETTINGS_MAX,
    realm: Realm::Domain,
    signing: Signing::Required,
    pad: Pad::Small,
};

/// The settings of all are read by every role, those of a series by its domain.
fn kind(of: SettingsOf) -> ObjectType {
    match of {
        SettingsOf::Default => ObjectType { realm: Realm::Common, ..SETTINGS },
        SettingsOf::Series(_) => SETTINGS,
    }
}

/// The settings in an entry. Missing ones have defaults: for a series the repository's, for the
/// repository the program's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct SeriesSettings {
    /// The layout of a series that has no version yet.
    #[n(0)]
    pub layout: Option<Layout>,
    /// Percentage of holes at which an active container of the layout `lifecycle` is rewritten; at
    /// most 100.
    #[n(1)]
    pub holes_percent: Option<u8>,
    /// When, milliseconds since the epoch by the writer's clock. For people.
    #[n(2)]
    pub time_ms: u64,
    /// On which host. For people.
    #[n(3)]
    pub host: String,
    /// Name of the series; empty in the repository's own.
    #[n(4)]
    pub series: String,
    /// Number of versions of the layout `lifecycle`, at least 1, after which containers are
    /// retired.
    #[n(5)]
    pub arrange_every: Option<u8>,
}

impl SeriesSettings {
    /// Seals entry `number`. `random` must be fresh random bytes.
    pub fn encode(
        &self,
        keys: &Keys,
        of: SettingsOf,
        number: u32,
        random: [u8; RANDOM_LEN],
    ) -> Result<Vec<u8>, EncodeError> {
        self.check(keys, keys.domain(), of)?;
        seal_object(keys, keys.domain(), &names::settings(of, number), kind(of), random, &[&cbor::encode(self)])
    }

    /// Opens entry `number`.
    pub fn decode(keys: &Keys, of: SettingsOf, number: u32, bytes: &[u8]) -> Result<Self, DecodeError> {
        let opened = open_object(keys, &names::settings(of, number), kind(of), bytes, 1, 1)?;
        let settings: Self = cbor::decode_padded(&opened.parts[0], SETTINGS.what)?;
        settings.check(keys, opened.domain, of)?;
        Ok(settings)
    }

    fn check(&self, keys: &Keys, domain: DomainId, of: SettingsOf) -> Result<(), DecodeError> {
        if self.holes_percent.is_some_and(|percent| percent > 100) {
            return Err(DecodeError::invalid(SETTINGS.what, "more than all of a container may be holes"));
        }
        if self.arrange_every == Some(0) {
            return Err(DecodeError::invalid(SETTINGS.what, "what left is brought together after no version"));
        }
        let is_named = match of {
            SettingsOf::Default => self.series.is_empty(),
            SettingsOf::Series(key) => keys.series_key_in(domain, &self.series) == key,
        };
        if is_named { Ok(()) } else { Err(DecodeError::invalid(SETTINGS.what, "it names another series")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::{all_damage_is_noticed, golden};
    use crate::ids::SeriesKey;
    use crate::keys::MasterKey;
    use proptest::prelude::*;

    const NAME: &str = "host:/home";

    fn keys() -> Keys {
        crate::golden::keys()
    }

    fn series() -> SettingsOf {
        SettingsOf::Series(keys().series_key(NAME))
    }

    fn settings() -> SeriesSettings {
        SeriesSettings {
            layout: Some(Layout::Lifecycle),
            holes_percent: Some(20),
            time_ms: 1_790_000_000_000,
            host: "host".to_owned(),
            series: NAME.to_owned(),
            arrange_every: None,
        }
    }

    fn sealed(of: SettingsOf) -> Vec<u8> {
        settings().encode(&keys(), of, 3, [9; 32]).expect("fits")
    }

    #[test]
    fn version_2_bytes_never_change() {
        let golden = golden("settings_v2", &sealed(series()));
        assert_eq!(SeriesSettings::decode(&keys(), series(), 3, &golden), Ok(settings()));
    }

    #[test]
    fn what_is_set_to_the_usual_is_set_all_the_same() {
        let series = String::new();
        let standard = SeriesSettings { layout: Some(Layout::Standard), holes_percent: Some(0), series, ..settings() };
        for settings in [standard, SeriesSettings::default()] {
            let bytes = settings.encode(&keys(), SettingsOf::Default, 0, [9; 32]).expect("fits");
            assert_eq!(SeriesSettings::decode(&keys(), SettingsOf::Default, 0, &bytes), Ok(settings));
        }
    }

    #[test]
    fn an_entry_is_bound_to_its_series_and_its_number() {
        let bytes = sealed(series());
        let opens = |keys: &Keys, of, number| SeriesSettings::decode(keys, of, number, &bytes).is_ok();
        assert!(opens(&keys(), series(), 3));
        assert!(!opens(&keys(), series(), 4));
        assert!(!opens(&keys(), SettingsOf::Default, 3));
        assert!(!opens(&keys(), SettingsOf::Series(SeriesKey([7; 16])), 3));
        assert!(!opens(&Keys::derive(&MasterKey([2; 32])), series(), 3));
        let unnamed = SeriesSettings { series: String::new(), ..settings() };
        assert!(unnamed.encode(&keys(), series(), 3, [9; 32]).is_err());
        assert!(settings().encode(&keys(), SettingsOf::Default, 3, [9; 32]).is_err());
    }

    #[test]
    fn a_container_has_no_more_holes_than_bytes() {
        let all = SeriesSettings { holes_percent: Some(100), ..settings() };
        assert!(all.encode(&keys(), series(), 0, [9; 32]).is_ok());
        let more = SeriesSettings { holes_percent: Some(101), ..settings() };
        assert!(more.encode(&keys(), series(), 0, [9; 32]).is_err());
        let name = names::settings(series(), 0);
        let forged =
            seal_object(&keys(), DomainId::DEFAULT, &name, SETTINGS, [9; 32], &[&cbor::encode(&more)]).expect("fits");
        assert!(SeriesSettings::decode(&keys(), series(), 0, &forged).is_err());
        let every = |versions| SeriesSettings { arrange_every: Some(versions), ..settings() };
        assert!(every(1).encode(&keys(), series(), 0, [9; 32]).is_ok());
        assert!(every(0).encode(&keys(), series(), 0, [9; 32]).is_err());
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let bytes = sealed(series());
        all_damage_is_noticed(&bytes, |bytes| SeriesSettings::decode(&keys(), series(), 3, bytes).is_ok());
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(layout in prop::option::of(any::<bool>()), holes_percent in prop::option::of(0..=100u8), arrange_every in prop::option::of(1..=255u8), time_ms: u64, host in ".{0,40}", name in prop::option::of(".{0,40}")) {
            let of = name.as_ref().map_or(SettingsOf::Default, |name| SettingsOf::Series(keys().series_key(name)));
            let series = name.unwrap_or_default();
            let layout = layout.map(|is_lifecycle| if is_lifecycle { Layout::Lifecycle } else { Layout::Standard });
            let settings = SeriesSettings { layout, holes_percent, time_ms, host, series, arrange_every };
            let bytes = settings.encode(&keys(), of, 0, [3; 32]).expect("fits");
            prop_assert_eq!(SeriesSettings::decode(&keys(), of, 0, &bytes), Ok(settings));
        }
    }
}
