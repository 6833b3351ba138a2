//! Which generation of a version's manifest counts.
//!
//! Nobody can replace generation 0, so it says what the version is. A later generation holds the
//! same content in other containers: its summary, with the roots of the content, is that of
//! generation 0 ([`Summary::is_generation_of`]). Anything else is forged or damaged. Readers then
//! take the next lower generation, and nobody builds on the version (`NewestOrNothing`).
//!
//! If generation 0 cannot be read, there is nothing to compare with. The highest that opens then
//! stands in, and the damage of generation 0 is reported beside it.

use larder_format::DecodeError;
use larder_format::ids::{JobId, SeriesKey};
use larder_format::lease::Pin;
use larder_format::manifest::{HEAD_GUESS, Head, MANIFEST_MAX, Manifest, Register, Summary};
use larder_format::names;

use crate::catalog::{ListedGeneration, Version, exists};
use crate::forget_marks::FaultyObject;
use crate::read_manifests::WHOLE_MANIFEST;
use crate::repository::{Repository, RepositoryError};
use crate::rules::Rule;
use crate::{Store, StoreErrorKind};

/// The error for a generation with another summary than generation 0.
pub const NOT_A_GENERATION: DecodeError = DecodeError::Invalid {
    what: "version manifest",
    why: "its summary or its content is not that of generation 0, so it is forged or damaged",
};

/// The generations of one version, looked at from the highest down to the one that counts.
#[derive(Debug, Default)]
pub(crate) struct Counting {
    /// The one that counts.
    pub(crate) version: Option<Version>,
    /// Whether the job was aborted, so that there is no version.
    pub(crate) is_aborted: bool,
    /// Whether one of them was deleted since it was listed.
    pub(crate) has_vanished: bool,
    /// Those above it that do not open or are no generations of the version, the highest first.
    /// Also generation 0, where it does not open.
    pub(crate) faulty: Vec<FaultyObject>,
}

/// A register by its head.
enum Seen {
    Summary(Box<Summary>),
    Aborted,
    Vanished,
    Unreadable(RepositoryError),
}

impl Repository {
    /// The generation from which this process rewrote this one, perhaps in several steps; `None`:
    /// another process wrote it. What the older one shares with it is as true as that one is.
    pub fn rewritten_from(&self, version: Pin, generation: u32, attempt: [u8; 16]) -> Option<u32> {
        self.own_generations.origin(version, generation, attempt)
    }

    /// The same repository, as another process sees it: one that wrote none of its generations.
    #[cfg(feature = "breakable-rules")]
    pub fn of_another_process(&self) -> Self {
        Self { own_generations: Default::default(), ..self.clone() }
    }

