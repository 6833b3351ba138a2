//! `larder repair index`.

use larder_format::roles::Roles;
use larder_gnode::index_check::IndexCheck;
use larder_gnode::repair::{RebuildEnded, Rebuilt, compare, rebuild_until_won};
use larder_gnode::roll_back::{accept, rolled_back};
use larder_store::Repository;
use serde_json::{Map, Value, json};

use crate::app::App;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{safe, summary};
use crate::sizes;

/// Findings that are shown.
const SHOWN: usize = 20;

pub(super) fn compare_index(app: &App) -> Result<Exit, Failure> {
    let repository = app.open()?.repository;
    repository.require(Roles::OPERATE, "repairing the index")?;
    let cancel = app.interrupts.job_begins();
    let (number, check) = app.block_on(compare(&app.maintaining(&repository, &cancel)))?;
    let IndexCheck { versions, not_ingested, containers, chunks, different_chunks, count, ref disagreements, .. } =
        check;
    if app.out.is_json() {
        let mut object = line(&repository, Some(number), [versions, containers, chunks, different_chunks]);
        let shown: Vec<_> = disagreements.iter().map(ToString::to_string).collect();
        object.insert("snapshots_not_in_index".to_owned(), json!(not_ingested));
        object.insert("disagreements".to_owned(), json!(count));
        object.insert("problems".to_owned(), json!(shown));
        app.out.json(&object)?;
    } else {
        for disagreement in disagreements.iter().take(SHOWN) {
            app.out.line(safe(&disagreement.to_string()))?;
        }
        let [versions, containers, chunks] = [(versions, "snapshot"), (containers, "container"), (chunks, "chunk")]
            .map(|(n, what)| sizes::count(n, what));
        app.out.info(format!("index {number} knows {versions}, {containers}, {chunks}"))?;
        if not_ingested > 0 {
            let behind = sizes::count(not_ingested, "snapshot");
            app.out.info(format!("the next pass (`larder optimize`) will add {behind}"))?;
        }
        match count {
            0 => app.out.info("it agrees with all of them")?,
            _ => app.out.line(format!("{}; `larder repair index` rebuilds it", sizes::count(count, "disagreement")))?,
        }
    }
    Ok(if count == 0 { Exit::Done } else { Exit::Damage })
}

pub(super) fn rebuild_index(app: &App) -> Result<Exit, Failure> {
    let repository = app.open()?.repository;
    repository.require(Roles::OPERATE, "repairing the index")?;
    let cancel = app.interrupts.job_begins();
    let context = app.maintaining(&repository, &cancel);
    let rebuilt = app.block_on(rebuild_until_won(&context))?;
    // The repository is taken as it is, so this machine misses nothing any more.
    let gone = app.block_on(rolled_back(&context))?;
    app.block_on(accept(&context, &gone))?;
    for lost in &gone {
        app.out.warn(&format!("{lost}; this machine no longer expects it"));
    }
    let Rebuilt { number, versions, containers, chunks, different_chunks, .. } = rebuilt;
    let problems = problems(&rebuilt);
    if app.out.is_json() {
        let mut object = line(&repository, number, [versions, containers, chunks, different_chunks]);
        object.insert("problems".to_owned(), json!(problems));
        app.out.json(&object)?;
    } else {
        for problem in &problems {
            app.out.warn(problem);
        }
        let [versions, containers, chunks] = [(versions, "snapshot"), (containers, "container"), (chunks, "chunk")]
            .map(|(n, what)| sizes::count(n, what));
        match number {
            Some(number) => app.out.info(format!("index {number} was made of {versions}, {containers}, {chunks}"))?,
            None => app.out.info("passes were faster, again and again; nothing was changed")?,
        }
    }
    Ok(match rebuilt.ended() {
        RebuildEnded::Done => Exit::Done,
        RebuildEnded::Damage => Exit::Damage,
        RebuildEnded::Lost => Exit::Busy,
    })
}

fn problems(rebuilt: &Rebuilt) -> Vec<String> {
    let versions = rebuilt.unreadable_versions.iter();
    let versions = versions.map(|(id, error)| format!("snapshot {} cannot be read: {error}", id.short()));
    let containers = rebuilt.unreadable_containers.iter();
    let containers = containers.map(|(id, error)| {
        format!("{} cannot be read, its chunks are not in the index: {error}", larder_format::names::container(*id))
    });
    let lost = (rebuilt.lost_chunks > 0).then(|| {
        format!("{} that snapshots need were not found in any container", sizes::count(rebuilt.lost_chunks, "chunk"))
    });
    versions.chain(containers).chain(lost).collect()
}

fn line(repository: &Repository, number: Option<u64>, counts: [u64; 4]) -> Map<String, Value> {
    let [versions, containers, chunks, different_chunks] = counts;
    let mut object = Map::new();
    let mut put = |key: &str, value: Value| drop(object.insert(key.to_owned(), value));
    put("message_type", json!("summary"));
    put("index", json!(number));
    put("snapshots", json!(versions));
    put("containers", json!(containers));
    put("chunks", json!(chunks));
    put("different_chunks", json!(different_chunks));
    summary::put_requests(&mut object, &repository.store().stats());
    object
}
