//! Stage 4: the new chunks of an image are stored. Its job is announced here, and stays until its
//! version is committed.
//!
//! The order is that of `docs/concurrency.md`: first the lease, which names the base, the versions
//! whose containers are shared, and the jobs that store for the batch. *Then* the looks at all of
//! them. Whatever fails a look is new: it costs space, never safety. So is everything that the
//! table of a container does not confirm, with all 32 bytes of the fingerprint.
//!
//! New chunks are read a second time. Bytes with another fingerprint than in the scan are never
//! stored (`SecondReadChecked`).

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;

use larder_format::fleet::{Answer, At, Placement, Placements, Requests, Resolution, Resolutions, Stage, TaskId};
use larder_format::ids::{ContainerId, ContainerKind, JobId};
use larder_format::index_tables::{ChunkKey, ChunkPlace, ContainerFacts};
use larder_format::layout::Layout;
use larder_format::lease::{Done, Pin};
use larder_format::{ChunkRef, Fingerprint};
use larder_index::{Cursor, Sorter};
use larder_job::{Ending, LeaseKeeper};
use larder_lnode::ImageReader;
use larder_lnode::assemble::{
    Announced, Announcement, DataWriter, OpenVersion, Output, RecipeOutput, announce, open_version,
};
use larder_store::catalog::Version;
use larder_store::repository::random;
use larder_store::rules::Rule;
use larder_writer::{ContainerTotals, holdings};

use super::answers::{ImageAnswers, range_of_image};
use super::asked::{Asked, AskedChunks};
use super::choose::choose;
use super::hits::Hits;
use super::join::damaged_record;
use super::places::{Place, Places};
use super::scan::{Scanned, SharedImage};
use super::tables::Tables;
use crate::error::FleetError;
use crate::exchange::{Decided, Facts, Merged, OutputCursor, Outputs};
use crate::shared::{Batch, STORE_SERIES};

/// Chunks that are read at once.
const READ_CHUNKS: usize = 1024;
/// Jobs of other hosts that an image adopts at most.
const ADOPTED_MAX: usize = 1000;
/// Chunks that others were said to have in vain, of which returning ones are recognised.
const REFUSED_MAX: usize = 1 << 16;

/// The job that stores the new chunks and the recipes of a host's images. It commits nothing: the
/// versions that use its containers keep them.
pub(crate) struct StoreJob {
    pub(crate) host: u32,
    output: Output,
    data: DataWriter,
    recipes: RecipeOutput,
    keeper: LeaseKeeper,
    placements: Sorter,
}

impl StoreJob {
    pub(crate) fn open(batch: &Batch<'_>, host: u32) -> Result<Self, FleetError> {
        // Another attempt at this host may have a job of its own.
        let job = match batch.worker {
            None => batch.host(host).store,
            Some(_) => JobId::new(batch.context.clock.now_ms(), random(batch.context.repository.entropy())?),
        };
        let announcement =
            Announcement { series: STORE_SERIES, layout: Layout::Standard, versions: Vec::new(), adopts: Vec::new() };
        let Announced { keeper, .. } = announce(batch.context, job, announcement)?;
        let output = Output::within(batch.context, job, batch.options.compression, batch.options.write)?;
        let data = output.data(Layout::Standard);
        let recipes = output.recipes(batch.context, &batch.cutting, batch.budget().recipes);
        let placements = batch.sorter::<Placements>(batch.budget().placements)?;
        Ok(Self { host, output, data, recipes, keeper, placements })
    }

    /// The job.
    pub(crate) fn job(&self) -> JobId {
        self.output.job()
    }

    /// Waits until the store has acknowledged all chunks. Only then their places may be told
    /// (`PlacedWhenDurable`): takes those that came since the last call.
    pub(crate) fn flush(&mut self, batch: &Batch<'_>) -> Result<Sorter, FleetError> {
        match batch.context.repository.keeps(Rule::PlacedWhenDurable) {
            true => self.data.flush()?,
            false => self.data.close()?,
        }
        let next = batch.sorter::<Placements>(batch.budget().placements)?;
        Ok(std::mem::replace(&mut self.placements, next))
    }

    /// Where the recipes of its images go.
    pub(crate) fn recipes(&mut self) -> &mut RecipeOutput {
        &mut self.recipes
    }

