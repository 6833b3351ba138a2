//! Arranging: chunks of series in the layout `lifecycle` come to lie together with those that are needed by the same versions (MFDedup
//! section 3.3, AVAR). `docs/lifecycle.md` says what extents, categories and volumes are.
//!
//! Called by a pass, in the draft of its index, after it has taken in new versions. Nothing that anybody reads changes before the
//! index is published; then the containers that were given up may be deleted, as when chunks are given up (`giving_up`).
//!
//! * `series`: what the index knows of one series: its containers, and the records of their extents.
//! * `references`: which stretches of containers new versions use.
//! * `classify`: until when each stretch is needed. Pure.
//! * `choose`: which containers are worth giving up. Pure.
//! * `carry`: copies what is still needed of those, volume by volume.
//! * `settle`: what the table of containers says then.
//!
//! Invariants
//! * An extent that a retained version uses, or a version that was not arranged yet, has bytes that are there and were read, with their
//!   fingerprints, before they were given up elsewhere.
//! * A container has a lifespan that covers those of its extents.
//! * What cannot be read is not given up. Of a series of which a recipe cannot be read nothing changes.
//!
//! Beyond the paper: what stays is not copied; a container is given up only when too much of it has gone (SEEDS 2.2.1); several versions
//! are arranged at once, whatever the order in which they are forgotten (2.2.2, 2.2.7), and versions that were made at the same time
//! (2.2.10).

mod carry;
mod choose;
mod classify;
mod references;
mod series;
mod settle;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use larder_format::compress::Compression;
use larder_format::ids::{ByteCount, ContainerId, JobId, SeriesKey};
use larder_format::index_manifest::IndexedVersion;
use larder_format::index_tables::ContainerState;
use larder_index::{Draft, IndexPass};
use larder_lnode::Context;
use larder_lnode::relayout::{Relayout, RelayoutError};
use larder_store::survey::ListedContainer;

use crate::giving_up::{GiveUpError, Rights};
use carry::Ended;
use series::{Known, Series};

/// How often a series begins again because something in it cannot be read.
const ATTEMPTS: u32 = 8;

/// How series in the layout `lifecycle` are arranged.
#[derive(Debug, Clone, PartialEq)]
pub struct ArrangeOptions {
    /// A container is given up when more than this share of its bytes (percent) is of other versions than most of it; half of that is
    /// enough when nobody needs them. 0 is MFDedup's own layout. `None`: as is set for each series.
    pub holes_percent: Option<f64>,
    /// Look also at series of which nothing new is known.
    pub all: bool,
    /// How copies are compressed.
    pub compression: Compression,
}

impl Default for ArrangeOptions {
    fn default() -> Self {
        Self { holes_percent: None, all: false, compression: Compression::DEFAULT }
    }
}

/// What arranging did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Arranged {
    /// Versions that were arranged.
    pub versions: u64,
    /// Chunks that were copied.
    pub moved_chunks: u64,
    /// Their bytes, uncompressed.
    pub moved_bytes: ByteCount,
    /// Containers that were written.
    pub written: u64,
    /// Their bytes.
    pub written_bytes: ByteCount,
    /// Containers that cannot be read, and were left as they are.
    pub unreadable: Vec<ContainerId>,
    /// Whether it was told to stop: the next pass goes on.
    pub was_stopped: bool,
    /// Containers that are to be deleted, and their bytes.
    pub given_up: u64,
    /// Bytes of those.
    pub given_up_bytes: ByteCount,
    pub(crate) containers: Vec<ListedContainer>,
    /// The number that the pass's next container gets.
    pub(crate) next_number: u32,
}

impl Arranged {
    /// Whether it changed nothing that is worth an index.
    pub(crate) fn is_nothing(&self) -> bool {
        self.versions == 0 && self.written == 0 && self.containers.is_empty()
    }

    /// Whether it may have written containers that no index has.
    pub(crate) fn may_have_left(&self) -> bool {
        self.was_stopped || !self.unreadable.is_empty()
    }

    /// Adds what was done after it.
    pub(crate) fn add(&mut self, next: Self) {
        self.versions += next.versions;
        self.moved_chunks += next.moved_chunks;
        self.moved_bytes.0 += next.moved_bytes.0;
        self.written += next.written;
        self.written_bytes.0 += next.written_bytes.0;
        self.unreadable.extend(next.unreadable);
        self.was_stopped |= next.was_stopped;
        self.given_up += next.given_up;
        self.given_up_bytes.0 += next.given_up_bytes.0;
        self.containers.extend(next.containers);
    }
}

/// A series that is to be arranged.
#[derive(Debug, Clone)]
pub(crate) struct Unarranged {
    pub(crate) series: SeriesKey,
    /// Its versions that are retained, by rising number.
    pub(crate) versions: Vec<IndexedVersion>,
    /// Whether there is something to arrange, however much may be left over.
    pub(crate) is_due: bool,
    /// Percent, as in [`ArrangeOptions`].
    pub(crate) holes_percent: f64,
}

