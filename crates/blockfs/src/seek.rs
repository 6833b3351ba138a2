//! `SEEK_DATA` and `SEEK_HOLE`.

use larder_nbd::{BASE_ALLOCATION, Export, ExportError, Extent};

/// Most questions for one seek. What is behind counts as data, which is always allowed.
const QUESTIONS: usize = 64;
/// Bytes of one question.
const STRETCH: u64 = 1 << 30;
/// Extents of one answer.
const EXTENTS: usize = 1024;

/// The first data, or hole, at or behind an offset below the size. `None`: there is no data.
pub(crate) fn seek(export: &dyn Export, offset: u64, for_data: bool) -> Result<Option<u64>, ExportError> {
    let (mut at, size) = (offset, export.size());
    if !export.contexts().iter().any(|context| context == BASE_ALLOCATION) {
        return Ok(Some(if for_data { offset } else { size }));
    }
    for _ in 0..QUESTIONS {
        if at >= size {
            return Ok((!for_data).then_some(size));
        }
        let extents = export.block_status(BASE_ALLOCATION, at, STRETCH.min(size - at), EXTENTS)?;
        for extent in extents {
            if (extent.flags & Extent::HOLE == 0) == for_data {
                return Ok(Some(at));
            }
            at = at.saturating_add(extent.length);
        }
    }
    Ok(Some(if for_data { at.min(size) } else { size }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_nbd::MemoryExport;

    #[test]
    fn data_and_holes_are_found() {
        let export = MemoryExport::new(1 << 20);
        assert_eq!(seek(&export, 5, true), Ok(None));
        assert_eq!(seek(&export, 5, false), Ok(Some(5)));
        export.write(100_000, &[1; 10], false).expect("written");
        assert_eq!(seek(&export, 0, true), Ok(Some(65_536)));
        assert_eq!(seek(&export, 70_000, true), Ok(Some(70_000)));
        assert_eq!(seek(&export, 70_000, false), Ok(Some(131_072)));
        assert_eq!(seek(&export, 131_072, true), Ok(None));
    }
}
