//! Which versions a repository holds, and how people name one of them.
//!
//! A version exists when its commit register holds a manifest and no mark says it is forgotten.
//! Which of several generations of a manifest counts is in `generations.rs`. One damaged manifest
//! does not hide the others: it is listed as damaged. Marks and higher generations that do not open
//! or do not count hide nothing: they are listed as faulty. Versions that a closed domain does not
//! name are listed as refused (`closed_domains.rs`).

use std::collections::{BTreeMap, HashSet};

use futures::StreamExt;
use larder_format::ErrorKind;
use larder_format::ids::{JobId, SeriesKey};
use larder_format::lease::Pin;
use larder_format::manifest::{HEAD_GUESS, Summary};
use larder_format::names;
use larder_format::sketch::Sketch;

use crate::closed_domains::ClosedDomains;
use crate::forget_marks::{FaultyObject, OwnedVersion};
use crate::repository::{CONCURRENT_READS, Repository, RepositoryError};

/// A committed version, known by its summary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// The part for people.
    pub summary: Summary,
    /// The series, as object keys name it.
    pub series: SeriesKey,
    /// Highest generation of its manifest that counts.
    pub generation: u32,
    /// When its generation 0 was made, milliseconds since the epoch by the store's clock, as it was
    /// listed; 0: the store does not say. Nobody can replace that generation.
    pub made_ms: u64,
    /// Bytes of the manifest of that highest generation, as it was listed; 0: not known.
    pub manifest_bytes: u64,
}

impl From<&Version> for OwnedVersion {
    fn from(version: &Version) -> Self {
        let Version { series, summary, .. } = version;
        Self { domain: summary.domain, version: Pin { series: *series, job: summary.id } }
    }
}

/// How far the time of a version may be after the present, milliseconds: clocks differ. It is
/// little, because a policy that counts one of the future forgets those of that span for it.
const AHEAD_MAX_MS: u64 = 60 * 60 * 1000;

impl Version {
    /// Its id.
    pub fn id(&self) -> JobId {
        self.summary.id
    }

    /// The place of the version in time, milliseconds since the epoch, and its id: what is `latest`
    /// has the highest. A version counts as no newer than the start of its job, which its id tells.
    /// So a stated time in the future changes no order.
    pub fn rank(&self) -> (u64, JobId) {
        (self.summary.time_ms.min(self.id().unix_ms()), self.id())
    }

    /// Whether its place in time is after the present, milliseconds since the epoch: a clock was
    /// wrong. Then later versions seem to be older.
    pub fn is_of_the_future(&self, now_ms: u64) -> bool {
        self.rank().0 > now_ms.saturating_add(AHEAD_MAX_MS)
    }
}

/// A manifest that could not be read.
#[derive(Debug)]
pub struct DamagedVersion {
    /// Its object.
    pub name: String,
    /// Its id.
    pub id: JobId,
    /// Why.
    pub error: RepositoryError,
}

/// All versions of a repository.
#[derive(Debug, Default)]
pub struct Catalog {
    /// Oldest first, by [`Version::rank`]. Without their sketches, which would be most of the
    /// memory of a long list; [`Repository::newest_of_every_series`] and [`Repository::manifest`]
    /// give them.
    pub versions: Vec<Version>,
    /// Versions none of whose manifests could be read.
    pub damaged: Vec<DamagedVersion>,
    /// Marks and generations that do not open or do not count, by name. They hide none of the
    /// versions.
    pub faulty: Vec<FaultyObject>,
    /// Versions that do not count, because their domain was closed without them, oldest first. Only
    /// a listing of all series by a key for every domain has them.
    pub refused: Vec<Version>,
    /// Objects that pretend to close a domain, with their errors, by name. They close nothing.
    pub faulty_ends: Vec<(String, RepositoryError)>,
}

/// The objects under the name of one version.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) version: Option<Version>,
    pub(crate) damaged: Option<DamagedVersion>,
    pub(crate) faulty: Vec<FaultyObject>,
    pub(crate) refused: Option<Version>,
}

