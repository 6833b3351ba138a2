//! One check from start to end.

use std::collections::{BTreeMap, HashSet};

use futures::future::BoxFuture;
use larder_format::ids::{ContainerId, JobId};
use larder_format::lease::Pin;
use larder_format::names;
use larder_job::JobContext;
use larder_reader::{MetaChunks, ReadLease, ReadManifest, VersionsAhead, look, pin_of};
use larder_store::catalog::{DamagedVersion, Version};
use larder_store::forget_marks::FaultyObject;
use larder_store::manifests::ManifestWindow;
use larder_store::{Repository, RepositoryError};

use super::content::{Alone, ReadContents};
use super::structure::{BadContainer, Structure, reason};
use super::{AffectedVersion, CheckError, CheckOptions, CheckReport, Damage, affected, content};

/// The results of a check, for a repair after it.
#[derive(Debug)]
pub(crate) struct Examined {
    pub(crate) report: CheckReport,
    /// Containers that are damaged, or missing and not redirected.
    pub(crate) bad: BTreeMap<ContainerId, BadContainer>,
    /// Versions whose manifests could be read.
    pub(crate) readable: Vec<Version>,
    /// What it learned of chunks that were moved. A reader that never met a missing container
    /// would take a recipe at its word, and miss a damaged container that it does not name.
    pub(crate) chunks: MetaChunks,
}

/// Checks the repository. Damage is a finding, not an error; errors prevent the check itself.
pub fn check(context: &JobContext, options: &CheckOptions) -> Result<CheckReport, CheckError> {
    examine(context, options).map(|examined| examined.report)
}

/// The same, while `contents` reads the contents of containers.
///
/// # Errors
/// As of [`check`].
pub fn check_with(
    context: &JobContext,
    options: &CheckOptions,
    contents: &mut dyn ReadContents,
) -> Result<CheckReport, CheckError> {
    announced(context, options, contents).map(|examined| examined.report)
}

/// The same as [`check`], with the results that repairs need.
pub(crate) fn examine(context: &JobContext, options: &CheckOptions) -> Result<Examined, CheckError> {
    announced(context, options, &mut Alone)
}

fn announced(
    context: &JobContext,
    options: &CheckOptions,
    contents: &mut dyn ReadContents,
) -> Result<Examined, CheckError> {
    let store = context.repository.store().without_cache();
    let context = &JobContext { repository: context.repository.through(store), ..context.clone() };
    let catalog = context.executor.block_on(context.repository.catalog())?;
    let chosen = |id| options.versions.is_empty() || options.versions.contains(&id);
    let versions: Vec<Version> = catalog.versions.into_iter().filter(|version| chosen(version.id())).collect();
    let damaged: Vec<_> = catalog.damaged.into_iter().filter(|damaged| chosen(damaged.id)).collect();
    let unreadable = damaged.iter().filter_map(|damaged| names::parse_version(&damaged.name));
    let pins = versions.iter().map(pin_of).chain(unreadable.map(|(series, job, _)| Pin { series, job })).collect();
    let lease = ReadLease::take(context, String::new(), pins);
    let mut reading = Reading { contents, lease: lease.job(), read: HashSet::new() };
    let result = run(context, options, versions, &damaged, catalog.faulty, &mut reading);
    lease.close();
    result
}

/// How often everything is looked at again because chunks were moved meanwhile.
const LOOKS_MAX: u32 = 4;

/// Versions that are looked at ahead, with their manifests in memory.
const LOOKS_AHEAD: ManifestWindow = ManifestWindow { manifests: 32, bytes: 40 << 20, unknown_bytes: 10 << 20 };

/// The reading of contents.
struct Reading<'a> {
    contents: &'a mut dyn ReadContents,
    lease: Option<JobId>,
    /// Containers that were read and are without defects.
    read: HashSet<ContainerId>,
}

/// The result of one look at everything.
struct Looked<'a> {
    structure: Structure<'a>,
    report: CheckReport,
    readable: Vec<Version>,
    bad: BTreeMap<ContainerId, BadContainer>,
}

