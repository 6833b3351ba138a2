//! Segments: runs of chunk records, about 2 MiB of data each, shared by all versions that contain them.
//!
//! A segment is itself a chunk in a metadata container. Nothing in it changes when another version takes it over, so an
//! unchanged stretch of a stream costs no new bytes at all.
//!
//! | field        | size         | meaning                                                                              |
//! |--------------|--------------|--------------------------------------------------------------------------------------|
//! | version      | 1            | 1                                                                                    |
//! | places       | …            | jobs and containers, `places.rs`                                                     |
//! | run count    | varint       | runs of records that lie back to back in one container and were born together        |
//! | runs         | a row a run  | kind (1 byte, 0 = chunks; 1 is reserved for superchunks), varint container, varint born, varint first offset, varint records |
//! | even         | varint       | size of every record, or 0 when a column of sizes follows                             |
//! | sizes        | varint each  | only when `even` is 0                                                                |
//! | fingerprints | 32 each      |                                                                                      |
//!
//! `born` is 0 when the chunk was new to the series in the job that wrote its container (by far the most), else 1 + the
//! number of the job whose version first had it. How long a chunk has stayed duplicate follows from it, so a record never
//! changes (`SEEDS.md` 1.2.7). About 34 bytes a chunk.

use crate::Fingerprint;
use crate::container::ChunkRef;
use crate::ids::JobId;
use crate::places::{Places, PlacesWriter};
use crate::wire::{DecodeError, EncodeError, Put, Reader};

const WHAT: &str = "segment";
const KIND_CHUNKS: u8 = 0;

/// One chunk of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkRecord {
    /// What it is and where it lies.
    pub chunk: ChunkRef,
    /// The version (by its job) that first had this chunk in this series.
    pub born: JobId,
}

impl ChunkRecord {
    /// Whether `next` continues the run that `self` is in.
    fn continues(&self, next: &Self) -> bool {
        next.chunk.container == self.chunk.container
            && Some(next.chunk.offset) == self.chunk.offset.checked_add(self.chunk.size)
            && next.born == self.born
    }
}

/// Encodes the records of one segment. Equal records give equal bytes.
pub fn encode(records: &[ChunkRecord]) -> Result<Vec<u8>, EncodeError> {
    for record in records {
        let ChunkRef { offset, size, .. } = record.chunk;
        if size == 0 || offset.checked_add(size).is_none() {
            return Err(EncodeError::new(WHAT, "a chunk has no bytes or lies outside of any container"));
        }
    }
    let mut places = PlacesWriter::default();
    let mut runs = Vec::new();
    let mut run_count = 0u64;
    for run in records.chunk_by(|a, b| a.continues(b)) {
        let first = &run[0];
        runs.put_u8(KIND_CHUNKS);
        runs.put_varint(places.container(first.chunk.container));
        let born = if first.born == first.chunk.container.job { 0 } else { places.job(first.born) + 1 };
        runs.put_varint(born);
        runs.put_varint(u64::from(first.chunk.offset));
        runs.put_varint(run.len() as u64);
        run_count += 1;
    }
    let mut out = Vec::with_capacity(64 + runs.len() + records.len() * 35);
    out.put_u8(1);
    places.encode(&mut out);
    out.put_varint(run_count);
    out.extend_from_slice(&runs);
    let first_size = records.first().map_or(0, |record| record.chunk.size);
    if records.iter().all(|record| record.chunk.size == first_size) {
        out.put_varint(u64::from(first_size));
    } else {
        out.put_varint(0);
        for record in records {
            out.put_varint(u64::from(record.chunk.size));
        }
    }
    for record in records {
        out.extend_from_slice(&record.chunk.fingerprint.0);
    }
    Ok(out)
}

struct Run {
    first: ChunkRecord,
    records: usize,
}

