//! Looking for damage: every mapping names chunks that exist, and with `read_data` that open. The
//! counts of the table of counts are those of the mappings in the runs.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use larder_format::DecodeError;
use larder_format::volume_map::{Mapping, Place};

use super::containers::path;
use super::opened::Store;
use crate::error::VolumeError;
use crate::index::{Source, block_of_key, place_of, summed};

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

/// Chunks of a container by their offset: size, and the beginning of the fingerprint.
type Chunks = HashMap<u32, (u32, [u8; 20])>;

struct Checker<'a> {
    store: &'a Store,
    read_data: bool,
    report: CheckReport,
    /// Containers that were looked at; an error's text for damaged ones.
    known: BTreeMap<u32, Result<Arc<Chunks>, String>>,
    /// How often the runs of the block table name each place.
    counts: HashMap<Place, i64>,
    /// Frames that do not open, by container and offset of the chunk.
    unreadable: HashMap<Place, String>,
}

impl Store {
    /// Checks what is durable. Reports damage, and returns an error only if the check itself
    /// cannot go on.
    pub fn check(&self, read_data: bool) -> Result<CheckReport, VolumeError> {
        // Nothing changes meanwhile.
        let committer = self.committer.lock();
        let mut checker = Checker {
            store: self,
            read_data,
            report: CheckReport::default(),
            known: BTreeMap::new(),
            counts: HashMap::new(),
            unreadable: HashMap::new(),
        };
        let retired = self.state.lock().runs.retired.clone();
        for number in (0..committer.next_container).filter(|number| !retired.contains(*number)) {
            checker.container(number);
        }
        checker.report.containers = u64::from(committer.next_container) - retired.count();
        checker.chunks()?;
        if checker.blocks() {
            checker.counts();
        }
        Ok(checker.report)
    }
}

