//! Digests name contents: every content has one digest, another content another.

use super::*;
use crate::Fingerprint;
use crate::container::ChunkRef;
use crate::ids::{ContainerId, ContainerKind, JobId};

fn record(byte: u8, size: u32) -> ChunkRecord {
    let container = ContainerId { kind: ContainerKind::Data, job: JobId([byte; 16]), seq: 0 };
    let chunk = ChunkRef { fingerprint: Fingerprint([byte; 32]), container, offset: u32::from(byte), size };
    ChunkRecord { chunk, born: container.job }
}

fn segment() -> Segment {
    let records = vec![record(1, 100), record(2, 200), record(3, 300), record(4, 400)];
    let superchunks = vec![Superchunk { first: 1, records: 2, mac: [9; 16] }];
    Segment { records, superchunks }
}

fn row() -> SegmentRef {
    let Segment { records, superchunks } = segment();
    let cover = Some(Cover { first_path: b"etc/fstab".to_vec(), data_bytes: 77 });
    let proof = Some(Proof { mac: [7; 16], cutter: 1, tail: vec![300, 400] });
    SegmentRef {
        chunk: record(5, 500).chunk,
        bases: Vec::new(),
        content: of_segment(&records, &superchunks, cover.as_ref(), proof.as_ref()),
        bytes: 1000,
        chunks: 4,
        samples: vec![1],
        uses: Vec::new(),
        cover,
        proof,
    }
}

fn node() -> (NodeRef, Vec<SegmentRef>) {
    let segments = vec![row(), SegmentRef { bytes: 24, chunks: 1, ..row() }];
    let node = NodeRef {
        chunk: record(6, 600).chunk,
        content: of_node(&segments),
        bytes: 1024,
        chunks: 5,
        segments: 2,
        cover: cover_of(&segments),
    };
    (node, segments)
}

#[test]
fn version_2_digests_never_change() {
    let stream = of_stream(&[node().0]);
    let all = [row().content, node().0.content, stream, of_stream(&[])].map(|digest| digest.to_string());
    let golden = include_str!("../golden/content_v2.txt");
    assert_eq!(all.join("\n"), golden.trim());
}

/// Another implementation of the table above, byte by byte.
#[test]
fn a_segment_is_digested_as_documented() {
    let mut input = Vec::new();
    for (byte, size) in [(1_u8, 100_u32), (2, 200), (3, 300), (4, 400)] {
        input.extend_from_slice(&[byte; 32]);
        input.extend_from_slice(&size.to_le_bytes());
    }
    for number in [1_u32, 1, 2] {
        input.extend_from_slice(&number.to_le_bytes());
    }
    input.extend_from_slice(&[9; 16]);
    input.push(1);
    input.extend_from_slice(&77_u64.to_le_bytes());
    input.extend_from_slice(&9_u32.to_le_bytes());
    input.extend_from_slice(b"etc/fstab");
    input.push(1);
    input.extend_from_slice(&[7; 16]);
    input.extend_from_slice(&[1, 2]);
    input.extend_from_slice(&300_u32.to_le_bytes());
    input.extend_from_slice(&400_u32.to_le_bytes());
    assert_eq!(row().content.0, blake3::derive_key("Larder format 2: content of a segment", &input));
}

#[test]
fn every_part_of_a_segment_counts_and_no_place_does() {
    assert_eq!(check_segment(&row(), &segment()), Ok(()));
    let mut moved = segment();
    for record in &mut moved.records {
        (record.chunk.offset, record.chunk.container.seq) = (12, 34);
        record.born = JobId([99; 16]);
    }
    assert_eq!(check_segment(&row(), &moved), Ok(()));
    let changes: [fn(&mut SegmentRef, &mut Segment); 14] = [
        |_, segment| segment.records[3].chunk.fingerprint.0[31] ^= 1,
        |_, segment| (segment.records[0].chunk.size, segment.records[1].chunk.size) = (200, 100),
        |_, segment| segment.records.swap(0, 1),
        |_, segment| segment.records.truncate(3),
        |_, segment| segment.superchunks.clear(),
        |_, segment| segment.superchunks[0].first = 0,
        |_, segment| segment.superchunks[0].records = 1,
        |_, segment| segment.superchunks[0].mac[0] ^= 1,
        |row, _| row.cover = None,
        |row, _| row.cover.as_mut().expect("some").data_bytes += 1,
        |row, _| row.cover.as_mut().expect("some").first_path = b"etc/fstaa".to_vec(),
        |row, _| row.proof = None,
        |row, _| row.proof.as_mut().expect("some").mac[0] ^= 1,
        |row, _| row.proof.as_mut().expect("some").tail[0] += 1,
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let (mut row, mut segment) = (row(), segment());
        change(&mut row, &mut segment);
        assert!(check_segment(&row, &segment).is_err(), "change {number}");
    }
}

#[test]
fn every_part_of_a_row_counts_and_no_place_does() {
    let (sound, segments) = node();
    assert_eq!(check_node(&sound, &segments), Ok(()));
    let mut moved = segments.clone();
    (moved[0].chunk.offset, moved[0].samples) = (5, vec![6]);
    assert_eq!(check_node(&sound, &moved), Ok(()));
    let changes: [fn(&mut NodeRef, &mut Vec<SegmentRef>); 7] = [
        |_, segments| segments[1].content.0[0] ^= 1,
        |_, segments| (segments[0].bytes, segments[1].bytes) = (24, 1000),
        |_, segments| (segments[0].chunks, segments[1].chunks) = (1, 4),
        |_, segments| drop(segments.pop()),
        |row, _| row.content.0[0] ^= 1,
        |row, _| row.cover = None,
        |row, _| row.segments += 1,
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let (mut row, mut segments) = node();
        change(&mut row, &mut segments);
        assert!(check_node(&row, &segments).is_err(), "change {number}");
    }
}

/// Guards against: records that read as superchunks, or the other way round. The count of records
/// is in the row, so a segment of another length never passes.
#[test]
fn the_count_of_records_is_bound_by_the_node() {
    let (row, other) = (row(), SegmentRef { chunks: 5, ..row() });
    assert_ne!(of_node(&[row]), of_node(&[other]));
}
