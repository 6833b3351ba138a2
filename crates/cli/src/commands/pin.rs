//! `larder pin` and `larder unpin`.

use larder_format::roles::Roles;
use larder_store::catalog::Version;
use larder_store::pins::PinError;
use serde_json::json;

use crate::app::App;
use crate::args::{FilterArgs, PinArgs, UnpinArgs};
use crate::environment;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::refs::Versions;

pub(super) fn pin(app: &App, args: &PinArgs) -> Result<Exit, Failure> {
    let reason = match args.reason.as_str() {
        "" => environment::user(),
        reason => format!("{}: {reason}", environment::user()),
    };
    change(app, &args.ids, &args.filter, Change::Pin, &reason)
}

pub(super) fn unpin(app: &App, args: &UnpinArgs) -> Result<Exit, Failure> {
    change(app, &args.ids, &args.filter, Change::Unpin, &environment::user())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Pin,
    Unpin,
}

fn change(app: &App, ids: &[String], filter: &FilterArgs, change: Change, reason: &str) -> Result<Exit, Failure> {
    let opened = app.open()?;
    opened.repository.require(Roles::OPERATE, "pinning a snapshot")?;
    let versions = Versions::load(app, &opened.repository, filter)?;
    let found = versions.find_all(app, ids)?;
    let context = app.reading(opened.repository);
    let (now_ms, host) = (context.clock.now_ms(), environment::host());
    for version in &found {
        let result = app.block_on(async {
            match change {
                Change::Pin => context.repository.pin(version, now_ms, &host, reason).await,
                Change::Unpin => context.repository.unpin(version, now_ms, &host, reason).await,
            }
        });
        result.map_err(|error| failure(version, error))?;
        if app.out.is_json() {
            let id = version.id().to_string();
            app.out.json(&json!({"message_type": "pin", "id": id, "pinned": change == Change::Pin}))?;
        } else {
            let did = if change == Change::Pin { "pinned" } else { "no longer pinned" };
            app.out.info(format!("snapshot {} is {did}", version.id().short()))?;
        }
    }
    versions.warn_of_damage(app);
    Ok(Exit::Done)
}

fn failure(version: &Version, error: PinError) -> Failure {
    Failure::from(error).while_doing(&format!("snapshot {}", version.id().short()))
}
