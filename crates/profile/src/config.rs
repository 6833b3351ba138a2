//! The configuration: repositories, profiles and their settings, as the file has them.
//!
//! `read` finds the files and checks who may write them. `section` reads single tables, and
//! `variables` replaces variables in their values. This module has the types, and follows
//! `inherit`.

mod read;
mod section;
mod variables;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::calendar::Schedule;
use crate::document::{ConfigError, Entry, Place};
use crate::hooks::Hook;
use crate::nearest::did_you_mean;

pub use read::{load, notifications};
pub use section::{PROFILE_KEYS, REPOSITORY_KEYS};
pub use variables::Variables;

/// A value and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    /// Where it is.
    pub place: Place,
}

/// Options of verbs, as they are written. Whether they exist is for the command line to say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Options that every verb accepts.
    pub general: Vec<Entry>,
    /// Options of single verbs.
    pub verbs: Vec<VerbOptions>,
}

/// The options of one verb.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerbOptions {
    /// The verb, and the one below it: `["series", "set"]`.
    pub verb: Vec<String>,
    /// The table, for messages: `profiles.home.backup`.
    pub table: String,
    /// Where the table is.
    pub place: Place,
    /// The options.
    pub entries: Vec<Entry>,
}

impl Options {
    /// The options of a verb.
    pub fn of_verb<'a>(&'a self, verb: &'a [String]) -> impl Iterator<Item = &'a Entry> {
        self.verbs.iter().filter(move |options| options.verb == verb).flat_map(|options| &options.entries)
    }
}

/// A repository.
#[derive(Debug, Clone)]
pub struct Repository {
    /// Its name.
    pub name: String,
    /// Where its table is.
    pub place: Place,
    /// Its location, as after `--repo`.
    pub location: Located<String>,
    /// The name of its credential.
    pub credential: Option<Located<String>>,
    /// File with variables for the storage, such as `AWS_ACCESS_KEY_ID`.
    pub environment_file: Option<Located<PathBuf>>,
    /// How often `larder run` runs `optimize`, `check` and `drill`; verbs without an entry are not
    /// run.
    pub every: BTreeMap<String, Duration>,
    /// The repositories whose snapshots `larder run` copies into it.
    pub copies: Vec<CopyFrom>,
    /// Options of verbs that use it.
    pub options: Options,
}

/// A repository that another one has copies of.
#[derive(Debug, Clone)]
pub struct CopyFrom {
    /// Its name.
    pub from: Located<String>,
    /// How often its snapshots are copied; zero: in each run.
    pub every: Duration,
    /// Options of `copy`.
    pub options: Options,
}

/// A secret, which several repositories can have in common.
#[derive(Debug, Clone)]
pub struct Credential {
    /// Its name.
    pub name: String,
    /// Where its table is.
    pub place: Place,
    /// `key-file`, `password-file` or `password-command`; none means a prompt.
    pub options: Vec<Entry>,
}

/// What a profile starts before, after and instead of success.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hooks {
    /// Before. A failure stops what would follow.
    pub before: Vec<Hook>,
    /// After success.
    pub after: Vec<Hook>,
    /// After a failure.
    pub failed: Vec<Hook>,
    /// In both cases, last.
    pub finally: Vec<Hook>,
    /// The events that the file names, also those with an empty list. The others are inherited.
    pub named: Vec<String>,
}

impl Hooks {
    /// The hooks of an event; `None` if there is no such event.
    pub fn of_mut(&mut self, event: &str) -> Option<&mut Vec<Hook>> {
        match event {
            "before" => Some(&mut self.before),
            "after" => Some(&mut self.after),
            "failed" => Some(&mut self.failed),
            "finally" => Some(&mut self.finally),
            _ => None,
        }
    }

    /// Takes over the hooks of events that it does not name itself.
    fn inherit(&mut self, above: &Self) {
        let mut above = above.clone();
        for event in std::mem::take(&mut above.named) {
            if self.named.contains(&event) {
                continue;
            }
            if let (Some(own), Some(others)) = (self.of_mut(&event), above.of_mut(&event)) {
                *own = std::mem::take(others);
            }
            self.named.push(event);
        }
    }
}

/// A set of files, its repositories and their policies.
#[derive(Debug, Clone)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// Where its table is.
    pub place: Place,
    /// The profile whose settings it has where it has none itself.
    pub inherit: Option<Located<String>>,
    /// What is backed up.
    pub sources: Vec<Located<String>>,
    /// Names of its repositories.
    pub repositories: Vec<Located<String>>,
    /// When it runs.
    pub schedule: Option<Located<Schedule>>,
    /// A run starts up to this much later.
    pub random_delay: Option<Duration>,
    /// Protections of its systemd unit that are left out.
    pub relax: Vec<Located<String>>,
    /// Around the whole run.
    pub hooks: Hooks,
    /// Around single verbs.
    pub verb_hooks: BTreeMap<String, Hooks>,
    /// Its options first, then those of the profiles that it inherits from.
    pub options: Vec<Options>,
}

/// How a service that receives messages is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotifyKind {
    /// A ping of `URL/start`, `URL` or `URL/fail`.
    Healthchecks,
    /// A text with a title and a priority.
    Ntfy,
    /// The summary as JSON.
    Webhook,
    /// A program.
    Command,
}

/// An event of a run that is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// The run begins.
    Start,
    /// It ended with exit code 0.
    Success,
    /// It ended with exit code 3: some files are missing in the snapshot.
    Warning,
    /// It failed.
    Failure,
    /// The first success after a failure.
    Recovery,
}

