//! `larder import tar`.

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use larder_import::original::Original;
use larder_import::series::expand;
use larder_import::tar::{Archive, repository};
use larder_job::{Clock, SystemClock};
use larder_lnode::BackupError;

use super::{Wanted, with_importing};
use crate::app::App;
use crate::args::ImportTarArgs;
use crate::commands::backup::expect_series_name;
use crate::environment;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::refs::new_tags;

pub(super) fn run(app: &App, args: &ImportTarArgs) -> Result<Exit, Failure> {
    let tags = new_tags(&args.tag)?;
    let path = Path::new(&args.file);
    let is_stdin = path == Path::new("-");
    let failed = |error: std::io::Error| {
        Failure::of(Exit::Failed, &error).while_doing(&format!("cannot open {}", path.display()))
    };
    let file = if is_stdin { None } else { Some(File::open(path).map_err(failed)?) };
    let changed_ms = match &file {
        Some(file) => changed_ms(&file.metadata().map_err(failed)?),
        None => None,
    };
    let time_ms = args.time.or(changed_ms).unwrap_or_else(|| SystemClock.now_ms());
    let host = args.host.clone().unwrap_or_else(environment::host);
    let name = if is_stdin { "stdin".to_owned() } else { name_of(path) };
    let template = args.series.as_deref().unwrap_or("{host}:{name}");
    let series = expand(template, &[("host", &host), ("hostname", &host), ("name", &name)]).map_err(Failure::usage)?;
    expect_series_name(&series)?;
    with_importing(app, &args.options, |importing| {
        let options = importing.read_options(time_ms);
        let archive = match file {
            Some(file) => Archive::of_file(file, &options),
            None => Archive::of_stream(Box::new(std::io::stdin()), &options, &mut |_| None),
        };
        let archive = archive.map_err(|error| importing.failed(error).while_doing(&path.display().to_string()))?;
        let original = Original {
            repository: repository(),
            id: archive.hash(),
            tree: [0; 32],
            time_ms,
            host,
            user: environment::user(),
            tags,
            paths: archive.paths(),
        };
        let wanted = Wanted { name: path.display().to_string(), original, series };
        if importing.is_there(&wanted) {
            return Ok(());
        }
        let (files, bytes) = archive.size();
        importing.context.progress.expect(files, bytes);
        importing.context.progress.expectation_is_complete();
        if importing.options.dry_run {
            let problems =
                archive.problems().map_err(|error| importing.interrupted_or(BackupError::from(error).into()))?;
            importing.done.errors += problems.len() as u64;
            for problem in problems {
                importing.context.progress.problem(&problem);
            }
            return importing.tell_planned(&wanted);
        }
        let base = importing.before.of_series(&wanted.original.repository, &wanted.series).last().map(|base| base.id());
        importing.one(&wanted, archive.entries(base))
    })
}

/// When a file was changed last.
fn changed_ms(metadata: &std::fs::Metadata) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    let millis = metadata.mtime().checked_mul(1000)?.checked_add(metadata.mtime_nsec() / 1_000_000)?;
    u64::try_from(millis).ok().filter(|_| metadata.is_file())
}

/// The name of a file without the endings of archives.
fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    let name = larder_source::PathText(name.as_bytes()).to_string();
    let endings = [".tar", ".tar.gz", ".tgz", ".tar.zst", ".tzst"];
    let bare = endings.iter().filter_map(|ending| name.strip_suffix(ending)).min_by_key(|bare| bare.len());
    bare.filter(|bare| !bare.is_empty()).unwrap_or(&name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_the_endings_of_archives() {
        for (path, name) in [
            ("/a/web1.tar", "web1"),
            ("web1.tar.gz", "web1"),
            ("web1.2024.tgz", "web1.2024"),
            ("x.tar.zst", "x"),
            ("x", "x"),
            (".tar", ".tar"),
        ] {
            assert_eq!(name_of(Path::new(path)), name);
        }
    }
}
