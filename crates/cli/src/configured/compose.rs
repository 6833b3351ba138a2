//! The arguments of a command: those that were typed, and those of the file.

use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};
use larder_profile::config::{Config, CopyFrom, Profile, Repository};
use larder_profile::document::{ConfigError, Place};
use larder_store::Location;

use super::definitions::{Definitions, Shape, shape};
use super::environment_file;
use super::layers::{Chosen, chosen, excludes, is_scope, layer_of_copy, layers};
use super::{Configured, name_in, profile, strict};
use crate::args::{Cli, Global};
use crate::environment;
use crate::failure::Failure;

/// Verbs that read the file themselves: repositories and profiles are arguments for them.
const OF_THE_FILE: [&str; 3] = ["run", "schedule", "config"];

/// Verbs whose `latest` means the newest snapshot of the profile.
const FILTERED: [&str; 9] = ["snapshots", "ls", "find", "diff", "restore", "dump", "mount", "serve-webdav", "forget"];

/// Options that say what a backup reads, instead of `sources`.
const INPUTS: [&str; 7] =
    ["paths", "stdin", "stdin_from_command", "files_from", "files_from_verbatim", "files_from_raw", "image"];

/// A command line as it was typed.
pub(crate) struct Typed {
    /// The verb and the ones below it.
    pub(super) verb: Vec<String>,
    matches: ArgMatches,
    argv: Vec<OsString>,
    /// Where the arguments behind the verb begin.
    at: usize,
}

impl Typed {
    /// Takes a command line that clap has read.
    pub(super) fn of(definitions: &Definitions, matches: &ArgMatches, argv: &[OsString]) -> Self {
        let (mut verb, mut below) = (Vec::new(), matches);
        while let Some((name, matches)) = below.subcommand() {
            verb.push(name.to_owned());
            below = matches;
        }
        let at = behind_verb(definitions, argv, &verb);
        Self { verb, matches: below.clone(), argv: argv.to_vec(), at }
    }

    /// Whether an argument was typed. Defaults and variables are not.
    fn is_given(&self, id: &str) -> bool {
        let mut given = self.matches.ids().filter(|given| given.as_str() == id);
        given.any(|id| self.matches.value_source(id.as_str()) == Some(ValueSource::CommandLine))
    }

    fn value(&self, id: &str) -> Option<&OsStr> {
        if self.is_given(id) { self.matches.get_raw(id)?.next() } else { None }
    }

    /// Whether `--exclude=` drops the list of the file.
    fn drops(&self, arg: &Arg) -> bool {
        self.words().any(|word| is_empty_value(word, arg))
    }

    /// The words behind the verb up to `--`.
    fn words(&self) -> impl Iterator<Item = &OsString> {
        self.argv.iter().skip(self.at).take_while(|word| *word != "--")
    }
}

fn is_empty_value(word: &OsStr, arg: &Arg) -> bool {
    let name = word.to_str().and_then(|word| word.strip_prefix("--")?.strip_suffix('='));
    name.is_some() && name == arg.get_long()
}

/// Where the arguments behind a verb begin: values of options before it may look like it.
fn behind_verb(definitions: &Definitions, argv: &[OsString], verb: &[String]) -> usize {
    let is_called = |word: &OsString, path: &[String]| {
        let command = definitions.verb(path);
        let names = command.into_iter().flat_map(|it| [it.get_name()].into_iter().chain(it.get_all_aliases()));
        word.to_str().is_some_and(|word| names.into_iter().any(|name| name == word))
    };
    let is_place_of_verb = |at: usize| {
        let line = argv[..at].iter().cloned().chain([OsString::from("version")]);
        definitions.try_read(line).is_ok()
    };
    let mut at = 0;
    for depth in 1..=verb.len() {
        let mut places = (at + 1..argv.len()).filter(|place| is_called(&argv[*place], &verb[..depth]));
        let found = places.find(|place| depth > 1 || is_place_of_verb(*place));
        at = found.unwrap_or(argv.len().saturating_sub(1));
    }
    at + 1
}

