//! `larder volume`: stores of deduplicated block devices.

mod serve;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_format::key_file::KdfCost;
use larder_job::{Clock, SystemClock};
use larder_volume::disk::RealDisk;
use larder_volume::store::{NewStore, unlock, volumes};
use larder_volume::{Options, Recovery, Store, SystemEntropy, VolumeError};
use serde_json::json;

use crate::app::App;
use crate::args::{VolumeArgs, VolumeCheckArgs, VolumeCommand, VolumeCreateArgs, VolumeInitArgs, VolumeListArgs};
use crate::exit::Exit;
use crate::failure::{Failure, chain};
use crate::output::{Align, Table};
use crate::password::PasswordSource;
use crate::sizes;
use crate::time;

/// Slots of a new log.
const SLOTS: u32 = 8;
/// The least bytes of a slot: a commit has to fit into a quarter of it.
const SLOT_LEAST: u64 = 4 << 20;
const SLOT_MOST: u64 = 1 << 30;

pub(super) fn run(app: &App, args: &VolumeArgs) -> Result<Exit, Failure> {
    match &args.command {
        VolumeCommand::Init(args) => init(app, args),
        VolumeCommand::Create(args) => create(app, args),
        VolumeCommand::List(args) => list(app, args),
        VolumeCommand::Serve(args) => serve::run(app, args),
        VolumeCommand::Check(args) => check(app, args),
    }
}

fn init(app: &App, args: &VolumeInitArgs) -> Result<Exit, Failure> {
    let slot_bytes = args.log / u64::from(SLOTS) / 4096 * 4096;
    if !(SLOT_LEAST..=SLOT_MOST).contains(&slot_bytes) {
        return Err(Failure::usage("--log takes 32MiB to 8GiB"));
    }
    // Checked first, so that users do not choose a password in vain.
    let disk = RealDisk::create(&args.store)?;
    let password = PasswordSource::of(&app.global).get_new()?;
    let cost = if args.insecure_kdf { KdfCost::TEST } else { KdfCost::DEFAULT };
    let new = NewStore { slots: SLOTS, slot_bytes, now_ms: SystemClock.now_ms(), cost, ..NewStore::default() };
    let config = Store::create(&disk, &SystemEntropy, &password, &new)?;
    let (id, store) = (config.repository.to_string(), args.store.display().to_string());
    if app.out.is_json() {
        app.out.json(&json!({"message_type": "volume_initialized", "id": id, "store": store}))?;
    } else {
        app.out.info(format!("volume store {id} created in {store}"))?;
        app.out.info("Without the password nobody can read the data.")?;
    }
    Ok(Exit::Done)
}

/// Opens a store for this process alone, and replays its log.
fn open(app: &App, folder: &Path) -> Result<(Store, Recovery), Failure> {
    let disk = RealDisk::open(folder)?;
    let password = PasswordSource::of(&app.global).get()?;
    let options = Options::of_memory(app.global.memory());
    Ok(Store::open(Arc::new(disk), Arc::new(SystemEntropy), &password, options)?)
}

/// Says how much of the log was replayed, if it was.
fn tell_recovery(app: &App, recovery: &Recovery) {
    if recovery.records + recovery.dropped == 0 {
        return;
    }
    let commits = sizes::count(recovery.records, "commit");
    let mut text = format!("the store was not closed: replayed {commits} ({}) of the log", sizes::show(recovery.bytes));
    if recovery.dropped > 0 {
        text.push_str("; dropped an incomplete one that was never acknowledged");
    }
    app.out.remark(&text);
}

fn create(app: &App, args: &VolumeCreateArgs) -> Result<Exit, Failure> {
    let (folder, name) = split(&args.volume)?;
    let (store, recovery) = open(app, &folder)?;
    tell_recovery(app, &recovery);
    let volume = store.create_volume(&name, args.size, SystemClock.now_ms())?;
    if app.out.is_json() {
        app.out.json(&json!({"message_type": "volume_created", "name": volume.name, "size": volume.size}))?;
    } else {
        app.out.info(format!("volume {} of {} created", volume.name, sizes::show(volume.size)))?;
    }
    Ok(Exit::Done)
}

/// Folder and name of `STORE/NAME`.
fn split(text: &OsStr) -> Result<(PathBuf, String), Failure> {
    let wrong = || Failure::usage("a volume is named as STORE/NAME, such as /srv/store/disk1");
    let path = Path::new(text);
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Err(wrong()) };
    if folder.as_os_str().is_empty() || text.as_bytes().ends_with(b"/") {
        return Err(wrong());
    }
    Ok((folder.to_owned(), name.to_str().ok_or_else(wrong)?.to_owned()))
}

fn list(app: &App, args: &VolumeListArgs) -> Result<Exit, Failure> {
    if !args.store.join(larder_volume::store::CONFIG).is_file() {
        return Err(VolumeError::NoStore(args.store.display().to_string()).into());
    }
    // A server may have it open.
    let disk = RealDisk::unlocked(&args.store);
    let (_, keys) = unlock(&disk, &PasswordSource::of(&app.global).get()?)?;
    let volumes = volumes(&disk, &keys)?;
    if app.out.is_json() {
        let list: Vec<_> = volumes
            .iter()
            .map(
                |volume| json!({"name": volume.name, "size": volume.size, "created": time::rfc3339(volume.created_ms)}),
            )
            .collect();
        app.out.json(&list)?;
        return Ok(Exit::Done);
    }
    let mut table = Table::new(&[("Name", Align::Left), ("Size", Align::Right), ("Created", Align::Left)]);
    for volume in volumes {
        table.row(vec![volume.name, sizes::show(volume.size), time::show(volume.created_ms)]);
    }
    app.out.table(table)?;
    Ok(Exit::Done)
}

fn check(app: &App, args: &VolumeCheckArgs) -> Result<Exit, Failure> {
    let (store, recovery) = open(app, &args.store)?;
    tell_recovery(app, &recovery);
    let report = store.check(args.read_data)?;
    for error in &report.errors {
        app.out.warn(&chain(error));
    }
    if app.out.is_json() {
        app.out.json(&json!({
            "message_type": "volume_check",
            "volumes": report.volumes,
            "blocks": report.blocks,
            "chunks": report.chunks,
            "containers": report.containers,
            "bytes_read": report.read_bytes,
            "errors": report.errors.len(),
        }))?;
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
    }
    Ok(if report.errors.is_empty() { Exit::Done } else { Exit::Damage })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_named_by_store_and_name() {
        assert_eq!(split(OsStr::new("/srv/s/disk1")).unwrap(), ("/srv/s".into(), "disk1".into()));
        assert_eq!(split(OsStr::new("./s/a")).unwrap(), ("./s".into(), "a".into()));
        for wrong in ["", "disk1", "/", "s/..", "s/"] {
            assert_eq!(split(OsStr::new(wrong)).unwrap_err().exit, Exit::Usage, "{wrong}");
        }
    }
}
