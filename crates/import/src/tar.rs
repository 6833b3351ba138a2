//! Archives of tar as originals: read once from the first byte to the last one, and then in the
//! order of a version.
//!
//! The first reading finds the members, and hashes the archive: the hash is the identity of the
//! original. Contents are then read from the archive itself. If it is compressed, or comes through
//! a pipe, the first reading writes them to a file without a name.
//!
//! * `members`: headers, records, maps of holes, access lists. `order`: into the order of paths.
//!   `entries`: the input of a backup.

mod contents;
mod entries;
mod gzip;
mod members;
mod order;
mod records;
mod rows;
mod sparse;

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

use larder_format::entry::{Entry, EntryKind, Timestamp};
use larder_format::ids::JobId;
use larder_job::{Cancel, Problem};
use larder_lnode::{EntrySource, SourceError, Supplied};

use self::contents::{Contents, Keeping, Spool, stamp};
use self::entries::ArchiveEntries;
use self::gzip::GzipMembers;
use self::members::{Members, Next};
use self::order::{Order, Ordered};
use crate::ImportError;
use crate::original::ForeignId;

/// Bytes of one read of contents.
const READ_BYTES: usize = 256 << 10;

/// The id of the repository that all archives are of: there is none.
pub fn repository() -> ForeignId {
    blake3::derive_key("larder import: the origin of archives of tar", b"")
}

/// How an archive is read.
#[derive(Debug, Clone)]
pub struct ReadOptions {
    /// Folder for data that exceeds memory, in files without names.
    pub scratch: Option<PathBuf>,
    /// Bytes of memory for putting members in order.
    pub memory: usize,
    /// Stops the reading.
    pub cancel: Cancel,
    /// The time for folders that the archive does not have.
    pub made: Timestamp,
}

/// An archive that was read once.
#[derive(Debug)]
pub struct Archive {
    ordered: Ordered,
    contents: Contents,
    hash: blake3::Hash,
    /// What the program says that wrote it.
    warnings: Vec<String>,
}

impl Archive {
    /// Reads a file.
    ///
    /// # Errors
    /// It is no archive, or in a compression that is not known; a temporary file cannot be written.
    /// A truncated or damaged archive is no error: what is missing is a problem of its entries.
    pub fn of_file(file: File, options: &ReadOptions) -> Result<Self, ImportError> {
        let is_regular = file.metadata().is_ok_and(|metadata| metadata.is_file());
        let again = file.try_clone().map_err(ImportError::Read)?;
        Self::read(Box::new(file), is_regular.then_some(again), options, &mut |_| None)
    }

    /// Reads a stream. `correct` may change the times of entries, in the order of the stream.
    ///
    /// # Errors
    /// As with [`Self::of_file`].
    pub fn of_stream(
        stream: Box<dyn Read>,
        options: &ReadOptions,
        correct: &mut dyn FnMut(&mut Entry) -> Option<String>,
    ) -> Result<Self, ImportError> {
        Self::read(stream, None, options, correct)
    }

    fn read(
        input: Box<dyn Read>,
        in_place: Option<File>,
        options: &ReadOptions,
        correct: &mut dyn FnMut(&mut Entry) -> Option<String>,
    ) -> Result<Self, ImportError> {
        let stamp_before = in_place.as_ref().map(stamp).transpose().map_err(ImportError::Read)?;
        let mut hasher = blake3::Hasher::new();
        let mut input = Hashing { input, hasher: &mut hasher, cancel: options.cancel.clone() };
        let mut head = [0; 6];
        let mut filled = 0;
        while filled < head.len() {
            match input.read(&mut head[filled..]).map_err(ImportError::Read)? {
                0 => break,
                got => filled += got,
            }
        }
        let compression = Compression::of(&head[..filled])?;
        let mut whole = (&head[..filled]).chain(&mut input);
        let in_place = in_place.filter(|_| compression == Compression::None);
        let keeping = match (in_place, &options.scratch) {
            (Some(file), _) => {
                let stamp = stamp_before.ok_or(ImportError::NotAnArchive)?;
                Keeping::InPlace(file, stamp)
            }
            (None, Some(scratch)) => Keeping::Spool(Spool::new(scratch).map_err(ImportError::Scratch)?),
            (None, None) => return Err(ImportError::NoScratch),
        };
        let read = match compression {
            Compression::None => read_members(&mut whole, keeping, options, correct),
            Compression::Gzip => {
                let whole = io::BufReader::with_capacity(READ_BYTES, &mut whole);
                read_members(&mut GzipMembers::new(whole), keeping, options, correct)
            }
            Compression::Zstd => {
                let decoder = zstd::Decoder::new(&mut whole).map_err(ImportError::Read)?;
                read_members(&mut { decoder }, keeping, options, correct)
            }
        };
        if options.cancel.is_cancelled() {
            return Err(ImportError::Interrupted);
        }
        let (mut order, keeping) = read?;
        // What follows belongs to the archive's identity, and a pipe wants to be read to its end.
        let rest = io::copy(&mut whole, &mut io::sink());
        if options.cancel.is_cancelled() {
            return Err(ImportError::Interrupted);
        }
        if let Err(error) = rest {
            order
                .problem(b"", format!("the archive cannot be read to its end: {error}"))
                .map_err(ImportError::Scratch)?;
        }
        let ordered = order.finish(options.made).map_err(ImportError::Scratch)?;
        let contents = keeping.finish().map_err(ImportError::Scratch)?;
        Ok(Self { ordered, contents, hash: hasher.finalize(), warnings: Vec::new() })
    }