    /// Whether the store has acknowledged all chunks of an image.
    pub(crate) fn has_acknowledged(&self, batch: &Batch<'_>, stored: &Stored) -> bool {
        if !batch.context.repository.keeps(Rule::PlacedWhenDurable) {
            return true;
        }
        stored.last_container.is_none_or(|last| last < self.data.acknowledged_below())
    }

    /// The sizes of its containers.
    pub(crate) fn stored(&self) -> HashMap<ContainerId, ContainerTotals> {
        self.output.stored()
    }

    /// Bytes of its containers.
    pub(crate) fn stored_bytes(&self) -> u64 {
        self.output.stored_bytes()
    }

    /// It stores nothing more.
    pub(crate) fn rest(self) -> RestingJob {
        RestingJob { ending: self.output.nothing_committed(), stored_bytes: self.stored_bytes(), keeper: self.keeper }
    }
}

/// A storing job that stores nothing more. Images may adopt it as long as its lease is open.
pub(crate) struct RestingJob {
    keeper: LeaseKeeper,
    ending: Ending,
    stored_bytes: u64,
}

impl RestingJob {
    /// `is_over`: every version that may use its containers exists, or never will. Else the process
    /// ends early. Returns the bytes of its containers.
    pub(crate) fn end(self, is_over: bool) -> u64 {
        self.keeper.end(if is_over { self.ending } else { Ending::Ended });
        self.stored_bytes
    }
}

/// An image whose job is announced and whose new chunks are stored.
pub(crate) struct Stored {
    pub(crate) keeper: LeaseKeeper,
    /// The version that the scan compared with, as it is since the lease.
    pub(crate) base: Option<OpenVersion>,
    /// Containers of other versions that may be shared, and those of other hosts that are used.
    pub(crate) held: HashMap<ContainerId, ContainerTotals>,
    /// The versions that they are of.
    pub(crate) shared: Vec<JobId>,
    /// Jobs of batches that ended early, which are adopted too.
    pub(crate) left: HashSet<JobId>,
    /// The hosts whose jobs are adopted.
    pub(crate) hosts: HashSet<u32>,
    pub(crate) places: Places,
    /// Whether chunks of other images are waited for.
    pub(crate) waits: bool,
    pub(crate) new_chunks: u64,
    pub(crate) added_bytes: u64,
    /// Number of the last container that has chunks of it.
    pub(crate) last_container: Option<u32>,
    /// Bytes of the image that were read a second time.
    pub(crate) reread_bytes: u64,
}

impl Stored {
    /// There will be no version.
    pub(crate) fn abandon(self) {
        self.keeper.end(Ending::Closed(Done::nothing()));
    }
}

/// A task whose register is created when the store has acknowledged everything of it.
pub(crate) type Unregistered<'a> = (Outputs<'a>, Facts);

/// Stores the new chunks of an image. `answers` are those of all partitions.
pub(crate) fn store<'a>(
    batch: &'a Batch<'a>,
    number: u32,
    image: &SharedImage,
    scanned: &Scanned,
    answers: &[&Decided],
    store: &mut StoreJob,
) -> Result<(Unregistered<'a>, Stored), FleetError> {
    let outputs = Outputs::begin(batch, TaskId { stage: Stage::Store, round: 0, number })?;
    let answers = ImageAnswers::read(batch, number, answers)?;
    let choice = choose(batch, &answers.containers, scanned.scan.base.as_ref())?;
    let found: HashSet<ContainerId> = choice.containers.values().map(|facts| facts.id).collect();
    let mut stored = announced(batch, number, scanned, &answers, choice.versions, &found)?;
    match Storing::new(batch, number, image, scanned, &mut stored, store).first(&answers, &choice.containers) {
        Ok(()) => {
            let (read_bytes, stored_bytes) = (stored.reread_bytes, stored.added_bytes);
            let facts = Facts { read_bytes, stored_bytes, waits: stored.waits, ..Facts::default() };
            Ok(((outputs, facts), stored))
        }
        Err(error) => {
            stored.abandon();
            Err(error)
        }
    }
}

