//! What must hold at every moment, seen from the store alone and compared with what was promised.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use futures::FutureExt;
use larder_format::ChunkRef;
use larder_format::ids::{ContainerKind, JobId, SeriesKey};
use larder_format::layout::Layout;
use larder_format::manifest::{Manifest, Register};
use larder_format::names;
use larder_store::Repository;
use larder_testkit::sim::{Change, World};

use crate::accidents::{Accidents, Happened};
use crate::ledger::Ledger;
use crate::moved::{
    Copies, Names, ReclaimReport, is_rebuilt, names as arranged_names, of_categories, place, reclaimed,
};
use crate::reading::{named, restore};

/// Looks at the bucket between two steps.
pub struct Checks {
    repository: Repository,
    ledger: Ledger,
    /// Registers that were decoded: objects never change, but a name may be taken again.
    decoded: BTreeMap<String, (usize, Option<Rc<Manifest>>)>,
    /// Versions that were visible once, and are not any more.
    gone: BTreeSet<JobId>,
    visible: BTreeSet<JobId>,
    last_restored: u64,
    /// The newest index that was looked at, and what it says was retired.
    index: Option<u64>,
    is_rebuilt: bool,
    reclaimed: ReclaimReport,
    /// Where names of the layout `lifecycle` lead.
    names: Names,
    /// Of generations of versions of that layout, what they name.
    named: BTreeMap<[u8; 16], Rc<Vec<ChunkRef>>>,
    /// What was visible when it was last looked at.
    manifests: BTreeMap<JobId, Rc<Manifest>>,
    accidents: Accidents,
    damage: Damage,
    copies: Copies,
}

/// What an accident took, and what is left to demand.
#[derive(Debug, Default)]
struct Damage {
    /// An index that is lost or that rots. Until there is a higher one it is enough that each chunk is in some container.
    index: Option<u64>,
    /// The same for good.
    is_lasting: bool,
    /// A version whose register is lost, and what it had uploaded: as long as no index knew it, that stays.
    version: Option<(JobId, Vec<String>)>,
}

/// Steps between two restores of everything. Whether containers are there is looked at after every step that matters.
const RESTORE_EVERY: u64 = 300;

impl Checks {
    pub fn new(repository: Repository, ledger: Ledger, accidents: Accidents) -> Self {
        Self {
            repository,
            ledger,
            decoded: BTreeMap::new(),
            gone: BTreeSet::new(),
            visible: BTreeSet::new(),
            last_restored: 0,
            index: None,
            is_rebuilt: false,
            reclaimed: ReclaimReport::new(),
            names: Names::new(),
            named: BTreeMap::new(),
            manifests: BTreeMap::new(),
            accidents,
            damage: Damage::default(),
            copies: Copies::default(),
        }
    }

