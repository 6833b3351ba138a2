//! The places of the data of a series in the layout `lifecycle`. It has its categories as a
//! triangle, its volumes, and the exact bytes that forgetting would free. `docs/lifecycle.md`
//! explains these.
//!
//! For display only: the CLI shows it, and no decision uses it. It is read from the tables of the
//! newest index, extent by extent, and kept as sums by container and category. For versions outside
//! the index, the manifests say which containers they name. These versions, and ingested ones that
//! were not arranged, may use everything in named containers that one of their bases uses. All of
//! that counts as used. Without an index everything is as it was stored.
//!
//! Invariants
//! * Forgetting versions frees the bytes that a retained version needs before and none after. It
//!   counts bytes of extents, and objects without needed bytes. Copying the rest of containers with
//!   holes may free more, later.
//!
//! Not here: arranging ([`crate::arrange`]); metadata, and data that versions of the standard
//! layout share (`gnode::exclusive_bytes`).

mod reading;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use larder_format::ids::{ByteCount, JobId};

pub use reading::categories;

/// The last use. An open one comes after all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Last {
    /// The number of the last version that uses it.
    Version(u32),
    /// The newest version uses it, as far as is known.
    Open,
}

impl From<Option<u32>> for Last {
    fn from(last: Option<u32>) -> Self {
        last.map_or(Self::Open, Self::Version)
    }
}

/// The data with the same first and the same last version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Category {
    /// Number of the version that stored it.
    pub first: u32,
    /// Its last user.
    pub last: Last,
}

/// How much there is of a category.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CategorySize {
    /// Bytes, uncompressed.
    pub bytes: ByteCount,
    /// Those of them that retained versions need; the rest goes with its containers.
    pub needed: ByteCount,
    /// Stretches of bytes.
    pub extents: u64,
    /// Containers in which they are.
    pub containers: u64,
}

/// The containers whose last needed bytes have the same last version.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Volume {
    /// How many.
    pub containers: u64,
    /// Bytes of their objects.
    pub object_bytes: ByteCount,
    /// Bytes in them, uncompressed.
    pub bytes: ByteCount,
    /// Those of them that retained versions need.
    pub needed: ByteCount,
}

/// The space that forgetting versions would free.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Freed {
    /// Bytes that no retained version would need, uncompressed.
    pub bytes: ByteCount,
    /// Containers that would go whole.
    pub containers: u64,
    /// Bytes of their objects: the space that the store regains.
    pub object_bytes: ByteCount,
}

/// The progress of passes with a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Progress {
    /// No index knows it.
    Committed,
    /// An index knows which containers it names.
    Ingested,
    /// The extents have its uses.
    Arranged,
}

/// A retained version of the series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CategorizedVersion {
    /// Its id.
    pub id: JobId,
    /// Its number in the index; if no index knows it, a number higher than all others.
    pub number: u32,
    /// The progress of passes with it.
    pub progress: Progress,
}

/// The places of the data of one series.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Categories {
    /// The number of the index; 0: there is none.
    pub index: u64,
    /// Versions that are retained, by rising number.
    pub versions: Vec<CategorizedVersion>,
    places: Vec<Place>,
    pieces: Vec<Piece>,
    /// Sets of places in `versions`.
    sets: Vec<BTreeSet<usize>>,
}

/// A container that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    bytes: u64,
    object_bytes: u64,
}

/// The bytes of one category in one container that the same versions need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Piece {
    place: usize,
    category: Category,
    /// Whether arranged versions in the range of the category need it. Otherwise only those that
    /// name it do.
    is_arranged: bool,
    /// A set of versions that need it because they name its container.
    named_by: usize,
    bytes: u64,
    extents: u64,
}

/// Versions that are retained, or would be.
struct Retained {
    arranged: Vec<u32>,
    is_there: Vec<bool>,
}

impl Retained {
    fn needs(&self, categories: &Categories, piece: &Piece) -> bool {
        let Category { first, last } = piece.category;
        let next = || self.arranged.get(self.arranged.partition_point(|number| *number < first));
        let in_category = piece.is_arranged && next().is_some_and(|next| Last::Version(*next) <= last);
        in_category || categories.sets[piece.named_by].iter().any(|version| self.is_there[*version])
    }
}

