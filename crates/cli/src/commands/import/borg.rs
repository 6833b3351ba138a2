//! `larder import borg`.

use std::path::Path;

use larder_import::borg::{BorgArchive, BorgRepository};
use larder_import::original::{ForeignId, Original};
use larder_import::series::{Pattern, expand};

use super::{Importing, Wanted, with_importing};
use crate::app::App;
use crate::args::ImportBorgArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::refs::{new_tags, split_tags};

pub(super) fn run(app: &App, args: &ImportBorgArgs) -> Result<Exit, Failure> {
    new_tags(&args.tag)?;
    let pattern = args.series_pattern.as_deref().map(Pattern::new).transpose().map_err(Failure::usage)?;
    // A template that cannot be filled in fails before anything is read.
    let sample = BorgArchive {
        name: "archive".to_owned(),
        id: [0; 32],
        time_ms: 0,
        host: "host".to_owned(),
        user: "user".to_owned(),
        comment: String::new(),
    };
    series_of(args, &sample, &pattern.as_ref().map(Pattern::names).unwrap_or_default())?;
    if let Some((repository, name)) = args.repository.to_string_lossy().split_once("::") {
        return Err(Failure::usage("the location of a repository has no name of an archive behind it")
            .advise(format!("larder import borg {repository} --snapshot {name}")));
    }
    let source = BorgRepository::new(&args.repository);
    let (repository, archives) = source.archives().map_err(Failure::from)?;
    with_importing(app, &args.options, |importing| {
        let mut all = Vec::new();
        for archive in archives {
            all.extend(wanted(args, pattern.as_ref(), repository, &archive)?.map(|wanted| (archive, wanted)));
        }
        if let Some(absent) = args.snapshot.iter().find(|id| !all.iter().any(|(archive, _)| is_named(archive, id))) {
            return Err(Failure::new(Exit::Failed, format!("there is no archive {absent} to import")));
        }
        importing.expect_some(all.is_empty(), "archive of the repository");
        all.retain(|(_, wanted)| !importing.is_there(wanted));
        if !all.is_empty() {
            app.out.remark(
                "note: Borg exports neither extended attributes nor access lists, so snapshots do not have them",
            );
        }
        for (archive, wanted) in all {
            match one(importing, &source, &archive, &wanted) {
                Ok(()) => {}
                // The others may be whole.
                Err(failure) if matches!(failure.exit, Exit::Failed | Exit::Damage) => {
                    importing.done.failures.push((wanted.name, failure));
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    })
}

/// An archive as an original; `None` if it is left out.
fn wanted(
    args: &ImportBorgArgs,
    pattern: Option<&Pattern>,
    repository: ForeignId,
    archive: &BorgArchive,
) -> Result<Option<Wanted>, Failure> {
    let groups = match pattern.map(|pattern| pattern.groups(&archive.name)) {
        Some(None) => return Ok(None),
        Some(Some(groups)) => groups,
        None => Vec::new(),
    };
    let host = groups.iter().find(|(name, _)| name == "host").map_or(&archive.host, |(_, host)| host);
    let is_of_host = args.host.is_empty() || args.host.contains(host);
    let is_chosen = args.snapshot.is_empty() || args.snapshot.iter().any(|id| is_named(archive, id));
    if !is_of_host || !is_chosen {
        return Ok(None);
    }
    let comment =
        Some(archive.comment.trim()).filter(|comment| !comment.is_empty()).map(|text| format!("comment={text}"));
    let own = args.tag.iter().flat_map(|tags| split_tags(tags));
    let tags = own.chain([archive.name.clone()]).chain(comment).map(|tag| tag.replace(',', ";"));
    let original = Original {
        repository,
        id: archive.id,
        tree: [0; 32],
        time_ms: archive.time_ms,
        host: host.clone(),
        user: archive.user.clone(),
        tags: tags.collect(),
        paths: Vec::new(),
    };
    let series = series_of(args, archive, &groups)?;
    Ok(Some(Wanted { name: archive.name.clone(), original, series }))
}

fn is_named(archive: &BorgArchive, name: &str) -> bool {
    archive.name == name || data_encoding::HEXLOWER.encode(&archive.id).starts_with(name)
}

fn series_of(args: &ImportBorgArgs, archive: &BorgArchive, groups: &[(String, String)]) -> Result<String, Failure> {
    let location = args.repository.to_string_lossy();
    let repository = Path::new(&*location).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut values: Vec<(&str, &str)> = groups.iter().map(|(name, value)| (&**name, &**value)).collect();
    let host = values.iter().find(|(name, _)| *name == "host").map_or(&*archive.host, |(_, host)| host);
    values.extend([
        ("host", host),
        ("hostname", host),
        ("user", &archive.user),
        ("archive", &archive.name),
        ("repository", &repository),
    ]);
    expand(args.series.as_deref().unwrap_or("{host}:{repository}"), &values).map_err(Failure::usage)
}

fn one(
    importing: &mut Importing<'_>,
    source: &BorgRepository,
    archive: &BorgArchive,
    wanted: &Wanted,
) -> Result<(), Failure> {
    if importing.options.dry_run {
        return importing.tell_planned(wanted);
    }
    let options = importing.read_options(archive.time_ms);
    let archive = source.export(archive, &options).map_err(|error| importing.failed(error))?;
    let (files, bytes) = archive.size();
    importing.context.progress.expect(files, bytes);
    let base = importing.before.of_series(&wanted.original.repository, &wanted.series).last().map(|base| base.id());
    let original = Original { paths: archive.paths(), ..wanted.original.clone() };
    let wanted = Wanted { original, name: wanted.name.clone(), series: wanted.series.clone() };
    importing.one(&wanted, archive.entries(base))
}
