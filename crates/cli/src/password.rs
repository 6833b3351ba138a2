//! Sources of passwords. Passwords are never echoed and never logged. They are read into locked
//! memory, which is overwritten after use.
//!
//! A key file (`--key-file`, or `LARDER_KEY_FILE` without a password option) takes the place of a
//! password. Otherwise, the first given source counts: `--password-file`, `--password-command`,
//! `--password-fd`, then the variables `LARDER_PASSWORD_FILE`, `LARDER_PASSWORD_COMMAND`,
//! `LARDER_PASSWORD`, then a prompt on a terminal.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{ErrorKind, IsTerminal};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use larder_secret::SecretBytes;
use zeroize::Zeroizing;

#[cfg(feature = "import-restic")]
use crate::args::ImportResticArgs;
use crate::args::{Global, NewPassword};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::signals;

/// Longer than any password; a file of this size was given by mistake.
const PASSWORD_MAX: usize = 64 << 10;

/// A password.
pub(crate) type Password = SecretBytes;

/// The source of a password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PasswordSource {
    /// An intentionally empty password.
    Empty,
    /// A file.
    File(PathBuf),
    /// The output of a shell command.
    Command(OsString),
    /// An open file descriptor.
    Descriptor(u32),
    /// An environment variable.
    Variable(&'static str),
    /// The user.
    Prompt,
}

/// Reads a variable; empty counts as unset.
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

impl PasswordSource {
    /// The source of the repository's password.
    pub(crate) fn of(global: &Global) -> Self {
        if global.insecure_no_password {
            return Self::Empty;
        }
        let Global { password_file, password_command, password_fd, .. } = global;
        let flag = password_file.clone().map(Self::File);
        let flag = flag.or_else(|| password_command.clone().map(Self::Command));
        let flag = flag.or_else(|| password_fd.map(Self::Descriptor));
        flag.unwrap_or_else(|| match global.is_source {
            false => Self::of_variables("LARDER_PASSWORD_FILE", "LARDER_PASSWORD_COMMAND", "LARDER_PASSWORD"),
            true => {
                Self::of_variables("LARDER_FROM_PASSWORD_FILE", "LARDER_FROM_PASSWORD_COMMAND", "LARDER_FROM_PASSWORD")
            }
        })
    }

    /// The source of the password of a restic repository.
    #[cfg(feature = "import-restic")]
    pub(crate) fn of_restic(args: &ImportResticArgs) -> Self {
        if args.from_insecure_no_password {
            return Self::Empty;
        }
        let flag = args.from_password_file.clone().map(Self::File);
        let flag = flag.or_else(|| args.from_password_command.clone().map(Self::Command));
        flag.unwrap_or_else(|| {
            let all = [
                ("LARDER_FROM_PASSWORD_FILE", "LARDER_FROM_PASSWORD_COMMAND", "LARDER_FROM_PASSWORD"),
                ("RESTIC_FROM_PASSWORD_FILE", "RESTIC_FROM_PASSWORD_COMMAND", "RESTIC_FROM_PASSWORD"),
                ("RESTIC_PASSWORD_FILE", "RESTIC_PASSWORD_COMMAND", "RESTIC_PASSWORD"),
            ];
            let mut given = all.into_iter().map(|(file, command, plain)| Self::of_variables(file, command, plain));
            given.find(|source| !source.is_prompt()).unwrap_or(Self::Prompt)
        })
    }

    /// The source of a new key's password.
    pub(crate) fn of_new(new: &NewPassword) -> Self {
        if new.new_insecure_no_password {
            return Self::Empty;
        }
        let flag = new.new_password_file.clone().map(Self::File);
        let flag = flag.or_else(|| new.new_password_command.clone().map(Self::Command));
        flag.unwrap_or_else(|| {
            Self::of_variables("LARDER_NEW_PASSWORD_FILE", "LARDER_NEW_PASSWORD_COMMAND", "LARDER_NEW_PASSWORD")
        })
    }

    fn of_variables(file: &str, command: &str, plain: &'static str) -> Self {
        if let Some(path) = variable(file) {
            Self::File(path.into())
        } else if let Some(command) = variable(command) {
            Self::Command(command)
        } else if std::env::var_os(plain).is_some() {
            // Set and empty is an error of its own: a script has lost the password.
            Self::Variable(plain)
        } else {
            Self::Prompt
        }
    }

    /// The key file that takes the place of a password, if one was named.
    pub(crate) fn key_file(global: &Global) -> Option<PathBuf> {
        let Global { key_file, password_file, password_command, password_fd, insecure_no_password, .. } = global;
        let is_password_named =
            password_file.is_some() || password_command.is_some() || password_fd.is_some() || *insecure_no_password;
        let name = if global.is_source { "LARDER_FROM_KEY_FILE" } else { "LARDER_KEY_FILE" };
        let of_variable = || variable(name).filter(|_| !is_password_named).map(PathBuf::from);
        key_file.clone().or_else(of_variable)
    }

