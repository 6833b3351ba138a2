//! The memory of a batch: how much each part may take, and how much the process took.

/// The least that a sort gets: some hundred records.
const SORTED_MIN: usize = 8 << 10;

/// Bytes of an output at which the next one begins.
const OUTPUT_MAX: u64 = 4 << 20;
/// The least: a smaller one is a request for little.
const OUTPUT_MIN: u64 = 512 << 10;
/// The least that is read of an output at once.
const PIECE_MIN: u64 = 64 << 10;

/// The least of each of several outputs that are merged: a block.
const MERGED_MIN: u64 = 32 << 10;
/// A block that is opened, and the index of an object with as many blocks as an output has.
const OPENED: u64 = 32 << 10;
const INDEX: u64 = 8 << 10;
/// Outputs that are merged at once, however little memory there is.
const MERGED_LEAST: u64 = 16;

/// How the memory of a batch is divided. All are bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Budget {
    /// For sorting the questions of a host, while its images are scanned.
    pub(crate) requests: usize,
    /// For each of the two kinds of records that a partition sorts.
    pub(crate) partition: usize,
    /// For the lookups of a partition in the index.
    pub(crate) lookup: usize,
    /// For sorting the places of a host.
    pub(crate) placements: usize,
    /// For tables of containers that an image looks into, and for sorting what it looks for.
    pub(crate) tables: usize,
    /// For finding segments that images of a host have in common.
    pub(crate) recipes: usize,
    /// For an output that is written.
    pub(crate) output: u64,
    /// For what is read at once of one output of another process.
    pub(crate) piece: u64,
    /// The same for all of those that are merged.
    pub(crate) merged: u64,
}

impl Budget {
    /// For what is read at once of each of these outputs, if they are merged at once.
    pub(crate) fn piece_of(&self, sources: usize) -> u64 {
        let each = self.merged / sources.max(1) as u64;
        each.saturating_sub(OPENED + INDEX).clamp(MERGED_MIN, self.piece)
    }

    /// What an output takes while it is read, of which so much is read at once. `unpacked`: the
    /// bytes of its records.
    pub(crate) fn reading(object_bytes: u64, unpacked: u64, at_once: u64) -> u64 {
        object_bytes.min(at_once) + unpacked.min(OPENED) + INDEX
    }

    /// What all outputs may take that are merged at once.
    pub(crate) fn merged_at_once(&self) -> u64 {
        self.merged.max(MERGED_LEAST * (MERGED_MIN + OPENED + INDEX))
    }

    /// Divides the memory of a batch among the parts of one stage. The containers on their way to
    /// the store and the blocks of a scan come on top: they are those of a backup.
    pub(crate) fn of(memory: usize, hosts: usize) -> Self {
        let of_host = (memory / 2 / hosts.max(1)).max(SORTED_MIN);
        Self {
            requests: of_host,
            partition: (memory / 4).max(SORTED_MIN),
            lookup: memory / 2,
            placements: of_host,
            tables: memory / 4,
            recipes: memory / 4 / hosts.max(1),
            output: (memory as u64 / 2).clamp(OUTPUT_MIN, OUTPUT_MAX),
            piece: (memory as u64 / 16).clamp(PIECE_MIN, OUTPUT_MAX),
            merged: memory as u64 / 4,
        }
    }
}

/// The most memory that this process had so far, in bytes; 0 if the system does not say.
pub fn high_water() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_that_are_merged_fit_the_memory() {
        for (memory, hosts, fits) in [
            (64 << 20, 4, true),
            (64 << 20, 200, true),
            (8 << 20, 28, true),
            (8 << 20, 30, false),
            (1, 16, true),
            (1, 17, false),
        ] {
            let budget = Budget::of(memory, 1);
            let piece = budget.piece_of(hosts);
            assert!(piece >= MERGED_MIN && piece <= budget.piece);
            let all = Budget::reading(OUTPUT_MAX, OUTPUT_MAX, piece) * hosts as u64;
            assert_eq!(all <= budget.merged_at_once(), fits, "{memory}, {hosts}: {piece}");
        }
    }

    #[test]
    fn parts_of_one_stage_fit_the_memory() {
        for hosts in [1, 3, 16] {
            let budget = Budget::of(64 << 20, hosts);
            assert!(budget.requests * hosts <= 32 << 20, "{hosts}");
            assert!(budget.partition * 2 + budget.lookup <= 64 << 20, "{hosts}");
        }
        assert!(high_water() > 1 << 20);
    }
}
