//! Each target of the fuzzer is given its seeds, whole and damaged.

use std::collections::BTreeSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use larder_fuzz_targets::TARGETS;
use larder_testkit::data::Rng;

/// Damaged variants of each seed.
const VARIANTS: u64 = 400;

/// What each program has, below its description.
const PROGRAM: &str = r#"

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| larder_fuzz_targets::run(env!("CARGO_BIN_NAME"), bytes));
"#;

fn fuzz() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

/// Names of what is in a folder of `fuzz/`, without extensions.
fn names(folder: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(fuzz().join(folder)).expect("a folder");
    entries
        .map(|entry| entry.expect("an entry").path().file_stem().expect("a name").to_string_lossy().into_owned())
        .collect()
}

fn seeds(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = fs::read_dir(fuzz().join("seeds").join(target)).expect("seeds");
    let mut found: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    found.sort();
    found.into_iter().map(|path| (path.clone(), fs::read(path).expect("a seed"))).collect()
}

/// A few changes of `bytes`, as a fuzzer makes them: bits, bytes and lengths change, parts go, come twice or come from another seed.
fn damaged(bytes: &[u8], other: &[u8], random: &mut Rng) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..random.below(3) + 1 {
        let at = random.below(bytes.len() as u64 + 1) as usize;
        let len = (random.below(16) as usize).min(bytes.len() - at);
        match random.below(7) {
            0 if len > 0 => bytes[at] ^= 1 << random.below(8),
            1 if len > 0 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5) as usize],
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(at..at + len)),
            4 => {
                let part = bytes[at..at + len].to_vec();
                drop(bytes.splice(at..at, part));
            }
            5 => bytes.insert(at, random.below(256) as u8),
            _ => {
                let from = random.below(other.len() as u64 + 1) as usize;
                let until = (from + random.below(64) as usize).min(other.len());
                drop(bytes.splice(at..at + len, other[from..until].iter().copied()));
            }
        }
    }
    bytes
}

/// Runs a target. The input that breaks it is shown in hexadecimal: it becomes a test.
fn run(name: &str, target: fn(&[u8]), input: &[u8], of: &str) {
    if catch_unwind(AssertUnwindSafe(|| target(input))).is_err() {
        let hex: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
        panic!("the target {name} fails with {of}: {hex}");
    }
}

#[test]
fn each_target_has_a_program_and_seeds() {
    let known: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(known, names("fuzz_targets"));
    assert_eq!(known, names("seeds"));
    // The gate does not compile the programs.
    let manifest = fs::read_to_string(fuzz().join("Cargo.toml")).expect("a manifest");
    for name in &known {
        let program = fs::read_to_string(fuzz().join(format!("fuzz_targets/{name}.rs"))).expect("a program");
        assert!(program.starts_with("//! ") && program.ends_with(PROGRAM), "{name}");
        let bin = format!("[[bin]]\nname = \"{name}\"\npath = \"fuzz_targets/{name}.rs\"\n");
        assert!(manifest.contains(&bin), "{name}");
    }
}

#[test]
fn seeds_and_damaged_seeds_break_no_promise() {
    for (number, (name, target)) in TARGETS.iter().enumerate() {
        let seeds = seeds(name);
        assert!(!seeds.is_empty(), "{name}");
        run(name, *target, &[], "nothing");
        for (index, (path, seed)) in seeds.iter().enumerate() {
            run(name, *target, seed, &path.display().to_string());
            let mut random = Rng::new((number as u64) << 32 | index as u64);
            for _ in 0..VARIANTS {
                let other = &seeds[random.below(seeds.len() as u64) as usize].1;
                run(name, *target, &damaged(seed, other, &mut random), "damaged input");
            }
        }
    }
}
