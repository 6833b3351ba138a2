//! Disks of a running QEMU, or of `qemu-storage-daemon`, over its control socket.
//!
//! One transaction creates the bitmap of the new version (`tracked`), copies those of earlier ones,
//! and begins to keep the old content of all that the guest writes (fleecing). So the disk stays as
//! it is at that moment, for this backup, and the guest goes on:
//!
//! ```text
//! guest ──writes──▶ disk ──old content──▶ scratch file ◀──reads── NBD export ◀── backup
//!                    └──────────what was not written since───────────┘
//! ```
//!
//! The bitmaps of earlier versions are never stopped, and their copies are read. So a failure needs
//! no repair: the old bitmaps have all changes since their versions, also those during the backup.
//! What a killed backup left in QEMU is removed by the next one.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use larder_nbd::client::Client;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};

use super::nbd::NbdImage;
use super::qmp::Qmp;
use super::tool::run;
use super::tracked::{Bitmap, Ending, Names, Tracked};
use super::{Changes, Image, ImageError};

/// How long QEMU may take to end what it was told to end.
const END_MAX: Duration = Duration::from_secs(60);
/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// The name of the export.
const EXPORT: &str = "disk";

/// Opens a disk of a running QEMU as it is now. `device` names it: a node, or a device that uses
/// one. `folder` is for the scratch file and a socket, and QEMU has to be able to write there.
/// Without `keeps`, no bitmap is left or removed.
pub fn open(socket: &Path, device: &str, names: Names, folder: &Path, keeps: bool) -> Result<Tracked, ImageError> {
    let (qmp, ours) = (Qmp::connect(socket)?, Ours::new(&names, folder));
    let mut session = Session { qmp, node: String::new(), ours, own: None, copies: Vec::new() };
    // What a killed backup left. Its job has a node of its own above the disk.
    session.end();
    let disk = disk(&mut session.qmp, device)?;
    session.node.clone_from(&disk.node);
    session.remove_copies(&disk);
    let old: Vec<Bitmap> = disk.bitmaps.iter().filter_map(|bitmap| bitmap.of(&names)).collect();
    let opened = session.freeze(&disk, &names, &old, keeps).and_then(|()| session.connect(&old));
    let (image, changes) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            session.end();
            session.remove_own();
            return Err(error);
        }
    };
    let extents = match image.extents() {
        Ok(extents) => extents,
        Err(error) => {
            drop(image);
            session.end();
            session.remove_own();
            return Err(error);
        }
    };
    let mut remarks = Vec::new();
    if keeps && !disk.is_persistent {
        remarks.push(format!(
            "{device} is no qcow2 image, so QEMU forgets the changes when it ends, and the next backup then reads the whole disk"
        ));
    }
    let stopper = image.stopper();
    let session = Arc::new(Mutex::new(session));
    let image = Box::new(Frozen { image, session: session.clone() });
    let old = if keeps { old.into_iter().map(|bitmap| bitmap.name).collect() } else { Vec::new() };
    Ok(Tracked { image, extents, changes, remarks, stopper, ending: Box::new(Running { session, old }) })
}

/// A disk of QEMU.
struct Disk {
    node: String,
    size: u64,
    /// Whether its bitmaps outlive QEMU.
    is_persistent: bool,
    bitmaps: Vec<Listed>,
}

/// A node as QEMU describes it.
#[derive(Deserialize)]
struct Node {
    #[serde(rename = "node-name")]
    name: Option<String>,
    drv: String,
    image: Described,
    #[serde(rename = "dirty-bitmaps", default)]
    bitmaps: Vec<Listed>,
}

#[derive(Deserialize)]
struct Described {
    #[serde(rename = "virtual-size")]
    size: u64,
}

#[derive(Deserialize)]
struct Listed {
    name: Option<String>,
    recording: bool,
    #[serde(default)]
    inconsistent: bool,
    granularity: u32,
}

impl Listed {
    fn of(&self, names: &Names) -> Option<Bitmap> {
        let name = self.name.clone()?;
        let version = names.version(&name)?;
        Some(Bitmap { name, version, is_whole: self.recording && !self.inconsistent, granularity: self.granularity })
    }
}

/// A device as QEMU describes it.
#[derive(Deserialize)]
struct Device {
    device: String,
    qdev: Option<String>,
    inserted: Option<Inserted>,
}

#[derive(Deserialize)]
struct Inserted {
    #[serde(rename = "node-name")]
    node: Option<String>,
}

