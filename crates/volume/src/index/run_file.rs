//! A page run as a file: look-ups, alone and in batches, and scans.

use std::collections::{BTreeSet, HashMap};
use std::num::NonZeroUsize;
use std::sync::Arc;

use larder_format::ids::PageRunId;
use larder_format::keys::Keys;
use larder_format::page_run::{PAGE_LEN, Page, PageRunIndex, PageRunKey, VolumeTable};
use larder_format::run::Filter;
use larder_format::volume_manifest::PageRunRef;
use lru::LruCache;
use parking_lot::{Mutex, RwLock};

use super::removal::Removals;
use crate::counters::Looks;
use crate::disk::{Disk, DiskFile};
use crate::error::VolumeError;

/// Opened pages that were used last, of all runs.
pub(crate) struct PageCache {
    pages: Mutex<LruCache<(PageRunId, u32), Arc<Page>>>,
    /// How often a page was at hand.
    pub(crate) looks: Looks,
}

impl PageCache {
    /// A cache of this many bytes.
    pub(crate) fn new(bytes: usize) -> Self {
        let pages = NonZeroUsize::new(bytes / PAGE_LEN).unwrap_or(NonZeroUsize::MIN);
        Self { pages: Mutex::new(LruCache::new(pages)), looks: Looks::default() }
    }

    fn get(&self, run: PageRunId, number: u32) -> Option<Arc<Page>> {
        let found = self.pages.lock().get(&(run, number)).cloned();
        let looks = if found.is_some() { &self.looks.hits } else { &self.looks.misses };
        looks.add(1);
        found
    }

    fn put(&self, run: PageRunId, number: u32, page: Page) -> Arc<Page> {
        let page = Arc::new(page);
        self.pages.lock().put((run, number), page.clone());
        page
    }
}

/// A page run of a store.
pub(crate) struct RunFile {
    pub(crate) reference: PageRunRef,
    path: String,
    file: Arc<dyn DiskFile>,
    index: PageRunIndex,
    /// `None`: dropped for want of memory. It admits every key then.
    filter: RwLock<Option<Filter>>,
    /// Removes the file at the end, as long as no manifest can name it.
    unpublished: Mutex<Option<Arc<Removals>>>,
}

impl Drop for RunFile {
    fn drop(&mut self) {
        if let Some(removals) = self.unpublished.get_mut().take() {
            removals.remove(&self.path);
        }
    }
}