    /// With these problems, which count as errors of the version.
    pub(crate) fn with_warnings(self, warnings: Vec<String>) -> Self {
        Self { warnings, ..self }
    }

    /// What is wrong with it.
    ///
    /// # Errors
    /// A temporary file cannot be read.
    pub fn problems(&self) -> Result<Vec<Problem>, SourceError> {
        let mut entries = self.entries(None);
        let mut problems = Vec::new();
        while let Some(supplied) = entries.next_entry()? {
            if let Supplied::Problem(problem) = supplied {
                problems.push(problem);
            }
        }
        Ok(problems)
    }

    /// The hash of all its bytes.
    pub fn hash(&self) -> [u8; 32] {
        *self.hash.as_bytes()
    }

    /// The number of its entries, and bytes of their contents.
    pub fn size(&self) -> (u64, u64) {
        (self.ordered.entries, self.ordered.bytes)
    }

    /// The paths at its top, absolute; `/` if they are many.
    pub fn paths(&self) -> Vec<Vec<u8>> {
        match &*self.ordered.tops {
            tops if tops.len() < order::TOPS_MAX => tops.iter().map(|top| [b"/", &**top].concat()).collect(),
            _ => vec![b"/".to_vec()],
        }
    }

    /// The entries. `base`: a version that this machine made of an earlier archive.
    pub fn entries(&self, base: Option<JobId>) -> Box<dyn EntrySource> {
        let Ordered { rows, problems, .. } = &self.ordered;
        let warnings = self.warnings.clone();
        Box::new(ArchiveEntries::new(rows.clone(), problems.clone(), self.contents.clone(), base, warnings))
    }
}

/// How an archive is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compression {
    None,
    Gzip,
    Zstd,
}

impl Compression {
    /// By the first bytes.
    fn of(head: &[u8]) -> Result<Self, ImportError> {
        let unknown = [
            (&b"BZh"[..], "bzip2"),
            (b"\xfd7zXZ", "xz"),
            (b"LZIP", "lzip"),
            (b"\x04\x22\x4d\x18", "lz4"),
            (b"\x1f\x9d", "compress"),
            (b"\x89LZO", "lzop"),
        ];
        match head {
            head if head.starts_with(b"\x1f\x8b") => Ok(Self::Gzip),
            head if head.starts_with(b"\x28\xb5\x2f\xfd") => Ok(Self::Zstd),
            head => match unknown.iter().find(|(magic, _)| head.starts_with(magic)) {
                Some((_, name)) => Err(ImportError::Compression { name }),
                None => Ok(Self::None),
            },
        }
    }
}

/// Hashes all bytes that are read.
struct Hashing<'a> {
    input: Box<dyn Read>,
    hasher: &'a mut blake3::Hasher,
    cancel: Cancel,
}

impl Read for Hashing<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.cancel.is_cancelled() {
                return Err(io::Error::other("interrupted"));
            }
            match self.input.read(buffer) {
                // A signal is no damage.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                got => {
                    let got = got?;
                    self.hasher.update(&buffer[..got]);
                    return Ok(got);
                }
            }
        }
    }
}

