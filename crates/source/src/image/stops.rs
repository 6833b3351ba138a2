//! Ends what an image waits for, from another thread.

use std::sync::Arc;

use larder_nbd::client::Stopper;
use parking_lot::Mutex;

use super::ImageError;

/// Connections to end when a backup is told to stop. Its clones are the same.
#[derive(Clone, Default)]
pub struct Stops(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    is_stopped: bool,
    stoppers: Vec<Stopper>,
}

impl Stops {
    /// Ends the reads of all images, which fail then. Those that are opened later fail as well.
    pub fn stop(&self) {
        let mut state = self.0.lock();
        state.is_stopped = true;
        state.stoppers.iter().for_each(Stopper::stop);
    }

    /// Whether [`Self::stop`] was called.
    pub fn is_stopped(&self) -> bool {
        self.0.lock().is_stopped
    }

    /// Ends a connection too, and at once if it is too late.
    pub(super) fn add(&self, stopper: Stopper) {
        let mut state = self.0.lock();
        if state.is_stopped {
            stopper.stop();
        }
        state.stoppers.push(stopper);
    }

    /// An error if [`Self::stop`] was called.
    pub(super) fn check(&self, what: &str) -> Result<(), ImageError> {
        match self.is_stopped() {
            true => Err(ImageError::Tool { program: what.to_owned(), why: "interrupted".to_owned() }),
            false => Ok(()),
        }
    }
}
