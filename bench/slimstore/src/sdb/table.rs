//! A table in a file of pages: rows in a clustered B+tree, long columns in pages of their own, changed in place.
//!
//! What a version leaves of the one before follows from how its rows change: runs of neighbouring rows (more often recent
//! ones), new rows at the end and in between, ranges deleted, single rows anywhere. Changes go on until the file is as
//! different as asked; see [`Table::advance`].
//!
//! Self-reference comes from long columns: many rows carry one of a few documents, and each stores its own copy, as
//! databases do. Only the pages' headers and trailers differ between copies.

use std::collections::BTreeSet;

use super::page::{self, Inserted, Kind, Leaf, OVERFLOW_HEADER, OVERFLOW_PAYLOAD, PAGE, Touched};
use crate::rng::Rng;

/// Granularity of what counts as changed.
const CELL: usize = 256;
/// A changed byte costs the chunk it lies in: on average this much of the file on either side of it.
const REACH: usize = 2500;
/// Of a repeated overflow page, what repeats as chunks of 4 KiB: all but the chunk over its header and its neighbour's trailer.
const REPEATING_SHARE: f64 = 0.74;
/// Distance of the keys of rows that are appended, so that others fit in between.
const KEY_STEP: u64 = 16;
/// Bytes of a row before its note: length, transaction, roll pointer, state, amount, time, document, its first page.
const NOTE_AT: usize = 2 + 6 + 7 + 1 + 8 + 8 + 2 + 4;
const NO_DOCUMENT: u16 = u16::MAX;
/// Entries of a branch page.
const BRANCH_ENTRIES: usize = 900;

/// See the module header.
pub(crate) struct Table {
    bytes: Vec<u8>,
    /// (smallest key that belongs here, page), in key order.
    leaves: Vec<(u64, u32)>,
    branches: Vec<u32>,
    free: BTreeSet<u32>,
    dirty: Vec<bool>,
    /// Cells that no longer are what they were in the version before.
    dead: Vec<bool>,
    dead_cells: usize,
    /// Cells that may die in this version.
    budget: usize,
    lsn: u64,
    next_key: u64,
    target_pages: usize,
    self_reference: f64,
    documents: Vec<Document>,
    /// Overflow pages in use beyond one copy of each document.
    repeated_pages: usize,
    words: Vec<Vec<u8>>,
    rng: Rng,
}

/// A long column's value.
struct Document {
    pages: Vec<Vec<u8>>,
    copies: usize,
}

impl Table {
    /// A table of about `bytes` bytes.
    pub(crate) fn new(bytes: usize, self_reference: f64, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let target_pages = (bytes / PAGE).max(16);
        let words = (0..2000).map(|_| word(&mut rng)).collect();
        let documents = (0..target_pages.div_ceil(160)).map(|_| Document::new(&mut rng)).collect();
        let mut table = Self {
            bytes: vec![0; PAGE],
            leaves: Vec::new(),
            branches: Vec::new(),
            free: BTreeSet::new(),
            dirty: vec![true],
            dead: Vec::new(),
            dead_cells: 0,
            budget: 0,
            lsn: 1 << 20,
            next_key: KEY_STEP,
            target_pages,
            self_reference,
            documents,
            repeated_pages: 0,
            words,
            rng,
        };
        let root = table.allocate();
        table.change_leaf(root, |leaf| leaf.format(root));
        table.leaves.push((0, root));
        while table.used_pages() < target_pages {
            table.append_row();
        }
        table.finish();
        table
    }

    /// The file.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Changes rows until about this share of the file is still what it was.
    pub(crate) fn advance(&mut self, duplication: f64) {
        self.dead = vec![false; self.bytes.len() / CELL];
        self.dead_cells = 0;
        loop {
            self.budget = ((1.0 - duplication) * self.bytes.len() as f64) as usize / CELL;
            if self.is_spent() {
                break;
            }
            self.change((self.budget - self.dead_cells) * CELL);
        }
        self.finish();
    }