/// Announces the job of an image, and looks at everything that its lease names.
fn announced(
    batch: &Batch<'_>,
    number: u32,
    scanned: &Scanned,
    answers: &ImageAnswers,
    shared: Vec<Version>,
    found: &HashSet<ContainerId>,
) -> Result<Stored, FleetError> {
    let planned = batch.image(number);
    let places = Places::new(&batch.options.scratch).map_err(|source| FleetError::Scratch { source })?;
    let mut hosts: BTreeSet<u32> = answers.waited_for.iter().map(|image| batch.image(*image).host).collect();
    // A lease has limited room. Chunks of other hosts are stored again.
    hosts = hosts.into_iter().filter(|host| *host != planned.host).take(ADOPTED_MAX).collect();
    hosts.insert(planned.host);
    let left = batch.left()?;
    let series = batch.context.repository.keys().series_key(STORE_SERIES);
    let pin_of = |host: &u32| batch.store_of(*host).map(|job| Pin { series, job });
    let base = scanned.scan.base.clone();
    let announcement = Announcement {
        series: &planned.series,
        layout: Layout::Standard,
        versions: base.clone().into_iter().chain(shared).collect(),
        adopts: match batch.context.repository.keeps(Rule::StoreAdopted) {
            true => hosts.iter().filter_map(pin_of).chain(left.jobs.iter().copied()).collect(),
            false => pin_of(&planned.host).into_iter().collect(),
        },
    };
    let Announced { versions, adopts, keeper } = announce(batch.context, planned.job, announcement)?;
    let left: HashSet<JobId> = left.jobs.iter().filter(|pin| adopts.contains(pin)).map(|pin| pin.job).collect();
    if batch.context.repository.keeps(Rule::StoreAdopted) {
        hosts.retain(|host| pin_of(host).is_some_and(|pin| adopts.contains(&pin)));
    }
    let looked = (|| {
        if !hosts.contains(&planned.host) {
            return Err(FleetError::StoreAborted);
        }
        let mut versions = versions.into_iter();
        let base = match base.and_then(|_| versions.next()) {
            None => None,
            Some(None) => return Err(FleetError::BaseGone),
            Some(Some(version)) => match open_version(batch.context, &version)? {
                Some(open) if open.is_whole() => Some(open),
                _ => return Err(FleetError::BaseGone),
            },
        };
        let mut held = HashMap::new();
        let mut shared = Vec::new();
        for version in versions.flatten() {
            // Each container that is used is read, so none need be listed.
            match batch.context.executor.block_on(batch.context.repository.manifest(&version)) {
                Ok(manifest) => {
                    shared.push(version.id());
                    held.extend(holdings(&manifest.containers).into_iter().filter(|(id, _)| found.contains(id)));
                }
                Err(error) if error.is_damage() => tracing::warn!(%error, "nothing is shared with a damaged snapshot"),
                Err(error) => return Err(error.into()),
            }
        }
        Ok((base, held, shared))
    })();
    match looked {
        Ok((base, held, shared)) => Ok(Stored {
            keeper,
            base,
            held,
            shared,
            left,
            hosts: hosts.into_iter().collect(),
            places,
            waits: false,
            new_chunks: 0,
            added_bytes: 0,
            last_container: None,
            reread_bytes: 0,
        }),
        Err(error) => {
            keeper.end(Ending::Closed(Done::nothing()));
            Err(error)
        }
    }
}

/// Applies what became of those that an image waits for: round 1 after the first resolution, round
/// 2 after the second, which leaves nobody waiting.
#[expect(clippy::too_many_arguments, reason = "called once, with what the coordinator keeps apart")]
pub(crate) fn settle<'a>(
    batch: &'a Batch<'a>,
    round: u8,
    number: u32,
    image: &SharedImage,
    scanned: &Scanned,
    stored: &mut Stored,
    resolutions: &[&Decided],
    store: &mut StoreJob,
) -> Result<Unregistered<'a>, FleetError> {
    let outputs = Outputs::begin(batch, TaskId { stage: Stage::Store, round, number })?;
    let before = (stored.reread_bytes, stored.added_bytes);
    let mut of_image = OutputCursor::merged::<Resolutions>(batch, resolutions.iter().copied(), range_of_image(number))?;
    Storing::new(batch, number, image, scanned, stored, store).again(&mut of_image)?;
    let (read_bytes, stored_bytes) = (stored.reread_bytes - before.0, stored.added_bytes - before.1);
    Ok((outputs, Facts { read_bytes, stored_bytes, waits: stored.waits, ..Facts::default() }))
}

