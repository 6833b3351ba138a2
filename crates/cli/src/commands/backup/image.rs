//! `larder backup --image`: a disk image, with a map of its changes where there is one.

use std::ffi::{OsStr, OsString};
use std::fs::DirBuilder;
use std::num::NonZeroU32;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use larder_format::ids::JobId;
use larder_job::{Clock, SystemClock};
use larder_lnode::{BackupOptions, ImageInput, Input, MapOutcome, MapReport, MapTrust, WhyBase};
use larder_source::PathText;
use larder_source::image::{
    Changes, Ending, Image, ImageError, LimitedImage, Names, NbdImage, NbdUri, Opening, RawImage, Stops, ThinName,
    Tracked, qcow2, qemu, read_map, thin,
};
use larder_store::Repository;
use larder_store::repository::{SystemEntropy, random};

use super::{default_series, options, perform};
use crate::app::App;
use crate::args::{BackupArgs, FilterArgs, ImageArgs};
use crate::commands::listen::private_folder;
use crate::commands::read_limit::read_limit;
use crate::environment;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::refs::{self, Versions, clean_path};

/// Without `--verify-every`.
const VERIFY_EVERY: u32 = 10;

/// Hex digits of a series in the names of its bitmaps and snapshots.
const TAG_LEN: usize = 12;
/// The folder with notes about thin pools.
const THIN_POOLS: &str = "larder-thin-pools";
/// Why changes are not known.
const NO_BITMAP: &str = "the image has no whole bitmap of an earlier snapshot of this series";
/// The name of an export without a name, in the snapshot.
const DISK: &str = "disk";

/// A source as it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::commands) enum Wanted {
    /// A file or block device; whether it is said to be no qcow2 image.
    Raw(PathBuf, bool),
    Qcow2(PathBuf),
    /// A device of a running QEMU, and the QEMU's control socket.
    Qemu(String, PathBuf),
    /// A volume in a thin pool of LVM.
    Thin(ThinName),
    Nbd(NbdUri),
}

impl Wanted {
    /// Reads `--image`. `None`: it was not given.
    pub(in crate::commands) fn of(args: &ImageArgs) -> Result<Option<Self>, Failure> {
        let Some(given) = &args.image else { return Ok(None) };
        let wanted = Self::parse(given)?;
        let is_tracked = matches!(wanted, Self::Qcow2(_) | Self::Qemu(..) | Self::Thin(_));
        if is_tracked && (args.changed_map.is_some() || args.changed_since.is_some()) {
            return Err(Failure::usage("disks of QEMU and thin volumes have their own maps of changes"));
        }
        if args.changed_context.is_some() && !matches!(wanted, Self::Nbd(_)) {
            return Err(Failure::usage("--changed-context needs a network block device"));
        }
        if args.changed_context.as_ref().is_some_and(|context| context.starts_with("base:")) {
            return Err(Failure::usage("contexts that begin with base: say what is allocated, not what changed")
                .advise("name the context of a dirty bitmap, such as qemu:dirty-bitmap:NAME"));
        }
        if args.changed_context.is_some() && args.changed_since.is_none() {
            return Err(Failure::usage("--changed-context needs --changed-since"));
        }
        Ok(Some(wanted))
    }

    fn parse(given: &OsStr) -> Result<Self, Failure> {
        let bytes = given.as_bytes();
        let path = |bytes: &[u8]| PathBuf::from(OsString::from_vec(bytes.to_vec()));
        if let Some(rest) = bytes.strip_prefix(b"qcow2:") {
            return Ok(Self::Qcow2(path(rest)));
        }
        if let Some(rest) = bytes.strip_prefix(b"qemu:") {
            let at = rest.iter().position(|byte| *byte == b'@').filter(|at| *at > 0 && at + 1 < rest.len());
            let device = at.and_then(|at| std::str::from_utf8(&rest[..at]).ok().map(|device| (device, at)));
            let (device, at) = device.ok_or_else(|| {
                Failure::usage("a disk of a running QEMU is qemu:DEVICE@SOCKET").advise("SOCKET is that of QMP")
            })?;
            return Ok(Self::Qemu(device.to_owned(), path(&rest[at + 1..])));
        }
        if let Some(rest) = bytes.strip_prefix(b"thin:") {
            let name = std::str::from_utf8(rest).ok().and_then(ThinName::parse);
            return name.map(Self::Thin).ok_or_else(|| Failure::usage("a thin volume is thin:GROUP/VOLUME"));
        }
        if let Some(rest) = bytes.strip_prefix(b"raw:") {
            return Ok(Self::Raw(path(rest), true));
        }
        match given.to_str().filter(|text| NbdUri::is_one(text)) {
            Some(uri) => Ok(Self::Nbd(uri.parse()?)),
            None => Ok(Self::Raw(path(bytes), false)),
        }
    }

