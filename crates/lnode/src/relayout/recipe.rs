//! Writing a version's recipe again, with the chunks of some containers elsewhere.
//!
//! Segments that lie in none of these containers are shared with the old recipe, and so are nodes of which every segment is.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use larder_format::ChunkRef;
use larder_format::ids::ContainerId;
use larder_format::manifest::Manifest;
use larder_format::recipe::{Recipe, SegmentRef};
use larder_format::segment::{self, Segment};

use super::{Move, Placing, Relaid, Relayout, RelayoutError};
use crate::version::RecipeReader;
use crate::writing::{MetaSink, NodeWriter, Usage, uses_of};

/// Segments that wait for the copies of their chunks: their records take memory.
const WAITING_SEGMENTS: usize = 1024;

/// A segment that is written when the chunks before it are copied.
struct Waiting {
    reference: SegmentRef,
    /// Its records, when some of them move.
    contents: Option<Segment>,
}

/// One recipe being written again.
struct Rewriting {
    nodes: NodeWriter,
    usage: Usage,
    waiting: Vec<Waiting>,
    /// Chunks to be copied for those that wait, in stream order.
    wanted: Vec<ChunkRef>,
    wanted_bytes: usize,
    /// Where the chunks are that are elsewhere now: among the moves, made already or with the next batch, or known before.
    places: HashMap<(ContainerId, u32), Elsewhere>,
    moves: Vec<Move>,
}

#[derive(Clone, Copy)]
enum Elsewhere {
    Move(usize),
    At(ChunkRef),
}

impl Relayout {
    /// Copies what a version uses of the containers for which `gives_up` says so, in the order of its stream, and writes its
    /// recipe over the copies. Memory: 100 bytes for each chunk that moves, beside the batches.
    pub fn relay(
        &mut self,
        manifest: &Manifest,
        gives_up: impl Fn(&ContainerId) -> bool,
    ) -> Result<Relaid, RelayoutError> {
        self.relay_to(manifest, gives_up, |chunk| Placing::Copy(*chunk))
    }

    /// The same, where not every chunk of these containers is copied from where it is.
    pub(crate) fn relay_to(
        &mut self,
        manifest: &Manifest,
        gives_up: impl Fn(&ContainerId) -> bool,
        place: impl Fn(&ChunkRef) -> Placing,
    ) -> Result<Relaid, RelayoutError> {
        let mut rewriting = Rewriting {
            nodes: NodeWriter::new(Some(&manifest.data)),
            usage: Usage::new(),
            waiting: Vec::new(),
            wanted: Vec::new(),
            wanted_bytes: 0,
            places: HashMap::new(),
            moves: Vec::new(),
        };
        let known: HashSet<_> = manifest.containers.iter().map(|usage| usage.container).collect();
        let mut reader = RecipeReader::new(Arc::new(manifest.data.clone()), self.chunks.clone());
        for number in 0..reader.segments() {
            self.stop_if_asked()?;
            let Some((reference, _)) = reader.segment_ref(number)? else { break };
            let moves = reference.uses.iter().any(|used| gives_up(&used.container));
            let contents = if moves { reader.whole_segment(number)? } else { None };
            for record in contents.iter().flat_map(|segment| &segment.records) {
                let container = &record.chunk.container;
                // Where the index leads to is not this version's: it may be given up in its turn.
                if gives_up(container) {
                    rewriting.place(record.chunk, place(&record.chunk));
                } else if !known.contains(container) {
                    rewriting.place(record.chunk, Placing::Copy(record.chunk));
                }
            }
            rewriting.waiting.push(Waiting { reference, contents });
            if rewriting.wanted_bytes >= self.batch_bytes() || rewriting.waiting.len() >= WAITING_SEGMENTS {
                self.flush(&mut rewriting)?;
            }
        }
        self.flush(&mut rewriting)?;
        let Rewriting { nodes, mut usage, moves, .. } = rewriting;
        let mut added_bytes = 0;
        let mut sink = MetaSink {
            packer: &mut self.metadata,
            fingerprinter: &self.fingerprinter,
            usage: &mut usage,
            added_bytes: &mut added_bytes,
        };
        let data = nodes.finish(&mut sink)?;
        let metadata = self.count(&manifest.metadata, &mut usage)?;
        let moved_bytes = moves.iter().map(|moved| u64::from(moved.to.size)).sum();
        Ok(Relaid { data, metadata, usage, moves, moved_bytes })
    }

    /// Copies what is wanted, then writes the segments that wait for it.
    fn flush(&mut self, rewriting: &mut Rewriting) -> Result<(), RelayoutError> {
        let copies = self.copy(&rewriting.wanted)?;
        let moved = rewriting.wanted.drain(..).zip(copies).map(|(from, to)| Move {
            from: from.container,
            from_offset: from.offset,
            to,
        });
        rewriting.moves.extend(moved);
        rewriting.wanted_bytes = 0;
        let mut added_bytes = 0;
        for Waiting { mut reference, contents } in rewriting.waiting.drain(..) {
            let mut sink = MetaSink {
                packer: &mut self.metadata,
                fingerprinter: &self.fingerprinter,
                usage: &mut rewriting.usage,
                added_bytes: &mut added_bytes,
            };
            if let Some(mut contents) = contents {
                for record in &mut contents.records {
                    match rewriting.places.get(&(record.chunk.container, record.chunk.offset)) {
                        Some(Elsewhere::Move(number)) => record.chunk = rewriting.moves[*number].to,
                        Some(Elsewhere::At(chunk)) => record.chunk = *chunk,
                        None => {}
                    }
                }
                // What its bytes are has not changed, so its samples, its proof and its superchunks hold.
                let Segment { records, superchunks } = &contents;
                let bytes = segment::encode(records, superchunks).map_err(larder_store::RepositoryError::from)?;
                let fingerprint = self.fingerprinter.one(&bytes);
                reference.chunk = sink.push(fingerprint, &bytes)?;
                reference.uses = uses_of(&contents.records);
            }
            rewriting.nodes.push(reference, &mut sink)?;
        }
        Ok(())
    }

    /// Counts what a recipe uses of each container. Writes nothing: all its nodes are known.
    fn count(&mut self, recipe: &Recipe, usage: &mut Usage) -> Result<Recipe, RelayoutError> {
        let mut nodes = NodeWriter::new(Some(recipe));
        let mut reader = RecipeReader::new(Arc::new(recipe.clone()), self.chunks.clone());
        let mut added_bytes = 0;
        let mut sink = MetaSink {
            packer: &mut self.metadata,
            fingerprinter: &self.fingerprinter,
            usage,
            added_bytes: &mut added_bytes,
        };
        for number in 0..reader.segments() {
            let Some((reference, _)) = reader.segment_ref(number)? else { break };
            nodes.push(reference, &mut sink)?;
        }
        Ok(nodes.finish(&mut sink)?)
    }
}

impl Rewriting {
    fn place(&mut self, chunk: ChunkRef, placing: Placing) {
        let next = self.moves.len() + self.wanted.len();
        let std::collections::hash_map::Entry::Vacant(place) = self.places.entry((chunk.container, chunk.offset))
        else {
            return;
        };
        match placing {
            Placing::Copy(from) => {
                place.insert(Elsewhere::Move(next));
                self.wanted.push(from);
                self.wanted_bytes += from.size as usize;
            }
            Placing::At(there) => drop(place.insert(Elsewhere::At(there))),
            Placing::Stay => {}
        }
    }
}
