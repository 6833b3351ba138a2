//! The product's own nodes as figure 9 and the passes need them: what is in the store, and very many chunks at once.
//!
//! [`Node`] owns one repository. What the figures need to know of it is read from the store itself ([`Holdings`]): tables of containers, the
//! recipe of a version.

mod crowd;
mod holdings;

use larder_format::compress::Compression;
use larder_gnode::defragment::{Budget, DefragmentOptions};
use larder_gnode::pass::PassOptions;
use larder_gnode::reclaim::{Exact, ReclaimOptions, Unused};
use larder_index::Current;

pub(crate) use crowd::{CHUNKS_EACH, crowd};
pub(crate) use holdings::{Holdings, Writer};
pub(crate) use larder_bench_common::node::{Cost, Node};

use crate::Offline;

/// The first half of `larder optimize`.
pub(crate) fn compact(node: &Node, offline: Offline) -> anyhow::Result<Cost> {
    let mut options = DefragmentOptions { compression: Compression::Off, ..DefragmentOptions::default() };
    options.sparse_percent = offline.sparse_percent.unwrap_or(options.sparse_percent);
    options.budget = offline.budget_percent.map_or(options.budget, Budget::of_version);
    node.compact(&options)
}

/// The second half: a pass with all its tasks.
pub(crate) fn pass(node: &Node, offline: Offline) -> anyhow::Result<Cost> {
    let mut reclaim = ReclaimOptions { compression: Compression::Off, ..ReclaimOptions::default() };
    reclaim.unused = offline.max_unused.map_or(reclaim.unused, Unused::OfRepository);
    reclaim.exact = if offline.exact { Exact::Always } else { reclaim.exact };
    let (_, cost) = node.pass(&PassOptions { reclaim: Some(reclaim), ..PassOptions::default() })?;
    Ok(cost)
}

/// Different chunks that the index has, objects it consists of, and their bytes.
pub(crate) fn index(node: &Node) -> anyhow::Result<(u64, usize, u64)> {
    let index = node.runtime.block_on(Current::look(&node.context.repository))?.base()?;
    let runs = &index.manifest.runs;
    Ok((index.manifest.head.statistics.chunks, runs.len(), runs.iter().map(|run| run.object_bytes).sum()))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;

    use larder_chunking::Algorithm;

    use super::*;
    use crate::rng::Rng;
    use crate::sdb::{Duplication, SDb, Spec};

    /// The figures stand on this: nothing that a version names is missing, little is there twice, and what is forgotten goes.
    #[test]
    fn what_is_held_is_what_versions_name() -> anyhow::Result<()> {
        let duplication = Duplication::Fixed(0.8);
        let mut sdb = SDb::new(Spec { files: 1, file_bytes: 3 << 20, duplication, self_reference: 0.2, seed: 5 });
        let node = Node::in_memory(Algorithm::MinCdc, 4096, 1)?;
        let (mut holdings, mut named, mut streams) = (Holdings::default(), HashMap::new(), Vec::new());
        for version in 0..3 {
            let stream: Arc<[u8]> = sdb.files().collect::<Vec<_>>().concat().into();
            node.back_up("a", &stream, |_| ())?;
            holdings.look(&node, Writer::Version(version))?;
            let recipe = node.recipe(&node.newest()?)?;
            assert_eq!(recipe.iter().map(|chunk| chunk.size as usize).sum::<usize>(), stream.len());
            named.extend(recipe.iter().map(|chunk| (chunk.fingerprint, u64::from(chunk.size))));
            let catalogue = holdings.catalogue(&recipe);
            assert!(recipe.iter().all(|chunk| catalogue.contains(chunk)), "a chunk is not where its recipe says");
            streams.push(stream);
            sdb.advance();
        }
        let exact: u64 = named.values().sum();
        assert!((exact..exact * 11 / 10).contains(&holdings.bytes()), "{} held of {exact}", holdings.bytes());
        let first = holdings.bytes_since(0);
        assert!(first > 2 << 20 && first < holdings.bytes());

        let mut rng = Rng::new(7);
        let other: Arc<[u8]> = (0..1 << 20).map(|_| rng.next_u64() as u8).collect();
        node.back_up("b", &other, |_| ())?;
        let before = holdings.bytes();
        holdings.look(&node, Writer::Version(3))?;
        assert_eq!(holdings.bytes(), before + other.len() as u64);
        node.forget(&node.newest()?)?;
        assert!(pass(&node, Offline::default())?.requests > 0);
        holdings.look(&node, Writer::Pass)?;
        assert_eq!(holdings.bytes(), before);

        for (version, stream) in node.versions()?.iter().zip(&streams) {
            assert!(node.restore(version, stream)?.containers > 0);
        }
        node.keep_newest(1)?;
        assert_eq!(node.versions()?.len(), 1);
        Ok(())
    }
}
