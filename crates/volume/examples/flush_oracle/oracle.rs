//! The contents that a volume and its snapshots may have.
//!
//! Each sector has the version of the last acknowledged flush, and all that were written since.
//! After a crash it has one of them, and keeps it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::content::{SECTOR, Version};
use crate::event::Event;

/// A sector has what it cannot have.
#[derive(Debug)]
pub(crate) struct Wrong(pub(crate) String);

/// Whether a snapshot exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Existence {
    /// Its creation or deletion was not answered.
    Open,
    Certain,
    Gone,
}

struct Snapshot {
    existence: Existence,
    /// The writes that are answered from now on are not in it for certain, but may be.
    is_being_made: bool,
    sectors: Vec<Vec<Version>>,
}

/// A volume and its snapshots.
pub(crate) struct Oracle {
    sectors: Vec<Vec<Version>>,
    /// Sectors that may have several versions.
    open: BTreeSet<u32>,
    /// First sector and number of sectors of writes that were not answered.
    in_flight: HashMap<u64, (u32, u32)>,
    /// When flushes and snapshots that were not answered began.
    began: HashMap<String, u64>,
    snapshots: BTreeMap<String, Snapshot>,
    now: u64,
}

impl Oracle {
    /// Of a new volume.
    pub(crate) fn new(sectors: usize) -> Self {
        Self {
            sectors: vec![vec![Version::FIRST]; sectors],
            open: BTreeSet::new(),
            in_flight: HashMap::new(),
            began: HashMap::new(),
            snapshots: BTreeMap::new(),
            now: 0,
        }
    }

    /// Takes note of an event.
    pub(crate) fn note(&mut self, event: &Event) {
        self.now += 1;
        match event {
            Event::Wrote { number, first, count, content, .. } => {
                self.in_flight.insert(*number, (*first, *count));
                for at in 0..*count {
                    let version = Version { content: *content, at, acknowledged: None };
                    self.sectors[(first + at) as usize].push(version);
                    self.open.insert(first + at);
                    for snapshot in self.snapshots.values_mut().filter(|of| of.is_being_made) {
                        snapshot.sectors[(first + at) as usize].push(version);
                    }
                }
            }
            Event::Acknowledged { number, durable } => self.acknowledged(*number, durable.is_some()),
            Event::FlushBegan { number } => {
                self.began.insert(number.to_string(), self.now);
            }
            Event::Flushed { number, .. } => self.flushed(&number.to_string()),
            Event::SnapshotBegan { name, .. } => {
                self.began.insert(name.clone(), self.now);
                let sectors = self.sectors.iter().map(|versions| versions[newest_answered(versions)..].to_vec());
                let snapshot = Snapshot { existence: Existence::Open, is_being_made: true, sectors: sectors.collect() };
                self.snapshots.insert(name.clone(), snapshot);
            }
            Event::SnapshotMade { name, .. } => {
                self.flushed(name);
                self.exists(name, Existence::Certain);
            }
            Event::DeletionBegan { name, .. } => self.exists(name, Existence::Open),
            Event::Deleted { name, .. } => self.exists(name, Existence::Gone),
        }
    }

    fn exists(&mut self, name: &str, existence: Existence) {
        if let Some(snapshot) = self.snapshots.get_mut(name) {
            snapshot.existence = existence;
            snapshot.is_being_made = false;
        }
    }

    fn acknowledged(&mut self, number: u64, is_durable: bool) {
        let Some((first, count)) = self.in_flight.remove(&number) else { return };
        for sector in first..first + count {
            let versions = &mut self.sectors[sector as usize];
            // Writes of a sector follow each other, so it is the last one.
            if let Some(last) = versions.last_mut() {
                last.acknowledged = Some(self.now);
            }
            if is_durable {
                versions.drain(..versions.len() - 1);
                self.open.remove(&sector);
            }
        }
    }

    /// What was answered before a flush began is durable.
    fn flushed(&mut self, flush: &str) {
        let Some(began) = self.began.remove(flush) else { return };
        self.open.retain(|sector| {
            let versions = &mut self.sectors[*sector as usize];
            let is_before = |version: &Version| version.acknowledged.is_some_and(|at| at < began);
            if let Some(newest) = versions.iter().rposition(is_before) {
                versions.drain(..newest);
            }
            versions.len() > 1
        });
    }

    /// The names of snapshots that certainly exist, the oldest first.
    pub(crate) fn snapshots(&self) -> Vec<String> {
        let certain = |(_, snapshot): &(&String, &Snapshot)| snapshot.existence == Existence::Certain;
        self.snapshots.iter().filter(certain).map(|(name, _)| name.clone()).collect()
    }

    /// Compares sectors with what was read, which must be the newest versions.
    pub(crate) fn expect_newest(&self, first: u32, found: &[u8]) -> Result<(), Wrong> {
        for (sector, found) in (first..).zip(found.chunks(SECTOR)) {
            let newest = self.sectors[sector as usize].last().unwrap_or(&Version::FIRST);
            if newest.bytes() != *found {
                return Err(wrong("the volume", sector, &self.sectors[sector as usize], found));
            }
        }
        Ok(())
    }

    /// After a crash: compares the whole volume, which stays as it was found.
    pub(crate) fn settle(&mut self, found: &[u8]) -> Result<(), Wrong> {
        self.in_flight.clear();
        self.began.clear();
        self.open.clear();
        settle("the volume", &mut self.sectors, found)
    }

    /// All snapshots that may exist or that must not, with what is read of them, or `None`.
    pub(crate) fn settle_snapshots<E: From<Wrong>>(
        &mut self,
        read: impl Fn(&str) -> Result<Option<Vec<u8>>, E>,
    ) -> Result<usize, E> {
        for (name, snapshot) in &mut self.snapshots {
            match (read(name)?, snapshot.existence) {
                (Some(found), Existence::Open | Existence::Certain) => {
                    settle(name, &mut snapshot.sectors, &found)?;
                    snapshot.existence = Existence::Certain;
                }
                (None, Existence::Open | Existence::Gone) => snapshot.existence = Existence::Gone,
                (None, Existence::Certain) => return Err(Wrong(format!("snapshot {name} is lost")).into()),
                (Some(_), Existence::Gone) => return Err(Wrong(format!("snapshot {name} was deleted")).into()),
            }
            snapshot.is_being_made = false;
        }
        self.snapshots.retain(|_, snapshot| snapshot.existence != Existence::Gone);
        Ok(self.snapshots.len())
    }
}

fn newest_answered(versions: &[Version]) -> usize {
    versions.iter().rposition(|version| version.acknowledged.is_some()).unwrap_or(0)
}

fn settle(of: &str, sectors: &mut [Vec<Version>], found: &[u8]) -> Result<(), Wrong> {
    if found.len() != sectors.len() * SECTOR {
        return Err(Wrong(format!("{of} has {} bytes", found.len())));
    }
    for (sector, (versions, found)) in (0..).zip(sectors.iter_mut().zip(found.chunks(SECTOR))) {
        // The newest of those with the same bytes.
        let Some(mut version) = versions.iter().rfind(|version| version.bytes() == *found).copied() else {
            return Err(wrong(of, sector, versions, found));
        };
        version.acknowledged = Some(0);
        versions.clear();
        versions.push(version);
    }
    Ok(())
}

fn wrong(of: &str, sector: u32, versions: &[Version], found: &[u8]) -> Wrong {
    let is_zero = if found.iter().all(|byte| *byte == 0) { "zeros" } else { "other data" };
    Wrong(format!("{of}, sector {sector}: found {is_zero}, which is none of {versions:?}"))
}
