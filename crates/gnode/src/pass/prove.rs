//! Proves generations that other programs wrote (`ProvedBeforeRetired`).
//!
//! Equal roots say that a generation names the same content. They do not say that the content is
//! where the generation says, nor that its container table has all that it needs. Its writer may
//! have been wrong or hostile. So before it supersedes lower generations, whose containers may then
//! go, a pass walks it once:
//!
//! - every node and segment is read and has the digest in the row above it;
//! - the uses in rows and the container table follow from the records;
//! - every chunk that the highest proved generation does not have at the same place is read and has
//!   its fingerprint. Another container of that generation is another place.
//! - If the container of such a chunk was retired, another container has it that stays for this
//!   generation.
//!
//! Generation 0 counts as proved: it is the version. The result is in the version's row of the
//! index, so each generation is walked once. Those that this process wrote need no walk.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use larder_format::ChunkRef;
use larder_format::ids::{ContainerId, ContainerKind};
use larder_format::lease::Pin;
use larder_format::manifest::{ContainerUsage, Manifest};
use larder_format::recipe::{ContainerUse, Recipe, SegmentRef};
use larder_format::segment::ChunkRecord;
use larder_job::JobContext;
use larder_reader::{MetaChunks, RecipeReader, is_missing};
use larder_store::RepositoryError;
use larder_store::generations::NOT_A_GENERATION;
use larder_writer::{ContainerTotals, Usage, container_table, holdings, uses_of};

use crate::error::{PassError, stop_if_asked};
use crate::tables::IndexWork;

/// Why a generation does not supersede lower ones yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WhyUnproved {
    /// To prove it takes about this number of bytes, more than the pass may still read.
    Waiting {
        /// Bytes to read.
        bytes: u64,
    },
    /// To prove it takes reading contents, which the key of the pass does not open.
    NeedsContents,
    /// It is not what the version is: forged or damaged.
    Refuted {
        /// What was found.
        why: String,
    },
}

/// A generation that does not supersede lower ones yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unproved {
    /// The version.
    pub version: Pin,
    /// The generation.
    pub generation: u32,
    /// The reason.
    pub why: WhyUnproved,
}

/// Retired containers, and the containers that hold their chunks now and stay for who names them.
pub(super) type Forwards = HashMap<ContainerId, Vec<ContainerId>>;

/// What is known of a version before one of its generations is proved.
pub(super) struct Known {
    /// The highest proved generation.
    pub(super) truth: Arc<Manifest>,
    /// The retired containers among those that the candidate names.
    pub(super) forwards: Forwards,
}

/// Proves generations, within the bytes that a pass may read for that.
pub(super) struct Prover<'a> {
    context: JobContext,
    work: IndexWork<'a>,
    left: u64,
}

impl<'a> Prover<'a> {
    /// `most`: bytes of recipes and chunks that it may read.
    pub(super) fn new(context: JobContext, work: IndexWork<'a>, most: u64) -> Self {
        Self { context, work, left: most }
    }

    /// Proves a generation; `None`: it is proved.
    pub(super) async fn prove(
        &mut self,
        candidate: &Arc<Manifest>,
        known: Known,
    ) -> Result<Option<WhyUnproved>, PassError> {
        if !candidate.summary.is_generation_of(&known.truth.summary) {
            return Ok(Some(WhyUnproved::Refuted { why: NOT_A_GENERATION.to_string() }));
        }
        let held = holdings(&known.truth.containers);
        let about = about(candidate, &known.truth, &held);
        if about > self.left {
            return Ok(Some(WhyUnproved::Waiting { bytes: about }));
        }
        let (context, candidate, mut left) = (self.context.clone(), candidate.clone(), self.left);
        let walk = move |io: larder_index::IndexIo| {
            let context = context.on(&io.executor);
            let walked = Walk::new(&context, &candidate, &known, held).run(&mut left);
            Ok::<_, PassError>((walked?, left))
        };
        let (walked, left) = self.work.run(walk).await?;
        self.left = left;
        Ok(walked)
    }
}

/// The bytes to read for a proof, as far as the container tables tell: what is in new containers,
/// and the recipes of both generations.
fn about(candidate: &Manifest, truth: &Manifest, held: &HashMap<ContainerId, ContainerTotals>) -> u64 {
    let is_meta = |usage: &ContainerUsage| usage.container.kind == ContainerKind::Meta;
    let is_read = |usage: &&ContainerUsage| !held.contains_key(&usage.container) || is_meta(usage);
    let new = candidate.containers.iter().filter(is_read).chain(truth.containers.iter().filter(|usage| is_meta(usage)));
    let nodes = [&candidate.data, &candidate.metadata].into_iter().flat_map(|recipe| &recipe.nodes);
    let nodes = nodes.map(|node| u64::from(node.chunk.size));
    new.map(|usage| usage.bytes_used).chain(nodes).fold(0, u64::saturating_add)
}

