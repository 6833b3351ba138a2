//! Policies against brute force and naive models on small cases, and the simulation against closed forms.

use std::collections::{BTreeSet, HashSet};

use proptest::prelude::*;

use super::*;

/// A recipe over containers of `per` chunks of 10 bytes each; chunk n lies in container n / per.
fn recipe(chunks: &[u32], per: u32) -> Recipe {
    let count = chunks.iter().max().map_or(0, |last| last / per + 1);
    let containers =
        (0..count).map(|c| (0..per).map(|i| Held { chunk: c * per + i, offset: i * 10, size: 10 }).collect());
    let needs = chunks.iter().map(|chunk| Need { container: chunk / per, chunk: *chunk, size: 10 });
    Recipe { needs: needs.collect(), containers: containers.collect() }
}

fn vision(recipe: &Recipe, memory: u64, disk: u64, threads: usize) -> Plan {
    let container_bytes = recipe.containers.iter().map(Vec::len).max().unwrap_or(1) as u64 * 10;
    full_vision(recipe, FullVision { memory, disk, container_bytes, threads, reading: Reading::Whole })
}

/// The fewest reads any cache of `slots` whole containers can do: every choice of victim is tried.
fn fewest_reads(accesses: &[u32], slots: usize, cached: BTreeSet<u32>) -> usize {
    let Some((first, rest)) = accesses.split_first() else { return 0 };
    if cached.contains(first) {
        return fewest_reads(rest, slots, cached);
    }
    let with = |mut cached: BTreeSet<u32>| {
        cached.insert(*first);
        1 + fewest_reads(rest, slots, cached)
    };
    if cached.len() < slots {
        return with(cached);
    }
    let victims = cached.iter().map(|victim| with(cached.iter().filter(|other| *other != victim).copied().collect()));
    victims.min().expect("there is a slot")
}

/// Least recently used, chunk by chunk, in a plain list.
fn naive_lru(recipe: &Recipe, cache_bytes: u64) -> usize {
    let mut list: Vec<u32> = Vec::new();
    let mut reads = 0;
    for need in &recipe.needs {
        if !list.contains(&need.chunk) {
            reads += 1;
            for held in &recipe.containers[need.container as usize] {
                list.retain(|chunk| *chunk != held.chunk);
                list.push(held.chunk);
            }
        }
        list.retain(|chunk| *chunk != need.chunk);
        list.push(need.chunk);
        while list.len() as u64 * 10 > cache_bytes && list.len() > 1 {
            list.remove(0);
        }
    }
    reads
}

const LINK: Link = Link { latency: 0.5, rate: 20.0 };

