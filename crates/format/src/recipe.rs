//! Recipes: the list of segments that rebuilds a stream, in two levels so that neither a manifest
//! nor memory grows with it.
//!
//! A version's manifest lists **recipe nodes**, and a node lists up to [`NODE_SEGMENTS_MAX`]
//! segments. Each row has facts of its segment, known without reading it: its length, a few sampled
//! fingerprints and the containers that it uses. The fingerprints together are SlimStore's recipe
//! index. For metadata streams, the row also has the segment's position in the tree. A node is a
//! chunk in a metadata container, cut by content like a segment. So a version that changes little
//! shares nearly all its nodes.
//!
//! | field    | size         | meaning                                                        |
//! |----------|--------------|----------------------------------------------------------------|
//! | version  | 1            | 3                                                              |
//! | places   | …            | jobs and containers, `places.rs`                               |
//! | count    | varint       | segments                                                       |
//! | segments | a row each   | see below                                                      |
//!
//! A row begins with the segment as a chunk (fingerprint 32, varint container, varint offset,
//! varint size). From version 3 on, 1 byte count of bases and each base as a chunk follow. The next
//! fields are the digest of its content (32, `content.rs`), varint stream bytes and varint chunks.
//! Then follow 1 byte sample count and 8 bytes a sample, and a varint count of uses. Each use is
//! varint container, varint chunks, varint bytes. Then 0, or 1 and the cover: varint data bytes,
//! varint length and bytes of the first path. Then 0, or 1 and the proof: 16 bytes of MAC, 1 byte
//! cutter, 1 byte count and a varint for each length of the tail.

use crate::Fingerprint;
use crate::container::ChunkRef;
use crate::difference;
use crate::ids::{ContainerId, ContentDigest};
use crate::places::{Places, PlacesWriter};
use crate::segment::{self, Segment};
use crate::wire::{DecodeError, EncodeError, Put, Reader};

const WHAT: &str = "recipe node";

/// Number of segments at which a node is closed whatever its content: 8 GiB of data.
pub const NODE_SEGMENTS_MAX: usize = 4096;

/// Chunks that the chunk of a segment may be built on: each costs a read.
pub const BASES_MAX: usize = 3;

/// Bytes that the chunks of a segment with bases may have together. It bounds the memory of a
/// reader, which decodes one after the other.
pub const CHAIN_BYTES_MAX: u64 = 2 << 20;

/// Samples that a segment may have: their count is one byte.
pub const SAMPLES_MAX: usize = 255;

/// The use of one container by a segment. References are counted, so a chunk that a segment names
/// twice counts twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContainerUse {
    /// The container.
    pub container: ContainerId,
    /// Chunk references into it.
    pub chunks: u32,
    /// Their bytes.
    pub bytes: u64,
}

/// The position of a stretch of a metadata stream in the version: lets a reader of one path skip
/// all others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cover {
    /// Path of its first entry.
    pub first_path: Vec<u8>,
    /// Bytes that its entries have in the data stream.
    pub data_bytes: u64,
}

/// Recognises a segment's bytes without cutting or fingerprinting its chunks: a MAC over all of
/// them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    /// The MAC (`larder_chunking::RunMac` under [`crate::keys::Keys::run_mac`]) over the stream's
    /// bytes that the segment describes.
    pub mac: [u8; 16],
    /// How they were cut: 0 = as the repository's configuration says, 1 = at pages.
    pub cutter: u8,
    /// Lengths of the last chunks. Where a cut depends on the bytes behind it, equal bytes are cut
    /// equally only if these ends are confirmed; at most [`TAIL_MAX`].
    pub tail: Vec<u32>,
}

/// Lengths that a proof may have in its tail: their count is one byte.
pub const TAIL_MAX: usize = 255;

