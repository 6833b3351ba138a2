//! Commits: what waits becomes frames and one record of the log.
//!
//! Order: frames are written; the record is written; both are synced at once; then the memory
//! tables change, and flushes are acknowledged. An error before the record leaves everything as it
//! was, and the next commit tries again. An error from there on stops all writing.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use larder_chunking::StreamEnd;
use larder_format::Fingerprint;
use larder_format::compress::Compressor;
use larder_format::container::{ChunkEntry, ChunkKind, seal_frame};
use larder_format::volume_log::{Event, FramesEvent};
use larder_format::volume_map::{BLOCK_LEN, MAPPING_MAX, MapItem, Mapping, Place};

use super::splice::{may_overflow, push_zeros, splice};
use crate::dirty::Dirty;
use crate::disk::DiskFile;
use crate::error::VolumeError;
use crate::index::chunk_key;
use crate::store::{Committer, Contents, FRAME_TARGET, OpenContainer, Store, container_path};

/// A block of a commit.
struct Changing {
    key: (u32, u64),
    dirty: Arc<Dirty>,
    old: Mapping,
    mac: Option<[u8; 16]>,
    /// Parts that were written, with the chunks that they became.
    parts: Vec<(Range<u32>, Vec<MapItem>)>,
}

/// Consecutive parts of blocks that are cut as one stream.
#[derive(Default)]
struct Stream {
    bytes: Vec<u8>,
    /// Which block of the batch, and the bytes of it.
    parts: Vec<(usize, Range<u32>)>,
}

/// A container as a commit changes it. Nothing of it counts before the record.
struct Staged {
    container: OpenContainer,
    contents: Contents,
    first_frame: usize,
    first_chunk: usize,
    /// Payload and chunks of the frame that is being filled.
    raw: Vec<u8>,
    raw_chunks: Vec<ChunkEntry>,
}

/// New chunks of a commit.
struct Staging<'a> {
    store: &'a Store,
    containers: Vec<Staged>,
    next_container: u32,
    chunks: HashMap<[u8; 20], Place>,
}

impl Store {
    /// Commits everything that waits.
    pub(crate) fn commit(&self, committer: &mut Committer) -> Result<(), VolumeError> {
        let upto = {
            let mut state = self.state.lock();
            if let Some(why) = &state.stopped {
                return Err(VolumeError::Stopped(why.clone()));
            }
            let active = std::mem::take(&mut state.active);
            if state.sealing.blocks.is_empty() {
                state.sealing = active;
            } else {
                // The last commit failed before its record.
                state.sealing.put_all(active);
            }
            state.accepted
        };
        self.look_at_space()?;
        loop {
            if committer.log.is_half_full() || self.state.lock().tables.bytes_held() >= self.options.tables {
                let volumes = self.volumes();
                self.publish(committer, volumes)?;
            }
            let room = committer.log.record_room();
            let batch = self.next_batch(room)?;
            if batch.is_empty() {
                break;
            }
            self.commit_batch(committer, batch)?;
        }
        self.state.lock().committed = upto;
        self.changed.notify_all();
        Ok(())
    }

    /// The next blocks whose record and chunks have a bounded size.
    fn next_batch(&self, room: usize) -> Result<Vec<Changing>, VolumeError> {
        const DATA: usize = 16 << 20;
        let mut batch = Vec::new();
        {
            let state = self.state.lock();
            let (mut bytes, mut data) = (0, 0);
            for (key, dirty) in &state.sealing.blocks {
                let ranges: usize = dirty.ranges().map(|range| range.len()).sum();
                // Events of the block and of its chunks.
                bytes += MAPPING_MAX + 32 + (ranges / 1024 + 4) * 48;
                data += ranges;
                if !batch.is_empty() && (bytes > room || data > DATA) {
                    break;
                }
                batch.push((*key, dirty.clone()));
            }
        }
        batch.into_iter().map(|(key, dirty)| self.changing(key, dirty)).collect()
    }

