//! `larder serve-block`: a file of a snapshot as a read-only network block device.
//!
//! The lease of the read is held while the device is served (`larder_reader::Reading`). It ends
//! when everything was copied to the disk cache, or with the command.

mod device;
mod mounted;
mod overlay;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use larder_format::ErrorKind;
use larder_format::roles::Roles;
use larder_job::{Cancel, JobContext, Problem, Progress};
use larder_nbd::{Limits, Server, Single};
use larder_reader::{Hydrated, RandomError, RandomReader, ReadError, Reading, VersionReader};
use larder_store::catalog::Version;
use serde_json::{Value, json};

use self::device::Device;
use self::mounted::Mounted;
use super::client_lines;
use super::listen::{Address, Place};
use super::reading_metrics::{self, Served};
use super::volume::Shown;
use crate::app::App;
use crate::args::ServeBlockArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Output, absolute, safe, summary};
use crate::refs::{self, Versions};
use crate::sizes;

/// How often the lease is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// Bytes of requests and replies of all clients together.
const IN_FLIGHT: usize = 64 << 20;

pub(super) fn run(app: &App, args: &ServeBlockArgs) -> Result<Exit, Failure> {
    if let Some(volume) = &args.overlay {
        return overlay::run(app, args, volume);
    }
    let reference = refs::parse(&args.snapshot)?;
    let path = refs::one_path(&reference, args.inside.as_ref())?;
    let address = Address::of(&args.listen)?;
    if args.hydrate && args.fetch.cache_disk == Some(0) {
        return Err(Failure::usage("--hydrate copies to the disk cache, which --cache-disk 0 disables"));
    }
    if let Some(folder) = &args.mount_file {
        Mounted::check(folder)?;
    }
    let opened = app.open()?;
    opened.repository.require(Roles::RESTORE, "serving a snapshot")?;
    let versions = Versions::load_named(app, &opened.repository, &args.filter, &[&reference.snapshot])?;
    let version = versions.find(app, &reference.snapshot)?;
    let cancel = app.interrupts.job_begins();
    let damage = Arc::new(Damage { out: app.out.clone(), was_met: AtomicBool::new(false) });
    let context = JobContext { progress: damage.clone(), ..app.reading(opened.repository) };
    let (version, reading, manifest) = refs::begin(app, &context, version, &args.filter, &reference.snapshot)?;
    let reader = VersionReader::new(&context, manifest);
    let is_held = reading.has_lease();
    if !is_held {
        // A device is served for days. So this is more than a note.
        app.out.warn("no lease was created, so a pass may remove data of the snapshot once it is forgotten");
    }
    let mut lease = Lease { reading: Some(reading), is_held, version: &version };
    let mut fetch = app.fetching(&args.fetch)?;
    if args.hydrate && args.fetch.cache_disk.is_none() {
        fetch.cache_disk = u64::MAX;
    }
    let reader = reader.fetching(fetch);
    let file = reader.random_file(path.as_deref())?;
    let random = Arc::new(RandomReader::open(reader, &file)?);
    // Nearly every client begins with it.
    random.prefetch(0, 1);
    let export = String::from_utf8_lossy(&file.path).into_owned();
    let description = refs::shown(&version.summary);
    let device = Arc::new(Device { random: random.clone(), description });
    let limits = Limits { memory: IN_FLIGHT, ..Limits::default() };
    let server = Arc::new(Server::new(Arc::new(Single::new(export.clone(), device)), limits));
    let render = {
        let (start_ms, server, random, damage) =
            (context.clock.now_ms(), server.clone(), random.clone(), damage.clone());
        let store = context.repository.store().clone();
        move || {
            let (fetched, requests) = (random.fetched(), store.stats());
            let met_damage = damage.was_met.load(Ordering::Relaxed);
            let served = Served { start_ms, fetched, requests, met_damage };
            served.render("larder_block_", |text| {
                text.gauge("connections", "Connections of clients.", server.connections() as u64);
                text.gauge("size_bytes", "Size of the device.", random.size());
            })
        }
    };
    let metrics = reading_metrics::start(app, args.metrics.as_deref(), Arc::new(render))?;
    let place = address.listen(&server, args.listen.tls.as_deref())?;
    // Declared after the place: the server's socket goes before the folder that it is in.
    let (place, server) = (place, server);
    let mounted = match &args.mount_file {
        Some(folder) => Some(Mounted::start(folder, &place.uri(&export), &app.out)?),
        None => None,
    };
    let served = OnDevice { app, version: &version, random: &random, export: &export, place: &place, is_held };
    served.announce(mounted.as_ref())?;
    let ended = served.until_the_end(&mut lease, args.hydrate, &cancel, &damage);
    // Clients end before what they read.
    drop(mounted);
    drop(metrics);
    drop(server.shutdown());
    let was_met = damage.was_met.load(Ordering::Relaxed);
    let ended = match ended {
        Ok(_) if was_met && let Some(forgotten) = lease.forgotten() => Err(forgotten),
        ended => ended,
    };
    lease.close();
    if was_met {
        app.note_damage();
    }
    app.out.end_if_failed(served.farewell());
    ended
}