    /// After every step.
    pub fn step(&mut self, world: &World, step: u64) -> Result<(), String> {
        let lost = self.ledger.lost();
        if let Some(lost) = lost.first() {
            return Err(format!("what a lease names is gone: {lost}"));
        }
        let changes = world.take_changes();
        let matters = changes.iter().any(|change| match change {
            Change::Deleted(_) => true,
            Change::Created(name) => name.starts_with(names::VERSIONS) || name.starts_with(names::FORGOTTEN),
        });
        // An index leads versions elsewhere: every one of them is restored before another index can hide what this one did.
        let looked = self.accidents.look(world, &changes, &self.reclaimed, &self.manifests);
        if let Some(happened) = looked {
            self.suffer(world, happened)?;
        }
        if let Some((job, uploads)) = &self.damage.version
            && let Some(lost) = uploads.iter().find(|name| !world.has(name))
            && !self.ledger.is_forgotten(job)
        {
            return Err(format!("of version {job} the register was lost, and {lost} went too"));
        }
        let is_led = |change: &Change| matches!(change, Change::Created(name) if names::parse_index(name).is_some());
        if changes.iter().any(is_led) {
            let versions = self.versions(world)?;
            self.follow(world)?;
            self.restore_all(world, &versions)?;
        }
        if !matters {
            return Ok(());
        }
        let versions = self.versions(world)?;
        self.compare(&versions)?;
        self.manifests.clone_from(&versions);
        if let Some((_, uploads)) = &mut self.damage.version {
            // Who adopted them has a version of its own.
            let used = versions.values().flat_map(|manifest| &manifest.containers).map(|usage| usage.container);
            let used: BTreeSet<String> = used.map(names::container).collect();
            uploads.retain(|name| !used.contains(name));
        }
        self.follow(world)?;
        if self.is_weak(world) {
            // Where it leads says nothing of what of it is needed.
            let takes = |change: &Change| match change {
                Change::Deleted(name) => names::parse_container(name).is_some(),
                Change::Created(name) => name.starts_with(names::VERSIONS),
            };
            return if changes.iter().any(takes) { self.restore_all(world, &versions) } else { Ok(()) };
        }
        for manifest in versions.values() {
            if let Some(missing) = self.needed(manifest)?.into_iter().find(|name| !world.has(name)) {
                return Err(format!("version {} has lost {missing}", manifest.summary.id));
            }
        }
        if step > self.last_restored + RESTORE_EVERY {
            self.last_restored = step;
            self.restore_all(world, &versions)?;
        }
        Ok(())
    }

    /// At the end.
    pub fn end(&mut self, world: &World) -> Result<usize, String> {
        let versions = self.versions(world)?;
        self.compare(&versions)?;
        self.restore_all(world, &versions)?;
        let adopted = versions.values().filter(|manifest| self.ledger.has_adopted(manifest)).count();
        self.ledger.add("adopted", adopted as u64);
        let catalog = at_once(self.repository.catalog())?.map_err(|error| error.to_string())?;
        let listed: BTreeSet<_> = catalog.versions.iter().map(|version| version.id()).collect();
        if let Some(job) = listed.symmetric_difference(&versions.keys().copied().collect()).next() {
            return Err(format!("whether version {job} exists, the catalog sees otherwise"));
        }
        Ok(versions.len())
    }

    /// All containers there are, and those that visible versions reference or that have categories of them.
    pub fn containers(&mut self, world: &World) -> Result<(BTreeSet<String>, BTreeSet<String>), String> {
        let versions = self.versions(world)?;
        self.follow(world)?;
        let mut referenced = BTreeSet::new();
        for manifest in versions.values() {
            referenced.extend(self.needed(manifest)?);
        }
        let kept =
            at_once(of_categories(&self.repository))?.map_err(|error| format!("the index cannot be read: {error}"))?;
        referenced.extend(kept.into_iter().map(names::container));
        // After an accident no rule says what is garbage.
        if self.is_weak(world) || self.is_index_lost() {
            return Ok((BTreeSet::new(), BTreeSet::new()));
        }
        let there = world.names().into_iter().filter(|name| names::parse_container(name).is_some()).collect();
        Ok((there, referenced))
    }

    /// What is left to demand after an accident.
    fn suffer(&mut self, world: &World, happened: Happened) -> Result<(), String> {
        match happened {
            Happened::IndexLost(number) | Happened::IndexSpoilt(number) => {
                self.damage.index = Some(number);
                self.index = None;
            }
            Happened::ForwardLost => self.damage.is_lasting = true,
            Happened::RegisterLost(name) => {
                let (series, job, generation) = names::parse_version(&name).ok_or("a register has a name")?;
                if let Some(manifest) = self.decode(world, &name, series, job, generation)?
                    && !self.ledger.is_forgotten(&job)
                {
                    world.lose(&name);
                    let own = manifest.containers.iter().map(|usage| usage.container).filter(|id| id.job == job);
                    self.damage.version = Some((job, own.map(names::container).collect()));
                    self.visible.remove(&job);
                }
            }
        }
        Ok(())
    }

