//! Messages about runs: to services over HTTP, or to programs.
//!
//! A message that cannot be sent is a warning, and never changes the exit code. Addresses are
//! secrets: they are in files, and no message shows them.

use std::time::Duration;

use larder_job::{Clock, SystemClock};
use larder_profile::config::{Event, Notify, NotifyKind};
use larder_profile::duration;
use larder_profile::journal::{Line, RUN};
use larder_store::{Environment, Post, post};
use serde_json::Value;

use super::hooked::Told;
use super::runner::Runner;
use crate::configured::address_file;
use crate::exit::Exit;
use crate::output::json_line;

/// Bytes of a summary that services take.
const BODY_MAX: usize = 10_000;
/// Attempts.
const ATTEMPTS: u64 = 3;
/// The pause before the second attempt; the third one waits twice as long.
const PAUSE: Duration = Duration::from_secs(1);

/// The events of a run that ended.
pub(super) fn events(exit: Exit, was_failure: bool) -> Vec<Event> {
    let event = match exit {
        Exit::Done => Event::Success,
        Exit::Partly => Event::Warning,
        _ => Event::Failure,
    };
    let recovers = was_failure && event != Event::Failure;
    [event].into_iter().chain(recovers.then_some(Event::Recovery)).collect()
}

/// Whether the last run of one of the profiles failed.
pub(super) fn was_failure(before: &[Line], profiles: &[&str]) -> bool {
    profiles.iter().any(|profile| {
        let mut of_profile =
            before.iter().filter(|line| line.command == RUN && line.profile.as_deref() == Some(profile));
        // The order of the lines and not their times: a clock may have been wrong.
        of_profile.next_back().is_some_and(|line| !line.is_success())
    })
}

impl Runner<'_> {
    /// Tells everybody who wants to know of one of the events.
    pub(super) fn notify(&self, events: &[Event], profiles: &str, summary: Option<&Value>, exit: Option<Exit>) {
        if self.dry_run {
            return;
        }
        for notify in &self.config.notify {
            // A service gets one message: of those that it wants, the last one says most.
            let Some(event) = events.iter().rfind(|event| notify.on.contains(event)) else { continue };
            if let Err(why) = self.tell(notify, *event, profiles, summary, exit) {
                self.app.out.warn(&format!("the notification {} was not sent: {why}", notify.name));
            }
        }
    }

    fn tell(
        &self,
        notify: &Notify,
        event: Event,
        profiles: &str,
        summary: Option<&Value>,
        exit: Option<Exit>,
    ) -> Result<(), String> {
        let body = summary.map(json_line).unwrap_or_default();
        if let Some(hook) = &notify.run {
            let told = Told {
                profile: profiles.to_owned(),
                command: RUN.to_owned(),
                exit,
                summary: summary.cloned(),
                ..Told::default()
            };
            return self.hook(hook, event.name(), &told).map_err(|failure| failure.message);
        }
        let Some(file) = &notify.url_file else { return Ok(()) };
        let url = address_file::read(&file.value).map_err(|failure| failure.message)?;
        self.send(&message(notify.kind, &url, event, profiles, &body, exit), notify.timeout)
    }

    fn send(&self, message: &Post, timeout: Duration) -> Result<(), String> {
        let environment = Environment::of_process();
        let mut attempt = 1;
        loop {
            let sent = self.app.block_on(async { tokio::time::timeout(timeout, post(message, &environment)).await });
            let why = match sent {
                Ok(Ok(status)) if (200..300).contains(&status) => return Ok(()),
                // The same again would be refused again.
                Ok(Ok(status)) if (400..500).contains(&status) && status != 429 => {
                    return Err(format!("the server answered {status}"));
                }
                Ok(Ok(status)) => format!("the server answered {status}"),
                Ok(Err(why)) => why,
                Err(_) => format!("no answer within {}", duration::show(timeout)),
            };
            if attempt >= ATTEMPTS || self.app.interrupts.is_cancelled() {
                return Err(why);
            }
            tracing::debug!(%why, attempt, at = SystemClock.now_ms(), "a notification is sent again");
            std::thread::sleep(PAUSE * u32::try_from(attempt).unwrap_or(1));
            attempt += 1;
        }
    }
}

