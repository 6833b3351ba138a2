//! Options as clap defines them: finding them by the keys of the file, and turning values into
//! arguments.

use std::cell::RefCell;
use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command};
use larder_profile::config::{Config, Options};
use larder_profile::document::{ConfigError, Entry, Node, Value};
use larder_profile::nearest::did_you_mean;

use crate::args;

/// Options that no file has: they choose the file or what is in it, or ask for help.
const NEVER: [&str; 8] =
    ["help", "version", "config", "profile", "repo", "repository-file", "password-fd", "total-memory"];

/// Options of verbs that are typed only, with the reason. A run that has one of them saves nothing,
/// or nothing that a policy can judge, and succeeds.
const TYPED_ONLY: [(&str, &str); 3] = [
    ("dry-run", "every run would change nothing, and report success"),
    ("estimate", "every run would change nothing, and report success"),
    ("time", "every snapshot would have the same time, and a policy would keep one of them"),
];

/// The definitions of all verbs.
pub(crate) struct Definitions {
    larder: Command,
    /// The same verbs, of which nothing is required: the file may have the rest.
    relaxed: RefCell<Command>,
}

/// How often an option may have a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// It is there or not.
    Flag,
    /// It is there several times, without a value.
    Count,
    /// One value.
    Single,
    /// Any number of values.
    List,
}

impl Definitions {
    /// Those of this program.
    pub(crate) fn new() -> Self {
        let mut larder = args::command();
        // From now on, verbs have the options that every verb accepts.
        larder.build();
        Self { larder, relaxed: RefCell::new(relaxed(args::command())) }
    }

    /// Reads a command line to which the file may still add arguments: nothing is required.
    pub(crate) fn try_read(&self, line: impl IntoIterator<Item = OsString>) -> Result<ArgMatches, clap::Error> {
        self.relaxed.borrow_mut().try_get_matches_from_mut(line)
    }

    /// A verb.
    pub(crate) fn verb(&self, path: &[String]) -> Option<&Command> {
        path.iter().try_fold(&self.larder, |above, name| {
            above.get_subcommands().find(|verb| verb.get_name() == name && name != "help")
        })
    }

    /// All verbs with the ones below them.
    pub(crate) fn verbs(&self) -> Vec<Vec<String>> {
        let mut found = Vec::new();
        let mut waiting: Vec<(Vec<String>, &Command)> = vec![(Vec::new(), &self.larder)];
        while let Some((path, command)) = waiting.pop() {
            for verb in command.get_subcommands().filter(|verb| verb.get_name() != "help") {
                waiting.push(([path.clone(), vec![verb.get_name().to_owned()]].concat(), verb));
            }
            if !path.is_empty() {
                found.push(path);
            }
        }
        found.sort_unstable();
        found
    }

    /// The options of a verb; of no verb, those that every verb accepts.
    pub(crate) fn options(&self, verb: &[String]) -> impl Iterator<Item = &Arg> {
        let options = self.verb(verb).into_iter().flat_map(Command::get_arguments);
        options.filter(|arg| arg.get_long().is_some_and(|long| !NEVER.contains(&long)))
    }

    /// An option of a verb by its long name.
    pub(crate) fn option(&self, verb: &[String], key: &str) -> Option<&Arg> {
        let is_called = |arg: &&Arg| {
            arg.get_long() == Some(key) || arg.get_all_aliases().is_some_and(|aliases| aliases.contains(&key))
        };
        self.options(verb).find(is_called)
    }

    /// Why an option is typed only; `None` if the file can have it.
    pub(super) fn why_typed_only(key: &str) -> Option<&'static str> {
        TYPED_ONLY.iter().find(|(long, _)| *long == key).map(|(_, why)| *why)
    }

    /// Whether all tables and options of the configuration exist. Values are checked when they are
    /// used, and by `larder config check`.
    pub(crate) fn check_names(&self, config: &Config) -> Result<(), ConfigError> {
        for (table, options) in tables(config) {
            self.check_table(&table, options)?;
        }
        Ok(())
    }

    fn check_table(&self, table: &str, options: &Options) -> Result<(), ConfigError> {
        let structural = keys_of(table);
        for entry in &options.general {
            if self.option(&[], &entry.key).is_none() {
                return Err(self.unknown(&[], table, &entry.key, entry, structural));
            }
        }
        for of_verb in &options.verbs {
            if self.verb(&of_verb.verb).is_none() {
                let (above, name) = of_verb.verb.split_at(of_verb.verb.len() - 1);
                let command = self.verb(above);
                let verbs = command.into_iter().flat_map(Command::get_subcommands).map(Command::get_name);
                let near = did_you_mean(&name[0], verbs.chain(structural.iter().copied()));
                let within = of_verb.table.rsplit_once('.').map_or("", |(within, _)| within);
                let why = format!("[{within}] has no table \"{}\"{near}", name[0]);
                return Err(ConfigError::at(&of_verb.place, why));
            }
            for entry in &of_verb.entries {
                if let Some(why) = Self::why_typed_only(&entry.key) {
                    let why = format!("[{}] cannot have {}: {why}", of_verb.table, entry.key);
                    return Err(ConfigError::at(&entry.place, why));
                }
                if self.option(&of_verb.verb, &entry.key).is_none() {
                    return Err(self.unknown(&of_verb.verb, &of_verb.table, &entry.key, entry, &[]));
                }
            }
        }
        Ok(())
    }

    fn unknown(&self, verb: &[String], table: &str, key: &str, entry: &Entry, more: &[&str]) -> ConfigError {
        // An option of a verb at the wrong place.
        let verbs = if verb.is_empty() { &["backup", "forget", "optimize", "check", "drill"][..] } else { &[] };
        let of_verb = verbs.iter().find(|verb| self.option(&[(**verb).to_owned()], key).is_some());
        let near = match of_verb {
            Some(verb) => format!("; it belongs into [{table}.{verb}]"),
            None => did_you_mean(key, self.options(verb).filter_map(Arg::get_long).chain(more.iter().copied())),
        };
        ConfigError::at(&entry.place, format!("[{table}] has no option \"{key}\"{near}"))
    }

    /// Whether clap accepts an argument. The rest of the command line does not matter.
    pub(crate) fn check_value(
        &self,
        verb: &[String],
        entry: &Entry,
        arguments: &[OsString],
    ) -> Result<(), ConfigError> {
        let line = [OsString::from("larder")].into_iter().chain(verb.iter().map(OsString::from));
        let line: Vec<_> = line.chain(arguments.iter().cloned()).collect();
        match self.try_read(line) {
            Err(error) if matches!(error.kind(), ErrorKind::ValueValidation | ErrorKind::InvalidValue) => {
                let text = error.to_string();
                let first = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
                Err(ConfigError::at(&entry.node.place, first))
            }
            _ => Ok(()),
        }
    }
}

