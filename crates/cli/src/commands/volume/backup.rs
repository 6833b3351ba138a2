//! `larder volume backup`: a volume as a new snapshot of a repository.
//!
//! A snapshot of the volume is read. It is marked with the version that was made of it, and stays.
//! The next backup reads only the blocks that changed since then, and deletes it afterwards. Order:
//! snapshot, version, mark, deletion. After a crash between two of them, the next backup deletes
//! the snapshots that were left. If no snapshot is marked with the newest version, it reads
//! everything.
//!
//! The same requests go to the server of a store and to a store that is open here. Only the data
//! takes two ways (`image`). The repository is open in this process alone.

use std::ops::Range;
use std::path::{Path, PathBuf};

use larder_format::ids::JobId;
use larder_format::roles::Roles;
use larder_job::{Clock, SystemClock};
use larder_lnode::{BackupOptions, ImageInput, Input, MapTrust};
use larder_source::image::{Changes, Image};
use larder_volume::VolumeError;
use serde_json::{Map, Value, json};

use super::control::Client;
use super::goal::Goal;
use super::host::Host;
use super::image::{self, SnapshotImage};
use super::list::{Listed, Snapshot, volumes};
use super::request::{Parts, Request};
use super::target::{Target, target};
use super::{Parents, split};
use crate::app::App;
use crate::args::VolumeBackupArgs;
use crate::commands::backup::{default_series, perform};
use crate::environment;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::refs;
use crate::time;

/// Names of snapshots that backups make begin with it.
const PREFIX: &str = "backup-";
/// Bytes of a block.
const BLOCK: u64 = larder_format::volume_map::BLOCK_LEN as u64;

pub(super) fn run(app: &App, args: &VolumeBackupArgs) -> Result<Exit, Failure> {
    let tags = refs::new_tags(&args.tag)?;
    let (folder, name) = split(&args.volume)?;
    let shown = recorded_path(&folder, &name)?;
    let host = args.host.clone().unwrap_or_else(environment::host);
    if args.series.as_ref().is_some_and(String::is_empty) {
        return Err(Failure::usage("a series needs a name"));
    }
    let repository = app.open()?.repository;
    repository.require(Roles::BACKUP, "a backup")?;
    let origin = match target(app, &folder, &args.password)? {
        Target::Served(_) => Origin::Served(folder),
        Target::Opened(host) => Origin::Opened(host),
    };
    let _parents = match &origin {
        Origin::Opened(host) => {
            let volume = host.store.volume(&name)?;
            Some(Parents::attach(app, &host.store, Some(&repository), &volume)?)
        }
        // It has them.
        Origin::Served(_) => None,
    };
    let volumes = origin.volumes()?;
    let missing = || VolumeError::NoVolume(name.clone());
    let volume = volumes.iter().find(|volume| volume.name == name).ok_or_else(missing)?;
    let default = || default_series(&host, std::slice::from_ref(&shown));
    let goal = Goal::of(repository.config().repository, args.series.as_deref(), &volume.snapshots, default);
    goal.expect_own(volume, &volumes)?;
    let series = goal.series.clone();
    let snapshots = &volume.snapshots;
    let before = goal.newest_backup(snapshots).filter(|_| !args.force);
    let snapshot = origin.begin(&name, snapshots, &goal)?;
    let input = origin.changes(before.as_ref(), &snapshot).and_then(|changes| {
        let image = origin.image(&name, &snapshot)?;
        // The map comes from the table of blocks, between two snapshots that the store keeps.
        let (changes, trust) = (changes.into_iter().collect(), MapTrust::Full);
        Ok(Input::Image(ImageInput { path: name.clone().into_bytes(), image, extents: None, changes, trust }))
    });
    let performed = input.and_then(|input| {
        let options = BackupOptions {
            host,
            user: environment::user(),
            tags,
            paths: vec![shown],
            program: format!("larder {}", env!("CARGO_PKG_VERSION")),
            compression: app.compression(),
            layout_of_settings: true,
            index_memory: app.global.memory() / 4,
            scratch: app.scratch(),
            ..BackupOptions::new(series)
        };
        perform(app, &repository, input, None, options)
    });
    let performed = match performed {
        Ok(performed) => performed,
        Err(failure) => {
            // Of no use to the next backup.
            origin.delete(app, &name, &snapshot);
            origin.close()?;
            return Err(failure);
        }
    };
    if let Some(version) = &performed.report.version {
        let mark = Request::Mark { id: snapshot.id, mark: goal.mark(Some(version.id)) };
        match origin.ask(&mark) {
            Ok(_) => {
                for old in snapshots.iter().filter(|old| goal.is_of(old)) {
                    origin.delete(app, &name, old);
                }
            }
            // The snapshot of the repository is whole.
            Err(failure) => app.out.warn(&format!(
                "the store cannot note this backup, so the next one reads the whole volume: {}",
                failure.message
            )),
        }
    }
    origin.close()?;
    let mut more = Map::new();
    more.insert("volume".to_owned(), json!(name));
    more.insert("volume_snapshot".to_owned(), json!(format!("{name}@{}", snapshot.name)));
    performed.tell(app, more)?;
    Ok(performed.exit())
}