    /// Whether the user may be asked again.
    pub(crate) fn is_prompt(&self) -> bool {
        *self == Self::Prompt
    }

    /// Gets the password of an existing key. `name` is the repository's, if it has one.
    pub(crate) fn get_of(&self, name: Option<&str>) -> Result<Password, Failure> {
        let asked = match name {
            Some(name) => &format!("password of the repository {name}: "),
            None => "password of the repository: ",
        };
        match self {
            Self::Prompt => refuse_empty(prompt(asked, OLD)?),
            _ => self.get_without_person(),
        }
    }

    /// The same for the repository that a command copies from.
    pub(crate) fn get_of_source(&self, name: &str) -> Result<Password, Failure> {
        match self {
            Self::Prompt => refuse_empty(prompt(&format!("password of the repository {name}: "), SOURCE)?),
            _ => self.get_without_person(),
        }
    }

    /// The same for a store of volumes.
    pub(crate) fn get_of_store(&self) -> Result<Password, Failure> {
        match self {
            Self::Prompt => refuse_empty(prompt("password of the volume store: ", OLD_STORE)?),
            _ => self.get_without_person(),
        }
    }

    /// Gets the password that clients of a server have to send.
    pub(crate) fn get_of_user(&self) -> Result<Password, Failure> {
        self.get_without_person()
    }

    /// The same for a restic repository.
    #[cfg(feature = "import-restic")]
    pub(crate) fn get_of_restic(&self) -> Result<Password, Failure> {
        match self {
            Self::Prompt => refuse_empty(prompt("password of the restic repository: ", OLD_RESTIC)?),
            _ => self.get_without_person(),
        }
    }

    /// Gets a new password; users have to type it twice.
    pub(crate) fn get_new(&self) -> Result<Password, Failure> {
        self.get_new_for("new password", NEW)
    }

    /// The same for a store of volumes.
    pub(crate) fn get_new_of_store(&self) -> Result<Password, Failure> {
        self.get_new_for("new password of the volume store", NEW_STORE)
    }

    fn get_new_for(&self, asked: &str, wanted: Wanted) -> Result<Password, Failure> {
        if !self.is_prompt() {
            return self.get_without_person();
        }
        let first = refuse_empty(prompt(&format!("{asked}: "), wanted)?)?;
        let again = prompt(&format!("{asked} again: "), wanted)?;
        if *first != *again {
            return Err(Failure::new(Exit::WrongKey, "the two passwords are not the same; nothing was changed"));
        }
        Ok(first)
    }

    /// As messages name it.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::Empty => "empty".to_owned(),
            Self::File(path) => format!("that in the file {}", path.display()),
            Self::Command(_) => "the output of the password command".to_owned(),
            Self::Descriptor(number) => format!("that of the file descriptor {number}"),
            Self::Variable(name) => format!("that of the variable {name}"),
            Self::Prompt => "the one that you typed".to_owned(),
        }
    }

    fn get_without_person(&self) -> Result<Password, Failure> {
        match self {
            Self::Empty => Ok(Password::default()),
            Self::File(path) => refuse_empty(strip_newline(read_file(path)?)),
            Self::Command(command) => refuse_empty(strip_newline(run(command)?)),
            // Opening the descriptor's name works for pipes and files alike and needs no trust in
            // its number.
            Self::Descriptor(number) => {
                refuse_empty(strip_newline(read_file(Path::new(&format!("/dev/fd/{number}")))?))
            }
            Self::Variable(name) => {
                // The environment of the process keeps its own copy.
                let value = Zeroizing::new(variable(name).unwrap_or_default().into_vec());
                refuse_empty(locked(&value)?)
            }
            Self::Prompt => Err(nowhere(OLD)),
        }
    }
}

/// The wanted password, and how to give it without a prompt.
type Wanted = (&'static str, &'static str);
const OLD: Wanted =
    ("no password was given", "use --password-file, --password-command, LARDER_PASSWORD_FILE or LARDER_PASSWORD");
const SOURCE: Wanted = (
    "no password was given",
    "use --from-password-file, --from-password-command, LARDER_FROM_PASSWORD_FILE or LARDER_FROM_PASSWORD",
);
const NEW: Wanted = (
    "no new password was given",
    "use --new-password-file, --new-password-command, LARDER_NEW_PASSWORD_FILE or LARDER_NEW_PASSWORD",
);