/// Looks at the structure, and reads contents that were not read before.
fn look_once<'a>(
    context: &'a JobContext,
    options: &CheckOptions,
    versions: &[Version],
    reading: &mut Reading<'_>,
) -> Result<Looked<'a>, CheckError> {
    let mut report = CheckReport::default();
    let mut structure = Structure::new(context)?;
    let mut readable = Vec::new();
    let (tables, listed) = (structure.tables(), structure.listed());
    let look_at = move |repository: Repository, version: Version| -> BoxFuture<'static, ReadManifest> {
        let (tables, listed) = (tables.clone(), listed.clone());
        Box::pin(async move {
            let looked = look(&repository, &version).await;
            if let Ok(Some(manifest)) = &looked {
                tables.fetch_new(&repository, manifest, |id| listed.contains_key(id)).await;
            }
            looked
        })
    };
    for (version, looked) in VersionsAhead::new(context, &structure.chunks.clone(), versions, LOOKS_AHEAD, look_at) {
        if context.cancel.is_cancelled() {
            return Err(CheckError::Interrupted);
        }
        match looked {
            Ok(Some(manifest)) => {
                structure.version(&manifest)?;
                readable.push(version.clone());
            }
            Ok(None) => {
                report.forgotten.push(version.id());
                continue;
            }
            Err(error) if error.is_damage() => {
                let name = names::version(version.series, version.id(), version.generation);
                report.damages.push(unreadable_manifest(&name, version.id(), reason(&error)));
            }
            Err(error) => return Err(error.into()),
        }
        report.versions += 1;
    }
    structure.find_moved(0)?;
    report.containers = structure.tables_checked.len() as u64;
    // The needs of some versions are unknown.
    if options.versions.is_empty() {
        (report.unused_containers, report.unused_bytes) = structure.unused();
    }
    // Containers known to be damaged as a whole need not be read.
    let sizes: Vec<_> = structure
        .used
        .iter()
        .filter(|id| structure.bad.get(id).is_none_or(|bad| !bad.parts.is_empty()))
        .filter(|id| !structure.cold.contains(id))
        .map(|id| (*id, structure.size(*id)))
        .collect();
    structure.free_tables();
    if options.estimate {
        report.planned = content::plan(options.read_data, &sizes);
        let bad = std::mem::take(&mut structure.bad);
        return Ok(Looked { structure, report, readable, bad });
    }
    let mut chosen = content::choose(context, options.read_data, sizes)?;
    chosen.retain(|(id, _)| !reading.read.contains(id));
    let contents = reading.contents.read(context, reading.lease, &chosen)?;
    structure.cold.extend(contents.cold);
    report.cold_containers = structure.cold.len() as u64;
    report.cold_bytes = structure.cold.iter().map(|id| structure.size(*id)).sum();
    (report.containers_read, report.bytes_read) = (contents.containers, contents.bytes);
    let mut bad = std::mem::take(&mut structure.bad);
    reading.read.extend(chosen.into_iter().map(|(id, _)| id));
    for (id, found) in contents.bad {
        // All its defects are found again.
        reading.read.remove(&id);
        bad.entry(id)
            .and_modify(|known| {
                known.parts.extend(found.parts.clone());
                known.has_vanished |= found.has_vanished;
            })
            .or_insert(found);
    }
    Ok(Looked { structure, report, readable, bad })
}

