//! Facts about the storage classes of S3: which must be thawed, how long that takes, and how long
//! an object is billed at least.
//!
//! The numbers are those of Amazon's documentation. Other servers may take the same names and other
//! times. An unknown class counts as one that can be read at once and has no minimum time.

/// How fast objects are thawed, and at which price.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ThawTier {
    /// Cheapest: within 12 hours, of `DEEP_ARCHIVE` within 48.
    #[default]
    Bulk,
    /// Within 5 hours, of `DEEP_ARCHIVE` within 12.
    Standard,
    /// Within minutes; `DEEP_ARCHIVE` does not have it.
    Expedited,
}

impl ThawTier {
    /// All of them, the cheapest first.
    pub const ALL: [Self; 3] = [Self::Bulk, Self::Standard, Self::Expedited];

    /// Its name for people and options.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bulk => "bulk",
            Self::Standard => "standard",
            Self::Expedited => "expedited",
        }
    }

    /// Its name in a request.
    pub(super) fn in_requests(self) -> &'static str {
        match self {
            Self::Bulk => "Bulk",
            Self::Standard => "Standard",
            Self::Expedited => "Expedited",
        }
    }
}

/// The class whose objects the storage may move to archive tiers. A listing does not tell the tier.
pub const TIERING: &str = "INTELLIGENT_TIERING";

/// The archive tiers of [`TIERING`], as the header of an object names them.
pub(super) const TIERS: [&str; 2] = ["ARCHIVE_ACCESS", "DEEP_ARCHIVE_ACCESS"];

/// Whether objects of this class cannot be read before they are thawed, as far as a listing tells.
/// `GLACIER_IR` can be read at once.
pub(crate) fn is_cold(class: &str) -> bool {
    matches!(class, "GLACIER" | "DEEP_ARCHIVE")
}

/// Hours in which objects of a class or archive tier are thawed: the usual least, and the most.
/// `None`: the class does not have this tier.
pub fn thaw_hours(class: &str, tier: ThawTier) -> Option<(f64, f64)> {
    let is_deep = class.starts_with("DEEP_ARCHIVE");
    match (tier, is_deep) {
        (ThawTier::Bulk, false) => Some((5.0, 12.0)),
        (ThawTier::Bulk, true) => Some((12.0, 48.0)),
        (ThawTier::Standard, false) => Some((3.0, 5.0)),
        (ThawTier::Standard, true) => Some((9.0, 12.0)),
        (ThawTier::Expedited, false) => Some((1.0 / 60.0, 5.0 / 60.0)),
        (ThawTier::Expedited, true) => None,
    }
}

/// Days for which an object of a class is billed at least, from its creation on. 0: as long as it
/// is there.
pub fn minimum_days(class: &str) -> u32 {
    match class {
        "STANDARD_IA" | "ONEZONE_IA" => 30,
        "GLACIER" | "GLACIER_IR" => 90,
        "DEEP_ARCHIVE" => 180,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_have_their_tiers_and_times() {
        assert_eq!(thaw_hours("GLACIER", ThawTier::Bulk), Some((5.0, 12.0)));
        assert_eq!(thaw_hours("DEEP_ARCHIVE", ThawTier::Standard).map(|(_, most)| most), Some(12.0));
        for deep in ["DEEP_ARCHIVE", "DEEP_ARCHIVE_ACCESS"] {
            assert_eq!(thaw_hours(deep, ThawTier::Expedited), None, "{deep}");
        }
        assert!(thaw_hours("ARCHIVE_ACCESS", ThawTier::Expedited).is_some());
        let days = ["STANDARD", "STANDARD_IA", "ONEZONE_IA", "GLACIER_IR", "GLACIER", "DEEP_ARCHIVE"].map(minimum_days);
        assert_eq!(days, [0, 30, 30, 90, 90, 180]);
    }
}
