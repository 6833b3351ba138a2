//! The steps of a run: one verb on one repository each, with the options of the file.

use std::ffi::OsString;
use std::time::Instant;

use larder_job::{Clock, SystemClock};
use larder_profile::config::{Event, Profile, Repository};
use larder_profile::journal::{Line, RUN};
use serde_json::Map;

use super::hooked::Told;
use super::notify;
use super::runner::{Runner, Step, StepEnd};
use crate::commands;
use crate::configured::{Wanted, chosen, copied_from, from_word, layers, repositories, step, with_copies};
use crate::exit::Exit;
use crate::failure::Failure;

impl<'a> Runner<'a> {
    /// Runs profiles, then the maintenance of their repositories. Hooks and messages come in any
    /// case, also when nobody reads the output any more: that ends the steps only.
    pub(super) fn run(&mut self, profiles: &[&Profile]) -> Result<Exit, Failure> {
        let started = Instant::now();
        let names: Vec<_> = profiles.iter().map(|profile| profile.name.as_str()).collect();
        let mut used: Vec<&Repository> = Vec::new();
        for repository in profiles.iter().flat_map(|profile| self.repositories(profile)) {
            if !used.iter().any(|known| known.name == repository.name) {
                used.push(repository);
            }
        }
        // Those that only get copies may be away until one is due, such as disks.
        if self.app.configured.repository.is_none() {
            let all = with_copies(self.config, &used);
            let due = all.into_iter().skip(used.len()).filter(|repository| self.has_due(repository, self.before));
            let due: Vec<_> = due.collect();
            used.extend(due);
        }
        let copying: Vec<_> = used.iter().copied().filter(|it| self.has_due_copy(it, self.before)).collect();
        let sources = copied_from(self.config, &copying).into_iter();
        let sources = sources.filter(|source| used.iter().all(|known| known.name != source.name));
        self.open_all(&used.iter().copied().chain(sources).collect::<Vec<_>>());
        if !profiles.is_empty() {
            self.notify(&[Event::Start], &names.join(", "), None, None);
        }
        // From now on a signal stops the run between and within steps.
        self.app.interrupts.job_begins();
        for profile in profiles {
            if !self.is_stopped() {
                self.profile(profile);
            }
        }
        for repository in &used {
            if !self.is_stopped() {
                self.maintain(repository);
            }
        }
        for repository in used {
            if !self.is_stopped() {
                self.count(repository);
            }
        }
        let exit = self.exit_of(0);
        if !profiles.is_empty() {
            let summary = self.json(0, started.elapsed(), exit);
            let events = notify::events(exit, notify::was_failure(self.before, &names));
            self.notify(&events, &names.join(", "), Some(&summary), Some(exit));
        }
        self.report(started.elapsed())
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.app.interrupts.is_cancelled()
    }

