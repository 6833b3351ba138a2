//! A page run as a file: look-ups and scans.

use std::num::NonZeroUsize;
use std::sync::Arc;

use larder_format::ids::PageRunId;
use larder_format::keys::Keys;
use larder_format::page_run::{PAGE_LEN, Page, PageRunIndex, PageRunKey, VolumeTable};
use larder_format::volume_manifest::PageRunRef;
use lru::LruCache;
use parking_lot::Mutex;

use crate::disk::{Disk, DiskFile};
use crate::error::VolumeError;

/// Opened pages that were used last, of all runs.
pub(crate) struct PageCache(Mutex<LruCache<(PageRunId, u32), Arc<Page>>>);

impl PageCache {
    /// A cache of this many bytes.
    pub(crate) fn new(bytes: usize) -> Self {
        let pages = NonZeroUsize::new(bytes / PAGE_LEN).unwrap_or(NonZeroUsize::MIN);
        Self(Mutex::new(LruCache::new(pages)))
    }
}

/// A page run of a store.
pub(crate) struct RunFile {
    pub(crate) reference: PageRunRef,
    path: String,
    file: Arc<dyn DiskFile>,
    index: PageRunIndex,
}

/// `runs/<id>`: the path of a run in the store.
pub(crate) fn path(id: PageRunId) -> String {
    format!("runs/{id}")
}

impl RunFile {
    /// Opens a run that the manifest names.
    pub(crate) fn open(disk: &dyn Disk, keys: &Keys, reference: PageRunRef) -> Result<Arc<Self>, VolumeError> {
        let path = path(reference.id);
        let key = || PageRunKey::of(keys, reference.id).map_err(VolumeError::damaged(&path));
        let file = disk.open(&path).map_err(VolumeError::needed(&path))?;
        let length = file.length().map_err(VolumeError::io(&path))?;
        let cut = || VolumeError::needed(&path)(std::io::ErrorKind::UnexpectedEof.into());
        if length != reference.object_bytes {
            return Err(cut());
        }
        let read = |bytes: u64| {
            let mut tail = vec![0; bytes as usize];
            let from = length.checked_sub(bytes).ok_or_else(cut)?;
            file.read_at(from, &mut tail).map_err(VolumeError::needed(&path))?;
            Ok::<_, VolumeError>(tail)
        };
        let last = read(PAGE_LEN as u64)?;
        let tail = PageRunIndex::tail_len(&key()?, &last, length).map_err(VolumeError::damaged(&path))?;
        let index = PageRunIndex::decode(key()?, &read(tail)?, length).map_err(VolumeError::damaged(&path))?;
        if index.table.code() != reference.table || index.records != reference.records {
            return Err(cut());
        }
        Ok(Arc::new(Self { reference, path, file, index }))
    }

    pub(crate) fn id(&self) -> PageRunId {
        self.reference.id
    }

    pub(crate) fn table(&self) -> VolumeTable {
        self.index.table
    }

    fn page(&self, cache: &PageCache, number: u32) -> Result<Arc<Page>, VolumeError> {
        if let Some(page) = cache.0.lock().get(&(self.id(), number)) {
            return Ok(page.clone());
        }
        let page = Arc::new(self.read_page(number)?);
        cache.0.lock().put((self.id(), number), page.clone());
        Ok(page)
    }

    fn read_page(&self, number: u32) -> Result<Page, VolumeError> {
        let what = || format!("{}, page {number}", self.path);
        let mut stored = vec![0; PAGE_LEN];
        let offset = u64::from(number) * PAGE_LEN as u64;
        self.file.read_at(offset, &mut stored).map_err(VolumeError::needed(what()))?;
        self.index.open_page(number, stored).map_err(VolumeError::damaged(what()))
    }

    /// The value of the first key that begins with `prefix`, whose length is that which the filter
    /// knows.
    pub(crate) fn find(&self, cache: &PageCache, prefix: &[u8]) -> Result<Option<Vec<u8>>, VolumeError> {
        if !self.index.admits(prefix) {
            return Ok(None);
        }
        let Some(mut number) = self.index.page_at(prefix) else { return Ok(None) };
        let mut page = self.page(cache, number)?;
        let mut record = page.first_at(prefix);
        if record == page.count() {
            number += 1;
            if number == self.index.pages() {
                return Ok(None);
            }
            (page, record) = (self.page(cache, number)?, 0);
        }
        Ok(page.key(record).starts_with(prefix).then(|| page.value(record).to_vec()))
    }

    /// All records from the first key at or behind `from`.
    pub(crate) fn scan(self: &Arc<Self>, from: &[u8]) -> Scan {
        let number = self.index.page_at(from).unwrap_or(self.index.pages());
        Scan { run: self.clone(), number, page: None, record: 0, from: from.to_vec() }
    }
}

/// A walk over the records of a run.
pub(crate) struct Scan {
    run: Arc<RunFile>,
    number: u32,
    page: Option<Page>,
    record: usize,
    from: Vec<u8>,
}

impl Iterator for Scan {
    type Item = Result<(Vec<u8>, Vec<u8>), VolumeError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(page) = &self.page {
                if self.record < page.count() {
                    let found = (page.key(self.record).to_vec(), page.value(self.record).to_vec());
                    self.record += 1;
                    return Some(Ok(found));
                }
                self.page = None;
                self.number += 1;
            }
            if self.number >= self.run.index.pages() {
                return None;
            }
            match self.run.read_page(self.number) {
                Ok(page) => {
                    self.record = page.first_at(&self.from);
                    self.from.clear();
                    self.page = Some(page);
                }
                Err(error) => {
                    self.number = self.run.index.pages();
                    return Some(Err(error));
                }
            }
        }
    }
}
