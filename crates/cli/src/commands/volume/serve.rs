//! `larder volume serve`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use larder_format::volume_manifest::VolumeEntry;
use larder_nbd::{Limits, Server};
use larder_volume::Options;
use serde_json::json;

use super::doors::{Doors, Wanted};
use super::host::{CreateOver, Host};
use super::target::open_server;
use super::users::CountedExports;
use super::{Parents, hydrate};
use crate::app::App;
use crate::args::VolumeServeArgs;
use crate::commands::client_lines::{Access, lines};
use crate::commands::listen::{Address, Place};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::sizes;

/// Writes wait this long for a commit, if nobody asks for one.
const IDLE: Duration = Duration::from_secs(1);
/// The interval at which runs are merged and containers collected, if there is reason to.
const MAINTAIN: Duration = Duration::from_secs(5);
/// Snapshots below volumes that cannot be read are looked for again after this many waits.
const LOOK_AGAIN: u32 = 60;
/// Bytes of requests and replies of all clients together.
const IN_FLIGHT: usize = 64 << 20;

pub(super) fn run(app: &App, args: &VolumeServeArgs) -> Result<Exit, Failure> {
    let address = Address::of(&args.listen)?;
    let wanted = Wanted::of(args)?;
    let (store, recovery) = open_server(app, &args.store, &args.password, |options| Options {
        filters: args.filters.clone(),
        index_memory: args.index_memory.map_or(options.index_memory, |bytes| bytes as usize),
        ..options
    })?;
    let parents = Arc::new(Parents::attach_all(app, &store)?);
    let cancel = app.interrupts.job_begins();
    let mut host = Host::new(store, recovery);
    let store = host.store.clone();
    let limits = Limits { memory: IN_FLIGHT, ..Limits::default() };
    let exports = CountedExports::new(store.clone(), host.users.clone());
    let server = Arc::new(Server::new(Arc::new(exports), limits));
    let counted = server.clone();
    host.clients = Some(Box::new(move || counted.connections() as u64));
    let (sender, events) = channel();
    host.create_over = Some(by_main_thread(sender.clone()));
    (host.parents, host.cancel) = (parents.clone(), cancel.clone());
    let host = Arc::new(host);
    let place = address.listen(&server, args.listen.tls.as_deref())?;
    // Declared after the place: the server's socket goes before the folder that it is in.
    let (place, server) = (place, server);
    let doors = wanted.open(&host, &server, store.serial(), &app.out)?;
    let served = Served { app, host: &host, place: &place, doors: &doors };
    served.announce(&store.volumes())?;
    app.interrupts.on_cancel(move || {
        // Nobody waits at the end of the command.
        let _ = sender.send(Event::Stop);
    });
    let ends = AtomicBool::new(false);
    let kept = std::thread::scope(|scope| {
        scope.spawn(|| store.commit_in_background(IDLE, &|| ends.load(Ordering::Relaxed)));
        scope.spawn(|| store.maintain_in_background(MAINTAIN, &|| ends.load(Ordering::Relaxed)));
        if args.hydrate {
            scope.spawn(|| hydrate::copy_all(app, &store, &parents));
        }
        let (mut kept, mut waits) = (Ok(()), 0u32);
        while kept.is_ok() && !cancel.is_cancelled() {
            // The time out is for a signal between the look and the wait.
            if let Ok(Event::CreateOver { name, below, reply }) = events.recv_timeout(IDLE) {
                // Its client may be gone.
                drop(reply.send(parents.create(app, &store, &name, &below)));
            }
            waits = waits.wrapping_add(1);
            kept = parents.look_again(app, &store, waits.is_multiple_of(LOOK_AGAIN));
        }
        // The copy ends with the command.
        cancel.cancel();
        ends.store(true, Ordering::Relaxed);
        store.end_maintenance();
        kept
    });
    // Clients that wait for a new volume get an error.
    drop(events);
    doors.close(&app.out);
    if let Err(error) = server.shutdown() {
        app.out.warn(&format!("a volume was not flushed: {}", error.message));
    }
    store.close()?;
    // Clients need no reader of this output.
    app.out.end_if_failed(farewell(app));
    kept.map(|()| Exit::Done)
}

