//! `larder repair`: rebuilds, restores or saves lost data.

mod data;
mod index;
mod snapshots;

use larder_rewrite::check::ReadData;

use crate::app::App;
use crate::args::{ReadDataArgs, RepairArgs, RepairCommand};
use crate::exit::Exit;
use crate::failure::Failure;

pub(super) fn run(app: &App, args: &RepairArgs) -> Result<Exit, Failure> {
    match &args.command {
        Some(RepairCommand::Config) => config(app),
        Some(RepairCommand::Index { dry_run: true }) => index::compare_index(app),
        Some(RepairCommand::Index { dry_run: false }) => index::rebuild_index(app),
        Some(RepairCommand::Snapshots(args)) => snapshots::run(app, args),
        Some(RepairCommand::Data(args)) => data::run(app, args),
        None => data::run(app, &args.data),
    }
}

/// Restores the object `config`.
fn config(app: &App) -> Result<Exit, Failure> {
    let repository = app.open()?.repository;
    let is_restored = app.block_on(repository.restore_config())?;
    let text = if is_restored { "config was restored" } else { "config is whole; nothing was changed" };
    if app.out.is_json() {
        app.out.json(&serde_json::json!({"message_type": "summary", "restored": is_restored}))?;
    } else {
        app.out.info(text)?;
    }
    Ok(Exit::Done)
}

fn read_data(args: &ReadDataArgs) -> ReadData {
    match (args.read_data, args.read_data_subset) {
        (true, _) => ReadData::All,
        (false, Some(part)) => part,
        (false, None) => ReadData::None,
    }
}

/// What a repair that found no damage did not look at, for the end of its sentence.
fn unseen(args: &ReadDataArgs) -> &'static str {
    match read_data(args) {
        ReadData::All => "",
        ReadData::None => "; without --read-data only what is missing, cut short or unreadable in its tables is found",
        _ => "; --read-data reads everything, and this was a part",
    }
}
