//! Trees of files that are created, deleted, renamed and edited from version to version: WEB, CHM and SYN.

use std::io::{self, Cursor, Read, repeat};

use larder_bench_common::rng::Rng;

use super::rope::Rope;
use super::{Sink, Versions};

/// How a tree reaches the chunker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// File by file, as the backup of a folder.
    Files,
    /// As one tar, sorted by path. Top folder and times are the release's, so every header differs from the one before.
    Tar,
}

/// What a tree is like, and what a version changes. Shares are of the number of files.
#[derive(Debug, Clone, Copy)]
pub(super) struct Profile {
    pub(super) shape: Shape,
    /// Files of the first version.
    pub(super) files: f64,
    /// Bytes of a file: between these, log-uniform.
    pub(super) size: (f64, f64),
    /// Probability that a new file repeats one that is there.
    pub(super) copied: f64,
    pub(super) created: f64,
    pub(super) deleted: f64,
    pub(super) renamed: f64,
    pub(super) edited: f64,
    /// Share of the files that nine tenths of all edits go to.
    pub(super) hot: f64,
    /// Places changed in an edited file, for every 64 KiB of it, at least one.
    pub(super) places: f64,
    /// Bytes replaced at a place: up to this.
    pub(super) patch: u64,
    /// Probability that an edit replaces the whole content.
    pub(super) rewritten: f64,
    /// Probability that an edit brings back what the file was before its last edit.
    pub(super) reverted: f64,
    /// Every so many versions there is a large step, with so many times as many changes.
    pub(super) step: (u32, f64),
}

#[derive(Debug, Clone)]
struct File {
    folder: usize,
    number: u64,
    content: Rope,
    /// Before the last edit.
    earlier: Option<Rope>,
    is_hot: bool,
}

const FOLDERS: usize = 400;

/// See the module header.
pub(super) struct Tree {
    profile: Profile,
    files: Vec<File>,
    rng: Rng,
    next: u64,
    version: u32,
}

impl Tree {
    pub(super) fn new(profile: Profile, seed: u64) -> Self {
        let mut tree = Self { profile, files: Vec::new(), rng: Rng::new(seed), next: 0, version: 0 };
        for _ in 0..profile.files.max(4.0) as usize {
            tree.create();
        }
        tree
    }

    fn fresh_seed(&mut self) -> u64 {
        self.rng.next_u64()
    }

    fn create(&mut self) {
        let content = if !self.files.is_empty() && self.rng.chance(self.profile.copied) {
            self.files[self.rng.below(self.files.len())].content.clone()
        } else {
            let (low, high) = self.profile.size;
            let len = self.rng.log_between(low, high) as u64;
            Rope::fresh(self.fresh_seed(), len)
        };
        self.next += 1;
        self.files.push(File {
            folder: self.rng.below(FOLDERS),
            number: self.next,
            content,
            earlier: None,
            is_hot: self.rng.chance(self.profile.hot),
        });
    }

    /// A share as a number of files: the rest by chance.
    fn count(&mut self, share: f64) -> usize {
        let wanted = share * self.files.len() as f64;
        wanted as usize + usize::from(self.rng.chance(wanted.fract()))
    }

    fn advance(&mut self) {
        self.version += 1;
        let (every, times) = self.profile.step;
        let factor = if every > 0 && self.version.is_multiple_of(every) { times } else { 1.0 };
        let Profile { created, deleted, renamed, edited, .. } = self.profile;
        for _ in 0..self.count(deleted * factor) {
            if self.files.len() > 2 {
                let gone = self.rng.below(self.files.len());
                self.files.swap_remove(gone);
            }
        }
        for _ in 0..self.count(renamed * factor) {
            let place = self.rng.below(self.files.len());
            self.files[place].folder = self.rng.below(FOLDERS);
        }
        let hot: Vec<usize> = (0..self.files.len()).filter(|file| self.files[*file].is_hot).collect();
        for _ in 0..self.count(edited * factor) {
            let place = if !hot.is_empty() && self.rng.chance(0.9) {
                hot[self.rng.below(hot.len())]
            } else {
                self.rng.below(self.files.len())
            };
            self.edit(place);
        }
        for _ in 0..self.count(created * factor) {
            self.create();
        }
    }

    fn edit(&mut self, place: usize) {
        let Profile { places, patch, rewritten, reverted, .. } = self.profile;
        let file = &mut self.files[place];
        let before = file.content.clone();
        let len = before.len();
        if self.rng.chance(reverted)
            && let Some(earlier) = file.earlier.take()
        {
            file.content = earlier;
        } else if self.rng.chance(rewritten) {
            file.content = Rope::fresh(self.rng.next_u64(), len);
        } else {
            let edits = 1 + (places * len as f64 / 65_536.0 * self.rng.unit() * 2.0) as usize;
            for _ in 0..edits {
                let at = self.rng.below(len as usize + 1) as u64;
                let (removed, inserted) = (self.rng.below(patch as usize + 1), 1 + self.rng.below(patch as usize + 1));
                file.content.splice(at, removed as u64, self.rng.next_u64(), inserted as u64);
            }
        }
        file.earlier = Some(before);
    }
}

impl Versions for Tree {
    fn next(&mut self, sink: &mut Sink<'_>) -> anyhow::Result<bool> {
        let mut order: Vec<&File> = self.files.iter().collect();
        order.sort_by_key(|file| (file.folder, file.number));
        match self.profile.shape {
            Shape::Files => order.iter().try_for_each(|file| sink(&mut file.content.reader()))?,
            Shape::Tar => sink(&mut Parts { release: self.version, files: order.into_iter(), parts: Vec::new() })?,
        }
        self.advance();
        Ok(true)
    }
}

/// A tar's block.
const BLOCK: u64 = 512;

/// A tar that is made as it is read.
struct Parts<'a, I> {
    release: u32,
    files: I,
    /// Of the file at hand, the last first.
    parts: Vec<Box<dyn Read + 'a>>,
}

impl<'a, I: Iterator<Item = &'a File>> Read for Parts<'a, I> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            match self.parts.last_mut() {
                Some(part) => match part.read(buffer)? {
                    0 => drop(self.parts.pop()),
                    read => return Ok(read),
                },
                None => {
                    let Some(file) = self.files.next() else { return Ok(0) };
                    let len = file.content.len();
                    self.parts.push(Box::new(repeat(0).take(len.next_multiple_of(BLOCK) - len)));
                    self.parts.push(Box::new(file.content.reader()));
                    self.parts.push(Box::new(Cursor::new(header(self.release, file, len))));
                }
            }
        }
    }
}

/// As much of a ustar header as differs between files.
fn header(release: u32, file: &File, len: u64) -> [u8; BLOCK as usize] {
    let mut block = [0; BLOCK as usize];
    let mut put = |at: usize, text: &str| block[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, &format!("release-{release:03}/d{:03}/f{:08}", file.folder, file.number));
    put(100, "0000644");
    put(124, &format!("{len:011o}"));
    put(136, &format!("{:011o}", 1_577_836_800 + u64::from(release) * 86_400));
    put(257, "ustar");
    block
}
