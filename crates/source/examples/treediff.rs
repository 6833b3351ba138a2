//! `treediff [--no-owner] [--no-root] [--skip-sockets] A B`: every difference between two trees, one a line.
//!
//! The judge of restore tests: is B what A was? Compared are names, types, modes, owners, sizes, times to the nanosecond, link
//! targets, device numbers, all extended attributes, which names are hard links of one another, whether B has lost holes of A, and
//! content byte for byte. Nothing of the product is used, so that they cannot share a mistake. Access and change times are not
//! compared: looking changes them, and they cannot be set.
//!
//! Exit code 0: no difference; 1: differences; 2: it could not be found out.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for people and scripts")]

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, SeekFrom, Stat};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit};

/// Bytes compared at once.
const PIECE_BYTES: usize = 1 << 18;

/// How much more of B may be allocated than of A before holes count as lost: file systems round and keep tables.
const ALLOCATION_SLACK: u64 = 256 << 10;

/// What is left out of the comparison.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Options {
    /// Owners and groups, which a normal user cannot restore.
    pub(crate) no_owner: bool,
    /// The metadata of A and B themselves.
    pub(crate) no_root: bool,
    /// Sockets in A, which no backup has.
    pub(crate) skip_sockets: bool,
}

fn main() -> ExitCode {
    let mut options = Options::default();
    let mut roots = Vec::new();
    for argument in std::env::args_os().skip(1) {
        match argument.as_bytes() {
            b"--no-owner" => options.no_owner = true,
            b"--no-root" => options.no_root = true,
            b"--skip-sockets" => options.skip_sockets = true,
            _ => roots.push(PathBuf::from(argument)),
        }
    }
    let [a, b] = roots.as_slice() else {
        eprintln!("usage: treediff [--no-owner] [--no-root] [--skip-sockets] A B");
        return ExitCode::from(2);
    };
    match differences(a, b, options) {
        Ok(found) if found.is_empty() => ExitCode::SUCCESS,
        Ok(found) => {
            for line in &found {
                println!("{line}");
            }
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("treediff: {error}");
            ExitCode::from(2)
        }
    }
}

/// All differences, each with its path.
pub(crate) fn differences(a: &Path, b: &Path, options: Options) -> io::Result<Vec<String>> {
    // A descriptor is open for each level; trees may be deeper than the usual limit.
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let _ = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let mut comparison = Comparison { options, found: Vec::new(), links: HashMap::new() };
    let (a, b) = (open_root(a)?, open_root(b)?);
    if !options.no_root {
        comparison.metadata(
            b".",
            &proc_path(&a, None),
            &rustix::fs::fstat(&a)?,
            &proc_path(&b, None),
            &rustix::fs::fstat(&b)?,
        )?;
    }
    comparison.folder(&a, &b, &mut Vec::new())?;
    Ok(comparison.found)
}

/// Device and number.
type Inode = (u64, u64);

struct Comparison {
    options: Options,
    found: Vec<String>,
    /// Of each inode of A with several names: the path of its first, and what inode that path is in B.
    links: HashMap<Inode, (Vec<u8>, Inode)>,
}

impl Comparison {
    fn report(&mut self, path: &[u8], what: impl std::fmt::Display) {
        self.found.push(format!("{}: {what}", path.escape_ascii()));
    }

    fn folder(&mut self, a: &OwnedFd, b: &OwnedFd, path: &mut Vec<u8>) -> io::Result<()> {
        let (names_a, names_b) = (names(a)?, names(b)?);
        for name in names_a.union(&names_b) {
            let length = path.len();
            if length > 0 {
                path.push(b'/');
            }
            path.extend_from_slice(name.as_bytes());
            if !names_a.contains(name) {
                self.report(path, "only in B");
            } else if !names_b.contains(name) {
                let stat = stat_at(a, name)?;
                if !(self.options.skip_sockets && type_of(&stat) == FileType::Socket) {
                    self.report(path, "only in A");
                }
            } else {
                self.pair(a, b, name, path).map_err(|error| {
                    let kind = error.kind();
                    if error.get_ref().is_some() {
                        error
                    } else {
                        io::Error::new(kind, format!("{}: {error}", path.escape_ascii()))
                    }
                })?;
            }
            path.truncate(length);
        }
        Ok(())
    }

