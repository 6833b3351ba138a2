//! The planner: figures by hand, limits, and what more hosts and more time do.

use proptest::prelude::*;

use super::*;

fn image(host: usize, gigabytes: f64, write_rate: f64) -> PlannedImage {
    let bytes = (gigabytes * 1e9) as u64;
    PlannedImage {
        host,
        bytes,
        read_bytes: bytes,
        changed_bytes: bytes / 4,
        write_rate,
        hot_bytes: bytes / 20,
        is_first: false,
    }
}

/// Two images of 100 GB with a quarter changed, one on each of two hosts, with round numbers for
/// everything.
fn by_hand() -> Fleet {
    let rates = Rates {
        read: 50e6,
        scratch: 50e6,
        compute: 500e6,
        network: 100e6,
        request: 0.02,
        parallel: 10.0,
        chunk: 5000.0,
        known: 0.7,
        shared: 0.1,
        partitions: 4.0,
        index_bytes: 2e9,
        write_price: 0.005,
        read_price: 0.0004,
        month_price: 0.02,
    };
    Fleet { images: vec![image(0, 100.0, 1e6), image(1, 100.0, 0.0)], hosts: 2, rates }
}

fn is_near(found: f64, expected: f64) -> bool {
    (found - expected).abs() <= expected.abs() * 1e-6 + 1e-9
}

#[test]
fn a_round_costs_what_it_costs_by_hand() {
    let fleet = by_hand();
    let plan = plan(&fleet, Limits::default());
    assert!(plan.fits && plan.rounds.len() == 1);
    let Stages { scan, send, join, store, resolve, finish } = plan.rounds[0].stages;
    // r = 25 GB / 5000 B = 5 million chunks a host, so 140 MB of questions. Reading 100 GB at 50
    // MB/s takes 2000 s, hashing 25 GB 50 s beside it, writing the questions 2.8 s.
    assert!(is_near(scan, 2002.8), "{scan}");
    // Reading the questions 2.8 s, sending them 1.4 s.
    assert!(is_near(send, 4.2), "{send}");
    // 280 MB of questions and 2 GB of index over two hosts: 11.4 s. 8 partitions, 10 at once: 0.016
    // s.
    assert!(is_near(join, 11.416), "{join}");
    // A fifth is new: 5 GB are read again at 50 MB/s in 100 s. 3500 tables, 10 at once: 7 s.
    // Answers of 17 bytes for 3.5 million chunks: 0.595 s.
    assert!(is_near(store, 107.595), "{store}");
    // A million places of 44 bytes over two hosts: 0.22 s, and again 0.016 s.
    assert!(is_near(resolve, 0.236), "{resolve}");
    // 5 million records of 34 bytes: 1.7 s. Six requests: 0.12 s.
    assert!(is_near(finish, 1.82), "{finish}");
    // 5 GB of the first image are hot. It is frozen until its chunks are stored, 2126.011 s, at 1
    // MB/s.
    let frozen = 2002.8 + 4.2 + 11.416 + 107.595;
    assert!(is_near(plan.overwritten_bytes(), 5e9 * (1.0 - f64::exp(-frozen * 1e6 / 5e9))));
    assert_eq!(plan.new_bytes(), 10_000_000_000);
    // 16 objects for the images, 1193 containers of 8 MiB, and temporary objects: 10 million chunks
    // at 53.8 bytes are 128.3 times 4 MiB, 32 for partitions, 4 for hosts.
    assert_eq!(plan.requests().writes, 16 + 1193 + 165);
    // 16 for the images, 7000 tables, 64 parts of temporary objects, 476.8 of the index.
    assert_eq!(plan.requests().reads, 16 + 7541);
    let price = 1374.0 * 0.005 / 1000.0 + 7557.0 * 0.0004 / 1000.0 + 10.0 * 0.02;
    assert!(is_near(plan.price(&fleet.rates), price));
}

#[test]
fn images_that_are_frozen_longer_cost_more_up_to_what_is_hot() {
    let image = image(0, 10.0, 1e6);
    assert!(is_near(image.overwritten(1.0), 1e6 * 0.999_000_666) || image.overwritten(1.0) < 1e6);
    assert!(is_near(image.overwritten(1e9), 500e6));
    assert!(image.overwritten(0.0).abs() < 1e-9);
    assert!(PlannedImage { hot_bytes: 0, ..image }.overwritten(100.0).abs() < 1e-9);
}

