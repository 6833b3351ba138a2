//! The configuration file beside the command line: finding it, and adding its options to the
//! arguments that were typed.
//!
//! A table of the file becomes an argument list for the definitions of clap in `args`. So every
//! option of every verb can be in the file, and there is no second list of options. The order of
//! precedence: typed arguments, the profile, the profiles that it inherits from, the repository,
//! `[defaults]`. Variables come before `[defaults]` only. Lists add up.

pub(crate) mod address_file;
mod check;
mod compose;
mod copies;
mod definitions;
pub(crate) mod environment_file;
mod layers;
pub(crate) mod schema;
mod second;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::FromArgMatches;
use larder_profile::config::{Config, Profile, Variables, load, notifications};
use larder_profile::document::ConfigError;
use larder_profile::nearest::did_you_mean;
use parking_lot::Mutex;

use crate::args::{self, Cli};
use crate::environment;
use crate::failure::Failure;
use crate::password::Password;

pub(crate) use check::{check_all, repositories};
pub(crate) use compose::{Wanted, command_line, has_input, step};
pub(crate) use copies::{copied_from, from_word, with_copies};
pub(crate) use definitions::{Definitions, Shape, shape};
pub(crate) use layers::{Chosen, chosen, layer_of_copy, layers};
pub(crate) use second::second;

/// Verbs that the file has no part in.
const WITHOUT: [&str; 4] = ["completions", "man", "version", "unlock"];

/// The password of a repository, once somebody typed it. Repositories with one credential have one.
pub(crate) type Secret = Arc<Mutex<Option<Password>>>;

/// The part of the configuration that a command uses.
#[derive(Debug, Clone, Default)]
pub(crate) struct Configured {
    /// The configuration, if there is one.
    pub(crate) config: Option<Arc<Config>>,
    /// The name of the profile.
    pub(crate) profile: Option<String>,
    /// The name of the repository.
    pub(crate) repository: Option<String>,
    /// Variables for the storage, besides those of the process.
    pub(crate) variables: Vec<(String, String)>,
    /// The password that was typed for the repository.
    pub(crate) secret: Secret,
    /// The same of the repository that is copied from.
    pub(crate) secret_of_source: Secret,
    /// Options for all verbs that were typed, for the steps of a run.
    pub(crate) typed: Vec<OsString>,
    /// Why the configuration cannot be used. Only `run` goes on then, to tell those who wait for a
    /// message.
    pub(crate) mistake: Option<String>,
}

/// Why a command line is refused.
#[derive(Debug)]
pub(crate) enum Refused {
    /// clap says so, or was asked for help.
    Clap(Box<clap::Error>),
    /// The configuration does not allow it.
    Failure(Failure),
}

