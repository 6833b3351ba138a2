//! [`Parents`]: the snapshots of a repository below the volumes of an opened store.

use std::collections::{BTreeMap, BTreeSet};
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
    /// Volumes whose snapshot cannot be read now, and why.
    missing: Mutex<BTreeMap<u32, String>>,
    /// The repository, once it is open.
    repository: Mutex<Option<Repository>>,
    /// Volumes that are copied now.
    copying: Mutex<BTreeSet<u32>>,
}

impl Parents {
    /// Opens what a volume needs, directly or through snapshots of the store, and connects it.
    /// `repository`: if it is open already.
    ///
    /// # Errors
    /// A repository or a snapshot is not there. The error names the volume.
    pub(in crate::commands) fn attach(
        app: &App,
        store: &Store,
        repository: Option<&Repository>,
        volume: &VolumeEntry,
    ) -> Result<Self, Failure> {
        let parents = Self { repository: Mutex::new(repository.cloned()), ..Self::default() };
        let volume = lowest(store, volume);
        let Some(below) = Below::of(&volume) else { return Ok(parents) };
        let below = below?;
        let what = format!("volume {} is over {}, which cannot be read", volume.name, below.shown());
        let repository = parents.repository(app).map_err(|failure| failure.while_doing(&what))?;
        let versions = Versions::load(app, &repository, &FilterArgs::default())?.all();
        let opened = open_below(app, &repository, &versions, &volume.name, &below, 1)?;
        parents.add(store, volume, opened);
        Ok(parents)
    }

    /// Opens what is below all volumes, and connects it. A volume whose snapshot cannot be read is
    /// named in a warning, and all others work.
    ///
    /// # Errors
    /// A signal ended it.
    pub(super) fn attach_all(app: &App, store: &Store) -> Result<Self, Failure> {
        let (parents, volumes) = (Self::default(), store.volumes());
        let over: Vec<_> = volumes.into_iter().filter(|volume| Below::of(volume).is_some()).collect();
        parents.connect(app, store, &over)?;
        Ok(parents)
    }

    /// Connects volumes to what is below them, those that can be.
    fn connect(&self, app: &App, store: &Store, volumes: &[VolumeEntry]) -> Result<(), Failure> {
        if volumes.is_empty() {
            return Ok(());
        }
        let found = self.repository(app).and_then(|repository| {
            let versions = Versions::load(app, &repository, &FilterArgs::default())?.all();
            Ok((repository, versions))
        });
        let count = self.attached.lock().len() + volumes.len();
        for volume in volumes {
            let below = Below::of(volume).transpose();
            let opened = match (&found, below) {
                (Ok((repository, versions)), Ok(Some(below))) => {
                    open_below(app, repository, versions, &volume.name, &below, count)
                }
                (Err(failure), Ok(Some(below))) => {
                    let over = format!("volume {} is over {}", volume.name, below.shown());
                    Err(failure.clone().while_doing(&over))
                }
                (_, Ok(None)) => continue,
                (_, Err(failure)) => Err(failure),
            };
            match opened {
                Ok(opened) => self.add(store, volume.clone(), opened),
                Err(failure) if failure.exit == Exit::Interrupted => return Err(failure),
                Err(failure) => self.lose(app, store, volume, &failure),
            }
        }
        Ok(())
    }

    /// A volume has nothing below it now. Its name and the reason are said once.
    fn lose(&self, app: &App, store: &Store, volume: &VolumeEntry, failure: &Failure) {
        self.attached.lock().retain(|(of, _)| of.id != volume.id);
        let why = &failure.message;
        store.lose_lower(volume.id, why);
        let is_new = self.missing.lock().insert(volume.id, why.clone()).is_none_or(|before| before != *why);
        if is_new {
            let advice = failure.advice.as_deref().map_or_else(String::new, |advice| format!(" ({advice})"));
            app.out.warn(&format!("{why}{advice}; {STAYS_SERVED}"));
        }
    }

