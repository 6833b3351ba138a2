//! Two generations of data, made in memory.

/// Share of the first generation that repeats earlier parts of it, in thousandths.
const INTERNAL: u64 = 325;
/// Share of the second generation that is not in the first, in thousandths.
const CHANGED: u64 = 24;

/// Random numbers from a seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// New data that zstd makes about 2.5 times smaller.
    fn fresh(&mut self, length: usize, out: &mut Vec<u8>) {
        let (begin, end) = (out.len(), out.len() + length);
        while out.len() < end {
            let known = (out.len() - begin) as u64;
            let take = 24.min(end - out.len());
            if known > 64 && self.below(2) == 0 {
                let from = out.len() - 24 - self.below(known.min(4000) - 24) as usize;
                out.extend_from_within(from..from + take);
            } else {
                let words = [self.next(), self.next(), self.next()];
                let letters = words.iter().flat_map(|word| word.to_le_bytes()).map(|byte| b'0' + byte % 48);
                out.extend(letters.take(take));
            }
        }
    }
}

/// A volume's first generation.
pub(crate) fn first(random: &mut Random, length: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(length);
    while out.len() < length {
        let run = ((64 << 10) + random.below(192 << 10) as usize).min(length - out.len());
        if out.len() > 1 << 20 && random.below(1000) < INTERNAL {
            let from = random.below((out.len() - run) as u64) as usize;
            out.extend_from_within(from..from + run);
        } else {
            random.fresh(run, &mut out);
        }
    }
    out
}

/// The generation after it: parts are replaced, inserted and deleted.
pub(crate) fn second(random: &mut Random, first: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(first.len());
    let mut at = 0;
    while at < first.len() && out.len() < first.len() {
        let change = 4096 + random.below(24 << 10) as usize;
        let keep = change * (1000 - CHANGED) as usize / CHANGED as usize;
        let keep = (keep / 2 + random.below(keep as u64) as usize).min(first.len() - at).min(first.len() - out.len());
        out.extend_from_slice(&first[at..at + keep]);
        at += keep;
        let room = change.min(first.len() - out.len());
        match random.below(4) {
            0 => at += change,
            1 => random.fresh(room, &mut out),
            _ => {
                random.fresh(room, &mut out);
                at += room;
            }
        }
    }
    let rest = first.len() - out.len();
    random.fresh(rest, &mut out);
    out
}
