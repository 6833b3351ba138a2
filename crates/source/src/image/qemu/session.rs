//! A backup's part of QEMU: what keeps the disk as it is, and the export of that.
//!
//! Everything has a name of the series. So the next backup of the series finds what a killed one
//! left, also the scratch folder, and removes it.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use larder_nbd::client::{Address, Client};
use serde_json::{Value, json};

use super::super::nbd::NbdImage;
use super::super::qmp::{Qmp, Refused};
use super::super::stops::Stops;
use super::super::tool::run;
use super::super::tracked::{Bitmap, Names};
use super::super::{Changes, Image, ImageError};
use super::disk::{Disk, Node, OWN, devices, nodes};

/// How long QEMU may take to end what it was told to end.
const END_MAX: Duration = Duration::from_secs(60);
/// How often that is looked at.
pub(super) const LOOK: Duration = Duration::from_millis(20);
/// How long a write of the guest waits for its old content to be kept (seconds). After that the
/// backup fails, and not the guest.
const KEEP_MAX: u32 = 30;
/// The name of the export.
const EXPORT: &str = "disk";
/// The file with old content, in the folder.
const SCRATCH: &str = "scratch";
/// The socket of the export, in the folder.
const SOCKET: &str = "nbd";

/// The names of what a backup has in QEMU. Those of nodes are short: QEMU has a limit.
struct Ours {
    /// The node with the old content.
    fleece: String,
    /// The node of its file, which tells where that is.
    file: String,
    /// The node in front of the disk.
    filter: String,
    /// The disk as it was.
    view: String,
    job: String,
    export: String,
    /// Copies of bitmaps begin so.
    copy: String,
    /// A bitmap without use, by which the disk behind a filter is found again.
    mark: String,
    /// The name of the folder.
    folder: String,
}

impl Ours {
    fn new(names: &Names) -> Self {
        let name = |what: &str| format!("{OWN}{}-{what}", names.tag());
        Self {
            fleece: name("f"),
            file: name("s"),
            filter: name("c"),
            view: name("v"),
            job: name("job"),
            export: name("export"),
            copy: name("copy"),
            mark: name("copy-of"),
            folder: names.folder(),
        }
    }
}

/// How the old content is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    /// By a filter. If it cannot keep something, reads of the old content fail from then on.
    Filter,
    /// By a job. If it cannot keep something, the write of the guest fails.
    Job,
}

/// See the module header.
pub(super) struct Session {
    pub(super) qmp: Qmp,
    pub(super) node: String,
    ours: Ours,
    folder: PathBuf,
    /// The bitmap of the new version.
    own: Option<String>,
    /// Copies of bitmaps.
    copies: Vec<String>,
    pub(super) kept: Kept,
}

impl Session {
    pub(super) fn new(qmp: Qmp, names: &Names, folder: &Path) -> Self {
        let (ours, folder) = (Ours::new(names), folder.to_owned());
        Self { qmp, node: String::new(), ours, folder, own: None, copies: Vec::new(), kept: Kept::Job }
    }

