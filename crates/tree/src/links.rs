//! How many names each file has.
//!
//! An entry does not tell how many hard links name it later, so the table is made by one scan of
//! the metadata. Without it, programs such as `cp -a` and `rsync -H` would copy linked files twice.

use std::collections::HashMap;

use larder_store::RepositoryError;

use crate::inode::Position;
use crate::metadata::Metadata;

/// Files with several names that are counted in a snapshot. They take 40 MB.
const COUNTED_MAX: usize = 1 << 20;

/// See the module header.
#[derive(Debug, Default)]
pub(crate) struct Links {
    /// Sorted by place: further names of a file.
    more: Vec<(Position, u32)>,
    /// Whether there were too many files to count.
    pub(crate) is_partial: bool,
}

impl Links {
    /// Counts the hard links of a version.
    pub(crate) fn count(metadata: &Metadata) -> Result<Self, RepositoryError> {
        let (mut more, mut is_partial, mut failed) = (HashMap::<Position, u32>::new(), false, None);
        metadata.hard_links(|target| {
            if failed.is_some() {
                return;
            }
            match metadata.find(target) {
                Ok(Some((position, _))) if more.len() < COUNTED_MAX || more.contains_key(&position) => {
                    *more.entry(position).or_default() += 1;
                }
                Ok(Some(_)) => is_partial = true,
                Ok(None) => {}
                Err(error) => failed = Some(error),
            }
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        let mut more: Vec<_> = more.into_iter().collect();
        more.sort_unstable();
        Ok(Self { more, is_partial })
    }

    /// The number of names of the file at a place.
    pub(crate) fn names(&self, position: Position) -> u32 {
        let found = self.more.binary_search_by_key(&position, |(at, _)| *at);
        found.map_or(1, |at| self.more[at].1.saturating_add(1))
    }
}