/// Decodes a segment.
pub fn decode(bytes: &[u8]) -> Result<Vec<ChunkRecord>, DecodeError> {
    let mut reader = Reader::new(bytes, WHAT);
    reader.version(1)?;
    let places = Places::decode(&mut reader)?;
    // A run's row takes 5 bytes, and each of its records has a fingerprint further on.
    let run_count = reader.count(5 + 32)?;
    let mut runs = Vec::with_capacity(run_count);
    let mut total = 0usize;
    for _ in 0..run_count {
        if reader.u8()? != KIND_CHUNKS {
            return Err(reader.invalid("it holds records of a kind this program does not know"));
        }
        let container = places.container(&mut reader)?;
        let born = match reader.varint()? {
            0 => container.job,
            number => places.job(number - 1, &reader)?,
        };
        let offset = reader.varint_u32()?;
        // Every record has a fingerprint further on, which bounds the count.
        let records = reader.count(32)?;
        total += records;
        if records == 0 || total > reader.remaining() / 32 {
            return Err(reader.invalid("its runs hold no or too many records"));
        }
        let chunk = ChunkRef { fingerprint: Fingerprint([0; 32]), container, offset, size: 0 };
        runs.push(Run { first: ChunkRecord { chunk, born }, records });
    }
    let even = reader.varint_u32()?;
    let mut records = Vec::with_capacity(total);
    for run in &runs {
        let mut record = run.first;
        for _ in 0..run.records {
            record.chunk.size = if even == 0 { reader.varint_u32()? } else { even };
            if record.chunk.size == 0 {
                return Err(reader.invalid("a chunk has no bytes"));
            }
            records.push(record);
            let end = record.chunk.offset.checked_add(record.chunk.size);
            record.chunk.offset = end.ok_or_else(|| reader.invalid("a chunk lies outside of any container"))?;
        }
    }
    for record in &mut records {
        record.chunk.fingerprint = Fingerprint(reader.array()?);
    }
    reader.finish()?;
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{ContainerId, ContainerKind};
    use proptest::prelude::*;

    fn record() -> impl Strategy<Value = ChunkRecord> {
        (0u8..3, 0u32..3, any::<bool>(), 0u32..100_000, 1u32..9000, 0u8..3, any::<[u8; 32]>()).prop_map(
            |(job, seq, meta, offset, size, born, fingerprint)| {
                let kind = if meta { ContainerKind::Meta } else { ContainerKind::Data };
                let container = ContainerId { kind, job: JobId([job; 16]), seq };
                let chunk = ChunkRef { fingerprint: Fingerprint(fingerprint), container, offset, size };
                ChunkRecord { chunk, born: JobId([born; 16]) }
            },
        )
    }

    /// Records as a first backup makes them: one container, back to back.
    fn sequential(sizes: &[u32]) -> Vec<ChunkRecord> {
        let container = ContainerId { kind: ContainerKind::Data, job: JobId([1; 16]), seq: 0 };
        let mut offset = 0;
        let place = |(number, size): (usize, &u32)| {
            let fingerprint = Fingerprint([number as u8; 32]);
            let chunk = ChunkRef { fingerprint, container, offset, size: *size };
            offset += size;
            ChunkRecord { chunk, born: container.job }
        };
        sizes.iter().enumerate().map(place).collect()
    }

    #[test]
    fn a_chunk_of_a_first_backup_costs_34_bytes() {
        let records = sequential(&vec![4000; 512].iter().enumerate().map(|(n, s)| s + n as u32).collect::<Vec<_>>());
        assert!(encode(&records).expect("in bounds").len() <= 512 * 34 + 64);
        assert!(encode(&sequential(&[4096; 512])).expect("in bounds").len() <= 512 * 32 + 64);
    }

    #[test]
    fn chunks_that_no_reader_accepts_are_not_encoded() {
        for (offset, size) in [(0, 0), (u32::MAX, 1), (1, u32::MAX)] {
            let mut records = sequential(&[10, 20]);
            (records[1].chunk.offset, records[1].chunk.size) = (offset, size);
            assert!(encode(&records).is_err(), "{offset} {size}");
        }
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(
            scattered in prop::collection::vec(record(), 0..60),
            sizes in prop::collection::vec(1u32..9000, 0..60),
        ) {
            for records in [scattered.clone(), sequential(&sizes), [sequential(&sizes), scattered].concat()] {
                let bytes = encode(&records).expect("in bounds");
                prop_assert_eq!(decode(&bytes), Ok(records.clone()));
                for len in 0..bytes.len() {
                    prop_assert!(decode(&bytes[..len]).is_err());
                }
            }
        }

        #[test]
        fn any_bytes_are_an_error_or_records_not_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode(&bytes);
            let _ = decode(&[&[1], &bytes[..]].concat());
        }
    }
}