    /// Whether the file is as different as asked.
    fn is_spent(&self) -> bool {
        self.dead_cells >= self.budget
    }

    /// One kind of change, of at most about `left` bytes.
    fn change(&mut self, left: usize) {
        let pages_max = (left / PAGE).max(1);
        let pages = (self.rng.log_between(1.0, 24.0) as usize).min(pages_max);
        let grown = self.used_pages() as f64 / self.target_pages as f64;
        match self.rng.below(100) {
            0..60 => self.update_run(pages),
            60..64 => self.update_run(1),
            // Inserts and deletes balance, so that the file keeps its size.
            64..90 if self.rng.chance(2.5 - 2.0 * grown) => {
                for _ in 0..pages * 30 {
                    if !self.is_spent() {
                        self.append_row();
                    }
                }
            }
            64..90 => self.delete_run(pages),
            _ => self.insert_between(pages * 8),
        }
    }

    /// A place in key order; recent ones are likelier.
    fn pick_leaf(&mut self) -> usize {
        let place = self.rng.unit().max(self.rng.unit());
        (place * self.leaves.len() as f64) as usize
    }

    fn update_run(&mut self, pages: usize) {
        let first = self.pick_leaf();
        let step = [1, 1, 3, 12, 48][self.rng.below(5)];
        let keys = self.keys_from(first, pages);
        for key in keys.into_iter().step_by(step) {
            if self.is_spent() {
                break;
            }
            let (leaf, rank) = self.find(key).expect("nothing but updates since the keys were listed");
            let page = self.leaves[leaf].1;
            let mut body = self.leaf_body(page, rank);
            self.stamp(&mut body);
            if self.rng.chance(0.3) {
                body.truncate(NOTE_AT);
                self.write_note(&mut body);
                self.change_leaf(page, |leaf| leaf.remove(rank));
                self.put(key, &body);
            } else {
                self.change_leaf(page, |leaf| leaf.overwrite(rank, &body));
            }
        }
    }

    fn insert_between(&mut self, rows: usize) {
        for _ in 0..rows {
            if self.is_spent() {
                break;
            }
            let leaf = self.pick_leaf();
            let keys = self.keys(self.leaves[leaf].1);
            if keys.is_empty() {
                continue;
            }
            let key = keys[self.rng.below(keys.len())] + 1 + self.rng.below(KEY_STEP as usize - 1) as u64;
            if key < self.next_key && self.find(key).is_none() {
                let body = self.new_row();
                self.put(key, &body);
            }
        }
    }

    fn delete_run(&mut self, pages: usize) {
        let first = self.pick_leaf().min(self.leaves.len() - 1);
        let keys = self.keys_from(first, pages);
        for key in keys {
            if self.is_spent() {
                break;
            }
            let Some((leaf, rank)) = self.find(key) else { continue };
            let page = self.leaves[leaf].1;
            let body = self.leaf_body(page, rank);
            self.release_document(&body);
            self.change_leaf(page, |leaf| leaf.remove(rank));
            if self.keys(page).is_empty() && self.leaves.len() > 1 {
                let (first_key, _) = self.leaves.remove(leaf);
                if leaf == 0 {
                    self.leaves[0].0 = first_key;
                }
                self.free.insert(page);
                self.relink(leaf.saturating_sub(1), leaf + 1);
            }
        }
    }

    fn append_row(&mut self) {
        let body = self.new_row();
        let key = self.next_key;
        self.next_key += KEY_STEP;
        self.put(key, &body);
    }

    // Rows

    fn new_row(&mut self) -> Vec<u8> {
        let mut body = vec![0; NOTE_AT];
        self.stamp(&mut body);
        body[NOTE_AT - 6..NOTE_AT - 4].copy_from_slice(&NO_DOCUMENT.to_be_bytes());
        let repeating = self.repeated_pages as f64 * REPEATING_SHARE / self.bytes.len() as f64 * PAGE as f64;
        if repeating < self.self_reference {
            self.attach_document(&mut body);
        }
        self.write_note(&mut body);
        body
    }