    /// Keeps the disk as it is now. Returns a note if it can be kept by a job only.
    pub(super) fn freeze(
        &mut self,
        disk: &Disk,
        names: &Names,
        old: &[Bitmap],
        keeps: bool,
    ) -> Result<Option<String>, ImageError> {
        let (scratch, size) = (self.folder.join(SCRATCH).display().to_string(), disk.size.to_string());
        run("qemu-img", ["create", "-q", "-f", "qcow2", "--", &scratch, &size])?;
        // Before the moment that is kept: a bitmap may have more changes than there are, and no
        // fewer.
        let own = keeps.then(|| names.of(names.job()));
        if let Some(name) = &own {
            let bitmap = json!({"node": disk.node, "name": name, "persistent": disk.is_persistent});
            self.qmp.ask("block-dirty-bitmap-add", bitmap)?;
        }
        self.own = own;
        let refused = match self.filter(disk, &scratch)? {
            Ok(()) => {
                self.kept = Kept::Filter;
                // After that moment, for the same reason.
                let copying = self.copying(disk, old);
                self.qmp.ask("transaction", json!({"actions": copying}))?;
                return Ok(None);
            }
            Err(refused) => refused.desc,
        };
        self.kept = Kept::Job;
        self.end_view(Some(&disk.node));
        self.tell("blockdev-del", json!({"node-name": self.ours.fleece}));
        let file = self.scratch_file(&scratch);
        let fleece = json!({"driver": "qcow2", "node-name": self.ours.fleece, "file": file, "backing": disk.node});
        self.qmp.ask("blockdev-add", fleece)?;
        let job = json!({"job-id": self.ours.job, "device": disk.node, "target": self.ours.fleece, "sync": "none"});
        self.qmp.ask("blockdev-backup", job)?;
        // After that moment, too. In one transaction, a disk with a thread of its own could be
        // written between its actions.
        let copying = self.copying(disk, old);
        self.qmp.ask("transaction", json!({"actions": copying}))?;
        Ok(Some(format!(
            "this QEMU cannot put a filter in front of {} ({refused}): if the scratch folder fills up, writes of the guest fail, and not only the backup",
            disk.node
        )))
    }

    fn scratch_file(&self, scratch: &str) -> Value {
        json!({"driver": "file", "node-name": self.ours.file, "filename": scratch})
    }

    /// Puts a filter between the disk and the device that uses it.
    fn filter(&mut self, disk: &Disk, scratch: &str) -> Result<Result<(), Refused>, ImageError> {
        let Some(device) = &disk.device else {
            return Ok(Err(Refused { desc: "no device uses it".to_owned() }));
        };
        let file = self.scratch_file(scratch);
        let Ours { fleece, filter, view, mark, .. } = &self.ours;
        let commands = [
            ("block-dirty-bitmap-add", json!({"node": disk.node, "name": mark, "disabled": true})),
            ("blockdev-add", json!({"driver": "qcow2", "node-name": fleece, "file": file})),
            (
                "blockdev-add",
                json!({
                    "driver": "copy-before-write",
                    "node-name": filter,
                    "file": disk.node,
                    "target": fleece,
                    "on-cbw-error": "break-snapshot",
                    "cbw-timeout": KEEP_MAX,
                }),
            ),
            // From here on the disk is kept.
            ("qom-set", json!({"path": device, "property": "drive", "value": filter})),
            ("blockdev-add", json!({"driver": "snapshot-access", "node-name": view, "file": filter})),
        ];
        self.copies.push(mark.clone());
        for (command, arguments) in commands {
            if let Err(refused) = self.qmp.try_ask(command, arguments)? {
                return Ok(Err(refused));
            }
        }
        Ok(Ok(()))
    }

    /// The actions that copy bitmaps of earlier versions.
    fn copying(&mut self, disk: &Disk, old: &[Bitmap]) -> Vec<Value> {
        let mut actions = Vec::new();
        for (number, bitmap) in whole(old).enumerate() {
            let copy = format!("{}-{number}", self.ours.copy);
            let (node, granularity) = (&disk.node, bitmap.granularity);
            let added = json!({"node": node, "name": copy, "disabled": true, "granularity": granularity});
            actions.push(action("block-dirty-bitmap-add", added));
            let merged = json!({"node": node, "target": copy, "bitmaps": [bitmap.name]});
            actions.push(action("block-dirty-bitmap-merge", merged));
            self.copies.push(copy);
        }
        actions
    }

