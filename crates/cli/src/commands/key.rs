//! `larder key`: passwords, key files and the paper key.

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;

use larder_format::closed_domain::ClosedDomain;
use larder_format::ids::KeyId;
use larder_format::key_file::{MachineKey, Unlock};
use larder_format::roles::Roles;
use larder_format::{ErrorKind, names};
use larder_job::{Clock, SystemClock};
use larder_secret::SecretBytes;
use larder_store::keyring::{ImportError, KeyList, UnreadableKey, open_with_paper};
use larder_store::repository::SystemEntropy;
use larder_store::{Location, Repository, RepositoryError};
use serde_json::json;
use zeroize::Zeroizing;

use super::init::key_fields;
use crate::app::{App, Unlocked};
use crate::args::{KeyArgs, KeyCommand, NewKey};
use crate::environment;
use crate::exit::Exit;
use crate::failure::{Failure, chain};
use crate::key_file::{self, About, write_new};
use crate::output::{Align, Table, safe};
use crate::password::PasswordSource;
use crate::{machine, sizes, time};

/// Larger than any paper key with its explanations.
const PAPER_MAX: usize = 64 << 10;

pub(super) fn run(app: &App, args: &KeyArgs) -> Result<Exit, Failure> {
    match &args.command {
        KeyCommand::List => list(app),
        KeyCommand::Add { role, domain, file, new } => add(app, *role, domain.as_deref(), file.as_deref(), new),
        KeyCommand::Remove { id, close_domain, reason } => {
            let close = close_domain.then(|| reason.as_deref().unwrap_or_default());
            remove(app, id, close)
        }
        KeyCommand::Passwd(new) => passwd(app, new),
        KeyCommand::Export { output } => export(app, output.as_deref()),
        KeyCommand::Import { paper, new } => import(app, paper.as_deref(), new),
    }?;
    Ok(Exit::Done)
}

fn list(app: &App) -> Result<(), Failure> {
    let opened = app.open()?;
    let KeyList { keys, unreadable } = app.block_on(opened.repository.list_keys())?;
    let current = opened.repository.opened_by();
    for UnreadableKey { id, error } in &unreadable {
        let why = chain(error);
        app.out.warn(&format!("{id} is no key: {why}; `larder key remove {id}` removes it"));
    }
    if app.out.is_json() {
        let keys: Vec<_> = keys
            .iter()
            .map(|key| {
                json!({
                    "current": Some(key.id) == current,
                    "foreign": key.is_foreign,
                    "genuine": key.is_genuine,
                    "role": key.fields.roles.to_string(),
                    "domain": key.fields.domain,
                    "file": key.fields.cost.is_none(),
                    "id": key.id.to_string(),
                    "userName": key.fields.user,
                    "hostName": key.fields.host,
                    "created": time::rfc3339(key.fields.created_ms),
                })
            })
            .collect();
        return app.out.json(&keys);
    }
    let mut table = Table::new(&[
        (" ID", Align::Left),
        ("Opens with", Align::Left),
        ("Role", Align::Left),
        ("Domain", Align::Cut),
        ("User", Align::Cut),
        ("Host", Align::Cut),
        ("Created", Align::Left),
    ]);
    for key in &keys {
        if key.is_foreign {
            let id = key.id;
            app.out.warn(&format!("{id} is not of this repository; `larder key remove {id}` removes it"));
        }
        if !key.is_foreign && !key.is_genuine {
            let id = key.id;
            app.out.warn(&format!("no operator of this repository made {id}; `larder key remove {id}` removes it"));
        }
        let mark = match (Some(key.id) == current, key.is_foreign || !key.is_genuine) {
            (true, _) => '*',
            (false, true) => '!',
            (false, false) => ' ',
        };
        let created = time::show(key.fields.created_ms);
        table.row(vec![
            format!("{mark}{}", key.id),
            if key.fields.cost.is_some() { "password" } else { "file" }.to_owned(),
            key.fields.roles.to_string(),
            safe(&key.fields.domain),
            safe(&key.fields.user),
            safe(&key.fields.host),
            created,
        ]);
    }
    app.out.table(table)
}

