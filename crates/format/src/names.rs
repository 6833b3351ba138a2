//! Object keys: the place of each object in the bucket. `docs/format.md` draws the whole tree.
//!
//! Every key is made here and nowhere else, and parsed by the function beside its maker.

use std::fmt;

use crate::fleet_task::{Stage, TaskId};
use crate::ids::{AttemptId, ContainerId, ContainerKind, DomainId, JobId, KeyId, RunId, SeriesKey, SettingsOf};

/// The repository's configuration.
pub const CONFIG: &str = "config";
/// Prefix of wrapped master keys.
pub const KEYS: &str = "keys/";
/// Prefix of leases.
pub const JOBS: &str = "jobs/";
/// Prefix of the commit registers.
pub const VERSIONS: &str = "versions/";
/// Prefix of the marks of forgotten versions.
pub const FORGOTTEN: &str = "forgotten/";
/// Prefix of the pins of versions.
pub const PINS: &str = "pins/";
/// Prefix of the settings of series.
pub const SETTINGS: &str = "settings/";
/// Prefix of data containers.
pub const DATA: &str = "data/";
/// Prefix of metadata containers.
pub const META: &str = "meta/";
/// Prefix of the global index: its manifests, and below [`RUNS`] its runs.
pub const INDEX: &str = "index/";
/// Prefix of the runs of the global index.
pub const RUNS: &str = "index/runs/";
/// Prefix of the marks that say which index counts. Not below [`INDEX`], so that they outlive the
/// loss of that.
pub const INDEXED: &str = "indexed/";
/// Prefix of the ends of domains.
pub const CLOSED: &str = "closed/";
/// Prefix of what fleet batches leave for their own tasks.
pub const FLEET: &str = "fleet/";

/// Whether a name is that of an entry in the folder of a repository.
pub fn is_first_level(name: &str) -> bool {
    let folders = [KEYS, JOBS, VERSIONS, FORGOTTEN, PINS, SETTINGS, DATA, META, INDEX, INDEXED, CLOSED, FLEET];
    name == CONFIG || folders.iter().any(|folder| folder.strip_suffix('/') == Some(name))
}

/// `keys/<key-id>`
pub fn key(id: KeyId) -> String {
    format!("{KEYS}{id}")
}

/// Reads a name made by [`key`].
pub fn parse_key(name: &str) -> Option<KeyId> {
    name.strip_prefix(KEYS)?.parse().ok()
}

/// `jobs/<job-id>/<n>`: the lease's n-th renewal.
pub fn lease(job: JobId, renewal: u32) -> String {
    format!("{JOBS}{job}/{renewal}")
}

/// `jobs/<job-id>/`: the lease of a job and its mark.
pub fn leases_of(job: JobId) -> String {
    format!("{JOBS}{job}/")
}

/// `jobs/<job-id>/done`: the mark with which a job closes its lease.
pub fn lease_done(job: JobId) -> String {
    format!("{JOBS}{job}/done")
}

/// The kind of an object under `jobs/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseObject {
    /// The lease or its n-th renewal.
    Renewal(u32),
    /// The closing mark.
    Done,
}

/// Reads a name made by [`lease`] or [`lease_done`].
pub fn parse_lease(name: &str) -> Option<(JobId, LeaseObject)> {
    let (job, tail) = name.strip_prefix(JOBS)?.split_once('/')?;
    let object = match tail {
        "done" => LeaseObject::Done,
        number => LeaseObject::Renewal(parse_number(number)?),
    };
    Some((job.parse().ok()?, object))
}

/// `versions/<series>/<job-id>/<generation>`: generation 0 is the commit register.
pub fn version(series: SeriesKey, job: JobId, generation: u32) -> String {
    format!("{VERSIONS}{series}/{job}/{generation}")
}

/// Prefix of all versions of one series.
pub fn series_versions(series: SeriesKey) -> String {
    format!("{VERSIONS}{series}/")
}

/// Prefix of all generations of one version.
pub fn generations(series: SeriesKey, job: JobId) -> String {
    format!("{VERSIONS}{series}/{job}/")
}

/// Reads a name made by [`version`].
pub fn parse_version(name: &str) -> Option<(SeriesKey, JobId, u32)> {
    let mut parts = name.strip_prefix(VERSIONS)?.split('/');
    let series = parts.next()?.parse().ok()?;
    let job = parts.next()?.parse().ok()?;
    let generation = parse_number(parts.next()?)?;
    parts.next().is_none().then_some((series, job, generation))
}

