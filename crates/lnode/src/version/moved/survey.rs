//! What the index's table of containers says of many containers at once: one scan of it, because it has them by number and not by name.

use std::collections::BTreeSet;

use larder_format::ids::ContainerId;
use larder_format::index_tables::{ContainerFacts, ContainerState};
use larder_index::IndexError;
use larder_store::RepositoryError;

use super::{Index, Moved};

/// Bytes read ahead of the table of containers.
const SCAN_AHEAD: usize = 1 << 20;

impl Moved {
    /// Asks the index which other containers that are named are gone, so that nobody has to miss one after the other.
    ///
    /// A hint: what the index does not say is found out as before. Nothing is called gone that the index calls live, or that it
    /// does not know.
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
        index.scan_retired(|id| {
            gone.extend(named.contains(&id).then_some(id));
            true
        });
        let mut state = self.state.lock();
        let before = state.gone.len();
        state.gone.extend(gone);
        state.changes += u64::from(state.gone.len() > before);
    }

    /// Of containers that were not found, those of which the newest index does not say that their chunks are elsewhere.
    pub(crate) fn without_retired(
        &self,
        mut absent: BTreeSet<ContainerId>,
    ) -> Result<BTreeSet<ContainerId>, RepositoryError> {
        self.learn(absent.iter().copied())?;
        let Some(index) = self.state.lock().index.clone() else { return Ok(absent) };
        index.scan_retired(|id| {
            absent.remove(&id);
            !absent.is_empty()
        });
        Ok(absent)
    }
}

impl Index {
    /// Gives retired containers to `each` as long as it wants more. What cannot be read of the table is left out.
    fn scan_retired(&self, mut each: impl FnMut(ContainerId) -> bool) {
        for record in self.containers.scan(0..=u64::MAX, SCAN_AHEAD) {
            match record {
                Ok((_, Some(facts))) if is_retired(&facts) => {
                    if !each(facts.id) {
                        return;
                    }
                }
                Ok(_) => {}
                Err(error) => return told(&error),
            }
        }
    }
}

fn told(error: &IndexError) {
    tracing::warn!(%error, "the index's table of containers cannot be read");
}

/// Whether the chunks of a container are elsewhere.
fn is_retired(facts: &ContainerFacts) -> bool {
    matches!(facts.state, ContainerState::Gone | ContainerState::Arranged)
}