/// One segment as its node knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentRef {
    /// The segment's own bytes, a chunk in a metadata container.
    pub chunk: ChunkRef,
    /// The chunks that `chunk` is a difference to (`difference.rs`): first a whole segment, then
    /// differences, each to the one before. Empty: `chunk` is a whole segment. At most
    /// [`BASES_MAX`].
    pub bases: Vec<ChunkRef>,
    /// The digest of its content.
    pub content: ContentDigest,
    /// Bytes of the stream that it describes.
    pub bytes: u64,
    /// Chunk records in it.
    pub chunks: u32,
    /// First 8 bytes (little-endian) of sampled fingerprints; at most [`SAMPLES_MAX`].
    pub samples: Vec<u64>,
    /// Containers of its chunks.
    pub uses: Vec<ContainerUse>,
    /// Only in metadata streams.
    pub cover: Option<Cover>,
    /// Only where the segment is in one large file.
    pub proof: Option<Proof>,
}

impl SegmentRef {
    /// All chunks that are read for the segment: a whole segment, then differences.
    pub fn chain(&self) -> impl Iterator<Item = &ChunkRef> + Clone {
        self.bases.iter().chain([&self.chunk])
    }

    /// Decodes the segment from the bytes of its [chain](Self::chain). An error comes with the
    /// chunk that is wrong. The result is not compared with the row: see
    /// [`crate::content::check_segment`].
    pub fn decode(&self, chain: &[impl AsRef<[u8]>]) -> Result<Segment, (ChunkRef, DecodeError)> {
        let mut last = Segment::default();
        decode_each(self.chain().zip(chain), |segment| last = segment)?;
        Ok(last)
    }
}