/// `forgotten/<series>/<job-id>`
pub fn forgotten(series: SeriesKey, job: JobId) -> String {
    format!("{FORGOTTEN}{series}/{job}")
}

/// Prefix of the marks of all versions below a prefix of versions: [`VERSIONS`], or that of one
/// series.
pub fn marks_of(versions: &str) -> String {
    format!("{FORGOTTEN}{}", versions.strip_prefix(VERSIONS).unwrap_or_default())
}

/// Reads a name made by [`forgotten`].
pub fn parse_forgotten(name: &str) -> Option<(SeriesKey, JobId)> {
    let (series, job) = name.strip_prefix(FORGOTTEN)?.split_once('/')?;
    Some((series.parse().ok()?, job.parse().ok()?))
}

/// `pins/<series>/<job-id>/<n>`: the n-th change of whether a version is pinned.
pub fn pin(series: SeriesKey, job: JobId, number: u32) -> String {
    format!("{}{number}", pins_of(series, job))
}

/// Prefix of all changes of one version's pin.
pub fn pins_of(series: SeriesKey, job: JobId) -> String {
    format!("{PINS}{series}/{job}/")
}

/// Reads a name made by [`pin`].
pub fn parse_pin(name: &str) -> Option<(SeriesKey, JobId, u32)> {
    let mut parts = name.strip_prefix(PINS)?.split('/');
    let found = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?, parse_number(parts.next()?)?);
    parts.next().is_none().then_some(found)
}

/// Stands for a series in the names of the repository's own settings. No series is spelled so.
const DEFAULT: &str = "default";

/// `settings/<series>/<n>` or `settings/default/<n>`: the n-th change of the settings.
pub fn settings(of: SettingsOf, number: u32) -> String {
    format!("{}{number}", settings_of(of))
}

/// Prefix of all changes of the settings of one series, or of the repository.
pub fn settings_of(of: SettingsOf) -> String {
    match of {
        SettingsOf::Default => format!("{SETTINGS}{DEFAULT}/"),
        SettingsOf::Series(series) => format!("{SETTINGS}{series}/"),
    }
}

/// Reads a name made by [`settings`].
pub fn parse_settings(name: &str) -> Option<(SettingsOf, u32)> {
    let (of, number) = name.strip_prefix(SETTINGS)?.split_once('/')?;
    let of = if of == DEFAULT { SettingsOf::Default } else { SettingsOf::Series(of.parse().ok()?) };
    Some((of, parse_number(number)?))
}

/// `data/<job-id>/<seq>` or `meta/<job-id>/<seq>`
pub fn container(id: ContainerId) -> String {
    format!("{}{}", containers_of(id.kind, id.job), id.seq)
}

/// Prefix of all containers of one kind that one job wrote.
pub fn containers_of(kind: ContainerKind, job: JobId) -> String {
    let prefix = match kind {
        ContainerKind::Data => DATA,
        ContainerKind::Meta => META,
    };
    format!("{prefix}{job}/")
}

/// Reads a name made by [`container`].
pub fn parse_container(name: &str) -> Option<ContainerId> {
    let (kind, rest) = match (name.strip_prefix(DATA), name.strip_prefix(META)) {
        (Some(rest), _) => (ContainerKind::Data, rest),
        (_, Some(rest)) => (ContainerKind::Meta, rest),
        _ => return None,
    };
    let (job, seq) = rest.split_once('/')?;
    Some(ContainerId { kind, job: job.parse().ok()?, seq: parse_number(seq)? })
}

/// `index/<n>`: the n-th manifest of the global index, counted from 1.
pub fn index(number: u64) -> String {
    format!("{INDEX}{number}")
}

/// Reads a name made by [`index()`]. Number 0 stands for "no index yet" and has no object.
pub fn parse_index(name: &str) -> Option<u64> {
    parse_number(name.strip_prefix(INDEX)?).filter(|number| *number > 0)
}

/// `indexed/<n>`: the mark that says which attempt at `index/<n>` counts.
pub fn indexed(number: u64) -> String {
    format!("{INDEXED}{number}")
}

/// Reads a name made by [`indexed`].
pub fn parse_indexed(name: &str) -> Option<u64> {
    parse_number(name.strip_prefix(INDEXED)?).filter(|number| *number > 0)
}

/// `closed/<domain>`: which versions of a domain count, after its key was stolen.
pub fn closed(domain: DomainId) -> String {
    format!("{CLOSED}{domain}")
}

/// Reads a name made by [`closed`].
pub fn parse_closed(name: &str) -> Option<DomainId> {
    name.strip_prefix(CLOSED)?.parse().ok()
}

