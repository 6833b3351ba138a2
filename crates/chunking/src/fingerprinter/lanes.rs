//! BLAKE3 of many chunks at once: the trees of a batch are worked level by level, each vector lane
//! on another node.
//!
//! A message is cut into leaves of 1 KiB and each leaf into blocks of 64 bytes. A leaf's blocks are
//! compressed in order. Above the leaves, pairs of nodes are compressed into their parent. Nodes of
//! one level are independent of one another, within a message and between messages, so the lanes
//! take them in any mixture. The compression function has its own chaining value, counter, length
//! and flags in each lane.
//!
//! * Whole leaves come first, in the order of memory: all lanes compress sixteen blocks in step.
//! * The last leaf of a message is a *tail*: it may be shorter, and its last block is padded. Tails
//!   are sorted by their number of blocks, so that lanes finish together.
//! * Then parents, level by level: neighbours pair up, an odd node at the end moves up alone. This
//!   makes the same tree as BLAKE3's rule, by which a left subtree is complete and as large as
//!   possible.
//!
//! Caller: `Fingerprinter::many`. The compression itself is in the kernels beside this file, which
//! have no branches. Working memory is bounded by [`BATCH_BYTES`].

use super::Fingerprinter;
use crate::fingerprint::Fingerprint;

/// Bytes of a block.
pub(super) const BLOCK: usize = 64;

/// Bytes of a leaf.
const LEAF: usize = 1024;

/// Blocks of a whole leaf.
const BLOCKS: usize = LEAF / BLOCK;
const LAST_BLOCK: usize = BLOCKS - 1;

/// Leaves of at most this many bytes of chunks are worked on together. Tails are read again after
/// the whole leaves, so a batch should fit into the second-level cache. A batch should have some
/// hundreds of chunks, so that there are several tails of each length.
const BATCH_BYTES: usize = 1 << 20;

/// Chunks from this length on fill the lanes by themselves, and the `blake3` crate's assembly is
/// the better kernel.
const LONG: usize = 48 << 10;

const CHUNK_START: u32 = 1;
const CHUNK_END: u32 = 2;
const PARENT: u32 = 4;
const ROOT: u32 = 8;
const KEYED_HASH: u32 = 16;

/// The first four words that fill the compression state beside the chaining value.
pub(super) const IV: [u32; 4] = [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a];

/// One input of the compression function per lane. Word `i` of lane `l`'s chaining value is
/// `chaining[i][l]`.
#[repr(align(64))]
#[derive(Clone)]
pub(super) struct LaneState<const N: usize> {
    pub(super) chaining: [[u32; N]; 8],
    /// Which leaf of its message the lane works on; 0 for parents.
    pub(super) counter: [u32; N],
    /// Bytes of the block that are not padding.
    pub(super) length: [u32; N],
    pub(super) flags: [u32; N],
}

/// The compression function in `N` lanes.
pub(super) trait Compress<const N: usize>: Copy {
    /// Replaces each lane's chaining value by that after its block.
    fn compress(self, state: &mut LaneState<N>, blocks: &[&[u8; BLOCK]; N]);
}

type Node = [u8; 32];

/// A leaf of full length that is not its message's only one.
struct Whole<'a> {
    bytes: &'a [u8; LEAF],
    counter: u32,
    node: usize,
}

/// The last leaf of a message, or its only one, and the place its node belongs to.
struct Tail<'a> {
    bytes: &'a [u8],
    counter: u32,
    flags_end: u32,
    node: usize,
}

impl Tail<'_> {
    fn blocks(&self) -> usize {
        self.bytes.len().div_ceil(BLOCK).max(1)
    }
}