    /// Looks for the generation that counts, by heads. Manifests of at most `whole` bytes are read
    /// as a whole.
    pub(crate) async fn counting_generation(
        &self,
        store: &Store,
        (series, job): (SeriesKey, JobId),
        mut generations: Vec<ListedGeneration>,
        whole: u64,
    ) -> Result<Counting, RepositoryError> {
        let mut found = Counting::default();
        let faulty = |generation, error| FaultyObject { name: names::version(series, job, generation), job, error };
        generations.sort_unstable_by_key(|listed| std::cmp::Reverse(listed.number));
        let listed_first = generations.last().copied().filter(|listed| listed.number == 0);
        let made_ms = listed_first.map_or(0, |listed| listed.made_ms);
        let mut first = None;
        for ListedGeneration { number: generation, bytes: size, .. } in &generations {
            let manifest_bytes = *size;
            let seen = match first.take() {
                Some(seen) if *generation == 0 => seen,
                known => {
                    first = known;
                    self.see_head(store, (series, job, *generation), *size, whole).await?
                }
            };
            let summary = match seen {
                Seen::Summary(summary) => summary,
                // A task that was fenced before it made a later generation, or the job itself.
                Seen::Aborted => {
                    found.is_aborted = *generation == 0;
                    continue;
                }
                Seen::Vanished => {
                    found.has_vanished = true;
                    continue;
                }
                Seen::Unreadable(error) => {
                    found.faulty.push(faulty(*generation, error));
                    continue;
                }
            };
            if *generation == 0 {
                found.version = Some(Version { summary: *summary, series, generation: 0, made_ms, manifest_bytes });
                break;
            }
            let of_first = match first.take() {
                Some(seen) => seen,
                None => match listed_first {
                    Some(listed) => self.see_head(store, (series, job, 0), listed.bytes, HEAD_GUESS).await?,
                    None => Seen::Vanished,
                },
            };
            match &of_first {
                Seen::Summary(truth) if summary.is_generation_of(truth) => {
                    let Summary { layout, sketch, .. } = *summary;
                    let summary = Summary { layout, sketch, ..(**truth).clone() };
                    found.version = Some(Version { summary, series, generation: *generation, made_ms, manifest_bytes });
                    break;
                }
                Seen::Summary(_) => {
                    let error = RepositoryError::damaged(names::version(series, job, *generation))(NOT_A_GENERATION);
                    found.faulty.push(faulty(*generation, error));
                }
                // Only generation 0 makes a version.
                Seen::Aborted | Seen::Vanished => {}
                Seen::Unreadable(_) => {
                    // A task signed it. That says nothing of the version's maker and its time.
                    let summary = Summary { is_signed: false, ..*summary };
                    found.version = Some(Version { summary, series, generation: *generation, made_ms, manifest_bytes });
                    let Seen::Unreadable(error) = of_first else { break };
                    found.faulty.push(faulty(0, error));
                    break;
                }
            }
            first = Some(of_first);
        }
        Ok(found)
    }

    async fn see_head(
        &self,
        store: &Store,
        of: (SeriesKey, JobId, u32),
        size: u64,
        whole: u64,
    ) -> Result<Seen, RepositoryError> {
        let (_, _, generation) = of;
        let head = match self.read_head(store, of, size, whole).await {
            // The cache may hold an object that was planted under that name and removed since.
            Err(error) if error.is_of_object() => self.read_head(&store.without_cache(), of, size, whole).await,
            head => head,
        };
        match head {
            Ok(Some(summary)) => Ok(Seen::Summary(Box::new(summary))),
            Ok(None) => Ok(Seen::Aborted),
            Err(RepositoryError::Store(error)) if error.kind == StoreErrorKind::NotFound => Ok(Seen::Vanished),
            // Nobody can replace generation 0, so only its header says whose the version is.
            Err(error) if error.is_of_object() || (error.is_foreign() && generation > 0) => Ok(Seen::Unreadable(error)),
            Err(error) => Err(error),
        }
    }

    /// The summary of a generation; `None` if its maker was aborted.
    async fn read_head(
        &self,
        store: &Store,
        (series, job, generation): (SeriesKey, JobId, u32),
        size: u64,
        whole: u64,
    ) -> Result<Option<Summary>, RepositoryError> {
        let name = names::version(series, job, generation);
        // An object without bytes is read as well, because the error says what is wrong with it.
        let mut wanted = if size <= whole { size.max(1) } else { HEAD_GUESS.min(size) };
        loop {
            let is_sound = |bytes: &[u8]| {
                let head = Summary::decode_head(&self.keys, series, job, generation, bytes);
                head.map_or_else(|error| error.is_of_key(), |_| true)
            };
            let bytes = store.get_sound_range(&name, 0..wanted, is_sound).await?;
            let head = Summary::decode_head(&self.keys, series, job, generation, &bytes)
                .map_err(RepositoryError::damaged(&*name))?;
            if whole > HEAD_GUESS && bytes.len() as u64 == size {
                self.read_manifests.add(&name, &bytes);
            }
            match head {
                Head::Complete(Register::Committed(summary)) => return Ok(Some(*summary)),
                Head::Complete(Register::Aborted) => return Ok(None),
                Head::Needs(bytes) if bytes > wanted && bytes <= size => wanted = bytes,
                Head::Needs(_) => {
                    let source = DecodeError::Truncated { what: "version manifest" };
                    return Err(RepositoryError::Damaged { name, source });
                }
            }
        }
    }

