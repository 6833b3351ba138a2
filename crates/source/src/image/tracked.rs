//! Images whose changes QEMU notes in dirty bitmaps, from one version to the next.
//!
//! A bitmap notes what changes from the moment on in which it is created. Its name has the version
//! that the image became at that moment: `larder-TAG-VERSION`. The tag is that of a series of a
//! repository, so several series may follow one image.
//!
//! A backup creates the bitmap of its own version, and then reads the image as it is at that
//! moment. The bitmaps of earlier versions stay as they are, and go on noting. Only when the new
//! version exists, [`Ending::committed`] removes them. So after any failure, also of this process,
//! a bitmap is left that has all changes since the last version. A bitmap of a version that never
//! came to be is of no use, and the next backup removes it.
//!
//! Snapshots of thin volumes have the same names, and are kept and removed by the same rules
//! (`thin`).

use std::path::Path;

use larder_format::ids::JobId;

use super::stops::Stops;
use super::{Changes, Image};

/// An image of which QEMU, or a thin pool, notes the changes.
pub struct Tracked {
    /// The bytes.
    pub image: Box<dyn Image>,
    /// The runs that hold data, as in an entry.
    pub extents: Option<Vec<larder_format::entry::Extent>>,
    /// What changed since earlier versions.
    pub changes: Vec<Changes>,
    /// What did not work as wished, for people.
    pub remarks: Vec<String>,
    /// What people may want to know, and need not act on.
    pub notes: Vec<String>,
    /// What comes after the backup.
    pub ending: Box<dyn Ending>,
}

/// How an image is opened.
#[derive(Clone)]
pub struct Opening<'a> {
    /// Names of its bitmaps.
    pub names: Names,
    /// For sockets, and for what a running QEMU writes.
    pub folder: &'a Path,
    /// Whether a bitmap is left for the next version, and those of earlier ones are removed.
    pub keeps: bool,
    /// What ends it early.
    pub stops: &'a Stops,
}

/// What comes after a backup of an image. The image has been dropped before.
pub trait Ending {
    /// The version exists: removes the bitmaps or snapshots of others. Returns what did not work,
    /// for people.
    fn committed(self: Box<Self>) -> Vec<String>;

    /// There is no version: removes the bitmap or snapshot of this one. Returns what did not work,
    /// for people.
    fn failed(self: Box<Self>) -> Vec<String>;
}

/// The names of the bitmaps of a series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    tag: String,
    job: JobId,
}

impl Names {
    /// Those of a series of a repository, which `tag` stands for, and of a new version.
    pub fn new(tag: impl Into<String>, job: JobId) -> Self {
        Self { tag: tag.into(), job }
    }

    /// What stands for the series.
    pub fn tag(&self) -> &str {
        &self.tag
    }

    /// The name of the folder of a running QEMU.
    pub fn folder(&self) -> String {
        format!("image-{}", self.tag)
    }

    /// The version that is about to be made.
    pub fn job(&self) -> JobId {
        self.job
    }

    /// The bitmap of a version.
    pub fn of(&self, version: JobId) -> String {
        format!("larder-{}-{version}", self.tag)
    }

    /// The version of a bitmap; `None` if it is not of this series.
    pub fn version(&self, bitmap: &str) -> Option<JobId> {
        bitmap.strip_prefix("larder-")?.strip_prefix(&*self.tag)?.strip_prefix('-')?.parse().ok()
    }
}

/// A dirty bitmap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bitmap {
    pub(super) name: String,
    /// Its version.
    pub(super) version: JobId,
    /// Whether it has all changes since then.
    pub(super) is_whole: bool,
    /// Bytes that one bit stands for.
    pub(super) granularity: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bitmap_is_of_one_version_of_one_series() {
        let (job, other) = (JobId::new(1, [1; 10]), JobId::new(2, [2; 10]));
        let names = Names::new("abc", job);
        assert_eq!(names.version(&names.of(job)), Some(job));
        assert_eq!(names.version(&names.of(other)), Some(other));
        assert_eq!(Names::new("abx", job).version(&names.of(job)), None);
        assert_eq!(Names::new("ab", job).version(&names.of(job)), None);
        for foreign in ["", "larder", "larder-abc-", "larder-abc-1", "backup-1"] {
            assert_eq!(names.version(foreign), None, "{foreign}");
        }
    }
}
