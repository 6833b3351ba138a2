//! `larder config`: checks and shows the configuration file.

mod as_run;

use std::ffi::OsString;
use std::sync::Arc;

use larder_profile::config::{Config, Profile, Repository};
use larder_profile::duration;
use serde_json::{Value, json};

use crate::app::App;
use crate::args::{ConfigArgs, ConfigCommand, ShowConfigArgs};
use crate::configured::{
    self, Chosen, Definitions, Shape, chosen, layer_of_copy, layers, no_file, schema::schema, shape,
};
use crate::configured::{address_file, environment_file};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::sizes;

pub(super) use as_run::{is_template, mistakes, no_repository};

pub(super) fn run(app: &App, args: &ConfigArgs) -> Result<Exit, Failure> {
    let definitions = Definitions::new();
    match &args.command {
        ConfigCommand::Check => check(app, &definitions),
        ConfigCommand::Show(args) => show(app, &definitions, args),
        ConfigCommand::Schema => {
            let text = serde_json::to_string_pretty(&schema(&definitions));
            app.out.line(text.map_err(|error| Failure::of(Exit::Failed, &error))?)?;
            Ok(Exit::Done)
        }
    }
}

/// The configuration, which this verb needs.
pub(super) fn of(app: &App) -> Result<&Arc<Config>, Failure> {
    app.configured.config.as_ref().ok_or_else(|| no_file("there is no configuration file"))
}

fn check(app: &App, definitions: &Definitions) -> Result<Exit, Failure> {
    let config = of(app)?;
    let mistakes = mistakes(definitions, config);
    warn_of_files(app, config);
    let Some((last, others)) = mistakes.split_last() else {
        if app.out.is_json() {
            let files: Vec<_> = config.files.iter().map(|file| file.display().to_string()).collect();
            app.out
                .json(&json!({ "message_type": "config_check", "files": files, "profiles": config.profiles.len(),
                "repositories": config.repositories.len() }))?;
        }
        let profiles = sizes::count(config.profiles.len() as u64, "profile");
        let repositories = config.repositories.len();
        let repositories =
            if repositories == 1 { "1 repository".to_owned() } else { format!("{repositories} repositories") };
        for file in &config.files {
            app.out.info(format!("read {}", file.display()))?;
        }
        app.out.info(format!("{profiles} and {repositories}; no mistake was found"))?;
        return Ok(Exit::Done);
    };
    for mistake in others {
        app.out.item_error("", "config", mistake);
    }
    Err(Failure::usage(last))
}

/// Files that are read when they are needed. They are no mistakes of the configuration: a message
/// that cannot be sent prevents no backup.
fn warn_of_files(app: &App, config: &Config) {
    let addresses = config.notify.iter().filter_map(|notify| {
        let failure = address_file::read(&notify.url_file.as_ref()?.value).err()?;
        Some(format!("{}: the notification {} cannot be sent: {}", notify.place, notify.name, failure.message))
    });
    let variables = config.repositories.iter().filter_map(|repository| {
        let failure = environment_file::read(&repository.environment_file.as_ref()?.value).err()?;
        Some(format!("{}: {}", repository.place, failure.message))
    });
    addresses.chain(variables).for_each(|warning| app.out.warn(&warning));
}

fn show(app: &App, definitions: &Definitions, args: &ShowConfigArgs) -> Result<Exit, Failure> {
    let config = of(app)?;
    let profiles: Vec<&Profile> = match &*args.profiles {
        [] => config.profiles.iter().collect(),
        names => names.iter().map(|name| configured::profile(config, name)).collect::<Result<_, _>>()?,
    };
    let mut lines = Vec::new();
    for repository in config.repositories.iter().filter(|_| args.profiles.is_empty()) {
        of_repository(definitions, config, repository, &mut lines)?;
    }
    for profile in profiles {
        of_profile(definitions, config, profile, &mut lines)?;
    }
    let mut table = "";
    for line in &lines {
        if app.out.is_json() {
            app.out.json(&line.json())?;
            continue;
        }
        if table != line.table {
            app.out.line(format!("{}[{}]", if table.is_empty() { "" } else { "\n" }, line.table))?;
            table = &line.table;
        }
        app.out.line(format!("{} = {}  # from {}", line.key, line.value, line.from.join(", ")))?;
    }
    Ok(Exit::Done)
}

/// One option.
struct Shown {
    table: String,
    key: String,
    value: Value,
    from: Vec<String>,
}