/// `index/runs/<job-id>/<seq>`
pub fn run(id: RunId) -> String {
    format!("{}{}", runs_of(id.job), id.seq)
}

/// Prefix of all runs of the index that one pass wrote.
pub fn runs_of(job: JobId) -> String {
    format!("{RUNS}{job}/")
}

/// Reads a name made by [`run`].
pub fn parse_run(name: &str) -> Option<RunId> {
    let (job, seq) = name.strip_prefix(RUNS)?.split_once('/')?;
    Some(RunId { job: job.parse().ok()?, seq: parse_number(seq)? })
}

/// Prefix of everything of one fleet batch.
pub fn fleet_batch(batch: JobId) -> String {
    format!("{FLEET}{batch}/")
}

/// `fleet/<batch>/plan`
pub fn fleet_plan(batch: JobId) -> String {
    format!("{}plan", fleet_batch(batch))
}

/// `fleet/<batch>/done/<stage>/<round>/<task>`: the register of a task.
pub fn fleet_done(batch: JobId, task: TaskId) -> String {
    format!("{}{task}", fleet_registers(batch))
}

/// Prefix of the registers of all tasks.
pub fn fleet_registers(batch: JobId) -> String {
    format!("{}done/", fleet_batch(batch))
}

/// `fleet/<batch>/range/<stage>/<round>/<task>`: the containers that a task of a check reads.
pub fn fleet_range(batch: JobId, task: TaskId) -> String {
    format!("{}{task}", fleet_ranges(batch))
}

/// Prefix of the ranges of a check.
pub fn fleet_ranges(batch: JobId) -> String {
    format!("{}range/", fleet_batch(batch))
}

/// `fleet/<batch>/out/<stage>/<round>/<task>/<attempt>/<n>`: an output of an attempt.
pub fn fleet_output(batch: JobId, task: TaskId, attempt: AttemptId, number: u32) -> String {
    format!("{}out/{task}/{attempt}/{number}", fleet_batch(batch))
}

/// `fleet/<batch>/claim/<stage>/<round>/<task>/<epoch>`: a claim of a task.
pub fn fleet_claim(batch: JobId, task: TaskId, epoch: u32) -> String {
    format!("{}{epoch}", fleet_claims(batch, task))
}

/// Prefix of the claims of a task.
pub fn fleet_claims(batch: JobId, task: TaskId) -> String {
    format!("{}claim/{task}/", fleet_batch(batch))
}

/// `fleet/<batch>/beat/<worker>/<n>`: a sign of life of a worker.
pub fn fleet_beat(batch: JobId, worker: AttemptId, number: u32) -> String {
    format!("{}{worker}/{number}", fleet_beats(batch))
}

/// Prefix of the signs of life of the workers of a batch.
pub fn fleet_beats(batch: JobId) -> String {
    format!("{}beat/", fleet_batch(batch))
}

/// An object of a fleet batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FleetObject {
    /// Its plan.
    Plan,
    /// The register of a task.
    Done(TaskId),
    /// The containers that a task of a check reads.
    Range(TaskId),
    /// An output of an attempt at a task, with its number.
    Output(TaskId, AttemptId, u32),
    /// A claim of a task, with its epoch.
    Claim(TaskId, u32),
    /// A sign of life of a worker, with its number.
    Beat(AttemptId, u32),
}

/// Reads a name made by [`fleet_plan`], [`fleet_done`], [`fleet_range`], [`fleet_output`],
/// [`fleet_claim`] or [`fleet_beat`].
pub fn parse_fleet(name: &str) -> Option<(JobId, FleetObject)> {
    let (batch, rest) = name.strip_prefix(FLEET)?.split_once('/')?;
    let mut parts = rest.split('/');
    let kind = parts.next()?;
    let mut task = || {
        Some(TaskId {
            stage: Stage::parse(parts.next()?)?,
            round: parse_number(parts.next()?)?,
            number: parse_number(parts.next()?)?,
        })
    };
    let object = match kind {
        "plan" => FleetObject::Plan,
        "done" => FleetObject::Done(task()?),
        "range" => FleetObject::Range(task()?),
        "out" => FleetObject::Output(task()?, parts.next()?.parse().ok()?, parse_number(parts.next()?)?),
        "claim" => FleetObject::Claim(task()?, parse_number(parts.next()?)?),
        "beat" => FleetObject::Beat(parts.next()?.parse().ok()?, parse_number(parts.next()?)?),
        _ => return None,
    };
    parts.next().is_none().then_some((batch.parse().ok()?, object))
}

