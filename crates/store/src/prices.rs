//! What a storage charges for requests, traffic and space.
//!
//! The table has the list prices of the large clouds. A person may know better ones. Folders,
//! servers reached over SSH and unknown servers have no price, so nothing is said about their
//! money.
//!
//! * `listed`: the table, and which of its lines could be confirmed.
//! * `retrieval`: prices of thawing, by class and tier.

mod listed;
mod retrieval;

use std::str::FromStr;

use crate::counters::StoreStats;
use crate::location::Location;

pub use retrieval::{Retrieval, ThawPrice};

/// Prices of a store.
#[derive(Debug, Clone, PartialEq)]
pub struct Prices {
    /// Whose prices they are, and of when: for people.
    pub basis: String,
    /// The currency.
    pub currency: String,
    /// A thousand creates or listings.
    pub creates: f64,
    /// A thousand reads.
    pub reads: f64,
    /// A thousand deletions.
    pub deletes: f64,
    /// A gigabyte (10^9 bytes) kept for a month.
    pub storage: f64,
    /// A gigabyte that is sent to this machine over the internet.
    pub traffic: f64,
    /// Thawing.
    pub retrieval: Retrieval,
}

/// Text that is no list of prices.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a list of prices such as creates=0.005,reads=0.0004,deletes=0,storage=0.023,traffic=0.09")]
pub struct ParsePricesError {
    /// The text.
    pub text: String,
}

impl Prices {
    /// The list prices of a location. `endpoint` is the server that the environment names for S3.
    /// `None`: it charges nothing, or its prices are unknown.
    pub fn listed(location: &Location, endpoint: Option<&str>) -> Option<Self> {
        listed::listed(location, endpoint)
    }

    /// The price of requests and of the bytes that they brought here.
    pub fn of(&self, requests: &StoreStats) -> f64 {
        let thousands = |count: u64, price: f64| count as f64 / 1000.0 * price;
        thousands(requests.creates + requests.lists, self.creates)
            + thousands(requests.reads + requests.sizes, self.reads)
            + thousands(requests.deletes, self.deletes)
            + requests.bytes_down as f64 / 1e9 * self.traffic
    }

    /// The price of this number of bytes for a month.
    pub fn monthly(&self, bytes: u64) -> f64 {
        bytes as f64 / 1e9 * self.storage
    }

    /// The price of the copies of thawed objects, which are kept beside them for some days.
    pub fn thawed_for(&self, bytes: u64, days: u32) -> f64 {
        self.monthly(bytes) * f64::from(days) / retrieval::DAYS_OF_MONTH
    }
}

impl FromStr for Prices {
    type Err = ParsePricesError;

    /// Reads a list. Prices that it does not name are 0, but those of thawing are then unknown.
    fn from_str(text: &str) -> Result<Self, ParsePricesError> {
        let wrong = || ParsePricesError { text: text.to_owned() };
        let (basis, currency) = ("given prices".to_owned(), "USD".to_owned());
        let retrieval = Retrieval::default();
        let mut prices =
            Self { basis, currency, creates: 0.0, reads: 0.0, deletes: 0.0, storage: 0.0, traffic: 0.0, retrieval };
        for part in text.split(',') {
            let (name, value) = part.split_once('=').ok_or_else(wrong)?;
            let value = value.trim();
            if name.trim() == "currency" {
                let is_code = value.len() == 3 && value.bytes().all(|byte| byte.is_ascii_uppercase());
                prices.currency = is_code.then(|| value.to_owned()).ok_or_else(wrong)?;
                continue;
            }
            let value: f64 = value.parse().map_err(|_| wrong())?;
            if !value.is_finite() || value < 0.0 {
                return Err(wrong());
            }
            *match name.trim() {
                "creates" => &mut prices.creates,
                "reads" => &mut prices.reads,
                "deletes" => &mut prices.deletes,
                "storage" => &mut prices.storage,
                "traffic" => &mut prices.traffic,
                other => {
                    prices.retrieval.set(other, value).map_err(|_| wrong())?;
                    continue;
                }
            } = value;
        }
        Ok(prices)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_read() {
        let all: Prices = "creates=1,reads=2, deletes=3,storage=0.5,traffic=4,currency=EUR".parse().expect("valid");
        let numbers = [all.creates, all.reads, all.deletes, all.storage, all.traffic];
        assert_eq!((numbers, all.currency.as_str()), ([1.0, 2.0, 3.0, 0.5, 4.0], "EUR"));
        let thawing: Prices = "storage=3,bulk=0.5,GLACIER.bulk-requests=1".parse().expect("valid");
        let glacier = thawing.retrieval.of("GLACIER", crate::cold::classes::ThawTier::Bulk).expect("a price");
        assert_eq!((glacier.gigabyte, glacier.requests), (0.5, 1.0));
        assert!((thawing.thawed_for(2_000_000_000, 10) - 2.0).abs() < 1e-9);
        for bad in [
            "",
            "creates",
            "creates=x",
            "gets=1",
            "GLACIER=1",
            "bulk=-1",
            "storage=-1",
            "storage=inf",
            "currency=euro",
            "currency=",
        ] {
            assert!(bad.parse::<Prices>().is_err(), "{bad}");
        }
    }

    #[test]
    fn only_known_clouds_have_a_price() {
        let basis = |location: &str, endpoint: Option<&str>| {
            Prices::listed(&location.parse().expect("a location"), endpoint).map(|prices| prices.basis)
        };
        let begins = |found: Option<String>, with: &str| found.is_some_and(|basis| basis.starts_with(with));
        assert!(begins(basis("s3://bucket/x", None), "Amazon"));
        assert!(begins(basis("s3:https://s3.eu-west-1.amazonaws.com/bucket", None), "Amazon"));
        assert!(begins(basis("s3://bucket/x", Some("https://abc.r2.cloudflarestorage.com")), "Cloudflare"));
        assert!(begins(basis("azure://c/x", None), "Azure") && begins(basis("gs://b/x", None), "Google"));
        for none in ["/srv/repo", "sftp:host:/x", "s3:http://127.0.0.1:9000/bucket", "s3:https://notamazonaws.com/b"] {
            assert_eq!(basis(none, None), None, "{none}");
        }
        assert_eq!(basis("s3://bucket/x", Some("http://nas:9000")), None);
    }

    #[test]
    fn requests_traffic_and_space_have_their_price() {
        let prices: Prices = "creates=5,reads=1,deletes=2,storage=0.25,traffic=8".parse().expect("valid");
        let requests =
            StoreStats { creates: 900, lists: 100, reads: 1500, sizes: 500, deletes: 500, ..StoreStats::default() };
        assert!((prices.of(&requests) - 8.0).abs() < 1e-9);
        let down = StoreStats { bytes_down: 500_000_000, ..StoreStats::default() };
        assert!((prices.of(&down) - 4.0).abs() < 1e-9);
        assert!((prices.monthly(2_000_000_000) - 0.5).abs() < 1e-9);
    }
}
