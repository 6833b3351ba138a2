//! `larder init`.

use std::ffi::OsString;
use std::sync::Arc;

use larder_chunking::{Algorithm, ChunkerParams};
use larder_format::config::Config;
use larder_format::ids::RepositoryId;
use larder_format::key_file::{KdfCost, KeyFields};
use larder_format::names;
use larder_format::roles::Roles;
use larder_job::{Clock, SystemClock};
use larder_store::config::{find_config, read_config};
use larder_store::repository::{SystemEntropy, random};
use larder_store::{Location, Repository, RepositoryError, Store};
use serde_json::json;

use crate::app::App;
use crate::args::{Global, InitArgs};
use crate::environment;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::password::PasswordSource;
use crate::sizes;
use crate::text::safe;

pub(super) fn run(app: &App, args: &InitArgs) -> Result<Exit, Failure> {
    let location = app.location()?;
    let store = app.store_at(&location)?;
    expect_own_folder(app, &location)?;
    let (chunker, page_cuts) = match &args.from_repo {
        Some(from) => cuts_of(app, args, from)?,
        None => (chunker(args)?, !args.no_page_cuts),
    };
    // Checked first, so that users do not choose a password in vain. If two clients pass this
    // check, still only one wins.
    match app.block_on(read_config(&store)) {
        Ok(_) => return Err(RepositoryError::AlreadyARepository { location: store.to_string() }.into()),
        Err(RepositoryError::NotARepository { .. }) => match app.block_on(find_config(&store)) {
            Err(RepositoryError::NotARepository { .. }) => {}
            Err(error) => return Err(error.into()),
            Ok(_) => {
                return Err(Failure::new(
                    Exit::Damage,
                    format!("there is a repository at {store}, but its config is missing"),
                )
                .advise("nothing was changed; `larder repair config` restores it"));
            }
        },
        // Another program may have made it, which a second look tells.
        Err(error @ RepositoryError::Damaged { .. }) => {
            return Err(app.block_on(find_config(&store)).err().unwrap_or(error).into());
        }
        Err(error) => return Err(error.into()),
    }
    let password = PasswordSource::of(&app.global).get_new()?;
    let config = Config {
        repository: RepositoryId(random(&SystemEntropy)?),
        created_ms: SystemClock.now_ms(),
        chunker,
        page_cuts,
    };
    let fields = key_fields(None, None, args.insecure_kdf);
    let repository = app.block_on(Repository::init(store, config, &password, fields, Arc::new(SystemEntropy)))?;
    let id = repository.config().repository.to_string();
    if app.out.is_json() {
        app.out.json(&json!({"message_type": "initialized", "id": id, "repository": location.to_string()}))?;
    } else {
        app.out.info(format!("repository {id} created at {location}"))?;
        app.out.info(if password.is_empty() {
            "It has no password: anyone who can read its objects can read everything in it."
        } else {
            "Without the password nobody can read the data. `larder key export` prints a paper key: keep one."
        })?;
    }
    tell_of_rclone(app, repository.store());
    Ok(Exit::Done)
}

/// Says what one server of this kind cannot show.
pub(super) fn tell_of_rclone(app: &App, store: &Store) {
    if store.is_rclone() {
        app.out.aside(
            "this server is like `rclone serve s3`. Only one such server may serve a repository, for all its \
             machines: with two, jobs could replace each other's objects",
        );
    }
}

/// Refuses a folder of other files: a repository between them is hard to get rid of. Refuses a name
/// that the configuration does not have, too: it would be a folder here.
fn expect_own_folder(app: &App, location: &Location) -> Result<(), Failure> {
    let Location::Local(path) = location else { return Ok(()) };
    if let Some(names) = app.like_a_name(location) {
        let why = format!("the configuration has no repository {}; it has {names}", path.display());
        return Err(Failure::usage(why).advise(format!("for a folder of this name, use -r ./{}", path.display())));
    }
    // What cannot be listed is for the storage to report.
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let is_foreign = |name: &OsString| !names::is_first_level(&name.to_string_lossy()) && !is_of_system(name);
    match entries.into_iter().find(is_foreign) {
        None => Ok(()),
        Some(name) => {
            let (shown, name) = (path.display(), safe(&name.to_string_lossy()));
            let why = format!("{shown} has other files, such as {name}; no repository was created");
            Err(Failure::usage(why)
                .advise(format!("use a folder of its own, such as {}", path.join("larder").display())))
        }
    }
}

/// Whether an empty folder may have an entry: file systems and file servers make these.
fn is_of_system(name: &OsString) -> bool {
    let name = name.as_encoded_bytes();
    name.starts_with(b".") || matches!(name, b"lost+found" | b"@eaDir" | b"#recycle" | b"System Volume Information")
}

/// How another repository cuts data.
fn cuts_of(app: &App, args: &InitArgs, from: &OsString) -> Result<(ChunkerParams, bool), Failure> {
    let mut global = Global { repo: Some(from.clone()), repository_file: None, ..app.global.clone() };
    if let Some(path) = &args.from_password_file {
        global.key_file = None;
        global.password_file = Some(path.clone());
        global.password_command = None;
        global.password_fd = None;
        global.insecure_no_password = false;
    }
    let opened = app.step(global, app.configured.clone(), app.out.clone()).open();
    let opened = opened.map_err(|failure| failure.while_doing("cannot read how --from-repo cuts data"))?;
    let config = opened.repository.config();
    Ok((config.chunker, config.page_cuts))
}

fn chunker(args: &InitArgs) -> Result<ChunkerParams, Failure> {
    let algorithm = args.chunker.map_or(Algorithm::DEFAULT, crate::args::ChunkerName::algorithm);
    let average = args.chunk_size.map_or(Ok(larder_chunking::DEFAULT_AVERAGE), u32::try_from);
    let average = average.map_err(|_| Failure::usage("chunks cannot be that large"))?;
    let params = ChunkerParams::with_average(algorithm, average);
    params.validate().map_err(|error| {
        Failure::of(Exit::Usage, &error).while_doing(&format!("chunks of {}", sizes::show(u64::from(average))))
    })?;
    Ok(params)
}

/// The fields that are recorded with a key.
pub(super) fn key_fields(host: Option<&str>, user: Option<&str>, insecure_kdf: bool) -> KeyFields {
    KeyFields {
        cost: Some(if insecure_kdf { KdfCost::TEST } else { KdfCost::DEFAULT }),
        // Drawn again when the key is made.
        salt: [0; 32],
        user: user.map_or_else(environment::user, str::to_owned),
        host: host.map_or_else(environment::host, str::to_owned),
        created_ms: SystemClock.now_ms(),
        roles: Roles::ALL,
        domain: String::new(),
        epoch: 0,
    }
}
