//! `larder import restic`.

use larder_format::ErrorKind;
use larder_import::ImportError;
use larder_import::original::Original;
use larder_import::restic::{ResticRepository, ResticSnapshot};
use larder_import::series::expand;
use larder_store::Location;

use super::{Importing, Wanted, with_importing};
use crate::app::App;
use crate::args::ImportResticArgs;
use crate::commands::backup::default_series;
use crate::configured::{Configured, environment_file};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::password::PasswordSource;
use crate::refs::split_tags;

pub(super) fn run(app: &App, args: &ImportResticArgs) -> Result<Exit, Failure> {
    let sample = ["host", "hostname", "user", "paths"].map(|name| (name, name));
    if let Some(template) = &args.series {
        expand(template, &sample).map_err(Failure::usage)?;
    }
    let source = open(app, args)?;
    let (snapshots, damaged) = source.snapshots().map_err(Failure::from)?;
    with_importing(app, &args.options, |importing| {
        let named = |snapshot: &&ResticSnapshot| args.snapshot.iter().any(|id| is_named(snapshot, id));
        if let Some(absent) = args.snapshot.iter().find(|id| !snapshots.iter().any(|snapshot| is_named(snapshot, id))) {
            return Err(Failure::new(Exit::Failed, format!("there is no restic snapshot {absent}")));
        }
        let mut all = Vec::new();
        for snapshot in snapshots.iter().filter(|snapshot| args.snapshot.is_empty() || named(snapshot)) {
            if is_admitted(args, snapshot) {
                all.push((snapshot, wanted(args, &source, snapshot)?));
            }
        }
        for (id, why) in damaged {
            let failure = Failure::new(Exit::Damage, format!("the snapshot cannot be read: {why}"));
            importing.done.failures.push((id, failure));
        }
        importing.expect_some(all.is_empty(), "snapshot of the repository");
        all.retain(|(_, wanted)| !importing.is_there(wanted));
        for (snapshot, wanted) in all {
            if importing.options.dry_run {
                importing.tell_planned(&wanted)?;
                continue;
            }
            match one(importing, &source, &snapshots, snapshot, &wanted) {
                Ok(()) => {}
                // The others may be whole.
                Err(failure) if failure.exit == Exit::Failed => importing.done.failures.push((wanted.name, failure)),
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    })
}

fn open(app: &App, args: &ImportResticArgs) -> Result<ResticRepository, Failure> {
    let mut variables = Vec::new();
    if let Some(file) = &args.storage.from_environment_file {
        variables.extend(environment_file::read(file)?);
    }
    // The variables that the configuration has for the other repository do not reach this one.
    let configured = Configured { variables, ..Configured::default() };
    let other = app.step(args.storage.global(app.global.clone()), configured, app.out.clone());
    let location = Location::from_os(&args.repository)?;
    let store = other.store_at(&location)?;
    let password = PasswordSource::of_restic(args).get_of_restic()?;
    let password = std::str::from_utf8(&password).map_err(|_| Failure::usage("the password is not UTF-8"))?;
    ResticRepository::open(store, app.runtime().handle().into(), password).map_err(|error| not_opened(error, &location))
}

fn not_opened(error: ImportError, location: &Location) -> Failure {
    match error {
        ImportError::Foreign { kind: ErrorKind::NoRepository, .. } => {
            Failure::new(ErrorKind::NoRepository, format!("there is no restic repository at {location}"))
                .advise("check the location, which is that of the restic repository; nothing was imported")
        }
        // It names the repository.
        ImportError::Foreign { kind: ErrorKind::BadKey, .. } => error.into(),
        error => Failure::from(error).while_doing(&format!("the restic repository at {location}")),
    }
}

fn is_named(snapshot: &ResticSnapshot, id: &str) -> bool {
    !id.is_empty() && data_encoding::HEXLOWER.encode(&snapshot.id).starts_with(id)
}

fn is_admitted(args: &ImportResticArgs, snapshot: &ResticSnapshot) -> bool {
    let has_tags = |tags: &String| split_tags(tags).iter().all(|tag| snapshot.tags.contains(tag));
    (args.host.is_empty() || args.host.contains(&snapshot.host))
        && (args.tag.is_empty() || args.tag.iter().any(has_tags))
}

fn wanted(args: &ImportResticArgs, source: &ResticRepository, snapshot: &ResticSnapshot) -> Result<Wanted, Failure> {
    let paths: Vec<Vec<u8>> = snapshot.paths.iter().map(|path| path.clone().into_bytes()).collect();
    let joined = snapshot.paths.join(",");
    let values =
        [("host", &*snapshot.host), ("hostname", &snapshot.host), ("user", &snapshot.user), ("paths", &joined)];
    let series = match &args.series {
        Some(template) => expand(template, &values).map_err(Failure::usage)?,
        None => default_series(&snapshot.host, &paths),
    };
    let original = Original {
        repository: source.id(),
        id: snapshot.first_id,
        tree: snapshot.tree,
        time_ms: snapshot.time_ms,
        host: snapshot.host.clone(),
        user: snapshot.user.clone(),
        tags: snapshot.tags.clone(),
        paths,
    };
    let name = data_encoding::HEXLOWER.encode(&snapshot.id)[..8].to_owned();
    Ok(Wanted { name, original, series })
}

fn one(
    importing: &mut Importing<'_>,
    source: &ResticRepository,
    snapshots: &[ResticSnapshot],
    snapshot: &ResticSnapshot,
    wanted: &Wanted,
) -> Result<(), Failure> {
    // The last one that was made is mostly that of the snapshot before.
    let of_series = importing.before.of_series(&wanted.original.repository, &wanted.series);
    let before = of_series.iter().rev().find_map(|version| {
        let origin = version.summary.origin?;
        let made_of = snapshots.iter().find(|known| known.tree == origin.roots.metadata.0)?;
        Some((made_of.tree, version.id()))
    });
    let cancel = &importing.context.cancel;
    match importing.one(wanted, source.entries(snapshot, before, false, cancel)) {
        // Contents of a large file are damaged. Looked at in advance, it is left out.
        Err(failure) if failure.exit != Exit::Interrupted && importing.is_source_damaged => {
            importing.one(wanted, source.entries(snapshot, before, true, cancel))
        }
        result => result,
    }
}