const OLD_STORE: Wanted = (
    "no password of the volume store was given",
    "use --store-password-file, LARDER_STORE_PASSWORD_FILE, or the same options as for a repository",
);
const NEW_STORE: Wanted = (
    "no password of the new volume store was given",
    "use --store-password-file, LARDER_STORE_PASSWORD_FILE, or the same options as for a repository",
);

#[cfg(feature = "import-restic")]
const OLD_RESTIC: Wanted = (
    "no password of the restic repository was given",
    "use --from-password-file, --from-password-command, LARDER_FROM_PASSWORD_FILE or RESTIC_PASSWORD",
);

fn nowhere((missing, advice): Wanted) -> Failure {
    Failure::new(Exit::WrongKey, format!("{missing}, and there is no terminal to ask on")).advise(advice)
}

fn refuse_empty(password: Password) -> Result<Password, Failure> {
    if !password.is_empty() {
        return Ok(password);
    }
    Err(Failure::new(Exit::WrongKey, "the password is empty")
        .advise("if you want none, use --insecure-no-password (for a new password, --new-insecure-no-password)"))
}

/// Removes one line end, which editors and `echo` add.
fn strip_newline(mut password: Password) -> Password {
    if password.last() == Some(&b'\n') {
        password.truncate(password.len() - 1);
        if password.last() == Some(&b'\r') {
            password.truncate(password.len() - 1);
        }
    }
    password
}

/// A copy in locked memory.
fn locked(password: &[u8]) -> Result<Password, Failure> {
    Password::copy_of(password)
        .map_err(|error| Failure::of(Exit::WrongKey, &error).while_doing("cannot hold the password"))
}

fn read_file(path: &Path) -> Result<Password, Failure> {
    File::open(path).and_then(|file| Password::read(file, PASSWORD_MAX)).map_err(|error| match error.kind() {
        ErrorKind::FileTooLarge => {
            Failure::new(Exit::WrongKey, format!("{} is too large to be a password", path.display()))
        }
        _ => Failure::of(Exit::WrongKey, &error)
            .while_doing(&format!("cannot read the password from {}", path.display())),
    })
}

fn run(command: &OsStr) -> Result<Password, Failure> {
    let failed = |why: String| Failure::new(Exit::WrongKey, format!("the command for the password failed: {why}"));
    // Standard input may be the input of the backup.
    let mut child = Command::new("/bin/sh")
        .arg("-c")
        .arg(command)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .map_err(|error| failed(error.to_string()))?;
    let password = child.stdout.take().map(|output| Password::read(output, PASSWORD_MAX)).transpose();
    let status = child.wait().map_err(|error| failed(error.to_string()))?;
    match password {
        // Its pipe was closed before it had written everything, so its end says nothing.
        Err(error) if error.kind() == ErrorKind::FileTooLarge => {
            Err(failed("its output is too large to be a password".to_owned()))
        }
        _ if !status.success() => Err(failed(status.to_string())),
        password => Ok(password.map_err(|error| failed(error.to_string()))?.unwrap_or_default()),
    }
}

fn prompt(text: &str, wanted: Wanted) -> Result<Password, Failure> {
    if !std::io::stdin().is_terminal() && !std::io::stderr().is_terminal() {
        return Err(nowhere(wanted));
    }
    let _terminal = signals::keep_terminal();
    locked(Zeroizing::new(rpassword::prompt_password(text).map_err(|_| nowhere(wanted))?).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_end_is_taken_away_and_nothing_else() {
        let stripped = |text: &[u8]| strip_newline(locked(text).expect("memory")).to_vec();
        assert_eq!(stripped(b"secret\n"), b"secret");
        assert_eq!(stripped(b"secret\r\n"), b"secret");
        assert_eq!(stripped(b" se\ncret \n\n"), b" se\ncret \n");
        assert_eq!(stripped(b"\r"), b"\r");
    }

    #[test]
    fn commands_and_files_give_passwords_or_say_why_not() {
        let command = |text: &str| PasswordSource::Command(text.into()).get_of(None).map(|password| password.to_vec());
        assert_eq!(command("printf 'a b\\n'"), Ok(b"a b".to_vec()));
        assert_eq!(command("exit 3").expect_err("fails").exit, Exit::WrongKey);
        assert!(command("true").expect_err("empty").message.contains("empty"));
        assert!(command("cat /dev/zero").expect_err("endless").message.contains("too large"));
        let file = |path: &str| PasswordSource::File(path.into()).get_of(None).map(|password| password.to_vec());
        assert!(file("/nowhere/at/all").expect_err("missing").message.contains("/nowhere/at/all"));
        assert!(file("/dev/zero").expect_err("endless").message.contains("too large"));
    }
}