/// `--flag=false` and `--flag=true`, which turn flags of the file off and on. Gives the rest of the
/// command line, and the flags that are off.
pub(super) fn switches(argv: &[OsString]) -> (Vec<OsString>, Vec<String>) {
    let parts = |word: &OsString| {
        let (name, value) = word.to_str()?.strip_prefix("--")?.split_once('=')?;
        let is_on = value.parse::<bool>().ok()?;
        Some((name.to_owned(), is_on))
    };
    let end = argv.iter().position(|word| word == "--").unwrap_or(argv.len());
    if argv[..end].iter().all(|word| parts(word).is_none()) {
        return (argv.to_vec(), Vec::new());
    }
    let definitions = Definitions::new();
    let is_flag = |name: &str| {
        let verbs = definitions.verbs();
        let mut shapes = verbs.iter().filter_map(|verb| definitions.option(verb, name)).map(shape).peekable();
        shapes.peek().is_some() && shapes.all(|shape| shape == Shape::Flag)
    };
    let (mut rest, mut off) = (Vec::new(), Vec::new());
    for (at, word) in argv.iter().enumerate() {
        match parts(word).filter(|(name, _)| at < end && is_flag(name)) {
            Some((name, true)) => rest.push(format!("--{name}").into()),
            Some((name, false)) => off.push(name),
            None => rest.push(word.clone()),
        }
    }
    (rest, off)
}

/// The profile and the repository of a command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) profile: Option<&'a Profile>,
    pub(crate) repository: Option<&'a Repository>,
    /// Of `copy`: the table about the repository that is copied from.
    pub(crate) copy: Option<&'a CopyFrom>,
}

impl<'a> Wanted<'a> {
    /// What a command line asks for.
    pub(super) fn of(config: &'a Config, typed: &Typed) -> Result<Self, Failure> {
        let verb = typed.verb.first().map_or("", String::as_str);
        let profile = typed.value("profile").map(|name| profile(config, &name.to_string_lossy())).transpose()?;
        let named =
            |location: &OsStr| Ok::<_, Failure>(name_in(config, location)?.and_then(|it| config.repository(&it)));
        let is_in_other_way = typed.is_given("repository_file");
        let repository = if let Some(location) = typed.value("repo") {
            named(location)?
        } else if is_in_other_way || OF_THE_FILE.contains(&verb) {
            None
        } else if let Some(profile) = profile {
            of_profile(config, profile)?
        } else if let Some(location) = environment::variable("LARDER_REPOSITORY") {
            named(&location)?
        } else if environment::variable("LARDER_REPOSITORY_FILE").is_some() || verb == "volume" {
            None
        } else {
            // The only one needs no name.
            config.repositories.first().filter(|_| config.repositories.len() == 1)
        };
        let from = typed.value("from_repo").filter(|_| verb == "copy");
        let from = from.map(|location| name_in(config, location)).transpose()?.flatten();
        let mut copies = repository.into_iter().flat_map(|repository| &repository.copies);
        let copy = from.and_then(|from| copies.find(|copy| copy.from.value == from));
        Ok(Self { profile: profile.filter(|_| !OF_THE_FILE.contains(&verb)), repository, copy })
    }

    /// The part of the configuration that the command uses. The location takes its place in the
    /// global options.
    pub(super) fn configured(&self, config: &Arc<Config>, global: &mut Global) -> Result<Configured, Failure> {
        let Self { profile, repository, copy: _ } = self;
        let mut variables = Vec::new();
        if let Some(repository) = repository {
            global.repo = Some(location(repository)?.into());
            global.repository_file = None;
            if let Some(file) = &repository.environment_file {
                variables = environment_file::read(&file.value)?;
            }
        }
        Ok(Configured {
            config: Some(config.clone()),
            profile: profile.map(|profile| profile.name.clone()).or_else(|| global.profile.clone()),
            repository: repository.map(|repository| repository.name.clone()),
            variables,
            ..Configured::default()
        })
    }
}

fn of_profile<'a>(config: &'a Config, profile: &Profile) -> Result<Option<&'a Repository>, Failure> {
    match &*profile.repositories {
        [] => Ok(config.repositories.first().filter(|_| config.repositories.len() == 1)),
        [one] => Ok(config.repository(&one.value)),
        several => {
            let names: Vec<_> = several.iter().map(|name| format!("-r {}", name.value)).collect();
            let why = format!("the profile {} has several repositories", profile.name);
            Err(Failure::usage(why).advise(format!("choose one: {}", names.join(" or "))))
        }
    }
}

