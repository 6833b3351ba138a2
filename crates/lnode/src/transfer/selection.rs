//! Which versions of a repository are copied, and what a claim of origin is worth.
//!
//! Any client of the source can make versions there, under any name and time. Any client of the
//! destination's domain can make versions that claim to be copies. So:
//! * a copy counts if an operator signed it or this machine made it ([`is_believed`]);
//! * a time that nothing confirms is not copied, because an operator's signature would confirm it;
//! * versions of several writers do not come together in one series;
//! * what came from the destination is not copied back. A false claim of that hides nothing but the
//!   version that makes it.
//!
//! People may decide otherwise for versions that they name by id.

use std::collections::{BTreeSet, HashMap, HashSet};

use larder_format::ids::{DomainId, JobId, RepositoryId, SeriesKey};
use larder_format::layout::Layout;
use larder_format::lease::Pin;
use larder_format::manifest::{Origin, Summary};
use larder_job::{JobContext, Machine};
use larder_reader::pin_of;
use larder_store::catalog::Version;

use super::CopiedBefore;

/// What becomes of a version of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// It is copied.
    Copy,
    /// This is its copy.
    CopiedBefore(JobId),
    /// It came from the destination, as it says.
    CameFromHere,
    /// It is not copied for this reason.
    Refused(Refusal),
}

/// Why a version is not copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Somebody gave a version the id of another one.
    #[error("several snapshots have this id")]
    SharedId,
    /// Neither a signature nor the store confirms its time, and the copy would be signed.
    #[error("the storage does not confirm its time, and a copy would have it confirmed")]
    UnconfirmedTime,
    /// Series of several domains have this name.
    #[error("several domains there have a series of this name, and they would be one series here")]
    SeveralDomains,
    /// The series has versions here that did not come from the source.
    #[error("the series has other snapshots here")]
    OtherSnapshotsHere,
}

impl Refusal {
    /// Whether people may decide otherwise.
    pub fn can_be_overruled(self) -> bool {
        self != Self::SharedId
    }
}

/// Whether a copy counts as one of its origin: an operator signed it, or this machine made it. Any
/// other client of its domain could have made it to prevent the real one.
pub fn is_believed(machine: &Machine, copy: &Summary) -> bool {
    copy.is_signed || machine.made(copy)
}

/// The versions of both repositories, and what is known of them.
#[derive(Debug)]
pub struct Selection<'a> {
    destination: &'a JobContext,
    /// The source.
    from: RepositoryId,
    versions: &'a [Version],
    unconfirmed: &'a HashSet<Pin>,
    /// Versions of the destination that count as made there.
    made_here: HashSet<JobId>,
    /// Those in the domain of the destination's key.
    copies: Vec<Version>,
    /// Versions of the source that may not be those that their ids mean.
    shared_ids: HashSet<Pin>,
}

impl<'a> Selection<'a> {
    /// `versions` are all of the source, and `here` all of the destination with the tags that they
    /// were made with. `unconfirmed` are those of the source whose time nothing confirms.
    pub fn new(
        destination: &'a JobContext,
        from: RepositoryId,
        versions: &'a [Version],
        here: Vec<Version>,
        unconfirmed: &'a HashSet<Pin>,
    ) -> Self {
        let own = destination.repository.config().repository;
        // Anybody could make a version here with the id of an original there.
        let of_copies = here.iter().filter_map(|version| version.summary.origin);
        let of_copies = of_copies.filter(|origin| origin.repository != own);
        let originals: HashSet<JobId> =
            of_copies.flat_map(|origin| [Some(origin.version), origin.first]).flatten().collect();
        let made_here = here.iter().filter(|version| {
            let summary = &version.summary;
            let is_of_here = !summary.is_copy_in(own) && !originals.contains(&summary.id);
            is_of_here && is_believed(&destination.machine, summary)
        });
        let made_here = made_here.map(Version::id).collect();
        let domain = destination.repository.keys().domain();
        let copies = here.into_iter().filter(|version| version.summary.domain == domain).collect();
        let shared_ids = shared_ids(versions);
        Self { destination, from, versions, unconfirmed, made_here, copies, shared_ids }
    }

    /// The versions of the destination in the domain of its key.
    pub fn copies(&self) -> &[Version] {
        &self.copies
    }

    /// A copy was made.
    pub fn add(&mut self, copy: Version) {
        self.copies.push(copy);
    }

    /// What becomes of each of these versions, oldest first. `is_wanted`: people named it by its
    /// id. With `mixes_series`, versions of several writers come together.
    pub fn choose(
        &self,
        found: &[Version],
        is_wanted: impl Fn(&Version) -> bool,
        mixes_series: bool,
    ) -> Vec<(Version, Choice)> {
        let mut found = found.to_vec();
        found.sort_by_key(Version::rank);
        let mut series = HashMap::new();
        let choice = |version: &Version| {
            let is_wanted = is_wanted(version);
            if let Some(copy) = self.copy_of(&version.summary) {
                return Choice::CopiedBefore(copy.id());
            }
            if self.shared_ids.contains(&pin_of(version)) {
                return Choice::Refused(Refusal::SharedId);
            }
            if is_wanted {
                return Choice::Copy;
            }
            if self.came_from_here(&version.summary) {
                return Choice::CameFromHere;
            }
            if self.unconfirmed.contains(&pin_of(version)) {
                return Choice::Refused(Refusal::UnconfirmedTime);
            }
            let writers =
                series.entry(version.summary.series.clone()).or_insert_with(|| self.writers(&version.summary.series));
            match writers.refusal(version.summary.domain).filter(|_| !mixes_series) {
                Some(refusal) => Choice::Refused(refusal),
                None => Choice::Copy,
            }
        };
        let choices: Vec<Choice> = found.iter().map(choice).collect();
        found.into_iter().zip(choices).collect()
    }

