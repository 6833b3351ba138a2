//! Volumes as exports of an NBD server.

use std::sync::Arc;

use larder_format::ErrorKind;
use larder_format::volume_manifest::VolumeEntry;
use larder_nbd::{
    Abilities, BASE_ALLOCATION, BlockSizes, ErrorCode, Export, ExportError, Exports, Extent, Listed, Zeroing,
};

use super::{BLOCK, blocks_of};
use crate::error::VolumeError;
use crate::store::Store;

/// Most blocks that one question about allocation looks at.
const STATUS_BLOCKS: usize = 1 << 14;

/// All volumes of a store, each under its name. A store with one volume offers it as the default
/// export too.
pub struct VolumeExports(Arc<Store>);

impl VolumeExports {
    /// Of this store.
    pub fn new(store: Arc<Store>) -> Self {
        Self(store)
    }
}

impl Exports for VolumeExports {
    fn find(&self, name: &str) -> Result<Option<Arc<dyn Export>>, ExportError> {
        let mut volumes = self.0.volumes();
        let is_single = volumes.len() == 1;
        let at = volumes.iter().position(|volume| volume.name == name || name.is_empty() && is_single);
        Ok(at.map(|at| {
            let device = Device { store: self.0.clone(), volume: volumes.swap_remove(at) };
            Arc::new(device) as Arc<dyn Export>
        }))
    }

    fn list(&self) -> Vec<Listed> {
        let listed = |volume: VolumeEntry| Listed { name: volume.name, description: String::new() };
        self.0.volumes().into_iter().map(listed).collect()
    }
}

struct Device {
    store: Arc<Store>,
    volume: VolumeEntry,
}

/// The client gets the kind of failure. Details are in the log of the server.
fn failed(error: VolumeError) -> ExportError {
    let code = match error.kind() {
        ErrorKind::Full => ErrorCode::NoSpace,
        ErrorKind::BadRequest => ErrorCode::Invalid,
        _ => ErrorCode::Io,
    };
    if code == ErrorCode::Io {
        tracing::error!("{error}");
    }
    ExportError::new(code, error.to_string())
}

impl Device {
    fn end(&self, fua: bool) -> Result<(), ExportError> {
        if fua { self.store.flush().map_err(failed) } else { Ok(()) }
    }
}

impl Export for Device {
    fn size(&self) -> u64 {
        self.volume.size
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            read_only: false,
            flush: true,
            fua: true,
            trim: true,
            write_zeroes: true,
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
        self.store.read(self.volume.id, offset, buffer).map_err(failed)
    }

    fn write(&self, offset: u64, data: &[u8], fua: bool) -> Result<(), ExportError> {
        self.store.write(self.volume.id, offset, data).map_err(failed)?;
        self.end(fua)
    }

    fn flush(&self) -> Result<(), ExportError> {
        self.store.flush().map_err(failed)
    }

    fn trim(&self, offset: u64, length: u64, fua: bool) -> Result<(), ExportError> {
        self.store.discard(self.volume.id, offset, length).map_err(failed)?;
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
        vec![BASE_ALLOCATION.into()]
    }

    fn block_status(&self, _: &str, offset: u64, length: u64, most: usize) -> Result<Vec<Extent>, ExportError> {
        let mut extents: Vec<Extent> = Vec::new();
        for (block, range) in blocks_of(offset, length).take(STATUS_BLOCKS) {
            let is_hole = self.store.is_hole(self.volume.id, block).map_err(failed)?;
            let flags = if is_hole { Extent::HOLE | Extent::ZERO } else { 0 };
            let length = range.len() as u64;
            match extents.last_mut() {
                Some(last) if last.flags == flags => last.length += length,
                _ => extents.push(Extent { length, flags }),
            }
            if extents.len() > most {
                extents.pop();
                break;
            }
        }
        Ok(extents)
    }
}
