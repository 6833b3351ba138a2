//! Drops entries for containers without a record, and replaces lost entries by copies.

use larder_format::index_manifest::{RunRef, Table};
use larder_format::index_tables::{ChunkKey, ChunkPlace, CopyKey};
use larder_index::{
    Chunks, Copies, Cursor, Draft, IndexError, IndexPass, LookupOptions, RunWriter, TypedTable, in_parallel,
};

use super::Numbers;
use super::listing::{Groups, places};

/// The result of a sweep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Chunks that are listed.
    pub chunks: u64,
    /// Copies beside them.
    pub copies: u64,
    /// Entries and copies that were dropped because their container has no record.
    pub dropped: u64,
    /// Copies that replaced an entry.
    pub promoted: u64,
}

/// Whether at least a quarter of the listed chunks must be useless, if containers with records hold
/// this number of chunks.
pub fn is_worth_a_sweep(draft: &Draft<'_>, live_chunks: u64) -> bool {
    let listed = |table| draft.manifest.runs_of(table).iter().map(|run| run.records - run.tombstones).sum::<u64>();
    let listed = listed(Table::Chunks).saturating_add(listed(Table::Copies));
    listed.saturating_sub(live_chunks) > listed / 4
}

/// Writes both tables again without useless entries. Reads and writes all of them, in partitions on
/// the pass's threads.
pub fn sweep(pass: &IndexPass, draft: &mut Draft<'_>, known: &Numbers) -> Result<Swept, IndexError> {
    let chunks = draft.view::<Chunks>(LookupOptions::default());
    let copies = draft.view::<Copies>(LookupOptions::default());
    let age = draft.manifest.head.next_age;
    let parts = chunks.partitions(pass.threads);
    let memory = pass.memory / pass.threads / 2;
    let done = in_parallel(pass.threads, parts, |range| {
        let mut copies = Groups::new(copies.scan(range.clone(), memory));
        let mut writing = Writing {
            known,
            chunks: pass.writer::<Chunks>(age),
            copies: pass.writer::<Copies>(age),
            swept: Swept::default(),
        };
        writing.sweep(chunks.scan(range, memory).into_cursor(), &mut copies)?;
        let written = [writing.chunks.finish()?, writing.copies.finish()?].concat();
        Ok::<_, IndexError>((writing.swept, written))
    })?;
    let mut swept = Swept::default();
    let mut written: Vec<RunRef> = Vec::new();
    for (part, runs) in done {
        swept.chunks += part.chunks;
        swept.copies += part.copies;
        swept.dropped += part.dropped;
        swept.promoted += part.promoted;
        written.extend(runs);
    }
    draft.clear(Table::Chunks);
    draft.clear(Table::Copies);
    draft.add(written);
    Ok(swept)
}

struct Writing<'a> {
    known: &'a Numbers,
    chunks: RunWriter<'a>,
    copies: RunWriter<'a>,
    swept: Swept,
}

impl Writing<'_> {
    /// Reads both tables side by side.
    fn sweep(&mut self, mut entries: impl Cursor, groups: &mut impl Cursor) -> Result<(), IndexError> {
        let (mut has_entry, mut has_group) = (entries.advance()?, groups.advance()?);
        while has_entry || has_group {
            let takes_entry = has_entry && (!has_group || entries.key() <= groups.key());
            let takes_group = has_group && (!has_entry || groups.key() <= entries.key());
            let key = Chunks::decode_key(if takes_entry { entries.key() } else { groups.key() });
            let key = key.map_err(|source| wrong(entries.key(), source))?;
            let entry = if takes_entry { entries.value() } else { None };
            let entry = entry.map(ChunkPlace::decode).transpose().map_err(|source| wrong(&key.0, source))?;
            let group = if takes_group { groups.value().unwrap_or_default() } else { &[] };
            self.put(key, entry, group)?;
            if takes_entry {
                has_entry = entries.advance()?;
            }
            if takes_group {
                has_group = groups.advance()?;
            }
        }
        Ok(())
    }

    fn put(&mut self, key: ChunkKey, entry: Option<ChunkPlace>, group: &[u8]) -> Result<(), IndexError> {
        let mut entry = entry.filter(|entry| {
            let is_live = self.known.contains(entry.container);
            self.swept.dropped += u64::from(!is_live);
            is_live
        });
        let had_entry = entry.is_some();
        let mut others = Vec::new();
        for copy in places(group) {
            let copy = copy?;
            if !self.known.contains(copy.container) {
                self.swept.dropped += 1;
            } else if entry.is_none() {
                entry = Some(copy);
            } else {
                others.push(copy);
            }
        }
        if let Some(entry) = entry {
            self.swept.chunks += 1;
            self.swept.promoted += u64::from(!had_entry);
            self.chunks.push(&key.0, Some(&entry.encode()))?;
        }
        for copy in others {
            self.swept.copies += 1;
            let key = CopyKey { chunk: key, container: copy.container }.encode();
            self.copies.push(&key, Some(&copy.chunk.to_le_bytes()))?;
        }
        Ok(())
    }
}

fn wrong(key: &[u8], source: larder_format::DecodeError) -> IndexError {
    IndexError::WrongRecord { table: Chunks::TABLE, key: key.to_vec(), source }
}

/// Merges all tables that ingestion writes, where needed. After a sweep, two of them need nothing.
pub fn merge_tables(draft: &mut Draft<'_>) -> Result<(), IndexError> {
    for table in [Table::Chunks, Table::Copies, Table::Streams, Table::Extents] {
        draft.merge(table)?;
    }
    Ok(())
}