fn fleets() -> impl Strategy<Value = Fleet> {
    let images = prop::collection::vec((0..6_usize, 1..200_u32, 0..5000_u32, 0..100_u32, any::<bool>()), 1..40);
    (images, 1..6_usize, 0..50_u32).prop_map(|(images, hosts, index)| {
        let images = images.into_iter().map(|(host, gigabytes, rate, changed, is_first)| {
            let bytes = u64::from(gigabytes) * 1_000_000_000;
            let changed_bytes = if is_first { bytes } else { bytes / 100 * u64::from(changed) };
            PlannedImage {
                host: host % hosts,
                bytes,
                read_bytes: bytes,
                changed_bytes,
                write_rate: f64::from(rate) * 1000.0,
                hot_bytes: bytes / 10,
                is_first,
            }
        });
        let rates = Rates { index_bytes: f64::from(index) * 1e8, ..Rates::default() };
        Fleet { images: images.collect(), hosts, rates }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Every image is in one round, the limits hold or it is said that they do not, and more time
    /// is never fewer rounds.
    #[test]
    fn plans_respect_their_limits(fleet in fleets(), hours in 1..100_u32, gigabytes in 0..200_u32) {
        let limits = |hours: u32| Limits { rounds: None, seconds: Some(f64::from(hours) * 3600.0), overwritten_bytes: None };
        for packing in [Packing::Published, Packing::Best] {
            let plan = plan_by(&fleet, limits(hours), packing);
            let mut all: Vec<usize> = plan.rounds.iter().flat_map(|round| round.images.clone()).collect();
            all.sort_unstable();
            prop_assert!(all.into_iter().eq(0..fleet.images.len()));
            prop_assert_eq!(plan.fits, plan.seconds() <= f64::from(hours) * 3600.0);
            prop_assert!(plan.fits || plan.rounds.len() == 1);
            prop_assert!(plan.seconds().is_finite() && plan.overwritten_bytes() >= 0.0);
        }
        let packed = |hours: u32| plan_by(&fleet, limits(hours), Packing::Published).rounds.len();
        prop_assert!(packed(hours) <= packed(2 * hours));
        let bytes = f64::from(gigabytes) * 1e9;
        let bounded = plan(&fleet, Limits { rounds: None, seconds: None, overwritten_bytes: Some(bytes) });
        prop_assert_eq!(bounded.fits, bounded.overwritten_bytes() <= bytes);
        // A given number is kept, as far as there are images.
        for count in [1, 3, 1000] {
            let fixed = plan(&fleet, Limits { rounds: Some(count), ..Limits::default() });
            let all = fixed.rounds.iter().map(|round| round.images.len()).sum::<usize>();
            prop_assert!(fixed.rounds.len() <= count && all == fleet.images.len());
            prop_assert!(count == 1 || fleet.images.len() < 2 || fixed.rounds.len() > 1);
        }
    }

    /// On more hosts, nothing that hosts share takes longer, and the slowest host has no more to
    /// do.
    #[test]
    fn more_hosts_are_not_slower(fleet in fleets(), hosts in 1..8_usize) {
        // Each host has its own partitions, so their requests are left out.
        let rates = Rates { request: 0.0, ..fleet.rates };
        let seconds = |hosts: usize| {
            let fleet = Fleet { rates, ..fleet.clone() }.on_hosts(hosts);
            let even = Fleet { images: fleet.images.iter().flat_map(|one| split(one, hosts)).collect(), ..fleet };
            plan(&even, Limits::default()).seconds()
        };
        prop_assert!(seconds(2 * hosts) <= seconds(hosts) * (1.0 + 1e-9));
    }

    /// A round with one more image takes no less time.
    #[test]
    fn more_images_take_longer(fleet in fleets()) {
        let fewer = Fleet { images: fleet.images[1..].to_vec(), ..fleet.clone() };
        let seconds = |fleet: &Fleet| plan(fleet, Limits::default()).seconds();
        prop_assert!(seconds(&fewer) <= seconds(&fleet) * (1.0 + 1e-9));
    }
}

/// An image as one part for each host.
fn split(image: &PlannedImage, hosts: usize) -> Vec<PlannedImage> {
    let part = |bytes: u64| bytes / hosts as u64;
    (0..hosts)
        .map(|host| PlannedImage {
            host,
            bytes: part(image.bytes),
            read_bytes: part(image.read_bytes),
            changed_bytes: part(image.changed_bytes),
            ..image.clone()
        })
        .collect()
}

/// A generator of numbers for fleets that are always the same.
fn numbers(mut state: u64) -> impl FnMut(u64) -> u64 {
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    }
}

/// Goal: what is packed by us is overwritten less than what is packed as published, in the mean of
/// many fleets within the same time.
#[test]
fn fewer_bytes_are_overwritten_than_as_published() {
    let (mut published, mut best) = (0.0, 0.0);
    for seed in 0..200 {
        let mut next = numbers(seed);
        let hosts = 2 + next(8) as usize;
        let images = (0..hosts * 5).map(|_| {
            let bytes = (1 + next(80)) * 1_000_000_000;
            PlannedImage {
                host: next(hosts as u64) as usize,
                bytes,
                read_bytes: bytes * (5 + next(60)) / 100,
                changed_bytes: bytes * (1 + next(5)) / 100,
                write_rate: 1000.0 * next(2000) as f64,
                hot_bytes: bytes / 20,
                is_first: false,
            }
        });
        let fleet = Fleet { images: images.collect(), hosts, rates: Rates { index_bytes: 1e9, ..Rates::default() } };
        let alone = plan(&fleet, Limits::default()).seconds();
        let limits = Limits { rounds: None, seconds: Some(alone * 1.3), overwritten_bytes: None };
        published += plan_by(&fleet, limits, Packing::Published).overwritten_bytes();
        best += plan_by(&fleet, limits, Packing::Best).overwritten_bytes();
    }
    assert!(best < published * 0.98, "{best} {published}");
}