/// Decodes chunks of which the first is a whole segment, and every other one a difference to the
/// one before. Gives the segment up to each of them. An error comes with the chunk that is wrong.
pub fn decode_chain<'a, B: AsRef<[u8]> + 'a>(
    chain: impl IntoIterator<Item = (&'a ChunkRef, B)>,
) -> Result<Vec<Segment>, (ChunkRef, DecodeError)> {
    let mut segments = Vec::new();
    decode_each(chain, |segment| segments.push(segment))?;
    Ok(segments)
}

fn decode_each<'a, B: AsRef<[u8]> + 'a>(
    chain: impl IntoIterator<Item = (&'a ChunkRef, B)>,
    mut each: impl FnMut(Segment),
) -> Result<(), (ChunkRef, DecodeError)> {
    let mut before: Option<(&ChunkRef, Segment)> = None;
    for (chunk, bytes) in chain {
        let segment = match &before {
            Some((base, segment)) => difference::decode(bytes.as_ref(), &base.fingerprint, segment),
            None => segment::decode(bytes.as_ref()),
        };
        if let Some((_, segment)) = before.replace((chunk, segment.map_err(|error| (*chunk, error))?)) {
            each(segment);
        }
    }
    before.into_iter().for_each(|(_, segment)| each(segment));
    Ok(())
}

/// The sums of a stretch of a stream. Readers add these numbers, so none may be too large for that.
#[derive(Debug, Default)]
struct Sums {
    bytes: u64,
    chunks: u64,
    segments: u32,
    data_bytes: u64,
}

impl Sums {
    /// Adds one segment or node.
    fn add(&mut self, bytes: u64, chunks: u64, segments: u32, cover: Option<&Cover>) -> Result<(), DecodeError> {
        let data_bytes = cover.map_or(0, |cover| cover.data_bytes);
        let added = (|| {
            Some(Self {
                bytes: self.bytes.checked_add(bytes)?,
                chunks: self.chunks.checked_add(chunks)?,
                segments: self.segments.checked_add(segments)?,
                data_bytes: self.data_bytes.checked_add(data_bytes)?,
            })
        })();
        *self = added.ok_or(DecodeError::invalid("recipe", "its sizes or counts are larger than any stream"))?;
        Ok(())
    }
}

fn check_chunk(chunk: &ChunkRef) -> Result<(), DecodeError> {
    if chunk.size == 0 || chunk.offset.checked_add(chunk.size).is_none() {
        return Err(DecodeError::invalid(WHAT, "a chunk's place is out of bounds"));
    }
    Ok(())
}

const TOO_MANY: &str = "a segment has too many bases";

/// Whether a chunk may have these bases.
fn check_chain(chunk: &ChunkRef, bases: &[ChunkRef]) -> Result<(), &'static str> {
    let bytes: u64 = bases.iter().chain([chunk]).map(|chunk| u64::from(chunk.size)).sum();
    match bases.len() {
        0 => Ok(()),
        1..=BASES_MAX if bytes <= CHAIN_BYTES_MAX => Ok(()),
        1..=BASES_MAX => Err("the chunks of a segment are too large"),
        _ => Err(TOO_MANY),
    }
}

fn put_chunk(places: &mut PlacesWriter, chunk: &ChunkRef, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    check_chunk(chunk)?;
    out.extend_from_slice(&chunk.fingerprint.0);
    out.put_varint(places.container(chunk.container));
    out.put_varint(u64::from(chunk.offset));
    out.put_varint(u64::from(chunk.size));
    Ok(())
}

fn take_chunk(places: &Places, reader: &mut Reader<'_>) -> Result<ChunkRef, DecodeError> {
    let fingerprint = Fingerprint(reader.array()?);
    let container = places.container(reader)?;
    let (offset, size) = (reader.varint_u32()?, reader.varint_u32()?);
    let chunk = ChunkRef { fingerprint, container, offset, size };
    check_chunk(&chunk)?;
    Ok(chunk)
}

fn put_cover(cover: Option<&Cover>, out: &mut Vec<u8>) {
    out.put_u8(u8::from(cover.is_some()));
    if let Some(cover) = cover {
        out.put_varint(cover.data_bytes);
        out.put_bytes(&cover.first_path);
    }
}

fn take_cover(reader: &mut Reader<'_>) -> Result<Option<Cover>, DecodeError> {
    match reader.u8()? {
        0 => Ok(None),
        1 => Ok(Some(Cover { data_bytes: reader.varint()?, first_path: reader.bytes()?.to_vec() })),
        _ => Err(reader.invalid("a flag is neither 0 nor 1")),
    }
}

fn put_proof(proof: Option<&Proof>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    out.put_u8(u8::from(proof.is_some()));
    if let Some(proof) = proof {
        out.extend_from_slice(&proof.mac);
        out.put_u8(proof.cutter);
        let count = u8::try_from(proof.tail.len());
        out.put_u8(count.map_err(|_| EncodeError::new(WHAT, "a proof has more than 255 lengths"))?);
        proof.tail.iter().for_each(|length| out.put_varint(u64::from(*length)));
    }
    Ok(())
}

fn take_proof(reader: &mut Reader<'_>) -> Result<Option<Proof>, DecodeError> {
    match reader.u8()? {
        0 => Ok(None),
        1 => {
            let (mac, cutter, count) = (reader.array()?, reader.u8()?, reader.u8()?);
            let tail = (0..count).map(|_| reader.varint_u32()).collect::<Result<_, _>>()?;
            Ok(Some(Proof { mac, cutter, tail }))
        }
        _ => Err(reader.invalid("a flag is neither 0 nor 1")),
    }
}

/// Encodes a node. Equal segments give equal bytes.
pub fn encode_node(segments: &[SegmentRef]) -> Result<Vec<u8>, EncodeError> {
    let mut places = PlacesWriter::default();
    let mut rows = Vec::with_capacity(segments.len() * 128);
    let mut sums = Sums::default();
    for segment in segments {
        sums.add(segment.bytes, u64::from(segment.chunks), 1, segment.cover.as_ref())?;
        put_chunk(&mut places, &segment.chunk, &mut rows)?;
        check_chain(&segment.chunk, &segment.bases).map_err(|why| EncodeError::new(WHAT, why))?;
        rows.put_u8(segment.bases.len() as u8);
        for base in &segment.bases {
            put_chunk(&mut places, base, &mut rows)?;
        }
        rows.extend_from_slice(&segment.content.0);
        rows.put_varint(segment.bytes);
        rows.put_varint(u64::from(segment.chunks));
        let samples = u8::try_from(segment.samples.len());
        rows.put_u8(samples.map_err(|_| EncodeError::new(WHAT, "a segment has more than 255 samples"))?);
        for sample in &segment.samples {
            rows.put_u64(*sample);
        }
        rows.put_varint(segment.uses.len() as u64);
        for used in &segment.uses {
            rows.put_varint(places.container(used.container));
            rows.put_varint(u64::from(used.chunks));
            rows.put_varint(used.bytes);
        }
        put_cover(segment.cover.as_ref(), &mut rows);
        put_proof(segment.proof.as_ref(), &mut rows)?;
    }
    let mut out = Vec::with_capacity(rows.len() + 256);
    out.put_u8(3);
    places.encode(&mut out);
    out.put_varint(segments.len() as u64);
    out.extend_from_slice(&rows);
    Ok(out)
}

/// Decodes a node. The sums over its segments are numbers: bytes, chunks and data bytes of covers
/// fit 64 bits.
pub fn decode_node(bytes: &[u8]) -> Result<Vec<SegmentRef>, DecodeError> {
    let mut reader = Reader::new(bytes, WHAT);
    let version = reader.version(3)?;
    let places = Places::decode(&mut reader)?;
    let count = reader.count(72)?;
    let mut segments = Vec::with_capacity(count);
    let mut sums = Sums::default();
    for _ in 0..count {
        let chunk = take_chunk(&places, &mut reader)?;
        let bases_count = if version < 3 { 0 } else { usize::from(reader.u8()?) };
        if bases_count > BASES_MAX {
            return Err(reader.invalid(TOO_MANY));
        }
        let bases = (0..bases_count).map(|_| take_chunk(&places, &mut reader)).collect::<Result<Vec<_>, _>>()?;
        check_chain(&chunk, &bases).map_err(|why| reader.invalid(why))?;
        let content = ContentDigest(reader.array()?);
        let (bytes, chunks) = (reader.varint()?, reader.varint_u32()?);
        let mut samples = Vec::new();
        for _ in 0..reader.u8()? {
            samples.push(reader.u64()?);
        }
        let uses_count = reader.count(3)?;
        let mut uses = Vec::with_capacity(uses_count);
        for _ in 0..uses_count {
            let container = places.container(&mut reader)?;
            uses.push(ContainerUse { container, chunks: reader.varint_u32()?, bytes: reader.varint()? });
        }
        let cover = take_cover(&mut reader)?;
        let proof = take_proof(&mut reader)?;
        sums.add(bytes, u64::from(chunks), 1, cover.as_ref())?;
        segments.push(SegmentRef { chunk, bases, content, bytes, chunks, samples, uses, cover, proof });
    }
    reader.finish()?;
    Ok(segments)
}

/// One node as a manifest knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRef {
    /// The node's own bytes, a chunk in a metadata container.
    pub chunk: ChunkRef,
    /// The digest of its content.
    pub content: ContentDigest,
    /// Bytes of the stream that it describes.
    pub bytes: u64,
    /// Chunk records below it.
    pub chunks: u64,
    /// Segments in it.
    pub segments: u32,
    /// Only in metadata streams.
    pub cover: Option<Cover>,
}

