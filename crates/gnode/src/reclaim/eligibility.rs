//! Decides which containers may be retired, and which may be redirect targets. The rules of
//! `docs/concurrency.md` for containers are applied here, to the observations of the pass and the
//! facts of the index.

use std::collections::HashSet;
use std::path::Path;

use larder_format::ids::{ContainerId, ContainerKind, JobId};
use larder_format::index_tables::{ContainerFacts, ContainerState};
use larder_format::layout::Layout;
use larder_index::{Containers, Draft, IndexError, IndexPass, LookupOptions};
use larder_lifecycle::arrange::ContainerRetention;
use larder_spill::{Pages, Row, RowReader, RowWriter};
use larder_store::cold_containers::ColdContainers;

use crate::ingest::Numbers;
use crate::lifespans::{self, is_used};
use crate::spilled::spilled;

/// The observations of the pass.
#[derive(Debug, Clone, Default)]
pub(crate) struct RetentionView {
    /// The versions that the index has and that are retained: not marked, in their newest
    /// generation, the only one that counts.
    pub(crate) retained: lifespans::Numbers,
    /// The newest of each series among them, and the bases of running backups and defragmentation.
    /// They need no index.
    pub(crate) spared: lifespans::Numbers,
    /// Of the versions in `retained` those of the layout `lifecycle`.
    pub(crate) arranged: lifespans::Numbers,
    /// And those of the standard layout.
    pub(crate) standard: lifespans::Numbers,
    /// Containers that manifests name which count and are not in the index.
    pub(crate) held: HashSet<ContainerId>,
    /// Jobs that were settled before the leases were listed.
    pub(crate) settled: HashSet<JobId>,
    /// Jobs that had a lease when they were listed.
    pub(crate) leased: HashSet<JobId>,
    /// Jobs that live leases adopt.
    pub(crate) adopted: HashSet<JobId>,
    /// Containers with lower numbers may have been retired before.
    pub(crate) rebuilt: u32,
}

impl RetentionView {
    /// Whether a retained version uses a container that is of another layout than the container.
    /// Such a container is neither arranged nor retired (`LayoutsApart`): arranging reads recipes
    /// of one layout, and chunk-wise collection those of the other.
    pub(crate) fn is_apart(&self, facts: &ContainerFacts) -> bool {
        let others = match facts.layout {
            Layout::Standard => &self.arranged,
            Layout::Lifecycle => &self.standard,
        };
        is_used(facts, others)
    }

    /// Whether a container could be deleted were it not for the versions that name it
    /// (`RetireSettled`, `RetireNotAdopted`).
    pub(crate) fn is_free(&self, id: &ContainerId) -> bool {
        let is_over = self.settled.contains(&id.job) || !self.leased.contains(&id.job);
        is_over && !self.adopted.contains(&id.job)
    }
}

impl ContainerRetention for RetentionView {
    fn is_free(&self, id: &ContainerId) -> bool {
        Self::is_free(self, id)
    }

    fn is_held(&self, id: &ContainerId) -> bool {
        self.held.contains(id)
    }

    fn is_apart(&self, facts: &ContainerFacts) -> bool {
        Self::is_apart(self, facts)
    }

    fn rebuilt(&self) -> u32 {
        self.rebuilt
    }
}

/// A container that may be retired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) id: ContainerId,
    pub(super) chunks: u32,
    pub(super) bytes: u64,
    pub(super) object_bytes: u64,
}

/// A candidate with its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Numbered(u32, Candidate);

impl Row for Numbered {
    const BYTES: usize = 44;

    fn encode(&self, row: &mut RowWriter<'_>) {
        let Self(number, Candidate { id, chunks, bytes, object_bytes }) = self;
        row.u32(*number);
        row.bytes(&id.job.0);
        row.u32(id.seq);
        row.u32(*chunks);
        row.u64(*bytes);
        row.u64(*object_bytes);
    }

    fn decode(row: &mut RowReader<'_>) -> Self {
        let number = row.u32();
        let id = ContainerId { kind: ContainerKind::Data, job: JobId(row.bytes()), seq: row.u32() };
        Self(number, Candidate { id, chunks: row.u32(), bytes: row.u64(), object_bytes: row.u64() })
    }
}

/// Those that may be retired, all of data. They grow with the repository, so they are in pages.
#[derive(Debug)]
pub(super) struct Candidates {
    all: Pages<Numbered>,
    numbers: Numbers,
}

impl Default for Candidates {
    fn default() -> Self {
        Self::new(&std::env::temp_dir(), 0)
    }
}

impl Candidates {
    /// None. They take about `memory` bytes of memory at most, beside a bit for each number.
    pub(super) fn new(folder: &Path, memory: usize) -> Self {
        Self { all: Pages::new(folder, memory), numbers: Numbers::default() }
    }