    /// The copy of a version that counts, if there is one.
    fn copy_of(&self, version: &Summary) -> Option<&Version> {
        let is_of = |origin: &Origin| {
            origin.repository == self.from && origin.version == version.id && origin.roots == version.roots
        };
        let mut of_version = self.copies.iter().filter(|copy| copy.summary.origin.as_ref().is_some_and(is_of));
        of_version.find(|copy| is_believed(&self.destination.machine, &copy.summary))
    }

    /// Whether a version is a copy of one of the destination, also by way of further repositories.
    fn came_from_here(&self, version: &Summary) -> bool {
        let own = self.destination.repository.config().repository;
        let is_of = |origin: Origin| {
            origin.repository == own || origin.first.is_some_and(|first| self.made_here.contains(&first))
        };
        version.origin.is_some_and(is_of)
    }

    /// Who has versions in the series of this name.
    fn writers(&self, series: &str) -> Writers {
        let own = self.destination.repository.config().repository;
        let of_source = self.versions.iter().filter(|version| version.summary.series == series);
        let domains: BTreeSet<DomainId> = of_source.clone().map(|version| version.summary.domain).collect();
        let copies = || self.copies.iter().filter(|copy| copy.summary.series == series);
        let copied = copies().filter(|copy| is_believed(&self.destination.machine, &copy.summary)).filter_map(|copy| {
            let origin = copy.summary.origin.filter(|origin| origin.repository == self.from)?;
            let mut of_origin = of_source.clone();
            of_origin.find(|known| known.id() == origin.version && known.summary.roots == origin.roots)
        });
        let copied = copied.map(|version| version.summary.domain).collect();
        // What was made here of a copy came from there as well.
        let came_from_there = |copy: &Version| {
            let is_of =
                |origin: Origin| origin.repository == self.from || origin.repository == own && origin.first.is_some();
            copy.summary.origin.is_some_and(is_of)
        };
        // Once there are copies, nobody can stop the next ones by a version of the same series.
        let is_copied = copies().any(|copy| {
            let is_of_source = copy.summary.origin.is_some_and(|origin| origin.repository == self.from);
            is_of_source && is_believed(&self.destination.machine, &copy.summary)
        });
        Writers { domains, copied, has_others: !is_copied && !copies().all(came_from_there) }
    }

    /// The pair whose copy serves as the base for copying `version`: that of the newest version
    /// before it, else of the oldest one behind it. This machine made that copy.
    pub fn base_of(&self, version: &Version) -> Option<CopiedBefore> {
        let of_series = || self.copies.iter().filter(|copy| copy.summary.series == version.summary.series);
        let newest = of_series().map(Version::id).max();
        let pairs = of_series().filter_map(|copy| {
            let origin = copy.summary.origin.as_ref().filter(|origin| origin.repository == self.from)?;
            // In the layout `lifecycle`, chunks of an older version may have left the series.
            let is_usable = copy.summary.layout == Layout::Standard || newest == Some(copy.id());
            if !is_usable || !self.destination.machine.made(&copy.summary) {
                return None;
            }
            let is_origin = |known: &&Version| known.id() == origin.version && known.summary.roots == origin.roots;
            let known = self.versions.iter().find(is_origin)?;
            Some(CopiedBefore { version: known.clone(), copy: copy.id() })
        });
        // Ids begin with times.
        pairs.min_by_key(|pair| {
            let id = pair.version.id();
            (id > version.id(), id.unix_ms().abs_diff(version.id().unix_ms()), std::cmp::Reverse(pair.copy))
        })
    }
}

/// Who has versions in a series.
#[derive(Debug)]
struct Writers {
    /// Domains of the source that have a series of this name.
    domains: BTreeSet<DomainId>,
    /// Those of them from which it was copied before.
    copied: BTreeSet<DomainId>,
    /// The series has versions here, and none that came from the source.
    has_others: bool,
}

impl Writers {
    fn refusal(&self, domain: DomainId) -> Option<Refusal> {
        // The domain that was first keeps the name, so nobody can stop its copies later.
        let is_first = self.copied.len() == 1 && self.copied.contains(&domain);
        if self.domains.len() > 1 && !is_first {
            return Some(Refusal::SeveralDomains);
        }
        self.has_others.then_some(Refusal::OtherSnapshotsHere)
    }
}

/// The newest `count` of each series among `found`, which are some of all `versions`. One with a
/// made-up time or with the id of another one takes no place of a real one.
pub fn latest_of_series(
    mut found: Vec<Version>,
    count: usize,
    versions: &[Version],
    unconfirmed: &HashSet<Pin>,
) -> Vec<Version> {
    let shared = shared_ids(versions);
    let mut seen: HashMap<SeriesKey, usize> = HashMap::new();
    found.sort_by_key(|version| std::cmp::Reverse(version.rank()));
    found.retain(|version| {
        let (seen, pin) = (seen.entry(version.series).or_default(), pin_of(version));
        *seen += usize::from(!unconfirmed.contains(&pin) && !shared.contains(&pin));
        *seen <= count
    });
    found
}

/// Versions that have the id of another one. The only one that an operator signed is the real one.
fn shared_ids(versions: &[Version]) -> HashSet<Pin> {
    let mut of_id: HashMap<JobId, Vec<&Version>> = HashMap::new();
    for version in versions {
        of_id.entry(version.id()).or_default().push(version);
    }
    let shared = of_id.into_values().filter(|all| all.len() > 1).flat_map(|all| {
        let signed = all.iter().filter(|version| version.summary.is_signed).count();
        all.into_iter().filter(move |version| signed != 1 || !version.summary.is_signed)
    });
    shared.map(pin_of).collect()
}