    /// Connects volumes again whose lease was lost, and with `all` those that could not be
    /// connected before. Nobody is asked for a password.
    pub(super) fn look_again(&self, app: &App, store: &Store, all: bool) -> Result<(), Failure> {
        let attached = self.attached.lock().clone();
        let lost: BTreeSet<u32> = attached
            .iter()
            .filter(|(_, opened)| opened.expect_lease().is_err())
            .map(|(volume, _)| volume.id)
            .chain(self.missing.lock().keys().copied().filter(|_| all))
            .collect();
        if lost.is_empty() {
            return Ok(());
        }
        // Not those that were deleted or copied meanwhile.
        let is_lost = |volume: &VolumeEntry| lost.contains(&volume.id) && Below::of(volume).is_some();
        let volumes: Vec<_> = store.volumes().into_iter().filter(is_lost).collect();
        self.attached.lock().retain(|(volume, _)| !lost.contains(&volume.id));
        self.missing.lock().retain(|id, _| volumes.iter().any(|volume| volume.id == *id));
        if self.needs_person(app) { Ok(()) } else { self.connect(app, store, &volumes) }
    }

    /// Whether the repository could only be opened by asking for its password.
    fn needs_person(&self, app: &App) -> bool {
        let is_asked = PasswordSource::key_file(&app.global).is_none() && PasswordSource::of(&app.global).is_prompt();
        self.repository.lock().is_none() && is_asked
    }

    /// One volume over an opened snapshot.
    pub(in crate::commands) fn of(store: &Store, volume: VolumeEntry, opened: Opened) -> Self {
        let parents = Self::default();
        parents.add(store, volume, opened);
        parents
    }

    fn add(&self, store: &Store, volume: VolumeEntry, opened: Opened) {
        store.set_lower(volume.id, opened.lower());
        self.missing.lock().remove(&volume.id);
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
        if self.needs_person(app) {
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

    /// The volumes over snapshots that can be read, directly or through snapshots of the store. A
    /// clone is before the volume that it is a clone of.
    pub(super) fn volumes(&self, store: &Store) -> Vec<VolumeEntry> {
        let attached: BTreeSet<u32> = self.attached.lock().iter().map(|(volume, _)| volume.id).collect();
        let over = store.volumes().into_iter().filter(|volume| attached.contains(&lowest(store, volume).id));
        // A parent has a lower number.
        over.rev().collect()
    }

    /// Why the snapshot below a volume cannot be read now, if it cannot.
    pub(super) fn missing(&self, store: &Store, volume: &VolumeEntry) -> Option<String> {
        self.missing.lock().get(&lowest(store, volume).id).cloned()
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
        let below = lowest(store, volume);
        let found = self.attached.lock().iter().find(|(of, _)| of.id == below.id).map(|(_, opened)| opened.clone());
        let none = || match self.missing(store, volume) {
            Some(why) => Failure::new(Exit::Failed, why),
            None => Failure::usage(format!("volume {} is not over a snapshot of a repository", volume.name)),
        };
        let opened = found.ok_or_else(none)?;
        let _copying = Copying::begin(self, volume)?;
        let (mut ended, mut done) = (Ok(()), Done::new(&opened));
        let copied = store.hydrate_telling(volume.id, &mut |position| {
            done.reach(&opened, position);
            ended = opened.expect_lease().and_then(|()| tell(&done));
            ended.is_err() || cancel.is_cancelled()
        });
        ended?;
        let copied = match copied {
            Err(error @ VolumeError::Needed { .. }) => return Err(Failure::from(error).advise(HAS_SNAPSHOTS)),
            copied => copied,
        };
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

const HAS_SNAPSHOTS: &str = "copy its clones first, if it has any; then delete its snapshots, and start the copy again";

/// What a warning about a volume ends with.
const STAYS_SERVED: &str = "reads of blocks that were never written there fail, and everything else is served";

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
pub(super) fn lowest(store: &Store, volume: &VolumeEntry) -> VolumeEntry {
    let (volumes, snapshots, mut lowest) = (store.volumes(), store.snapshots(), volume.clone());
    while let Some(Parent::Snapshot(id)) = &lowest.parent
        && let Some(snapshot) = snapshots.iter().find(|snapshot| snapshot.id == *id)
        && let Some(next) = volumes.iter().find(|volume| volume.id == snapshot.volume)
    {
        lowest = next.clone();
    }
    lowest
}
