//! A disk for tests that loses power: writes that were not synced are lost, kept or torn in any
//! order by sectors of 512 bytes; names that were not synced are lost or kept.

mod inode;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use self::inode::Inode;
use super::{Disk, DiskFile, Space};

const SECTOR: usize = 512;

/// How the power fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The process ends: the system still has all writes.
    Process,
    /// The machine ends: writes that were not synced may be lost.
    Power,
    /// The machine ends, and all that was not synced is lost.
    PowerLosesAll,
}

type Name = Option<Arc<Mutex<Inode>>>;

#[derive(Default)]
struct World {
    names: BTreeMap<String, Arc<Mutex<Inode>>>,
    durable: BTreeMap<String, Arc<Mutex<Inode>>>,
    /// What a name may be on the disk instead.
    changes: BTreeMap<String, Vec<Name>>,
    /// Operations until the power fails; `None`: it does not.
    left: Option<u64>,
    /// Rises with each failure; files of older boots fail.
    boot: u64,
    random: u64,
    free: u64,
    operations: u64,
    failed: bool,
    /// Operations until one fails for want of space.
    until_full: Option<u64>,
    /// Bytes that all files can take; `None`: any.
    capacity: Option<u64>,
    /// Syncs of files until one fails.
    until_sync_fails: Option<u64>,
}

impl World {
    fn roll(&mut self, below: usize) -> usize {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.random;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) % below.max(1) as u64) as usize
    }

    fn step(&mut self) -> io::Result<()> {
        self.operations += 1;
        if let Some(left) = self.until_full.take() {
            match left {
                0 => return Err(io::ErrorKind::StorageFull.into()),
                left => self.until_full = Some(left - 1),
            }
        }
        match &mut self.left {
            Some(0) => {
                self.failed = true;
                Err(io::Error::other("the power failed"))
            }
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Bytes that all files take.
    fn used(&self) -> u64 {
        let inodes: BTreeMap<_, _> = self.names.values().map(|inode| (Arc::as_ptr(inode), inode)).collect();
        inodes.values().map(|inode| inode.lock().allocated()).sum()
    }

    /// Changes a file, unless it takes more space then and there is none.
    fn grow(&mut self, inode: &Mutex<Inode>, change: impl Fn(&mut Inode)) -> io::Result<()> {
        let Some(capacity) = self.capacity else {
            change(&mut inode.lock());
            return Ok(());
        };
        let (length, reserved, grows) = {
            let mut inode = inode.lock();
            let (length, reserved, allocated) = (inode.now.len(), inode.reserved, inode.allocated());
            change(&mut inode);
            (length, reserved, inode.allocated() > allocated)
        };
        if grows && self.used() > capacity {
            let mut inode = inode.lock();
            inode.now.truncate(length);
            inode.reserved = reserved;
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    fn name(&mut self, path: &str, inode: Name) {
        self.changes.entry(path.to_owned()).or_default().push(inode.clone());
        match inode {
            Some(inode) => self.names.insert(path.to_owned(), inode),
            None => self.names.remove(path),
        };
    }
}

/// A disk in memory whose power can fail.
#[derive(Clone)]
pub struct SimulatedDisk(Arc<Mutex<World>>);

impl SimulatedDisk {
    /// An empty disk. The seed decides what a failure keeps.
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(World { random: seed, free: 1 << 40, ..World::default() })))
    }

    /// The power fails after this many operations.
    pub fn fail_after(&self, operations: u64) {
        self.0.lock().left = Some(operations);
    }

    /// One operation fails for want of space, after this many others.
    pub fn fail_once_after(&self, operations: u64) {
        self.0.lock().until_full = Some(operations);
    }

    /// A sync of a file fails, after this many others. What it should have written never reaches
    /// the disk, and is seen until the power fails. So Linux does it.
    pub fn fail_sync_after(&self, syncs: u64) {
        self.0.lock().until_sync_fails = Some(syncs);
    }

    /// Whether the failure has happened that was asked for last.
    pub fn has_failed_once(&self) -> bool {
        let world = self.0.lock();
        world.until_full.is_none() && world.until_sync_fails.is_none()
    }

    /// Operations so far.
    pub fn operations(&self) -> u64 {
        self.0.lock().operations
    }

    /// Free space from now on.
    pub fn set_free(&self, free: u64) {
        self.0.lock().free = free;
    }

    /// Bytes that all files take.
    pub fn used(&self) -> u64 {
        self.0.lock().used()
    }

    /// All files together can take this from now on, and free space is what is left of it. Writes
    /// within what a file has always succeed.
    pub fn set_capacity(&self, bytes: u64) {
        self.0.lock().capacity = Some(bytes);
    }

    /// Whether the power has failed.
    pub fn has_failed(&self) -> bool {
        self.0.lock().failed
    }

    /// Starts again after a failure. Files that are open stay unusable.
    pub fn restart(&self, fault: Fault) {
        let world = &mut *self.0.lock();
        (world.left, world.failed, world.until_full) = (None, false, None);
        world.until_sync_fails = None;
        world.boot += 1;
        if fault == Fault::Process {
            return;
        }
        for (path, versions) in std::mem::take(&mut world.changes) {
            let choice = if fault == Fault::PowerLosesAll { 0 } else { world.roll(versions.len() + 1) };
            if let Some(version) = choice.checked_sub(1).and_then(|at| versions.get(at)) {
                match version {
                    Some(inode) => world.durable.insert(path, inode.clone()),
                    None => world.durable.remove(&path),
                };
            }
        }
        world.names = world.durable.clone();
        for inode in world.durable.clone().values() {
            if fault == Fault::PowerLosesAll {
                inode.lock().lose();
            } else {
                inode.lock().fall(&mut |below| world.roll(below));
            }
        }
    }

    /// Flips a bit of a file.
    ///
    /// # Panics
    /// When there is no such file or byte.
    pub fn damage(&self, path: &str, at: u64) {
        let world = self.0.lock();
        let mut inode = world.names.get(path).expect("the file exists").lock();
        inode.now[at as usize] ^= 1;
        inode.sync();
    }

    /// Bytes of a file.
    ///
    /// # Panics
    /// When there is no such file.
    pub fn length(&self, path: &str) -> u64 {
        self.0.lock().names.get(path).expect("the file exists").lock().now.len() as u64
    }
}

