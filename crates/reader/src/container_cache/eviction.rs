//! Decides which container is read, kept, moved to disk or dropped, and when; `reader` executes the
//! decisions.
//!
//! Every container at hand has a key: the place in the stream that uses it next. When room is
//! wanted, the container with the farthest key leaves (Belady's choice), to the disk tier if that
//! has room.
//!
//! Invariants
//! * Memory is reserved before a read begins, and containers at hand and under way never exceed the
//!   limit. The only exception is a container that is needed now and alone exceeds it.
//! * Looking ahead never drops anything that is needed again, and sends to disk only containers
//!   needed later than those it reads. So it reads no more than a reader that does not look ahead.
//!   A container needed now is always admitted.
//! * While both tiers have room for everything needed again, nothing of it is dropped, and so
//!   nothing is read twice.
//! * A container on disk is at hand: it is read there and takes no memory again.

use std::collections::{BTreeSet, HashMap, VecDeque};

use super::disk_tier::rounded;
use super::future_uses::{NEVER, Number, Touch, TouchNumber, Uses};
use crate::resolved::SegmentNumber;

/// "Perhaps again": kept until its room is wanted; dropping it is no loss.
const PERHAPS: TouchNumber = NEVER - 1;

/// Bytes that each tier may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) memory: u64,
    pub(super) disk: u64,
}

/// The next use of a container: the touch, and inside the current segment the record.
type Key = (TouchNumber, u32);

/// The next action of the reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// Request it from the store, for this touch if planned.
    Fetch(Number, Option<TouchNumber>),
    /// Write the bytes needed from this touch on to disk, where they stay; `None`: all of it.
    Spill(Number, Option<TouchNumber>),
    /// Drop it from memory or disk, although it is needed again.
    Drop(Number),
    /// Wait until it has arrived.
    Wait(Number),
}

/// Returns the bytes that a container will take for this touch, or for a use outside of the plan.
pub(super) type Size<'a> = dyn FnMut(&mut Uses, Number, Option<TouchNumber>) -> u64 + 'a;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Coming,
    Memory,
    /// At hand as well, a frame at a time.
    Disk,
}

#[derive(Debug)]
struct Slot {
    place: Place,
    bytes: u64,
    key: Key,
}

/// See the module header.
#[derive(Debug)]
pub(super) struct Schedule {
    uses: Uses,
    limits: Limits,
    slots: HashMap<Number, Slot>,
    memory: u64,
    disk: u64,
    in_memory: BTreeSet<(Key, Number)>,
    on_disk: BTreeSet<(Key, Number)>,
    /// The first touch that the reader has not passed.
    here: TouchNumber,
    /// The first touch behind the current segment.
    after: TouchNumber,
    /// The next touch for looking ahead.
    ahead: TouchNumber,
    /// The coming records of the current segment that use each container.
    inside: HashMap<Number, VecDeque<u32>>,
    /// The first touch of each container behind the segment.
    then: HashMap<Number, TouchNumber>,
    /// Containers without further use, to be collected.
    gone: Vec<Number>,
    /// Whether more may be read than is planned, so that leftovers may still be of use.
    keeps: bool,
    /// Counts the leftovers.
    kept: u32,
}

impl Schedule {
    pub(super) fn new(uses: Uses, limits: Limits) -> Self {
        Self {
            uses,
            limits,
            slots: HashMap::new(),
            memory: 0,
            disk: 0,
            in_memory: BTreeSet::new(),
            on_disk: BTreeSet::new(),
            here: 0,
            after: 0,
            ahead: 0,
            inside: HashMap::new(),
            then: HashMap::new(),
            gone: Vec::new(),
            keeps: false,
            kept: 0,
        }
    }

    /// Begins with another plan. Containers at hand stay if they may be of use: `keeps` says that
    /// more plans follow.
    pub(super) fn replan(&mut self, uses: Uses, keeps: bool) {
        self.leave();
        self.uses = uses;
        (self.here, self.after, self.ahead, self.keeps) = (0, 0, 0, keeps);
        let slots: Vec<_> = self.slots.iter().map(|(number, slot)| (*number, slot.place, slot.key)).collect();
        for (number, place, key) in slots {
            match self.uses.first(number) {
                Some(touch) => self.rekey(number, (touch, 0)),
                None if place != Place::Memory => self.let_go(number),
                None if key.0 == PERHAPS && keeps => {}
                None => self.rekey(number, (NEVER, 0)),
            }
        }
    }

    /// The plan.
    pub(super) fn uses(&mut self) -> &mut Uses {
        &mut self.uses
    }

    /// Bytes at hand and under way, and bytes on disk.
    #[cfg(test)]
    pub(super) fn taken(&self) -> (u64, u64) {
        (self.memory, self.disk)
    }

    /// Containers that need not be kept any more, wherever they are.
    pub(super) fn gone(&mut self) -> Vec<Number> {
        std::mem::take(&mut self.gone)
    }