    /// What every change of a row changes.
    fn stamp(&mut self, body: &mut [u8]) {
        self.lsn += 40 + self.rng.below(400) as u64;
        body[2..8].copy_from_slice(&(self.lsn >> 3).to_be_bytes()[2..]);
        self.rng.fill(&mut body[9..15]);
        body[15] = self.rng.below(8) as u8;
        let amount = self.rng.log_between(1.0, 1e5) as u64;
        body[16..24].copy_from_slice(&amount.to_be_bytes());
        body[24..32].copy_from_slice(&self.lsn.to_be_bytes());
    }

    fn write_note(&mut self, body: &mut Vec<u8>) {
        for _ in 0..12 + self.rng.below(70) {
            // Frequent words are much more frequent than rare ones.
            let word = (self.rng.unit() * self.rng.unit() * self.words.len() as f64) as usize;
            body.extend_from_slice(&self.words[word]);
            body.push(b' ');
        }
        let length = body.len() as u16;
        body[..2].copy_from_slice(&length.to_be_bytes());
    }

    fn attach_document(&mut self, body: &mut [u8]) {
        let number = self.rng.below(self.documents.len());
        let pages = self.documents[number].pages.clone();
        self.documents[number].copies += 1;
        if self.documents[number].copies > 1 {
            self.repeated_pages += pages.len();
        }
        let mut next = u32::MAX;
        for payload in pages.iter().rev() {
            let at = self.allocate();
            let bytes = self.page(at);
            page::start(bytes, at, Kind::Overflow);
            bytes[38..42].copy_from_slice(&(payload.len() as u32).to_be_bytes());
            bytes[42..46].copy_from_slice(&next.to_be_bytes());
            bytes[OVERFLOW_HEADER..OVERFLOW_HEADER + payload.len()].copy_from_slice(payload);
            self.touch(at, &[(0, OVERFLOW_HEADER)]);
            next = at;
        }
        body[NOTE_AT - 6..NOTE_AT - 4].copy_from_slice(&(number as u16).to_be_bytes());
        body[NOTE_AT - 4..NOTE_AT].copy_from_slice(&next.to_be_bytes());
    }

    /// Gives the pages of a deleted row's document back. Their content stays until they are used again.
    fn release_document(&mut self, body: &[u8]) {
        let number = u16::from_be_bytes([body[NOTE_AT - 6], body[NOTE_AT - 5]]);
        if number == NO_DOCUMENT {
            return;
        }
        let document = &mut self.documents[usize::from(number)];
        document.copies -= 1;
        if document.copies > 0 {
            self.repeated_pages -= document.pages.len();
        }
        let number_at = |bytes: &[u8], at| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let mut at = number_at(body, NOTE_AT - 4);
        while at != u32::MAX {
            self.free.insert(at);
            at = number_at(self.page(at), 42);
        }
    }

    // The tree

    /// The leaf a key belongs to.
    fn leaf_of(&self, key: u64) -> usize {
        self.leaves.partition_point(|(first, _)| *first <= key).saturating_sub(1)
    }

    /// Leaf and rank of a key.
    fn find(&mut self, key: u64) -> Option<(usize, usize)> {
        let leaf = self.leaf_of(key);
        let page = self.leaves[leaf].1;
        let rank = self.read_leaf(page, |leaf| leaf.search(key).ok());
        rank.map(|rank| (leaf, rank))
    }

