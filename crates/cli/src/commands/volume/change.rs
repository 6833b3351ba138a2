//! `larder volume snapshot`, `resize`, `rename` and `delete`.

use std::path::Path;

use serde_json::Value;

use super::request::Request;
use super::split;
use super::target::ask;
use crate::app::App;
use crate::args::{StorePasswordArgs, VolumeDeleteArgs, VolumeRenameArgs, VolumeResizeArgs, VolumeSnapshotArgs};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::sizes;

pub(super) fn snapshot(app: &App, args: &VolumeSnapshotArgs) -> Result<Exit, Failure> {
    let (folder, name) = split(&args.snapshot)?;
    let wrong = || Failure::usage("a snapshot is named as STORE/NAME@SNAP, such as /srv/store/disk1@monday");
    let (volume, snapshot) = name.split_once('@').ok_or_else(wrong)?;
    let request = Request::Snapshot { volume: volume.to_owned(), snapshot: snapshot.to_owned(), mark: None };
    run(app, &folder, &args.password, &request, |value| format!("snapshot {} created", named(value)))
}

pub(super) fn resize(app: &App, args: &VolumeResizeArgs) -> Result<Exit, Failure> {
    let (folder, name) = split(&args.volume)?;
    let request = Request::Resize { name, size: args.size, shrink: args.shrink };
    run(app, &folder, &args.password, &request, |value| {
        format!("volume {} has {}", named(value), sizes::show(value["size"].as_u64().unwrap_or_default()))
    })
}

pub(super) fn rename(app: &App, args: &VolumeRenameArgs) -> Result<Exit, Failure> {
    let (folder, name) = split(&args.volume)?;
    let request = Request::Rename { name: name.clone(), to: args.to.clone() };
    run(app, &folder, &args.password, &request, |value| format!("volume {name} is {} now", named(value)))
}

pub(super) fn delete(app: &App, args: &VolumeDeleteArgs) -> Result<Exit, Failure> {
    let (folder, name) = split(&args.name)?;
    let request = Request::Delete { name, snapshots: args.snapshots, force: args.force };
    run(app, &folder, &args.password, &request, |value| format!("{} deleted", named(value)))
}

fn run(
    app: &App,
    folder: &Path,
    password: &StorePasswordArgs,
    request: &Request,
    done: impl Fn(&Value) -> String,
) -> Result<Exit, Failure> {
    let value = ask(app, folder, password, request)?;
    if app.out.is_json() {
        app.out.json(&value)?;
    } else {
        app.out.info(done(&value))?;
    }
    Ok(Exit::Done)
}

fn named(value: &Value) -> &str {
    value["name"].as_str().unwrap_or_default()
}
