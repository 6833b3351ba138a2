//! What a command would take: requests, bytes, money and time, for `--estimate`.

use larder_store::StoreStats;
use larder_store::prices::Prices;
use serde_json::{Map, Value, json};

use super::Output;
use crate::failure::Failure;
use crate::{sizes, time};

/// The repository that snapshots are copied from.
pub(crate) const SOURCE: &str = "source";

/// The least and the most that a command takes. Both are equal if it is known exactly.
#[derive(Debug, Clone)]
pub(crate) struct Estimate {
    pub(crate) low: StoreStats,
    pub(crate) high: StoreStats,
    /// Bytes of space that it will take afterwards; `None`: not known.
    pub(crate) stored: Option<(u64, u64)>,
    /// Bytes of space that are to be expected within these bounds, if anything tells them.
    pub(crate) likely: Option<(u64, u64)>,
    /// Seconds of the whole command, if anything tells them.
    pub(crate) seconds: Option<(f64, f64)>,
    /// Whether both bounds are what a run takes.
    pub(crate) is_exact: bool,
    /// Which repository it is about, if there are two.
    pub(crate) repository: Option<&'static str>,
    /// The number from which chance chose the work, if it did.
    pub(crate) seed: Option<u64>,
}

impl Estimate {
    /// An estimate whose bounds are equal.
    pub(crate) fn exactly(requests: StoreStats) -> Self {
        Self {
            low: requests,
            high: requests,
            stored: Some((0, 0)),
            likely: None,
            seconds: None,
            is_exact: true,
            repository: None,
            seed: None,
        }
    }

    /// The same, about one of two repositories.
    pub(crate) fn of(self, repository: &'static str) -> Self {
        Self { repository: Some(repository), ..self }
    }

    /// What a rehearsal took.
    pub(crate) fn rehearsed(requests: StoreStats) -> Self {
        Self { stored: None, ..Self::exactly(requests) }
    }

    fn json(&self, prices: Option<&Prices>) -> Map<String, Value> {
        let pair = |of: fn(&StoreStats) -> u64| json!([of(&self.low), of(&self.high)]);
        let mut object = Map::new();
        let mut put = |key: &str, value: Value| drop(object.insert(key.to_owned(), value));
        put("message_type", json!("estimate"));
        if let Some(repository) = self.repository {
            put("repository", json!(repository));
        }
        if let Some(seed) = self.seed {
            put("seed", json!(seed));
        }
        put("exact", json!(self.is_exact));
        put(
            "requests",
            json!({
                "get": pair(|stats| stats.reads + stats.sizes),
                "put": pair(|stats| stats.creates),
                "list": pair(|stats| stats.lists),
                "delete": pair(|stats| stats.deletes),
            }),
        );
        put("bytes_down", pair(|stats| stats.bytes_down));
        put("bytes_up", pair(|stats| stats.bytes_up));
        put("stored_bytes", json!(self.stored.map(|(low, high)| [low, high])));
        put("likely_stored_bytes", json!(self.likely.map(|(low, high)| [low, high])));
        put("seconds", json!(self.seconds.map(|(low, high)| [low, high])));
        let cost = prices.map(|prices| {
            json!({
                "low": prices.of(&self.low),
                "high": prices.of(&self.high),
                "stored_monthly_low": self.stored.map(|(low, _)| prices.monthly(low)),
                "stored_monthly_high": self.stored.map(|(_, high)| prices.monthly(high)),
                "currency": prices.currency,
                "basis": prices.basis,
            })
        });
        put("cost", json!(cost));
        object
    }

    /// Shows it, as text or as JSON.
    pub(crate) fn show(&self, out: &Output, prices: Option<&Prices>) -> Result<(), Failure> {
        if out.is_json() {
            return out.json(&self.json(prices));
        }
        if let Some(seed) = self.seed {
            out.line(format!("sample: that of --seed {seed}; another one may take more or less"))?;
        }
        let count = |of: fn(&StoreStats) -> u64| between(of(&self.low), of(&self.high), |count| count.to_string());
        let size = |low, high| between(low, high, sizes::show);
        out.line(format!(
            "requests: {} get, {} put, {} list, {} delete",
            count(|stats| stats.reads + stats.sizes),
            count(|stats| stats.creates),
            count(|stats| stats.lists),
            count(|stats| stats.deletes)
        ))?;
        if !self.is_exact && self.low == self.high {
            out.line(
                "a run may take more, rarely less. Passes have moved data of the snapshot, something cannot be \
                 read, or --memory is too little to read everything once",
            )?;
        }
        let (down, up) = (size(self.low.bytes_down, self.high.bytes_down), size(self.low.bytes_up, self.high.bytes_up));
        out.line(format!("traffic: {down} fetched, {up} sent"))?;
        let stored = self.stored.filter(|(_, high)| *high > 0);
        if let Some((low, high)) = stored {
            let likely = self.likely.map(|(low, high)| format!(", probably {}", size(low, high)));
            out.line(format!("space: {}{}", size(low, high), likely.unwrap_or_default()))?;
        }
        match self.seconds {
            Some((low, high)) => out.line(format!("time: {}", time::show_span(low, high)))?,
            // The other repository has the time of both.
            None if self.repository == Some(SOURCE) => {}
            None => out.line("time: unknown, nothing was measured here yet")?,
        }
        match prices {
            Some(prices) => {
                let cost = between(prices.of(&self.low), prices.of(&self.high), |cost| format!("{cost:.4}"));
                let show = |bytes| format!("{:.4}", prices.monthly(bytes));
                let monthly = stored.map(|(low, high)| format!(", and {} per month", between(low, high, show)));
                let monthly = monthly.unwrap_or_default();
                out.line(format!("cost: {cost} {}{monthly} ({})", prices.currency, prices.basis))
            }
            None => out.line("cost: the prices of this storage are not known; --prices sets them"),
        }
    }
}

/// Both bounds in words, or the only one.
fn between<T: PartialEq>(low: T, high: T, show: impl Fn(T) -> String) -> String {
    if low == high { show(low) } else { format!("{} to {}", show(low), show(high)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_bounds_are_one_number() {
        assert_eq!(between(7, 7, |number: u64| number.to_string()), "7");
        assert_eq!(between(7, 9, |number: u64| number.to_string()), "7 to 9");
    }

    #[test]
    fn no_price_means_no_money() {
        let requests = StoreStats { reads: 10, sizes: 1, bytes_down: 500, ..StoreStats::default() };
        let estimate = Estimate::exactly(requests);
        let json = estimate.json(None);
        assert_eq!((&json["cost"], &json["requests"]["get"]), (&Value::Null, &json!([11, 11])));
        let prices: Prices = "reads=1000,currency=EUR".parse().expect("a list");
        let json = estimate.json(Some(&prices));
        assert_eq!((&json["cost"]["low"], &json["cost"]["currency"]), (&json!(11.0), &json!("EUR")));
    }
}
