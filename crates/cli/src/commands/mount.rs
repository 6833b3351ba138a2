//! `larder mount`: snapshots as a folder of this machine.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use jiff::tz::TimeZone;
use larder_format::ids::JobId;
use larder_format::roles::Roles;
use larder_job::{JobContext, Progress};
use larder_mount::{Mounted, NotFree, Users, expect_free};
use larder_tree::{Reports, Template, TimeLayout, Tree, TreeError, TreeOptions};
use parking_lot::Mutex;
use rustix::process::{getegid, geteuid};
use serde_json::{Value, json};

use crate::app::App;
use crate::args::MountArgs;
use crate::exit::Exit;
use crate::failure::{Failure, chain};
use crate::output::{Output, safe, summary};
use crate::refs::{self, Versions};
use crate::sizes;

/// How often unused snapshots and the end of the mount are looked at.
const LOOK: Duration = Duration::from_millis(200);

pub(super) fn run(app: &App, args: &MountArgs) -> Result<Exit, Failure> {
    let reference = args.snapshot.as_ref().map(|snapshot| refs::parse(snapshot)).transpose()?;
    let options = options(app, args)?;
    expect_free(&args.folder, args.nonempty).map_err(|reason| refused(&args.folder, reason))?;
    let opened = app.open()?;
    opened.repository.require(Roles::RESTORE, "mounting snapshots")?;
    let versions = match &reference {
        None if options.shows_tags() => Versions::load_tagged(app, &opened.repository, &args.filter)?.0,
        None => Versions::load(app, &opened.repository, &args.filter)?,
        Some(one) => Versions::load_named(app, &opened.repository, &args.filter, &[&one.snapshot])?,
    };
    versions.warn_of_damage(app);
    let met = Arc::new(Met { out: app.out.clone(), notes: Mutex::default() });
    let context = JobContext { progress: met.clone(), ..app.reading(opened.repository) };
    // From here on signals unmount.
    let cancel = app.interrupts.job_begins();
    let tree = match reference {
        None => Tree::new(&context, versions.admitted, options, met.clone())?,
        Some(reference) => {
            let version = versions.find(app, &reference.snapshot)?;
            let (summary, path) = (version.summary.clone(), reference.path.unwrap_or_default());
            let shown = String::from_utf8_lossy(&path).into_owned();
            Tree::of_one(&context, version, path, options, met.clone()).map_err(|error| match error {
                TreeError::NotFound => Failure::usage(format!("{} has no /{}", refs::shown(&summary), safe(&shown))),
                TreeError::NotAFolder => Failure::usage(format!("/{} is not a folder", safe(&shown)))
                    .advise("mount the folder that it is in, or use `larder dump`"),
                error => error.into(),
            })?
        }
    };
    let tree = Arc::new(tree);
    let users = if args.allow_other { Users::All } else { Users::Owner };
    let mounted = larder_mount::mount(&args.folder, tree.clone(), users, !args.no_default_permissions)
        .map_err(|error| not_mounted(&args.folder, &error, args.allow_other))?;
    let announced = announce(app, &mounted, &tree);
    app.out.end_if_failed(announced);
    let (sender, stops) = channel();
    app.interrupts.on_cancel(move || {
        // Nobody waits at the end of the command.
        let _ = sender.send(());
    });
    while !cancel.is_cancelled() && !mounted.is_over() {
        match stops.recv_timeout(LOOK) {
            Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => tree.tidy(),
        }
    }
    let exit = end(app, mounted);
    // Requests may still be under way for users of open files: only their leases end here.
    tree.end();
    app.out.end_if_failed(farewell(app, &tree));
    if tree.met_damage() {
        app.note_damage();
    }
    Ok(exit)
}

fn options(app: &App, args: &MountArgs) -> Result<TreeOptions, Failure> {
    let templates = args.path_template.iter().map(|template| Template::new(template)).collect::<Result<_, _>>();
    let times = TimeLayout::new(&args.time_template, TimeZone::system());
    let (uid, gid) = if args.owner_root { (0, 0) } else { (geteuid().as_raw(), getegid().as_raw()) };
    let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    Ok(TreeOptions {
        templates: templates.map_err(|error| Failure::usage(error.to_string()))?,
        times: times.map_err(|error| Failure::usage(error.to_string()))?,
        filter: refs::filter(&args.filter)?,
        fetch: app.fetching(&args.fetch)?,
        owner: (uid, gid),
        owner_of_all: args.owner_root.then_some((0, 0)),
        keep_ms: ms(args.keep),
        refresh_ms: ms(args.refresh),
    })
}

