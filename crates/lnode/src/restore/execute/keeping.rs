//! Which containers a window keeps for the next one.

use std::ops::Range;

use larder_format::ids::ContainerId;
use larder_reader::read_plan;

use super::Execution;
use crate::restore::fetching::FetchTask;
use crate::restore::file_task::Run;
use crate::restore::handing::Kept;
use crate::restore::plan::Window;

impl Execution<'_> {
    /// Chooses the containers that the window keeps. `before`: those of the window before, which it
    /// need not read if it uses them. Others are read whole if the rest of the version pays for it.
    pub(super) fn keep(
        &self,
        window: &Window,
        spans: &[Range<usize>],
        tasks: &mut [FetchTask],
        last_used: &[ContainerId],
        before: &Kept,
    ) -> Kept {
        let mut kept = before.following();
        let mut room = self.fetcher.room_for_kept();
        // What is in memory stays there first.
        let (handed, others): (Vec<_>, Vec<_>) = last_used.iter().partition(|id| before.has(id));
        for id in handed.into_iter().chain(others) {
            let Some(number) = window.number(id).map(|number| number as usize) else { continue };
            let (task, runs) = (&mut tasks[number], &window.runs[spans[number].clone()]);
            let used = kept.note_used(*id, distinct(runs));
            let Some(rest) = self.sizes.rest(id, used) else { continue };
            let whole = self.whole(id);
            let units = self.fetcher.units(whole.bytes);
            if before.has(id) {
                // All of it is handed on, and takes the memory of that.
                *task = whole.clone();
            }
            let is_whole = match &task.ranges {
                None => true,
                Some(ranges) => {
                    let measure = self.sizes.measure(id);
                    window.goes_on && read_plan::choose_with_rest(ranges.clone(), measure, rest).ranges.is_none()
                }
            };
            if rest == 0 || units > room || !is_whole {
                continue;
            }
            room -= units;
            *task = whole;
            kept.keep(*id);
        }
        if self.estimates {
            kept.note_others(tasks);
        }
        kept
    }

    fn whole(&self, id: &ContainerId) -> FetchTask {
        let bytes = self.sizes.measure(id).object_bytes();
        FetchTask { id: *id, ranges: None, bytes, pieces: self.fetcher.pieces(bytes) }
    }
}

/// Bytes that runs use of their container. They are in the order of their places there.
fn distinct(runs: &[Run]) -> u64 {
    let (mut bytes, mut end) = (0, 0);
    for run in runs {
        let to = u64::from(run.offset) + u64::from(run.length);
        bytes += to.saturating_sub(end.max(u64::from(run.offset)));
        end = end.max(to);
    }
    bytes
}