/// A generation of a manifest as it was listed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ListedGeneration {
    pub(crate) number: u32,
    pub(crate) bytes: u64,
    /// As in [`Version::made_ms`].
    pub(crate) made_ms: u64,
}

impl ListedGeneration {
    /// The version and the generation of a listed object, if it is one.
    pub(crate) fn parse(object: &crate::Listed) -> Option<((SeriesKey, JobId), Self)> {
        let (series, job, number) = names::parse_version(&object.name)?;
        Some(((series, job), Self { number, bytes: object.size, made_ms: object.made_ms() }))
    }
}

/// The result of listings: generations of every register, and which versions have a mark.
pub(crate) struct Listed {
    pub(crate) versions: BTreeMap<(SeriesKey, JobId), Vec<ListedGeneration>>,
    pub(crate) forgotten: HashSet<(SeriesKey, JobId)>,
}

impl Listed {
    pub(crate) fn new(marks: Vec<crate::Listed>, registers: Vec<crate::Listed>) -> Self {
        let forgotten = marks.iter().filter_map(|object| names::parse_forgotten(&object.name)).collect();
        let mut versions: BTreeMap<_, Vec<ListedGeneration>> = BTreeMap::new();
        for object in registers {
            if let Some((version, generation)) = ListedGeneration::parse(&object) {
                versions.entry(version).or_default().push(generation);
            }
        }
        versions.retain(|_, generations| exists(generations));
        Self { versions, forgotten }
    }
}

/// How a text names a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reference {
    /// The newest, or one of those before it.
    Latest {
        /// How many versions are newer.
        back: usize,
    },
    /// What an id has to fit ([`JobId::fits`]), in lower case.
    Id(String),
}

impl Reference {
    /// Reads a reference; `None`: it can name nothing.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if let Some(back) = text.strip_prefix("latest") {
            let back = match back.strip_prefix('~') {
                _ if back.is_empty() => 0,
                Some(number) => number.parse().ok()?,
                None => return None,
            };
            return Some(Self::Latest { back });
        }
        let wanted = text.to_ascii_lowercase();
        (!wanted.is_empty() && wanted.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(Self::Id(wanted))
    }
}

/// Which versions are meant.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Any of these hosts; empty = all.
    pub hosts: Vec<String>,
    /// A version must have all tags of any of these sets; a set without tags means versions without
    /// tags. Empty = all.
    pub tags: Vec<Vec<String>>,
    /// All of these paths among the backed up ones; empty = all.
    pub paths: Vec<Vec<u8>>,
    /// Any of these series; empty = all.
    pub series: Vec<String>,
}

impl Filter {
    /// Whether a version is meant.
    pub fn admits(&self, summary: &Summary) -> bool {
        let any = |wanted: &[String], value: &String| wanted.is_empty() || wanted.contains(value);
        any(&self.hosts, &summary.host)
            && any(&self.series, &summary.series)
            && self.paths.iter().all(|path| summary.paths.contains(path))
            && (self.tags.is_empty() || self.tags.iter().any(|wanted| has_tags(wanted, &summary.tags)))
    }
}

fn has_tags(wanted: &[String], tags: &[String]) -> bool {
    if wanted.is_empty() { tags.is_empty() } else { wanted.iter().all(|tag| tags.contains(tag)) }
}

/// A reference that names no version, or several.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RefError {
    /// Nothing fits.
    #[error("no version fits {text:?}")]
    NotFound {
        /// The requested version.
        text: String,
    },
    /// Several fit.
    #[error("{text:?} fits {count} versions; give more digits")]
    Ambiguous {
        /// The requested version.
        text: String,
        /// How many.
        count: usize,
    },
}

impl RefError {
    /// How a caller can react to it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NotFound { .. } | Self::Ambiguous { .. } => ErrorKind::Precondition,
        }
    }
}

