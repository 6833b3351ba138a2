//! Looking for damage: every mapping names chunks that exist, and with `read_data` that open. The
//! counts of the table of counts are those of the mappings in the runs.
//!
//! Containers are looked at one after the other. What the index and the block table say is sorted
//! by place, in a temporary file if it exceeds memory, and then compared with the containers in
//! order. So memory does not grow with the store, only with its damage: 64 bytes for each damaged
//! block, and 8 for each chunk that cannot be read.

mod claim;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use larder_format::DecodeError;
use larder_format::volume_map::{Mapping, Place};
use larder_spill::RowSorter;

use self::claim::{By, Claim};
use super::containers::path;
use super::opened::{Committer, Store};
use crate::error::VolumeError;
use crate::index::{RunFile, Source, block_of_key, chunk_key, place_of, summed};

/// What a check found.
#[derive(Debug, Default)]
pub struct CheckReport {
    /// Volumes that were looked at.
    pub volumes: u64,
    /// Blocks with a content, of volumes and of snapshots.
    pub blocks: u64,
    /// Chunks in the index.
    pub chunks: u64,
    /// Containers.
    pub containers: u64,
    /// Bytes of chunks that were read and compared with their fingerprints.
    pub read_bytes: u64,
    /// Chunks whose count is not the number of blocks that name them.
    pub wrong_counts: u64,
    /// Damage. Consecutive blocks with one reason are one error.
    pub errors: Vec<VolumeError>,
}

/// How a check works.
#[derive(Debug, Clone)]
pub struct CheckOptions {
    /// All chunks are read and compared with their fingerprints.
    pub read_data: bool,
    /// Bytes of memory for what is sorted.
    pub memory: usize,
    /// The folder of the file for more, 29 bytes for each chunk and for each part of a block. It is
    /// created if it is absent.
    pub scratch: PathBuf,
}

impl CheckOptions {
    /// With 16 MiB of memory, and the folder for temporary files.
    pub fn new(read_data: bool) -> Self {
        Self { read_data, memory: 16 << 20, scratch: std::env::temp_dir() }
    }
}

struct Checker<'a> {
    store: &'a Store,
    read_data: bool,
    report: CheckReport,
    /// Containers that exist; damaged ones are `false`.
    known: BTreeMap<u32, bool>,
    /// Chunks that do not open, or have another content.
    unreadable: BTreeSet<Place>,
    /// Damaged blocks by volume and number.
    bad: BTreeMap<(u32, u64), Why>,
    scratch: PathBuf,
}

/// The damage of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Why {
    /// What it names in this container.
    Container(u32),
    /// Its mapping.
    Mapping(String),
}

impl Store {
    /// Checks what is durable. Reports damage, and returns an error only if the check itself
    /// cannot go on.
    pub fn check(&self, options: &CheckOptions) -> Result<CheckReport, VolumeError> {
        // Nothing changes meanwhile.
        let committer = self.committer.lock();
        let counts = self.state.lock().runs.counts.clone();
        self.check_with(options, &committer, &counts)
    }

    /// The same, with these runs of the table of counts.
    fn check_with(
        &self,
        options: &CheckOptions,
        committer: &Committer,
        counts: &[Arc<RunFile>],
    ) -> Result<CheckReport, VolumeError> {
        let mut checker = Checker {
            store: self,
            read_data: options.read_data,
            report: CheckReport::default(),
            known: BTreeMap::new(),
            unreadable: BTreeSet::new(),
            bad: BTreeMap::new(),
            scratch: options.scratch.clone(),
        };
        let retired = self.state.lock().runs.retired.clone();
        for number in (0..committer.next_container).filter(|number| !retired.contains(*number)) {
            checker.container(number);
        }
        checker.report.containers = u64::from(committer.next_container) - retired.count();
        let mut claims = RowSorter::new(options.memory, options.scratch.clone());
        checker.chunks(&mut claims)?;
        let are_all_read = checker.blocks(&mut claims)?;
        checker.compare(claims, are_all_read, counts)?;
        checker.report_blocks();
        Ok(checker.report)
    }
}

