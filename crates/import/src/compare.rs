//! Compares a version with the original that it was made of: every entry, and every byte of
//! contents.

use std::cmp::Ordering;

use larder_format::entry::path_order;
use larder_job::JobContext;
use larder_lnode::{EntrySource, SourceError, Supplied};
use larder_reader::{ReadError, StoredBytes, VersionReader};
use larder_store::catalog::Version;

/// Bytes that are compared at once.
const PIECE_BYTES: usize = 256 << 10;

/// What a comparison found.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Compared {
    /// Entries that are equal.
    pub equal: u64,
    /// Bytes of their contents.
    pub bytes: u64,
    /// Paths that differ, or are on one side only.
    pub different: Vec<Vec<u8>>,
}

/// A comparison that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// The version cannot be read.
    #[error(transparent)]
    Version(#[from] ReadError),
    /// The original cannot be read.
    #[error(transparent)]
    Original(#[from] SourceError),
    /// It was asked to stop.
    #[error("interrupted")]
    Interrupted,
}

/// Compares a version with the entries of its original.
///
/// # Errors
/// One of both cannot be read.
pub fn compare(
    context: &JobContext,
    version: &Version,
    mut original: Box<dyn EntrySource>,
) -> Result<Compared, CompareError> {
    let (reader, reading) = VersionReader::announce(context, version)?;
    let mut stored = StoredBytes::new(&reader, true);
    let mut entries = reader.placed_below(b"").peekable();
    let mut compared = Compared::default();
    while let Some(supplied) = original.next_entry()? {
        if context.cancel.is_cancelled() {
            return Err(CompareError::Interrupted);
        }
        let Supplied::Entry(supplied) = supplied else { continue };
        let wanted = supplied.entry;
        let found = loop {
            let order = match entries.peek() {
                None => break None,
                Some(Err(_)) => Ordering::Equal,
                Some(Ok(placed)) => path_order(&placed.entry.path, &wanted.path),
            };
            match order {
                Ordering::Greater => break None,
                order => match entries.next().transpose().map_err(ReadError::from)? {
                    Some(placed) if order == Ordering::Less => compared.different.push(placed.entry.path),
                    placed => break placed,
                },
            }
        };
        let size = wanted.stored_bytes();
        let is_equal = match found {
            Some(placed) if placed.entry == wanted => {
                stored.go_to(placed.data_range());
                same_bytes(&mut stored, &mut *original, size)?
            }
            _ => false,
        };
        match is_equal {
            true => {
                compared.equal += 1;
                compared.bytes += size;
            }
            false => compared.different.push(wanted.path),
        }
    }
    for placed in entries {
        compared.different.push(placed.map_err(ReadError::from)?.entry.path);
    }
    reading.end();
    Ok(compared)
}

fn same_bytes(stored: &mut StoredBytes, original: &mut dyn EntrySource, size: u64) -> Result<bool, CompareError> {
    let (mut here, mut there) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
    let mut left = size;
    while left > 0 {
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE_BYTES);
        let (mut a, mut b) = (0, 0);
        while a < wanted {
            match stored.read(&mut here[a..wanted]).map_err(ReadError::from)? {
                0 => return Ok(false),
                got => a += got,
            }
        }
        while b < wanted {
            match original.read(&mut there[b..wanted])? {
                0 => return Ok(false),
                got => b += got,
            }
        }
        if here[..wanted] != there[..wanted] {
            return Ok(false);
        }
        left -= wanted as u64;
    }
    Ok(true)
}