/// The failure for a folder on which nothing can be mounted.
fn refused(folder: &Path, reason: NotFree) -> Failure {
    let shown = folder.display();
    let empty = "use an empty folder, or --nonempty";
    match reason {
        NotFree::Missing => Failure::usage(format!("{shown} does not exist")).advise("create it first"),
        NotFree::NotAFolder => Failure::usage(format!("{shown} is not a folder")).advise("use an empty folder"),
        NotFree::NotEmpty => Failure::usage(format!("{shown} is not empty")).advise(empty),
        NotFree::Dead => Failure::usage(format!("cannot mount at {shown}: a dead mount is there"))
            .advise(format!("`fusermount3 -u {shown}` or `umount {shown}` removes it")),
        NotFree::Mounted { kind } => {
            Failure::usage(format!("cannot mount at {shown}: something is mounted there already ({kind})"))
                .advise(format!("`umount {shown}` first"))
        }
        NotFree::Unreadable(error) => {
            Failure::of(Exit::Failed, &error).while_doing(&format!("cannot mount at {shown}"))
        }
    }
}

/// The failure for a mount that the system refused.
fn not_mounted(folder: &Path, error: &std::io::Error, is_for_all: bool) -> Failure {
    let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    if let Err(device) = device {
        return Failure::new(Exit::Failed, format!("this system gives no FUSE: /dev/fuse: {device}"))
            .advise("`larder restore` and `larder dump` work without it");
    }
    let is_installed = ["/usr/bin/fusermount3", "/bin/fusermount3", "/usr/local/bin/fusermount3"];
    if !geteuid().is_root() && !is_installed.iter().any(|path| Path::new(path).exists()) {
        return Failure::new(Exit::Failed, "fusermount3 is not installed").advise("install fuse3");
    }
    let failure = Failure::of(Exit::Failed, error).while_doing(&format!("cannot mount at {}", folder.display()));
    if is_for_all && !geteuid().is_root() {
        return failure.advise("--allow-other needs the line user_allow_other in /etc/fuse.conf");
    }
    failure
}

fn announce(app: &App, mounted: &Mounted, tree: &Tree) -> Result<(), Failure> {
    let folder = mounted.folder().display().to_string();
    if app.out.is_json() {
        return event(app, "mounted", |event| {
            event["folder"] = json!(folder);
            event["snapshots"] = json!(tree.snapshots());
        });
    }
    app.out.info(format!("mounted {} at {folder}", sizes::count(tree.snapshots() as u64, "snapshot")))?;
    app.out.info(format!("Ctrl-C, SIGTERM or `umount {folder}` ends this."))?;
    app.out.flush()
}

fn end(app: &App, mounted: Mounted) -> Exit {
    let folder = mounted.folder().display().to_string();
    match mounted.unmount() {
        Ok(true) => Exit::Done,
        Ok(false) => {
            app.out.warn(&format!("{folder} is still in use; it is unmounted all the same"));
            Exit::Done
        }
        Err(error) => {
            app.out.warn(&format!("{folder}: {error}"));
            Exit::Failed
        }
    }
}

/// Says what was fetched.
fn farewell(app: &App, tree: &Tree) -> Result<(), Failure> {
    let fetched = tree.fetched();
    if app.out.is_json() {
        return event(app, "ended", |event| {
            event["bytes_read"] = json!(fetched.used);
            if let Some(event) = event.as_object_mut() {
                summary::put_fetched(event, &fetched);
            }
        });
    }
    if app.out.verbose() > 0 {
        app.out.remark(&summary::fetched(&fetched));
    }
    Ok(())
}

/// One line of JSON.
fn event(app: &App, name: &str, fill: impl FnOnce(&mut Value)) -> Result<(), Failure> {
    let mut event = json!({ "message_type": "mount", "event": name });
    fill(&mut event);
    app.out.json_now(&event)
}

/// Tells of what users of the mount meet.
struct Met {
    out: Output,
    /// Notes that were shown.
    notes: Mutex<HashSet<String>>,
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
        self.out.warn(&format!("snapshot {} was forgotten; its files are gone from the mount", id.short()));
    }
}
