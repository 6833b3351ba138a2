//! `larder run`: chooses profiles, opens their repositories, runs the steps, and reports them.
//!
//! Everything that can be refused is refused before the first hook runs: mistakes of the
//! configuration, wrong passwords, a run that is not over. Then each profile is backed up, and its
//! policy applied. Maintenance of the repositories comes last, once for each.

mod hooked;
mod kept;
mod maintenance;
mod metrics;
mod mistake;
mod notify;
mod numbers;
mod preflight;
mod replaced;
mod report;
mod runner;
mod steps;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use jiff::tz::TimeZone;
use larder_job::{Clock, SystemClock};
use larder_profile::config::{Config, Profile};
use larder_profile::journal::{Journal, Line, RUN};
use larder_profile::lock::{Attempt, Holder, Locked, RunLock};

use super::config;
use crate::app::App;
use crate::args::RunArgs;
use crate::configured::{self, Definitions, repositories};
use crate::environment;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::time;
use runner::Runner;

pub(super) use report::words;

/// How often a run that is not over is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);

pub(super) fn run(app: &App, args: &RunArgs) -> Result<Exit, Failure> {
    let config = config::of(app)?;
    let definitions = Definitions::new();
    let folder = folder(app)?;
    let journal = Journal::new(&folder);
    let now_ms = SystemClock.now_ms();
    let before = read(&journal)?;
    let told = |failure: Failure| {
        if !args.dry_run {
            let runner = Runner::new(app, config, &definitions, false, &journal, &before);
            mistake::tell(runner, args, &failure, now_ms);
            write_metrics(app, args, config, &journal);
        }
        failure
    };
    let mistake = app.configured.mistake.clone();
    if let Some(mistake) = mistake.or_else(|| config::mistakes(&definitions, config).into_iter().next()) {
        return Err(told(Failure::usage(mistake).advise("`larder config check` shows all mistakes")));
    }
    if config.profiles.is_empty() && (args.all || args.due) {
        // Perhaps the file was cut: a success would hide that nothing is backed up any more.
        let failure = Failure::usage(format!("{} has no profiles, so nothing was backed up", files(config)));
        return Err(told(failure.advise("add [profiles.NAME]")));
    }
    let mut chosen = chosen(app, args, config, &before, now_ms)?;
    if args.all {
        chosen.retain(|profile| !config::is_template(&definitions, config, profile));
    }
    for profile in &chosen {
        // A wrong --repo is a wrong command, and no mistake of the file.
        let is_typed = app.configured.repository.is_some() || app.global.repo.is_some();
        has_repository(app, config, profile).map_err(|failure| if is_typed { failure } else { told(failure) })?;
    }
    let (mut profiles, mut locks) = (Vec::new(), Vec::new());
    for profile in chosen {
        // A dry run disturbs nobody.
        if !args.dry_run {
            match lock(app, &folder, profile, args.wait) {
                Ok(lock) => locks.push(lock),
                // What runs already is not due, and does not keep others from it.
                Err(failure) if args.due && failure.exit == Exit::Busy => {
                    app.out.remark(&failure.message);
                    continue;
                }
                Err(failure) => return Err(failure),
            }
        }
        profiles.push(profile);
    }
    // Another run may have ended just before the lock was free.
    let before = read(&journal)?;
    if args.due {
        let zone = TimeZone::system();
        profiles.retain(|profile| is_due(profile, &before, now_ms, &zone));
    }
    if profiles.is_empty() {
        app.out.info("no profile is due")?;
    }
    let mut runner = Runner::new(app, config, &definitions, args.dry_run, &journal, &before);
    runner.counts = metrics_file(args, config).is_some();
    let exit = runner.run(&profiles);
    if !args.dry_run {
        write_metrics(app, args, config, &journal);
    }
    drop(locks);
    exit
}

