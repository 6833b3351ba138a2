//! The attack that code 5 answers: contents and lengths of six chunks give the key of code 1.
//!
//! The order of code 1 is `word * a + b`. A person who has a chunk's bytes and its length knows which
//! window had the smallest hash. For one `a`, this is so for an arc of values of `b` only: from the
//! winner back to the next hash below it, around the circle of 32 bits. Six chunks have six arcs,
//! and all of them meet for the true `a` alone.

use larder_chunking::{Algorithm, Chunker, ChunkerParams, StreamEnd, chunker};

const SEED: &[u8; 32] = b"a secret seed, seen by no reader";

/// Chunks that the attacker knows.
const KNOWN: u64 = 6;

/// Windows of each chunk that are looked at first. Few wrong multipliers are left after them.
const SAMPLE: usize = 256;

/// What an attacker has of one chunk.
struct Observation {
    /// The word before the cut.
    winner: u32,
    /// The other words that might have won.
    others: Vec<u32>,
}

/// What the attacker learned: the multiplier, and bounds of the addend (which may wrap around).
#[derive(Debug, PartialEq, Eq)]
struct Learned {
    multiplier: u32,
    addends: (u32, u32),
}

fn content(number: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new().update(&number.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

fn make(algorithm: Algorithm) -> Box<dyn Chunker> {
    chunker(ChunkerParams::with_average(algorithm, 4096), SEED).expect("valid parameters")
}

/// One file for each chunk, as when a backup adds only one.
fn observe(algorithm: Algorithm) -> Vec<Observation> {
    let chunker = make(algorithm);
    let params = chunker.params();
    let observation = |number| {
        let data = content(number, 64 << 10);
        let word = |length: usize| u32::from_le_bytes(*data[..length].last_chunk().expect("min is above four"));
        let winner = word(chunker.next_cut(&data));
        let words = (params.min..=params.max).map(|length| word(length as usize));
        Observation { winner, others: words.filter(|&word| word != winner).collect() }
    };
    (0..KNOWN).map(observation).collect()
}

/// How far below the winner the next hash is.
fn gap(multiplier: u32, winner: u32, others: &[u32]) -> u64 {
    let below = |word: &u32| winner.wrapping_sub(multiplier.wrapping_mul(*word)).wrapping_sub(1);
    u64::from(others.iter().map(below).min().unwrap_or(u32::MAX)) + 1
}

/// Where the arcs of all observations meet, by the first `windows` of each: distances below the
/// first winner.
fn meeting(observations: &[Observation], multiplier: u32, windows: usize) -> Option<(u64, u64)> {
    const CIRCLE: u64 = 1 << 32;
    let first = multiplier.wrapping_mul(observations[0].winner);
    let (mut low, mut high) = (0, CIRCLE - 1);
    for observation in observations {
        let winner = multiplier.wrapping_mul(observation.winner);
        let gap = gap(multiplier, winner, &observation.others[..windows.min(observation.others.len())]);
        let from = u64::from(first.wrapping_sub(winner));
        let to = from + gap - 1;
        // The arc, and its other part where it goes over the end of the circle.
        let arcs = [Some((from, to)), to.checked_sub(CIRCLE).map(|to| (0, to))];
        let meets = |&(from, to): &(u64, u64)| (from.max(low) <= to.min(high)).then_some((from.max(low), to.min(high)));
        (low, high) = arcs.iter().flatten().find_map(meets)?;
    }
    Some((low, high))
}

/// All multipliers of a range that the observations allow.
fn learn(observations: &[Observation], multipliers: impl Iterator<Item = u32>) -> Vec<Learned> {
    let first = observations[0].winner;
    let mut learned = Vec::new();
    for multiplier in multipliers {
        if meeting(observations, multiplier, SAMPLE).is_some()
            && let Some((low, high)) = meeting(observations, multiplier, usize::MAX)
        {
            // The arcs hold minus the addend.
            let addend = |distance: u64| (distance as u32).wrapping_sub(multiplier.wrapping_mul(first));
            learned.push(Learned { multiplier, addends: (addend(low), addend(high)) });
        }
    }
    learned
}

/// The odd numbers around one.
fn around(center: u32, count: u32) -> impl Iterator<Item = u32> {
    (0..count).map(move |number| center.wrapping_sub(count).wrapping_add(2 * number) | 1)
}

/// The key of code 1, which the test knows and an attacker does not.
fn key_of_code_1() -> (u32, u32) {
    let mut bytes = [0; 8];
    blake3::Hasher::new_keyed(SEED).update(b"larder mincdc 1").finalize_xof().fill(&mut bytes);
    let [multiplier, addend] = [0, 4].map(|at| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")));
    (multiplier | 1, addend)
}

/// Cuts of a stream by a learned key.
fn predicted(data: &[u8], learned: &Learned) -> Vec<usize> {
    let (low, high) = learned.addends;
    let addend = low.wrapping_add(high.wrapping_sub(low) / 2);
    let mut cuts = Vec::new();
    let mut at = 0;
    while data.len() - at >= 6144 {
        let hash = |length: &usize| {
            let word = u32::from_le_bytes(*data[..at + length].last_chunk().expect("min is above four"));
            word.wrapping_mul(learned.multiplier).wrapping_add(addend)
        };
        at += (2048..=6144).rev().min_by_key(hash).expect("not empty");
        cuts.push(at);
    }
    cuts
}

fn cuts(algorithm: Algorithm, data: &[u8]) -> Vec<usize> {
    let mut lengths = Vec::new();
    make(algorithm).cut_all(data, StreamEnd::Reached, &mut lengths);
    let ends = lengths.iter().scan(0, |at, &length| {
        *at += length as usize;
        Some(*at)
    });
    ends.collect()
}

/// Six lengths single out the multiplier and predict the cuts of another file.
fn check_code_1(learned: &[Learned]) {
    let (multiplier, addend) = key_of_code_1();
    let [learned] = learned else { panic!("one multiplier is left: {learned:?}") };
    assert_eq!(learned.multiplier, multiplier);
    let (low, high) = learned.addends;
    assert!(addend.wrapping_sub(low) <= high.wrapping_sub(low), "{addend:08x} is within {learned:x?}");
    let data = content(100, 1 << 20);
    let expected = cuts(Algorithm::MinCdc, &data);
    let right = predicted(&data, learned).iter().filter(|cut| expected.contains(cut)).count();
    assert!(right * 10 > expected.len() * 9, "{right} of {} cuts predicted", expected.len());
}

/// Among the quarter million multipliers around the true one. The other two billion are in the next
/// test.
#[test]
fn six_lengths_give_the_key_of_code_1_and_nothing_of_code_5() {
    let (multiplier, _) = key_of_code_1();
    check_code_1(&learn(&observe(Algorithm::MinCdc), around(multiplier, 1 << 18)));
    assert_eq!(learn(&observe(Algorithm::MinCdcAes), around(multiplier, 1 << 18)), []);
}

/// The whole attack: every odd multiplier. Run it optimised, for the processor at hand:
///
/// ```text
/// RUSTFLAGS=-Ctarget-cpu=native cargo test --release -p larder-chunking --test suite learned_key -- --ignored --nocapture
/// ```
#[test]
#[ignore = "takes a minute when optimised"]
fn whole_search_finds_code_1_and_nothing_of_code_5() {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u32;
    let search = |algorithm| -> Vec<Learned> {
        let observations = &observe(algorithm);
        std::thread::scope(|scope| {
            let share = |thread: u32| {
                scope.spawn(move || learn(observations, (thread * 2 + 1..=u32::MAX).step_by(threads as usize * 2)))
            };
            let running: Vec<_> = (0..threads).map(share).collect();
            running.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
        })
    };
    let learned = search(Algorithm::MinCdc);
    println!("code 1: {learned:x?}; true key {:x?}", key_of_code_1());
    check_code_1(&learned);
    let learned = search(Algorithm::MinCdcAes);
    println!("code 5: {learned:x?}");
    assert_eq!(learned, []);
}
