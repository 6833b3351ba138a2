//! Facts from the environment: the location of the repository, host and user, folders.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use larder_job::Identity;
use larder_source::Owners;
use larder_store::Location;

use crate::args::Global;
use crate::exit::Exit;
use crate::failure::Failure;

/// Reads a variable; empty counts as unset.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The location of the repository: `-r/--repo`, `--repository-file`, `LARDER_REPOSITORY`,
/// `LARDER_REPOSITORY_FILE`.
pub(crate) fn location(global: &Global) -> Result<Location, Failure> {
    let (location, file) = location_variables(global);
    let text = if let Some(text) = &global.repo {
        text.clone()
    } else if let Some(path) = &global.repository_file {
        location_from_file(path)?
    } else if let Some(text) = variable(location) {
        text
    } else if let Some(path) = variable(file) {
        location_from_file(Path::new(&path))?
    } else if global.is_source {
        let missing = Failure::usage("no repository to copy from was named");
        return Err(missing.advise("use --from-repo LOCATION or LARDER_FROM_REPOSITORY"));
    } else {
        return Err(Failure::usage("no repository was named").advise("use -r/--repo LOCATION or LARDER_REPOSITORY"));
    };
    Ok(Location::from_os(&text)?)
}

/// Whether an option or a variable names the repository.
pub(crate) fn names_repository(global: &Global) -> bool {
    let (location, file) = location_variables(global);
    let is_set = |name| variable(name).is_some();
    global.repo.is_some() || global.repository_file.is_some() || is_set(location) || is_set(file)
}

/// The variables with the location, and with the name of a file that contains it.
fn location_variables(global: &Global) -> (&'static str, &'static str) {
    match global.is_source {
        false => ("LARDER_REPOSITORY", "LARDER_REPOSITORY_FILE"),
        true => ("LARDER_FROM_REPOSITORY", "LARDER_FROM_REPOSITORY_FILE"),
    }
}

fn location_from_file(path: &Path) -> Result<OsString, Failure> {
    let failed = |error: std::io::Error| {
        Failure::of(Exit::Failed, &error)
            .while_doing(&format!("cannot read the location of the repository from {}", path.display()))
    };
    let text = std::fs::read(path).map_err(failed)?;
    Ok(OsString::from_vec(text.trim_ascii().to_vec()))
}

/// Name of this machine.
pub(crate) fn host() -> String {
    let name = rustix::system::uname();
    let name = name.nodename().to_string_lossy();
    if name.is_empty() { "localhost".to_owned() } else { name.into_owned() }
}

/// The identity of the jobs of this process.
pub(crate) fn identity() -> Identity {
    let program = format!("larder {}", env!("CARGO_PKG_VERSION"));
    Identity { host: host(), program, process: std::process::id() }
}

/// Name of the user, or its number.
pub(crate) fn user() -> String {
    let uid = rustix::process::geteuid().as_raw();
    Owners::new().user(uid).map_or_else(|| uid.to_string(), |name| name.to_string())
}

/// The folder that relative paths start from.
pub(crate) fn current_dir() -> Result<Vec<u8>, Failure> {
    let failed =
        |error: std::io::Error| Failure::of(Exit::Failed, &error).while_doing("cannot find out the current folder");
    Ok(std::env::current_dir().map_err(failed)?.into_os_string().into_vec())
}

/// Makes a path absolute without reading the file system.
pub(crate) fn absolute(path: &OsString) -> Result<Vec<u8>, Failure> {
    let roots = larder_source::Roots::new([path.as_bytes()], &current_dir()?)?;
    roots.paths().pop().ok_or_else(|| Failure::usage("an empty path was given"))
}

/// The folder for configurations of this user: `$XDG_CONFIG_HOME/larder`, `~/.config/larder`.
pub(crate) fn config_dir() -> Option<PathBuf> {
    let base = variable("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let base = base.or_else(|| variable("HOME").map(|home| PathBuf::from(home).join(".config")));
    base.map(|base| base.join("larder"))
}

/// The folder for what this machine remembers: `--state`, `/var/lib/larder` for root,
/// `$XDG_STATE_HOME/larder`, `~/.local/state/larder`.
pub(crate) fn state_dir(global: &Global) -> Option<PathBuf> {
    if global.no_state {
        return None;
    }
    let of_user = || {
        if rustix::process::geteuid().is_root() {
            return Some(PathBuf::from("/var/lib/larder"));
        }
        let base = variable("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        let base = base.or_else(|| variable("HOME").map(|home| PathBuf::from(home).join(".local/state")));
        base.map(|base| base.join("larder"))
    };
    global.state.clone().or_else(of_user)
}

/// The folder for locks and the journal of runs.
pub(crate) fn run_dir(global: &Global) -> Option<PathBuf> {
    state_dir(global).map(|folder| folder.join(RUNS))
}

/// Name of that folder. The others below the state folder belong to repositories.
pub(crate) const RUNS: &str = "runs";

/// The folder for copies of metadata: `--cache-dir`, `$XDG_CACHE_HOME/larder`, `~/.cache/larder`.
pub(crate) fn cache_dir(global: &Global) -> Option<PathBuf> {
    if global.no_cache {
        return None;
    }
    let of_user = || {
        let base = variable("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        let base = base.or_else(|| variable("HOME").map(|home| PathBuf::from(home).join(".cache")));
        base.map(|base| base.join("larder"))
    };
    global.cache_dir.clone().or_else(of_user)
}
