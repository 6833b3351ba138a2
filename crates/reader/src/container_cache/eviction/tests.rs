//! The schedule against a model: streams of random uses, random sizes, tiny budgets, random order
//! of arrival.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use proptest::prelude::*;

use super::super::disk_tier::BLOCK;
use super::super::future_uses::Builder;
use super::super::read_plan;
use super::*;

/// Containers that each record of each segment uses.
type Stream = Vec<Vec<Number>>;

fn uses_of(stream: &Stream, is_wrong: bool) -> Uses {
    let mut builder = Builder::new(usize::MAX, Path::new("/"));
    for (segment, records) in stream.iter().enumerate().rev() {
        let mut seen = HashSet::new();
        let mut row: Vec<_> = records.iter().filter(|number| seen.insert(**number)).collect();
        if is_wrong && segment % 3 == 0 {
            row.truncate(1);
        }
        for number in row.iter().rev() {
            builder.push(segment as u32, **number, 1);
        }
    }
    builder.finish()
}

struct Model {
    sizes: Vec<u64>,
    limits: Limits,
    held: HashSet<Number>,
    coming: HashSet<Number>,
    /// The bytes of each container there, perhaps not all.
    disk: HashMap<Number, u64>,
    spills: HashMap<Number, u32>,
    reads: HashMap<Number, u32>,
}

impl Model {
    fn bytes(&self, numbers: &HashSet<Number>) -> u64 {
        numbers.iter().map(|number| self.sizes[*number as usize]).sum()
    }

    fn carry_out(&mut self, action: Action, schedule: &mut Schedule) {
        match action {
            Action::Fetch(number, _) => {
                assert!(!self.disk.contains_key(&number) && !self.held.contains(&number));
                assert!(self.coming.insert(number));
                *self.reads.entry(number).or_default() += 1;
            }
            Action::Spill(number, touch) => {
                assert!(self.held.remove(&number));
                let size = self.sizes[number as usize];
                let written = if touch.is_some_and(|touch| touch % 2 == 0) { size - BLOCK } else { size };
                schedule.spilled(number, written);
                self.disk.insert(number, written);
                *self.spills.entry(number).or_default() += 1;
            }
            Action::Drop(number) => assert!(self.held.remove(&number) || self.disk.remove(&number).is_some()),
            Action::Wait(number) => self.land(number, schedule),
        }
        self.check(schedule);
    }

    fn land(&mut self, number: Number, schedule: &mut Schedule) {
        assert!(self.coming.remove(&number), "what nobody asked for does not come");
        self.held.insert(number);
        schedule.landed(number, self.sizes[number as usize]);
        self.check(schedule);
    }

    fn collect(&mut self, schedule: &mut Schedule) {
        for number in schedule.gone() {
            self.held.remove(&number);
            self.coming.remove(&number);
            self.disk.remove(&number);
        }
        self.check(schedule);
    }

    fn check(&self, schedule: &Schedule) {
        let (memory, disk) = (self.bytes(&self.held) + self.bytes(&self.coming), self.disk.values().sum::<u64>());
        assert_eq!(schedule.taken(), (memory, disk));
        let alone = self.held.len() + self.coming.len() <= 1;
        assert!(memory <= self.limits.memory || alone, "{memory} of {}", self.limits.memory);
        assert!(disk <= self.limits.disk);
    }

    /// Reads the stream, and counts the fetches of each container.
    fn read(
        stream: &Stream,
        sizes: &[u64],
        limits: Limits,
        is_ahead: bool,
        is_wrong: bool,
        luck: &[u8],
    ) -> HashMap<Number, u32> {
        let mut model = Self {
            sizes: sizes.to_vec(),
            limits,
            held: HashSet::new(),
            coming: HashSet::new(),
            disk: HashMap::new(),
            spills: HashMap::new(),
            reads: HashMap::new(),
        };
        let mut schedule = Schedule::new(uses_of(stream, is_wrong), limits);
        let mut size = |_: &mut Uses, number: Number, _: Option<TouchNumber>| sizes[number as usize];
        let mut luck = luck.iter().cycle();
        for (segment, records) in stream.iter().enumerate() {
            schedule.enter(segment as u32, records.iter().enumerate().map(|(place, number)| (place as u32, *number)));
            model.collect(&mut schedule);
            for (place, number) in records.iter().enumerate() {
                let mut steps = 0;
                while is_ahead && let Some(action) = schedule.look(&mut size) {
                    model.carry_out(action, &mut schedule);
                    steps += 1;
                    assert!(steps < 1000, "looking ahead goes on for ever");
                }
                if luck.next().expect("cycles").is_multiple_of(2)
                    && let Some(coming) = model.coming.iter().min().copied()
                {
                    model.land(coming, &mut schedule);
                }
                while let Some(action) = schedule.need(*number, &mut size) {
                    model.carry_out(action, &mut schedule);
                    steps += 1;
                    assert!(steps < 2000, "what is needed never comes");
                }
                assert!(model.held.contains(number) || model.disk.contains_key(number), "what is needed is at hand");
                schedule.used(*number, place as u32);
                model.collect(&mut schedule);
            }
        }
        schedule.enter(stream.len() as u32, std::iter::empty());
        model.collect(&mut schedule);
        if !is_wrong {
            assert_eq!(schedule.taken(), (0, 0), "nothing stays behind");
        }
        let is_again = |(number, spills): (&Number, &u32)| *spills > model.reads[number];
        assert!(!model.spills.iter().any(is_again), "what is on disk is not written there again");
        model.reads
    }
}

