//! What references mean is found without reading the other versions, and is what the whole catalog says.

use larder_format::closed_domain::ClosedDomain;
use larder_format::ids::JobId;
use larder_format::lease::Pin;
use larder_format::manifest::{Manifest, Summary};
use larder_format::mark::Forgotten;
use larder_format::names;
use larder_store::catalog::{Catalog, Filter, Version};
use larder_store::forget_marks::OwnedVersion;
use larder_store::{Repository, Store, StoreOptions};
use larder_testkit::Memory;
use larder_testkit::data::Rng;

use crate::planted::manifest;
use crate::support::repository;

const START_MS: u64 = 1_700_000_000_000;

async fn made() -> Repository {
    repository(Store::from_object_store(Memory::new().store(), "", &StoreOptions::default()).expect("opens")).await
}

/// A version of this series, whose job began at `at_ms`.
fn version(number: u8, at_ms: u64, series: &str) -> Manifest {
    let id = JobId::new(START_MS + at_ms, [number; 10]);
    let summary = Summary { id, series: series.to_owned(), time_ms: START_MS + at_ms, ..manifest(number).summary };
    Manifest { summary, ..manifest(number) }
}

async fn commit(repository: &Repository, manifest: &Manifest) {
    let series = repository.keys().series_key(&manifest.summary.series);
    repository.commit(series, manifest).await.expect("commits");
}

/// Ids, or why there is none.
fn found(catalog: &Catalog, text: &str) -> Result<JobId, String> {
    catalog.find(text).map(Version::id).map_err(|error| error.to_string())
}

#[tokio::test]
async fn latest_costs_the_same_with_3_and_with_60_versions() {
    let filters: [(Filter, &[&str]); 3] = [
        (Filter::default(), &["latest"]),
        (Filter { series: vec!["a".to_owned()], ..Filter::default() }, &["latest", "latest~1"]),
        (Filter { hosts: vec!["host".to_owned()], ..Filter::default() }, &["latest"]),
    ];
    let mut costs = Vec::new();
    for versions in [3, 60] {
        let repository = made().await;
        for number in 0..versions {
            commit(&repository, &version(number, u64::from(number) * 1000, "a")).await;
        }
        for (filter, references) in &filters {
            let before = repository.store().stats();
            let catalog = repository.catalog_for(references, filter).await.expect("lists");
            let after = repository.store().stats();
            assert_eq!(
                found(&catalog, "latest"),
                Ok(version(versions - 1, u64::from(versions - 1) * 1000, "a").summary.id)
            );
            assert_eq!(catalog.versions.len(), references.len());
            costs.push((after.lists - before.lists, after.reads - before.reads));
        }
    }
    assert_eq!(costs[..3], [(2, 1), (2, 2), (2, 1)]);
    assert_eq!(costs[..3], costs[3..]);
}

#[tokio::test]
async fn a_manifest_that_was_just_read_is_not_read_again() {
    let repository = made().await;
    commit(&repository, &version(1, 0, "a")).await;
    let catalog = repository.catalog_for(&["latest"], &Filter::default()).await.expect("lists");
    let before = repository.store().stats().reads;
    assert_eq!(repository.manifest(&catalog.versions[0]).await.expect("reads"), version(1, 0, "a"));
    assert_eq!(repository.store().stats().reads, before);
}

#[tokio::test]
async fn a_time_in_the_future_makes_nothing_latest() {
    let repository = made().await;
    let mut forged = version(1, 0, "a");
    forged.summary.time_ms += 1 << 40;
    commit(&repository, &forged).await;
    commit(&repository, &version(2, 1000, "a")).await;
    for catalog in [
        repository.catalog().await.expect("lists"),
        repository.catalog_for(&["latest"], &Filter::default()).await.expect("lists"),
    ] {
        assert_eq!(found(&catalog, "latest"), Ok(version(2, 1000, "a").summary.id));
    }
}

#[tokio::test]
async fn the_newest_of_a_series_are_read_until_they_suffice() {
    let repository = made().await;
    for number in 0..20 {
        commit(&repository, &version(number, u64::from(number), "a")).await;
        commit(&repository, &version(number, u64::from(number) + 100, "b")).await;
    }
    let newest = repository.newest_in_series("a", |versions| !versions.is_empty()).await.expect("lists");
    let ids: Vec<_> = newest.catalog.versions.iter().map(Version::id).collect();
    assert_eq!(ids, [19, 18, 17, 16].map(|number| version(number, u64::from(number), "a").summary.id));
    assert_eq!(newest.listed.len(), 20);
    let all = repository.newest_in_series("a", |_| false).await.expect("lists");
    assert_eq!(all.catalog.versions.len(), 20);
}

