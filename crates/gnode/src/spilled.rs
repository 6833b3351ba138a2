//! Tables of a pass in temporary files: their error, and the names of containers in their rows.

use std::io;

use larder_format::ids::{ContainerId, ContainerKind, JobId};
use larder_index::IndexError;
use larder_spill::{RowReader, RowWriter};

/// A temporary file failed, so the pass fails: it decides nothing from a part of a table.
pub(crate) fn spilled(source: io::Error) -> IndexError {
    IndexError::Spill { doing: "use", source }
}

/// Bytes of the name of a container in a row.
pub(crate) const ID_BYTES: usize = 21;

/// Puts the name of a container into a row.
pub(crate) fn put_id(row: &mut RowWriter<'_>, id: &ContainerId) {
    row.bytes(&id.job.0);
    row.u32(id.seq);
    row.bytes(&[u8::from(id.kind == ContainerKind::Meta)]);
}

/// The name of a container that [`put_id`] put there.
pub(crate) fn id_from(row: &mut RowReader<'_>) -> ContainerId {
    let (job, seq) = (JobId(row.bytes()), row.u32());
    let [kind] = row.bytes();
    ContainerId { kind: if kind == 0 { ContainerKind::Data } else { ContainerKind::Meta }, job, seq }
}
