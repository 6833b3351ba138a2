//! Progress of copies: [`Done`] counts, [`Shown`] shows.

use super::below::Opened;
use crate::app::App;
use crate::failure::Failure;
use crate::output::{Meter, MeterKind};

/// Takes the progress of a copy. An error ends the copy.
pub(in crate::commands) type Tell<'a> = &'a mut dyn FnMut(&Done) -> Result<(), Failure>;

/// How much of a file was copied or passed over. Holes of the file do not count.
#[derive(Debug)]
pub(in crate::commands) struct Done {
    /// Bytes with data that are done.
    pub(super) bytes: u64,
    /// All bytes with data.
    pub(super) of: u64,
    /// The place in the file that was reached.
    position: u64,
    /// Stretches from about there on: end, and whether it is a hole.
    ahead: std::vec::IntoIter<(u64, bool)>,
    current: Option<(u64, bool)>,
}

impl Done {
    /// Nothing is done yet. Counts what there is.
    pub(super) fn new(file: &Opened) -> Self {
        let (mut of, mut at) = (0, 0);
        loop {
            let stretches = file.stretches(at);
            let Some(last) = stretches.last() else { break };
            at = last.offset + last.length;
            of += stretches.iter().filter(|part| !part.is_hole).map(|part| part.length).sum::<u64>();
        }
        Self { bytes: 0, of, position: 0, ahead: Vec::new().into_iter(), current: None }
    }

    /// Everything before a place is done.
    pub(super) fn reach(&mut self, file: &Opened, position: u64) {
        while self.position < position {
            let Some((end, is_hole)) = self.current.filter(|(end, _)| *end > self.position) else {
                if self.ahead.len() == 0 {
                    let stretches = file.stretches(self.position);
                    let ends = stretches.iter().map(|part| (part.offset + part.length, part.is_hole));
                    self.ahead = ends.collect::<Vec<_>>().into_iter();
                }
                self.current = self.ahead.next();
                if self.current.is_none() {
                    return;
                }
                continue;
            };
            let to = end.min(position);
            if !is_hole {
                self.bytes += to - self.position;
            }
            self.position = to;
        }
    }
}

/// Shows the progress of a copy.
pub(in crate::commands) struct Shown {
    meter: Meter,
    bytes: u64,
    is_known: bool,
}

impl Shown {
    /// Of the copy of something.
    pub(in crate::commands) fn start(app: &App, name: &str) -> Self {
        let meter = Meter::start(MeterKind::Copy, &app.out);
        meter.progress().current(name.as_bytes());
        Self { meter, bytes: 0, is_known: false }
    }

    /// This number of bytes is done, of this number.
    pub(in crate::commands) fn reach(&mut self, bytes: u64, of: u64) {
        let progress = self.meter.progress();
        if !self.is_known {
            progress.expect(0, of);
            progress.expectation_is_complete();
            self.is_known = true;
        }
        progress.done(0, bytes.saturating_sub(self.bytes));
        self.bytes = self.bytes.max(bytes);
    }
}