/// The maximum over all records of the bytes that are needed now or again.
fn peak(stream: &Stream, sizes: &[u64]) -> u64 {
    let records: Vec<Number> = stream.iter().flatten().copied().collect();
    let mut span: HashMap<Number, (usize, usize)> = HashMap::new();
    for (place, number) in records.iter().enumerate() {
        span.entry(*number).or_insert((place, place)).1 = place;
    }
    let at = |place: usize| -> u64 {
        let live = span.iter().filter(|(_, (first, last))| (*first..=*last).contains(&place));
        live.map(|(number, _)| sizes[*number as usize]).sum()
    };
    (0..records.len()).map(at).max().unwrap_or(0)
}

fn streams() -> impl Strategy<Value = Stream> {
    let record = prop_oneof![4 => 0u32..12, 1 => 0u32..40];
    prop::collection::vec(prop::collection::vec(record, 0..8), 1..30)
}

fn sizes() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec((1u64..5).prop_map(|blocks| blocks * BLOCK), 40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn what_is_needed_is_there_and_no_budget_is_exceeded(
        stream in streams(), sizes in sizes(), memory in 0u64..40, disk in 0u64..40,
        is_ahead: bool, is_wrong: bool, luck in prop::collection::vec(any::<u8>(), 1..9),
    ) {
        let limits = Limits { memory: memory * BLOCK, disk: disk * BLOCK };
        Model::read(&stream, &sizes, limits, is_ahead, is_wrong, &luck);
    }

    #[test]
    fn every_container_is_read_once_when_memory_holds_what_is_needed_again(
        stream in streams(), sizes in sizes(), more in 0u64..40, is_ahead: bool, luck in prop::collection::vec(any::<u8>(), 1..9),
    ) {
        let limits = Limits { memory: peak(&stream, &sizes) + more * BLOCK, disk: 0 };
        let reads = Model::read(&stream, &sizes, limits, is_ahead, false, &luck);
        prop_assert!(reads.values().all(|reads| *reads == 1), "{:?}", reads);
    }

    /// Bytes needed now must be in memory first, so the disk has to take the evicted ones.
    #[test]
    fn every_container_is_read_once_when_both_tiers_hold_what_is_needed_again(
        stream in streams(), sizes in sizes(), memory in 4u64..40, is_ahead: bool, luck in prop::collection::vec(any::<u8>(), 1..9),
    ) {
        let disk = peak(&stream, &sizes).saturating_sub(memory * BLOCK) + 8 * BLOCK;
        let limits = Limits { memory: memory * BLOCK, disk };
        let reads = Model::read(&stream, &sizes, limits, is_ahead, false, &luck);
        prop_assert!(reads.values().all(|reads| *reads == 1), "{:?}", reads);
    }

    #[test]
    fn nobody_reads_less_looking_ahead_or_not(
        stream in streams(), memory in 1u64..12, is_ahead: bool, luck in prop::collection::vec(any::<u8>(), 1..9),
    ) {
        // All of one size, so that Belady's choice is optimal.
        let sizes = vec![BLOCK; 40];
        let reads = Model::read(&stream, &sizes, Limits { memory: memory * BLOCK, disk: 0 }, is_ahead, false, &luck);
        let records: Vec<Number> = stream.iter().flatten().copied().collect();
        prop_assert_eq!(reads.values().sum::<u32>(), optimal(&records, memory as usize));
    }
}

/// Misses of a cache of this size that knows the future.
fn optimal(records: &[Number], room: usize) -> u32 {
    let (mut held, mut misses) = (Vec::new(), 0);
    for (place, number) in records.iter().enumerate() {
        if held.contains(number) {
            continue;
        }
        misses += 1;
        if held.len() == room {
            let next =
                |number: &Number| records[place..].iter().position(|other| other == number).unwrap_or(usize::MAX);
            let farthest = (0..held.len()).max_by_key(|at| next(&held[*at])).expect("not empty");
            held.swap_remove(farthest);
        }
        held.push(*number);
    }
    misses
}

