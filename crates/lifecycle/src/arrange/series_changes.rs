//! The changes of versions in a pass that decide which series are arranged.

use std::collections::{BTreeMap, BTreeSet};

use larder_format::ids::SeriesKey;
use larder_format::index_manifest::IndexedVersion;
use larder_format::layout::Layout;

use super::Unarranged;

/// See the module header. It gets versions of all layouts.
#[derive(Debug, Default)]
pub struct SeriesChanges {
    /// Series with generations that count and that the index does not have.
    unsettled: BTreeSet<SeriesKey>,
    /// Numbers of versions that were dropped.
    dropped: BTreeMap<SeriesKey, BTreeSet<u32>>,
    arranges_unsettled: bool,
}

impl SeriesChanges {
    /// No changes so far. `arranges_unsettled`: whether series with generations that the index does
    /// not have are arranged too.
    pub fn new(arranges_unsettled: bool) -> Self {
        Self { arranges_unsettled, ..Self::default() }
    }

    /// A generation of a version of this series counts, and the index does not have it.
    pub fn held(&mut self, series: SeriesKey, layout: Layout) {
        if layout == Layout::Lifecycle {
            self.unsettled.insert(series);
        }
    }

    /// A version is dropped from the index.
    pub fn dropped(&mut self, version: &IndexedVersion) {
        if version.layout == Layout::Lifecycle {
            self.dropped.entry(version.series).or_default().insert(version.number);
        }
    }

    /// Series of which versions were added or removed, or all of them. Series with generations that
    /// the index does not have are left out, because their needs are unknown. `retained`: the
    /// versions that the index has, without those that were dropped.
    pub fn unarranged<'a>(
        &self,
        retained: impl Iterator<Item = &'a IndexedVersion>,
        all_series: bool,
    ) -> Vec<Unarranged> {
        let mut all: BTreeMap<SeriesKey, Vec<IndexedVersion>> = BTreeMap::new();
        let of_layout = retained.filter(|version| version.layout == Layout::Lifecycle);
        for version in of_layout.filter(|version| self.arranges_unsettled || !self.unsettled.contains(&version.series))
        {
            all.entry(version.series).or_default().push(*version);
        }
        let unarranged = all.into_iter().filter_map(|(series, mut versions)| {
            versions.sort_by_key(|version| version.number);
            let oldest = versions.first().map_or(0, |version| version.number);
            let dropped = self.dropped.get(&series);
            let has_left = dropped.and_then(BTreeSet::last).is_some_and(|newest| *newest > oldest);
            let unarranged = Unarranged {
                series,
                versions,
                has_left,
                has_lost: dropped.is_some(),
                is_wanted: all_series,
                holes_percent: 0.0,
                every: 1,
            };
            (unarranged.is_due() || unarranged.has_lost).then_some(unarranged)
        });
        unarranged.collect()
    }
}
