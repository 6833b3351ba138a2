//! Everything that can be wrong in a configuration, found without any repository.

use larder_profile::config::Config;
use larder_profile::document::ConfigError;
use larder_profile::nearest::did_you_mean;
use larder_profile::systemd;

use super::compose::{location, sources};
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
    found.extend(config.repositories.iter().filter_map(|repository| Some(location(repository).err()?.message)));
    found
}