/// Stores chunks of one image.
struct Storing<'b, 's> {
    batch: &'b Batch<'b>,
    number: u32,
    reader: ImageReader,
    scanned: &'s Scanned,
    stored: &'s mut Stored,
    store: &'s mut StoreJob,
    tables: Tables<'b>,
    /// Whether images of later rounds want to know all places.
    is_followed: bool,
    /// Chunks to store, and whether others wait for them.
    pending: Vec<(Asked, bool)>,
    pending_bytes: usize,
    /// Numbers of chunks that are stored although others were said to have them.
    refused: HashMap<ChunkKey, u32>,
}

impl<'b, 's> Storing<'b, 's> {
    fn new(
        batch: &'b Batch<'b>,
        number: u32,
        image: &SharedImage,
        scanned: &'s Scanned,
        stored: &'s mut Stored,
        store: &'s mut StoreJob,
    ) -> Self {
        let extents = scanned.extents();
        let is_followed = batch.plan.round_of(store.host) + 1 < batch.plan.rounds();
        Self {
            batch,
            number,
            reader: ImageReader::new(Box::new(image.clone()), extents),
            scanned,
            stored,
            store,
            tables: Tables::new(batch),
            is_followed,
            pending: Vec::new(),
            pending_bytes: 0,
            refused: HashMap::new(),
        }
    }

    /// The first time: by the answers of the partitions.
    fn first(&mut self, answers: &ImageAnswers, found: &HashMap<u32, ContainerFacts>) -> Result<(), FleetError> {
        let mut asked = AskedChunks::new(self.batch, &self.scanned.task);
        let mut answers = answers.iter();
        let mut hits = Hits::new(self.batch.budget().tables / 2, self.batch.options.scratch.clone());
        while let Some(chunk) = asked.next()? {
            if self.batch.context.cancel.is_cancelled() {
                return Err(larder_lnode::BackupError::Interrupted.into());
            }
            match answers.of(chunk.number)? {
                None => self.own(chunk, false)?,
                Some(Answer::Owner) => self.own(chunk, true)?,
                Some(Answer::Stored(place)) => {
                    if hits.push(&chunk, place).map_err(scratch)? {
                        self.look_at(&mut hits, found)?;
                    }
                }
                Some(Answer::Waits(owner)) if owner.image == self.number => {
                    match self.place_of(owner.number, &chunk.fingerprint)? {
                        Some(place) => self.set(&chunk, place)?,
                        None => self.once(chunk, false)?,
                    }
                }
                Some(Answer::Waits(owner)) => match self.stored.hosts.contains(&self.batch.image(owner.image).host) {
                    true => self.stored.waits = true,
                    false => self.once(chunk, false)?,
                },
            }
        }
        self.look_at(&mut hits, found)?;
        self.write()
    }

    /// Sets the places of chunks that the index has. Those that are not there are stored.
    fn look_at(&mut self, hits: &mut Hits, found: &HashMap<u32, ContainerFacts>) -> Result<(), FleetError> {
        for hit in hits.take().map_err(scratch)? {
            self.batch.expect_not_cancelled()?;
            let (chunk, said) = hit.map(|hit| (hit.asked(), hit.said())).map_err(scratch)?;
            match self.confirmed(&chunk, said, found)? {
                Some(place) => self.set(&chunk, place)?,
                None => self.once(chunk, false)?,
            }
        }
        Ok(())
    }

    /// Once more: by what became of those that it waits for. Chunks without a place that nobody
    /// stores are stored here.
    fn again(&mut self, resolutions: &mut Merged<'_>) -> Result<(), FleetError> {
        let mut asked = AskedChunks::new(self.batch, &self.scanned.task);
        let mut next = next_resolution(resolutions)?;
        let mut waits = false;
        while let Some(chunk) = asked.next()? {
            while next.is_some_and(|(number, _)| number < chunk.number) {
                next = next_resolution(resolutions)?;
            }
            let resolution = next.filter(|(number, _)| *number == chunk.number).map(|(_, resolution)| resolution);
            // Places are set in between, so no page of them stays read.
            if self.stored.places.look(chunk.number, &chunk.fingerprint).map_err(scratch)?.is_some() {
                continue;
            }
            match resolution {
                Some(Resolution::Placed(placement)) => match self.placed(&chunk, &placement)? {
                    Some(place) => self.set(&chunk, place)?,
                    None => self.once(chunk, false)?,
                },
                Some(Resolution::Promoted) => self.once(chunk, true)?,
                Some(Resolution::Again) => waits = true,
                None => self.once(chunk, false)?,
            }
        }
        self.stored.waits = waits;
        self.write()
    }