impl Event {
    /// All events.
    pub const ALL: [Self; 5] = [Self::Start, Self::Success, Self::Warning, Self::Failure, Self::Recovery];

    /// Its name in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Success => "success",
            Self::Warning => "warning",
            Self::Failure => "failure",
            Self::Recovery => "recovery",
        }
    }
}

/// A service or program that is told how runs end.
#[derive(Debug, Clone)]
pub struct Notify {
    /// Its name.
    pub name: String,
    /// Where its table is.
    pub place: Place,
    /// How it is spoken to.
    pub kind: NotifyKind,
    /// File with its address, which is a secret.
    pub url_file: Option<Located<PathBuf>>,
    /// The program of the kind `command`.
    pub run: Option<Hook>,
    /// The events that it is told.
    pub on: Vec<Event>,
    /// Time for one attempt to send a message.
    pub timeout: Duration,
}

/// The whole configuration.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// The files, the main one first.
    pub files: Vec<PathBuf>,
    /// Secrets.
    pub credentials: Vec<Credential>,
    /// Repositories, in the order of the files.
    pub repositories: Vec<Repository>,
    /// Options of all profiles and repositories.
    pub defaults: Options,
    /// Profiles, in the order of the files.
    pub profiles: Vec<Profile>,
    /// Who is told about runs.
    pub notify: Vec<Notify>,
    /// File for metrics in the text format of Prometheus.
    pub metrics_file: Option<Located<PathBuf>>,
}

impl Config {
    /// The repository of this name.
    pub fn repository(&self, name: &str) -> Option<&Repository> {
        self.repositories.iter().find(|repository| repository.name == name)
    }

    /// The profile of this name.
    pub fn profile(&self, name: &str) -> Option<&Profile> {
        self.profiles.iter().find(|profile| profile.name == name)
    }

    /// The credential of a repository.
    pub fn credential_of(&self, repository: &Repository) -> Option<&Credential> {
        let name = repository.credential.as_ref()?;
        self.credentials.iter().find(|credential| credential.name == name.value)
    }

    /// Names of the repositories, for advice.
    pub fn repository_names(&self) -> String {
        names(self.repositories.iter().map(|repository| &repository.name))
    }

    /// Names of the profiles, for advice.
    pub fn profile_names(&self) -> String {
        names(self.profiles.iter().map(|profile| &profile.name))
    }
}

fn names<'a>(names: impl Iterator<Item = &'a String>) -> String {
    names.cloned().collect::<Vec<_>>().join(", ")
}

/// Checks references by name, and gives profiles what they inherit.
fn link(config: &mut Config) -> Result<(), ConfigError> {
    let known = |name: &Located<String>, what: &str, names: &mut dyn Iterator<Item = &str>| {
        let names: Vec<_> = names.collect();
        if names.contains(&name.value.as_str()) {
            return Ok(());
        }
        let near = did_you_mean(&name.value, names);
        Err(ConfigError::at(&name.place, format!("there is no {what} \"{}\"{near}", name.value)))
    };
    for repository in &config.repositories {
        if let Some(name) = &repository.credential {
            known(name, "credential", &mut config.credentials.iter().map(|credential| credential.name.as_str()))?;
        }
        for CopyFrom { from, .. } in &repository.copies {
            if from.value == repository.name {
                return Err(ConfigError::at(&from.place, "a repository gets no copies from itself"));
            }
            known(from, "repository", &mut config.repositories.iter().map(|repository| repository.name.as_str()))?;
        }
    }
    for profile in &config.profiles {
        for name in &profile.repositories {
            known(name, "repository", &mut config.repositories.iter().map(|repository| repository.name.as_str()))?;
        }
        if let Some(name) = &profile.inherit {
            known(name, "profile", &mut config.profiles.iter().map(|profile| profile.name.as_str()))?;
        }
    }
    let linked = config.profiles.iter().map(|profile| inherited(config, profile)).collect::<Result<_, _>>()?;
    config.profiles = linked;
    Ok(())
}

/// A profile with the settings of those that it inherits from.
fn inherited(config: &Config, profile: &Profile) -> Result<Profile, ConfigError> {
    let (mut whole, mut seen) = (profile.clone(), vec![profile.name.as_str()]);
    let mut next = profile.inherit.as_ref();
    while let Some(name) = next {
        let Some(above) = config.profile(&name.value) else { break };
        if seen.contains(&above.name.as_str()) {
            return Err(ConfigError::at(&name.place, format!("profile \"{}\" inherits from itself", profile.name)));
        }
        seen.push(&above.name);
        let take = |own: &mut Vec<Located<String>>, above: &[Located<String>]| {
            if own.is_empty() {
                above.clone_into(own);
            }
        };
        take(&mut whole.sources, &above.sources);
        take(&mut whole.repositories, &above.repositories);
        take(&mut whole.relax, &above.relax);
        whole.schedule = whole.schedule.take().or_else(|| above.schedule.clone());
        whole.random_delay = whole.random_delay.or(above.random_delay);
        whole.hooks.inherit(&above.hooks);
        for (verb, hooks) in &above.verb_hooks {
            whole.verb_hooks.entry(verb.clone()).or_default().inherit(hooks);
        }
        whole.options.extend(above.options.iter().cloned());
        next = above.inherit.as_ref();
    }
    Ok(whole)
}

#[cfg(test)]
mod tests;
