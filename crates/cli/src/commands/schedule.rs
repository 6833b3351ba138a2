//! `larder schedule`: installs timers for profiles, and shows how their runs ended.

mod cron;
mod show;
mod systemd;

use std::path::PathBuf;
use std::process::Command;

use larder_profile::config::{Config, Profile, Repository};

use super::config;
use crate::app::App;
use crate::args::{InstallArgs, RemoveArgs, ScheduleArgs, ScheduleCommand, StarterName, WhereArgs};
use crate::configured::{self, Definitions, chosen as chosen_options, copied_from, layers, repositories, with_copies};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::text::safe;

pub(super) fn run(app: &App, args: &ScheduleArgs) -> Result<Exit, Failure> {
    match &args.command {
        ScheduleCommand::Install(args) => install(app, args)?,
        ScheduleCommand::List(place) => list(app, place)?,
        ScheduleCommand::Show(args) => show::show(app, args)?,
        ScheduleCommand::Remove(args) => remove(app, args)?,
    }
    Ok(Exit::Done)
}

/// Whether the files are for the whole system.
fn is_system() -> bool {
    rustix::process::geteuid().is_root()
}

/// Who starts runs here.
fn starter(place: &WhereArgs) -> StarterName {
    let is_running = || std::path::Path::new("/run/systemd/system").is_dir();
    let default = || if is_running() { StarterName::Systemd } else { StarterName::Cron };
    place.with.unwrap_or_else(default)
}

fn install(app: &App, args: &InstallArgs) -> Result<(), Failure> {
    let config = config::of(app)?;
    if let Some(mistake) = config::mistakes(&Definitions::new(), config).into_iter().next() {
        return Err(Failure::usage(mistake).advise("`larder config check` shows all mistakes"));
    }
    let profiles = chosen(config, &args.profiles)?;
    profiles.iter().try_for_each(|profile| asks_nobody(config, profile))?;
    match starter(&args.place) {
        StarterName::Systemd => systemd::install(app, config, &profiles, args),
        StarterName::Cron => {
            if !args.profiles.is_empty() {
                let why = "with cron, all profiles with a schedule are run when they are due";
                return Err(Failure::usage(why).advise("leave out the names"));
            }
            if let Some(raw) = profiles.iter().find(|profile| show::is_raw(profile)) {
                let why = format!("{}: only systemd understands oncalendar", raw.place);
                return Err(Failure::usage(why).advise("use schedule"));
            }
            cron::install(app, config, args)
        }
    }
}

fn list(app: &App, place: &WhereArgs) -> Result<(), Failure> {
    match starter(place) {
        StarterName::Systemd => systemd::list(app, place),
        StarterName::Cron => cron::list(app, place),
    }
}

fn remove(app: &App, args: &RemoveArgs) -> Result<(), Failure> {
    match starter(&args.place) {
        StarterName::Systemd => systemd::remove(app, args),
        StarterName::Cron if !args.profiles.is_empty() => {
            Err(Failure::usage("with cron, one line runs all profiles").advise("leave out the names"))
        }
        StarterName::Cron => cron::remove(app, args),
    }
}

/// What is installed for a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Missing,
    Current,
    /// The configuration or the program changed since.
    Differs,
}

/// Arguments that give a password.
const SECRETS: [&str; 4] = ["key_file", "password_file", "password_command", "insecure_no_password"];

/// The repositories of a profile, those that get copies of them, and those that copies are made of.
fn involved<'a>(config: &'a Config, profile: &Profile) -> Vec<&'a Repository> {
    let mut all = with_copies(config, &repositories(config, profile));
    all.extend(copied_from(config, &all));
    all
}

/// Nobody is there to type a password.
fn asks_nobody(config: &Config, profile: &Profile) -> Result<(), Failure> {
    let own = repositories(config, profile).len();
    let repositories = involved(config, profile);
    let definitions = Definitions::new();
    for (at, repository) in repositories.iter().enumerate() {
        let profile_of = Some(profile).filter(|_| at < own);
        let chosen =
            chosen_options(&definitions, &layers(config, profile_of, Some(repository)), &["backup".to_owned()]);
        let has_secret =
            chosen.is_ok_and(|chosen| chosen.iter().any(|option| SECRETS.contains(&option.arg.get_id().as_str())));
        // A credential that asks is reported below.
        if !has_secret && config.credential_of(repository).is_none() {
            let why = format!(
                "{}: the repository {} has no credential, and runs of the profile {} on schedule cannot ask for a password",
                repository.place, repository.name, profile.name
            );
            return Err(Failure::usage(why).advise("use a credential with password-file, password-command or key-file"));
        }
    }
    let credentials = repositories.iter().filter_map(|repository| config.credential_of(repository));
    match credentials.into_iter().find(|credential| credential.options.is_empty()) {
        Some(asks) => {
            let why =
                format!("{}: runs of the profile {} on schedule cannot ask for a password", asks.place, profile.name);
            Err(Failure::usage(why).advise("use password-file, password-command or key-file"))
        }
        None => Ok(()),
    }
}

/// The profiles of these names, or all with a schedule.
fn chosen<'a>(config: &'a Config, names: &[String]) -> Result<Vec<&'a Profile>, Failure> {
    let profiles: Vec<_> = match names {
        [] => config.profiles.iter().filter(|profile| profile.schedule.is_some()).collect(),
        names => names.iter().map(|name| configured::profile(config, name)).collect::<Result<_, _>>()?,
    };
    if let Some(without) = profiles.iter().find(|profile| profile.schedule.is_none()) {
        let why = format!("{}: the profile {} has no schedule", without.place, without.name);
        return Err(Failure::usage(why).advise("add schedule = \"daily 02:30\""));
    }
    if profiles.is_empty() {
        return Err(Failure::usage("no profile has a schedule").advise("add schedule = \"daily 02:30\" to one"));
    }
    Ok(profiles)
}

/// This program, as a unit or a crontab names it.
fn program() -> Result<PathBuf, Failure> {
    std::env::current_exe()
        .map_err(|error| Failure::of(Exit::Failed, &error).while_doing("cannot find the path of this program"))
}

/// The main configuration file.
fn config_file(config: &Config) -> PathBuf {
    config.files.first().cloned().unwrap_or_default()
}

/// Runs a program, and gives what it printed.
fn call(program: &str, words: &[&str], stdin: Option<&str>) -> Result<String, Failure> {
    use std::io::Write;
    let failed = |why: String| Failure::new(Exit::Failed, format!("`{program} {}` failed: {why}", words.join(" ")));
    let mut command = Command::new(program);
    command.args(words).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    command.stdin(if stdin.is_some() { std::process::Stdio::piped() } else { std::process::Stdio::null() });
    let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
    if let (Some(mut pipe), Some(text)) = (child.stdin.take(), stdin) {
        pipe.write_all(text.as_bytes()).map_err(|error| failed(error.to_string()))?;
    }
    let output = child.wait_with_output().map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let last = errors.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no message");
    Err(failed(safe(last)))
}

/// Writes a file in one step.
fn write(path: &std::path::Path, text: &str) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        Failure::of(Exit::Failed, &error).while_doing(&format!("cannot write {}", path.display()))
    };
    let new = path.with_extension("larder-new");
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    std::fs::write(&new, text).map_err(failed)?;
    std::fs::rename(&new, path).map_err(failed)
}
