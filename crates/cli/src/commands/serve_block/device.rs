//! A file of a snapshot as a device that `larder_nbd` serves.

use std::sync::Arc;

use larder_format::ErrorKind;
use larder_nbd::{Abilities, BASE_ALLOCATION, ErrorCode, Export, ExportError, Extent};
use larder_reader::{RandomError, RandomReader};

/// See the module header.
pub(super) struct Device {
    pub(super) random: Arc<RandomReader>,
    /// A line for a person.
    pub(super) description: String,
}

impl Export for Device {
    fn size(&self) -> u64 {
        self.random.size()
    }

    fn abilities(&self) -> Abilities {
        Abilities { cache: true, sparse_reads: true, ..Abilities::READ_ONLY }
    }

    fn description(&self) -> String {
        self.description.clone()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ExportError> {
        self.random.read_at(offset, buffer).map_err(|error| failed(&error))
    }

    fn cache(&self, offset: u64, length: u64) -> Result<(), ExportError> {
        self.random.prefetch(offset, length);
        Ok(())
    }

    fn contexts(&self) -> Vec<String> {
        vec![BASE_ALLOCATION.to_owned()]
    }

    fn block_status(&self, _: &str, offset: u64, length: u64, most: usize) -> Result<Vec<Extent>, ExportError> {
        let stretches = self.random.zero_stretches(offset..offset.saturating_add(length), most);
        let flags = |is_hole| if is_hole { Extent::HOLE | Extent::ZERO } else { 0 };
        Ok(stretches.iter().map(|part| Extent { length: part.length, flags: flags(part.is_hole) }).collect())
    }
}

/// The client gets the kind of failure and a short reason. Details are in the log.
fn failed(error: &RandomError) -> ExportError {
    match error.kind() {
        ErrorKind::BadRequest => ExportError::new(ErrorCode::Invalid, error.to_string()),
        ErrorKind::Damaged => ExportError::new(ErrorCode::Io, "the snapshot is damaged here"),
        _ => ExportError::new(ErrorCode::Io, "the repository cannot be read"),
    }
}