    /// The reader enters `segment`, whose records from its place on use these containers.
    pub(super) fn enter(&mut self, segment: SegmentNumber, records: impl Iterator<Item = (u32, Number)>) {
        self.leave();
        while let Some(touch) = self.uses.touch(self.here).filter(|touch| touch.segment < segment) {
            self.pass(self.here, &touch);
            self.here += 1;
        }
        self.after = self.here;
        while let Some(touch) = self.uses.touch(self.after).filter(|touch| touch.segment == segment) {
            self.then.insert(touch.container, touch.next);
            self.after += 1;
        }
        self.ahead = self.ahead.max(self.here);
        self.place_records(records);
        let over: Vec<_> = self.then.iter().filter(|(number, _)| !self.inside.contains_key(number)).collect();
        let over: Vec<_> = over.into_iter().map(|(number, next)| (*number, *next)).collect();
        for (number, next) in over {
            self.rekey(number, (next, 0));
        }
    }

    /// The reader enters records outside of the plan; the plan continues behind them.
    pub(super) fn detour(&mut self, records: impl Iterator<Item = (u32, Number)>) {
        self.leave();
        self.keeps = true;
        self.then = self.slots.iter().map(|(number, slot)| (*number, slot.key.0)).collect();
        self.after = self.here;
        self.place_records(records);
    }

    fn place_records(&mut self, records: impl Iterator<Item = (u32, Number)>) {
        for (record, number) in records {
            self.inside.entry(number).or_default().push_back(record);
        }
        let first: Vec<_> =
            self.inside.iter().filter_map(|(number, records)| Some((*number, *records.front()?))).collect();
        for (number, record) in first {
            self.rekey(number, (self.here, record));
        }
    }

    /// Leaves the current segment, perhaps before its end.
    fn leave(&mut self) {
        for (number, _) in std::mem::take(&mut self.inside) {
            let next = self.then.get(&number).copied().unwrap_or(NEVER);
            self.rekey(number, (next, 0));
        }
        self.then.clear();
    }

    fn pass(&mut self, number: TouchNumber, touch: &Touch) {
        self.uses.pass(touch);
        if self.slots.get(&touch.container).is_some_and(|slot| slot.key.0 <= number) {
            self.rekey(touch.container, (touch.next, 0));
        }
    }

    /// A record of the current segment was read.
    pub(super) fn used(&mut self, number: Number, record: u32) {
        let Some(records) = self.inside.get_mut(&number) else { return };
        while records.front().is_some_and(|front| *front <= record) {
            records.pop_front();
        }
        let key = match records.front() {
            Some(record) => (self.here, *record),
            None => {
                self.inside.remove(&number);
                (self.then.get(&number).copied().unwrap_or(NEVER), 0)
            }
        };
        self.rekey(number, key);
    }

    /// The next action to have the coming containers at hand; `None`: none is needed, or there is
    /// no room now.
    pub(super) fn look(&mut self, size: &mut Size<'_>) -> Option<Action> {
        loop {
            let (number, touch, key) = match self.ahead < self.after {
                true => match self.missing_here() {
                    Some((record, number)) => (number, self.touch_here(number), (self.here, record)),
                    None => {
                        self.ahead = self.after;
                        continue;
                    }
                },
                false => (self.uses.touch(self.ahead)?.container, Some(self.ahead), (self.ahead, 0)),
            };
            if self.slots.contains_key(&number) {
                self.ahead += 1;
                continue;
            }
            let bytes = size(&mut self.uses, number, touch);
            if self.memory + bytes > self.limits.memory {
                return self.room_ahead(key);
            }
            return Some(self.begin(number, touch, key, bytes));
        }
    }

    /// The first record of the current segment whose container is not at hand, and that container.
    fn missing_here(&self) -> Option<(u32, Number)> {
        let missing = self.inside.iter().filter(|(number, _)| !self.slots.contains_key(number));
        missing.filter_map(|(number, records)| Some((*records.front()?, *number))).min()
    }

    /// Makes room for a use at `key`, if the evicted container is needed later and stays available.
    /// Containers needed before `key` never leave for it, above all those of the current segment,
    /// however much is read ahead.
    fn room_ahead(&mut self, key: Key) -> Option<Action> {
        let (farthest, victim) = *self.in_memory.last().filter(|(farthest, _)| *farthest > key)?;
        (farthest.0 == PERHAPS || self.fits_on_disk(victim)).then(|| self.evict(farthest, victim))
    }

    /// The next action to have a container now; `None`: it is at hand.
    pub(super) fn need(&mut self, number: Number, size: &mut Size<'_>) -> Option<Action> {
        match self.slots.get(&number) {
            Some(Slot { place: Place::Coming, .. }) => return Some(Action::Wait(number)),
            Some(_) => return None,
            None => {}
        }
        let planned = self.touch_here(number);
        let record = self.inside.get(&number).and_then(|records| records.front()).copied();
        let (bytes, key) = (size(&mut self.uses, number, planned), (self.here, record.unwrap_or(0)));
        if self.memory.saturating_add(bytes) > self.limits.memory {
            if let Some((farthest, victim)) = self.in_memory.last().copied() {
                return Some(self.evict(farthest, victim));
            }
            // Coming containers that are needed later can leave once they have arrived.
            let coming = self.slots.iter().filter(|(_, slot)| slot.place == Place::Coming);
            if let Some((number, _)) = coming.max_by_key(|(_, slot)| slot.key) {
                return Some(Action::Wait(*number));
            }
        }
        Some(self.begin(number, planned, key, bytes))
    }

