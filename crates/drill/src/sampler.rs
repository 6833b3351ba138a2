//! Drawing a sample in one walk over the entries, in bounded memory.
//!
//! Each entry has random numbers that follow from the seed and its path. The files with the
//! smallest ones are the sample, so one walk finds them, in any order of entries. For files by
//! size, the number is divided by the size first: a file of twice the size is twice as likely
//! (Efraimidis and Spirakis, weighted sampling with a reservoir). Paths are kept as hashes: two
//! paths with the same hash are both restored, which does no harm.

use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};

use larder_format::entry::{Entry, EntryKind};
use larder_lnode::restore::Selection;

use crate::report::Amount;
use crate::sample::Sample;

/// Bytes of memory for a file of the sample: twice in a heap, and in two tables.
const FILE_MEMORY: usize = 96;

/// The entries that a drill restores.
#[derive(Debug)]
pub(crate) struct Chosen {
    hasher: PathHasher,
    /// Hashes of their paths; `None`: all.
    paths: Option<HashSet<u64>>,
    /// All files of the version.
    pub(crate) population: Amount,
    /// Those of the sample.
    pub(crate) files: Amount,
    /// Other items of the sample.
    pub(crate) others: u64,
    /// The sample is smaller than asked for: there was no memory for more.
    pub(crate) is_limited: bool,
}

impl Chosen {
    /// Whether everything is restored.
    pub(crate) fn is_everything(&self) -> bool {
        self.paths.is_none()
    }

    /// Whether an entry with this path is in the sample.
    pub(crate) fn has(&self, path: &[u8]) -> bool {
        self.paths.as_ref().is_none_or(|paths| paths.contains(&self.hasher.draw(path).path))
    }
}

impl Selection for Chosen {
    fn wants(&self, path: &[u8], _: bool) -> bool {
        self.has(path)
    }
}

/// A kind of items of which every sample has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Directory,
    EmptyFile,
    SparseFile,
    WithAttributes,
    SetId,
    Symlink,
    HardLink,
    Fifo,
    CharDevice,
    BlockDevice,
}

impl Kind {
    fn of(entry: &Entry) -> impl Iterator<Item = Self> {
        let is_file = matches!(entry.kind, EntryKind::File { .. });
        let kind = match &entry.kind {
            EntryKind::Directory => Some(Self::Directory),
            EntryKind::File { size: 0, .. } => Some(Self::EmptyFile),
            EntryKind::File { extents: Some(_), .. } => Some(Self::SparseFile),
            EntryKind::File { .. } => None,
            EntryKind::Symlink { .. } => Some(Self::Symlink),
            EntryKind::HardLink { .. } => Some(Self::HardLink),
            EntryKind::Fifo => Some(Self::Fifo),
            EntryKind::CharDevice { .. } => Some(Self::CharDevice),
            EntryKind::BlockDevice { .. } => Some(Self::BlockDevice),
        };
        let attributes = (is_file && !entry.xattrs.is_empty()).then_some(Self::WithAttributes);
        let set_id = (is_file && entry.mode & 0o6000 != 0).then_some(Self::SetId);
        kind.into_iter().chain(attributes).chain(set_id)
    }
}

/// The random numbers of a path.
#[derive(Debug, Clone, Copy)]
struct Draw {
    /// The path itself.
    path: u64,
    by_count: u64,
    by_size: u64,
}

/// Makes random numbers of a seed and paths. The same ones on all machines.
#[derive(Debug, Clone)]
struct PathHasher {
    key: [u8; 32],
}

impl PathHasher {
    fn new(seed: u64) -> Self {
        Self { key: blake3::derive_key("larder drill 2026 sample", &seed.to_le_bytes()) }
    }

    fn draw(&self, path: &[u8]) -> Draw {
        let hash = blake3::keyed_hash(&self.key, path);
        let part =
            |at: usize| hash.as_bytes()[at..at + 8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        Draw { path: part(0), by_count: part(8), by_size: part(16) }
    }
}

/// A file that may be in the sample; the smallest keys are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    key: u64,
    path: u64,
    bytes: u64,
}

/// The files with the smallest keys, within limits.
#[derive(Debug)]
struct Reservoir {
    files_max: u64,
    bytes_max: u64,
    bytes: u64,
    heap: BinaryHeap<Candidate>,
}

impl Reservoir {
    fn new(files_max: u64, bytes_max: u64) -> Self {
        Self { files_max, bytes_max, bytes: 0, heap: BinaryHeap::new() }
    }

    fn offer(&mut self, candidate: Candidate) {
        // A file that never fits would push out all others.
        if candidate.bytes > self.bytes_max || self.files_max == 0 {
            return;
        }
        self.bytes += candidate.bytes;
        self.heap.push(candidate);
        while self.heap.len() as u64 > self.files_max || self.bytes > self.bytes_max {
            let Some(out) = self.heap.pop() else { break };
            self.bytes -= out.bytes;
        }
    }
}

