//! `larder volume create --from`: volumes over snapshots of a repository, or with all their data.

use std::ffi::OsStr;
use std::path::Path;

use larder_job::Cancel;
use larder_nbd::client::{self, ClientError};
use larder_volume::{Store, VolumeError};
use serde_json::json;

use super::Parents;
use super::below::{Opened, create_over};
use super::control::Client;
use super::copy_progress::{Done, Shown};
use super::hydrate;
use super::list::volumes;
use super::request::Request;
use super::target::{Target, target};
use crate::app::App;
use crate::args::{FetchArgs, FilterArgs, FromArgs};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::absolute;
use crate::refs::{self, Versions};
use crate::sizes;

/// `larder volume create STORE/NAME --from SNAPSHOT[:PATH]`.
pub(super) fn create(app: &App, folder: &Path, name: &str, from: &OsStr, args: &FromArgs) -> Result<Exit, Failure> {
    // Its lease lasts until the volume is there.
    let opened = open_snapshot(app, from, None, &args.filter, &FetchArgs::default())?;
    let (below, size) = (opened.below.clone(), opened.volume_size());
    let copied = match target(app, folder, &args.password)? {
        Target::Served(_) if args.copy => Some(send_to_server(app, folder, name, &opened)?),
        Target::Served(mut client) => {
            client.ask(&Request::CreateOver { name: name.to_owned(), below: below.text() })?;
            None
        }
        Target::Opened(host) => create_here(app, &host.store, name, opened, args.copy)?,
    };
    if app.out.is_json() {
        app.out.json(&json!({
            "message_type": "volume_created",
            "name": name,
            "size": size,
            "snapshot_id": below.snapshot,
            "path": absolute(&below.path),
            "bytes_copied": copied,
        }))?;
        return Ok(Exit::Done);
    }
    app.out.info(match copied {
        Some(_) => format!("volume {name} of {} created from {}", sizes::show(size), below.shown()),
        None => format!("volume {name} of {} created over {}", sizes::show(size), below.shown()),
    })?;
    match copied {
        Some(copied) => app.out.info(format!("copied {}", sizes::show(copied)))?,
        None => {
            app.out.info("`larder volume serve` needs the repository until `larder volume hydrate` has copied all")?;
            app.out.info(format!("keep the snapshot until then: `larder pin {}`", below.snapshot))?;
        }
    }
    Ok(Exit::Done)
}

/// In a store that is open here. The bytes that were copied, if all were to be.
fn create_here(app: &App, store: &Store, name: &str, opened: Opened, copies: bool) -> Result<Option<u64>, Failure> {
    let volume = create_over(store, name, &opened)?;
    let mut bytes = None;
    if copies {
        let parents = Parents::of(store, volume.clone(), opened);
        let copied = hydrate::copy(app, store, &volume, &parents).inspect_err(|_| {
            // The volume is whole all the same; only the copy is not.
            app.out.warn(&format!("volume {name} was created, but not everything was copied"));
        })?;
        bytes = Some(copied.bytes);
    }
    store.close()?;
    Ok(bytes)
}

/// Bytes that are sent at once.
const PIECE: u64 = 1 << 20;
/// The name of a volume that is not whole yet ends so.
const PARTIAL: &str = ".partial";

/// Sends the whole content to the server of a store, which needs no repository for it. The volume
/// has another name until it is whole. Gives the bytes that were sent.
fn send_to_server(app: &App, folder: &Path, name: &str, opened: &Opened) -> Result<u64, Failure> {
    let cancel = app.interrupts.job_begins();
    let ask = |request: &Request| match Client::connect(folder)? {
        Some(mut client) => client.ask(request),
        None => Err(Failure::new(Exit::Failed, "the server of the store ended")),
    };
    if volumes(ask(&Request::List)?)?.iter().any(|volume| volume.name == name) {
        return Err(VolumeError::VolumeExists(name.to_owned()).into());
    }
    let partial = format!("{name}{PARTIAL}");
    ask(&Request::Create { name: partial.clone(), size: opened.volume_size() }).map_err(|failure| {
        let advice = format!("if {partial} is of an earlier attempt that was killed, delete it");
        if failure.advice.is_none() { failure.advise(advice) } else { failure }
    })?;
    let sent = send(app, folder, name, &partial, opened, &cancel)
        .and_then(|bytes| ask(&Request::Rename { name: partial.clone(), to: name.to_owned() }).map(|_| bytes));
    sent.inspect_err(|_| {
        let delete = Request::Delete { name: partial.clone(), snapshots: false, force: true };
        if let Err(failure) = ask(&delete) {
            app.out.warn(&format!("volume {partial} stays, and is not whole: {}", failure.message));
        }
    })
}

fn send(app: &App, folder: &Path, name: &str, partial: &str, opened: &Opened, cancel: &Cancel) -> Result<u64, Failure> {
    let failed = |error: ClientError| Failure::of(Exit::Failed, &error).while_doing("cannot write to the server");
    let device = Client::attach(folder, &client::Options { export: partial.to_owned(), ..Default::default() })?;
    let (mut done, mut shown) = (Done::new(opened), Shown::start(app, name));
    let (mut at, mut buffer, mut before) = (0, vec![0; PIECE as usize], None);
    loop {
        let stretches = opened.stretches(at);
        let Some(last) = stretches.last() else { break };
        at = last.offset + last.length;
        for part in stretches.iter().filter(|part| !part.is_hole) {
            let end = part.offset + part.length;
            for from in (part.offset..end).step_by(PIECE as usize) {
                if cancel.is_cancelled() {
                    return Err(Failure::new(Exit::Interrupted, "interrupted; nothing was created"));
                }
                opened.expect_lease()?;
                let piece = &mut buffer[..PIECE.min(end - from) as usize];
                opened.read(from, piece)?;
                // The next piece is read while the server takes this one.
                let ticket = device.submit_write(from, piece, false).map_err(failed)?;
                if let Some(before) = before.replace(ticket) {
                    device.wait(before).map_err(failed)?;
                }
                done.reach(opened, from + piece.len() as u64);
                shown.reach(done.bytes, done.of);
            }
        }
    }
    if let Some(last) = before {
        device.wait(last).map_err(failed)?;
    }
    device.flush().map_err(failed)?;
    Ok(done.bytes)
}

/// Finds a file of a snapshot, and takes a lease.
pub(in crate::commands) fn open_snapshot(
    app: &App,
    given: &OsStr,
    inside: Option<&std::ffi::OsString>,
    filter: &FilterArgs,
    fetch: &FetchArgs,
) -> Result<Opened, Failure> {
    let reference = refs::parse(given)?;
    let path = refs::one_path(&reference, inside)?;
    let repository = app.open()?.repository;
    let versions = Versions::load_named(app, &repository, filter, &[&reference.snapshot])?;
    let version = versions.find(app, &reference.snapshot)?;
    Opened::open(app, &repository, &version, path.as_deref(), fetch, 1)
}
