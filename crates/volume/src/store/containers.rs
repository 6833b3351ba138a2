//! Containers of a store: the open one that commits append to, and frames for everybody.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::ErrorKind;
use std::num::NonZeroUsize;
use std::sync::Arc;

use larder_chunking::Fingerprinter;
use larder_format::DecodeError;
use larder_format::compress::Decompressor;
use larder_format::container::{
    ChunkEntry, ContainerIndex, ContainerSealer, FrameEntry, FrameLocation, FrameOpener, TAIL_GUESS, frame_at,
    seal_tables,
};
use larder_format::ids::{ContainerId, ContainerKind, DomainId, JobId};
use larder_format::keys::Keys;
use larder_format::padding::Padding;
use larder_format::volume_map::Place;
use lru::LruCache;
use parking_lot::{Mutex, RwLock};

use crate::counters::Looks;
use crate::disk::{Disk, DiskFile};
use crate::error::VolumeError;

/// Payload bytes at which a frame is closed.
pub(crate) const FRAME_TARGET: usize = 32 << 10;
/// Tables of containers that stay in memory.
const TABLES: NonZeroUsize = NonZeroUsize::new(256).expect("not 0");

/// `containers/<hi>/<seq>`: the path of a container. 4,096 are in a folder.
pub(crate) fn path(number: u32) -> String {
    format!("{}/{number}", folder(number))
}

pub(crate) fn folder(number: u32) -> String {
    format!("containers/{}", number >> 12)
}

/// The id of a container. Its kind is that of metadata: the server holds all keys, so its frames
/// need no public key.
pub(super) fn id(store: JobId, number: u32) -> ContainerId {
    ContainerId { kind: ContainerKind::Meta, job: store, seq: number }
}

/// Frames and chunks of a container that has no tables yet.
#[derive(Debug, Default, Clone)]
pub(crate) struct Contents {
    pub(crate) frames: Vec<FrameLocation>,
    pub(crate) chunks: Vec<ChunkEntry>,
}

impl Contents {
    /// Bytes of all frames.
    pub(crate) fn object_len(&self) -> u64 {
        self.frames.last().map_or(0, |frame| frame.object_range().end)
    }

    /// Bytes of all chunks.
    pub(crate) fn payload_len(&self) -> u32 {
        self.frames.last().map_or(0, |frame| frame.payload_range().end)
    }

    /// Appends a frame. `None`: the container would be too large.
    pub(crate) fn push(&mut self, entry: FrameEntry) -> Option<FrameLocation> {
        let (object_offset, payload_offset) = (self.object_len(), self.payload_len());
        payload_offset.checked_add(entry.raw_len)?;
        let number = u32::try_from(self.frames.len()).ok()?;
        let location = FrameLocation { number, entry, object_offset, payload_offset };
        self.frames.push(location);
        Some(location)
    }

    /// Drops the last frames and chunks.
    pub(crate) fn truncate(&mut self, (frames, chunks): (usize, usize)) {
        self.frames.truncate(frames);
        self.chunks.truncate(chunks);
    }

    /// The tables that end the container.
    pub(crate) fn tables(&self, sealer: &ContainerSealer) -> Result<Vec<u8>, VolumeError> {
        let frames: Vec<_> = self.frames.iter().map(|frame| frame.entry).collect();
        Ok(seal_tables(sealer, &frames, &self.chunks, Padding::for_chunks(0))?)
    }
}

/// Containers by number, as the log names them.
pub(super) type Named = BTreeMap<u32, Contents>;

/// The container that commits append to.
pub(crate) struct OpenContainer {
    pub(crate) number: u32,
    pub(crate) sealer: Arc<ContainerSealer>,
    pub(crate) file: Arc<dyn DiskFile>,
    /// What durable records name, and behind it what a commit adds.
    pub(crate) contents: Contents,
    /// Bytes of the file that were written once, with frames or with zeros.
    written: u64,
    /// Bytes of frames at which it is full.
    target: u64,
}

impl OpenContainer {
    /// Zeros that are written ahead of small commits.
    const AHEAD: u64 = 256 << 10;

