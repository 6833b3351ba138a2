//! What a dry run with an estimate would fetch.

use larder_store::StoreErrorKind;

use super::RestoreError;
use super::execute::Execution;
use super::fetching::FetchTask;

impl Execution<'_> {
    /// Counts these fetches. The tables of containers that are read in part tell which
    /// frames are needed, so these are read now, as a run does it. Of the others the size is asked
    /// for: a pass may have moved everything out of them, and a run looks for it elsewhere.
    pub(super) fn count_fetches(&self, tasks: &[FetchTask]) -> Result<(), RestoreError> {
        for FetchTask { id, ranges, pieces, .. } in tasks.iter().cloned() {
            if self.context.cancel.is_cancelled() {
                return Err(RestoreError::Interrupted);
            }
            let (requests, bytes, is_about) = match ranges {
                None => {
                    let name = larder_format::names::container(id);
                    self.counters.planned.lock().looks += 1;
                    let asked = self.context.repository.store().size(&name);
                    match self.context.executor.block_on(asked) {
                        Ok(size) => (pieces, size, false),
                        Err(error) if error.kind == StoreErrorKind::NotFound => (1, 0, true),
                        Err(error) => {
                            self.expect_damage(error.into())?;
                            (0, 0, true)
                        }
                    }
                }
                Some(ranges) => {
                    let looked = self.context.repository.frames_to_read(id, &ranges);
                    match self.context.executor.block_on(looked) {
                        Ok((requests, bytes)) => (requests, bytes, false),
                        Err(error) if error.is_cold() => (0, 0, true),
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
