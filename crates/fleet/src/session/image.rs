//! An image at work.

use larder_format::manifest::Summary;
use larder_lnode::{MapOutcome, MapReport};
use larder_source::image::Ending;

use crate::report::ImageFailure;
use crate::tasks::{Scanned, SharedImage, Stored};

/// See the module header.
#[derive(Default)]
pub(crate) struct ImageState {
    pub(crate) failure: Option<ImageFailure>,
    /// Open from its scan until the store has its new chunks.
    pub(crate) image: Option<SharedImage>,
    pub(crate) ending: Option<Box<dyn Ending>>,
    pub(crate) shown: Vec<u8>,
    pub(crate) no_map: Option<&'static str>,
    pub(crate) scanned: Option<Scanned>,
    /// Chunks that it asks for; before its scan is over, how many it has at most.
    pub(crate) chunks: u64,
    pub(crate) stored: Option<Stored>,
    pub(crate) map: Option<MapReport>,
    pub(crate) reread_bytes: u64,
    pub(crate) summary: Option<Summary>,
}

impl ImageState {
    /// There will be no version, unless there is one.
    pub(crate) fn abandon(&mut self) {
        if let Some(stored) = self.stored.take() {
            stored.abandon();
        }
    }

    /// The image is over: its source learns whether there is a version.
    pub(crate) fn release(&mut self, mut remark: impl FnMut(&str)) {
        self.image = None;
        if let Some(ending) = self.ending.take() {
            let remarks = if self.summary.is_some() { ending.committed() } else { ending.failed() };
            remarks.iter().for_each(|text| remark(text));
        }
    }

    /// Something that people should know of its version, wherever they read it.
    pub(crate) fn remark(&self) -> Option<String> {
        match self.map.as_ref()?.outcome {
            MapOutcome::Wrong { offset } => Some(format!("{WRONG_MAP}: data at byte {offset} or behind it")),
            MapOutcome::Used | MapOutcome::Unusable(_) => None,
        }
    }
}

/// How the remark about a map begins that left out a change.
pub(crate) const WRONG_MAP: &str = "the map of changes left out a change, so the whole image was read";