/// Whether an object may have this name: one made by a function of this module.
pub fn is_object(name: &str) -> bool {
    name == CONFIG
        || parse_key(name).is_some()
        || parse_lease(name).is_some()
        || parse_version(name).is_some()
        || parse_forgotten(name).is_some()
        || parse_pin(name).is_some()
        || parse_settings(name).is_some()
        || parse_container(name).is_some()
        || parse_index(name).is_some()
        || parse_indexed(name).is_some()
        || parse_run(name).is_some()
        || parse_closed(name).is_some()
        || parse_fleet(name).is_some()
}

/// A decimal number in its only spelling: no sign, no leading zero.
fn parse_number<N: std::str::FromStr + ToString>(text: &str) -> Option<N> {
    let number: N = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&run(*self))
    }
}

impl fmt::Display for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&container(*self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_read_back_and_only_in_its_own_spelling() {
        let job = JobId([7; 16]);
        let series = SeriesKey([9; 16]);
        for kind in [ContainerKind::Data, ContainerKind::Meta] {
            let id = ContainerId { kind, job, seq: 12 };
            assert_eq!(parse_container(&container(id)), Some(id));
            assert_eq!(parse_container(&format!("{}012", containers_of(kind, job))), None);
        }
        assert_eq!(parse_version(&version(series, job, 3)), Some((series, job, 3)));
        assert_eq!(parse_version(&format!("{}/x", version(series, job, 3))), None);
        assert_eq!(parse_lease(&lease(job, 5)), Some((job, LeaseObject::Renewal(5))));
        assert_eq!(parse_lease(&lease_done(job)), Some((job, LeaseObject::Done)));
        assert_eq!(parse_forgotten(&forgotten(series, job)), Some((series, job)));
        assert!(forgotten(series, job).starts_with(&marks_of(&series_versions(series))));
        assert_eq!(marks_of(VERSIONS), FORGOTTEN);
        assert_eq!(parse_index(&index(u64::MAX)), Some(u64::MAX));
        for no_index in ["index/0", "index/01", "index/+1", "index/18446744073709551616", "index/runs/1", "index/"] {
            assert_eq!(parse_index(no_index), None, "{no_index}");
        }
        assert_eq!(parse_indexed(&indexed(u64::MAX)), Some(u64::MAX));
        for no_mark in ["indexed", "indexed/", "indexed/0", "indexed/01", "index/1"] {
            assert_eq!(parse_indexed(no_mark), None, "{no_mark}");
        }
        let id = RunId { job, seq: 12 };
        assert_eq!(parse_run(&run(id)), Some(id));
        assert_eq!(parse_run(&format!("{}012", runs_of(job))), None);
        assert_eq!(parse_index(&run(id)), None);
        let domain = DomainId([0xab; 16]);
        assert_eq!(parse_closed(&closed(domain)), Some(domain));
        assert_eq!(parse_closed(&format!("{}/1", closed(domain))), None);
        assert_eq!(parse_pin(&pin(series, job, 2)), Some((series, job, 2)));
        assert_eq!(parse_pin(&format!("{}02", pins_of(series, job))), None);
        for of in [SettingsOf::Default, SettingsOf::Series(series)] {
            assert_eq!(parse_settings(&settings(of, 7)), Some((of, 7)));
            assert_eq!(parse_settings(&format!("{}07", settings_of(of))), None);
            assert_eq!(parse_settings(&format!("{}/7", settings_of(of))), None);
        }
        let task = TaskId { stage: Stage::Resolve, round: 2, number: 40 };
        let attempt = AttemptId([5; 8]);
        let fleet = [
            (fleet_plan(job), FleetObject::Plan),
            (fleet_done(job, task), FleetObject::Done(task)),
            (fleet_range(job, task), FleetObject::Range(task)),
            (fleet_output(job, task, attempt, 3), FleetObject::Output(task, attempt, 3)),
            (fleet_claim(job, task, 4), FleetObject::Claim(task, 4)),
            (fleet_beat(job, attempt, 5), FleetObject::Beat(attempt, 5)),
        ];
        for (name, object) in fleet {
            assert_eq!(parse_fleet(&name), Some((job, object)), "{name}");
            assert_eq!(parse_fleet(&format!("{name}/1")), None, "{name}");
            assert!(name.starts_with(&fleet_batch(job)) && is_object(&name));
        }
        assert_eq!(parse_fleet(&format!("{}done/resolve/02/40", fleet_batch(job))), None);
        let shouting = version(series, JobId([0xab; 16]), 0).to_uppercase().replacen("VERSIONS", "versions", 1);
        assert_eq!(parse_version(&shouting), None);
    }
}
