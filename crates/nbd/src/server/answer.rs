//! One request: whether it is allowed, and the bytes of its reply.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::spares::Spares;
use crate::codec::reply::{self, Chunk, DATA_HEADER_LEN};
use crate::codec::request::{Command, Request, flag};
use crate::export::{Abilities, BASE_ALLOCATION, ErrorCode, Export, ExportError, Extent, Zeroing};

/// Extents of one context in one reply.
const EXTENTS_MAX: usize = 4096;
/// Shorter reads are sent as data without a look for holes, and so are shorter holes.
const HOLE_MIN: u64 = 4096;
/// Pieces of data and holes that one reply to a read has at most.
const PIECES_MAX: usize = 64;
/// What a request takes beside its data, in bytes.
const OVERHEAD: usize = 512;

/// What client and server agreed on.
pub(super) struct Agreed {
    pub(super) export: Arc<dyn Export>,
    pub(super) size: u64,
    pub(super) abilities: Abilities,
    /// Offsets and lengths are multiples of this.
    pub(super) minimum: u32,
    /// Longest read or write.
    pub(super) maximum: u32,
    pub(super) structured: bool,
    pub(super) spares: Arc<Spares>,
    /// Selected metadata contexts, and the numbers that they got.
    pub(super) contexts: Vec<(u32, String)>,
}

fn error(code: ErrorCode, message: &str) -> ExportError {
    ExportError::new(code, message)
}

impl Agreed {
    /// Whether the request may be served. It touches nothing.
    pub(super) fn check(&self, request: &Request) -> Result<(), ExportError> {
        use ErrorCode::{Invalid, NoSpace, NotPermitted};
        let Abilities { read_only, flush, fua, trim, write_zeroes, fast_zero, cache, .. } = self.abilities;
        let (known, flags) = match request.command {
            Command::Read => (true, if self.structured { flag::DF } else { 0 }),
            Command::Write => (true, 0),
            Command::Trim => (trim || read_only, 0),
            Command::WriteZeroes => {
                (write_zeroes || read_only, flag::NO_HOLE | if fast_zero { flag::FAST_ZERO } else { 0 })
            }
            Command::Flush => (flush, 0),
            Command::Cache => (cache, 0),
            Command::BlockStatus => (self.structured && !self.contexts.is_empty(), flag::REQ_ONE),
            Command::Disconnect | Command::Unknown(_) => (false, 0),
        };
        if !known {
            return Err(error(Invalid, "this command was not offered"));
        }
        let writes = matches!(request.command, Command::Write | Command::Trim | Command::WriteZeroes);
        if writes && read_only {
            return Err(error(NotPermitted, "the export is read-only"));
        }
        if request.flags & !(flags | if fua { flag::FUA } else { 0 }) != 0 {
            return Err(error(Invalid, "a flag does not belong to this command"));
        }
        if request.command == Command::Flush {
            let plain = request.offset == 0 && request.length == 0;
            return if plain { Ok(()) } else { Err(error(Invalid, "a flush has no range")) };
        }
        let has_data = matches!(request.command, Command::Read | Command::Write);
        if has_data && request.length > self.maximum {
            return Err(error(Invalid, "the request is too long"));
        }
        if request.command == Command::BlockStatus && request.length == 0 {
            return Err(error(Invalid, "the range is empty"));
        }
        let end = request.offset.checked_add(u64::from(request.length));
        if end.is_none_or(|end| end > self.size) {
            let grows = matches!(request.command, Command::Write | Command::WriteZeroes);
            return Err(error(if grows { NoSpace } else { Invalid }, "the range is beyond the end"));
        }
        let mask = u64::from(self.minimum) - 1;
        if (request.offset | u64::from(request.length)) & mask != 0 {
            return Err(error(Invalid, "the range is not aligned to the minimum block size"));
        }
        Ok(())
    }

    /// Bytes of memory that an allowed request takes until its reply is sent.
    pub(super) fn memory(&self, request: &Request) -> usize {
        OVERHEAD
            + match request.command {
                Command::Read | Command::Write => request.length as usize,
                Command::BlockStatus => self.contexts.len() * EXTENTS_MAX * 24,
                _ => 0,
            }
    }

    /// Serves an allowed request and appends the reply. A panic of the export is an error of this
    /// request.
    pub(super) fn answer(&self, request: &Request, data: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        let result = catch_unwind(AssertUnwindSafe(|| self.serve(request, data, out)));
        let result = result.unwrap_or_else(|_| Err(error(ErrorCode::Io, "a bug in the export")));
        if let Err(error) = result {
            out.truncate(start);
            self.refuse(request, &error, out);
        }
    }

    /// Appends an error as the reply.
    pub(super) fn refuse(&self, request: &Request, error: &ExportError, out: &mut Vec<u8>) {
        if self.structured {
            let chunk = Chunk::Error { code: error.code, message: error.message.clone(), offset: None };
            chunk.encode(request.handle, true, out);
        } else {
            reply::simple(request.handle, Some(error.code), out);
        }
    }

