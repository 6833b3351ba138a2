//! The file `measured`: how long the last runs of each command took, for estimates.

use minicbor::{Decode, Encode};

/// Runs to remember of each command.
const RUNS_MAX: usize = 8;
/// Commands to remember.
const COMMANDS_MAX: usize = 32;
/// Most bytes of the file.
pub(crate) const MEASURED_MAX: u64 = 64 << 10;

/// One run that ended well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct MeasuredRun {
    /// Milliseconds that it took.
    #[n(0)]
    pub took_ms: u64,
    /// Requests of all kinds that it sent.
    #[n(1)]
    pub requests: u64,
    /// Bytes that it fetched and sent.
    #[n(2)]
    pub bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
struct MeasuredCommand {
    #[n(0)]
    command: String,
    /// The last one first; never empty.
    #[n(1)]
    runs: Vec<MeasuredRun>,
}

/// See the module header.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Measured {
    #[n(0)]
    commands: Vec<MeasuredCommand>,
}

impl Measured {
    /// Adds a run.
    pub fn add(&mut self, command: &str, run: MeasuredRun) {
        if let Some(known) = self.commands.iter_mut().find(|known| known.command == command) {
            known.runs.insert(0, run);
            known.runs.truncate(RUNS_MAX);
        } else if self.commands.len() < COMMANDS_MAX {
            self.commands.push(MeasuredCommand { command: command.to_owned(), runs: vec![run] });
        }
    }

    /// The last runs of a command, the last one first.
    pub fn of(&self, command: &str) -> &[MeasuredRun] {
        self.commands.iter().find(|known| known.command == command).map_or(&[], |known| &known.runs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_runs_stay() {
        let mut measured = Measured::default();
        for took_ms in 0..20 {
            measured.add("restore", MeasuredRun { took_ms, requests: 1, bytes: 2 });
        }
        measured.add("check", MeasuredRun { took_ms: 7, requests: 1, bytes: 2 });
        let took: Vec<_> = measured.of("restore").iter().map(|run| run.took_ms).collect();
        assert_eq!(took, [19, 18, 17, 16, 15, 14, 13, 12]);
        assert_eq!((measured.of("check").len(), measured.of("copy")), (1, &[][..]));
        let run = measured.of("check")[0];
        (0..2 * COMMANDS_MAX).for_each(|at| measured.add(&at.to_string(), run));
        assert_eq!(measured.commands.len(), COMMANDS_MAX);
    }

    #[test]
    fn the_bytes_of_the_file() {
        let mut measured = Measured::default();
        measured.add("check", MeasuredRun { took_ms: 1500, requests: 7, bytes: 300 });
        let bytes = minicbor::to_vec(&measured).expect("memory takes all bytes");
        let golden = b"\xa1\x00\x81\xa2\x00\x65check\x01\x81\xa3\x00\x19\x05\xdc\x01\x07\x02\x19\x01\x2c";
        assert_eq!(bytes, golden);
        assert_eq!(minicbor::decode::<Measured>(golden).expect("readable"), measured);
    }
}
