//! Proves that no chunk which is dropped is needed, when workers said which are.
//!
//! A key that workers left out would make a pass delete a chunk that a version needs. Comparing
//! their results cannot exclude it. So before anything goes, this process reads every segment
//! itself that may name a chunk in a container that goes. The rows of nodes tell which ones do:
//! those that use such a container, or a retired one that forwards to it (`OneHop`). Few segments
//! do, and the rest need no proof: their chunks stay where they are.

use std::collections::HashSet;

use larder_format::ids::ContainerId;
use larder_format::lease::Pin;
use larder_format::recipe::SegmentRef;
use larder_index::{Containers, Cursor, Draft, IndexError, IndexPass, LookupOptions, Sorted, Sorter};
use larder_reader::References;

use super::mark::{KEYS, Own, walk};
use super::select::Selection;
use super::{ReclaimError, Work};

/// Bytes that a container takes in a set.
const CONTAINER_BYTES: usize = 64;
/// Of the memory, one part in this number has such a set.
const CONTAINERS_ONE_IN: usize = 16;

/// The outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Proved {
    /// Nothing that goes is needed.
    Unneeded,
    /// Something is. A worker was wrong.
    Needed,
    /// A recipe cannot be read any more.
    Unknown,
}

/// See the module header. `walks` are the manifests that were marked.
pub(super) fn prove(
    pass: &IndexPass,
    draft: &Draft<'_>,
    work: &Work,
    walks: &[(Pin, u32)],
    selection: &mut Selection,
) -> Result<Proved, ReclaimError> {
    let Some(unneeded) = selection.unneeded.take() else { return Ok(Proved::Unneeded) };
    let leaving = leaving(pass, draft, selection)?;
    let may_name = |row: &SegmentRef| match &leaving {
        Some(leaving) => row.uses.iter().any(|used| leaving.contains(&used.container)),
        None => true,
    };
    let mut keys = Sorter::new(&pass.io.repository, KEYS, pass.memory / 8, &pass.folder)?;
    let mut references = References::new(&work.context.on(&pass.io.executor));
    let mut own = Own { chunks: references.chunks(), keys: &mut keys, cancel: &work.context.cancel };
    // Each version's row of a segment is asked, because nothing proves what one says about its
    // containers.
    let is_known = walk(pass, walks, &mut references, may_name, |row| own.segment(row))?;
    if !is_known {
        return Ok(Proved::Unknown);
    }
    let (unneeded, has_common) = have_common(unneeded, keys.finish()?)?;
    selection.unneeded = Some(unneeded.rewound());
    Ok(if has_common { Proved::Needed } else { Proved::Unneeded })
}

/// The containers that go, and those that forward to them. `None`: memory has no room for
/// them, so that it may be any.
fn leaving(
    pass: &IndexPass,
    draft: &Draft<'_>,
    selection: &Selection,
) -> Result<Option<HashSet<ContainerId>>, IndexError> {
    let most = pass.memory / CONTAINERS_ONE_IN / CONTAINER_BYTES;
    let mut leaving: HashSet<ContainerId> = selection.containers.values().map(|candidate| candidate.id).collect();
    let table = draft.view::<Containers>(LookupOptions::default());
    for record in table.scan(0..=u64::MAX, pass.memory / 4) {
        let (_, Some(facts)) = record? else { continue };
        if facts.forwards.iter().any(|forward| selection.containers.contains_key(forward)) {
            leaving.insert(facts.id);
        }
        if leaving.len() > most {
            return Ok(None);
        }
    }
    Ok(Some(leaving))
}

/// Whether two sets of keys have one in common. Gives the first one back.
fn have_common(mut unneeded: Sorted, mut needed: Sorted) -> Result<(Sorted, bool), IndexError> {
    let (mut has_unneeded, mut has_needed) = (unneeded.advance()?, needed.advance()?);
    while has_unneeded && has_needed {
        match unneeded.key().cmp(needed.key()) {
            std::cmp::Ordering::Less => has_unneeded = unneeded.advance()?,
            std::cmp::Ordering::Greater => has_needed = needed.advance()?,
            std::cmp::Ordering::Equal => return Ok((unneeded, true)),
        }
    }
    Ok((unneeded, false))
}
