//! Progress of a job: two redrawn lines on a terminal, status lines with `--json`. In a pipe there
//! is none, unless `LARDER_PROGRESS_FPS` asks for it.
//!
//! The job's threads only count (see `larder_job::Progress`); one thread of the [`Meter`] shows the
//! counts at its own pace.

mod rates;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use larder_job::{ItemFate, Problem, Progress};
use larder_source::PathText;
use parking_lot::{Condvar, Mutex};
use serde_json::json;

use self::rates::{Moment, Rate};
use super::{Output, absolute};
use crate::sizes;

/// The kind of job: decides words and field names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MeterKind {
    Backup,
    Restore,
    Check,
    Repair,
    /// A copy of a volume or of a file of a snapshot.
    Copy,
}

/// Counts the work of a job, and shows it until it is dropped.
pub(crate) struct Meter {
    counts: Arc<Counts>,
    thread: Option<JoinHandle<()>>,
}

/// The counters of the job's threads.
struct Counts {
    kind: MeterKind,
    is_dry_run: bool,
    out: Output,
    started: Instant,
    files_total: AtomicU64,
    bytes_total: AtomicU64,
    total_is_known: AtomicBool,
    only_uploads_are_left: AtomicBool,
    files_done: AtomicU64,
    bytes_done: AtomicU64,
    errors: AtomicU64,
    current: Mutex<Vec<u8>>,
    stop: Mutex<bool>,
    stopped: Condvar,
}

impl std::fmt::Debug for Meter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meter").field("kind", &self.counts.kind).finish_non_exhaustive()
    }
}

impl Meter {
    /// Starts to count and to show.
    pub(crate) fn start(kind: MeterKind, out: &Output) -> Self {
        Self::start_as(kind, false, out)
    }

    /// The same, for a job that may be a dry run.
    pub(crate) fn start_as(kind: MeterKind, is_dry_run: bool, out: &Output) -> Self {
        let counts = Arc::new(Counts {
            kind,
            is_dry_run,
            out: out.clone(),
            started: Instant::now(),
            files_total: AtomicU64::new(0),
            bytes_total: AtomicU64::new(0),
            total_is_known: AtomicBool::new(false),
            only_uploads_are_left: AtomicBool::new(false),
            files_done: AtomicU64::new(0),
            bytes_done: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            current: Mutex::new(Vec::new()),
            stop: Mutex::new(false),
            stopped: Condvar::new(),
        });
        let thread = Display::choose(out).and_then(|(display, every)| {
            let counts = counts.clone();
            std::thread::Builder::new().name("progress".to_owned()).spawn(move || counts.show(&display, every)).ok()
        });
        Self { counts, thread }
    }

    /// The progress to which the job reports.
    pub(crate) fn progress(&self) -> Arc<dyn Progress> {
        self.counts.clone()
    }

    /// Items with errors.
    pub(crate) fn errors(&self) -> u64 {
        self.counts.errors.load(Ordering::Relaxed)
    }

    /// Time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.counts.started.elapsed()
    }

    /// Files and bytes announced.
    pub(crate) fn totals(&self) -> (u64, u64) {
        (self.counts.files_total.load(Ordering::Relaxed), self.counts.bytes_total.load(Ordering::Relaxed))
    }

    /// Stops showing; the counts stay.
    pub(crate) fn stop(&mut self) {
        *self.counts.stop.lock() = true;
        self.counts.stopped.notify_all();
        if let Some(thread) = self.thread.take() {
            // It panicked: the hook has reported it, and the job is unaffected.
            let _ = thread.join();
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.stop();
    }
}

/// How often progress is to be shown, if the user sets it.
fn frames_wanted() -> Option<f64> {
    let wanted = std::env::var("LARDER_PROGRESS_FPS").ok().and_then(|text| text.parse::<f64>().ok());
    wanted.filter(|fps| *fps > 0.0 && fps.is_finite()).map(|fps| fps.clamp(0.001, 60.0))
}

impl Output {
    /// Whether the progress of a job is visible.
    pub(crate) fn shows_progress(&self) -> bool {
        !self.is_quiet() && (self.is_json() || self.stderr_is_terminal() || frames_wanted().is_some())
    }
}