    /// More has arrived than was estimated: the containers that must leave, except `needed`.
    pub(super) fn trim(&mut self, needed: Number) -> Option<Action> {
        if self.memory <= self.limits.memory {
            return None;
        }
        let (farthest, victim) = *self.in_memory.iter().rev().find(|(_, number)| *number != needed)?;
        Some(self.evict(farthest, victim))
    }

    /// A container has arrived, or has replaced the part at hand, and takes this many bytes of
    /// memory.
    pub(super) fn landed(&mut self, number: Number, bytes: u64) {
        let Some(Slot { key, .. }) = self.remove(number) else { return };
        self.memory += bytes;
        self.in_memory.insert((key, number));
        self.slots.insert(number, Slot { place: Place::Memory, bytes, key });
    }

    /// The bytes of a container written to disk: at most those it took in memory.
    pub(super) fn spilled(&mut self, number: Number, bytes: u64) {
        if let Some(slot) = self.slots.get_mut(&number).filter(|slot| slot.place == Place::Disk) {
            self.disk = self.disk - rounded(slot.bytes) + rounded(bytes);
            slot.bytes = bytes;
        }
    }

    /// A container did not arrive, or has changed.
    pub(super) fn lost(&mut self, number: Number) {
        self.remove(number);
    }

    /// The disk tier is out of use.
    pub(super) fn without_disk(&mut self) {
        self.limits.disk = 0;
    }

    fn begin(&mut self, number: Number, touch: Option<TouchNumber>, key: Key, bytes: u64) -> Action {
        self.memory += bytes;
        self.slots.insert(number, Slot { place: Place::Coming, bytes, key });
        Action::Fetch(number, touch)
    }

    /// The touch of the current segment that wants a container.
    fn touch_here(&mut self, number: Number) -> Option<TouchNumber> {
        let wants = |touch: Option<Touch>| touch.is_some_and(|touch| touch.container == number);
        (self.here..self.after).find(|at| wants(self.uses.touch(*at)))
    }

    fn fits_on_disk(&self, number: Number) -> bool {
        self.slots.get(&number).is_some_and(|slot| self.disk + rounded(slot.bytes) <= self.limits.disk)
    }

    fn spill(&mut self, number: Number) -> Action {
        let mut touch = None;
        if let Some(slot) = self.slots.get_mut(&number) {
            self.in_memory.remove(&(slot.key, number));
            self.on_disk.insert((slot.key, number));
            self.memory -= slot.bytes;
            self.disk += rounded(slot.bytes);
            slot.place = Place::Disk;
            touch = Some(slot.key.0);
        }
        if touch.is_some_and(|touch| touch <= self.here) {
            touch = self.touch_here(number);
        }
        Action::Spill(number, touch)
    }

    fn evict(&mut self, key: Key, victim: Number) -> Action {
        if key.0 == PERHAPS {
            self.remove(victim);
            return Action::Drop(victim);
        }
        if self.fits_on_disk(victim) { self.spill(victim) } else { self.drop_farthest(victim) }
    }

    /// Drops the farthest one: among those on disk, or this one in memory.
    fn drop_farthest(&mut self, victim: Number) -> Action {
        let farthest = self.slots.get(&victim).map(|slot| (slot.key, victim));
        let dropped = match self.on_disk.last() {
            Some(last) if self.limits.disk > 0 && farthest.is_some_and(|farthest| *last > farthest) => last.1,
            _ => victim,
        };
        if let Some(slot) = self.remove(dropped) {
            self.ahead = self.ahead.min(slot.key.0);
        }
        Action::Drop(dropped)
    }

    fn rekey(&mut self, number: Number, mut key: Key) {
        if key.0 == NEVER {
            if !self.keeps {
                return self.let_go(number);
            }
            // The longest kept is the farthest.
            self.kept = self.kept.wrapping_add(1);
            key = (PERHAPS, u32::MAX - self.kept);
        }
        let Some(slot) = self.slots.get_mut(&number) else { return };
        let places = match slot.place {
            Place::Coming => None,
            Place::Memory => Some(&mut self.in_memory),
            Place::Disk => Some(&mut self.on_disk),
        };
        if let Some(places) = places {
            places.remove(&(slot.key, number));
            places.insert((key, number));
        }
        slot.key = key;
    }

    fn let_go(&mut self, number: Number) {
        if self.remove(number).is_some() {
            self.gone.push(number);
        }
    }

    fn remove(&mut self, number: Number) -> Option<Slot> {
        let slot = self.slots.remove(&number)?;
        match slot.place {
            Place::Coming => self.memory -= slot.bytes,
            Place::Memory => {
                self.memory -= slot.bytes;
                self.in_memory.remove(&(slot.key, number));
            }
            Place::Disk => {
                self.disk -= rounded(slot.bytes);
                self.on_disk.remove(&(slot.key, number));
            }
        }
        Some(slot)
    }
}

#[cfg(test)]
mod tests;
