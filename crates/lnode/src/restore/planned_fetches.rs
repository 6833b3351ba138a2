//! What a dry run with an estimate would fetch.

use super::RestoreError;
use super::execute::{Execution, spans};
use super::plan::Window;

impl Execution<'_> {
    /// Counts the fetches of a window. The tables of containers that are read in part tell which
    /// frames are needed, so these are read now, as a run does it.
    pub(super) fn count_fetches(&self, window: &Window) -> Result<(), RestoreError> {
        let spans = spans(window);
        for (_, id, ranges, _) in self.tasks(window, &spans, u32::MAX) {
            if self.context.cancel.is_cancelled() {
                return Err(RestoreError::Interrupted);
            }
            let (requests, bytes, is_about) = match ranges {
                None => (1, self.sizes.measure(&id).object_bytes(), !self.sizes.knows(&id)),
                Some(ranges) => {
                    let looked = self.context.repository.frames_to_read(id, &ranges);
                    match self.context.executor.block_on(looked) {
                        Ok((requests, bytes)) => (requests, bytes, false),
                        Err(error) => {
                            self.expect_damage(error)?;
                            (0, 0, true)
                        }
                    }
                }
            };
            let mut planned = self.counters.planned.lock();
            planned.requests += requests;
            planned.bytes += bytes;
            planned.is_about |= is_about;
        }
        Ok(())
    }
}