impl Checker<'_> {
    fn note(&mut self, what: String, why: &'static str) {
        self.report.errors.push(VolumeError::damaged(what)(DecodeError::NotAuthentic { what: why }));
    }

    /// An error of the temporary file.
    fn scratch(&self) -> impl Fn(io::Error) -> VolumeError + use<> {
        let folder = self.scratch.display().to_string();
        move |error| VolumeError::io(format!("a temporary file in {folder}"))(error)
    }

    /// Opens the tables of a container, and with `read_data` all chunks.
    fn container(&mut self, number: u32) {
        let table = match self.store.containers.table(number) {
            Ok(table) => table,
            Err(error) => {
                self.known.insert(number, false);
                self.report.errors.push(error);
                return;
            }
        };
        self.known.insert(number, true);
        if !self.read_data {
            return;
        }
        let (entries, mut offset) = (table.contents.read().chunks.clone(), 0);
        for chunk in entries {
            let place = Place { container: number, offset };
            offset += chunk.size;
            let found = self.store.containers.frame(place);
            let bytes = found.as_ref().ok().and_then(|(frame, from)| frame.get(*from..*from + chunk.size as usize));
            self.report.read_bytes += bytes.map_or(0, |bytes| bytes.len() as u64);
            if bytes.is_none_or(|bytes| self.store.fingerprinter.one(bytes) != chunk.fingerprint) {
                self.unreadable.insert(place);
            }
        }
    }

    /// Every chunk of the index is to be where the index says.
    fn chunks(&mut self, claims: &mut RowSorter<Claim>) -> Result<(), VolumeError> {
        let (memory, runs) = {
            let state = self.store.state.lock();
            let memory: Vec<_> = state.tables.chunks.iter().map(|(key, place)| (*key, *place)).collect();
            (memory, state.runs.clone())
        };
        for (key, place) in memory {
            self.report.chunks += 1;
            claims.push(Claim { place, by: By::Index(key) }).map_err(self.scratch())?;
        }
        for run in &runs.chunks {
            for record in run.scan(&[]) {
                let (key, value) = match record {
                    Ok(record) => record,
                    Err(error) => {
                        self.report.errors.push(error);
                        continue;
                    }
                };
                match (place_of(&value), key.as_slice().try_into()) {
                    // Merges drop them in time.
                    (Some(place), _) if runs.retired.contains(place.container) => {}
                    (Some(place), Ok(key)) => {
                        self.report.chunks += 1;
                        claims.push(Claim { place, by: By::Index(key) }).map_err(self.scratch())?;
                    }
                    _ => self.note(format!("runs/{}", run.id()), "chunk"),
                }
            }
        }
        Ok(())
    }

    /// Every mapping of every volume and snapshot is to name chunks that exist. `false`: some
    /// cannot be read, so the right counts are not known.
    fn blocks(&mut self, claims: &mut RowSorter<Claim>) -> Result<bool, VolumeError> {
        let (memory, runs) = {
            let state = self.store.state.lock();
            (state.tables.blocks.clone(), state.runs.clone())
        };
        let mut are_all_read = true;
        for ((volume, block, _), mapping) in &memory {
            self.mapping(claims, (*volume, *block), mapping, false)?;
        }
        for record in runs.blocks.iter().flat_map(|run| run.scan(&[])) {
            let (key, value) = match record {
                Ok(record) => record,
                Err(error) => {
                    self.report.errors.push(error);
                    are_all_read = false;
                    continue;
                }
            };
            let Some((volume, block, _)) = block_of_key(&key) else { continue };
            match Mapping::decode(&value) {
                Ok(mapping) => self.mapping(claims, (volume, block), &mapping, true)?,
                Err(error) => {
                    self.bad.insert((volume, block), Why::Mapping(error.to_string()));
                    are_all_read = false;
                }
            }
        }
        Ok(are_all_read)
    }

    fn mapping(
        &mut self,
        claims: &mut RowSorter<Claim>,
        (volume, block): (u32, u64),
        mapping: &Mapping,
        is_in_run: bool,
    ) -> Result<(), VolumeError> {
        self.report.blocks += u64::from(!mapping.is_zero());
        for claim in mapping.items.iter().filter_map(|item| Claim::of_item(volume, block, item, is_in_run)) {
            claims.push(claim).map_err(self.scratch())?;
        }
        Ok(())
    }

    /// Compares what was claimed with the containers. If all mappings were read, the counts must be
    /// theirs. A wrong one lets a collection delete too much, or too little.
    fn compare(
        &mut self,
        claims: RowSorter<Claim>,
        are_all_read: bool,
        counts: &[Arc<RunFile>],
    ) -> Result<(), VolumeError> {
        let sources = counts.iter().map(|run| Box::new(run.scan(&[])) as Source).collect();
        let mut sums = summed(sources).peekable();
        let mut wrong: BTreeMap<u32, u64> = BTreeMap::new();
        let mut sorted = claims.sorted().map_err(self.scratch())?.peekable();
        let mut container = Chunks::default();
        let mut are_counts_read = are_all_read;
        while let Some(claim) = sorted.next() {
            let mut claim = claim.map_err(self.scratch())?;
            let place = claim.place;
            let mut uses = 0;
            loop {
                self.claim(&claim, &mut container);
                uses += i64::from(matches!(claim.by, By::Block { is_in_run: true, .. }));
                match sorted.next_if(|next| next.as_ref().map_or(true, |next| next.place == place)) {
                    Some(next) => claim = next.map_err(self.scratch())?,
                    None => break,
                }
            }
            while let Some(sum) = sums.next_if(|sum| sum.as_ref().map_or(true, |(at, _)| *at <= place)) {
                match sum {
                    Ok((at, sum)) if at == place => uses -= sum,
                    // Nobody names it.
                    Ok((at, _)) => *wrong.entry(at.container).or_insert(0) += 1,
                    Err(error) => {
                        if are_counts_read {
                            self.report.errors.push(error);
                        }
                        are_counts_read = false;
                    }
                }
            }
            if uses != 0 {
                *wrong.entry(place.container).or_insert(0) += 1;
            }
        }
        for sum in sums {
            match sum {
                Ok((at, _)) => *wrong.entry(at.container).or_insert(0) += 1,
                Err(error) => {
                    if are_counts_read {
                        self.report.errors.push(error);
                    }
                    are_counts_read = false;
                }
            }
        }
        if are_counts_read {
            self.report.wrong_counts = wrong.values().sum();
            for container in wrong.into_keys() {
                self.note(format!("the table of counts, container {container}"), "count of a chunk");
            }
        }
        Ok(())
    }

    fn claim(&mut self, claim: &Claim, container: &mut Chunks) {
        let place = claim.place;
        let is_whole = self.known.get(&place.container);
        let found = if is_whole == Some(&true) { container.at(self.store, place) } else { None };
        match (claim.by, found) {
            (By::Index(key), Some((_, found))) if found == key => {}
            // The container is reported already.
            (By::Index(_), _) if is_whole == Some(&false) => {}
            (By::Index(_), _) => {
                self.note(format!("{}, payload offset {}", path(place.container), place.offset), "chunk");
            }
            (By::Block { tag, part_end, .. }, Some((size, found)))
                if found[..4] == tag && part_end <= size && !self.unreadable.contains(&place) => {}
            (By::Block { volume, block, .. }, _) => {
                self.bad.entry((volume, block)).or_insert(Why::Container(place.container));
            }
        }
    }

    fn report_blocks(&mut self) {
        let catalog = self.store.state.lock().catalog.clone();
        self.report.volumes = catalog.volumes().count() as u64;
        let mut ranges: Vec<(u32, u64, u64, Why)> = Vec::new();
        for ((volume, block), why) in std::mem::take(&mut self.bad) {
            match ranges.last_mut() {
                Some((of, _, last, reason)) if *of == volume && *last + 1 == block && *reason == why => *last = block,
                _ => ranges.push((volume, block, block, why)),
            }
        }
        for (id, first, last, why) in ranges {
            let volume = catalog.volume(id).map_or_else(|_| format!("number {id}"), |volume| volume.name.clone());
            let why = match why {
                Why::Container(number) => path(number),
                Why::Mapping(error) => error,
            };
            let source = VolumeError::damaged(why)(DecodeError::NotAuthentic { what: "data" });
            self.report.errors.push(VolumeError::Blocks { volume, first, last, source: Box::new(source) });
        }
    }
}