proptest! {
    #[test]
    fn opt_is_optimal_and_never_worse_than_lru(
        chunks in prop::collection::vec(0u32..5, 1..12),
        slots in 1usize..4,
    ) {
        let recipe = recipe(&chunks, 1);
        let opt = opt_containers(&recipe, slots as u64 * 10, 10, 0).reads.len();
        prop_assert_eq!(opt, fewest_reads(&chunks, slots, BTreeSet::new()));
        prop_assert!(opt <= chunk_lru(&recipe, slots as u64 * 10).reads.len());
        // With one chunk a container, the full-vision cache is Belady's too, but keeps nothing that is not needed again.
        let full = vision(&recipe, slots as u64 * 10 + 10, 0, 1).reads.len();
        prop_assert!(full <= opt);
    }

    #[test]
    fn opt_over_containers_is_never_worse_than_lru_over_them(
        chunks in prop::collection::vec(0u32..40, 1..120),
        slots in 1u64..5,
    ) {
        let recipe = recipe(&chunks, 4);
        // Least recently used over whole containers, in a plain list.
        let (mut list, mut reads) = (Vec::new(), 0);
        for need in &recipe.needs {
            reads += usize::from(!list.contains(&need.container));
            list.retain(|container| *container != need.container);
            list.push(need.container);
            if list.len() > slots as usize {
                list.remove(0);
            }
        }
        prop_assert!(opt_containers(&recipe, slots * 40, 40, 0).reads.len() <= reads);
    }

    #[test]
    fn lru_is_what_a_list_does(chunks in prop::collection::vec(0u32..30, 1..80), room in 1u64..20) {
        let recipe = recipe(&chunks, 3);
        prop_assert_eq!(chunk_lru(&recipe, room * 10).reads.len(), naive_lru(&recipe, room * 10));
    }

    #[test]
    fn an_assembly_area_reads_each_container_once(chunks in prop::collection::vec(0u32..30, 1..80), room in 1usize..20) {
        let recipe = recipe(&chunks, 3);
        let naive: usize = chunks
            .chunks(room)
            .map(|area| area.iter().map(|chunk| chunk / 3).collect::<HashSet<_>>().len())
            .sum();
        prop_assert_eq!(forward_assembly(&recipe, room as u64 * 10).reads.len(), naive);
    }

    /// Every place has its chunk when it is written, whichever policy; nothing is read that brings nothing.
    #[test]
    fn alacc_is_between_one_read_a_container_and_one_a_place(
        chunks in prop::collection::vec(0u32..30, 1..80),
        room in 8u64..40,
    ) {
        let recipe = recipe(&chunks, 3);
        let distinct = recipe.needs.iter().map(|need| need.container).collect::<HashSet<_>>().len();
        let plan = alacc(&recipe, room * 10);
        prop_assert!(plan.reads.len() >= distinct && plan.reads.len() <= chunks.len());
        prop_assert!(plan.reads.is_sorted_by_key(|read| read.at));
        // With memory for everything it reads everything once.
        prop_assert_eq!(alacc(&recipe, 100_000).reads.len(), distinct);
    }

    #[test]
    fn full_vision_reads_every_container_once_within_its_budget(
        chunks in prop::collection::vec(0u32..30, 1..80),
        threads in 0usize..5,
    ) {
        let recipe = recipe(&chunks, 3);
        let distinct = recipe.needs.iter().map(|need| need.container).collect::<HashSet<_>>().len();
        // What is useful at once is at most everything; beside it a buffer for each read in flight.
        let all = 300 + 30 * threads.max(1) as u64;
        prop_assert_eq!(vision(&recipe, 2 * all, 0, threads).reads.len(), distinct);
        // A disk tier does what memory did.
        prop_assert_eq!(vision(&recipe, 60, 300, threads).reads.len(), distinct);
    }

    /// Played step by step: what is in memory never exceeds the budget, prefetched bytes included, and each place is served.
    #[test]
    fn what_is_read_ahead_fits(
        chunks in prop::collection::vec(0u32..30, 1..80),
        room in 3u64..30,
        threads in 1usize..4,
    ) {
        let recipe = recipe(&chunks, 3);
        let memory = room * 10 + 60;
        let depth = threads.min((memory / 60) as usize).max(1) as u64;
        let managed = memory - depth * 30;
        let plan = vision(&recipe, memory, 0, threads);
        prop_assert!(plan.reads.iter().all(|read| read.ready <= read.at));
        prop_assert!(plan.reads.is_sorted_by_key(|read| read.at) && plan.reads.is_sorted_by_key(|read| read.ready));
        // The bytes each read brings that come again before another read of their container.
        let useful = |number: usize| {
            let read = plan.reads[number];
            let again = plan.reads[number + 1..].iter().find(|later| later.container == read.container).map_or(usize::MAX, |later| later.at);
            let uses = recipe.needs.iter().enumerate().filter(|(place, need)| {
                need.container == read.container && (read.at..again).contains(place)
            });
            uses.map(|(_, need)| need.chunk).collect::<HashSet<_>>().len() as u64 * 10
        };
        for place in 0..=chunks.len() {
            let ahead: u64 = (0..plan.reads.len())
                .filter(|number| plan.reads[*number].ready < place && plan.reads[*number].at >= place)
                .map(useful)
                .sum();
            prop_assert!(ahead <= managed, "{} of {} at {}", ahead, managed, place);
        }
    }

    #[test]
    fn simulated_time_obeys_its_bounds(
        chunks in prop::collection::vec(0u32..60, 1..120),
        room in 12u64..60,
        rate in 1u32..200,
    ) {
        let recipe = recipe(&chunks, 3);
        let rate = f64::from(rate);
        let writing = recipe.bytes() as f64 / rate;
        let mut before = f64::INFINITY;
        // One plan, played with more and more threads.
        let plan = vision(&recipe, room * 10 + 240, 300, 8);
        let reading: f64 = plan.reads.iter().map(|read| 0.5 + read.bytes as f64 / 20.0).sum();
        let serial = simulate(&recipe, &plan, LINK, 0, rate);
        prop_assert!((serial - writing - reading).abs() < 1e-6);
        for threads in 1..=4usize.min(plan.depth) {
            let time = simulate(&recipe, &plan, LINK, threads, rate);
            prop_assert!(time <= before + 1e-9 && time <= serial + 1e-9);
            prop_assert!(time >= writing - 1e-9 && time >= reading / threads as f64 - 1e-9);
            before = time;
        }
    }
}

#[test]
fn ranges_leave_out_what_is_not_wanted() {
    // Of ten chunks the second, third and ninth are wanted.
    let recipe = recipe(&[1, 2, 8], 10);
    let plan = |gap| {
        let settings =
            FullVision { memory: 1000, disk: 0, container_bytes: 100, threads: 1, reading: Reading::Ranges { gap } };
        full_vision(&recipe, settings).reads[0]
    };
    assert_eq!((plan(0).requests, plan(0).bytes), (2, 30));
    assert_eq!((plan(50).requests, plan(50).bytes), (1, 80));
}

#[test]
fn two_threads_overlap_their_reads() {
    // Two containers, one chunk each: both reads take 1 s, side by side, then 20 bytes are written at 10 a second.
    let recipe = recipe(&[0, 1], 1);
    let plan = vision(&recipe, 1000, 0, 2);
    let link = Link { latency: 0.5, rate: 20.0 };
    assert!((simulate(&recipe, &plan, link, 1, 10.0) - 3.0).abs() < 1e-9);
    assert!((simulate(&recipe, &plan, link, 2, 10.0) - 3.0).abs() < 1e-9);
    assert!((simulate(&recipe, &plan, link, 2, 1e9) - 1.0).abs() < 1e-6);
    assert!((simulate(&recipe, &plan, link, 1, 1e9) - 2.0).abs() < 1e-6);
}
