//! Which of many containers the store has: asked for by their names, or by the listings of their
//! jobs first.
//!
//! A container counts as absent only after the store said so of its own name: one listing may be
//! wrong or late (`AskedTwice`).

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt;
use larder_format::ids::ContainerId;
use larder_format::names;

use crate::StoreErrorKind;
use crate::repository::{Repository, RepositoryError};

/// Containers that are asked for at once, and folders that are listed at once.
const CONCURRENT: usize = 32;

/// The store's answer about the name of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// It is there.
    Present,
    /// It is not.
    Absent,
    /// It is there and cannot be read.
    Unreadable,
}

impl Repository {
    /// Asks for containers by their names, in order. `each` gets the answers, and may end it.
    pub async fn look_for_containers<E: From<RepositoryError>>(
        &self,
        containers: impl IntoIterator<Item = ContainerId>,
        mut each: impl FnMut(ContainerId, Presence) -> Result<(), E>,
    ) -> Result<(), E> {
        let store = self.store.without_cache();
        let looks = containers.into_iter().map(|id| {
            let store = &store;
            async move {
                let presence = match store.size(&names::container(id)).await {
                    Ok(_) => Presence::Present,
                    Err(error) if error.kind == StoreErrorKind::NotFound => Presence::Absent,
                    Err(error) => match RepositoryError::from(error) {
                        error if error.is_of_object() => Presence::Unreadable,
                        error => return Err(error),
                    },
                };
                Ok((id, presence))
            }
        });
        let mut looks = futures::stream::iter(looks).buffered(CONCURRENT);
        while let Some(look) = looks.next().await {
            let (id, presence) = look?;
            each(id, presence)?;
        }
        Ok(())
    }

    /// The containers that the store does not have, cannot read, or has with another size than
    /// stated (in bytes of the object; `None`: any). Takes one listing for each job and kind that
    /// they are of, and a request for each container that no listing shows.
    pub async fn absent_containers(
        &self,
        containers: impl IntoIterator<Item = (ContainerId, Option<u64>)>,
    ) -> Result<BTreeSet<ContainerId>, RepositoryError> {
        let store = self.store.without_cache();
        let mut folders: BTreeMap<String, BTreeMap<ContainerId, Option<u64>>> = BTreeMap::new();
        for (id, bytes) in containers {
            folders.entry(names::containers_of(id.kind, id.job)).or_default().insert(id, bytes);
        }
        let listings = folders.into_iter().map(|(folder, mut wanted)| {
            let store = &store;
            async move {
                let listed = match store.list(&folder).await.map_err(RepositoryError::from) {
                    Ok(listed) => listed,
                    // Each is asked for by its name.
                    Err(error) if error.is_of_object() => Vec::new(),
                    Err(error) => return Err(error),
                };
                let mut wrong = BTreeSet::new();
                for object in listed {
                    let Some(id) = names::parse_container(&object.name) else { continue };
                    // An entry that cannot be examined is listed all the same, and says nothing.
                    if object.modified_ms == u64::MAX {
                        continue;
                    }
                    if wanted.remove(&id).flatten().is_some_and(|bytes| bytes != object.size) {
                        wrong.insert(id);
                    }
                }
                Ok((wanted.into_keys().collect::<Vec<_>>(), wrong))
            }
        });
        let mut listings = futures::stream::iter(listings).buffered(CONCURRENT);
        let (mut unlisted, mut absent) = (BTreeSet::new(), BTreeSet::new());
        while let Some(listing) = listings.next().await {
            let (wanted, wrong) = listing?;
            unlisted.extend(wanted);
            absent.extend(wrong);
        }
        self.look_for_containers(unlisted, |id, presence| {
            if presence != Presence::Present {
                absent.insert(id);
            }
            Ok::<_, RepositoryError>(())
        })
        .await?;
        Ok(absent)
    }
}
