//! `larder mount`: snapshots as a folder of this machine.

use std::path::Path;

use larder_mount::{Mounted, NotFree, Users, expect_free};
use rustix::process::geteuid;
use serde_json::{Value, json};

use super::shown_tree::{Shown, Wanted, Way};
use crate::app::App;
use crate::args::MountArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::sizes;

pub(super) fn run(app: &App, args: &MountArgs) -> Result<Exit, Failure> {
    let way = Way {
        times: &args.time_template,
        owner_root: args.owner_root,
        counts_names: true,
        doing: "mounting snapshots",
        place: "the mount",
    };
    let wanted = Wanted::of(app, &args.shown, way)?;
    expect_free(&args.folder, args.nonempty).map_err(|reason| refused(&args.folder, reason))?;
    let shown = wanted.open(app, way)?;
    let users = if args.allow_other { Users::All } else { Users::Owner };
    let mounted = larder_mount::mount(&args.folder, shown.tree.clone(), users, !args.no_default_permissions)
        .map_err(|error| not_mounted(&args.folder, &error, args.allow_other))?;
    let announced = announce(app, &mounted, &shown);
    app.out.end_if_failed(announced);
    shown.until_the_end(app, || mounted.is_over());
    let exit = end(app, mounted);
    shown.end(app);
    app.out.end_if_failed(farewell(app, &shown));
    Ok(exit)
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
        return Failure::new(Exit::Failed, format!("FUSE is not available: cannot open /dev/fuse: {device}"))
            .advise("`larder serve-webdav`, `larder restore` and `larder dump` work without it");
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

fn announce(app: &App, mounted: &Mounted, shown: &Shown) -> Result<(), Failure> {
    let folder = mounted.folder().display().to_string();
    if app.out.is_json() {
        return event(app, "mounted", |event| {
            event["folder"] = json!(folder);
            event["snapshots"] = json!(shown.tree.snapshots());
        });
    }
    app.out.info(format!("mounted {} at {folder}", sizes::count(shown.tree.snapshots() as u64, "snapshot")))?;
    app.out.info(format!("Unmount it with Ctrl-C, SIGTERM or `umount {folder}`."))?;
    app.out.flush()
}

fn end(app: &App, mounted: Mounted) -> Exit {
    let folder = mounted.folder().display().to_string();
    match mounted.unmount() {
        Ok(true) => Exit::Done,
        Ok(false) => {
            app.out.warn(&format!("{folder} is still in use; it was unmounted anyway, and programs in it get errors"));
            Exit::Done
        }
        Err(error) => {
            app.out.warn(&format!("{folder}: {error}"));
            Exit::Failed
        }
    }
}

/// Says what was fetched.
fn farewell(app: &App, shown: &Shown) -> Result<(), Failure> {
    if app.out.is_json() {
        return event(app, "ended", |event| shown.put_fetched(event));
    }
    shown.tell_fetched(app);
    Ok(())
}

/// One line of JSON.
fn event(app: &App, name: &str, fill: impl FnOnce(&mut Value)) -> Result<(), Failure> {
    let mut event = json!({ "message_type": "mount", "event": name });
    fill(&mut event);
    app.out.json_now(&event)
}
