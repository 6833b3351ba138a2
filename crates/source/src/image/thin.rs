//! Volumes in thin pools of LVM.
//!
//! A backup makes a snapshot of the volume, and reads that. The snapshot stays until a later
//! version exists, and has the name of its own version (`tracked`). The pool knows which blocks two
//! snapshots share, so its metadata have the map of changes. Blocks that it does not have are
//! holes.
//!
//! After a failure, the snapshot of the last version is still there, with all changes since. What a
//! killed backup left is removed by the next one.

use std::ops::Range;

use larder_format::entry::Extent;

use super::lvm::{self, ThinName, Volumes};
use super::raw::RawImage;
use super::thin_delta::Thin;
use super::tracked::{Ending, Opening, Tracked};
use super::{Changes, Image, ImageError};

/// Opens a volume as it is now. The folder is the same each time, and private to this user.
///
/// # Errors
/// It is no thin volume, or cannot have a snapshot. Without a map of its changes, it is opened all
/// the same, with a remark.
pub fn open(name: &ThinName, opening: Opening<'_>) -> Result<Tracked, ImageError> {
    let before = Volumes::of(name)?;
    before.thin(name)?;
    opening.stops.check("lvcreate")?;
    let Opening { ref names, keeps, .. } = opening;
    let own = name.beside(names.of(names.job()));
    let old = before.snapshots(name, names).iter().map(|(_, listed)| name.beside(listed.name().to_owned())).collect();
    // From here on, the snapshot may exist.
    let ending = Box::new(Snapshots { own: own.clone(), old, keeps });
    let opened = lvm::snapshot(name, &own).and_then(|()| read(name, &own, &opening));
    let (image, known) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            let left = ending.failed();
            return Err(if left.is_empty() { error } else { name.wrong(format_args!("{error}; {}", left.join("; "))) });
        }
    };
    let (size, mut remarks) = (image.size(), known.remarks);
    let extents = known.mapped.map(|mapped| extents_of(mapped, size));
    remarks.iter_mut().for_each(|remark| *remark = format!("volume {name}: {remark}"));
    let changes = known.changes.into_iter().map(|changes| Changes { ranges: within(changes.ranges, size), ..changes });
    let changes = changes.collect();
    Ok(Tracked { image: Box::new(image), extents, changes, remarks, notes: Vec::new(), ending })
}

/// What a pool knows about a snapshot.
#[derive(Default)]
struct Known {
    /// Ranges of bytes that it has. The others are zeros.
    mapped: Option<Vec<Range<u64>>>,
    changes: Vec<Changes>,
    remarks: Vec<String>,
}

/// Opens the new snapshot, and asks its pool.
fn read(name: &ThinName, own: &ThinName, opening: &Opening<'_>) -> Result<(RawImage, Known), ImageError> {
    // Listed while the new snapshot exists: a pool gives the number of a removed volume to the next
    // one, and a volume compared with itself has no changes.
    let now = Volumes::of(name)?;
    let (volume, snapshot) = (now.thin(name)?, now.thin(own)?);
    let image = RawImage::open(snapshot.device())?;
    let bases = now.snapshots(name, &opening.names).into_iter();
    let bases = bases.filter(|(_, base)| base.is_snapshot_of(volume) && base.number() != snapshot.number());
    let mut known = Known::default();
    let pool = now.pool(snapshot)?;
    match pool.freeze(opening.folder, opening.stops) {
        Ok(frozen) => {
            match snapshot
                .has_zeros()
                .and_then(|has| has.then(|| frozen.compare(snapshot.number(), snapshot.number())).transpose())
            {
                Ok(own) => known.mapped = own.map(|thin| thin.mapped),
                Err(error) => known.remarks.push(format!("its holes are not known, so they are read: {error}")),
            }
            for (since, base) in bases {
                match base.size().and_then(|size| Ok((size, frozen.compare(base.number(), snapshot.number())?))) {
                    Ok((size, Thin { ranges, .. })) => known.changes.push(Changes { since, size, ranges }),
                    Err(error) => known.remarks.push(format!("the changes since {since} are not known: {error}")),
                }
            }
            if let Err(error) = frozen.release() {
                known.remarks.push(format!("the snapshot of the metadata of its pool stays: {error}"));
            }
        }
        Err(error) => known.remarks.push(format!("its changes are not known, so all of it is read: {error}")),
    }
    opening.stops.check("thin_delta")?;
    Ok((image, known))
}

/// The last block of a volume may end behind it.
fn within(ranges: Vec<Range<u64>>, size: u64) -> Vec<Range<u64>> {
    let cut = ranges.into_iter().map(|range| range.start.min(size)..range.end.min(size));
    cut.filter(|range| !range.is_empty()).collect()
}

fn extents_of(mapped: Vec<Range<u64>>, size: u64) -> Vec<Extent> {
    let extent = |range: Range<u64>| Extent { offset: range.start, length: range.end - range.start };
    within(mapped, size).into_iter().map(extent).collect()
}

/// What comes after a backup.
struct Snapshots {
    /// That of the new version.
    own: ThinName,
    /// Those of earlier ones.
    old: Vec<ThinName>,
    keeps: bool,
}

impl Ending for Snapshots {
    fn committed(self: Box<Self>) -> Vec<String> {
        if !self.keeps {
            return self.failed();
        }
        let still = lvm::deactivate(&self.own).err().map(|error| format!("{} keeps its device: {error}", self.own));
        still.into_iter().chain(self.old.iter().filter_map(remove)).collect()
    }

    fn failed(self: Box<Self>) -> Vec<String> {
        remove(&self.own).into_iter().collect()
    }
}

fn remove(name: &ThinName) -> Option<String> {
    lvm::remove(name).err().map(|error| format!("the snapshot {name} stays: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_block_ends_with_the_volume() {
        assert_eq!(within(vec![0..10, 90..110, 120..130], 100), [0..10, 90..100]);
        assert_eq!(
            extents_of(vec![0..64, 128..192], 150),
            [Extent { offset: 0, length: 64 }, Extent { offset: 128, length: 22 }]
        );
    }
}