    fn pair(&mut self, a: &OwnedFd, b: &OwnedFd, name: &CString, path: &mut Vec<u8>) -> io::Result<()> {
        let (stat_a, stat_b) = (stat_at(a, name)?, stat_at(b, name)?);
        let (type_a, type_b) = (type_of(&stat_a), type_of(&stat_b));
        if type_a != type_b {
            self.report(path, format_args!("type {type_a:?} != {type_b:?}"));
            return Ok(());
        }
        self.metadata(path, &proc_path(a, Some(name)), &stat_a, &proc_path(b, Some(name)), &stat_b)?;
        match type_a {
            FileType::Directory => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let a = rustix::fs::openat(a, name, flags, Mode::empty())?;
                let b = rustix::fs::openat(b, name, flags, Mode::empty())?;
                return self.folder(&a, &b, path);
            }
            FileType::Symlink => {
                let read = |folder| rustix::fs::readlinkat(folder, name, Vec::new());
                let (to_a, to_b) = (read(a)?, read(b)?);
                if to_a != to_b {
                    let (to_a, to_b) = (to_a.as_bytes().escape_ascii(), to_b.as_bytes().escape_ascii());
                    self.report(path, format_args!("link target {to_a} != {to_b}"));
                }
            }
            FileType::CharacterDevice | FileType::BlockDevice if stat_a.st_rdev != stat_b.st_rdev => {
                self.report(path, format_args!("device {:#x} != {:#x}", stat_a.st_rdev, stat_b.st_rdev));
            }
            FileType::RegularFile => {
                let open = |folder| -> io::Result<File> {
                    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                    Ok(File::from(rustix::fs::openat(folder, name, flags, Mode::empty())?))
                };
                if stat_a.st_size == stat_b.st_size
                    && let Some(offset) = first_difference(&open(a)?, &open(b)?)?
                {
                    self.report(path, format_args!("content differs at byte {offset}"));
                }
                let (of_a, of_b) = (allocated(&stat_a), allocated(&stat_b));
                if of_b > of_a + of_a / 8 + ALLOCATION_SLACK {
                    self.report(path, format_args!("holes lost: {of_a} bytes allocated, {of_b} in B"));
                }
            }
            _ => {}
        }
        if stat_a.st_nlink > 1 || stat_b.st_nlink > 1 {
            self.hard_links(path, &stat_a, &stat_b);
        }
        Ok(())
    }

    /// Two names are one inode in B exactly when they are in A.
    fn hard_links(&mut self, path: &[u8], a: &Stat, b: &Stat) {
        let (id_a, id_b) = ((a.st_dev, a.st_ino), (b.st_dev, b.st_ino));
        match self.links.get(&id_a) {
            None => {
                let taken = self.links.values().find(|(_, of_b)| *of_b == id_b).map(|(first, _)| first.clone());
                if let Some(first) = taken {
                    self.report(path, format_args!("a hard link to {} only in B", first.escape_ascii()));
                }
                self.links.insert(id_a, (path.to_vec(), id_b));
            }
            Some((_, of_b)) if *of_b == id_b => {}
            Some((first, _)) => {
                let line = format!("not a hard link to {} in B", first.escape_ascii());
                self.report(path, line);
            }
        }
    }

    fn metadata(&mut self, path: &[u8], a: &CString, stat_a: &Stat, b: &CString, stat_b: &Stat) -> io::Result<()> {
        let bits = |stat: &Stat| stat.st_mode & 0o7777;
        if bits(stat_a) != bits(stat_b) {
            self.report(path, format_args!("mode {:04o} != {:04o}", bits(stat_a), bits(stat_b)));
        }
        if !self.options.no_owner && (stat_a.st_uid, stat_a.st_gid) != (stat_b.st_uid, stat_b.st_gid) {
            let (a, b) = (stat_a, stat_b);
            self.report(path, format_args!("owner {}:{} != {}:{}", a.st_uid, a.st_gid, b.st_uid, b.st_gid));
        }
        if type_of(stat_a) == FileType::RegularFile && stat_a.st_size != stat_b.st_size {
            self.report(path, format_args!("size {} != {}", stat_a.st_size, stat_b.st_size));
        }
        if (stat_a.st_mtime, stat_a.st_mtime_nsec) != (stat_b.st_mtime, stat_b.st_mtime_nsec) {
            let (a, b) = (stat_a, stat_b);
            let line = format!("mtime {}.{:09} != {}.{:09}", a.st_mtime, a.st_mtime_nsec, b.st_mtime, b.st_mtime_nsec);
            self.report(path, line);
        }
        let (of_a, of_b) = (attributes(a)?, attributes(b)?);
        let all: BTreeSet<_> = of_a.keys().chain(of_b.keys()).collect();
        for name in all {
            let shown = name.escape_ascii();
            match (of_a.get(name), of_b.get(name)) {
                (Some(value_a), Some(value_b)) if value_a == value_b => {}
                (Some(value_a), Some(value_b)) => {
                    let (a, b) = (value_a.escape_ascii(), value_b.escape_ascii());
                    self.report(path, format_args!("attribute {shown}: {a} != {b}"));
                }
                (Some(_), None) => self.report(path, format_args!("attribute {shown} only in A")),
                _ => self.report(path, format_args!("attribute {shown} only in B")),
            }
        }
        Ok(())
    }
}

