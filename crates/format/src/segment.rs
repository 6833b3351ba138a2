//! Segments: runs of chunk records, about 2 MiB of data each, shared by all versions that contain
//! them.
//!
//! A segment is itself a chunk in a metadata container. Nothing in it changes when another version
//! takes it over, so an unchanged stretch of a stream costs no new bytes at all.
//!
//! | field        | size         | meaning                                                                              |
//! |--------------|--------------|--------------------------------------------------------------------------------------|
//! | version      | 1            | 2                                                                                    |
//! | places       | …            | jobs and containers, `places.rs`                                                     |
//! | run count    | varint       | runs of records that lie back to back in one container and were born together        |
//! | runs         | a row a run  | kind (1 byte, 0 = chunks, 1 = a superchunk begins, 2 = it goes on), varint container, varint born, varint first offset, varint records; where a superchunk begins 16 bytes of MAC |
//! | even         | varint       | size of every record, or 0 when a column of sizes follows                             |
//! | sizes        | varint each  | only when `even` is 0                                                                |
//! | fingerprints | 32 each      |                                                                                      |
//!
//! `born` is 0 when the chunk was new to the series in the job that wrote its container, which is
//! the most frequent case. Otherwise, it is 1 + the number of the job whose version first had it.
//! How long a chunk has stayed duplicate follows from it, so a record never changes. About 34 bytes
//! a chunk.
//!
//! A **superchunk** is a run that has stayed duplicate for many versions (SlimStore section IV-C).
//! It is a view: its chunks are listed like all others and nothing is stored twice. One MAC over
//! its bytes proves all of it unchanged; when that fails its chunks are looked at one by one.

use crate::Fingerprint;
use crate::container::ChunkRef;
use crate::ids::JobId;
use crate::places::{Places, PlacesWriter};
use crate::wire::{DecodeError, EncodeError, Put, Reader};

const WHAT: &str = "segment";
const KIND_CHUNKS: u8 = 0;
const KIND_SUPERCHUNK: u8 = 1;
const KIND_CONTINUED: u8 = 2;

/// One chunk of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkRecord {
    /// The chunk and its place.
    pub chunk: ChunkRef,
    /// The version (by its job) that first had this chunk in this series.
    pub born: JobId,
}

impl ChunkRecord {
    /// Whether `next` continues the run that `self` is in.
    pub fn continues(&self, next: &Self) -> bool {
        next.chunk.container == self.chunk.container
            && Some(next.chunk.offset) == self.chunk.offset.checked_add(self.chunk.size)
            && next.born == self.born
    }
}

/// Records in a row that are proved as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Superchunk {
    /// Number of its first record in the segment.
    pub first: usize,
    /// Number of records; their chunks may be in any containers.
    pub records: usize,
    /// The MAC (`larder_chunking::RunMac`) over their bytes.
    pub mac: [u8; 16],
}

/// The content of a segment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Segment {
    /// Its records, in stream order.
    pub records: Vec<ChunkRecord>,
    /// Runs of them, in order and apart from one another.
    pub superchunks: Vec<Superchunk>,
}

/// The fields of a row, without the places of adjacent records.
#[derive(Clone, Copy)]
enum Row<'a> {
    Chunks,
    Superchunk(&'a [u8; 16]),
    Continued,
}

/// The rows that a segment is written in.
fn rows<'a>(
    records: &'a [ChunkRecord],
    superchunks: &'a [Superchunk],
) -> Result<Vec<(&'a [ChunkRecord], Row<'a>)>, EncodeError> {
    check_superchunks(superchunks, records.len()).map_err(|why| EncodeError::new(WHAT, why))?;
    let mut rows = Vec::new();
    let mut at = 0;
    let runs = |from: usize, to: usize| records[from..to].chunk_by(|a, b| a.continues(b));
    for superchunk in superchunks {
        let end = superchunk.first + superchunk.records;
        rows.extend(runs(at, superchunk.first).map(|run| (run, Row::Chunks)));
        let kinds = std::iter::once(Row::Superchunk(&superchunk.mac)).chain(std::iter::repeat(Row::Continued));
        rows.extend(runs(superchunk.first, end).zip(kinds));
        at = end;
    }
    rows.extend(runs(at, records.len()).map(|run| (run, Row::Chunks)));
    Ok(rows)
}

/// Whether superchunks have records, are in order and apart, and end within this number of
/// records.
pub(crate) fn check_superchunks(superchunks: &[Superchunk], records: usize) -> Result<(), &'static str> {
    let mut at = 0;
    for superchunk in superchunks {
        let end = superchunk.first.checked_add(superchunk.records).filter(|end| *end <= records);
        let end = end.filter(|end| at <= superchunk.first && superchunk.first < *end);
        at = end.ok_or("a superchunk is empty, out of order or out of bounds")?;
    }
    Ok(())
}