    /// Looks up the old mapping of a block. A block in too many pieces is read, and written again
    /// as a whole.
    fn changing(&self, key: (u32, u64), dirty: Arc<Dirty>) -> Result<Changing, VolumeError> {
        let old = self.mapping(key.0, key.1)?;
        let mut changing = Changing { key, dirty, old, mac: None, parts: Vec::new() };
        let min = self.chunker.params().min.max(512);
        if !changing.dirty.is_whole() && may_overflow(&changing.old, changing.dirty.ranges(), min) {
            let mut content = vec![0; BLOCK_LEN as usize];
            self.read_mapping(&changing.old, &(0..BLOCK_LEN), &mut content)
                .map_err(|error| self.at_block(key.0, key.1, error))?;
            changing.dirty.overlay(0, &mut content);
            changing.dirty = Arc::new(Dirty::whole(content));
        }
        Ok(changing)
    }

    fn commit_batch(&self, committer: &mut Committer, mut batch: Vec<Changing>) -> Result<(), VolumeError> {
        let (streams, unchanged) = self.streams(&mut batch);
        let container = committer.container.take();
        let had_container = container.is_some();
        let mut staging = Staging::new(self, container, committer.next_container);
        let staged = self.stage(&mut staging, &mut committer.compressor, &mut batch, streams);
        if let Err(error) = staged {
            // What was written is behind the last durable frame, and is written over.
            let first = staging.containers.into_iter().next().map(|staged| staged.container);
            committer.container = first.filter(|_| had_container);
            return Err(error);
        }
        let mut events = staging.events();
        let mut written = Vec::new();
        for (number, changing) in batch.iter().enumerate() {
            if unchanged[number] {
                continue;
            }
            let mapping = if changing.dirty.is_zeros() {
                Mapping::ZERO
            } else {
                splice(&changing.old, &changing.parts, changing.mac)
            };
            if mapping == changing.old {
                continue;
            }
            let ((volume, block), version) = (changing.key, committer.next_version);
            committer.next_version += 1;
            events.push(Event::Wrote { volume, block, version, mapping: mapping.clone() });
            written.push((volume, block, version, mapping));
        }
        if !events.is_empty() {
            let appended = committer.log.append(&*self.disk, &self.keys, &*self.entropy, events);
            appended.map_err(|error| self.stop(error))?;
            let mut files: Vec<Arc<dyn DiskFile>> = vec![committer.log.file.clone()];
            files.extend(staging.containers.iter().filter(|staged| staged.has_new()).map(Staged::file));
            self.disk.sync_files(&files).map_err(|error| self.stop(VolumeError::io("commit")(error)))?;
        }
        let closing = staging.settle(committer);
        {
            let mut state = self.state.lock();
            for (volume, block, version, mapping) in written {
                state.tables.put_block(volume, block, version, mapping);
            }
            state.tables.chunks.extend(staging.chunks);
            for changing in &batch {
                if let Some(dirty) = state.sealing.blocks.remove(&changing.key) {
                    state.sealing.bytes -= dirty.bytes_held();
                }
            }
            state.sealing.counted = state.sealing.blocks.len();
        }
        self.changed.notify_all();
        for container in closing {
            // Every frame of it is named by a durable record now.
            container.close().map_err(|error| self.stop(error))?;
            self.containers.closed(container.number);
        }
        Ok(())
    }

