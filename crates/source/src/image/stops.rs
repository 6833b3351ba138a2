//! Ends what an image waits for, from another thread.

use std::process::Child;
use std::sync::Arc;

use larder_nbd::client::Stopper;
use parking_lot::Mutex;

use super::ImageError;

/// Connections and programs to end when a backup is told to stop. Its clones are the same.
#[derive(Clone, Default)]
pub struct Stops(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    is_stopped: bool,
    stoppers: Vec<Stopper>,
    children: Vec<Arc<Mutex<Child>>>,
}

impl Stops {
    /// Ends the reads of all images, which fail then. Those that are opened later fail as well.
    pub fn stop(&self) {
        let mut state = self.0.lock();
        state.is_stopped = true;
        state.stoppers.iter().for_each(Stopper::stop);
        state.children.iter().for_each(kill);
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

    /// Ends a program too, and at once if it is too late.
    pub(super) fn add_child(&self, child: &Arc<Mutex<Child>>) {
        let mut state = self.0.lock();
        if state.is_stopped {
            kill(child);
        }
        state.children.push(child.clone());
    }

    /// Leaves a program alone from now on.
    pub(super) fn remove_child(&self, child: &Arc<Mutex<Child>>) {
        self.0.lock().children.retain(|other| !Arc::ptr_eq(other, child));
    }

    /// An error if [`Self::stop`] was called.
    pub(super) fn check(&self, what: &str) -> Result<(), ImageError> {
        match self.is_stopped() {
            true => Err(ImageError::Tool { program: what.to_owned(), why: "interrupted".to_owned() }),
            false => Ok(()),
        }
    }
}

fn kill(child: &Arc<Mutex<Child>>) {
    // If that fails, it has ended.
    let _ = child.lock().kill();
}
