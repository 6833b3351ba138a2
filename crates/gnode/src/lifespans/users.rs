//! The lifespans of containers. Containers have the place of their list.
//!
//! Most containers of a job are used by the same versions, so there are few lists however many
//! containers there are. The changes by a new version, and the needs of versions, are computed for
//! lists instead of containers.

use std::io;
use std::path::Path;

use larder_format::ids::SeriesKey;
use larder_format::index_tables::{Lifespan, SeriesLifespans};

use super::TableError;
use super::lists::{ListId, Lists, Memo};

/// All lists.
#[derive(Debug)]
pub(super) struct Users(Lists);

impl Users {
    /// No lists. They take about `memory` bytes at most.
    pub(super) fn new(folder: &Path, memory: usize) -> Self {
        Self(Lists::new(folder, memory))
    }

    /// The place of a list.
    pub(super) fn place_of(&mut self, list: &[SeriesLifespans]) -> Result<ListId, TableError> {
        self.0.place_of(&encode(list)?)
    }

    /// A list.
    pub(super) fn list(&mut self, place: ListId) -> io::Result<Vec<SeriesLifespans>> {
        Ok(decode(&self.0.list(place)?))
    }

    /// The list that follows from a list when a version of a series is ingested, which uses its
    /// containers or does not.
    pub(super) fn after(&mut self, taking: &mut Taking, place: ListId, is_used: bool) -> Result<ListId, TableError> {
        let Taking { series, version, used, unused } = taking;
        let known = if is_used { used } else { unused };
        known.of(place, || {
            let list = self.list(place)?;
            let after = match is_used {
                true => begun(&list, *series, *version),
                false => ended(&list, *series, *version),
            };
            after.map_or(Ok(place), |list| self.place_of(&list))
        })
    }

    /// Bytes of all lists, wherever they are.
    pub(super) fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    /// Bytes that are in memory.
    #[cfg(test)]
    pub(super) fn bytes_in_memory(&self) -> usize {
        self.0.bytes_in_memory()
    }
}

/// Numbers of a series: its key, and how many lifespans follow.
const SERIES_WORDS: usize = 5;
/// Numbers of a lifespan: its first version, whether it has a last one, and that.
const LIFESPAN_WORDS: usize = 3;

fn encode(list: &[SeriesLifespans]) -> Result<Vec<u32>, TableError> {
    let mut words = Vec::new();
    for SeriesLifespans { series, lifespans } in list {
        let (key, _) = series.0.as_chunks();
        words.extend(key.iter().map(|word| u32::from_le_bytes(*word)));
        words.push(u32::try_from(lifespans.len()).map_err(|_| TableError::Full)?);
        for Lifespan { first, last } in lifespans {
            words.extend([*first, u32::from(last.is_some()), last.unwrap_or(0)]);
        }
    }
    Ok(words)
}

fn decode(mut words: &[u32]) -> Vec<SeriesLifespans> {
    let mut list = Vec::new();
    while let Some(([key @ .., count], rest)) = words.split_first_chunk::<SERIES_WORDS>() {
        let mut series = [0; 16];
        series.as_chunks_mut().0.iter_mut().zip(key).for_each(|(bytes, word)| *bytes = word.to_le_bytes());
        let (lifespans, rest) = rest.split_at(rest.len().min(*count as usize * LIFESPAN_WORDS));
        let (lifespans, _) = lifespans.as_chunks::<LIFESPAN_WORDS>();
        let lifespans = lifespans.iter().map(|[first, has_last, last]| {
            let last = (*has_last == 1).then_some(*last);
            Lifespan { first: *first, last }
        });
        list.push(SeriesLifespans { series: SeriesKey(series), lifespans: lifespans.collect() });
        words = rest;
    }
    list
}

/// A version that is ingested, and the new lists so far.
#[derive(Debug)]
pub(super) struct Taking {
    series: SeriesKey,
    version: u32,
    used: Memo<ListId>,
    unused: Memo<ListId>,
}

impl Taking {
    /// A version to be ingested, under this number.
    pub(super) fn new(series: SeriesKey, version: u32) -> Self {
        Self { series, version, used: Memo::new(), unused: Memo::new() }
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn lists_are_read_as_they_were_written(
            list in proptest::collection::vec(
                (any::<u8>(), proptest::collection::vec((any::<u32>(), any::<Option<u32>>()), 0..4)),
                0..4,
            ),
        ) {
            let list: Vec<SeriesLifespans> = list
                .into_iter()
                .map(|(series, lifespans)| SeriesLifespans {
                    series: SeriesKey([series; 16]),
                    lifespans: lifespans.into_iter().map(|(first, last)| Lifespan { first, last }).collect(),
                })
                .collect();
            prop_assert_eq!(decode(&encode(&list).expect("short")), list);
        }
    }
}
