//! The memory of a batch: how much each part may take, and how much the process took.

/// The least that a sort gets: some hundred records.
const SORTED_MIN: usize = 8 << 10;

/// Bytes of an output at which the next one begins.
const OUTPUT_MAX: u64 = 4 << 20;
/// The least: a smaller one is a request for little.
const OUTPUT_MIN: u64 = 512 << 10;
/// The least that is read of an output at once.
const PIECE_MIN: u64 = 64 << 10;

/// The least of each of several outputs that are merged: a block. Beyond this, memory grows with
/// the hosts.
const MERGED_MIN: u64 = 16 << 10;

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
    /// For tables of containers that an image looks into.
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
    /// For what is read at once of each of these outputs, which are merged. With each of them comes
    /// the index of an object, some kilobytes.
    pub(crate) fn piece_of(&self, sources: usize) -> u64 {
        (self.merged / sources.max(1) as u64).clamp(MERGED_MIN, self.piece)
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
        for (memory, hosts) in [(64 << 20, 4), (64 << 20, 64), (8 << 20, 64), (8 << 20, 128)] {
            let budget = Budget::of(memory, 1);
            let piece = budget.piece_of(hosts);
            assert!(piece * hosts as u64 <= memory as u64 / 4, "{memory}, {hosts}: {piece}");
            assert!(piece >= MERGED_MIN && piece <= budget.piece);
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