    fn serve(&self, request: &Request, data: &[u8], out: &mut Vec<u8>) -> Result<(), ExportError> {
        let (export, offset, length) = (&self.export, request.offset, u64::from(request.length));
        let fua = request.flags & flag::FUA != 0;
        if length > 0 || request.command == Command::Flush {
            match request.command {
                Command::Read => return self.read(request, out),
                Command::BlockStatus => return self.block_status(request, out),
                Command::Write => export.write(offset, data, fua)?,
                Command::Flush => export.flush()?,
                Command::Trim => export.trim(offset, length, fua)?,
                Command::Cache => export.cache(offset, length)?,
                Command::WriteZeroes => {
                    let (no_hole, fast) = (request.flags & flag::NO_HOLE != 0, request.flags & flag::FAST_ZERO != 0);
                    let result = export.write_zeroes(offset, length, Zeroing { no_hole, fast, fua });
                    // Only a fast one may fail so.
                    result.map_err(|error| match error.code {
                        ErrorCode::NotSupported if !fast => ExportError { code: ErrorCode::Io, ..error },
                        _ => error,
                    })?;
                }
                Command::Disconnect | Command::Unknown(_) => {}
            }
        }
        if self.structured {
            Chunk::None.encode(request.handle, true, out);
        } else {
            reply::simple(request.handle, None, out);
        }
        Ok(())
    }

    fn read(&self, request: &Request, out: &mut Vec<u8>) -> Result<(), ExportError> {
        let (handle, offset, length) = (request.handle, request.offset, u64::from(request.length));
        let mut header = Vec::with_capacity(DATA_HEADER_LEN);
        if !self.structured {
            reply::simple(handle, None, &mut header);
            return self.append(&header, offset, request.length, out);
        }
        let whole = request.flags & flag::DF != 0 || length < HOLE_MIN || !self.abilities.sparse_reads;
        let pieces = if whole { vec![(length, false)] } else { self.pieces(offset, length) };
        let mut at = offset;
        for (index, (length, zero)) in pieces.iter().enumerate() {
            // All data is read before anything is sent, so no error can follow the last piece.
            let done = index + 1 == pieces.len();
            if *zero {
                Chunk::Hole { offset: at, length: *length as u32 }.encode(handle, done, out);
            } else {
                header.clear();
                reply::data_header(handle, done, at, *length as u32, &mut header);
                self.append(&header, at, *length as u32, out)?;
            }
            at += length;
        }
        Ok(())
    }

    fn append(&self, header: &[u8], offset: u64, length: u32, out: &mut Vec<u8>) -> Result<(), ExportError> {
        let data = out.len() + header.len();
        let end = data + length as usize;
        if out.is_empty() && out.capacity() < end {
            *out = self.spares.take(end);
            out[..data].copy_from_slice(header);
        } else {
            out.extend_from_slice(header);
            out.resize(end, 0);
        }
        self.export.read(offset, &mut out[data..])
    }

    /// A range as pieces: their lengths, and whether they are zeroes.
    fn pieces(&self, offset: u64, length: u64) -> Vec<(u64, bool)> {
        let extents = self.extents(BASE_ALLOCATION, offset, length, PIECES_MAX).unwrap_or_default();
        let mut pieces: Vec<(u64, bool)> = Vec::new();
        let mut left = length;
        for extent in extents {
            let zero = extent.flags & Extent::ZERO != 0 && extent.length >= HOLE_MIN;
            push_piece(&mut pieces, extent.length, zero);
            left -= extent.length;
        }
        if left > 0 {
            push_piece(&mut pieces, left, false);
        }
        pieces
    }

    fn block_status(&self, request: &Request, out: &mut Vec<u8>) -> Result<(), ExportError> {
        let most = if request.flags & flag::REQ_ONE != 0 { 1 } else { EXTENTS_MAX };
        for (index, (id, name)) in self.contexts.iter().enumerate() {
            let extents = self.extents(name, request.offset, u64::from(request.length), most)?;
            let done = index + 1 == self.contexts.len();
            Chunk::BlockStatus { context: *id, extents }.encode(request.handle, done, out);
        }
        Ok(())
    }

    /// Extents of a range that end within it. Neighbours differ.
    fn extents(&self, context: &str, offset: u64, length: u64, most: usize) -> Result<Vec<Extent>, ExportError> {
        let mut extents: Vec<Extent> = Vec::new();
        let mut left = length;
        for extent in self.export.block_status(context, offset, length, most)? {
            let length = extent.length.min(left);
            if length == 0 {
                continue;
            }
            match extents.last_mut() {
                Some(last) if last.flags == extent.flags => last.length += length,
                _ => extents.push(Extent { length, flags: extent.flags }),
            }
            left -= length;
        }
        extents.truncate(most);
        if extents.is_empty() {
            return Err(error(ErrorCode::Io, "the export knows nothing of this range"));
        }
        Ok(extents)
    }
}

fn push_piece(pieces: &mut Vec<(u64, bool)>, length: u64, zero: bool) {
    match pieces.last_mut() {
        Some(last) if last.1 == zero => last.0 += length,
        _ => pieces.push((length, zero)),
    }
}
