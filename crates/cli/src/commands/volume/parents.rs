//! [`Parents`]: the snapshots of a repository below the volumes of an opened store.

use std::collections::BTreeSet;
use std::sync::Arc;

use larder_format::volume_manifest::{Parent, VolumeEntry};
use larder_job::Cancel;
use larder_store::Repository;
use larder_store::catalog::Version;
use larder_volume::{Hydrated, Store, VolumeError};
use parking_lot::Mutex;

use super::below::{Below, Opened, create_over};
use super::copy_progress::{Done, Tell};
use crate::app::App;
use crate::args::{FetchArgs, FilterArgs};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::password::PasswordSource;
use crate::refs::Versions;

/// See the module header.
#[derive(Default)]
pub(in crate::commands) struct Parents {
    attached: Mutex<Vec<(VolumeEntry, Arc<Opened>)>>,
    /// The repository, once it is open.
    repository: Mutex<Option<Repository>>,
    /// Volumes that are copied now.
    copying: Mutex<BTreeSet<u32>>,
}

impl Parents {
    /// Opens what is below volumes, and connects it to them. `repository`: if it is open already.
    /// `only`: what this volume needs, directly or through snapshots of the store.
    ///
    /// # Errors
    /// A repository or a snapshot is not there. The error names the volume.
    pub(in crate::commands) fn attach(
        app: &App,
        store: &Store,
        repository: Option<&Repository>,
        only: Option<&VolumeEntry>,
    ) -> Result<Self, Failure> {
        let mut wanted = Vec::new();
        let volumes = only.map_or_else(|| store.volumes(), |volume| vec![lowest(store, volume)]);
        for volume in volumes {
            if let Some(below) = Below::of(&volume) {
                wanted.push((volume, below?));
            }
        }
        let parents = Self { repository: Mutex::new(repository.cloned()), ..Self::default() };
        let Some((first, below)) = wanted.first() else { return Ok(parents) };
        let what = format!("volume {} is over {}, which cannot be read", first.name, below.shown());
        let repository = parents.repository(app).map_err(|failure| failure.while_doing(&what))?;
        let versions = Versions::load(app, &repository, &FilterArgs::default())?.all();
        let count = wanted.len();
        for (volume, below) in wanted {
            let opened = open_below(app, &repository, &versions, &volume.name, &below, count)?;
            parents.add(store, volume, opened);
        }
        Ok(parents)
    }

    /// One volume over an opened snapshot.
    pub(in crate::commands) fn of(store: &Store, volume: VolumeEntry, opened: Opened) -> Self {
        let parents = Self::default();
        parents.add(store, volume, opened);
        parents
    }

    fn add(&self, store: &Store, volume: VolumeEntry, opened: Opened) {
        store.set_lower(volume.id, opened.lower());
        self.attached.lock().push((volume, Arc::new(opened)));
    }

    /// The repository, opened if it is not yet.
    fn repository(&self, app: &App) -> Result<Repository, Failure> {
        let mut open = self.repository.lock();
        if let Some(repository) = &*open {
            return Ok(repository.clone());
        }
        let opened = app.open()?.repository;
        *open = Some(opened.clone());
        Ok(opened)
    }

    /// Creates a volume over a snapshot while the store is served. Nobody is asked for a password.
    pub(super) fn create(&self, app: &App, store: &Store, name: &str, text: &str) -> Result<VolumeEntry, Failure> {
        let below = Below::parse(text).ok_or_else(|| Failure::usage("the request names no file of a snapshot"))?;
        if store.volume(name).is_ok() {
            return Err(VolumeError::VolumeExists(name.to_owned()).into());
        }
        let is_asked = PasswordSource::key_file(&app.global).is_none() && PasswordSource::of(&app.global).is_prompt();
        if self.repository.lock().is_none() && is_asked {
            return Err(Failure::new(Exit::Failed, "the server of the store has no password of a repository")
                .advise(WITH_REPOSITORY));
        }
        let unable = |failure: Failure| {
            let what = "the server of the store cannot open its repository";
            Failure { advice: None, ..failure }.while_doing(what).advise(WITH_REPOSITORY)
        };
        let repository = self.repository(app).map_err(unable)?;
        let versions = Versions::load(app, &repository, &FilterArgs::default())?.all();
        let count = self.attached.lock().len() + 1;
        let opened = open_below(app, &repository, &versions, name, &below, count)?;
        let volume = create_over(store, name, &opened)?;
        self.add(store, volume.clone(), opened);
        Ok(volume)
    }

