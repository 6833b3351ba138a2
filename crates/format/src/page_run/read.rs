//! Reading a page run: trailer and tail once, then single pages.

use std::cmp::Ordering;

use super::{HEAD, PAGE_LEN, PAGE_ROOM, PAGES_MAX, PageForm, PageKind, PageRunKey, VARIABLE, VolumeTable, WHAT};
use crate::run::{Filter, key_hash};
use crate::seal::only_zeros;
use crate::wire::{DecodeError, Reader};

/// The facts of a run from its tail.
#[derive(Debug)]
pub struct PageRunIndex {
    key: PageRunKey,
    /// Which table it is of.
    pub table: VolumeTable,
    /// Records.
    pub records: u64,
    pages: u32,
    form: PageForm,
    /// First keys of all pages, and behind them the last key of the run.
    fences: Vec<u8>,
    filter: Filter,
}

struct Trailer {
    table: VolumeTable,
    pages: u32,
    tail_pages: u32,
    records: u64,
    filter_len: u64,
}

fn decode_trailer(key: &PageRunKey, last: &[u8], object_len: u64) -> Result<Trailer, DecodeError> {
    let pages = object_len / PAGE_LEN as u64;
    if !object_len.is_multiple_of(PAGE_LEN as u64) || pages < 3 || pages > u64::from(PAGES_MAX) * 2 {
        return Err(DecodeError::invalid(WHAT, "its length is that of no run"));
    }
    let mut page = last.to_vec();
    key.open((pages - 1) as u32, PageKind::Trailer, &mut page)?;
    let mut reader = Reader::new(&page[..PAGE_ROOM], WHAT);
    let table = VolumeTable::from_code(reader.u8()?).ok_or(reader.invalid("it is of an unknown table"))?;
    let form = table.form();
    let widths = [form.key_len as u8, form.filter_len as u8, 0];
    if reader.array()? != widths || reader.u32()? != u32::from(form.value_len.map_or(VARIABLE, |len| len as u16)) {
        return Err(reader.invalid("its records have another form than its table's"));
    }
    let trailer = Trailer {
        table,
        pages: reader.u32()?,
        tail_pages: reader.u32()?,
        records: reader.u64()?,
        filter_len: reader.u64()?,
    };
    only_zeros(reader.rest(), WHAT)?;
    if trailer.pages == 0 || u64::from(trailer.pages) + u64::from(trailer.tail_pages) + 1 != pages {
        return Err(DecodeError::invalid(WHAT, "its length is not what its trailer says"));
    }
    let tail = (u64::from(trailer.pages) + 1) * form.key_len as u64 + trailer.filter_len.min(1 << 40);
    if tail.div_ceil(PAGE_ROOM as u64) != u64::from(trailer.tail_pages) {
        return Err(DecodeError::invalid(WHAT, "its tail is not what its trailer says"));
    }
    Ok(trailer)
}

impl PageRunIndex {
    /// Bytes at the end of the run that [`Self::decode`] needs, from its last page.
    pub fn tail_len(key: &PageRunKey, last: &[u8], object_len: u64) -> Result<u64, DecodeError> {
        let trailer = decode_trailer(key, last, object_len)?;
        Ok((u64::from(trailer.tail_pages) + 1) * PAGE_LEN as u64)
    }

    /// Reads the last [`Self::tail_len`] bytes of a run.
    pub fn decode(key: PageRunKey, tail: &[u8], object_len: u64) -> Result<Self, DecodeError> {
        let cut = DecodeError::Truncated { what: WHAT };
        let at = tail.len().checked_sub(PAGE_LEN).ok_or(cut.clone())?;
        let trailer = decode_trailer(&key, &tail[at..], object_len)?;
        if at != trailer.tail_pages as usize * PAGE_LEN {
            return Err(cut);
        }
        let mut plain = Vec::with_capacity(at);
        for (number, page) in (trailer.pages..).zip(tail[..at].chunks(PAGE_LEN)) {
            let mut page = page.to_vec();
            key.open(number, PageKind::Tail, &mut page)?;
            plain.extend_from_slice(&page[..PAGE_ROOM]);
        }
        let form = trailer.table.form();
        let mut reader = Reader::new(&plain, WHAT);
        let fences = reader.take((trailer.pages as usize + 1) * form.key_len)?;
        let filter = usize::try_from(trailer.filter_len).map_err(|_| cut)?;
        let filter = Filter::decode(reader.take(filter)?)?;
        only_zeros(reader.rest(), WHAT)?;
        let (first, last) = fences.split_at(fences.len() - form.key_len);
        if !first.chunks(form.key_len).is_sorted_by(|a, b| a < b) || first[first.len() - form.key_len..] > *last {
            return Err(DecodeError::invalid(WHAT, "its keys do not rise"));
        }
        Ok(Self {
            key,
            table: trailer.table,
            records: trailer.records,
            pages: trailer.pages,
            form,
            fences: fences.to_vec(),
            filter,
        })
    }

