//! All output for users and programs, through one [`Output`].
//!
//! Results go to standard output, errors and progress to standard error. With `--json` both are
//! lines of JSON. Progress on a terminal's last line is removed while another line is written.

pub(crate) mod entries;
mod estimate;
mod json_line;
mod progress;
mod sorted_lines;
pub(crate) mod summary;
mod table;

use std::io::{self, BufWriter, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use indicatif::ProgressBar;
use larder_format::manifest::Summary;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::restic;

pub(crate) use estimate::{Estimate, SOURCE};
pub(crate) use json_line::json_line;
pub(crate) use progress::{Meter, MeterKind};
pub(crate) use sorted_lines::SortedLines;
pub(crate) use table::{Align, Table, cut};

pub(crate) use crate::text::{absolute, safe};

/// Width of a terminal that does not tell it.
const WIDTH_DEFAULT: usize = 80;

/// The output of a command. Clones write to the same place.
#[derive(Clone)]
pub(crate) struct Output(Arc<Inner>, Option<Arc<StepOutput>>);

/// The output of a step of `larder run`.
struct StepOutput {
    /// Keys of all its JSON.
    labels: Map<String, Value>,
    /// The last summary.
    summary: Mutex<Option<Value>>,
}

struct Inner {
    is_json: bool,
    is_quiet: bool,
    verbose: u8,
    stdout: Mutex<BufWriter<io::Stdout>>,
    /// Lines and flushes of standard output do nothing any more.
    is_ended: AtomicBool,
    stdout_is_terminal: bool,
    stderr_is_terminal: bool,
    bar: Mutex<Option<ProgressBar>>,
}

impl std::fmt::Debug for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Output").field("is_json", &self.0.is_json).finish_non_exhaustive()
    }
}

impl Output {
    /// Writes as the options say.
    pub(crate) fn new(is_json: bool, is_quiet: bool, verbose: u8) -> Self {
        let inner = Inner {
            is_json,
            is_quiet,
            verbose,
            stdout: Mutex::new(BufWriter::with_capacity(64 << 10, io::stdout())),
            is_ended: AtomicBool::new(false),
            stdout_is_terminal: io::stdout().is_terminal(),
            stderr_is_terminal: io::stderr().is_terminal(),
            bar: Mutex::new(None),
        };
        Self(Arc::new(inner), None)
    }

    /// The same output for a step of a run: its JSON has these keys too, and its summary is kept.
    pub(crate) fn of_step(&self, labels: Map<String, Value>) -> Self {
        Self(self.0.clone(), Some(Arc::new(StepOutput { labels, summary: Mutex::new(None) })))
    }

    /// The summary of the step.
    pub(crate) fn take_summary(&self) -> Option<Value> {
        self.1.as_ref()?.summary.lock().take()
    }

    /// Keeps a summary that is not printed as JSON, if this is a step of a run.
    pub(crate) fn keep_summary(&self, summary: impl FnOnce() -> Value) {
        if let Some(step) = &self.1 {
            *step.summary.lock() = Some(summary());
        }
    }

    /// A value as a line of JSON, with the keys of the step.
    pub(crate) fn labelled(&self, value: &impl Serialize) -> String {
        let Some(step) = &self.1 else {
            return match serde_json::to_value(value) {
                Ok(value) if restic::is_on() => json_line(&restic::mapped(value)),
                _ => json_line(value),
            };
        };
        let mut object = match serde_json::to_value(value) {
            Ok(Value::Object(object)) => object,
            Ok(value) => Map::from_iter([("message_type".to_owned(), json!("result")), ("result".to_owned(), value)]),
            Err(_) => return json_line(value),
        };
        if object.get("message_type").is_some_and(|kind| kind == "summary") {
            *step.summary.lock() = Some(Value::Object(object.clone()));
        }
        for (key, value) in &step.labels {
            object.entry(key.clone()).or_insert_with(|| value.clone());
        }
        json_line(&object)
    }

    /// Whether the reader is a program.
    pub(crate) fn is_json(&self) -> bool {
        self.0.is_json
    }

    /// Whether only errors and results are wanted.
    pub(crate) fn is_quiet(&self) -> bool {
        self.0.is_quiet
    }

    /// How often `-v` was given.
    pub(crate) fn verbose(&self) -> u8 {
        self.0.verbose
    }

    /// Whether standard error is a terminal.
    pub(crate) fn stderr_is_terminal(&self) -> bool {
        self.0.stderr_is_terminal
    }

    /// Whether standard output is a terminal.
    pub(crate) fn stdout_is_terminal(&self) -> bool {
        self.0.stdout_is_terminal
    }

    /// Characters that a line of a table may have: the width of the terminal, else `COLUMNS`. A
    /// pipe has no limit.
    pub(crate) fn width(&self) -> Option<usize> {
        let of_terminal = || rustix::termios::tcgetwinsize(io::stdout()).ok().map(|size| usize::from(size.ws_col));
        let terminal = self.0.stdout_is_terminal.then(of_terminal).flatten();
        width_of(self.0.stdout_is_terminal, terminal, std::env::var("COLUMNS").ok().as_deref())
    }

    /// A table, for users.
    pub(crate) fn table(&self, table: Table) -> Result<(), Failure> {
        table.lines(self.width()).iter().try_for_each(|line| self.line(line))
    }

    /// A line of the result.
    pub(crate) fn line(&self, text: impl AsRef<str>) -> Result<(), Failure> {
        if self.0.is_ended.load(Ordering::Relaxed) {
            return Ok(());
        }
        let text = text.as_ref();
        self.beside_bar(|| {
            let mut stdout = self.0.stdout.lock();
            stdout.write_all(text.as_bytes())?;
            stdout.write_all(b"\n")?;
            if self.0.stdout_is_terminal { stdout.flush() } else { Ok(()) }
        })
        .map_err(output_failed)
    }