    /// Writes zeros behind a small commit that began at `begin`. Syncs of the next ones then change
    /// no metadata of the file system, which makes them several times faster.
    pub(crate) fn write_ahead(&mut self, begin: u64) -> Result<(), VolumeError> {
        let end = self.contents.object_len();
        let is_small = end - begin < Self::AHEAD / 4;
        if is_small && end > self.written {
            let zeros = vec![0; Self::AHEAD as usize];
            self.file.write_at(end, &zeros).map_err(VolumeError::io(path(self.number)))?;
            self.written = end + Self::AHEAD;
        }
        Ok(())
    }

    /// Creates the file of a container. Its name is not durable: a start drops a last record whose
    /// container is missing, so the name is synced together with the record.
    pub(crate) fn create(
        disk: &dyn Disk,
        keys: &Keys,
        store: JobId,
        number: u32,
        target: u64,
        random: [u8; 32],
    ) -> Result<Self, VolumeError> {
        let sealer = ContainerSealer::new(keys, id(store, number), DomainId::DEFAULT, random)?;
        let name = path(number);
        if number.is_multiple_of(1 << 12) {
            disk.make_folder(&folder(number)).map_err(VolumeError::io(folder(number)))?;
            disk.sync_folder("containers").map_err(VolumeError::io("containers"))?;
        }
        // A commit that failed may have left the file.
        let file = match disk.create(&name) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => disk.open(&name),
            created => created,
        };
        let file = file.map_err(VolumeError::io(&name))?;
        match file.reserve(target + target / 16) {
            // It only saves time later, and a collection may need much less.
            Err(error) if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => {}
            reserved => reserved.map_err(VolumeError::io(&name))?,
        }
        Ok(Self { number, sealer: Arc::new(sealer), file, contents: Contents::default(), written: 0, target })
    }

    /// Whether the next frame belongs into another container.
    pub(crate) fn is_full(&self) -> bool {
        let contents = &self.contents;
        contents.object_len() >= self.target
            || u64::from(contents.payload_len()) >= 4 * self.target
            || contents.frames.len() >= 1 << 14
    }

    /// Writes the tables, durably. Every frame must be named by a durable record.
    pub(crate) fn close(&self) -> Result<(), VolumeError> {
        self.write_tables()?;
        self.file.sync().map_err(VolumeError::io(path(self.number)))
    }

    /// The same, not synced.
    pub(crate) fn write_tables(&self) -> Result<(), VolumeError> {
        let name = path(self.number);
        let tables = self.contents.tables(&self.sealer)?;
        let at = self.contents.object_len();
        self.file.write_at(at, &tables).map_err(VolumeError::io(&name))?;
        self.file.set_length(at + tables.len() as u64).map_err(VolumeError::io(name))
    }
}

/// What reading frames of one container needs.
pub(crate) struct Table {
    pub(crate) contents: RwLock<Contents>,
    opener: FrameOpener,
    file: Arc<dyn DiskFile>,
}

/// A frame's payload.
pub(crate) type Frame = Arc<Vec<u8>>;

/// Reads chunks of all containers.
pub(crate) struct Containers {
    disk: Arc<dyn Disk>,
    keys: Keys,
    store: JobId,
    /// Containers without tables.
    open: RwLock<HashMap<u32, Arc<Table>>>,
    tables: Mutex<LruCache<u32, Arc<Table>>>,
    frames: Mutex<LruCache<(u32, u32), Frame>>,
    /// Containers of which something could not be read since the store was opened.
    unreadable: RwLock<BTreeSet<u32>>,
    /// Contexts that nobody uses now: to make one costs as much as to open a frame.
    decompressors: Mutex<Vec<Decompressor>>,
    /// How often an opened frame was at hand.
    pub(crate) looks: Looks,
}

