//! Stage 1: an image is read and cut, and its unknown chunks are asked for.

use std::io;
use std::sync::Arc;

use larder_format::entry::{EntryKind, Extent};
use larder_format::fleet::{At, ChunkRun, Requests, ScanItem, Scans, Stage, TaskId};
use larder_format::index_tables::ChunkKey;
use larder_index::Sorter;
use larder_lnode::{BackupOptions, ImageInput, ImageScan, MapTrust, scan_image};
use larder_source::image::{Changes, Image};
use larder_store::RepositoryError;
use parking_lot::Mutex;

use crate::error::FleetError;
use crate::exchange::{Decided, Facts, Outputs};
use crate::shared::Batch;

/// An image that is read by several tasks, and stays open meanwhile.
#[derive(Clone)]
pub(crate) struct SharedImage(Arc<Mutex<Box<dyn Image>>>);

impl SharedImage {
    pub(crate) fn new(image: Box<dyn Image>) -> Self {
        Self(Arc::new(Mutex::new(image)))
    }
}

impl Image for SharedImage {
    fn size(&self) -> u64 {
        self.0.lock().size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.lock().read_at(offset, buffer)
    }

    fn read_parts(&self, parts: &mut [(u64, &mut [u8])]) -> io::Result<()> {
        self.0.lock().read_parts(parts)
    }

    fn finish(&self) -> io::Result<()> {
        self.0.lock().finish()
    }
}

/// An image that was scanned.
pub(crate) struct Scanned {
    pub(crate) task: Decided,
    pub(crate) scan: ImageScan,
    /// Chunks that were asked for.
    pub(crate) asked: u32,
}

impl Scanned {
    /// The runs that hold data, as in the entry.
    pub(crate) fn extents(&self) -> Option<Vec<Extent>> {
        match &self.scan.entry.kind {
            EntryKind::File { extents, .. } => extents.clone(),
            _ => None,
        }
    }
}

/// Scans an image, in an epoch of its host. Its questions go to `requests`.
#[expect(clippy::too_many_arguments, reason = "called once, with what an opened image has")]
pub(crate) fn scan(
    batch: &Batch<'_>,
    epoch: u8,
    number: u32,
    image: &SharedImage,
    path: Vec<u8>,
    extents: Option<Vec<Extent>>,
    changes: Vec<Changes>,
    requests: &mut Sorter,
) -> Result<Scanned, FleetError> {
    let planned = batch.image(number);
    let mut outputs = Outputs::begin(batch, TaskId { stage: Stage::Scan, round: epoch, number })?;
    let trust = MapTrust::Checked(batch.options.verify_every);
    let changes = if batch.options.force { Vec::new() } else { changes };
    let input = ImageInput { path, image: Box::new(image.clone()), extents, changes, trust };
    let options = BackupOptions {
        job: Some(planned.job),
        layout_of_settings: true,
        force: batch.options.force,
        read: batch.options.read,
        ..BackupOptions::new(planned.series.clone())
    };
    let mut writer = outputs.writer::<Scans>();
    let (mut items, mut asked) = (0_u64, 0_u32);
    let scan = scan_image(batch.context, input, &options, |item| {
        if let ScanItem::Segment(segment) = &item {
            for run in &segment.runs {
                let ChunkRun::Asked(chunks) = run else { continue };
                for (_, fingerprint) in chunks {
                    let at = At { image: number, number: asked };
                    requests.push(&Requests::key(&ChunkKey::of(fingerprint), at), Some(&[]))?;
                    asked = asked.checked_add(1).ok_or(FleetError::TooManyChunks)?;
                }
            }
        }
        let value = item.encode().map_err(RepositoryError::from)?;
        writer.push(&items.to_be_bytes(), &value)?;
        items += 1;
        Ok::<_, FleetError>(())
    })?;
    if scan.layout != larder_format::layout::Layout::Standard {
        return Err(FleetError::Lifecycle { series: planned.series.clone() });
    }
    writer.finish()?;
    let task = outputs.done(Facts { read_bytes: scan.read_bytes, ..Facts::default() })?;
    Ok(Scanned { task, scan, asked })
}
