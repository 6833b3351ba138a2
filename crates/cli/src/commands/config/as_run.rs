//! The configuration as `larder run` will use it: each verb with all the options that it gets.
//!
//! Values that are right by themselves can make a command that is refused, or one that does
//! something else than the file seems to say. Nothing is opened here.

use larder_profile::config::{Config, Profile, Repository};
use larder_profile::document::ConfigError;

use crate::args::{Cli, Command, FilterArgs};
use crate::commands::{backup, copy, forget};
use crate::configured::{
    Definitions, Wanted, check_all, chosen, command_line, from_word, has_input, layers, repositories,
};
use crate::failure::Failure;

/// All mistakes of the configuration.
pub(in crate::commands) fn mistakes(definitions: &Definitions, config: &Config) -> Vec<String> {
    let mut found = check_all(definitions, config);
    if !found.is_empty() {
        // A command of wrong values would report them once more.
        return found;
    }
    for profile in config.profiles.iter().filter(|profile| !is_template(definitions, config, profile)) {
        let place = &profile.place;
        found.extend(
            check_profile(definitions, config, profile).err().map(|why| ConfigError::at(place, why).to_string()),
        );
    }
    for repository in &config.repositories {
        let wanted = Wanted { profile: None, repository: Some(repository), copy: None };
        for verb in repository.every.keys() {
            if let Err(failure) = command_line(definitions, config, wanted, verb, &[]) {
                let why = format!("the repository {}: {verb}: {}", repository.name, failure.message);
                found.push(ConfigError::at(&repository.place, why).to_string());
            }
        }
        for copy in &repository.copies {
            let wanted = Wanted { copy: Some(copy), ..wanted };
            if let Err(failure) = check_copy(definitions, config, wanted, from_word(copy)) {
                let why = format!("copies from {} into {}: {}", copy.from.value, repository.name, failure.message);
                found.push(ConfigError::at(&copy.from.place, why).to_string());
            }
        }
    }
    found
}

fn check_copy(
    definitions: &Definitions,
    config: &Config,
    wanted: Wanted<'_>,
    from: std::ffi::OsString,
) -> Result<(), Failure> {
    match command_line(definitions, config, wanted, "copy", &[from])?.command {
        Command::Copy(args) => copy::check(&args),
        _ => Ok(()),
    }
}

/// Whether a profile is there for others, which inherit from it, and is no backup by itself.
pub(in crate::commands) fn is_template(definitions: &Definitions, config: &Config, profile: &Profile) -> bool {
    let inherits = |other: &Profile| other.inherit.as_ref().is_some_and(|above| above.value == profile.name);
    let is_whole = !repositories(config, profile).is_empty() && has_input(definitions, config, profile);
    profile.schedule.is_none() && !is_whole && config.profiles.iter().any(inherits)
}

/// The profile has no repository.
pub(in crate::commands) fn no_repository(profile: &Profile) -> String {
    format!("the profile {} names no repository", profile.name)
}

fn check_profile(definitions: &Definitions, config: &Config, profile: &Profile) -> Result<(), String> {
    let repositories = repositories(config, profile);
    if repositories.is_empty() {
        return Err(no_repository(profile));
    }
    if !has_input(definitions, config, profile) {
        return Err(format!("the profile {} has no sources", profile.name));
    }
    repositories.into_iter().try_for_each(|repository| check_verbs(definitions, config, profile, repository))
}

/// The steps of a profile on one repository.
fn check_verbs(
    definitions: &Definitions,
    config: &Config,
    profile: &Profile,
    repository: &Repository,
) -> Result<(), String> {
    let wanted = Wanted { profile: Some(profile), repository: Some(repository), copy: None };
    let refused = |verb: &str, failure: Failure| format!("the profile {}: {verb}: {}", profile.name, failure.message);
    let line = |verb: &str| -> Result<Cli, String> {
        command_line(definitions, config, wanted, verb, &[]).map_err(|failure| refused(verb, failure))
    };
    let Command::Backup(to_back_up) = line("backup")?.command else { return Ok(()) };
    backup::check(&to_back_up).map_err(|failure| refused("backup", failure))?;
    let layers = layers(config, Some(profile), Some(repository));
    let options = chosen(definitions, &layers, &["forget".to_owned()]);
    if !options.is_ok_and(|chosen| chosen.iter().any(|option| option.is_policy())) {
        return Ok(());
    }
    let Command::Forget(policy) = line("forget")?.command else { return Ok(()) };
    if !forget::has_rules(&policy) {
        return Err(format!("the policy of the profile {} keeps no snapshot", profile.name));
    }
    let about = FilterArgs::from(&policy.filter).series;
    let own = to_back_up.series.unwrap_or_default();
    if about != [own.as_str()] {
        let about = about.join(", ");
        return Err(format!(
            "the policy of the profile {} is about the series {about}, but its snapshots have the series {own}; \
             leave out series",
            profile.name
        ));
    }
    Ok(())
}
