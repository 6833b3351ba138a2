//! `serve-block --overlay`: a file of a snapshot as a device that can be written. Writes go to a
//! volume over the snapshot, which later runs continue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use larder_format::volume_manifest::VolumeEntry;
use larder_nbd::{Export, ExportError, Exports, Limits, Listed, Server};
use larder_volume::{Store, VolumeError, VolumeExports};
use serde_json::json;

use super::{IN_FLIGHT, LOOK};
use crate::app::App;
use crate::args::ServeBlockArgs;
use crate::commands::listen::{Address, Place};
use crate::commands::volume::{Below, Opened, Parents, create_over, open_server, open_snapshot, split};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::absolute;
use crate::sizes;

/// Merges and collection are looked at this often.
const MAINTENANCE: Duration = Duration::from_secs(10);

pub(super) fn run(app: &App, args: &ServeBlockArgs, volume: &std::ffi::OsStr) -> Result<Exit, Failure> {
    let (folder, name) = split(volume)?;
    if args.hydrate || args.mount_file.is_some() {
        return Err(Failure::usage("--overlay cannot be combined with --hydrate and --mount-file")
            .advise("`larder volume hydrate` copies everything into the volume"));
    }
    if args.metrics.is_some() {
        return Err(Failure::usage("--overlay cannot be combined with --metrics")
            .advise("`larder volume serve` serves the volume with metrics"));
    }
    let address = Address::of(&args.listen)?;
    let opened = open_snapshot(app, &args.snapshot, args.inside.as_ref(), &args.filter, &args.fetch)?;
    let (store, _) = open_server(app, &folder, &args.password, |options| options)?;
    let (store, cancel) = (Arc::new(store), app.interrupts.job_begins());
    let volume = volume_over(&store, &name, &opened)?;
    let below = opened.below.clone();
    let parents = Parents::of(&store, volume.clone(), opened);
    let exports = Only { exports: VolumeExports::new(store.clone()), name: name.clone() };
    let limits = Limits { memory: IN_FLIGHT, ..Limits::default() };
    let server = Server::new(Arc::new(exports), limits);
    let place = address.listen(&server, args.listen.tls.as_deref())?;
    announce(app, &volume, &below, &place)?;
    let (sender, stopped) = channel();
    app.interrupts.on_cancel(move || {
        // Nobody waits at the end of the command.
        let _ = sender.send(());
    });
    let ends = AtomicBool::new(false);
    let ended = std::thread::scope(|scope| {
        scope.spawn(|| store.commit_in_background(LOOK, &|| ends.load(Ordering::Relaxed)));
        scope.spawn(|| store.maintain_in_background(MAINTENANCE, &|| ends.load(Ordering::Relaxed)));
        let mut ended = Ok(());
        while ended.is_ok() && !cancel.is_cancelled() {
            // The time out is for a signal between the look and the wait.
            let _ = stopped.recv_timeout(LOOK);
            ended = parents.expect_leases(&store);
        }
        ends.store(true, Ordering::Relaxed);
        store.end_maintenance();
        ended
    });
    if let Err(error) = server.shutdown() {
        app.out.warn(&format!("the volume was not flushed: {}", error.message));
    }
    store.close()?;
    if app.out.is_json() {
        app.out.json_now(&json!({"message_type": "serve_block", "event": "ended"}))?;
    } else {
        app.out.info("everything is durable")?;
    }
    ended.map(|()| Exit::Done)
}

/// The volume of a name: a new one, or the one of an earlier run over the same file.
fn volume_over(store: &Store, name: &str, opened: &Opened) -> Result<VolumeEntry, Failure> {
    let volume = match store.volume(name) {
        Ok(volume) => volume,
        Err(VolumeError::NoVolume(_)) => return Ok(create_over(store, name, opened)?),
        Err(error) => return Err(error.into()),
    };
    let advice = "`larder volume serve` serves it";
    match Below::of(&volume).transpose()? {
        Some(below) if below == opened.below => Ok(volume),
        Some(below) => {
            let message = format!("volume {name} is over {}, and not over {}", below.shown(), opened.below.shown());
            Err(Failure::usage(message).advise(advice))
        }
        None => Err(Failure::usage(format!("volume {name} exists, and is not over a snapshot")).advise(advice)),
    }
}

fn announce(app: &App, volume: &VolumeEntry, below: &Below, place: &Place) -> Result<(), Failure> {
    let (out, uri) = (&app.out, place.uri(&volume.name));
    if out.is_json() {
        return out.json_now(&json!({
            "message_type": "serve_block",
            "event": "serving",
            "snapshot_id": below.snapshot,
            "path": absolute(&below.path),
            "export": volume.name,
            "volume": volume.name,
            "size": volume.size,
            "uri": uri,
        }));
    }
    out.line(format!(
        "serving {} ({}), writes go to volume {}:",
        below.shown(),
        sizes::show(volume.size),
        volume.name
    ))?;
    out.line(format!("  {uri}"))?;
    out.info("")?;
    out.info("Use it with `qemu-system-x86_64 -drive file=URI,format=raw`, `nbdcopy`, or `nbdfuse DIR URI`.")?;
    out.info("Ctrl-C or SIGTERM makes everything durable and stops it.")?;
    out.flush()
}

/// One volume of a store. The empty name is the same export.
struct Only {
    exports: VolumeExports,
    name: String,
}

impl Exports for Only {
    fn find(&self, name: &str) -> Result<Option<Arc<dyn Export>>, ExportError> {
        if name.is_empty() || name == self.name { self.exports.find(&self.name) } else { Ok(None) }
    }

    fn list(&self) -> Vec<Listed> {
        vec![Listed { name: self.name.clone(), description: String::new() }]
    }
}