fn open_root(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
        .map_err(|errno| io::Error::new(io::Error::from(errno).kind(), format!("{}: {errno}", path.display())))
}

fn names(folder: &OwnedFd) -> io::Result<BTreeSet<CString>> {
    let mut names = BTreeSet::new();
    for entry in Dir::read_from(folder)? {
        let name = entry?.file_name().to_owned();
        if !matches!(name.as_bytes(), b"." | b"..") {
            names.insert(name);
        }
    }
    Ok(names)
}

fn stat_at(folder: &OwnedFd, name: &CString) -> io::Result<Stat> {
    Ok(rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?)
}

fn type_of(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

fn allocated(stat: &Stat) -> u64 {
    u64::try_from(stat.st_blocks).unwrap_or(0) * 512
}

/// A path of bounded length to something in an open folder, for the calls that know only paths.
fn proc_path(folder: &OwnedFd, name: Option<&CString>) -> CString {
    let mut path = format!("/proc/self/fd/{}/", folder.as_raw_fd()).into_bytes();
    path.extend_from_slice(name.map_or(b".".as_slice(), |name| name.as_bytes()));
    CString::new(path).expect("names hold no zero")
}

fn attributes(path: &CString) -> io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut buffer = vec![0; 1 << 16];
    let length = match rustix::fs::llistxattr(path, &mut buffer[..]) {
        Err(Errno::OPNOTSUPP) => 0,
        other => other?,
    };
    let list = buffer[..length].to_vec();
    let mut found = BTreeMap::new();
    for name in list.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let length = rustix::fs::lgetxattr(path, name, &mut buffer[..])?;
        found.insert(name.to_vec(), buffer[..length].to_vec());
    }
    Ok(found)
}

/// Where two files of one size differ first. What is a hole in both is not read.
fn first_difference(a: &File, b: &File) -> io::Result<Option<u64>> {
    let mut buffers = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
    let mut at = 0;
    loop {
        at = match (next_data(a, at)?, next_data(b, at)?) {
            (None, None) => return Ok(None),
            (Some(data), None) | (None, Some(data)) => data,
            (Some(of_a), Some(of_b)) => of_a.min(of_b),
        };
        let length = read_some(a, &mut buffers.0, at)?;
        let other = read_some(b, &mut buffers.1, at)?;
        let (of_a, of_b) = (&buffers.0[..length], &buffers.1[..other]);
        if of_a != of_b {
            let into = of_a.iter().zip(of_b).take_while(|(a, b)| a == b).count();
            return Ok(Some(at + into as u64));
        }
        if length == 0 {
            return Ok(None);
        }
        at += length as u64;
    }
}

fn next_data(file: &File, at: u64) -> io::Result<Option<u64>> {
    match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(data) => Ok(Some(data)),
        Err(Errno::NXIO) => Ok(None),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(Some(at)),
        Err(errno) => Err(errno.into()),
    }
}

fn read_some(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], at + filled as u64)? {
            0 => break,
            more => filled += more,
        }
    }
    Ok(filled)
}