    /// The volumes over snapshots.
    pub(super) fn volumes(&self) -> Vec<VolumeEntry> {
        self.attached.lock().iter().map(|(volume, _)| volume.clone()).collect()
    }

    /// Copies everything that a volume does not have itself, drops what is below it, and ends its
    /// lease. `tell` gets the progress now and then, and its error ends the copy.
    pub(in crate::commands) fn copy(
        &self,
        store: &Store,
        volume: &VolumeEntry,
        cancel: &Cancel,
        tell: Tell<'_>,
    ) -> Result<Hydrated, Failure> {
        let found = self.attached.lock().iter().find(|(of, _)| of.id == volume.id).map(|(_, opened)| opened.clone());
        let none = || Failure::usage(format!("volume {} is not over a snapshot of a repository", volume.name));
        let opened = found.ok_or_else(none)?;
        let _copying = Copying::begin(self, volume)?;
        let (mut ended, mut done) = (Ok(()), Done::new(&opened));
        let copied = store.hydrate_telling(volume.id, &mut |position| {
            done.reach(&opened, position);
            ended = opened.expect_lease().and_then(|()| tell(&done));
            ended.is_err() || cancel.is_cancelled()
        });
        ended?;
        let interrupted = || Failure::new(Exit::Interrupted, "interrupted; the next run continues the copy");
        let copied = copied?.ok_or_else(interrupted)?;
        self.attached.lock().retain(|(of, _)| of.id != volume.id);
        Ok(copied)
    }

    /// An error when a lease was lost that a volume still needs. A long use asks now and then.
    pub(in crate::commands) fn expect_leases(&self, store: &Store) -> Result<(), Failure> {
        let volumes = store.volumes();
        // Not if it was deleted or copied meanwhile.
        let is_over = |id: u32| volumes.iter().any(|volume| volume.id == id && Below::of(volume).is_some());
        let attached = self.attached.lock().clone();
        let mut needed = attached.iter().filter(|(volume, _)| is_over(volume.id));
        needed.try_for_each(|(_, opened)| opened.expect_lease())
    }
}

const WITH_REPOSITORY: &str =
    "start the server with --repo and its password, or add --copy, which needs the repository only here";

/// A copy of a volume that runs. There is one at a time.
struct Copying<'a>(&'a Parents, u32);

impl<'a> Copying<'a> {
    fn begin(parents: &'a Parents, volume: &VolumeEntry) -> Result<Self, Failure> {
        if parents.copying.lock().insert(volume.id) {
            return Ok(Self(parents, volume.id));
        }
        Err(Failure::new(Exit::Busy, format!("volume {} is being copied already", volume.name)))
    }
}

impl Drop for Copying<'_> {
    fn drop(&mut self) {
        self.0.copying.lock().remove(&self.1);
    }
}

/// Opens the file that a volume is over, of one of these versions.
fn open_below(
    app: &App,
    repository: &Repository,
    versions: &[Version],
    volume: &str,
    below: &Below,
    count: usize,
) -> Result<Opened, Failure> {
    let (id, over) = (repository.config().repository.to_string(), format!("volume {volume} is over {}", below.shown()));
    if below.repository != id {
        let message = format!("{over} of repository {}, and this is repository {id}", below.repository);
        return Err(Failure::new(Exit::Failed, message).advise("name that repository with -r/--repo"));
    }
    let Some(version) = versions.iter().find(|version| version.id().to_string() == below.snapshot) else {
        let message = format!("{over}, which is not there any more");
        return Err(Failure::new(Exit::Damage, message)
            .advise("blocks that were never written are lost; `larder volume delete` removes the volume"));
    };
    Opened::open(app, repository, version, Some(&below.path), &FetchArgs::default(), count)
        .map_err(|failure| failure.while_doing(&over))
}

/// The last volume below a volume: the only one that may be over something outside of the store.
fn lowest(store: &Store, volume: &VolumeEntry) -> VolumeEntry {
    let (volumes, snapshots, mut lowest) = (store.volumes(), store.snapshots(), volume.clone());
    while let Some(Parent::Snapshot(id)) = &lowest.parent
        && let Some(snapshot) = snapshots.iter().find(|snapshot| snapshot.id == *id)
        && let Some(next) = volumes.iter().find(|volume| volume.id == snapshot.volume)
    {
        lowest = next.clone();
    }
    lowest
}
