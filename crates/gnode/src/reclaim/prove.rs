//! Proves that no chunk which is dropped is needed, when workers said which are.
//!
//! A key that workers left out would make a pass delete a chunk that a version needs. Comparing
//! their results cannot exclude it. So before anything goes, this process reads every segment
//! itself that may name a chunk in a container that goes. The rows of nodes tell which ones do:
//! those that use such a container, or a retired one that forwards to it (`OneHop`). Few segments
//! do, and the rest need no proof: their chunks stay where they are.
//!
//! They stay only if their containers can be read. Nothing says so before a reader comes, and then
//! a copy elsewhere may be the last one. So a segment is also read if it uses another container
//! that has, by the index, an unneeded chunk of one that goes. Containers whose chunks are not
//! listed, or that the index does not have, may have any of them.

use std::collections::HashSet;

use larder_format::ids::ContainerId;
use larder_format::index_manifest::ContainerList;
use larder_format::lease::Pin;
use larder_format::recipe::SegmentRef;
use larder_index::{Containers, Cursor, Draft, IndexError, IndexPass, LookupOptions, Sorted, Sorter};
use larder_reader::References;

use super::copies::duplicates;
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
    let Some(mut unneeded) = selection.unneeded.take() else { return Ok(Proved::Unneeded) };
    let containers = match numbers(pass, draft, selection, &mut unneeded)? {
        Some(numbers) => names(pass, draft, &work.retention.held, &numbers)?,
        None => None,
    };
    let unneeded = unneeded.rewound();
    let may_name = |row: &SegmentRef| match &containers {
        Some(containers) => row.uses.iter().any(|used| containers.contains(&used.container)),
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

/// The most containers in a set.
fn containers_max(pass: &IndexPass) -> usize {
    pass.memory / CONTAINERS_ONE_IN / CONTAINER_BYTES
}

/// The numbers of the containers that go, and of others that have a copy of an unneeded chunk in
/// them. `None`: memory has no room for them, so that it may be any.
fn numbers(
    pass: &IndexPass,
    draft: &Draft<'_>,
    selection: &Selection,
    unneeded: &mut Sorted,
) -> Result<Option<HashSet<u32>>, IndexError> {
    let most = containers_max(pass);
    let mut numbers: HashSet<u32> = selection.containers.keys().copied().collect();
    let mut has_unneeded = unneeded.advance()?;
    duplicates(pass, draft, |group| {
        while has_unneeded && unneeded.key() < group.key.0.as_slice() {
            has_unneeded = unneeded.advance()?;
        }
        let is_unneeded = has_unneeded && unneeded.key() == group.key.0;
        let goes = || group.places().any(|place| selection.containers.contains_key(&place.container));
        if is_unneeded && numbers.len() <= most && goes() {
            numbers.extend(group.places().map(|place| place.container));
        }
        Ok(())
    })?;
    Ok((numbers.len() <= most).then_some(numbers))
}

/// The names of these containers, of those that forward to them, and of those whose chunks the
/// index does not have. `None`: memory has no room for them, or not all are known.
fn names(
    pass: &IndexPass,
    draft: &Draft<'_>,
    held: &HashSet<ContainerId>,
    numbers: &HashSet<u32>,
) -> Result<Option<HashSet<ContainerId>>, IndexError> {
    let most = containers_max(pass);
    let unlisted = draft.manifest.head.unlisted.as_ref();
    if unlisted.is_some_and(ContainerList::is_full) {
        return Ok(None);
    }
    let unlisted = unlisted.into_iter().flat_map(ContainerList::ids);
    let mut names: HashSet<ContainerId> = unlisted.chain(held).copied().collect();
    let table = draft.view::<Containers>(LookupOptions::default());
    for record in table.scan(0..=u64::MAX, pass.memory / 4) {
        let (number, Some(facts)) = record? else { continue };
        if numbers.contains(&number) || facts.forwards.iter().any(|forward| numbers.contains(forward)) {
            names.insert(facts.id);
        }
        if names.len() > most {
            return Ok(None);
        }
    }
    Ok(Some(names))
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