/// Finds a disk by the name of its node, or of the device that uses it.
fn disk(qmp: &mut Qmp, device: &str) -> Result<Disk, ImageError> {
    // A storage daemon has no devices.
    let devices = match qmp.try_ask("query-block", json!({}))? {
        Ok(devices) => serde_json::from_value(devices).map_err(|error| qmp.failed(error))?,
        Err(_) => Vec::<Device>::new(),
    };
    let is_it = |found: &Device| found.device == device || found.qdev.as_deref() == Some(device);
    let used = devices.into_iter().filter(is_it).find_map(|found| found.inserted?.node);
    let wanted = used.unwrap_or_else(|| device.to_owned());
    let nodes = qmp.ask("query-named-block-nodes", json!({"flat": true}))?;
    let nodes: Vec<Node> = serde_json::from_value(nodes).map_err(|error| qmp.failed(error))?;
    let node = nodes.into_iter().find(|node| node.name.as_ref() == Some(&wanted));
    let Some(Node { drv, image, bitmaps, .. }) = node else {
        return Err(qmp.failed(format!("it has no disk {device}")));
    };
    Ok(Disk { node: wanted, size: image.size, is_persistent: drv == "qcow2", bitmaps })
}

/// The names of what a backup has in QEMU. They are those of the series, so that the next backup
/// finds them.
struct Ours {
    /// A node; such names are short.
    fleece: String,
    job: String,
    export: String,
    /// Copies of bitmaps begin so.
    copy: String,
    scratch: PathBuf,
    socket: PathBuf,
}

impl Ours {
    fn new(names: &Names, folder: &Path) -> Self {
        let name = |what: &str| format!("larder-{}-{what}", names.tag());
        Self {
            fleece: name("f"),
            job: name("job"),
            export: name("export"),
            copy: name("copy"),
            scratch: folder.join("scratch"),
            socket: folder.join("nbd"),
        }
    }
}

/// A backup's part of QEMU.
struct Session {
    qmp: Qmp,
    node: String,
    ours: Ours,
    /// The bitmap of the new version.
    own: Option<String>,
    /// Copies of bitmaps.
    copies: Vec<String>,
}

impl Session {
    /// Keeps the disk as it is now.
    fn freeze(&mut self, disk: &Disk, names: &Names, old: &[Bitmap], keeps: bool) -> Result<(), ImageError> {
        let scratch = self.ours.scratch.display().to_string();
        let size = disk.size.to_string();
        run("qemu-img", ["create", "-q", "-f", "qcow2", "--", &scratch, &size])?;
        self.qmp.ask(
            "blockdev-add",
            json!({
                "driver": "qcow2",
                "node-name": self.ours.fleece,
                "file": {"driver": "file", "filename": scratch},
                "backing": self.node,
            }),
        )?;
        let (node, mut actions) = (&self.node, Vec::new());
        for (number, bitmap) in old.iter().enumerate().filter(|(_, bitmap)| bitmap.is_whole) {
            let copy = format!("{}-{number}", self.ours.copy);
            actions.push(action(
                "block-dirty-bitmap-add",
                json!({"node": node, "name": copy, "disabled": true, "granularity": bitmap.granularity}),
            ));
            actions.push(action(
                "block-dirty-bitmap-merge",
                json!({"node": node, "target": copy, "bitmaps": [bitmap.name]}),
            ));
            self.copies.push(copy);
        }
        let own = keeps.then(|| names.of(names.job()));
        if let Some(name) = &own {
            let bitmap = json!({"node": node, "name": name, "persistent": disk.is_persistent});
            actions.push(action("block-dirty-bitmap-add", bitmap));
        }
        actions.push(action(
            "blockdev-backup",
            json!({"job-id": self.ours.job, "device": node, "target": self.ours.fleece, "sync": "none"}),
        ));
        self.qmp.ask("transaction", json!({"actions": actions}))?;
        self.own = own;
        Ok(())
    }

    /// Exports the frozen disk, and connects to it.
    fn connect(&mut self, old: &[Bitmap]) -> Result<(NbdImage, Vec<Changes>), ImageError> {
        let socket = self.ours.socket.display().to_string();
        let address = json!({"addr": {"type": "unix", "data": {"path": socket}}});
        if let Err(refused) = self.qmp.try_ask("nbd-server-start", address)? {
            let why = "`nbd-server-stop` ends a server that is not needed any more";
            return Err(self.qmp.failed(format!("nbd-server-start: {}; {why}", refused.desc)));
        }
        self.qmp.ask(
            "block-export-add",
            json!({
                "type": "nbd",
                "id": self.ours.export,
                "node-name": self.ours.fleece,
                "name": EXPORT,
                "bitmaps": self.copies,
            }),
        )?;
        let contexts: Vec<_> = self.copies.iter().map(|copy| format!("qemu:dirty-bitmap:{copy}")).collect();
        let address = larder_nbd::client::Address::Unix(&self.ours.socket);
        let what = self.node.clone();
        let device = Client::connect(&address, &NbdImage::options(EXPORT, &contexts));
        let device = device.map_err(|source| ImageError::Nbd { what: what.clone(), source })?;
        let image = NbdImage::over(device, what);
        let mut changes = Vec::new();
        for (bitmap, context) in old.iter().filter(|bitmap| bitmap.is_whole).zip(&contexts) {
            let ranges = image.changes(context)?;
            changes.push(Changes { since: bitmap.version, size: image.size(), ranges });
        }
        Ok((image, changes))
    }

