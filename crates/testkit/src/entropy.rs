//! Random bytes of tests: the same in every run, and others on request.
//!
//! Keys, salts and names of jobs come from here. A bound that holds for one key and not for another
//! is a defect of its test, so `LARDER_TEST_SEED` makes a whole run with other ones.

use std::collections::HashMap;
use std::sync::LazyLock;

use parking_lot::Mutex;

use crate::data::Rng;

/// How many sources each test has made: each must yield bytes of its own.
static MADE: LazyLock<Mutex<HashMap<String, u64>>> = LazyLock::new(Mutex::default);

/// A source of random bytes for the test that runs on this thread. Its bytes depend on the seed,
/// the name of the test, and how many sources the test has made before; not on other tests.
///
/// The seed is `LARDER_TEST_SEED`, or 0. The output of a failed test names it.
///
/// # Panics
/// If `LARDER_TEST_SEED` is no number.
pub fn entropy() -> impl Fn(&mut [u8]) + Send + Sync {
    let seed: u64 = match std::env::var("LARDER_TEST_SEED") {
        Ok(text) => text.parse().expect("LARDER_TEST_SEED is a number"),
        Err(_) => 0,
    };
    // The test runner names the thread after the test, and shows what a failed test printed.
    let test = std::thread::current().name().unwrap_or("unnamed").to_owned();
    #[expect(clippy::print_stdout, reason = "the output of a failed test")]
    {
        println!("LARDER_TEST_SEED={seed} repeats the random bytes of this test");
    }
    let number = {
        let mut made = MADE.lock();
        let number = made.entry(test.clone()).or_default();
        *number += 1;
        *number
    };
    let rng = Mutex::new(Rng::new(mixed(&test, seed, number)));
    move |bytes| rng.lock().fill(bytes)
}

/// One number of all three, so that no two sources of a run begin alike (FNV-1a).
fn mixed(test: &str, seed: u64, number: u64) -> u64 {
    let bytes = test.bytes().chain(seed.to_le_bytes()).chain(number.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_differ_and_depend_on_test_seed_and_number() {
        let draw = |source: &dyn Fn(&mut [u8])| {
            let mut bytes = [0; 32];
            source(&mut bytes);
            bytes
        };
        let first = entropy();
        let bytes = draw(&first);
        assert_ne!(bytes, draw(&first), "each draw is another");
        assert_ne!(bytes, draw(&entropy()), "each source is another");
        let all = [mixed("a", 0, 1), mixed("a", 0, 2), mixed("a", 1, 1), mixed("b", 0, 1)];
        assert!((1..4).all(|i| !all[..i].contains(&all[i])), "{all:?}");
    }
}
