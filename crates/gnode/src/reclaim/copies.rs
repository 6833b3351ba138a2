//! Every chunk with all the places where it is listed, in order of keys.

use larder_format::index_tables::{ChunkKey, ChunkPlace};
use larder_index::{Chunks, Copies, Cursor, Draft, IndexError, IndexPass, LookupOptions, TypedTable};

use crate::ingest::listing::{Groups, places};

/// A chunk and its places. Containers among them may be gone.
#[derive(Debug)]
pub(crate) struct Group<'a> {
    pub(crate) key: ChunkKey,
    /// The one that lookups find.
    pub(crate) entry: Option<ChunkPlace>,
    /// The others.
    pub(crate) copies: &'a [ChunkPlace],
    /// Whether a retained version may need it.
    pub(crate) is_needed: bool,
}

impl Group<'_> {
    /// All of them, the entry first.
    pub(crate) fn places(&self) -> impl Iterator<Item = ChunkPlace> {
        self.entry.into_iter().chain(self.copies.iter().copied())
    }
}

/// Sorted keys of chunks, and their meaning.
pub(crate) enum Marks<'a> {
    /// They are needed, and no others.
    Needed(&'a mut dyn Cursor),
    /// They are not needed, all others are.
    Unneeded(&'a mut dyn Cursor),
}

/// Reads the chunks that are listed more than once. Costs the table of copies and the entries of
/// these chunks.
pub(crate) fn duplicates(
    pass: &IndexPass,
    draft: &Draft<'_>,
    mut each: impl FnMut(Group<'_>) -> Result<(), IndexError>,
) -> Result<(), IndexError> {
    let copies = draft.view::<Copies>(LookupOptions::default());
    if copies.runs().is_empty() {
        return Ok(());
    }
    let table = draft.view::<Chunks>(LookupOptions::streaming(pass.memory / 4));
    let mut groups = Groups::new(copies.scan(0..=u64::MAX, pass.memory / 8));
    let mut copies = Vec::new();
    table.join(&mut groups, pass.memory / 8, |key, group, entry| {
        read_places(group, &mut copies)?;
        each(Group { key, entry, copies: &copies, is_needed: true })
    })?;
    Ok(())
}

/// Reads all chunks.
pub(crate) fn all(
    pass: &IndexPass,
    draft: &Draft<'_>,
    marks: Marks<'_>,
    mut each: impl FnMut(Group<'_>) -> Result<(), IndexError>,
) -> Result<(), IndexError> {
    let (marks, is_needed_if_marked) = match marks {
        Marks::Needed(marks) => (marks, true),
        Marks::Unneeded(marks) => (marks, false),
    };
    let chunks = draft.view::<Chunks>(LookupOptions::default());
    let copies = draft.view::<Copies>(LookupOptions::default());
    let mut entries = chunks.scan(0..=u64::MAX, pass.memory / 8).into_cursor();
    let mut groups = Groups::new(copies.scan(0..=u64::MAX, pass.memory / 8));
    let wrong = |key: &[u8]| {
        let key = key.to_vec();
        move |source| IndexError::WrongRecord { table: Chunks::TABLE, key, source }
    };
    let (mut has_entry, mut has_group, mut has_mark) = (entries.advance()?, groups.advance()?, marks.advance()?);
    let mut others = Vec::new();
    while has_entry || has_group {
        let takes_entry = has_entry && (!has_group || entries.key() <= groups.key());
        let takes_group = has_group && (!has_entry || groups.key() <= entries.key());
        let bytes = if takes_entry { entries.key() } else { groups.key() };
        let key = Chunks::decode_key(bytes).map_err(wrong(bytes))?;
        while has_mark && marks.key() < key.0.as_slice() {
            has_mark = marks.advance()?;
        }
        let is_marked = has_mark && marks.key() == key.0;
        let entry = if takes_entry { entries.value() } else { None };
        let entry = entry.map(ChunkPlace::decode).transpose().map_err(wrong(&key.0))?;
        read_places(if takes_group { groups.value() } else { None }, &mut others)?;
        each(Group { key, entry, copies: &others, is_needed: is_marked == is_needed_if_marked })?;
        if takes_entry {
            has_entry = entries.advance()?;
        }
        if takes_group {
            has_group = groups.advance()?;
        }
    }
    Ok(())
}

fn read_places(group: Option<&[u8]>, out: &mut Vec<ChunkPlace>) -> Result<(), IndexError> {
    out.clear();
    for place in places(group.unwrap_or_default()) {
        out.push(place?);
    }
    Ok(())
}
