//! Everything that can be wrong in a configuration, found without any repository.

use larder_profile::config::{Config, Profile, Repository};
use larder_profile::document::ConfigError;
use larder_profile::nearest::did_you_mean;
use larder_profile::systemd;

use super::compose::{location, series_of, sources};
use super::definitions::{Definitions, arguments, tables};
use super::layers::{chosen, layers};

/// All mistakes.
pub(crate) fn check_all(definitions: &Definitions, config: &Config) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut note = |result: Result<(), ConfigError>| found.extend(result.err().map(|error| error.to_string()));
    note(definitions.check_names(config));
    for (_, options) in tables(config) {
        let general = options.general.iter().map(|entry| (vec!["backup".to_owned()], entry));
        let of_verbs = options.verbs.iter().flat_map(|it| it.entries.iter().map(|entry| (it.verb.clone(), entry)));
        for (verb, entry) in general.chain(of_verbs) {
            let Some(arg) = definitions.option(&verb, &entry.key) else { continue };
            let words = arguments(arg, entry);
            note(words.and_then(|words| definitions.check_value(&verb, entry, &words)));
        }
    }
    for profile in &config.profiles {
        let layers = layers(config, Some(profile), None);
        let verb = ["backup".to_owned()];
        let is_command = chosen(definitions, &layers, &verb)
            .is_ok_and(|chosen| chosen.iter().any(|it| it.arg.get_id() == "stdin_from_command"));
        note(sources(profile, is_command).map(drop));
        for name in &profile.relax {
            if !systemd::is_protection(&name.value) {
                let near = did_you_mean(&name.value, systemd::protections());
                let why = format!("there is no protection \"{}\" to relax{near}", name.value);
                note(Err(ConfigError::at(&name.place, why)));
            }
        }
    }
    found.extend(shared_series(definitions, config));
    found.extend(config.repositories.iter().filter_map(|repository| Some(location(repository).err()?.message)));
    found
}

/// Profiles whose backups would follow each other in one series, on one repository, with a policy
/// of one of them. It would apply to the snapshots of the other.
fn shared_series(definitions: &Definitions, config: &Config) -> Vec<String> {
    let mut found = Vec::new();
    let mut known: Vec<(&str, String, &Profile, bool)> = Vec::new();
    for profile in &config.profiles {
        for repository in repositories(config, profile) {
            let layers = layers(config, Some(profile), Some(repository));
            // Mistakes in values are reported already.
            let Ok((series, place)) = series_of(definitions, &layers, profile, None) else { continue };
            let options = chosen(definitions, &layers, &["forget".to_owned()]);
            let has_policy = options.is_ok_and(|chosen| chosen.iter().any(|option| option.is_policy()));
            let is_same = |other: &&(&str, String, &Profile, bool)| {
                other.0 == repository.name && other.1 == series && (has_policy || other.3)
            };
            if let Some((_, _, other, _)) = known.iter().find(is_same) {
                let place = place.as_ref().unwrap_or(&profile.place);
                let why = format!(
                    "the profiles {} and {} have the series {series} on {}, and one would forget snapshots of the other; name another series",
                    other.name, profile.name, repository.name
                );
                found.push(ConfigError::at(place, why).to_string());
                break;
            }
            known.push((&repository.name, series, profile, has_policy));
        }
    }
    found
}

/// The repositories of a profile. The only one needs no name.
pub(crate) fn repositories<'a>(config: &'a Config, profile: &Profile) -> Vec<&'a Repository> {
    match (&*profile.repositories, &*config.repositories) {
        ([], [only]) => vec![only],
        (names, _) => names.iter().filter_map(|name| config.repository(&name.value)).collect(),
    }
}
