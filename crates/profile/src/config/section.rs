//! The tables of a configuration file, one after the other.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::variables::{Variables, expand_all};
use super::{
    Config, CopyFrom, Credential, Event, Hooks, Located, Notify, NotifyKind, Options, Profile, Repository, VerbOptions,
};
use crate::calendar::Schedule;
use crate::document::{ConfigError, Entry, Node, Place, Table, Value};
use crate::duration::parse_duration;
use crate::hooks::{Hook, OnError, Program};
use crate::nearest::did_you_mean;

/// Time for a hook that names none.
const HOOK_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// Time for a message over the network whose table names none.
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(10);

/// Keys of a profile besides options and verbs.
pub const PROFILE_KEYS: [&str; 9] =
    ["inherit", "sources", "repositories", "repository", "schedule", "oncalendar", "random-delay", "relax", "hooks"];

/// Keys of a repository besides options and verbs.
pub const REPOSITORY_KEYS: [&str; 4] = ["location", "credential", "environment-file", COPY_FROM];

/// The table of a repository that names those whose snapshots are copied into it.
const COPY_FROM: &str = "copy-from";

/// Verbs that `larder run` runs for a repository, and not for a profile.
const EVERY: [&str; 3] = ["optimize", "check", "drill"];

/// Options that say which repository is meant: a table of the file says it already.
const PLACE_OPTIONS: [&str; 5] = ["repo", "repository-file", "config", "profile", "password-fd"];

/// The same of the repository that is copied from.
const OTHER_OPTIONS: [&str; 2] = ["from-repo", "from-repository-file"];

const TOP: [&str; 8] =
    ["version", "include", "credentials", "repositories", "defaults", "profiles", "notify", "metrics"];

/// The notifications of a document that have no mistake, whatever else is wrong.
pub(super) fn sound_notifications(table: &mut Table, variables: &Variables<'_>) -> Vec<Notify> {
    let Some(entry) = table.take("notify") else { return Vec::new() };
    let Value::Table(table) = entry.node.value else { return Vec::new() };
    let sections = table.entries.into_iter().filter_map(|entry| {
        let name = entry.key.clone();
        notify(Section::of(entry, format!("notify.{name}"), variables).ok()?, &name).ok()
    });
    sections.collect()
}

/// Reads a whole document. Only the main file has defaults and metrics.
pub(super) fn read(
    table: Table,
    is_main: bool,
    variables: &Variables<'_>,
    config: &mut Config,
) -> Result<(), ConfigError> {
    for entry in table.entries {
        match entry.key.as_str() {
            "version" => {
                if entry.node.value != Value::Number("1".to_owned()) {
                    return Err(ConfigError::at(&entry.node.place, "only version 1 of this file is known"));
                }
            }
            "credentials" => {
                for (name, section) in named(entry, "credentials", variables)? {
                    let credential = credential(section, &name)?;
                    unique(&config.credentials, &credential, |it| (&it.name, &it.place), "credential")?;
                    config.credentials.push(credential);
                }
            }
            "repositories" => {
                for (name, section) in named(entry, "repositories", variables)? {
                    let repository = repository(section, &name)?;
                    unique(&config.repositories, &repository, |it| (&it.name, &it.place), "repository")?;
                    config.repositories.push(repository);
                }
            }
            "profiles" => {
                for (name, section) in named(entry, "profiles", variables)? {
                    let profile = profile(section, &name)?;
                    unique(&config.profiles, &profile, |it| (&it.name, &it.place), "profile")?;
                    config.profiles.push(profile);
                }
            }
            "notify" => {
                for (name, section) in named(entry, "notify", variables)? {
                    let notify = notify(section, &name)?;
                    unique(&config.notify, &notify, |it| (&it.name, &it.place), "notification")?;
                    config.notify.push(notify);
                }
            }
            "defaults" if is_main => {
                config.defaults = Section::of(entry, "defaults".to_owned(), variables)?.options(&[])?;
            }
            "metrics" if is_main => {
                let mut section = Section::of(entry, "metrics".to_owned(), variables)?;
                config.metrics_file = section.path("file")?;
                section.end(&["file"])?;
            }
            "defaults" | "metrics" => {
                return Err(ConfigError::at(&entry.place, format!("[{}] belongs into the main file", entry.key)));
            }
            other => {
                let near = did_you_mean(other, TOP);
                return Err(ConfigError::at(&entry.place, format!("there is no \"{other}\" in this file{near}")));
            }
        }
    }
    Ok(())
}