/// The path of a volume that the version records.
fn recorded_path(folder: &Path, name: &str) -> Result<Vec<u8>, Failure> {
    environment::absolute(&folder.join(name).into_os_string())
}

/// Where a volume is.
enum Origin {
    /// In a store that is open here.
    Opened(Box<Host>),
    /// In a folder that a server has open.
    Served(PathBuf),
}

impl Origin {
    fn ask(&self, request: &Request) -> Result<Value, Failure> {
        self.ask_parts(request, &mut |_| Ok(()))
    }

    fn ask_parts(&self, request: &Request, parts: Parts<'_>) -> Result<Value, Failure> {
        match self {
            Self::Opened(host) => host.execute(request, parts),
            // Each time: the server closes connections that are silent, as one is during a backup.
            Self::Served(folder) => match Client::connect(folder)? {
                Some(mut client) => client.ask_parts(request, parts),
                None => Err(Failure::new(Exit::Failed, "the server of the store ended")),
            },
        }
    }

    /// All volumes and their snapshots, the oldest first.
    fn volumes(&self) -> Result<Vec<Listed>, Failure> {
        volumes(self.ask(&Request::List)?)
    }

    /// Takes the snapshot that is read.
    fn begin(&self, volume: &str, others: &[Snapshot], goal: &Goal) -> Result<Snapshot, Failure> {
        let name = format!("{PREFIX}{}", time::compact(SystemClock.now_ms()));
        let more = (2..).map(|number| format!("{name}-{number}"));
        let is_free = |name: &String| !others.iter().any(|other| other.name == *name);
        let snapshot = std::iter::once(name.clone()).chain(more).find(is_free).unwrap_or(name);
        let mark = Some(goal.mark(None));
        let made = self.ask(&Request::Snapshot { volume: volume.to_owned(), snapshot, mark })?;
        let id = made["id"].as_u64().and_then(|id| u32::try_from(id).ok());
        let made = self.volumes()?.into_iter().flat_map(|volume| volume.snapshots);
        let made = made.into_iter().find(|snapshot| Some(snapshot.id) == id);
        made.ok_or_else(|| Failure::new(Exit::Failed, format!("the new snapshot of volume {volume} was deleted")))
    }

    /// What changed since the snapshot of the last backup.
    fn changes(&self, before: Option<&(Snapshot, JobId)>, snapshot: &Snapshot) -> Result<Option<Changes>, Failure> {
        let Some((before, since)) = before else { return Ok(None) };
        let mut ranges: Vec<Range<u64>> = Vec::new();
        let request = Request::Changes { since: before.id, until: snapshot.id };
        self.ask_parts(&request, &mut |part| {
            let odd = |error| Failure::new(Exit::Failed, format!("the changes of the volume cannot be read: {error}"));
            let found: Vec<[u64; 2]> = serde_json::from_value(part["ranges"].clone()).map_err(odd)?;
            ranges.extend(found.iter().map(|[from, to]| from * BLOCK..to * BLOCK));
            Ok(())
        })?;
        Ok(Some(Changes { since: *since, size: before.size, ranges }))
    }

    /// The content of a snapshot.
    fn image(&self, volume: &str, snapshot: &Snapshot) -> Result<Box<dyn Image>, Failure> {
        Ok(match self {
            Self::Opened(host) => Box::new(SnapshotImage::new(host.store.clone(), snapshot.id, snapshot.size)),
            Self::Served(folder) => {
                Box::new(image::served(folder, &format!("{volume}@{}", snapshot.name), snapshot.size)?)
            }
        })
    }

    fn delete(&self, app: &App, volume: &str, snapshot: &Snapshot) {
        if let Err(failure) = self.ask(&Request::DeleteSnapshot { id: snapshot.id }) {
            app.out.warn(&format!("snapshot {volume}@{} stays: {}", snapshot.name, failure.message));
        }
    }

    fn close(&self) -> Result<(), Failure> {
        match self {
            Self::Opened(host) => Ok(host.store.close()?),
            Self::Served(_) => Ok(()),
        }
    }
}
