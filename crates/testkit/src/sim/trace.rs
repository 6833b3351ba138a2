//! The events of a run, for people and to compare two runs.

use std::fmt;

/// Everything that happened, one line an event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    lines: Vec<String>,
    hash: u64,
}

impl Trace {
    pub(super) fn push(&mut self, line: String) {
        // FNV-1a over the previous hash and the line: order counts.
        let mut hash = self.hash ^ 0xcbf2_9ce4_8422_2325;
        for byte in line.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self.hash = hash;
        self.lines.push(line);
    }

    /// A number that two runs share if the same happened in both.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The events.
    pub fn lines(&self) -> &[String] {
        &self.lines
    }
}

/// The last events: the cause of a failure is rarely further back.
impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 3000;
        let from = self.lines.len().saturating_sub(SHOWN);
        self.lines[from..].iter().enumerate().try_for_each(|(n, line)| writeln!(f, "{:>6} {line}", from + n))
    }
}