fn unique<T>(known: &[T], new: &T, of: impl Fn(&T) -> (&String, &Place), what: &str) -> Result<(), ConfigError> {
    let (name, place) = of(new);
    match known.iter().map(&of).find(|(known, _)| *known == name) {
        Some((_, before)) => {
            Err(ConfigError::at(place, format!("{what} \"{name}\" is defined twice; the other one is at {before}")))
        }
        None => Ok(()),
    }
}

/// The tables below a table, with their names.
fn named<'a>(
    entry: Entry,
    above: &str,
    variables: &'a Variables<'a>,
) -> Result<Vec<(String, Section<'a>)>, ConfigError> {
    let Value::Table(table) = entry.node.value else {
        return Err(ConfigError::at(&entry.node.place, format!("write [{above}.NAME] and its settings below it")));
    };
    let sections = table.entries.into_iter().map(|entry| {
        let name = entry.key.clone();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) || !name.chars().all(is_plain) || name.len() > 64 {
            let why = "names have up to 64 letters, digits, and - _ . between them";
            return Err(ConfigError::at(&entry.place, why));
        }
        Ok((name.clone(), Section::of(entry, format!("{above}.{name}"), variables)?))
    });
    sections.collect()
}

fn credential(mut section: Section<'_>, name: &str) -> Result<Credential, ConfigError> {
    const SOURCES: [&str; 3] = ["key-file", "password-file", "password-command"];
    let prompts = section.boolean("prompt")?.unwrap_or(false);
    let options: Vec<_> = SOURCES.iter().filter_map(|source| section.table.take(source)).collect();
    for option in &options {
        if !matches!(option.node.value, Value::Text(_)) {
            return Err(ConfigError::at(&option.node.place, format!("{} must be a string", option.key)));
        }
    }
    section.end(&["prompt", SOURCES[0], SOURCES[1], SOURCES[2]])?;
    if options.len() + usize::from(prompts) != 1 {
        let why =
            format!("[credentials.{name}] needs one of key-file, password-file, password-command and prompt = true");
        return Err(ConfigError::at(&section.place, why));
    }
    Ok(Credential { name: name.to_owned(), place: section.place, options })
}

fn repository(mut section: Section<'_>, name: &str) -> Result<Repository, ConfigError> {
    let place = section.place.clone();
    let location = section.text("location")?;
    let location = location.ok_or_else(|| {
        ConfigError::at(&place, format!("[repositories.{name}] has no location; add location = \"…\""))
    })?;
    let credential = section.text("credential")?;
    let environment_file = section.path("environment-file")?;
    let mut every = BTreeMap::new();
    for verb in EVERY {
        if let Some(entry) = section.below(verb, "every")? {
            every.insert(verb.to_owned(), interval(&entry)?);
        }
    }
    let copies = copies(&mut section)?;
    let options = section.options(&REPOSITORY_KEYS)?;
    Ok(Repository { name: name.to_owned(), place, location, credential, environment_file, every, copies, options })
}

/// The value of `every`.
fn interval(entry: &Entry) -> Result<Duration, ConfigError> {
    let Value::Text(text) = &entry.node.value else {
        return Err(ConfigError::at(&entry.node.place, "every must be a string such as \"7d\""));
    };
    parse_duration(text).map_err(|why| ConfigError::at(&entry.node.place, why))
}