impl Categories {
    /// The triangle. It includes categories that no retained version needs until passes drop them.
    pub fn triangle(&self) -> BTreeMap<Category, CategorySize> {
        let retained = self.without(&HashSet::new());
        let mut triangle: BTreeMap<Category, CategorySize> = BTreeMap::new();
        let mut seen = HashSet::new();
        for piece in self.there() {
            let size = triangle.entry(piece.category).or_default();
            size.bytes.0 += piece.bytes;
            size.extents += piece.extents;
            if retained.needs(self, piece) {
                size.needed.0 += piece.bytes;
            }
            if seen.insert((piece.category, piece.place)) {
                size.containers += 1;
            }
        }
        triangle
    }

    /// Pieces of existing containers. Until their series is arranged again, records still name
    /// containers that were deleted whole.
    fn there(&self) -> impl Iterator<Item = &Piece> {
        self.pieces.iter().filter(|piece| self.places[piece.place].object_bytes > 0)
    }

    /// The volumes by last version; the containers of [`Last::Open`] are the active ones.
    pub fn volumes(&self) -> BTreeMap<Last, Volume> {
        let retained = self.without(&HashSet::new());
        let mut lasts: BTreeMap<usize, (Last, u64)> = BTreeMap::new();
        for piece in self.there() {
            let needed = if retained.needs(self, piece) { piece.bytes } else { 0 };
            let (last, sum) = lasts.entry(piece.place).or_insert((piece.category.last, 0));
            *last = piece.category.last.max(*last);
            *sum += needed;
        }
        let mut volumes: BTreeMap<Last, Volume> = BTreeMap::new();
        for (place, (last, needed)) in lasts {
            let Place { bytes, object_bytes, .. } = self.places[place];
            let volume = volumes.entry(last).or_default();
            volume.containers += 1;
            volume.object_bytes.0 += object_bytes;
            volume.bytes.0 += bytes;
            volume.needed.0 += needed;
        }
        volumes
    }

    /// The space that forgetting these versions together would free.
    pub fn freed(&self, versions: &HashSet<JobId>) -> Freed {
        let (before, after) = (self.without(&HashSet::new()), self.without(versions));
        let mut needed = vec![(false, false); self.places.len()];
        let mut freed = Freed::default();
        for piece in &self.pieces {
            let (was, is) = (before.needs(self, piece), after.needs(self, piece));
            let place = &mut needed[piece.place];
            *place = (place.0 || was, place.1 || is);
            if was && !is {
                freed.bytes.0 += piece.bytes;
            }
        }
        let goes = |((was, is), _): &((bool, bool), &Place)| *was && !is;
        for (_, place) in needed.into_iter().zip(&self.places).filter(goes) {
            freed.containers += 1;
            freed.object_bytes.0 += place.object_bytes;
        }
        freed
    }

    /// The space that forgetting each of [`Categories::versions`] alone would free.
    pub fn freed_alone(&self) -> Vec<Freed> {
        self.versions.iter().map(|version| self.freed(&HashSet::from([version.id]))).collect()
    }

    /// Bytes of the objects that each of these versions needs and none of those before it in the
    /// list.
    pub fn added(&self, versions: &[JobId]) -> Vec<ByteCount> {
        let mut is_counted = vec![false; self.places.len()];
        let mut added = Vec::with_capacity(versions.len());
        for version in versions {
            let others = self.versions.iter().map(|other| other.id).filter(|other| other != version).collect();
            let alone = self.without(&others);
            let mut sum = 0;
            for piece in &self.pieces {
                if !is_counted[piece.place] && alone.needs(self, piece) {
                    is_counted[piece.place] = true;
                    sum += self.places[piece.place].object_bytes;
                }
            }
            added.push(ByteCount(sum));
        }
        added
    }

    /// Whether every version was arranged.
    pub fn is_arranged(&self) -> bool {
        self.versions.iter().all(|version| version.progress == Progress::Arranged)
    }

    /// The number of the newest retained version that was arranged.
    pub fn newest_arranged(&self) -> Option<u32> {
        let mut arranged = self.versions.iter().rev().filter(|version| version.progress == Progress::Arranged);
        arranged.next().map(|version| version.number)
    }

    fn without(&self, gone: &HashSet<JobId>) -> Retained {
        let is_there: Vec<bool> = self.versions.iter().map(|version| !gone.contains(&version.id)).collect();
        let arranged = self.versions.iter().zip(&is_there);
        let arranged = arranged.filter(|(version, is_there)| **is_there && version.progress == Progress::Arranged);
        let arranged = arranged.map(|(version, _)| version.number).collect();
        Retained { arranged, is_there }
    }
}
