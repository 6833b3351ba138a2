//! Options of one verb from all tables that have a say, the nearest first.

use std::ffi::OsString;

use clap::{Arg, Command, Id};
use larder_profile::config::{Config, CopyFrom, Options, Profile, Repository};
use larder_profile::document::{ConfigError, Entry, Place};

use super::definitions::{self, Definitions, Shape};

/// Options of one table, or of a credential.
#[derive(Debug, Clone)]
pub(crate) struct Source<'a> {
    /// Options of all verbs, then of the verb.
    general: &'a [Entry],
    of_verbs: Option<&'a Options>,
    /// Variables come before it.
    is_default: bool,
    /// All of it is about one verb.
    is_of_one_verb: bool,
}

impl<'a> Source<'a> {
    fn of(options: &'a Options) -> Self {
        Self { general: &options.general, of_verbs: Some(options), is_default: false, is_of_one_verb: false }
    }
}

/// An option with its value, and where that is from.
#[derive(Debug, Clone)]
pub(crate) struct Chosen<'a> {
    /// The definition.
    pub(crate) arg: &'a Arg,
    /// The arguments. None: a flag that is off, or an empty list.
    pub(crate) arguments: Vec<OsString>,
    /// The places of the values.
    pub(crate) places: Vec<Place>,
    /// Tables that are farther away have no say.
    is_closed: bool,
}

impl Chosen<'_> {
    /// Whether it says what `forget` keeps.
    pub(crate) fn is_policy(&self) -> bool {
        self.arg.get_id().as_str().starts_with("keep_")
    }
}

/// The tables that have a say, the nearest first.
pub(crate) fn layers<'a>(
    config: &'a Config,
    profile: Option<&'a Profile>,
    repository: Option<&'a Repository>,
) -> Vec<Source<'a>> {
    let mut layers = Vec::new();
    layers.extend(profile.into_iter().flat_map(|profile| &profile.options).map(Source::of));
    if let Some(repository) = repository {
        layers.push(Source::of(&repository.options));
        let credential = config.credential_of(repository);
        layers.extend(credential.map(|it| Source {
            general: &it.options,
            of_verbs: None,
            is_default: false,
            is_of_one_verb: false,
        }));
    }
    layers.push(Source { is_default: true, ..Source::of(&config.defaults) });
    layers
}

/// The table of a copy, which is nearer than all others.
pub(crate) fn layer_of_copy(copy: &CopyFrom) -> Source<'_> {
    Source { is_of_one_verb: true, ..Source::of(&copy.options) }
}

/// The options of a verb, with values that clap accepts.
pub(crate) fn chosen<'a>(
    definitions: &'a Definitions,
    layers: &[Source<'_>],
    verb: &[String],
) -> Result<Vec<Chosen<'a>>, ConfigError> {
    let mut chosen: Vec<Chosen<'a>> = Vec::new();
    let Some(command) = definitions.verb(verb) else { return Ok(chosen) };
    for layer in layers {
        let of_verb = layer.of_verbs.into_iter().flat_map(|options| options.of_verb(verb));
        let of_verb = of_verb.map(|entry| (entry, true));
        let before = chosen.len();
        for (entry, is_of_verb) in of_verb.chain(layer.general.iter().map(|entry| (entry, layer.is_of_one_verb))) {
            let Some(arg) = definitions.option(verb, &entry.key) else { continue };
            if layer.is_default && arg.get_env().is_some_and(|name| std::env::var_os(name).is_some()) {
                continue;
            }
            let arguments = definitions::arguments(arg, entry)?;
            definitions.check_value(verb, entry, &arguments)?;
            let is_off = arguments.is_empty();
            let excluded_by = add(command, &mut chosen, arg, entry, arguments);
            if let Some(other) = excluded_by.filter(|other| is_of_verb && !is_off && *other >= before)
                && let Some(other) = chosen.get(other).filter(|other| !other.arguments.is_empty())
            {
                let other = other.arg.get_long().unwrap_or_else(|| other.arg.get_id().as_str());
                let why = format!("{} and {other} exclude each other", entry.key);
                return Err(ConfigError::at(&entry.node.place, why));
            }
        }
    }
    Ok(chosen)
}

/// Returns the number of a nearer option that excludes it.
fn add<'a>(
    command: &Command,
    chosen: &mut Vec<Chosen<'a>>,
    arg: &'a Arg,
    entry: &Entry,
    arguments: Vec<OsString>,
) -> Option<usize> {
    let place = entry.node.place.clone();
    if let Some(known) = chosen.iter_mut().find(|known| known.arg.get_id() == arg.get_id()) {
        // What is nearer comes later, because the last pattern that fits decides.
        if !known.is_closed {
            known.is_closed = arguments.is_empty();
            known.arguments.splice(0..0, arguments);
            known.places.insert(0, place);
        }
        return None;
    }
    let excluded_by = chosen.iter().position(|known| excludes(command, known.arg, arg));
    if excluded_by.is_none() {
        let is_closed = definitions::shape(arg) != Shape::List || arguments.is_empty() || is_scope(command, arg);
        chosen.push(Chosen { arg, arguments, places: vec![place], is_closed });
    }
    excluded_by
}

/// Whether an option says which snapshots may be forgotten. The nearest layer decides alone: two
/// lists together would be about more snapshots than either.
pub(super) fn is_scope(command: &Command, arg: &Arg) -> bool {
    command.get_name() == "forget" && ["series", "host", "tag", "path"].contains(&arg.get_id().as_str())
}

/// Whether clap refuses two options together.
pub(super) fn excludes(command: &Command, one: &Arg, other: &Arg) -> bool {
    let conflicts = |one: &Arg, other: &Id| command.get_arg_conflicts_with(one).iter().any(|arg| arg.get_id() == other);
    let share_a_choice = command.get_groups().any(|group| {
        let has = |id: &Id| group.get_args().any(|arg| arg == id);
        has(one.get_id()) && has(other.get_id()) && !group.clone().is_multiple()
    });
    share_a_choice || conflicts(one, other.get_id()) || conflicts(other, one.get_id())
}
