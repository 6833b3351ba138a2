//! Timers and services of systemd.

use std::path::{Path, PathBuf};

use larder_profile::config::{Config, Profile};
use larder_profile::systemd::{MARK, PREFIX, Unit};
use larder_store::Location;
use serde_json::json;

use super::{State, call, config_file, involved, is_system, program, write};
use crate::app::App;
use crate::args::{InstallArgs, RemoveArgs, WhereArgs};
use crate::environment;
use crate::exit::Exit;
use crate::failure::Failure;

/// The folder of unit files.
fn folder(place: &WhereArgs) -> Result<PathBuf, Failure> {
    if let Some(folder) = &place.directory {
        return Ok(folder.clone());
    }
    if is_system() {
        return Ok(PathBuf::from("/etc/systemd/system"));
    }
    let base = environment::config_dir().and_then(|folder| Some(folder.parent()?.join("systemd/user")));
    base.ok_or_else(|| Failure::usage("there is no home for units").advise("set HOME, or use --directory"))
}

/// Calls the manager of units.
fn systemctl(words: &[&str]) -> Result<String, Failure> {
    let user: &[&str] = if is_system() { &[] } else { &["--user"] };
    call("systemctl", &[user, words].concat(), None)
}

/// The unit files of profiles: names and texts.
fn files(app: &App, config: &Config, profiles: &[&Profile]) -> Result<Vec<(String, String)>, Failure> {
    let (program, file) = (program()?, config_file(config));
    let units = profiles.iter().filter_map(|profile| {
        let schedule = &profile.schedule.as_ref()?.value;
        Some((*profile, schedule, sources(profile), writable(app, config, profile)))
    });
    let units: Vec<_> = units.collect();
    let mut files = Vec::new();
    for (profile, schedule, sources, writable) in &units {
        let relax: Vec<_> = profile.relax.iter().map(|name| name.value.clone()).collect();
        let unit = Unit {
            profile: &profile.name,
            program: &program,
            config: &file,
            schedule,
            random_delay: profile.random_delay,
            is_user: !is_system(),
            sources,
            writable,
            relax: &relax,
        };
        files.push((format!("{}.service", unit.name()), unit.service()));
        files.push((format!("{}.timer", unit.name()), unit.timer()));
    }
    Ok(files)
}

/// Whether the units of a profile are installed as they would be written now.
pub(super) fn state(app: &App, config: &Config, profile: &Profile, place: &WhereArgs) -> Result<State, Failure> {
    let folder = folder(place)?;
    let files = files(app, config, &[profile])?;
    let texts = files.iter().map(|(name, text)| (std::fs::read_to_string(folder.join(name)).ok(), text));
    let texts: Vec<_> = texts.collect();
    Ok(match () {
        () if texts.iter().all(|(installed, _)| installed.is_none()) => State::Missing,
        () if texts.iter().all(|(installed, text)| installed.as_ref() == Some(*text)) => State::Current,
        () => State::Differs,
    })
}

pub(super) fn install(app: &App, config: &Config, profiles: &[&Profile], args: &InstallArgs) -> Result<(), Failure> {
    let folder = folder(&args.place)?;
    let files = files(app, config, profiles)?;
    verify(&files)?;
    if args.print {
        return print(app, &folder, &files);
    }
    for (name, text) in &files {
        write(&folder.join(name), text)?;
        app.out.info(format!("wrote {}", folder.join(name).display()))?;
    }
    if args.place.directory.is_some() {
        return Ok(());
    }
    systemctl(&["daemon-reload"])?;
    for profile in profiles {
        systemctl(&["enable", "--now", &format!("{PREFIX}{}.timer", profile.name)])?;
        app.out.info(format!("enabled {PREFIX}{}.timer", profile.name))?;
    }
    if !is_system() {
        app.out.remark("timers of users run while they are logged in; `loginctl enable-linger` changes that");
    }
    Ok(())
}

fn print(app: &App, folder: &Path, files: &[(String, String)]) -> Result<(), Failure> {
    for (name, text) in files {
        let path = folder.join(name).display().to_string();
        if app.out.is_json() {
            app.out.json(&json!({ "message_type": "schedule_file", "path": path, "text": text }))?;
        } else {
            app.out.line(format!("# {path}\n{text}"))?;
        }
    }
    Ok(())
}

