//! The parts of an image that need not be read: finds the map of changes that follows the base, and
//! checks it.
//!
//! A map that cannot be used, or that is wrong, costs a read of the whole image in the same run.

use std::sync::Arc;

use larder_format::entry::EntryKind;
use larder_format::manifest::{SourceKind, Summary};
use larder_format::recipe::Recipe;
use larder_job::JobContext;
use larder_reader::{Entries, MetaChunks, RecipeReader};
use larder_source::image::Changes;
use larder_store::RepositoryError;
use larder_store::repository::random;
use larder_writer::Cutting;

use super::BackupError;
use super::image::{MapOutcome, MapReport, MapTrust, Runs};
use super::map_check::{Checked, MapCheck, is_full};
use super::similar::SampledImage;
use super::taken_over::{Untouched, stretches};

/// The first base of an image.
pub(super) struct ImageBase<'a> {
    pub(super) summary: &'a Summary,
    /// Whether this machine made it, or was told to trust it.
    pub(super) is_trusted: bool,
    /// Whether it is trusted, and whole.
    pub(super) is_followed: bool,
    pub(super) data: &'a Arc<Recipe>,
    pub(super) metadata: &'a Arc<Recipe>,
}

/// The parts of an image that may be taken over from the base, and how its maps served. After
/// `since_full` versions that were not read as a whole, it may be time for a full check. A check
/// reads within `window` bytes at once, if there is a bound.
pub(super) fn untouched(
    context: &JobContext,
    image: &mut SampledImage,
    base: Option<ImageBase<'_>>,
    chunks: &MetaChunks,
    cutting: &Cutting,
    since_full: usize,
    window: Option<usize>,
) -> Result<(Option<Untouched>, Option<MapReport>), BackupError> {
    let maps = std::mem::take(&mut image.changes);
    if maps.is_empty() {
        return Ok((None, None));
    }
    let read_all = |outcome: MapOutcome, checked_bytes: u64| {
        let why = match &outcome {
            MapOutcome::Unusable(why) => *why,
            MapOutcome::Used | MapOutcome::Wrong { .. } => "the map of its changes is wrong",
        };
        context.progress.note(&format!("the whole image is read, because {why}"));
        Ok((None, Some(MapReport { outcome, checked_bytes })))
    };
    let (changes, base, runs) = match expect_base(maps, base, chunks)? {
        Ok(found) => found,
        Err(why) => return read_all(MapOutcome::Unusable(why), 0),
    };
    let reader = || RecipeReader::new(base.clone(), chunks.clone());
    let stretches = stretches(image.image.runs(), &runs, changes, image.image.size());
    let mut check = MapCheck {
        base: reader(),
        image: &image.image,
        stretches: &stretches,
        cutting,
        window,
        cancel: &context.cancel,
        path: &image.path,
    };
    let entropy = context.repository.entropy();
    let checked = match image.trust {
        MapTrust::Full => Ok(Checked::default()),
        MapTrust::Checked(every) if is_full(every, since_full) => check.full(),
        MapTrust::Checked(_) => check.sampled(|| random(entropy).map(u64::from_le_bytes)),
    };
    let checked = match checked {
        Err(BackupError::Repository(error)) if error.is_damage() => {
            tracing::warn!(%error, "the base version cannot be compared");
            return read_all(MapOutcome::Unusable(DAMAGED), 0);
        }
        checked => checked?,
    };
    if let Some(at) = checked.wrong {
        let (offset, _) = image.image.runs().place(at);
        return read_all(MapOutcome::Wrong { offset }, checked.bytes);
    }
    let (reader, size) = (reader(), image.image.data_bytes());
    let base_end = reader.recipe().bytes();
    let untouched = Untouched::new(reader, base_end, size, stretches);
    Ok((Some(untouched), Some(MapReport { outcome: MapOutcome::Used, checked_bytes: checked.bytes })))
}

const DAMAGED: &str = "the snapshot that the changes follow is damaged";
const OTHER_SIZE: &str = "the snapshot that the changes follow has another size";

/// The map that follows the base, the data stream from which parts may be taken over, and its runs;
/// else why there is none.
type Expected = Result<(Changes, Arc<Recipe>, Runs), &'static str>;

fn expect_base(
    maps: Vec<Changes>,
    base: Option<ImageBase<'_>>,
    chunks: &MetaChunks,
) -> Result<Expected, RepositoryError> {
    let Some(ImageBase { summary, is_trusted, is_followed, data, metadata }) = base else {
        return Ok(Err("the snapshot that the changes follow is not there any more"));
    };
    let Some(changes) = maps.into_iter().find(|changes| changes.since == summary.id) else {
        return Ok(Err("the changes follow another snapshot than the newest one that this machine made"));
    };
    if !is_trusted {
        return Ok(Err("this machine did not make the snapshot that the changes follow"));
    }
    if !is_followed {
        return Ok(Err("the snapshot that the changes follow lacks data"));
    }
    // A repair counts what it could not save. The changes are those since the original.
    if summary.statistics.errors > 0 {
        return Ok(Err("the snapshot that the changes follow was repaired, or is not complete"));
    }
    if summary.source != SourceKind::Stream {
        return Ok(Err("the snapshot that the changes follow is no image"));
    }
    for found in Entries::new(metadata.clone(), chunks.clone()) {
        let found = match found {
            Err(error) if error.is_damage() => return Ok(Err(DAMAGED)),
            found => found?,
        };
        if let EntryKind::File { size, extents } = &found.entry.kind {
            let runs = Runs::new(*size, extents.as_deref(), found.data_offset);
            let is_whole = *size == changes.size && runs.end() == data.bytes();
            return Ok(if is_whole { Ok((changes, data.clone(), runs)) } else { Err(OTHER_SIZE) });
        }
    }
    Ok(Err(OTHER_SIZE))
}
