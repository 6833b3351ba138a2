//! The data: sets like the paper's, made from a seed version by version, and real release tars.
//!
//! Nothing lies on disk and no version lies in memory: content is made while it is cut.

mod image;
mod rope;
mod tars;
mod tree;

use std::fmt;
use std::io::Read;
use std::path::Path;

use clap::ValueEnum;

use image::Image;
use tars::Tars;
use tree::{Profile, Shape, Tree};

/// Takes the files of a version, one by one.
pub(crate) type Sink<'a> = dyn FnMut(&mut dyn Read) -> anyhow::Result<()> + 'a;

/// Makes versions, one after the other.
pub(crate) trait Versions {
    /// Passes the files of the next version to `sink`; `false` when there is none.
    fn next(&mut self, sink: &mut Sink<'_>) -> anyhow::Result<bool>;
}

/// A data set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Set {
    /// A website, file by file: many small pages, of which many change in a few places and a third repeat others
    Web,
    /// Releases of a source tree as tars: few files change, but every header does
    Chm,
    /// A disk image changed in place, mostly in the same regions
    Vms,
    /// Files of all sizes created, deleted and modified
    Syn,
    /// Real release tars, as `bench/data.py --scale full --only tars` makes them
    Tars,
}

impl Set {
    /// The sets that need no files.
    pub(crate) const MADE: [Self; 4] = [Self::Web, Self::Chm, Self::Vms, Self::Syn];
}

impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Web => "WEB-like",
            Self::Chm => "CHM-like",
            Self::Vms => "VMS-like",
            Self::Syn => "SYN-like",
            Self::Tars => "release tars",
        })
    }
}

/// Bytes of a version at scale 1, roughly.
const BYTES: f64 = 256.0 * 1048576.0;

const KIB: f64 = 1024.0;

const WEB: Profile = Profile {
    shape: Shape::Files,
    files: 19_000.0,
    size: (2.0 * KIB, 48.0 * KIB),
    copied: 0.35,
    created: 0.02,
    deleted: 0.018,
    renamed: 0.002,
    edited: 0.22,
    hot: 0.6,
    places: 2.0,
    patch: 300,
    rewritten: 0.05,
    reverted: 0.003,
    step: (0, 1.0),
};

const CHM: Profile = Profile {
    shape: Shape::Tar,
    files: 12_000.0,
    size: (1.0 * KIB, 160.0 * KIB),
    copied: 0.05,
    created: 0.006,
    deleted: 0.004,
    renamed: 0.002,
    edited: 0.02,
    hot: 0.25,
    places: 2.0,
    patch: 400,
    rewritten: 0.02,
    reverted: 0.003,
    step: (8, 4.0),
};

const SYN: Profile = Profile {
    shape: Shape::Files,
    files: 1_200.0,
    size: (4.0 * KIB, 2048.0 * KIB),
    copied: 0.02,
    created: 0.006,
    deleted: 0.004,
    renamed: 0.0,
    edited: 0.025,
    hot: 0.3,
    places: 1.0,
    patch: 2_000,
    rewritten: 0.02,
    reverted: 0.003,
    step: (0, 1.0),
};

impl Set {
    /// The set's versions. `tars` is the folder of the real ones.
    pub(crate) fn versions(self, scale: f64, seed: u64, tars: &Path) -> anyhow::Result<Box<dyn Versions>> {
        let tree = |profile: Profile| Box::new(Tree::new(Profile { files: profile.files * scale, ..profile }, seed));
        Ok(match self {
            Self::Web => tree(WEB),
            Self::Chm => tree(CHM),
            Self::Vms => Box::new(Image::new(BYTES * scale, seed)),
            Self::Syn => tree(SYN),
            Self::Tars => Box::new(Tars::open(tars)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same seed makes the same bytes, another one others; versions differ, but not much.
    #[test]
    fn seeded_and_alike_from_version_to_version() -> anyhow::Result<()> {
        for set in Set::MADE {
            let read = |seed: u64, count: usize| -> anyhow::Result<Vec<Vec<u8>>> {
                let mut versions = set.versions(0.05, seed, Path::new(""))?;
                let mut all = Vec::new();
                for _ in 0..count {
                    let mut bytes = Vec::new();
                    versions.next(&mut |file| Ok(file.read_to_end(&mut bytes).map(drop)?))?;
                    all.push(bytes);
                }
                Ok(all)
            };
            let some = read(1, 2)?;
            assert!(some == read(1, 2)?, "{set}");
            assert!(some[0] != read(2, 1)?[0] && some[0] != some[1], "{set}");
            let sizes = [&some[0], &some[1]].map(|version| version.len() as f64);
            assert!(sizes[0] > 5e6 && (sizes[1] / sizes[0] - 1.0).abs() < 0.2, "{set}: {sizes:?}");
        }
        Ok(())
    }
}