/// The tables below `copy-from`: `every`, and options of `copy`.
fn copies(section: &mut Section<'_>) -> Result<Vec<CopyFrom>, ConfigError> {
    let Some(entry) = section.table.take(COPY_FROM) else { return Ok(Vec::new()) };
    let above = format!("{}.{COPY_FROM}", section.name);
    let copy = |(name, mut below): (String, Section<'_>)| {
        let every = below.table.take("every").map(|entry| interval(&entry)).transpose()?.unwrap_or_default();
        let from = Located { value: name, place: below.place.clone() };
        if let Some(entry) = below.table.entries.iter().find(|entry| OTHER_OPTIONS.contains(&entry.key.as_str())) {
            let why = format!("[{}] names the other repository already; leave out {}", below.name, entry.key);
            return Err(ConfigError::at(&entry.place, why));
        }
        let mut options = Options::default();
        let verb = vec!["copy".to_owned()];
        verb_options(below.table, verb, below.name, &below.place, below.variables, &mut options.verbs)?;
        Ok(CopyFrom { from, every, options })
    };
    named(entry, &above, section.variables)?.into_iter().map(copy).collect()
}

fn profile(mut section: Section<'_>, name: &str) -> Result<Profile, ConfigError> {
    let place = section.place.clone();
    let inherit = section.text("inherit")?;
    let sources = section.texts("sources")?;
    let mut repositories = section.texts("repositories")?;
    if let Some(one) = section.text("repository")? {
        repositories.push(one);
    }
    let schedule = schedule(&mut section)?;
    let random_delay = section.duration("random-delay")?;
    let relax = section.texts("relax")?;
    let hooks = section.table.take("hooks").map(|entry| hooks(entry, &section.name)).transpose()?.unwrap_or_default();
    let mut verb_hooks = BTreeMap::new();
    let verbs: Vec<_> = section.tables().map(str::to_owned).collect();
    for verb in verbs {
        if let Some(entry) = section.below(&verb, "hooks")? {
            let of_verb = self::hooks(entry, &format!("{}.{verb}", section.name))?;
            verb_hooks.insert(verb, of_verb);
        }
    }
    for verb in EVERY {
        if let Some(every) = section.below(verb, "every")? {
            let why = format!("every belongs to a repository: [repositories.NAME.{verb}]");
            return Err(ConfigError::at(&every.place, why));
        }
    }
    if let Some(entry) = section.table.take(COPY_FROM) {
        let why = "copies belong to the repository that gets them: [repositories.NAME.copy-from.OTHER]";
        return Err(ConfigError::at(&entry.place, why));
    }
    let options = vec![section.options(&PROFILE_KEYS)?];
    let name = name.to_owned();
    Ok(Profile {
        name,
        place,
        inherit,
        sources,
        repositories,
        schedule,
        random_delay,
        relax,
        hooks,
        verb_hooks,
        options,
    })
}

fn schedule(section: &mut Section<'_>) -> Result<Option<Located<Schedule>>, ConfigError> {
    let (words, raw) = (section.table.take("schedule"), section.text("oncalendar")?);
    if let (Some(words), Some(raw)) = (&words, &raw) {
        let why = format!("a profile has one schedule: the other one is at {}", words.place);
        return Err(ConfigError::at(&raw.place, why));
    }
    if let Some(raw) = raw {
        return Ok(Some(Located { value: Schedule::OnCalendar(raw.value), place: raw.place }));
    }
    let Some(entry) = words else { return Ok(None) };
    let words = texts(&entry)?;
    let place = entry.node.place.clone();
    let rules = words.iter().map(|text| Schedule::parse(&text.value).map_err(|why| ConfigError::at(&text.place, why)));
    let rules = rules.collect::<Result<Vec<_>, _>>()?;
    let value = Schedule::all(rules).ok_or_else(|| ConfigError::at(&place, "this schedule is empty"))?;
    Ok(Some(Located { value, place }))
}

