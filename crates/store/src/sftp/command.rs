//! The command that connects: the system's SSH client, or one of the user's choice.
//!
//! It runs through the shell, which makes it ignore the signals that a terminal or a service
//! manager sends to a whole group. So this program can end its requests in order after Ctrl-C. The
//! command ends with its standard input in any case.

use std::process::{Child, Command, Stdio};
use std::{fmt, io};

use crate::location::SftpLocation;
use crate::options::SftpOptions;

/// Ignores signals, also for the command.
const QUIET: &str = "trap '' INT TERM HUP; ";

/// Our settings of `ssh`, behind those of the user, which take precedence. A shared connection
/// would end for all its users when one of ours is retired.
const SETTINGS: &str = "-o ServerAliveInterval=15 -o ServerAliveCountMax=4 -o ControlMaster=no -o ControlPath=none";

/// A further connection asks nobody for a password.
const BATCH: &str = " -o BatchMode=yes";

/// What to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Connecting {
    script: String,
    args: Vec<String>,
    is_ssh: bool,
}

/// Options that exclude one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("sftp.args are arguments of ssh, and sftp.command runs in its place: use one of them")]
pub(crate) struct CommandProblem;

/// The command for a location.
pub(super) fn of(location: &SftpLocation, options: &SftpOptions) -> Result<Connecting, CommandProblem> {
    if let Some(command) = &options.command {
        return match options.args {
            None => Ok(Connecting { script: command.clone(), args: Vec::new(), is_ssh: false }),
            Some(_) => Err(CommandProblem),
        };
    }
    // The user's arguments are words of the shell, as restic has them; ours are passed as they are.
    let own = options.args.as_deref().unwrap_or_default();
    let script = format!("ssh {own} {SETTINGS}");
    let mut args = Vec::new();
    if let Some(port) = location.port {
        args.extend(["-p".to_owned(), port.to_string()]);
    }
    if let Some(user) = &location.user {
        args.extend(["-l".to_owned(), user.clone()]);
    }
    args.extend(["-s", "--", &location.host, "sftp"].map(str::to_owned));
    Ok(Connecting { script, args, is_ssh: true })
}

impl Connecting {
    /// Starts it, with pipes for all three streams. Only the first may ask for a password.
    pub(super) fn start(&self, is_first: bool) -> io::Result<Child> {
        let script = match (self.is_ssh, is_first) {
            (true, true) => format!("{QUIET}exec {} \"$@\"", self.script),
            (true, false) => format!("{QUIET}exec {}{BATCH} \"$@\"", self.script),
            // Several words of the shell, which `exec` would not take.
            (false, _) => format!("{QUIET}{}", self.script),
        };
        Command::new("/bin/sh")
            .args(["-c", &script, "larder-sftp"])
            .args(&self.args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
    }
}

impl fmt::Display for Connecting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.script)?;
        self.args.iter().try_for_each(|arg| write!(f, " {arg}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::location::Location;

    fn shown(location: &str, options: &SftpOptions) -> Result<String, CommandProblem> {
        let Ok(Location::Sftp(location)) = location.parse() else { panic!("{location} is no SFTP server") };
        of(&location, options).map(|command| command.to_string())
    }

    #[test]
    fn user_port_and_host_are_arguments_of_ssh() {
        let default = SftpOptions::default();
        assert_eq!(
            shown("sftp://me@nas:2222//srv", &default).as_deref(),
            Ok(&*format!("ssh  {SETTINGS} -p 2222 -l me -s -- nas sftp"))
        );
        let own = SftpOptions { args: Some("-i '/my key'".to_owned()), ..default.clone() };
        assert_eq!(
            shown("sftp:nas:/srv", &own).as_deref(),
            Ok(&*format!("ssh -i '/my key' {SETTINGS} -s -- nas sftp"))
        );
        let command = SftpOptions { command: Some("ssh -s me@nas sftp".to_owned()), ..default };
        assert_eq!(shown("sftp:x:/srv", &command).as_deref(), Ok("ssh -s me@nas sftp"));
        let both = SftpOptions { args: Some("-v".to_owned()), ..command };
        assert_eq!(shown("sftp:x:/srv", &both), Err(CommandProblem));
    }
}
