//! The scan of an image: what its data stream is made of, in order.
//!
//! | field            | size    | meaning                                                                 |
//! |------------------|--------:|-------------------------------------------------------------------------|
//! | version          |       1 | 2                                                                       |
//! | kind             |       1 | 0: segments of the base, 1: a segment                                   |
//! | · of 0           | varints | first segment, count (at least 1), bytes of them                        |
//! | · of 1: proof    |       1 | 0: none; else 1 + the cutter, and                                       |
//! | · · mac          |      16 | over the bytes of the segment                                           |
//! | · · tail         | varints | how many, at most 255; lengths of the last chunks                       |
//! | · runs           |  varint | how many, at least 1; for each                                          |
//! | · · kind         |       1 | 0: asked for, 1: the last one asked for again, 2: of the base           |
//! | · · of 0         |         | varint count; sizes, varints; fingerprints, 32 each                     |
//! | · · of 1         |  varint | count                                                                   |
//! | · · of 2         | varints | segment of the base, first record, count, bytes                         |
//!
//! Counts are at least 1, sizes too. Chunks that are asked for are numbered over the whole scan. A
//! chunk that equals the last one that was asked for is not asked for again.

use larder_chunking::Fingerprint;

use crate::recipe::{Proof, TAIL_MAX};
use crate::wire::{DecodeError, EncodeError, Put, Reader};

const WHAT: &str = "item of a scan";
const NO_PROOF: u8 = 0;

/// A run of chunks in a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChunkRun {
    /// Chunks that the base is not known to have here: size in bytes, and fingerprint.
    Asked(Vec<(u32, Fingerprint)>),
    /// The last chunk that was asked for, this number of times more.
    Repeated(u32),
    /// Records of one segment of the base.
    Base {
        /// The segment.
        segment: u32,
        /// Its first record.
        first: u32,
        /// The number of records.
        count: u32,
        /// Their bytes.
        bytes: u64,
    },
}

/// A segment that is to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScannedSegment {
    /// Recognises its bytes, if all of them were read.
    pub proof: Option<Proof>,
    /// Its chunks, in order.
    pub runs: Vec<ChunkRun>,
}

/// See the module header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScanItem {
    /// Segments of the base, as they are.
    Keep {
        /// The first one.
        first: u32,
        /// The number of segments.
        count: u32,
        /// Their bytes.
        bytes: u64,
    },
    /// A segment that is to be written.
    Segment(ScannedSegment),
}

impl ScanItem {
    /// The value of its record.
    pub fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        let mut out = vec![2];
        match self {
            Self::Keep { first, count, bytes } => {
                expect_some(*count as usize)?;
                out.put_u8(0);
                [u64::from(*first), u64::from(*count), *bytes].into_iter().for_each(|number| out.put_varint(number));
            }
            Self::Segment(ScannedSegment { proof, runs }) => {
                out.put_u8(1);
                put_proof(proof.as_ref(), &mut out)?;
                expect_some(runs.len())?;
                out.put_varint(runs.len() as u64);
                runs.iter().try_for_each(|run| put_run(run, &mut out))?;
            }
        }
        Ok(out)
    }

    /// Reads it.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes, WHAT);
        reader.version(2)?;
        let item = match reader.u8()? {
            0 => {
                let (first, count, bytes) = (reader.varint_u32()?, some(&mut reader)?, reader.varint()?);
                let _ = first.checked_add(count).ok_or_else(|| reader.invalid("segments beyond all numbers"))?;
                Self::Keep { first, count, bytes }
            }
            1 => {
                let proof = read_proof(&mut reader)?;
                let count = reader.count(2)?;
                if count == 0 {
                    return Err(reader.invalid("a segment without chunks"));
                }
                let runs = (0..count).map(|_| read_run(&mut reader)).collect::<Result<_, _>>()?;
                Self::Segment(ScannedSegment { proof, runs })
            }
            _ => return Err(reader.invalid("an unknown kind")),
        };
        reader.finish()?;
        Ok(item)
    }
}

fn expect_some(count: usize) -> Result<(), EncodeError> {
    if count == 0 { Err(EncodeError::new(WHAT, "it has none of what it is about")) } else { Ok(()) }
}

/// A number that is at least 1.
fn some(reader: &mut Reader<'_>) -> Result<u32, DecodeError> {
    match reader.varint_u32()? {
        0 => Err(reader.invalid("nothing of what it is about")),
        count => Ok(count),
    }
}

fn put_proof(proof: Option<&Proof>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let Some(Proof { mac, cutter, tail }) = proof else {
        out.put_u8(NO_PROOF);
        return Ok(());
    };
    if tail.len() > TAIL_MAX || *cutter == u8::MAX {
        return Err(EncodeError::new(WHAT, "its proof has a tail that is too long, or an unknown cutter"));
    }
    out.put_u8(cutter + 1);
    out.extend_from_slice(mac);
    out.put_varint(tail.len() as u64);
    tail.iter().for_each(|length| out.put_varint(u64::from(*length)));
    Ok(())
}

fn read_proof(reader: &mut Reader<'_>) -> Result<Option<Proof>, DecodeError> {
    let cutter = match reader.u8()? {
        NO_PROOF => return Ok(None),
        cutter => cutter - 1,
    };
    let mac = reader.array()?;
    let count = reader.count(1)?;
    if count > TAIL_MAX {
        return Err(reader.invalid("a tail that is too long"));
    }
    let tail = (0..count).map(|_| reader.varint_u32()).collect::<Result<_, _>>()?;
    Ok(Some(Proof { mac, cutter, tail }))
}

fn put_run(run: &ChunkRun, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    match run {
        ChunkRun::Asked(chunks) => {
            expect_some(chunks.len())?;
            out.put_u8(0);
            out.put_varint(chunks.len() as u64);
            for (size, _) in chunks {
                expect_some(*size as usize)?;
                out.put_varint(u64::from(*size));
            }
            chunks.iter().for_each(|(_, fingerprint)| out.extend_from_slice(&fingerprint.0));
        }
        ChunkRun::Repeated(count) => {
            expect_some(*count as usize)?;
            out.put_u8(1);
            out.put_varint(u64::from(*count));
        }
        ChunkRun::Base { segment, first, count, bytes } => {
            expect_some(*count as usize)?;
            out.put_u8(2);
            [u64::from(*segment), u64::from(*first), u64::from(*count), *bytes]
                .into_iter()
                .for_each(|number| out.put_varint(number));
        }
    }
    Ok(())
}

fn read_run(reader: &mut Reader<'_>) -> Result<ChunkRun, DecodeError> {
    match reader.u8()? {
        0 => {
            // A size takes a byte at least, and a fingerprint 32.
            let count = reader.count(33)?;
            if count == 0 {
                return Err(reader.invalid("nothing of what it is about"));
            }
            let sizes: Vec<u32> = (0..count).map(|_| some(reader)).collect::<Result<_, _>>()?;
            let chunks = sizes.into_iter().map(|size| Ok((size, Fingerprint(reader.array()?))));
            Ok(ChunkRun::Asked(chunks.collect::<Result<_, DecodeError>>()?))
        }
        1 => Ok(ChunkRun::Repeated(some(reader)?)),
        2 => {
            let (segment, first) = (reader.varint_u32()?, reader.varint_u32()?);
            let (count, bytes) = (some(reader)?, reader.varint()?);
            let _ = first.checked_add(count).ok_or_else(|| reader.invalid("records beyond all numbers"))?;
            Ok(ChunkRun::Base { segment, first, count, bytes })
        }
        _ => Err(reader.invalid("an unknown kind of run")),
    }
}