    /// Exports the frozen disk, and connects to it.
    pub(super) fn connect(&mut self, old: &[Bitmap], stops: &Stops) -> Result<(NbdImage, Vec<Changes>), ImageError> {
        let socket = self.folder.join(SOCKET);
        let address = json!({"addr": {"type": "unix", "data": {"path": socket.display().to_string()}}});
        if let Err(refused) = self.qmp.try_ask("nbd-server-start", address)? {
            let why = "`nbd-server-stop` ends a server that is not needed any more";
            return Err(self.qmp.failed(format!("nbd-server-start: {}; {why}", refused.desc)));
        }
        let copies: Vec<_> = self.copies.iter().filter(|copy| **copy != self.ours.mark).cloned().collect();
        let (node, bitmaps) = match self.kept {
            // Behind a filter, bitmaps are not found by their names alone.
            Kept::Filter => {
                let named = copies.iter().map(|copy| json!({"node": self.node, "name": copy}));
                (&self.ours.view, named.collect::<Vec<_>>())
            }
            Kept::Job => (&self.ours.fleece, copies.iter().map(|copy| json!(copy)).collect()),
        };
        self.qmp.ask(
            "block-export-add",
            json!({"type": "nbd", "id": self.ours.export, "node-name": node, "name": EXPORT, "bitmaps": bitmaps}),
        )?;
        let contexts: Vec<_> = copies.iter().map(|copy| format!("qemu:dirty-bitmap:{copy}")).collect();
        let what = self.node.clone();
        let device = Client::connect(&Address::Unix(&socket), &NbdImage::options(EXPORT, &contexts));
        let device = device.map_err(|source| ImageError::Nbd { what: what.clone(), source })?;
        let image = NbdImage::over(device, what, stops);
        let mut changes = Vec::new();
        for (bitmap, context) in whole(old).zip(&contexts) {
            let (size, ranges) = (Image::size(&image), image.changes(context)?);
            changes.push(Changes { since: bitmap.version, size, ranges });
        }
        Ok((image, changes))
    }

    /// Whether the job kept the old content of all that the guest wrote.
    pub(super) fn job_is_sound(&mut self) -> Result<bool, ImageError> {
        let jobs = self.qmp.ask("query-block-jobs", json!({}))?;
        let job = jobs.as_array().and_then(|jobs| jobs.iter().find(|job| job["device"] == *self.ours.job));
        Ok(job.is_some_and(|job| job["io-status"] == "ok" && job.get("error").is_none()))
    }

    /// A remark if the guest stands still. A job that cannot keep old content fails writes of the
    /// guest, and most guests are stopped then.
    pub(super) fn standstill(&mut self) -> Option<String> {
        let status = self.qmp.try_ask("query-status", json!({})).ok()?.ok()?;
        (self.kept == Kept::Job && status["status"] == "io-error").then(|| {
            "the guest stands still after a failed write (is the scratch folder full?); `cont` continues it".to_owned()
        })
    }