fn hooks(entry: Entry, above: &str) -> Result<Hooks, ConfigError> {
    let Value::Table(table) = entry.node.value else {
        return Err(ConfigError::at(&entry.node.place, "hooks must be a table with before, after, failed or finally"));
    };
    let mut hooks = Hooks::default();
    for entry in table.entries {
        let Some(list) = hooks.of_mut(&entry.key) else {
            let near = did_you_mean(&entry.key, ["before", "after", "failed", "finally"]);
            let why = format!("[{above}.hooks] has no \"{}\"{near}", entry.key);
            return Err(ConfigError::at(&entry.place, why));
        };
        *list = match entry.node.value {
            Value::List(nodes) => nodes.into_iter().map(hook).collect::<Result<_, _>>()?,
            value => vec![hook(Node { place: entry.node.place, value })?],
        };
        hooks.named.push(entry.key);
    }
    Ok(hooks)
}

fn hook(node: Node) -> Result<Hook, ConfigError> {
    let place = node.place;
    let wrong = || ConfigError::at(&place, "a hook is a command for sh, or a table with run, timeout and on-error");
    let mut table = match node.value {
        Value::Text(line) => {
            return Ok(Hook { program: Program::Shell(line), timeout: HOOK_TIMEOUT, on_error: OnError::Stop });
        }
        Value::Table(table) => table,
        _ => return Err(wrong()),
    };
    let run = table.take("run").ok_or_else(wrong)?;
    let program = match &run.node.value {
        Value::Text(line) => Program::Shell(line.clone()),
        _ => Program::Direct(texts(&run)?.into_iter().map(|word| word.value).collect()),
    };
    if matches!(&program, Program::Direct(words) if words.is_empty()) {
        return Err(ConfigError::at(&run.place, "run names no program"));
    }
    let text = |entry: &Entry| match &entry.node.value {
        Value::Text(text) => Ok(text.clone()),
        _ => Err(ConfigError::at(&entry.node.place, format!("{} must be a string", entry.key))),
    };
    let timeout = match table.take("timeout") {
        Some(entry) => parse_duration(&text(&entry)?).map_err(|why| ConfigError::at(&entry.node.place, why))?,
        None => HOOK_TIMEOUT,
    };
    let on_error = match table.take("on-error") {
        Some(entry) => match text(&entry)?.as_str() {
            "stop" => OnError::Stop,
            "warn" => OnError::Warn,
            "ignore" => OnError::Ignore,
            _ => return Err(ConfigError::at(&entry.node.place, "on-error is stop, warn or ignore")),
        },
        None => OnError::Stop,
    };
    match table.entries.first() {
        Some(other) => {
            let near = did_you_mean(&other.key, ["run", "timeout", "on-error"]);
            Err(ConfigError::at(&other.place, format!("a hook has no \"{}\"{near}", other.key)))
        }
        None => Ok(Hook { program, timeout, on_error }),
    }
}