/// The configuration files, for messages.
fn files(config: &Config) -> String {
    config.files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// The file for metrics, if there shall be one.
fn metrics_file<'a>(args: &'a RunArgs, config: &'a Config) -> Option<&'a PathBuf> {
    args.metrics_file.as_ref().or(config.metrics_file.as_ref().map(|file| &file.value))
}

/// A file that cannot be written is no reason to call a backup failed.
fn write_metrics(app: &App, args: &RunArgs, config: &Config, journal: &Journal) {
    let Some(file) = metrics_file(args, config) else { return };
    let render = || {
        let (lines, repositories) = (journal.read()?, numbers::read_all(journal.folder())?);
        Ok(metrics::render(&lines, &repositories, SystemClock.now_ms()))
    };
    let written = render().and_then(|text| replaced::write(file, &text, 0o644));
    if let Err(error) = written {
        app.out.warn(&format!("the metrics file {} cannot be written: {error}", file.display()));
    }
}

/// The folder for locks and the journal, which is made.
fn folder(app: &App) -> Result<PathBuf, Failure> {
    let folder = environment::run_dir(&app.global).ok_or_else(|| {
        Failure::usage("runs need a folder that remembers them")
            .advise("leave out --no-state, or name one with --state")
    })?;
    let made =
        std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700).recursive(true).create(&folder);
    made.map_err(|error| {
        Failure::of_file(&error).while_doing(&format!("cannot create the folder {}", folder.display()))
    })?;
    Ok(folder)
}

/// The lines of the journal.
pub(super) fn read(journal: &Journal) -> Result<Vec<Line>, Failure> {
    journal.read().map_err(|error| Failure::of(Exit::Failed, &error).while_doing("cannot read the journal of runs"))
}

/// The profiles to run, in the order in which they were named, else of the file.
fn chosen<'a>(
    app: &App,
    args: &RunArgs,
    config: &'a Config,
    before: &[Line],
    now_ms: u64,
) -> Result<Vec<&'a Profile>, Failure> {
    if args.all {
        return Ok(config.profiles.iter().collect());
    }
    if args.due {
        let zone = TimeZone::system();
        return Ok(config.profiles.iter().filter(|profile| is_due(profile, before, now_ms, &zone)).collect());
    }
    let mut names: Vec<&String> = args.profiles.iter().collect();
    names.extend(app.configured.profile.iter().filter(|_| args.profiles.is_empty()));
    if names.is_empty() {
        let failure = Failure::usage("no profile was named");
        return Err(match config.profiles.is_empty() {
            true => failure.advise("the configuration has none; add [profiles.NAME]"),
            false => failure.advise(format!("name one of {}, or use --all", config.profile_names())),
        });
    }
    let mut profiles: Vec<&Profile> = Vec::new();
    for name in names {
        let profile = configured::profile(config, name)?;
        if !profiles.iter().any(|known| known.name == profile.name) {
            profiles.push(profile);
        }
    }
    Ok(profiles)
}

/// Whether a profile has not run since its last scheduled time. An interrupted run does not count.
fn is_due(profile: &Profile, before: &[Line], now_ms: u64, zone: &TimeZone) -> bool {
    let Some(schedule) = &profile.schedule else { return false };
    let delay = delay_ms(profile);
    let Some(scheduled) = schedule.value.last(now_ms.saturating_sub(delay), zone) else { return false };
    let runs = before.iter().filter(|line| line.command == RUN && line.profile.as_ref() == Some(&profile.name));
    // A time in the future is one of a wrong clock.
    let runs = runs.filter(|line| line.start_ms <= now_ms && !mistake::is_mistake(line));
    let ended = runs.filter(|line| line.exit_code != Exit::Interrupted.code());
    ended.map(|line| line.start_ms).max().is_none_or(|start| start < scheduled.saturating_add(delay))
}

/// The random delay of a profile on this machine. It is the same for each run.
fn delay_ms(profile: &Profile) -> u64 {
    let Some(most) = profile.random_delay.and_then(|delay| u64::try_from(delay.as_millis()).ok()) else { return 0 };
    // FNV-1a: machines differ, and that is all.
    let text = format!("{}:{}", environment::host(), profile.name);
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    hash % most.max(1)
}