    fn put(&mut self, key: u64, body: &[u8]) {
        let mut leaf = self.leaf_of(key);
        let mut page = self.leaves[leaf].1;
        if self.change_leaf(page, |leaf| leaf.insert(key, body)) == Inserted::Done {
            return;
        }
        let new = self.allocate();
        self.change_leaf(new, |leaf| leaf.format(new));
        // Rows appended at the end leave full pages behind; others split a page into halves.
        let appended = leaf + 1 == self.leaves.len() && self.keys(page).last().is_none_or(|last| *last < key);
        let moved = if appended { Vec::new() } else { self.change_leaf(page, |leaf| leaf.split_off()) };
        let first = moved.first().map_or(key, |(key, _)| *key);
        for (key, body) in &moved {
            self.change_leaf(new, |leaf| leaf.insert(*key, body));
        }
        self.leaves.insert(leaf + 1, (first, new));
        self.relink(leaf, leaf + 2);
        leaf = self.leaf_of(key);
        page = self.leaves[leaf].1;
        let inserted = self.change_leaf(page, |leaf| leaf.insert(key, body));
        assert_eq!(inserted, Inserted::Done, "a row is much smaller than half a page");
    }

    /// Writes the neighbours' page numbers into the leaves from `first` to `last`.
    fn relink(&mut self, first: usize, last: usize) {
        for leaf in first..=last.min(self.leaves.len() - 1) {
            let number =
                |leaf: Option<usize>| leaf.and_then(|leaf| self.leaves.get(leaf)).map_or(u32::MAX, |leaf| leaf.1);
            let (previous, next) = (number(leaf.checked_sub(1)), number(Some(leaf + 1)));
            let at = self.leaves[leaf].1;
            page::set_neighbours(self.page(at), previous, next);
            self.touch(at, &[]);
        }
    }

    fn keys(&mut self, page: u32) -> Vec<u64> {
        self.read_leaf(page, |leaf| (0..leaf.records()).map(|rank| leaf.key(rank)).collect())
    }

    /// The keys of some leaves in a row.
    fn keys_from(&mut self, first: usize, leaves: usize) -> Vec<u64> {
        let pages: Vec<u32> = self.leaves[first..].iter().take(leaves).map(|leaf| leaf.1).collect();
        pages.into_iter().flat_map(|page| self.keys(page)).collect()
    }

    fn leaf_body(&mut self, page: u32, rank: usize) -> Vec<u8> {
        self.read_leaf(page, |leaf| leaf.body(rank).to_vec())
    }

