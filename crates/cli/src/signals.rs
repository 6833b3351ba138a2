//! Ctrl-C and `kill`. While a job runs, the first signal asks it to stop at a good place, the
//! second ends the process at once. Without a job the first one ends the process. Either way the
//! exit code is the one for interrupted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use larder_job::Cancel;
use parking_lot::Mutex;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::exit::Exit;
use crate::output::Output;

/// The settings of the terminal before a password prompt without echo.
static TERMINAL: Mutex<Option<Termios>> = Mutex::new(None);

/// The effect of signals.
#[derive(Clone, Default)]
pub(crate) struct Interrupts {
    cancel: Cancel,
    job_runs: Arc<AtomicBool>,
    on_cancel: Arc<Mutex<Vec<OnCancel>>>,
}

/// Further actions when a job is asked to stop.
type OnCancel = Box<dyn Fn() + Send>;

impl Interrupts {
    /// Starts to listen.
    pub(crate) fn listen(out: &Output) -> Self {
        let interrupts = Self::default();
        let listener = interrupts.clone();
        let out = out.clone();
        // Without this thread signals end the process by default, which is safe at any moment.
        if let Ok(mut signals) = Signals::new([SIGINT, SIGTERM, SIGHUP]) {
            let listen = move || {
                for _ in signals.forever() {
                    listener.signalled(&out);
                }
            };
            drop(std::thread::Builder::new().name("signals".to_owned()).spawn(listen));
        }
        interrupts
    }

    /// A job begins: from now on a signal asks it to stop first.
    pub(crate) fn job_begins(&self) -> Cancel {
        self.job_runs.store(true, Ordering::SeqCst);
        self.cancel.clone()
    }

    /// Whether the job was asked to stop.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// Adds an action for when the job is asked to stop.
    pub(crate) fn on_cancel(&self, what: impl Fn() + Send + 'static) {
        self.on_cancel.lock().push(Box::new(what));
    }

    fn signalled(&self, out: &Output) {
        if !self.job_runs.load(Ordering::SeqCst) || self.cancel.is_cancelled() {
            restore_terminal();
            std::process::exit(Exit::Interrupted.code());
        }
        self.cancel.cancel();
        for what in &*self.on_cancel.lock() {
            what();
        }
        out.warn(if out.stderr_is_terminal() {
            "stopping; press Ctrl-C again to stop at once"
        } else {
            "stopping; a second signal ends the program at once"
        });
    }
}

/// Remembers the terminal's settings until the value is dropped, in case the process ends in
/// between.
pub(crate) fn keep_terminal() -> KeptTerminal {
    *TERMINAL.lock() = tcgetattr(std::io::stdin()).ok();
    KeptTerminal
}

/// See [`keep_terminal`].
#[derive(Debug)]
pub(crate) struct KeptTerminal;

impl Drop for KeptTerminal {
    fn drop(&mut self) {
        *TERMINAL.lock() = None;
    }
}

fn restore_terminal() {
    if let Some(settings) = TERMINAL.lock().take() {
        // The process ends now, so errors cannot be reported.
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &settings);
    }
}