    /// The streams of a batch, and which of its blocks have the content that they had before.
    fn streams(&self, batch: &mut [Changing]) -> (Vec<Stream>, Vec<bool>) {
        let mut streams: Vec<Stream> = Vec::new();
        let mut unchanged = vec![false; batch.len()];
        let mut end = None;
        for (number, changing) in batch.iter_mut().enumerate() {
            let (volume, block) = changing.key;
            if changing.dirty.is_zeros() {
                unchanged[number] = changing.old.is_zero();
                continue;
            }
            if changing.dirty.is_whole() {
                let mut content = vec![0; BLOCK_LEN as usize];
                changing.dirty.overlay(0, &mut content);
                let mac = self.mac_of(&content);
                if changing.old.mac == Some(mac) {
                    unchanged[number] = true;
                    continue;
                }
                changing.mac = Some(mac).filter(|mac| *mac != [0; 16]);
            }
            for range in changing.dirty.ranges() {
                let start = block * u64::from(BLOCK_LEN) + u64::from(range.start);
                if end != Some((volume, start)) || streams.is_empty() {
                    streams.push(Stream::default());
                }
                let Some(stream) = streams.last_mut() else { continue };
                let from = stream.bytes.len();
                stream.bytes.resize(from + range.len(), 0);
                changing.dirty.overlay(range.start, &mut stream.bytes[from..]);
                end = Some((volume, start + range.len() as u64));
                stream.parts.push((number, range));
            }
        }
        (streams, unchanged)
    }

    /// Cuts the streams, looks for their chunks, and stages those that are new.
    fn stage(
        &self,
        staging: &mut Staging<'_>,
        compressor: &mut Compressor,
        batch: &mut [Changing],
        streams: Vec<Stream>,
    ) -> Result<(), VolumeError> {
        for stream in streams {
            let (mut lengths, mut names) = (Vec::new(), Vec::new());
            self.chunker.cut_all(&stream.bytes, StreamEnd::Reached, &mut lengths);
            self.fingerprinter.many(&stream.bytes, &lengths, &mut names);
            let (mut rest, mut chunks) = (&stream.bytes[..], Vec::with_capacity(lengths.len()));
            for (length, name) in lengths.iter().zip(&names) {
                let (chunk, behind) = rest.split_at(*length as usize);
                rest = behind;
                let place = if chunk.iter().all(|byte| *byte == 0) {
                    None
                } else {
                    Some(staging.place(compressor, chunk, name)?)
                };
                chunks.push((*length, place, *name));
            }
            assign(batch, &stream.parts, &chunks);
        }
        staging.finish(compressor)
    }
}

/// Gives every part of a stream the items that it consists of.
fn assign(batch: &mut [Changing], parts: &[(usize, Range<u32>)], chunks: &[(u32, Option<Place>, Fingerprint)]) {
    let (mut chunk, mut used) = (0, 0);
    for (number, range) in parts {
        let mut items = Vec::new();
        let mut left = range.end - range.start;
        while left > 0 {
            let (length, place, name) = &chunks[chunk];
            let take = left.min(length - used);
            match place {
                None => push_zeros(take, &mut items),
                Some(place) => {
                    let mut tag = [0; 4];
                    tag.copy_from_slice(&name.0[..4]);
                    items.push(MapItem { place: Some(*place), skip: used as u16, length: take as u16, tag });
                }
            }
            left -= take;
            used += take;
            if used == *length {
                (chunk, used) = (chunk + 1, 0);
            }
        }
        batch[*number].parts.push((range.clone(), items));
    }
}

impl Staged {
    fn new(container: OpenContainer) -> Self {
        let contents = container.contents.clone();
        let (first_frame, first_chunk) = (contents.frames.len(), contents.chunks.len());
        Self { container, contents, first_frame, first_chunk, raw: Vec::new(), raw_chunks: Vec::new() }
    }

    fn has_new(&self) -> bool {
        self.contents.frames.len() > self.first_frame
    }

    fn file(&self) -> Arc<dyn DiskFile> {
        self.container.file.clone()
    }

    /// Compresses and seals the frame that is being filled, and writes it, not synced.
    fn close_frame(&mut self, compressor: &mut Compressor) -> Result<(), VolumeError> {
        if self.raw.is_empty() {
            return Ok(());
        }
        let number = self.contents.frames.len() as u32;
        let frame = seal_frame(&self.container.sealer, number, &self.raw, &self.raw_chunks, compressor)?;
        let what = || container_path(self.container.number);
        let too_large = || VolumeError::BadRequest("a container is too large".into());
        let location = self.contents.push(frame.entry).ok_or_else(too_large)?;
        self.container.file.write_at(location.object_offset, &frame.bytes).map_err(VolumeError::io(what()))?;
        self.contents.chunks.append(&mut self.raw_chunks);
        self.raw.clear();
        Ok(())
    }
}

