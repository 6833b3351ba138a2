//! Objects of runs of the index: as they lie in the store, and sealed from fuzzed blocks, filter, fences and trailer fields.

#![no_main]

use larder_fuzz::{RunParts, checks, split};
use libfuzzer_sys::fuzz_target;

fn parts(input: &[u8]) -> Option<RunParts> {
    let (head, rest) = input.split_first_chunk::<24>()?;
    let (lies, rest) = rest.split_first()?;
    let (filter, rest) = split(rest);
    let (fences, mut rest) = split(rest);
    let mut blocks = Vec::new();
    while !rest.is_empty() {
        let (block, behind) = split(rest);
        blocks.push(block.to_vec());
        // A single byte is a part of its own, and the last.
        rest = if behind.len() < rest.len() { behind } else { &[] };
    }
    Some(RunParts {
        blocks,
        filter: filter.to_vec(),
        fences: fences.to_vec(),
        head: *head,
        // Now and then a length that is not the part's.
        lens: [(lies & 0x0f == 1).then_some(u32::MAX), (lies >> 4 == 1).then_some(1 << 20)],
    })
}

fuzz_target!(|bytes: &[u8]| {
    checks::run(bytes);
    if let Some(parts) = parts(bytes) {
        checks::run_parts(&parts);
    }
});
