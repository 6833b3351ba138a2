//! The only table of exit codes: the program, `--help`, the reference of the guide and the tests
//! read it. Errors have kinds; only this module maps a kind to its code.
//!
//! Scripts may rely on this: a code that is not in the table is a failure.

use larder_format::ErrorKind;

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

/// Every code with its meaning.
pub(crate) const TABLE: [(Exit, &str); 13] = [
    (Exit::Done, "done"),
    (Exit::Failed, "failed"),
    (Exit::Usage, "the command line is wrong"),
    (Exit::Partly, "completed with errors: some items could not be read, restored, forgotten, deleted or rewritten"),
    (Exit::NoRepository, "there is no repository at this place"),
    (Exit::Busy, "busy, or a pass aborted this run because it looked dead"),
    (Exit::WrongKey, "wrong password or key, or none was given"),
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

impl From<ErrorKind> for Exit {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Precondition | ErrorKind::Resource | ErrorKind::Bug => Self::Failed,
            ErrorKind::BadRequest => Self::Usage,
            ErrorKind::NoRepository => Self::NoRepository,
            ErrorKind::LostRace => Self::Busy,
            ErrorKind::BadKey => Self::WrongKey,
            ErrorKind::Damaged => Self::Damage,
            ErrorKind::DeleteDenied => Self::Refused,
            ErrorKind::Retry | ErrorKind::Unusable => Self::Unreachable,
            ErrorKind::Full => Self::Full,
            ErrorKind::Interrupted => Self::Interrupted,
        }
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
    fn every_kind_has_the_code_that_the_reference_documents() {
        let reference = include_str!("../../../docs/guide/reference.md");
        let documented = |code: i32| {
            let row = reference.lines().find_map(|line| line.strip_prefix(&format!("| {code} | ")));
            row.and_then(|row| row.strip_suffix(" |")).unwrap_or_default().to_owned()
        };
        for kind in ErrorKind::ALL {
            let meaning = match kind {
                ErrorKind::Precondition | ErrorKind::Resource | ErrorKind::Bug => "failed",
                ErrorKind::BadRequest => "the command line is wrong",
                ErrorKind::NoRepository => "there is no repository at this place",
                ErrorKind::LostRace => "busy, or a pass aborted this run because it looked dead",
                ErrorKind::BadKey => "wrong password or key, or none was given",
                ErrorKind::Damaged => "damage or a mismatch was found",
                ErrorKind::DeleteDenied => "the storage refuses to delete (append-only)",
                ErrorKind::Retry | ErrorKind::Unusable => "the storage or its credentials cannot be used",
                ErrorKind::Full => "no space left, or a quota or budget is used up",
                ErrorKind::Interrupted => "interrupted",
            };
            assert_eq!(documented(Exit::from(kind).code()), meaning, "{kind:?}");
        }
    }

    #[test]
    fn the_reference_has_the_same_table() {
        let reference = include_str!("../../../docs/guide/reference.md");
        for (exit, meaning) in TABLE {
            assert!(reference.contains(&format!("| {} | {meaning} |", exit.code())), "{} {meaning}", exit.code());
        }
    }
}
