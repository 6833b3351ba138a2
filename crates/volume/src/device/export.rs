//! Volumes as exports of an NBD server.

use std::sync::Arc;

use larder_format::ErrorKind;
use larder_format::volume_manifest::SnapshotEntry;
use larder_nbd::{
    Abilities, BASE_ALLOCATION, BlockSizes, ErrorCode, Export, ExportError, Exports, Extent, Listed, Zeroing,
};

use super::{BLOCK, blocks_of};
use crate::error::VolumeError;
use crate::index::View;
use crate::store::{Catalog, Store, view_of};

/// Most blocks that one question about allocation looks at.
const STATUS_BLOCKS: usize = 1 << 14;

/// Contexts of a snapshot's changes are named so, with the snapshot's name behind. qemu and other
/// backup programs know the second form.
const CHANGED_SINCE: [&str; 2] = ["larder:changed-since:", "qemu:dirty-bitmap:"];

/// All volumes of a store, each under its name, and all snapshots as `NAME@SNAP`, read-only. A
/// store with one volume offers it as the default export too. Volumes that are created later
/// appear.
pub struct VolumeExports(Arc<Store>);

impl VolumeExports {
    /// Of this store.
    pub fn new(store: Arc<Store>) -> Self {
        Self(store)
    }
}

impl Exports for VolumeExports {
    fn find(&self, name: &str) -> Result<Option<Arc<dyn Export>>, ExportError> {
        let catalog = self.0.catalog();
        let volumes: Vec<_> = catalog.volumes().collect();
        let source = match (name, &volumes[..]) {
            ("", [only]) => Some((Of::Volume(only.id), only.size)),
            _ if name.contains('@') => {
                let snapshot = catalog.snapshot_named(name).ok();
                snapshot.map(|snapshot| (Of::Snapshot(snapshot.id, view_of(snapshot)), snapshot.size))
            }
            _ => catalog.volume_named(name).ok().map(|volume| (Of::Volume(volume.id), volume.size)),
        };
        let device = |(of, size)| {
            let since = snapshots_before(&catalog, of);
            Arc::new(Device { store: self.0.clone(), of, size, since }) as Arc<dyn Export>
        };
        Ok(source.map(device))
    }

    fn list(&self) -> Vec<Listed> {
        let catalog = self.0.catalog();
        let volumes = catalog.volumes().map(|volume| volume.name.clone());
        let names = volumes.chain(catalog.snapshots().map(|snapshot| catalog.full_name(snapshot)));
        names.map(|name| Listed { name, description: String::new() }).collect()
    }
}

/// What an export shows.
#[derive(Clone, Copy)]
enum Of {
    Volume(u32),
    Snapshot(u32, View),
}

impl Of {
    fn view(self) -> View {
        match self {
            Self::Volume(volume) => View::live(volume),
            Self::Snapshot(_, view) => view,
        }
    }
}

struct Device {
    store: Arc<Store>,
    of: Of,
    /// When the client connected.
    size: u64,
    /// Snapshots that changes can be asked since, as they were then: a name that is used again is
    /// not the same snapshot.
    since: Vec<SnapshotEntry>,
}

/// The snapshots before what an export shows.
fn snapshots_before(catalog: &Catalog, of: Of) -> Vec<SnapshotEntry> {
    let view = of.view();
    let own = match of {
        Of::Volume(_) => None,
        Of::Snapshot(id, _) => Some(id),
    };
    // Not by their views: two snapshots have the same one if nothing was written between.
    let others = catalog.snapshots_of(view.volume).filter(|snapshot| Some(snapshot.id) != own);
    others.filter(|snapshot| snapshot.version <= view.below).cloned().collect()
}

/// The client gets the kind of failure. Details are in the log of the server.
fn failed(error: VolumeError) -> ExportError {
    let code = match error.kind() {
        ErrorKind::Full => ErrorCode::NoSpace,
        ErrorKind::BadRequest => ErrorCode::Invalid,
        _ => ErrorCode::Io,
    };
    // A missing content below a volume is a problem of the store, which was told to the log.
    if code == ErrorCode::Io && !error.is_disconnected() {
        tracing::error!("{error}");
    }
    ExportError::new(code, error.to_string())
}

impl Device {
    fn view(&self) -> View {
        self.of.view()
    }

    /// The volume, if it can be written.
    fn writable(&self) -> Result<u32, ExportError> {
        match self.of {
            Of::Volume(volume) => Ok(volume),
            Of::Snapshot(..) => Err(ExportError::new(ErrorCode::NotPermitted, "a snapshot cannot be written")),
        }
    }

    /// An error if it was deleted after the client connected.
    fn exists(&self) -> Result<(), ExportError> {
        let catalog = self.store.catalog();
        let found = match self.of {
            Of::Volume(volume) => catalog.volume(volume).map(drop),
            Of::Snapshot(snapshot, _) => catalog.snapshot(snapshot).map(drop),
        };
        found.map_err(failed)
    }