fn add(app: &App, roles: Roles, domain: Option<&str>, file: Option<&Path>, new: &NewKey) -> Result<(), Failure> {
    let location = app.location()?;
    let opened = app.open()?;
    opened.repository.require(Roles::ALL, "making a key")?;
    let mut fields = key_fields(new.host.as_deref(), new.user.as_deref(), new.insecure_kdf);
    // A key that may do everything belongs to no machine.
    let domain = match (domain, roles.holds(Roles::BACKUP) && !roles.is_all()) {
        (Some(domain), _) => domain.to_owned(),
        (None, true) => fields.host.clone(),
        (None, false) => String::new(),
    };
    if roles == Roles::BACKUP && domain.is_empty() {
        return Err(Failure::usage("a key that may only back up needs a domain").advise("name it with --domain"));
    }
    (fields.roles, fields.domain) = (roles, domain.clone());
    let Some(path) = file else {
        let password = PasswordSource::of_new(&new.password).get_new()?;
        let id = app.block_on(opened.repository.add_key(Unlock::Password(&password), fields))?;
        return done(app, "key_added", id, &format!("key {id} added"));
    };
    let about = About {
        roles: roles.to_string(),
        domain: &domain,
        location: location.to_string(),
        date: time::show(SystemClock.now_ms()),
    };
    let keep = |key: &MachineKey| key_file::add(path, key, &about);
    let id = app.block_on(opened.repository.add_machine_key::<Failure>(fields, keep))?;
    done(app, "key_added", id, &format!("key {id} added: {} opens the repository (--key-file)", path.display()))
}

/// Removes a key. `close`: also closes its domain, for this reason.
fn remove(app: &App, text: &str, close: Option<&str>) -> Result<(), Failure> {
    let opened = app.open()?;
    let list = app.block_on(opened.repository.list_keys())?;
    let ids = list.keys.iter().map(|key| key.id).chain(list.unreadable.iter().map(|key| key.id));
    let found: Vec<_> = ids.filter(|id| id.to_string().starts_with(text)).collect();
    let id = match found[..] {
        [id] => id,
        [] => {
            return Err(
                Failure::new(Exit::Failed, format!("no key fits {text:?}")).advise("`larder key list` shows the keys")
            );
        }
        _ => return Err(Failure::new(Exit::Failed, format!("{text:?} fits {} keys; give more digits", found.len()))),
    };
    if opened.repository.opened_by() == Some(id) {
        return Err(Failure::new(Exit::Failed, format!("key {id} is the one you use; nothing was removed"))
            .advise("use another key to remove it, or `larder key passwd` to replace a password"));
    }
    if let Some(reason) = close {
        // First, because nobody can tell the domain of a key that is gone.
        close_domain(app, &opened.repository, &list, id, reason)?;
    }
    app.block_on(opened.repository.remove_key(id))?;
    done(app, "key_removed", id, &format!("key {id} removed; anyone who copied it before can still use the copy"))
}