impl From<clap::Error> for Refused {
    fn from(error: clap::Error) -> Self {
        Self::Clap(Box::new(error))
    }
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

/// Reads the command line, the variables for options that it omits, and the configuration.
pub(crate) fn parse(argv: &[OsString]) -> Result<(Cli, Configured), Refused> {
    let (argv, off) = compose::switches(argv);
    let argv = argv.as_slice();
    if !may_be_configured(argv) {
        return Ok((strict(argv)?, Configured::default()));
    }
    let definitions = Definitions::new();
    let Ok(matches) = definitions.try_read(argv.iter().cloned()) else {
        return Ok((strict(argv)?, Configured::default()));
    };
    let typed = compose::Typed::of(&definitions, &matches, argv);
    if typed.verb.first().is_none_or(|verb| WITHOUT.contains(&verb.as_str())) {
        return Ok((strict(argv)?, Configured::default()));
    }
    let Some((path, is_asked_for)) = find(matches.get_one::<PathBuf>("config").map(PathBuf::as_path)) else {
        let profile = matches.get_one::<String>("profile");
        if let Some(profile) = profile {
            let why = format!("there is no configuration file, so no profile \"{profile}\" either");
            return Err(no_file(why).into());
        }
        return Ok((strict(argv)?, Configured::default()));
    };
    let failed = |error: &ConfigError| {
        let failure = Failure::usage(error.to_string());
        if is_asked_for { failure } else { failure.advise("`--config /dev/null` goes without the file") }
    };
    let is_run = typed.verb == ["run"];
    let mistaken = |config: Arc<Config>, error: &ConfigError| {
        let mistake = Some(error.to_string());
        Ok((strict(argv)?, Configured { config: Some(config), mistake, ..Configured::default() }))
    };
    let config = match read(&path) {
        Ok(config) => Arc::new(config),
        Err(error) if is_run => return mistaken(Arc::new(messages_only(&path)), &error),
        Err(error) => return Err(failed(&error).into()),
    };
    let wanted = Wanted::of(&config, &typed)?;
    let arguments = definitions
        .check_names(&config)
        .and_then(|()| compose::arguments(&definitions, &config, &wanted, &typed, &off));
    let arguments = match arguments {
        Ok(arguments) => arguments,
        Err(error) if is_run => return mistaken(config.clone(), &error),
        Err(error) => return Err(failed(&error).into()),
    };
    let mut cli = strict(&arguments)?;
    let configured = wanted.configured(&config, &mut cli.global)?;
    Ok((cli, Configured { typed: compose::typed_globals(&definitions, &typed), ..configured }))
}

/// The failure of a verb that needs a configuration.
pub(crate) fn no_file(why: impl Into<String>) -> Failure {
    let places: Vec<_> = places().iter().map(|path| path.display().to_string()).collect();
    Failure::usage(why).advise(format!("name it with --config, or write {}", places.join(" or ")))
}

/// Reads the configuration.
pub(crate) fn read(path: &Path) -> Result<Config, ConfigError> {
    with_variables(path, load)
}

/// A configuration that has the messages of one with a mistake, and nothing else.
fn messages_only(path: &Path) -> Config {
    Config { notify: with_variables(path, notifications), ..Config::default() }
}

fn with_variables<T>(path: &Path, read: impl FnOnce(&Path, &Variables<'_>) -> T) -> T {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let env = |name: &str| std::env::var(name).ok();
    read(&path, &Variables { hostname: &environment::host(), env: &env })
}

/// The configuration file, and whether somebody named it.
pub(crate) fn find(named: Option<&Path>) -> Option<(PathBuf, bool)> {
    let of_variable = || environment::variable("LARDER_CONFIG").map(PathBuf::from);
    if let Some(path) = named.map(Path::to_owned).or_else(of_variable) {
        return Some((path, true));
    }
    // One that this user may not read is the configuration of others.
    places().into_iter().find(|path| std::fs::File::open(path).is_ok()).map(|path| (path, false))
}

/// Where the file is looked for.
fn places() -> Vec<PathBuf> {
    let of_user = environment::config_dir().map(|folder| folder.join("larder.toml"));
    of_user.into_iter().chain([PathBuf::from("/etc/larder/larder.toml")]).collect()
}

/// Whether the command line or this machine can have a configuration. Without one, a command reads
/// its arguments once only.
fn may_be_configured(argv: &[OsString]) -> bool {
    let names_one = |word: &OsString| {
        let word = word.to_string_lossy();
        word.starts_with("--config") || word.starts_with("--profile") || is_short(&word, 'P')
    };
    argv.iter().any(names_one) || find(None).is_some()
}

fn is_short(word: &str, letter: char) -> bool {
    word.starts_with('-') && !word.starts_with("--") && word.contains(letter)
}

/// Reads arguments as they are.
pub(crate) fn strict(argv: &[OsString]) -> Result<Cli, clap::Error> {
    let error = match args::command().try_get_matches_from(argv) {
        Ok(matches) => return Cli::from_arg_matches(&matches),
        Err(error) => error,
    };
    // Variables count as given options: usage lines would name them, and a bare `larder` would not
    // show its help.
    match args::without_variables(args::command()).try_get_matches_from(argv) {
        Err(plain) => Err(plain),
        Ok(_) => Err(error),
    }
}

/// The profile of this name.
pub(crate) fn profile<'a>(config: &'a Config, name: &str) -> Result<&'a Profile, Failure> {
    config.profile(name).ok_or_else(|| {
        let near = did_you_mean(name, config.profiles.iter().map(|profile| profile.name.as_str()));
        let failure = Failure::usage(format!("there is no profile \"{name}\" in the configuration{near}"));
        if config.profiles.is_empty() { failure } else { failure.advise(format!("it has: {}", config.profile_names())) }
    })
}

/// The name of a repository in what was given as a location: `@nas`, or a word that the
/// configuration has.
pub(crate) fn name_in(config: &Config, location: &OsStr) -> Result<Option<String>, Failure> {
    let Some(text) = location.to_str() else { return Ok(None) };
    let Some(name) = text.strip_prefix('@') else {
        return Ok(config.repository(text).map(|repository| repository.name.clone()));
    };
    if config.repository(name).is_some() {
        return Ok(Some(name.to_owned()));
    }
    let near = did_you_mean(name, config.repositories.iter().map(|repository| repository.name.as_str()));
    Err(Failure::usage(format!("there is no repository \"{name}\" in the configuration{near}")))
}

#[cfg(test)]
mod tests;