/// Appends the fingerprints of all chunks.
pub(super) fn many<const N: usize>(
    kernel: impl Compress<N>,
    fingerprinter: &Fingerprinter,
    data: &[u8],
    lengths: &[u32],
    out: &mut Vec<Fingerprint>,
) {
    let mut batch = Batch::new(kernel, &fingerprinter.key);
    let mut rest = data;
    for &length in lengths {
        let (chunk, behind) = rest.split_at(length as usize);
        rest = behind;
        if chunk.len() >= LONG {
            batch.finish(out);
            out.push(fingerprinter.one(chunk));
        } else {
            batch.add(chunk);
            if batch.bytes >= BATCH_BYTES {
                batch.finish(out);
            }
        }
    }
    batch.finish(out);
}

/// Chunks whose leaves share the lanes.
struct Batch<'a, K, const N: usize> {
    kernel: K,
    /// Every lane has the key as chaining value: how each leaf and each parent begins.
    start: LaneState<N>,
    bytes: usize,
    /// Nodes of the current level, message after message.
    nodes: Vec<Node>,
    /// Nodes that each message has on the current level.
    counts: Vec<usize>,
    whole: Vec<Whole<'a>>,
    tails: Vec<Tail<'a>>,
}

impl<'a, K: Compress<N>, const N: usize> Batch<'a, K, N> {
    fn new(kernel: K, key: &[u8; 32]) -> Self {
        let words = |i: usize| u32::from_le_bytes([key[4 * i], key[4 * i + 1], key[4 * i + 2], key[4 * i + 3]]);
        let start = LaneState {
            chaining: std::array::from_fn(|i| [words(i); N]),
            counter: [0; N],
            length: [BLOCK as u32; N],
            flags: [KEYED_HASH; N],
        };
        let (nodes, counts, whole, tails) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { kernel, start, bytes: 0, nodes, counts, whole, tails }
    }

    fn add(&mut self, chunk: &'a [u8]) {
        let count = chunk.len().div_ceil(LEAF).max(1);
        let first_node = self.nodes.len();
        let (whole, rest) = chunk.as_chunks();
        for (index, bytes) in whole.iter().enumerate().filter(|_| count > 1) {
            self.whole.push(Whole { bytes, counter: index as u32, node: first_node + index });
        }
        if count == 1 {
            self.tails.push(Tail { bytes: chunk, counter: 0, flags_end: CHUNK_END | ROOT, node: first_node });
        } else if !rest.is_empty() {
            let node = first_node + whole.len();
            self.tails.push(Tail { bytes: rest, counter: whole.len() as u32, flags_end: CHUNK_END, node });
        }
        self.nodes.resize(first_node + count, [0; 32]);
        self.counts.push(count);
        self.bytes += chunk.len();
    }

    /// Hashes the added chunks and appends the fingerprints to `out`, in order.
    fn finish(&mut self, out: &mut Vec<Fingerprint>) {
        for group in self.whole.chunks(N) {
            compress_whole(self.kernel, &self.start, group, &mut self.nodes);
        }
        self.tails.sort_unstable_by_key(Tail::blocks);
        for group in self.tails.chunks(N) {
            compress_tails(self.kernel, &self.start, group, &mut self.nodes);
        }
        while self.counts.iter().any(|&count| count > 1) {
            self.climb();
        }
        out.extend(self.nodes.drain(..).map(Fingerprint));
        self.counts.clear();
        self.whole.clear();
        self.tails.clear();
        self.bytes = 0;
    }

