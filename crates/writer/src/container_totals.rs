//! The sizes of containers, and the table of a manifest with the part of each that a version uses.

use std::collections::HashMap;

use larder_format::container::ContainerIndex;
use larder_format::ids::ContainerId;
use larder_format::manifest::ContainerUsage;

/// How much a version uses of each container: chunks and bytes.
pub type Usage = HashMap<ContainerId, (u64, u64)>;

/// The size of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContainerTotals {
    /// Chunks.
    pub chunks: u32,
    /// Their bytes, uncompressed.
    pub bytes: u64,
    /// Bytes of the object.
    pub object_bytes: u64,
}

impl ContainerTotals {
    /// A container's row in the table of a manifest.
    pub fn of(usage: &ContainerUsage) -> Self {
        Self { chunks: usage.chunks_held, bytes: usage.bytes_held, object_bytes: usage.object_bytes }
    }

    /// The sizes in a container's own tables.
    pub fn of_index(index: &ContainerIndex) -> Self {
        Self { chunks: index.chunks.len() as u32, bytes: u64::from(index.payload_len), object_bytes: index.object_len }
    }
}

/// The rows of a manifest for all its containers.
pub fn holdings(table: &[ContainerUsage]) -> HashMap<ContainerId, ContainerTotals> {
    table.iter().map(|usage| (usage.container, ContainerTotals::of(usage))).collect()
}

/// The container table of a version that makes this use of containers; `None` when one of them is
/// not known.
pub fn container_table(
    usage: &Usage,
    held: impl Fn(&ContainerId) -> Option<ContainerTotals>,
) -> Option<Vec<ContainerUsage>> {
    let row = |(container, (chunks, bytes)): (&ContainerId, &(u64, u64))| {
        let held = held(container)?;
        Some(ContainerUsage {
            container: *container,
            chunks_used: u32::try_from(*chunks).unwrap_or(u32::MAX).min(held.chunks),
            bytes_used: (*bytes).min(held.bytes),
            chunks_held: held.chunks,
            bytes_held: held.bytes,
            object_bytes: held.object_bytes,
        })
    };
    let mut table = usage.iter().map(row).collect::<Option<Vec<_>>>()?;
    table.sort_by_key(|usage| usage.container);
    Some(table)
}

#[cfg(test)]
mod tests {
    use larder_format::ids::{ContainerKind, JobId};

    use super::*;

    fn id(seq: u32) -> ContainerId {
        ContainerId { kind: ContainerKind::Data, job: JobId([1; 16]), seq }
    }

    #[test]
    fn a_table_is_sorted_and_uses_no_more_than_there_is() {
        let held = ContainerTotals { chunks: 3, bytes: 100, object_bytes: 50 };
        let usage = Usage::from([(id(2), (2, 70)), (id(1), (9, 400))]);
        let table = container_table(&usage, |_| Some(held)).unwrap();
        let used: Vec<_> = table.iter().map(|row| (row.container, row.chunks_used, row.bytes_used)).collect();
        assert_eq!(used, [(id(1), 3, 100), (id(2), 2, 70)]);
        assert!(table.iter().all(|row| ContainerTotals::of(row) == held));
        assert_eq!(container_table(&usage, |container| (*container == id(1)).then_some(held)), None);
        assert_eq!(holdings(&table), [id(1), id(2)].map(|id| (id, held)).into());
    }
}