fn has_repository(app: &App, config: &Config, profile: &Profile) -> Result<(), Failure> {
    let all = repositories(config, profile);
    match &app.configured.repository {
        Some(named) if all.iter().all(|repository| repository.name != *named) => {
            let why = format!("the profile {} does not use the repository {named}", profile.name);
            return Err(Failure::usage(why).advise("leave out --repo, or name a repository of the profile"));
        }
        None if app.global.repo.is_some() => {
            let advice = "name one of the configuration with --repo, or leave it out";
            return Err(Failure::usage("profiles run on repositories of the configuration only").advise(advice));
        }
        _ if !all.is_empty() => return Ok(()),
        _ => {}
    }
    let why = format!("{}: {}", profile.place, config::no_repository(profile));
    Err(Failure::usage(why).advise("add repositories = [\"NAME\"]"))
}

/// Takes the lock of a profile.
fn lock(app: &App, folder: &std::path::Path, profile: &Profile, wait: Option<Duration>) -> Result<RunLock, Failure> {
    let started = Instant::now();
    loop {
        let attempt = RunLock::take(folder, Locked::Profile(&profile.name), SystemClock.now_ms()).map_err(|error| {
            Failure::of_file(&error).while_doing(&format!("cannot lock the profile {}", profile.name))
        })?;
        match attempt {
            Attempt::Locked(lock) => return Ok(lock),
            Attempt::Held(holder) if wait.is_none_or(|wait| started.elapsed() >= wait) => {
                return Err(running(profile, holder));
            }
            Attempt::Held(holder) => {
                if started.elapsed() < LOOK_EVERY {
                    app.out.remark(&format!("{}; waiting for its end", running(profile, holder).message));
                }
                std::thread::sleep(LOOK_EVERY);
            }
        }
    }
}

fn running(profile: &Profile, holder: Holder) -> Failure {
    let since = holder.since_ms.map_or_else(String::new, |since| format!(" since {}", time::show(since)));
    let process = holder.process.map_or_else(String::new, |process| format!(" (process {process})"));
    Failure::new(Exit::Busy, format!("profile {} is running{since}{process}", profile.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_profile::calendar::Schedule;
    use larder_profile::config::{Located, Variables, load};

    fn profile(schedule: &str) -> Profile {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("larder.toml");
        std::fs::write(&path, "[profiles.home]\n").expect("written");
        let config = load(&path, &Variables { hostname: "box", env: &|_| None }).expect("a configuration");
        let mut profile = config.profile("home").expect("it is there").clone();
        let rule = Schedule::parse(schedule).expect("a schedule");
        let value = Schedule::all(vec![rule]).expect("a rule");
        profile.schedule = Some(Located { value, place: profile.place.clone() });
        profile
    }

    fn line(start_ms: u64, exit_code: i32) -> Line {
        let profile = Some("home".to_owned());
        Line {
            start_ms,
            seconds: 1.0,
            profile,
            repository: None,
            command: RUN.to_owned(),
            from: None,
            exit_code,
            snapshot_id: None,
            numbers: serde_json::Map::new(),
        }
    }

    /// Missed and interrupted runs are due, and failed ones wait for their next time.
    #[test]
    fn what_did_not_run_since_its_time_is_due() {
        const HOUR: u64 = 3_600_000;
        let (home, zone) = (profile("every 6h"), TimeZone::UTC);
        let due = |lines: &[Line], now_ms| is_due(&home, lines, now_ms, &zone);
        assert!(due(&[], 7 * HOUR));
        assert!(due(&[line(5 * HOUR, 0)], 7 * HOUR), "before its time");
        assert!(!due(&[line(5 * HOUR, 0), line(6 * HOUR, 0)], 7 * HOUR));
        assert!(!due(&[line(6 * HOUR, 15)], 7 * HOUR), "it failed");
        assert!(due(&[line(6 * HOUR, 130)], 7 * HOUR), "it was interrupted");
        assert!(due(&[line(6 * HOUR, 0)], 12 * HOUR));
        let other = Line { profile: Some("other".to_owned()), ..line(6 * HOUR, 0) };
        assert!(due(&[other], 7 * HOUR));
        assert!(!is_due(&Profile { schedule: None, ..home.clone() }, &[], 7 * HOUR, &zone));
    }

    #[test]
    fn a_random_delay_is_always_the_same_and_not_longer_than_it_may_be() {
        let mut home = profile("daily");
        assert_eq!(delay_ms(&home), 0);
        home.random_delay = Some(Duration::from_secs(1800));
        assert!(delay_ms(&home) < 1_800_000 && delay_ms(&home) == delay_ms(&home));
    }
}
