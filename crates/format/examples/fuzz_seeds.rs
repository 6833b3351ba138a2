//! Writes a valid input for every fuzz target into a folder: `fuzz_seeds FOLDER`.

#[path = "../tests/support/mod.rs"]
mod support;

use std::path::Path;

use larder_format::compress::{Compression, Compressor};
use larder_format::ids::{ContainerKind, KeyId, SettingsOf};
use larder_format::index_mark::IndexMark;
use larder_format::key_file::{KdfCost, KeyFields, to_paper, wrap};
use larder_format::seal::MasterKey;
use larder_format::{names, recipe, segment};
use support::{CONTAINER, Forger, JOB, SERIES, keys};

/// A part as the targets split their input: a length and the bytes.
fn part(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u16).to_le_bytes()[..], bytes].concat()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args_os().nth(1).ok_or("usage: fuzz_seeds FOLDER")?;
    let write = |target: &str, name: &str, bytes: &[u8]| {
        let folder = Path::new(&folder).join(target);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join(name), bytes)
    };
    let (keys, master) = (keys(), MasterKey(support::MASTER));
    let config = support::config().encode(&keys)?;
    write("config", "sealed", &config)?;
    write("config", "fields", &config[..config.len() - 32])?;
    let lease = support::lease().encode(&keys, JOB, 4, [9; 16])?;
    write("lease", "sealed", &lease)?;
    write("lease", "fields", &support::open(&names::lease(JOB, 4), &lease)[0])?;
    let mark = support::forgotten().encode(&keys, SERIES, JOB, [9; 16])?;
    write("mark", "forgotten", &mark)?;
    write("mark", "fields", &support::open(&names::forgotten(SERIES, JOB), &mark)[0])?;
    let done = support::done().encode(&keys, JOB, [9; 16])?;
    write("mark", "done", &done)?;
    write("mark", "done_fields", &support::open(&names::lease_done(JOB), &done)[0])?;
    let mark = IndexMark::Counts([8; 16]).encode(&keys, 5, [9; 16])?;
    write("mark", "index", &mark)?;
    write("mark", "index_fields", &support::open(&names::indexed(5), &mark)[0])?;
    let of = SettingsOf::Series(SERIES);
    let settings = support::settings().encode(&keys, of, 2, [9; 16])?;
    write("settings", "sealed", &settings)?;
    write("settings", "fields", &support::open(&names::settings(of, 2), &settings)[0])?;
    write("manifest", "sealed", &support::manifest().encode(&keys, SERIES, 0, [9; 16])?)?;
    let [summary, body] = support::manifest_parts();
    write("manifest", "parts", &[part(&summary), body].concat())?;
    let parts = support::container_parts();
    write("container", "sealed", &Forger::new().container(CONTAINER, &parts))?;
    let payload = parts.payload_len.to_le_bytes();
    let fields = [parts.chunk_count as u8, parts.frame_count as u8, payload[0], payload[1], payload[2], 0];
    let frames: Vec<u8> = parts.frames.iter().flat_map(|frame| part(frame)).collect();
    let tables = [part(&parts.chunk_table), part(&parts.frame_table)].concat();
    write("container", "parts", &[&fields[..], &tables, &frames].concat())?;
    write("index_manifest", "sealed", &support::index_manifest().encode(&keys, [9; 16])?)?;
    let [head, body] = support::index_manifest_parts();
    write("index_manifest", "parts", &[part(&head), body].concat())?;
    let parts = support::run_parts();
    write("index_run", "sealed", &Forger::new().run(&parts))?;
    let blocks: Vec<u8> = parts.blocks.iter().flat_map(|block| part(block)).collect();
    write(
        "index_run",
        "parts",
        &[&parts.head[..], &[0], &part(&parts.filter), &part(&parts.fences), &blocks].concat(),
    )?;
    let mut facts = Vec::new();
    support::container_facts().encode(&mut facts)?;
    write("index_record", "facts", &facts)?;
    write("index_record", "set", &[1, 11, 1, 4])?;
    let raw = b"compressed compressed compressed compressed compressed compressed";
    let mut stored = Vec::new();
    Compressor::new(Compression::DEFAULT).compress(raw, &mut stored);
    write("compressed_frame", "zstd", &[&(raw.len() as u16).to_le_bytes()[..], &stored].concat())?;
    write("segment", "valid", &segment::encode(&support::records(), &support::superchunks())?)?;
    write("segment", "even", &segment::encode(&support::records()[3..5], &[])?)?;
    write("recipe_node", "valid", &recipe::encode_node(&support::segments())?)?;
    write("metadata_block", "valid", &support::checks::blocks(&support::entries())[0].bytes)?;
    let fields = KeyFields {
        cost: KdfCost::TEST,
        salt: [5; 32],
        user: "alice".to_owned(),
        host: "host".to_owned(),
        created_ms: 1_790_000_000_000,
    };
    write("key_fields", "valid", &wrap(&master, b"secret", &fields, KeyId([3; 8]), support::REPOSITORY)?)?;
    write("paper_key", "valid", to_paper(&master, support::REPOSITORY).join("\n").as_bytes())?;
    let container = support::container_id(ContainerKind::Meta, JOB, 10);
    for (name, text) in [
        ("container", names::container(container)),
        ("lease", names::lease(JOB, 10)),
        ("done", names::lease_done(JOB)),
        ("version", names::version(SERIES, JOB, 10)),
        ("forgotten", names::forgotten(SERIES, JOB)),
        ("key", names::key(KeyId([3; 8]))),
        ("index", names::index(10)),
        ("indexed", names::indexed(10)),
        ("run", names::run(support::RUN)),
        ("settings", names::settings(SettingsOf::Series(SERIES), 10)),
        ("settings_default", names::settings(SettingsOf::Default, 10)),
    ] {
        write("object_name", name, text.as_bytes())?;
    }
    Ok(())
}