/// Closes the domain of a key, unless another key works in it.
fn close_domain(app: &App, repository: &Repository, list: &KeyList, id: KeyId, reason: &str) -> Result<(), Failure> {
    repository.require(Roles::OPERATE, "closing a domain")?;
    let refuse = |message: String| Failure::new(Exit::Failed, message + "; nothing was changed");
    let Some(key) = list.keys.iter().find(|key| key.id == id && key.is_genuine) else {
        return Err(refuse(format!("{id} is no key of this repository, so it has no domain")));
    };
    let (name, epoch) = (&key.fields.domain, key.fields.epoch);
    if name.is_empty() {
        return Err(refuse(format!("key {id} has no domain of its own, and the default domain cannot be closed")));
    }
    if key.fields.roles != Roles::BACKUP {
        let roles = key.fields.roles;
        return Err(refuse(format!("key {id} has the roles {roles}, so it opens every domain"))
            .advise("after its loss, make a new repository; the guide says how (keys and roles)"));
    }
    if let Some(other) = app.block_on(repository.other_keys_in(name, epoch, id))?.first() {
        let name = safe(name);
        return Err(refuse(format!("key {other} backs up as domain {name}, too"))
            .advise(format!("`larder key remove {other}` first; a machine that you trust gets a new key afterwards")));
    }
    let end = ClosedDomain {
        time_ms: SystemClock.now_ms(),
        host: environment::host(),
        reason: reason.to_owned(),
        name: name.clone(),
        epoch,
        versions: Vec::new(),
    };
    let closed = app.block_on(repository.close_domain(end))?;
    machine::remembering(&app.global, &app.out, repository).note_closed([closed.domain(repository.keys())]);
    // Made meanwhile by another operator.
    for other in app.block_on(repository.other_keys_in(name, epoch, id))? {
        app.out.warn(&format!("key {other} is of the closed domain, too: its snapshots do not count; remove it"));
    }
    if app.out.is_json() {
        return app.out.json(&json!({
            "message_type": "domain_closed",
            "domain": name,
            "time": time::rfc3339(closed.time_ms),
            "snapshots": closed.versions.len(),
        }));
    }
    let count = sizes::count(closed.versions.len() as u64, "snapshot");
    app.out
        .info(format!("domain {} closed: {count} of it remain, and all others are refused, now and later", safe(name)))
}

fn passwd(app: &App, new: &NewKey) -> Result<(), Failure> {
    let opened = app.open()?;
    let Unlocked::Password(old) = &opened.unlocked else {
        return Err(Failure::new(Exit::WrongKey, "a key file has no password to change")
            .advise("`larder key add` adds a password"));
    };
    let password = PasswordSource::of_new(&new.password).get_new()?;
    let fields = key_fields(new.host.as_deref(), new.user.as_deref(), new.insecure_kdf);
    let id = app.block_on(opened.repository.change_password(old, &password, fields))?;
    done(app, "key_changed", id, &format!("the password was changed; the new key is {id}"))
}

fn done(app: &App, what: &str, id: KeyId, text: &str) -> Result<(), Failure> {
    if app.out.is_json() {
        app.out.json(&json!({"message_type": what, "id": id.to_string()}))
    } else {
        app.out.info(text)
    }
}

fn export(app: &App, output: Option<&Path>) -> Result<(), Failure> {
    let location = app.location()?;
    let opened = app.open()?;
    let lines = Zeroizing::new(opened.repository.paper_key()?);
    if app.out.is_json() && output.is_none() {
        let id = opened.repository.config().repository.to_string();
        let paper = json!({"message_type": "paper_key", "id": id, "repository": location.to_string(), "lines": *lines});
        return app.out.json(&paper);
    }
    let sheet = paper_sheet(&opened.repository, &location, &lines)
        .map_err(|error| Failure::of(Exit::Failed, &error).while_doing("cannot hold the paper key"))?;
    match output {
        None => app.out.raw(text_of(&sheet)?),
        Some(path) => {
            write_new(path, &sheet).map_err(|error| {
                let failure =
                    Failure::of_file(&error).while_doing(&format!("cannot write the paper key to {}", path.display()));
                match error.kind() {
                    io::ErrorKind::AlreadyExists => failure.advise("nothing was changed; name another file"),
                    _ => failure.advise("there is no paper key in it"),
                }
            })?;
            app.out.info(format!("paper key written to {}; keep it apart from the repository", path.display()))
        }
    }
}