    /// The repositories of a profile; only the one that was named, if one was.
    fn repositories(&self, profile: &Profile) -> Vec<&'a Repository> {
        let named = self.app.configured.repository.as_ref();
        let all = repositories(self.config, profile).into_iter();
        all.filter(|repository| named.is_none_or(|named| repository.name == *named)).collect()
    }

    fn profile(&mut self, profile: &Profile) {
        let (start_ms, started, first) = (SystemClock.now_ms(), Instant::now(), self.ends.len());
        let told = Told { profile: profile.name.clone(), command: "run".to_owned(), ..Told::default() };
        match self.before(&profile.hooks, &told) {
            Err(failure) => self.note_failure(profile, None, "before", failure),
            Ok(()) => {
                for repository in self.repositories(profile) {
                    if self.is_stopped() {
                        break;
                    }
                    let is_saved = self.with_hooks(profile, repository, "backup");
                    if is_saved && !self.is_stopped() && self.has_policy(profile, repository) {
                        self.with_hooks(profile, repository, "forget");
                    }
                }
            }
        }
        let mut exit = self.exit_of(first);
        let summary = Some(self.json(first, started.elapsed(), exit));
        let error = self.ends[first..].iter().find_map(|end| end.error.clone());
        let told = Told { exit: Some(exit), summary, error, ..told };
        if let Err(failure) = self.afterwards(&profile.hooks, &told) {
            self.note_failure(profile, None, "hooks", failure);
            exit = self.exit_of(first);
        }
        if self.dry_run {
            return;
        }
        self.write_line(&Line {
            start_ms,
            seconds: started.elapsed().as_secs_f64(),
            profile: Some(profile.name.clone()),
            repository: None,
            command: RUN.to_owned(),
            from: None,
            exit_code: exit.code(),
            snapshot_id: None,
            numbers: Map::new(),
        });
    }

    /// Whether a policy says what to keep.
    fn has_policy(&self, profile: &Profile, repository: &Repository) -> bool {
        let layers = layers(self.config, Some(profile), Some(repository));
        let chosen = chosen(self.definitions, &layers, &["forget".to_owned()]);
        chosen.is_ok_and(|chosen| chosen.iter().any(|option| option.is_policy()))
    }

    /// Runs a verb of a profile between its hooks. Says whether it succeeded.
    fn with_hooks(&mut self, profile: &Profile, repository: &Repository, command: &'static str) -> bool {
        let none = larder_profile::config::Hooks::default();
        let hooks = profile.verb_hooks.get(command).unwrap_or(&none);
        let (profile_name, repository_name) = (profile.name.clone(), Some(repository.name.clone()));
        let told =
            Told { profile: profile_name, repository: repository_name, command: command.to_owned(), ..Told::default() };
        let first = self.ends.len();
        match self.before(hooks, &told) {
            Err(failure) => self.note_failure(profile, Some(repository), command, failure),
            Ok(()) => self.step(&Step { profile: Some(profile), repository, command, copy: None }),
        }
        let told = match self.ends.last() {
            Some(end) => told.after(end),
            None => told,
        };
        if let Err(failure) = self.afterwards(hooks, &told) {
            self.note_failure(profile, Some(repository), command, failure);
        }
        matches!(self.exit_of(first), Exit::Done | Exit::Partly)
    }

    /// Runs one verb, and notes its end.
    pub(super) fn step(&mut self, step: &Step<'_>) {
        let Step { profile, repository, command, copy } = *step;
        let labels = self.labels(profile, Some(repository), command);
        let (start_ms, started) = (SystemClock.now_ms(), Instant::now());
        let out = self.app.out.of_step(labels);
        let other = copy.and_then(|copy| self.config.repository(&copy.from.value));
        let mut both = [Some(repository), other].into_iter().flatten();
        let result = match both.find_map(|it| Some((&it.name, self.opened.failure(it)?))) {
            // It was reported already.
            Some((name, exit)) => Err(Failure::new(exit, format!("repository {name} could not be opened"))),
            None => {
                let on = format!("{} on {}", step.shown(), repository.name);
                let of = profile.map_or_else(String::new, |profile| format!("{}: ", profile.name));
                let told = self.app.out.info(format!("== {of}{on}"));
                let result = told.and_then(|()| self.verb(step, other, &out));
                let result = result.map_err(|failure| self.app.out.flush().err().unwrap_or(failure));
                result.inspect_err(|failure| out.failure(failure))
            }
        };
        let (exit, error) = match result {
            Ok(exit) => (exit, None),
            Err(failure) => (failure.exit, Some(failure.message)),
        };
        let summary = out.take_summary();
        let snapshot_id = summary.as_ref().and_then(|summary| Some(summary.get("snapshot_id")?.as_str()?.to_owned()));
        let end = StepEnd {
            profile: profile.map(|profile| profile.name.clone()),
            repository: Some(repository.name.clone()),
            command,
            from: copy.map(|copy| copy.from.value.clone()),
            start_ms,
            seconds: started.elapsed().as_secs_f64(),
            exit,
            snapshot_id,
            error,
            summary,
        };
        if !self.dry_run {
            self.write_line(&end.line());
        }
        self.ends.push(end);
    }

    fn verb(
        &mut self,
        step_of_run: &Step<'_>,
        other: Option<&Repository>,
        out: &crate::output::Output,
    ) -> Result<Exit, Failure> {
        let Step { profile, repository, command, copy } = *step_of_run;
        let mut more: Vec<OsString> = self.app.configured.typed.clone();
        if self.dry_run {
            more.push("--dry-run".into());
        }
        more.extend(copy.map(from_word));
        let wanted = Wanted { profile, repository: Some(repository), copy };
        let (cli, mut configured) = step(self.definitions, self.config, wanted, command, &more)?;
        configured.secret = self.opened.secret(repository);
        if let Some(other) = other {
            configured.secret_of_source = self.opened.secret(other);
            configured.typed.clone_from(&self.app.configured.typed);
        }
        let app = self.app.step(cli.global, configured, out.clone());
        let exit = commands::run(&app, cli.command)?;
        out.flush()?;
        Ok(app.final_exit(exit))
    }

    /// A failure that is not one of a verb.
    fn note_failure(
        &mut self,
        profile: &Profile,
        repository: Option<&Repository>,
        command: &'static str,
        failure: Failure,
    ) {
        self.app.out.of_step(self.labels(Some(profile), repository, command)).failure(&failure);
        self.ends.push(StepEnd {
            profile: Some(profile.name.clone()),
            repository: repository.map(|repository| repository.name.clone()),
            command,
            from: None,
            start_ms: SystemClock.now_ms(),
            seconds: 0.0,
            exit: failure.exit,
            snapshot_id: None,
            error: Some(failure.message),
            summary: None,
        });
    }

    /// A line that cannot be written stops no backup.
    pub(super) fn write_line(&self, line: &Line) {
        if let Err(error) = self.journal.add(std::slice::from_ref(line)) {
            self.app.out.warn(&format!("the journal of runs cannot be written: {error}"));
        }
    }
}
