//! The last and the next run of each profile.

use std::time::Duration;

use jiff::tz::TimeZone;
use larder_job::{Clock, SystemClock};
use larder_profile::calendar::Schedule;
use larder_profile::config::{Config, Profile};
use larder_profile::duration;
use larder_profile::journal::{Journal, Line, RUN};
use serde_json::json;

use super::{State, cron, starter, systemd};
use crate::app::App;
use crate::args::{ShowScheduleArgs, StarterName, WhereArgs};
use crate::commands::{config, run};
use crate::configured;
use crate::environment;
use crate::exit::TABLE;
use crate::failure::Failure;
use crate::output::{Align, Table};
use crate::time;

/// Whether only systemd knows the times of a profile.
pub(super) fn is_raw(profile: &Profile) -> bool {
    profile.schedule.as_ref().is_some_and(|schedule| matches!(schedule.value, Schedule::OnCalendar(_)))
}

pub(super) fn show(app: &App, args: &ShowScheduleArgs) -> Result<(), Failure> {
    let config = config::of(app)?;
    let profiles: Vec<&Profile> = match &*args.profiles {
        [] => config.profiles.iter().collect(),
        names => names.iter().map(|name| configured::profile(config, name)).collect::<Result<_, _>>()?,
    };
    let lines = match environment::run_dir(&app.global) {
        Some(folder) => run::read(&Journal::new(&folder))?,
        None => Vec::new(),
    };
    let (now_ms, zone) = (SystemClock.now_ms(), TimeZone::system());
    let columns = [
        ("Profile", Align::Left),
        ("Next run", Align::Left),
        ("Last run", Align::Left),
        ("Last success", Align::Left),
        ("Time", Align::Right),
        ("Result", Align::Cut),
    ];
    let mut table = Table::new(&columns);
    for profile in profiles {
        let mut of_profile =
            lines.iter().filter(|line| line.command == RUN && line.profile.as_ref() == Some(&profile.name));
        // The order of the lines and not their times: a clock may have been wrong.
        let last = of_profile.clone().next_back();
        let success = of_profile.rfind(|line| line.is_success());
        if let Some(line) = last.filter(|line| line.start_ms > now_ms) {
            let (name, time) = (&profile.name, time::show(line.start_ms));
            app.out
                .warn(&format!("the last run of {name} is noted at {time}, which is in the future: a clock was wrong"));
        }
        // What ended has ended.
        let past = |time_ms: u64| time_ms.min(now_ms);
        let next = profile.schedule.as_ref().and_then(|schedule| schedule.value.next(now_ms, &zone));
        let installed = match &profile.schedule {
            Some(_) => state(app, config, profile, &args.place)?,
            None => None,
        };
        if installed == Some(State::Differs) {
            let name = &profile.name;
            app.out.warn(&format!(
                "what is installed for {name} differs from the configuration: run `larder schedule install`"
            ));
        }
        if app.out.is_json() {
            let installed = installed.map(|state| match state {
                State::Missing => "no",
                State::Current => "yes",
                State::Differs => "differs",
            });
            app.out.json(&json!({
                "message_type": "schedule_state",
                "installed": installed,
                "profile": profile.name,
                "schedule": profile.schedule.as_ref().map(|schedule| schedule.value.systemd()),
                "next_run": next.map(time::rfc3339),
                "random_delay_seconds": profile.random_delay.map(|delay| delay.as_secs()),
                "last_run": last.map(|line| time::rfc3339(past(line.start_ms))),
                "last_success": success.map(|line| time::rfc3339(past(line.end_ms()))),
                "exit_code": last.map(|line| line.exit_code),
                "seconds": last.map(|line| line.seconds),
            }))?;
            continue;
        }
        let next = match (next, &profile.schedule) {
            (Some(next), _) => match profile.random_delay {
                Some(delay) => format!("{} (+{})", time::show(next), duration::show(delay)),
                None => time::show(next),
            },
            (None, Some(_)) => "systemd knows".to_owned(),
            (None, None) => "no schedule".to_owned(),
        };
        let next = if installed == Some(State::Missing) { format!("{next}, not installed") } else { next };
        let taken = |line: &Line| time::show_duration(Duration::try_from_secs_f64(line.seconds).unwrap_or_default());
        table.row(vec![
            profile.name.clone(),
            next,
            last.map_or_else(|| "never".to_owned(), |line| time::show(past(line.start_ms))),
            success.map_or_else(|| "never".to_owned(), |line| time::show(past(line.end_ms()))),
            last.map(taken).unwrap_or_default(),
            last.map(result).unwrap_or_default(),
        ]);
    }
    if app.out.is_json() { Ok(()) } else { app.out.table(table) }
}

/// What is installed for a profile; `None` if it cannot be known.
fn state(app: &App, config: &Config, profile: &Profile, place: &WhereArgs) -> Result<Option<State>, Failure> {
    match starter(place) {
        StarterName::Systemd => systemd::state(app, config, profile, place).map(Some),
        // Only systemd runs these.
        StarterName::Cron if is_raw(profile) => Ok(None),
        StarterName::Cron => cron::state(config, place).map(Some),
    }
}

/// How a run ended, in few words.
fn result(line: &Line) -> String {
    match TABLE.iter().find(|(exit, _)| exit.code() == line.exit_code) {
        Some((exit, _)) => run::words(*exit),
        None => format!("code {}", line.exit_code),
    }
}
