//! The input of a backup: a tree, standard input, a command, a device.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use larder_format::entry::is_valid_path;
use larder_lnode::Input;
use larder_source::files_from::{ListFormat, read_list};
use larder_source::stream::CommandStream;
use larder_source::{Case, Excludes, PathMatcher, PathText, Roots, TagFile, Walk, WalkOptions};
use larder_store::Location;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Timespec;

use super::naming::recorded;
use crate::app::App;
use crate::args::BackupArgs;
use crate::environment;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::absolute;
use crate::patterns::{Patterns, literally};
use crate::refs::clean_path;
use crate::signals::Interrupts;

/// The interval at which a wait for standard input checks whether it should stop.
const STDIN_LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// The share of the memory for hard links.
const LINKS_ONE_IN: usize = 12;

/// The name of a stream that has none.
const STREAM_NAME: &str = "stdin";

/// The input, and its name.
pub(super) struct Source {
    pub(super) input: Input,
    /// The paths that the snapshot records.
    pub(super) paths: Vec<Vec<u8>>,
    /// The names that determine the series.
    pub(super) default_name: Vec<Vec<u8>>,
    /// The same tree once more, if progress shows totals.
    pub(super) scan: Option<Walk>,
}

/// Refuses invalid options before anything is opened.
pub(in crate::commands) fn check(args: &BackupArgs) -> Result<(), Failure> {
    if let Some(archive) = args.paths.iter().find(|path| is_archive_of_borg(path)) {
        let why = format!("\"{}\" is no path: snapshots have no names", archive.display());
        return Err(Failure::usage(why).advise(
            "name only what to back up; -r names the repository, and --series and --tag tell snapshots apart",
        ));
    }
    if args.series.as_ref().is_some_and(String::is_empty) {
        return Err(Failure::usage("a series needs a name"));
    }
    if args.host.as_ref().is_some_and(String::is_empty) {
        return Err(Failure::usage("a host needs a name"));
    }
    typed_patterns(args).matchers()?;
    let of_images = [
        (args.image.changed_map.is_some(), "--changed-map"),
        (args.image.changed_context.is_some(), "--changed-context"),
        (args.image.changed_since.is_some(), "--changed-since"),
        (args.image.image_scratch.is_some(), "--image-scratch"),
        (args.image.verify_every.is_some(), "--verify-every"),
    ];
    if let Some((_, option)) = of_images.iter().find(|(is_given, _)| *is_given && args.image.image.is_none()) {
        return Err(Failure::usage(format!("{option} needs --image")));
    }
    let lists = args.files_from.len() + args.files_from_verbatim.len() + args.files_from_raw.len();
    let is_stream = args.stdin || args.stdin_from_command;
    if is_stream && lists > 0 {
        return Err(Failure::usage("a stream and a list of files cannot be backed up together"));
    }
    if args.stdin_filename.is_some() && !is_stream {
        return Err(Failure::usage("--stdin-filename needs --stdin or --stdin-from-command"));
    }
    if args.stdin_from_command && args.paths.is_empty() {
        return Err(Failure::usage("--stdin-from-command needs a command: --stdin-from-command -- COMMAND ARGUMENT…"));
    }
    if args.image.image.is_some() && lists > 0 {
        return Err(Failure::usage("an image and a list of files cannot be backed up together"));
    }
    if !is_stream && lists == 0 && args.paths.is_empty() && args.image.image.is_none() {
        return Err(Failure::usage("nothing to back up was named")
            .advise("give paths, --files-from, --stdin or --stdin-from-command"));
    }
    let from_stdin = [&args.files_from, &args.files_from_verbatim, &args.files_from_raw];
    let from_stdin = from_stdin.iter().flat_map(|list| list.iter()).filter(|path| *path == Path::new("-")).count();
    if from_stdin > 1 {
        return Err(Failure::usage("standard input can be only one list of files"));
    }
    if is_stream {
        stream_path(args)?;
    }
    Ok(())
}

/// Whether a path is what Borg calls an archive: `REPOSITORY::NAME`, or `::NAME`.
fn is_archive_of_borg(path: &OsStr) -> bool {
    let bytes = path.as_bytes();
    let Some(at) = bytes.windows(2).position(|pair| pair == b"::") else { return false };
    let repository = Path::new(OsStr::from_bytes(&bytes[..at]));
    (at == 0 || repository.is_dir()) && std::fs::symlink_metadata(path).is_err()
}

/// The patterns of the command line. Those of files are read when they are needed.
fn typed_patterns(args: &BackupArgs) -> Patterns<'_> {
    Patterns { exact: &args.exclude, any_case: &args.iexclude, exact_files: &[], any_case_files: &[] }
}