/// How progress is shown.
enum Display {
    Bar(ProgressBar),
    Json,
    Lines,
}

impl Display {
    /// The display for the output, and its interval.
    fn choose(out: &Output) -> Option<(Self, Duration)> {
        let wanted = frames_wanted();
        let every = |default: f64| Duration::from_secs_f64(1.0 / wanted.unwrap_or(default));
        if out.is_quiet() {
            return None;
        }
        if out.is_json() {
            return Some((Self::Json, every(1.0)));
        }
        if out.stderr_is_terminal() {
            let hz = wanted.unwrap_or(10.0).ceil().clamp(1.0, 60.0) as u8;
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(hz));
            // The template has no field that could be missing.
            bar.set_style(
                ProgressStyle::with_template("{prefix}\n{wide_msg}").unwrap_or_else(|_| ProgressStyle::default_bar()),
            );
            out.show_bar(Some(bar.clone()));
            return Some((Self::Bar(bar), every(10.0)));
        }
        wanted.map(|_| (Self::Lines, every(1.0)))
    }
}

impl Counts {
    fn show(&self, display: &Display, every: Duration) {
        let mut rate = Rate::new(self.started);
        let mut stop = self.stop.lock();
        while !*stop {
            self.stopped.wait_for(&mut stop, every);
            if *stop {
                break;
            }
            let moment = self.moment(&mut rate);
            match display {
                Display::Bar(bar) => {
                    bar.set_prefix(moment.text());
                    bar.set_message(moment.current);
                    bar.tick();
                }
                // The command itself notices that its reader is gone.
                Display::Json => drop(self.out.json_now(&moment.json(self.kind))),
                Display::Lines => self.out.remark(&moment.text()),
            }
        }
        drop(stop);
        if let Display::Bar(bar) = display {
            self.out.show_bar(None);
            bar.finish_and_clear();
        }
    }

    fn moment(&self, rate: &mut Rate) -> Moment {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (bytes_done, bytes_total) = (get(&self.bytes_done), get(&self.bytes_total));
        rate.update(bytes_done, Instant::now());
        let total_is_known = self.total_is_known.load(Ordering::Relaxed);
        let remaining = (total_is_known && rate.bytes_a_second >= 1.0 && bytes_total > bytes_done)
            .then(|| (bytes_total - bytes_done) as f64 / rate.bytes_a_second)
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let current = self.current.lock();
        Moment {
            elapsed: self.started.elapsed(),
            files_total: get(&self.files_total).max(get(&self.files_done)),
            // Some jobs find more work than they announced.
            bytes_total: bytes_total.max(bytes_done),
            total_is_known,
            only_uploads_are_left: self.only_uploads_are_left.load(Ordering::Relaxed),
            files_done: get(&self.files_done),
            bytes_done,
            errors: get(&self.errors),
            current: self.shown(&current),
            remaining,
            bytes_a_second: rate.bytes_a_second,
        }
    }
}

impl Counts {
    /// A path of a version, or the name of an object.
    fn shown(&self, path: &[u8]) -> String {
        match self.kind {
            _ if path.is_empty() => String::new(),
            MeterKind::Check | MeterKind::Copy => PathText(path).to_string(),
            MeterKind::Backup | MeterKind::Restore | MeterKind::Repair => absolute(path),
        }
    }
}

impl Progress for Counts {
    fn expect(&self, files: u64, bytes: u64) {
        self.files_total.fetch_add(files, Ordering::Relaxed);
        self.bytes_total.fetch_add(bytes, Ordering::Relaxed);
    }

    fn expectation_is_complete(&self) {
        self.total_is_known.store(true, Ordering::Relaxed);
    }

    fn done(&self, files: u64, bytes: u64) {
        self.files_done.fetch_add(files, Ordering::Relaxed);
        self.bytes_done.fetch_add(bytes, Ordering::Relaxed);
    }

    fn only_uploads_are_left(&self) {
        self.only_uploads_are_left.store(true, Ordering::Relaxed);
        self.current.lock().clear();
    }

    fn current(&self, path: &[u8]) {
        // The thread that holds the lock shows or sets it again soon.
        if let Some(mut current) = self.current.try_lock() {
            current.clear();
            current.extend_from_slice(path);
        }
    }

