//! `larder volume serve`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use larder_nbd::{Limits, Server};
use larder_volume::{Recovery, Store, VolumeExports};
use serde_json::json;

use super::{open, tell_recovery};
use crate::app::App;
use crate::args::VolumeServeArgs;
use crate::commands::listen::{Address, Place};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::sizes;

/// Writes wait this long for a commit, if nobody asks for one.
const IDLE: Duration = Duration::from_secs(1);
/// Bytes of requests and replies of all clients together.
const IN_FLIGHT: usize = 64 << 20;

pub(super) fn run(app: &App, args: &VolumeServeArgs) -> Result<Exit, Failure> {
    let address = Address::of(&args.listen)?;
    let (store, recovery) = open(app, &args.store)?;
    tell_recovery(app, &recovery);
    let (store, cancel) = (Arc::new(store), app.interrupts.job_begins());
    let limits = Limits { memory: IN_FLIGHT, ..Limits::default() };
    let server = Server::new(Arc::new(VolumeExports::new(store.clone())), limits);
    let place = address.listen(&server, args.listen.tls.as_deref())?;
    announce(app, &store, &place, &recovery)?;
    let (sender, stopped) = channel();
    app.interrupts.on_cancel(move || {
        // Nobody waits at the end of the command.
        let _ = sender.send(());
    });
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| store.commit_in_background(IDLE, &|| ends.load(Ordering::Relaxed)));
        while !cancel.is_cancelled() {
            // The time out is for a signal between the look and the wait.
            let _ = stopped.recv_timeout(IDLE);
        }
        ends.store(true, Ordering::Relaxed);
    });
    if let Err(error) = server.shutdown() {
        app.out.warn(&format!("a volume was not flushed: {}", error.message));
    }
    store.close()?;
    if app.out.is_json() {
        app.out.json_now(&json!({"message_type": "volume_serve", "event": "ended"}))?;
    } else {
        app.out.info("everything is durable")?;
    }
    Ok(Exit::Done)
}

fn announce(app: &App, store: &Store, place: &Place, recovery: &Recovery) -> Result<(), Failure> {
    let (out, volumes) = (&app.out, store.volumes());
    if out.is_json() {
        let exports: Vec<_> = volumes
            .iter()
            .map(|volume| json!({"name": volume.name, "size": volume.size, "uri": place.uri(&volume.name)}))
            .collect();
        return out.json_now(&json!({
            "message_type": "volume_serve",
            "event": "serving",
            "exports": exports,
            "commits_replayed": recovery.records,
            "bytes_replayed": recovery.bytes,
        }));
    }
    if volumes.is_empty() {
        out.warn("the store has no volumes; `larder volume create` makes one while no server runs");
    }
    for volume in &volumes {
        out.line(format!("serving {} ({}):", volume.name, sizes::show(volume.size)))?;
        out.line(format!("  {}", place.uri(&volume.name)))?;
    }
    out.info("")?;
    out.info("Use a volume with `qemu-system-x86_64 -drive file=URI,format=raw`, `nbdcopy`, or `nbdfuse DIR URI`.")?;
    out.info("Ctrl-C or SIGTERM ends this.")?;
    out.flush()
}
