//! restic mode: Backrest, resticprofile and other programs that start restic can start this program
//! in its place. It is on if the program's name is `restic`, or with `LARDER_RESTIC=1`, and never
//! otherwise.
//!
//! The mode changes names and shapes, and nothing that a command does: variables (here), and JSON
//! (`output`). Everything that is no matter of shape is the same with and without it, such as the
//! options of restic that `args` knows.

mod output;

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use crate::environment;
use crate::exit::Exit;
use crate::failure::Failure;

pub(crate) use output::{id, mapped, mapped_node, own_id, stats};

/// The version of restic whose outputs these are.
pub(crate) const VERSION: &str = "0.19.1";

/// Variables of restic, and the ones that mean the same here.
const VARIABLES: [(&str, &str); 14] = [
    ("RESTIC_REPOSITORY", "LARDER_REPOSITORY"),
    ("RESTIC_REPOSITORY_FILE", "LARDER_REPOSITORY_FILE"),
    ("RESTIC_PASSWORD", "LARDER_PASSWORD"),
    ("RESTIC_PASSWORD_FILE", "LARDER_PASSWORD_FILE"),
    ("RESTIC_PASSWORD_COMMAND", "LARDER_PASSWORD_COMMAND"),
    ("RESTIC_FROM_REPOSITORY", "LARDER_FROM_REPOSITORY"),
    ("RESTIC_FROM_REPOSITORY_FILE", "LARDER_FROM_REPOSITORY_FILE"),
    ("RESTIC_FROM_PASSWORD", "LARDER_FROM_PASSWORD"),
    ("RESTIC_FROM_PASSWORD_FILE", "LARDER_FROM_PASSWORD_FILE"),
    ("RESTIC_FROM_PASSWORD_COMMAND", "LARDER_FROM_PASSWORD_COMMAND"),
    ("RESTIC_CACHE_DIR", "LARDER_CACHE_DIR"),
    ("RESTIC_COMPRESSION", "LARDER_COMPRESSION"),
    ("RESTIC_HOST", "LARDER_HOST"),
    ("RESTIC_PROGRESS_FPS", "LARDER_PROGRESS_FPS"),
];

/// Whether the mode is on.
pub(crate) fn is_on() -> bool {
    static IS_ON: OnceLock<bool> = OnceLock::new();
    *IS_ON.get_or_init(|| is_asked_for(std::env::args_os().next().as_deref(), environment::variable("LARDER_RESTIC")))
}

fn is_asked_for(program: Option<&OsStr>, variable: Option<OsString>) -> bool {
    match variable {
        Some(value) => value != "0",
        None => program.and_then(|program| Path::new(program).file_name()).is_some_and(|name| name == "restic"),
    }
}

/// Gives restic's variables their names here. A process cannot change its own variables safely, so
/// the program replaces itself, once. A variable of this program comes before one of restic.
pub(crate) fn adopt_variables() -> Result<(), Failure> {
    if !is_on() {
        return Ok(());
    }
    let adopted = adopted(&environment::variable);
    if adopted.is_empty() {
        return Ok(());
    }
    let failed = |error: std::io::Error| {
        Failure::of(Exit::Failed, &error).while_doing("cannot start again with the variables of restic")
    };
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_else(|| "restic".into());
    let program = std::env::current_exe().map_err(failed)?;
    Err(failed(Command::new(program).arg0(name).args(arguments).envs(adopted).exec()))
}

/// The arguments without limits of `prune` that count unused bytes: this program counts percents.
/// Also says whether there was one.
pub(crate) fn without_byte_limits(argv: Vec<OsString>) -> (Vec<OsString>, bool) {
    const NAME: &str = "--max-unused";
    let is_bytes = |value: &OsStr| {
        let value = value.to_string_lossy();
        let value = value.trim();
        value == "unlimited" || value.ends_with(|last: char| last.is_ascii_alphabetic())
    };
    let (mut rest, mut any) = (Vec::new(), false);
    let mut words = argv.into_iter().peekable();
    while let Some(word) = words.next() {
        let joined = word.to_str().and_then(|word| word.strip_prefix(NAME)?.strip_prefix('=')).map(OsString::from);
        if word == NAME && words.peek().is_some_and(|value| is_bytes(value)) {
            words.next();
            any = true;
        } else if joined.is_some_and(|value| is_bytes(&value)) {
            any = true;
        } else {
            rest.push(word);
        }
    }
    (rest, any)
}

/// The variables to set.
fn adopted(variable: &dyn Fn(&str) -> Option<OsString>) -> Vec<(&'static str, OsString)> {
    // One of ours for the password, or for the location, takes the place of all of restic's.
    let is_ours = |start: &str| VARIABLES.iter().any(|(_, ours)| ours.starts_with(start) && variable(ours).is_some());
    let groups = ["LARDER_REPOSITORY", "LARDER_PASSWORD"];
    let is_taken = |ours: &str| match groups.iter().find(|start| ours.starts_with(**start)) {
        Some(start) => is_ours(start),
        None => variable(ours).is_some(),
    };
    let free = VARIABLES.iter().filter(|(_, ours)| !is_taken(ours));
    free.filter_map(|(theirs, ours)| Some((*ours, variable(theirs)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_or_the_variable_switches_the_mode_on() {
        let on =
            |program: &str, variable: Option<&str>| is_asked_for(Some(OsStr::new(program)), variable.map(Into::into));
        assert!(on("restic", None) && on("/usr/bin/restic", None) && on("larder", Some("1")));
        assert!(!on("larder", None) && !on("/restic/larder", None) && !on("restic", Some("0")));
    }

    #[test]
    fn limits_in_bytes_are_left_out() {
        let of = |line: &str| {
            let (words, any) = without_byte_limits(line.split(' ').map(OsString::from).collect());
            (words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" "), any)
        };
        assert_eq!(
            of("restic prune --max-unused 25.00% -v"),
            ("restic prune --max-unused 25.00% -v".to_owned(), false)
        );
        assert_eq!(of("restic prune --max-unused 1000B -v"), ("restic prune -v".to_owned(), true));
        assert_eq!(of("restic prune --max-unused=unlimited"), ("restic prune".to_owned(), true));
        assert_eq!(of("restic prune --max-unused=5"), ("restic prune --max-unused=5".to_owned(), false));
    }

    #[test]
    fn variables_of_this_program_come_first() {
        let of = |set: &[(&str, &str)]| {
            let set: Vec<(String, OsString)> =
                set.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
            adopted(&|name| set.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone()))
        };
        assert_eq!(of(&[("RESTIC_PASSWORD", "x"), ("HOME", "/")]), [("LARDER_PASSWORD", "x".into())]);
        assert_eq!(of(&[("RESTIC_PASSWORD", "x"), ("LARDER_PASSWORD_FILE", "y")]), []);
        let both = of(&[("RESTIC_REPOSITORY", "/r"), ("LARDER_PASSWORD", "y"), ("RESTIC_HOST", "h")]);
        assert_eq!(both, [("LARDER_REPOSITORY", "/r".into()), ("LARDER_HOST", "h".into())]);
    }
}