    fn note(&self, text: &str) {
        self.out.remark(&format!("note: {text}"));
    }

    fn aside(&self, text: &str) {
        self.out.aside(text);
    }

    fn item(&self, path: &[u8], fate: ItemFate, bytes: u64) {
        let wanted = if fate == ItemFate::Unmodified { 2 } else { 1 };
        if self.out.verbose() < wanted {
            return;
        }
        let path = absolute(path);
        if self.out.is_json() {
            // The words of restic.
            let action = match fate {
                ItemFate::New => "new",
                ItemFate::Changed => "modified",
                ItemFate::Unmodified => "unchanged",
                ItemFate::Restored => "restored",
                ItemFate::Deleted => "deleted",
                ItemFate::Cold => "cold",
            };
            let item = json!({"message_type": "verbose_status", "action": action, "item": path, "data_size": bytes});
            drop(self.out.json(&item));
        } else {
            drop(self.out.line(item_line(fate, &path, bytes, self.is_dry_run)));
        }
    }

    fn problem(&self, problem: &Problem) {
        self.errors.fetch_add(1, Ordering::Relaxed);
        let item = self.shown(&problem.path);
        self.out.item_error(&item, &problem.during.to_string(), &problem.message);
    }
}

/// The line for one item. The size of a deleted one is not known.
fn item_line(fate: ItemFate, path: &str, bytes: u64, is_dry_run: bool) -> String {
    let shown = match fate {
        ItemFate::New => "new",
        ItemFate::Changed => "changed",
        ItemFate::Unmodified => "unmodified",
        ItemFate::Restored if is_dry_run => "would restore",
        ItemFate::Restored => "restored",
        ItemFate::Deleted if is_dry_run => "would delete",
        ItemFate::Deleted => "deleted",
        ItemFate::Cold => "cold",
    };
    let width = if is_dry_run { 13 } else { 10 };
    match fate {
        ItemFate::Deleted => format!("{shown:<width$}  {path}"),
        _ => format!("{shown:<width$}  {path}, {}", sizes::show(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dry_run_says_what_it_would_do() {
        assert_eq!(item_line(ItemFate::Restored, "/a", 2, true), "would restore  /a, 2 B");
        assert_eq!(item_line(ItemFate::Deleted, "/a", 0, true), "would delete   /a");
        assert_eq!(item_line(ItemFate::Restored, "/a", 2, false), "restored    /a, 2 B");
        assert_eq!(item_line(ItemFate::Unmodified, "/a", 2, true), "unmodified     /a, 2 B");
    }

    #[test]
    fn no_more_is_done_than_there_is() {
        let mut meter = Meter::start(MeterKind::Repair, &Output::new(false, true, 0));
        let progress = meter.progress();
        progress.expect(1, 10);
        progress.done(2, 30);
        meter.stop();
        let status = meter.counts.moment(&mut Rate::new(Instant::now())).json(MeterKind::Repair);
        assert_eq!((&status["bytes_done"], &status["total_bytes"]), (&json!(30), &json!(30)));
        assert_eq!((&status["files_done"], &status["total_files"]), (&json!(2), &json!(2)));
    }

    #[test]
    fn counts_of_all_threads_come_together() {
        let out = Output::new(false, true, 0);
        let mut meter = Meter::start(MeterKind::Backup, &out);
        let progress = meter.progress();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        progress.expect(1, 10);
                        progress.done(1, 10);
                        progress.current(b"x");
                    }
                });
            }
        });
        progress.expectation_is_complete();
        progress.only_uploads_are_left();
        meter.stop();
        assert_eq!(meter.totals(), (4000, 40_000));
        let mut rate = Rate::new(Instant::now());
        let moment = meter.counts.moment(&mut rate);
        assert_eq!((moment.files_done, moment.bytes_done, moment.current.as_str()), (4000, 40_000, ""));
        assert_eq!(moment.json(MeterKind::Backup)["percent_done"], json!(1.0));
        assert_eq!(moment.json(MeterKind::Backup)["is_uploading"], json!(true));
        assert!(moment.text().ends_with("4000 items  waiting for uploads"), "{}", moment.text());
    }
}