fn missing() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl Disk for SimulatedDisk {
    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut world = self.0.lock();
        world.step()?;
        if world.names.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let inode = Arc::new(Mutex::new(Inode::default()));
        world.name(path, Some(inode.clone()));
        Ok(Arc::new(SimulatedFile { world: self.0.clone(), inode, boot: world.boot }))
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut world = self.0.lock();
        world.step()?;
        let inode = world.names.get(path).cloned().ok_or_else(missing)?;
        Ok(Arc::new(SimulatedFile { world: self.0.clone(), inode, boot: world.boot }))
    }

    fn link(&self, from: &str, to: &str) -> io::Result<()> {
        let mut world = self.0.lock();
        world.step()?;
        if world.names.contains_key(to) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let inode = world.names.get(from).cloned().ok_or_else(missing)?;
        world.name(to, Some(inode));
        Ok(())
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let mut world = self.0.lock();
        world.step()?;
        if !world.names.contains_key(path) {
            return Err(missing());
        }
        world.name(path, None);
        Ok(())
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        let mut world = self.0.lock();
        world.step()?;
        let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let names = world.names.keys().filter_map(|path| path.strip_prefix(&prefix));
        Ok(names.filter(|name| !name.contains('/')).map(str::to_owned).collect())
    }

    fn make_folder(&self, _: &str) -> io::Result<()> {
        self.0.lock().step()
    }

    fn sync_folder(&self, folder: &str) -> io::Result<()> {
        let world = &mut *self.0.lock();
        world.step()?;
        let inside = |path: &str| path.rsplit_once('/').map_or("", |(parent, _)| parent) == folder;
        world.changes.retain(|path, _| !inside(path));
        world.durable.retain(|path, _| !inside(path));
        for (path, inode) in world.names.iter().filter(|(path, _)| inside(path)) {
            world.durable.insert(path.clone(), inode.clone());
        }
        Ok(())
    }

    fn sync_many(&self, folders: &[&str], files: &[Arc<dyn DiskFile>]) -> io::Result<()> {
        // In any order, and the power may fail between two of them.
        let mut order: Vec<usize> = (0..folders.len() + files.len()).collect();
        let mut world = self.0.lock();
        for at in (1..order.len()).rev() {
            order.swap(at, world.roll(at + 1));
        }
        drop(world);
        order.into_iter().try_for_each(|at| match at.checked_sub(folders.len()) {
            None => self.sync_folder(folders[at]),
            Some(file) => files[file].sync(),
        })
    }

    fn space(&self) -> io::Result<Space> {
        let mut world = self.0.lock();
        world.step()?;
        let left = world.capacity.map(|capacity| capacity.saturating_sub(world.used()));
        Ok(Space { free: left.unwrap_or(world.free), total: 1 << 40 })
    }
}