    fn end(&self, fua: bool) -> Result<(), ExportError> {
        if fua { self.flush() } else { Ok(()) }
    }
}

impl Export for Device {
    fn size(&self) -> u64 {
        self.size
    }

    fn abilities(&self) -> Abilities {
        let is_writable = matches!(self.of, Of::Volume(_));
        Abilities {
            read_only: !is_writable,
            flush: true,
            fua: is_writable,
            trim: is_writable,
            write_zeroes: is_writable,
            fast_zero: false,
            cache: false,
            multi_conn: true,
            rotational: false,
            sparse_reads: false,
        }
    }

    fn block_sizes(&self) -> BlockSizes {
        BlockSizes { preferred: BLOCK as u32, ..BlockSizes::default() }
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ExportError> {
        let read = match self.of {
            Of::Volume(volume) => self.store.read(volume, offset, buffer),
            Of::Snapshot(snapshot, _) => self.store.read_snapshot(snapshot, offset, buffer),
        };
        read.map_err(failed)
    }

    fn write(&self, offset: u64, data: &[u8], fua: bool) -> Result<(), ExportError> {
        self.store.write(self.writable()?, offset, data).map_err(failed)?;
        self.end(fua)
    }

    fn flush(&self) -> Result<(), ExportError> {
        self.store.counters.flushes.add(1);
        self.store.flush_volume(self.view().volume).map_err(failed)
    }

    fn trim(&self, offset: u64, length: u64, fua: bool) -> Result<(), ExportError> {
        self.store.discard(self.writable()?, offset, length).map_err(failed)?;
        self.end(fua)
    }

    fn write_zeroes(&self, offset: u64, length: u64, how: Zeroing) -> Result<(), ExportError> {
        if how.fast {
            return Err(ExportError::new(ErrorCode::NotSupported, "zeroes may need a look at many blocks"));
        }
        // No space can be kept for later writes: what they need depends on their content.
        self.trim(offset, length, how.fua)
    }

    fn contexts(&self) -> Vec<String> {
        let names = self.since.iter().map(|snapshot| &snapshot.name);
        let names = names.flat_map(|name| CHANGED_SINCE.map(|prefix| format!("{prefix}{name}")));
        [BASE_ALLOCATION.to_owned()].into_iter().chain(names).collect()
    }

    fn block_status(&self, context: &str, offset: u64, length: u64, most: usize) -> Result<Vec<Extent>, ExportError> {
        self.exists()?;
        let Some(name) = CHANGED_SINCE.iter().find_map(|prefix| context.strip_prefix(prefix)) else {
            return self.allocation(offset, length, most);
        };
        self.changes(name, offset, length, most)
    }
}

impl Device {
    fn allocation(&self, offset: u64, length: u64, most: usize) -> Result<Vec<Extent>, ExportError> {
        let mut extents: Vec<Extent> = Vec::new();
        for (block, range) in blocks_of(offset, length).take(STATUS_BLOCKS) {
            for (length, is_zero) in self.store.zeros_of(self.view(), block, &range).map_err(failed)? {
                let flags = if is_zero { Extent::HOLE | Extent::ZERO } else { 0 };
                if !add(&mut extents, length, flags, most) {
                    return Ok(extents);
                }
            }
        }
        Ok(extents)
    }

    /// The blocks of a range that changed since a snapshot.
    fn changes(&self, since: &str, offset: u64, length: u64, most: usize) -> Result<Vec<Extent>, ExportError> {
        let gone = || ExportError::new(ErrorCode::Invalid, "the snapshot does not exist any more");
        let since = self.since.iter().find(|snapshot| snapshot.name == since).ok_or_else(gone)?;
        let end = offset + length;
        let blocks = offset / BLOCK..end.div_ceil(BLOCK);
        let mut extents: Vec<Extent> = Vec::new();
        let mut at = offset;
        let changes = self.store.changed_within(self.view(), since.version, blocks);
        // Without the snapshot, merges drop discards of what only it saw. It is there, so these
        // runs have them.
        self.store.catalog().snapshot(since.id).map_err(|_| gone())?;
        for changed in changes {
            let changed = changed.map_err(failed)?;
            let (from, to) = ((changed.start * BLOCK).clamp(at, end), (changed.end * BLOCK).min(end));
            if !add(&mut extents, from - at, 0, most)
                || !add(&mut extents, to.saturating_sub(from), Extent::DIRTY, most)
            {
                return Ok(extents);
            }
            at = at.max(to);
        }
        add(&mut extents, end - at, 0, most);
        Ok(extents)
    }
}

/// Appends to the extents, unless they are as many as they may be.
fn add(extents: &mut Vec<Extent>, length: u64, flags: u32, most: usize) -> bool {
    let is_full = extents.len() >= most;
    match extents.last_mut() {
        _ if length == 0 => {}
        Some(last) if last.flags == flags => last.length += length,
        _ if is_full => return false,
        _ => extents.push(Extent { length, flags }),
    }
    true
}
