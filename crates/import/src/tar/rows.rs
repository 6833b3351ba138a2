//! What is known of a path while an archive is put in order.

use larder_format::entry::Entry;
use larder_format::metadata::{BlockBuilder, decode_block};
use larder_spill::Record;

const ENTRY: u8 = 0;
const PROBLEM: u8 = 1;
/// An entry that was found behind damage.
const DOUBTFUL: u8 = 2;

/// A path of the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Row {
    /// An entry, and where its contents begin.
    Entry(Box<Entry>, u64),
    /// What is wrong with this path.
    Problem(Vec<u8>, String),
}

impl Row {
    /// The row of a record. `None`: it is none.
    pub(super) fn of(record: &Record) -> Option<Self> {
        match record.value.split_first()? {
            (&(ENTRY | DOUBTFUL), rest) => {
                let (offset, block) = rest.split_first_chunk()?;
                let entry = decode_block(block).ok()?.pop()?;
                Some(Self::Entry(Box::new(entry), u64::from_le_bytes(*offset)))
            }
            (_, message) => Some(Self::Problem(path(&record.key), String::from_utf8_lossy(message).into_owned())),
        }
    }
}

/// The record of an entry whose contents begin at `offset`.
///
/// # Errors
/// The reason why the entry cannot be in a version.
pub(super) fn entry_record(entry: &Entry, offset: u64) -> Result<Record, String> {
    let mut block = BlockBuilder::new();
    let closed = block.push(entry).map_err(|error| error.to_string())?;
    let bytes = closed.or_else(|| block.finish()).map(|block| block.bytes).unwrap_or_default();
    let value = [&[ENTRY][..], &offset.to_le_bytes(), &bytes].concat();
    Ok(Record { key: key(&entry.path), value })
}

/// The record of an entry that was found behind damage.
pub(super) fn doubtful(mut record: Record) -> Record {
    record.value[0] = DOUBTFUL;
    record
}

/// Whether an entry was found behind damage.
pub(super) fn is_doubtful(record: &Record) -> bool {
    record.value.first() == Some(&DOUBTFUL)
}

/// The record of what is wrong with a path.
pub(super) fn problem_record(path: &[u8], message: &str) -> Record {
    Record { key: key(path), value: [&[PROBLEM], message.as_bytes()].concat() }
}

/// Bytes that sort as paths do in a version. Paths have no NUL.
pub(super) fn key(path: &[u8]) -> Vec<u8> {
    path.iter().map(|byte| if *byte == b'/' { 0 } else { *byte }).collect()
}

/// The path of a key.
pub(super) fn path(key: &[u8]) -> Vec<u8> {
    key.iter().map(|byte| if *byte == 0 { b'/' } else { *byte }).collect()
}