    /// The path in the snapshot, and the name that determines the series.
    pub(in crate::commands) fn names(&self) -> Result<(Vec<u8>, Vec<u8>), Failure> {
        match self {
            Self::Raw(path, _) | Self::Qcow2(path) => {
                let shown = environment::absolute(&path.clone().into_os_string())?;
                Ok((shown.clone(), shown))
            }
            Self::Qemu(device, socket) => {
                let socket = environment::absolute(&socket.clone().into_os_string())?;
                let device = device.as_bytes();
                Ok(([b"/", device].concat(), [device, b"@", &*socket].concat()))
            }
            Self::Thin(name) => Ok((format!("/{}", name.volume()).into_bytes(), name.to_string().into_bytes())),
            Self::Nbd(uri) => {
                let export = if uri.export().is_empty() { DISK } else { uri.export() };
                Ok(([b"/", export.as_bytes()].concat(), uri.to_string().into_bytes()))
            }
        }
    }
}

/// An open source.
pub(in crate::commands) struct Opened {
    pub(in crate::commands) image: Box<dyn Image>,
    pub(in crate::commands) extents: Option<Vec<larder_format::entry::Extent>>,
    pub(in crate::commands) changes: Vec<Changes>,
    /// Why there are none, if there could be.
    pub(in crate::commands) no_map: Option<&'static str>,
    /// What comes after the backup of an image whose changes are noted.
    pub(in crate::commands) ending: Option<Box<dyn Ending>>,
}

pub(super) fn run(
    app: &App,
    repository: &Repository,
    args: &BackupArgs,
    host: String,
    wanted: &Wanted,
) -> Result<Exit, Failure> {
    let (shown, name) = wanted.names()?;
    let series = args.series.clone().unwrap_or_else(|| default_series(&host, std::slice::from_ref(&name)));
    let layout = crate::commands::series::expect_layout(app, repository, &series, args.layout)?;
    let job = JobId::new(SystemClock.now_ms(), random(&SystemEntropy)?);
    let path = clean_path(&shown)?;
    let options =
        BackupOptions { job: Some(job), ..options(app, repository, args, host, series, vec![shown], layout)? };
    let stops = stops(app);
    let opened = open(app, repository, &args.image, args.dry_run, wanted, &options.series, job, &stops);
    // What fails because it was stopped is an interruption.
    let Opened { image, extents, changes, no_map, ending } = opened.map_err(|failure| match stops.is_stopped() {
        true => Failure::new(Exit::Interrupted, "interrupted while the image was opened"),
        false => failure,
    })?;
    let image = LimitedImage::of(image, read_limit(app, args.image.limit_read).as_ref());
    let no_map = no_map.filter(|_| !args.force);
    let changes = if args.force { Vec::new() } else { changes };
    let trust = MapTrust::Checked(NonZeroU32::new(args.image.verify_every.unwrap_or(VERIFY_EVERY)));
    let input = Input::Image(ImageInput { path, image, extents, changes, trust });
    let performed = perform(app, repository, input, None, options);
    if let Some(ending) = ending {
        let is_committed = performed.as_ref().is_ok_and(|performed| performed.report.version.is_some());
        let remarks = if is_committed { ending.committed() } else { ending.failed() };
        remarks.iter().for_each(|remark| app.out.warn(remark));
    }
    let mut performed = performed?;
    let has_predecessor = performed.report.bases.iter().any(|base| matches!(base.why, WhyBase::Newest | WhyBase::Own));
    if let (Some(why), true) = (no_map, has_predecessor) {
        app.out.remark(&format!("note: the whole image was read, because {why}"));
        performed.report.map = Some(MapReport { outcome: MapOutcome::Unusable(why), checked_bytes: 0 });
    }
    performed.tell(app, serde_json::Map::new())?;
    Ok(performed.exit())
}

/// Ends what an image waits for when the backup is interrupted. From now on, the first signal does
/// not end the process: a disk of QEMU is to be left as it was.
pub(in crate::commands) fn stops(app: &App) -> Stops {
    let stops = Stops::default();
    let stopping = stops.clone();
    app.interrupts.on_cancel(move || stopping.stop());
    app.interrupts.job_begins();
    if app.interrupts.is_cancelled() {
        stops.stop();
    }
    stops
}