/// See the module header.
#[derive(Debug)]
pub(crate) struct Sampler {
    hasher: PathHasher,
    is_everything: bool,
    by_count: Reservoir,
    by_size: Reservoir,
    largest: Option<Candidate>,
    /// Of each kind, the one with the smallest number, and what it links to.
    kinds: BTreeMap<Kind, (Candidate, bool, Option<Vec<u8>>)>,
    population: Amount,
    others: u64,
    is_limited: bool,
}

impl Sampler {
    /// A sampler of a version with these files, whose memory stays below `memory` bytes.
    pub(crate) fn new(sample: Sample, seed: u64, of: Amount, memory: usize) -> Self {
        let most = (memory / FILE_MEMORY).max(1) as u64;
        let (by_count, by_size) = match sample {
            Sample::Part(part) => {
                let part_of = |whole: u64| (whole as f64 * part).ceil() as u64;
                ((part_of(of.files), u64::MAX), (u64::MAX, part_of(of.bytes)))
            }
            Sample::Files(files) => ((files - files / 2, u64::MAX), (files / 2, u64::MAX)),
            Sample::Bytes(bytes) => ((u64::MAX, bytes - bytes / 2), (u64::MAX, bytes / 2)),
        };
        let is_limited = most < of.files && !sample.is_everything();
        Self {
            hasher: PathHasher::new(seed),
            is_everything: sample.is_everything(),
            by_count: Reservoir::new(by_count.0.min(most), by_count.1),
            by_size: Reservoir::new(by_size.0.min(most), by_size.1),
            largest: None,
            kinds: BTreeMap::new(),
            population: Amount::default(),
            others: 0,
            is_limited: is_limited && (by_count.0 > most || by_size.0 > most),
        }
    }

    /// Considers an entry.
    pub(crate) fn offer(&mut self, entry: &Entry) {
        let (draw, bytes) = (self.hasher.draw(&entry.path), entry.stored_bytes());
        let candidate = Candidate { key: draw.by_count, path: draw.path, bytes };
        let is_file = matches!(entry.kind, EntryKind::File { .. });
        if is_file {
            self.population.files += 1;
            self.population.bytes += bytes;
        } else {
            self.others += 1;
        }
        if self.is_everything {
            return;
        }
        for kind in Kind::of(entry) {
            let is_better = self.kinds.get(&kind).is_none_or(|(known, ..)| candidate.key < known.key);
            if is_better {
                let target = match &entry.kind {
                    EntryKind::HardLink { target } => Some(target.clone()),
                    _ => None,
                };
                self.kinds.insert(kind, (candidate, is_file, target));
            }
        }
        if !is_file {
            return;
        }
        self.by_count.offer(candidate);
        if bytes > 0 {
            self.by_size.offer(Candidate { key: weighted(draw.by_size, bytes), ..candidate });
        }
        if self.largest.is_none_or(|largest| (largest.bytes, candidate.key) < (bytes, largest.key)) {
            self.largest = Some(candidate);
        }
    }

    /// The sample. `first_name` gives the bytes of the file that a hard link means.
    pub(crate) fn choose<E>(self, first_name: impl Fn(&[u8]) -> Result<Option<u64>, E>) -> Result<Chosen, E> {
        let (population, hasher) = (self.population, self.hasher);
        if self.is_everything {
            let others = self.others;
            return Ok(Chosen { hasher, paths: None, population, files: population, others, is_limited: false });
        }
        let mut files: HashMap<u64, u64> = HashMap::new();
        let mut others = HashSet::new();
        let drawn = self.by_count.heap.into_iter().chain(self.by_size.heap).chain(self.largest);
        files.extend(drawn.map(|candidate| (candidate.path, candidate.bytes)));
        for (candidate, is_file, target) in self.kinds.into_values() {
            if is_file {
                files.insert(candidate.path, candidate.bytes);
            } else {
                others.insert(candidate.path);
            }
            // A link is restored as a link only together with its first name, which may be a
            // device.
            if let Some(target) = target
                && let Some(bytes) = first_name(&target)?
            {
                files.insert(hasher.draw(&target).path, bytes);
            }
        }
        let amount = Amount { files: files.len() as u64, bytes: files.values().sum() };
        let (count, is_limited) = (others.len() as u64, self.is_limited);
        let paths = Some(files.into_keys().chain(others).collect());
        Ok(Chosen { hasher, paths, population, files: amount, others: count, is_limited })
    }
}

