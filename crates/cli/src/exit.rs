//! The one table of exit codes: the code, `--help`, the reference of the guide and the tests all read it from here.
//!
//! Scripts are told: a code that is not in the table is a failure.

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    Done = 0,
    Failed = 1,
    Usage = 2,
    Partly = 3,
    NoRepository = 10,
    Busy = 11,
    WrongKey = 12,
    Damage = 13,
    Refused = 14,
    Unreachable = 15,
    Full = 16,
    Interrupted = 130,
    OutputClosed = 141,
}

/// Every code and what it means.
pub(crate) const TABLE: [(Exit, &str); 13] = [
    (Exit::Done, "done"),
    (Exit::Failed, "failed"),
    (Exit::Usage, "the command line is wrong"),
    (Exit::Partly, "completed with errors: some items could not be read, restored, forgotten, deleted or rewritten"),
    (Exit::NoRepository, "there is no repository at this place"),
    (Exit::Busy, "busy, or aborted by a pass that took this run for dead"),
    (Exit::WrongKey, "wrong password or key, or none to be had"),
    (Exit::Damage, "damage or a mismatch was found"),
    (Exit::Refused, "the storage refuses to delete (append-only)"),
    (Exit::Unreachable, "the storage or its credentials cannot be used"),
    (Exit::Full, "no space left, or a quota or budget is used up"),
    (Exit::Interrupted, "interrupted"),
    (Exit::OutputClosed, "the reader of the output went away"),
];

impl Exit {
    /// The number the process ends with.
    pub(crate) fn code(self) -> i32 {
        i32::from(self as u8)
    }
}

/// The table as `--help` and the manual pages show it.
pub(crate) fn help() -> String {
    let mut text = String::from("Exit codes:\n");
    for (exit, meaning) in TABLE {
        text.push_str(&format!("  {:>3}  {meaning}\n", exit.code()));
    }
    text.push_str("Any other code is a failure.");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_rise_and_are_those_that_scripts_know() {
        let codes: Vec<_> = TABLE.iter().map(|(exit, _)| exit.code()).collect();
        assert_eq!(codes, [0, 1, 2, 3, 10, 11, 12, 13, 14, 15, 16, 130, 141]);
    }

    #[test]
    fn the_reference_has_the_same_table() {
        let reference = include_str!("../../../docs/guide/reference.md");
        for (exit, meaning) in TABLE {
            assert!(reference.contains(&format!("| {} | {meaning} |", exit.code())), "{} {meaning}", exit.code());
        }
    }
}