fn notify(mut section: Section<'_>, name: &str) -> Result<Notify, ConfigError> {
    let place = section.place.clone();
    let kind = section.text("kind")?;
    let kind = match kind.as_ref().map(|kind| kind.value.as_str()) {
        Some("healthchecks") => NotifyKind::Healthchecks,
        Some("ntfy") => NotifyKind::Ntfy,
        Some("webhook") => NotifyKind::Webhook,
        Some("command") => NotifyKind::Command,
        _ => {
            let place = kind.map_or(place, |kind| kind.place);
            return Err(ConfigError::at(&place, "kind is healthchecks, ntfy, webhook or command"));
        }
    };
    if let Some(url) = section.table.take("url") {
        let why = "an address is a secret; write it into a file and name it with url-file";
        return Err(ConfigError::at(&url.place, why));
    }
    let url_file = section.path("url-file")?;
    let run = section.table.take("run").map(|run| match run.node.value {
        // A list is one program here.
        Value::List(_) => {
            let entries = vec![Entry { key: "run".to_owned(), place: run.place.clone(), node: run.node.clone() }];
            hook(Node { place: run.node.place, value: Value::Table(Table { entries }) })
        }
        value => hook(Node { place: run.node.place, value }),
    });
    let run = run.transpose()?;
    let is_whole = match kind {
        NotifyKind::Command => run.is_some() && url_file.is_none(),
        _ => run.is_none() && url_file.is_some(),
    };
    if !is_whole {
        let needs = if kind == NotifyKind::Command { "run, and no url-file" } else { "url-file, and no run" };
        return Err(ConfigError::at(&place, format!("[notify.{name}] needs {needs}")));
    }
    let events = section.texts("on")?;
    let on = events.iter().map(|text| {
        let event = Event::ALL.into_iter().find(|event| event.name() == text.value);
        let names = Event::ALL.map(Event::name);
        let near = did_you_mean(&text.value, names);
        event.ok_or_else(|| ConfigError::at(&text.place, format!("there is no event \"{}\"{near}", text.value)))
    });
    let mut on = on.collect::<Result<Vec<_>, _>>()?;
    if on.is_empty() {
        on = match kind {
            NotifyKind::Healthchecks => vec![Event::Start, Event::Success, Event::Warning, Event::Failure],
            _ => vec![Event::Failure, Event::Recovery],
        };
    }
    let timeout = section.duration("timeout")?;
    if let (Some(_), Some(_)) = (timeout, &run) {
        let why = format!("[notify.{name}] has a program; write run = {{ run = \"…\", timeout = \"…\" }}");
        return Err(ConfigError::at(&place, why));
    }
    section.end(&["kind", "url-file", "run", "on", "timeout"])?;
    let timeout = timeout.unwrap_or(NOTIFY_TIMEOUT);
    Ok(Notify { name: name.to_owned(), place, kind, url_file, run, on, timeout })
}

/// A string or a list of strings.
pub(super) fn texts(entry: &Entry) -> Result<Vec<Located<String>>, ConfigError> {
    let wrong = |place: &Place| ConfigError::at(place, format!("{} must be a list of strings", entry.key));
    let text = |node: &Node| match &node.value {
        Value::Text(text) => Ok(Located { value: text.clone(), place: node.place.clone() }),
        _ => Err(wrong(&node.place)),
    };
    match &entry.node.value {
        Value::List(nodes) => nodes.iter().map(text).collect(),
        _ => Ok(vec![text(&entry.node)?]),
    }
}

/// One table.
struct Section<'a> {
    /// Its name, for messages.
    name: String,
    place: Place,
    table: Table,
    variables: &'a Variables<'a>,
}

impl<'a> Section<'a> {
    fn of(entry: Entry, name: String, variables: &'a Variables<'a>) -> Result<Self, ConfigError> {
        let Value::Table(table) = entry.node.value else {
            return Err(ConfigError::at(&entry.node.place, format!("write [{name}] and its settings below it")));
        };
        Ok(Self { name, place: entry.place, table, variables })
    }

    fn text(&mut self, key: &str) -> Result<Option<Located<String>>, ConfigError> {
        let Some(entry) = self.table.take(key) else { return Ok(None) };
        let place = entry.node.place;
        match entry.node.value {
            Value::Text(text) => Ok(Some(Located { value: self.variables.expand(&place, &text)?, place })),
            _ => Err(ConfigError::at(&place, format!("{key} must be a string"))),
        }
    }

    fn texts(&mut self, key: &str) -> Result<Vec<Located<String>>, ConfigError> {
        let Some(entry) = self.table.take(key) else { return Ok(Vec::new()) };
        let expand = |text: Located<String>| {
            Ok(Located { value: self.variables.expand(&text.place, &text.value)?, place: text.place })
        };
        texts(&entry)?.into_iter().map(expand).collect()
    }

