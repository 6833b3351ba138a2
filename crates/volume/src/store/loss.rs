//! [`Loss`]: what was flushed and is lost, because a record of the log is damaged or frames are
//! gone.
//!
//! A store that accepts the loss has the state before the damaged record, as if the machine had
//! failed then. Later records are not replayed over the gap: a file system that finds newer blocks
//! beside older ones is damaged in ways that its own check may not find. The blocks that later
//! records wrote are named. Those of the damaged records cannot be read.
//!
//! Where only frames are gone, all records count. The blocks that name these frames fail when they
//! are read, and are named.

use std::collections::{BTreeSet, HashMap};

use larder_format::volume_log::{Event, VolumeChange};

use super::catalog::Catalog;
use super::log::Damage;
use super::lost_frames::LostFrames;
use crate::index::Memtables;

/// Blocks of a volume that lost writes, or all of their content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostBlocks {
    /// Name of the volume.
    pub volume: String,
    /// First block.
    pub first: u64,
    /// Last block.
    pub last: u64,
}

/// Flushed writes that are lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// The damaged place, and what is wrong with it.
    pub why: String,
    /// Records of the log that do not open or are missing. Their blocks are not known.
    pub unreadable: u64,
    /// Records behind them, which are dropped.
    pub dropped: u64,
    /// The dropped changes of volumes and snapshots, a line for a person each.
    pub changes: Vec<String>,
    /// Blocks that the dropped records wrote.
    pub blocks: Vec<LostBlocks>,
    /// Paths of containers that are missing or too short.
    pub containers: Vec<String>,
    /// Blocks of volumes and of their snapshots whose content was in these containers. They fail
    /// when they are read, until they are written as a whole or discarded.
    pub failing: Vec<LostBlocks>,
}

impl Loss {
    /// What damage behind the records of `catalog` and `tables` costs, and what lost frames do that
    /// these records name.
    pub(super) fn of(damage: Option<&Damage>, frames: &LostFrames, catalog: &Catalog, tables: &Memtables) -> Self {
        let later = damage.map_or(&[][..], |damage| damage.later.as_slice());
        let (mut written, mut changes, mut catalog) = (BTreeSet::new(), Vec::new(), catalog.clone());
        let mut names: HashMap<u32, String> =
            catalog.volumes().map(|volume| (volume.id, volume.name.clone())).collect();
        for event in later.iter().flat_map(|record| &record.events) {
            match event {
                Event::Wrote { volume, block, .. } => drop(written.insert((*volume, *block))),
                Event::Volume(change) => {
                    changes.push(shown(change, &catalog));
                    // Later changes and writes may be of this volume.
                    catalog.apply(change);
                    names.extend(catalog.volumes().map(|volume| (volume.id, volume.name.clone())));
                }
                _ => {}
            }
        }
        let failing = tables.blocks.iter().filter(|(_, mapping)| frames.concern(mapping));
        let failing: BTreeSet<_> = failing.map(|((volume, block, _), _)| (*volume, *block)).collect();
        let why = damage.map(|damage| damage.error.to_string());
        let why = why.or_else(|| frames.error().map(|error| error.to_string()));
        Self {
            why: why.unwrap_or_default(),
            unreadable: damage.map_or(0, |damage| damage.lost).saturating_sub(later.len() as u64),
            dropped: later.len() as u64,
            changes,
            blocks: ranges(written, &names),
            containers: frames.paths(),
            failing: ranges(failing, &names),
        }
    }
}

/// Blocks as ranges, with the names of their volumes.
fn ranges(blocks: BTreeSet<(u32, u64)>, names: &HashMap<u32, String>) -> Vec<LostBlocks> {
    let name = |id: u32| names.get(&id).cloned().unwrap_or_else(|| format!("number {id}"));
    let mut ranges: Vec<(u32, u64, u64)> = Vec::new();
    for (volume, block) in blocks {
        match ranges.last_mut() {
            Some((of, _, last)) if *of == volume && *last + 1 == block => *last = block,
            _ => ranges.push((volume, block, block)),
        }
    }
    ranges.into_iter().map(|(volume, first, last)| LostBlocks { volume: name(volume), first, last }).collect()
}

/// A change of a catalog, for a person.
fn shown(change: &VolumeChange, catalog: &Catalog) -> String {
    let volume = |id: u32| catalog.volume(id).map_or_else(|_| format!("number {id}"), |volume| volume.name.clone());
    match change {
        VolumeChange::Volume(new) => match catalog.volume(new.id) {
            Err(_) => format!("the creation of volume {}", new.name),
            Ok(old) if old.name != new.name => format!("the new name {} of volume {}", new.name, old.name),
            Ok(old) if old.size != new.size => format!("the new size of volume {}, {} bytes", new.name, new.size),
            Ok(_) => format!("the independence of volume {} from its parent", new.name),
        },
        VolumeChange::Deleted(id) => format!("the deletion of volume {}", volume(*id)),
        VolumeChange::Snapshot(new) => {
            let name = format!("{}@{}", volume(new.volume), new.name);
            let what = if catalog.snapshot(new.id).is_ok() { "a mark" } else { "the creation" };
            format!("{what} of snapshot {name}")
        }
        VolumeChange::SnapshotDeleted(id) => {
            let snapshot = catalog.snapshot(*id);
            format!(
                "the deletion of snapshot {}",
                snapshot.map_or_else(|_| format!("number {id}"), |of| catalog.full_name(of))
            )
        }
    }
}
