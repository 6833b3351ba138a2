//! The choice keeps its limits for any input.

use larder_format::content::ContentRoots;
use larder_format::ids::{ContainerKind, JobId, SeriesKey};
use larder_format::manifest::{SourceKind, Statistics, Summary};
use larder_format::recipe::Recipe;
use larder_format::sketch::Sketch;
use larder_store::catalog::Version;
use proptest::prelude::*;

use super::*;

fn id(seq: u32) -> ContainerId {
    ContainerId { kind: ContainerKind::Data, job: JobId([1; 16]), seq }
}

/// One chunk of a container of 1,000 bytes.
fn usage(seq: u32, bytes_used: u64) -> ContainerUsage {
    ContainerUsage {
        container: id(seq),
        chunks_used: 1,
        bytes_used,
        chunks_held: 1,
        bytes_held: 1000,
        object_bytes: 1000,
    }
}

fn newest(number: u8, generation: u32, bytes: u64, containers: Vec<ContainerUsage>) -> Newest {
    let summary = Summary {
        id: JobId([number; 16]),
        series: String::new(),
        base: None,
        time_ms: 0,
        started_ms: 0,
        ended_ms: 0,
        host: String::new(),
        user: String::new(),
        tags: Vec::new(),
        paths: Vec::new(),
        program: String::new(),
        source: SourceKind::Tree,
        statistics: Statistics::default(),
        attempt: [0; 16],
        sketch: Sketch::default(),
        layout: larder_format::layout::Layout::Standard,
        more_bases: Vec::new(),
        domain: Default::default(),
        is_signed: false,
        roots: ContentRoots::of(&Recipe::default(), &Recipe::default()),
        witness: None,
        domain_name: String::new(),
        domain_epoch: 0,
        origin: None,
    };
    let version = Version { summary, series: SeriesKey([number; 16]), generation, made_ms: 0, manifest_bytes: 0 };
    Newest { version, bytes, containers, metadata: Vec::new(), spent: 0, recipe: None }
}

/// Containers by the bytes they hold; versions by their generation and how much of each container
/// (percent) they use.
type Scene = (Vec<u64>, Vec<(u32, Vec<u8>)>, Vec<(u32, u32, u8)>);

fn scene() -> impl Strategy<Value = Scene> {
    let held = proptest::collection::vec(prop_oneof![1u64..2_000, 1_000_000..9_000_000u64], 1..24);
    let version = |containers: usize| {
        (0u32..2, proptest::collection::vec(prop_oneof![2 => Just(0u8), 3 => 1..=100u8], containers))
    };
    held.prop_flat_map(move |held| {
        let containers = held.len();
        let versions = proptest::collection::vec(version(containers), 1..5);
        let pairs = proptest::collection::vec((0..containers as u32, 0..containers as u32, 1..=100u8), 0..20);
        (Just(held), versions, pairs)
    })
}

