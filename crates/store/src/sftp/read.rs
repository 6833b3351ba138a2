//! Reading objects and looking up their sizes.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::{StreamExt, TryStreamExt, stream};
use larder_format::names;
use russh_sftp::protocol::{FileAttributes, OpenFlags};
use rustix::fs::FileType;
use rustix::io::Errno;

use super::connection::{Connection, PIECES, SMALL};
use super::{Failure, Sftp};
use crate::error::ShortRead;
use crate::error_kind::StoreErrorKind;
use crate::in_its_place::InItsPlace;
use crate::layer::{Call, ReadRange, Reply, WrongSize};

/// The kind of file that attributes tell; a regular one where they say nothing.
pub(super) fn kind(attributes: &FileAttributes) -> FileType {
    match attributes.permissions {
        Some(mode) if mode & 0o170_000 != 0 => FileType::from_raw_mode(mode),
        _ => FileType::RegularFile,
    }
}

/// The kind of what has a name; `None`: nothing.
pub(super) async fn kind_of(sftp: &Sftp, connection: &Connection, name: &str) -> Result<Option<FileType>, Failure> {
    match connection.ask(connection.session.lstat(sftp.path(name))).await {
        Ok(found) => Ok(Some(kind(&found.attrs))),
        Err(failure) if failure.is_not_found() => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// Refuses what is not a file, and gives its size.
fn size_of(attributes: &FileAttributes, name: &str) -> Result<u64, Failure> {
    match kind(attributes) {
        FileType::RegularFile => Ok(attributes.size.unwrap_or(0)),
        // A folder above objects is not in the place of one.
        FileType::Directory if !names::is_object(name) => Err(Failure::Refused(Errno::NOENT.into())),
        wrong => Err(InItsPlace::new(wrong).into()),
    }
}

/// The size of an object, in bytes.
pub(super) async fn size(sftp: &Sftp, connection: &Connection, name: &str) -> Result<u64, Failure> {
    let found = connection.ask(connection.session.lstat(sftp.path(name))).await?;
    size_of(&found.attrs, name)
}

/// Reads a part of an object.
pub(super) async fn read(
    sftp: &Sftp,
    connection: &Connection,
    call: &Call,
    range: &ReadRange,
) -> Result<Reply, Failure> {
    let open = connection.session.open(sftp.path(&call.name), OpenFlags::READ, FileAttributes::empty());
    let _permit = connection.handles.acquire().await;
    let handle = connection.ask_handle(open).await?;
    let answer = opened(connection, call, range, &handle).await;
    // The answer to this does not matter, but the server has few handles.
    let closed = connection.ask(connection.session.close(handle)).await;
    match (answer, closed) {
        (Ok(_), Err(failure)) if failure.is_of_connection() => Err(failure),
        (answer, _) => answer,
    }
}

async fn opened(connection: &Connection, call: &Call, range: &ReadRange, handle: &str) -> Result<Reply, Failure> {
    let stat = async {
        let found = connection.ask(connection.session.fstat(handle)).await?;
        size_of(&found.attrs, &call.name)
    };
    let wrong = |size: WrongSize| Failure::Store(size.of(&call.name));
    // A known range is asked for together with the size.
    if let ReadRange::Span(span) = range {
        let (object_size, bytes) =
            futures::join!(stat, body(connection, call, handle, span.start, span.end - span.start));
        let object_size = object_size?;
        range.within(object_size).map_err(wrong)?;
        return Ok(Reply::Bytes { bytes: bytes?, object_size, is_thawed: false });
    }
    let object_size = stat.await?;
    let span = range.within(object_size).map_err(wrong)?;
    let bytes = body(connection, call, handle, span.start, span.end - span.start).await?;
    Ok(Reply::Bytes { bytes, object_size, is_thawed: false })
}

/// Reads exactly `length` bytes from `start` on.
async fn body(connection: &Connection, call: &Call, handle: &str, start: u64, length: u64) -> Result<Bytes, Failure> {
    let handle: Arc<str> = handle.into();
    let short = |got: u64| {
        let short = ShortRead { expected: length, got };
        Failure::Store(call.error(StoreErrorKind::Damaged).because(short))
    };
    let capacity = usize::try_from(length).map_err(|_| short(0))?;
    let pieces = (0..length.div_ceil(connection.read_piece)).map(|piece| {
        let from = piece * connection.read_piece;
        let wanted = connection.read_piece.min(length - from);
        fetch(connection, handle.clone(), start + from, wanted)
    });
    let mut fetched = stream::iter(pieces).buffered(PIECES);
    let mut bytes = BytesMut::with_capacity(capacity.min(64 << 20));
    while let Some(piece) = fetched.try_next().await? {
        // In order, and one after the other: while one piece waits for the limit on downloads, no
        // other one may say that nothing waits.
        call.received(piece.len()).await;
        bytes.extend_from_slice(&piece);
        if (bytes.len() as u64) < length && (piece.len() as u64) < connection.read_piece {
            return Err(short(bytes.len() as u64));
        }
    }
    if bytes.len() == capacity { Ok(bytes.freeze()) } else { Err(short(bytes.len() as u64)) }
}

/// Reads one piece; shorter where the file ends.
async fn fetch(connection: &Connection, handle: Arc<str>, offset: u64, wanted: u64) -> Result<Vec<u8>, Failure> {
    let mut piece = Vec::new();
    while (piece.len() as u64) < wanted {
        let (at, left) = (offset + piece.len() as u64, wanted - piece.len() as u64);
        // A small part does not wait behind large ones.
        let permit = if wanted > SMALL { connection.pieces.acquire().await.ok() } else { None };
        let left = u32::try_from(left).unwrap_or(u32::MAX);
        let Some(answer) = connection.ask_on(connection.session.read(&*handle, at, left)).await? else { break };
        let data = answer.data;
        drop(permit);
        if data.is_empty() || data.len() > left as usize {
            break;
        }
        if piece.is_empty() { piece = data } else { piece.extend_from_slice(&data) }
    }
    Ok(piece)
}
