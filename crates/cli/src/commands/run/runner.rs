//! The state of a run: what it is about, and how its steps ended.

use std::collections::BTreeMap;
use std::sync::Arc;

use larder_profile::config::{Config, CopyFrom, Profile, Repository};
use larder_profile::journal::{Journal, Line};
use serde_json::{Map, Value, json};

use super::kept;
use crate::app::App;
use crate::configured::{Definitions, Secret};
use crate::exit::Exit;

/// Opened repositories, and those that cannot be.
#[derive(Default)]
pub(super) struct Opened {
    /// The typed passwords, by credential.
    secrets: BTreeMap<String, Secret>,
    /// Why a repository cannot be opened.
    pub(super) failed: BTreeMap<String, Exit>,
}

impl Opened {
    /// The place of the typed password of a repository. Repositories without a credential share
    /// one.
    pub(super) fn secret(&mut self, repository: &Repository) -> Secret {
        let name = repository.credential.as_ref().map_or("", |name| name.value.as_str());
        self.secrets.entry(name.to_owned()).or_default().clone()
    }

    /// The exit code of a repository that cannot be opened.
    pub(super) fn failure(&self, repository: &Repository) -> Option<Exit> {
        self.failed.get(&repository.name).copied()
    }
}

/// A step: a verb on a repository.
#[derive(Clone, Copy)]
pub(super) struct Step<'s> {
    /// The profile; maintenance has none.
    pub(super) profile: Option<&'s Profile>,
    pub(super) repository: &'s Repository,
    pub(super) command: &'static str,
    /// Of `copy`: the other repository.
    pub(super) copy: Option<&'s CopyFrom>,
}

impl Step<'_> {
    /// Its name, for people.
    pub(super) fn shown(&self) -> String {
        shown(self.command, self.copy.map(|copy| copy.from.value.as_str()))
    }
}

/// A verb, and the repository that it copies from.
pub(super) fn shown(command: &str, from: Option<&str>) -> String {
    from.map_or_else(|| command.to_owned(), |from| format!("{command} from {from}"))
}

/// The end of a step.
#[derive(Debug, Clone)]
pub(super) struct StepEnd {
    pub(super) profile: Option<String>,
    /// The repository; a hook of a profile has none.
    pub(super) repository: Option<String>,
    pub(super) command: &'static str,
    /// The repository that snapshots were copied from.
    pub(super) from: Option<String>,
    pub(super) start_ms: u64,
    pub(super) seconds: f64,
    pub(super) exit: Exit,
    pub(super) snapshot_id: Option<String>,
    pub(super) error: Option<String>,
    pub(super) summary: Option<Value>,
}

/// Runs profiles.
pub(super) struct Runner<'a> {
    pub(super) app: &'a App,
    pub(super) config: &'a Arc<Config>,
    pub(super) definitions: &'a Definitions,
    pub(super) dry_run: bool,
    /// Whether repositories are counted at the end, for metrics.
    pub(super) counts: bool,
    pub(super) journal: &'a Journal,
    /// The journal at the beginning.
    pub(super) before: &'a [Line],
    pub(super) opened: Opened,
    pub(super) ends: Vec<StepEnd>,
}

impl<'a> Runner<'a> {
    pub(super) fn new(
        app: &'a App,
        config: &'a Arc<Config>,
        definitions: &'a Definitions,
        dry_run: bool,
        journal: &'a Journal,
        before: &'a [Line],
    ) -> Self {
        Self {
            app,
            config,
            definitions,
            dry_run,
            counts: false,
            journal,
            before,
            opened: Opened::default(),
            ends: Vec::new(),
        }
    }

    /// The keys of the JSON of a step.
    pub(super) fn labels(
        &self,
        profile: Option<&Profile>,
        repository: Option<&Repository>,
        command: &str,
    ) -> Map<String, Value> {
        let mut labels = Map::new();
        labels.insert("profile".to_owned(), json!(profile.map(|profile| &profile.name)));
        labels.insert("repository".to_owned(), json!(repository.map(|repository| &repository.name)));
        labels.insert("step".to_owned(), json!(command));
        labels
    }
}

impl StepEnd {
    /// Its line in the journal.
    pub(super) fn line(&self) -> Line {
        Line {
            start_ms: self.start_ms,
            seconds: self.seconds,
            profile: self.profile.clone(),
            repository: self.repository.clone(),
            command: self.command.to_owned(),
            from: self.from.clone(),
            exit_code: self.exit.code(),
            snapshot_id: self.snapshot_id.clone(),
            numbers: self.summary.as_ref().map(kept::numbers).unwrap_or_default(),
        }
    }
}
