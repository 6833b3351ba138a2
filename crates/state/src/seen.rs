//! The file `seen`: what this machine made and saw.

use larder_format::ids::{DomainId, JobId, KeyId, SeriesKey};
use larder_format::lease::Pin;
use minicbor::{Decode, Encode};

/// Versions to remember of each series.
const VERSIONS_MAX: usize = 8;
/// Series to remember: those with the newest versions. They take about 600 KiB.
const SERIES_MAX: usize = 4096;
/// Missed versions to remember.
const MISSED_MAX: usize = 1024;
/// Closed domains to remember.
const CLOSED_MAX: usize = 1024;
/// Most bytes of the file.
pub(crate) const SEEN_MAX: u64 = 4 << 20;

/// An index by its number and the attempt that published it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct SeenIndex {
    /// Its number.
    #[n(0)]
    pub number: u64,
    /// The attempt that its mark names.
    #[n(1)]
    #[cbor(with = "minicbor::bytes")]
    pub attempt: [u8; 16],
    /// Whether a pass on this machine published it.
    #[n(2)]
    pub is_own: bool,
}

impl SeenIndex {
    /// Whether both are the same index.
    pub fn is(&self, other: &Self) -> bool {
        (self.number, self.attempt) == (other.number, other.attempt)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
struct SeenSeries {
    #[n(0)]
    series: SeriesKey,
    /// The last committed first; never empty. Ids follow the clock, which may have been wrong.
    #[n(1)]
    versions: Vec<JobId>,
}

/// See the module header.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Seen {
    /// The key that opened the repository last.
    #[n(0)]
    pub key: Option<KeyId>,
    /// The newest index.
    #[n(1)]
    pub index: Option<SeenIndex>,
    /// Series with versions that this machine made.
    #[n(2)]
    #[cbor(default)]
    series: Vec<SeenSeries>,
    /// Versions that a backup missed. Newer ones do not make up for them.
    #[n(3)]
    #[cbor(default, skip_if = "Vec::is_empty")]
    missed: Vec<Pin>,
    /// Domains that were closed.
    #[n(4)]
    #[cbor(default, skip_if = "Vec::is_empty")]
    closed: Vec<DomainId>,
}

impl Seen {
    /// Adds a version that this machine made.
    pub fn add(&mut self, version: Pin) {
        let known = self.series.iter().position(|known| known.series == version.series);
        let at = known.unwrap_or_else(|| {
            self.series.push(SeenSeries { series: version.series, versions: Vec::new() });
            self.series.len() - 1
        });
        let versions = &mut self.series[at].versions;
        versions.retain(|job| *job != version.job);
        versions.insert(0, version.job);
        versions.truncate(VERSIONS_MAX);
        if self.series.len() > SERIES_MAX {
            self.series.sort_unstable_by_key(|series| std::cmp::Reverse(series.versions.first().copied()));
            self.series.truncate(SERIES_MAX);
        }
    }

    /// Drops a version that may be gone, and the older ones of its series: another machine may have
    /// collected those.
    pub fn remove(&mut self, version: Pin) {
        for series in self.series.iter_mut().filter(|known| known.series == version.series) {
            let newer = series.versions.iter().position(|job| *job == version.job);
            series.versions.truncate(newer.unwrap_or(series.versions.len()));
        }
        self.series.retain(|series| !series.versions.is_empty());
        self.missed.retain(|missed| *missed != version);
    }

    /// Drops all versions of a series.
    pub fn remove_series(&mut self, series: SeriesKey) {
        self.series.retain(|known| known.series != series);
        self.missed.retain(|missed| missed.series != series);
    }

    /// Remembers that a version is missed, whatever this machine makes later.
    pub fn miss(&mut self, version: Pin) {
        if !self.missed.contains(&version) && self.missed.len() < MISSED_MAX {
            self.missed.push(version);
        }
    }

    /// Remembers that a domain was closed.
    pub fn add_closed(&mut self, domain: DomainId) {
        if !self.closed.contains(&domain) && self.closed.len() < CLOSED_MAX {
            self.closed.push(domain);
        }
    }

    /// Drops a closed domain.
    pub fn remove_closed(&mut self, domain: DomainId) {
        self.closed.retain(|known| *known != domain);
    }

    /// The domains that were closed when this machine looked.
    pub fn closed(&self) -> &[DomainId] {
        &self.closed
    }

    /// Whether this machine still expects a version to be there.
    pub fn expects(&self, version: Pin) -> bool {
        self.missed.contains(&version) || self.of_series(version.series).contains(&version.job)
    }

    /// The versions to ask for: the newest of each series that this machine made, and those that a
    /// backup missed.
    pub fn newest(&self) -> impl Iterator<Item = Pin> {
        let newest = |known: &SeenSeries| Some(Pin { series: known.series, job: *known.versions.first()? });
        let newest: Vec<Pin> = self.series.iter().filter_map(newest).collect();
        let missed: Vec<Pin> = self.missed.iter().filter(|missed| !newest.contains(missed)).copied().collect();
        newest.into_iter().chain(missed)
    }

    /// All remembered versions of a series, the last committed first.
    pub fn of_series(&self, series: SeriesKey) -> &[JobId] {
        self.series.iter().find(|known| known.series == series).map_or(&[], |known| &known.versions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pin(series: u16, job: u8) -> Pin {
        let mut key = [0; 16];
        key[..2].copy_from_slice(&series.to_be_bytes());
        Pin { series: SeriesKey(key), job: JobId([job; 16]) }
    }

    #[test]
    fn the_newest_versions_of_the_newest_series_stay() {
        let mut seen = Seen::default();
        for job in [9, 1, 2, 3, 1, 4, 5, 6, 7, 8] {
            seen.add(pin(1, job));
        }
        let jobs: Vec<_> = seen.of_series(pin(1, 0).series).iter().map(|job| job.0[0]).collect();
        assert_eq!(jobs, [8, 7, 6, 5, 4, 1, 3, 2], "each once in the order of commits, the oldest went");
        for series in 2..=SERIES_MAX as u16 + 1 {
            seen.add(pin(series, 20));
        }
        assert_eq!(seen.newest().count(), SERIES_MAX);
        assert_eq!(seen.of_series(pin(1, 0).series), [], "the series without a new version went");
    }

    #[test]
    fn a_series_without_versions_goes() {
        let mut seen = Seen::default();
        (1..=3).for_each(|job| seen.add(pin(1, job)));
        seen.remove(pin(1, 2));
        assert_eq!(seen.newest().collect::<Vec<_>>(), [pin(1, 3)]);
        assert!(!seen.expects(pin(1, 1)), "another machine may have collected what is older");
        seen.remove(pin(1, 3));
        assert_eq!(seen, Seen::default());
    }

    #[test]
    fn a_missed_version_is_expected_until_its_series_is_accepted() {
        let mut seen = Seen::default();
        seen.add(pin(1, 1));
        seen.miss(pin(1, 1));
        (2..20).for_each(|job| seen.add(pin(1, job)));
        assert_eq!(seen.newest().collect::<Vec<_>>(), [pin(1, 19), pin(1, 1)]);
        assert!(seen.expects(pin(1, 1)));
        seen.remove(pin(1, 1));
        assert!(!seen.expects(pin(1, 1)), "it was forgotten");
        seen.miss(pin(1, 1));
        seen.remove_series(pin(1, 1).series);
        assert_eq!(seen, Seen::default());
    }
}
