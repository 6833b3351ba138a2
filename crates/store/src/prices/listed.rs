//! List prices of the large clouds.
//!
//! In US dollars without discounts, free quotas and minimum times, as known in the month that the
//! line names. None of them charges for deletions. In November 2026 they were compared with
//! published documents:
//!
//! | line | result |
//! |---|---|
//! | Amazon | agrees with the expected costs in the tests of Infracost, which come from Amazon's list of prices: space, requests, traffic, and thawing of `GLACIER` and `DEEP_ARCHIVE`. Not confirmed: reading of `GLACIER_IR`, and the tiers of `INTELLIGENT_TIERING` |
//! | Google | agrees with Google's page of pricing examples (us-east1) |
//! | Cloudflare | agrees with Cloudflare's documentation of R2 |
//! | Azure | not confirmed: pages that were found name other regions, or no date |
//! | Wasabi | not confirmed: pages of Wasabi that were found name an older price (5.99 a terabyte); others name the one below |
//!
//! Backblaze B2 is not here: it charges for listings and not for creates, which have one price.

use super::{Prices, Retrieval};
use crate::location::Location;

/// One line of the table.
struct Listed {
    /// The end of the server's name; empty for the cloud itself.
    host: &'static str,
    basis: &'static str,
    creates: f64,
    reads: f64,
    storage: f64,
    traffic: f64,
    /// Prices of thawing, by the names that a list has for them.
    retrieval: &'static [(&'static str, f64)],
}

const AMAZON: Listed = Listed {
    host: "amazonaws.com",
    basis: "Amazon S3 Standard, us-east-1, 2025-06",
    creates: 0.005,
    reads: 0.0004,
    storage: 0.023,
    traffic: 0.09,
    retrieval: &[
        ("GLACIER.bulk", 0.0),
        ("GLACIER.standard", 0.01),
        ("GLACIER.standard-requests", 0.03),
        ("GLACIER.expedited", 0.03),
        ("GLACIER.expedited-requests", 10.0),
        ("DEEP_ARCHIVE.bulk", 0.0025),
        ("DEEP_ARCHIVE.bulk-requests", 0.025),
        ("DEEP_ARCHIVE.standard", 0.02),
        ("DEEP_ARCHIVE.standard-requests", 0.1),
        ("ARCHIVE_ACCESS.bulk", 0.0),
        ("ARCHIVE_ACCESS.standard", 0.0),
        ("ARCHIVE_ACCESS.expedited", 0.03),
        ("ARCHIVE_ACCESS.expedited-requests", 10.0),
        ("DEEP_ARCHIVE_ACCESS.bulk", 0.0),
        ("DEEP_ARCHIVE_ACCESS.standard", 0.0),
        ("GLACIER_IR.read", 0.03),
        ("STANDARD_IA.read", 0.01),
        ("ONEZONE_IA.read", 0.01),
    ],
};

const AZURE: Listed = Listed {
    host: "",
    basis: "Azure Blob Storage, hot, LRS, East US, 2025-06, not confirmed",
    creates: 0.005,
    reads: 0.0004,
    storage: 0.0184,
    traffic: 0.087,
    retrieval: &[],
};

const GOOGLE: Listed = Listed {
    host: "",
    basis: "Google Cloud Storage, standard, us-east1, 2025-06",
    creates: 0.005,
    reads: 0.0004,
    storage: 0.02,
    traffic: 0.12,
    retrieval: &[],
};

/// Servers that speak the protocol of S3.
const SERVERS: [Listed; 3] = [
    AMAZON,
    Listed {
        host: "r2.cloudflarestorage.com",
        basis: "Cloudflare R2 standard, 2025-06",
        creates: 0.0045,
        reads: 0.000_36,
        storage: 0.015,
        traffic: 0.0,
        retrieval: &[],
    },
    Listed {
        host: "wasabisys.com",
        basis: "Wasabi pay-as-you-go, 2025-06, not confirmed",
        creates: 0.0,
        reads: 0.0,
        storage: 0.006_99,
        traffic: 0.0,
        retrieval: &[],
    },
];

/// The list prices of a location. `endpoint` is the server that the environment names for S3.
pub(super) fn listed(location: &Location, endpoint: Option<&str>) -> Option<Prices> {
    let listed = match location {
        Location::S3 { endpoint: named, .. } => match named.as_deref().or(endpoint) {
            None => &AMAZON,
            Some(server) => {
                let host = host_of(server);
                let is_of = |listed: &&Listed| {
                    host.strip_suffix(listed.host).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
                };
                SERVERS.iter().find(is_of)?
            }
        },
        Location::Azure { .. } => &AZURE,
        Location::Gcs { .. } => &GOOGLE,
        Location::Local(_) | Location::Sftp(_) | Location::Memory => return None,
    };
    Some(Prices {
        basis: listed.basis.to_owned(),
        currency: "USD".to_owned(),
        creates: listed.creates,
        reads: listed.reads,
        deletes: 0.0,
        storage: listed.storage,
        traffic: listed.traffic,
        retrieval: Retrieval::listed(listed.retrieval),
    })
}

/// The host of `https://host:port`.
fn host_of(server: &str) -> &str {
    let rest = server.split_once("://").map_or(server, |(_, rest)| rest);
    let host = rest.split(['/', '?']).next().unwrap_or_default();
    host.rsplit_once(':').map_or(host, |(host, _)| host)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cold::classes::{ThawTier, thaw_hours};

    #[test]
    fn every_tier_of_amazon_has_a_price() {
        let prices = listed(&"s3://bucket/x".parse().expect("a location"), None).expect("prices");
        for (name, price) in AMAZON.retrieval {
            Retrieval::default().set(name, *price).expect("a valid name");
        }
        for class in ["GLACIER", "DEEP_ARCHIVE", "ARCHIVE_ACCESS", "DEEP_ARCHIVE_ACCESS"] {
            for tier in ThawTier::ALL {
                let (price, hours) = (prices.retrieval.of(class, tier), thaw_hours(class, tier));
                assert_eq!(price.is_some(), hours.is_some(), "{class} {tier:?}");
            }
        }
    }
}
