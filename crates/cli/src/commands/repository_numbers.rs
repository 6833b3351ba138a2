//! Numbers of a repository for metrics: its snapshots by series, and what it stores.
//!
//! They are of all machines that use the repository, not of this one only.

use std::collections::BTreeMap;

use larder_store::Repository;
use serde::{Deserialize, Serialize};

use super::metrics_text::{Kind, MetricsText, labels};
use crate::app::App;
use crate::args::FilterArgs;
use crate::failure::Failure;
use crate::refs::Versions;

/// Objects are listed again after this time: a listing of a large repository takes a while.
const LISTED_EVERY_MS: u64 = 20 * 3_600_000;

/// Numbers of a repository at some time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::commands) struct Numbers {
    /// Of the snapshots, by series.
    series: BTreeMap<String, OfSeries>,
    /// Snapshots that cannot be read.
    unreadable: u64,
    /// Of the objects; `None`: they could not be listed.
    objects: Option<OfObjects>,
}

/// Numbers of a series.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct OfSeries {
    snapshots: u64,
    /// The time of the newest one, in milliseconds since 1970.
    newest_ms: u64,
}

/// Numbers of all objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct OfObjects {
    count: u64,
    bytes: u64,
    /// When they were listed, in milliseconds since 1970.
    listed_ms: u64,
}

impl Numbers {
    /// Reads the snapshots, and lists the objects if the listing in `before` is too old.
    pub(in crate::commands) fn count(
        app: &App,
        repository: &Repository,
        before: Option<&Self>,
        now_ms: u64,
    ) -> Result<Self, Failure> {
        let versions = Versions::load(app, repository, &FilterArgs::default())?;
        let mut numbers = Self { unreadable: versions.damaged().len() as u64, ..Self::default() };
        for version in versions.all() {
            let of = numbers.series.entry(version.summary.series.clone()).or_default();
            of.snapshots += 1;
            // A clock that is ahead must not hide that no snapshot follows.
            of.newest_ms = of.newest_ms.max(version.rank().0);
        }
        // A time in the future is one of a wrong clock.
        let is_new =
            |objects: &OfObjects| now_ms.checked_sub(objects.listed_ms).is_some_and(|since| since < LISTED_EVERY_MS);
        numbers.objects = before.and_then(|before| before.objects).filter(is_new);
        if numbers.objects.is_none() {
            let mut objects = OfObjects { count: 0, bytes: 0, listed_ms: now_ms };
            let listed = app.block_on(repository.store().list_each("", |object| {
                objects.count += 1;
                objects.bytes += object.size;
            }));
            match listed {
                Ok(()) => numbers.objects = Some(objects),
                // Some keys of clouds may not list everything. The other numbers are of use alone.
                Err(error) => tracing::info!("the objects could not be listed: {error}"),
            }
        }
        Ok(numbers)
    }
}

/// Writes the metrics of repositories, by their names; the name of the only one is empty.
pub(in crate::commands) fn render(text: &mut MetricsText, repositories: &BTreeMap<String, Numbers>) {
    let named = |name: &str, series: Option<&str>| {
        let of_repository = (!name.is_empty()).then_some(("repository", name));
        let all: Vec<_> = of_repository.into_iter().chain(series.map(|series| ("series", series))).collect();
        if all.is_empty() { String::new() } else { labels(&all) }
    };
    let by_series = |value: fn(&OfSeries) -> f64| -> Vec<_> {
        let samples = repositories.iter().flat_map(|(name, numbers)| {
            numbers.series.iter().map(move |(series, of)| (named(name, Some(series)), value(of)))
        });
        samples.collect()
    };
    let help = "Snapshots of a series in the repository, of all machines.";
    text.metric("snapshots", help, Kind::Gauge, &by_series(|of| of.snapshots as f64));
    let help = "Time of the newest snapshot of a series in the repository.";
    let newest = by_series(|of| of.newest_ms as f64 / 1000.0);
    text.metric("series_newest_timestamp_seconds", help, Kind::Gauge, &newest);
    let unreadable: Vec<_> =
        repositories.iter().map(|(name, numbers)| (named(name, None), numbers.unreadable as f64)).collect();
    text.metric("unreadable_snapshots", "Snapshots whose manifests cannot be read.", Kind::Gauge, &unreadable);
    let of_objects = |value: fn(&OfObjects) -> u64| -> Vec<_> {
        let samples = repositories
            .iter()
            .filter_map(|(name, numbers)| Some((named(name, None), value(numbers.objects.as_ref()?) as f64)));
        samples.collect()
    };
    let help = "Bytes of all objects of the repository; counted once a day.";
    text.metric("repository_stored_bytes", help, Kind::Gauge, &of_objects(|objects| objects.bytes));
    let help = "Objects of the repository; counted once a day.";
    text.metric("repository_objects", help, Kind::Gauge, &of_objects(|objects| objects.count));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_series_has_its_newest_snapshot() {
        let mut numbers = Numbers { unreadable: 1, ..Numbers::default() };
        numbers.series.insert("host:\"home\"".to_owned(), OfSeries { snapshots: 3, newest_ms: 1500 });
        let render = |name: &str, numbers: &Numbers| {
            let mut text = MetricsText::new("larder_");
            render(&mut text, &[(name.to_owned(), numbers.clone())].into());
            text.end()
        };
        let text = render("nas", &numbers);
        for line in [
            "larder_snapshots{repository=\"nas\",series=\"host:\\\"home\\\"\"} 3",
            "larder_series_newest_timestamp_seconds{repository=\"nas\",series=\"host:\\\"home\\\"\"} 1.5",
            "larder_unreadable_snapshots{repository=\"nas\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
        assert!(!text.contains("stored_bytes"), "nothing is said about unknown numbers");
        numbers.objects = Some(OfObjects { count: 2, bytes: 7, listed_ms: 1 });
        let text = render("", &numbers);
        for line in ["larder_repository_objects 2", "larder_repository_stored_bytes 7", "larder_unreadable_snapshots 1"]
        {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
        assert!(text.contains("larder_snapshots{series="), "{text}");
    }
}