/// The lease of the read, until it is not needed any more.
struct Lease<'a> {
    reading: Option<Reading>,
    /// Whether the repository accepted it.
    is_held: bool,
    version: &'a Version,
}

impl Lease<'_> {
    fn close(&mut self) {
        if let Some(reading) = self.reading.take() {
            reading.end();
        }
    }

    /// The failure when the snapshot is forgotten and its data is not protected: missing objects
    /// are no damage then. Under a lease that counts, they are.
    fn forgotten(&self) -> Option<Failure> {
        let reading = self.reading.as_ref()?;
        let is_protected = self.is_held && reading.expect_lease().is_ok();
        (!is_protected && reading.is_forgotten()).then(|| ReadError::Forgotten { id: self.version.id() }.into())
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        self.close();
    }
}

/// Tells of damage that clients meet, and of notes.
struct Damage {
    out: Output,
    was_met: AtomicBool,
}

impl Progress for Damage {
    fn note(&self, text: &str) {
        self.out.remark(&format!("note: {text}"));
    }

    fn problem(&self, problem: &Problem) {
        self.was_met.store(true, Ordering::Relaxed);
        self.out.item_error(&safe(&String::from_utf8_lossy(&problem.path)), "read", &problem.message);
    }
}

/// Something that ends a wait.
enum Event {
    /// A signal came.
    Stop,
    Hydrated(Result<Hydrated, RandomError>),
}

/// A device that is served.
struct OnDevice<'a> {
    app: &'a App,
    version: &'a Version,
    random: &'a Arc<RandomReader>,
    export: &'a str,
    place: &'a Place,
    /// Whether a lease protects the snapshot.
    is_held: bool,
}