/// Lets systemd read the files before they are installed. Without `systemd-analyze`, nothing is
/// verified.
fn verify(files: &[(String, String)]) -> Result<(), Failure> {
    let folder = std::env::temp_dir().join(format!("larder-units-{}", std::process::id()));
    let verified = verify_in(&folder, files);
    // Only copies are there.
    drop(std::fs::remove_dir_all(&folder));
    verified
}

fn verify_in(folder: &Path, files: &[(String, String)]) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::of(Exit::Failed, &error).while_doing("cannot verify the units");
    std::fs::create_dir(folder).map_err(failed)?;
    for (name, text) in files {
        std::fs::write(folder.join(name), text).map_err(failed)?;
    }
    let paths = files.iter().map(|(name, _)| folder.join(name));
    let user = if is_system() { "--system" } else { "--user" };
    let output = std::process::Command::new("systemd-analyze").args(["verify", user]).args(paths).output();
    let Ok(output) = output else { return Ok(()) };
    let errors = String::from_utf8_lossy(&output.stderr);
    let ours = errors.lines().find(|line| line.contains(PREFIX));
    match ours {
        Some(line) if !output.status.success() => {
            let line = line.replace(&format!("{}/", folder.display()), "");
            Err(Failure::usage(format!("systemd does not accept the units: {line}")))
        }
        _ => Ok(()),
    }
}

fn sources(profile: &Profile) -> Vec<PathBuf> {
    profile.sources.iter().map(|source| PathBuf::from(&source.value)).filter(|path| path.is_absolute()).collect()
}

/// The folders that runs of a profile write to: local repositories, logs and metrics.
fn writable(app: &App, config: &Config, profile: &Profile) -> Vec<PathBuf> {
    let repositories = involved(config, profile);
    let local = repositories.iter().filter_map(|repository| match repository.location.value.parse() {
        Ok(Location::Local(path)) => Some(path),
        _ => None,
    });
    let mut folders: Vec<PathBuf> = local.collect();
    let parent = |path: &Path| path.parent().map(Path::to_owned);
    folders.extend(config.metrics_file.as_ref().and_then(|file| parent(&file.value)));
    folders.extend(app.global.log_file.as_deref().and_then(parent));
    folders
}

/// The unit files that were written here: the path of the timer, and the profile.
fn installed(place: &WhereArgs) -> Result<Vec<(PathBuf, String)>, Failure> {
    let folder = folder(place)?;
    let Ok(entries) = std::fs::read_dir(&folder) else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let profile = name.strip_prefix(PREFIX).and_then(|rest| rest.strip_suffix(".timer"));
        let Some(profile) = profile else { continue };
        // Files that somebody else wrote stay.
        if std::fs::read_to_string(entry.path()).is_ok_and(|text| text.starts_with(MARK)) {
            found.push((entry.path(), profile.to_owned()));
        }
    }
    found.sort();
    Ok(found)
}

pub(super) fn list(app: &App, place: &WhereArgs) -> Result<(), Failure> {
    let found = installed(place)?;
    if found.is_empty() {
        app.out.info("no timer is installed; `larder schedule install` does it")?;
    }
    for (path, profile) in found {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let times: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("OnCalendar=")).collect();
        if app.out.is_json() {
            let path = path.display().to_string();
            app.out.json(&json!({ "message_type": "schedule", "profile": profile, "path": path, "times": times }))?;
        } else {
            app.out.line(format!("{profile}: {} ({})", times.join("; "), path.display()))?;
        }
    }
    Ok(())
}

pub(super) fn remove(app: &App, args: &RemoveArgs) -> Result<(), Failure> {
    let found = installed(&args.place)?;
    for name in &args.profiles {
        if !found.iter().any(|(_, profile)| profile == name) {
            return Err(Failure::usage(format!("no timer of the profile {name} is installed")));
        }
    }
    let chosen = found.into_iter().filter(|(_, profile)| args.profiles.is_empty() || args.profiles.contains(profile));
    let chosen: Vec<_> = chosen.collect();
    if chosen.is_empty() {
        return app.out.info("no timer is installed");
    }
    for (path, profile) in &chosen {
        if args.place.directory.is_none() {
            systemctl(&["disable", "--now", &format!("{PREFIX}{profile}.timer")])?;
        }
        for path in [path.clone(), path.with_extension("service")] {
            std::fs::remove_file(&path).map_err(|error| {
                Failure::of(Exit::Failed, &error).while_doing(&format!("cannot remove {}", path.display()))
            })?;
            app.out.info(format!("removed {}", path.display()))?;
        }
    }
    if args.place.directory.is_none() {
        systemctl(&["daemon-reload"])?;
    }
    Ok(())
}
