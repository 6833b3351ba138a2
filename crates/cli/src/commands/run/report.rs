//! The end of a run: one exit code, one summary.

use std::time::Duration;

use serde_json::{Value, json};

use super::runner::{Runner, StepEnd, shown};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Align, Table};
use crate::time;

/// Codes, the most serious first.
const SERIOUS_FIRST: [Exit; 13] = [
    Exit::Interrupted,
    Exit::OutputClosed,
    Exit::Damage,
    Exit::WrongKey,
    Exit::Usage,
    Exit::NoRepository,
    Exit::Unreachable,
    Exit::Full,
    Exit::Refused,
    Exit::Busy,
    Exit::Failed,
    Exit::Partly,
    Exit::Done,
];

/// The most serious code.
fn combined(codes: impl Iterator<Item = Exit>) -> Exit {
    let rank = |exit: &Exit| SERIOUS_FIRST.iter().position(|known| known == exit).unwrap_or(0);
    codes.min_by_key(rank).unwrap_or(Exit::Done)
}

impl Runner<'_> {
    /// The exit code of the steps from one on.
    pub(super) fn exit_of(&self, first: usize) -> Exit {
        let stopped = self.is_stopped().then_some(Exit::Interrupted);
        combined(self.ends[first..].iter().map(|end| end.exit).chain(stopped))
    }

    /// Reports all steps.
    pub(super) fn report(&self, elapsed: Duration) -> Result<Exit, Failure> {
        let exit = self.exit_of(0);
        if self.app.out.is_json() {
            self.app.out.json(&self.json(0, elapsed, exit))?;
            return Ok(exit);
        }
        if self.ends.len() > 1 && !self.app.out.is_quiet() {
            self.app.out.line("")?;
            let columns = [
                ("Profile", Align::Left),
                ("Repository", Align::Left),
                ("Step", Align::Left),
                ("Result", Align::Cut),
                ("Time", Align::Right),
            ];
            let mut table = Table::new(&columns);
            for end in &self.ends {
                table.row(vec![
                    end.profile.clone().unwrap_or_default(),
                    end.repository.clone().unwrap_or_default(),
                    shown(end.command, end.from.as_deref()),
                    words(end.exit),
                    time::show_duration(Duration::try_from_secs_f64(end.seconds).unwrap_or_default()),
                ]);
            }
            self.app.out.table(table)?;
        }
        Ok(exit)
    }

    /// The summary of the steps from one on.
    pub(super) fn json(&self, first: usize, elapsed: Duration, exit: Exit) -> Value {
        let steps: Vec<_> = self.ends[first..].iter().map(StepEnd::json).collect();
        json!({
            "message_type": "run_summary",
            "exit_code": exit.code(),
            "dry_run": self.dry_run,
            "steps": steps,
            "total_duration": elapsed.as_secs_f64(),
        })
    }
}

/// A code in few words.
pub(in crate::commands) fn words(exit: Exit) -> String {
    match exit {
        Exit::Done => "done".to_owned(),
        Exit::Partly => "done, with errors (3)".to_owned(),
        exit => {
            let meaning =
                crate::exit::TABLE.iter().find(|(known, _)| *known == exit).map_or("failed", |(_, text)| text);
            format!("{meaning} ({})", exit.code())
        }
    }
}

impl StepEnd {
    fn json(&self) -> Value {
        json!({
            "profile": self.profile,
            "repository": self.repository,
            "command": self.command,
            "from_repository": self.from,
            "exit_code": self.exit.code(),
            "seconds": self.seconds,
            "start": time::rfc3339(self.start_ms),
            "snapshot_id": self.snapshot_id,
            "error": self.error,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_serious_code_counts() {
        assert_eq!(combined([].into_iter()), Exit::Done);
        assert_eq!(combined([Exit::Done, Exit::Partly].into_iter()), Exit::Partly);
        assert_eq!(combined([Exit::Unreachable, Exit::Damage, Exit::Failed].into_iter()), Exit::Damage);
        assert_eq!(combined([Exit::Damage, Exit::Interrupted].into_iter()), Exit::Interrupted);
        for (exit, _) in crate::exit::TABLE {
            assert!(SERIOUS_FIRST.contains(&exit), "{exit:?}");
        }
    }
}