#[test]
fn what_is_over_stays_for_the_next_plan_where_more_follow() {
    let limits = Limits { memory: 3 * BLOCK, disk: 0 };
    let mut schedule = Schedule::new(Uses::default(), limits);
    let mut size = |_: &mut Uses, _: Number, _: Option<TouchNumber>| BLOCK;
    let mut fetched = Vec::new();
    for number in [1, 2, 1, 3, 4, 1, 2] {
        schedule.replan(uses_of(&vec![vec![number]], false), true);
        schedule.enter(0, [(0, number)].into_iter());
        while let Some(action) = schedule.need(number, &mut size) {
            match action {
                Action::Fetch(number, _) => fetched.push(number),
                Action::Wait(number) => schedule.landed(number, BLOCK),
                _ => {}
            }
        }
        schedule.used(number, 0);
    }
    assert_eq!(fetched, [1, 2, 3, 4, 2], "the longest unused one left");
}

/// A store that answers a number of requests at once, each after `LATENCY_US` and then at `RATE`
/// bytes a microsecond.
struct Link {
    streams: usize,
    now: u64,
    /// The time at which each stream is free.
    free: Vec<u64>,
    arrives: HashMap<Number, u64>,
}

const LATENCY_US: u64 = 30_000;
const RATE: u64 = 90;
/// Bytes a microsecond that a reader uses.
const READER_RATE: u64 = 1000;

impl Link {
    fn ask(&mut self, number: Number, bytes: u64, pieces: u64) {
        let mut last = 0;
        for _ in 0..pieces {
            let stream = (0..self.streams).min_by_key(|stream| self.free[*stream]).expect("there is one");
            self.free[stream] = self.free[stream].max(self.now) + LATENCY_US + bytes / pieces / RATE;
            last = last.max(self.free[stream]);
        }
        self.arrives.insert(number, last);
    }

    /// Reads a stream of containers of one size in pieces; returns the fetched bytes and the
    /// microseconds.
    fn read(stream: &Stream, size: u64, limits: Limits, streams: usize, pieces: u64) -> (u64, u64) {
        let mut link = Self { streams, now: 0, free: vec![0; streams], arrives: HashMap::new() };
        let mut schedule = Schedule::new(uses_of(stream, false), limits);
        let mut size_of = |_: &mut Uses, _: Number, _: Option<TouchNumber>| size;
        let mut fetched = 0;
        let mut carry_out = |action: Action, schedule: &mut Schedule, link: &mut Self| match action {
            Action::Fetch(number, _) => {
                fetched += size;
                link.ask(number, size, pieces);
            }
            Action::Wait(number) => {
                link.now = link.now.max(link.arrives[&number]);
                schedule.landed(number, size);
            }
            Action::Spill(number, _) => schedule.spilled(number, size / 8),
            Action::Drop(_) => {}
        };
        for (segment, records) in stream.iter().enumerate() {
            schedule.enter(segment as u32, records.iter().enumerate().map(|(place, number)| (place as u32, *number)));
            schedule.gone();
            for (place, number) in records.iter().enumerate() {
                while let Some(action) = schedule.look(&mut size_of) {
                    carry_out(action, &mut schedule, &mut link);
                }
                while let Some(action) = schedule.need(*number, &mut size_of) {
                    carry_out(action, &mut schedule, &mut link);
                }
                schedule.used(*number, place as u32);
                schedule.gone();
                // Eight records for each container.
                link.now += size / 8 / READER_RATE;
            }
        }
        (fetched, link.now)
    }
}

/// Goal: a reader in stream order uses a slow link fully even with little memory. Method: a model
/// of time with six requests at once, each answered after 30 ms at 90 MB/s. Part of the stream
/// returns to old containers.
#[test]
fn six_streams_are_kept_busy_with_memory_for_five_containers() {
    const SIZE: u64 = 8 << 20;
    // Six containers at a time, without a pause.
    const LIMIT: u64 = 6 * SIZE * 1_000_000 / (LATENCY_US + SIZE / RATE);
    let mut x = 7_u64;
    let mut random = move || {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (x >> 33) as u32
    };
    for share in [0, 20, 40] {
        let record = |own: u32, luck: u32, other: u32| if luck % 100 < share && own > 0 { other % own } else { own };
        let stream: Stream = (0..200).map(|own| (0..8).map(|_| record(own, random(), random())).collect()).collect();
        for (memory, percent) in [(5, 75), (8, 90)] {
            let limits = Limits { memory: memory * SIZE, disk: 1 << 30 };
            let pieces = read_plan::pieces(SIZE, limits.memory, 6);
            let (fetched, micros) = Link::read(&stream, SIZE, limits, 6, pieces);
            let wanted = stream.iter().flatten().collect::<HashSet<_>>().len() as u64;
            assert_eq!(fetched, wanted * SIZE, "every container once");
            let rate = fetched * 1_000_000 / micros;
            assert!(rate * 100 > LIMIT * percent, "{rate} of {LIMIT}: {share} % come back, memory for {memory}");
        }
    }
}