    /// Replaces the nodes of all messages by those of the next level.
    fn climb(&mut self) {
        let mut above = Vec::with_capacity(self.nodes.len() / 2 + self.counts.len());
        let mut pairs: Vec<(&[u8; BLOCK], u32, usize)> = Vec::with_capacity(self.nodes.len() / 2);
        let mut rest = self.nodes.as_slice();
        for count in &mut self.counts {
            let (nodes, behind) = rest.split_at(*count);
            rest = behind;
            let root = if *count == 2 { ROOT } else { 0 };
            let (paired, odd) = nodes.as_chunks::<2>();
            for pair in paired {
                let block = pair.as_flattened().first_chunk().expect("two nodes make a block");
                pairs.push((block, KEYED_HASH | PARENT | root, above.len()));
                above.push([0; 32]);
            }
            above.extend_from_slice(odd);
            *count = paired.len() + odd.len();
        }
        for group in pairs.chunks(N) {
            let mut state = self.start.clone();
            let mut blocks = [&[0; BLOCK]; N];
            for (lane, &(block, flags, _)) in group.iter().enumerate() {
                blocks[lane] = block;
                state.flags[lane] = flags;
            }
            self.kernel.compress(&mut state, &blocks);
            for (lane, &(.., node)) in group.iter().enumerate() {
                above[node] = state.node(lane);
            }
        }
        self.nodes = above;
    }
}

impl<const N: usize> LaneState<N> {
    fn node(&self, lane: usize) -> Node {
        let mut node = [0; 32];
        for (bytes, words) in node.chunks_exact_mut(4).zip(&self.chaining) {
            bytes.copy_from_slice(&words[lane].to_le_bytes());
        }
        node
    }
}

/// Computes the nodes of up to `N` whole leaves.
fn compress_whole<const N: usize>(
    kernel: impl Compress<N>,
    start: &LaneState<N>,
    leaves: &[Whole<'_>],
    nodes: &mut [Node],
) {
    let mut state = start.clone();
    // Lanes without a leaf of their own repeat the first one for nothing.
    let mut lanes: [&[[u8; BLOCK]]; N] = [leaves[0].bytes.as_chunks().0; N];
    for (lane, leaf) in leaves.iter().enumerate() {
        lanes[lane] = leaf.bytes.as_chunks().0;
        state.counter[lane] = leaf.counter;
    }
    for step in 0..BLOCKS {
        let flags = match step {
            0 => CHUNK_START,
            LAST_BLOCK => CHUNK_END,
            _ => 0,
        };
        state.flags = [KEYED_HASH | flags; N];
        kernel.compress(&mut state, &lanes.map(|blocks| &blocks[step]));
    }
    for (lane, leaf) in leaves.iter().enumerate() {
        nodes[leaf.node] = state.node(lane);
    }
}

/// Computes the nodes of up to `N` tails, which are sorted by their number of blocks.
fn compress_tails<const N: usize>(
    kernel: impl Compress<N>,
    start: &LaneState<N>,
    leaves: &[Tail<'_>],
    nodes: &mut [Node],
) {
    let mut state = start.clone();
    let mut padded = [[0; BLOCK]; N];
    let mut ends = [0; N];
    for (lane, leaf) in leaves.iter().enumerate() {
        state.counter[lane] = leaf.counter;
        ends[lane] = leaf.blocks();
        let last = &leaf.bytes[(ends[lane] - 1) * BLOCK..];
        padded[lane][..last.len()].copy_from_slice(last);
    }
    for step in 0..leaves.iter().map(Tail::blocks).max().unwrap_or(0) {
        // Lanes without a leaf, or beyond its end, compress some padding for nothing.
        let mut blocks: [&[u8; BLOCK]; N] = padded.each_ref();
        let first = if step == 0 { CHUNK_START } else { 0 };
        for (lane, leaf) in leaves.iter().enumerate() {
            let last = step + 1 == ends[lane];
            state.flags[lane] = KEYED_HASH | first | if last { leaf.flags_end } else { 0 };
            if last {
                state.length[lane] = (leaf.bytes.len() - step * BLOCK) as u32;
            } else if let Some(block) = leaf.bytes.get(step * BLOCK..).and_then(|rest| rest.first_chunk()) {
                blocks[lane] = block;
            }
        }
        kernel.compress(&mut state, &blocks);
        for (lane, leaf) in leaves.iter().enumerate() {
            if step + 1 == ends[lane] {
                nodes[leaf.node] = state.node(lane);
            }
        }
    }
}
