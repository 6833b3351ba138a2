//! Writing a page run.

use super::{HEAD, PAGE_ROOM, PAGES_MAX, PageForm, PageKind, PageRunKey, VARIABLE, VolumeTable, WHAT};
use crate::run::{Filter, key_hash};
use crate::wire::{EncodeError, Put};

/// Collects sorted records into a run. The bytes can be taken away while it grows.
#[derive(Debug)]
pub struct PageRunBuilder {
    key: PageRunKey,
    table: VolumeTable,
    form: PageForm,
    out: Vec<u8>,
    keys: Vec<u8>,
    values: Vec<u8>,
    lengths: Vec<u16>,
    fences: Vec<u8>,
    hashes: Vec<u64>,
    last_key: Vec<u8>,
    pages: u32,
    records: u64,
}

impl PageRunBuilder {
    /// An empty run of a table.
    pub fn new(key: PageRunKey, table: VolumeTable) -> Self {
        Self {
            key,
            table,
            form: table.form(),
            out: Vec::new(),
            keys: Vec::new(),
            values: Vec::new(),
            lengths: Vec::new(),
            fences: Vec::new(),
            hashes: Vec::new(),
            last_key: Vec::new(),
            pages: 0,
            records: 0,
        }
    }

    /// Adds a record. Keys rise.
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<(), EncodeError> {
        let form = self.form;
        if key.len() != form.key_len || form.value_len.is_some_and(|len| len != value.len()) {
            return Err(EncodeError::new(WHAT, "a key or value has another width"));
        }
        if self.records > 0 && self.last_key.as_slice() >= key {
            return Err(EncodeError::new(WHAT, "its keys do not rise"));
        }
        let room = |count: usize, values: usize| {
            let lengths = if form.value_len.is_none() { 2 * count } else { 0 };
            HEAD + count * form.key_len + lengths + values <= PAGE_ROOM
        };
        if !room(1, value.len()) {
            return Err(EncodeError::new(WHAT, "a value is longer than a page"));
        }
        if !room(self.lengths.len() + 1, self.values.len() + value.len()) {
            self.close_page()?;
        }
        if self.lengths.is_empty() {
            self.fences.extend_from_slice(key);
        }
        self.keys.extend_from_slice(key);
        self.values.extend_from_slice(value);
        self.lengths.push(value.len() as u16);
        let hash = key_hash(&key[..form.filter_len]);
        if self.hashes.last() != Some(&hash) {
            self.hashes.push(hash);
        }
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        self.records += 1;
        Ok(())
    }

    fn close_page(&mut self) -> Result<(), EncodeError> {
        let from = self.out.len();
        self.out.put_u8(if self.form.value_len.is_some() { 1 } else { 2 });
        self.out.extend_from_slice(&(self.lengths.len() as u16).to_le_bytes());
        self.out.append(&mut self.keys);
        if self.form.value_len.is_none() {
            for length in &self.lengths {
                self.out.extend_from_slice(&length.to_le_bytes());
            }
        }
        self.out.append(&mut self.values);
        self.lengths.clear();
        self.seal(PageKind::Data, self.pages, from);
        self.pages += 1;
        if self.pages > PAGES_MAX {
            return Err(EncodeError::new(WHAT, "it has too many pages"));
        }
        Ok(())
    }

    fn seal(&mut self, kind: PageKind, number: u32, from: usize) {
        self.out.resize(from + PAGE_ROOM, 0);
        self.key.seal(number, kind, &mut self.out, from);
    }

    /// Records so far.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Takes the bytes that are final away; they are the object's next.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// Finishes the run; gives the bytes that were not taken before. One without records is
    /// refused.
    pub fn finish(mut self) -> Result<Vec<u8>, EncodeError> {
        if self.records == 0 {
            return Err(EncodeError::new(WHAT, "it has no records"));
        }
        self.close_page()?;
        let mut tail = std::mem::take(&mut self.fences);
        tail.extend_from_slice(&self.last_key);
        let before = tail.len();
        Filter::build(&mut self.hashes).encode(&mut tail);
        let filter_len = (tail.len() - before) as u64;
        let mut tail_pages = 0;
        for part in tail.chunks(PAGE_ROOM) {
            let from = self.out.len();
            self.out.extend_from_slice(part);
            self.seal(PageKind::Tail, self.pages + tail_pages, from);
            tail_pages += 1;
        }
        let from = self.out.len();
        self.out.put_u8(self.table.code());
        self.out.put_u8(self.form.key_len as u8);
        self.out.put_u8(self.form.filter_len as u8);
        self.out.put_u8(0);
        let width = self.form.value_len.map_or(VARIABLE, |len| len as u16);
        self.out.put_u32(u32::from(width));
        self.out.put_u32(self.pages);
        self.out.put_u32(tail_pages);
        self.out.put_u64(self.records);
        self.out.put_u64(filter_len);
        self.seal(PageKind::Trailer, self.pages + tail_pages, from);
        Ok(self.out)
    }
}
