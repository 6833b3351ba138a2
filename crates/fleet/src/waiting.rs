//! Waiting for what other processes do.

use std::time::Duration;

use larder_job::JobContext;
use larder_lnode::BackupError;

use crate::error::FleetError;

/// Waits, unless the process is to stop.
pub(crate) fn wait(context: &JobContext, time: Duration) -> Result<(), FleetError> {
    if context.cancel.is_cancelled() {
        return Err(BackupError::Interrupted.into());
    }
    // A timer needs the runtime when it is made.
    context.executor.block_on(async { tokio::time::sleep(time).await });
    Ok(())
}