/// The location of a repository. A folder is absolute, because the file means the same everywhere.
pub(super) fn location(repository: &Repository) -> Result<&str, Failure> {
    let text = repository.location.value.as_str();
    match text.parse() {
        Ok(Location::Local(path)) if path.is_relative() => {
            Err(Failure::usage(format!("{}: location must be an absolute path", repository.location.place)))
        }
        Ok(_) => Ok(text),
        Err(error) => Err(Failure::usage(format!("{}: {error}", repository.location.place))),
    }
}

/// All arguments of a command: the file's behind the verb, then the typed ones.
pub(super) fn arguments(
    definitions: &Definitions,
    config: &Config,
    wanted: &Wanted<'_>,
    typed: &Typed,
    off: &[String],
) -> Result<Vec<OsString>, ConfigError> {
    let Some(command) = definitions.verb(&typed.verb) else { return Ok(typed.argv.clone()) };
    let mut layers = layers(config, wanted.profile, wanted.repository);
    if let Some(copy) = wanted.copy {
        layers.insert(0, layer_of_copy(copy));
    }
    let chosen = chosen(definitions, &layers, &typed.verb)?;
    let is_used =
        |chosen: &&Chosen<'_>| is_used(command, typed, chosen, off) && !is_other_policy(wanted, typed, chosen);
    let used: Vec<_> = chosen.iter().filter(is_used).collect();
    let mut of_file: Vec<OsString> = used.iter().flat_map(|chosen| chosen.arguments.clone()).collect();
    let mut inputs = Vec::new();
    if let Some(profile) = wanted.profile {
        let is_chosen = |id: &str| used.iter().any(|chosen| chosen.arg.get_id() == id);
        of_file.extend(series_argument(definitions, &layers, profile, typed, &is_chosen)?);
        if typed.verb == ["backup"] && INPUTS.iter().all(|id| !typed.is_given(id)) {
            inputs = sources(profile, is_chosen("stdin_from_command"))?;
        }
    }
    let dropped = |word: &OsString| command.get_arguments().any(|arg| is_empty_value(word, arg));
    let (before, after) = typed.argv.split_at(typed.at);
    let options = typed.words().count();
    let (words, rest) = after.split_at(options);
    let mut all = [before, &of_file].concat();
    all.extend(words.iter().filter(|word| !dropped(word)).cloned());
    all.extend(rest.iter().cloned());
    if !inputs.is_empty() {
        if rest.is_empty() {
            all.push("--".into());
        }
        all.extend(inputs);
    }
    Ok(all)
}

/// Whether the file's value counts beside what was typed.
fn is_used(command: &Command, typed: &Typed, chosen: &Chosen<'_>, off: &[String]) -> bool {
    let (id, arg) = (chosen.arg.get_id(), chosen.arg);
    if off.iter().any(|off| arg.get_long() == Some(off)) {
        return false;
    }
    let is_single = shape(arg) != Shape::List || is_scope(command, arg);
    if typed.is_given(id.as_str()) && (is_single || typed.drops(arg)) {
        return false;
    }
    let mut given = command.get_arguments().filter(|given| typed.is_given(given.get_id().as_str()));
    given.all(|given| given.get_id() == id || !excludes(command, given, arg))
}

/// Whether this is a rule of the file that says what to keep, and the command is not about it. A
/// policy is for profiles, whose snapshots it knows. Typed names of snapshots take its place.
fn is_other_policy(wanted: &Wanted<'_>, typed: &Typed, chosen: &Chosen<'_>) -> bool {
    let is_rule = typed.verb == ["forget"] && chosen.is_policy();
    is_rule && (wanted.profile.is_none() || typed.is_given("ids"))
}