    /// An informative line for users; not for programs, not when quiet.
    pub(crate) fn info(&self, text: impl AsRef<str>) -> Result<(), Failure> {
        if self.0.is_json || self.0.is_quiet { Ok(()) } else { self.line(text) }
    }

    /// A value as one line of JSON.
    pub(crate) fn json(&self, value: &impl Serialize) -> Result<(), Failure> {
        self.line(self.labelled(value))
    }

    /// A value as one line of JSON that a program waits for.
    pub(crate) fn json_now(&self, value: &impl Serialize) -> Result<(), Failure> {
        self.json(value)?;
        self.flush()
    }

    /// Text without an added line end.
    pub(crate) fn raw(&self, text: &str) -> Result<(), Failure> {
        self.0.stdout.lock().write_all(text.as_bytes()).map_err(output_failed)
    }

    /// Hands out standard output for bytes. Nothing else may write to it meanwhile.
    pub(crate) fn bytes(&self) -> StdoutBytes<'_> {
        StdoutBytes { stdout: self.0.stdout.lock() }
    }

    /// Flushes the buffer.
    pub(crate) fn flush(&self) -> Result<(), Failure> {
        if self.0.is_ended.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.0.stdout.lock().flush().map_err(output_failed)
    }

    /// After a result that may be lost: if it was not written, no later line is, and the command
    /// continues. A reader that went away is no reason to warn.
    pub(crate) fn end_if_failed(&self, written: Result<(), Failure>) {
        let Err(failure) = written else { return };
        self.0.is_ended.store(true, Ordering::Relaxed);
        if failure.exit != Exit::OutputClosed {
            self.warn(&failure.message);
        }
    }

    /// A warning on standard error, also when quiet: the command continues.
    pub(crate) fn warn(&self, text: &str) {
        if self.0.is_json {
            self.error_line(&self.labelled(&json!({"message_type": "warning", "message": text})));
        } else {
            self.error_line(&format!("warning: {text}"));
        }
    }

    /// A note on standard error, also for programs, unless quiet.
    pub(crate) fn aside(&self, text: &str) {
        match (self.0.is_json, self.0.is_quiet) {
            (_, true) => {}
            (true, false) => self.warn(text),
            (false, false) => self.error_line(&format!("note: {text}")),
        }
    }

    /// A remark on standard error, if it is a terminal.
    pub(crate) fn remark(&self, text: &str) {
        if !self.0.is_json && !self.0.is_quiet {
            self.error_line(text);
        }
    }

    /// An error of one item; the command continues.
    pub(crate) fn item_error(&self, item: &str, during: &str, message: &str) {
        if self.0.is_json {
            let error = json!({"message_type": "error", "error": {"message": message}, "during": during, "item": item});
            self.error_line(&self.labelled(&error));
        } else if item.is_empty() || message.contains(item) {
            self.error_line(&format!("error: {message}"));
        } else {
            self.error_line(&format!("error: {item}: {message}"));
        }
    }

    /// The end of a command that failed.
    pub(crate) fn failure(&self, failure: &Failure) {
        if failure.exit == Exit::OutputClosed {
            return;
        }
        if self.0.is_json {
            let message = match &failure.advice {
                Some(advice) => format!("{} ({advice})", failure.message),
                None => failure.message.clone(),
            };
            let code = failure.exit.code();
            let error = json!({"message_type": "exit_error", "code": code, "message": message});
            self.error_line(&self.labelled(&error));
            return;
        }
        self.error_line(&format!("larder: {}", failure.message));
        if let Some(advice) = &failure.advice {
            self.error_line(&format!("        {advice}"));
        }
    }

    fn error_line(&self, text: &str) {
        // There is nowhere to report that errors cannot be reported.
        let _ = self.beside_bar(|| writeln!(io::stderr().lock(), "{text}"));
    }

    fn show_bar(&self, bar: Option<ProgressBar>) {
        *self.0.bar.lock() = bar;
    }

    /// Writes to the terminal while progress is removed.
    pub(crate) fn beside_bar<T>(&self, write: impl FnOnce() -> T) -> T {
        let bar = self.0.bar.lock().clone();
        match bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }
}

/// How wide a table may be.
fn width_of(is_terminal: bool, terminal: Option<usize>, columns: Option<&str>) -> Option<usize> {
    let columns = || columns.and_then(|columns| columns.trim().parse::<usize>().ok()).filter(|columns| *columns > 0);
    let default = || is_terminal.then_some(WIDTH_DEFAULT);
    terminal.filter(|columns| *columns > 0).or_else(columns).or_else(default)
}

/// Standard output for bytes.
pub(crate) struct StdoutBytes<'a> {
    stdout: parking_lot::MutexGuard<'a, BufWriter<io::Stdout>>,
}

impl Write for StdoutBytes<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stdout.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stdout.flush()
    }
}

/// The failure when standard output accepts no more.
pub(crate) fn output_failed(error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::new(Exit::OutputClosed, "nobody reads the output"),
        _ => Failure::of_file(&error).while_doing("cannot write to standard output"),
    }
}

/// Whether the name of a version's series contains its host.
pub(crate) fn names_host(summary: &Summary) -> bool {
    summary.series.strip_prefix(&summary.host).is_some_and(|rest| rest.starts_with(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_as_wide_as_the_terminal() {
        assert_eq!(width_of(true, Some(120), Some("60")), Some(120));
        assert_eq!(width_of(true, Some(0), Some("60")), Some(60));
        assert_eq!(width_of(true, None, Some("x")), Some(80));
        assert_eq!(width_of(false, None, Some("60")), Some(60));
        assert_eq!(width_of(false, None, None), None);
    }
}
