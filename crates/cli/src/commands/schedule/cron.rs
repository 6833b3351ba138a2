//! One line of cron that runs the profiles that are due: in `/etc/cron.d` for root, in the crontab
//! of another user.

use std::path::PathBuf;

use larder_profile::config::Config;
use larder_profile::cron::{BEGIN, lines, without};
use serde_json::json;

use super::{State, call, config_file, is_system, program, write};
use crate::app::App;
use crate::args::{InstallArgs, RemoveArgs, WhereArgs};
use crate::exit::Exit;
use crate::failure::Failure;

/// The file; `None`: the crontab of the user.
fn file(place: &WhereArgs) -> Option<PathBuf> {
    let folder = place.directory.clone().or_else(|| is_system().then(|| PathBuf::from("/etc/cron.d")));
    folder.map(|folder| folder.join("larder"))
}

/// The crontab of the user. Without one, `crontab -l` fails and says so. After any other failure, a
/// new one would replace lines that nobody saw.
fn crontab() -> Result<String, Failure> {
    match call("crontab", &["-l"], None) {
        Ok(text) if text.is_empty() || text.ends_with('\n') => Ok(text),
        Ok(text) => Ok(text + "\n"),
        Err(failure) if failure.message.contains("no crontab") => Ok(String::new()),
        Err(failure) => Err(failure),
    }
}

/// Whether the line is installed as it would be written now.
pub(super) fn state(config: &Config, place: &WhereArgs) -> Result<State, Failure> {
    let file = file(place);
    let wanted = lines(&program()?, &config_file(config), file.as_ref().map(|_| "root"));
    let installed = match &file {
        Some(file) => std::fs::read_to_string(file).unwrap_or_default(),
        // Without the program there is no line.
        None => crontab().unwrap_or_default(),
    };
    Ok(match () {
        () if !installed.lines().any(|line| line == BEGIN) => State::Missing,
        () if installed.contains(&wanted) => State::Current,
        () => State::Differs,
    })
}

/// Whether a program that reads `/etc/cron.d` is installed. The cron of BusyBox does not read it.
fn reads_cron_d() -> bool {
    let found = |folder: &str, name: &str| std::fs::canonicalize(PathBuf::from(folder).join(name)).ok();
    let folders = ["/usr/sbin", "/sbin", "/usr/bin", "/bin", "/usr/local/sbin"];
    let programs = folders.iter().flat_map(|folder| ["cron", "crond", "fcron"].map(|name| found(folder, name)));
    programs.flatten().any(|path| path.file_name().is_some_and(|name| name != "busybox"))
}

pub(super) fn install(app: &App, config: &Config, args: &InstallArgs) -> Result<(), Failure> {
    let file = file(&args.place);
    let text = lines(&program()?, &config_file(config), file.as_ref().map(|_| "root"));
    let place = file.as_ref().map_or_else(|| "the crontab".to_owned(), |file| file.display().to_string());
    if args.print {
        if app.out.is_json() {
            return app.out.json(&json!({ "message_type": "schedule_file", "path": place, "text": text }));
        }
        return app.out.line(format!("# {place}\n{text}"));
    }
    match file {
        Some(file) => {
            write(&file, &text)?;
            if args.place.directory.is_none() && !reads_cron_d() {
                app.out.warn(
                    "no cron that reads /etc/cron.d was found, so nothing will run: install one, or let another program call `larder run --due` every quarter of an hour",
                );
            }
        }
        None => drop(call("crontab", &["-"], Some(&format!("{}{text}", without(&crontab()?))))?),
    }
    app.out.info(format!("wrote {place}"))
}

pub(super) fn list(app: &App, place: &WhereArgs) -> Result<(), Failure> {
    let file = file(place);
    let text = match &file {
        Some(file) => std::fs::read_to_string(file).unwrap_or_default(),
        None => crontab()?,
    };
    let place = file.map_or_else(|| "the crontab".to_owned(), |file| file.display().to_string());
    let ours = text.lines().skip_while(|line| *line != BEGIN).nth(1);
    match ours {
        Some(line) if app.out.is_json() => {
            app.out.json(&json!({ "message_type": "schedule", "path": place, "times": [line] }))
        }
        Some(line) => app.out.line(format!("{line} ({place})")),
        None => app.out.info("no line of cron is installed; `larder schedule install` does it"),
    }
}

pub(super) fn remove(app: &App, args: &RemoveArgs) -> Result<(), Failure> {
    match file(&args.place) {
        Some(file) => match std::fs::remove_file(&file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => app.out.info("no line of cron is installed"),
            Err(error) => {
                Err(Failure::of(Exit::Failed, &error).while_doing(&format!("cannot remove {}", file.display())))
            }
            Ok(()) => app.out.info(format!("removed {}", file.display())),
        },
        None => {
            let before = crontab()?;
            let after = without(&before);
            if before == after {
                return app.out.info("no line of cron is installed");
            }
            call("crontab", &["-"], Some(&after))?;
            app.out.info("removed the line from the crontab")
        }
    }
}