    fn read_leaf<T>(&mut self, page: u32, read: impl FnOnce(&Leaf<'_>) -> T) -> T {
        let mut touched = Touched::new();
        read(&Leaf { bytes: self.page(page), touched: &mut touched })
    }

    fn change_leaf<T>(&mut self, page: u32, change: impl FnOnce(&mut Leaf<'_>) -> T) -> T {
        let mut touched = Touched::new();
        let result = change(&mut Leaf { bytes: self.page(page), touched: &mut touched });
        if !touched.is_empty() {
            self.touch(page, &touched);
        }
        result
    }

    // Pages

    fn page(&mut self, number: u32) -> &mut [u8] {
        let at = number as usize * PAGE;
        &mut self.bytes[at..at + PAGE]
    }

    fn used_pages(&self) -> usize {
        self.bytes.len() / PAGE - self.free.len()
    }

    fn allocate(&mut self) -> u32 {
        if let Some(page) = self.free.pop_first() {
            return page;
        }
        let page = (self.bytes.len() / PAGE) as u32;
        self.bytes.resize(self.bytes.len() + PAGE, 0);
        self.dirty.push(false);
        self.dead.resize(self.bytes.len() / CELL, false);
        page
    }

    /// Notes that bytes of a page have changed; with the first ones change its LSN and checksum, which lie at both ends.
    fn touch(&mut self, page: u32, ranges: &[(usize, usize)]) {
        let start = page as usize * PAGE;
        if !std::mem::replace(&mut self.dirty[page as usize], true) {
            self.kill(start, start + 24);
            self.kill(start + PAGE - 8, start + PAGE);
        }
        for (from, to) in ranges {
            self.kill(start + from, start + to);
        }
    }

    fn kill(&mut self, from: usize, to: usize) {
        let first = from.saturating_sub(REACH) / CELL;
        let last = (to + REACH).div_ceil(CELL).min(self.dead.len());
        for cell in self.dead.get_mut(first..last).unwrap_or_default() {
            self.dead_cells += usize::from(!std::mem::replace(cell, true));
        }
    }

    /// Writes the pages above the leaves and the file's header, and seals every page that has changed.
    fn finish(&mut self) {
        let mut used = Vec::new();
        for (number, leaves) in self.leaves.clone().chunks(BRANCH_ENTRIES).enumerate() {
            let at = match self.branches.get(number) {
                Some(page) => *page,
                None => self.allocate(),
            };
            used.push(at);
            let mut bytes = vec![0; PAGE];
            page::start(&mut bytes, at, Kind::Branch);
            for (entry, (key, child)) in leaves.iter().enumerate() {
                let place = 120 + entry * 16;
                bytes[place..place + 8].copy_from_slice(&key.to_be_bytes());
                bytes[place + 8..place + 12].copy_from_slice(&child.to_be_bytes());
            }
            if self.page(at)[120..PAGE - 8] != bytes[120..PAGE - 8] {
                self.page(at).copy_from_slice(&bytes);
                self.dirty[at as usize] = true;
            }
        }
        self.free.extend(self.branches.iter().filter(|page| !used.contains(page)));
        self.branches = used;
        let (pages, free) = ((self.bytes.len() / PAGE) as u32, self.free.len() as u32);
        let header = self.page(0);
        header[42..46].copy_from_slice(&pages.to_be_bytes());
        header[46..50].copy_from_slice(&free.to_be_bytes());
        self.dirty[0] = true;
        for number in 0..self.dirty.len() {
            if std::mem::take(&mut self.dirty[number]) {
                self.lsn += 1;
                // Every page has the LSN of its own last change, which lies somewhere in the time since the last version.
                let lsn = self.lsn;
                page::seal(self.page(number as u32), lsn);
            }
        }
    }
}

impl Document {
    fn new(rng: &mut Rng) -> Self {
        let pages = (0..4 + rng.below(9)).map(|_| {
            let mut payload = vec![0; OVERFLOW_PAYLOAD];
            rng.fill(&mut payload);
            payload
        });
        Self { pages: pages.collect(), copies: 0 }
    }
}

fn word(rng: &mut Rng) -> Vec<u8> {
    let syllable = |rng: &mut Rng| {
        let pick = |rng: &mut Rng, of: &[u8]| of[rng.below(of.len())];
        [pick(rng, b"bcdfghklmnprstvw"), pick(rng, b"aeiou")]
    };
    (0..1 + rng.below(4)).flat_map(|_| syllable(rng)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tree stays a tree: keys ascend through all leaves, every leaf holds what its place says, pages are used once.
    #[test]
    fn rows_stay_in_order_and_pages_have_one_use() {
        let mut table = Table::new(2 << 20, 0.2, 5);
        let pages = table.bytes.len() / PAGE;
        for version in 0..6 {
            table.advance(0.7);
            let keys: Vec<u64> = table.keys_from(0, usize::MAX);
            assert!(keys.is_sorted_by(|a, b| a < b), "version {version}");
            for (leaf, (first, page)) in table.leaves.clone().into_iter().enumerate() {
                let end = table.leaves.get(leaf + 1).map_or(u64::MAX, |next| next.0);
                assert!(table.keys(page).iter().all(|key| (first..end).contains(key)));
            }
            let mut used: Vec<u32> = table.leaves.iter().map(|leaf| leaf.1).chain(table.branches.clone()).collect();
            used.extend(&table.free);
            let distinct: BTreeSet<u32> = used.iter().copied().collect();
            assert_eq!(distinct.len(), used.len(), "version {version}");
            let now = table.bytes.len() / PAGE;
            assert!(now < pages * 3 / 2 && table.used_pages() > pages / 2, "{pages} pages became {now}");
        }
    }
}
