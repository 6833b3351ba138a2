//! Asks the index's table of containers about many containers at once: by one scan, because its
//! keys are numbers and not names.

use std::collections::{BTreeSet, HashMap};

use larder_format::ids::ContainerId;
use larder_format::index_tables::{ContainerFacts, ContainerState};
use larder_store::RepositoryError;

use super::{Index, Moved, without_index};

/// Bytes read ahead of the table of containers.
const SCAN_AHEAD: usize = 1 << 20;

impl Moved {
    /// Asks the index which other named containers are gone, so that the job does not miss them one
    /// by one.
    ///
    /// A hint: other missing containers are found as before. No container counts as gone that the
    /// index calls live or does not know.
    pub(super) fn survey(&self) {
        let (index, named) = {
            let mut state = self.state.lock();
            let Some(index) = state.index.clone() else { return };
            let asked = Some((index.number, state.named.len()));
            if state.named.is_empty() || std::mem::replace(&mut state.surveyed, asked) == asked {
                return;
            }
            (index, state.named.clone())
        };
        let mut gone = Vec::new();
        index.scan_retired(|facts| {
            gone.extend(named.contains(&facts.id).then_some(facts.id));
            true
        });
        let mut state = self.state.lock();
        let before = state.gone.len();
        state.gone.extend(gone);
        state.changes += u64::from(state.gone.len() > before);
    }

    /// The newest index's knowledge of containers that were not found.
    pub(crate) fn explain(&self, mut absent: BTreeSet<ContainerId>) -> Result<Explained, RepositoryError> {
        self.learn(absent.iter().copied())?;
        let mut explained = Explained { is_complete: true, ..Explained::default() };
        let Some(index) = self.state.lock().index.clone() else {
            explained.unexplained = absent;
            return Ok(explained);
        };
        let mut sources: Vec<(ContainerId, Vec<u32>)> = Vec::new();
        explained.is_complete = index.scan_retired(|facts| {
            if absent.remove(&facts.id) {
                sources.push((facts.id, facts.forwards));
            }
            !absent.is_empty()
        });
        explained.unexplained = absent;
        let mut numbers: Vec<u32> = sources.iter().flat_map(|(_, forwards)| forwards).copied().collect();
        numbers.sort_unstable();
        numbers.dedup();
        let facts = match self.runtime.block_on(index.containers.get(&numbers)) {
            Ok(facts) => facts,
            Err(error) => {
                explained.is_complete = false;
                return without_index(error, "the places of chunks of retired containers are not known")
                    .map(|()| explained);
            }
        };
        let known: HashMap<u32, ContainerId> =
            numbers.into_iter().zip(facts).filter_map(|(number, facts)| Some((number, facts?.id))).collect();
        explained.retired = sources
            .into_iter()
            .map(|(id, forwards)| (id, forwards.iter().filter_map(|number| known.get(number).copied()).collect()))
            .collect();
        Ok(explained)
    }
}

/// See [`Moved::explain`].
#[derive(Debug, Default)]
pub(crate) struct Explained {
    /// Retired containers, each with the containers that hold its chunks according to the index.
    pub(crate) retired: Vec<(ContainerId, Vec<ContainerId>)>,
    /// The others.
    pub(crate) unexplained: BTreeSet<ContainerId>,
    /// Whether all relevant parts of the table were read.
    pub(crate) is_complete: bool,
}

impl Index {
    /// Passes retired containers to `each` until it returns false. Returns whether every part could
    /// be read.
    fn scan_retired(&self, mut each: impl FnMut(ContainerFacts) -> bool) -> bool {
        for record in self.containers.scan(0..=u64::MAX, SCAN_AHEAD) {
            match record {
                Ok((_, Some(facts))) if is_retired(&facts) => {
                    if !each(facts) {
                        return true;
                    }
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(%error, "the index's table of containers cannot be read");
                    return false;
                }
            }
        }
        true
    }
}

/// Whether the chunks of a container are elsewhere.
fn is_retired(facts: &ContainerFacts) -> bool {
    !matches!(facts.state, ContainerState::Live | ContainerState::Queued)
}
