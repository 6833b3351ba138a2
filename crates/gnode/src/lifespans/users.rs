//! The lifespans of containers. Every distinct list of lifespans is stored once, and containers
//! have its number.
//!
//! Most containers of a job are used by the same versions, so there are few lists however many
//! containers there are. The changes by a new version, and the needs of versions, are computed for
//! lists instead of containers.

use std::collections::HashMap;
use std::sync::Arc;

use larder_format::ids::SeriesKey;
use larder_format::index_tables::{Lifespan, SeriesLifespans};

/// The number of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UsersId(u32);

type List = Arc<[SeriesLifespans]>;

/// All lists.
#[derive(Debug, Default)]
pub(super) struct Users {
    lists: Vec<List>,
    ids: HashMap<List, UsersId>,
    bytes: u64,
}

/// Bytes of a list beside its entries, in the vector and in the map.
const LIST_BYTES: usize = 96;

impl Users {
    /// The number of a list; `None` when there are 2^32 others.
    pub(super) fn id_of(&mut self, list: &[SeriesLifespans]) -> Option<UsersId> {
        if let Some(id) = self.ids.get(list) {
            return Some(*id);
        }
        let id = UsersId(u32::try_from(self.lists.len()).ok()?);
        let list: List = list.into();
        let spans: usize = list.iter().map(|user| user.lifespans.capacity()).sum();
        self.bytes += (LIST_BYTES + size_of_val(&*list) + spans * size_of::<Lifespan>()) as u64;
        self.lists.push(list.clone());
        self.ids.insert(list, id);
        Some(id)
    }

    /// A list.
    pub(super) fn list(&self, id: UsersId) -> &[SeriesLifespans] {
        self.lists.get(id.0 as usize).map_or(&[], |list| list)
    }

    /// A value that is computed for each list, to be read by its number.
    pub(super) fn map<T>(&self, mut of_list: impl FnMut(&[SeriesLifespans]) -> T) -> OfLists<T> {
        OfLists(self.lists.iter().map(|list| of_list(list)).collect())
    }

    /// The list that follows from a list when a version of a series is ingested, which uses its
    /// containers or does not. `None` when there are 2^32.
    pub(super) fn after(&mut self, taking: &mut Taking, id: UsersId, is_used: bool) -> Option<UsersId> {
        let known = if is_used { &mut taking.used } else { &mut taking.unused };
        if let Some(Some(after)) = known.get(id.0 as usize) {
            return Some(*after);
        }
        let list = self.lists.get(id.0 as usize)?;
        let after = match is_used {
            true => begun(list, taking.series, taking.version),
            false => ended(list, taking.series, taking.version),
        };
        let after = after.map_or(Some(id), |list| self.id_of(&list))?;
        if known.len() <= id.0 as usize {
            known.resize(id.0 as usize + 1, None);
        }
        known[id.0 as usize] = Some(after);
        Some(after)
    }

    /// Bytes that they take, about.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// A version that is ingested, and the new lists so far.
#[derive(Debug)]
pub(super) struct Taking {
    series: SeriesKey,
    version: u32,
    used: Vec<Option<UsersId>>,
    unused: Vec<Option<UsersId>>,
}

impl Taking {
    /// A version to be ingested, under this number.
    pub(super) fn new(series: SeriesKey, version: u32) -> Self {
        Self { series, version, used: Vec::new(), unused: Vec::new() }
    }
}

/// A value for each list.
#[derive(Debug)]
pub(super) struct OfLists<T>(Vec<T>);

impl<T: Copy> OfLists<T> {
    /// The value of this list; none for a younger list.
    pub(super) fn of(&self, id: UsersId) -> Option<T> {
        self.0.get(id.0 as usize).copied()
    }
}

/// A series begins to use containers with these users at this version, unless it does already.
pub(super) fn begun(users: &[SeriesLifespans], series: SeriesKey, version: u32) -> Option<Vec<SeriesLifespans>> {
    let begun = Lifespan { first: version, last: None };
    let place = users.binary_search_by_key(&series, |user| user.series);
    if let Ok(place) = place
        && users[place].lifespans.last().is_some_and(|lifespan| lifespan.last.is_none())
    {
        return None;
    }
    let mut users = users.to_vec();
    match place {
        Ok(place) => users[place].lifespans.push(begun),
        Err(place) => users.insert(place, SeriesLifespans { series, lifespans: vec![begun] }),
    }
    Some(users)
}

/// A series stops to use containers with these users at this version, if it did.
fn ended(users: &[SeriesLifespans], series: SeriesKey, version: u32) -> Option<Vec<SeriesLifespans>> {
    let place = users.binary_search_by_key(&series, |user| user.series).ok()?;
    users[place].lifespans.last().filter(|lifespan| lifespan.last.is_none())?;
    let mut users = users.to_vec();
    // All versions of the series since it began use them; there is none between the newest of them
    // and this one.
    users[place].lifespans.last_mut()?.last = Some(version.saturating_sub(1));
    Some(users)
}