impl<'a> Staging<'a> {
    fn new(store: &'a Store, container: Option<OpenContainer>, next_container: u32) -> Self {
        let containers = container.into_iter().map(Staged::new).collect();
        Self { store, containers, next_container, chunks: HashMap::new() }
    }

    /// Where a chunk is, or will be.
    fn place(&mut self, compressor: &mut Compressor, chunk: &[u8], name: &Fingerprint) -> Result<Place, VolumeError> {
        let key = chunk_key(name);
        if let Some(place) = self.chunks.get(&key) {
            return Ok(*place);
        }
        let runs = {
            let state = self.store.state.lock();
            if let Some(place) = state.tables.chunks.get(&key) {
                return Ok(*place);
            }
            state.runs.clone()
        };
        if let Some(place) = runs.chunk(&self.store.pages, &key)? {
            return Ok(place);
        }
        let place = self.add(compressor, chunk, name)?;
        self.chunks.insert(key, place);
        Ok(place)
    }

    fn add(&mut self, compressor: &mut Compressor, chunk: &[u8], name: &Fingerprint) -> Result<Place, VolumeError> {
        if let Some(staged) = self.containers.last_mut()
            && !staged.raw.is_empty()
            && staged.raw.len() + chunk.len() > FRAME_TARGET
        {
            staged.close_frame(compressor)?;
        }
        let needs_another = self
            .containers
            .last()
            .is_none_or(|staged| staged.raw.is_empty() && OpenContainer::is_full(&staged.contents));
        if needs_another {
            let (number, random) = (self.next_container, self.store.entropy.random()?);
            let store = self.store;
            let container = OpenContainer::create(&*store.disk, &store.keys, store.id, number, random)?;
            self.next_container += 1;
            self.containers.push(Staged::new(container));
        }
        let Some(staged) = self.containers.last_mut() else {
            return Err(VolumeError::BadRequest("there is no container".into()));
        };
        let offset = staged.contents.payload_len() + staged.raw.len() as u32;
        staged.raw.extend_from_slice(chunk);
        staged.raw_chunks.push(ChunkEntry { fingerprint: *name, size: chunk.len() as u32, kind: ChunkKind::Plain });
        Ok(Place { container: staged.container.number, offset })
    }

    /// Closes the last frame.
    fn finish(&mut self, compressor: &mut Compressor) -> Result<(), VolumeError> {
        let Some(staged) = self.containers.last_mut() else { return Ok(()) };
        staged.close_frame(compressor)?;
        if staged.has_new() { staged.container.write_ahead(staged.contents.object_len()) } else { Ok(()) }
    }

    /// What the record says of the containers.
    fn events(&self) -> Vec<Event> {
        let with_new = self.containers.iter().filter(|staged| staged.has_new());
        let event = |staged: &Staged| {
            Event::Frames(FramesEvent {
                container: staged.container.number,
                first: staged.first_frame as u32,
                frames: staged.contents.frames[staged.first_frame..].iter().map(|frame| frame.entry).collect(),
                chunks: staged.contents.chunks[staged.first_chunk..].to_vec(),
            })
        };
        with_new.map(event).collect()
    }

    /// The record is durable: the frames count. Gives the containers that are full.
    fn settle(&mut self, committer: &mut Committer) -> Vec<OpenContainer> {
        committer.next_container = self.next_container;
        let mut closing = Vec::new();
        for mut staged in std::mem::take(&mut self.containers) {
            staged.container.contents = staged.contents;
            self.store.containers.show(&staged.container);
            closing.extend(committer.container.replace(staged.container));
        }
        if committer.container.as_ref().is_some_and(|container| OpenContainer::is_full(&container.contents)) {
            closing.extend(committer.container.take());
        }
        closing
    }
}
