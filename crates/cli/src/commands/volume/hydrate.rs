//! `larder volume hydrate`: a volume over a snapshot gets all its content, here or in its server.

use std::path::Path;

use larder_format::volume_manifest::VolumeEntry;
use larder_volume::{Hydrated, Store};
use serde_json::{Value, json};

use super::below::Below;
use super::control::Client;
use super::copy_progress::Shown;
use super::parents::lowest;
use super::request::Request;
use super::target::{Target, target};
use super::{Parents, split};
use crate::app::App;
use crate::args::VolumeHydrateArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::sizes;

/// `larder volume hydrate`.
pub(super) fn run(app: &App, args: &VolumeHydrateArgs) -> Result<Exit, Failure> {
    let (folder, name) = split(&args.volume)?;
    let value = match target(app, &folder, &args.password)? {
        Target::Served(client) => in_server(app, client, &folder, &name)?,
        Target::Opened(host) => {
            let volume = host.store.volume(&name)?;
            if Below::of(&lowest(&host.store, &volume)).is_none() {
                return Err(Failure::usage(format!("volume {name} is not over a snapshot of a repository")));
            }
            let parents = Parents::attach(app, &host.store, None, &volume)?;
            let copied = copy(app, &host.store, &volume, &parents)?;
            host.store.close()?;
            hydrated(&volume, &copied)
        }
    };
    if app.out.is_json() {
        app.out.json(&value)?;
    } else {
        let bytes = sizes::show(value["bytes"].as_u64().unwrap_or_default());
        app.out.info(format!("copied {bytes}; volume {name} does not need the repository any more"))?;
    }
    Ok(Exit::Done)
}

/// The server copies. A signal here ends its copy.
fn in_server(app: &App, mut client: Client, folder: &Path, name: &str) -> Result<Value, Failure> {
    let cancel = app.interrupts.job_begins();
    let mut shown = Shown::start(app, name);
    let request = Request::Hydrate { name: name.to_owned() };
    let closed = client.closing()?;
    app.interrupts.on_cancel(move || drop(closed.shutdown(std::net::Shutdown::Both)));
    // A signal before that.
    if cancel.is_cancelled() {
        return Err(Failure::new(Exit::Interrupted, "interrupted before the copy began"));
    }
    let copied = client.ask_parts(&request, &mut |part| {
        let number = |key: &str| part[key].as_u64().unwrap_or_default();
        shown.reach(number("bytes_done"), number("bytes_total"));
        Ok(())
    });
    copied.map_err(|failure| match cancel.is_cancelled() {
        true => Failure::new(Exit::Interrupted, format!("interrupted; {} keeps what was copied", folder.display())),
        false => failure,
    })
}

/// Copies everything here, and shows it, unless a signal comes.
pub(super) fn copy(app: &App, store: &Store, volume: &VolumeEntry, parents: &Parents) -> Result<Hydrated, Failure> {
    let cancel = app.interrupts.job_begins();
    let mut shown = Shown::start(app, &volume.name);
    parents.copy(store, volume, &cancel, &mut |done| {
        shown.reach(done.bytes, done.of);
        Ok(())
    })
}

/// Copies what all volumes do not have themselves, while they are served. A failure is a warning:
/// nothing is lost by it.
pub(super) fn copy_all(app: &App, store: &Store, parents: &Parents) {
    for volume in parents.volumes(store) {
        match copy(app, store, &volume, parents) {
            Ok(copied) if app.out.is_json() => app.out.end_if_failed(app.out.json_now(&hydrated(&volume, &copied))),
            Ok(copied) => {
                let (name, bytes) = (&volume.name, sizes::show(copied.bytes));
                app.out.remark(&format!("copied {bytes}; volume {name} does not need the repository any more"));
            }
            Err(_) if app.interrupts.is_cancelled() => return,
            Err(failure) => {
                app.out.warn(&format!("volume {} still needs the repository: {}", volume.name, failure.message));
            }
        }
    }
}

/// The report of a copy as JSON.
pub(super) fn hydrated(volume: &VolumeEntry, copied: &Hydrated) -> Value {
    json!({"message_type": "volume_hydrated", "name": volume.name, "bytes": copied.bytes, "blocks": copied.blocks})
}