fn offset_of(page: u32) -> u64 {
    u64::from(page) * PAGE_LEN as u64
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
        let mut index = PageRunIndex::decode(key()?, &read(tail)?, length).map_err(VolumeError::damaged(&path))?;
        if index.table.code() != reference.table || index.records != reference.records {
            return Err(cut());
        }
        let filter = RwLock::new(Some(index.take_filter()));
        Ok(Arc::new(Self { reference, path, file, index, filter, unpublished: Mutex::new(None) }))
    }

    /// Opens a run that was just written. Its file goes with the value, unless a manifest names it.
    pub(crate) fn open_new(
        removals: &Arc<Removals>,
        keys: &Keys,
        reference: PageRunRef,
    ) -> Result<Arc<Self>, VolumeError> {
        let run = Self::open(removals.disk(), keys, reference)?;
        *run.unpublished.lock() = Some(removals.clone());
        Ok(run)
    }

    /// A manifest names the run from now on, or may do so. Whether none did before.
    pub(crate) fn publish(&self) -> bool {
        self.unpublished.lock().take().is_some()
    }

    /// The manifest surely does not count.
    pub(crate) fn unpublish(&self, removals: &Arc<Removals>) {
        *self.unpublished.lock() = Some(removals.clone());
    }

    pub(crate) fn id(&self) -> PageRunId {
        self.reference.id
    }

    pub(crate) fn table(&self) -> VolumeTable {
        self.index.table
    }

    /// Bytes of memory of the filter; 0: it was dropped.
    pub(crate) fn filter_bytes(&self) -> usize {
        self.filter.read().as_ref().map_or(0, Filter::bytes_held)
    }

    /// Gives the memory of the filter back.
    pub(crate) fn drop_filter(&self) {
        *self.filter.write() = None;
    }

    /// Whether a key may be in, or one that begins as it does: in the bytes that the filter knows.
    pub(crate) fn admits(&self, key: &[u8]) -> bool {
        self.filter.read().as_ref().is_none_or(|filter| filter.admits(self.index.filter_hash(key)))
    }

    fn page(&self, cache: &PageCache, number: u32) -> Result<Arc<Page>, VolumeError> {
        match cache.get(self.id(), number) {
            Some(page) => Ok(page),
            None => Ok(cache.put(self.id(), number, self.read_page(number)?)),
        }
    }

    fn read_page(&self, number: u32) -> Result<Page, VolumeError> {
        let mut stored = vec![0; PAGE_LEN];
        let read = self.file.read_at(offset_of(number), &mut stored);
        self.open_page(number, read.map(|()| stored))
    }

    fn open_page(&self, number: u32, stored: std::io::Result<Vec<u8>>) -> Result<Page, VolumeError> {
        let what = || format!("{}, page {number}", self.path);
        let stored = stored.map_err(VolumeError::needed(what()))?;
        self.index.open_page(number, stored).map_err(VolumeError::damaged(what()))
    }

    /// The page of a key, if the filter admits the key.
    fn page_of(&self, key: &[u8]) -> Option<u32> {
        if self.admits(key) { self.index.page_at(key) } else { None }
    }

    /// These pages, with all reads at once. Damaged ones are left out.
    fn pages_of(
        &self,
        cache: &PageCache,
        numbers: impl Iterator<Item = u32>,
    ) -> Result<HashMap<u32, Arc<Page>>, VolumeError> {
        let mut pages = HashMap::new();
        let mut missing = BTreeSet::new();
        for number in numbers {
            if pages.contains_key(&number) || missing.contains(&number) {
                continue;
            }
            match cache.get(self.id(), number) {
                Some(page) => drop(pages.insert(number, page)),
                None => drop(missing.insert(number)),
            }
        }
        let wanted: Vec<_> = missing.iter().map(|number| (offset_of(*number), PAGE_LEN)).collect();
        for (number, stored) in missing.into_iter().zip(self.file.read_many(&wanted)) {
            match self.open_page(number, stored) {
                Ok(page) => drop(pages.insert(number, cache.put(self.id(), number, page))),
                Err(error @ VolumeError::Damaged { .. }) => tracing::warn!("{error}"),
                Err(error) => return Err(error),
            }
        }
        Ok(pages)
    }

    /// Reads the pages of these keys into the cache, all at once.
    pub(crate) fn read_ahead(&self, cache: &PageCache, keys: &[&[u8]]) -> Result<(), VolumeError> {
        self.pages_of(cache, keys.iter().filter_map(|key| self.page_of(key))).map(drop)
    }

    /// [`Self::find`] of many keys, whose pages are read at once. What is in damaged pages is not
    /// found.
    pub(crate) fn find_many(&self, cache: &PageCache, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, VolumeError> {
        let numbers: Vec<_> = keys.iter().map(|key| self.page_of(key)).collect();
        let pages = self.pages_of(cache, numbers.iter().copied().flatten())?;
        let found = keys.iter().zip(numbers).map(|(key, number)| {
            let Some((number, page)) = number.and_then(|number| Some((number, pages.get(&number)?))) else {
                return Ok(None);
            };
            match self.find_from(cache, number, page, key) {
                Err(error @ VolumeError::Damaged { .. }) => {
                    tracing::warn!("{error}");
                    Ok(None)
                }
                found => found,
            }
        });
        found.collect()
    }

    /// The value of the first key at or behind `from`, if it begins as `from` does: in the bytes
    /// that the filter knows.
    pub(crate) fn find(&self, cache: &PageCache, from: &[u8]) -> Result<Option<Vec<u8>>, VolumeError> {
        let Some(number) = self.page_of(from) else { return Ok(None) };
        self.find_from(cache, number, &*self.page(cache, number)?, from)
    }

    /// The same from a page on.
    fn find_from(
        &self,
        cache: &PageCache,
        number: u32,
        page: &Page,
        from: &[u8],
    ) -> Result<Option<Vec<u8>>, VolumeError> {
        let prefix = &from[..self.table().form().filter_len];
        let value =
            |page: &Page, record: usize| page.key(record).starts_with(prefix).then(|| page.value(record).to_vec());
        let record = page.first_at(from);
        if record < page.count() {
            return Ok(value(page, record));
        }
        if number + 1 == self.index.pages() {
            return Ok(None);
        }
        Ok(value(&*self.page(cache, number + 1)?, 0))
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
                    // A check wants all damage, and goes on behind the page.
                    let is_damage = matches!(error, VolumeError::Damaged { .. });
                    self.number = if is_damage { self.number + 1 } else { self.run.index.pages() };
                    return Some(Err(error));
                }
            }
        }
    }
}