/// Opens an image. In a dry run, nothing is noted for the next backup.
#[expect(clippy::too_many_arguments, reason = "one call each for a backup and a batch")]
pub(in crate::commands) fn open(
    app: &App,
    repository: &Repository,
    args: &ImageArgs,
    is_dry_run: bool,
    wanted: &Wanted,
    series: &str,
    job: JobId,
    stops: &Stops,
) -> Result<Opened, Failure> {
    match wanted {
        Wanted::Raw(path, is_sure) => {
            let image = RawImage::open(path)?;
            let failed = |source| ImageError::Io { path: path.clone(), source };
            if !is_sure && image.looks_like_qcow2().map_err(failed)? {
                let path = path.display();
                return Err(Failure::usage(format!("{path} looks like a qcow2 image"))
                    .advise(format!("say qcow2:{path} to store its disk, or raw:{path} to store the file as it is")));
            }
            let (changes, no_map) = map_of(app, repository, args, series, image.size())?;
            let extents = image.extents().map(<[_]>::to_vec);
            Ok(Opened { image: Box::new(image), extents, changes, no_map, ending: None })
        }
        Wanted::Nbd(uri) => {
            let context = &args.changed_context;
            let contexts: Vec<String> = context.iter().cloned().collect();
            let image = NbdImage::connect(uri, &contexts, stops)?;
            let (changes, no_map) = match (context, since(app, repository, args, series)?) {
                (Some(context), Some(since)) => {
                    if !image.has_context(context) {
                        return Err(Failure::new(Exit::Failed, format!("the server has no context {context}"))
                            .advise("`nbdinfo --list` shows its contexts; without --changed-context, all is read"));
                    }
                    (vec![Changes { since, size: image.size(), ranges: image.changes(context)? }], None)
                }
                _ => map_of(app, repository, args, series, image.size())?,
            };
            let extents = image.extents()?;
            Ok(Opened { image: Box::new(image), extents, changes, no_map, ending: None })
        }
        Wanted::Qcow2(path) => {
            let path = PathBuf::from(OsString::from_vec(environment::absolute(&path.clone().into_os_string())?));
            let folder = private_folder()?;
            let names = names(repository, series, job);
            let tracked = qcow2::open(&path, Opening { names, folder: &folder, keeps: !is_dry_run, stops });
            // Only its socket was there.
            let _ = std::fs::remove_dir(&folder);
            Ok(tracking(app, tracked?, NO_BITMAP))
        }
        Wanted::Qemu(device, socket) => {
            let names = names(repository, series, job);
            let folder = private(app, args, &names.folder())?;
            let opening = Opening { names, folder: &folder, keeps: !is_dry_run, stops };
            Ok(tracking(app, qemu::open(socket, device, opening)?, NO_BITMAP))
        }
        Wanted::Thin(name) => {
            let names = names(repository, series, job);
            let folder = private(app, args, THIN_POOLS)?;
            let opening = Opening { names, folder: &folder, keeps: !is_dry_run, stops };
            Ok(tracking(
                app,
                thin::open(name, opening)?,
                "no snapshot of an earlier backup of this series says what changed in the volume",
            ))
        }
    }
}

/// The names of the bitmaps of a series.
fn names(repository: &Repository, series: &str, job: JobId) -> Names {
    let tag = repository.keys().series_key(series).to_string();
    Names::new(tag.get(..TAG_LEN).unwrap_or(&tag), job)
}

/// A folder for a running QEMU, or for notes. It has the same name each time, so that what a killed
/// backup left there is found.
fn private(app: &App, args: &ImageArgs, name: &str) -> Result<PathBuf, Failure> {
    let parent = args.image_scratch.clone().or_else(|| app.scratch()).unwrap_or_else(std::env::temp_dir);
    let folder = parent.join(name);
    let failed = |error: std::io::Error| {
        Failure::of(Exit::Failed, &error).while_doing(&format!("cannot create the folder {}", folder.display()))
    };
    std::fs::create_dir_all(&parent).map_err(failed)?;
    match DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        made => made.map_err(failed)?,
    }
    let found = std::fs::symlink_metadata(&folder).map_err(failed)?;
    if !found.is_dir() || found.uid() != rustix::process::geteuid().as_raw() || found.mode() & 0o077 != 0 {
        return Err(Failure::new(Exit::Failed, format!("{} is not a private folder of this user", folder.display()))
            .advise("remove it, or name another folder with --image-scratch"));
    }
    Ok(folder)
}

/// Turns it into what a backup takes. `no_map` says why there is no map of changes, if there is
/// none.
fn tracking(app: &App, tracked: Tracked, no_map: &'static str) -> Opened {
    let Tracked { image, extents, changes, remarks, notes, ending } = tracked;
    remarks.iter().for_each(|remark| app.out.warn(remark));
    notes.iter().for_each(|note| app.out.remark(&format!("note: {note}")));
    let no_map = changes.is_empty().then_some(no_map);
    Opened { image, extents, changes, no_map, ending: Some(ending) }
}