    /// The same version by its newest generation that counts now, past the cache; `None` when
    /// nothing is left of it.
    ///
    /// For jobs that have announced what they build on. The generation of an earlier listing may be
    /// superseded and collected. The newest one at the time of the announcement stays
    /// (`docs/concurrency.md`).
    pub async fn newest_generation(&self, version: &Version) -> Result<Option<Version>, RepositoryError> {
        let store = self.store.without_cache();
        let generations = self.listed_generations(version, 1).await?;
        if !exists(&generations) {
            return Ok(None);
        }
        // There is none above the known one, whose head the caller has. Objects never change.
        if generations.last().is_some_and(|newest| newest.number == version.generation) {
            return Ok(Some(version.clone()));
        }
        let of_version = (version.series, version.id());
        Ok(self.counting_generation(&store, of_version, generations, WHOLE_MANIFEST).await?.version)
    }

    /// The next lower generation that counts, past the cache: for readers, when the head of this
    /// one is right and the rest is not.
    pub async fn lower_generation(&self, version: &Version) -> Result<Option<Version>, RepositoryError> {
        let mut generations = self.listed_generations(version, 1).await?;
        generations.retain(|listed| listed.number < version.generation);
        let (store, of_version) = (self.store.without_cache(), (version.series, version.id()));
        Ok(self.counting_generation(&store, of_version, generations, WHOLE_MANIFEST).await?.version)
    }

    /// The generation of a version that a job may build on, past the cache: the newest one there is
    /// (`NewestOrNothing`). `None` when nothing is left of the version, or when an object above it
    /// cannot be read or is no generation of the version. Containers that only an older generation
    /// names may have been deleted. To do without the version costs space and nothing else.
    pub async fn buildable_generation(&self, version: &Version) -> Result<Option<Version>, RepositoryError> {
        if !self.keeps(Rule::NewestOrNothing) {
            return self.newest_generation(version).await;
        }
        // One listing may lack existing objects (`AskedTwice`).
        let generations = self.listed_generations(version, if self.keeps(Rule::AskedTwice) { 2 } else { 1 }).await?;
        self.buildable_among(version, generations).await
    }

    /// The same after both looks at the version's mark, if the version is still there
    /// ([`Self::if_retained`]). The outer `None`: it is not.
    ///
    /// A listing of generations after the lease is enough for the protocol, and the two of
    /// `AskedTwice` are at different moments. So the first is made beside the first look at the
    /// mark, and the second beside the register. The manifest is read there too, because the second
    /// listing rarely shows more than the first.
    pub async fn retained_generation(&self, version: &Version) -> Result<Option<Option<Version>>, RepositoryError> {
        let pin = Pin { series: version.series, job: version.id() };
        if !self.keeps(Rule::NewestOrNothing) || !self.keeps(Rule::AskedTwice) {
            return self.if_retained(pin, async { Ok(()) }, |()| self.buildable_generation(version)).await;
        }
        let generations = |first: Vec<ListedGeneration>| async move {
            let found = self.buildable_among(version, first.clone());
            let (found, mut all) = futures::try_join!(found, self.listed_generations(version, 1))?;
            let is_known = |listed: &ListedGeneration| first.iter().any(|known| known.number == listed.number);
            if all.iter().all(is_known) {
                return Ok(found);
            }
            all.extend(first);
            all.sort_unstable_by_key(|listed| listed.number);
            all.dedup_by_key(|listed| listed.number);
            self.buildable_among(version, all).await
        };
        self.if_retained(pin, self.listed_generations(version, 1), generations).await
    }

    /// The generation to build on, given all that there are.
    async fn buildable_among(
        &self,
        version: &Version,
        generations: Vec<ListedGeneration>,
    ) -> Result<Option<Version>, RepositoryError> {
        if !exists(&generations) {
            return Ok(None);
        }
        let of_version = (version.series, version.id());
        let store = self.store.without_cache();
        let found = self.counting_generation(&store, of_version, generations, WHOLE_MANIFEST).await?;
        if let Some(FaultyObject { name, error, .. }) = found.faulty.first() {
            tracing::warn!(%name, %error, "a manifest of a snapshot does not count; the snapshot is not built on");
            return Ok(None);
        }
        Ok(found.version.filter(|_| !found.has_vanished))
    }