proptest! {
    #[test]
    fn what_is_chosen_keeps_to_its_limits(
        (held, versions, pairs) in scene(),
        budget_percent in prop_oneof![Just(0u8), Just(5), Just(50), Just(100)],
        duplicate_percent in prop_oneof![Just(0u8), Just(20)],
    ) {
        let options = DefragmentOptions { budget: Budget::of_version(budget_percent), duplicate_percent, ..DefragmentOptions::default() };
        let usage = |(seq, share): (usize, &u8)| {
            let bytes_used = held[seq] * u64::from(*share) / 100;
            (*share > 0).then(|| ContainerUsage {
                container: id(seq as u32),
                chunks_used: 1,
                bytes_used,
                chunks_held: 1,
                bytes_held: held[seq],
                object_bytes: held[seq],
            })
        };
        let all: Vec<Newest> = versions
            .iter()
            .enumerate()
            .map(|(number, (generation, shares))| {
                let containers: Vec<_> = shares.iter().enumerate().filter_map(usage).collect();
                let bytes = containers.iter().map(|usage| usage.bytes_used).sum();
                newest(number as u8, *generation, bytes, containers)
            })
            .collect();
        let uses = Uses::of_all(&all);
        let sparse = for_reading(&all, &uses, &options);
        // Copies are in higher containers that no version leaves for another reason, and each
        // container has copies in at most one.
        let leaving: HashSet<_> = sparse.iter().flatten().map(|usage| usage.container).collect();
        let mut duplicates = Duplicates::default();
        let losers: HashSet<u32> = pairs.iter().map(|(a, b, _)| *a.min(b)).collect();
        for (a, b, share) in &pairs {
            let (loser, winner) = (*a.min(b), *a.max(b));
            let stays = !leaving.contains(&id(winner)) && !losers.contains(&winner) && !uses.of(&id(winner)).is_empty();
            let shared = duplicates.shared.entry(id(loser)).or_default();
            if loser != winner && stays && shared.is_empty() && !uses.of(&id(loser)).is_empty() {
                shared.push((id(winner), held[loser as usize] * u64::from(*share) / 100));
            }
        }
        let unused = vec![Vec::new(); all.len()];
        let chosen = choose(&all, &uses, sparse, unused, &duplicates, &options).leaves;
        prop_assert_eq!(chosen.len(), all.len());

        for (newest, leaves) in all.iter().zip(&chosen) {
            let copied: u64 = leaves.iter().map(Leave::copied_bytes).sum();
            prop_assert!(u128::from(copied) * 100 <= u128::from(newest.bytes) * u128::from(budget_percent));
            let left: HashSet<_> = leaves.iter().map(|leave| leave.usage.container).collect();
            prop_assert_eq!(left.len(), leaves.len(), "each once");
            prop_assert!(leaves.iter().all(|leave| newest.containers.contains(&leave.usage)));
            let leads_to_what_is_left = leaves.iter().flat_map(|leave| &leave.shared).any(|(other, _)| left.contains(other));
            prop_assert!(!leads_to_what_is_left);
            for leave in leaves {
                let container = &leave.usage.container;
                match leave.why {
                    Why::Sparse => {
                        let is_small = uses.of(container).len() == 1 && leave.usage.bytes_used < options.small_bytes;
                        prop_assert!(is_small || uses.is_sparse_for_all(container, DENSE_PERCENT));
                    }
                    Why::Duplicate => {
                        prop_assert!(!is_below(leave.shared_bytes(), duplicate_percent, leave.usage.bytes_held));
                        // By all or by none.
                        for used in uses.of(container) {
                            let leaves_it = chosen[used.version].iter().any(|leave| leave.usage.container == *container);
                            prop_assert!(leaves_it);
                        }
                    }
                    Why::ReclaimReport | Why::Unused | Why::Scattered => prop_assert!(false, "nothing was"),
                }
            }
        }
    }
}

#[test]
fn small_containers_go_by_fours() {
    let options = DefragmentOptions::default();
    let of = |sizes: &[u64]| {
        let usage = |(seq, bytes): (usize, &u64)| ContainerUsage {
            container: id(seq as u32),
            chunks_used: 1,
            bytes_used: *bytes,
            chunks_held: 1,
            bytes_held: *bytes,
            object_bytes: *bytes,
        };
        let mut containers: Vec<_> = sizes.iter().enumerate().map(usage).collect();
        containers.push(usage((99, &(8 << 20))));
        let all = [newest(1, 0, 100 << 20, containers)];
        let uses = Uses::of_all(&all);
        for_reading(&all, &uses, &options).remove(0).iter().map(|usage| usage.bytes_used).collect::<Vec<_>>()
    };
    assert_eq!(of(&[70_000, 80_000, 90_000]), [0u64; 0]);
    assert_eq!(of(&[70_000, 80_000, 90_000, 100_000]), [70_000, 80_000, 90_000, 100_000]);
    // The large one waits for three more of its size; the fourth of the small ones is too small to
    // be one.
    assert_eq!(of(&[70_000, 80_000, 1000, 90_000, 500_000]), [0u64; 0]);
    assert_eq!(of(&[70_000, 500_000, 80_000, 90_000, 100_000, 3 << 20]), [70_000, 80_000, 90_000, 100_000]);
}

