//! The tree of snapshots that `mount` and `serve-webdav` show.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use jiff::tz::TimeZone;
use larder_format::ids::JobId;
use larder_format::roles::Roles;
use larder_job::{Cancel, JobContext, Progress};
use larder_store::Store;
use larder_tree::{Reports, Template, TimeLayout, Tree, TreeError, TreeOptions};
use parking_lot::Mutex;
use rustix::process::{getegid, geteuid};
use serde_json::Value;

use super::reading_metrics::Served;
use crate::app::App;
use crate::args::ShownArgs;
use crate::failure::{Failure, chain};
use crate::output::{Output, safe, summary};
use crate::refs::{self, Reference, Versions};

/// How often unused snapshots and the end of the server are looked at.
const LOOK: Duration = Duration::from_millis(200);

/// What was asked for. Nothing is opened yet.
pub(super) struct Wanted<'a> {
    args: &'a ShownArgs,
    reference: Option<Reference>,
    options: TreeOptions,
}

/// What differs between the ways to show a tree.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way<'a> {
    /// How times are written.
    pub(super) times: &'a str,
    /// Root owns all files.
    pub(super) owner_root: bool,
    /// Programs see how many names a file has.
    pub(super) counts_names: bool,
    /// What is done, for messages.
    pub(super) doing: &'static str,
    /// Where the files are, for messages.
    pub(super) place: &'static str,
}

/// A tree that is shown.
pub(super) struct Shown {
    pub(super) tree: Arc<Tree>,
    cancel: Cancel,
    /// The storage, for its counters.
    store: Store,
}

impl<'a> Wanted<'a> {
    /// Reads the options.
    pub(super) fn of(app: &App, args: &'a ShownArgs, way: Way<'_>) -> Result<Self, Failure> {
        let reference = args.snapshot.as_ref().map(|snapshot| refs::parse(snapshot)).transpose()?;
        let templates = args.path_template.iter().map(|template| Template::new(template)).collect::<Result<_, _>>();
        let times = TimeLayout::new(way.times, TimeZone::system());
        let (uid, gid) = if way.owner_root { (0, 0) } else { (geteuid().as_raw(), getegid().as_raw()) };
        let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let options = TreeOptions {
            templates: templates.map_err(|error| Failure::usage(error.to_string()))?,
            times: times.map_err(|error| Failure::usage(error.to_string()))?,
            filter: refs::filter(&args.filter)?,
            fetch: app.fetching(&args.fetch)?,
            owner: (uid, gid),
            owner_of_all: way.owner_root.then_some((0, 0)),
            keep_ms: ms(args.keep),
            refresh_ms: ms(args.refresh),
            counts_names: way.counts_names,
        };
        Ok(Self { args, reference, options })
    }

    /// Opens the repository, and lists its snapshots. From then on signals end the showing.
    pub(super) fn open(self, app: &App, way: Way<'_>) -> Result<Shown, Failure> {
        let Self { args, reference, options } = self;
        let opened = app.open()?;
        opened.repository.require(Roles::RESTORE, way.doing)?;
        let versions = match &reference {
            None if options.shows_tags() => Versions::load_tagged(app, &opened.repository, &args.filter)?.0,
            None => Versions::load(app, &opened.repository, &args.filter)?,
            Some(one) => Versions::load_named(app, &opened.repository, &args.filter, &[&one.snapshot])?,
        };
        versions.warn_of_damage(app);
        let met = Arc::new(Met { out: app.out.clone(), notes: Mutex::default(), place: way.place });
        let store = opened.repository.store().clone();
        let context = JobContext { progress: met.clone(), ..app.reading(opened.repository) };
        let cancel = app.interrupts.job_begins();
        let tree = match reference {
            None => Tree::new(&context, versions.admitted, options, met)?,
            Some(reference) => {
                let version = versions.find(app, &reference.snapshot)?;
                let (summary, path) = (version.summary.clone(), reference.path.unwrap_or_default());
                let shown = String::from_utf8_lossy(&path).into_owned();
                Tree::of_one(&context, version, path, options, met).map_err(|error| match error {
                    TreeError::NotFound => {
                        Failure::usage(format!("{} has no /{}", refs::shown(&summary), safe(&shown)))
                    }
                    TreeError::NotAFolder => Failure::usage(format!("/{} is not a folder", safe(&shown)))
                        .advise("name the folder that it is in, or use `larder dump`"),
                    error => error.into(),
                })?
            }
        };
        Ok(Shown { tree: Arc::new(tree), cancel, store })
    }
}

impl Shown {
    /// Waits for a signal, or until `is_over` says so. Unused snapshots are let go meanwhile.
    pub(super) fn until_the_end(&self, app: &App, is_over: impl Fn() -> bool) {
        let (sender, stops) = channel();
        app.interrupts.on_cancel(move || {
            // Nobody waits at the end of the command.
            let _ = sender.send(());
        });
        while !self.cancel.is_cancelled() && !is_over() {
            match stops.recv_timeout(LOOK) {
                Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => self.tree.tidy(),
            }
        }
    }

    /// What was done so far, for metrics, by a function that can be called at any time.
    pub(super) fn served(&self, start_ms: u64) -> impl Fn() -> Served + Send + Sync + use<> {
        let (tree, store) = (self.tree.clone(), self.store.clone());
        move || Served { start_ms, fetched: tree.fetched(), requests: store.stats(), met_damage: tree.met_damage() }
    }

    /// Lets all snapshots go, and remembers damage that was met.
    pub(super) fn end(&self, app: &App) {
        // Requests may still be under way for users of open files: only their leases end here.
        self.tree.end();
        if self.tree.met_damage() {
            app.note_damage();
        }
    }

    /// Puts what was fetched into an event.
    pub(super) fn put_fetched(&self, event: &mut Value) {
        let fetched = self.tree.fetched();
        event["bytes_read"] = fetched.used.into();
        if let Some(event) = event.as_object_mut() {
            summary::put_fetched(event, &fetched);
        }
    }

    /// Says what was fetched, with `--verbose`.
    pub(super) fn tell_fetched(&self, app: &App) {
        if app.out.verbose() > 0 {
            app.out.remark(&summary::fetched(&self.tree.fetched()));
        }
    }
}

/// Tells of what users of the files meet.
struct Met {
    out: Output,
    /// Notes that were shown.
    notes: Mutex<HashSet<String>>,
    place: &'static str,
}

impl Progress for Met {
    /// Each snapshot may have the same note.
    fn note(&self, text: &str) {
        if self.notes.lock().insert(text.to_owned()) {
            self.out.remark(&format!("note: {text}"));
        }
    }
}

impl Reports for Met {
    fn damaged(&self, what: &str, error: &TreeError) {
        self.out.item_error(&safe(what), "read", &chain(error));
    }

    fn failed(&self, what: &str, error: &TreeError) {
        self.out.warn(&format!("{} cannot be read: {}", safe(what), chain(error)));
    }

    fn forgotten(&self, id: JobId) {
        self.out.warn(&format!("snapshot {} was forgotten; its files are gone from {}", id.short(), self.place));
    }
}