impl Containers {
    /// `cache`: bytes of opened frames that are kept.
    pub(crate) fn new(disk: Arc<dyn Disk>, keys: Keys, store: JobId, cache: usize) -> Self {
        let frames = NonZeroUsize::new(cache / FRAME_TARGET).unwrap_or(NonZeroUsize::MIN);
        Self {
            disk,
            keys,
            store,
            open: RwLock::default(),
            tables: Mutex::new(LruCache::new(TABLES)),
            frames: Mutex::new(LruCache::new(frames)),
            unreadable: RwLock::default(),
            decompressors: Mutex::default(),
            looks: Looks::default(),
        }
    }

    /// Shows the frames of an open container that are durable: all of `contents`.
    pub(crate) fn show(&self, number: u32, file: &Arc<dyn DiskFile>, contents: &Contents) {
        let known = self.open.read().get(&number).cloned();
        match known {
            Some(table) => {
                let mut known = table.contents.write();
                let (frames, chunks) = (known.frames.len(), known.chunks.len());
                known.frames.extend_from_slice(&contents.frames[frames..]);
                known.chunks.extend_from_slice(&contents.chunks[chunks..]);
            }
            None => {
                let opener = FrameOpener::of_open(id(self.store, number), DomainId::DEFAULT);
                let table = Table { contents: RwLock::new(contents.clone()), opener, file: file.clone() };
                self.open.write().insert(number, Arc::new(table));
            }
        }
    }

    fn note_unreadable(&self, number: u32) {
        self.unreadable.write().insert(number);
    }

    /// Whether no read of a container has failed since the store was opened. After a failure, reads
    /// of its other parts may succeed, but new blocks must not name it.
    pub(crate) fn is_readable(&self, number: u32) -> bool {
        !self.unreadable.read().contains(&number)
    }

    /// Whether commits append to a container.
    pub(crate) fn is_open(&self, number: u32) -> bool {
        self.open.read().contains_key(&number)
    }

    /// The container has tables now.
    pub(crate) fn closed(&self, number: u32) {
        self.open.write().remove(&number);
    }

    /// Closes the files of containers that retired, so that their space is free.
    pub(crate) fn forget(&self, numbers: &[u32]) {
        let (mut tables, mut frames) = (self.tables.lock(), self.frames.lock());
        for number in numbers {
            let known = tables.pop(number);
            let count = known.map_or(0, |table| table.contents.read().frames.len() as u32);
            for frame in 0..count {
                frames.pop(&(*number, frame));
            }
        }
    }

    /// Bytes of a container.
    pub(crate) fn object_len(&self, number: u32) -> Result<u64, VolumeError> {
        self.table(number)?.file.length().map_err(VolumeError::io(path(number)))
    }

    /// Frames and chunks of a container.
    pub(crate) fn table(&self, number: u32) -> Result<Arc<Table>, VolumeError> {
        if let Some(table) = self.open.read().get(&number) {
            return Ok(table.clone());
        }
        if let Some(table) = self.tables.lock().get(&number) {
            return Ok(table.clone());
        }
        let name = path(number);
        let file = self.disk.open(&name).map_err(VolumeError::needed(&name));
        let file = file.inspect_err(|_| self.note_unreadable(number))?;
        let index =
            read_tables(&self.keys, self.store, number, &*file).inspect_err(|_| self.note_unreadable(number))?;
        let opener = index.opener().clone();
        let contents = Contents { frames: index.frames().to_vec(), chunks: index.chunks };
        let table = Arc::new(Table { contents: RwLock::new(contents), opener, file });
        self.tables.lock().put(number, table.clone());
        Ok(table)
    }

    /// Chunk bytes and object bytes of a container, and whether it is open.
    pub(crate) fn size(&self, number: u32) -> Result<((u64, u64), bool), VolumeError> {
        // Looked at first: if it is closed meanwhile, it may have more frames than the table says.
        let is_open = self.open.read().contains_key(&number);
        let table = self.table(number)?;
        let contents = table.contents.read();
        Ok(((u64::from(contents.payload_len()), contents.object_len()), is_open))
    }