/// A map, or why a given one cannot be used.
type Mapped = (Vec<Changes>, Option<&'static str>);

/// The map in a file.
fn map_of(app: &App, repository: &Repository, args: &ImageArgs, series: &str, size: u64) -> Result<Mapped, Failure> {
    let asked = since(app, repository, args, series)?;
    let Some(file) = &args.changed_map else {
        return match asked {
            None => Ok((Vec::new(), None)),
            Some(_) => Err(Failure::usage("--changed-since needs --changed-map or --changed-context")),
        };
    };
    let map = read_map(file)?;
    let named = map.since.as_ref().map(|text| snapshot(app, repository, OsStr::new(text), series)).transpose()?;
    if let (Some(asked), Some(named)) = (asked, named)
        && asked != named
    {
        let why = format!("{} counts changes from {named}, and --changed-since says {asked}", file.display());
        return Err(Failure::usage(why).advise("use the map of the named snapshot, or leave out --changed-since"));
    }
    let since = asked.or(named).ok_or_else(|| unnamed(file))?;
    if !map.is_within(size) {
        return Ok((
            Vec::new(),
            Some("the map names changes behind the end of the image, so it is that of another one"),
        ));
    }
    Ok((vec![Changes { since, size, ranges: map.ranges }], None))
}

fn unnamed(file: &Path) -> Failure {
    Failure::usage(format!(
        "{} does not say from which snapshot its changes are counted",
        PathText(file.as_os_str().as_bytes())
    ))
    .advise("name the snapshot with --changed-since")
}

fn since(app: &App, repository: &Repository, args: &ImageArgs, series: &str) -> Result<Option<JobId>, Failure> {
    args.changed_since.as_deref().map(|text| snapshot(app, repository, text, series)).transpose()
}

/// The snapshot that a text names; `latest` is that of the series. A whole id may be that of one
/// that is gone: then nothing is taken over.
fn snapshot(app: &App, repository: &Repository, text: &OsStr, series: &str) -> Result<JobId, Failure> {
    if let Some(id) = text.to_str().and_then(|text| text.parse().ok()) {
        return Ok(id);
    }
    let reference = refs::parse(text)?;
    if reference.path.is_some() {
        return Err(Failure::usage("changes are counted from a snapshot, without a path"));
    }
    let filter = FilterArgs { series: vec![series.to_owned()], ..FilterArgs::default() };
    let versions = Versions::load_named(app, repository, &filter, &[&reference.snapshot])?;
    versions.find(app, &reference.snapshot).map(|version| version.id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_told_apart_by_their_beginning() {
        let parsed = |text: &str| Wanted::parse(OsStr::new(text)).expect("a source");
        assert_eq!(parsed("/a/disk"), Wanted::Raw("/a/disk".into(), false));
        assert_eq!(parsed("raw:qcow2:disk"), Wanted::Raw("qcow2:disk".into(), true));
        assert_eq!(parsed("qcow2:/a/disk"), Wanted::Qcow2("/a/disk".into()));
        assert!(matches!(parsed("nbd://host/disk"), Wanted::Nbd(_)));
        assert_eq!(parsed("qemu:vda@/run/a@b"), Wanted::Qemu("vda".to_owned(), "/run/a@b".into()));
        for odd in ["qemu:vda", "qemu:@/run/a", "qemu:vda@"] {
            assert_eq!(Wanted::parse(OsStr::new(odd)).expect_err("incomplete").exit, Exit::Usage, "{odd}");
        }
        for odd in ["thin:", "thin:web", "thin:vg/web/x", "thin:vg/-y"] {
            assert_eq!(Wanted::parse(OsStr::new(odd)).expect_err("no volume").exit, Exit::Usage, "{odd}");
        }
        let odd = Wanted::parse(OsStr::new("nbd+unix:///disk")).expect_err("no socket");
        assert_eq!(odd.exit, Exit::Usage);
        let names = |text: &str| {
            let (shown, name) = parsed(text).names().expect("names");
            (String::from_utf8(shown).expect("a text"), String::from_utf8(name).expect("a text"))
        };
        let pair = |shown: &str, name: &str| (shown.to_owned(), name.to_owned());
        assert_eq!(names("qcow2:/a/./disk"), pair("/a/disk", "/a/disk"));
        assert_eq!(names("nbd://host"), pair("/disk", "nbd://host"));
        assert_eq!(names("qemu:vda@/run/web.qmp"), pair("/vda", "vda@/run/web.qmp"));
        assert_eq!(names("thin:vg/web"), pair("/web", "vg/web"));
        assert_eq!(names("nbd://host/vm/1"), pair("/vm/1", "nbd://host/vm/1"));
    }
}