/// Keys of a table that are no options.
fn keys_of(table: &str) -> &'static [&'static str] {
    match table.split('.').next() {
        Some("profiles") => &larder_profile::config::PROFILE_KEYS,
        Some("repositories") => &larder_profile::config::REPOSITORY_KEYS,
        _ => &[],
    }
}

/// All tables of options with their names. What a profile inherits is in the table of another.
pub(crate) fn tables(config: &Config) -> Vec<(String, &Options)> {
    let mut tables = vec![("defaults".to_owned(), &config.defaults)];
    tables.extend(config.repositories.iter().map(|it| (format!("repositories.{}", it.name), &it.options)));
    tables.extend(config.repositories.iter().flat_map(|it| {
        let name = |from: &str| format!("repositories.{}.copy-from.{from}", it.name);
        it.copies.iter().map(move |copy| (name(&copy.from.value), &copy.options))
    }));
    let own = |profile: &larder_profile::config::Profile| format!("profiles.{}", profile.name);
    tables.extend(config.profiles.iter().filter_map(|profile| Some((own(profile), profile.options.first()?))));
    tables
}

fn relaxed(command: Command) -> Command {
    let groups: Vec<_> = command.get_groups().map(|group| group.get_id().clone()).collect();
    let command =
        groups.into_iter().fold(command, |command, group| command.mut_group(group, |group| group.required(false)));
    command.mut_args(|arg| arg.required(false)).mut_subcommands(relaxed)
}

/// How often an option may have a value.
pub(crate) fn shape(arg: &Arg) -> Shape {
    match arg.get_action() {
        ArgAction::SetTrue | ArgAction::SetFalse => Shape::Flag,
        ArgAction::Count => Shape::Count,
        ArgAction::Append => Shape::List,
        _ => Shape::Single,
    }
}

/// The arguments that an entry of the file stands for.
pub(crate) fn arguments(arg: &Arg, entry: &Entry) -> Result<Vec<OsString>, ConfigError> {
    let long = arg.get_long().unwrap_or_default();
    let with = |value: &str| OsString::from(format!("--{long}={value}"));
    let not = |node: &Node, wanted: &str| {
        let why = format!("{} must be {wanted}, and not {}", entry.key, node.value.kind());
        ConfigError::at(&node.place, why)
    };
    let wrong = |wanted: &str| Err(not(&entry.node, wanted));
    let repeated = |count| vec![OsString::from(format!("--{long}")); count];
    match (shape(arg), &entry.node.value) {
        (Shape::Flag | Shape::Count, Value::Boolean(is_set)) => Ok(repeated(usize::from(*is_set))),
        (Shape::Flag, _) => wrong("true or false"),
        (Shape::Count, Value::Number(number)) => {
            let count = number.parse().ok().filter(|count| *count <= 9);
            count.map(repeated).ok_or_else(|| ConfigError::at(&entry.node.place, format!("{} is at most 9", entry.key)))
        }
        (Shape::Count, _) => wrong("a number"),
        (Shape::Single | Shape::List, Value::Text(value) | Value::Number(value)) => Ok(vec![with(value)]),
        (Shape::Single, _) => wrong("a string"),
        (Shape::List, Value::List(nodes)) => {
            let values = nodes.iter().map(|node| match &node.value {
                Value::Text(value) | Value::Number(value) => Ok(with(value)),
                _ => Err(not(node, "a list of strings")),
            });
            values.collect()
        }
        (Shape::List, _) => wrong("a list of strings"),
    }
}
