//! `larder volume init`.

use std::ffi::OsStr;

use larder_chunking::{Algorithm, ChunkerParams};
use larder_format::key_file::{KEY_MAX, KdfCost};
use larder_format::names;
use larder_format::roles::Roles;
use larder_job::{Clock, SystemClock};
use larder_volume::disk::RealDisk;
use larder_volume::store::{LikeRepository, NewStore};
use larder_volume::{Store, SystemEntropy};
use serde_json::json;

use super::target::password_source;
use crate::app::App;
use crate::args::{Global, VolumeChunks, VolumeInitArgs};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::password::Password;

/// Slots of a new log.
const SLOTS: u32 = 8;
/// The least bytes of a slot: a commit has to fit into a quarter of it.
const SLOT_LEAST: u64 = 4 << 20;
const SLOT_MOST: u64 = 1 << 30;

pub(super) fn run(app: &App, args: &VolumeInitArgs) -> Result<Exit, Failure> {
    let slot_bytes = args.log / u64::from(SLOTS) / 4096 * 4096;
    if !(SLOT_LEAST..=SLOT_MOST).contains(&slot_bytes) {
        return Err(Failure::usage("--log takes 32MiB to 8GiB"));
    }
    // Before the folder is made: the repository may be out of reach.
    let like = args.like.as_deref().map(|location| like(app, location)).transpose()?;
    // Checked first, so that users do not choose a password in vain.
    let shown = args.store.display();
    if args.store.exists() && !args.store.is_dir() {
        return Err(Failure::usage(format!("{shown} is not a folder")));
    }
    let disk = RealDisk::create(&args.store)?;
    let source = password_source(app, &args.password);
    let password = match like {
        Some(_) => Password::default(),
        None => source.get_new_of_store()?,
    };
    let cost = if args.insecure_kdf { KdfCost::TEST } else { KdfCost::DEFAULT };
    let is_like = like.is_some();
    let now_ms = SystemClock.now_ms();
    let new = NewStore { slots: SLOTS, slot_bytes, now_ms, cost, like, ..NewStore::default() };
    let new = NewStore { chunker: chunker(args.chunks, new.chunker), ..new };
    let config = Store::create(&disk, &SystemEntropy, &password, &new).map_err(|error| {
        let failure = Failure::from(error).while_doing(&format!("cannot create a volume store in {shown}"));
        failure.advise(format!("remove what is in {shown} before the next try"))
    })?;
    let (id, store) = (config.repository.to_string(), args.store.display().to_string());
    if app.out.is_json() {
        app.out.json(&json!({"message_type": "volume_initialized", "id": id, "store": store}))?;
    } else {
        app.out.info(format!("volume store {id} created in {store}"))?;
        app.out.info(if is_like {
            "The passwords and key files of the repository open it, as they are now.".to_owned()
        } else {
            format!("Its password is {}. Without the password nobody can read the data.", source.shown())
        })?;
    }
    Ok(Exit::Done)
}

fn chunker(chunks: VolumeChunks, by_content: ChunkerParams) -> ChunkerParams {
    match chunks {
        VolumeChunks::Cdc => by_content,
        VolumeChunks::Fixed4 => ChunkerParams::with_average(Algorithm::Fixed, 4 << 10),
        VolumeChunks::Fixed8 => ChunkerParams::with_average(Algorithm::Fixed, 8 << 10),
    }
}

/// The keys of a repository, which the password or the key file opens.
fn like(app: &App, location: &OsStr) -> Result<LikeRepository, Failure> {
    let global = Global { repo: Some(location.to_owned()), repository_file: None, ..app.global.clone() };
    let other = app.step(global, app.configured.clone(), app.out.clone());
    let repository = other.open()?.repository;
    repository.require(Roles::ALL, "sharing the keys with a store of volumes")?;
    let mut objects = Vec::new();
    for key in other.block_on(repository.list_keys())?.keys {
        if key.fields.roles == Roles::ALL && key.is_genuine && !key.is_foreign {
            let bytes = other.block_on(repository.store().get_up_to(&names::key(key.id), KEY_MAX))?;
            objects.push((key.id, bytes.to_vec()));
        }
    }
    let config = repository.config().clone();
    Ok(LikeRepository { keys: repository.keys().as_ref().clone(), config, objects })
}