impl Unarranged {
    /// Numbers of versions that are to be arranged.
    fn new_numbers(&self) -> Vec<u32> {
        self.versions.iter().filter(|version| !version.is_arranged).map(|version| version.number).collect()
    }

    fn retained(&self) -> BTreeSet<u32> {
        self.versions.iter().map(|version| version.number).collect()
    }
}

/// All that is to be known for it.
pub(crate) struct Work {
    pub(crate) options: ArrangeOptions,
    /// For reading and writing contents.
    pub(crate) context: Context,
    /// The pass, to which new containers belong.
    pub(crate) job: JobId,
    pub(crate) rights: Rights,
    pub(crate) series: Vec<Unarranged>,
    pub(crate) stop: Arc<dyn Fn() -> bool + Send + Sync>,
}

/// Arranges what is to be arranged, and changes the draft. The containers of [`Arranged`] may be deleted as soon as the draft is
/// published.
pub(crate) fn arrange(pass: &IndexPass, draft: &mut Draft<'_>, work: &Work) -> Result<Arranged, GiveUpError> {
    let mut arranged = Arranged::default();
    let mut relayout = None;
    let mut settling = BTreeMap::new();
    for series in &work.series {
        if (work.stop)() {
            arranged.was_stopped = true;
            break;
        }
        if let Some(settled) = arrange_series(pass, draft, work, series, &mut relayout, &mut arranged)? {
            settling.insert(series.series, settled);
        }
    }
    let written = match relayout {
        Some(relayout) => {
            arranged.next_number = relayout.next_number();
            relayout.finish()?
        }
        None => Default::default(),
    };
    settle::settle(pass, draft, work, settling, &written, &mut arranged)?;
    for table in [larder_format::index_manifest::Table::Extents, larder_format::index_manifest::Table::Containers] {
        draft.compact(table)?;
    }
    let statistics = &mut draft.manifest.head.statistics;
    statistics.chunks_moved += arranged.moved_chunks;
    statistics.containers_written += arranged.written;
    statistics.bytes_written += arranged.written_bytes.0;
    Ok(arranged)
}

/// `None` when nothing of it is to change.
fn arrange_series(
    pass: &IndexPass,
    draft: &mut Draft<'_>,
    work: &Work,
    unarranged: &Unarranged,
    relayout: &mut Option<Relayout>,
    arranged: &mut Arranged,
) -> Result<Option<Series>, GiveUpError> {
    let series = Series::read(pass, draft, unarranged.series)?;
    // Neither what is gone nor what may go at any time can be relied on (`RebuiltKeepsCopies`).
    let may_go = |known: &Known| known.number < work.rights.rebuilt && !known.facts.forwards.is_empty();
    if series.containers.values().any(|known| known.facts.state == ContainerState::Gone || may_go(known)) {
        tracing::warn!(
            "a series is not arranged: the index was made anew, and does not know where its containers' bytes went"
        );
        return Ok(None);
    }
    let mut uses = match references::references(pass, work, unarranged) {
        Ok(Some(uses)) => uses,
        Ok(None) => return Ok(None),
        Err(GiveUpError::Relayout(RelayoutError::Interrupted)) => {
            // Nothing of it has changed. What the pass knows of other series, and of what may go, is worth its index.
            arranged.was_stopped = true;
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    if !classify::classify(pass, draft, work, unarranged, &series, &mut uses)? {
        return Ok(None);
    }
    let mut distrusted = HashSet::new();
    let mut was_cut = false;
    for _ in 0..ATTEMPTS {
        let content = series.content(pass, draft)?;
        let chosen = choose::choose(&series, &content, unarranged, &work.rights, &distrusted);
        if chosen.is_empty() {
            break;
        }
        let writing = match relayout {
            Some(relayout) => relayout,
            None => {
                relayout.insert(Relayout::new(&work.context.on(&pass.io.runtime), work.job, work.options.compression)?)
            }
        };
        match carry::carry(pass, draft, work, &series, &chosen, writing, arranged)? {
            Ended::Done => break,
            Ended::Stopped => {
                was_cut = true;
                break;
            }
            Ended::Distrusted(container) => {
                arranged.unreadable.push(container);
                distrusted.insert(container);
            }
        }
    }
    // What is left to be given up is looked for when something is due. So the newest version stays to be arranged, which says nothing new
    // of what it uses.
    let newest = unarranged.versions.last().map(|version| version.number).filter(|_| was_cut);
    arranged.was_stopped |= was_cut;
    let new: HashSet<u32> = unarranged.new_numbers().into_iter().filter(|number| Some(*number) != newest).collect();
    for version in draft.manifest.versions.iter_mut().filter(|version| version.series == unarranged.series) {
        if Some(version.number) == newest {
            version.is_arranged = false;
        }
        if new.contains(&version.number) {
            version.is_arranged = true;
            arranged.versions += 1;
        }
    }
    Ok(Some(series))
}

fn interrupted() -> GiveUpError {
    GiveUpError::Relayout(RelayoutError::Interrupted)
}
