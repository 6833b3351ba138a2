//! `larder dump`: writes a file unchanged, a folder as an archive.

mod tar;
mod target;
mod zip;

use std::io::{self, Read, Write};

use larder_format::entry::{Entry, EntryKind};
use larder_format::roles::Roles;
use larder_job::Cancel;
use larder_reader::{ReadError, VersionReader};
use larder_store::RepositoryError;

use self::target::DumpTarget;
use crate::app::App;
use crate::args::{DumpArgs, DumpFormat};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::entries::kind_word;
use crate::output::{absolute, output_failed, summary};
use crate::refs::{self, Versions};

/// Bytes copied at once.
const COPY_BYTES: usize = 256 << 10;

pub(super) fn run(app: &App, args: &DumpArgs) -> Result<Exit, Failure> {
    let reference = refs::parse(&args.snapshot)?;
    let path = refs::one_path(&reference, args.inside.as_ref())?.unwrap_or_default();
    let opened = app.open()?;
    opened.repository.require(Roles::RESTORE, "a dump")?;
    let versions = Versions::load_named(app, &opened.repository, &args.filter, &[&reference.snapshot])?;
    let version = versions.find(app, &reference.snapshot)?;
    let context = app.reading(opened.repository);
    let (version, reading, manifest) = refs::begin(app, &context, version, &args.filter, &reference.snapshot)?;
    let reader = VersionReader::new(&context, manifest).fetching(app.fetching(&args.fetch)?);
    let dumped = dump_to(app, args, &reader, &path);
    let dumped = match dumped {
        // Chunks that are missing because the snapshot was forgotten are not damaged.
        Err(failure) if failure.exit == Exit::Damage && reading.is_forgotten() => {
            Err(ReadError::Forgotten { id: version.id() }.into())
        }
        dumped => dumped,
    };
    reading.end();
    dumped
}

fn dump_to(app: &App, args: &DumpArgs, reader: &VersionReader, path: &[u8]) -> Result<Exit, Failure> {
    let is_folder = match path.is_empty() {
        true => true,
        false => is_folder(reader, path)?,
    };
    if args.target.is_none() && app.out.stdout_is_terminal() && is_folder {
        return Err(Failure::usage("an archive is not written to a terminal")
            .advise("use --target FILE, or send the output to a file or program"));
    }
    let archive = is_folder.then_some(args.archive);
    match &args.target {
        None => dump(reader, path, archive, &mut app.out.bytes())?,
        Some(target) => {
            // A signal must not leave a partial file behind, from the moment it is created.
            let cancel = app.interrupts.job_begins();
            let mut target = Interruptible { target: DumpTarget::create(target)?, cancel };
            let dumped = dump(reader, path, archive, &mut target);
            if target.cancel.is_cancelled() {
                return Err(Failure::new(Exit::Interrupted, "the dump was interrupted"));
            }
            dumped.map_err(|failure| target.target.failure().unwrap_or(failure))?;
            target.target.finish()?;
        }
    }
    let fetched = reader.fetched();
    if app.out.verbose() > 0 {
        // Standard output is used for the contents.
        app.out.remark(&summary::fetched(&fetched));
    }
    if args.target.is_some() && app.out.is_json() {
        let mut object = serde_json::Map::new();
        object.insert("message_type".to_owned(), "summary".into());
        object.insert("bytes_dumped".to_owned(), fetched.used.into());
        summary::put_fetched(&mut object, &fetched);
        app.out.json(&object)?;
    }
    Ok(Exit::Done)
}

/// A target that refuses data once the user wants to stop.
struct Interruptible {
    target: DumpTarget,
    cancel: Cancel,
}

impl Write for Interruptible {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.cancel.is_cancelled() { Err(io::Error::other("interrupted")) } else { self.target.write(bytes) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.target.flush()
    }
}

fn is_folder(reader: &VersionReader, path: &[u8]) -> Result<bool, Failure> {
    let refuse = |why: String| Err(Failure::new(Exit::Failed, why).advise("`larder ls` shows what the snapshot has"));
    match reader.entry(path)?.map(|entry| entry.kind) {
        None => refuse(format!("{} has no {}", refs::shown(&reader.manifest().summary), absolute(path))),
        Some(EntryKind::Directory) => Ok(true),
        Some(EntryKind::File { .. } | EntryKind::HardLink { .. }) => Ok(false),
        Some(other) => refuse(format!("{} is neither a file nor a folder but a {}", absolute(path), kind_word(&other))),
    }
}

/// Writes a file unchanged, or a folder as the given kind of archive.
fn dump(reader: &VersionReader, path: &[u8], archive: Option<DumpFormat>, out: &mut dyn Write) -> Result<(), Failure> {
    match archive {
        None => {
            let mut found = false;
            reader.visit_contents(path, |entry, content| {
                found = true;
                copy(content, out, &entry.path).map(drop)
            })?;
            if !found {
                return Err(Failure::new(
                    Exit::Failed,
                    format!("{} has no content of {}", refs::shown(&reader.manifest().summary), absolute(path)),
                ));
            }
        }
        Some(DumpFormat::Tar) => tar::write(reader, path, out)?,
        Some(DumpFormat::Zip) => zip::write(reader, path, out)?,
    }
    out.flush().map_err(output_failed)
}

/// The name an entry has in an archive of the folder `top`; empty for the folder itself.
fn name_below<'e>(entry: &'e [u8], top: &[u8]) -> &'e [u8] {
    match top {
        b"" => entry,
        top => entry.strip_prefix(top).unwrap_or(entry).strip_prefix(b"/").unwrap_or_default(),
    }
}

/// Copies a file's content and returns its size.
fn copy(content: &mut dyn Read, out: &mut dyn Write, path: &[u8]) -> Result<u64, Failure> {
    let mut buffer = vec![0; COPY_BYTES];
    let mut copied = 0;
    loop {
        let count = match content.read(&mut buffer) {
            Ok(0) => return Ok(copied),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(content_failed(error, path)),
        };
        out.write_all(&buffer[..count]).map_err(output_failed)?;
        copied += count as u64;
    }
}

/// Copies exactly the entry's size: the rest of the archive depends on it.
fn copy_exactly(content: &mut dyn Read, out: &mut dyn Write, entry: &Entry) -> Result<(), Failure> {
    let copied = copy(&mut content.take(entry.size()), out, &entry.path)?;
    if copied == entry.size() {
        return Ok(());
    }
    let message = format!("{} has {copied} bytes where {} should be", absolute(&entry.path), entry.size());
    Err(Failure::new(Exit::Damage, message).advise("`larder check --read-data` says more"))
}

/// The failure of reading content, which a reader can only report as an I/O error.
pub(super) fn content_failed(error: io::Error, path: &[u8]) -> Failure {
    let failure = match error.downcast::<RepositoryError>() {
        Ok(error) => Failure::from(error),
        Err(error) => Failure::of(Exit::Failed, &error),
    };
    failure.while_doing(&absolute(path))
}