impl Checker<'_> {
    fn note(&mut self, what: String, why: &'static str) {
        self.report.errors.push(VolumeError::damaged(what)(DecodeError::NotAuthentic { what: why }));
    }

    /// Opens the tables of a container, and with `read_data` all chunks.
    fn container(&mut self, number: u32) {
        let table = match self.store.containers.table(number) {
            Ok(table) => table,
            Err(error) => {
                self.known.insert(number, Err(error.to_string()));
                self.report.errors.push(error);
                return;
            }
        };
        let entries = table.contents.read().chunks.clone();
        let (mut chunks, mut offset) = (Chunks::new(), 0);
        for chunk in entries {
            let place = Place { container: number, offset };
            chunks.insert(offset, (chunk.size, crate::index::chunk_key(&chunk.fingerprint)));
            offset += chunk.size;
            if !self.read_data {
                continue;
            }
            match self.store.containers.frame(place) {
                Ok((frame, from)) => {
                    let bytes = &frame[from..from + chunk.size as usize];
                    self.report.read_bytes += bytes.len() as u64;
                    if self.store.fingerprinter.one(bytes) != chunk.fingerprint {
                        self.unreadable.insert(place, "its content has another fingerprint".into());
                    }
                }
                Err(error) => drop(self.unreadable.insert(place, error.to_string())),
            }
        }
        self.known.insert(number, Ok(Arc::new(chunks)));
    }

    /// Every chunk of the index is where the index says.
    fn chunks(&mut self) -> Result<(), VolumeError> {
        let (memory, runs) = {
            let state = self.store.state.lock();
            let memory: Vec<_> = state.tables.chunks.iter().map(|(key, place)| (key.to_vec(), *place)).collect();
            (memory, state.runs.clone())
        };
        for (key, place) in memory {
            self.chunk(&key, place);
        }
        for run in &runs.chunks {
            for record in run.scan(&[]) {
                match record {
                    Ok((key, value)) => match place_of(&value) {
                        // Merges drop them in time.
                        Some(place) if runs.retired.contains(place.container) => {}
                        Some(place) => self.chunk(&key, place),
                        None => self.note(format!("runs/{}", run.id()), "chunk"),
                    },
                    Err(error) => self.report.errors.push(error),
                }
            }
        }
        Ok(())
    }

    fn chunk(&mut self, key: &[u8], place: Place) {
        self.report.chunks += 1;
        match self.known.get(&place.container) {
            Some(Ok(chunks)) if chunks.get(&place.offset).is_some_and(|(_, found)| found == key) => {}
            // The container is reported already.
            Some(Err(_)) => {}
            _ => self.note(format!("{}, payload offset {}", path(place.container), place.offset), "chunk"),
        }
    }

    /// Every mapping of every volume and snapshot names chunks that exist. `false`: some cannot be
    /// read, so the right counts are not known.
    fn blocks(&mut self) -> bool {
        let (catalog, memory, runs) = {
            let state = self.store.state.lock();
            let memory = state.tables.blocks.clone();
            (state.catalog.clone(), memory, state.runs.clone())
        };
        let mut are_all_read = true;
        let mut bad: BTreeMap<(u32, u64), String> = BTreeMap::new();
        for ((volume, block, _), mapping) in &memory {
            self.mapping(*volume, *block, mapping, &mut bad);
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
                Ok(mapping) => {
                    for place in mapping.items.iter().filter_map(|item| item.place) {
                        *self.counts.entry(place).or_insert(0) += 1;
                    }
                    self.mapping(volume, block, &mapping, &mut bad);
                }
                Err(error) => {
                    bad.insert((volume, block), error.to_string());
                    are_all_read = false;
                }
            }
        }
        self.report.volumes = catalog.volumes().count() as u64;
        let mut ranges: Vec<(u32, u64, u64, String)> = Vec::new();
        for ((volume, block), why) in bad {
            match ranges.last_mut() {
                Some((of, _, last, reason)) if *of == volume && *last + 1 == block && *reason == why => *last = block,
                _ => ranges.push((volume, block, block, why)),
            }
        }
        for (id, first, last, why) in ranges {
            let volume = catalog.volume(id).map_or_else(|_| format!("number {id}"), |volume| volume.name.clone());
            let source = VolumeError::damaged(why)(DecodeError::NotAuthentic { what: "data" });
            self.report.errors.push(VolumeError::Blocks { volume, first, last, source: Box::new(source) });
        }
        are_all_read
    }

    /// The counts are those of the mappings. A wrong one lets a collection delete too much, or too
    /// little.
    fn counts(&mut self) {
        let runs = self.store.state.lock().runs.clone();
        let sources = runs.counts.iter().map(|run| Box::new(run.scan(&[])) as Source).collect();
        let mut wrong: BTreeMap<u32, u64> = BTreeMap::new();
        for sum in summed(sources) {
            match sum {
                Ok((place, sum)) if self.counts.remove(&place).unwrap_or(0) != sum => {
                    *wrong.entry(place.container).or_insert(0) += 1;
                }
                Ok(_) => {}
                Err(error) => return self.report.errors.push(error),
            }
        }
        for place in std::mem::take(&mut self.counts).into_keys() {
            *wrong.entry(place.container).or_insert(0) += 1;
        }
        self.report.wrong_counts = wrong.values().sum();
        for container in wrong.into_keys() {
            self.note(format!("the table of counts, container {container}"), "count of a chunk");
        }
    }

    fn mapping(&mut self, volume: u32, block: u64, mapping: &Mapping, bad: &mut BTreeMap<(u32, u64), String>) {
        self.report.blocks += u64::from(!mapping.is_zero());
        for item in &mapping.items {
            let Some(place) = item.place else { continue };
            let why = match self.known.get(&place.container) {
                None => Some(path(place.container)),
                Some(Err(_)) => Some(path(place.container)),
                Some(Ok(chunks)) => match chunks.get(&place.offset) {
                    Some((size, key))
                        if key[..4] == item.tag && u32::from(item.skip) + u32::from(item.length) <= *size =>
                    {
                        self.unreadable.get(&place).map(|_| path(place.container))
                    }
                    _ => Some(path(place.container)),
                },
            };
            if let Some(why) = why {
                bad.insert((volume, block), why);
                return;
            }
        }
    }
}
