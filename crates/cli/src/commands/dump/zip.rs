//! A folder as a zip archive, for systems without tar: names, contents, times, modes and symbolic
//! links. Owners, attributes, devices and FIFOs are left out; hard links become separate files.

use std::io::{self, Write};

use ::zip::result::ZipError;
use ::zip::write::{FileOptions, SimpleFileOptions, StreamWriter};
use ::zip::{CompressionMethod, DateTime, ZipWriter};
use jiff::tz::TimeZone;
use larder_format::entry::{Entry, EntryKind};
use larder_reader::VersionReader;
use larder_source::PathText;

use super::{copy_exactly, name_below};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::output_failed;

/// From this size on the archive needs wider fields.
const LARGE: u64 = u32::MAX as u64;

/// Writes all below the folder `top`.
pub(super) fn write(reader: &VersionReader, top: &[u8], out: &mut dyn Write) -> Result<(), Failure> {
    let mut zip = ZipWriter::new_stream(out);
    let written = write_entries(reader, top, &mut zip);
    match written {
        Ok(()) => zip.finish().map(drop).map_err(zip_failed),
        Err(failure) => {
            // Dropping it would write an end, but a truncated archive must not look complete.
            std::mem::forget(zip);
            Err(failure)
        }
    }
}

type Stream<'o> = ZipWriter<StreamWriter<&'o mut dyn Write>>;

fn write_entries(reader: &VersionReader, top: &[u8], zip: &mut Stream<'_>) -> Result<(), Failure> {
    let mut links = Vec::new();
    reader.visit_contents(top, |entry, content| {
        let name = PathText(name_below(&entry.path, top)).to_string();
        if name.is_empty() {
            return Ok(());
        }
        match &entry.kind {
            EntryKind::File { .. } => {
                zip.start_file(name, options(entry)).map_err(zip_failed)?;
                copy_exactly(content, zip, entry)
            }
            EntryKind::Directory => zip.add_directory(name, options(entry)).map_err(zip_failed),
            EntryKind::Symlink { target } => {
                zip.add_symlink(name, PathText(target).to_string(), options(entry)).map_err(zip_failed)
            }
            EntryKind::HardLink { target } => {
                links.push((name, target.clone()));
                Ok(())
            }
            EntryKind::Fifo | EntryKind::CharDevice { .. } | EntryKind::BlockDevice { .. } => Ok::<(), Failure>(()),
        }
    })?;
    for (name, target) in links {
        reader.visit_contents(&target, |entry, content| {
            if !matches!(entry.kind, EntryKind::File { .. }) {
                return Ok(());
            }
            zip.start_file(name.as_str(), options(entry)).map_err(zip_failed)?;
            copy_exactly(content, zip, entry)
        })?;
    }
    Ok(())
}

fn options(entry: &Entry) -> SimpleFileOptions {
    let options: SimpleFileOptions = FileOptions::default();
    options
        .compression_method(CompressionMethod::Deflated)
        .unix_permissions(entry.mode & 0o777)
        .last_modified_time(modified(entry))
        .large_file(entry.size() >= LARGE)
}

/// Local time in the format's resolution of two seconds; the minimum for years that it cannot
/// express.
fn modified(entry: &Entry) -> DateTime {
    let local = jiff::Timestamp::from_second(entry.mtime.seconds).ok().map(|time| time.to_zoned(TimeZone::system()));
    let date = local.and_then(|time| {
        let year = u16::try_from(time.year()).ok()?;
        let field = |value: i8| u8::try_from(value).ok();
        let (month, day) = (field(time.month())?, field(time.day())?);
        let (hour, minute, second) = (field(time.hour())?, field(time.minute())?, field(time.second())?);
        DateTime::from_date_and_time(year, month, day, hour, minute, second).ok()
    });
    date.unwrap_or_default()
}

fn zip_failed(error: ZipError) -> Failure {
    match error {
        ZipError::Io(error) => output_failed(io::Error::new(error.kind(), error)),
        error => Failure::of(Exit::Failed, &error).while_doing("cannot write the archive"),
    }
}