    /// The generations of a version, from this number of listings.
    async fn listed_generations(
        &self,
        version: &Version,
        listings: usize,
    ) -> Result<Vec<ListedGeneration>, RepositoryError> {
        let store = self.store.without_cache();
        let mut generations: Vec<ListedGeneration> = Vec::new();
        let folder = names::generations(version.series, version.id());
        // One after the other: a gateway may answer equal requests of one moment together.
        for _ in 0..listings {
            for object in store.list(&folder).await? {
                generations.extend(ListedGeneration::parse(&object).map(|(_, listed)| listed));
            }
        }
        generations.sort_unstable_by_key(|listed| listed.number);
        generations.dedup_by_key(|listed| listed.number);
        Ok(generations)
    }

    /// The number after the highest generation of a version, be that a manifest or the mark of a
    /// fenced task.
    pub async fn next_generation(&self, version: Pin) -> Result<u32, RepositoryError> {
        let store = self.store.without_cache();
        let listed = store.list(&names::generations(version.series, version.job)).await?;
        let highest = listed.iter().filter_map(|object| names::parse_version(&object.name)).map(|found| found.2).max();
        Ok(highest.map_or(0, |highest| highest.saturating_add(1)))
    }

    /// Reads the whole manifest of a version. One that was read as a whole to find the version is
    /// not read again.
    pub async fn manifest(&self, version: &Version) -> Result<Manifest, RepositoryError> {
        if let Some(manifest) = self.just_read_manifest(version) {
            return Ok(manifest);
        }
        match self.read_manifest(&self.store, version).await {
            Err(error) if error.is_of_object() => self.read_manifest(&self.store.without_cache(), version).await,
            manifest => manifest,
        }
    }

    /// The manifest of a version that was read as a whole to find the version. Whether it still
    /// counts, the caller has to know.
    pub fn just_read_manifest(&self, version: &Version) -> Option<Manifest> {
        let (series, job, generation) = (version.series, version.id(), version.generation);
        let bytes = self.read_manifests.get(&names::version(series, job, generation))?;
        match Manifest::decode(&self.keys, series, job, generation, &bytes) {
            Ok(Register::Committed(manifest)) if manifest.summary.roots == version.summary.roots => Some(manifest),
            _ => None,
        }
    }

    async fn read_manifest(&self, store: &Store, version: &Version) -> Result<Manifest, RepositoryError> {
        let (series, job, generation) = (version.series, version.id(), version.generation);
        let name = names::version(series, job, generation);
        let is_sound = |bytes: &[u8]| Manifest::decode(&self.keys, series, job, generation, bytes).is_ok();
        // Of the size that was listed: the store answers small ones beside large bodies.
        let listed = match version.manifest_bytes {
            0 => MANIFEST_MAX,
            bytes => bytes.min(MANIFEST_MAX),
        };
        let bytes = match store.get_sound(&name, listed, is_sound).await {
            Err(error) if error.kind == StoreErrorKind::TooLarge && listed < MANIFEST_MAX => {
                store.get_sound(&name, MANIFEST_MAX, is_sound).await?
            }
            bytes => bytes?,
        };
        match Manifest::decode(&self.keys, series, job, generation, &bytes) {
            Ok(Register::Committed(manifest)) if manifest.summary.roots == version.summary.roots => Ok(manifest),
            Ok(Register::Committed(_)) => Err(RepositoryError::Damaged { name, source: NOT_A_GENERATION }),
            Ok(Register::Aborted) => {
                let source = DecodeError::Invalid {
                    what: "version manifest",
                    why: "the job was aborted, although a listing showed it as committed",
                };
                Err(RepositoryError::Damaged { name, source })
            }
            Err(source) => Err(RepositoryError::Damaged { name, source }),
        }
    }
}