impl Catalog {
    /// Ids that several versions have. No program draws an id twice, so somebody gave a version the
    /// id of another one. Nothing may be decided by such an id alone.
    pub fn shared_ids(&self) -> HashSet<JobId> {
        let readable = self.versions.iter().chain(&self.refused).map(|version| (version.series, version.id()));
        let damaged = self.damaged.iter().filter_map(|version| names::parse_version(&version.name));
        let mut seen = HashSet::new();
        let all: HashSet<_> = readable.chain(damaged.map(|(series, job, _)| (series, job))).collect();
        all.into_iter().map(|(_, job)| job).filter(|job| !seen.insert(*job)).collect()
    }

    /// Adds the objects of one version, in any order.
    pub(crate) fn add(&mut self, found: Found) {
        let Found { version, damaged, faulty, refused } = found;
        self.versions.extend(version);
        self.refused.extend(refused);
        self.damaged.extend(damaged);
        self.faulty.extend(faulty);
    }

    /// Puts everything in order.
    pub(crate) fn sort(&mut self) {
        for versions in [&mut self.versions, &mut self.refused] {
            versions.sort_by_key(Version::rank);
        }
        self.damaged.sort_by(|a, b| a.name.cmp(&b.name));
        self.faulty.sort_by(|a, b| a.name.cmp(&b.name));
    }

    /// Leaves only the versions that the filter admits.
    pub fn filtered(mut self, filter: &Filter) -> Self {
        self.versions.retain(|version| filter.admits(&version.summary));
        self
    }

    /// Finds the version that `text` names: `latest`, `latest~2` (the second before it), or a part
    /// of an id: its beginning, its end, or the beginning of its short form. A whole id or a whole
    /// short form means only that version.
    pub fn find(&self, text: &str) -> Result<&Version, RefError> {
        let not_found = || RefError::NotFound { text: text.to_owned() };
        let wanted = match Reference::parse(text).ok_or_else(not_found)? {
            Reference::Latest { back } => return self.versions.iter().rev().nth(back).ok_or_else(not_found),
            Reference::Id(wanted) => wanted,
        };
        let fitting: Vec<&Version> = self.versions.iter().filter(|version| version.id().fits(&wanted)).collect();
        let exact: Vec<&Version> = fitting.iter().copied().filter(|version| version.id().is_exactly(&wanted)).collect();
        let found = if exact.is_empty() { fitting } else { exact };
        match found[..] {
            [] => Err(not_found()),
            [only] => Ok(only),
            _ => Err(RefError::Ambiguous { text: text.to_owned(), count: found.len() }),
        }
    }
}

impl Repository {
    /// Reads the summaries of all versions that are not forgotten.
    pub async fn catalog(&self) -> Result<Catalog, RepositoryError> {
        self.catalog_below(names::VERSIONS).await
    }

    /// Reads the summaries of the versions of one series.
    pub async fn catalog_of_series(&self, series: &str) -> Result<Catalog, RepositoryError> {
        self.catalog_below(&names::series_versions(self.keys.series_key(series))).await
    }

    async fn catalog_below(&self, prefix: &str) -> Result<Catalog, RepositoryError> {
        let (Listed { versions, forgotten }, closed_domains) = self.listed_below(prefix).await?;
        let (forgotten, closed) = (&forgotten, &closed_domains);
        let reads = versions.into_iter().map(|((series, job), generations)| async move {
            let is_marked = forgotten.contains(&(series, job));
            self.find(series, job, generations, is_marked, closed, HEAD_GUESS).await
        });
        let mut reads = futures::stream::iter(reads).buffer_unordered(CONCURRENT_READS);
        let mut catalog = Catalog::default();
        while let Some(found) = reads.next().await {
            let mut found = found?;
            for version in found.version.iter_mut().chain(&mut found.refused) {
                version.summary.sketch = Sketch::default();
            }
            catalog.add(found);
        }
        catalog.sort();
        drop(reads);
        catalog.faulty_ends = closed_domains.faulty;
        Ok(catalog)
    }