    /// Whether an accident happened that only a rebuild mends.
    pub fn is_index_lost(&self) -> bool {
        self.damage.index.is_some() || self.damage.is_lasting
    }

    /// Whether a version is lost: passes stop then, so there is no end without garbage.
    pub fn is_version_lost(&self) -> bool {
        self.damage.version.is_some()
    }

    /// Whether it is enough that each chunk is in some container: the index was rebuilt, or it is lost. An index that rots counts when
    /// it has a mark.
    fn is_weak(&self, world: &World) -> bool {
        let is_lost = |number: u64| {
            let is_newest =
                world.names().iter().filter_map(|name| names::parse_index(name)).all(|other| other <= number);
            is_newest && (!world.has(&names::index(number)) || world.has(&names::indexed(number)))
        };
        self.is_rebuilt || self.damage.is_lasting || self.damage.index.is_some_and(is_lost)
    }

    /// Learns what the newest index says was retired.
    fn follow(&mut self, world: &World) -> Result<(), String> {
        let newest = world.names_below(names::INDEX).iter().filter_map(|name| names::parse_index(name)).max();
        if newest != self.index {
            self.reclaimed =
                at_once(reclaimed(&self.repository))?.map_err(|error| format!("the index cannot be read: {error}"))?;
            self.names = at_once(arranged_names(&self.repository))?
                .map_err(|error| format!("the index cannot be read: {error}"))?;
            self.is_rebuilt =
                at_once(is_rebuilt(&self.repository))?.map_err(|error| format!("the index cannot be read: {error}"))?;
            self.index = newest;
        }
        Ok(())
    }

    /// The containers that have to be there for a version: those that it names, or those that have their chunks.
    fn needed(&mut self, manifest: &Manifest) -> Result<BTreeSet<String>, String> {
        let is_arranged = manifest.summary.layout == Layout::Lifecycle;
        let places =
            manifest.containers.iter().filter(|usage| !is_arranged || usage.container.kind == ContainerKind::Meta);
        let needed = places.flat_map(|usage| {
            let forwards = self.reclaimed.get(&usage.container).map(Vec::as_slice);
            forwards.unwrap_or(std::slice::from_ref(&usage.container))
        });
        let mut needed: BTreeSet<String> = needed.map(|container| names::container(*container)).collect();
        if is_arranged {
            for chunk in self.named(manifest)?.iter() {
                let there = place(&self.names, chunk).ok_or_else(|| {
                    let (job, container) = (manifest.summary.id, chunk.container);
                    format!("version {job} needs {container} at {}, which is in no extent", chunk.offset)
                })?;
                // A rebuilt index knows no extents, and leads by fingerprints.
                match self.reclaimed.get(&there.container) {
                    Some(forwards) => needed.extend(forwards.iter().map(|id| names::container(*id))),
                    None => drop(needed.insert(names::container(there.container))),
                }
            }
        }
        Ok(needed)
    }

    /// What a generation of a version names, which never changes.
    fn named(&mut self, manifest: &Manifest) -> Result<Rc<Vec<ChunkRef>>, String> {
        let job = manifest.summary.id;
        if let Some(named) = self.named.get(&manifest.summary.attempt) {
            return Ok(named.clone());
        }
        let named: Rc<Vec<ChunkRef>> = at_once(named(&self.repository, manifest))?
            .map_err(|error| format!("the recipe of version {job} cannot be read: {error}"))?
            .into();
        self.named.insert(manifest.summary.attempt, named.clone());
        Ok(named)
    }