/// The series of a profile: the snapshots that its backups make, and that its policy is about.
fn series_argument(
    definitions: &Definitions,
    layers: &[super::layers::Source<'_>],
    profile: &Profile,
    typed: &Typed,
    is_chosen: &dyn Fn(&str) -> bool,
) -> Result<Option<OsString>, ConfigError> {
    let verb = typed.verb.first().map_or("", String::as_str);
    let is_said = |ids: &[&str]| ids.iter().any(|id| typed.is_given(id) || is_chosen(id));
    let is_wanted = match verb {
        "backup" => !is_said(&["series"]),
        // Other filters and names narrow it down: a profile never forgets what is of another one.
        "forget" => !is_said(&["series"]),
        verb => FILTERED.contains(&verb) && !is_said(&["series", "host", "tag", "path"]),
    };
    if !is_wanted {
        return Ok(None);
    }
    let typed_host = typed.value("host").filter(|_| verb == "backup").map(|host| host.to_string_lossy().into_owned());
    let (series, _) = series_of(definitions, layers, profile, typed_host)?;
    Ok(Some(format!("--series={series}").into()))
}

/// The series of the backups of a profile, and the place where the file names it.
pub(super) fn series_of(
    definitions: &Definitions,
    layers: &[super::layers::Source<'_>],
    profile: &Profile,
    typed_host: Option<String>,
) -> Result<(String, Option<Place>), ConfigError> {
    let of_backup = chosen(definitions, layers, &["backup".to_owned()])?;
    let value_of = |id: &str| {
        let chosen = of_backup.iter().find(|chosen| chosen.arg.get_id() == id)?;
        let word = chosen.arguments.first()?.to_str()?;
        Some((word.split_once('=')?.1.to_owned(), chosen.places.first().cloned()))
    };
    if let Some(series) = value_of("series") {
        return Ok(series);
    }
    let of_file = || value_of("host").map(|(host, _)| host);
    let of_variable = || environment::variable("LARDER_HOST")?.into_string().ok();
    let host = typed_host.or_else(of_file).or_else(of_variable).unwrap_or_else(environment::host);
    Ok((format!("{host}:{}", profile.name), None))
}

/// What a profile backs up.
pub(super) fn sources(profile: &Profile, is_command: bool) -> Result<Vec<OsString>, ConfigError> {
    let relative = profile.sources.iter().find(|source| !is_command && !source.value.starts_with('/'));
    match relative {
        Some(source) => Err(ConfigError::at(&source.place, "sources must be absolute paths")),
        None => Ok(profile.sources.iter().map(|source| source.value.clone().into()).collect()),
    }
}

/// Whether a profile says what to back up. One that others inherit from need not.
pub(crate) fn has_input(definitions: &Definitions, config: &Config, profile: &Profile) -> bool {
    let layers = layers(config, Some(profile), None);
    let chosen = chosen(definitions, &layers, &["backup".to_owned()]);
    let is_input = |it: &Chosen<'_>| INPUTS.contains(&it.arg.get_id().as_str()) && !it.arguments.is_empty();
    !profile.sources.is_empty() || chosen.is_ok_and(|chosen| chosen.iter().any(is_input))
}

/// A command of `larder run`: a verb with the options of the file and `more`.
pub(crate) fn step(
    definitions: &Definitions,
    config: &Arc<Config>,
    wanted: Wanted<'_>,
    verb: &str,
    more: &[OsString],
) -> Result<(Cli, Configured), Failure> {
    let mut cli = command_line(definitions, config, wanted, verb, more)?;
    let configured = wanted.configured(config, &mut cli.global)?;
    Ok((cli, configured))
}

/// The command line of [`step`].
pub(crate) fn command_line(
    definitions: &Definitions,
    config: &Config,
    wanted: Wanted<'_>,
    verb: &str,
    more: &[OsString],
) -> Result<Cli, Failure> {
    let line = ["larder".into(), verb.into()].into_iter().chain(more.iter().cloned());
    let line: Vec<OsString> = line.collect();
    let refused = |error: clap::Error| {
        let text = error.to_string();
        Failure::usage(text.lines().next().unwrap_or_default().trim_start_matches("error: "))
    };
    let matches = definitions.try_read(line.iter().cloned()).map_err(refused)?;
    let typed = Typed::of(definitions, &matches, &line);
    let arguments = arguments(definitions, config, &wanted, &typed, &[]);
    let arguments = arguments.map_err(|error| Failure::usage(error.to_string()))?;
    strict(&arguments).map_err(refused)
}

/// The options for all verbs that were typed, as arguments for the steps of a run.
pub(super) fn typed_globals(definitions: &Definitions, typed: &Typed) -> Vec<OsString> {
    let mut words = Vec::new();
    for arg in definitions.options(&[]).filter(|arg| typed.is_given(arg.get_id().as_str())) {
        let long = arg.get_long().unwrap_or_default();
        match shape(arg) {
            // How much is said is the same for the whole run.
            Shape::Flag if !["json", "quiet"].contains(&long) => words.push(format!("--{long}").into()),
            Shape::Flag | Shape::Count => {}
            Shape::Single | Shape::List => {
                for value in typed.matches.get_raw(arg.get_id().as_str()).into_iter().flatten() {
                    let mut word = OsString::from(format!("--{long}="));
                    word.push(value);
                    words.push(word);
                }
            }
        }
    }
    words
}