    /// Lists marks and then registers, and which domains are closed.
    pub(crate) async fn listed_below(&self, prefix: &str) -> Result<(Listed, ClosedDomains), RepositoryError> {
        // Marks before versions: a version collected between the two listings is then missing,
        // never back from the dead.
        let marks = self.list_marks_below(prefix).await?;
        let (objects, closed) = futures::try_join!(self.list_registers_below(prefix), self.closed_for(prefix))?;
        Ok((Listed::new(marks, objects), closed))
    }

    /// The marks of the versions below a prefix.
    pub(crate) async fn list_marks_below(&self, prefix: &str) -> Result<Vec<crate::Listed>, RepositoryError> {
        Ok(self.store.list(&names::marks_of(prefix)).await?)
    }

    pub(crate) async fn list_registers_below(&self, prefix: &str) -> Result<Vec<crate::Listed>, RepositoryError> {
        Ok(self.store.list(prefix).await?)
    }

    /// The closed domains, as far as they matter for what is below `prefix`. A key of one domain
    /// sees no others, and works only as long as that one is open. The default domain is always
    /// open.
    pub(crate) async fn closed_for(&self, prefix: &str) -> Result<ClosedDomains, RepositoryError> {
        let is_own = prefix != names::VERSIONS && self.keys.domain().is_default();
        if is_own || !self.keys.is_for_all_domains() {
            return Ok(ClosedDomains::default());
        }
        self.closed_domains().await
    }

    /// Finds one version: its newest readable manifest, unless its mark is genuine. Manifests of at
    /// most `whole` bytes are read as a whole.
    pub(crate) async fn find(
        &self,
        series: SeriesKey,
        job: JobId,
        generations: Vec<ListedGeneration>,
        is_marked: bool,
        closed: &ClosedDomains,
        whole: u64,
    ) -> Result<Found, RepositoryError> {
        let mut found = Found::default();
        if is_marked {
            match self.read_forgotten(&self.store, series, job).await {
                // Genuine; or gone since the listing, and then the version went before it.
                Ok(_) => return Ok(found),
                // Also one that claims another domain, which its header alone says.
                Err(error) if error.is_of_object() || error.is_foreign() => {
                    found.faulty.push(FaultyObject { name: names::forgotten(series, job), job, error });
                }
                Err(error) => return Err(error),
            }
        }
        // A task may create its generation after the version is gone. Only generation 0 makes a
        // version.
        if !exists(&generations) {
            return Ok(found);
        }
        let counting = match self.counting_generation(&self.store, (series, job), generations, whole).await {
            // A version of another machine, which is none of this key's business.
            Err(error) if error.is_foreign() => return Ok(Found::default()),
            counting => counting?,
        };
        let mut faulty = counting.faulty.into_iter();
        found.version = counting.version;
        if found.version.is_none() && !counting.is_aborted {
            found.damaged =
                faulty.next().map(|object| DamagedVersion { name: object.name, id: object.job, error: object.error });
        }
        found.faulty.extend(faulty);
        found.refused = found.version.take_if(|version| closed.refuses(version.series, &version.summary));
        Ok(found)
    }
}