/// The worst come first. All users leave a container or none does, and nothing that an older
/// version uses is left.
#[test]
fn unused_bytes_go_until_few_enough_are_left() {
    let first = newest(1, 3, 1400, vec![usage(0, 500), usage(1, 900), usage(3, 10)]);
    let all = [first, newest(2, 0, 1400, vec![usage(0, 400), usage(2, 1000)])];
    let (uses, exclusive): (_, HashSet<_>) = (Uses::of_all(&all), (0..3).map(id).collect());
    let of = |percent: f64, taken: &[u32]| {
        let taken: HashSet<_> = taken.iter().copied().map(id).collect();
        let leaves = super::super::unused::unused(&all, &uses, &exclusive, &taken, percent);
        leaves.iter().map(|of| of.iter().map(|usage| usage.container.seq).collect()).collect::<Vec<Vec<_>>>()
    };
    // 100 bytes of each of two containers are of no use, of 4000.
    assert_eq!(of(5.0, &[]), [vec![0u32; 0], vec![]]);
    assert_eq!(of(4.0, &[]), [vec![0], vec![0]]);
    assert_eq!(of(0.0, &[]), [vec![0, 1], vec![0]]);
    assert_eq!(of(0.0, &[0]), [vec![1], vec![]]);
}

/// A budget leaves out partly unused containers before the whole plan: else a small one would stop
/// every rewrite for ever.
#[test]
fn a_plan_is_cut_to_its_budget() {
    let all = [newest(1, 0, 1500, vec![usage(0, 500), usage(1, 900), usage(2, 100)])];
    let (sparse, unused) = (vec![vec![usage(2, 100)]], vec![vec![usage(0, 500), usage(1, 900)]]);
    let options = DefragmentOptions::default();
    let uses = Uses::of_all(&all);
    let chosen = choose(&all, &uses, sparse, unused, &Duplicates::default(), &options);
    let plans = super::super::plans_of(&all, &uses, chosen.leaves, Duplicates::default()).plans;
    let [plan] = &plans[..] else { panic!("{plans:?}") };
    let within = |bytes| {
        plan.clone().within(bytes).map(|plan| {
            let mut containers: Vec<u32> = plan.containers.iter().map(|usage| usage.container.seq).collect();
            containers.sort_unstable();
            (plan.bytes, containers)
        })
    };
    assert_eq!(within(u64::MAX), Some((1500, vec![0, 1, 2])));
    assert_eq!(within(1500), Some((1500, vec![0, 1, 2])));
    assert_eq!(within(1499), Some((600, vec![0, 2])));
    assert_eq!(within(599), Some((100, vec![2])));
    assert_eq!(within(99), None);
}

/// What a version has left once in a step it does not leave again, whatever later plans say.
#[test]
fn a_plan_is_without_what_was_left_before() {
    let all = [newest(1, 0, 1500, vec![usage(0, 500), usage(1, 900), usage(2, 100)])];
    let sparse = vec![vec![usage(1, 900), usage(2, 100)]];
    let options = DefragmentOptions { budget: Budget::of_version(100), ..DefragmentOptions::default() };
    let uses = Uses::of_all(&all);
    let chosen = choose(&all, &uses, sparse, vec![Vec::new()], &Duplicates::default(), &options);
    let plan = super::super::plans_of(&all, &uses, chosen.leaves, Duplicates::default()).plans.remove(0);
    let without = |left: &[u32]| {
        let left = left.iter().copied().map(id).collect();
        plan.clone().without(&left).map(|plan| (plan.bytes, plan.containers.len()))
    };
    assert_eq!(without(&[]), Some((1000, 2)));
    assert_eq!(without(&[0, 1]), Some((100, 1)));
    assert_eq!(without(&[1, 2]), None);
}

