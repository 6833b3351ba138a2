//! Stage 7: the version of an image is written, and committed. The image is not read.
//!
//! Recipes are in containers of the host's job, as new chunks are. So images of one host share
//! segments that are equal. Chunks are born with the job that stored them, and not with that of the
//! image, or no segments would be equal.

use std::collections::HashMap;
use std::sync::Arc;

use larder_format::ChunkRef;
use larder_format::fleet::{ChunkRun, ScanItem, ScannedSegment, Scans, Stage, TaskId};
use larder_format::ids::ContainerId;
use larder_format::layout::Layout;
use larder_format::manifest::{SourceKind, Statistics, Summary};
use larder_format::segment::ChunkRecord;
use larder_index::Cursor;
use larder_job::Ending;
use larder_lnode::BackupError;
use larder_lnode::assemble::{Description, VersionWriter, commit_adopting};
use larder_reader::{MetaChunks, RecipeReader};
use larder_writer::ContainerTotals;

use super::join::damaged_record;
use super::places::{Place, Places};
use super::scan::Scanned;
use super::store::{StoreJob, Stored};
use crate::error::FleetError;
use crate::exchange::{Decided, Facts, OutputCursor, Outputs};
use crate::shared::Batch;

/// What the image's host stored.
pub(crate) type HeldByHost = HashMap<ContainerId, ContainerTotals>;

/// Writes and commits the version of an image.
#[expect(clippy::too_many_arguments, reason = "called once, with what an image has at its end")]
pub(crate) fn finish(
    batch: &Batch<'_>,
    number: u32,
    scanned: &Scanned,
    stored: Stored,
    store: &mut StoreJob,
    by_host: &HeldByHost,
    stored_bytes: u64,
    shown: Vec<u8>,
    remark: Option<String>,
) -> Result<(Option<Decided>, Summary), FleetError> {
    let outputs = Outputs::begin(batch, TaskId { stage: Stage::Finish, round: 0, number })?;
    let Stored { keeper, base, held, shared, hosts, mut places, new_chunks, added_bytes, .. } = stored;
    let result = (|| {
        let planned = batch.image(number);
        let mut writer = VersionWriter::new(batch.context, planned.job, store.recipes(), base.as_ref());
        let recipe = base.as_ref().map(|base| Arc::new(base.manifest.data.clone()));
        let mut records = Records {
            places: &mut places,
            base: recipe.map(|recipe| RecipeReader::new(recipe, MetaChunks::new(batch.context))),
            number: 0,
            last: None,
        };
        let mut items = OutputCursor::new::<Scans>(batch, &scanned.task, 0..=u64::MAX);
        while items.advance()? {
            if batch.context.cancel.is_cancelled() {
                return Err(BackupError::Interrupted.into());
            }
            let item = ScanItem::decode(items.value().unwrap_or_default()).map_err(damaged_record("scan"))?;
            match item {
                ScanItem::Keep { first, count, .. } => writer.keep(first..first.saturating_add(count))?,
                ScanItem::Segment(ScannedSegment { proof, runs }) => {
                    let segment = records.of(&runs)?;
                    writer.segment(segment, proof)?;
                }
            }
        }
        let scan = &scanned.scan;
        let counted =
            Statistics { read_bytes: scan.read_bytes, new_chunks, added_bytes, stored_bytes, ..Statistics::default() };
        let options = batch.options;
        let description = Description {
            series: planned.series.clone(),
            layout: Layout::Standard,
            base: base.as_ref().map(|base| base.manifest.summary.id),
            more_bases: shared,
            time_ms: options.time_ms.unwrap_or(batch.plan.time_ms),
            started_ms: batch.plan.time_ms,
            host: batch.host(planned.host).name.clone(),
            user: options.user.clone(),
            tags: options.tags.clone(),
            paths: vec![shown],
            program: options.program.clone(),
            source: SourceKind::Stream,
            origin: None,
        };
        let own = batch.store_of(planned.host).filter(|_| hosts.contains(&planned.host));
        let held = |id: &ContainerId| {
            let of_host = || by_host.get(id).filter(|_| own == Some(id.job));
            held.get(id).or_else(of_host).copied()
        };
        let manifest = writer.finish(&scan.entry, counted, description, held)?;
        let meta_bytes = manifest.summary.statistics.stored_bytes.saturating_sub(stored_bytes);
        let ending = commit_adopting(batch.context, &manifest)?;
        Ok((manifest.summary, ending, meta_bytes))
    })();
    match result {
        Ok((summary, ending, meta_bytes)) => {
            keeper.end(ending);
            let facts = Facts { stored_bytes: meta_bytes, remark, ..Facts::default() };
            // The version exists, whatever became of the register.
            let decided = outputs.done(facts);
            if let Err(error) = &decided {
                tracing::warn!(%error, "the register of a task cannot be created");
            }
            Ok((decided.ok(), summary))
        }
        Err(error) => {
            // The commit may be under way, so the lease expires.
            keeper.end(Ending::Ended);
            // A container that stays open would be waited for.
            if let Err(error) = store.recipes().flush() {
                tracing::warn!(%error, "recipes of a version that failed cannot be stored");
            }
            Err(error)
        }
    }
}

/// Turns runs of a scan into records.
struct Records<'p> {
    places: &'p mut Places,
    base: Option<RecipeReader>,
    /// Chunks that were asked for so far.
    number: u32,
    /// The last of them.
    last: Option<ChunkRecord>,
}

impl Records<'_> {
    fn of(&mut self, runs: &[ChunkRun]) -> Result<Vec<ChunkRecord>, FleetError> {
        let mut records = Vec::new();
        for run in runs {
            match run {
                ChunkRun::Asked(chunks) => {
                    for (size, fingerprint) in chunks {
                        let place = self.places.get(self.number, fingerprint);
                        let place = place.map_err(|source| FleetError::Scratch { source })?;
                        let Place { container, offset } = place.ok_or(FleetError::NoPlace)?;
                        let chunk = ChunkRef { fingerprint: *fingerprint, container, offset, size: *size };
                        let record = ChunkRecord { chunk, born: container.job };
                        self.last = Some(record);
                        records.push(record);
                        self.number += 1;
                    }
                }
                ChunkRun::Repeated(count) => {
                    let last = self.last.ok_or(FleetError::NoPlace)?;
                    records.extend(std::iter::repeat_n(last, *count as usize));
                }
                ChunkRun::Base { segment, first, count, .. } => {
                    let base = self.base.as_mut().ok_or(FleetError::NoPlace)?;
                    let all = base.segment(*segment)?;
                    let range = *first as usize..*first as usize + *count as usize;
                    records.extend_from_slice(all.get(range).ok_or(FleetError::NoPlace)?);
                }
            }
        }
        Ok(records)
    }
}
