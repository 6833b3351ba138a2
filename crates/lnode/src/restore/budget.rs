//! The division of a restore's memory: metadata (a quarter, `version`), the plan of a window,
//! containers between store and disk.

use super::file_task::{FileTask, Run};

/// Estimated bytes of an entry's path, attributes and owner.
const ENTRY_BYTES: usize = 200;
/// Least memory for containers: the largest one that a writer creates must fit.
const CONTAINERS_MIN: usize = 32 << 20;

/// The limit of each part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Budget {
    /// Runs after which a window is executed.
    pub(super) runs: usize,
    /// Files and links after which a window is executed.
    pub(super) files: usize,
    /// Bytes of containers being fetched or written.
    pub(super) containers: usize,
}

impl Budget {
    /// Divides `memory` bytes; containers may have their own budget.
    pub(super) fn of(memory: usize, containers: Option<usize>) -> Self {
        Self {
            // A window is executed while half of another one is planned. Both tables double when
            // they grow, so for a moment one and three quarters of it is in use.
            runs: (memory / 7 / size_of::<Run>()).max(1 << 12),
            files: (memory / 14 / (size_of::<FileTask>() + ENTRY_BYTES)).max(1 << 8),
            containers: containers.unwrap_or((memory / 12 * 5).max(CONTAINERS_MIN)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_fit_into_the_whole_unless_it_is_tiny() {
        for memory in [96 << 20, 1 << 30] {
            let budget = Budget::of(memory, None);
            let plan = budget.runs * size_of::<Run>() + budget.files * (size_of::<FileTask>() + ENTRY_BYTES);
            assert!(plan + budget.containers + memory / 4 <= memory);
        }
        assert!(Budget::of(0, None).containers >= CONTAINERS_MIN);
    }
}