/// How a walk ended early.
enum Stop {
    /// It is not what the version is.
    Refuted(String),
    /// Nothing more may be read.
    Spent,
    /// The key reads no contents, so it proves nothing.
    NoContents,
    Failed(PassError),
}

impl From<RepositoryError> for Stop {
    fn from(error: RepositoryError) -> Self {
        // Data in cold storage can be read later, as that of a key with contents.
        if error.is_foreign() || error.is_cold() {
            return Self::NoContents;
        }
        if error.is_damage() { Self::Refuted(error.to_string()) } else { Self::Failed(error.into()) }
    }
}

impl From<PassError> for Stop {
    fn from(error: PassError) -> Self {
        Self::Failed(error)
    }
}

/// The highest proved generation beside the candidate. Equal roots give both the same nodes,
/// segments and records, at different places.
struct Beside<'a> {
    recipe: &'a Recipe,
    reader: RecipeReader,
}

impl Beside<'_> {
    /// The records of a segment, if it is not stored in this chunk but elsewhere. `None`: they
    /// cannot be read, so every record is checked.
    fn records(
        &mut self,
        (node, segment): (usize, usize),
        left: &mut u64,
    ) -> Result<Option<Arc<Vec<ChunkRecord>>>, Stop> {
        let Some(reference) = self.recipe.nodes.get(node) else { return Ok(None) };
        if segment == 0 {
            spend(left, &reference.chunk)?;
        }
        let rows = unless_damaged(self.reader.node(node))?;
        let Some(row) = rows.as_ref().and_then(|rows| rows.segments.get(segment)) else { return Ok(None) };
        row.chain().try_for_each(|chunk| spend(left, chunk))?;
        unless_damaged(self.reader.records_of(row))
    }
}

fn unless_damaged<T>(read: Result<T, RepositoryError>) -> Result<Option<T>, Stop> {
    match read {
        Err(error) if error.is_damage() => Ok(None),
        read => Ok(Some(read?)),
    }
}

/// One walk over a generation.
struct Walk<'a> {
    context: &'a JobContext,
    candidate: &'a Manifest,
    known: &'a Known,
    /// The containers of the highest proved generation.
    held: HashMap<ContainerId, ContainerTotals>,
    /// Containers that stay for the candidate: those that it names, and those that hold the chunks
    /// of retired ones among them.
    staying: HashSet<ContainerId>,
    /// Chunks as recipes name them.
    named: MetaChunks,
    /// Chunks at the places where a reader finds them.
    located: MetaChunks,
    usage: Usage,
}

impl<'a> Walk<'a> {
    fn new(
        context: &'a JobContext,
        candidate: &'a Manifest,
        known: &'a Known,
        held: HashMap<ContainerId, ContainerTotals>,
    ) -> Self {
        let named = candidate.containers.iter().map(|usage| usage.container);
        let there = named.filter(|container| !known.forwards.contains_key(container));
        let staying = there.chain(known.forwards.values().flatten().copied()).collect();
        let (named, located) = (MetaChunks::new(context), MetaChunks::new(context).for_reading(candidate));
        Self { context, candidate, known, held, staying, named, located, usage: Usage::new() }
    }

    fn run(mut self, left: &mut u64) -> Result<Option<WhyUnproved>, PassError> {
        let allowed = *left;
        let walked = self.learn().and_then(|()| self.streams(left)).and_then(|()| self.table());
        match walked {
            Ok(()) => Ok(None),
            Err(Stop::NoContents) => Ok(Some(WhyUnproved::NeedsContents)),
            Err(Stop::Refuted(why)) => Ok(Some(WhyUnproved::Refuted { why })),
            // More than was allowed, and how much more is not known.
            Err(Stop::Spent) => {
                let bytes = about(self.candidate, &self.known.truth, &self.held).max(allowed.saturating_mul(2));
                Ok(Some(WhyUnproved::Waiting { bytes }))
            }
            Err(Stop::Failed(error)) => Err(error),
        }
    }

    /// Reads once where the chunks of retired containers are: for each chunk it would be a look at
    /// the index.
    fn learn(&self) -> Result<(), Stop> {
        if !self.known.forwards.is_empty() {
            self.located.moved().learn(self.known.forwards.keys().copied())?;
        }
        Ok(())
    }

