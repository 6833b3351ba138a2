//! Looking for damage: every mapping names chunks that exist, and with `read_data` that open.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use larder_format::DecodeError;
use larder_format::volume_map::{Mapping, Place};

use super::containers::path;
use super::opened::Store;
use crate::error::VolumeError;
use crate::index::{Scan, block_of_key, newest, place_of};

/// What a check found.
#[derive(Debug, Default)]
pub struct CheckReport {
    /// Volumes that were looked at.
    pub volumes: u64,
    /// Blocks with a content.
    pub blocks: u64,
    /// Chunks in the index.
    pub chunks: u64,
    /// Containers.
    pub containers: u64,
    /// Bytes of chunks that were read and compared with their fingerprints.
    pub read_bytes: u64,
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
            unreadable: HashMap::new(),
        };
        for number in 0..committer.next_container {
            checker.container(number);
        }
        checker.report.containers = u64::from(committer.next_container);
        checker.chunks()?;
        checker.blocks()?;
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

    /// Every mapping of every volume names chunks that exist.
    fn blocks(&mut self) -> Result<(), VolumeError> {
        let (volumes, memory, runs) = {
            let state = self.store.state.lock();
            let memory = state.tables.blocks.clone();
            (state.volumes.clone(), memory, state.runs.clone())
        };
        let mut bad: BTreeMap<(u32, u64), String> = BTreeMap::new();
        for ((volume, block), (_, mapping)) in &memory {
            self.mapping(*volume, *block, mapping, &mut bad);
        }
        let scan = |run: &Arc<crate::index::RunFile>| -> Scan { run.scan(&[]) };
        let sources = runs.blocks.iter().rev().map(|run| Box::new(scan(run)) as Box<dyn Iterator<Item = _>>).collect();
        for record in newest(sources, 12) {
            let (key, value) = match record {
                Ok(record) => record,
                Err(error) => {
                    self.report.errors.push(error);
                    continue;
                }
            };
            let Some((volume, block, _)) = block_of_key(&key) else { continue };
            if memory.contains_key(&(volume, block)) {
                continue;
            }
            match Mapping::decode(&value) {
                Ok(mapping) => self.mapping(volume, block, &mapping, &mut bad),
                Err(error) => drop(bad.insert((volume, block), error.to_string())),
            }
        }
        self.report.volumes = volumes.len() as u64;
        let mut ranges: Vec<(u32, u64, u64, String)> = Vec::new();
        for ((volume, block), why) in bad {
            match ranges.last_mut() {
                Some((of, _, last, reason)) if *of == volume && *last + 1 == block && *reason == why => *last = block,
                _ => ranges.push((volume, block, block, why)),
            }
        }
        for (id, first, last, why) in ranges {
            let name = volumes.iter().find(|volume| volume.id == id).map(|volume| volume.name.clone());
            let volume = name.unwrap_or_else(|| format!("number {id}"));
            let source = VolumeError::damaged(why)(DecodeError::NotAuthentic { what: "data" });
            self.report.errors.push(VolumeError::Blocks { volume, first, last, source: Box::new(source) });
        }
        Ok(())
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