    /// A path. Relative ones would depend on the folder of the process.
    fn path(&mut self, key: &str) -> Result<Option<Located<PathBuf>>, ConfigError> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        let path = PathBuf::from(&text.value);
        if !path.is_absolute() {
            return Err(ConfigError::at(&text.place, format!("{key} must be an absolute path")));
        }
        Ok(Some(Located { value: path, place: text.place }))
    }

    fn boolean(&mut self, key: &str) -> Result<Option<bool>, ConfigError> {
        let Some(entry) = self.table.take(key) else { return Ok(None) };
        match entry.node.value {
            Value::Boolean(value) => Ok(Some(value)),
            _ => Err(ConfigError::at(&entry.node.place, format!("{key} must be true or false"))),
        }
    }

    fn duration(&mut self, key: &str) -> Result<Option<Duration>, ConfigError> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        parse_duration(&text.value).map(Some).map_err(|why| ConfigError::at(&text.place, why))
    }

    /// Names of the tables below.
    fn tables(&self) -> impl Iterator<Item = &str> {
        let tables = self.table.entries.iter().filter(|entry| matches!(entry.node.value, Value::Table(_)));
        tables.map(|entry| entry.key.as_str())
    }

    /// Takes an entry out of a table below.
    fn below(&mut self, table: &str, key: &str) -> Result<Option<Entry>, ConfigError> {
        let entry = self.table.entries.iter_mut().find(|entry| entry.key == table);
        let Some(Entry { node: Node { value: Value::Table(table), .. }, .. }) = entry else { return Ok(None) };
        Ok(table.take(key))
    }

    /// Nothing else may be here.
    fn end(&self, known: &[&str]) -> Result<(), ConfigError> {
        let Some(entry) = self.table.entries.first() else { return Ok(()) };
        refuse_password(entry)?;
        let near = did_you_mean(&entry.key, known.iter().copied());
        Err(ConfigError::at(&entry.place, format!("[{}] has no \"{}\"{near}", self.name, entry.key)))
    }

    /// All that is left: options, and tables of verbs. `known` are the keys with another meaning.
    fn options(self, known: &[&str]) -> Result<Options, ConfigError> {
        let mut options = Options::default();
        for mut entry in self.table.entries {
            refuse_password(&entry)?;
            if PLACE_OPTIONS.contains(&entry.key.as_str()) {
                let near = did_you_mean(&entry.key, known.iter().copied());
                let why = format!("{} has no place in this file{near}", entry.key);
                return Err(ConfigError::at(&entry.place, why));
            }
            match entry.node.value {
                Value::Table(table) => {
                    let verb = vec![entry.key.clone()];
                    let name = format!("{}.{}", self.name, entry.key);
                    verb_options(table, verb, name, &entry.place, self.variables, &mut options.verbs)?;
                }
                _ => {
                    expand_entry(&mut entry, self.variables)?;
                    options.general.push(entry);
                }
            }
        }
        Ok(options)
    }
}

fn verb_options(
    table: Table,
    verb: Vec<String>,
    name: String,
    place: &Place,
    variables: &Variables<'_>,
    found: &mut Vec<VerbOptions>,
) -> Result<(), ConfigError> {
    let mut entries = Vec::new();
    for mut entry in table.entries {
        refuse_password(&entry)?;
        if PLACE_OPTIONS.contains(&entry.key.as_str()) {
            return Err(ConfigError::at(&entry.place, format!("{} has no place in this file", entry.key)));
        }
        match entry.node.value {
            Value::Table(table) => {
                let below = [verb.clone(), vec![entry.key.clone()]].concat();
                verb_options(table, below, format!("{name}.{}", entry.key), &entry.place, variables, found)?;
            }
            _ => {
                expand_entry(&mut entry, variables)?;
                entries.push(entry);
            }
        }
    }
    found.push(VerbOptions { verb, table: name, place: place.clone(), entries });
    Ok(())
}

/// A command of the shell has variables of its own.
fn expand_entry(entry: &mut Entry, variables: &Variables<'_>) -> Result<(), ConfigError> {
    if entry.key.ends_with("-command") {
        Ok(())
    } else {
        expand_all(&mut entry.node.value, &entry.node.place, variables)
    }
}

fn refuse_password(entry: &Entry) -> Result<(), ConfigError> {
    match entry.key.as_str() {
        "password" | "new-password" => Err(ConfigError::at(
            &entry.place,
            "passwords may not stand in this file; use password-file or password-command",
        )),
        _ => Ok(()),
    }
}