    /// Takes the filter away, for a caller that keeps or drops it by itself. [`Self::admits`] says
    /// yes to every key from then on.
    pub fn take_filter(&mut self) -> Filter {
        std::mem::replace(&mut self.filter, Filter::all())
    }

    /// What the filter is asked about a key, which has at least the bytes that the filter knows.
    pub fn filter_hash(&self, key: &[u8]) -> u64 {
        key_hash(&key[..self.form.filter_len])
    }

    /// Data pages.
    pub fn pages(&self) -> u32 {
        self.pages
    }

    fn fence(&self, number: u32) -> &[u8] {
        let at = number as usize * self.form.key_len;
        &self.fences[at..at + self.form.key_len]
    }

    /// Whether keys that begin with `key` may be in. `key` has at least the bytes that the filter
    /// knows.
    pub fn admits(&self, key: &[u8]) -> bool {
        self.filter.admits(self.filter_hash(key))
    }

    /// The page where the first key at or behind `key` is: a key, or the beginning of one. `None`:
    /// all keys are before it.
    pub fn page_at(&self, key: &[u8]) -> Option<u32> {
        if self.fence(self.pages) < key {
            return None;
        }
        // The last page that begins at or before the key. A key behind its last record is in the
        // next page then; the caller goes on there.
        let (mut low, mut high) = (0, self.pages);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.fence(middle) <= key { low = middle + 1 } else { high = middle }
        }
        Some(low.saturating_sub(1))
    }

    /// Opens a page from its stored bytes.
    pub fn open_page(&self, number: u32, mut stored: Vec<u8>) -> Result<Page, DecodeError> {
        if number >= self.pages {
            return Err(DecodeError::invalid(WHAT, "it has no page of this number"));
        }
        self.key.open(number, PageKind::Data, &mut stored)?;
        stored.truncate(PAGE_ROOM);
        let page = Page::decode(stored, self.form)?;
        let behind = self.fence(number + 1);
        let is_last = number + 1 == self.pages;
        let in_order = match page.key(page.count - 1).cmp(behind) {
            Ordering::Less => !is_last,
            Ordering::Equal => is_last,
            Ordering::Greater => false,
        };
        if page.key(0) != self.fence(number) || !in_order {
            return Err(DecodeError::invalid(WHAT, "a page has other keys than its fences say"));
        }
        Ok(page)
    }

    /// Bytes of memory that it takes, nearly.
    pub fn bytes_held(&self) -> usize {
        size_of::<Self>() + self.fences.len() + self.filter.bytes_held()
    }
}

/// The records of one page.
#[derive(Debug)]
pub struct Page {
    plain: Vec<u8>,
    form: PageForm,
    count: usize,
    /// Where values end, from the first value on.
    ends: Vec<u16>,
    values: usize,
}

impl Page {
    /// Reads the records of a page that was opened: the bytes before sealing.
    pub fn of_plain(plain: Vec<u8>, table: VolumeTable) -> Result<Self, DecodeError> {
        if plain.len() != PAGE_ROOM {
            return Err(DecodeError::Truncated { what: WHAT });
        }
        Self::decode(plain, table.form())
    }

    fn decode(plain: Vec<u8>, form: PageForm) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(&plain, WHAT);
        let code = reader.u8()?;
        let count = usize::from(reader.u16()?);
        if code != (if form.value_len.is_some() { 1 } else { 2 }) || count == 0 {
            return Err(reader.invalid("a page has another form than its table's"));
        }
        let keys = reader.take(count * form.key_len)?;
        if !keys.chunks(form.key_len).is_sorted_by(|a, b| a < b) {
            return Err(DecodeError::invalid(WHAT, "its keys do not rise"));
        }
        let mut ends = Vec::with_capacity(count);
        let mut end = 0u16;
        for _ in 0..count {
            let length = match form.value_len {
                Some(len) => len as u16,
                None => reader.u16()?,
            };
            end = end.checked_add(length).ok_or(DecodeError::Truncated { what: WHAT })?;
            ends.push(end);
        }
        let values = plain.len() - reader.remaining();
        reader.take(usize::from(end))?;
        only_zeros(reader.rest(), WHAT)?;
        Ok(Self { form, count, ends, values, plain })
    }

    /// Records.
    pub fn count(&self) -> usize {
        self.count
    }

    /// A key.
    pub fn key(&self, record: usize) -> &[u8] {
        let at = HEAD + record * self.form.key_len;
        &self.plain[at..at + self.form.key_len]
    }

    /// A value.
    pub fn value(&self, record: usize) -> &[u8] {
        let from = if record == 0 { 0 } else { self.ends[record - 1] };
        &self.plain[self.values + usize::from(from)..self.values + usize::from(self.ends[record])]
    }

    /// The first record whose key is at or behind `key`, which may be the beginning of one.
    pub fn first_at(&self, key: &[u8]) -> usize {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.key(middle) < key { low = middle + 1 } else { high = middle }
        }
        low
    }
}
