//! The command that connects: the system's SSH client, or one of the user's choice.
//!
//! It runs through the shell, which makes it ignore the signals that a terminal or a service
//! manager sends to a whole group. So this program can end its requests in order after Ctrl-C. The
//! command ends with its standard input in any case.

use std::process::{Child, Command, Stdio};
use std::{fmt, io};

use crate::location::SftpLocation;
use crate::options::SftpOptions;

/// Ignores signals, then becomes the command.
const QUIET: &str = "trap '' INT TERM HUP; exec ";

/// What to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Connecting {
    script: String,
    args: Vec<String>,
}

/// Options that exclude one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("sftp.args are arguments of ssh, and sftp.command runs in its place: use one of them")]
pub(crate) struct CommandProblem;

/// The command for a location.
pub(super) fn of(location: &SftpLocation, options: &SftpOptions) -> Result<Connecting, CommandProblem> {
    if let Some(command) = &options.command {
        return match options.args {
            None => Ok(Connecting { script: format!("{QUIET}{command}"), args: Vec::new() }),
            Some(_) => Err(CommandProblem),
        };
    }
    // The user's arguments are words of the shell, as restic has them; ours are passed as they are.
    let own = options.args.as_deref().unwrap_or_default();
    let script = format!("{QUIET}ssh -o ServerAliveInterval=15 -o ServerAliveCountMax=4 {own} \"$@\"");
    let mut args = Vec::new();
    if let Some(port) = location.port {
        args.extend(["-p".to_owned(), port.to_string()]);
    }
    if let Some(user) = &location.user {
        args.extend(["-l".to_owned(), user.clone()]);
    }
    args.extend(["-s", "--", &location.host, "sftp"].map(str::to_owned));
    Ok(Connecting { script, args })
}

impl Connecting {
    /// Starts it, with pipes for all three streams.
    pub(super) fn start(&self) -> io::Result<Child> {
        Command::new("/bin/sh")
            .args(["-c", &self.script, "larder-sftp"])
            .args(&self.args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
    }
}

impl fmt::Display for Connecting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let script = self.script.strip_prefix(QUIET).unwrap_or(&self.script);
        f.write_str(&script.replace(" \"$@\"", ""))?;
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
            Ok("ssh -o ServerAliveInterval=15 -o ServerAliveCountMax=4  -p 2222 -l me -s -- nas sftp")
        );
        let own = SftpOptions { args: Some("-i '/my key'".to_owned()), ..default.clone() };
        assert_eq!(
            shown("sftp:nas:/srv", &own).as_deref(),
            Ok("ssh -o ServerAliveInterval=15 -o ServerAliveCountMax=4 -i '/my key' -s -- nas sftp")
        );
        let command = SftpOptions { command: Some("ssh -s me@nas sftp".to_owned()), ..default };
        assert_eq!(shown("sftp:x:/srv", &command).as_deref(), Ok("ssh -s me@nas sftp"));
        let both = SftpOptions { args: Some("-v".to_owned()), ..command };
        assert_eq!(shown("sftp:x:/srv", &both), Err(CommandProblem));
    }
}