/// Something that ends the wait of the main thread.
enum Event {
    /// A signal came.
    Stop,
    /// A new volume over a snapshot is wanted. Only this thread opens repositories.
    CreateOver { name: String, below: String, reply: Sender<Result<VolumeEntry, Failure>> },
}

fn by_main_thread(events: Sender<Event>) -> CreateOver {
    Box::new(move |name, below| {
        let ends = || Failure::new(Exit::Failed, "the server of the store is about to end");
        let (reply, answer) = channel();
        let event = Event::CreateOver { name: name.to_owned(), below: below.to_owned(), reply };
        events.send(event).map_err(|_| ends())?;
        let volume = answer.recv().map_err(|_| ends())??;
        Ok(json!({"message_type": "volume_created", "name": volume.name, "size": volume.size}))
    })
}

fn farewell(app: &App) -> Result<(), Failure> {
    if app.out.is_json() {
        app.out.json_now(&json!({"message_type": "volume_serve", "event": "ended"}))
    } else {
        app.out.info("everything is durable")?;
        app.out.flush()
    }
}

/// A store that is served.
struct Served<'a> {
    app: &'a App,
    host: &'a Host,
    place: &'a Place,
    doors: &'a Doors,
}

impl Served<'_> {
    /// Says what is served, and what to type on a client.
    fn announce(&self, volumes: &[VolumeEntry]) -> Result<(), Failure> {
        let (out, place) = (&self.app.out, self.place);
        let file = |name: &str| self.doors.files.as_ref().map(|files| files.folder().join(name));
        let target = |volume: &VolumeEntry| self.doors.iscsi.as_ref().and_then(|iscsi| iscsi.target(volume.id));
        if out.is_json() {
            let export = |volume: &VolumeEntry| {
                json!({
                    "name": volume.name,
                    "size": volume.size,
                    "uri": place.uri(&volume.name),
                    "file": file(&volume.name).map(|file| file.to_string_lossy().into_owned()),
                    "target": target(volume),
                    "problem": self.host.parents.missing(&self.host.store, volume),
                })
            };
            return out.json_now(&json!({
                "message_type": "volume_serve",
                "event": "serving",
                "exports": volumes.iter().map(export).collect::<Vec<_>>(),
                "iscsi": self.doors.iscsi.as_ref().map(|iscsi| iscsi.portal()),
                "metrics": self.doors.metrics.as_ref().map(|metrics| format!("http://{}/metrics", metrics.address)),
                "commits_replayed": self.host.recovery.records,
                "bytes_replayed": self.host.recovery.bytes,
            }));
        }
        if volumes.is_empty() {
            out.warn("the store has no volumes; `larder volume create` makes one, also while it is served");
        }
        for volume in volumes {
            out.line(format!("serving {} ({}):", volume.name, sizes::show(volume.size)))?;
            out.line(format!("  {}", place.uri(&volume.name)))?;
            for more in [file(&volume.name).map(|file| file.display().to_string()), target(volume)] {
                more.map_or(Ok(()), |more| out.line(format!("  {more}")))?;
            }
        }
        if let Some(metrics) = &self.doors.metrics {
            out.line(format!("metrics: http://{}/metrics", metrics.address))?;
        }
        out.info("")?;
        if let Some(first) = volumes.first() {
            for (why, line) in lines(place, &first.name, Access::ReadWrite) {
                out.info(format!("# {why}\n{line}"))?;
            }
            if let (Some(iscsi), Some(target)) = (&self.doors.iscsi, target(first)) {
                for (why, line) in iscsi.lines(&target) {
                    out.info(format!("# {why}\n{line}"))?;
                }
            }
            out.info("")?;
        }
        out.info("Stop it with Ctrl-C or SIGTERM.")?;
        out.flush()
    }
}