/// The key of a file whose chance follows its size. Keys of positive numbers have their order.
fn weighted(random: u64, bytes: u64) -> u64 {
    let uniform = ((random >> 11) + 1) as f64 / (1_u64 << 53) as f64;
    // -0.0 would be the largest key.
    (-uniform.ln() / bytes as f64).abs().to_bits()
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_format::entry::Timestamp;

    fn entry(path: &str, kind: EntryKind) -> Entry {
        Entry {
            path: path.as_bytes().to_vec(),
            kind,
            mode: 0o644,
            uid: 0,
            gid: 0,
            user: None,
            group: None,
            mtime: Timestamp::default(),
            ctime: Timestamp::default(),
            atime: None,
            inode: 0,
            xattrs: Vec::new(),
        }
    }

    fn files(sizes: &[u64]) -> Vec<Entry> {
        let file = |(number, size): (usize, &u64)| {
            entry(&format!("f{number:04}"), EntryKind::File { size: *size, extents: None })
        };
        sizes.iter().enumerate().map(file).collect()
    }

    fn choose(sample: Sample, seed: u64, entries: &[Entry]) -> Chosen {
        let bytes = entries.iter().map(Entry::stored_bytes).sum();
        let of = Amount { files: entries.len() as u64, bytes };
        let mut sampler = Sampler::new(sample, seed, of, 1 << 20);
        entries.iter().for_each(|entry| sampler.offer(entry));
        let Ok(chosen) = sampler.choose(|_| Ok::<_, std::convert::Infallible>(Some(7)));
        chosen
    }

    fn names(chosen: &Chosen, entries: &[Entry]) -> Vec<String> {
        let wanted = entries.iter().filter(|entry| chosen.has(&entry.path));
        wanted.map(|entry| String::from_utf8_lossy(&entry.path).into_owned()).collect()
    }

    #[test]
    fn a_seed_repeats_the_choice_in_any_order() {
        let mut entries = files(&[10; 1000]);
        let first = names(&choose(Sample::Files(20), 1, &entries), &entries);
        assert_eq!(first.len(), 20, "{first:?}");
        assert_ne!(names(&choose(Sample::Files(20), 2, &entries), &entries), first);
        entries.reverse();
        let mut again = names(&choose(Sample::Files(20), 1, &entries), &entries);
        again.reverse();
        assert_eq!(again, first);
        // So it stays in later versions of the program.
        assert_eq!(first[..3], ["f0012", "f0071", "f0090"]);
    }

    #[test]
    fn the_largest_file_is_always_there_and_half_of_the_choice_is_by_size() {
        let mut sizes = vec![1; 990];
        sizes.extend([1000; 10]);
        sizes.push(1_000_000);
        let entries = files(&sizes);
        let mut large = 0;
        for seed in 0..50 {
            let chosen = choose(Sample::Files(2), seed, &entries);
            assert!(chosen.has(b"f1000"), "the largest");
            assert!(chosen.files.files <= 3);
            let of_ten = |name: &&String| name.as_str() >= "f0990" && name.as_str() < "f1000";
            large += names(&choose(Sample::Bytes(4000), seed, &entries), &entries).iter().filter(of_ten).count();
        }
        // The ten hold 91 % of what fits, and two of them fit into one half.
        assert!(large > 50, "{large}");
    }

    #[test]
    fn limits_of_files_and_bytes_hold() {
        let entries = files(&[100; 1000]);
        let chosen = choose(Sample::Bytes(5000), 3, &entries);
        assert!((40..=51).contains(&chosen.files.files) && chosen.files.bytes <= 5100, "{:?}", chosen.files);
        let chosen = choose(Sample::Part(0.05), 3, &entries);
        assert!((90..=101).contains(&chosen.files.files), "{:?}", chosen.files);
        let chosen = choose(Sample::Part(1.0), 3, &entries);
        assert!(chosen.is_everything() && chosen.has(b"anything"));
        assert_eq!((chosen.files, chosen.population), (chosen.population, Amount { files: 1000, bytes: 100_000 }));
        let mut small = Sampler::new(Sample::Part(0.5), 3, Amount { files: 1000, bytes: 100_000 }, 10 * FILE_MEMORY);
        entries.iter().for_each(|entry| small.offer(entry));
        let Ok(chosen) = small.choose(|_| Ok::<_, std::convert::Infallible>(None));
        assert!(chosen.is_limited && chosen.files.files <= 21, "{:?}", chosen.files);
    }

    #[test]
    fn one_of_each_kind_is_there_and_a_link_with_its_first_name() {
        let mut entries = files(&[100; 1000]);
        entries.push(entry("dir", EntryKind::Directory));
        entries.push(entry("empty", EntryKind::File { size: 0, extents: None }));
        entries.push(entry("fifo", EntryKind::Fifo));
        entries.push(entry("link", EntryKind::Symlink { target: b"x".to_vec() }));
        entries.push(entry("other", EntryKind::HardLink { target: b"f0123".to_vec() }));
        let mut attributes = entry("attributes", EntryKind::File { size: 1, extents: None });
        attributes.xattrs = vec![larder_format::entry::Xattr { name: b"user.a".to_vec(), value: Vec::new() }];
        entries.push(attributes);
        entries.push(Entry { mode: 0o4755, ..entry("setuid", EntryKind::File { size: 1, extents: None }) });
        entries.push(entry("sparse", EntryKind::File { size: 100, extents: Some(Vec::new()) }));
        entries.push(entry("tty", EntryKind::CharDevice { major: 4, minor: 0 }));
        let chosen = choose(Sample::Files(1), 9, &entries);
        for name in ["dir", "empty", "fifo", "link", "other", "f0123", "attributes", "setuid", "sparse", "tty"] {
            assert!(chosen.has(name.as_bytes()), "{name}");
        }
        assert_eq!(chosen.others, 5);
        assert!(chosen.files.files <= 7, "{:?}", chosen.files);
    }
}