/// Opens the input.
pub(super) fn open(app: &App, args: &BackupArgs) -> Result<Source, Failure> {
    if args.stdin {
        let reader = Box::new(Stdin { interrupts: app.interrupts.clone() });
        return stream(stream_path(args)?, reader, None);
    }
    if args.stdin_from_command {
        return command(app, args);
    }
    if args.read_special {
        match device(args)? {
            Some(source) => return Ok(source),
            None => app.out.aside("without effect here: --read-special; no path is a block device or a FIFO (for an image in a file, use --image)"),
        }
    }
    tree(app, args)
}

/// Path of a stream in the version.
fn stream_path(args: &BackupArgs) -> Result<Vec<u8>, Failure> {
    let name = args.stdin_filename.as_ref().map_or(STREAM_NAME.as_bytes(), |name| name.as_bytes());
    let path = clean_path(name)?;
    if is_valid_path(&path) && !name.ends_with(b"/") {
        Ok(path)
    } else {
        Err(Failure::usage(format!("\"{}\" is not a name for a file", PathText(name))))
    }
}

fn stream(path: Vec<u8>, reader: Box<dyn Read + Send>, size: Option<u64>) -> Result<Source, Failure> {
    let shown = [b"/", &*path].concat();
    let default_name = vec![path.clone()];
    Ok(Source { input: Input::Stream { path, reader, size }, paths: vec![shown], default_name, scan: None })
}

/// Standard input that stops when the job is to stop, even without data.
struct Stdin {
    interrupts: Interrupts,
}

impl Read for Stdin {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.interrupts.is_cancelled() {
                return Err(io::Error::other("interrupted"));
            }
            let stdin = io::stdin();
            let mut wait = [PollFd::new(&stdin, PollFlags::IN)];
            match poll(&mut wait, Some(&STDIN_LOOK)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return Ok(rustix::io::read(&stdin, &mut *buffer)?),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// The output of a command; its end counts only if the command succeeded.
struct CommandOutput(Option<CommandStream>);

impl Read for CommandOutput {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(stream) = &mut self.0 else { return Ok(0) };
        let count = stream.read(buffer)?;
        if count == 0
            && !buffer.is_empty()
            && let Some(stream) = self.0.take()
        {
            stream.finish().map_err(io::Error::other)?;
        }
        Ok(count)
    }
}

fn command(app: &App, args: &BackupArgs) -> Result<Source, Failure> {
    let path = stream_path(args)?;
    let out = app.out.clone();
    let on_stderr = move |line: &[u8]| out.remark(&format!("command: {}", PathText(line)));
    let started = CommandStream::start(&args.paths, on_stderr)?;
    let stopper = started.stopper()?;
    app.interrupts.on_cancel(move || stopper.stop());
    stream(path, Box::new(CommandOutput(Some(started))), None)
}

/// A block device or FIFO as one stream. `None`: the paths are ordinary.
fn device(args: &BackupArgs) -> Result<Option<Source>, Failure> {
    let is_special = |path: &Path| {
        std::fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device() || found.file_type().is_fifo())
    };
    let Some(given) = args.paths.iter().find(|path| is_special(Path::new(path))) else { return Ok(None) };
    if args.paths.len() > 1
        || !(args.files_from.is_empty() && args.files_from_verbatim.is_empty() && args.files_from_raw.is_empty())
    {
        return Err(Failure::usage("a device or FIFO is backed up by itself").advise("run one backup for each"));
    }
    let shown = environment::absolute(given)?;
    let failed =
        |error: io::Error| Failure::of(Exit::Failed, &error).while_doing(&format!("cannot read {}", PathText(&shown)));
    let mut file = File::open(given).map_err(failed)?;
    let is_block = file.metadata().map_err(failed)?.file_type().is_block_device();
    let size = if is_block {
        let size = file.seek(SeekFrom::End(0)).map_err(failed)?;
        file.rewind().map_err(failed)?;
        Some(size)
    } else {
        None
    };
    let path = clean_path(&shown)?;
    let input = Input::Stream { path, reader: Box::new(file), size };
    Ok(Some(Source { input, paths: vec![shown.clone()], default_name: vec![shown], scan: None }))
}