    pub(super) fn insert(&mut self, number: u32, candidate: Candidate) -> Result<(), IndexError> {
        self.numbers.insert(number);
        self.all.push(&Numbered(number, candidate)).map(drop).map_err(spilled)
    }

    /// Whether a container is one.
    pub(super) fn contains_key(&self, number: &u32) -> bool {
        self.numbers.contains(*number)
    }

    /// Shows all of them, in no order.
    pub(super) fn each(
        &mut self,
        mut each: impl FnMut(u32, &Candidate) -> Result<(), IndexError>,
    ) -> Result<(), IndexError> {
        for first in (0..self.all.len()).step_by(Pages::<Numbered>::PAGE_ROWS as usize) {
            for Numbered(number, candidate) in
                self.all.read(first..first + Pages::<Numbered>::PAGE_ROWS).map_err(spilled)?
            {
                each(number, &candidate)?;
            }
        }
        Ok(())
    }
}

/// The eligibility of containers, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Eligibility {
    /// Those that may be retired.
    pub(super) candidates: Candidates,
    /// Those that chunks may be redirected to.
    pub(super) redirect_targets: Numbers,
    /// Those of them that newest versions use, and that therefore stay longest.
    pub(super) newest_targets: Numbers,
    /// Those that retained versions need, and that may not be retired for now.
    pub(super) in_use: Numbers,
    /// Those that exist.
    pub(super) known: Numbers,
    /// Uncompressed bytes of all data containers.
    pub(super) data_bytes: u64,
    /// Chunks in them.
    pub(super) data_chunks: u64,
    /// The number that the next container gets.
    pub(super) next_container: u32,
}

impl Eligibility {
    /// Reads the table of containers as the draft has it. A container that cannot be relied on is
    /// neither retired nor a redirect target.
    pub(super) fn read(
        pass: &IndexPass,
        draft: &Draft<'_>,
        retention: &RetentionView,
        unreadable: &HashSet<ContainerId>,
        cold: Option<&ColdContainers>,
    ) -> Result<Self, IndexError> {
        let next_container = draft.manifest.head.next_container;
        let candidates = Candidates::new(&pass.folder, pass.memory / 16);
        let mut eligibility = Self { next_container, candidates, ..Self::default() };
        let mut redirected_to = Numbers::default();
        let mut unused = Vec::new();
        let table = draft.view::<Containers>(LookupOptions::default());
        for record in table.scan(0..=u64::MAX, pass.memory / 4) {
            let (number, Some(facts)) = record? else { continue };
            if facts.layout != Layout::Standard {
                continue;
            }
            let is_used = is_used(&facts, &retention.retained);
            if is_used {
                facts.forwards.iter().for_each(|forward| redirected_to.insert(*forward));
            }
            if facts.state != ContainerState::Live {
                continue;
            }
            eligibility.known.insert(number);
            if facts.id.kind != ContainerKind::Data {
                continue;
            }
            eligibility.data_bytes += facts.bytes;
            eligibility.data_chunks += u64::from(facts.chunks);
            let is_cold = match cold {
                Some(cold) => cold.find(&facts.id).map_err(spilled)?.is_some(),
                None => false,
            };
            if is_cold || unreadable.contains(&facts.id) {
                continue;
            }
            match is_used {
                true => eligibility.place(number, &facts, retention)?,
                false => unused.push((number, facts)),
            }
        }
        // A redirect is a reference (`RedirectIsReference`): a container that was written for a
        // retired one counts as used.
        for (number, facts) in unused.into_iter().filter(|(number, _)| redirected_to.contains(*number)) {
            eligibility.place(number, &facts, retention)?;
        }
        Ok(eligibility)
    }

    /// A data container that retained versions need and that can be relied on.
    fn place(&mut self, number: u32, facts: &ContainerFacts, retention: &RetentionView) -> Result<(), IndexError> {
        let is_spared = is_used(facts, &retention.spared);
        // `RedirectToCommitted`, `RedirectToUnmarked`: the versions in `retained` count as they
        // are. `RebuiltKeepsCopies`.
        if number >= retention.rebuilt {
            self.redirect_targets.insert(number);
            if is_spared {
                self.newest_targets.insert(number);
            }
        }
        if !is_spared
            && !retention.is_apart(facts)
            && retention.is_free(&facts.id)
            && !retention.held.contains(&facts.id)
        {
            let ContainerFacts { id, chunks, bytes, object_bytes, .. } = *facts;
            self.candidates.insert(number, Candidate { id, chunks, bytes, object_bytes })?;
        } else {
            self.in_use.insert(number);
        }
        Ok(())
    }
}