    fn set(&mut self, chunk: &Asked, place: Place) -> Result<(), FleetError> {
        self.stored.places.set(chunk.number, &chunk.fingerprint, place).map_err(scratch)
    }

    /// The place of an earlier chunk of this image, if it is this one.
    fn place_of(&mut self, number: u32, fingerprint: &Fingerprint) -> Result<Option<Place>, FleetError> {
        if self.pending.iter().any(|(chunk, _)| chunk.number == number) {
            self.write()?;
        }
        self.stored.places.look(number, fingerprint).map_err(scratch)
    }

    /// The place that the index says, if the lease covers it and the container's table confirms it
    /// (`HitConfirmed`).
    fn confirmed(
        &mut self,
        chunk: &Asked,
        said: ChunkPlace,
        found: &HashMap<u32, ContainerFacts>,
    ) -> Result<Option<Place>, FleetError> {
        let Some(facts) = found.get(&said.container) else { return Ok(None) };
        let of_base = self.stored.base.as_ref().is_some_and(|base| has(base, &facts.id));
        if !of_base && !self.stored.held.contains_key(&facts.id) {
            return Ok(None);
        }
        let there = self.tables.chunk(facts.id, said.chunk)?;
        let there = there.map(|(there, _)| there).filter(|there| is(there, chunk));
        Ok(there.map(|there| Place { container: there.container, offset: there.offset }))
    }

    /// The place in an upload of a batch that ended early, if its job is adopted and the table of
    /// the container confirms it.
    fn left(&mut self, chunk: &Asked) -> Result<Option<Place>, FleetError> {
        let Some((container, number)) = self.batch.left()?.find(&chunk.fingerprint) else { return Ok(None) };
        if !self.stored.left.contains(&container.job) {
            return Ok(None);
        }
        let Some((there, totals)) = self.tables.chunk(container, number)? else { return Ok(None) };
        if !is(&there, chunk) {
            return Ok(None);
        }
        self.stored.held.insert(container, totals);
        Ok(Some(Place { container, offset: there.offset }))
    }

    /// The place that another host says, if its job is adopted and the container's table confirms
    /// it.
    fn placed(&mut self, chunk: &Asked, said: &Placement) -> Result<Option<Place>, FleetError> {
        let job = self.batch.store_of(said.host).filter(|_| self.stored.hosts.contains(&said.host));
        let Some(job) = job else { return Ok(None) };
        if said.rest != Placement::rest_of(&chunk.fingerprint) || said.size != chunk.size {
            return Ok(None);
        }
        let container = ContainerId { kind: ContainerKind::Data, job, seq: said.seq };
        if !self.batch.context.repository.keeps(Rule::PlaceConfirmed) {
            let totals = ContainerTotals { chunks: 1, bytes: u64::from(said.size), object_bytes: u64::from(said.size) };
            self.stored.held.entry(container).or_insert(totals);
            return Ok(Some(Place { container, offset: said.offset }));
        }
        let Some((there, totals)) = self.tables.chunk_at(container, said.offset)? else { return Ok(None) };
        if !is(&there, chunk) {
            return Ok(None);
        }
        self.stored.held.insert(container, totals);
        Ok(Some(Place { container, offset: said.offset }))
    }

    /// Stores a chunk that others were said to have, once.
    fn once(&mut self, chunk: Asked, is_awaited: bool) -> Result<(), FleetError> {
        let key = ChunkKey::of(&chunk.fingerprint);
        if let Some(number) = self.refused.get(&key).copied()
            && let Some(place) = self.place_of(number, &chunk.fingerprint)?
        {
            return self.set(&chunk, place);
        }
        if self.refused.len() < REFUSED_MAX {
            self.refused.insert(key, chunk.number);
        }
        self.own(chunk, is_awaited)
    }