    /// The frame with a byte of a container's payload, and where the byte is in it.
    pub(crate) fn frame(&self, place: Place) -> Result<(Frame, usize), VolumeError> {
        let what = || format!("{}, payload offset {}", path(place.container), place.offset);
        let table = self.table(place.container)?;
        let location = frame_at(&table.contents.read().frames, place.offset).copied();
        let nothing = DecodeError::Truncated { what: "container" };
        let location = location.ok_or(nothing).map_err(VolumeError::damaged(what()))?;
        let within = (place.offset - location.payload_offset) as usize;
        let key = (place.container, location.number);
        if let Some(frame) = self.frames.lock().get(&key) {
            self.looks.hits.add(1);
            return Ok((frame.clone(), within));
        }
        self.looks.misses.add(1);
        // There are as many as readers at once.
        let mut decompressor = self.decompressors.lock().pop().unwrap_or_default();
        let frame = read_frame(&self.keys, &table.opener, &*table.file, &location, &mut decompressor, &what);
        self.decompressors.lock().push(decompressor);
        let frame = Arc::new(frame.inspect_err(|_| self.note_unreadable(place.container))?);
        self.frames.lock().put(key, frame.clone());
        Ok((frame, within))
    }
}

fn read_frame(
    keys: &Keys,
    opener: &FrameOpener,
    file: &dyn DiskFile,
    location: &FrameLocation,
    decompressor: &mut Decompressor,
    what: &dyn Fn() -> String,
) -> Result<Vec<u8>, VolumeError> {
    let mut sealed = vec![0; location.entry.sealed_len as usize];
    file.read_at(location.object_offset, &mut sealed).map_err(VolumeError::needed(what()))?;
    let mut raw = vec![0; location.entry.raw_len as usize];
    let opened = opener.open_frame(keys, location, &mut sealed, &mut raw, decompressor);
    opened.map_err(VolumeError::damaged(what()))?;
    Ok(raw)
}

/// Whether frames of a container without tables have these chunks. A frame that opens may be one
/// of an earlier commit that failed: it has the same number, and often the same length.
pub(super) fn hold(
    keys: &Keys,
    store: JobId,
    number: u32,
    file: &dyn DiskFile,
    frames: &[FrameLocation],
    chunks: &[ChunkEntry],
) -> Result<bool, VolumeError> {
    let opener = FrameOpener::of_open(id(store, number), DomainId::DEFAULT);
    let fingerprinter = Fingerprinter::new(keys.fingerprint());
    let (mut chunks, mut decompressor) = (chunks.iter(), Decompressor::new());
    for location in frames {
        let raw = match read_frame(keys, &opener, file, location, &mut decompressor, &|| path(number)) {
            Ok(raw) => raw,
            Err(VolumeError::Damaged { .. }) => return Ok(false),
            Err(error) => return Err(error),
        };
        let mut rest = &raw[..];
        while !rest.is_empty() {
            let Some(chunk) = chunks.next() else { return Ok(false) };
            let Some((bytes, behind)) = rest.split_at_checked(chunk.size as usize) else { return Ok(false) };
            if fingerprinter.one(bytes) != chunk.fingerprint {
                return Ok(false);
            }
            rest = behind;
        }
    }
    Ok(chunks.next().is_none())
}

/// Reads the tables of a closed container.
pub(super) fn read_tables(
    keys: &Keys,
    store: JobId,
    number: u32,
    file: &dyn DiskFile,
) -> Result<ContainerIndex, VolumeError> {
    let name = path(number);
    let length = file.length().map_err(VolumeError::io(&name))?;
    let read = |bytes: u64| {
        let mut tail = vec![0; bytes as usize];
        file.read_at(length - bytes, &mut tail).map_err(VolumeError::needed(&name))?;
        Ok::<_, VolumeError>(tail)
    };
    let mut tail = read(length.min(TAIL_GUESS as u64))?;
    let id = id(store, number);
    let needed = ContainerIndex::tail_len(keys, id, &tail, length).map_err(VolumeError::damaged(&name))?;
    if needed > tail.len() {
        tail = read(needed as u64)?;
    }
    ContainerIndex::decode(keys, id, &tail, length).map_err(VolumeError::damaged(name))
}
