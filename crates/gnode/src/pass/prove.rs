//! Proves generations that other programs wrote (`ProvedBeforeRetired`).
//!
//! Equal roots say that a generation names the same content. They do not say that the content is
//! where the generation says, nor that its container table has all that it needs. Its writer may
//! have been wrong or hostile. So before it supersedes lower generations, whose containers may then
//! go, a pass walks it once:
//!
//! - every node and segment is read and has the digest in the row above it;
//! - the uses in rows and the container table follow from the records;
//! - every chunk in a container that the highest proved generation does not name is read and has
//!   its fingerprint.
//!
//! Generation 0 counts as proved: it is the version. The result is in the version's row of the
//! index, so each generation is walked once. Those that this process wrote need no walk.

use std::collections::HashMap;
use std::sync::Arc;

use larder_format::ChunkRef;
use larder_format::ids::ContainerId;
use larder_format::lease::Pin;
use larder_format::manifest::{ContainerUsage, Manifest, Summary};
use larder_format::recipe::{ContainerUse, SegmentRef};
use larder_job::JobContext;
use larder_reader::{MetaChunks, RecipeReader, is_missing};
use larder_store::RepositoryError;
use larder_store::generations::NOT_A_GENERATION;
use larder_writer::{ContainerTotals, Usage, container_table, holdings, uses_of};

use crate::error::{PassError, stop_if_asked};
use crate::tables::IndexWork;

/// How often the place of a moved chunk is looked up.
const LOOKS_MAX: u32 = 3;

/// Why a generation does not supersede lower ones yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WhyUnproved {
    /// To prove it takes about this number of bytes, more than the pass may still read.
    Waiting {
        /// Bytes to read.
        bytes: u64,
    },
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

/// The highest proved generation of a version.
pub(super) struct Truth<'a> {
    pub(super) summary: &'a Summary,
    pub(super) containers: &'a [ContainerUsage],
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
        truth: Truth<'_>,
    ) -> Result<Option<WhyUnproved>, PassError> {
        if !candidate.summary.is_generation_of(truth.summary) {
            return Ok(Some(WhyUnproved::Refuted { why: NOT_A_GENERATION.to_string() }));
        }
        let known = holdings(truth.containers);
        let about = about(candidate, &known);
        if about > self.left {
            return Ok(Some(WhyUnproved::Waiting { bytes: about }));
        }
        let (context, candidate, mut left) = (self.context.clone(), candidate.clone(), self.left);
        let walk = move |io: larder_index::IndexIo| {
            let context = context.on(&io.executor);
            let walked = Walk::new(&context, &candidate, &known).run(&mut left);
            Ok::<_, PassError>((walked?, left))
        };
        let (walked, left) = self.work.run(walk).await?;
        self.left = left;
        Ok(walked)
    }
}

/// The bytes to read for a proof, as far as the container table tells.
fn about(candidate: &Manifest, known: &HashMap<ContainerId, ContainerTotals>) -> u64 {
    let new = candidate.containers.iter().filter(|usage| !known.contains_key(&usage.container));
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
    Failed(PassError),
}

impl From<RepositoryError> for Stop {
    fn from(error: RepositoryError) -> Self {
        if error.is_damage() { Self::Refuted(error.to_string()) } else { Self::Failed(error.into()) }
    }
}

impl From<PassError> for Stop {
    fn from(error: PassError) -> Self {
        Self::Failed(error)
    }
}

/// One walk over a generation.
struct Walk<'a> {
    context: &'a JobContext,
    candidate: &'a Manifest,
    known: &'a HashMap<ContainerId, ContainerTotals>,
    /// Chunks as recipes name them.
    named: MetaChunks,
    /// Chunks at the places where a reader finds them.
    located: MetaChunks,
    usage: Usage,
}

impl<'a> Walk<'a> {
    fn new(context: &'a JobContext, candidate: &'a Manifest, known: &'a HashMap<ContainerId, ContainerTotals>) -> Self {
        let (named, located) = (MetaChunks::new(context), MetaChunks::new(context).for_reading(candidate));
        Self { context, candidate, known, named, located, usage: Usage::new() }
    }

    fn run(mut self, left: &mut u64) -> Result<Option<WhyUnproved>, PassError> {
        let walked = self.streams(left).and_then(|()| self.table());
        match walked {
            Ok(()) => Ok(None),
            Err(Stop::Refuted(why)) => Ok(Some(WhyUnproved::Refuted { why })),
            Err(Stop::Spent) => Ok(Some(WhyUnproved::Waiting { bytes: about(self.candidate, self.known) })),
            Err(Stop::Failed(error)) => Err(error),
        }
    }

    fn streams(&mut self, left: &mut u64) -> Result<(), Stop> {
        for recipe in [&self.candidate.data, &self.candidate.metadata] {
            let mut reader = RecipeReader::new(Arc::new(recipe.clone()), self.named.clone());
            for (number, node) in recipe.nodes.iter().enumerate() {
                self.names(&node.chunk);
                spend(left, &node.chunk)?;
                let rows = reader.node(number)?;
                for row in &rows.segments {
                    stop_if_asked(&self.context.cancel)?;
                    self.segment(row, &reader, left)?;
                }
            }
        }
        Ok(())
    }

    fn segment(&mut self, row: &SegmentRef, reader: &RecipeReader, left: &mut u64) -> Result<(), Stop> {
        self.names(&row.chunk);
        spend(left, &row.chunk)?;
        let records = reader.records_of(row)?;
        if sorted(uses_of(&records)) != sorted(row.uses.clone()) {
            return Err(Stop::Refuted("a segment uses other containers than its node says".to_owned()));
        }
        for record in records.iter() {
            self.names(&record.chunk);
            if !self.known.contains_key(&record.chunk.container) {
                spend(left, &record.chunk)?;
                self.read(&record.chunk)?;
            }
        }
        Ok(())
    }

    /// Reads a chunk where its record says, or where it was moved to. Readers compare fingerprints.
    fn read(&self, chunk: &ChunkRef) -> Result<(), Stop> {
        match self.named.read(chunk) {
            Err(error) if is_missing(&error) => {}
            read => {
                read?;
                return Ok(());
            }
        }
        let mut missed = chunk.container;
        let mut looks = 0;
        loop {
            self.located.moved().learn([missed])?;
            let mut place = [*chunk];
            self.located.locate_all(&mut place)?;
            let [place] = place;
            if self.known.contains_key(&place.container) {
                return Ok(());
            }
            looks += 1;
            match self.located.read(&place) {
                Err(error) if is_missing(&error) && looks < LOOKS_MAX && place.container != missed => {
                    missed = place.container;
                }
                read => {
                    read?;
                    return Ok(());
                }
            }
        }
    }

    fn names(&mut self, chunk: &ChunkRef) {
        let used = self.usage.entry(chunk.container).or_default();
        *used = (used.0 + 1, used.1 + u64::from(chunk.size));
    }

    /// Compares the container table with the records and with the containers' own tables.
    fn table(&self) -> Result<(), Stop> {
        let mut held = self.known.clone();
        for usage in &self.candidate.containers {
            stop_if_asked(&self.context.cancel)?;
            if let std::collections::hash_map::Entry::Vacant(of_container) = held.entry(usage.container) {
                let repository = &self.context.repository;
                let index = self.context.executor.block_on(repository.read_container_index(usage.container));
                of_container.insert(match index {
                    Ok(index) => ContainerTotals::of_index(&index),
                    // Its chunks were moved, so that only its name is left.
                    Err(error) if is_missing(&error) => ContainerTotals::of(usage),
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
