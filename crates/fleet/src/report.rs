//! What a batch is about, and what became of it.

use std::num::NonZeroU32;
use std::path::PathBuf;

use larder_format::compress::Compression;
use larder_format::entry::Extent;
use larder_format::fleet::Stage;
use larder_format::ids::JobId;
use larder_format::manifest::Summary;
use larder_lnode::{MapReport, ReadBudget};
use larder_source::image::{Changes, Ending, Image};
use larder_writer::WriteBudget;

use crate::error::FleetError;

/// An image of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetImage {
    /// Its name, which no other one has.
    pub name: String,
    /// Name of the host that reads it.
    pub host: String,
    /// Whether any host may read it, instead of the named one. Images with one name of a host are
    /// read by one process.
    pub is_any: bool,
    /// The round in which it is read: 0 for the first.
    pub round: u32,
    /// The series of its versions, which no other one has.
    pub series: String,
    /// Where it is read from. For people.
    pub source: String,
}

/// An image that was opened.
pub struct OpenedImage {
    /// The bytes. They do not change until the image is dropped, or reads fail.
    pub image: Box<dyn Image>,
    /// Path of its file in the version, valid by `entry::is_valid_path`.
    pub path: Vec<u8>,
    /// Its absolute path, for people.
    pub shown: Vec<u8>,
    /// The runs that hold data, as in `larder_lnode::ImageInput`.
    pub extents: Option<Vec<Extent>>,
    /// What changed since earlier versions.
    pub changes: Vec<Changes>,
    /// Why there is no map, if there could be.
    pub no_map: Option<&'static str>,
    /// What comes after the batch.
    pub ending: Option<Box<dyn Ending>>,
}

/// Opens the images of a batch.
pub trait Sources {
    /// Opens the image with this number. Its next version will be `job`'s.
    ///
    /// # Errors
    /// One line that says why it cannot be read, and what to do.
    fn open(&mut self, number: usize, job: JobId) -> Result<OpenedImage, String>;

    /// What an image had to say when it ended.
    fn remark(&mut self, number: usize, remark: &str);
}

/// Options of a batch.
#[derive(Debug, Clone)]
pub struct FleetOptions {
    /// Bytes of memory for sorting and looking up. The containers under way and the blocks of a
    /// scan come on top.
    pub memory: usize,
    /// Memory for the containers under way.
    pub write: WriteBudget,
    /// Memory for the blocks of a scan, and for those that are read once more.
    pub read: ReadBudget,
    /// What a process does before each stage, so that it stays small: the next stage runs other
    /// parts of the program.
    pub before_stage: Option<fn()>,
    /// An existing folder for temporary files without names: some 80 bytes for each unknown chunk.
    pub scratch: PathBuf,
    /// How frames are compressed.
    pub compression: Compression,
    /// User to record.
    pub user: String,
    /// Tags to record.
    pub tags: Vec<String>,
    /// Time to record instead of now, milliseconds since the epoch.
    pub time_ms: Option<u64>,
    /// Name and version of the program, to record.
    pub program: String,
    /// Each time as many versions in a row were not read as a whole, everything that a map leaves
    /// out is compared; `None`: never.
    pub verify_every: Option<NonZeroU32>,
    /// Read everything, whatever maps say.
    pub force: bool,
    /// Ranges of fingerprints that are joined apart; `None`: as few as are useful.
    pub partitions: Option<NonZeroU32>,
}

/// What became of an image.
#[derive(Debug)]
pub struct ImageReport {
    /// The image.
    pub image: FleetImage,
    /// The job that commits its version, and so the id of that.
    pub job: JobId,
    /// Its version, or why there is none.
    pub result: Result<Summary, ImageFailure>,
    /// The use of the map of its changes; `None` without one.
    pub map: Option<MapReport>,
    /// Why there was no map, if there could have been.
    pub no_map: Option<&'static str>,
    /// Bytes of new chunks that were read a second time.
    pub reread_bytes: u64,
    /// What another process had to say of it.
    pub remark: Option<String>,
}

/// Why an image has no version.
#[derive(Debug)]
pub struct ImageFailure {
    /// The stage in which it failed. An image that was opened in vain failed in its scan.
    pub stage: Stage,
    /// The reason. `None`: the batch ended before.
    pub error: Option<FleetError>,
}

impl ImageReport {
    /// Whether nothing is decided about it, and others go on.
    pub fn is_undecided(&self) -> bool {
        let error = self.result.as_ref().err().and_then(|failure| failure.error.as_ref());
        matches!(error, Some(FleetError::Undecided { .. }))
    }
}

/// What became of a batch.
#[derive(Debug)]
pub struct BatchReport {
    /// Its id.
    pub batch: JobId,
    /// Every image, in the order given.
    pub images: Vec<ImageReport>,
    /// Why the batch ended early. Versions that were made before exist.
    pub ended_by: Option<FleetError>,
    /// Bytes of the containers of new chunks.
    pub stored_bytes: u64,
    /// Whether the index was asked. A key without its secret cannot.
    pub asked_index: bool,
    /// The most memory that the process had, in bytes; 0: not known.
    pub memory: u64,
}