fn tree(app: &App, args: &BackupArgs) -> Result<Source, Failure> {
    let base = environment::current_dir()?;
    let mut paths: Vec<Vec<u8>> = args.paths.iter().map(|path| path.clone().into_vec()).collect();
    let mut default_name = if paths.is_empty() { Vec::new() } else { Roots::new(&paths, &base)?.paths() };
    for (lists, format) in [
        (&args.files_from, ListFormat::Patterns),
        (&args.files_from_verbatim, ListFormat::Verbatim),
        (&args.files_from_raw, ListFormat::Raw),
    ] {
        for list in lists {
            paths.extend(listed(app, list, format, &base)?);
            // Named after the list, not its entries: those change between backups.
            let is_stdin = list == Path::new("-");
            default_name.push(if is_stdin {
                b"-".to_vec()
            } else {
                environment::absolute(&list.clone().into_os_string())?
            });
        }
    }
    let roots = Roots::new(&paths, &base)?;
    let is_there = |path: &Vec<u8>| std::fs::symlink_metadata(Path::new(OsStr::from_bytes(path))).is_ok();
    if !roots.paths().iter().any(is_there) {
        let first = roots.paths().first().map_or_else(String::new, |path| absolute(path));
        let message = format!("there is nothing to back up: {first} does not exist or cannot be reached");
        return Err(Failure::new(Exit::Failed, message).advise("no snapshot was made"));
    }
    let paths = recorded(roots.paths());
    let walk = |excludes| {
        let options = WalkOptions {
            one_file_system: args.one_file_system,
            with_atime: args.with_atime,
            excludes,
            link_memory: app.global.memory() / LINKS_ONE_IN,
            scratch: app.scratch().unwrap_or_else(std::env::temp_dir),
            ..WalkOptions::default()
        };
        Walk::new(roots.clone(), options)
    };
    for Inside { path, name } in repositories_inside(app, &roots)? {
        let what = name.map_or_else(|| "the repository itself".to_owned(), |name| format!("the repository {name}"));
        app.out.remark(&format!("{} is {what} and left out", absolute(&path)));
    }
    let is_wanted = app.out.shows_progress() && !args.no_scan;
    let scan = if is_wanted { Some(walk(excludes(app, args, &roots)?)) } else { None };
    Ok(Source { input: Input::Tree(walk(excludes(app, args, &roots)?)), paths, default_name, scan })
}

fn listed(app: &App, list: &Path, format: ListFormat, base: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
    let listed = read_list(list.as_os_str().as_bytes(), format, io::stdin().lock(), base)?;
    for pattern in &listed.unmatched {
        app.out.warn(&format!("{} in {} matches nothing", PathText(pattern), list.display()));
    }
    Ok(listed.paths)
}

fn excludes(app: &App, args: &BackupArgs, roots: &Roots) -> Result<Excludes, Failure> {
    let files =
        Patterns { exact_files: &args.exclude_file, any_case_files: &args.iexclude_file, ..typed_patterns(args) };
    let mut excludes =
        Excludes { patterns: files.matchers()?, larger_than: args.exclude_larger_than, ..Excludes::default() };
    if args.exclude_caches {
        excludes.tags.push(TagFile::cache_directory());
    }
    for tag in &args.exclude_if_present {
        excludes.tags.push(TagFile::parse(tag.as_bytes())?);
    }
    for repository in repositories_inside(app, roots)? {
        excludes.patterns.push(PathMatcher::new([literally(&repository.path)], Case::Sensitive)?);
    }
    Ok(excludes)
}

/// A folder of a repository inside the input.
struct Inside {
    path: Vec<u8>,
    /// Its name in the configuration; `None`: it is the one that the backup is for.
    name: Option<String>,
}

/// The folders of this repository and of those in the configuration, as far as they are inside the
/// input. A backup of itself would never have a useful end, and two repositories that contain each
/// other grow with each run. A repository that is named as an input is one.
fn repositories_inside(app: &App, roots: &Roots) -> Result<Vec<Inside>, Failure> {
    let own = (app.location()?, None);
    let configured = app.configured.config.iter().flat_map(|config| &config.repositories);
    let others = configured.filter_map(|other| Some((other.location.value.parse().ok()?, Some(other.name.clone()))));
    let mut inside: Vec<Inside> = Vec::new();
    for (location, name) in [own].into_iter().chain(others) {
        let Location::Local(path) = location else { continue };
        let Ok(real) = path.canonicalize() else { continue };
        let path = real.into_os_string().into_vec();
        let is_inside = |root: &Vec<u8>| {
            let root = if root == b"/" { &b""[..] } else { root };
            path.strip_prefix(root).is_some_and(|rest| rest.starts_with(b"/"))
        };
        if roots.paths().iter().any(is_inside) && inside.iter().all(|known| known.path != path) {
            inside.push(Inside { path, name });
        }
    }
    Ok(inside)
}