/// A message in the form that a service wants.
fn message(kind: NotifyKind, url: &str, event: Event, profiles: &str, body: &str, exit: Option<Exit>) -> Post {
    let cut = body.as_bytes()[..BODY_MAX.min(body.len())].to_vec();
    let url = url.trim_end_matches('/');
    let (url, headers, body) = match kind {
        NotifyKind::Healthchecks => {
            let end = match event {
                Event::Start => "/start",
                Event::Failure => "/fail",
                Event::Success | Event::Warning | Event::Recovery => "",
            };
            (format!("{url}{end}"), Vec::new(), cut)
        }
        NotifyKind::Ntfy => {
            let priority = if event == Event::Failure { "high" } else { "default" };
            let title = format!("Larder: {profiles}: {}", event.name());
            let code = exit.map_or_else(String::new, |exit| format!(": {}", super::words(exit)));
            let headers = vec![("title", title), ("priority", priority.to_owned())];
            (url.to_owned(), headers, format!("{profiles}: {}{code}", event.name()).into_bytes())
        }
        NotifyKind::Webhook | NotifyKind::Command => {
            let headers =
                vec![("content-type", "application/json".to_owned()), ("x-larder-event", event.name().to_owned())];
            let body = if body.is_empty() { b"{}".to_vec() } else { body.as_bytes().to_vec() };
            (url.to_owned(), headers, body)
        }
    };
    Post { url, headers, body }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_have_events() {
        assert_eq!(events(Exit::Done, false), [Event::Success]);
        assert_eq!(events(Exit::Partly, false), [Event::Warning]);
        assert_eq!(events(Exit::Damage, true), [Event::Failure]);
        assert_eq!(events(Exit::Done, true), [Event::Success, Event::Recovery]);
    }

    /// A clock that was ahead does not make an old result the last one.
    #[test]
    fn the_last_line_is_the_last_run() {
        let line = |start_ms, exit_code| Line {
            start_ms,
            seconds: 1.0,
            profile: Some("home".to_owned()),
            repository: None,
            command: RUN.to_owned(),
            from: None,
            exit_code,
            snapshot_id: None,
            numbers: serde_json::Map::new(),
        };
        assert!(!was_failure(&[line(9000, 1), line(5, 0)], &["home"]));
        assert!(was_failure(&[line(9000, 0), line(5, 1)], &["home"]));
        assert!(!was_failure(&[line(5, 1)], &["other"]));
    }

    #[test]
    fn services_get_what_they_want() {
        let sent = |kind, event| message(kind, "https://x/y/", event, "home", "{\"exit_code\":1}", Some(Exit::Failed));
        assert_eq!(sent(NotifyKind::Healthchecks, Event::Start).url, "https://x/y/start");
        assert_eq!(sent(NotifyKind::Healthchecks, Event::Success).url, "https://x/y");
        let failed = sent(NotifyKind::Healthchecks, Event::Failure);
        assert_eq!((failed.url.as_str(), &*failed.body), ("https://x/y/fail", &b"{\"exit_code\":1}"[..]));
        let ntfy = sent(NotifyKind::Ntfy, Event::Failure);
        assert_eq!(ntfy.headers[1], ("priority", "high".to_owned()));
        assert_eq!(ntfy.body, b"home: failure: failed (1)");
        let hook = sent(NotifyKind::Webhook, Event::Failure);
        assert_eq!((&*hook.body, hook.headers[0].0), (&b"{\"exit_code\":1}"[..], "content-type"));
    }

    #[test]
    fn long_summaries_are_cut_for_services_that_take_short_ones() {
        let long = "é".repeat(BODY_MAX);
        let sent = message(NotifyKind::Healthchecks, "https://x", Event::Success, "home", &long, None);
        assert!(sent.body.len() <= BODY_MAX);
    }
}
