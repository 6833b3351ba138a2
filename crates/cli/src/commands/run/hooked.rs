//! Hooks around a profile and around its verbs.

use larder_profile::config::Hooks;
use larder_profile::duration;
use larder_profile::hooks::{Hook, HookError, OnError, run};
use serde_json::Value;

use super::runner::{Runner, StepEnd};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::json_line;

/// What hooks are told, in variables and on standard input.
#[derive(Debug, Clone, Default)]
pub(super) struct Told {
    pub(super) profile: String,
    pub(super) repository: Option<String>,
    pub(super) command: String,
    /// The result so far; none before the beginning.
    pub(super) exit: Option<Exit>,
    pub(super) snapshot_id: Option<String>,
    pub(super) error: Option<String>,
    pub(super) summary: Option<Value>,
}

impl Told {
    /// The same after a step.
    pub(super) fn after(self, end: &StepEnd) -> Self {
        Self {
            exit: Some(end.exit),
            snapshot_id: end.snapshot_id.clone(),
            error: end.error.clone(),
            summary: end.summary.clone(),
            ..self
        }
    }

    fn variables(&self, event: &str) -> Vec<(&'static str, String)> {
        let mut variables = vec![
            ("LARDER_PROFILE", self.profile.clone()),
            ("LARDER_COMMAND", self.command.clone()),
            ("LARDER_EVENT", event.to_owned()),
        ];
        variables.extend(self.repository.clone().map(|name| ("LARDER_REPOSITORY", name)));
        variables.extend(self.exit.map(|exit| ("LARDER_EXIT_CODE", exit.code().to_string())));
        variables.extend(self.snapshot_id.clone().map(|id| ("LARDER_SNAPSHOT", id)));
        variables.extend(self.error.clone().map(|error| ("LARDER_ERROR", error)));
        variables
    }
}

impl Runner<'_> {
    /// Runs the hooks before something. A failure says that it must not begin.
    pub(super) fn before(&self, hooks: &Hooks, told: &Told) -> Result<(), Failure> {
        hooks.before.iter().try_for_each(|hook| self.hook(hook, "before", told))
    }

    /// Runs the hooks after something. The result is a failure if one of them failed.
    pub(super) fn afterwards(&self, hooks: &Hooks, told: &Told) -> Result<(), Failure> {
        let is_success = told.exit.is_some_and(|exit| matches!(exit, Exit::Done | Exit::Partly));
        let (event, first) = if is_success { ("after", &hooks.after) } else { ("failed", &hooks.failed) };
        let first = first.iter().map(|hook| (event, hook));
        let all = first.chain(hooks.finally.iter().map(|hook| ("finally", hook)));
        // Each of them runs, whatever became of the others.
        let results: Vec<_> = all.map(|(event, hook)| self.hook(hook, event, told)).collect();
        results.into_iter().collect()
    }

    /// Runs one program. A failure counts as its hook says.
    pub(super) fn hook(&self, hook: &Hook, event: &str, told: &Told) -> Result<(), Failure> {
        if self.dry_run {
            return Ok(());
        }
        let summary = told.summary.as_ref().map_or_else(Vec::new, |summary| json_line(summary).into_bytes());
        // After an interruption, hooks that clean up still run.
        let is_cancelled = || event == "before" && self.app.interrupts.is_cancelled();
        let ended = run(hook, &told.variables(event), &summary, &is_cancelled);
        let name = hook.program.name();
        let shown = format!("profile {}: the {event} hook \"{name}\"", told.profile);
        if ended.result.is_err() || self.app.out.verbose() > 0 {
            let lines = ended.output.lines().map(|line| format!("{name}: {}", crate::text::safe(line)));
            lines.for_each(|line| self.app.out.remark(&line));
        }
        let Err(error) = ended.result else { return Ok(()) };
        let why = match error {
            HookError::NotStarted(why) => format!("{shown} cannot be started: {why}"),
            HookError::Code(code) => format!("{shown} ended with code {code}"),
            HookError::Signal(signal) => format!("{shown} was ended by signal {signal}"),
            HookError::TimedOut => {
                format!("{shown} did not end within {} and was stopped", duration::show(hook.timeout))
            }
            HookError::Interrupted => {
                return Err(Failure::new(Exit::Interrupted, format!("{shown} was interrupted")));
            }
        };
        match hook.on_error {
            OnError::Stop => Err(Failure::new(Exit::Failed, why)),
            OnError::Warn => {
                self.app.out.warn(&why);
                Ok(())
            }
            OnError::Ignore => Ok(()),
        }
    }
}