/// Of two containers with the same few bytes, one is always the sparsest. A version goes from the
/// larger one to the smaller one, and never back.
#[test]
fn a_version_goes_to_another_sparse_container_only_if_it_reads_less() {
    const SAME: u64 = 4575;
    let usage = |seq: u32, bytes_used, bytes_held| ContainerUsage { bytes_used, bytes_held, ..usage(seq, 0) };
    let (large, small, own) = ((0, 8_600_000), (1, 6_300_000), usage(2, 20_000_000, 20_000_000));
    let other = [usage(0, 7_000_000, large.1), usage(1, 5_000_000, small.1), usage(3, 40_000_000, 40_000_000)];
    let leaves = |(from, held): (u32, u64), to: (u32, u64), more: Option<ContainerUsage>| {
        let mut containers = vec![usage(from, SAME, held), own];
        containers.extend(more);
        let all = [newest(1, 1, 20_000_000, containers), newest(2, 1, 52_000_000, other.to_vec())];
        let (uses, options) = (Uses::of_all(&all), DefragmentOptions::default());
        let sparse = for_reading(&all, &uses, &options);
        let mut duplicates = Duplicates::default();
        duplicates.shared.insert(id(from), vec![(id(to.0), SAME)]);
        let chosen = choose(&all, &uses, sparse, vec![Vec::new(); 2], &duplicates, &options).leaves.remove(0);
        let leave = chosen.into_iter().find(|leave| leave.usage.container == id(from)).expect("it is sparse");
        assert_eq!(leave.why, Why::Sparse);
        assert_eq!(leave.may_lead_to(&id(to.0)), !leave.shared.is_empty());
        assert!(!leave.may_lead_to(&id(9)), "a container that the plan does not count");
        leave.shared
    };
    assert_eq!(leaves(large, small, None), [(id(1), SAME)]);
    assert_eq!(leaves(small, large, None), [], "these bytes are copied");
    let used_anyway = usage(0, 8_000_000, large.1);
    assert_eq!(leaves(small, large, Some(used_anyway)), [(id(0), SAME)]);
}

/// One container for one is worth it when the version reads too much, and not for a small part of a
/// large version.
#[test]
fn one_sparse_container_goes_when_that_saves_much() {
    let of = |shares: &[(u64, u64)]| chosen_of(shares, &DefragmentOptions::default()).len();
    assert_eq!(of(&[(80_000, 5_000_000), (5_000_000, 5_000_000)]), 1);
    let large = [&[(80_000, 5_000_000)][..], &[(8_000_000, 8_000_000); 20]].concat();
    assert_eq!(of(&large), 0, "3 % of 165 MB");
    assert_eq!(of(&[(2_000, 200_000)]), 0, "too little to be worth the requests");
}

/// Containers that decay evenly are left one by one, as soon as their sum is above the bound.
#[test]
fn the_sum_of_all_containers_is_bounded() {
    let options = DefragmentOptions { budget: Budget::of_version(100), ..DefragmentOptions::default() };
    let even = |percent: u64| (0..20).map(|number| (percent * 80_000 + number, 8_000_000)).collect::<Vec<_>>();
    assert_eq!(chosen_of(&even(84), &options), [0u32; 0]);
    // 160 MB for 131.2: the bound allows 157.4, and each container frees 1.44.
    assert_eq!(chosen_of(&even(82), &options), [0, 1]);
    // Of half of them little is used: to copy these is cheap, so the lower bound counts.
    let cheap = [&[(3_000_000, 8_000_000); 5][..], &[(7_900_000, 8_000_000); 20]].concat();
    assert_eq!(chosen_of(&cheap, &options), [0]);
    // Nothing is left beyond the budget, but one container may be left in any case.
    let none = DefragmentOptions { budget: Budget::of_version(0), ..options };
    assert_eq!(chosen_of(&even(82), &none), [0u32; 0]);
    let one = DefragmentOptions { budget: Budget { has_least: true, ..none.budget }, ..none };
    assert_eq!(chosen_of(&even(82), &one), [0]);
}

/// The places of the containers that a version leaves, given what it uses and what they hold.
fn chosen_of(shares: &[(u64, u64)], options: &DefragmentOptions) -> Vec<u32> {
    let usage = |(seq, (bytes_used, bytes_held)): (usize, &(u64, u64))| ContainerUsage {
        container: id(seq as u32),
        chunks_used: 1,
        bytes_used: *bytes_used,
        chunks_held: 1,
        bytes_held: *bytes_held,
        object_bytes: *bytes_held,
    };
    let containers: Vec<_> = shares.iter().enumerate().map(usage).collect();
    let all = [newest(2, 0, shares.iter().map(|(used, _)| used).sum(), containers)];
    let chosen = for_reading(&all, &Uses::of_all(&all), options).remove(0);
    chosen.iter().map(|usage| usage.container.seq).collect()
}