impl OnDevice<'_> {
    /// Says what is served and what to type on a client.
    fn announce(&self, mounted: Option<&Mounted>) -> Result<(), Failure> {
        let (out, uri) = (&self.app.out, self.place.uri(self.export));
        if out.is_json() {
            return self.event("serving", |event| {
                event["snapshot_id"] = json!(self.version.id().to_string());
                event["path"] = json!(absolute(self.export.as_bytes()));
                event["export"] = json!(self.export);
                event["size"] = json!(self.random.size());
                event["uri"] = json!(uri);
                event["lease"] = json!(self.is_held);
                event["mounted"] = json!(mounted.map(|mounted| mounted.file.to_string_lossy()));
            });
        }
        let (path, size) = (absolute(self.export.as_bytes()), sizes::show(self.random.size()));
        out.line(format!("serving {path} of {} ({size}), read-only:", refs::shown(&self.version.summary)))?;
        out.line(format!("  {uri}"))?;
        if let Some(mounted) = mounted {
            out.line(format!("  {}", mounted.file.display()))?;
        }
        out.info("")?;
        for (why, line) in client_lines::lines(self.place, self.export, client_lines::Access::ReadOnly) {
            out.info(format!("# {why}\n{line}"))?;
        }
        out.info("")?;
        out.info("Stop it with Ctrl-C or SIGTERM.")?;
        out.flush()
    }

    /// Waits for a signal or a lost lease, and copies everything meanwhile if it shall.
    fn until_the_end(
        &self,
        lease: &mut Lease<'_>,
        hydrates: bool,
        cancel: &Cancel,
        damage: &Damage,
    ) -> Result<Exit, Failure> {
        let (sender, events) = channel();
        let stops = sender.clone();
        self.app.interrupts.on_cancel(move || drop(stops.send(Event::Stop)));
        if cancel.is_cancelled() {
            return Ok(Exit::Done);
        }
        std::thread::scope(|scope| {
            if hydrates {
                let (random, cancel) = (self.random.clone(), cancel.clone());
                let shown = Shown::start(self.app, &absolute(self.export.as_bytes()));
                scope.spawn(move || hydrate(&random, &cancel, shown, &sender));
            }
            let ended = self.wait(&events, lease, damage);
            // The copy ends with the command.
            cancel.cancel();
            ended
        })
    }

    fn wait(&self, events: &Receiver<Event>, lease: &mut Lease<'_>, damage: &Damage) -> Result<Exit, Failure> {
        let (mut exit, mut knows_damage) = (Exit::Done, false);
        loop {
            match events.recv_timeout(LOOK) {
                Ok(Event::Stop) => return Ok(exit),
                Ok(Event::Hydrated(Ok(hydrated))) => {
                    lease.close();
                    // Clients need the device, whether or not anybody reads this.
                    self.app.out.end_if_failed(self.hydrated(&hydrated));
                }
                Ok(Event::Hydrated(Err(RandomError::Interrupted))) => {}
                Ok(Event::Hydrated(Err(error))) => {
                    exit = Exit::Partly;
                    let is_damage = error.kind() == ErrorKind::Damaged;
                    let failure = Failure::from(error);
                    let message = format!("not everything was copied to the disk cache: {}", failure.message);
                    self.app.out.warn(&message);
                    if is_damage {
                        damage.was_met.store(true, Ordering::Relaxed);
                        exit = Exit::Done;
                    }
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            if let Some(reading) = &lease.reading {
                reading.expect_lease()?;
            }
            if !knows_damage && damage.was_met.load(Ordering::Relaxed) {
                knows_damage = true;
                if let Some(forgotten) = lease.forgotten() {
                    return Err(forgotten);
                }
            }
        }
    }

    fn hydrated(&self, hydrated: &Hydrated) -> Result<(), Failure> {
        if self.app.out.is_json() {
            return self.event("hydrated", |event| {
                event["bytes"] = json!(hydrated.bytes);
                event["bytes_on_disk"] = json!(hydrated.on_disk);
            });
        }
        let (bytes, disk) = (sizes::show(hydrated.bytes), sizes::show(hydrated.on_disk));
        self.app
            .out
            .info(format!("copied {bytes} to the disk cache ({disk}); the repository is not needed any more"))?;
        self.app.out.flush()
    }

    /// Says what was fetched.
    fn farewell(&self) -> Result<(), Failure> {
        let fetched = self.random.fetched();
        if self.app.out.is_json() {
            return self.event("ended", |event| {
                event["bytes_read"] = json!(fetched.used);
                if let Some(event) = event.as_object_mut() {
                    summary::put_fetched(event, &fetched);
                }
            });
        }
        if self.app.out.verbose() > 0 {
            self.app.out.remark(&summary::fetched(&fetched));
        }
        Ok(())
    }

    /// One line of JSON.
    fn event(&self, name: &str, fill: impl FnOnce(&mut Value)) -> Result<(), Failure> {
        let mut event = json!({ "message_type": "serve_block", "event": name });
        fill(&mut event);
        self.app.out.json_now(&event)
    }
}

fn hydrate(random: &RandomReader, cancel: &Cancel, mut shown: Shown, sender: &Sender<Event>) {
    let copied = random.hydrate(cancel, |done, all| shown.reach(done, all));
    // Before its result.
    drop(shown);
    // Nobody waits at the end of the command.
    drop(sender.send(Event::Hydrated(copied)));
}
