//! `larder cat`: objects of the repository as JSON, for support. Nothing secret is shown.

use larder_format::manifest::Manifest;
use larder_format::recipe::Recipe;
use larder_store::config::find_config;
use serde_json::{Value, json};

use crate::app::App;
use crate::args::{CatArgs, FilterArgs};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::foreign_verbs;
use crate::output::summary;
use crate::refs::Versions;
use crate::restic;
use crate::time;

pub(super) fn run(app: &App, args: &CatArgs) -> Result<Exit, Failure> {
    if let Some(failure) = foreign_verbs::object(&args.what) {
        return Err(failure);
    }
    let value = match (args.what.as_str(), &args.id) {
        ("config", None) => config(app)?,
        ("key", Some(id)) => key(app, id)?,
        ("manifest" | "snapshot", Some(id)) => manifest(app, id)?,
        ("config", Some(_)) => return Err(Failure::usage("there is only one config")),
        (what, _) => return Err(Failure::usage(format!("which {what}? give its id"))),
    };
    let value = if restic::is_on() { restic::mapped(value) } else { value };
    let text = if app.out.is_json() { value.to_string() } else { format!("{value:#}") };
    app.out.line(text)?;
    Ok(Exit::Done)
}

fn config(app: &App) -> Result<Value, Failure> {
    let repository = app.open()?.repository;
    let config = repository.config();
    let mut object = json!({
        "id": config.repository.to_string(),
        "created": time::rfc3339(config.created_ms),
        "chunker": config.chunker.algorithm.to_string(),
        "chunk_min": config.chunker.min,
        "chunk_average": config.chunker.average,
        "chunk_max": config.chunker.max,
        "page_cuts": config.page_cuts,
    });
    if restic::is_on() {
        // Programs read these. They mean nothing here.
        object["version"] = json!(2);
        object["chunker_polynomial"] = json!("0");
    }
    Ok(object)
}

/// Needs no password: the shown parts of a key are not secret, and users who cannot open the
/// repository need them.
fn key(app: &App, id: &str) -> Result<Value, Failure> {
    let store = app.store()?;
    app.block_on(find_config(&store))?;
    let listed = app.block_on(store.list(larder_format::names::KEYS))?;
    let mut found = listed.iter().filter(|object| {
        larder_format::names::parse_key(&object.name).is_some_and(|key| key.to_string().starts_with(id))
    });
    let (Some(object), None) = (found.next(), found.next()) else {
        return Err(Failure::new(Exit::Failed, format!("not exactly one key fits {id:?}"))
            .advise("`larder key list` shows the keys"));
    };
    let bytes = app.block_on(store.get_up_to(&object.name, larder_format::key_file::KEY_MAX))?;
    let fields = larder_format::key_file::read_fields(&bytes)
        .map_err(|source| larder_store::RepositoryError::Damaged { name: object.name.clone(), source })?;
    Ok(json!({
        "id": object.name.trim_start_matches(larder_format::names::KEYS),
        "kdf": if fields.cost.is_some() { "argon2id" } else { "file" },
        "memory_kib": fields.cost.map(|cost| cost.memory_kib),
        "passes": fields.cost.map(|cost| cost.passes),
        "parallelism": fields.cost.map(|cost| cost.lanes),
        "role": fields.roles.to_string(),
        "domain": fields.domain,
        "userName": fields.user,
        "hostName": fields.host,
        "created": time::rfc3339(fields.created_ms),
    }))
}

fn manifest(app: &App, id: &str) -> Result<Value, Failure> {
    let repository = app.open()?.repository;
    let versions = Versions::load_named(app, &repository, &FilterArgs::default(), &[id])?;
    let version = versions.find(app, id)?;
    let Manifest { data, metadata, containers, .. } = app.block_on(repository.manifest(&version))?;
    let recipe = |recipe: &Recipe| json!({"bytes": recipe.bytes(), "chunks": recipe.chunks(), "segments": recipe.segments(), "nodes": recipe.nodes.len()});
    let rows: Vec<_> = containers
        .iter()
        .map(|usage| {
            json!({
                "container": usage.container.to_string(),
                "chunks_used": usage.chunks_used,
                "bytes_used": usage.bytes_used,
                "chunks_held": usage.chunks_held,
                "bytes_held": usage.bytes_held,
                "object_bytes": usage.object_bytes,
            })
        })
        .collect();
    let mut object = summary::version(&version);
    object.insert("generation".to_owned(), json!(version.generation));
    object.insert("data".to_owned(), recipe(&data));
    object.insert("metadata".to_owned(), recipe(&metadata));
    object.insert("containers".to_owned(), json!(rows));
    Ok(Value::Object(object))
}
