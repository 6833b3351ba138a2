//! Reading configuration files: who may write them, and includes.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::variables::Variables;
use super::{Config, Located, Notify, link, section};
use crate::document::{ConfigError, Table, parse};

/// Larger than any configuration, in bytes.
const SIZE_MAX: u64 = 1 << 20;

/// Reads a configuration file and the files that it includes.
///
/// # Errors
/// A file cannot be read, others may write it, or it has a mistake.
pub fn load(path: &Path, variables: &Variables<'_>) -> Result<Config, ConfigError> {
    let mut config = Config::default();
    let mut main = document(path)?;
    config.files.push(path.to_owned());
    let includes = includes(&mut main, path)?;
    section::read(main, true, variables, &mut config)?;
    for file in includes {
        let mut table = document(&file)?;
        if let Some(again) = table.take("include") {
            return Err(ConfigError::at(&again.place, "an included file includes no others"));
        }
        config.files.push(file);
        section::read(table, false, variables, &mut config)?;
    }
    link(&mut config)?;
    Ok(config)
}

/// The notifications of a configuration that [`load`] refuses, as far as they can be read. The
/// people who wait for a message are told about the mistake so.
pub fn notifications(path: &Path, variables: &Variables<'_>) -> Vec<Notify> {
    let Ok(mut main) = document(path) else { return Vec::new() };
    let mut found = section::sound_notifications(&mut main, variables);
    for file in includes(&mut main, path).unwrap_or_default() {
        if let Ok(mut table) = document(&file) {
            found.extend(section::sound_notifications(&mut table, variables));
        }
    }
    found
}

fn document(path: &Path) -> Result<Table, ConfigError> {
    let text = text_of(path)?;
    parse(&Arc::from(path), &text)
}

/// The text of a file that nobody else may write.
fn text_of(path: &Path) -> Result<String, ConfigError> {
    let shown = path.display();
    let failed = |error: std::io::Error| ConfigError::whole(format!("cannot read {shown}: {error}"));
    if path == Path::new("/dev/null") {
        return Ok(String::new());
    }
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() || metadata.len() > SIZE_MAX {
        return Err(ConfigError::whole(format!("{shown} is no configuration: it is no file, or larger than 1 MiB")));
    }
    let own = rustix::process::geteuid().as_raw();
    if ![0, own].contains(&metadata.uid()) {
        return Err(ConfigError::whole(format!(
            "{shown} belongs to another user (uid {}), and its hooks would run as you",
            metadata.uid()
        )));
    }
    if metadata.mode() & 0o022 != 0 {
        return Err(ConfigError::whole(format!(
            "others can write {shown} (mode {:04o}), and its hooks would run as you; `chmod go-w` it",
            metadata.mode() & 0o7777
        )));
    }
    let mut text = String::new();
    file.take(SIZE_MAX).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

/// The files that `include` names: patterns relative to the folder of the file, with `*` in the
/// last part.
fn includes(main: &mut Table, path: &Path) -> Result<Vec<PathBuf>, ConfigError> {
    let Some(entry) = main.take("include") else { return Ok(Vec::new()) };
    let folder = path.parent().unwrap_or(Path::new("/"));
    let mut files = Vec::new();
    for pattern in section::texts(&entry)? {
        let found = matching(&folder.join(&pattern.value), &pattern)?;
        files.extend(found.into_iter().filter(|file| !files.contains(file)).collect::<Vec<_>>());
    }
    Ok(files)
}

fn matching(pattern: &Path, written: &Located<String>) -> Result<Vec<PathBuf>, ConfigError> {
    let name = pattern.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let folder = pattern.parent().unwrap_or(Path::new("/"));
    if folder.as_os_str().to_string_lossy().contains('*') || name.is_empty() {
        return Err(ConfigError::at(&written.place, "a pattern has its * in the name of the file"));
    }
    let Some((start, end)) = name.split_once('*') else { return Ok(vec![pattern.to_owned()]) };
    if end.contains('*') {
        return Err(ConfigError::at(&written.place, "a pattern has one * at most"));
    }
    let unreadable = |error| ConfigError::at(&written.place, format!("cannot read {}: {error}", folder.display()));
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries.collect::<Result<Vec<_>, _>>().map_err(unreadable)?,
        // A folder that is not there holds no files.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(error)),
    };
    let fits = |name: &str| name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end);
    let names = entries.into_iter().filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<_> = names.filter(|name| fits(name) && !name.starts_with('.')).collect();
    names.sort_unstable();
    Ok(names.into_iter().map(|name| folder.join(name)).collect())
}