impl Shown {
    fn of(table: String, chosen: &Chosen<'_>) -> Self {
        let value = |argument: &OsString| {
            let text = argument.to_string_lossy();
            text.split_once('=').map(|(_, value)| value.to_owned())
        };
        let values: Vec<_> = chosen.arguments.iter().filter_map(value).collect();
        let value = match (shape(chosen.arg), values.as_slice()) {
            (Shape::List, values) => json!(values),
            (Shape::Single, [value, ..]) => json!(value),
            (Shape::Count, _) => json!(chosen.arguments.len()),
            _ => json!(!chosen.arguments.is_empty()),
        };
        let from = chosen.places.iter().map(ToString::to_string).collect();
        Self { table, key: chosen.arg.get_long().unwrap_or_default().to_owned(), value, from }
    }

    fn json(&self) -> Value {
        let Self { table, key, value, from } = self;
        json!({ "message_type": "config_option", "table": table, "key": key, "value": value, "from": from })
    }
}

fn of_repository(
    definitions: &Definitions,
    config: &Config,
    repository: &Repository,
    lines: &mut Vec<Shown>,
) -> Result<(), Failure> {
    let table = format!("repositories.{}", repository.name);
    let mut put = |table: &str, key: &str, value: Value, from: String| {
        lines.push(Shown { table: table.to_owned(), key: key.to_owned(), value, from: vec![from] });
    };
    put(&table, "location", json!(repository.location.value), repository.location.place.to_string());
    if let Some(credential) = &repository.credential {
        put(&table, "credential", json!(credential.value), credential.place.to_string());
    }
    if let Some(file) = &repository.environment_file {
        put(&table, "environment-file", json!(file.value.display().to_string()), file.place.to_string());
    }
    for (verb, every) in &repository.every {
        let place = repository.options.verbs.iter().find(|it| it.verb == [verb.clone()]).map(|it| &it.place);
        let place = place.unwrap_or(&repository.place).to_string();
        put(&format!("{table}.{verb}"), "every", json!(duration::show(*every)), place);
    }
    for copy in &repository.copies {
        let table = format!("{table}.copy-from.{}", copy.from.value);
        let place = copy.from.place.to_string();
        lines.push(Shown {
            table: table.clone(),
            key: "every".to_owned(),
            value: json!(duration::show(copy.every)),
            from: vec![place],
        });
        let chosen = chosen(definitions, &[layer_of_copy(copy)], &["copy".to_owned()]);
        let chosen = chosen.map_err(|error| Failure::usage(error.to_string()))?;
        lines.extend(chosen.iter().map(|chosen| Shown::of(table.clone(), chosen)));
    }
    of_verbs(definitions, config, (None, Some(repository)), &table, lines)
}

fn of_profile(
    definitions: &Definitions,
    config: &Config,
    profile: &Profile,
    lines: &mut Vec<Shown>,
) -> Result<(), Failure> {
    let table = format!("profiles.{}", profile.name);
    for (key, values) in [("sources", &profile.sources), ("repositories", &profile.repositories)] {
        if let Some(first) = values.first() {
            let value: Vec<_> = values.iter().map(|value| &value.value).collect();
            let from = vec![first.place.to_string()];
            lines.push(Shown { table: table.clone(), key: key.to_owned(), value: json!(value), from });
        }
    }
    if let Some(schedule) = &profile.schedule {
        let (value, from) = (json!(schedule.value.systemd()), vec![schedule.place.to_string()]);
        lines.push(Shown { table: table.clone(), key: "oncalendar".to_owned(), value, from });
    }
    let of_one = match &*profile.repositories {
        [one] => config.repository(&one.value),
        _ => None,
    };
    of_verbs(definitions, config, (Some(profile), of_one), &table, lines)
}

/// Options of all verbs that a table has a say in: first those of every verb.
fn of_verbs(
    definitions: &Definitions,
    config: &Config,
    (profile, repository): (Option<&Profile>, Option<&Repository>),
    table: &str,
    lines: &mut Vec<Shown>,
) -> Result<(), Failure> {
    let layers = layers(config, profile, repository);
    let all: Vec<String> = Vec::new();
    let mut seen: Vec<OsString> = Vec::new();
    for verb in [all].into_iter().chain(definitions.verbs()) {
        let chosen = chosen(definitions, &layers, &verb).map_err(|error| Failure::usage(error.to_string()))?;
        for chosen in chosen {
            // Options of every verb are shown once, unless the verb has another value.
            let known = chosen.arguments.iter().all(|argument| seen.contains(argument));
            if chosen.arg.is_global_set() && known {
                continue;
            }
            if verb.is_empty() {
                seen.extend(chosen.arguments.iter().cloned());
            }
            let table = verb.iter().fold(table.to_owned(), |table, verb| format!("{table}.{verb}"));
            lines.push(Shown::of(table, &chosen));
        }
    }
    Ok(())
}
