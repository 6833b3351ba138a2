//! `larder tag`.

use larder_format::roles::Roles;
use larder_store::Repository;
use larder_store::catalog::Version;
use larder_store::pins::PinError;
use larder_store::tags::TagChange;
use serde_json::json;

use crate::app::App;
use crate::args::TagArgs;
use crate::environment;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::safe;
use crate::refs::{Versions, new_tags, split_tags};
use crate::sizes;

pub(super) fn run(app: &App, args: &TagArgs) -> Result<Exit, Failure> {
    let removed = args.remove.iter().flat_map(|tags| split_tags(tags)).collect();
    let change = match args.set.is_empty() {
        false => TagChange::Set(new_tags(&args.set)?),
        // What another program recorded can be removed.
        true => TagChange::AddRemove { add: new_tags(&args.add)?, remove: removed },
    };
    if change == (TagChange::AddRemove { add: Vec::new(), remove: Vec::new() }) {
        return Err(Failure::usage("no tag was given").advise("--set '' removes all tags"));
    }
    let opened = app.open()?;
    opened.repository.require(Roles::OPERATE, "tagging a snapshot")?;
    let (versions, _) = Versions::load_tagged(app, &opened.repository, &args.filter)?;
    let found = versions.find_all(app, &args.ids)?;
    if found.is_empty() {
        return Err(versions.nothing_fits());
    }
    let done = match args.dry_run {
        true => found.iter().map(|version| Ok(planned(version, &change))).collect(),
        false => make(app, opened.repository, &found, &change),
    };
    let mut changed = 0;
    let mut failures = Vec::new();
    for (version, result) in found.iter().zip(done) {
        match result {
            Ok(None) => {}
            Ok(Some(tags)) => {
                changed += 1;
                tell(app, version, &tags, args.dry_run)?;
            }
            Err(error) => {
                let id = version.id().short();
                failures.push((Failure::from(error).while_doing(&format!("snapshot {id} was not tagged")), id));
            }
        }
    }
    if app.out.is_json() {
        let summary = json!({"message_type": "summary", "changed_snapshots": changed, "dry_run": args.dry_run});
        app.out.json(&summary)?;
    } else {
        let verb = if args.dry_run { "would change" } else { "changed" };
        app.out.info(format!("{verb} the tags of {}", sizes::count(changed, "snapshot")))?;
    }
    versions.warn_of_damage(app);
    // If none was tagged, the last reason is that of the command.
    let last = if failures.len() == found.len() { failures.pop() } else { None };
    let is_whole = failures.is_empty();
    for (failure, id) in failures {
        app.out.item_error(&id, "tag", &failure.message);
    }
    match last {
        Some((failure, _)) => Err(failure),
        None if is_whole => Ok(Exit::Done),
        None => Ok(Exit::Partly),
    }
}

/// The tags that a version would get, if they differ.
fn planned(version: &Version, change: &TagChange) -> Option<Vec<String>> {
    let tags = change.apply(&version.summary.tags);
    (tags != version.summary.tags).then_some(tags)
}

/// The outcome for one version: its new tags, if they differ.
type Tagged = Result<Option<Vec<String>>, PinError>;

/// Changes several at once. A failure of one does not stop the others.
fn make(app: &App, repository: Repository, found: &[Version], change: &TagChange) -> Vec<Tagged> {
    let context = app.reading(repository);
    let (now_ms, host, user) = (context.clock.now_ms(), environment::host(), environment::user());
    app.block_on(context.repository.tag_all(found, change, now_ms, &host, &user))
}

fn tell(app: &App, version: &Version, tags: &[String], is_dry: bool) -> Result<(), Failure> {
    let id = version.id();
    if app.out.is_json() {
        // As restic has it, which makes another snapshot for that.
        return app.out.json(&json!({
            "message_type": "changed",
            "old_snapshot_id": id.to_string(),
            "new_snapshot_id": id.to_string(),
            "tags": tags,
        }));
    }
    let verb = if is_dry { "would have" } else { "has" };
    let tags = if tags.is_empty() { "no tags".to_owned() } else { format!("the tags {}", safe(&tags.join(", "))) };
    app.out.info(format!("snapshot {} {verb} {tags}", id.short()))
}
