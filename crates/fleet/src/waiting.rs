//! Waiting for what other processes do.

use std::time::Duration;

use larder_job::JobContext;
use larder_lnode::BackupError;

use crate::error::FleetError;

/// Waits, unless the process is to stop.
pub(crate) fn wait(context: &JobContext, time: Duration) -> Result<(), FleetError> {
    expect_not_cancelled(context)?;
    // A timer needs the runtime when it is made.
    context.executor.block_on(async { tokio::time::sleep(time).await });
    Ok(())
}

/// Whether to go on.
pub(crate) fn expect_not_cancelled(context: &JobContext) -> Result<(), FleetError> {
    match context.cancel.is_cancelled() {
        true => Err(BackupError::Interrupted.into()),
        false => Ok(()),
    }
}