/// The sheet: an explanation, instructions, and the six lines.
fn paper_sheet(repository: &Repository, location: &Location, lines: &[String]) -> io::Result<SecretBytes> {
    let location = safe(&location.to_string());
    let head = format!(
        "# Paper key of a Larder repository\n\
         #\n\
         # Repository  {}\n\
         # Location    {location}\n\
         # Date        {}\n\
         #\n\
         # Anyone who has this sheet and the repository can read everything. Keep it away from the repository.\n\
         # When the password is lost, or the objects in keys/:\n\
         #     larder -r {location} key import FILE\n\
         # and type the six lines below into FILE. It asks for a new password. Upper and lower case, spaces and\n\
         # dashes do not matter; each line is checked by itself, so a typing error is found.\n\
         #\n",
        repository.config().repository,
        time::show(SystemClock.now_ms()),
    );
    let mut sheet = SecretBytes::with_capacity(head.len() + lines.iter().map(|line| line.len() + 1).sum::<usize>())?;
    sheet.write_all(head.as_bytes())?;
    for line in lines {
        sheet.write_all(line.as_bytes())?;
        sheet.write_all(b"\n")?;
    }
    Ok(sheet)
}

fn import(app: &App, paper: Option<&Path>, new: &NewKey) -> Result<(), Failure> {
    let store = app.store()?;
    let paper = read_paper(app, paper)?;
    let opened = app.block_on(open_with_paper(store, text_of(&paper)?, Arc::new(SystemEntropy)));
    let repository = opened.map_err(not_opened)?;
    let password = PasswordSource::of_new(&new.password).get_new()?;
    let fields = key_fields(new.host.as_deref(), new.user.as_deref(), new.insecure_kdf);
    if app.block_on(repository.restore_config())? {
        app.out.remark("config was missing or damaged, and was restored");
    }
    let id = app.block_on(repository.add_key(Unlock::Password(&password), fields))?;
    done(app, "key_added", id, &format!("key {id} added: the new password opens the repository"))
}

/// The paper key opens nothing. Advice for other commands is to use it.
fn not_opened(error: ImportError) -> Failure {
    let is_of_config = match &error {
        ImportError::Repository(RepositoryError::OtherConfig { program, .. }) => program.is_none(),
        ImportError::Repository(error @ RepositoryError::Damaged { name, .. }) => {
            name == names::CONFIG && error.kind() == ErrorKind::Damaged
        }
        ImportError::Repository(RepositoryError::ConfigUnusable { .. }) => true,
        _ => false,
    };
    let failure = Failure::from(error);
    match is_of_config {
        true => failure.advise("no key and no snapshot replaces config; check -r/--repo, or put it back from a copy"),
        false => failure,
    }
}

/// Reads the six lines and skips the explanations around them.
fn read_paper(app: &App, path: Option<&Path>) -> Result<SecretBytes, Failure> {
    let read = match path.filter(|path| *path != Path::new("-")) {
        Some(path) => std::fs::File::open(path).and_then(|file| SecretBytes::read(file, PAPER_MAX)),
        None => {
            // A pipe needs no prompt.
            if io::stdin().is_terminal() {
                app.out.remark("type or paste the six lines of the paper key, then press Ctrl-D:");
            }
            // Past the buffer of the standard library, which would keep a copy.
            let input = rustix::io::dup(io::stdin()).map_err(io::Error::from);
            input.and_then(|input| SecretBytes::read(std::fs::File::from(input), PAPER_MAX))
        }
    };
    let from = path.map_or_else(String::new, |path| format!(" from {}", path.display()));
    read.and_then(|text| without_comments(&text))
        .map_err(|error| Failure::of(Exit::Failed, &error).while_doing(&format!("cannot read the paper key{from}")))
}

/// The lines that do not begin with `#`.
fn without_comments(text: &[u8]) -> io::Result<SecretBytes> {
    let mut lines = SecretBytes::with_capacity(text.len())?;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        if !line.trim_ascii_start().starts_with(b"#") {
            lines.write_all(line)?;
        }
    }
    Ok(lines)
}

fn text_of(secret: &[u8]) -> Result<&str, Failure> {
    std::str::from_utf8(secret)
        .map_err(|error| Failure::of(Exit::Failed, &error).while_doing("the paper key is not a text"))
}