/// Encodes a segment. Equal contents give equal bytes.
pub fn encode(records: &[ChunkRecord], superchunks: &[Superchunk]) -> Result<Vec<u8>, EncodeError> {
    for record in records {
        let ChunkRef { offset, size, .. } = record.chunk;
        if size == 0 || offset.checked_add(size).is_none() {
            return Err(EncodeError::new(WHAT, "a chunk has no bytes or lies outside of any container"));
        }
    }
    let mut places = PlacesWriter::default();
    let runs = rows(records, superchunks)?;
    let mut rows = Vec::new();
    for (run, row) in &runs {
        let first = &run[0];
        rows.put_u8(match row {
            Row::Chunks => KIND_CHUNKS,
            Row::Superchunk(_) => KIND_SUPERCHUNK,
            Row::Continued => KIND_CONTINUED,
        });
        rows.put_varint(places.container(first.chunk.container));
        let born = if first.born == first.chunk.container.job { 0 } else { places.job(first.born) + 1 };
        rows.put_varint(born);
        rows.put_varint(u64::from(first.chunk.offset));
        rows.put_varint(run.len() as u64);
        if let Row::Superchunk(mac) = row {
            rows.extend_from_slice(*mac);
        }
    }
    let mut out = Vec::with_capacity(64 + rows.len() + records.len() * 35);
    out.put_u8(2);
    places.encode(&mut out);
    out.put_varint(runs.len() as u64);
    out.extend_from_slice(&rows);
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
pub fn decode(bytes: &[u8]) -> Result<Segment, DecodeError> {
    let mut reader = Reader::new(bytes, WHAT);
    reader.version(2)?;
    let places = Places::decode(&mut reader)?;
    // A run's row takes 5 bytes, and each of its records has a fingerprint further on.
    let run_count = reader.count(5 + 32)?;
    let mut runs = Vec::with_capacity(run_count);
    let mut superchunks: Vec<Superchunk> = Vec::new();
    let mut total = 0usize;
    for _ in 0..run_count {
        let kind = reader.u8()?;
        let container = places.container(&mut reader)?;
        let born = match reader.varint()? {
            0 => container.job,
            number => places.job(number - 1, &reader)?,
        };
        let offset = reader.varint_u32()?;
        // Every record has a fingerprint further on, which bounds the count.
        let records = reader.count(32)?;
        match (kind, superchunks.last_mut()) {
            (KIND_CHUNKS, _) => {}
            (KIND_SUPERCHUNK, _) => superchunks.push(Superchunk { first: total, records, mac: reader.array()? }),
            (KIND_CONTINUED, Some(superchunk)) if superchunk.first + superchunk.records == total => {
                superchunk.records += records;
            }
            (KIND_CONTINUED, _) => return Err(reader.invalid("a row goes on with a superchunk that did not begin")),
            _ => return Err(reader.invalid("it holds records of a kind this program does not know")),
        }
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
    Ok(Segment { records, superchunks })
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
        assert!(encode(&records, &[]).expect("in bounds").len() <= 512 * 34 + 64);
        assert!(encode(&sequential(&[4096; 512]), &[]).expect("in bounds").len() <= 512 * 32 + 64);
    }

    #[test]
    fn chunks_that_no_reader_accepts_are_not_encoded() {
        for (offset, size) in [(0, 0), (u32::MAX, 1), (1, u32::MAX)] {
            let mut records = sequential(&[10, 20]);
            (records[1].chunk.offset, records[1].chunk.size) = (offset, size);
            assert!(encode(&records, &[]).is_err(), "{offset} {size}");
        }
    }

    #[test]
    fn a_row_that_goes_on_with_nothing_is_refused() {
        let records = [sequential(&[10, 20]), sequential(&[30])].concat();
        let superchunk = Superchunk { first: 0, records: 3, mac: [7; 16] };
        let bytes = encode(&records, &[superchunk]).expect("in bounds");
        assert_eq!(decode(&bytes).map(|segment| segment.superchunks), Ok(vec![superchunk]));
        // The second row: its kind comes behind the MAC.
        let second = bytes.windows(16).position(|window| window == [7; 16]).expect("the MAC") + 16;
        assert_eq!(bytes[second], KIND_CONTINUED);
        let mut of_another_kind = bytes.clone();
        of_another_kind[second] = KIND_CONTINUED + 1;
        assert!(decode(&of_another_kind).is_err());
        let mut without_beginning = encode(&records, &[]).expect("in bounds");
        let rows = bytes.len() - 16;
        assert_eq!(without_beginning.len(), rows);
        without_beginning[second - 16] = KIND_CONTINUED;
        assert!(decode(&without_beginning).is_err());
    }

    #[test]
    fn superchunks_that_are_not_there_are_not_encoded() {
        let records = [sequential(&[10, 20, 30]), sequential(&[10])].concat();
        let superchunk = |first, records| Superchunk { first, records, mac: [0; 16] };
        assert!(encode(&records, &[superchunk(0, 3), superchunk(3, 1)]).is_ok());
        assert!(encode(&records, &[superchunk(1, 3)]).is_ok(), "they may go across containers");
        for bad in [
            vec![superchunk(0, 5)],
            vec![superchunk(0, 0)],
            vec![superchunk(3, 2)],
            vec![superchunk(usize::MAX, 2)],
            vec![superchunk(1, 2), superchunk(0, 1)],
            vec![superchunk(0, 2), superchunk(1, 1)],
        ] {
            assert!(encode(&records, &bad).is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(
            scattered in prop::collection::vec(record(), 0..60),
            sizes in prop::collection::vec(1u32..9000, 0..60),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(sizes.len() + 1)).collect();
            cuts.sort_unstable();
            cuts.dedup();
            let superchunks: Vec<_> = cuts
                .chunks_exact(2)
                .map(|cut| Superchunk { first: cut[0], records: cut[1] - cut[0], mac: [cut[0] as u8; 16] })
                .collect();
            let mixed: Vec<_> = sequential(&sizes).into_iter().zip(scattered.iter().cycle()).enumerate()
                .map(|(place, (one, other))| if place % 7 < 5 { one } else { *other })
                .collect();
            // Without any scattered records there is nothing to mix.
            let mixed = if scattered.is_empty() { sequential(&sizes) } else { mixed };
            for (records, superchunks) in [
                (scattered.clone(), Vec::new()),
                (sequential(&sizes), superchunks.clone()),
                (mixed, superchunks.clone()),
                ([sequential(&sizes), scattered].concat(), superchunks),
            ] {
                let bytes = encode(&records, &superchunks).expect("in bounds");
                prop_assert_eq!(decode(&bytes), Ok(Segment { records: records.clone(), superchunks }));
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