    /// Removes the frozen disk, and all that belongs to it, also of a killed backup of this series.
    /// It is no error if some of it is not there. Says what QEMU has not let go of.
    pub(super) fn end(&mut self) -> Option<String> {
        let found = nodes(&mut self.qmp).unwrap_or_default();
        let scratch = found.iter().find(|node| node.is(&self.ours.file)).and_then(|node| node.file.as_deref());
        let mut folders = vec![self.folder.clone()];
        folders.extend(scratch.and_then(|file| self.old_folder(file)));
        let (export, job) = (self.ours.export.clone(), self.ours.job.clone());
        if self.tell("block-export-del", json!({"id": export, "mode": "hard"})) {
            self.until(|session| session.lists("query-block-exports", "id", &export).is_some_and(|has| !has));
        }
        // QEMU has one server at most. It is that of this series if it listens here.
        if folders.iter().any(|folder| UnixStream::connect(folder.join(SOCKET)).is_ok()) {
            self.tell("nbd-server-stop", json!({}));
        }
        let disk = if self.node.is_empty() { self.behind_filter(&found) } else { Some(self.node.clone()) };
        self.end_view(disk.as_deref());
        if self.tell("block-job-cancel", json!({"device": job, "force": true})) {
            self.until(|session| session.lists("query-block-jobs", "device", &job).is_some_and(|has| !has));
        }
        self.tell("blockdev-del", json!({"node-name": self.ours.fleece}));
        self.copies.clear();
        for node in &found {
            let begin = self.ours.copy.clone();
            for copy in node.bitmaps().filter(|name| name.starts_with(&begin)) {
                self.tell("block-dirty-bitmap-remove", json!({"node": node.name, "name": copy}));
            }
        }
        let ours = [&self.ours.filter, &self.ours.view, &self.ours.fleece];
        let is_ours = |node: &Node| ours.iter().any(|name| node.is(name));
        // An unnamed file would fill the disk unseen, so it stays while QEMU may use it.
        let folder = self.folder.display().to_string();
        match nodes(&mut self.qmp) {
            Ok(nodes) if !nodes.iter().any(is_ours) => {}
            Ok(_) => {
                let node = &self.ours.filter;
                return Some(format!(
                    "QEMU still keeps old content in {folder}: remove the nodes above {node}, and back up again"
                ));
            }
            Err(_) => {
                return Some(format!("QEMU does not answer any more; the next backup of the series removes {folder}"));
            }
        }
        for folder in &folders {
            let _ = std::fs::remove_file(folder.join(SCRATCH));
            let _ = std::fs::remove_file(folder.join(SOCKET));
        }
        // The folder of another run is empty now.
        for other in folders.iter().skip(1) {
            let _ = std::fs::remove_dir(other);
        }
        None
    }

    /// The disk behind the filter of a killed backup. `None` if it is not known for sure: a device
    /// must never get another disk.
    fn behind_filter(&self, found: &[Node]) -> Option<String> {
        let filter = found.iter().find(|node| node.is(&self.ours.filter))?;
        let is_it = |node: &&Node| node.file == filter.file && node.bitmaps().any(|name| *name == self.ours.mark);
        let mut disks = found.iter().filter(is_it);
        disks.next().filter(|_| disks.next().is_none())?.name.clone()
    }

    /// Connects the device with its disk again, and removes the nodes between them.
    fn end_view(&mut self, disk: Option<&str>) {
        let (filter, view) = (self.ours.filter.clone(), self.ours.view.clone());
        self.tell("blockdev-del", json!({"node-name": view}));
        for device in devices(&mut self.qmp).unwrap_or_default() {
            if let (true, Some(place), Some(disk)) = (device.uses(&filter), device.place(), disk) {
                self.tell("qom-set", json!({"path": place, "property": "drive", "value": disk}));
            }
        }
        self.tell("blockdev-del", json!({"node-name": filter}));
    }

    /// The folder of a killed backup of this series, of which QEMU uses the scratch file. It may be
    /// another one than that of this run.
    fn old_folder(&self, scratch: &Path) -> Option<PathBuf> {
        let folder = scratch.parent()?;
        let is_ours = scratch.file_name()? == SCRATCH && folder.file_name()? == &*self.ours.folder;
        (is_ours && folder != self.folder).then(|| folder.to_owned())
    }

    /// Removes bitmaps, and returns what did not work.
    pub(super) fn remove(&mut self, names: Vec<String>) -> Vec<String> {
        let mut remarks = Vec::new();
        for name in names {
            let arguments = json!({"node": self.node, "name": name});
            if let Err(error) = self.qmp.ask("block-dirty-bitmap-remove", arguments) {
                remarks.push(format!("bitmap {name} of {} stays: {error}", self.node));
            }
        }
        remarks
    }

    pub(super) fn remove_own(&mut self) -> Vec<String> {
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

/// Bitmaps that have all changes since their versions.
fn whole(old: &[Bitmap]) -> impl Iterator<Item = &Bitmap> {
    old.iter().filter(|bitmap| bitmap.is_whole)
}

fn action(kind: &str, data: Value) -> Value {
    json!({"type": kind, "data": data})
}
