//! What thawing costs: prices by storage class and tier.

use super::ParsePricesError;
use crate::cold::classes::ThawTier;

/// Days of a month, for prices of space per month.
pub(super) const DAYS_OF_MONTH: f64 = 30.0;

/// The prices of thawing. Unlike the prices of requests, one that is missing is not known.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Retrieval {
    /// Class or archive tier, `None` for all others; what is priced; and the price. Later ones
    /// count.
    rows: Vec<(Option<String>, Priced, f64)>,
}

/// What has a price.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Priced {
    /// A gigabyte (10^9 bytes) in this tier.
    Gigabyte(ThawTier),
    /// A thousand requests for this tier.
    Requests(ThawTier),
    /// A gigabyte that is read in a class that can be read at once.
    Read,
}

/// The prices of one class and tier.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ThawPrice {
    /// A gigabyte (10^9 bytes).
    pub gigabyte: f64,
    /// A thousand requests.
    pub requests: f64,
}

impl ThawPrice {
    /// The price of thawing this number of objects with these bytes together.
    pub fn of(&self, objects: u64, bytes: u64) -> f64 {
        bytes as f64 / 1e9 * self.gigabyte + objects as f64 / 1000.0 * self.requests
    }
}

impl Retrieval {
    /// The prices of thawing objects of a class or archive tier. `None`: not known. The price of
    /// requests is 0 if only that of bytes is known.
    pub fn of(&self, class: &str, tier: ThawTier) -> Option<ThawPrice> {
        let gigabyte = self.find(class, Priced::Gigabyte(tier))?;
        Some(ThawPrice { gigabyte, requests: self.find(class, Priced::Requests(tier)).unwrap_or(0.0) })
    }

    /// The price of a gigabyte that is read in a class that can be read at once; 0 if not known.
    pub fn of_reading(&self, class: &str) -> f64 {
        self.find(class, Priced::Read).unwrap_or(0.0)
    }

    fn find(&self, class: &str, priced: Priced) -> Option<f64> {
        let of = |wanted: Option<&str>| {
            let found = self.rows.iter().rev().find(|(of, what, _)| of.as_deref() == wanted && *what == priced);
            found.map(|(_, _, price)| *price)
        };
        // A general price for reading would be one of every object.
        let is_general = priced != Priced::Read;
        of(Some(class)).or_else(|| of(None).filter(|_| is_general))
    }

    /// Takes the price that a part of a list names, such as `bulk` or `GLACIER.standard-requests`.
    pub(super) fn set(&mut self, name: &str, price: f64) -> Result<(), ParsePricesError> {
        let (class, what) = match name.split_once('.') {
            Some((class, what)) => (Some(class), what),
            None => (None, name),
        };
        let wrong = || ParsePricesError { text: name.to_owned() };
        let is_class =
            |class: &str| !class.is_empty() && class.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
        if class.is_some_and(|class| !is_class(class)) {
            return Err(wrong());
        }
        let (tier, of_requests) = match what.strip_suffix("-requests") {
            Some(tier) => (tier, true),
            None => (what, false),
        };
        let found = ThawTier::ALL.into_iter().find(|known| known.name() == tier);
        let priced = match (found, of_requests) {
            (Some(tier), false) => Priced::Gigabyte(tier),
            (Some(tier), true) => Priced::Requests(tier),
            (None, false) if what == "read" && class.is_some() => Priced::Read,
            (None, _) => return Err(wrong()),
        };
        self.rows.push((class.map(str::to_owned), priced, price));
        Ok(())
    }

    /// The prices of a list that is known to be valid.
    pub(super) fn listed(list: &[(&str, f64)]) -> Self {
        let mut retrieval = Self::default();
        for (name, price) in list {
            // A wrong name would leave the price unknown; a test reads all of them.
            drop(retrieval.set(name, *price));
        }
        retrieval
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_has_its_own_price_else_that_of_all() {
        let mut prices = Retrieval::default();
        for (name, price) in [("bulk", 1.0), ("bulk-requests", 2.0), ("GLACIER.bulk", 0.0), ("GLACIER_IR.read", 4.0)] {
            prices.set(name, price).expect("a name");
        }
        let of = |class| prices.of(class, ThawTier::Bulk).map(|price| (price.gigabyte, price.requests));
        assert_eq!(of("DEEP_ARCHIVE"), Some((1.0, 2.0)));
        assert_eq!(of("GLACIER"), Some((0.0, 2.0)), "it is free, and not unknown");
        assert_eq!(prices.of("GLACIER", ThawTier::Standard), None);
        assert_eq!((prices.of_reading("GLACIER_IR"), prices.of_reading("STANDARD")), (4.0, 0.0));
        let price = ThawPrice { gigabyte: 3.0, requests: 10.0 };
        assert!((price.of(500, 2_000_000_000) - 11.0).abs() < 1e-9);
        for bad in ["", "fast", "glacier.bulk", ".bulk", "GLACIER.", "GLACIER.bulk-", "read", "bulk-requests-requests"]
        {
            assert!(prices.set(bad, 1.0).is_err(), "{bad}");
        }
    }
}
