//! `larder volume check`.
//!
//! A store whose log is damaged does not open, and neither does one without a container that the
//! log names. The command then only says what `--accept-loss` would lose. With that option it says
//! so too, before it does it.

use std::sync::Arc;

use larder_volume::disk::RealDisk;
use larder_volume::{CheckOptions, Loss, LostBlocks, Options, Recovery, Store, SystemEntropy, VolumeError};
use serde_json::{Value, json};

use super::target::{tell_loss, tell_recovery, unlock};
use crate::app::App;
use crate::args::VolumeCheckArgs;
use crate::exit::Exit;
use crate::failure::{Failure, chain};
use crate::sizes;

/// The share of the memory for what a check sorts.
const SORT_ONE_IN: usize = 8;

pub(super) fn run(app: &App, args: &VolumeCheckArgs) -> Result<Exit, Failure> {
    let (store, recovery) = open(app, args)?;
    let options = CheckOptions {
        read_data: args.read_data,
        memory: app.global.memory() / SORT_ONE_IN,
        scratch: app.scratch().unwrap_or_else(std::env::temp_dir),
    };
    let mut report = store.check(&options)?;
    let mut repaired = 0;
    if args.repair && report.wrong_counts > 0 {
        repaired = report.wrong_counts;
        let counts = sizes::count(repaired, "wrong count");
        store.repair_counts()?;
        app.out.warn(&format!("replaced {counts} of chunks"));
        report = store.check(&options)?;
    }
    for error in &report.errors {
        app.out.warn(&chain(error));
    }
    if app.out.is_json() {
        let mut value = lost(recovery.loss.as_ref(), true);
        value["volumes"] = json!(report.volumes);
        value["blocks"] = json!(report.blocks);
        value["chunks"] = json!(report.chunks);
        value["containers"] = json!(report.containers);
        value["bytes_read"] = json!(report.read_bytes);
        value["wrong_counts"] = json!(report.wrong_counts);
        value["counts_repaired"] = json!(repaired);
        value["errors"] = json!(report.errors.len());
        app.out.json(&value)?;
    } else {
        let what = format!(
            "{}, {}, {}, {}",
            sizes::count(report.volumes, "volume"),
            sizes::count(report.blocks, "block"),
            sizes::count(report.chunks, "chunk"),
            sizes::count(report.containers, "container"),
        );
        let read = if args.read_data { format!("; read {}", sizes::show(report.read_bytes)) } else { String::new() };
        let errors = sizes::count(report.errors.len() as u64, "error");
        app.out.info(format!("checked {what}{read}: {errors}"))?;
        if !args.repair && report.wrong_counts > 0 {
            app.out.info("`larder volume check --repair` replaces wrong counts of chunks; no data is lost by them")?;
        }
    }
    let is_whole = report.errors.is_empty() && recovery.loss.is_none();
    Ok(if is_whole { Exit::Done } else { Exit::Damage })
}

/// Opens the store. If its log is damaged, says what would be lost before anything is.
fn open(app: &App, args: &VolumeCheckArgs) -> Result<(Store, Recovery), Failure> {
    let disk = Arc::new(RealDisk::open(&args.store)?);
    let (config, keys) = unlock(app, &disk, &args.password)?;
    let options = |accept_loss| Options { accept_loss, ..Options::of_memory(app.global.memory()) };
    let open = |accept_loss| {
        let (keys, options) = (keys.clone(), options(accept_loss));
        Store::open_with_keys(disk.clone(), Arc::new(SystemEntropy), &config, keys, options)
    };
    let error = match open(false) {
        Err(error @ VolumeError::DamagedLog { .. }) => error,
        opened => {
            let (store, recovery) = opened?;
            tell_recovery(&app.out, &recovery);
            return Ok((store, recovery));
        }
    };
    // Without this list nobody could decide.
    let Some(loss) = Store::foresee_loss(&*disk, &config, &keys)? else { return Err(error.into()) };
    if args.accept_loss {
        tell_loss(&app.out, &loss, "the store gets the state before it, and loses", "fail from now on");
        return Ok(open(true)?);
    }
    tell_loss(
        &app.out,
        &loss,
        "nothing was changed; with --accept-loss, the store gets the state before it, and loses",
        "would fail",
    );
    if app.out.is_json() {
        app.out.json(&lost(Some(&loss), false))?;
    }
    Err(Failure::from(error).advise(
        "copy the folder of the store first; then `larder volume check --accept-loss` opens it without these writes",
    ))
}

/// The loss as JSON.
fn lost(loss: Option<&Loss>, is_accepted: bool) -> Value {
    let shown = |of: &LostBlocks| json!({"volume": of.volume, "first": of.first, "last": of.last});
    let of =
        |blocks: fn(&Loss) -> &[LostBlocks]| -> Vec<Value> { loss.into_iter().flat_map(blocks).map(shown).collect() };
    let mut value = json!({
        "message_type": "volume_check",
        "errors": 1,
        "commits_lost": loss.map_or(0, |loss| loss.unreadable + loss.dropped),
        "lost": of(|loss| &loss.blocks),
        "failing": of(|loss| &loss.failing),
        "containers_lost": loss.map_or(&[][..], |loss| loss.containers.as_slice()),
        "changes_lost": loss.map_or(&[][..], |loss| loss.changes.as_slice()),
    });
    if loss.is_some() {
        value["loss_accepted"] = json!(is_accepted);
    }
    value
}