/// From here on, only announced versions are read.
fn run(
    context: &JobContext,
    options: &CheckOptions,
    versions: Vec<Version>,
    damaged: &[DamagedVersion],
    faulty_objects: Vec<FaultyObject>,
    reading: &mut Reading<'_>,
) -> Result<Examined, CheckError> {
    let mut report = CheckReport::default();
    for damaged in damaged {
        report.damages.push(unreadable_manifest(&damaged.name, damaged.id, reason(&damaged.error)));
    }
    report.damages.extend(faulty(context, options, faulty_objects)?);
    let bytes = versions.iter().map(|version| version.summary.statistics.stream_bytes).max();
    context.progress.expect(0, bytes.unwrap_or(0));
    let mut looked = look_once(context, options, &versions, reading)?;
    for _ in 1..LOOKS_MAX {
        if !looked.bad.values().any(|bad| bad.has_vanished) {
            break;
        }
        // A pass has moved chunks since the listing (`LookAgain`).
        let (containers, bytes) = (looked.report.containers_read, looked.report.bytes_read);
        looked = look_once(context, options, &versions, reading)?;
        looked.report.containers_read += containers;
        looked.report.bytes_read += bytes;
    }
    let Looked { structure, report: found, readable, mut bad } = looked;
    let mut report = CheckReport { damages: [report.damages, found.damages].concat(), ..found };
    let mut affected: BTreeMap<_, Vec<AffectedVersion>> = BTreeMap::new();
    let mut explained = HashSet::new();
    if !bad.is_empty() {
        for version in &readable {
            let hurt = affected::trace(context, &structure.chunks, version, &bad)?;
            // Containers that no version needs any more may be deleted. A check without a lease, or
            // with one that expired, may miss them.
            if !hurt.is_empty() && context.executor.block_on(look(&context.repository, version))?.is_none() {
                report.forgotten.push(version.id());
                explained.extend(hurt.into_keys());
                continue;
            }
            for (id, version) in hurt {
                affected.entry(id).or_default().push(version);
            }
        }
    }
    bad.retain(|id, _| affected.contains_key(id) || !explained.contains(id));
    report.damages.extend(bad.iter().map(|(id, bad)| Damage {
        object: names::container(*id),
        why: bad.why.clone(),
        affected: affected.remove(id).unwrap_or_default(),
    }));
    Ok(Examined { report, bad, readable, chunks: structure.chunks.emptied(context) })
}

/// Unreadable objects beside the versions: no data is lost with them, but they were created by
/// mistake or on purpose. Objects of all jobs are looked at only when everything is checked.
fn faulty(
    context: &JobContext,
    options: &CheckOptions,
    of_versions: Vec<FaultyObject>,
) -> Result<Vec<Damage>, CheckError> {
    let mut found: Vec<(String, RepositoryError)> = Vec::new();
    let mut lost = Vec::new();
    let chosen = |id| options.versions.is_empty() || options.versions.contains(&id);
    found.extend(of_versions.into_iter().filter(|object| chosen(object.job)).map(|object| (object.name, object.error)));
    if options.versions.is_empty() {
        // Each looks at objects of its own kind, and decides nothing for the others.
        let repository = &context.repository;
        let (leases, pins, closed, settings, keys, registers) = context.executor.block_on(async {
            futures::try_join!(
                repository.faulty_leases(),
                repository.faulty_pins(),
                repository.closed_domains(),
                repository.faulty_settings(),
                repository.list_keys(),
                repository.lost_registers(),
            )
        })?;
        found.extend(leases.into_iter().chain(pins).map(|object| (object.name, object.error)));
        found.extend(closed.faulty);
        found.extend(settings.into_iter().map(|entry| (entry.name, entry.error)));
        found.extend(keys.unreadable.into_iter().map(|key| (names::key(key.id), key.error)));
        lost = registers;
    }
    let damage =
        |(object, error): (String, RepositoryError)| Damage { object, why: reason(&error), affected: Vec::new() };
    let mut damages: Vec<Damage> = found.into_iter().map(damage).collect();
    for lost in lost {
        let why = format!("it is missing, although {} says that the snapshot was committed", lost.because);
        damages.push(unreadable_manifest(&lost.name, lost.version.job, why));
    }
    Ok(damages)
}

fn unreadable_manifest(name: &str, id: JobId, why: String) -> Damage {
    let version = AffectedVersion { id, series: String::new(), files: Vec::new(), files_count: 0 };
    Damage { object: name.to_owned(), why, affected: vec![version] }
}