/// Whether there is a version at all. Later generations are the work of tasks, and a task may
/// create one after the version was collected.
pub(crate) fn exists(generations: &[ListedGeneration]) -> bool {
    generations.iter().any(|generation| generation.number == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_format::content::ContentRoots;
    use larder_format::layout::Layout;
    use larder_format::manifest::{SourceKind, Statistics};
    use larder_format::recipe::Recipe;

    fn version(time_ms: u64, id: u8, host: &str, tags: &[&str]) -> Version {
        let summary = Summary {
            id: JobId([id; 16]),
            series: format!("{host}:/"),
            base: None,
            time_ms,
            started_ms: 0,
            ended_ms: 0,
            host: host.to_owned(),
            user: String::new(),
            tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
            paths: vec![b"/".to_vec()],
            program: String::new(),
            source: SourceKind::Tree,
            statistics: Statistics::default(),
            attempt: [0; 16],
            sketch: Sketch::default(),
            layout: Layout::Standard,
            more_bases: Vec::new(),
            domain: Default::default(),
            is_signed: false,
            roots: ContentRoots::of(&Recipe::default(), &Recipe::default()),
            witness: None,
            domain_name: String::new(),
            domain_epoch: 0,
            origin: None,
        };
        Version { summary, series: SeriesKey([0; 16]), generation: 0, made_ms: 0, manifest_bytes: 0 }
    }

    fn catalog() -> Catalog {
        let versions =
            vec![version(1, 0x1a, "a", &["x"]), version(2, 0x1b, "b", &["x", "y"]), version(3, 0x2c, "a", &[])];
        Catalog { versions, ..Catalog::default() }
    }

    #[test]
    fn references_name_one_version_or_fail_clearly() {
        let catalog = catalog();
        let id = |text: &str| catalog.find(text).map(|version| version.id().0[0]);
        assert_eq!(id("latest"), Ok(0x2c));
        assert_eq!(id("latest~2"), Ok(0x1a));
        assert_eq!(id("1a"), Ok(0x1a));
        assert_eq!(id("1"), Err(RefError::Ambiguous { text: "1".to_owned(), count: 2 }));
        assert_eq!(id("c2C2c"), Ok(0x2c));
        for nothing in ["latest~3", "latest~x", "latestx", "", "zz", "77"] {
            assert_eq!(id(nothing), Err(RefError::NotFound { text: nothing.to_owned() }), "{nothing}");
        }
    }

    /// Tables show the end of an id, and people type its first digits.
    #[test]
    fn the_beginning_of_a_displayed_id_names_its_version() {
        let of = |host: &str, short: [u8; 4], first: u8| {
            let mut id = [first; 16];
            id[12..].copy_from_slice(&short);
            let mut version = version(1, 0, host, &[]);
            version.summary.id = JobId(id);
            version
        };
        let versions = vec![
            of("a", [0x0d, 0x75, 0x24, 0x5b], 1),
            of("b", [0x0d, 0x75, 0x99, 0x99], 2),
            // Its id ends, and another one begins, as a short form that is exact.
            of("c", [0x12, 0x34, 0x56, 0x78], 3),
            Version {
                summary: Summary { id: JobId([0x12; 16]), ..version(1, 0, "d", &[]).summary },
                ..version(1, 0, "d", &[])
            },
            of("e", [0x99; 4], 0x12),
        ];
        let catalog = Catalog { versions, ..Catalog::default() };
        let host = |text: &str| catalog.find(text).map(|version| version.summary.host.clone());
        let ambiguous = |text: &str, count| Err(RefError::Ambiguous { text: text.to_owned(), count });
        assert_eq!(host("0d7524"), Ok("a".to_owned()));
        assert_eq!(host("0D759"), Ok("b".to_owned()));
        assert_eq!(host("0d75"), ambiguous("0d75", 2));
        assert_eq!(host("0d7"), Err(RefError::NotFound { text: "0d7".to_owned() }), "too short for a displayed id");
        assert_eq!(host("7524"), Err(RefError::NotFound { text: "7524".to_owned() }), "its middle");
        assert_eq!(host("12345678"), Ok("c".to_owned()));
        assert_eq!(host("1234"), Ok("c".to_owned()));
        // The short form of one, and the beginning of another.
        assert_eq!(host("12121212"), Ok("d".to_owned()));
        assert_eq!(host("121212"), ambiguous("121212", 2));
    }

    #[test]
    fn filters_combine_as_restic_users_expect() {
        let admitted = |filter: Filter| catalog().filtered(&filter).versions.len();
        assert_eq!(admitted(Filter::default()), 3);
        assert_eq!(admitted(Filter { hosts: vec!["a".to_owned()], ..Filter::default() }), 2);
        let both = vec![vec!["x".to_owned(), "y".to_owned()]];
        assert_eq!(admitted(Filter { tags: both, ..Filter::default() }), 1);
        let either = vec![vec!["y".to_owned()], vec!["x".to_owned()]];
        assert_eq!(admitted(Filter { tags: either, ..Filter::default() }), 2);
        assert_eq!(admitted(Filter { series: vec!["a:/".to_owned()], ..Filter::default() }), 2);
    }
}
