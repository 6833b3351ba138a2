//! The store of a command: its server, or the store itself.

use std::path::Path;
use std::sync::Arc;

use larder_format::config::Config;
use larder_format::keys::Keys;
use larder_volume::disk::RealDisk;
use larder_volume::store::{StoreUnlock, unlock_with};
use larder_volume::{Loss, LostBlocks, Options, Recovery, Store, SystemEntropy, VolumeError};
use serde_json::Value;

use super::control::Client;
use super::host::Host;
use super::request::Request;
use crate::app::App;
use crate::args::StorePasswordArgs;
use crate::failure::Failure;
use crate::key_file;
use crate::output::Output;
use crate::password::PasswordSource;
use crate::sizes;

/// Bytes of a block.
const BLOCK: u64 = larder_format::volume_map::BLOCK_LEN as u64;

/// See the module header.
pub(super) enum Target {
    Served(Client),
    Opened(Box<Host>),
}

/// Connects to the server of a store. Without one, opens the store for this process alone.
pub(super) fn target(app: &App, folder: &Path, password: &StorePasswordArgs) -> Result<Target, Failure> {
    if let Some(client) = Client::connect(folder)? {
        return Ok(Target::Served(client));
    }
    match RealDisk::open(folder) {
        // A server may have begun to listen meanwhile.
        Err(VolumeError::InUse) => match Client::connect(folder)? {
            Some(client) => Ok(Target::Served(client)),
            None => Err(VolumeError::InUse.into()),
        },
        disk => {
            let (store, recovery) = open_disk(app, disk?, password, Options::of_memory(app.global.memory()))?;
            tell_recovery(&app.out, &recovery);
            Ok(Target::Opened(Box::new(Host::new(store, recovery))))
        }
    }
}

/// Does one thing. A store that was opened for it is closed, so that the next start has nothing to
/// replay.
pub(super) fn ask(app: &App, folder: &Path, password: &StorePasswordArgs, request: &Request) -> Result<Value, Failure> {
    match target(app, folder, password)? {
        Target::Served(mut client) => client.ask(request),
        Target::Opened(host) => {
            let value = host.execute(request, &mut |_| Ok(()))?;
            host.store.close()?;
            Ok(value)
        }
    }
}

/// Opens a store for this process, which serves it, with changed options. Replays its log, and says
/// what was replayed.
pub(in crate::commands) fn open_server(
    app: &App,
    folder: &Path,
    password: &StorePasswordArgs,
    change: impl FnOnce(Options) -> Options,
) -> Result<(Store, Recovery), Failure> {
    let options = change(Options::of_memory(app.global.server_memory()));
    let (store, recovery) = open_disk(app, RealDisk::open(folder)?, password, options)?;
    tell_recovery(&app.out, &recovery);
    Ok((store, recovery))
}

fn open_disk(
    app: &App,
    disk: RealDisk,
    password: &StorePasswordArgs,
    options: Options,
) -> Result<(Store, Recovery), Failure> {
    let (config, keys) = unlock(app, &disk, password)?;
    let options = Options { compression: app.global.compression(), ..options };
    Ok(Store::open_with_keys(Arc::new(disk), Arc::new(SystemEntropy), &config, keys, options)?)
}

/// The keys of a store. Its own password comes first, then a key file, then the password that a
/// repository would have.
pub(super) fn unlock(app: &App, disk: &RealDisk, password: &StorePasswordArgs) -> Result<(Config, Keys), Failure> {
    let source = password_source(app, password);
    match PasswordSource::key_file(&app.global).filter(|_| !password.is_given()) {
        Some(path) => Ok(unlock_with(disk, &StoreUnlock::KeyFile(&key_file::read(&path)?))?),
        None => Ok(unlock_with(disk, &StoreUnlock::Password(&source.get_of_store()?))?),
    }
}

/// Where the password of a store comes from, if no key file opens it.
pub(super) fn password_source(app: &App, password: &StorePasswordArgs) -> PasswordSource {
    match &password.store_password_file {
        Some(path) if password.is_given() => PasswordSource::File(path.clone()),
        _ => PasswordSource::of(&app.global),
    }
}

/// Says how much of the log was replayed, and what it lost.
pub(super) fn tell_recovery(out: &Output, recovery: &Recovery) {
    if recovery.records + recovery.dropped > 0 {
        let commits = sizes::count(recovery.records, "commit");
        let bytes = sizes::show(recovery.bytes);
        let mut text = format!("the store was not closed: replayed {commits} ({bytes}) of the log");
        if recovery.dropped > 0 {
            text.push_str("; dropped the last one, which is incomplete");
        }
        out.remark(&text);
    }
    if let Some(loss) = &recovery.loss {
        tell_loss(out, loss, "the store has the state before it, and lost", "fail from now on");
    }
}

fn shown(LostBlocks { volume, first, last }: &LostBlocks) -> String {
    let bytes = sizes::show((last - first + 1) * BLOCK);
    let (from, to) = (first * BLOCK, (last + 1) * BLOCK - 1);
    format!("volume {volume}, blocks {first} to {last} (bytes {from} to {to}, {bytes})")
}

/// Says what is lost, or would be: later commits, and blocks whose content is gone.
pub(super) fn tell_loss(out: &Output, loss: &Loss, verb: &str, failing: &str) {
    for container in &loss.containers {
        out.warn(&format!("{container} is missing or too short; reads of these blocks {failing}:"));
    }
    for blocks in &loss.failing {
        out.warn(&format!("{}: no content", shown(blocks)));
    }
    if loss.unreadable + loss.dropped == 0 {
        if !loss.containers.is_empty() {
            return;
        }
        out.warn(&format!("{}: nothing shows whether the end of the log is missing; {verb} no known commit", loss.why));
        return;
    }
    let unreadable = sizes::count(loss.unreadable, "commit");
    let dropped = sizes::count(loss.dropped, "later commit");
    out.warn(&format!("{}: {verb} {unreadable} and {dropped}", loss.why));
    for blocks in &loss.blocks {
        out.warn(&format!("{}: lost writes", shown(blocks)));
    }
    for change in &loss.changes {
        out.warn(&format!("lost: {change}"));
    }
    if loss.unreadable > 0 {
        out.warn("commits that are missing or cannot be read may have changed other blocks, of any volume");
    }
}