    fn own(&mut self, chunk: Asked, is_awaited: bool) -> Result<(), FleetError> {
        // Those who wait for it find it there, too.
        if let Some(place) = self.left(&chunk)? {
            return self.set(&chunk, place);
        }
        self.pending_bytes += chunk.size as usize;
        self.pending.push((chunk, is_awaited));
        if self.pending_bytes >= self.batch.options.read.block || self.pending.len() >= READ_CHUNKS {
            self.write()
        } else {
            Ok(())
        }
    }

    /// Reads and stores the pending chunks.
    fn write(&mut self) -> Result<(), FleetError> {
        let pending = std::mem::take(&mut self.pending);
        let mut bytes = vec![0; std::mem::take(&mut self.pending_bytes)];
        self.read(&pending, &mut bytes)?;
        let lengths: Vec<u32> = pending.iter().map(|(chunk, _)| chunk.size).collect();
        let mut fingerprints = Vec::with_capacity(lengths.len());
        self.batch.cutting.fingerprinter.many(&bytes, &lengths, &mut fingerprints);
        let mut rest = &*bytes;
        for ((chunk, is_awaited), fingerprint) in pending.into_iter().zip(fingerprints) {
            let (content, behind) = rest.split_at(chunk.size as usize);
            rest = behind;
            let is_it = fingerprint == chunk.fingerprint;
            if !is_it && self.batch.context.repository.keeps(Rule::SecondReadChecked) {
                return Err(FleetError::Changed { offset: chunk.offset });
            }
            let there = self.store.data.push(chunk.fingerprint, content)?;
            self.set(&chunk, Place { container: there.container, offset: there.offset })?;
            self.stored.new_chunks += 1;
            self.stored.last_container = Some(there.container.seq);
            self.stored.added_bytes += u64::from(chunk.size);
            if is_awaited || self.is_followed {
                let at = At { image: self.number, number: chunk.number };
                let placement = Placement {
                    rest: Placement::rest_of(&fingerprint),
                    host: self.store.host,
                    seq: there.container.seq,
                    offset: there.offset,
                    size: chunk.size,
                };
                let key = Requests::key(&ChunkKey::of(&fingerprint), at);
                self.store.placements.push(&key, Some(&placement.encode()))?;
            }
        }
        self.stored.reread_bytes += bytes.len() as u64;
        self.batch.context.progress.done(0, bytes.len() as u64);
        Ok(())
    }

    /// Fills `bytes` with the chunks, back to back. Neighbours are read together.
    fn read(&self, chunks: &[(Asked, bool)], bytes: &mut [u8]) -> Result<(), FleetError> {
        let mut parts: Vec<(u64, usize)> = Vec::new();
        for (chunk, _) in chunks {
            match parts.last_mut() {
                Some((offset, length)) if *offset + *length as u64 == chunk.offset => *length += chunk.size as usize,
                _ => parts.push((chunk.offset, chunk.size as usize)),
            }
        }
        let mut rest = bytes;
        let mut wanted = Vec::with_capacity(parts.len());
        for (offset, length) in parts {
            let (part, behind) = rest.split_at_mut(length);
            rest = behind;
            wanted.push((offset, part));
        }
        self.reader.read_parts(wanted).map_err(|source| FleetError::Reread { source })
    }
}

/// Whether this is the chunk that was asked for: all bytes of its fingerprint, and its size.
fn is(there: &ChunkRef, chunk: &Asked) -> bool {
    there.fingerprint == chunk.fingerprint && there.size == chunk.size
}

fn scratch(source: io::Error) -> FleetError {
    FleetError::Scratch { source }
}

fn has(base: &OpenVersion, id: &ContainerId) -> bool {
    base.manifest.containers.binary_search_by_key(id, |usage| usage.container).is_ok()
}

/// The next resolution: number of the question, and what became of it.
fn next_resolution(resolutions: &mut Merged<'_>) -> Result<Option<(u32, Resolution)>, FleetError> {
    if !resolutions.advance()? {
        return Ok(None);
    }
    let wrong = damaged_record("resolution of a fleet task");
    let at = At::decode(resolutions.key()).map_err(&wrong)?;
    Ok(Some((at.number, Resolution::decode(resolutions.value().unwrap_or_default()).map_err(&wrong)?)))
}