/// The chunks of the container that is being compared.
#[derive(Default)]
struct Chunks {
    container: Option<u32>,
    /// Offset, size, and the beginning of the fingerprint, by rising offset.
    chunks: Vec<(u32, u32, [u8; 20])>,
}

impl Chunks {
    /// Size and fingerprint of the chunk at this place.
    fn at(&mut self, store: &Store, place: Place) -> Option<(u32, [u8; 20])> {
        if self.container != Some(place.container) {
            self.container = Some(place.container);
            self.chunks.clear();
            let table = store.containers.table(place.container).ok()?;
            let mut offset = 0;
            self.chunks.extend(table.contents.read().chunks.iter().map(|chunk| {
                offset += chunk.size;
                (offset - chunk.size, chunk.size, chunk_key(&chunk.fingerprint))
            }));
        }
        let at = self.chunks.binary_search_by_key(&place.offset, |(offset, ..)| *offset).ok()?;
        Some((self.chunks[at].1, self.chunks[at].2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::SimulatedDisk;
    use crate::store::{NewStore, unlock};
    use crate::{Entropy, Options};
    use larder_chunking::{Algorithm, ChunkerParams};
    use larder_format::key_file::KdfCost;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Numbers that never repeat.
    #[derive(Default)]
    struct Counted(AtomicU64);

    impl Entropy for Counted {
        fn random(&self) -> Result<[u8; 32], VolumeError> {
            let mut random = [7; 32];
            random[..8].copy_from_slice(&self.0.fetch_add(1, Ordering::Relaxed).to_le_bytes());
            Ok(random)
        }
    }

    #[test]
    fn counts_that_are_not_those_of_the_blocks_are_found() {
        const BLOCK: u64 = 64 << 10;
        let (disk, entropy) = (SimulatedDisk::new(1), Arc::new(Counted::default()));
        let chunker = ChunkerParams { algorithm: Algorithm::MinCdcAes, min: 4 << 10, average: 8 << 10, max: 12 << 10 };
        let new = NewStore { chunker, slots: 4, slot_bytes: 1 << 20, now_ms: 0, cost: KdfCost::TEST, like: None };
        Store::create(&disk, &*entropy, b"secret", &new).expect("created");
        let (config, keys) = unlock(&disk, b"secret").expect("unlocked");
        let options = Options::of_memory(8 << 20);
        let (store, _) = Store::open_with_keys(Arc::new(disk), entropy, &config, keys, options).expect("opened");
        let volume = store.create_volume("disk", 1 << 30, 0).expect("made").id;
        for block in 0..20 {
            let data: Vec<u8> = (0..BLOCK).map(|at| ((at * (block + 3)) >> 5) as u8).collect();
            store.write(volume, block * BLOCK, &data).expect("written");
        }
        store.close().expect("all in runs");
        let committer = store.committer.lock();
        let counts = store.state.lock().runs.counts.clone();
        assert!(!counts.is_empty());
        for memory in [1, 1 << 20] {
            let options = CheckOptions { memory, ..CheckOptions::new(false) };
            let whole = store.check_with(&options, &committer, &counts).expect("checked");
            assert_eq!((whole.wrong_counts, whole.errors.len()), (0, 0));
            // Each chunk that a block names has a count; without the runs, none has.
            let none = store.check_with(&options, &committer, &[]).expect("checked");
            assert!(none.wrong_counts > 20, "{}", none.wrong_counts);
            assert!(none.errors.iter().all(|error| error.to_string().contains("table of counts")));
            let doubled: Vec<_> = counts.iter().chain(&counts).cloned().collect();
            let doubled = store.check_with(&options, &committer, &doubled).expect("checked");
            assert_eq!(doubled.wrong_counts, none.wrong_counts);
        }
    }
}