/// Takes all members of an archive. Where it is truncated, the rest is a problem.
fn read_members(
    input: &mut dyn Read,
    mut keeping: Keeping,
    options: &ReadOptions,
    correct: &mut dyn FnMut(&mut Entry) -> Option<String>,
) -> Result<(Order, Keeping), ImportError> {
    let mut order = Order::new(options.scratch.clone(), options.memory);
    let mut members = Members::new(io::BufReader::with_capacity(READ_BYTES, input));
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let step = match members.next() {
            Ok(Next::End) if members.has_begun() => break,
            Ok(Next::End) => return Err(ImportError::NotAnArchive),
            Err(error) if !members.has_begun() => return Err(not_an_archive(error)),
            Err(error) => {
                let at = members.position();
                order.problem(b"", format!("the archive is truncated or damaged at byte {at}: {}", reason(&error)))
            }
            Ok(Next::Damaged(why)) => {
                order.damage(why).map_err(ImportError::Scratch)?;
                continue;
            }
            Ok(Next::Refused(name, why)) => {
                order.problem(&printable(name), why).map_err(ImportError::Scratch)?;
                continue;
            }
            Ok(Next::Member(mut member)) => {
                if let Some(why) = correct(&mut member.entry) {
                    order.problem(&member.entry.path, why).map_err(ImportError::Scratch)?;
                    continue;
                }
                for why in member.problems {
                    order.problem(&member.entry.path, why).map_err(ImportError::Scratch)?;
                }
                let is_file = matches!(member.entry.kind, EntryKind::File { .. });
                let offset = match &keeping {
                    Keeping::InPlace(..) => members.position(),
                    Keeping::Spool(spool) => spool.end(),
                };
                match if is_file { keep(&mut members, &mut keeping, &mut buffer) } else { Ok(Ok(())) } {
                    Err(error) => Err(error),
                    Ok(Ok(())) => {
                        order.member(member.entry, offset).map_err(ImportError::Scratch)?;
                        continue;
                    }
                    Ok(Err(error)) => {
                        let why = format!("the archive ends or is damaged within its contents: {}", reason(&error));
                        order.problem(&member.entry.path, why)
                    }
                }
            }
        };
        step.map_err(ImportError::Scratch)?;
        break;
    }
    // The rest has the checksum of a compressed archive, and should have nothing else.
    let mut rest = members.into_input();
    let is_zero = loop {
        match rest.read(&mut buffer) {
            Ok(0) => break Ok(true),
            Ok(got) if buffer[..got].iter().any(|byte| *byte != 0) => break Ok(false),
            Ok(_) => {}
            Err(error) => break Err(error),
        }
    };
    let why = match is_zero {
        Ok(true) => None,
        Ok(false) => Some("something follows behind the end of the archive; it was not imported".to_owned()),
        Err(error) => Some(format!("the end cannot be read, so any file may be damaged: {}", reason(&error))),
    };
    if let Some(why) = why {
        io::copy(&mut rest, &mut io::sink()).ok();
        order.problem(b"", why).map_err(ImportError::Scratch)?;
    }
    Ok((order, keeping))
}

/// Keeps the contents of the last member. The inner error is one of the archive.
fn keep<R: Read>(
    members: &mut Members<R>,
    keeping: &mut Keeping,
    buffer: &mut [u8],
) -> io::Result<Result<(), io::Error>> {
    loop {
        let got = match members.read(buffer) {
            Ok(0) => return Ok(Ok(())),
            Ok(got) => got,
            Err(error) => return Ok(Err(error)),
        };
        if let Keeping::Spool(spool) = keeping {
            spool.push(&buffer[..got])?;
        }
    }
}

/// Bytes of a refused name that a message shows.
const NAME_SHOWN_MAX: usize = 4096;

/// A name as a path of messages. It may have any bytes but NUL.
fn printable(mut name: Vec<u8>) -> Vec<u8> {
    name.retain(|byte| *byte != 0);
    name.truncate(NAME_SHOWN_MAX);
    name
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "it ends here".to_owned(),
        _ => error.to_string(),
    }
}

fn not_an_archive(error: io::Error) -> ImportError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData => ImportError::NotAnArchive,
        _ => ImportError::Read(error),
    }
}
