//! The error of a temporary file that has a table of a pass.

use std::io;

use larder_index::IndexError;

/// A temporary file failed, so the pass fails: it decides nothing from a part of a table.
pub(crate) fn spilled(source: io::Error) -> IndexError {
    IndexError::Spill { doing: "use", source }
}