    /// Whether the old content of all that the guest wrote is still there.
    fn is_frozen(&mut self) -> Result<bool, ImageError> {
        let jobs = self.qmp.ask("query-block-jobs", json!({}))?;
        let job = jobs.as_array().and_then(|jobs| jobs.iter().find(|job| job["device"] == *self.ours.job));
        Ok(job.is_some_and(|job| job["io-status"] == "ok" && job.get("error").is_none()))
    }

    /// Removes the frozen disk, and all that belongs to it. It is no error if some of it is not
    /// there.
    fn end(&mut self) {
        let (export, job, fleece) = (self.ours.export.clone(), self.ours.job.clone(), self.ours.fleece.clone());
        if self.tell("block-export-del", json!({"id": export, "mode": "hard"})) {
            self.until(|session| session.lists("query-block-exports", "id", &export).is_some_and(|has| !has));
        }
        // QEMU has one server at most. It is that of this series if it listens here.
        if UnixStream::connect(&self.ours.socket).is_ok() {
            self.tell("nbd-server-stop", json!({}));
        }
        if self.tell("block-job-cancel", json!({"device": job, "force": true})) {
            self.until(|session| session.lists("query-block-jobs", "device", &job).is_some_and(|has| !has));
        }
        self.tell("blockdev-del", json!({"node-name": fleece}));
        for copy in std::mem::take(&mut self.copies) {
            self.tell("block-dirty-bitmap-remove", json!({"node": self.node, "name": copy}));
        }
        let _ = std::fs::remove_file(&self.ours.scratch);
        let _ = std::fs::remove_file(&self.ours.socket);
    }

    /// Removes the copies of a killed backup.
    fn remove_copies(&mut self, disk: &Disk) {
        let is_copy = |name: &&String| name.starts_with(&self.ours.copy);
        let copies: Vec<_> = disk.bitmaps.iter().filter_map(|bitmap| bitmap.name.as_ref()).filter(is_copy).collect();
        for copy in copies {
            self.tell("block-dirty-bitmap-remove", json!({"node": disk.node, "name": copy}));
        }
    }

    /// Removes bitmaps, and returns what did not work.
    fn remove(&mut self, names: Vec<String>) -> Vec<String> {
        let mut remarks = Vec::new();
        for name in names {
            let arguments = json!({"node": self.node, "name": name});
            if let Err(error) = self.qmp.ask("block-dirty-bitmap-remove", arguments) {
                remarks.push(format!("bitmap {name} of {} stays: {error}", self.node));
            }
        }
        remarks
    }

    fn remove_own(&mut self) -> Vec<String> {
        let own = self.own.take().into_iter().collect();
        self.remove(own)
    }

    /// Runs a command that may fail; returns whether it did not.
    fn tell(&mut self, command: &str, arguments: Value) -> bool {
        self.qmp.try_ask(command, arguments).is_ok_and(|answer| answer.is_ok())
    }

    /// Whether a list of QEMU has an item with this name; `None` without an answer.
    fn lists(&mut self, command: &str, key: &str, name: &str) -> Option<bool> {
        let answer = self.qmp.ask(command, json!({})).ok()?;
        Some(answer.as_array()?.iter().any(|item| item[key] == *name))
    }

    fn until(&mut self, mut is_so: impl FnMut(&mut Self) -> bool) {
        let begun = Instant::now();
        while !is_so(self) && begun.elapsed() < END_MAX {
            std::thread::sleep(LOOK);
        }
    }
}

fn action(kind: &str, data: Value) -> Value {
    json!({"type": kind, "data": data})
}

/// The disk as it was.
struct Frozen {
    image: NbdImage,
    session: Arc<Mutex<Session>>,
}

impl Image for Frozen {
    fn size(&self) -> u64 {
        self.image.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.image.read_at(offset, buffer)
    }

    fn finish(&self) -> io::Result<()> {
        match self.session.lock().is_frozen() {
            Ok(true) => Ok(()),
            Ok(false) => Err(io::Error::other(
                "QEMU could not keep the old content of what the guest wrote meanwhile: is the scratch folder full?",
            )),
            Err(error) => Err(io::Error::other(error)),
        }
    }
}

/// What comes after a backup.
struct Running {
    session: Arc<Mutex<Session>>,
    /// Bitmaps of earlier versions.
    old: Vec<String>,
}

impl Ending for Running {
    fn committed(self: Box<Self>) -> Vec<String> {
        let mut session = self.session.lock();
        session.end();
        session.remove(self.old.clone())
    }

    fn failed(self: Box<Self>) -> Vec<String> {
        let mut session = self.session.lock();
        session.end();
        session.remove_own()
    }
}

#[cfg(test)]
mod tests;