    /// The manifests of all visible versions: of each its newest generation, if there is a generation 0.
    fn versions(&mut self, world: &World) -> Result<BTreeMap<JobId, Rc<Manifest>>, String> {
        let mut versions = BTreeMap::new();
        let mut roots = BTreeSet::new();
        let mut highest: BTreeMap<JobId, u32> = BTreeMap::new();
        for name in &world.names_below(names::VERSIONS) {
            let (series, job, generation) = names::parse_version(name).ok_or(format!("an odd name: {name}"))?;
            if world.has(&names::forgotten(series, job)) {
                continue;
            }
            let Some(manifest) = self.decode(world, name, series, job, generation)? else { continue };
            if generation == 0 {
                roots.insert(job);
            }
            let newest = highest.entry(job).or_default();
            if generation >= *newest {
                *newest = generation;
                versions.insert(job, manifest);
            }
        }
        versions.retain(|job, _| roots.contains(job));
        Ok(versions)
    }

    fn decode(
        &mut self,
        world: &World,
        name: &str,
        series: SeriesKey,
        job: JobId,
        generation: u32,
    ) -> Result<Option<Rc<Manifest>>, String> {
        let bytes = world.get(name).ok_or("the world stands still")?;
        let place = bytes.as_ptr() as usize;
        match self.decoded.get(name) {
            Some((at, manifest)) if *at == place => Ok(manifest.clone()),
            _ => {
                let register = Manifest::decode(self.repository.keys(), series, job, generation, &bytes);
                let manifest = match register.map_err(|error| format!("{name}: {error}"))? {
                    Register::Committed(manifest) => {
                        let mut containers = manifest.containers.iter().map(|usage| usage.container);
                        if containers.any(|id| id.kind == ContainerKind::Data && id.job != job) {
                            self.ledger.count("sharing");
                        }
                        Some(Rc::new(manifest))
                    }
                    Register::Aborted => None,
                };
                self.decoded.insert(name.to_owned(), (place, manifest.clone()));
                Ok(manifest)
            }
        }
    }

    /// Compares what is visible with what was promised.
    fn compare(&mut self, versions: &BTreeMap<JobId, Rc<Manifest>>) -> Result<(), String> {
        let lost = self.damage.version.as_ref().map(|(job, _)| *job);
        let is_missed = |job: &&JobId| !versions.contains_key(job) && lost != Some(**job);
        if let Some(job) = self.ledger.must_be_there().iter().find(is_missed) {
            return Err(format!("version {job} was committed, and it is gone"));
        }
        if let Some((job, _)) = versions.iter().find(|(_, manifest)| self.ledger.is_fenced(&manifest.summary)) {
            return Err(format!("job {job} was told that it is fenced, and has a version"));
        }
        let visible: BTreeSet<_> = versions.keys().copied().collect();
        self.gone.extend(self.visible.difference(&visible));
        if let Some(job) = visible.intersection(&self.gone).next() {
            return Err(format!("version {job} was gone, and came back"));
        }
        self.visible = visible;
        Ok(())
    }

    fn restore_all(&self, world: &World, versions: &BTreeMap<JobId, Rc<Manifest>>) -> Result<(), String> {
        let copies = self.is_weak(world).then_some(&self.copies);
        for (job, manifest) in versions {
            let bytes = at_once(restore(&self.repository, manifest, copies))?
                .map_err(|error| format!("version {job} cannot be restored: {error}"))?;
            let expected = self.ledger.content(&manifest.summary).ok_or(format!("nobody committed {job}"))?;
            if bytes != expected.concat() {
                return Err(format!("version {job} restores to other bytes"));
            }
        }
        Ok(())
    }
}

/// Polls of what a store answers that lets nobody wait. Work in turns gives the turn back now and then.
const POLLS: u32 = 10_000;

/// Does something at a store that answers at once, between two steps of everybody else.
fn at_once<T>(future: impl Future<Output = T>) -> Result<T, String> {
    let mut future = std::pin::pin!(future);
    let done = (0..POLLS).find_map(|_| future.as_mut().now_or_never());
    done.ok_or_else(|| "a store that answers at once makes nobody wait".to_owned())
}