    fn streams(&mut self, left: &mut u64) -> Result<(), Stop> {
        let (candidate, truth) = (self.candidate, &*self.known.truth);
        for (recipe, of_truth) in [(&candidate.data, &truth.data), (&candidate.metadata, &truth.metadata)] {
            let mut reader = RecipeReader::new(Arc::new(recipe.clone()), self.named.clone());
            let beside = RecipeReader::new(Arc::new(of_truth.clone()), self.named.clone());
            let mut beside = Beside { recipe: of_truth, reader: beside };
            for (number, node) in recipe.nodes.iter().enumerate() {
                self.names(&node.chunk);
                spend(left, &node.chunk)?;
                let is_shared = of_truth.nodes.get(number).is_some_and(|same| same.chunk == node.chunk);
                let rows = reader.node(number)?;
                for (place, row) in rows.segments.iter().enumerate() {
                    stop_if_asked(&self.context.cancel)?;
                    let beside = if is_shared { None } else { Some((&mut beside, (number, place))) };
                    self.segment(row, &reader, beside, left)?;
                }
            }
        }
        Ok(())
    }

    /// `beside`: the same segment of the highest proved generation, unless both share the node.
    fn segment(
        &mut self,
        row: &SegmentRef,
        reader: &RecipeReader,
        beside: Option<(&mut Beside<'_>, (usize, usize))>,
        left: &mut u64,
    ) -> Result<(), Stop> {
        for chunk in row.chain() {
            self.names(chunk);
            spend(left, chunk)?;
        }
        let records = reader.records_of(row)?;
        if sorted(uses_of(&records)) != sorted(row.uses.clone()) {
            return Err(Stop::Refuted("a segment uses other containers than its node says".to_owned()));
        }
        records.iter().for_each(|record| self.names(&record.chunk));
        let Some((beside, place)) = beside else { return Ok(()) };
        let may_be_same = records.iter().any(|record| self.held.contains_key(&record.chunk.container));
        let truth = if may_be_same { beside.records(place, left)? } else { None };
        let mut others = Vec::new();
        for (number, record) in records.iter().enumerate() {
            let same = truth.as_ref().and_then(|truth| truth.get(number));
            if same.is_none_or(|same| same.chunk != record.chunk) {
                spend(left, &record.chunk)?;
                others.push(record.chunk);
            }
        }
        self.read(others)
    }

    /// Reads chunks where their records say, or where they were moved to. Readers compare
    /// fingerprints.
    ///
    /// An object under the name of a retired container proves nothing, because passes delete it.
    /// Nor does another copy that the index knows, because it may go.
    fn read(&self, chunks: Vec<ChunkRef>) -> Result<(), Stop> {
        let (mut moved, mut places): (Vec<_>, Vec<_>) =
            chunks.into_iter().partition(|chunk| self.known.forwards.contains_key(&chunk.container));
        self.located.locate_all(&mut moved)?;
        places.append(&mut moved);
        if places.iter().any(|place| !self.staying.contains(&place.container)) {
            return Err(Stop::Refuted("a chunk is in none of the containers that stay for it".to_owned()));
        }
        for place in &places {
            self.named.read(place)?;
        }
        Ok(())
    }

    fn names(&mut self, chunk: &ChunkRef) {
        let used = self.usage.entry(chunk.container).or_default();
        *used = (used.0 + 1, used.1 + u64::from(chunk.size));
    }

    /// Compares the container table with the records and with the containers' own tables.
    fn table(&self) -> Result<(), Stop> {
        let mut held = self.held.clone();
        for usage in &self.candidate.containers {
            stop_if_asked(&self.context.cancel)?;
            if let std::collections::hash_map::Entry::Vacant(of_container) = held.entry(usage.container) {
                let repository = &self.context.repository;
                let index = self.context.executor.block_on(repository.read_container_index(usage.container));
                of_container.insert(match index {
                    Ok(index) => ContainerTotals::of_index(&index),
                    // Its chunks were moved, so that only its name is left.
                    Err(error) if is_missing(&error) && self.known.forwards.contains_key(&usage.container) => {
                        ContainerTotals::of(usage)
                    }
                    Err(error) => return Err(error.into()),
                });
            }
        }
        let mut stated = self.candidate.containers.clone();
        stated.sort_by_key(|usage| usage.container);
        match container_table(&self.usage, |id| held.get(id).copied()) {
            Some(table) if table == stated => Ok(()),
            _ => Err(Stop::Refuted("its container table does not follow from its recipes".to_owned())),
        }
    }
}

fn sorted(mut uses: Vec<ContainerUse>) -> Vec<ContainerUse> {
    uses.sort_by_key(|used| used.container);
    uses
}

fn spend(left: &mut u64, chunk: &ChunkRef) -> Result<(), Stop> {
    *left = left.checked_sub(u64::from(chunk.size)).ok_or(Stop::Spent)?;
    Ok(())
}