struct SimulatedFile {
    world: Arc<Mutex<World>>,
    inode: Arc<Mutex<Inode>>,
    boot: u64,
}

impl SimulatedFile {
    fn step(&self) -> io::Result<()> {
        let mut world = self.world.lock();
        if world.boot != self.boot {
            return Err(io::Error::other("the file was opened before the power failed"));
        }
        world.step()
    }

    /// When the power fails during a write, the system may have seen a part of it.
    fn part_at_failure(&self, length: usize) -> Option<usize> {
        let mut world = self.world.lock();
        let fails_now = world.boot == self.boot && world.left == Some(0) && !world.failed;
        fails_now.then(|| world.roll(length / SECTOR + 1) * SECTOR)
    }
}

impl DiskFile for SimulatedFile {
    fn length(&self) -> io::Result<u64> {
        self.step()?;
        Ok(self.inode.lock().now.len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.step()?;
        let inode = self.inode.lock();
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let found = inode.now.get(from..from.saturating_add(buffer.len()));
        buffer.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn read_many(&self, wanted: &[(u64, usize)]) -> Vec<io::Result<Vec<u8>>> {
        let read = |(offset, length): &(u64, usize)| self.read_one(*offset, *length);
        // In any order, and the power may fail between two of them.
        if self.world.lock().roll(2) > 0 {
            return wanted.iter().map(read).collect();
        }
        let backwards: Vec<_> = wanted.iter().rev().map(read).collect();
        backwards.into_iter().rev().collect()
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let part = self.part_at_failure(data.len());
        let result = self.step();
        let data = match (&result, part) {
            (Ok(()), _) => data,
            (Err(_), Some(part)) => &data[..part.min(data.len())],
            (Err(_), None) => &[],
        };
        if !data.is_empty() {
            let from = offset as usize;
            let to = from + data.len();
            self.world.lock().grow(&self.inode, |inode| {
                let length = inode.now.len().max(to);
                inode.now.resize(length, 0);
            })?;
            let mut inode = self.inode.lock();
            inode.now[from..to].copy_from_slice(data);
            inode.note(from, to);
        }
        result
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.step()?;
        let mut inode = self.inode.lock();
        let (before, after) = (inode.now.len(), length as usize);
        inode.now.resize(after, 0);
        // The space behind the end is given back.
        inode.reserved = inode.reserved.min(if after < before { after } else { usize::MAX });
        inode.note(before.min(after), before.max(after));
        Ok(())
    }

    fn reserve(&self, length: u64) -> io::Result<()> {
        self.step()?;
        let length = length as usize;
        self.world.lock().grow(&self.inode, |inode| inode.reserved = inode.reserved.max(length))
    }

    fn sync(&self) -> io::Result<()> {
        self.step()?;
        let mut world = self.world.lock();
        match world.until_sync_fails.take() {
            Some(0) => {
                self.inode.lock().fail_sync();
                return Err(io::Error::other("an error of the disk"));
            }
            left => world.until_sync_fails = left.map(|left| left - 1),
        }
        drop(world);
        self.inode.lock().sync();
        Ok(())
    }
}