/// Histories of two series in two domains, with stated times, forgotten, damaged and refused versions: every reference and filter means
/// the same in the part of the catalog as in the whole.
#[tokio::test]
async fn references_mean_what_they_mean_in_the_whole_catalog() {
    for seed in 0..8 {
        let mut random = Rng::new(seed);
        let own = made().await;
        let other = own.in_domain("web").await.expect("a key for all domains");
        let mut ids = Vec::new();
        for number in 0..16 {
            let in_other = random.one_in(3);
            let repository = if in_other { &other } else { &own };
            let series = *random.pick(&["a", "b"]);
            let mut made = version(number, u64::from(number) * 1000, series);
            let summary = &mut made.summary;
            summary.domain = repository.keys().domain();
            summary.domain_name = if in_other { "web".to_owned() } else { String::new() };
            summary.time_ms = match random.below(6) {
                0 => summary.time_ms - random.below(16_000),
                1 => summary.time_ms + random.below(16_000),
                _ => summary.time_ms,
            };
            summary.host = (*random.pick(&["one", "two"])).to_owned();
            summary.tags = if random.one_in(4) { vec!["kept".to_owned()] } else { Vec::new() };
            let version = Pin { series: repository.keys().series_key(series), job: summary.id };
            ids.push(summary.id.to_string());
            match random.below(8) {
                0 => {
                    let name = names::version(version.series, version.job, 0);
                    let bytes = vec![number; 100];
                    repository.store().create(&name, bytes.into()).await.expect("creates");
                    continue;
                }
                1 => {
                    commit(repository, &made).await;
                    let mark = Forgotten { time_ms: 5, host: "host".to_owned(), reason: "a test".to_owned() };
                    let domain = made.summary.domain;
                    repository.forget(OwnedVersion { domain, version }, &mark).await.expect("forgets");
                }
                _ => commit(repository, &made).await,
            }
            if number == 11 && seed % 3 == 0 {
                let (name, epoch) = ("web".to_owned(), 0);
                let (host, reason) = ("host".to_owned(), "a test".to_owned());
                let end = ClosedDomain { time_ms: 0, host, reason, name, epoch, versions: Vec::new() };
                own.close_domain(end).await.expect("closes");
            }
        }
        let whole = own.catalog().await.expect("lists");
        let filters = [
            Filter::default(),
            Filter { series: vec!["a".to_owned()], ..Filter::default() },
            Filter { series: vec!["b".to_owned(), "none".to_owned()], ..Filter::default() },
            Filter { hosts: vec!["two".to_owned()], ..Filter::default() },
            Filter { series: vec!["b".to_owned()], tags: vec![vec!["kept".to_owned()]], ..Filter::default() },
        ];
        for filter in &filters {
            let latest = [0, 1, 2, 5, 16].map(|back| format!("latest~{back}"));
            let by_id = ids.iter().enumerate().map(|(at, id)| match at % 3 {
                0 => &id[..12],
                1 => &id[20..],
                _ => &id[24..29],
            });
            let odd = ["latest", "latest~x", "latestly", "", "xyz", "018b"];
            for text in latest.iter().map(String::as_str).chain(by_id).chain(odd) {
                let part = own.catalog_for(&[text], filter).await.expect("lists");
                let (part, whole) = match text.starts_with("latest") {
                    true => (filtered(&part, filter), filtered(&whole, filter)),
                    false => (versions(part.versions), versions(whole.versions.clone())),
                };
                assert_eq!(found(&part, text), found(&whole, text), "seed {seed}, {filter:?}, {text}");
            }
            let both = own.catalog_for(&["latest~2", &ids[3], "latest"], filter).await.expect("lists");
            for text in ["latest~2", "latest"] {
                assert_eq!(found(&filtered(&both, filter), text), found(&filtered(&whole, filter), text));
            }
            let newer =
                |damaged: &JobId| found(&filtered(&whole, filter), "latest").is_ok_and(|latest| *damaged > latest);
            let damaged: Vec<_> = whole.damaged.iter().map(|damaged| damaged.id).filter(newer).collect();
            let part = own.catalog_for(&["latest"], filter).await.expect("lists");
            let seen: Vec<_> = part.damaged.iter().map(|damaged| damaged.id).collect();
            assert!(!filter.series.is_empty() || damaged.iter().all(|id| seen.contains(id)), "seed {seed}, {filter:?}");
        }
        for refused in &whole.refused {
            let part = own.catalog_for(&[&refused.id().to_string()], &Filter::default()).await.expect("lists");
            assert_eq!(part.refused.iter().map(Version::id).collect::<Vec<_>>(), [refused.id()]);
        }
    }
}

fn versions(versions: Vec<Version>) -> Catalog {
    Catalog { versions, ..Catalog::default() }
}

fn filtered(catalog: &Catalog, filter: &Filter) -> Catalog {
    versions(catalog.versions.clone()).filtered(filter)
}