/// The top of a recipe, kept in the version's manifest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recipe {
    /// Its nodes, in stream order.
    pub nodes: Vec<NodeRef>,
}

impl Recipe {
    /// Bytes of the stream.
    pub fn bytes(&self) -> u64 {
        self.nodes.iter().map(|node| node.bytes).sum()
    }

    /// Chunk records of the stream.
    pub fn chunks(&self) -> u64 {
        self.nodes.iter().map(|node| node.chunks).sum()
    }

    /// Number of segments of the stream.
    pub fn segments(&self) -> u64 {
        self.nodes.iter().map(|node| u64::from(node.segments)).sum()
    }

    pub(crate) fn encode(&self, places: &mut PlacesWriter, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        out.put_varint(self.nodes.len() as u64);
        let mut sums = Sums::default();
        for node in &self.nodes {
            sums.add(node.bytes, node.chunks, node.segments, node.cover.as_ref())?;
            put_chunk(places, &node.chunk, out)?;
            out.extend_from_slice(&node.content.0);
            out.put_varint(node.bytes);
            out.put_varint(node.chunks);
            out.put_varint(u64::from(node.segments));
            put_cover(node.cover.as_ref(), out);
        }
        Ok(())
    }

    pub(crate) fn decode(places: &Places, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let count = reader.count(71)?;
        let mut nodes = Vec::with_capacity(count);
        let mut sums = Sums::default();
        for _ in 0..count {
            let chunk = take_chunk(places, reader)?;
            let content = ContentDigest(reader.array()?);
            let (bytes, chunks, segments) = (reader.varint()?, reader.varint()?, reader.varint_u32()?);
            let cover = take_cover(reader)?;
            sums.add(bytes, chunks, segments, cover.as_ref())?;
            nodes.push(NodeRef { chunk, content, bytes, chunks, segments, cover });
        }
        Ok(Self { nodes })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::ids::{ContainerKind, JobId};
    use proptest::prelude::*;

    pub(crate) fn container() -> impl Strategy<Value = ContainerId> {
        (0u8..3, 0u32..3, any::<bool>()).prop_map(|(job, seq, meta)| {
            let kind = if meta { ContainerKind::Meta } else { ContainerKind::Data };
            ContainerId { kind, job: JobId([job; 16]), seq }
        })
    }

    fn chunk() -> impl Strategy<Value = ChunkRef> {
        (any::<[u8; 32]>(), container(), 0u32..1 << 30, 1u32..1 << 20).prop_map(
            |(fingerprint, container, offset, size)| ChunkRef {
                fingerprint: Fingerprint(fingerprint),
                container,
                offset,
                size,
            },
        )
    }

    fn content() -> impl Strategy<Value = ContentDigest> {
        any::<[u8; 32]>().prop_map(ContentDigest)
    }

    fn cover() -> impl Strategy<Value = Option<Cover>> {
        let cover = (prop::collection::vec(any::<u8>(), 0..20), 0u64..1 << 50)
            .prop_map(|(first_path, data_bytes)| Cover { first_path, data_bytes });
        prop::option::of(cover)
    }

    fn proof() -> impl Strategy<Value = Option<Proof>> {
        let proof = (any::<[u8; 16]>(), any::<u8>(), prop::collection::vec(any::<u32>(), 0..5))
            .prop_map(|(mac, cutter, tail)| Proof { mac, cutter, tail });
        prop::option::of(proof)
    }

    fn segment() -> impl Strategy<Value = SegmentRef> {
        let used = (container(), any::<u32>(), any::<u64>()).prop_map(|(container, chunks, bytes)| ContainerUse {
            container,
            chunks,
            bytes,
        });
        let samples = prop::collection::vec(any::<u64>(), 0..9);
        let uses = prop::collection::vec(used, 0..4);
        let base = chunk().prop_map(|chunk| ChunkRef { size: chunk.size % 4096 + 1, ..chunk });
        let bases = prop::collection::vec(base, 0..=BASES_MAX);
        (chunk(), bases, content(), 0u64..1 << 50, any::<u32>(), samples, uses, cover(), proof()).prop_map(
            |(chunk, bases, content, bytes, chunks, samples, uses, cover, proof)| SegmentRef {
                chunk,
                bases,
                content,
                bytes,
                chunks,
                samples,
                uses,
                cover,
                proof,
            },
        )
    }

    pub(crate) fn recipe() -> impl Strategy<Value = Recipe> {
        let node = (chunk(), content(), 0u64..1 << 50, 0u64..1 << 40, 0u32..1 << 28, cover()).prop_map(
            |(chunk, content, bytes, chunks, segments, cover)| NodeRef {
                chunk,
                content,
                bytes,
                chunks,
                segments,
                cover,
            },
        );
        prop::collection::vec(node, 0..6).prop_map(|nodes| Recipe { nodes })
    }

    fn plain_segment() -> SegmentRef {
        let container = ContainerId { kind: ContainerKind::Meta, job: JobId([1; 16]), seq: 0 };
        let chunk = ChunkRef { fingerprint: Fingerprint([2; 32]), container, offset: 0, size: 9 };
        let content = ContentDigest([4; 32]);
        SegmentRef {
            chunk,
            bases: Vec::new(),
            content,
            bytes: 5,
            chunks: 1,
            samples: vec![3],
            uses: Vec::new(),
            cover: None,
            proof: None,
        }
    }

    #[test]
    fn what_no_reader_accepts_is_not_encoded() {
        let cover = |data_bytes| Some(Cover { first_path: b"a".to_vec(), data_bytes });
        let segment = plain_segment();
        let place = |offset, size| SegmentRef { chunk: ChunkRef { offset, size, ..segment.chunk }, ..segment.clone() };
        let bad = [
            vec![SegmentRef { samples: vec![7; 256], ..segment.clone() }],
            vec![SegmentRef {
                proof: Some(Proof { mac: [1; 16], cutter: 0, tail: vec![4096; 256] }),
                ..segment.clone()
            }],
            vec![place(0, 0)],
            vec![SegmentRef { bases: vec![segment.chunk; BASES_MAX + 1], ..segment.clone() }],
            vec![SegmentRef {
                bases: vec![ChunkRef { size: CHAIN_BYTES_MAX as u32, ..segment.chunk }],
                ..segment.clone()
            }],
            vec![place(u32::MAX, 1)],
            vec![segment.clone(), SegmentRef { bytes: u64::MAX - 4, ..segment.clone() }],
            vec![
                SegmentRef { cover: cover(1), ..segment.clone() },
                SegmentRef { cover: cover(u64::MAX), ..segment.clone() },
            ],
        ];
        for segments in bad {
            assert!(encode_node(&segments).is_err(), "{segments:?}");
        }
        let most = SegmentRef { samples: vec![7; SAMPLES_MAX], bytes: u64::MAX - 5, ..segment.clone() };
        assert!(encode_node(&[segment, most]).is_ok());
    }

    /// Guards against: a reader that adds up the sums of a node would overflow, and panic or accept
    /// a small sum.
    #[test]
    fn a_node_whose_sums_are_no_numbers_is_refused() {
        let two = [SegmentRef { bytes: 1 << 62, ..plain_segment() }, SegmentRef { bytes: 1 << 62, ..plain_segment() }];
        let bytes = encode_node(&two).expect("in bounds");
        assert!(decode_node(&bytes).is_ok());
        // 2^62 as a varint ends in 0x40; 2^63 is one byte longer. Both segments' sizes are made
        // 2^63.
        let (small, large) = ([&[0x80; 8][..], &[0x40]].concat(), [&[0x80; 9][..], &[0x01]].concat());
        let mut forged = Vec::new();
        let mut rest = &bytes[..];
        while let Some(at) = rest.windows(9).position(|window| window == small) {
            forged.extend_from_slice(&rest[..at]);
            forged.extend_from_slice(&large);
            rest = &rest[at + 9..];
        }
        forged.extend_from_slice(rest);
        assert_eq!(forged.len(), bytes.len() + 2);
        assert!(matches!(decode_node(&forged), Err(DecodeError::Invalid { what: "recipe", .. })));
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(segments in prop::collection::vec(segment(), 0..20)) {
            let bytes = encode_node(&segments).expect("it is in bounds");
            prop_assert_eq!(decode_node(&bytes), Ok(segments));
            for len in 0..bytes.len() {
                prop_assert!(decode_node(&bytes[..len]).is_err());
            }
        }

        #[test]
        fn any_bytes_are_an_error_or_a_node_not_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode_node(&bytes);
            let _ = decode_node(&[&[3], &bytes[..]].concat());
        }
    }
}
