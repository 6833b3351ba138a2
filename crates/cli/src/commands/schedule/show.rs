//! The last and the next run of each profile.

use std::time::Duration;

use jiff::tz::TimeZone;
use larder_job::{Clock, SystemClock};
use larder_profile::calendar::Schedule;
use larder_profile::config::Profile;
use larder_profile::duration;
use larder_profile::journal::{Journal, Line, RUN};
use serde_json::json;

use crate::app::App;
use crate::args::ShowScheduleArgs;
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
        let of_profile =
            lines.iter().filter(|line| line.command == RUN && line.profile.as_ref() == Some(&profile.name));
        let last = of_profile.clone().max_by_key(|line| line.start_ms);
        let success = of_profile.filter(|line| line.is_success()).max_by_key(|line| line.start_ms);
        let next = profile.schedule.as_ref().and_then(|schedule| schedule.value.next(now_ms, &zone));
        if app.out.is_json() {
            app.out.json(&json!({
                "message_type": "schedule_state",
                "profile": profile.name,
                "schedule": profile.schedule.as_ref().map(|schedule| schedule.value.systemd()),
                "next_run": next.map(time::rfc3339),
                "random_delay_seconds": profile.random_delay.map(|delay| delay.as_secs()),
                "last_run": last.map(|line| time::rfc3339(line.start_ms)),
                "last_success": success.map(|line| time::rfc3339(line.end_ms())),
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
        let taken = |line: &Line| time::show_duration(Duration::try_from_secs_f64(line.seconds).unwrap_or_default());
        table.row(vec![
            profile.name.clone(),
            next,
            last.map_or_else(|| "never".to_owned(), |line| time::show(line.start_ms)),
            success.map_or_else(|| "never".to_owned(), |line| time::show(line.end_ms())),
            last.map(taken).unwrap_or_default(),
            last.map(result).unwrap_or_default(),
        ]);
    }
    if app.out.is_json() { Ok(()) } else { app.out.table(table) }
}

/// How a run ended, in few words.
fn result(line: &Line) -> String {
    match TABLE.iter().find(|(exit, _)| exit.code() == line.exit_code) {
        Some((exit, _)) => run::words(*exit),
        None => format!("code {}", line.exit_code),
    }
}
